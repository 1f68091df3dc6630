//! Table 1: the thresholds of listing, in cells an item, for 3 to 7 subtables, from the formula and by experiment.

use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step, Unit};
use flowpeel_iblt::interval::mean_of;
use flowpeel_iblt::{Placement, Simulation};

/// Table 1.
#[derive(Clone, Copy, Debug)]
pub struct Table1;

/// The paper's values, as printed.
const PAPER: [(u32, f64); 5] = [(3, 1.222), (4, 1.295), (5, 1.425), (6, 1.570), (7, 1.721)];

/// Half a unit of the last digit that the paper prints.
const ROUNDING: f64 = 0.000_5;

/// How far from the formula a threshold is searched, as a share of it.
const REACH: f64 = 0.01;

/// Bisections of that range: the rest is a ten-thousandth of a cell an item.
const HALVING_COUNT: u32 = 8;

/// How far the threshold of this many items may lie from that of infinitely many, in cells an item.
const FINITE_SIZE: f64 = 0.002;
const FINITE_SIZE_QUICK: f64 = 0.01;

/// `c_k`: the inverse of the largest load `a` with `1 - e^(-k a x^(k-1)) < x` for all `x` between 0 and 1, that is, of
/// the least value of `-ln(1 - x) / (k x^(k-1))`, which is found by narrowing down where it lies.
pub(super) fn threshold(hash_count: u32) -> f64 {
    let load = |x: f64| -(-x).ln_1p() / (f64::from(hash_count) * x.powi(hash_count as i32 - 1));
    let (mut low, mut high) = (0.01, 0.999_999);
    for _ in 0..200 {
        let third = (high - low) / 3.0;
        if load(low + third) < load(high - third) { high -= third } else { low += third }
    }
    1.0 / load((low + high) / 2.0)
}

/// The cells an item at which one set of random items begins to list.
fn found_threshold(hash_count: u32, item_count: u32, seed: u64) -> f64 {
    let placement = Placement::Subtables { hash_count };
    let (mut low, mut high) = (1.0 - REACH, 1.0 + REACH);
    for _ in 0..HALVING_COUNT {
        let middle = (low + high) / 2.0;
        let cell_count = (f64::from(item_count) * threshold(hash_count) * middle) as u32;
        let simulation = Simulation { placement, item_count, cell_count, trial_count: 1, seed };
        // A few items on the same cells fail at any size; at the threshold most items do.
        let is_listed = simulation.run().unlisted_count < u64::from(item_count) / 100;
        if is_listed { high = middle } else { low = middle }
    }
    threshold(hash_count) * (low + high) / 2.0
}

impl Experiment for Table1 {
    fn title(&self) -> &'static str {
        "Table 1: thresholds"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let item_count = if setting.is_quick { 20_000 } else { 500_000 };
        let finite_size = if setting.is_quick { FINITE_SIZE_QUICK } else { FINITE_SIZE };
        let trials = setting.trials(4, 8);
        let (mut computed, mut found) = (Vec::new(), Vec::new());
        for (hash_count, paper) in PAPER {
            step(&format!("k = {hash_count}"));
            let row = |ours, value, tolerance, source| Row {
                what: format!("k = {hash_count}"),
                source,
                reference: Reference::Value { value, tolerance },
                ours,
                unit: Unit::Number(4),
                note: "",
            };
            let exact = threshold(hash_count);
            let note = if hash_count == 7 { "the paper is wrong here: the formula gives 1.7189" } else { "" };
            computed.push(row(Measure::Exact(exact), paper, ROUNDING, Source::Paper).because(note));
            let thresholds: Vec<f64> = (0..trials)
                .map(|trial| {
                    found_threshold(hash_count, item_count, setting.seed_of(u64::from(hash_count) << 8 | trial))
                })
                .collect();
            let (mean, error) = mean_of(&thresholds);
            let ours = Measure::Mean { mean, error, trial_count: trials };
            found.push(row(ours, exact, finite_size, Source::Formula));
        }
        let table = |caption: &str, rows| RowTable { caption: caption.to_owned(), rows };
        Section {
            title: self.title(),
            text: "The smallest number of cells an item, `c_k`, at which `k` subtables list as the items become many. First \
                   computed from the paper's formula, then found: for each of some sets of items the number of cells at which \
                   it begins to list (that of finitely many lies a little off the limit, so two thousandths are allowed).",
            tables: vec![
                table("From the formula", computed),
                table(if setting.is_quick { "Found with 20,000 items" } else { "Found with 500,000 items" }, found),
            ],
            plots: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_those_of_the_literature() {
        for (hash_count, known) in [(3, 1.2218), (4, 1.2949), (5, 1.4250), (6, 1.5697), (7, 1.7189)] {
            assert!((threshold(hash_count) - known).abs() < 0.000_1, "{hash_count}: {}", threshold(hash_count));
        }
    }
}
