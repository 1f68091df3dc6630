//! GET for keys to which the caller gives more cells than to others (footnote 5).

use crate::fill::Pairs;
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::interval::mean_of;
use flowpeel_iblt::{ChosenDegrees, Degrees, Layout, Placement, SecretHash, Sums, Table};

/// Keys with more cells than others.
#[derive(Clone, Copy, Debug)]
pub struct ChosenCells;

const KEY_COUNT: u64 = 10_000;

const CELL_COUNT: u32 = 40_000;

/// One key in so many has more cells.
const CHOSEN_SHARE: u64 = 10;

/// The cells of the others.
const COMMON_DEGREE: u8 = 3;

/// Half a unit of the last digit that is printed, and what the formula leaves out: that a key's cells are distinct.
const ROUNDING: f64 = 0.000_5;

/// The cells of a key. A key is chosen by itself alone, as a table needs it.
fn degree_of(key: u64, chosen_degree: u8) -> u8 {
    if key.is_multiple_of(CHOSEN_SHARE) { chosen_degree } else { COMMON_DEGREE }
}

/// The share of keys with so many cells that are found: those of which one cell holds nothing else.
fn formula(degree: u8, chosen_degree: u8) -> f64 {
    let mean = f64::from(COMMON_DEGREE) + f64::from(chosen_degree - COMMON_DEGREE) / CHOSEN_SHARE as f64;
    let load = mean * KEY_COUNT as f64 / f64::from(CELL_COUNT);
    1.0 - (1.0 - (-load).exp()).powi(degree.into())
}

/// The mean shares that are found of the keys with more cells, and of the others.
fn found(seed: u64, trial_count: u64, chosen_degree: u8) -> [Measure; 2] {
    let shares = [(COMMON_DEGREE, CHOSEN_SHARE as u16 - 1), (chosen_degree, 1)];
    let layout = Layout::new(Placement::Chosen(Degrees::new(&shares).expect("they are shares")), CELL_COUNT);
    let hash =
        ChosenDegrees::new(SecretHash::new(&Secret::REPLAY), move |key: &u64| degree_of(*key, chosen_degree).into());
    let mut table = Table::<Sums<u64, u64>, _>::new(layout, hash);
    let mut trials: [Vec<f64>; 2] = Default::default();
    for trial in 0..trial_count {
        let pairs = Pairs::new(seed, trial).first(KEY_COUNT);
        table.clear();
        table.insert_all(&pairs);
        for (is_chosen, trials) in [true, false].into_iter().zip(&mut trials) {
            let of_kind = pairs.iter().filter(|(key, _)| key.is_multiple_of(CHOSEN_SHARE) == is_chosen);
            let known = of_kind.clone().filter(|(key, value)| table.get_plain(key).value() == Some(*value));
            trials.push(known.count() as f64 / of_kind.count() as f64);
        }
    }
    trials.map(|trials| {
        let (mean, error) = mean_of(&trials);
        Measure::Mean { mean, error, trial_count }
    })
}

impl Experiment for ChosenCells {
    fn title(&self) -> &'static str {
        "Footnote 5: more cells for some keys"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let mut rows: [Vec<Row>; 2] = Default::default();
        for chosen_degree in [3, 6, 9, 12, 18] {
            step(&format!("{chosen_degree} cells"));
            let trials = setting.trials(200, 5);
            let ours = found(setting.seed_of(chosen_degree.into()), trials, chosen_degree);
            let kinds = [(chosen_degree, "in"), (COMMON_DEGREE, "in 3, beside a tenth in")];
            for (((degree, what), ours), rows) in kinds.into_iter().zip(ours).zip(&mut rows) {
                let reference = Reference::Value { value: formula(degree, chosen_degree), tolerance: ROUNDING };
                rows.push(Row::percent(format!("keys {what} {chosen_degree} cells"), Source::Formula, reference, ours));
            }
        }
        let captions = ["The tenth with more cells, found by their own cells", "The others, found by their own cells"];
        let tables = captions.iter().zip(rows);
        Section {
            title: self.title(),
            text: "10,000 keys in 40,000 cells. The caller gives every tenth key more cells than the three of the others. A key is found \
                   when one of its cells holds nothing else, so keys with more cells are found more often, and all others a little \
                   less, as the cells become fuller.",
            tables: tables.map(|(caption, rows)| RowTable { caption: (*caption).to_owned(), rows }).collect(),
            plots: Vec::new(),
        }
    }
}
