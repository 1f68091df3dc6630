//! Beyond the paper: how few cells are enough, by placement.
//!
//! For four sizes: the cells a key with which the best placement lists completely in 999 of 1,000 trials, confirmed by
//! trials; and the cells that other placements are planned with, tried as well.

use crate::fill::Listings;
use crate::row::grouped;
use crate::{Experiment, Line, Measure, Plot, Reference, Row, RowTable, Section, Setting, Source, Step};
use flowpeel_iblt::{Degrees, Placement, Plan};

/// Cells a key, by placement.
#[derive(Clone, Copy, Debug)]
pub struct Placements;

/// The share of listings that may be incomplete.
const FAILURE: f64 = 0.001;

/// A number of keys, the most cells a key for the best placement, and the numbers of trials.
struct Size {
    key_count: u32,
    per_key: f64,
    best: Placement,
    full: u64,
    quick: u64,
}

const fn coupled(segment_count: u32, half_ends: bool) -> Placement {
    Placement::Coupled { hash_count: 4, segment_count, half_ends }
}

const SIZES: [Size; 4] = [
    Size { key_count: 1_000, per_key: 1.29, best: Placement::Irregular(Degrees::FEW), full: 20_000, quick: 400 },
    Size { key_count: 10_000, per_key: 1.14, best: Placement::Irregular(Degrees::MANY), full: 2_000, quick: 40 },
    Size { key_count: 100_000, per_key: 1.11, best: Placement::Irregular(Degrees::MANY), full: 2_000, quick: 4 },
    Size { key_count: 1_000_000, per_key: 1.07, best: coupled(150, false), full: 200, quick: 1 },
];

/// Other placements that can be planned.
const OTHERS: [Placement; 5] = [
    Placement::Subtables { hash_count: 3 },
    Placement::Subtables { hash_count: 4 },
    Placement::Subtables { hash_count: 5 },
    Placement::Irregular(Degrees::FEW),
    Placement::Irregular(Degrees::MANY),
];

/// The share of trials that list everything.
fn tried(setting: &Setting, listings: Listings, trial_count: u64, seed: u64) -> Measure {
    let listed = listings.run(setting, seed, trial_count);
    Measure::Share { count: listed.complete_count, trial_count: listed.trial_count }
}

fn best_row(setting: &Setting, size: &Size) -> Row {
    let Size { key_count, per_key, best, .. } = *size;
    let listings = Listings { placement: best, key_count, cell_count: (per_key * f64::from(key_count)) as u32 };
    let trial_count = setting.trials(size.full, size.quick);
    let ours = tried(setting, listings, trial_count, setting.seed_of(u64::from(key_count)));
    let what = format!("{} keys, {per_key} cells a key, {best}", grouped(u64::from(key_count)));
    Row::percent(what, Source::Goal, Reference::AtLeast(1.0 - FAILURE), ours)
}

/// The placements at 999 of 1,000 by their plans, with numbers of trials that take about the same time at every size.
fn plans(setting: &Setting, step: &Step) -> (Vec<Row>, Vec<Line>) {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for placement in OTHERS {
        let mut line = Line { name: placement.to_string(), points: Vec::new() };
        for (key_count, full, quick) in [(1_000, 4_000, 200), (10_000, 1_000, 20), (100_000, 60, 1)] {
            let Some(plan) = Plan::with(placement, key_count, FAILURE) else { continue };
            step(&format!("{key_count} keys, {placement}"));
            let per_key = f64::from(plan.cell_count) / key_count as f64;
            line.points.push(((key_count as f64).log10(), per_key));
            let trial_count = setting.trials(full, quick);
            let listings = Listings { placement, key_count: key_count as u32, cell_count: plan.cell_count };
            let ours = tried(setting, listings, trial_count, setting.seed_of(key_count));
            let what = format!("{} keys, {per_key:.3} cells a key, {placement}", grouped(key_count));
            rows.push(Row::percent(what, Source::Goal, Reference::AtLeast(1.0 - FAILURE), ours));
        }
        lines.push(line);
    }
    (rows, lines)
}

impl Experiment for Placements {
    fn title(&self) -> &'static str {
        "Beyond the paper: cells a key, by placement"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let best = SIZES.iter().map(|size| {
            step(&format!("{} keys, the best placement", size.key_count));
            best_row(setting, size)
        });
        let best = best.collect();
        let (rows, mut lines) = plans(setting, step);
        let points = SIZES.iter().map(|size| (f64::from(size.key_count).log10(), size.per_key)).collect();
        lines.push(Line { name: "the best".to_owned(), points });
        Section {
            title: self.title(),
            text: "The share of trials that list everything; it should be 99.9 %. First with the best placement for each size or one as good, \
                   then with others and the cells that `plan` gives them. The paper's subtables stay above their threshold; keys \
                   with uneven numbers of cells, and cells in neighbouring segments, come near one cell a key.",
            tables: vec![
                RowTable { caption: "The best placement".to_owned(), rows: best },
                RowTable { caption: "Other placements, as planned".to_owned(), rows },
            ],
            plots: vec![Plot {
                file_name: "placement.svg",
                title: "Cells a key for 99.9 % complete listings",
                x: "keys, log10",
                y: "cells a key",
                lines,
            }],
        }
    }
}
