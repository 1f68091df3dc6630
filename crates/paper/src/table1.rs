//! Table 1: the thresholds of listing, in cells a key, for 3 to 7 subtables, from the formula and by experiment.

use crate::fill::Listings;
use crate::parts::Series;
use crate::theory::cells_per_key;
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step, Unit};
use flowpeel_iblt::Placement;

/// Table 1.
#[derive(Clone, Copy, Debug)]
pub struct Table1;

/// The paper's values, as printed.
const PAPER: [(u32, f64); 5] = [(3, 1.222), (4, 1.295), (5, 1.425), (6, 1.570), (7, 1.721)];

/// Half a unit of the last digit that the paper prints.
const ROUNDING: f64 = 0.000_5;

/// How far from the formula a threshold is searched, as a share of it.
const REACH: f64 = 0.01;

/// Bisections of that range: the rest is a ten-thousandth of a cell a key.
const HALVING_COUNT: u32 = 8;

/// The unit in which found thresholds are summed, in cells a key.
const UNIT: f64 = 1e-7;

/// How far the threshold of this many keys may lie from that of infinitely many, in cells a key.
const FINITE_SIZE: f64 = 0.002;
const FINITE_SIZE_QUICK: f64 = 0.01;

/// The cells a key at which one set of random keys begins to list.
fn found_threshold(hash_count: u32, key_count: u32, seed: u64) -> f64 {
    let placement = Placement::Subtables { hash_count };
    let (mut low, mut high) = (1.0 - REACH, 1.0 + REACH);
    for _ in 0..HALVING_COUNT {
        let middle = (low + high) / 2.0;
        let cell_count = (f64::from(key_count) * cells_per_key(hash_count) * middle) as u32;
        let [_, _, listed, _] = Listings { placement, key_count, cell_count }.tried(seed, 1);
        // A few keys on the same cells fail at any size; at the threshold most keys do.
        if u64::from(key_count) - listed < u64::from(key_count) / 100 { high = middle } else { low = middle }
    }
    cells_per_key(hash_count) * (low + high) / 2.0
}

impl Experiment for Table1 {
    fn title(&self) -> &'static str {
        "Table 1: thresholds"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let key_count = if setting.is_quick { 20_000 } else { 500_000 };
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
            let exact = cells_per_key(hash_count);
            let note = if hash_count == 7 { "the paper is wrong here: the formula gives 1.7189" } else { "" };
            computed.push(row(Measure::Exact(exact), paper, ROUNDING, Source::Paper).because(note));
            let name = format!("k = {hash_count}");
            let series =
                Series { name: &name, seed: setting.seed_of(u64::from(hash_count)), trial_count: trials, part_size: 1 };
            let [sum, squares] = setting.in_parts(&series, |seed, _| {
                let found = (found_threshold(hash_count, key_count, seed) / UNIT).round() as u64;
                [found, found * found]
            });
            let ours = Measure::mean_of_sums(trials, sum, squares, 1.0 / UNIT);
            found.push(row(ours, exact, finite_size, Source::Formula));
        }
        let table = |caption: &str, rows| RowTable { caption: caption.to_owned(), rows };
        Section {
            title: self.title(),
            text: "The smallest number of cells a key, `c_k`, at which `k` subtables list as the keys become many. First \
                   computed from the paper's formula, then found: for each of some sets of keys the number of cells at which \
                   it begins to list (that of finitely many lies a little off the limit, so two thousandths are allowed).",
            tables: vec![
                table("From the formula", computed),
                table(if setting.is_quick { "Found with 20,000 keys" } else { "Found with 500,000 keys" }, found),
            ],
            plots: Vec::new(),
        }
    }
}
