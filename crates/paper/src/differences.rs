//! Beyond the paper: differences from a known list, and recovery from an overload, as the share of intervals that were
//! exact.

use crate::fill::Pairs;
use crate::overload::{Overload, Recovery};
use crate::parts::Series;
use crate::row::grouped;
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step, Unit};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Entry, Layout, Placement, Rule, Sums, Table};

/// Differences from a known list.
#[derive(Clone, Copy, Debug)]
pub struct Differences;

/// A list of keys that changes from interval to interval.
struct Churn {
    key_count: u64,
    /// Differences of an interval: half of them openings, half closings.
    difference_count: u64,
    cell_count: u32,
    interval_count: u64,
}

impl Churn {
    /// How many intervals' differences were listed exactly with the help of the previous list. (After an interval that
    /// failed the list is corrected, so that each interval counts by itself.)
    fn exact_count(&self, seed: u64) -> u64 {
        let pairs = Pairs::new(seed, 0);
        let mut known = pairs.first(self.key_count);
        let mut next = self.key_count;
        let layout = Layout::new(Placement::Subtables { hash_count: 3 }, self.cell_count);
        let mut table: Table<Sums<u64, u64>> = Table::with_secret(layout, &Secret::REPLAY);
        let mut exact_count = 0;
        for interval in 0..self.interval_count {
            let mut open = known.clone();
            let choices = Pairs::new(!seed, interval);
            let closed: Vec<(u64, u64)> = (0..self.difference_count / 2)
                .map(|at| open.swap_remove(choices.choice(at, open.len() as u64) as usize))
                .collect();
            let opened = (next..next + self.difference_count / 2).map(|at| (pairs.key(at), pairs.value(at, 0)));
            let opened: Vec<(u64, u64)> = opened.collect();
            next += self.difference_count / 2;
            table.clear();
            table.remove_all(&closed);
            table.insert_all(&opened);
            let listing = table.list_knowing(&known, Rule::Aggregates);
            open.extend(&opened);
            let is_exact = listing.is_complete()
                && listed(&listing.inserted, 1) == sorted(opened)
                && listed(&listing.deleted, -1) == sorted(closed);
            exact_count += u64::from(is_exact);
            known = open;
        }
        exact_count
    }
}

fn sorted(mut pairs: Vec<(u64, u64)>) -> Option<Vec<(u64, u64)>> {
    pairs.sort_unstable();
    Some(pairs)
}

/// The pairs of entries that all have this count, in order; `None` when one has another count.
fn listed(entries: &[Entry<u64, u64>], count: i64) -> Option<Vec<(u64, u64)>> {
    let pair = |entry: &Entry<u64, u64>| Some((entry.key, entry.value().filter(|_| entry.count == count)?));
    sorted(entries.iter().map(pair).collect::<Option<_>>()?)
}

/// The engine's rows: one overload with questions, one without.
fn overload_rows(setting: &Setting, step: &Step) -> Vec<Row> {
    let overload = if setting.is_quick { Overload::QUICK } else { Overload::FULL };
    step("an overload, with the engine's recovery");
    let recovery = |name: &str, asks: bool| {
        let series = Series { name, seed: 0, trial_count: 1, part_size: 1 };
        Recovery::from_numbers(setting.in_parts(&series, |_, _| overload.run(asks).numbers()))
    };
    let asking = recovery("overload asking", true);
    step("an overload, without it");
    let silent = recovery("overload silent", false);
    let number = |what: &str, reference, value: u64| Row {
        what: what.to_owned(),
        source: Source::Goal,
        reference,
        ours: Measure::Exact(value as f64),
        unit: Unit::Number(0),
        note: "",
    };
    let Recovery { exact_before, exact_after, .. } = asking;
    let most = Reference::AtMost(Overload::INTERVALS_MAX as f64);
    let (missing, later) = (silent.missing_first, silent.missing_last);
    vec![
        Row::always("intervals before, handed over in parts: exact", exact_before),
        number("differences missing after the overload", Reference::Unknown, asking.missing_first),
        number("intervals until the list is exact again, asking what is open", most, asking.intervals),
        Row::always("intervals after that: exact", exact_after),
        number("without asking: differences missing after the overload", Reference::Unknown, missing),
        number("without asking: missing 20 intervals later", Reference::Unknown, later),
    ]
}

impl Experiment for Differences {
    fn title(&self) -> &'static str {
        "Beyond the paper: differences to a known list"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let churn = match setting.is_quick {
            true => Churn { key_count: 20_000, difference_count: 10_000, cell_count: 8_000, interval_count: 5 },
            false => Churn { key_count: 1_000_000, difference_count: 100_000, cell_count: 80_000, interval_count: 100 },
        };
        let [keys, differences] = [churn.key_count, churn.difference_count].map(grouped);
        step("differences");
        let series = Series { name: "churn", seed: setting.seed_of(0), trial_count: 1, part_size: 1 };
        let [exact_count] = setting.in_parts(&series, |seed, _| [churn.exact_count(seed)]);
        let what = format!("{keys} keys, {differences} differences an interval, {} cells: exact", churn.cell_count);
        // Two keys share all their cells in one of some hundred intervals of so few cells.
        let ours = Measure::Share { count: exact_count, trial_count: churn.interval_count };
        let known = vec![Row::percent(what, Source::Goal, Reference::AtLeast(0.99), ours)];
        Section {
            title: self.title(),
            text: "Half of the differences are new keys, half are keys that have gone. Who knows the list before can add keys back to \
                   stuck cells, and lists with fewer cells than there are differences (three subtables). Then the engine itself: \
                   its list over as many cells, an exporter that stalls for three intervals of three times the churn, and how the \
                   list comes back when it asks the shards. Without asking it shrinks slowly and is far from empty 20 \
                   intervals later; that it grows without end, as a simulation without the list's help found, is not so here.",
            tables: vec![
                RowTable { caption: "One table an interval".to_owned(), rows: known },
                RowTable { caption: "The engine under an overload".to_owned(), rows: overload_rows(setting, step) },
            ],
            plots: Vec::new(),
        }
    }
}
