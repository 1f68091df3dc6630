//! The B-field paper's headline at full size, a billion keys with a thousand values: the size of the field, the time it
//! took, and the number of errors. Unlike the experiments of the report this measures time, so no two runs print the
//! same.

use crate::fill::number_at;
use flowpeel::error::{Error, Result};
use flowpeel_bfield::{Builder, Field, Found, Goal, Pair, Pass, Plan};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{KeyHash, SecretHash};
use std::time::{Duration, Instant};

/// The number of values in the paper's example.
const VALUE_COUNT: u64 = 1_000;

/// The paper's false positive rate, as a power of two.
const RATE_LOG: i32 = -32;

/// Keys that are hashed, inserted and looked up together.
const BLOCK_COUNT: u64 = 4_096;

/// Present keys that are looked up, at most.
const PRESENT_COUNT_MAX: u64 = 100_000_000;

/// Where absent keys begin.
const ABSENT_BASE: u64 = 1 << 48;

/// Called before each block of keys, with the current step, the keys done, and the keys in all.
pub type Progress<'a> = dyn Fn(&str, u64, u64) + 'a;

/// A run with a given number of keys.
#[derive(Clone, Copy, Debug)]
pub struct Headline {
    /// Keys that are inserted.
    pub key_count: u64,
    /// The seed of the values.
    pub seed: u64,
}

/// The time of one part of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// Keys that this part handled.
    pub key_count: u64,
    /// How long this part took.
    pub time: Duration,
}

impl Timed {
    /// Keys a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.key_count as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The plan of the field.
    pub plan: Plan,
    /// The first pass: every key inserted.
    pub insertion: Timed,
    /// The second pass: every key looked up, and those that the first array leaves undecided inserted again.
    pub settling: Timed,
    /// Look-ups of present keys.
    pub present: Timed,
    /// Look-ups of absent keys.
    pub absent: Timed,
    /// Keys that the first array leaves undecided.
    pub undecided_count: u64,
    /// Keys that no array decides.
    pub indeterminate_count: u64,
    /// Present keys whose look-up did not show their value.
    pub wrong_count: u64,
    /// Absent keys whose look-up showed a value.
    pub false_positive_count: u64,
}

impl Headline {
    /// Builds the field and looks keys up in it. This takes the memory of the field and a little more.
    ///
    /// # Errors
    ///
    /// No field can be planned for this many keys.
    ///
    /// # Panics
    ///
    /// The memory cannot be allocated.
    pub fn run(&self, progress: &Progress) -> Result<Outcome> {
        let goal =
            Goal { false_positive_rate: 2f64.powi(RATE_LOG), key_count: self.key_count, value_count: VALUE_COUNT };
        let plan = Plan::new(&goal).map_err(|error| Error::new("there is no such B-field").because(error))?;
        let mut builder = Builder::new(&plan);
        let mut pass = |what: &str| -> Result<(Timed, Pass)> {
            let start = Instant::now();
            let mut added = Ok(());
            self.for_each_block(0, 1, self.key_count, &mut |done, pairs| {
                progress(what, done, self.key_count);
                if added.is_ok() {
                    added = builder.add(pairs);
                }
            });
            added.map_err(|error| Error::new("cannot insert a key").because(error))?;
            let pass = builder.end_pass();
            Ok((Timed { key_count: self.key_count, time: start.elapsed() }, pass))
        };
        let (insertion, _) = pass("inserting")?;
        let (settling, _) = pass("settling")?;
        let built = builder.finish();
        let stride = self.key_count.div_ceil(PRESENT_COUNT_MAX).max(1);
        let (present, right_count) = self.look_up("looking up keys that are in", &built.field, (0, stride), progress);
        let absent_from = (ABSENT_BASE, 1);
        let (absent, false_positive_count) =
            self.look_up("looking up keys that are not", &built.field, absent_from, progress);
        Ok(Outcome {
            plan,
            insertion,
            settling,
            wrong_count: present.key_count - right_count,
            present,
            absent,
            undecided_count: built.undecided_count,
            indeterminate_count: built.indeterminate_count,
            false_positive_count,
        })
    }

    /// Looks keys up. Returns how many show their value (present keys) or any value (absent keys).
    fn look_up(&self, what: &str, field: &Field, (from, stride): (u64, u64), progress: &Progress) -> (Timed, u64) {
        let key_count = self.key_count.div_ceil(stride);
        let (mut hashes, mut found) = (Vec::new(), Vec::new());
        let mut count = 0;
        let start = Instant::now();
        self.for_each_block(from, stride, key_count, &mut |done, pairs| {
            progress(what, done, key_count);
            hashes.clear();
            hashes.extend(pairs.iter().map(|pair| pair.hash));
            found.resize(pairs.len(), Found::Absent);
            field.look_up_all(&hashes, &mut found);
            let is_hit = |(pair, found): (&Pair, &Found)| match found {
                Found::Value(value) => *value == pair.value || from >= ABSENT_BASE,
                Found::Absent | Found::Indeterminate => false,
            };
            count += pairs.iter().zip(&found).filter(|(pair, found)| is_hit((pair, found))).count() as u64;
        });
        (Timed { key_count, time: start.elapsed() }, count)
    }

    /// Visits the pairs of `count` keys, `stride` apart, one block at a time, with the number of keys before the block.
    fn for_each_block(&self, from: u64, stride: u64, count: u64, visit: &mut dyn FnMut(u64, &[Pair])) {
        let hash = SecretHash::<u64>::new(&Secret::REPLAY);
        let (mut keys, mut pairs) = (Vec::new(), Vec::new());
        let mut hashes = vec![0; BLOCK_COUNT as usize];
        for done in (0..count).step_by(BLOCK_COUNT as usize) {
            keys.clear();
            keys.extend((done..count.min(done + BLOCK_COUNT)).map(|at| from + at * stride));
            hash.of_group(&keys, &mut hashes);
            pairs.clear();
            let value = |key: u64| (number_at(self.seed, key) % VALUE_COUNT) as u32;
            pairs.extend(keys.iter().zip(&hashes).map(|(key, hash)| Pair { hash: *hash, value: value(*key) }));
            visit(done, &pairs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_small_headline_is_as_the_large_one() {
        let steps = Cell::new(0);
        let outcome = Headline { key_count: 20_000, seed: 1 }.run(&|_, done, count| {
            assert!(done < count);
            steps.set(steps.get() + 1);
        });
        let outcome = outcome.unwrap();
        assert_eq!(steps.get(), 4 * 5);
        assert_eq!((outcome.plan.hash_count(), outcome.plan.code().nu()), (15, 20));
        assert_eq!((outcome.wrong_count, outcome.indeterminate_count, outcome.false_positive_count), (0, 0, 0));
        assert!((1..40).contains(&outcome.undecided_count), "{}", outcome.undecided_count);
        assert!(Headline { key_count: u64::MAX, seed: 1 }.run(&|_, _, _| ()).is_err());
    }
}
