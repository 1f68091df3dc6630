//! `cargo bench --bench limits`: what the parts of flowpeel cost, each beside its limit, measured in turns.
//!
//! It prints a table of the cases that are asked for, and writes the same as JSON and as Markdown on request. Only
//! ratios are meant to be compared between runs.

// Whole processes are measured by Linux's own figures.
#[cfg(target_os = "linux")]
mod captures;
mod clock;
mod filter;
#[cfg(target_os = "linux")]
mod growth;
mod machine;
mod memory;
mod parse;
mod peel;
mod port;
#[cfg(target_os = "linux")]
mod process;
mod queue;
#[cfg(target_os = "linux")]
mod replay;
#[cfg(target_os = "linux")]
mod rivals;
mod row;
#[cfg(target_os = "linux")]
mod subcommand;
mod swap;
mod table;
mod traffic;
mod update;

use clap::Parser;
use machine::Machine;
use row::{Scale, Suite};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The fewest rounds whose median is meaningful.
const ROUNDS_DEFAULT: usize = 7;

/// The fewest rounds that show that everything works.
const ROUNDS_QUICK: usize = 2;

/// Measures the parts of flowpeel, each beside its limit
#[derive(Parser)]
#[command(name = "limits")]
struct Arguments {
    /// Only cases with one of these in their names
    names: Vec<String>,

    /// Rounds of work and limit in turns [default: 7; with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,

    /// Do only as much as shows that everything works; the figures mean nothing
    #[arg(long)]
    quick: bool,

    /// Write the rows as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the rows as a section of Markdown, too
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// The date to print in both [default: today]
    #[arg(long, value_name = "DATE")]
    date: Option<String>,

    /// The option that cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn run(arguments: Arguments) -> Result<(), String> {
    let rounds = arguments.rounds.map_or(if arguments.quick { ROUNDS_QUICK } else { ROUNDS_DEFAULT }, |n| n as usize);
    let mut suite = Suite::new(Scale { is_quick: arguments.quick }, rounds, arguments.names);
    update::run(&mut suite);
    peel::run(&mut suite);
    queue::run(&mut suite);
    port::run(&mut suite);
    swap::run(&mut suite);
    parse::run(&mut suite);
    filter::run(&mut suite);
    #[cfg(target_os = "linux")]
    replay::run(&mut suite);
    if suite.rows().is_empty() {
        return Err("no case has such a name".to_owned());
    }
    print!("{}", table::text(suite.rows()));
    let setting = table::Setting { machine: Machine::this(), date: arguments.date, rounds, is_quick: arguments.quick };
    if let Some(path) = arguments.json {
        write(&path, &table::json(suite.rows(), &setting))?;
    }
    if let Some(path) = arguments.markdown {
        write(&path, &table::markdown(suite.rows(), &setting))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(status) = subcommand::asked_for() {
        return status;
    }
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limits: {error}");
            ExitCode::FAILURE
        }
    }
}
