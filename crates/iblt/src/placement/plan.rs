//! Planning a table: how many cells it needs for a number of items and a rate of failure, and which placement needs the
//! fewest.
//!
//! Rules of thumb go wrong in small tables, which fail by a few keys on the same cells and not by the threshold. So
//! plans come from simulated curves, interpolated linearly in the logarithms of items, failure and cells; the curves
//! lie on or below these lines.

use super::measured::{CURVES, Curve, FAILURES};
use super::{Layout, Placement};
use crate::placement::layout::TABLE_CELLS_MAX;

/// The lowest failure rate of a table that can be planned for: with one table a second it fails once in twelve days.
pub const PLAN_FAILURE_MIN: f64 = 1e-6;

/// The highest failure rate of a table that can be planned for: above it a table hardly ever lists.
pub const PLAN_FAILURE_MAX: f64 = 0.1;

/// A table for a number of items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// How cells are chosen.
    pub placement: Placement,
    /// How many cells there are.
    pub cell_count: u32,
    /// How many items it is for.
    pub item_count: u64,
    /// The share of tables that do not list this many items completely, by the measured curves; 1 where no table is
    /// large enough.
    pub failure: f64,
}

impl Plan {
    /// The plan for one placement; `None` if the placement was not measured for this number of items.
    ///
    /// `failure` is clamped to the range from a millionth to a tenth. The rarest failures were not measured but
    /// extrapolated.
    #[must_use]
    pub fn with(placement: Placement, item_count: u64, failure: f64) -> Option<Self> {
        let curve = CURVES.iter().find(|curve| curve.placement == placement)?;
        let failure = failure.clamp(PLAN_FAILURE_MIN, FAILURES[0]);
        let cells = curve.cells(item_count, failure)?;
        let fits = cells <= f64::from(TABLE_CELLS_MAX);
        let (cells, failure) = if fits { (cells, failure) } else { (f64::from(TABLE_CELLS_MAX), 1.0) };
        Some(Plan { placement, cell_count: cells.ceil() as u32, item_count, failure })
    }

    /// The plan with the fewest cells among placements with subtables: for tables of which one may get lost, or that
    /// are kept apart.
    #[cfg(test)]
    pub(super) fn with_subtables(item_count: u64, failure: f64) -> Self {
        best(item_count, failure, |placement| matches!(placement, Placement::Subtables { .. }))
    }

    /// The layout of the planned table.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::new(self.placement, self.cell_count)
    }
}

/// The table with the fewest cells that lists `item_count` items in all but `failure` of the tries.
///
/// ```
/// use flowpeel_iblt::{Simulation, plan};
///
/// let plan = plan(100, 0.001);
/// assert!((150..170).contains(&plan.cell_count));
/// let simulation = Simulation {
///     placement: plan.placement,
///     item_count: 100,
///     cell_count: plan.cell_count,
///     trial_count: 10_000,
///     seed: 1,
/// };
/// assert!(simulation.run().failure() < 0.002);
/// ```
#[must_use]
pub fn plan(item_count: u64, failure: f64) -> Plan {
    best(item_count, failure, |_| true)
}

fn best(item_count: u64, failure: f64, is_wanted: impl Fn(&Placement) -> bool) -> Plan {
    let placements = CURVES.iter().map(|curve| curve.placement).filter(is_wanted);
    let plans = placements.filter_map(|placement| Plan::with(placement, item_count, failure));
    let fewest = plans.min_by_key(|plan| (plan.failure >= 1.0, plan.cell_count));
    // Four subtables were measured from the smallest to the largest tables, so there is always one.
    let placement = Placement::Subtables { hash_count: 4 };
    fewest.unwrap_or(Plan { placement, cell_count: TABLE_CELLS_MAX, item_count, failure: 1.0 })
}

impl Curve {
    /// The number of cells for `item_count` items; `None` outside of the measured range. Where the curve may be
    /// extended, fewer items get the cells of the fewest measured, and more items get as many cells an item as the most
    /// measured.
    fn cells(&self, item_count: u64, failure: f64) -> Option<f64> {
        let items = item_count as f64;
        let (first, last) = (self.rows.first()?, self.rows.last()?);
        if items <= first.0 {
            return self.is_for_fewer.then(|| first.0 * ratio(&first.1, failure));
        }
        let Some(upper) = self.rows.iter().position(|row| items <= row.0) else {
            return self.is_for_more.then(|| items * ratio(&last.1, failure));
        };
        let (low, high) = (&self.rows[upper - 1], &self.rows[upper]);
        let part = (items / low.0).ln() / (high.0 / low.0).ln();
        Some(items * between(ratio(&low.1, failure), ratio(&high.1, failure), part))
    }
}

/// Cells an item at this failure rate, from those at the tabulated rates.
fn ratio(ratios: &[f64; FAILURES.len()], failure: f64) -> f64 {
    let decades = -failure.log10() - 1.0;
    let low = (decades as usize).min(FAILURES.len() - 2);
    between(ratios[low], ratios[low + 1], decades - low as f64)
}

/// The number at `part` of the way between two numbers, on a logarithmic scale.
fn between(low: f64, high: f64, part: f64) -> f64 {
    low * (high / low).powf(part)
}
