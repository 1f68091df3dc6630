//! The command line: the commands, their options and help, and messages on standard error.
//!
//! The library does everything else, so that it can be used without a terminal.

mod allocator;
mod archive;
mod capture;
mod completions;
mod directories;
mod events;
mod find;
mod generate;
mod heading;
#[cfg(target_os = "linux")]
mod ignored_signals;
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
mod run_options;
mod showing;
mod snapshot;
mod sources;
mod state;
mod table;
mod top;
mod tracking;
mod values;

pub use crate::cli::allocator::Allocator;
use crate::cli::log::LogFormat;
use crate::cli::report::Voice;
use crate::error::{Error, escaped};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
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
    /// The answer is no: nothing was found, a connection is not open, snapshots differ.
    No,
    /// The answer is not known, or not all of it.
    Unknown,
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
            Status::Failed => 1,
            Status::WrongUsage => 2,
            Status::No => 3,
            Status::Unknown => 4,
        })
    }
}

/// The place of options that every command has: in help after the command's own, before `--help`.
const LAST: usize = 900;

/// Lines of help are no longer than this, however wide the terminal.
const HELP_WIDTH_MAX: usize = 100;

/// The statuses with which all commands end.
const STATUSES: &str = "Exit status:
  0    done; found, open, the same
  1    something failed, or a signal ended a command before its end
  2    wrong usage: nothing was done
  3    the answer is no: nothing found (find), not open (get), they differ (diff)
  4    the answer is not known, or not in full (get, peel, diff)
  130  a second signal ended the command at once";

/// List the TCP connections that are open, from the packets that pass
///
/// Lists go to standard output or to files; everything for people goes to standard error.
#[derive(Parser)]
#[command(
    name = "flowpeel",
    version,
    propagate_version = true,
    max_term_width = HELP_WIDTH_MAX,
    after_help = "flowpeel COMMAND -h shows the options that most people need, --help all of them.",
    after_long_help = STATUSES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Print nothing but errors
    #[arg(long, short, global = true, overrides_with = "verbose", display_order = LAST, help_heading = heading::MESSAGES)]
    quiet: bool,

    /// Print more: how decoding went and how long it took
    #[arg(long, short, global = true, display_order = LAST, help_heading = heading::MESSAGES, hide_short_help = true)]
    verbose: bool,

    /// Write messages as log lines, with time and level, for a journal
    #[arg(
        long,
        value_name = "FORMAT",
        global = true,
        display_order = LAST,
        help_heading = heading::MESSAGES,
        hide_short_help = true
    )]
    log_format: Option<LogFormat>,
}

#[derive(Subcommand)]
enum Command {
    Replay(replay::Arguments),
    Live(live::Arguments),
    #[cfg(all(target_os = "linux", feature = "kernel"))]
    Audit(live::audit::Arguments),
    Generate(generate::Arguments),
    Top(top::Arguments),
    Find(find::Arguments),
    Archive(archive::Arguments),
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

/// The definition of the command line. Short help is to fit a screen, so its options stand under one heading.
fn definition(is_short_help: bool) -> clap::Command {
    let headless = |command: clap::Command| {
        command.mut_args(|argument| match argument.is_positional() {
            true => argument,
            false => argument.help_heading(None),
        })
    };
    match is_short_help {
        true => headless(Cli::command()).mut_subcommands(headless),
        false => Cli::command(),
    }
}

/// The command line, parsed.
fn parsed(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let is_short_help = words.iter().any(|word| word == "-h");
    Cli::from_arg_matches(&definition(is_short_help).try_get_matches_from(words)?)
}

/// Runs the command of this process's command line.
#[must_use]
pub fn main() -> Status {
    allocator::share_heap_if_limited();
    #[cfg(target_os = "linux")]
    ignored_signals::ignore_file_size();
    let cli = match parsed(std::env::args_os().collect()) {
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
    let words = std::env::args_os().map(|word| escaped(&word.to_string_lossy()).into());
    let mut error = parsed(words.collect()).err().unwrap_or(error);
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && snapshot::has_command(name)
    {
        let hint = ContextValue::Strings(vec![format!("snapshot {name}")]);
        error.insert(ContextKind::SuggestedSubcommand, hint);
    }
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    if error.use_stderr() {
        return Status::WrongUsage;
    }
    // Asking for help or the version is no mistake, and who closes the pipe has read enough.
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            report::error(&unprinted(error), "");
            Status::Failed
        }
        _ => Status::Done,
    }
}

fn run(command: &Command, voice: Voice) -> Outcome {
    match command {
        Command::Replay(arguments) => replay::run(arguments, voice),
        Command::Generate(arguments) => generate::run(arguments, voice),
        Command::Live(arguments) => live::run(arguments, voice),
        Command::Top(arguments) => top::run(arguments, voice),
        #[cfg(all(target_os = "linux", feature = "kernel"))]
        Command::Audit(arguments) => live::audit::run(arguments, voice),
        Command::Find(arguments) => find::run(arguments, voice),
        Command::Archive(arguments) => archive::run(arguments, voice),
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
    printed.map_err(unprinted)
}

fn unprinted(error: std::io::Error) -> Error {
    Error::new("cannot write it").in_file("standard output").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_hostile_arguments_are_escaped() {
        assert_eq!(escaped("a\x1b[2J\nb c.pcap\u{9b}"), "a\\u{1b}[2J\\nb c.pcap\\u{9b}");
    }

    #[test]
    fn no_line_of_an_example_is_broken_in_two() {
        for command in Cli::command().get_subcommands() {
            let examples = command.get_after_long_help().or(command.get_after_help());
            let examples = examples.map(ToString::to_string).unwrap_or_default();
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
