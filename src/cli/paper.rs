//! `flowpeel paper`: the paper's experiments, run again: a seed in, a report with plots out.

use crate::cli::Status;
use crate::cli::log;
use crate::cli::report::{self, Voice};
use crate::cli::values;
use crate::paper::{EXPERIMENTS, Section, Setting, write};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often the bar is drawn while an experiment runs.
const TICK: Duration = Duration::from_millis(200);

/// Runs the experiments of the paper behind the tables again, and writes its figures beside ours
///
/// The same seed writes the same bytes, on any machine and with any number of threads. The full run takes a quarter of an
/// hour of one core.
#[derive(Args)]
#[command(
    display_name = "flowpeel paper",
    after_help = "Examples:\n  flowpeel paper --quick --out /tmp/paper.md\n  flowpeel paper --threads 4"
)]
pub(super) struct Arguments {
    /// Try only so often as some seconds allow
    #[arg(long)]
    quick: bool,

    /// Where all random keys follow from
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::number)]
    seed: u64,

    /// Threads that experiments are shared out to, 1 to 8
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::shards)]
    threads: usize,

    /// The report to write; its plots go to the folder of that name, without the ending
    #[arg(long, value_name = "FILE", default_value = "docs/paper.md")]
    out: PathBuf,
}

fn bar(voice: Voice) -> ProgressBar {
    let is_hidden = voice == Voice::Quiet || log::is_on();
    let target = if is_hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(EXPERIMENTS.len() as u64), target);
    if let Ok(style) = ProgressStyle::with_template("{pos} of {len} experiments {bar:20} {elapsed} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(TICK);
    bar
}

/// The sections of all experiments, in their order: each thread takes the next one that nobody has taken.
fn sections(setting: &Setting, threads: usize, bar: &ProgressBar, voice: Voice) -> Vec<Section> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(EXPERIMENTS.len()) {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(experiment) = EXPERIMENTS.get(index)
                {
                    let step = |what: &str| bar.set_message(format!("{}: {what}", experiment.title()));
                    let section = experiment.run(setting, &step);
                    done.lock().push((index, section));
                    bar.inc(1);
                    if voice == Voice::Verbose {
                        bar.suspend(|| report::line(format_args!("{}: done", experiment.title())));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, section)| section).collect()
}

/// Runs them.
pub(super) fn run(arguments: &Arguments, voice: Voice) -> Status {
    let setting = Setting { seed: arguments.seed, is_quick: arguments.quick };
    let bar = bar(voice);
    let sections = sections(&setting, arguments.threads, &bar, voice);
    bar.finish_and_clear();
    if let Err(error) = write(&sections, &setting, &arguments.out) {
        report::error(&error, "");
        return Status::Failed;
    }
    if voice > Voice::Quiet {
        let rows = sections.iter().flat_map(Section::rows);
        let (inside, outside): (Vec<_>, Vec<_>) = rows.partition(|row| row.is_expected());
        report::line(format_args!("{} figures are as expected, {} are not", inside.len(), outside.len()));
    }
    Status::Done
}
