//! How often GET succeeds (sections 2.3, 3 and 5), by itself and with the help of neighbours: the share of keys that
//! are found, and of absent keys that are recognised as absent.

use crate::fill::{Pairs, insert, number_at, part_size};
use crate::parts::Series;
use crate::table2::Damage;
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Got, Layout, Placement, PlainCell, Sums, Table, TableCell, Values};

/// The success rates of GET.
#[derive(Clone, Copy, Debug)]
pub struct Get;

/// The share of keys that the paper finds with eight cells a key and five hashes.
const PAPER: f64 = 0.978_3;

/// Half a unit of the last digit of [`PAPER`]; the formulas are as exact as that.
const ROUNDING: f64 = 0.000_1;

/// A table of valid keys.
#[derive(Clone, Copy, Debug)]
struct Shape {
    hash_count: u32,
    key_count: u64,
    cells_per_key: u32,
}

/// The mean shares of keys that are decided, by the paper's rule and with neighbours.
struct Rates {
    plain: Measure,
    helped: Measure,
}

impl Shape {
    fn load(self) -> f64 {
        f64::from(self.hash_count) / f64::from(self.cells_per_key)
    }

    /// A key is found when one of its cells holds nothing else: 1 - (1 - e^(-kn/m))^k. That is also how often an absent
    /// key hits an empty cell.
    fn found_formula(self) -> f64 {
        1.0 - (1.0 - (-self.load()).exp()).powi(self.hash_count as i32)
    }

    /// Without checks a cell with one other key also shows that a key is absent: 1 - (1 - e^(-kn/m) - kn/m
    /// e^(-kn/m))^k.
    fn absent_formula(self) -> f64 {
        let empty = (-self.load()).exp();
        1.0 - (1.0 - empty - self.load() * empty).powi(self.hash_count as i32)
    }

    /// Over some trials: the keys that are decided by the paper's rule and with neighbours, and the squares of each.
    /// Keys that are there are decided when they are found with their value, absent ones when they are recognised as
    /// absent.
    fn trials<C: TableCell<Key = u64, Value = u64>>(self, seed: u64, trial_count: u64, is_present: bool) -> [u64; 4] {
        let layout = Layout::new(
            Placement::Subtables { hash_count: self.hash_count },
            self.cells_per_key * self.key_count as u32,
        );
        let mut table: Table<C> = Table::with_secret(layout, &Secret::REPLAY);
        let mut sums = [0; 4];
        for trial in 0..trial_count {
            let (present, absent) = (Pairs::new(seed, trial), Pairs::new(number_at(!seed, 1), trial));
            table.clear();
            insert(&mut table, present.firsts(0..self.key_count));
            let decided = |get: &dyn Fn(&u64) -> Got<u64>| {
                let is_decided = |at: &u64| match is_present {
                    true => get(&present.key(*at)).value() == Some(present.value(*at, 0)),
                    false => get(&absent.key(*at)) == Got::Absent,
                };
                (0..self.key_count).filter(is_decided).count() as u64
            };
            let (plain, helped) = (decided(&|key| table.get_plain(key)), decided(&|key| table.get(key)));
            let of_trial = [plain, plain * plain, helped, helped * helped];
            sums.iter_mut().zip(of_trial).for_each(|(sum, of_trial)| *sum += of_trial);
        }
        sums
    }

    /// The rates over trials, in parts.
    fn rates<C: TableCell<Key = u64, Value = u64>>(
        self,
        setting: &Setting,
        seed: u64,
        trial_count: u64,
        is_present: bool,
    ) -> Rates {
        let checks = if C::IS_CHECKED { "checked" } else { "unchecked" };
        let name = format!("{self:?} {checks} {}", if is_present { "present" } else { "absent" });
        let name: String = name.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '_')).collect();
        let series = Series { name: &name, seed, trial_count, part_size: part_size(self.key_count) };
        let [plain, plain_squares, helped, helped_squares] =
            setting.in_parts(&series, |seed, trial_count| self.trials::<C>(seed, trial_count, is_present));
        let mean = |sum, squares| Measure::mean_of_sums(trial_count, sum, squares, self.key_count as f64);
        Rates { plain: mean(plain, plain_squares), helped: mean(helped, helped_squares) }
    }
}

/// What the paper says about valid keys among damaged ones: GET finds them as often as without these.
fn among_damaged(setting: &Setting, damaged_count: u64) -> Row {
    let damage = Damage { key_count: 10_000, damaged_count };
    let valid_count = damage.key_count - damaged_count;
    let mut table = damage.table();
    let series = Series {
        name: &format!("among {damaged_count} damaged"),
        seed: setting.seed_of(damaged_count),
        trial_count: setting.trials(200, 10),
        part_size: part_size(damage.key_count),
    };
    let [found, squares] = setting.in_parts(&series, |seed, trial_count| {
        let mut sums = [0; 2];
        for trial in 0..trial_count {
            let pairs = Pairs::new(seed, trial);
            table.clear();
            damage.fill(&mut table, &pairs);
            let is_found = |at: &u64| match table.get_plain(&pairs.key(*at)) {
                Got::Found { count: 1, values: Values::One(value) } => value == pairs.value(*at, 0),
                _ => false,
            };
            let found = (damaged_count..damage.key_count).filter(is_found).count() as u64;
            sums = [sums[0] + found, sums[1] + found * found];
        }
        sums
    });
    let what = format!("10000 keys, 80000 cells, k = 5, valid keys among {damaged_count} damaged");
    let reference = Reference::Value { value: PAPER, tolerance: ROUNDING };
    let found = Measure::mean_of_sums(series.trial_count, found, squares, valid_count as f64);
    Row::percent(what, Source::Paper, reference, found)
}

/// Rows of present and absent keys, for one shape.
fn shape_rows(shape: Shape, setting: &Setting, trial_count: u64, paper: Option<f64>, tables: &mut [Vec<Row>; 3]) {
    let [found_rows, absent_rows, helped_rows] = tables;
    let Shape { hash_count, key_count, cells_per_key } = shape;
    let name = format!("{key_count} keys, {} cells, k = {hash_count}", u64::from(cells_per_key) * key_count);
    let seed = setting.seed_of(key_count << 8 | u64::from(hash_count) << 4 | u64::from(cells_per_key));
    let (source, value) = paper.map_or((Source::Formula, shape.found_formula()), |value| (Source::Paper, value));
    let value_of = |value| Reference::Value { value, tolerance: ROUNDING };

    let found = shape.rates::<Sums<u64, u64>>(setting, seed, trial_count, true);
    found_rows.push(Row::percent(format!("{name}: found"), source, value_of(value), found.plain));
    let absent = shape.rates::<Sums<u64, u64>>(setting, seed, trial_count, false);
    let formula = value_of(shape.found_formula());
    absent_rows.push(Row::percent(format!("{name}: absent, with checks"), Source::Formula, formula, absent.plain));
    let unchecked = shape.rates::<PlainCell<u64>>(setting, seed, trial_count, false).plain;
    let formula = value_of(shape.absent_formula());
    absent_rows.push(Row::percent(format!("{name}: absent, without checks"), Source::Formula, formula, unchecked));
    for (what, rates) in [("found", found), ("absent", absent)] {
        let least = Reference::AtLeast(rates.plain.center());
        helped_rows.push(Row::percent(format!("{name}: {what}"), Source::Goal, least, rates.helped));
    }
}

impl Experiment for Get {
    fn title(&self) -> &'static str {
        "GET: single keys"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let mut tables: [Vec<Row>; 3] = Default::default();
        for (hash_count, key_count, cells_per_key, full, quick, paper) in [
            (5, 10_000, 8, 200, 10, Some(PAPER)),
            (5, 100_000, 8, 20, 2, Some(PAPER)),
            (4, 10_000, 8, 50, 10, None),
            (4, 10_000, 4, 50, 10, None),
        ] {
            let shape = Shape { hash_count, key_count, cells_per_key };
            step(&format!("{key_count} keys, {cells_per_key} cells each, k = {hash_count}"));
            shape_rows(shape, setting, setting.trials(full, quick), paper, &mut tables);
        }
        step("damaged keys");
        tables[0].extend([500, 1_000].map(|damaged_count| among_damaged(setting, damaged_count)));
        let captions = [
            "Keys that are there, by their own cells",
            "Keys that are not there, by their own cells",
            "Beyond the paper: with the help of neighbours, at least as often as without",
        ];
        let tables = captions.iter().zip(tables);
        Section {
            title: self.title(),
            text: "The mean share of keys that GET decides. A neighbour is a key that shares a cell: once another of its own cells \
                   decides it, what is left of the shared one is the key's.",
            tables: tables.map(|(caption, rows)| RowTable { caption: (*caption).to_owned(), rows }).collect(),
            plots: Vec::new(),
        }
    }
}
