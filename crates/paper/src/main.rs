//! `flowpeel-paper`: the experiments of the papers, run again: a seed in, a report with plots out.

use clap::Parser;
use flowpeel::error::{Error, Result};
use flowpeel_paper::{
    EXPERIMENTS, Experiment, Headline, KeptParts, Outcome, Section, SeedRun, Setting, Step, Timed, Took, growth,
    processor_time, write, write_seeds, write_times,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often the progress bar is drawn while an experiment runs.
const TICK: Duration = Duration::from_millis(200);

/// Runs the experiments of the papers behind the tables again, and writes their figures beside ours
///
/// The same seed writes the same bytes, on any machine and with any number of threads. The full run takes two hours
/// of one core.
#[derive(Parser)]
#[command(
    name = "flowpeel-paper",
    version,
    max_term_width = 100,
    after_help = "Examples:
  flowpeel-paper --quick --out /tmp/paper.md
  flowpeel-paper --threads 4
  flowpeel-paper --bfield-headline"
)]
struct Arguments {
    /// Try only so often as some seconds allow
    #[arg(long)]
    quick: bool,

    /// Where all random keys follow from
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,

    /// Run the experiments under so many seeds instead, beginning with that of --seed, and write how many rows are
    /// outside to seeds.md beside the plots
    #[arg(long, value_name = "COUNT", conflicts_with = "progress")]
    seeds: Option<u64>,

    /// Threads that experiments are shared out to, 1 to 8
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=8))]
    threads: usize,

    /// Run only the experiments whose title has these words in it
    #[arg(long, value_name = "WORDS", default_value = "")]
    only: String,

    /// Keep the sums of finished parts in this folder, and continue after those that are there: a run that is killed
    /// loses one part of each experiment
    #[arg(long, value_name = "FOLDER", conflicts_with = "quick")]
    progress: Option<PathBuf>,

    /// The report to write; its plots go to the folder of that name, without the ending
    #[arg(long, value_name = "FILE", default_value = "docs/paper.md")]
    out: PathBuf,

    /// Build the B-field paper's example instead, with so many keys, and measure it: a billion take 8.2 GB of memory,
    /// and an hour
    #[arg(
        long,
        value_name = "KEYS",
        num_args = 0..=1,
        default_missing_value = "1000000000",
        conflicts_with_all = ["quick", "threads", "out"]
    )]
    bfield_headline: Option<u64>,

    /// Draw this growth.json of the benchmark `growth` instead, as plots beside it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "threads", "out", "bfield_headline"])]
    growth: Option<PathBuf>,

    /// Print no progress
    #[arg(long, short)]
    quiet: bool,
}

fn bar(experiment_count: usize, is_quiet: bool) -> ProgressBar {
    let target = if is_quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(experiment_count as u64), target);
    if let Ok(style) = ProgressStyle::with_template("{pos} of {len} experiments {bar:20} {elapsed} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(TICK);
    bar
}

/// The name of an experiment's folder of finished parts: the words of its title.
fn folder_name(title: &str) -> String {
    let words = title.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// An experiment that was run, and the processor time that it took, in this run and in those that it continued.
fn ran(experiment: &dyn Experiment, setting: &Setting, folder: Option<&Path>, step: &Step) -> Result<(Section, Took)> {
    let progress = folder.map(|folder| KeptParts::open(folder.join(folder_name(experiment.title())))).transpose()?;
    let setting = Setting { kept: progress.map(Arc::new), ..setting.clone() };
    let before = processor_time();
    let section = experiment.run(&setting, step);
    let time = processor_time().saturating_sub(before);
    let kept = setting.kept.map_or(Ok(Duration::ZERO), |progress| progress.finish())?;
    Ok((section, Took { title: experiment.title(), time: time + kept }))
}

/// The sections of all experiments, in their order. Each thread takes the next experiment that no other has taken.
fn sections(
    experiments: &[&dyn Experiment],
    setting: &Setting,
    arguments: &Arguments,
    bar: &ProgressBar,
) -> Result<(Vec<Section>, Vec<Took>)> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.min(experiments.len()) {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(experiment) = experiments.get(index)
                {
                    let step = |what: &str| bar.set_message(format!("{}: {what}", experiment.title()));
                    let result = ran(*experiment, setting, arguments.progress.as_deref(), &step);
                    done.lock().push((index, result));
                    bar.inc(1);
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A progress bar that counts the keys of one part of the job.
fn headline_bar(is_quiet: bool) -> ProgressBar {
    let bar = bar(0, is_quiet);
    if let Ok(style) =
        ProgressStyle::with_template("{human_pos} of {human_len} keys {bar:20} {elapsed} {eta} {wide_msg}")
    {
        bar.set_style(style);
    }
    bar
}

/// The results of the B-field paper's example as lines.
fn headline_lines(outcome: &Outcome) -> Vec<String> {
    let (plan, key_count) = (&outcome.plan, outcome.insertion.key_count);
    let percent = |count: u64, of: u64| 100.0 * count as f64 / of.max(1) as f64;
    let timed = |what: &str, timed: &Timed| {
        let (seconds, rate) = (timed.time.as_secs_f64(), timed.rate());
        format!("{what}: {} in {seconds:.0} s, {rate:.0} a second", timed.key_count)
    };
    vec![
        format!(
            "{key_count} keys of {} values at 2^-32: nu {}, kappa {}, k {}, {} arrays, {} bytes, {:.3} a key",
            plan.goal().value_count,
            plan.code().nu(),
            plan.code().kappa(),
            plan.hash_count(),
            plan.arrays().len(),
            plan.byte_size(),
            plan.byte_size() as f64 / key_count.max(1) as f64
        ),
        timed("inserted", &outcome.insertion),
        timed("settled", &outcome.settling),
        timed("looked up that are in", &outcome.present),
        timed("looked up that are not", &outcome.absent),
        format!(
            "indeterminate: {} in the first array ({:.4} %, planned {:.4} %), {} in all",
            outcome.undecided_count,
            percent(outcome.undecided_count, key_count),
            100.0 * plan.indeterminate_rate(),
            outcome.indeterminate_count
        ),
        format!(
            "wrong: {} of those that are in; {} false positives (planned {:.3})",
            outcome.wrong_count,
            outcome.false_positive_count,
            plan.false_positive_rate() * outcome.absent.key_count as f64
        ),
    ]
}

/// Builds the B-field paper's example and prints the results.
fn run_headline(headline: &Headline, is_quiet: bool) -> Result<()> {
    let bar = headline_bar(is_quiet);
    let outcome = headline.run(&|what, done, count| {
        bar.set_length(count);
        bar.set_position(done);
        if bar.message() != what {
            bar.set_message(what.to_owned());
            bar.reset_eta();
        }
    });
    bar.finish_and_clear();
    println!("{}", headline_lines(&outcome?).join("\n"));
    Ok(())
}

/// Runs the experiments under several seeds, and writes how often rows are outside.
fn run_seeds(experiments: &[&dyn Experiment], arguments: &Arguments, seed_count: u64) -> Result<()> {
    let bar = bar(experiments.len() * seed_count as usize, arguments.quiet);
    let run = |at: u64| {
        let seed = arguments.seed.wrapping_add(at);
        let setting = Setting { seed, is_quick: arguments.quick, kept: None };
        Ok(SeedRun { seed, sections: sections(experiments, &setting, arguments, &bar)?.0 })
    };
    let runs = (0..seed_count).map(run).collect::<Result<Vec<_>>>()?;
    bar.finish_and_clear();
    let quick = if arguments.quick { " --quick" } else { "" };
    let only = if arguments.only.is_empty() { String::new() } else { format!(" --only \"{}\"", arguments.only) };
    let command = format!("flowpeel-paper{quick} --seed {} --seeds {seed_count}{only}", arguments.seed);
    write_seeds(&runs, &command, &arguments.out)
}

/// Does what the command line asks for.
fn run(arguments: &Arguments) -> Result<()> {
    if let Some(key_count) = arguments.bfield_headline {
        return run_headline(&Headline { key_count, seed: arguments.seed }, arguments.quiet);
    }
    if let Some(measured) = &arguments.growth {
        return growth::draw(measured);
    }
    let setting = Setting { seed: arguments.seed, is_quick: arguments.quick, kept: None };
    let is_wanted = |experiment: &&dyn Experiment| experiment.title().contains(&arguments.only);
    let experiments: Vec<_> = EXPERIMENTS.into_iter().filter(is_wanted).collect();
    if experiments.is_empty() {
        return Err(Error::new("no experiment has these words in its title: see docs/paper.md"));
    }
    if let Some(seed_count) = arguments.seeds {
        return run_seeds(&experiments, arguments, seed_count);
    }
    let bar = bar(experiments.len(), arguments.quiet);
    let (sections, took) = sections(&experiments, &setting, arguments, &bar)?;
    bar.finish_and_clear();
    write(&sections, &setting, &arguments.out)?;
    if arguments.progress.is_some() {
        write_times(&took, &arguments.out)?;
    }
    let rows = sections.iter().flat_map(Section::rows);
    let (inside, outside): (Vec<_>, Vec<_>) = rows.partition(|row| row.is_expected());
    if !arguments.quiet {
        eprintln!("{} figures are as expected, {} are not", inside.len(), outside.len());
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flowpeel-paper: {error}");
            ExitCode::FAILURE
        }
    }
}
