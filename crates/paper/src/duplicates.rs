//! Duplicates and extraneous deletions (section 5) change nothing: how often tables with them list completely, and how
//! often a GET of a single key succeeds.

use crate::fill::{Pairs, PaperTable, five_subtables, part_size};
use crate::parts::Series;
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step};
use flowpeel_iblt::{Got, Rule, Values};

/// Duplicates and extraneous deletions.
#[derive(Clone, Copy, Debug)]
pub struct Duplicates;

/// One key in this many is there twice, and one in this many is deleted instead of inserted.
const EVERY: u64 = 5;

/// GET is tried in one trial of this many: means over many keys need few trials.
const GET_EVERY: u64 = 50;

/// The paper's trials.
const PAPER_TRIALS: u64 = 20_000;

/// What the paper says of GET in both runs.
const PAPER_GOT: f64 = 0.978_3;

/// Half a unit of the last digit of [`PAPER_GOT`].
const ROUNDING: f64 = 0.000_05;

/// Keys of which some are there twice, and some are deleted instead of inserted.
#[derive(Clone, Copy)]
struct Mixed {
    key_count: u64,
}

impl Mixed {
    /// How often the key at a place is inserted less how often it is deleted: 1 or 2, or -1 or -2.
    fn count(pairs: &Pairs, at: u64) -> i64 {
        let choice = pairs.choice(at, EVERY * EVERY);
        let count = if choice / EVERY == 0 { 2 } else { 1 };
        if choice.is_multiple_of(EVERY) { -count } else { count }
    }

    /// Inserts and deletes the keys of a trial, each as often as its count says.
    fn fill(self, table: &mut PaperTable, pairs: &Pairs, group: &mut Vec<(u64, u64)>) {
        for count in [1, 2, -1, -2] {
            group.clear();
            let of_count = (0..self.key_count).filter(|&at| Mixed::count(pairs, at) == count);
            group.extend(of_count.map(|at| (pairs.key(at), pairs.value(at, 0))));
            for _ in 0..count.unsigned_abs() {
                if count > 0 { table.insert_all(group) } else { table.remove_all(group) }
            }
        }
    }

    /// How many keys GET finds.
    fn got_count(self, table: &PaperTable, pairs: &Pairs) -> u64 {
        let is_got = |&at: &u64| match table.get_plain(&pairs.key(at)) {
            Got::Found { count, values: Values::One(value) } => {
                count == Mixed::count(pairs, at) && value == pairs.value(at, 0)
            }
            Got::Deleted { count, values: Values::One(value) } => {
                -count == Mixed::count(pairs, at) && value == pairs.value(at, 0)
            }
            _ => false,
        };
        (0..self.key_count).filter(is_got).count() as u64
    }

    /// Whether the table lists as many keys as there are, with the right sums of counts and values, and nothing is
    /// left.
    fn is_listed(self, table: &mut PaperTable, pairs: &Pairs) -> bool {
        let (mut counts, mut values) = (0, 0u64);
        let listed = table.peel(Rule::SingleValued, |entry| {
            counts += entry.count;
            values = values.wrapping_add(entry.value().unwrap_or_default().wrapping_mul(entry.count as u64));
        });
        let right = (0..self.key_count).fold((0, 0u64), |(counts, values), at| {
            let count = Mixed::count(pairs, at);
            (counts + count, values.wrapping_add(pairs.value(at, 0).wrapping_mul(count as u64)))
        });
        table.is_empty() && listed as u64 == self.key_count && (counts, values) == right
    }

    /// Over some trials: those that list completely, those with GET, the keys that it finds, and the squares of that.
    fn trials(self, seed: u64, trial_count: u64) -> [u64; 4] {
        let mut table = five_subtables(8 * self.key_count as u32);
        let mut group = Vec::new();
        let mut sums = [0; 4];
        for trial in 0..trial_count {
            let pairs = Pairs::new(seed, trial);
            self.fill(&mut table, &pairs, &mut group);
            if trial.is_multiple_of(GET_EVERY) {
                let got = self.got_count(&table, &pairs);
                sums[1..].iter_mut().zip([1, got, got * got]).for_each(|(sum, of_trial)| *sum += of_trial);
            }
            let is_listed = self.is_listed(&mut table, &pairs);
            sums[0] += u64::from(is_listed);
            if !is_listed {
                table.clear();
            }
        }
        sums
    }
}

/// Our trials with 100,000 keys.
const LARGE_TRIALS: u64 = 1_000;

impl Experiment for Duplicates {
    fn title(&self) -> &'static str {
        "Duplicates and extraneous deletions"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let mut rows = Vec::new();
        for (key_count, full, quick) in [(10_000, PAPER_TRIALS, 20), (100_000, LARGE_TRIALS, 2)] {
            step(&format!("{key_count} keys"));
            let name = format!("{key_count} keys");
            let trial_count = setting.trials(full, quick);
            let (seed, part_size) = (setting.seed_of(key_count), part_size(key_count));
            let series = Series { name: &name, seed, trial_count, part_size };
            let [complete_count, got_trials, got, squares] =
                setting.in_parts(&series, |seed, trial_count| Mixed { key_count }.trials(seed, trial_count));
            let size = format!("{key_count} keys, {} cells", 8 * key_count);
            let ours = (complete_count, trial_count);
            rows.push(Row::counted(format!("{size}: complete"), (PAPER_TRIALS, PAPER_TRIALS), ours));
            let got = match Measure::mean_of_sums(got_trials, got, squares, key_count as f64) {
                // A single trial does not show its own error. A thousandth is more than that error ever is.
                Measure::Mean { mean, trial_count: 1, .. } => Measure::Mean { mean, error: 0.001, trial_count: 1 },
                got => got,
            };
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
