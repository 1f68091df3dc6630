//! `flowpeel archive`: what is done with archives, and the options of the runs that write them.

mod export;
mod options;

pub(super) use options::{ArchiveOptions, report_end};

use crate::cli::Outcome;
use crate::cli::report::Voice;
use clap::{Args, Subcommand};

/// Take connections out of an archive, for other programs
///
/// flowpeel find prints those that answer a question.
#[derive(Args)]
#[command(display_name = "flowpeel archive")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Export(export::Arguments),
}

/// Runs the command that the arguments name.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    match &arguments.command {
        Command::Export(arguments) => export::run(arguments, voice),
    }
}
