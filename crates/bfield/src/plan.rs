//! Planning a field: from a false positive rate, a number of keys and a number of values to the code, the number of
//! hash functions and the sizes of the arrays (sections "Implementation Details" and "B-field Key Metrics" of the
//! paper, with the rates of `rates.rs`).

use crate::Code;
use crate::rates::Windows;
use std::f64::consts::LN_2;

/// The most hash functions of a field: the rarest false positives of a code with a single one take 60.
const BFIELD_HASH_COUNT_MAX: u32 = 64;

/// The lowest false positive rate that a field is planned for: nobody looks up more keys than its inverse.
const BFIELD_FALSE_POSITIVE_MIN: f64 = 1e-18;

/// The largest share of keys that an array hands on to the next: beyond it the next arrays cost more than better ones
/// would.
const BFIELD_INDETERMINATE_MAX: f64 = 0.25;

/// Keys that the last array may leave without an answer, on average: one field in a thousand leaves one.
const BFIELD_KEYS_LEFT_MAX: f64 = 1e-3;

/// The most arrays of a field: each hands on a quarter of its keys at most, so these are enough for 2^40 keys.
pub const BFIELD_ARRAY_COUNT_MAX: usize = 26;

/// The smallest array, in keys: in smaller ones chance is far from its mean, and they save nothing.
const BFIELD_ARRAY_KEYS_MIN: u64 = 64;

/// Standard deviations of the number of keys handed on that each later array has room for beside the mean: more than
/// chance brings.
const BFIELD_DEVIATIONS: f64 = 6.0;

/// The largest field, in bits: a tebibyte.
const BFIELD_BITS_MAX: u64 = 1 << 43;

// Sizes in bytes add up without overflow for any values in a file.
const _: () = assert!((BFIELD_BITS_MAX / 8).checked_mul(2 * BFIELD_ARRAY_COUNT_MAX as u64).is_some());

/// The requirements for a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The largest acceptable share of false positives, alpha: look-ups of keys that were never inserted that give a
    /// value. From 1e-18 to below 1.
    pub false_positive_rate: f64,
    /// The number of keys that are expected. More keys make more errors, but never a wrong `Absent`.
    pub key_count: u64,
    /// The number of values, at most 2^32; they are 0 up to this, not included.
    pub value_count: u64,
}

/// How the places of a key follow from its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// The paper's `h_a + (n - 1) h_b`. Two keys with nearly the same `h_a` and the same `h_b`, or its negative, share
    /// nearly all windows. In small arrays that causes more false positives than everything else together.
    Even,
    /// The place is multiplied by a constant before each step, so that windows that met once, of two keys or of one, do
    /// not meet again.
    Scattered,
}

/// One array of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayPlan {
    /// The number of keys that the array is made for.
    pub key_count: u64,
    /// The number of places where a window can begin: the paper's m kappa.
    pub start_count: u64,
}

/// The plan of a field: everything but its contents.
///
/// ```
/// use flowpeel_bfield::{Goal, Plan};
///
/// // The paper's example: a billion keys, a thousand values.
/// let goal = Goal { false_positive_rate: 2f64.powi(-32), key_count: 1_000_000_000, value_count: 1_000 };
/// let plan = Plan::new(&goal)?;
/// assert_eq!((plan.code().nu(), plan.code().kappa(), plan.hash_count()), (20, 3, 15));
/// assert_eq!((plan.byte_size() as f64 / 1e7).round() / 100.0, 8.12);
/// # Ok::<(), flowpeel_bfield::Unplannable>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    goal: Goal,
    code: Code,
    hash_count: u32,
    steps: Steps,
    arrays: Vec<ArrayPlan>,
}

/// Why a field cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplannable {
    /// The false positive rate is below 1e-18, or not below 1.
    FalsePositiveRate,
    /// There are no values, or more than 2^32.
    ValueCount,
    /// A field for this many keys would take more than a tebibyte.
    KeyCount,
    /// The code, the number of hash functions or the sizes of the arrays are none that are ever planned.
    Parts,
}

impl std::fmt::Display for Unplannable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unplannable::FalsePositiveRate => "the false positive rate must be at least 1e-18 and below 1",
            Unplannable::ValueCount => "there must be a value, and at most 2^32 of them",
            Unplannable::KeyCount => "a field for so many keys would be too large: use several",
            Unplannable::Parts => "no field has such a code, such arrays or so many hash functions",
        })
    }
}

impl std::error::Error for Unplannable {}

impl Plan {
    /// The smallest field that meets the goal.
    ///
    /// The code is the paper's choice ([`Code::for_values`]) and each array is half full. The number of hash functions
    /// is the smallest that meets the false positive rate and lets at most a quarter of the keys move on to the next
    /// array. There are as many arrays as leave less than a thousandth of a key without an answer.
    ///
    /// # Errors
    ///
    /// The goal cannot be met; [`Unplannable`] says why.
    pub fn new(goal: &Goal) -> Result<Self, Unplannable> {
        if !(BFIELD_FALSE_POSITIVE_MIN..1.0).contains(&goal.false_positive_rate) {
            return Err(Unplannable::FalsePositiveRate);
        }
        let code = Code::for_values(goal.value_count).ok_or(Unplannable::ValueCount)?;
        let unmasked = goal.value_count as f64 / code.code_word_count() as f64;
        // Bits that are set together only make more errors than the formula for independent bits says.
        let least =
            (code.code_word_count() as f64 * unmasked / goal.false_positive_rate).log2() / f64::from(code.kappa());
        let windows = Windows::new(code, half_load(code));
        let meets = |hash_count: &u32| {
            windows.false_positive_rate(*hash_count) * unmasked <= goal.false_positive_rate
                && windows.indeterminate_rate(*hash_count) <= BFIELD_INDETERMINATE_MAX
        };
        let first = (least.floor() as u32).max(1);
        let hash_count = (first..=BFIELD_HASH_COUNT_MAX).find(meets).ok_or(Unplannable::FalsePositiveRate)?;
        Plan::of_beta(goal, code, hash_count, windows.indeterminate_rate(hash_count))
    }

    /// A plan with this code and number of hash functions, with the false positive rate that results.
    ///
    /// # Errors
    ///
    /// The code lacks strings for some values, keys or hash functions are too many, or more than a quarter of the keys
    /// would be indeterminate.
    pub fn with_code(goal: &Goal, code: Code, hash_count: u32) -> Result<Self, Unplannable> {
        if goal.value_count == 0 || goal.value_count > code.code_word_count().min(1 << u32::BITS) {
            return Err(Unplannable::ValueCount);
        }
        let beta = Windows::new(code, half_load(code)).indeterminate_rate(hash_count);
        if !(1..=BFIELD_HASH_COUNT_MAX).contains(&hash_count) || beta > BFIELD_INDETERMINATE_MAX {
            return Err(Unplannable::Parts);
        }
        Plan::of_beta(goal, code, hash_count, beta)
    }

    /// The plan with this code and number of hash functions, of which the first array leaves the part `beta` of the
    /// keys.
    fn of_beta(goal: &Goal, code: Code, hash_count: u32, beta: f64) -> Result<Self, Unplannable> {
        let mut arrays = Vec::new();
        let mut expected = goal.key_count as f64;
        while arrays.is_empty() || (expected >= BFIELD_KEYS_LEFT_MAX && arrays.len() < BFIELD_ARRAY_COUNT_MAX) {
            // Later arrays get room for what chance may add to the mean.
            let slack = if arrays.is_empty() { 0.0 } else { BFIELD_DEVIATIONS * expected.sqrt() };
            let key_count = ((expected + slack).ceil() as u64).max(BFIELD_ARRAY_KEYS_MIN);
            let starts = key_count as f64 * f64::from(hash_count) / half_load(code);
            arrays.push(ArrayPlan { key_count, start_count: starts.ceil() as u64 });
            expected *= beta;
        }
        let plan = Plan { goal: *goal, code, hash_count, steps: Steps::Scattered, arrays };
        if plan.bit_count() > BFIELD_BITS_MAX as f64 { Err(Unplannable::KeyCount) } else { Ok(plan) }
    }

    /// The plan of these parts, as a stored field has them.
    ///
    /// # Errors
    ///
    /// No field has such parts. The sizes of accepted parts add up without overflow.
    pub fn from_parts(
        goal: &Goal,
        code: Code,
        hash_count: u32,
        steps: Steps,
        arrays: &[ArrayPlan],
    ) -> Result<Self, Unplannable> {
        let is_rate = (0.0..=1.0).contains(&goal.false_positive_rate);
        let is_values = (1..=code.code_word_count().min(1 << u32::BITS)).contains(&goal.value_count);
        let is_hashes = (1..=BFIELD_HASH_COUNT_MAX).contains(&hash_count);
        let is_arrays = (1..=BFIELD_ARRAY_COUNT_MAX).contains(&arrays.len());
        let is_sizes = arrays.iter().all(|array| (1..=BFIELD_BITS_MAX).contains(&array.start_count));
        if !(is_rate && is_values && is_hashes && is_arrays && is_sizes) {
            return Err(Unplannable::Parts);
        }
        Ok(Plan { goal: *goal, code, hash_count, steps, arrays: arrays.to_vec() })
    }

    /// Replaces the steps. A new plan has [`Steps::Scattered`].
    #[must_use]
    pub fn with_steps(self, steps: Steps) -> Self {
        Plan { steps, ..self }
    }

    /// The requirements that the plan meets.
    #[must_use]
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// The code of the values.
    #[must_use]
    #[inline]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The number of hash functions: the paper's k.
    #[must_use]
    #[inline]
    pub fn hash_count(&self) -> u32 {
        self.hash_count
    }

    /// How the places of a key follow from its hash.
    #[must_use]
    #[inline]
    pub fn steps(&self) -> Steps {
        self.steps
    }

    /// The arrays, each for the keys that the one before cannot decide.
    #[must_use]
    #[inline]
    pub fn arrays(&self) -> &[ArrayPlan] {
        &self.arrays
    }

    /// The number of 64-bit words of an array, padding included.
    #[must_use]
    #[inline]
    pub fn word_count(&self, array: &ArrayPlan) -> u64 {
        array.start_count.saturating_add(u64::from(self.code.nu()) - 1).div_ceil(u64::from(u64::BITS))
    }

    /// The memory of all arrays, in bytes.
    #[must_use]
    pub fn byte_size(&self) -> u64 {
        let words = self.arrays.iter().map(|array| self.word_count(array));
        words.fold(0, u64::saturating_add).saturating_mul(8)
    }

    /// The share of look-ups of keys that were never inserted that give a value, when the field holds as many keys as
    /// expected.
    #[must_use]
    pub fn false_positive_rate(&self) -> f64 {
        // A string whose number belongs to no value gives none.
        let decoded = self.goal.value_count as f64 / self.code.code_word_count() as f64;
        self.windows().false_positive_rate(self.hash_count) * decoded
    }

    /// The share of keys that the first array leaves undecided, when the field holds as many keys as expected: beta.
    #[must_use]
    pub fn indeterminate_rate(&self) -> f64 {
        self.windows().indeterminate_rate(self.hash_count)
    }

    /// The windows of the first array when it holds as many keys as expected.
    fn windows(&self) -> Windows {
        let start_count = self.arrays.first().map_or(1, |array| array.start_count);
        let load = f64::from(self.hash_count) * self.goal.key_count as f64 / start_count as f64;
        Windows::new(self.code, load)
    }

    fn bit_count(&self) -> f64 {
        self.arrays.iter().map(|array| array.start_count as f64).sum()
    }
}

/// Insertions of a window that begin at one place when half of the bits are set: each bit is in reach of `kappa` of
/// them.
fn half_load(code: Code) -> f64 {
    LN_2 / f64::from(code.kappa())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CodeShape;
    use proptest::prelude::*;

    fn goal(false_positive_rate: f64, key_count: u64, value_count: u64) -> Goal {
        Goal { false_positive_rate, key_count, value_count }
    }

    #[test]
    fn the_papers_headline_is_worked_out() {
        let plan = Plan::new(&goal(2f64.powi(-32), 1_000_000_000, 1_000)).unwrap();
        assert_eq!((plan.code().nu(), plan.code().kappa(), plan.hash_count()), (20, 3, 15));
        assert!((plan.byte_size() as f64 / 1e9 - 8.12).abs() < 0.005, "{}", plan.byte_size());
        assert!(plan.false_positive_rate() <= 2f64.powi(-32));
        assert!((plan.indeterminate_rate() - 17.0 / 32_768.0).abs() < 1e-6);
        assert_eq!(plan.arrays().len(), 4);
        let later: u64 = plan.arrays()[1..].iter().map(|array| array.start_count).sum();
        let share = later as f64 / plan.arrays()[0].start_count as f64;
        let beta = plan.indeterminate_rate();
        assert!((share / (1.0 / (1.0 - beta) - 1.0) - 1.0).abs() < 0.02, "{share}");
    }

    #[test]
    fn what_can_not_be_is_refused() {
        for (goal, why) in [
            (goal(0.0, 1, 1), Unplannable::FalsePositiveRate),
            (goal(1.0, 1, 1), Unplannable::FalsePositiveRate),
            (goal(f64::NAN, 1, 1), Unplannable::FalsePositiveRate),
            (goal(0.1, 1, 0), Unplannable::ValueCount),
            (goal(0.1, 1, (1 << 32) + 1), Unplannable::ValueCount),
            (goal(0.1, u64::MAX, 10), Unplannable::KeyCount),
        ] {
            assert_eq!(Plan::new(&goal), Err(why), "{goal:?}");
        }
        let code = Code::new(CodeShape { bit_count: 5, one_count: 2 }).unwrap();
        assert_eq!(Plan::with_code(&goal(0.1, 1, 11), code, 10), Err(Unplannable::ValueCount));
        assert_eq!(Plan::with_code(&goal(0.1, 1, 10), code, 1), Err(Unplannable::Parts));
        let array = ArrayPlan { key_count: 1, start_count: u64::MAX };
        let parts = Plan::from_parts(&goal(0.1, 1, 10), code, 5, Steps::Even, &[array]);
        assert_eq!(parts, Err(Unplannable::Parts));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn plans_meet_their_goals(bits in 1u32..50, key_count in 0u64..1 << 34, value_bits in 0u32..=32) {
            let goal = goal(2f64.powi(-(bits as i32)), key_count, 1 << value_bits);
            let plan = Plan::new(&goal).unwrap();
            prop_assert!(plan.false_positive_rate() <= goal.false_positive_rate * 1.000_001);
            prop_assert!(plan.indeterminate_rate() <= BFIELD_INDETERMINATE_MAX * 1.000_001);
            prop_assert!(plan.code().code_word_count() >= goal.value_count);
            let parts = Plan::from_parts(&goal, plan.code(), plan.hash_count(), plan.steps(), plan.arrays());
            prop_assert_eq!(parts, Ok(plan));
        }
    }
}
