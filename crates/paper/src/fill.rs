//! Random pairs that follow from a seed and the number of a trial, the same on every machine, and tables with them.

use crate::Setting;
use crate::parts::Series;
use crate::row::Measure;
use flowpeel_iblt::hash::{GOLDEN_64, Secret, mixed};
use flowpeel_iblt::{CheckedCell, Layout, Placement, PlainCell, Rule, Table, TableCell};
use std::ops::Range;

/// The number at place `index` of the SplitMix64 stream of `seed`.
pub(super) fn number_at(seed: u64, index: u64) -> u64 {
    mixed(seed.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN_64)))
}

/// The pairs of one trial. Other trials, and other places, have other pairs.
pub(super) struct Pairs {
    seed: u64,
}

impl Pairs {
    /// The pairs of this trial.
    pub(super) fn new(seed: u64, trial: u64) -> Self {
        Pairs { seed: number_at(seed, trial) }
    }

    /// The key at a place.
    pub(super) fn key(&self, at: u64) -> u64 {
        number_at(self.seed, at)
    }

    /// The value of the key at a place; `version` 0 is its first.
    pub(super) fn value(&self, at: u64, version: u64) -> u64 {
        number_at(!self.seed, at << 2 | version)
    }

    /// A number below `bound` that is fixed for the key at a place, for random choices.
    pub(super) fn choice(&self, at: u64, bound: u64) -> u64 {
        number_at(self.seed.rotate_left(32), at) % bound
    }

    /// The pairs at these places, with their first values.
    pub(super) fn firsts(&self, places: Range<u64>) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        places.map(|at| (self.key(at), self.value(at, 0)))
    }

    /// The first `count` pairs.
    pub(super) fn first(&self, count: u64) -> Vec<(u64, u64)> {
        self.firsts(0..count).collect()
    }
}

/// Pairs that are made before they are inserted together: few enough to stay in the fastest cache.
const GROUP_COUNT: usize = 256;

/// Inserts pairs without a list of all of them.
pub(super) fn insert<C: TableCell<Key = u64, Value = u64>>(
    table: &mut Table<C>,
    mut pairs: impl Iterator<Item = (u64, u64)>,
) {
    let mut group = [(0, 0); GROUP_COUNT];
    loop {
        let count = group.iter_mut().zip(&mut pairs).map(|(slot, pair)| *slot = pair).count();
        table.insert_all(&group[..count]);
        if count < GROUP_COUNT {
            return;
        }
    }
}

/// The paper's cell with all checks.
pub(super) type PaperTable = Table<CheckedCell<u64>>;

/// An empty table with the paper's five subtables.
pub(super) fn five_subtables(cell_count: u32) -> PaperTable {
    Table::with_secret(Layout::new(FIVE, cell_count), &Secret::REPLAY)
}

/// The paper's placement in all its experiments.
pub(super) const FIVE: Placement = Placement::Subtables { hash_count: 5 };

/// The keys of the trials of one part, over all of them: some seconds of work.
const PART_KEYS: u64 = 10_000_000;

/// How many trials of so many keys make a part.
pub(super) fn part_size(key_count: u64) -> u64 {
    (PART_KEYS / key_count).max(1)
}

/// Tables of the paper's section 2, with keys of one value each, that are filled and listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listings {
    pub(super) placement: Placement,
    pub(super) key_count: u32,
    pub(super) cell_count: u32,
}

/// The results of some listings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    pub(super) trial_count: u64,
    /// Trials in which every key was listed with its value.
    pub(super) complete_count: u64,
    /// The mean share of the keys that were listed.
    pub(super) share: Measure,
}

impl Listings {
    /// Fills and lists a table in each trial: the trials, those that were complete, the keys that were listed with
    /// their values, and the sum of the squares of that over trials.
    pub(super) fn tried(&self, seed: u64, trial_count: u64) -> [u64; 4] {
        let layout = Layout::new(self.placement, self.cell_count);
        let mut table: Table<PlainCell<u64>> = Table::with_secret(layout, &Secret::REPLAY);
        // A value follows from its key, so each is known when it is listed.
        let value_of = |key: u64| key.rotate_left(32) ^ GOLDEN_64;
        let mut sums = [0; 4];
        for trial in 0..trial_count {
            let pairs = Pairs::new(seed, trial);
            insert(&mut table, (0..u64::from(self.key_count)).map(|at| (pairs.key(at), value_of(pairs.key(at)))));
            let mut listed = 0;
            table.peel(Rule::Aggregates, |entry| {
                listed += u64::from(entry.value() == Some(value_of(entry.key)));
            });
            let is_complete = table.is_empty() && listed == u64::from(self.key_count);
            if !is_complete {
                table.clear();
            }
            sums.iter_mut()
                .zip([1, u64::from(is_complete), listed, listed * listed])
                .for_each(|(sum, of_trial)| *sum += of_trial);
        }
        sums
    }

    /// Runs the trials in parts.
    pub(super) fn run(&self, setting: &Setting, seed: u64, trial_count: u64) -> Listed {
        let name = format!("{} keys {} cells {}", self.key_count, self.cell_count, self.placement);
        let part_size = part_size(self.key_count.into());
        let series = Series { name: &name, seed, trial_count, part_size };
        let [trial_count, complete_count, listed, squares] =
            setting.in_parts(&series, |seed, trial_count| self.tried(seed, trial_count));
        let share = Measure::mean_of_sums(trial_count, listed, squares, f64::from(self.key_count));
        Listed { trial_count, complete_count, share }
    }
}
