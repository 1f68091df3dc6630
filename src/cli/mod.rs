//! The command line: what can be asked for, and how it is answered on a terminal.
//!
//! What enters: the arguments of the process. What leaves: an exit status, lists on standard output or in files, and
//! messages on standard error. Everything else is in the library, so that it can be used without a terminal.

mod apart;
mod archive;
mod completions;
mod find;
mod generate;
#[cfg(target_os = "linux")]
mod hangup;
mod interfaces;
mod interrupts;
mod keygen;
mod lists;
mod live;
mod log;
mod manual;
mod plan;
mod replay;
mod report;
mod snapshot;
mod sources;
mod state;
mod table;
mod tracking;
mod values;
mod watch;

use crate::cli::log::LogFormat;
use crate::cli::report::Voice;
use crate::error::{Error, escaped};
use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// How a process ends.
#[derive(Clone, Copy)]
pub enum Status {
    /// Everything was done.
    Done,
    /// Something could not be done; what was possible was.
    Failed,
    /// The command line asks for what cannot be.
    WrongUsage,
    /// What was looked for is not there.
    NotFound,
    /// A connection that was asked for is not open.
    NotOpen,
    /// A snapshot cannot answer the question.
    Unknown,
    /// The snapshots that were compared differ.
    Differ,
    /// The snapshots could not be compared, or not all of them.
    Trouble,
}

/// Why a command could not do what it was asked for, and what the process ends with.
struct Failure {
    error: Error,
    status: Status,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, status: Status::Failed }
    }
}

impl Failure {
    /// A command line that asks for what cannot be.
    fn wrong_usage(error: Error) -> Self {
        Failure { error, status: Status::WrongUsage }
    }
}

/// How a command ends.
type Outcome = Result<Status, Failure>;

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        ExitCode::from(match status {
            Status::Done => 0,
            Status::Failed | Status::Differ => 1,
            Status::WrongUsage | Status::Trouble => 2,
            Status::NotFound | Status::NotOpen => 3,
            Status::Unknown => 4,
        })
    }
}

/// The place of options that every command has: in help after the command's own, before `--help`.
const LAST: usize = 900;

/// Lines of help are no longer than this, however wide the terminal.
const HELP_WIDTH_MAX: usize = 100;

/// Tells which TCP connections are open, from the packets that pass.
///
/// Lists go to standard output or to files; everything for people goes to standard error.
#[derive(Parser)]
#[command(name = "flowpeel", version, propagate_version = true, max_term_width = HELP_WIDTH_MAX)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Say nothing but errors
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = LAST)]
    quiet: bool,

    /// Say more: how decoding went and how long it took
    #[arg(long, short, global = true, display_order = LAST)]
    verbose: bool,

    /// Write what is said as log lines, with time and level, for a journal
    #[arg(long, value_name = "FORMAT", global = true, display_order = LAST)]
    log_format: Option<LogFormat>,
}

#[derive(Subcommand)]
enum Command {
    Replay(replay::Arguments),
    Generate(generate::Arguments),
    Live(live::Arguments),
    Find(find::Arguments),
    Interfaces(interfaces::Arguments),
    Plan(plan::Arguments),
    Keygen(keygen::Arguments),
    Sources(sources::Arguments),
    Snapshot(snapshot::Arguments),
    Completions(completions::Arguments),
    Manual(manual::Arguments),
}

impl Command {
    /// Whether the command runs unattended until it is stopped.
    fn is_service(&self) -> bool {
        match self {
            Command::Live(_) => true,
            Command::Snapshot(arguments) => arguments.is_service(),
            _ => false,
        }
    }
}

/// Runs the command of this process's command line.
#[must_use]
pub fn main() -> Status {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(error),
    };
    let voice = match (cli.quiet, cli.verbose) {
        (true, _) => Voice::Quiet,
        (_, true) => Voice::Verbose,
        _ => Voice::Normal,
    };
    log::init(cli.log_format, cli.command.is_service());
    run(&cli.command, voice).unwrap_or_else(|Failure { error, status }| {
        report::error(&error, "");
        status
    })
}

/// Prints why a command line cannot be run, or the help that it asks for.
fn refused(error: clap::Error) -> Status {
    // The message quotes the arguments, and one may be a hostile file name.
    let arguments = std::env::args_os().map(|argument| escaped(&argument.to_string_lossy()));
    let mut error = Cli::try_parse_from(arguments).err().unwrap_or(error);
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && snapshot::has_command(name)
    {
        let hint = ContextValue::Strings(vec![format!("snapshot {name}")]);
        error.insert(ContextKind::SuggestedSubcommand, hint);
    }
    // Asking for help or the version is no mistake. If it cannot be printed there is nobody to report that to.
    drop(error.print());
    if error.use_stderr() { Status::WrongUsage } else { Status::Done }
}

fn run(command: &Command, voice: Voice) -> Outcome {
    match command {
        Command::Replay(arguments) => replay::run(arguments, voice),
        Command::Generate(arguments) => generate::run(arguments, voice),
        Command::Live(arguments) => live::run(arguments, voice),
        Command::Find(arguments) => find::run(arguments, voice),
        Command::Interfaces(arguments) => interfaces::run(arguments),
        Command::Plan(arguments) => plan::run(arguments),
        Command::Keygen(arguments) => keygen::run(arguments),
        Command::Sources(arguments) => sources::run(arguments),
        Command::Snapshot(arguments) => snapshot::run(arguments, voice),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Manual(arguments) => manual::run(arguments),
    }
}

/// Prints what was made to standard output.
///
/// # Errors
///
/// Standard output cannot be written.
fn print(bytes: &[u8]) -> Result<(), Error> {
    let mut stdout = std::io::stdout();
    let printed = stdout.write_all(bytes).and_then(|()| stdout.flush());
    printed.map_err(|error| Error::new("cannot write it").in_file("standard output").because(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn messages_about_hostile_arguments_are_escaped() {
        assert_eq!(escaped("a\x1b[2J\nb c.pcap\u{9b}"), "a\\u{1b}[2J\\nb c.pcap\\u{9b}");
    }

    #[test]
    fn no_line_of_an_example_is_broken_in_two() {
        for command in Cli::command().get_subcommands() {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in examples.lines() {
                assert!(line.chars().count() <= HELP_WIDTH_MAX, "{line}");
                assert!(!line.contains(" ["), "a shell takes it for a pattern: {line}");
            }
        }
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }
}
