//! `flowpeel plan`: numbers of connections in, options and what they take out.

use crate::cli::lists::SOURCES_TEXT;
use crate::cli::report::{self, grouped};
use crate::cli::tracking::Defaults;
use crate::cli::{Status, print, values};
use crate::interval::{Interval, NINETY_FIVE};
use crate::pipeline::{Config, Memory, Sizing, TableSizing};
use crate::sketch::Outcome;
use clap::Args;
use serde::Serialize;
use std::time::Duration;

/// What random items follow from: the same question has the same answer.
const SEED: u64 = 1;

/// Tells which options so many connections call for, what they take, and how often a list has to wait
///
/// Expected failures come from measured curves, simulated ones from trials with random connections.
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

    /// Openings and closings in an interval
    #[arg(long, value_name = "N", default_value = "100k", value_parser = values::count)]
    churn: u64,

    /// Count who opens connections too, with so many sources exact in an interval [default N: 30k]
    #[arg(long, value_name = "N", value_parser = values::count, num_args = 0..=1, require_equals = true,
        default_missing_value = SOURCES_TEXT)]
    sources: Option<u64>,

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

/// A kind of tables, for machines.
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
        let Outcome { trial_count, failure_count, .. } = sizing.simulate(SEED);
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

    /// What stands in its column of the table for people.
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

/// The parts of the memory, for machines.
#[derive(Serialize)]
struct MemoryObject {
    filter: u64,
    half_open: u64,
    tables: u64,
    queues: u64,
    list: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sources: Option<u64>,
    total: u64,
}

impl MemoryObject {
    fn new(memory: &Memory) -> Self {
        MemoryObject {
            filter: memory.filter_size,
            half_open: memory.rings_size,
            tables: memory.tables_size,
            queues: memory.queues_size,
            list: memory.list_size_max,
            sources: (memory.sources_size > 0).then_some(memory.sources_size),
            total: memory.total_size(),
        }
    }
}

/// All of it, for machines.
#[derive(Serialize)]
struct PlanObject {
    connections: u64,
    churn: u64,
    failure: f64,
    options: String,
    memory_bytes: MemoryObject,
    engine: TableObject,
    best: TableObject,
}

fn kib(size: u64) -> String {
    format!("{} KiB", grouped(size.div_ceil(1 << 10)))
}

fn mib(size: u64) -> String {
    format!("{:.1} MiB", size as f64 / f64::from(1 << 20))
}

/// A duration as options take it.
fn duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

fn options(config: &Config, every: Duration) -> String {
    let Config { connections_max, churn, memory_size_max, .. } = config;
    let (every, memory_mib) = (duration(every), memory_size_max >> 20);
    // They are written to files.
    let sources = config.sources_max.map_or(String::new(), |count| format!(" --sources={count} --out lists/"));
    format!("--every {every} --connections {connections_max} --churn {churn} --memory {memory_mib}MiB{sources}")
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

/// The plan for people.
fn text(plan: &PlanObject) -> String {
    let columns = [plan.engine.texts(), plan.best.texts()];
    let heads = ["flowpeel's tables, IPv4", "the best single table"];
    let width = |texts: &[&str]| texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let first = width(&ROWS);
    let second = columns[0].iter().map(|text| text.chars().count()).chain([heads[0].len()]).max().unwrap_or(0);
    let mut text = format!("{:first$}  {:second$}  {}\n", "", heads[0], heads[1]);
    for (at, row) in ROWS.iter().enumerate() {
        text += &format!("{row:first$}  {:second$}  {}\n", columns[0][at], columns[1][at]);
    }
    let memory = &plan.memory_bytes;
    for (name, size) in [
        ("memory of the filter", Some(memory.filter)),
        ("half-open connections", Some(memory.half_open)),
        ("all tables", Some(memory.tables)),
        ("queues and one ring", Some(memory.queues)),
        ("the list, up to", Some(memory.list)),
        ("sources", memory.sources),
        ("together", Some(memory.total)),
    ] {
        let Some(size) = size else { continue };
        text += &format!("{}{name:first$}  {}\n", if name == "memory of the filter" { "\n" } else { "" }, mib(size));
    }
    text += &format!("\nflowpeel live -i IFACE {}\nflowpeel replay {} FILE\n", plan.options, plan.options);
    text
}

/// Plans.
pub(super) fn run(arguments: &Arguments) -> Status {
    // What live capture does by itself takes memory too; a replay takes no more.
    let asked = Defaults::LIVE.applied(Config {
        every: Some(arguments.every),
        connections_max: arguments.connections,
        churn: arguments.churn,
        sources_max: arguments.sources,
        ..Config::default()
    });
    let sizing = match Sizing::new(&asked, arguments.failure) {
        Ok(sizing) => sizing,
        Err(error) => {
            report::error(&error, "");
            return Status::WrongUsage;
        }
    };
    let plan = PlanObject {
        connections: arguments.connections,
        churn: arguments.churn,
        failure: arguments.failure,
        options: options(&sizing.config, arguments.every),
        memory_bytes: MemoryObject::new(&sizing.memory),
        engine: TableObject::new(&sizing.engine),
        best: TableObject::new(&sizing.best),
    };
    if !arguments.json {
        return print(text(&plan).as_bytes());
    }
    match serde_json::to_vec(&plan) {
        Ok(mut line) => {
            line.push(b'\n');
            print(&line)
        }
        Err(error) => {
            report::error(&crate::error::Error::new("can not write the plan").because(error), "");
            Status::Failed
        }
    }
}
