//! Which options a number of connections and a churn call for, and how often tables of that size fail.
//!
//! What enters: a configuration, and how often a table may fail to list. What leaves: a configuration whose tables fail
//! no more often, its memory, and for its tables and the best of the library the expected failure rate and a way to try
//! it.
//!
//! Rules of thumb ("1.3 cells an item") go wrong in small tables, which fail by a few items on the same cells. So both
//! rates come from measured curves. Far above the threshold, where nothing was measured, only pairs of items on the
//! same cells are left to fail.

use super::plan::{churn, share};
use super::{Config, LiveInput, Memory, Plan};
use crate::capture::RING_SIZE_DEFAULT;
use crate::engine::plan::CONNECTIONS_MIN;
use crate::error::Result;
use crate::flow::KeyV4;
use crate::signal::PARTITION_COUNT;
use crate::track::{CONNECTIONS_MAX, DELTA_LOAD_PERCENT};
use flowpeel_iblt;
use flowpeel_iblt::{
    CommonDegree, Geometry, HASH_COUNT, Iblt, Outcome, PLAN_FAILURE_MAX, PLAN_FAILURE_MIN, Placement, Simulation,
    TABLE_CELLS_MAX,
};

/// The most items that are placed to try a planned table: a second or two.
pub const PLAN_SIMULATED_ITEMS_MAX: u64 = 10_000_000;

/// The most trials of a planned table: more would tell little more.
const PLAN_TRIALS_MAX: u64 = 100_000;

/// The size of a kind of tables, and how often one of them fails to list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableSizing {
    /// How cells are chosen.
    pub placement: Placement,
    /// How many tables of this kind there are.
    pub table_count: u64,
    /// The most items that a table holds when it is listed.
    pub item_count: u64,
    /// How often each table is filled in an interval, rounded up.
    pub hand_over_count: u64,
    /// The cells of one table.
    pub cell_count: u64,
    /// The size of one table in bytes, with cells for IPv4.
    pub size: u64,
    /// The share of tables with `item_count` items that is expected not to list.
    pub failure: f64,
}

/// The configuration that is called for, and what it takes.
#[derive(Clone, Debug)]
pub struct Sizing {
    /// The configuration. Its churn is raised until tables fail no more often than asked for, and its memory is what
    /// that takes.
    pub config: Config,
    /// The openings and closings of an interval that were asked for, or that follow from the connections.
    pub churn: u64,
    /// The half-open connections that are kept.
    pub half_open_count: u64,
    /// The memory of the configuration, part by part, with one interface's ring.
    pub memory: Memory,
    /// The engine's IPv4 tables in one interval.
    pub engine: TableSizing,
    /// A single table of the library for the same number of items, with the placement that needs the fewest cells.
    pub best: TableSizing,
}

/// The placement of the engine's tables.
const ENGINE: Placement = Placement::Subtables { hash_count: HASH_COUNT as u32 };

/// The step by which churn is raised while tables fail too often, as one in this many of it.
const CHURN_STEP_DIVISOR: u64 = 8;

impl Sizing {
    /// The sizing for the connections and churn of `asked`, with tables of which no more than the share `failure`
    /// fails, as far as there are such tables.
    ///
    /// Fewer connections than [`CONNECTIONS_MIN`] count as that many.
    ///
    /// # Errors
    ///
    /// A value is out of its range.
    pub fn new(asked: &Config, failure: f64) -> Result<Self> {
        let connections_max = asked.connections_max.max(CONNECTIONS_MIN);
        let mut config = Config { connections_max, memory_size_max: u64::MAX, ..asked.clone() };
        let asked_churn = churn(&config);
        let mut churn = asked_churn;
        loop {
            config.churn = Some(churn);
            let plan = match config.every {
                Some(_) => Plan::live(&config, LiveInput { capture_count: 1, rings_size: RING_SIZE_DEFAULT })?,
                None => Plan::new(&config)?,
            };
            let engine = engine(plan.partition.geometry.v4, asked_churn);
            let next = (churn + churn / CHURN_STEP_DIVISOR + 1).min(CONNECTIONS_MAX);
            if engine.failure <= failure || next == churn {
                let memory = plan.memory();
                config.memory_size_max = memory.total_size().next_multiple_of(1 << 20);
                let (churn, half_open_count) = (asked_churn, plan.half_open_count());
                return Ok(Sizing { config, churn, half_open_count, memory, engine, best: best(churn, failure) });
            }
            churn = next;
        }
    }
}

/// The engine's table of one partition, as full as this churn makes it, or as it gets before it is handed over.
fn engine(geometry: Geometry, churn: u64) -> TableSizing {
    let churn = share(churn);
    let item_count = churn.min(geometry.item_count() * DELTA_LOAD_PERCENT / 100).max(1);
    let cell_count = geometry.cell_count() as u64;
    TableSizing {
        placement: ENGINE,
        table_count: PARTITION_COUNT as u64,
        item_count,
        hand_over_count: churn.div_ceil(item_count),
        cell_count,
        size: Iblt::<KeyV4>::size(geometry) as u64,
        failure: failure_of(item_count, cell_count),
    }
}

/// The single table with the fewest cells: by the measured curves, and with pairs of items on the same cells no more
/// often than `failure`, since pairs remain where the curves end.
fn best(churn: u64, failure: f64) -> TableSizing {
    let item_count = churn.max(1);
    let tables = Placement::measured().filter_map(|placement| {
        let plan = flowpeel_iblt::Plan::with(placement, item_count, failure).filter(|plan| plan.failure < 1.0)?;
        let pairs = |cells: u64| twins(placement, item_count, cells);
        // Twins grow rarer by the degree's power of the cells.
        let short = (pairs(u64::from(plan.cell_count)) / failure)
            .max(1.0)
            .powf(f64::from(placement.common_degree().degree).recip());
        let cell_count = (f64::from(plan.cell_count) * short).ceil() as u64;
        let failure = plan.failure.min(failure).max(pairs(cell_count));
        Some((placement, cell_count, failure))
    });
    // Of placements with as few cells, the simpler one.
    let is_simple =
        |placement: &Placement| matches!(placement, Placement::Distinct { .. } | Placement::Subtables { .. });
    let fewest = tables.min_by_key(|table| (table.1, !is_simple(&table.0)));
    let fewest = fewest.unwrap_or((ENGINE, TABLE_CELLS_MAX.into(), 1.0));
    let (placement, cell_count, failure) = fewest;
    let cell_size = Iblt::<KeyV4>::size(Geometry::new(1)) as u64 / HASH_COUNT as u64;
    let size = cell_count * cell_size;
    TableSizing { placement, table_count: 1, item_count, hand_over_count: 1, cell_count, size, failure }
}

/// How many pairs of items have all their cells in common, on average.
fn twins(placement: Placement, item_count: u64, cell_count: u64) -> f64 {
    let CommonDegree { degree, share } = placement.common_degree();
    let (items, cells) = (item_count as f64 * share, cell_count as f64);
    let choices: f64 = match placement {
        Placement::Subtables { .. } => (cells / f64::from(degree)).powi(degree as i32),
        Placement::Coupled { segment_count, .. } => {
            let first_count = f64::from(segment_count - degree + 1);
            first_count * (cells / f64::from(segment_count)).powi(degree as i32)
        }
        // Any `degree` of the cells.
        _ => (0..degree).map(|at| (cells - f64::from(at)) / f64::from(at + 1)).product(),
    };
    items * (items - 1.0).max(0.0) / 2.0 / choices.max(1.0)
}

/// The probability that four subtables with `cell_count` cells in all do not list `item_count` items. Within the
/// measured curves it is found by bisection; above them it is how often two items have all cells in common.
fn failure_of(item_count: u64, cell_count: u64) -> f64 {
    let is_enough = |failure: f64| {
        let plan = flowpeel_iblt::Plan::with(ENGINE, item_count, failure);
        plan.is_some_and(|plan| plan.failure < 1.0 && u64::from(plan.cell_count) <= cell_count)
    };
    if !is_enough(PLAN_FAILURE_MAX) {
        return 1.0;
    }
    if is_enough(PLAN_FAILURE_MIN) {
        // The curves go on as they came, and twins may be commoner than that.
        return twins(ENGINE, item_count, cell_count);
    }
    let (mut rare, mut common) = (PLAN_FAILURE_MIN, PLAN_FAILURE_MAX);
    for _ in 0..40 {
        let middle = (rare * common).sqrt();
        if is_enough(middle) { common = middle } else { rare = middle }
    }
    common.max(twins(ENGINE, item_count, cell_count).min(1.0))
}

impl TableSizing {
    /// Tries the sizing on tables with random items, on none where even one table takes more than
    /// [`PLAN_SIMULATED_ITEMS_MAX`].
    ///
    /// Complexity: a second or two, whatever the size.
    #[must_use]
    pub fn simulate(&self, seed: u64) -> Outcome {
        let trial_count = (PLAN_SIMULATED_ITEMS_MAX / self.item_count.max(1)).min(PLAN_TRIALS_MAX);
        if trial_count == 0 {
            return Outcome::default();
        }
        let [item_count, cell_count] =
            [self.item_count, self.cell_count].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        Simulation { placement: self.placement, item_count, cell_count, trial_count, seed }.run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowpeel_iblt::interval::Interval;

    fn sizing(connections_max: u64, churn: u64, failure: f64) -> Sizing {
        Sizing::new(&Config { connections_max, churn: Some(churn), ..Config::default() }, failure).unwrap()
    }

    #[test]
    fn tables_fail_as_seldom_as_asked_for_at_every_size() {
        for churn in [0, 1, 7, 100, 3_000, 100_000, 3_000_000] {
            for failure in [1e-6, 1e-3, 1e-1] {
                let Sizing { config, memory, engine, best, .. } = sizing(1_000, churn, failure);
                assert!(engine.failure <= failure && best.failure <= failure, "{churn}: {engine:?} {best:?}");
                assert!(config.churn >= Some(churn) && memory.total_size() <= config.memory_size_max);
                assert!(Plan::new(&config).is_ok(), "what is called for fits");
            }
        }
    }

    #[test]
    fn what_is_expected_is_what_trials_find() {
        // Tables that fail often enough to be seen: in few cells, as the curves give them.
        for item_count in [20, 100, 207, 1_000, 12_500] {
            for failure in [0.05, 0.01, 0.002] {
                let cell_count = flowpeel_iblt::Plan::with(ENGINE, item_count, failure).unwrap().cell_count.into();
                let expected = failure_of(item_count, cell_count);
                assert!((expected / failure - 1.0).abs() < 0.3, "{item_count} {failure} {expected}");
                let sizing = TableSizing { cell_count, item_count, failure: expected, ..best(1, 0.1) };
                let outcome = TableSizing { placement: ENGINE, ..sizing }.simulate(5);
                let interval = Interval::of_share(outcome.failure_count, outcome.trial_count, 4.0);
                // Curves are straight lines between what was measured, and as good as two thirds.
                assert!(
                    interval.low < expected * 1.5 && expected / 1.5 < interval.high,
                    "{item_count} {failure} {outcome:?}"
                );
            }
        }
    }

    #[test]
    fn far_above_the_threshold_pairs_on_the_same_cells_are_left() {
        let (item_count, cell_count) = (46, 232);
        let formula = 46.0 * 45.0 / 2.0 * (4.0f64 / 232.0).powi(4);
        let tried = TableSizing { placement: ENGINE, item_count, cell_count, ..best(1, 0.1) }.simulate(3);
        let interval = Interval::of_share(tried.failure_count, tried.trial_count, 4.0);
        assert!(interval.low < 2.0 * formula && formula / 2.0 < interval.high, "{formula} {tried:?}");
        assert!(failure_of(46, 2_000) < 1e-6 && failure_of(1, 400) == 0.0);
    }

    #[test]
    fn rules_of_thumb_go_wrong_in_small_tables() {
        let few = TableSizing { placement: ENGINE, item_count: 100, cell_count: 140, ..best(1, 0.1) };
        assert!(few.simulate(1).failure() > 0.05, "1.4 cells an item");
        let best = best(100, 1e-3);
        assert!(best.simulate(1).failure() < 3e-3 && best.cell_count > 150);
    }

    #[test]
    fn what_takes_too_long_is_not_tried() {
        let large = TableSizing { item_count: PLAN_SIMULATED_ITEMS_MAX + 1, ..best(1, 0.1) };
        assert_eq!(large.simulate(1), Outcome::default());
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        for (connections_max, churn) in [(u64::MAX, 1), (1_000, u64::MAX)] {
            assert!(Sizing::new(&Config { connections_max, churn: Some(churn), ..Config::default() }, 1e-3).is_err());
        }
    }
}
