//! Invertible Bloom counters (Ding and Rauen): Table III, Figure 1, and bytes a key.
//!
//! For each kind of counter: the highest load at which every trial lists everything, how the success falls off above
//! it, and the bytes a key that result.

use crate::fill::{Pairs, number_at};
use crate::{Experiment, Line, Measure, Plot, Reference, Row, RowTable, Section, Setting, Source, Step, Unit};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{
    Counter, EvenOdd, Keeping, Layout, OneKey, Optimisations, Placement, SecretHash, Standard, Wide, plan,
};
use std::collections::BTreeMap;

/// Table III and Figure 1 of the paper on counters.
#[derive(Clone, Copy, Debug)]
pub struct Counters;

/// The paper's keys are below ten million, and its sums do not wrap.
type CounterKey = Wide<4, 8>;

/// Keys of a trial, before duplicates among the random keys are merged.
const KEY_COUNT: u64 = 10_000;
/// The largest key, and the largest multiplicity.
const KEY_MAX: u64 = 10_000_000;
const MULTIPLICITY_MAX: u64 = 20;

/// A kind of counter.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Standard,
    EvenOdd,
    OneKey(Keeping, Optimisations),
}

/// Keeps a random key of each cell.
const RANDOM: Keeping = Keeping::Random(1);

/// One row of Table III: the kind, the cells of a key, the paper's result, and the goal.
struct Threshold {
    kind: Kind,
    hash_count: u32,
    paper: Option<f64>,
    goal: f64,
}

const fn threshold(kind: Kind, hash_count: u32, paper: f64, goal: f64) -> Threshold {
    Threshold { kind, hash_count, paper: Some(paper), goal }
}

const BASIC: Kind = Kind::OneKey(RANDOM, Optimisations::NONE);
const OPTIMISED: Kind = Kind::OneKey(RANDOM, Optimisations::BOTH);
const DRAWN: Kind = Kind::OneKey(Keeping::Drawn, Optimisations::BOTH);
const FIRST: Kind = Kind::OneKey(Keeping::First, Optimisations::BOTH);
const LAST: Kind = Kind::OneKey(Keeping::Last, Optimisations::BOTH);

/// Goals are in hundredths, like the loads that are tried.
const THRESHOLDS: [Threshold; 19] = [
    threshold(Kind::Standard, 3, 0.81, 0.80),
    threshold(Kind::Standard, 4, 0.76, 0.76),
    threshold(Kind::Standard, 5, 0.70, 0.69),
    threshold(Kind::EvenOdd, 3, 1.22, 1.22),
    threshold(Kind::EvenOdd, 4, 1.08, 1.10),
    threshold(Kind::EvenOdd, 5, 0.90, 0.96),
    threshold(Kind::EvenOdd, 6, 0.65, 0.85),
    threshold(Kind::EvenOdd, 7, 0.54, 0.76),
    threshold(BASIC, 3, 1.27, 1.26),
    threshold(BASIC, 4, 1.14, 1.14),
    threshold(BASIC, 5, 1.01, 1.00),
    threshold(DRAWN, 3, 1.34, 1.42),
    threshold(DRAWN, 4, 1.21, 1.26),
    threshold(DRAWN, 5, 1.07, 1.10),
    threshold(OPTIMISED, 3, 1.34, 1.40),
    threshold(OPTIMISED, 4, 1.21, 1.25),
    threshold(OPTIMISED, 5, 1.07, 1.10),
    Threshold { kind: FIRST, hash_count: 3, paper: None, goal: 1.30 },
    Threshold { kind: LAST, hash_count: 3, paper: None, goal: 1.30 },
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Standard => "standard",
            Kind::EvenOdd => "even-odd",
            Kind::OneKey(Keeping::Random(_), Optimisations::NONE) => "one random key",
            Kind::OneKey(Keeping::Random(_), _) => "one random key, optimised",
            Kind::OneKey(Keeping::Drawn, _) => "one drawn key, optimised",
            Kind::OneKey(Keeping::First, _) => "the first key, optimised",
            Kind::OneKey(Keeping::Last, _) => "the last key, optimised",
        }
    }

    fn counter(self, layout: Layout) -> Box<dyn Counter<Key = CounterKey>> {
        let hash = SecretHash::new(&Secret::REPLAY);
        match self {
            Kind::Standard => Box::new(Standard::<CounterKey>::new(layout, hash)),
            Kind::EvenOdd => Box::new(EvenOdd::new(layout, hash)),
            Kind::OneKey(keeping, optimisations) => Box::new(OneKey::new(layout, hash, keeping, optimisations)),
        }
    }

    /// Whether a trial lists exactly what was added.
    fn is_complete(self, hash_count: u32, load: f64, seed: u64, trial: u64) -> bool {
        let pairs = Pairs::new(seed, trial);
        let key = |at: u64| Wide::new((1 + pairs.choice(at, KEY_MAX) as u32).to_le_bytes());
        let keys: BTreeMap<CounterKey, u64> =
            (0..KEY_COUNT).map(|at| (key(at), 1 + pairs.key(at) % MULTIPLICITY_MAX)).collect();
        let cell_count = (keys.len() as f64 / load) as u32;
        let mut counter = self.counter(Layout::new(Placement::Subtables { hash_count }, cell_count));
        // Keys are added in the order in which they were drawn, since which keys are kept depends on it.
        let mut left = keys.clone();
        for at in 0..KEY_COUNT {
            if let Some(count) = left.remove(&key(at)) {
                counter.add(&key(at), count);
            }
        }
        let tally = counter.list();
        let is_exact = |(key, count): &(CounterKey, i64)| keys.get(key).is_some_and(|&exact| exact as i64 == *count);
        tally.is_complete() && tally.keys.len() == keys.len() && tally.keys.iter().all(is_exact)
    }

    /// How many of the trials are complete.
    fn complete_count(self, hash_count: u32, load: f64, seed: u64, trial_count: u64) -> u64 {
        (0..trial_count).filter(|&trial| self.is_complete(hash_count, load, seed, trial)).count() as u64
    }
}

/// A load in hundredths as a number.
fn hundredths(load: u32) -> f64 {
    f64::from(load) / 100.0
}

impl Threshold {
    fn what(&self) -> String {
        let paper = self.paper.map_or(String::new(), |paper| format!(" (paper {paper:.2})"));
        format!("{}, h = {}{paper}", self.kind.name(), self.hash_count)
    }

    /// The rows of the goal and of the highest load that is complete in every trial, and that load.
    fn rows(&self, seed: u64, trial_count: u64) -> ([Row; 2], f64) {
        let goal = (self.goal * 100.0).round() as u32;
        let complete = |load: u32| self.kind.complete_count(self.hash_count, hundredths(load), seed, trial_count);
        let at_goal = complete(goal);
        let is_always = |load: u32| {
            (0..trial_count).all(|trial| self.kind.is_complete(self.hash_count, hundredths(load), seed, trial))
        };
        let mut highest = goal;
        while at_goal == trial_count && is_always(highest + 1) {
            highest += 1;
        }
        while at_goal < trial_count && highest > 1 && !is_always(highest) {
            highest -= 1;
        }
        let promise = Row::always(format!("{}: {:.2} keys a cell", self.what(), self.goal), (at_goal, trial_count));
        let found = Row {
            what: format!("{}: highest", self.what()),
            source: Source::Goal,
            reference: Reference::AtLeast(self.goal),
            ours: Measure::Exact(hundredths(highest)),
            unit: Unit::Number(2),
            note: "",
        };
        ([promise, found], hundredths(highest))
    }
}

/// Figure 1: the loads around the thresholds of four cells a key.
fn figure(setting: &Setting, step: &Step) -> (Vec<Row>, Plot) {
    let kinds = [(Kind::Standard, 68), (Kind::EvenOdd, 102), (BASIC, 108), (OPTIMISED, 118), (DRAWN, 118)];
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for (part, (kind, first)) in (0..).zip(kinds) {
        step(&format!("figure 1: {}", kind.name()));
        let mut line = Line { name: kind.name().to_owned(), points: Vec::new() };
        for load in (first..first + 18).step_by(2) {
            let trial_count = setting.trials(40, 2);
            let count = kind.complete_count(4, hundredths(load), setting.seed_of(0xc0 + part), trial_count);
            let ours = Measure::Share { count, trial_count };
            line.points.push((hundredths(load), 100.0 * ours.center()));
            let what = format!("{}: {:.2} keys a cell: complete", kind.name(), hundredths(load));
            rows.push(Row::percent(what, Source::Paper, Reference::Unknown, ours));
        }
        lines.push(line);
    }
    let title = "Ding and Rauen, Figure 1: four cells a key";
    let plot = Plot { file_name: "counters.svg", title, x: "keys a cell", y: "complete, %", lines };
    (rows, plot)
}

/// Bytes of a cell's count, of each key and key sum, and of the check: for counts below four billion and IPv6
/// addresses.
const COUNT_SIZE: f64 = 4.0;
const KEY_SIZE: f64 = 16.0;
const CHECK_SIZE: f64 = 8.0;

/// Bytes a key at the loads that were found.
fn bytes(highest: &[f64]) -> Vec<Row> {
    let standard_size = COUNT_SIZE + KEY_SIZE + CHECK_SIZE;
    let best = plan(KEY_COUNT, 1e-3);
    let irregular = f64::from(best.cell_count) / KEY_COUNT as f64;
    let row = |what: String, expected: f64, size: f64| Row {
        what,
        source: Source::Prototype,
        reference: Reference::AtMost(expected),
        ours: Measure::Exact(size),
        unit: Unit::Number(1),
        note: "",
    };
    vec![
        row("standard, h = 3".to_owned(), 35.05, standard_size / highest[0]),
        row("even-odd, h = 3".to_owned(), 36.15, (standard_size + KEY_SIZE) / highest[3]),
        row("one drawn key, optimised, h = 3".to_owned(), 31.05, (standard_size + KEY_SIZE) / highest[11]),
        row(format!("standard, {}", best.placement), 31.75, standard_size * irregular),
    ]
}

impl Experiment for Counters {
    fn title(&self) -> &'static str {
        "Invertible Bloom counters: Table III and Figure 1"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let trial_count = setting.trials(40, 2);
        let mut rows = Vec::new();
        let mut highest = Vec::new();
        for (part, threshold) in (0..).zip(&THRESHOLDS) {
            step(&threshold.what());
            let (both, load) = threshold.rows(number_at(setting.seed_of(0xdd), part), trial_count);
            rows.extend(both);
            highest.push(load);
        }
        let (figure_rows, plot) = figure(setting, step);
        Section {
            title: self.title(),
            text: TEXT,
            tables: vec![
                RowTable { caption: "Table III: keys a cell at which every trial is complete".to_owned(), rows },
                RowTable { caption: "Figure 1: four cells a key".to_owned(), rows: figure_rows },
                RowTable {
                    caption: "Bytes a key, with counts of 4, keys of 16 and checks of 8 bytes".to_owned(),
                    rows: bytes(&highest),
                },
            ],
            plots: vec![plot],
        }
    }
}

const TEXT: &str = "Ding and Rauen, *Improving Retrieval Performance for Invertible Bloom Counters*: multisets instead of sets. \
    About 10,000 keys up to ten million, each 1 to 20 times, `h` subtables, as in the paper's section VI; a trial is complete \
    when every key is listed with its exact multiplicity and nothing else is. The highest load is found in steps of 0.01 \
    with the same trials. The paper's decline of even-odd counters at h = 6 and 7 comes of its hash functions, which are \
    nearly linear: with independent ones there is none. Its optimised one-key counter keeps a key by the toss of a coin; kept \
    with one chance in as many as the cell counts then, as its text says (*random*), it lists more. A key that is added often is then \
    kept in several of its cells; when each cell draws one of its keys by a hash of its own, whatever their multiplicities (*drawn*), more \
    different ones are kept, and the counter lists most.\n\n\
    `--sources` uses the standard counter, with the best placement of the plan. The one-key counter takes as few bytes a \
    key, but what it keeps is no sum: it cannot be subtracted, nor (unless keys are drawn) be added up over shards. The even-odd \
    counter can be added, and takes more bytes. Both also try every share of a cell's count, which is little \
    for 20 and without end for the thousands of attempts that a scanner makes.";
