//! Random pairs that follow from a seed and the number of a trial, the same on every machine, and tables with them.

use crate::row::Measure;
use flowpeel_iblt::hash::{GOLDEN_64, Secret, mixed};
use flowpeel_iblt::interval::mean_of;
use flowpeel_iblt::{CheckedCell, Layout, Outcome, Placement, Simulation, Table};

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

    /// The first `count` pairs.
    pub(super) fn first(&self, count: u64) -> Vec<(u64, u64)> {
        (0..count).map(|at| (self.key(at), self.value(at, 0))).collect()
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

/// Batches of simulation runs; the scatter of their means gives the standard error.
const BATCH_COUNT: u64 = 20;

/// Runs a simulation. Returns its outcome, and the mean share of the items that were listed.
pub(super) fn simulated(simulation: &Simulation) -> (Outcome, Measure) {
    let mut sum = Outcome::default();
    let mut shares = Vec::new();
    for batch in 0..BATCH_COUNT.min(simulation.trial_count) {
        let after = simulation.trial_count * (batch + 1) / BATCH_COUNT.min(simulation.trial_count);
        let trial_count = after - sum.trial_count;
        let outcome = Simulation { trial_count, seed: number_at(simulation.seed, batch), ..*simulation }.run();
        shares.push(1.0 - outcome.unlisted_count as f64 / (trial_count * u64::from(simulation.item_count)) as f64);
        sum.trial_count += outcome.trial_count;
        sum.failure_count += outcome.failure_count;
        sum.unlisted_count += outcome.unlisted_count;
    }
    let (mean, error) = mean_of(&shares);
    (sum, Measure::Mean { mean, error, trial_count: sum.trial_count })
}
