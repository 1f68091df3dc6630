//! `flowpeel replay`: captures in, lists out. Wrong options are refused before anything is read or written.

mod progress;

use crate::archive::Archive;
use crate::capture::Replay;
use crate::cli::events::EventRun;
use crate::cli::report::{self, Voice};
use crate::cli::run_options::{Defaults, RunOptions, with_default};
use crate::cli::{Failure, Outcome, Status, archive, events, state};
use crate::engine::{Config, Plan, Saving};
use crate::error::Result;
use crate::queue::WhenFull;
use crate::run;
use clap::Args;
use flowpeel_iblt::hash::Secret;
use progress::Watch;
use std::path::PathBuf;
use std::sync::Arc;

/// List the TCP connections that are open in captures
///
/// Reads pcap and pcapng, plain or compressed with gzip or zstd, and writes the list of open connections at the end, or
/// at the end of each interval of capture time. Several captures are read in turn, as one.
///
/// Exit status: 0 done, 1 something failed (what could be read is listed all the same) or a signal ended it early, 2
/// wrong usage, 130 a second signal ended it at once.
#[derive(Args)]
#[command(
    display_name = "flowpeel replay",
    mut_arg("every", |every| with_default(every, "one list at the end")),
    mut_arg("pickup", |pickup| with_default(pickup, "0")),
    mut_arg("idle_timeout", |idle_timeout| with_default(idle_timeout, "0")),
    mut_arg("max_age", |max_age| with_default(max_age, "0")),
    mut_arg("router", |router| with_default(router, "none")),
    after_help = "Example: flowpeel replay --every 10s --out lists/ day.pcap.zst",
    after_long_help = "Examples:\n  flowpeel replay capture.pcap\n  \
    flowpeel replay --every 10s --out lists/ day.pcap.zst\n  \
    tcpdump -U -w - | flowpeel replay --every 10s -"
)]
pub(super) struct Arguments {
    /// Captures, in the order of their packets; - for stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    options: RunOptions,
}

impl Arguments {
    /// The plan of the run: all that can be checked before anything is done.
    fn plan(&self) -> Result<Plan> {
        // Equal captures give equal snapshots: nothing of this machine or this moment is in them.
        let defaults = Defaults {
            config: Config::default(),
            every: None,
            run: 0,
            router: String::new,
            secret: || Ok(Secret::REPLAY),
            is_live: false,
        };
        Plan::new(&self.options.config(defaults)?)
    }
}

/// Replays what the arguments name.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let plan = arguments.plan().map_err(Failure::wrong_usage)?;
    plan.check_addresses()?;
    // The saved state is checked before anything is changed.
    let mut saving = arguments.options.state.of_replay(&plan, &arguments.files, voice)?;
    let mut outputs = arguments.options.lists.outputs(plan.config(), voice)?;
    let archive = arguments.options.archive.start(WhenFull::Wait, saving.as_mut(), voice)?;
    let is_stopped = Arc::default();
    let event_run = EventRun { is_live: false, counts: Arc::default(), is_stopped: Arc::clone(&is_stopped) };
    let events = arguments.options.events.start(event_run, saving.as_mut(), voice)?;
    let mut watch = Watch::new(voice, &arguments.files, is_stopped)?;
    let plan = archive.iter().fold(plan, |plan, archive| plan.recording(archive.inlet()));
    let plan = events.iter().fold(plan, |plan, events| plan.recording(events.inlet()));
    let present = watch.present_input();
    let mut announces = voice > Voice::Quiet;
    let first_input = saving.as_ref().map_or(0, Saving::first_input);
    let inputs = arguments.files.iter().enumerate().skip(first_input).map(|(index, path)| {
        present.set(index);
        let input = Replay::open(path)?;
        // The memory of a run is announced once it is sure that there is one.
        if std::mem::take(&mut announces) {
            report::memory(&plan);
        }
        Ok(input)
    });
    if let Some(archive) = &archive {
        outputs.feed(archive);
    }
    if let Some(events) = &events {
        outputs.feed_events(events);
    }
    let summary = run::run(&plan, inputs, &mut outputs, &mut watch, saving);
    watch.finish();
    let aftermath = outputs.aftermath();
    let archived = archive.map(Archive::finish);
    let are_events_written = events.is_none_or(|events| events::report_end(&events.finish(), voice));
    let is_archived = archived.as_ref().is_none_or(Result::is_ok);
    archived.into_iter().for_each(|archived| archive::report_end(archived, voice));
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
            state::report_failure(summary.saving.as_ref());
            let is_saved = state::is_saved(summary.saving.as_ref());
            let is_done =
                summary.errors.is_empty() && !watch.is_interrupted() && is_archived && is_saved && are_events_written;
            Ok(if is_done { Status::Done } else { Status::Failed })
        }
        Err(error) => {
            report::error(&error, &aftermath);
            Ok(Status::Failed)
        }
    }
}
