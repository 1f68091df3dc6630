//! Growth of time and memory with the number of connections: whole processes, from ten thousand connections to ten
//! million.
//!
//! It writes a table of the medians and every measurement as JSON, of which `flowpeel-paper --growth` makes the plots.
//! The captures are connections that open within a minute and stay, three packets each, so only their number grows.

use crate::captures;
use crate::machine::Machine;
use crate::process::{Task, Usage};
use crate::row::Spread;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const COUNTS: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
const COUNTS_QUICK: [u64; 2] = [1_000, 10_000];

/// More than the memory that ten million connections take.
const MEMORY: &str = "8GiB";

const MIB: f64 = (1 << 20) as f64;

/// The arguments of `growth`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The folder for growth.md and growth.json
    #[arg(long, value_name = "DIR", default_value = "docs/performance")]
    out: PathBuf,

    /// Rounds in turns
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,

    /// A few thousand connections only
    #[arg(long)]
    quick: bool,

    /// Other numbers of connections
    #[arg(long, value_name = "N", num_args = 1.., conflicts_with = "quick")]
    sizes: Vec<u64>,

    /// The date to print [default: today]
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
}

/// The processes, by name.
const NAMES: [&str; 3] = ["flowpeel", "exact map", "bare loop"];

/// The measurements for one number of connections.
struct Size {
    connection_count: u64,
    packet_count: u64,
    /// The usage of each of [`NAMES`], round by round.
    usages: [Vec<Usage>; NAMES.len()],
}

impl Size {
    fn measure(connection_count: u64, rounds: u32) -> Result<Self, String> {
        let capture = captures::grown(connection_count)?;
        let (count, path) = (connection_count.to_string(), capture.path.as_str());
        let tasks = [
            Task::flowpeel(&["replay", "--memory", MEMORY, "--connections", &count, "--churn", "100k", path]),
            Task::rival(&["exact-map", path])?,
            Task::rival(&["bare-loop", path])?,
        ];
        let (listed, opened) = (count_listed(&tasks)?, capture.truth.connections);
        if listed.iter().any(|count| !(opened - opened / 20..=opened).contains(count)) {
            return Err(format!("{listed:?} connections are listed of {opened}"));
        }
        let mut usages = [const { Vec::new() }; NAMES.len()];
        for round in 0..=rounds {
            eprintln!("growth: {connection_count} connections, round {round} of {rounds}");
            for (task, usages) in tasks.iter().zip(&mut usages) {
                let outcome = task.run()?;
                // The first round only warms the caches.
                if round > 0 {
                    usages.push(outcome.usage);
                }
            }
        }
        Ok(Size { connection_count, packet_count: capture.truth.packets, usages })
    }

    fn spread(&self, at: usize, cost: fn(&Usage) -> f64) -> Spread {
        let costs: Vec<f64> = self.usages[at].iter().map(cost).collect();
        Spread::of(&costs).unwrap_or(Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN })
    }

    fn cells(&self) -> String {
        let mut text = format!("| {} | {} |", grouped(self.connection_count), grouped(self.packet_count));
        for at in 0..NAMES.len() {
            let cpu = self.spread(at, Usage::cpu_s);
            text += &format!(" {:.3} ({:.3}..{:.3}) |", cpu.median, cpu.min, cpu.max);
        }
        for at in 0..NAMES.len() - 1 {
            let peak_mib = self.spread(at, Usage::peak_mib).median;
            text += &format!(" {peak_mib:.1} | {:.0} |", peak_mib * MIB / self.connection_count as f64);
        }
        text + "\n"
    }
}

/// How many connections flowpeel and the map list. Both have a line for each, and flowpeel one for the list.
fn count_listed(tasks: &[Task; NAMES.len()]) -> Result<[u64; 2], String> {
    Ok([tasks[0].count_lines()?.saturating_sub(1), tasks[1].count_lines()?])
}

/// A count with its thousands separated.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let (first, rest) = digits.split_at((digits.len() - 1) % 3 + 1);
    let groups = rest.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    std::iter::once(first.to_owned()).chain(groups).collect::<Vec<_>>().join(",")
}

/// The plots that `flowpeel-paper --growth` draws of growth.json, with their titles.
const PLOTS: [(&str, &str); 2] =
    [("growth-time.svg", "CPU time of a packet, list included"), ("growth-memory.svg", "Peak memory, list included")];

fn markdown(sizes: &[Size], machine: &Machine, date: &str, rounds: u32) -> String {
    let mut text = format!(
        "## How costs grow\n\n`cargo bench --bench limits -- growth`, {date}, on {} cores of {}. Connections that open within a \
         minute and stay, three packets each; medians of {rounds} rounds in turns, with the fastest and the slowest; the list \
         at the end is part of both.\n\n",
        machine.core_count, machine.processor
    );
    let cpu = NAMES.map(|name| format!("CPU s, {name}")).join(" | ");
    let memory: Vec<_> =
        NAMES[..NAMES.len() - 1].iter().map(|name| format!("peak MiB, {name} | bytes a connection")).collect();
    text += &format!("| connections | packets | {cpu} | {} |\n|", memory.join(" | "));
    text += &"---:|".repeat(2 + NAMES.len() + 2 * (NAMES.len() - 1));
    text.push('\n');
    text.extend(sizes.iter().map(Size::cells));
    for (file_name, title) in PLOTS {
        text += &format!("\n![{title}]({file_name})\n");
    }
    text
}

fn json(sizes: &[Size], machine: &Machine, date: &str, is_quick: bool) -> String {
    let sizes: Vec<Value> = sizes
        .iter()
        .map(|size| {
            let processes: serde_json::Map<_, _> =
                NAMES.iter().zip(&size.usages).map(|(name, usages)| ((*name).to_owned(), json!(usages))).collect();
            json!({ "connections": size.connection_count, "packets": size.packet_count, "processes": processes })
        })
        .collect();
    let machine = json!({ "processor": machine.processor, "cores": machine.core_count });
    format!("{:#}\n", json!({ "date": date, "machine": machine, "quick": is_quick, "sizes": sizes }))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Measures, and writes the results.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let counts: &[u64] = match (arguments.sizes.as_slice(), arguments.quick) {
        ([], true) => &COUNTS_QUICK,
        ([], false) => &COUNTS,
        (sizes, _) => sizes,
    };
    let sizes: Vec<Size> =
        counts.iter().map(|&count| Size::measure(count, arguments.rounds)).collect::<Result<_, _>>()?;
    let machine = Machine::this();
    let today = || jiff::Timestamp::now().strftime("%F").to_string();
    let date = arguments.date.clone().unwrap_or_else(today);
    let out = &arguments.out;
    std::fs::create_dir_all(out).map_err(|error| format!("cannot make {}: {error}", out.display()))?;
    write(&out.join("growth.json"), &json(&sizes, &machine, &date, arguments.quick))?;
    let text = markdown(&sizes, &machine, &date, arguments.rounds);
    write(&out.join("growth.md"), &text)?;
    print!("{text}");
    Ok(())
}
