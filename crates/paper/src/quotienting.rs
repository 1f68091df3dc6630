//! Quotienting (section 4): what is saved when the place of a cell carries a part of the key, and what it costs.

use crate::fill::{Pairs, number_at};
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step, Unit};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::interval::mean_of;
use flowpeel_iblt::{Layout, Placement, QuotientShape, QuotientTable, Rule, Sums, Table};

/// Tables whose cells store quotients.
#[derive(Clone, Copy, Debug)]
pub struct Quotienting;

const HASH_COUNT: u32 = 4;

/// The bits of a key: those of an IPv4 address.
const KEY_BITS: u32 = 32;

/// The bits of a cell with a whole key and a count of 16 bits.
const WHOLE_BITS: u32 = 16 + KEY_BITS;

fn shape(subtable_cell_count: u32, check_bits: u32) -> QuotientShape {
    QuotientShape { key_bits: KEY_BITS, hash_count: HASH_COUNT, subtable_cell_count, check_bits }
}

/// The bits that a cell takes in memory: expected are those of a whole key less what 2^b cells say of it.
fn size(place_bits: u32) -> Row {
    let shape = shape(1 << place_bits, 0);
    let bits = QuotientTable::new(shape, &Secret::REPLAY).byte_count() as f64 * 8.0;
    let ours = Measure::Exact(bits / f64::from(HASH_COUNT << place_bits));
    // A subtable ends with a word that is not full.
    let padding = f64::from(u64::BITS) / f64::from(1u32 << place_bits);
    Row {
        what: format!("bits of a cell in subtables of {} cells, instead of {WHOLE_BITS}", 1u32 << place_bits),
        source: Source::Formula,
        reference: Reference::Value { value: f64::from(WHOLE_BITS - place_bits), tolerance: padding },
        ours,
        unit: Unit::Number(2),
        note: "",
    }
}

/// Keys of 32 bits. A few are equal, which makes no difference here: they leave the table incomplete alike.
fn keys(seed: u64, trial: u64, count: u64) -> Vec<u64> {
    let pairs = Pairs::new(seed, trial);
    (0..count).map(|at| pairs.key(at) >> 32).collect()
}

/// How often tables of a thousand keys list whole, with quotients and with whole keys.
fn listed(setting: &Setting, cells: u32) -> Row {
    const KEYS: u64 = 1_000;
    let (seed, trial_count) = (setting.seed_of(cells.into()), setting.trials(4_000, 100));
    let layout = Layout::new(Placement::Subtables { hash_count: HASH_COUNT }, HASH_COUNT * cells);
    let mut counts = [0; 2];
    for trial in 0..trial_count {
        let keys = keys(seed, trial, KEYS);
        let mut whole: Table<Sums<u32, (), i16, ()>> = Table::with_secret(layout, &Secret::REPLAY);
        let mut quotients = QuotientTable::new(shape(cells, 0), &Secret::REPLAY);
        for key in keys {
            whole.insert(&(key as u32), ());
            quotients.insert(key);
        }
        counts[0] += u64::from(whole.list(Rule::SingleValued).is_complete());
        counts[1] += u64::from(quotients.list().is_complete);
    }
    let what = format!("{KEYS} keys in {HASH_COUNT} subtables of {cells} cells, as with whole keys");
    let reference = Reference::Counted { count: counts[0], trial_count };
    Row::percent(what, Source::Goal, reference, Measure::Share { count: counts[1], trial_count })
}

/// Wrong keys that come out of a table that is far too full, with removals, for a number of bits of the check.
fn wrong(setting: &Setting, check_bits: u32) -> Row {
    const CELLS: u32 = 1_024;
    let (seed, trial_count) = (setting.seed_of(1_000 + u64::from(check_bits)), setting.trials(200, 5));
    let wrong = |trial: u64| {
        let (inserted, removed) = (keys(seed, trial, 6_000), keys(number_at(!seed, 0), trial, 6_000));
        let mut table = QuotientTable::new(shape(CELLS, check_bits), &Secret::REPLAY);
        inserted.iter().for_each(|key| table.insert(*key));
        removed.iter().for_each(|key| table.remove(*key));
        let listing = table.list();
        let mut known = [inserted, removed].concat();
        known.sort_unstable();
        let listed = listing.inserted.iter().chain(&listing.deleted);
        listed.filter(|key| known.binary_search(key).is_err()).count() as f64
    };
    let (mean, error) = mean_of(&(0..trial_count).map(wrong).collect::<Vec<_>>());
    let reference = if check_bits >= 24 { Reference::AtMost(0.01) } else { Reference::Unknown };
    Row {
        what: format!("wrong keys a table, {check_bits} bits of check"),
        source: Source::Goal,
        reference,
        ours: Measure::Mean { mean, error, trial_count },
        unit: Unit::Number(2),
        note: "",
    }
}

impl Experiment for Quotienting {
    fn title(&self) -> &'static str {
        "Section 4: quotienting"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        step("sizes");
        let sizes = [8, 10, 14, 16, 18].map(size).into();
        step("listings");
        let listed = [330, 340, 350, 375].map(|cells| listed(setting, cells)).into();
        step("wrong keys");
        let wrong = [0, 8, 16, 24].map(|check_bits| wrong(setting, check_bits)).into();
        Section {
            title: self.title(),
            text: "Keys of 32 bits, counts of 16, no values. Each subtable permutes the keys; the remainder of a permuted key by the number \
                   of cells is its place, and the cell sums the quotient. What is saved is the logarithm of a subtable's cells. Listing is \
                   as it was. But a sum of several keys now always looks like a key of this cell, where with whole keys the place rules \
                   out all but one in so many: where something is removed that was not inserted, the check has to be longer by as \
                   many bits as are saved.",
            tables: vec![
                RowTable { caption: "Size".to_owned(), rows: sizes },
                RowTable { caption: "Tables that list whole".to_owned(), rows: listed },
                RowTable {
                    caption: "Overfull tables of 4 x 1,024 cells, 6,000 keys inserted and 6,000 others removed"
                        .to_owned(),
                    rows: wrong,
                },
            ],
            plots: Vec::new(),
        }
    }
}
