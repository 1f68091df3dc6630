//! Duplicates and extraneous deletions (section 5) change nothing: how often tables with them list completely, and how
//! often a GET of a single key succeeds.

use crate::fill::{Pairs, five_subtables};
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step};
use flowpeel_iblt::interval::mean_of;
use flowpeel_iblt::{Got, Rule, Values};

/// Duplicates and extraneous deletions.
#[derive(Clone, Copy, Debug)]
pub struct Duplicates;

/// One key in this many is there twice, and one in this many is deleted instead of inserted.
const EVERY: u64 = 5;

/// GET is tried in one trial out of this many: means over many keys need few trials.
const GET_EVERY: u64 = 100;

/// What the paper says of GET in both runs.
const PAPER_GOT: f64 = 0.978_3;

/// Half a unit of the last digit of [`PAPER_GOT`].
const ROUNDING: f64 = 0.000_05;

/// The results of the trials of one size.
struct Outcome {
    complete_count: u64,
    trial_count: u64,
    got: Vec<f64>,
}

fn trials(key_count: u64, trial_count: u64, seed: u64) -> Outcome {
    let mut table = five_subtables(8 * key_count as u32);
    let mut outcome = Outcome { complete_count: 0, trial_count, got: Vec::new() };
    for trial in 0..trial_count {
        let pairs = Pairs::new(seed, trial);
        let count_of = |at: u64| {
            let choice = pairs.choice(at, EVERY * EVERY);
            let count = if choice / EVERY == 0 { 2 } else { 1 };
            if choice.is_multiple_of(EVERY) { -count } else { count }
        };
        table.clear();
        (0..key_count).for_each(|at| table.update(&pairs.key(at), pairs.value(at, 0), count_of(at)));
        if trial.is_multiple_of(GET_EVERY) {
            let is_got = |at: u64| match table.get_plain(&pairs.key(at)) {
                Got::Found { count, values } => count == count_of(at) && values == Values::One(pairs.value(at, 0)),
                Got::Deleted { count, values } => -count == count_of(at) && values == Values::One(pairs.value(at, 0)),
                Got::Absent | Got::Unknown => false,
            };
            let got = (0..key_count).filter(|&at| is_got(at)).count();
            outcome.got.push(got as f64 / key_count as f64);
        }
        let (mut counts, mut values) = (0, 0u64);
        let listed = table.peel(Rule::SingleValued, |entry| {
            counts += entry.count;
            values = values.wrapping_add(entry.value().unwrap_or_default().wrapping_mul(entry.count as u64));
        });
        let right = (0..key_count).fold((0, 0u64), |(counts, values), at| {
            let count = count_of(at);
            (counts + count, values.wrapping_add(pairs.value(at, 0).wrapping_mul(count as u64)))
        });
        let is_complete = table.is_empty() && listed as u64 == key_count && (counts, values) == right;
        outcome.complete_count += u64::from(is_complete);
    }
    outcome
}

impl Experiment for Duplicates {
    fn title(&self) -> &'static str {
        "Duplicates and extraneous deletions"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let mut rows = Vec::new();
        for (key_count, full, quick) in [(10_000, 10_000, 20), (100_000, 300, 2)] {
            step(&format!("{key_count} keys"));
            let outcome = trials(key_count, setting.trials(full, quick), setting.seed_of(key_count));
            let ours = (outcome.complete_count, outcome.trial_count);
            let size = format!("{key_count} keys, {} cells", 8 * key_count);
            rows.push(Row::counted(format!("{size}: complete"), (20_000, 20_000), ours));
            let (mean, error) = mean_of(&outcome.got);
            // A single trial does not show its own error. A thousandth is more than that error ever is.
            let error = if outcome.got.len() < 2 { 0.001 } else { error };
            let got = Measure::Mean { mean, error, trial_count: outcome.got.len() as u64 };
            let reference = Reference::Value { value: PAPER_GOT, tolerance: ROUNDING };
            rows.push(Row::percent(format!("{size}: keys that GET finds, mean"), Source::Paper, reference, got));
        }
        Section {
            title: self.title(),
            text: "Each key is a duplicate with probability 1/5, and deleted instead of inserted with probability 1/5; five \
                   subtables, a check of keys and one of values. A listing counts as complete when the table is empty, the \
                   number of keys is right, and so are the sums of their counts and values.",
            tables: vec![RowTable { caption: "Complete listings, and GET by the paper's rule".to_owned(), rows }],
            plots: Vec::new(),
        }
    }
}
