//! The command line: what can be asked for, and how it is answered on a terminal.
//!
//! What enters: the arguments of the process. What leaves: an exit status, lists on standard output or in files, and on
//! standard error what people want to know. Everything else is the library's, so that it can be had without a terminal.

mod generate;
mod replay;
mod report;
mod values;
mod watch;

use crate::cli::report::Voice;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
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

/// Where help shows the options of every command: after the command's own, before `--help`.
const LAST: usize = 900;

/// Tells which TCP connections are open, from the packets that pass.
///
/// Lists go to standard output or to files; everything for people goes to standard error.
#[derive(Parser)]
#[command(name = "flowpeel", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Say nothing but errors
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = LAST)]
    quiet: bool,

    /// Say more: how decoding went and how long it took
    #[arg(long, short, global = true, display_order = LAST)]
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
            let error = Cli::try_parse_from(std::env::args_os().map(escaped)).err().unwrap_or(error);
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

/// An argument without control characters, for a message about it: it may be a hostile file name.
fn escaped(argument: OsString) -> String {
    let text = argument.to_string_lossy();
    text.chars().map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn messages_about_hostile_arguments_are_escaped() {
        assert_eq!(escaped("a\x1b[2J\nb c.pcap".into()), "a\\u{1b}[2J\\nb c.pcap");
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }
}
