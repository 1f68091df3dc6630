//! What a table knows after a part of its memory is lost (section 3): listing and GET without some of its subtables.

use crate::fill::Pairs;
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::interval::mean_of;
use flowpeel_iblt::{Layout, Placement, Rule, Sums, Table};

/// Tables that lose subtables.
#[derive(Clone, Copy, Debug)]
pub struct Lost;

const KEY_COUNT: u64 = 10_000;

/// Half a unit of the last digit that is printed, and what the formulas leave out: that keys are finitely many.
const ROUNDING: f64 = 0.000_5;

#[derive(Clone, Copy)]
struct Loss {
    hash_count: u32,
    cell_count: u32,
    lost_count: u32,
}

impl Loss {
    fn name(&self) -> String {
        let Loss { hash_count, cell_count, lost_count } = self;
        format!("{KEY_COUNT} keys, {cell_count} cells, k = {hash_count}, {lost_count} subtables lost")
    }

    /// A table with the first pairs, which then loses its first subtables.
    fn table(&self, pairs: &[(u64, u64)]) -> Table<Sums<u64, u64>> {
        let layout = Layout::new(Placement::Subtables { hash_count: self.hash_count }, self.cell_count);
        let mut table: Table<Sums<u64, u64>> = Table::with_secret(layout, &Secret::REPLAY);
        table.insert_all(pairs);
        for at in 0..self.lost_count {
            table.lose_subtable(at).expect("one is left");
        }
        table
    }

    /// The share of tables that list everything: above the threshold of the subtables that are left, all but those in
    /// which two keys share all of their cells; below it none.
    fn listed_formula(&self, threshold: f64) -> f64 {
        let left = self.hash_count - self.lost_count;
        let cells = f64::from(self.cell_count / self.hash_count);
        let keys = KEY_COUNT as f64;
        if f64::from(left) * cells / keys < threshold {
            return 0.0;
        }
        (-keys * (keys - 1.0) / 2.0 / cells.powi(left as i32)).exp()
    }

    fn listed(&self, seed: u64, trial_count: u64) -> Measure {
        let is_complete = |trial: &u64| {
            let pairs = Pairs::new(seed, *trial).first(KEY_COUNT);
            self.table(&pairs).list(Rule::Aggregates).is_complete()
        };
        Measure::Share { count: (0..trial_count).filter(is_complete).count() as u64, trial_count }
    }

    /// 1 - (1 - e^(-kn/m))^(k - lost): the cells that are left are as full as before.
    fn found_formula(&self) -> f64 {
        let load = f64::from(self.hash_count) * KEY_COUNT as f64 / f64::from(self.cell_count);
        1.0 - (1.0 - (-load).exp()).powi((self.hash_count - self.lost_count) as i32)
    }

    fn found(&self, seed: u64, trial_count: u64) -> Measure {
        let share = |trial: u64| {
            let pairs = Pairs::new(seed, trial).first(KEY_COUNT);
            let table = self.table(&pairs);
            let found = pairs.iter().filter(|(key, value)| table.get_plain(key).value() == Some(*value));
            found.count() as f64 / KEY_COUNT as f64
        };
        let (mean, error) = mean_of(&(0..trial_count).map(share).collect::<Vec<_>>());
        Measure::Mean { mean, error, trial_count }
    }
}

impl Experiment for Lost {
    fn title(&self) -> &'static str {
        "Lost memory: tables without some of their subtables"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        step("listing");
        // The thresholds of three subtables and of four, Table 1.
        let listed = [(4, 80_000, 1, 1.222), (4, 17_500, 1, 1.222), (4, 15_500, 1, 1.222), (5, 18_000, 1, 1.295)];
        let listed = (1..).zip(listed).map(|(part, (hash_count, cell_count, lost_count, threshold))| {
            let loss = Loss { hash_count, cell_count, lost_count };
            let reference = Reference::Value { value: loss.listed_formula(threshold), tolerance: ROUNDING };
            let ours = loss.listed(setting.seed_of(part), setting.trials(1_000, 20));
            Row::percent(loss.name(), Source::Formula, reference, ours)
        });
        let listed = listed.collect();
        step("GET");
        let found = (0..4u32).map(|lost_count| {
            let loss = Loss { hash_count: 5, cell_count: 80_000, lost_count };
            let reference = Reference::Value { value: loss.found_formula(), tolerance: ROUNDING };
            let ours = loss.found(setting.seed_of(100 + u64::from(lost_count)), setting.trials(200, 5));
            Row::percent(loss.name(), Source::Formula, reference, ours)
        });
        let found = found.collect();
        Section {
            title: self.title(),
            text: "A subtable is given up and the others are used as they are. Listing needs what a table of so many subtables needs; \
                   a look-up has fewer cells, each as full as before. flowpeel's snapshots are listed so when a section is damaged: \
                   [snapshots](snapshots.md#a-damaged-file).",
            tables: vec![
                RowTable { caption: "Tables that list whole".to_owned(), rows: listed },
                RowTable { caption: "Keys that GET finds by their own cells".to_owned(), rows: found },
            ],
            plots: Vec::new(),
        }
    }
}
