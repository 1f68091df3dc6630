//! `flowpeel replay`: captures in, lists out. Wrong options are refused before anything is read or written.

use crate::archive::Tap;
use crate::capture::Replay;
use crate::cli::Status;
use crate::cli::archive::{self, ArchiveOptions};
use crate::cli::lists::Lists;
use crate::cli::report::{self, Voice};
use crate::cli::state::{self, State};
use crate::cli::tracking::{Defaults, Tracking};
use crate::cli::values;
use crate::cli::watch::Watch;
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

/// Replays what the arguments name.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Status {
    let tracking = &arguments.tracking;
    let config = || tracking.config(&Defaults::REPLAY, arguments.every, &arguments.lists, || Ok(Secret::REPLAY));
    let checked = arguments.lists.keep().and_then(|_| arguments.state.check(arguments.every, true));
    let prepared = checked.and_then(|()| config()).and_then(|config| {
        // Equal captures give equal snapshots: there is nothing of this machine or this moment in them.
        let snapshots = arguments.lists.snapshots(String::new, 0);
        let saves_state = arguments.state.is_wanted();
        arguments.archive.check(&arguments.state, &arguments.lists)?;
        let config = Config { snapshots, saves_state, archive_size: arguments.archive.memory_size()?, ..config };
        Ok((Plan::new(&config)?, config))
    });
    let (plan, config) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            report::error(&error, "");
            return Status::WrongUsage;
        }
    };
    // What was saved is looked at before anything is changed.
    let opened = arguments.state.of_replay(&plan, &config, &arguments.files, voice).and_then(|saving| {
        let exporter = arguments.lists.exporter(&config, voice)?;
        let archive = arguments.archive.start(WhenFull::Wait, voice)?;
        Ok((saving, exporter, archive, Watch::new(voice, &arguments.files)?))
    });
    let (saving, mut exporter, archive, mut watch) = match opened {
        Ok(watched) => watched,
        Err(error) => {
            report::error(&error, "");
            return Status::Failed;
        }
    };
    let plan = archive.iter().fold(plan, |plan, archive| plan.recording(archive.inlet()));
    let present = watch.present_input();
    let mut announces = voice > Voice::Quiet;
    let first_input = saving.as_ref().map_or(0, Saving::first_input);
    let inputs = arguments.files.iter().enumerate().skip(first_input).map(|(index, path)| {
        present.set(index);
        let input = Replay::open(path)?;
        // What a run takes is of interest once it is sure that there is one.
        if std::mem::take(&mut announces) {
            report::memory(&plan.memory(), &config);
        }
        Ok(input)
    });
    let mut lists = Tap::new(&mut exporter, archive.as_ref());
    let summary = pipeline::run_saving(&plan, &config, inputs, &mut lists, &mut watch, saving);
    watch.finish();
    let is_archived = archive.is_none_or(|archive| archive::finish(archive, voice));
    match summary {
        Ok(summary) => {
            // Where nothing could be read the error has said so, and there is nothing to sum up.
            if voice > Voice::Quiet && summary.lists > 0 {
                report::summary(&summary, voice);
            }
            if watch.is_interrupted() {
                let listed = if summary.lists > 0 { "what was read before is listed" } else { "nothing was read" };
                report::warning(&format!("interrupted: {listed}"));
            }
            let is_saved = state::finish(summary.saving.as_ref());
            if summary.errors.is_empty() && !watch.is_interrupted() && is_archived && is_saved {
                Status::Done
            } else {
                Status::Failed
            }
        }
        Err(error) => {
            report::error(&error, &exporter.aftermath());
            Status::Failed
        }
    }
}
