//! Theorem 1: above the threshold, listing fails as often as two keys have the same cells, O(t^(2-k)). Theorem 2: where
//! n^(1-b) keys have several values, ceil(1/b) + 4 cells a key list every valid key.

use crate::fill::{Listings, Pairs, insert, part_size};
use crate::parts::Series;
use crate::theory::cells_per_key;
use crate::{Experiment, Line, Measure, Plot, Reference, Row, RowTable, Section, Setting, Source, Step, Unit};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{CheckedCell, Layout, Placement, Rule, Table, Values};

/// Theorems 1 and 2.
#[derive(Clone, Copy, Debug)]
pub struct Theorems;

/// A number of keys, with its trials, and those of a quick run.
type Trials = (u32, u64, u64);

/// Numbers of keys of Theorem 1 by the hashes of a key: more trials where failures are rarer.
const FIRST: [(u32, &[Trials]); 2] = [
    (
        3,
        &[(50, 200_000, 2_000), (100, 200_000, 2_000), (200, 200_000, 1_000), (400, 200_000, 500), (800, 200_000, 200)],
    ),
    (4, &[(50, 400_000, 2_000), (100, 400_000, 1_000), (200, 600_000, 500), (400, 600_000, 200)]),
];

/// Cells a key: above the thresholds of three and four cells a key, far enough that no size is near them.
const FIRST_CELLS: u32 = 2;

/// How far the two smallest cores are from all, as a share of the prediction: cores of five and more keys, which matter
/// in the smallest tables.
const LARGER_CORES: f64 = 0.05;

/// The chance that some keys of a table have the smallest cores: two keys on the same cells, or four of which each cell
/// holds two. With `s` cells in each of `k` subtables there are n (n-1) / 2 pairs, each with a chance of s^-k; and of
/// four keys each subtable pairs them in one of three ways, or holds all four in one cell, with a chance of nearly 3
/// s^-2 (where all subtables pair them alike, they are two pairs, which are counted already).
fn smallest_cores(hash_count: u32, key_count: u32) -> f64 {
    let (n, k) = (f64::from(key_count), hash_count as i32);
    let subtable = f64::from(FIRST_CELLS) * n / f64::from(hash_count);
    let pairs = n * (n - 1.0) / 2.0;
    let fours = pairs * (n - 2.0) * (n - 3.0) / 12.0;
    pairs * subtable.powi(-k) + fours * (3f64.powi(k) - 3.0) * subtable.powi(-2 * k)
}

/// The rows of Theorem 1 for one number of cells a key, and its line: failures times n^(k-2).
fn first(setting: &Setting, step: &Step, hash_count: u32, sizes: &[(u32, u64, u64)]) -> (Vec<Row>, Line) {
    let mut rows = Vec::new();
    let mut line = Line { name: format!("k = {hash_count}"), points: Vec::new() };
    for &(key_count, full, quick) in sizes {
        step(&format!("Theorem 1, k = {hash_count}, {key_count} keys"));
        let placement = Placement::Subtables { hash_count };
        let listings = Listings { placement, key_count, cell_count: FIRST_CELLS * key_count };
        let seed = setting.seed_of(u64::from(hash_count) << 32 | u64::from(key_count));
        let listed = listings.run(setting, seed, setting.trials(full, quick));
        let scale = f64::from(key_count).powi(hash_count as i32 - 2);
        let failed =
            Measure::Share { count: listed.trial_count - listed.complete_count, trial_count: listed.trial_count };
        let value = smallest_cores(hash_count, key_count) * scale;
        rows.push(Row {
            what: format!("k = {hash_count}, {key_count} keys: failures x n^{}", hash_count - 2),
            source: Source::Formula,
            reference: Reference::Value { value, tolerance: LARGER_CORES * value },
            ours: Measure::Scaled {
                count: listed.trial_count - listed.complete_count,
                trial_count: listed.trial_count,
                scale,
            },
            unit: Unit::Number(3),
            note: "",
        });
        line.points.push((f64::from(key_count).log10(), failed.center() * scale));
    }
    (rows, line)
}

/// A case of Theorem 2: n^(1-b) of n keys have two values.
struct Second {
    /// The inverse of b.
    inverse_b: u32,
    key_count: u64,
    full: u64,
    quick: u64,
}

const fn second(inverse_b: u32, key_count: u64, full: u64, quick: u64) -> Second {
    Second { inverse_b, key_count, full, quick }
}

const SECOND: [Second; 6] = [
    second(2, 1_000, 10_000, 60),
    second(2, 10_000, 1_000, 6),
    second(2, 100_000, 100, 1),
    second(3, 1_000, 10_000, 60),
    second(3, 10_000, 1_000, 6),
    second(3, 100_000, 100, 1),
];

/// The theorem's epsilon: cells a key above the threshold.
const EPSILON: f64 = 0.2;

/// How much more often than by all their cells valid keys are left, at most: the paper's "other possible ways".
const OTHER_WAYS: f64 = 0.005;

impl Second {
    fn hash_count(&self) -> u32 {
        self.inverse_b + 4
    }

    fn cell_count(&self) -> u32 {
        (self.key_count as f64 * (cells_per_key(self.hash_count()) + EPSILON)) as u32
    }

    fn damaged_count(&self) -> u64 {
        (self.key_count as f64).powf(1.0 - 1.0 / f64::from(self.inverse_b)).round() as u64
    }

    /// The share of trials that leave no valid key whose cells all hold damaged ones (the formula of section 3).
    fn formula(&self) -> f64 {
        let k = f64::from(self.hash_count());
        let poisoned = 1.0 - (-k * self.damaged_count() as f64 / f64::from(self.cell_count())).exp();
        ((self.key_count - self.damaged_count()) as f64 * (-poisoned.powf(k)).ln_1p()).exp()
    }

    /// How many trials list every valid key.
    fn trials(&self, seed: u64, trial_count: u64) -> [u64; 1] {
        let layout = Layout::new(Placement::Subtables { hash_count: self.hash_count() }, self.cell_count());
        let mut table: Table<CheckedCell<u64>> = Table::with_secret(layout, &Secret::REPLAY);
        let (key_count, damaged_count) = (self.key_count, self.damaged_count());
        let is_listed = |trial: &u64| {
            let pairs = Pairs::new(seed, *trial);
            table.clear();
            insert(&mut table, pairs.firsts(0..key_count));
            insert(&mut table, (0..damaged_count).map(|at| (pairs.key(at), pairs.value(at, 1))));
            let (mut valid, mut sum) = (0, 0u64);
            table.peel(Rule::SingleValued, |entry| {
                if let Values::One(value) = entry.values {
                    valid += 1;
                    sum = sum.wrapping_add(value);
                }
            });
            let right = pairs.firsts(damaged_count..key_count).fold(0, |sum: u64, (_, value)| sum.wrapping_add(value));
            valid == key_count - damaged_count && sum == right
        };
        [(0..trial_count).filter(is_listed).count() as u64]
    }

    fn row(&self, setting: &Setting) -> Row {
        let (hash_count, damaged_count) = (self.hash_count(), self.damaged_count());
        let what = format!(
            "b = 1/{}, k = {hash_count}, {} keys, {damaged_count} damaged, {} cells: every valid key listed",
            self.inverse_b,
            self.key_count,
            self.cell_count()
        );
        let series = Series {
            name: &format!("theorem 2 b {} keys {}", self.inverse_b, self.key_count),
            seed: setting.seed_of(u64::from(self.inverse_b) << 48 | self.key_count),
            trial_count: setting.trials(self.full, self.quick),
            part_size: part_size(self.key_count),
        };
        let [count] = setting.in_parts(&series, |seed, trial_count| self.trials(seed, trial_count));
        let reference = Reference::Value { value: self.formula(), tolerance: OTHER_WAYS };
        let ours = Measure::Share { count, trial_count: series.trial_count };
        Row::percent(what, Source::Formula, reference, ours)
    }
}

impl Experiment for Theorems {
    fn title(&self) -> &'static str {
        "Theorems 1 and 2: listing nearly always succeeds"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let (mut tables, mut lines) = (Vec::new(), Vec::new());
        for (hash_count, sizes) in &FIRST {
            let (rows, line) = first(setting, step, *hash_count, sizes);
            let exponent = hash_count - 2;
            let caption = format!("Theorem 1, k = {hash_count}, two cells a key: failures x n^{exponent} stay level");
            tables.push(RowTable { caption, rows });
            lines.push(line);
        }
        let rows = SECOND.iter().map(|case| {
            step(&format!("Theorem 2, b = 1/{}, {} keys", case.inverse_b, case.key_count));
            case.row(setting)
        });
        let caption = "Theorem 2: n^(1-b) damaged keys, ceil(1/b) + 4 cells a key, 0.2 cells a key above the threshold";
        tables.push(RowTable { caption: caption.to_owned(), rows: rows.collect() });
        Section {
            title: self.title(),
            text: TEXT,
            tables,
            plots: vec![Plot {
                file_name: "theorem1.svg",
                title: "Theorem 1: failures x n^(k-2), two cells a key",
                x: "keys, log10",
                y: "failures x n^(k-2)",
                lines,
            }],
        }
    }
}

const TEXT: &str = "Theorem 1: with cells above the threshold, listing fails with a probability of O(t^(2-k)), since two keys on the \
    same cells are what fails most often. So failures times n^(k-2) stay level as tables grow. They are held against the chance \
    of the two smallest cores: two keys on the same cells, or four keys of which each cell holds two (5 % are left to larger ones). \
    Theorem 2: of n keys, n^(1-b) have two values, and by the paper's rule poison their cells. With ceil(1/b) + 4 \
    cells a key, every valid key is listed more and more surely as n grows. Expected is the paper's formula for keys all of whose \
    cells are poisoned; half a hundredth is left to the other ways in which keys are left.";
