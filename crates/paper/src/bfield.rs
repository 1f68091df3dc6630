//! The B-field paper: Figure 1's code words, alpha and beta compared with the corrected formulas, bytes a key, and what
//! the paper's two hash functions do to small arrays. The headline at full size is a separate run
//! (`bfield_headline.rs`).

use crate::fill::number_at;
use crate::parts::Series;
use crate::{Experiment, Measure, Reference, Row, RowTable, Section, Setting, Source, Step, Unit};
use flowpeel_bfield::{Code, CodeShape, Field, Found, Goal, Pair, Plan, Settling, Steps, ValueTooLarge};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{KeyHash, SecretHash};

/// The experiments of the B-field paper.
#[derive(Clone, Copy, Debug)]
pub struct BField;

/// Figure 1: the words of five bits with two ones, in order.
const FIGURE_1: [u64; 10] = [0b00011, 0b00101, 0b00110, 0b01001, 0b01010, 0b01100, 0b10001, 0b10010, 0b10100, 0b11000];

/// How close to the formulas the measurements have to be, as a share of these.
const NEAR: f64 = 0.05;

/// Keys that are looked up together.
const BLOCK_COUNT: u64 = 1_024;

/// Where absent keys begin.
const ABSENT_BASE: u64 = 1 << 40;

/// Which values the keys have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Any,
    One,
    /// One code word for all keys, that of three neighbouring ones: the constant value zero, as it would be without
    /// whitening.
    OneWord,
}

/// Fields of one kind, with codes of twenty bits and three ones.
#[derive(Clone, Copy)]
struct Trial {
    key_count: u64,
    hash_count: u32,
    steps: Steps,
    value: Value,
    field_count: u64,
    seed: u64,
}

/// The errors of fields, each with the number of keys that were tried.
#[derive(Clone, Copy, Default)]
struct ErrorCounts {
    undecided: (u64, u64),
    false_positive: (u64, u64),
}

impl Trial {
    /// The plan, with a value for every code word.
    fn plan(&self) -> Plan {
        let code = Code::for_values(1_000);
        let plan = code.and_then(|code| {
            let goal =
                Goal { false_positive_rate: 1.0, key_count: self.key_count, value_count: code.code_word_count() };
            Plan::with_code(&goal, code, self.hash_count).ok()
        });
        plan.expect("there is a field of twenty bits with so many hash functions").with_steps(self.steps)
    }

    /// Fills fields, and looks up in each its share of `query_count` absent keys. A field is a part of its own.
    fn run(&self, setting: &Setting, query_count: u64) -> ErrorCounts {
        let block_count = query_count / self.field_count / BLOCK_COUNT;
        let Trial { key_count, hash_count, steps, value, field_count, seed } = *self;
        let name = format!("{key_count} keys k {hash_count} {steps:?} {value:?} {block_count} blocks");
        let series = Series { name: &name, seed, trial_count: field_count, part_size: 1 };
        let [undecided, false_positive] = setting.in_parts(&series, |seed, _| self.field_errors(seed, block_count));
        ErrorCounts {
            undecided: (undecided, field_count * key_count),
            false_positive: (false_positive, field_count * block_count * BLOCK_COUNT),
        }
    }

    /// The keys that a field leaves undecided, and the absent ones of these blocks that show a value.
    fn field_errors(&self, seed: u64, block_count: u64) -> [u64; 2] {
        let (plan, hash) = (self.plan(), SecretHash::<u64>::new(&Secret::REPLAY));
        let base = number_at(seed, 0) & !(2 * ABSENT_BASE - 1);
        let mut field = Field::new(&plan);
        let pair = |at: u64| self.pair(&field, hash.of(&(base | at)), number_at(!seed, at));
        let pairs: Vec<Pair> = (0..self.key_count).map(pair).collect();
        let mut settling = settled(&mut field, &pairs).expect("every value is the number of a word");
        settling.end_pass(&mut field);
        [settling.undecided_count(), false_positives(&field, base | ABSENT_BASE, block_count)]
    }

    /// The pair of the key with this hash; where values differ, `number` chooses it.
    fn pair(&self, field: &Field, hash: u128, number: u64) -> Pair {
        let word_count = field.plan().code().code_word_count();
        let value = match self.value {
            Value::Any => (number % word_count) as u32,
            Value::One => 7,
            Value::OneWord => field.value_with_word(hash, 0),
        };
        Pair { hash, value }
    }
}

/// Inserts pairs, and settles them in one pass.
fn settled(field: &mut Field, pairs: &[Pair]) -> Result<Settling, ValueTooLarge> {
    field.insert(pairs)?;
    let mut settling = Settling::new(field);
    settling.add(field, pairs)?;
    Ok(settling)
}

/// How many keys of these blocks show a value.
fn false_positives(field: &Field, base: u64, block_count: u64) -> u64 {
    let hash = SecretHash::<u64>::new(&Secret::REPLAY);
    let mut hashes = [0; BLOCK_COUNT as usize];
    let mut found = [Found::Absent; BLOCK_COUNT as usize];
    let in_block = |block: u64| {
        let keys: [u64; BLOCK_COUNT as usize] = std::array::from_fn(|at| base + block * BLOCK_COUNT + at as u64);
        hash.of_group(&keys, &mut hashes);
        field.look_up_all(&hashes, &mut found);
        found.iter().filter(|found| **found != Found::Absent).count() as u64
    };
    (0..block_count).map(in_block).sum()
}

fn share(what: &str, unit: Unit, formula: f64, (count, trial_count): (u64, u64)) -> Row {
    let reference = Reference::Value { value: formula, tolerance: NEAR * formula };
    let ours = Measure::Share { count, trial_count };
    Row { unit, ..Row::percent(what, Source::Formula, reference, ours) }
}

/// Alpha and beta at p = 2^-10, and beta at 2^-14.
fn rates(setting: &Setting, step: &Step) -> [RowTable; 2] {
    let queries = setting.trials(240_000_000, 2_000_000);
    let (mut alpha, mut beta) = (Vec::new(), Vec::new());
    for (what, value, hash_count, queries) in [
        ("p = 2^-10, any values", Value::Any, 10, queries),
        ("p = 2^-10, one value", Value::One, 10, queries),
        ("p = 2^-10, the value zero, not whitened", Value::OneWord, 10, queries / 20),
        ("p = 2^-14, any values", Value::Any, 14, 0),
        ("p = 2^-14, one value", Value::One, 14, 0),
    ] {
        step(what);
        let (key_count, field_count) = (setting.trials(400_000, 50_000), 4);
        let seed = setting.seed_of(u64::from(hash_count) << 8 | value as u64);
        let trial = Trial { key_count, hash_count, steps: Steps::Scattered, value, field_count, seed };
        let (plan, counts) = (trial.plan(), trial.run(setting, queries));
        if value == Value::OneWord {
            let ours = Measure::Share { count: counts.false_positive.0, trial_count: counts.false_positive.1 };
            // The prototype's figure has two digits.
            let reference = Reference::Value { value: 1.1e-4, tolerance: 0.05e-4 };
            alpha.push(Row { unit: Unit::Millionths, ..Row::percent(what, Source::Prototype, reference, ours) });
        } else {
            if queries > 0 {
                alpha.push(share(what, Unit::Millionths, plan.false_positive_rate(), counts.false_positive));
            }
            beta.push(share(what, Unit::Percent, plan.indeterminate_rate(), counts.undecided));
        }
    }
    let caption = |what: &str| format!("{what}, twenty bits with three ones");
    [
        RowTable { caption: caption("Alpha: keys not in that show a value"), rows: alpha },
        RowTable { caption: caption("Beta: keys that the first array leaves undecided"), rows: beta },
    ]
}

/// The effect of equal steps on a small array.
fn steps(setting: &Setting, step: &Step) -> RowTable {
    step("steps");
    let queries = setting.trials(60_000_000, 2_000_000);
    let rows = [(Steps::Even, "equal steps, as in the paper"), (Steps::Scattered, "scattered steps")];
    let rows = rows.map(|(steps, what)| {
        let seed = setting.seed_of(99);
        let trial = Trial { key_count: 10_000, hash_count: 14, steps, value: Value::Any, field_count: 20, seed };
        let (count, trial_count) = trial.run(setting, queries).false_positive;
        let ours = Measure::Share { count, trial_count };
        let reference = match steps {
            Steps::Even => Reference::Unknown,
            Steps::Scattered => Reference::AtMost(2.0 * trial.plan().false_positive_rate()),
        };
        Row { unit: Unit::Millionths, ..Row::percent(what, Source::Formula, reference, ours) }
    });
    let caption = "Alpha of an array of 10,000 keys at p = 2^-14, where the formula gives 0.0017 in a million";
    RowTable { caption: caption.to_owned(), rows: rows.to_vec() }
}

/// The plan for the paper's example.
fn sizes() -> RowTable {
    let goal = Goal { false_positive_rate: 2f64.powi(-32), key_count: 1_000_000_000, value_count: 1_000 };
    let plan = Plan::new(&goal).expect("the paper's example can be planned for");
    let exact = |what: &str, source, value: f64, tolerance: f64, decimals, ours: f64| Row {
        what: what.to_owned(),
        source,
        reference: Reference::Value { value, tolerance },
        ours: Measure::Exact(ours),
        unit: Unit::Number(decimals),
        note: "",
    };
    let first = plan.arrays().first().map_or(1, |array| array.start_count) as f64;
    let later = plan.arrays().iter().skip(1).map(|array| array.start_count as f64).sum::<f64>();
    let beta = plan.indeterminate_rate();
    let rows = vec![
        exact("bits of a word", Source::Paper, 20.0, 0.0, 0, f64::from(plan.code().nu())),
        exact("ones in it", Source::Paper, 3.0, 0.0, 0, f64::from(plan.code().kappa())),
        exact("hash functions", Source::Prototype, 15.0, 0.0, 0, f64::from(plan.hash_count())),
        exact("bytes a key", Source::Prototype, 8.12, 0.005, 3, plan.byte_size() as f64 / goal.key_count as f64),
        exact(
            "later arrays, in thousandths of the first",
            Source::Formula,
            1e3 * (1.0 / (1.0 - beta) - 1.0),
            0.005,
            3,
            1e3 * later / first,
        ),
    ];
    RowTable { caption: "1,000,000,000 keys, 1,000 values, alpha = 2^-32".to_owned(), rows }
}

/// Figure 1, word by word.
fn figure_1() -> RowTable {
    let code = Code::new(CodeShape { bit_count: 5, one_count: 2 });
    let is_right = |(number, word): (usize, &u64)| {
        code.is_some_and(|code| code.encode(number as u64) == *word && code.decode(*word) == number as u64)
    };
    let count = FIGURE_1.iter().enumerate().filter(|pair| is_right(*pair)).count() as u64;
    let rows = vec![Row::always("ENCODE and DECODE of the ten values", (count, FIGURE_1.len() as u64))];
    RowTable { caption: "Figure 1: words of five bits with two ones".to_owned(), rows }
}

impl Experiment for BField {
    fn title(&self) -> &'static str {
        "The B-field"
    }

    fn run(&self, setting: &Setting, step: &Step) -> Section {
        let [alpha, beta] = rates(setting, step);
        Section {
            title: self.title(),
            text: "Greenfield, *A space-efficient, probabilistic data structure and storage and retrieval method for key-value \
                   information* (2014), with corrected formulas. The paper takes neighbouring bits for independent and gives an alpha \
                   of 1.06 in a million at p = 2^-10, a fourth of the truth; the sum over bit strings, each with the chance that its \
                   bits are set together, is within five hundredths. For its example of a billion keys that asks for fifteen hash \
                   functions and 8.12 bytes a key: its 7.1 GB are GiB, of fourteen functions, where alpha is 1.4e-9 and not 2^-32. \
                   Whitened values make one value as good as many. Equal steps between windows fail small arrays. \
                   `flowpeel-paper --bfield-headline` runs the example at full size.",
            tables: vec![figure_1(), alpha, beta, steps(setting, step), sizes()],
            plots: Vec::new(),
        }
    }
}
