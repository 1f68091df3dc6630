//! Whole replays, each a process, against the least that can be done with a capture, and against an exact hash map.
//!
//! It takes captures of the project's generator and gives rows of CPU time, memory and wall time, the list included.

use crate::captures::{self, Capture, OPEN_CHURN, OPEN_COUNT, QUICK_DIVISOR};
use crate::process::{Outcome, Task, Usage};
use crate::row::{Case, Pair, Scale, Suite};
use flowpeel::engine::{Config, Plan};
use serde_json::Value;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What a process takes beside what flowpeel announces, in MiB: code, stacks, buffers for output.
const PROCESS_MIB: f64 = 16.0;

/// The most that the router's side may take, in bytes a connection.
const BYTES_A_CONNECTION_MAX: f64 = 20.0;

/// Room for half-open connections that is enough for `open`.
const OPEN_HALF_OPEN: u64 = 1 << 14;

/// The error of what is announced, which is rounded to tenths of a MiB.
const ANNOUNCED_ERROR_MIB: f64 = 0.051;

/// The memory that a million connections take; for fewer the default is enough.
const OPEN_MEMORY: &str = "400MiB";

/// Two processes, whose costs are measured alike.
struct Processes {
    work: Task,
    limit: Task,
    cost: fn(&Usage) -> f64,
}

/// The cost of a process; not a number if it fails, so that the other measurements are not lost.
fn cost(task: &Task, cost: fn(&Usage) -> f64) -> f64 {
    task.run().map(|outcome| cost(&outcome.usage)).unwrap_or_else(failed)
}

fn failed(error: String) -> f64 {
    eprintln!("limits: {error}");
    f64::NAN
}

impl Pair for Processes {
    fn work(&mut self) -> f64 {
        cost(&self.work, self.cost)
    }

    fn limit(&mut self) -> f64 {
        cost(&self.limit, self.cost)
    }
}

/// A process, and what it announces.
struct Announced {
    task: Task,
    /// The cost.
    cost: fn(&Outcome) -> f64,
    /// The most that it may cost.
    limit: fn(&Outcome) -> f64,
    last: Outcome,
}

impl Announced {
    fn new(task: Task, cost: fn(&Outcome) -> f64, limit: fn(&Outcome) -> f64) -> Result<Self, String> {
        let last = task.run()?;
        Ok(Announced { task, cost, limit, last })
    }
}

impl Pair for Announced {
    fn work(&mut self) -> f64 {
        match self.task.run() {
            Ok(outcome) => {
                self.last = outcome;
                (self.cost)(&self.last)
            }
            Err(error) => failed(error),
        }
    }

    /// The limit for the run that was just measured.
    fn limit(&mut self) -> f64 {
        (self.limit)(&self.last)
    }
}

/// The capture of this name, or its small sister.
fn capture(scale: Scale, name: &str) -> Result<Capture, String> {
    if scale.is_quick { captures::named(&format!("{name}-quick")) } else { captures::named(name) }
}

/// A replay that writes its lists to standard output.
fn replay(capture: &Capture, options: &[&str]) -> Task {
    Task::flowpeel(&[&["replay"], options, &[capture.path.as_str()]].concat())
}

/// The MiB that flowpeel announces behind this text.
fn announced_mib(said: &str, before: &str) -> f64 {
    let behind = said.split_once(before).map_or("", |(_, behind)| behind);
    let end = behind.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(behind.len());
    behind[..end].parse().unwrap_or(f64::NAN)
}

/// The result of a replay.
struct Listed {
    /// The number of connections of the last list.
    flow_count: u64,
    /// The text on standard error.
    said: String,
}

/// Checks that every list of a replay is complete, and that the last has about as many connections as `expected`.
fn assure_listed(task: &Task, expected: RangeInclusive<u64>) -> Result<Listed, String> {
    let (mut flow_count, mut incomplete) = (None, None);
    let outcome = task.each_line(|line| {
        let header = line.contains(r#""event_type":"flow_list""#).then(|| serde_json::from_str(line));
        let Some(Ok::<Value, _>(header)) = header else { return };
        flow_count = header["flow_list"]["flows"].as_u64();
        if header["flow_list"]["complete"] != true {
            incomplete = Some(line.to_owned());
        }
    })?;
    if let Some(header) = incomplete {
        return Err(format!("a list is not complete: {header}"));
    }
    let flow_count = flow_count.ok_or("there was no list")?;
    if expected.contains(&flow_count) {
        Ok(Listed { flow_count, said: outcome.said })
    } else {
        Err(format!("{flow_count} connections are listed, not {expected:?}"))
    }
}

/// Checks that the exact map lists as many connections as flowpeel, a tenth less to a fifth more, and `half_open` on
/// top.
fn assure_map(task: &Task, flow_count: u64, half_open: u64) -> Result<(), String> {
    let count = task.count_lines()?;
    let most = flow_count + flow_count / 5 + half_open;
    if (flow_count - flow_count / 10..=most).contains(&count) {
        Ok(())
    } else {
        Err(format!("the map lists {count} connections, flowpeel {flow_count}"))
    }
}

fn against_the_loop(scale: Scale) -> Result<Processes, String> {
    let capture = capture(scale, "mixed")?;
    let limit = Task::rival(&["bare-loop", &capture.path])?;
    let mut wrote = String::new();
    limit.each_line(|line| wrote += line)?;
    if !wrote.starts_with(&format!("{} packets", capture.truth.packets)) {
        return Err(format!("the loop counts otherwise: {wrote}"));
    }
    let work = replay(&capture, &[]);
    assure_listed(&work, 1..=capture.truth.connections)?;
    Ok(Processes { work, limit, cost: Usage::cpu_s })
}

fn against_the_map(scale: Scale) -> Result<Processes, String> {
    let capture = capture(scale, "mixed")?;
    let (work, limit) = (replay(&capture, &[]), Task::rival(&["exact-map", &capture.path])?);
    let flow_count = assure_listed(&work, 1..=capture.truth.connections)?.flow_count;
    // Some connections are not answered, and the map knows no timeout.
    assure_map(&limit, flow_count, capture.truth.connections / 10)?;
    Ok(Processes { work, limit, cost: Usage::cpu_s })
}

fn flooded(scale: Scale) -> Result<Processes, String> {
    let capture = capture(scale, "flood")?;
    let (work, limit) = (flooded_replay(&capture)?, Task::rival(&["exact-map", &capture.path])?);
    let count = limit.count_lines()?;
    if !(capture.truth.flood..capture.truth.flood + capture.truth.connections).contains(&count) {
        return Err(format!("the map lists {count} connections under a flood of {}", capture.truth.flood));
    }
    Ok(Processes { work, limit, cost: Usage::cpu_s })
}

/// A replay of the flood that lists the open connections of its clients.
fn flooded_replay(capture: &Capture) -> Result<Task, String> {
    let work = replay(capture, &[]);
    assure_listed(&work, 900..=1_000)?;
    Ok(work)
}

fn flood_memory(scale: Scale) -> Result<Announced, String> {
    let work = flooded_replay(&capture(scale, "flood")?)?;
    let limit = |outcome: &Outcome| announced_mib(&outcome.said, "changes an interval: ") + PROCESS_MIB;
    Announced::new(work, |outcome| outcome.usage.peak_mib(), limit)
}

/// How many connections are open in `open`.
fn open_count(scale: Scale) -> u64 {
    if scale.is_quick { OPEN_COUNT / QUICK_DIVISOR } else { OPEN_COUNT }
}

/// How many open and close in an interval of it.
fn open_churn(scale: Scale) -> u64 {
    if scale.is_quick { OPEN_CHURN / QUICK_DIVISOR } else { OPEN_CHURN }
}

/// A replay of `open` with just the room that it takes, its capture, and its text on standard error.
fn open_replay(scale: Scale, options: &[&str]) -> Result<(Task, Capture, Listed), String> {
    let capture = capture(scale, "open")?;
    let connections = open_count(scale).to_string();
    let churn = open_churn(scale).to_string();
    let sizes = ["--memory", OPEN_MEMORY, "--connections", connections.as_str(), "--churn", churn.as_str()];
    let work = replay(&capture, &[&sizes, options].concat());
    let count = open_count(scale);
    let listed = assure_listed(&work, count - count / 50..=count + count / 50)?;
    Ok((work, capture, listed))
}

fn open_memory(scale: Scale) -> Result<Processes, String> {
    let (work, capture, _) = open_replay(scale, &[])?;
    let limit = Task::rival(&["exact-map", "--bounded", &open_count(scale).to_string(), &capture.path])?;
    assure_map(&limit, open_count(scale), 0)?;
    Ok(Processes { work, limit, cost: Usage::peak_mib })
}

/// A cost that does not change from run to run.
struct Known {
    work: f64,
    limit: f64,
}

impl Pair for Known {
    fn work(&mut self) -> f64 {
        self.work
    }

    fn limit(&mut self) -> f64 {
        self.limit
    }
}

/// The memory that a replay takes without its list, after a check that every list is complete: with room for this many
/// half-open connections, or by default.
fn router_bytes(scale: Scale, half_open_max: Option<u64>) -> Result<Known, String> {
    let every = Duration::from_secs(10);
    let asked = half_open_max.map(|count| count.to_string());
    let half_open: Vec<&str> = asked.iter().flat_map(|count| ["--half-open", count]).collect();
    let (_, _, Listed { said, .. }) = open_replay(scale, &[&["--every", "10s"], &half_open[..]].concat())?;
    let config = Config {
        every: Some(every),
        connections_max: open_count(scale),
        churn: Some(open_churn(scale)),
        half_open_max,
        memory_size_max: u64::MAX,
        ..Config::default()
    };
    let memory = Plan::new(&config).map_err(|error| error.to_string())?.memory();
    let parts = [
        ("(filter ", memory.filter_size + memory.refused_size),
        (", half-open ", memory.rings_size),
        ("tables ", memory.tables_size),
        ("queues and buffers ", memory.queues_size),
    ];
    for (part, size) in parts {
        let announced = announced_mib(&said, part);
        if announced.is_nan() || (announced - size as f64 / f64::from(1 << 20)).abs() > ANNOUNCED_ERROR_MIB {
            return Err(format!("{size} bytes are planned, and announced is: {part}{announced} MiB"));
        }
    }
    let size: u64 = parts.iter().map(|(_, size)| size).sum();
    Ok(Known { work: size as f64 / open_count(scale) as f64, limit: BYTES_A_CONNECTION_MAX })
}

/// The memory that a live capture takes, as `flowpeel plan` says, with the kernel's ring and the watch over silent
/// connections.
fn planned_bytes(_scale: Scale) -> Result<Known, String> {
    let (connections, churn) = (OPEN_COUNT.to_string(), OPEN_CHURN.to_string());
    let plan = Task::flowpeel(&["plan", "--connections", &connections, "--churn", &churn, "--every", "10s", "--json"]);
    let mut wrote = String::new();
    plan.each_line(|line| wrote += line)?;
    let plan: Value = serde_json::from_str(&wrote).map_err(|error| error.to_string())?;
    let memory = &plan["memory_bytes"];
    let sizes = ["filter", "half_open", "tables", "queues"].map(|part| memory[part].as_f64().unwrap_or(f64::NAN));
    Ok(Known { work: sizes.iter().sum::<f64>() / OPEN_COUNT as f64, limit: BYTES_A_CONNECTION_MAX })
}

/// A replay on two cores against the same on one.
fn cores(scale: Scale, name: &'static str, options: &[&str]) -> Result<Processes, String> {
    let work = match name {
        "open" => open_replay(scale, options)?.0,
        _ => {
            let capture = capture(scale, name)?;
            let work = replay(&capture, options);
            assure_listed(&work, 1..=capture.truth.connections)?;
            work
        }
    };
    Ok(Processes { work: work.clone().on_cores(2), limit: work.on_cores(1), cost: |usage| usage.wall_s })
}

/// Measures whole replays.
pub(crate) fn run(suite: &mut Suite) {
    let mixed = "replay, 9.5M packets, one list";
    let case = |name, work, limit, unit, at_most| Case { name, work, limit, unit, at_most };
    suite.compare(case("replay/bare-loop", mixed, "read() and flags loop", "CPU s", Some(1.5)), against_the_loop);
    suite.compare(case("replay/exact-map", mixed, "exact hash map", "CPU s", Some(0.9)), against_the_map);
    let flood = "replay, flood of 5M SYNs";
    suite.compare(case("replay/flood-map", flood, "exact hash map", "CPU s", Some(0.15)), flooded);
    suite.compare(
        case("replay/flood-memory", "peak memory, flood of 5M SYNs", "announced + 16 MiB", "MiB", Some(1.0)),
        flood_memory,
    );
    suite.compare(
        case("replay/open-memory", "peak memory, 1M open, list included", "exact map bounded at 1M", "MiB", Some(1.3)),
        open_memory,
    );
    suite.compare(
        case(
            "replay/router-bytes",
            "filter, rings, tables and queues, 1M open, 100k churn, every list complete",
            "20 bytes",
            "bytes a connection",
            Some(1.0),
        ),
        |scale| router_bytes(scale, None),
    );
    suite.compare(
        case(
            "replay/router-bytes-half-open",
            "the same with --half-open 16384",
            "20 bytes",
            "bytes a connection",
            Some(1.0),
        ),
        |scale| router_bytes(scale, Some(OPEN_HALF_OPEN)),
    );
    suite.compare(
        case(
            "replay/router-bytes-live",
            "the same planned for a live capture of one interface, with its ring",
            "20 bytes",
            "bytes a connection",
            Some(1.0),
        ),
        planned_bytes,
    );
    let wall = |name, work, at_most| case(name, work, "the same on one core", "wall s", at_most);
    // On two cores there are two shards here; by default the second core is for the capture.
    suite.compare(
        wall("replay/two-cores", "replay on two cores, two shards, 1M open, every packet a signal", Some(0.65)),
        |scale| cores(scale, "open", &["--shards", "2"]),
    );
    suite.compare(wall("replay/two-cores-one-shard", "the same with the one shard of the default", None), |scale| {
        cores(scale, "open", &[])
    });
    suite.compare(
        wall("replay/two-cores-mixed", "replay on two cores, 9.5M packets, few of them signals", None),
        |scale| cores(scale, "mixed", &[]),
    );
}
