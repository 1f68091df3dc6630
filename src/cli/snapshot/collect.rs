//! `flowpeel snapshot collect`: a directory of snapshots in, the lists that the router would have written out.

use crate::agent::{Agent, AgentConfig, AgentCounts, AgentEvent, AgentObserver};
use crate::cli::directories;
use crate::cli::interrupts::Interrupts;
use crate::cli::lists::Writing;
use crate::cli::report::{self, Voice, grouped};
use crate::cli::snapshot::secret::SecretOption;
use crate::cli::{Failure, Outcome, Status};
use crate::error::Result;
use clap::Args;
use std::path::PathBuf;

/// Write the lists of a router from its snapshots, on any machine
///
/// Follows a directory of snapshots and writes for each the list that the router would have written, under the same
/// name. Snapshots that are missing or come late cost only their own lists: the next one covers them. A run continues
/// where the one before it stopped, however that ended.
///
/// Exit status: 0 done, 1 something failed, such as files that are damaged or no snapshots (they are named, and left
/// alone), 2 wrong usage, 130 a second signal ended it at once.
#[derive(Args)]
#[command(
    display_name = "flowpeel snapshot collect",
    after_help = "Examples:\n  flowpeel snapshot collect --secret-file secret --out lists snapshots\n  \
    flowpeel snapshot collect --once --secret-file secret --out lists --compress --keep 30d snapshots"
)]
pub(super) struct Arguments {
    /// The directory of snapshots of one router, which is only read
    ///
    /// While it is empty the command waits for the first snapshot; with --once there are no lists then.
    #[arg(value_name = "DIR")]
    snapshots: PathBuf,

    /// The directory for lists, which no other process may write to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// List what is there now, and end
    #[arg(long)]
    once: bool,

    /// The router's own lists, or a copy: begin with the newest of them where --out has none to continue from
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    secret: SecretOption,
}

impl Arguments {
    /// Whether the command runs unattended until it is stopped.
    pub(super) fn is_service(&self) -> bool {
        !self.once
    }

    fn config(&self) -> Result<AgentConfig> {
        let format = self.writing.format();
        format.check()?;
        let base = self.base.clone();
        directories::check(&[("DIR", Some(&self.snapshots)), ("--out", Some(&self.out)), ("--base", base.as_ref())])?;
        let (snapshots, lists) = (self.snapshots.clone(), self.out.clone());
        let (secret, keep) = (self.secret.secret()?, self.writing.keep()?);
        Ok(AgentConfig { snapshots, lists, secret, format, keep, part: None, base })
    }
}

/// An observer that prints what the agent reports.
struct Observer<'a> {
    interrupts: &'a Interrupts,
    voice: Voice,
}

impl AgentObserver for Observer<'_> {
    fn report(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Refused(error) => report::error(&error, "; it is skipped"),
            AgentEvent::Warning(error) if self.voice > Voice::Quiet => report::warning(&error.to_string()),
            AgentEvent::Listed(name, header) if self.voice == Voice::Verbose || !header.complete => {
                let missing = match header.missing {
                    0 => String::new(),
                    missing => format!(", about {} missing", grouped(missing)),
                };
                if self.voice > Voice::Quiet {
                    report::line(format_args!("{name}: {} connections{missing}", grouped(header.flows)));
                }
            }
            AgentEvent::Warning(_) | AgentEvent::Listed(..) => {}
        }
    }

    fn is_stopped(&self) -> bool {
        self.interrupts.is_interrupted()
    }
}

/// Runs the agent over the directory that the arguments name.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let config = arguments.config().map_err(Failure::wrong_usage)?;
    let mut agent = Agent::new(&config)?;
    let interrupts = Interrupts::catch("waiting for the list to be written")?;
    let mut observer = Observer { interrupts: &interrupts, voice };
    let ended = if arguments.once { agent.once(&mut observer) } else { agent.follow(&mut observer) };
    interrupts.finish();
    let counts = agent.counts();
    if voice > Voice::Quiet {
        report::line(format_args!("{}", summary(&counts)));
    }
    if let Err(error) = &ended {
        report::error(error, "; the lists before it are whole");
    }
    let is_cut_short = arguments.once && interrupts.is_interrupted();
    Ok(if ended.is_ok() && counts.refused == 0 && !is_cut_short { Status::Done } else { Status::Failed })
}

fn summary(counts: &AgentCounts) -> String {
    let mut text = format!("{} lists", grouped(counts.lists));
    for (count, what) in [
        (counts.incomplete, "not complete"),
        (counts.passed_over, "intervals without a snapshot"),
        (counts.covered, "snapshots late or doubled"),
        (counts.refused, "files refused"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {} {what}", grouped(count)));
        }
    }
    text
}
