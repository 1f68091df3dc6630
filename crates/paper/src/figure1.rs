//! Figure 1: how often everything is listed, and how much on average, against the number of cells around the threshold.

use crate::fill::{FIVE, Listings};
use crate::theory::cells_per_key;
use crate::{Experiment, Line, Measure, Plot, Reference, Row, RowTable, Section, Setting, Source, Step};
use flowpeel_iblt::{Outcome, Placement, Simulation};

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

/// The trials of a point in the paper.
const PAPER_TRIALS: u64 = 20_000;

/// The trials of the paper's second runs.
const PAPER_SECOND_TRIALS: u64 = 200_000;

/// Figure 1 (a): 10,000 keys. The paper names the figures of 14,500 and 14,600 cells.
const SMALL: [Point; 9] = [
    point(13_800, PAPER_TRIALS, 20),
    point(14_000, PAPER_TRIALS, 20),
    point(14_100, PAPER_TRIALS, 20),
    known(14_200, (447, 4_000, Source::Prototype), PAPER_TRIALS, 40),
    known(14_300, (2_622, 4_000, Source::Prototype), PAPER_TRIALS, 40),
    known(14_400, (3_933, 4_000, Source::Prototype), PAPER_TRIALS, 40),
    known(14_500, (19_998, 20_000, Source::Paper), PAPER_TRIALS, 40),
    known(14_600, (20_000, 20_000, Source::Paper), PAPER_TRIALS, 40),
    point(14_800, PAPER_TRIALS, 20),
];

/// Our trials of the points of figure 1 (b).
const LARGE_TRIALS: u64 = 1_000;

/// Figure 1 (b): 100,000 keys. The paper names the figure of 144,000 cells.
const LARGE: [Point; 7] = [
    point(141_500, LARGE_TRIALS, 2),
    point(142_000, LARGE_TRIALS, 2),
    point(142_250, LARGE_TRIALS, 2),
    point(142_500, LARGE_TRIALS, 2),
    point(142_750, LARGE_TRIALS, 2),
    point(143_250, LARGE_TRIALS, 2),
    known(144_000, (20_000, 20_000, Source::Paper), LARGE_TRIALS, 4),
];

/// The second runs: keys, and the point.
const SECOND: [(u32, Point); 2] = [
    (10_000, known(14_600, (PAPER_SECOND_TRIALS, PAPER_SECOND_TRIALS, Source::Paper), PAPER_SECOND_TRIALS, 20)),
    (100_000, known(144_000, (PAPER_SECOND_TRIALS, PAPER_SECOND_TRIALS, Source::Paper), LARGE_TRIALS, 1)),
];

impl Point {
    /// The rows of complete listings and of listed keys, and the mean share of these.
    fn rows(&self, setting: &Setting, key_count: u32, seed: u64) -> ([Row; 2], f64) {
        let Point { cell_count, known, full, quick } = *self;
        let listings = Listings { placement: FIVE, key_count, cell_count };
        let listed = listings.run(setting, seed, setting.trials(full, quick));
        let complete = Measure::Share { count: listed.complete_count, trial_count: listed.trial_count };
        let (source, reference) = match known {
            Some((count, trial_count, source)) => (source, Reference::Counted { count, trial_count }),
            None => (Source::Paper, Reference::Unknown),
        };
        let row = Row::percent(format!("{cell_count} cells: complete"), source, reference, complete);
        let what = format!("{cell_count} cells: keys listed, mean");
        let keys = Row::percent(what, Source::Paper, Reference::Unknown, listed.share);
        ([if cell_count == 14_500 { row.because(RARE) } else { row }, keys], listed.share.center())
    }
}

/// One of the two halves: the rows, and the line of the plot.
fn half(setting: &Setting, step: &Step, key_count: u32, points: &[Point]) -> (Vec<Row>, Line) {
    let mut rows = Vec::new();
    let mut line = Line { name: "k = 5".to_owned(), points: Vec::new() };
    for (part, point) in (0..).zip(points) {
        step(&format!("{key_count} keys, {} cells", point.cell_count));
        let (both, share) = point.rows(setting, key_count, setting.seed_of(u64::from(key_count) << 8 | part));
        line.points.push((f64::from(point.cell_count) / f64::from(key_count), 100.0 * share));
        rows.extend(both);
    }
    (rows, line)
}

/// The paper's second runs.
fn second(setting: &Setting, step: &Step) -> Vec<Row> {
    let run = |(key_count, point): &(u32, Point)| {
        step(&format!("{key_count} keys, {} cells, second run", point.cell_count));
        let ([row, _], _) = point.rows(setting, *key_count, setting.seed_of(u64::from(*key_count) << 8 | 0xff));
        Row { what: format!("{key_count} keys, {}", row.what), ..row }
    };
    SECOND.iter().map(run).collect()
}

/// Why the paper may have counted fewer failures than there are.
const RARE: &str = "the paper counted 2 failures in 20,000 there and does not say how it chose the cells";

/// The same tables reduced to the graph of their keys, which lists by the same rule and knows nothing of fields, checks
/// or hashes: a table that lists less often than its graph is wrong.
fn graphs(setting: &Setting, step: &Step, rows: &[Row]) -> Vec<Row> {
    let of_graph = |(part, point): (u64, &Point)| {
        step(&format!("{} cells, the graph", point.cell_count));
        let simulation = Simulation {
            placement: FIVE,
            item_count: 10_000,
            cell_count: point.cell_count,
            trial_count: setting.trials(GRAPH_TRIALS, 40),
            seed: setting.seed_of(0xa << 32 | part),
        };
        let Outcome { trial_count, failure_count, .. } = simulation.run();
        let reference = Reference::Counted { count: trial_count - failure_count, trial_count };
        let of_table = &rows[2 * part as usize];
        Row { source: Source::Graph, reference, note: "", ..of_table.clone() }
    };
    (0..).zip(&SMALL).filter(|(_, point)| (14_200..=14_400).contains(&point.cell_count)).map(of_graph).collect()
}

/// Trials of the graphs.
const GRAPH_TRIALS: u64 = 4_000;

/// The lines of three and four subtables, at the same fractions of the threshold.
fn others(setting: &Setting, step: &Step) -> Vec<Line> {
    let key_count = 10_000;
    let line = |hash_count: u32| {
        step(&format!("{hash_count} subtables"));
        let points = (0..=10).map(|at: u64| {
            let per_key = cells_per_key(hash_count) * (0.97 + 0.005 * at as f64);
            let cell_count = (per_key * f64::from(key_count)) as u32;
            let listings = Listings { placement: Placement::Subtables { hash_count }, key_count, cell_count };
            let seed = setting.seed_of(u64::from(hash_count) << 16 | at);
            (per_key, 100.0 * listings.run(setting, seed, setting.trials(200, 10)).share.center())
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
        let graph_rows = graphs(setting, step, &small_rows);
        Section {
            title: self.title(),
            text: "Keys with one value each, five subtables, cells as in section 2: counts, keys and values. The paper prints the \
                   figures of three points and draws the others; points between them are held against an independent prototype.",
            tables: vec![
                RowTable { caption: "(a) 10,000 keys; threshold 14,250 cells".to_owned(), rows: small_rows },
                RowTable { caption: "(b) 100,000 keys; threshold 142,500 cells".to_owned(), rows: large_rows },
                RowTable { caption: "The paper's second runs".to_owned(), rows: second(setting, step) },
                RowTable { caption: "(a) against the graphs of the same keys".to_owned(), rows: graph_rows },
            ],
            plots: vec![
                plot("figure1a.svg", "Figure 1 (a): 10,000 keys", small_lines),
                plot("figure1b.svg", "Figure 1 (b): 100,000 keys", vec![large_line]),
            ],
        }
    }
}
