//! `flowpeel replay`: captures in, lists out. Wrong options are refused before anything is read or written.

use crate::archive::Archive;
use crate::capture::Replay;
use crate::cli::archive::{self, ArchiveOptions};
use crate::cli::lists::Lists;
use crate::cli::report::{self, Voice};
use crate::cli::state::{self, State};
use crate::cli::tracking::Tracking;
use crate::cli::watch::Watch;
use crate::cli::{Failure, Outcome, Status, values};
use crate::error::Result;
use crate::hash::Secret;
use crate::pipeline::{self, Config, Plan, Saving};
use crate::queue::WhenFull;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Lists the TCP connections that are open in captures
///
/// Reads pcap and pcapng, plain or compressed with gzip or zstd, and writes the list of open connections at the end, or
/// at the end of each interval of capture time. Several captures are read in turn, as one.
///
/// Exit status: 0 when everything was done, 1 when something failed (what could be read is listed all the same) or a
/// signal ended it early, 2 when the command line is wrong, 130 when a second signal ended it at once.
#[derive(Args)]
#[command(
    display_name = "flowpeel replay",
    after_help = "Examples:\n  flowpeel replay capture.pcap\n  flowpeel replay --every 10s --out lists/ day.pcap.zst\n  \
    tcpdump -U -w - | flowpeel replay --every 10s -"
)]
pub(super) struct Arguments {
    /// Captures, in the order of their packets; - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Write a list for every such interval of capture time, at its multiples [default: one list at the end]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    every: Option<Duration>,

    #[command(flatten)]
    lists: Lists,

    #[command(flatten)]
    state: State,

    #[command(flatten)]
    tracking: Tracking,

    #[command(flatten)]
    archive: ArchiveOptions,
}

impl Arguments {
    /// The plan of the run: all that can be checked before anything is done.
    fn plan(&self) -> Result<Plan> {
        self.lists.keep()?;
        self.state.check(self.every, true)?;
        let config = self.tracking.config(Config::default(), self.every, &self.lists, || Ok(Secret::REPLAY))?;
        // Equal captures give equal snapshots: nothing of this machine or this moment is in them.
        let snapshots = self.lists.snapshots(String::new, 0);
        let saves_state = self.state.directory().is_some();
        archive::check_directories(&self.state, &self.lists, &self.archive)?;
        self.archive.check(&self.lists)?;
        let archive_size = self.archive.memory_size(false)?;
        Plan::new(&Config { snapshots, saves_state, archive_size, ..config })
    }
}

/// Replays what the arguments name.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let plan = arguments.plan().map_err(Failure::wrong_usage)?;
    // The saved state is checked before anything is changed.
    let mut saving = arguments.state.of_replay(&plan, &arguments.files, voice)?;
    let mut outputs = arguments.lists.outputs(plan.config(), voice)?;
    let archive = arguments.archive.start(WhenFull::Wait, saving.as_mut(), voice)?;
    let mut watch = Watch::new(voice, &arguments.files)?;
    let plan = archive.iter().fold(plan, |plan, archive| plan.recording(archive.inlet()));
    let present = watch.present_input();
    let mut announces = voice > Voice::Quiet;
    let first_input = saving.as_ref().map_or(0, Saving::first_input);
    let inputs = arguments.files.iter().enumerate().skip(first_input).map(|(index, path)| {
        present.set(index);
        let input = Replay::open(path)?;
        // The memory of a run is told once it is sure that there is one.
        if std::mem::take(&mut announces) {
            report::memory(&plan);
        }
        Ok(input)
    });
    if let Some(archive) = &archive {
        outputs.feed(archive);
    }
    let summary = pipeline::run(&plan, inputs, &mut outputs, &mut watch, saving);
    watch.finish();
    let aftermath = outputs.aftermath();
    let archived = archive.map(Archive::finish);
    let is_archived = archived.as_ref().is_none_or(Result::is_ok);
    archived.into_iter().for_each(|archived| archive::tell(archived, voice));
    match summary {
        Ok(summary) => {
            // Where nothing could be read an error has said so, and there is nothing to sum up.
            if voice > Voice::Quiet && summary.lists > 0 {
                report::summary(&summary, voice);
            }
            if voice > Voice::Quiet && watch.is_interrupted() {
                let listed = if summary.lists > 0 { "what was read before is listed" } else { "nothing was read" };
                report::warning(&format!("interrupted: {listed}"));
            }
            state::tell(summary.saving.as_ref());
            let is_saved = state::is_saved(summary.saving.as_ref());
            let is_done = summary.errors.is_empty() && !watch.is_interrupted() && is_archived && is_saved;
            Ok(if is_done { Status::Done } else { Status::Failed })
        }
        Err(error) => {
            report::error(&error, &aftermath);
            Ok(Status::Failed)
        }
    }
}
