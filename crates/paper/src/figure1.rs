//! Figure 1: how often everything is listed, and how much on average, against the number of cells around the threshold.

use crate::fill::{FIVE, simulated};
use crate::table1::threshold;
use crate::{Experiment, Line, Measure, Plot, Reference, Row, RowTable, Section, Setting, Source, Step};
use flowpeel_iblt::{Placement, Simulation};

/// Figure 1 (a) and (b).
#[derive(Clone, Copy, Debug)]
pub struct Figure1;

/// One number of cells, and the known results for it.
struct Point {
    cell_count: u32,
    /// Complete listings, trials, and where these were counted.
    known: Option<(u64, u64, Source)>,
    full: u64,
    quick: u64,
}

const fn point(cell_count: u32, full: u64, quick: u64) -> Point {
    Point { cell_count, known: None, full, quick }
}

const fn known(cell_count: u32, known: (u64, u64, Source), full: u64, quick: u64) -> Point {
    Point { cell_count, known: Some(known), full, quick }
}

/// Figure 1 (a): 10,000 keys. The paper names the figures of 14,500 and 14,600 cells.
const SMALL: [Point; 9] = [
    point(13_800, 1_000, 20),
    point(14_000, 1_000, 20),
    point(14_100, 1_000, 20),
    known(14_200, (447, 4_000, Source::Prototype), 2_000, 40),
    known(14_300, (2_622, 4_000, Source::Prototype), 2_000, 40),
    known(14_400, (3_933, 4_000, Source::Prototype), 2_000, 40),
    known(14_500, (19_998, 20_000, Source::Paper), 20_000, 40),
    known(14_600, (20_000, 20_000, Source::Paper), 10_000, 40),
    point(14_800, 1_000, 20),
];

/// Figure 1 (b): 100,000 keys. The paper names the figure of 144,000 cells.
const LARGE: [Point; 7] = [
    point(141_500, 100, 2),
    point(142_000, 100, 2),
    point(142_250, 100, 2),
    point(142_500, 100, 2),
    point(142_750, 100, 2),
    point(143_250, 100, 2),
    known(144_000, (20_000, 20_000, Source::Paper), 1_000, 4),
];

/// One of the two halves: the rows, and the line of the plot.
fn half(setting: &Setting, step: &Step, item_count: u32, points: &[Point]) -> (Vec<Row>, Line) {
    let mut rows = Vec::new();
    let mut line = Line { name: "k = 5".to_owned(), points: Vec::new() };
    for (part, Point { cell_count, known, full, quick }) in (0..).zip(points) {
        step(&format!("{item_count} keys, {cell_count} cells"));
        let simulation = Simulation {
            placement: FIVE,
            item_count,
            cell_count: *cell_count,
            trial_count: setting.trials(*full, *quick),
            seed: setting.seed_of(u64::from(item_count) << 8 | part),
        };
        let (outcome, listed) = simulated(&simulation);
        line.points.push((f64::from(*cell_count) / f64::from(item_count), 100.0 * listed.center()));
        let complete =
            Measure::Share { count: outcome.trial_count - outcome.failure_count, trial_count: outcome.trial_count };
        let (source, reference) = match *known {
            Some((count, trial_count, source)) => (source, Reference::Counted { count, trial_count }),
            None => (Source::Paper, Reference::Unknown),
        };
        let row = Row::percent(format!("{cell_count} cells: complete"), source, reference, complete);
        let is_rare = *cell_count == 14_500;
        rows.push(if is_rare { row.because(RARE) } else { row });
        let what = format!("{cell_count} cells: keys listed, mean");
        rows.push(Row::percent(what, Source::Paper, Reference::Unknown, listed));
    }
    (rows, line)
}

/// Why the paper may have counted fewer failures than there are.
const RARE: &str = "the paper counted 2 failures in 20,000 there and does not say how it chose the cells";

/// The lines of three and four subtables, at the same fractions of the threshold.
fn others(setting: &Setting, step: &Step) -> Vec<Line> {
    let item_count = 10_000;
    let line = |hash_count: u32| {
        step(&format!("{hash_count} subtables"));
        let points = (0..=10).map(|at: u64| {
            let per_item = threshold(hash_count) * (0.97 + 0.005 * at as f64);
            let simulation = Simulation {
                placement: Placement::Subtables { hash_count },
                item_count,
                cell_count: (per_item * f64::from(item_count)) as u32,
                trial_count: setting.trials(200, 10),
                seed: setting.seed_of(u64::from(hash_count) << 16 | at),
            };
            (per_item, 100.0 * simulated(&simulation).1.center())
        });
        Line { name: format!("k = {hash_count}"), points: points.collect() }
    };
    [3, 4].map(line).into()
}

impl Experiment for Figure1 {
    fn title(&self) -> &'static str {
        "Figure 1: keys listed around the threshold"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let (small_rows, small_line) = half(setting, step, 10_000, &SMALL);
        let (large_rows, large_line) = half(setting, step, 100_000, &LARGE);
        let mut small_lines = others(setting, step);
        small_lines.push(small_line);
        let plot = |file_name, title, lines| Plot { file_name, title, x: "cells a key", y: "keys listed, %", lines };
        Section {
            title: self.title(),
            text: "Keys with one value each, five subtables. The paper prints the figures of three points and draws the others; \
                   points between them are held against an independent prototype. (The paper's second runs, of 200,000 trials \
                   with 14,600 and 144,000 cells, are not repeated.)",
            tables: vec![
                RowTable { caption: "(a) 10,000 keys; threshold 14,250 cells".to_owned(), rows: small_rows },
                RowTable { caption: "(b) 100,000 keys; threshold 142,500 cells".to_owned(), rows: large_rows },
            ],
            plots: vec![
                plot("figure1a.svg", "Figure 1 (a): 10,000 keys", small_lines),
                plot("figure1b.svg", "Figure 1 (b): 100,000 keys", vec![large_line]),
            ],
        }
    }
}
