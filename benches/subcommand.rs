//! The subcommands of this program: it is the rivals, it measures processes, it makes captures, it draws how costs
//! grow.
//!
//! They are tried first; a command line that begins with none of these words runs the benchmarks.

use crate::{captures, process, rivals};
use clap::Parser;
use std::process::ExitCode;

/// The names of the subcommands.
const WORDS: [&str; 4] = ["rival", "measure", "capture", "growth"];

#[derive(Parser)]
#[command(name = "limits")]
enum Arguments {
    /// Lets a rival of flowpeel do its work on a capture
    Rival(rivals::Arguments),
    /// Runs a command and prints what it took
    Measure(process::Arguments),
    /// Makes a capture where it is missing, and prints where it is and what is in it
    Capture {
        /// Its name
        #[arg(value_parser = captures::NAMES)]
        name: String,
    },
    /// Measures how time and memory grow with the connections
    Growth(crate::growth::Arguments),
}

fn run(arguments: Arguments) -> Result<ExitCode, String> {
    match arguments {
        Arguments::Rival(arguments) => rivals::run(&arguments).map_err(|error| error.to_string())?,
        Arguments::Measure(arguments) => return process::measure(&arguments),
        Arguments::Capture { name } => {
            let capture = captures::named(&name)?;
            println!("{}", serde_json::json!({ "path": capture.path, "truth": capture.truth }));
        }
        Arguments::Growth(arguments) => crate::growth::run(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Does what the command line asks for, if that is one of these.
pub(crate) fn asked_for() -> Option<ExitCode> {
    let first = std::env::args().nth(1)?;
    if !WORDS.contains(&first.as_str()) {
        return None;
    }
    // Cargo passes this option to every benchmark.
    let arguments = std::env::args_os().filter(|argument| argument != "--bench");
    Some(run(Arguments::parse_from(arguments)).unwrap_or_else(|error| {
        eprintln!("limits: {error}");
        ExitCode::FAILURE
    }))
}
