//! The command line: what can be asked for, and how it is answered on a terminal.

mod generate;
mod replay;
mod report;
mod values;
mod watch;

use crate::cli::report::Voice;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// What a process ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Everything was done.
    Done,
    /// Something could not be done; what was possible was.
    Failed,
    /// The command line asks for what can not be.
    WrongUsage,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        ExitCode::from(match status {
            Status::Done => 0,
            Status::Failed => 1,
            Status::WrongUsage => 2,
        })
    }
}

/// Tells which TCP connections are open, from the packets that pass.
///
/// Lists go to standard output or to files; everything for people goes to standard error.
#[derive(Parser)]
#[command(name = "flowpeel", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Say nothing but errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,

    /// Say more: how decoding went and how long it took
    #[arg(long, short, global = true)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Command {
    Replay(replay::Arguments),
    Generate(generate::Arguments),
}

/// Does what the command line of this process asks for.
#[must_use]
pub fn main() -> Status {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Asking for help or the version is no mistake. If it can not be printed there is nobody to tell.
            drop(error.print());
            return if error.use_stderr() { Status::WrongUsage } else { Status::Done };
        }
    };
    let voice = match (cli.quiet, cli.verbose) {
        (true, _) => Voice::Quiet,
        (_, true) => Voice::Verbose,
        _ => Voice::Normal,
    };
    match cli.command {
        Command::Replay(arguments) => replay::run(&arguments, voice),
        Command::Generate(arguments) => generate::run(&arguments, voice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }
}
