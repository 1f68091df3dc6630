//! The command line: the commands, their options and help, and messages on standard error.

mod collect;
mod diff;
mod join;
mod key;
mod report;
mod serve;
mod ship;
mod stop;

use crate::listen;
use crate::metrics::{Board, Figures};
use clap::{Parser, Subcommand};
use flowpeel::disk::read_secret;
use flowpeel::error::{Error, Result};
use flowpeel::metrics::http::{self, Server};
use flowpeel_iblt::hash::Secret;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Lines of help are no longer than this, however wide the terminal.
const HELP_WIDTH_MAX: usize = 100;

/// The statuses with which all commands end.
const STATUSES: &str = "Exit status:
  0    done
  1    something failed, or could not be used: it is named
  2    wrong usage: nothing was done
  3    another collector has taken the share of this one
  130  a second signal ended the command at once";

/// How a command ends: whether all of it could be done, or why it could not begin.
type Outcome = std::result::Result<bool, Failure>;

/// Why a command stopped, and what the process ends with.
struct Failure {
    error: Error,
    status: u8,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, status: 1 }
    }
}

impl Failure {
    fn wrong_usage(error: Error) -> Self {
        Failure { error, status: 2 }
    }
}

/// Send snapshots of flowpeel routers over NATS JetStream, and list the connections of all of them elsewhere
///
/// Routers write snapshots with `flowpeel live --snapshots`; `ship` sends them, `collect` writes the lists that the
/// routers would have written, `join` makes one view of them, `diff` follows where two of them do not agree, and
/// `serve` shows the view. Everything for people goes to standard error.
#[derive(Parser)]
#[command(
    name = "flowpeel-fleet",
    version,
    propagate_version = true,
    max_term_width = HELP_WIDTH_MAX,
    after_help = "flowpeel-fleet COMMAND -h shows the options that most people need, --help all of them.",
    after_long_help = STATUSES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Print nothing but errors
    #[arg(long, short, global = true, display_order = 900)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    Ship(ship::Arguments),
    Collect(collect::Arguments),
    Join(join::Arguments),
    Diff(diff::Arguments),
    Serve(serve::Arguments),
    Key(key::Arguments),
}

/// The secret of the network's tables.
#[derive(clap::Args)]
struct SecretOption {
    /// The secret under which snapshots are written [default: that of replays]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl SecretOption {
    fn secret(&self) -> Result<Secret> {
        self.secret_file.as_deref().map_or(Ok(Secret::REPLAY), read_secret)
    }
}

/// Where the figures of a command are served.
#[derive(clap::Args)]
struct MetricsOption {
    /// Serve metrics for Prometheus at this address of this machine, and /healthz: 127.0.0.1:9466
    #[arg(long, value_name = "ADDRESS:PORT", requires = "nats")]
    metrics: Option<SocketAddr>,
}

impl MetricsOption {
    fn check(&self) -> Result<()> {
        self.metrics.map_or(Ok(()), listen::check)
    }

    /// Serves what is published on this board until the server is dropped.
    fn serve(&self, board: Arc<Board<impl Figures>>) -> Result<Option<Server>> {
        let server = self.metrics.map(|address| http::serve(address, board)).transpose()?;
        if let Some(server) = &server {
            report::line(format_args!("metrics at http://{}/metrics", server.local_addr()));
        }
        Ok(server)
    }
}

/// Runs the command of this process's command line.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody may read what is printed.
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    report::set_quiet(cli.quiet);
    let outcome = match &cli.command {
        Command::Ship(arguments) => on_runtime(ship::run(arguments)),
        Command::Collect(arguments) => on_runtime(collect::run(arguments)),
        Command::Join(arguments) => join::run(arguments),
        Command::Diff(arguments) => on_runtime(diff::run(arguments)),
        Command::Serve(arguments) => on_runtime(serve::run(arguments)),
        Command::Key(arguments) => key::run(arguments),
    };
    match outcome {
        Ok(is_all_done) => ExitCode::from(if is_all_done { 0 } else { 1 }),
        Err(Failure { error, status }) => {
            report::error(&error);
            ExitCode::from(status)
        }
    }
}

/// Runs a command that waits for the network, on this thread.
fn on_runtime(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::new("cannot wait for the network").because(error))?;
    runtime.block_on(command)
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
