//! `flowpeel plan`: numbers of connections in, options and the memory that they take out.

use crate::cli::lists::SOURCES_TEXT;
use crate::cli::report::{grouped, mib};
use crate::cli::table::{self, Align};
use crate::cli::{Failure, Outcome, Status, print, tracking, values};
use crate::engine::{Config, Memory, Sizing, TableSizing};
use crate::error::Error;
use clap::Args;
use flowpeel_iblt;
use flowpeel_iblt::interval::{Interval, NINETY_FIVE};
use serde::{Serialize, Serializer};
use std::time::Duration;

/// The seed of the random items: the same question has the same answer.
const SEED: u64 = 1;

/// Compute options and memory for a number of connections
///
/// Prints how large each part is, and how often a table would fail to list by itself: expected from measured curves,
/// and simulated with random connections.
#[derive(Args)]
#[command(
    display_name = "flowpeel plan",
    after_help = "Examples:\n  flowpeel plan --connections 1M --churn 100k --every 10s\n  \
    flowpeel plan --connections 20k --churn 500 --failure 1e-3 --json"
)]
pub(super) struct Arguments {
    /// Connections that can be open at once
    #[arg(long, value_name = "N", default_value = "500k", value_parser = values::count)]
    connections: u64,

    /// Openings and closings in an interval [default: a fifth of --connections, at least 20k]
    #[arg(long, value_name = "N", value_parser = values::count)]
    churn: Option<u64>,

    /// Count who opens connections too, with so many sources exact in an interval [default N: 30k]
    #[arg(long, value_name = "N", value_parser = values::count, num_args = 0..=1, require_equals = true,
        default_missing_value = SOURCES_TEXT.as_str())]
    sources: Option<u64>,

    /// Let flowpeel top attach, with --control
    #[arg(long)]
    control: bool,

    /// The length of an interval
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::duration)]
    every: Duration,

    /// The share of tables that may fail to list by themselves (the next interval then settles it)
    #[arg(long, value_name = "SHARE", default_value = "1e-6", value_parser = values::failure)]
    failure: f64,

    /// Write a JSON object
    #[arg(long)]
    json: bool,
}

/// A kind of tables as JSON.
#[derive(Serialize)]
struct TableObject {
    placement: String,
    tables: u64,
    items: u64,
    hand_overs: u64,
    cells: u64,
    cells_per_item: f64,
    bytes: u64,
    expected_failure: f64,
    simulated_trials: u64,
    simulated_failures: u64,
    simulated_low: f64,
    simulated_high: f64,
}

impl TableObject {
    fn new(sizing: &TableSizing) -> Self {
        let flowpeel_iblt::Outcome { trial_count, failure_count, .. } = sizing.simulate(SEED);
        let Interval { low, high } = Interval::of_share(failure_count, trial_count, NINETY_FIVE);
        TableObject {
            placement: sizing.placement.to_string(),
            tables: sizing.table_count,
            items: sizing.item_count,
            hand_overs: sizing.hand_over_count,
            cells: sizing.cell_count,
            cells_per_item: sizing.cell_count as f64 / sizing.item_count.max(1) as f64,
            bytes: sizing.table_count * sizing.size,
            expected_failure: sizing.failure,
            simulated_trials: trial_count,
            simulated_failures: failure_count,
            simulated_low: low,
            simulated_high: high,
        }
    }

    /// The column of the table for people.
    fn texts(&self) -> [String; 9] {
        let simulated = match self.simulated_trials {
            0 => "not tried: too many items".to_owned(),
            trials => format!(
                "{} of {} ({:.1e} to {:.1e})",
                grouped(self.simulated_failures),
                grouped(trials),
                self.simulated_low,
                self.simulated_high
            ),
        };
        [
            self.placement.clone(),
            self.tables.to_string(),
            grouped(self.items),
            grouped(self.hand_overs),
            grouped(self.cells),
            format!("{:.2}", self.cells_per_item),
            kib(self.bytes),
            format!("{:.1e}", self.expected_failure),
            simulated,
        ]
    }
}

/// The parts of a memory that take any of it, and their sum.
fn parts(memory: &Memory) -> impl Iterator<Item = (&'static str, u64)> {
    let parts = memory.parts().into_iter().filter(|(_, size)| *size > 0);
    parts.chain([("total", memory.total_size())])
}

/// The parts of the memory as a JSON object.
fn memory_parts<S: Serializer>(memory: &Memory, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(parts(memory))
}

/// The plan as JSON.
#[derive(Serialize)]
struct PlanObject {
    connections: u64,
    churn: u64,
    half_open: u64,
    failure: f64,
    options: String,
    #[serde(serialize_with = "memory_parts")]
    memory_bytes: Memory,
    engine: TableObject,
    best: TableObject,
}

fn kib(size: u64) -> String {
    format!("{} KiB", grouped(size.div_ceil(1 << 10)))
}

/// A duration in the form that options take.
fn duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

fn options(config: &Config, every: Duration) -> String {
    let Config { connections_max, memory_size_max, .. } = config;
    let churn = config.churn.map_or(String::new(), |churn| format!(" --churn {churn}"));
    let (every, memory_mib) = (duration(every), memory_size_max >> 20);
    // Sources are written to files, so there has to be a directory.
    let sources = config.sources_max.map_or(String::new(), |count| format!(" --sources={count} --out lists/"));
    format!("--every {every} --connections {connections_max}{churn} --memory {memory_mib}MiB{sources}")
}

const ROWS: [&str; 9] = [
    "placement",
    "tables",
    "items a table, at most",
    "times filled an interval",
    "cells a table",
    "cells an item",
    "memory",
    "expected to fail",
    "failed in trials (95 %)",
];

/// The words for a part of the memory.
fn part_name(part: &'static str) -> &'static str {
    match part {
        "filter" => "memory of the filter",
        "half_open" => "half-open connections",
        "tables" => "all tables",
        "queues" => "queues and one ring",
        "list" => "the list, up to",
        "view" => "rows for flowpeel top, up to",
        "total" => "together",
        other => other,
    }
}

/// The plan as a text for people.
fn text(plan: &PlanObject) -> String {
    let head = ["", "flowpeel's tables, IPv4", "the best single table"].map(str::to_owned);
    let tables = plan.engine.texts().into_iter().zip(plan.best.texts());
    let rows = ROWS.into_iter().zip(tables).map(|(name, (engine, best))| [name.to_owned(), engine, best]);
    let memory =
        parts(&plan.memory_bytes).map(|(part, size)| [part_name(part).into(), mib(size) + " MiB", String::new()]);
    let empty = std::array::from_fn(|_| String::new());
    let rows: Vec<_> = std::iter::once(head).chain(rows).chain([empty]).chain(memory).collect();
    let text = table::text(&rows, [Align::Left; 3]);
    let connections = grouped(plan.connections);
    let (half_open, churn) = (grouped(plan.half_open), grouped(plan.churn));
    let head = format!("{connections} connections, {half_open} half-open, {churn} openings and closings an interval\n");
    let control = if plan.memory_bytes.view_size > 0 { " --control /run/flowpeel.sock" } else { "" };
    let options = &plan.options;
    format!("{head}\n{text}\nflowpeel live -i IFACE {options}{control}\nflowpeel replay {options} FILE\n")
}

/// Makes the plan.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    // The defaults of a live capture take memory too; a replay takes no more.
    let asked = Config {
        every: Some(arguments.every),
        connections_max: arguments.connections,
        churn: arguments.churn,
        sources_max: arguments.sources,
        has_view: arguments.control,
        names: tracking::option_of,
        ..Config::live_defaults()
    };
    let sizing = Sizing::new(&asked, arguments.failure).map_err(Failure::wrong_usage)?;
    let plan = PlanObject {
        connections: arguments.connections,
        churn: sizing.churn,
        half_open: sizing.half_open_count,
        failure: arguments.failure,
        options: options(&sizing.config, arguments.every),
        memory_bytes: sizing.memory,
        engine: TableObject::new(&sizing.engine),
        best: TableObject::new(&sizing.best),
    };
    let text = if arguments.json {
        let line = serde_json::to_string(&plan);
        line.map_err(|error| Error::new("cannot write the plan").because(error))? + "\n"
    } else {
        text(&plan)
    };
    print(text.as_bytes())?;
    Ok(Status::Done)
}
