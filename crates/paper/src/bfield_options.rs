//! What the B-field paper leaves to choice: fields that grow while they are looked up in (its section "Mutability"),
//! and arrays in blocks of which a key uses one: of a cache line, of a page, or on a machine each ("Extensions").

use crate::fill::number_at;
use crate::parts::Series;
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step, Unit};
use flowpeel_bfield::{Code, Field, Found, Goal, Pair, Pass, Plan, Settling};
use flowpeel_iblt::hash::{Secret, mixed};
use flowpeel_iblt::{KeyHash, SecretHash};
use std::collections::BTreeSet;

/// Growing fields, and blocks.
#[derive(Clone, Copy, Debug)]
pub struct BFieldOptions;

/// Windows of a key, as in the rates at p = 2^-10.
const HASH_COUNT: u32 = 10;

/// How close to the formulas the measurements have to be, as a share of these.
const NEAR: f64 = 0.05;

/// The plan of a field of so many keys, twenty bits a window with three ones, with a value for every word.
fn plan(key_count: u64) -> Plan {
    let code = Code::for_values(1_000);
    let plan = code.and_then(|code| {
        let goal = Goal { false_positive_rate: 1.0, key_count, value_count: code.code_word_count() };
        Plan::with_code(&goal, code, HASH_COUNT).ok()
    });
    plan.expect("there is a field of twenty bits with so many hash functions")
}

/// In how many steps a field grows, and is settled after each.
const GROWTH_STEPS: u64 = 4;

/// What keys of a growing field answer.
#[derive(Clone, Copy, Default)]
struct Grown {
    /// Answers before the field was settled: all, those that are "absent", and those with another value.
    asked_count: u64,
    absent_count: u64,
    wrong_count: u64,
    /// Keys at the end, those that are found with their values, and those that the first array leaves undecided.
    key_count: u64,
    right_count: u64,
    undecided_count: u64,
}

/// Inserts keys in steps, asks for all of them after each, and settles the field then.
fn grown(seed: u64, key_count: u64) -> Grown {
    let (plan, hash) = (plan(key_count), SecretHash::<u64>::new(&Secret::REPLAY));
    let mut field = Field::new(&plan);
    let word_count = plan.code().code_word_count();
    let pair =
        |at: u64| Pair { hash: hash.of(&number_at(seed, at)), value: (number_at(!seed, at) % word_count) as u32 };
    let pairs: Vec<Pair> = (0..key_count).map(pair).collect();
    let mut grown = Grown { key_count, ..Grown::default() };
    for step in 1..=GROWTH_STEPS {
        let (before, now) = ((step - 1) * key_count / GROWTH_STEPS, step * key_count / GROWTH_STEPS);
        field.insert(&pairs[before as usize..now as usize]).expect("every value is the number of a word");
        let present = &pairs[..now as usize];
        for pair in present {
            let found = field.look_up(pair.hash);
            grown.asked_count += 1;
            grown.absent_count += u64::from(found == Found::Absent);
            grown.wrong_count += u64::from(matches!(found, Found::Value(value) if value != pair.value));
        }
        let mut settling = Settling::new(&field);
        loop {
            settling.add(&mut field, present).expect("every value is the number of a word");
            if settling.end_pass(&mut field) == Pass::Done {
                break;
            }
        }
        grown.undecided_count = settling.undecided_count();
    }
    grown.right_count = pairs.iter().filter(|pair| field.look_up(pair.hash) == Found::Value(pair.value)).count() as u64;
    grown
}

/// The rows of growing fields.
fn growth(setting: &Setting) -> RowTable {
    let key_count = setting.trials(200_000, 20_000);
    let series = Series { name: "growing", seed: setting.seed_of(1), trial_count: 4, part_size: 1 };
    let sums = setting.in_parts(&series, |seed, _| {
        let Grown { asked_count, absent_count, wrong_count, key_count, right_count, undecided_count } =
            grown(seed, key_count);
        [asked_count, absent_count, wrong_count, key_count, right_count, undecided_count]
    });
    let [asked_count, absent_count, wrong_count, key_count, right_count, undecided_count] = sums;
    let beta = plan(key_count / series.trial_count).indeterminate_rate();
    let reference = Reference::Value { value: beta, tolerance: NEAR * beta };
    let undecided = Measure::Share { count: undecided_count, trial_count: key_count };
    let rows = vec![
        Row::always(
            "before it is settled: keys that were inserted are not absent",
            (asked_count - absent_count, asked_count),
        ),
        Row {
            unit: Unit::Millionths,
            ..Row::percent(
                "before it is settled: keys with another value",
                Source::Formula,
                Reference::AtMost(beta * plan(key_count / series.trial_count).false_positive_rate()),
                Measure::Share { count: wrong_count, trial_count: asked_count },
            )
        },
        Row::always("at the end: keys with their values", (right_count, key_count)),
        Row::percent("at the end: keys that the first array leaves undecided", Source::Formula, reference, undecided),
    ];
    let caption =
        format!("Fields that grow to their size in {GROWTH_STEPS} steps, settled after each, k = {HASH_COUNT}");
    RowTable { caption, rows }
}

/// Bits of a cache line, and of a page.
const LINE_BITS: u64 = 8 * 64;
const PAGE_BITS: u64 = 8 * 4_096;

/// Machines that an array is split over.
const MACHINE_COUNT: u64 = 8;

/// One array, in blocks of which a key uses one.
struct Blocks {
    code: Code,
    words: Vec<u64>,
    block_bits: u64,
    block_count: u64,
}

/// A random word as a number below `bound`.
fn below(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> u64::BITS) as u64
}

impl Blocks {
    fn new(code: Code, bit_count: u64, block_bits: u64) -> Self {
        let block_count = bit_count / block_bits;
        // One more word lets the last window be read like any other.
        let word_count = (block_count * block_bits).div_ceil(64) + 1;
        Blocks { code, words: vec![0; word_count as usize], block_bits, block_count }
    }

    /// Where the windows of a key begin: all of them in the block that the key's hash chooses.
    fn places(&self, hash: u128) -> impl Iterator<Item = u64> + use<> {
        let (mut state, step) = ((hash >> 64) as u64, hash as u64 | 1);
        let start = below(mixed(state ^ step.rotate_left(32)), self.block_count) * self.block_bits;
        let start_count = self.block_bits - u64::from(self.code.nu()) + 1;
        (0..HASH_COUNT).map(move |_| {
            let place = start + below(state, start_count);
            state = mixed(state.wrapping_add(step));
            place
        })
    }

    fn window(&self, place: u64) -> u64 {
        let (word, shift) = ((place / 64) as usize, place % 64);
        let both = u128::from(self.words[word + 1]) << 64 | u128::from(self.words[word]);
        (both >> shift) as u64 & self.code.mask()
    }

    fn insert(&mut self, hash: u128, number: u64) {
        let bits = self.code.encode(number);
        for place in self.places(hash) {
            let both = u128::from(bits) << (place % 64);
            self.words[(place / 64) as usize] |= both as u64;
            self.words[(place / 64) as usize + 1] |= (both >> 64) as u64;
        }
    }

    /// The ones that all windows of a key share, as far as enough are left; `read` is called with the first and the
    /// last bit of each window that is read for it.
    fn look_up(&self, hash: u128, mut read: impl FnMut(u64, u64)) -> u32 {
        let mut bits = self.code.mask();
        for place in self.places(hash) {
            read(place, place + u64::from(self.code.nu()) - 1);
            bits &= self.window(place);
            if bits.count_ones() < self.code.kappa() {
                break;
            }
        }
        bits.count_ones()
    }
}

/// What of an array is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Line,
    Page,
    Machine,
}

const PARTS: [(Part, &str); 3] = [(Part::Line, "lines"), (Part::Page, "pages"), (Part::Machine, "machines")];

impl Part {
    /// The bits of a part, of an array of so many.
    fn bits(self, bit_count: u64) -> u64 {
        match self {
            Part::Line => LINE_BITS,
            Part::Page => PAGE_BITS,
            Part::Machine => bit_count / MACHINE_COUNT,
        }
    }
}

/// How an array is laid out: in blocks of a part each, or in one; how much larger it is than the plan's, in hundredths;
/// and of which parts it is counted how many a look-up reads.
struct Layout {
    name: &'static str,
    block: Option<Part>,
    size: u64,
    read: &'static [Part],
}

const LAYOUTS: [Layout; 6] = [
    Layout { name: "one block", block: None, size: 100, read: &[Part::Line, Part::Page, Part::Machine] },
    Layout { name: "a cache line a key", block: Some(Part::Line), size: 100, read: &[Part::Line] },
    Layout { name: "a cache line a key, 1.2 of the space", block: Some(Part::Line), size: 120, read: &[] },
    Layout { name: "a cache line a key, 1.4 of the space", block: Some(Part::Line), size: 140, read: &[] },
    Layout { name: "a page a key", block: Some(Part::Page), size: 100, read: &[Part::Line, Part::Page] },
    Layout { name: "one of eight machines a key", block: Some(Part::Machine), size: 100, read: &[Part::Machine] },
];

/// Sums over some keys: how many, how many of them are counted as errors, and how many parts of each kind were read.
type Sums = [u64; 2 + PARTS.len()];

impl Layout {
    /// The sums of the keys of a field, of which errors are those that stay undecided; and of keys that are not in it,
    /// of which errors are those that show a value.
    fn sums(&self, seed: u64, key_count: u64, absent_count: u64) -> [Sums; 2] {
        let (plan, hash) = (plan(key_count), SecretHash::<u64>::new(&Secret::REPLAY));
        let bit_count = plan.arrays().first().map_or(0, |array| array.start_count) * self.size / 100;
        let mut blocks =
            Blocks::new(plan.code(), bit_count, self.block.map_or(bit_count, |block| block.bits(bit_count)));
        let key = |at: u64| hash.of(&number_at(seed, at));
        let word_count = plan.code().code_word_count();
        (0..key_count).for_each(|at| blocks.insert(key(at), number_at(!seed, at) % word_count));
        let mut parts: [BTreeSet<u64>; PARTS.len()] = Default::default();
        let mut ask = |keys: std::ops::Range<u64>, is_error: fn(u32, u32) -> bool| {
            let mut sums = Sums::default();
            for at in keys {
                parts.iter_mut().for_each(BTreeSet::clear);
                let ones = blocks.look_up(key(at), |first, last| {
                    for (parts, (part, _)) in
                        parts.iter_mut().zip(PARTS).filter(|(_, (part, _))| self.read.contains(part))
                    {
                        parts.extend([first, last].map(|bit| bit / part.bits(bit_count)));
                    }
                });
                sums[0] += 1;
                sums[1] += u64::from(is_error(ones, plan.code().kappa()));
                sums[2..].iter_mut().zip(&parts).for_each(|(sum, parts)| *sum += parts.len() as u64);
            }
            sums
        };
        [
            ask(0..key_count, |ones, kappa| ones > kappa),
            ask(key_count..key_count + absent_count, |ones, kappa| ones == kappa),
        ]
    }

    /// The rows of alpha, of beta, and of what look-ups read.
    fn rows(&self, setting: &Setting, part: u64) -> Vec<Row> {
        let (key_count, absent_count) = (setting.trials(100_000, 20_000), setting.trials(2_500_000, 200_000));
        let series = Series { name: self.name, seed: setting.seed_of(part), trial_count: 4, part_size: 1 };
        let sums = setting.in_parts(&series, |seed, _| {
            let [present, absent] = self.sums(seed, key_count, absent_count);
            let mut both = [0; 2 * (2 + PARTS.len())];
            both.iter_mut().zip(present.into_iter().chain(absent)).for_each(|(sum, of)| *sum = of);
            both
        });
        let (present, absent) = sums.split_at(2 + PARTS.len());
        let plan = plan(key_count);
        let share = |what: &str, formula: f64, sums: &[u64]| {
            // The formulas are those of one block, or of a few large ones.
            let reference = match self.block {
                None | Some(Part::Machine) => Reference::Value { value: formula, tolerance: NEAR * formula },
                Some(Part::Line | Part::Page) => Reference::Unknown,
            };
            let ours = Measure::Share { count: sums[1], trial_count: sums[0] };
            Row::percent(format!("{}: {what}", self.name), Source::Formula, reference, ours)
        };
        let alpha = share("alpha", plan.false_positive_rate(), absent);
        let beta = share("beta", plan.indeterminate_rate(), present);
        let read = PARTS.iter().zip(2..).filter(|((part, _), _)| self.read.contains(part));
        let read = read.flat_map(|((_, name), at)| {
            [("in", present), ("not in", absent)].map(|(what, sums)| Row {
                what: format!("{}: {name} read for a key that is {what}", self.name),
                source: Source::Goal,
                reference: Reference::Unknown,
                ours: Measure::Exact(sums[at] as f64 / sums[0] as f64),
                unit: Unit::Number(2),
                note: "",
            })
        });
        [Row { unit: Unit::Millionths, ..alpha }, beta].into_iter().chain(read).collect()
    }
}

impl Experiment for BFieldOptions {
    fn title(&self) -> &'static str {
        "Options of the B-field: growing, blocks, machines"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        step("growing");
        let growth = growth(setting);
        let rows = (2..).zip(&LAYOUTS).flat_map(|(part, layout)| {
            step(layout.name);
            layout.rows(setting, part)
        });
        let caption = format!("Blocks: one array, twenty bits with three ones, k = {HASH_COUNT}");
        let blocks = RowTable { caption, rows: rows.collect() };
        Section { title: self.title(), text: TEXT, tables: vec![growth, blocks], plots: Vec::new() }
    }
}

const TEXT: &str = "A field that grows is looked up in before it is settled. Then a key that is in may be undecided, or, with a chance \
    of beta times alpha, show another value; absent it never is, and once settled nothing is undecided. (The archive's open segment is \
    [read without such an index](archive.md#what-it-takes).)\n\n\
    Blocks: the hash of a key chooses a block of the array, and all its windows are in that. In cache lines the keys are as unevenly \
    spread as chance has it: alpha grows some three hundredfold, and with two fifths more space it still is over ten times that of one \
    block. Pages of 4 KiB cost a third of alpha and nothing of beta, and a look-up in a file reads one instead of three, or ten for a \
    key that is in. `crates/bfield` has neither: a look-up in a file that the system has in its cache takes 0.04 ms with one block, too. \
    An array split over machines, each with all windows of its keys, is as good as one: that is a field a machine, chosen by the \
    hash, and needs nothing of the field. Split anywhere, a look-up asks three of eight machines, or six.";
