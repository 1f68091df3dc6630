//! The same job for two B-fields: 64-bit keys of a thousand values, at the size that flowpeel plans for 2^-32, in
//! memory.
//!
//! For a number of keys it prints a line for each implementation: bytes, time to build, look-ups a second of
//! keys that are in and of keys that are not, and how many of each were wrong. Both run on one thread; times are
//! processor times of the thread where the system has them.

use flowpeel_bfield::{Field, Found, Goal, Pair, Plan};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{KeyHash, SecretHash};
use std::error::Error;
use std::time::{Duration, Instant};

const VALUE_COUNT: u64 = 1_000;
const ABSENT_BASE: u64 = 1 << 48;
const BLOCK_COUNT: usize = 1_024;

/// The results of an implementation.
struct Outcome {
    byte_size: u64,
    build: Duration,
    present: Duration,
    absent: Duration,
    wrong_count: u64,
    false_positive_count: u64,
}

/// The processor time, or the time since `start` where the system has none.
fn now(start: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let on_cpu = text.split_whitespace().next().and_then(|nanoseconds| nanoseconds.parse().ok());
    on_cpu.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

fn value_of(key: u64) -> u32 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % VALUE_COUNT as u32
}

/// How long a job took, and its count.
fn timed(start: Instant, job: impl FnOnce() -> u64) -> (Duration, u64) {
    let before = now(start);
    let count = job();
    (now(start) - before, count)
}

fn ours(plan: &Plan, key_count: u64) -> Result<Outcome, Box<dyn Error>> {
    let start = Instant::now();
    let hash = SecretHash::<u64>::new(&Secret::REPLAY);
    let pairs = || (0..key_count).map(|key| Pair { hash: hash.of(&key), value: value_of(key) });
    let before = now(start);
    let field = Field::build(plan, pairs)?.field;
    let build = now(start) - before;
    let look_up = |base: u64, is_wrong: &dyn Fn(u64, Found) -> bool| {
        let keys: Vec<u64> = (base..base + key_count).collect();
        let (mut hashes, mut found) = ([0; BLOCK_COUNT], [Found::Absent; BLOCK_COUNT]);
        let in_block = |keys: &[u64]| {
            hash.of_group(keys, &mut hashes);
            field.look_up_all(&hashes[..keys.len()], &mut found);
            keys.iter().zip(&found).filter(|(key, found)| is_wrong(**key, **found)).count() as u64
        };
        timed(start, || keys.chunks(BLOCK_COUNT).map(in_block).sum())
    };
    let (present, wrong_count) = look_up(0, &|key, found| found != Found::Value(value_of(key)));
    let (absent, false_positive_count) = look_up(ABSENT_BASE, &|_, found| found != Found::Absent);
    Ok(Outcome { byte_size: plan.byte_size(), build, present, absent, wrong_count, false_positive_count })
}

fn theirs(plan: &Plan, key_count: u64) -> Result<Outcome, Box<dyn Error>> {
    let start = Instant::now();
    let primary = plan.arrays()[0].start_count as usize;
    let array_count = plan.arrays().len() as u8;
    // The same code, hash functions and first array. Its later arrays have to be chosen by hand: a thousandth each.
    let (k, nu, kappa) = (plan.hash_count() as u8, plan.code().nu() as u8, plan.code().kappa() as u8);
    let field =
        bfield::BField::<()>::create("/nowhere", "unused", primary, k, nu, kappa, 0.001, 0.001, array_count, true, ())?;
    let (build, _) = timed(start, || {
        for pass in 0..array_count {
            for key in 0..key_count {
                field.insert(&key.to_be_bytes(), value_of(key), usize::from(pass));
            }
        }
        0
    });
    let (present, wrong_count) = timed(start, || {
        (0..key_count).filter(|key| field.get(&key.to_be_bytes()) != Some(value_of(*key))).count() as u64
    });
    let (absent, false_positive_count) = timed(start, || {
        (ABSENT_BASE..ABSENT_BASE + key_count).filter(|key| field.get(&key.to_be_bytes()).is_some()).count() as u64
    });
    let byte_size = field.info().iter().map(|(size, ..)| (*size as u64).div_ceil(8)).sum();
    Ok(Outcome { byte_size, build, present, absent, wrong_count, false_positive_count })
}

fn main() -> Result<(), Box<dyn Error>> {
    let key_count: u64 = std::env::args().nth(1).map_or(Ok(2_000_000), |text| text.parse())?;
    let goal = Goal { false_positive_rate: 2f64.powi(-32), key_count, value_count: VALUE_COUNT };
    let plan = Plan::new(&goal)?;
    println!(
        "| {key_count} keys | bytes a key | build | look-ups a second, keys in | keys not in | wrong | false positives |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (name, outcome) in [("flowpeel", ours(&plan, key_count)?), ("bfield 0.3.0", theirs(&plan, key_count)?)] {
        let rate = |time: Duration| key_count as f64 / time.as_secs_f64() / 1e6;
        println!(
            "| {name} | {:.3} | {:.2} s | {:.2} M | {:.2} M | {} | {} |",
            outcome.byte_size as f64 / key_count as f64,
            outcome.build.as_secs_f64(),
            rate(outcome.present),
            rate(outcome.absent),
            outcome.wrong_count,
            outcome.false_positive_count
        );
    }
    Ok(())
}
