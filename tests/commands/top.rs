//! `flowpeel top` on terminals, and without one.

use crate::support::command::{FLOWPEEL, command, flowpeel, run};
use crate::support::say::skipped;
use crate::support::terminal::{ENTERED, LEFT, OnTerminal, on_terminal};
use std::process::Command;

/// `flowpeel top` with these arguments on a terminal; `None`, after saying why, where there can be none.
fn top(arguments: &[&str]) -> Option<OnTerminal> {
    if Command::new("python3").arg("-V").output().is_err() {
        skipped("python3 is not installed");
        return None;
    }
    let [program, size @ ..] = on_terminal();
    let mut command = Command::new(program);
    command.args(size).args([FLOWPEEL, "top"]).args(arguments);
    Some(OnTerminal::start(command))
}

#[test]
fn a_capture_is_played_and_stays_until_q() {
    let Some(mut top) = top(&["--speed", "100", "pcaps/web.pcap"]) else { return };
    top.until("the last list 5");
    top.until("10.0.1.1:48346");
    top.press("?");
    top.until("KEYS");
    // Escape and a key at once would be another key.
    top.press("?");
    top.until("CLIENT");
    top.press("/");
    top.press("server prot 80\r");
    top.until("is expected here");
    top.press("\u{15}server port 80\r");
    top.until("selected 2 of 3");
    top.press("q");
    let (status, sent) = top.wait();
    assert_eq!(status.code(), Some(0));
    assert!(sent.contains(ENTERED) && sent.trim_end().contains(LEFT));
    // What it came to is printed where the terminal was given back.
    assert!(sent.split(LEFT).last().unwrap().contains("open"), "{sent}");
}

#[test]
fn signals_give_the_terminal_back() {
    for signal in ["-TERM", "-INT", "-HUP"] {
        let Some(top) = top(&["pcaps/web.pcap"]) else { return };
        top.until("flowpeel top");
        top.until("list 1 ");
        top.signal(signal);
        let (status, sent) = top.wait();
        assert_eq!(status.code(), Some(0), "{signal}");
        assert!(sent.split(ENTERED).last().unwrap().contains(LEFT), "{signal}");
    }
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let ended = flowpeel(["top", "pcaps/web.pcap"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stdout.is_empty() && ended.stderr.contains("is no terminal"), "{}", ended.stderr);
    for arguments in [&["top"][..], &["top", "-i", "lo", "a.pcap"], &["top", "--attach", "a", "b.pcap"]] {
        assert_eq!(flowpeel(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let refused = run(&mut command(FLOWPEEL, "live -i lo --control c --no-list --snapshots s".split(' ')));
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("--control"), "{}", refused.stderr);
}

#[test]
fn what_cannot_be_watched_is_an_error_and_leaves_the_terminal_alone() {
    for arguments in [&["--attach", "/nowhere/control.sock"][..], &["/nowhere/day.pcap"]] {
        let Some(top) = top(arguments) else { return };
        let (status, sent) = top.wait();
        assert_eq!(status.code(), Some(1), "{sent}");
        assert!(sent.contains("error:") && sent.contains("/nowhere/") && !sent.contains(ENTERED), "{sent}");
    }
}

#[test]
fn rows_for_top_are_announced() {
    let plan = flowpeel(["plan", "--json", "--control"]);
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    let with = &plan["memory_bytes"];
    assert!(with["view"].as_u64().unwrap() > 500_000 * 72, "{with}");
    let plan = flowpeel(["plan", "--control"]);
    let text = String::from_utf8(plan.stdout).unwrap();
    assert!(text.contains("rows for flowpeel top, up to") && text.contains("--control /run/flowpeel.sock"), "{text}");
    let plan = flowpeel(["plan", "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert!(plan["memory_bytes"].get("view").is_none(), "{plan}");
}
