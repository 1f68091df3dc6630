//! `flowpeel plan` as a command: its figures are consistent, and the options that it gives are accepted.

use crate::support::command::{self, Ended, text};
use serde_json::Value;

fn flowpeel(arguments: &str) -> Ended {
    command::flowpeel(arguments.split_whitespace())
}

fn plan(arguments: &str) -> Value {
    let output = flowpeel(&format!("plan --json {arguments}"));
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(plan: &Value, path: &str) -> f64 {
    plan.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {plan}"))
}

#[test]
fn what_is_expected_agrees_with_trials_from_a_hundred_to_a_million() {
    for (arguments, failure) in [
        ("--connections 1000 --churn 100 --failure 1e-3", 1e-3),
        ("--connections 1000 --churn 100 --failure 1e-2", 1e-2),
        ("--connections 20k --churn 5k --failure 1e-3", 1e-3),
        ("--connections 1M --churn 100k --every 10s", 1e-6),
        ("--connections 2M --churn 1M --failure 1e-2", 1e-2),
    ] {
        let plan = plan(arguments);
        for table in ["/engine", "/best"] {
            let value = |name: &str| number(&plan, &format!("{table}/{name}"));
            assert!(value("expected_failure") <= failure, "{arguments}: {plan}");
            // Chance, and twice of what the curves say: the simulated interval must not be all above it.
            assert!(value("simulated_low") <= 2.0 * failure, "{arguments}: {plan}");
            assert!(value("simulated_low") <= value("simulated_high"));
            assert!(value("cells") >= value("items"), "{arguments}: {plan}");
            let trials = value("simulated_trials");
            assert!(trials >= 10.0 && trials * value("items") <= 1e7, "{arguments}: {plan}");
        }
        let engine = |name: &str| number(&plan, &format!("/engine/{name}"));
        assert!(engine("items") * engine("tables") * engine("hand_overs") >= number(&plan, "/churn"));
        let parts = ["filter", "half_open", "tables", "queues", "list"];
        let sum: f64 = parts.iter().map(|part| number(&plan, &format!("/memory_bytes/{part}"))).sum();
        assert_eq!(sum, number(&plan, "/memory_bytes/total"));
    }
}

#[test]
fn a_hundred_keys_need_what_was_measured_and_not_what_a_rule_says() {
    let plan = plan("--connections 1000 --churn 100 --failure 1e-3");
    assert!((150.0..170.0).contains(&number(&plan, "/best/cells")), "{plan}");
    let rare = self::plan("--connections 1000 --churn 100 --failure 1e-6");
    assert!(number(&rare, "/best/cells") > 200.0 && number(&rare, "/engine/cells") > number(&plan, "/engine/cells"));
}

#[test]
fn the_options_it_gives_are_taken() {
    for arguments in ["--connections 1M --churn 100k --every 10s", "--connections 5 --churn 5 --every 500ms"] {
        let plan = plan(arguments);
        let options = plan["options"].as_str().unwrap();
        // Whether they hold together is checked before any interface is looked for.
        let live = flowpeel(&format!("live -i nosuchinterface {options}"));
        let said = &live.stderr;
        assert!(live.status.code() == Some(1) && said.contains("nosuchinterface"), "{said}");
        let output = flowpeel(&format!("replay pcaps/ssh.pcap {options}"));
        assert_eq!(output.status.code(), Some(0), "{options}: {}", output.stderr);
        let printed = text(&flowpeel(&format!("plan {arguments}")).stdout);
        assert!(printed.contains(&format!("flowpeel replay {options} FILE")), "{printed}");
    }
}

#[test]
fn what_can_not_be_is_refused() {
    for arguments in ["--connections 1G", "--churn 1G", "--failure 1e-9", "--every 1ms"] {
        let output = flowpeel(&format!("plan {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(output.stdout.is_empty());
    }
}
