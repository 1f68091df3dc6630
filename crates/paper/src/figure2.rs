//! Figure 2: how often a listing is incomplete, against the number of damaged keys; with aggregates it never is.

use crate::table2::Damage;
use crate::{Experiment, Line, Measure, Plot, Reference, Row, RowTable, Section, Setting, Source, Step, Unit};

/// Figure 2 (a) and (b).
#[derive(Clone, Copy, Debug)]
pub struct Figure2;

/// The paper's trials.
const PAPER_TRIALS: u64 = 20_000;

/// How far the paper's formula, "a good first approximation", may be off, as a share of the trials: there are other
/// ways in which keys are left.
const APPROXIMATION: f64 = 0.01;

/// One half of the figure.
struct Half {
    file_name: &'static str,
    title: &'static str,
    key_count: u64,
    /// Numbers of damaged keys, and how many of its trials were incomplete, where the paper says so.
    points: [(u64, Option<u64>); 8],
    full: u64,
    quick: u64,
}

const HALVES: [Half; 2] = [
    Half {
        file_name: "figure2a.svg",
        title: "Figure 2 (a): 10,000 keys, 80,000 cells",
        key_count: 10_000,
        points: [
            (250, None),
            (500, Some(4)),
            (750, None),
            (1_000, Some(128)),
            (1_250, None),
            (1_500, None),
            (1_750, None),
            (2_000, Some(3_299)),
        ],
        full: 20_000,
        quick: 15,
    },
    Half {
        file_name: "figure2b.svg",
        title: "Figure 2 (b): 100,000 keys, 800,000 cells",
        key_count: 100_000,
        points: [
            (2_500, None),
            (5_000, None),
            (7_500, None),
            (10_000, Some(1_440)),
            (12_500, None),
            (15_000, None),
            (17_500, None),
            (20_000, None),
        ],
        full: 60,
        quick: 1,
    },
];

fn half(setting: &Setting, step: &Step, half: &Half) -> (Vec<Row>, Plot) {
    let mut rows = Vec::new();
    let mut lines = ["the paper's rule", "its formula", "aggregates"]
        .map(|name| Line { name: name.to_owned(), points: Vec::new() });
    let (mut whole_count, mut aggregate_trials) = (0, 0);
    for &(damaged_count, known) in &half.points {
        step(&format!("{} keys, {damaged_count} damaged", half.key_count));
        let damage = Damage { key_count: half.key_count, damaged_count };
        let seed = setting.seed_of(half.key_count << 32 | damaged_count);
        let trial_count = setting.trials(half.full, half.quick);
        let tried = damage.tried(damage.table(), setting, seed, trial_count);
        let ours = Measure::Share { count: trial_count - tried.left[0], trial_count };
        let formula = damage.formula();
        let (source, reference) = match known {
            Some(count) => (Source::Paper, Reference::Counted { count, trial_count: PAPER_TRIALS }),
            None => (Source::Formula, Reference::Value { value: formula, tolerance: APPROXIMATION }),
        };
        rows.push(Row::percent(format!("{damaged_count} damaged keys"), source, reference, ours));
        whole_count += tried.all_count;
        aggregate_trials += tried.aggregate_trials;
        let incomplete = 1.0 - tried.all_count as f64 / tried.aggregate_trials as f64;
        for (line, share) in lines.iter_mut().zip([ours.center(), formula, incomplete]) {
            line.points.push((damaged_count as f64, 100.0 * share));
        }
    }
    let what = "aggregates, all points together: everything listed";
    rows.push(Row::always(what, (whole_count, aggregate_trials)));
    let (x, y) = ("damaged keys", "trials with a valid key left, %");
    (rows, Plot { file_name: half.file_name, title: half.title, x, y, lines: lines.into() })
}

/// What the paper computes for 1,000 damaged keys of 10,000, by its formula.
fn formula_rows() -> Vec<Row> {
    let damage = Damage { key_count: 10_000, damaged_count: 1_000 };
    let row = |what: &str, value, tolerance, unit, ours| Row {
        what: what.to_owned(),
        source: Source::Paper,
        reference: Reference::Value { value, tolerance },
        ours: Measure::Exact(ours),
        unit,
        note: "",
    };
    vec![
        row("a valid key is left", 8.16e-7, 0.005e-7, Unit::Millionths, damage.key_formula()),
        row("no valid key is left", 0.9927, 0.000_05, Unit::Percent, 1.0 - damage.formula()),
    ]
}

impl Experiment for Figure2 {
    fn title(&self) -> &'static str {
        "Figure 2: incomplete listings with damaged keys"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let (mut tables, mut plots) = (Vec::new(), Vec::new());
        for which in &HALVES {
            let (rows, plot) = half(setting, step, which);
            tables.push(RowTable { caption: which.title.to_owned(), rows });
            plots.push(plot);
        }
        tables.push(RowTable { caption: "Formula: 1,000 of 10,000 keys damaged".to_owned(), rows: formula_rows() });
        Section {
            title: self.title(),
            text: "The share of trials in which a valid key is left, as in Table 2. Where the paper does not print the figure of a \
                   point, its formula stands in: a valid key is left when all its cells hold a damaged key.",
            tables,
            plots,
        }
    }
}
