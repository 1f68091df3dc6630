//! `flowpeel snapshot`: the commands that read the snapshots of routers.

mod collect;
mod diff;
mod digest;
mod get;
mod info;
mod merge;
mod peel;
mod secret;

use crate::cli::Outcome;
use crate::cli::report::Voice;
use clap::{Args, Subcommand};

/// Read snapshots: list, query, merge and compare them
///
/// A snapshot is a file of fixed size with every open connection of a router, which `flowpeel live --snapshots` writes
/// at every interval. Snapshots of several routers add up to one of the network.
#[derive(Args)]
#[command(display_name = "flowpeel snapshot")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Collect(collect::Arguments),
    Peel(peel::Arguments),
    Get(get::Arguments),
    Merge(merge::Arguments),
    Diff(diff::Arguments),
    Digest(digest::Arguments),
    Info(info::Arguments),
}

impl Arguments {
    /// Whether the command runs unattended until it is stopped.
    pub(super) fn is_service(&self) -> bool {
        match &self.command {
            Command::Collect(arguments) => arguments.is_service(),
            _ => false,
        }
    }
}

/// Whether there is a command of this name here.
pub(super) fn has_command(name: &str) -> bool {
    Command::has_subcommand(name)
}

/// Runs the command that the arguments name.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    match &arguments.command {
        Command::Collect(arguments) => collect::run(arguments, voice),
        Command::Peel(arguments) => peel::run(arguments, voice),
        Command::Get(arguments) => get::run(arguments),
        Command::Merge(arguments) => merge::run(arguments, voice),
        Command::Diff(arguments) => diff::run(arguments, voice),
        Command::Digest(arguments) => digest::run(arguments, voice),
        Command::Info(arguments) => info::run(arguments),
    }
}
