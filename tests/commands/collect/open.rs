//! More open connections than any table lists, of which few change in an interval; every third snapshot is lost, and
//! the agent is started again in between.

use super::list_names;
use super::steady::{INTERVAL_US, Pace, Steady};
use flowpeel::agent::{Agent, AgentConfig, AgentCounts, AgentEvent, AgentObserver};
use flowpeel::engine::{Config, Plan, Snapshots};
use flowpeel::error::Result;
use flowpeel::export::{Directory, Exporter, Format, Keep, Output, SnapshotDirectory};
use flowpeel::run::run;
use flowpeel_iblt::hash::Secret;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes both, as the command line does.
struct Router {
    lists: Directory,
    snapshots: SnapshotDirectory,
}

impl Exporter for Router {
    fn write(&mut self, output: Output) -> Result<()> {
        match output {
            Output::List(list) => {
                assert!(list.header.complete);
                self.lists.write(output)
            }
            Output::Snapshot(snapshot) => self.snapshots.write(snapshot),
            Output::Sources(_) => Ok(()),
        }
    }
}

/// Keeps the most connections that a list had, and how long each took.
#[derive(Default)]
struct Kept {
    flows: u64,
    took: Duration,
    count: u32,
    began: Option<Instant>,
}

impl AgentObserver for Kept {
    fn report(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Listed(_, header) => {
                assert!(header.complete, "{header:?}");
                self.flows = self.flows.max(header.flows);
                self.count += 1;
                self.took += self.began.replace(Instant::now()).map_or(Duration::ZERO, |began| began.elapsed());
            }
            AgentEvent::Refused(error) | AgentEvent::Warning(error) => panic!("{error}"),
        }
    }
}

/// Says something under the name of these tests, whether they pass or not.
fn say(text: &str) {
    crate::support::say::say(&format!("collect: {text}"));
}

/// Runs a router at this pace, whose tables list `churn` changes, and holds an agent's lists against its own.
fn assert_collected(pace: Pace, churn: u64) {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let (lists, snapshots) = (path("lists"), path("snapshots"));
    let format = Format { compress: true, ..Format::default() };
    let config = Config {
        every: Some(Duration::from_micros(INTERVAL_US)),
        connections_max: pace.open + pace.open / 5,
        churn: Some(churn),
        memory_size_max: 8 << 30,
        snapshots: Some(Snapshots { router: "edge".to_owned(), run: 7, replace_lists: false }),
        ..Config::default()
    };
    let secret = Secret::REPLAY;
    let mut router = Router {
        lists: Directory::new(&lists, false, format.clone(), Keep::default()).unwrap(),
        snapshots: SnapshotDirectory::new(&snapshots, secret.clone(), Keep::default()).unwrap(),
    };
    let began = Instant::now();
    let inputs = std::iter::once(Ok(Steady::new(pace)));
    let summary = run(&Plan::new(&config).unwrap(), inputs, &mut router, &mut (), None).unwrap();
    assert_eq!((summary.lists, summary.incomplete), (pace.intervals, 0));
    let all = super::names(&snapshots);
    let sizes = all.iter().map(|name| fs::metadata(snapshots.join(name)).unwrap().len());
    let largest = sizes.max().unwrap() >> 10;
    say(&format!(
        "router: {} lists in {:.1} s, snapshots up to {largest} KiB",
        summary.lists,
        began.elapsed().as_secs_f64()
    ));

    let (lost, kept): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(at, _)| at % 3 == 2);
    lost.iter().for_each(|(_, name)| fs::remove_file(snapshots.join(name)).unwrap());
    let aside = path("aside");
    fs::create_dir(&aside).unwrap();
    let (first, rest) = kept.split_at(kept.len() * 2 / 3);
    let move_rest = |from: &Path, to: &Path| {
        rest.iter().for_each(|(_, name)| fs::rename(from.join(name), to.join(name)).unwrap());
    };
    move_rest(&snapshots, &aside);
    let agent = AgentConfig {
        snapshots: snapshots.clone(),
        lists: path("agent"),
        secret,
        format,
        keep: Keep::default(),
        part: None,
        base: None,
    };
    assert!(collect(&agent, first.len() as u64) <= pace.open);
    move_rest(&aside, &snapshots);
    assert_eq!(collect(&agent, rest.len() as u64), pace.open);

    let expected: Vec<_> = list_names(&lists).into_iter().enumerate().filter(|(at, _)| at % 3 != 2).collect();
    assert!(list_names(&agent.lists).iter().eq(expected.iter().map(|(_, name)| name)));
    for (_, name) in expected {
        assert!(fs::read(lists.join(&name)).unwrap() == fs::read(agent.lists.join(&name)).unwrap(), "{name}");
    }
}

/// Runs an agent once, which has to write this many lists. Returns the most connections in one of them.
fn collect(config: &AgentConfig, lists: u64) -> u64 {
    let began = Instant::now();
    let mut kept = Kept { began: Some(began), ..Kept::default() };
    let mut agent = Agent::new(config).unwrap();
    agent.once(&mut kept).unwrap();
    let AgentCounts { passed_over, .. } = agent.counts();
    assert_eq!(agent.counts(), AgentCounts { lists, passed_over, ..AgentCounts::default() });
    assert!(passed_over > 0);
    let mean_ms = kept.took.as_millis() / u128::from(kept.count);
    say(&format!(
        "agent: {lists} lists of up to {} in {:.1} s, {mean_ms} ms each",
        kept.flows,
        began.elapsed().as_secs_f64()
    ));
    kept.flows
}

#[test]
fn the_agent_lists_what_the_router_lists_however_many_are_open() {
    assert_collected(Pace { filled: 1_000, open: 20_000, changed: 450, intervals: 30 }, 2_000);
}

/// Some minutes and a gigabyte on the disk: `cargo test --release --test collect -- --ignored`.
#[test]
#[ignore = "the long form of the test above"]
fn the_agent_lists_a_million_that_the_router_lists() {
    assert_collected(Pace { filled: 50_000, open: 1_000_000, changed: 22_000, intervals: 32 }, 100_000);
}
