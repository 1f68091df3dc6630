//! Where a key's windows begin, and how its value is whitened.
//!
//! The 128-bit hash of a key gives `k` places in each array, and a number to add to the value. Each array has its own
//! places, so that keys that collide in one do not collide again in the next.

use crate::plan::{ArrayPlan, Steps};
use crate::{Code, Plan};
use flowpeel_iblt::hash::{GOLDEN_64, mixed};

/// The factor of the state before each scattered step: a multiplier of known quality for 64-bit linear congruential
/// generators.
const SCATTER: u64 = 0xd134_2543_de82_ef95;

/// The windows of one key in one array: an iterator over the places where they begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowStarts {
    state: u64,
    factor: u64,
    step: u64,
    start_count: u64,
    left: u32,
}

/// The number that whitening adds to the code word numbers of a key in one array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whitening {
    shift: u64,
    code: Code,
}

/// The hash of a key for one array, as two words.
#[inline]
fn words(hash: u128, array_index: usize) -> [u64; 2] {
    let (high, low) = ((hash >> 64) as u64, hash as u64);
    // The hash is already random, so the first array, where nearly all look-ups end, uses it unchanged.
    match array_index {
        0 => [high, low],
        index => {
            let salt = GOLDEN_64.wrapping_mul(index as u64);
            [mixed(high ^ salt), mixed(low ^ salt.rotate_left(32))]
        }
    }
}

/// A random word as a number below `bound`.
#[inline]
fn below(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

impl WindowStarts {
    /// The window starts of the key with this hash.
    #[inline]
    pub(super) fn new(plan: &Plan, array: &ArrayPlan, array_index: usize, hash: u128) -> Self {
        let [high, low] = words(hash, array_index);
        let factor = match plan.steps() {
            Steps::Even => 1,
            Steps::Scattered => SCATTER,
        };
        WindowStarts { state: high, factor, step: low | 1, start_count: array.start_count, left: plan.hash_count() }
    }
}

impl Iterator for WindowStarts {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        // The state is a place on a ring of 2^64, onto which the array is mapped.
        let place = below(self.state, self.start_count);
        self.state = self.state.wrapping_mul(self.factor).wrapping_add(self.step);
        Some(place)
    }
}

impl Whitening {
    /// The whitening of the key with this hash.
    #[inline]
    pub(super) fn new(code: Code, array_index: usize, hash: u128) -> Self {
        let [high, low] = words(hash, array_index);
        Whitening { shift: below(mixed(high ^ low.wrapping_mul(GOLDEN_64)), code.code_word_count()), code }
    }

    /// The bits that stand for a value of this key.
    #[inline]
    pub(super) fn encode(&self, value: u32) -> u64 {
        self.code.encode(self.shifted(u64::from(value), self.shift))
    }

    /// The number that these bits stand for; it may be that of no value.
    #[inline]
    pub(super) fn decode(&self, bits: u64) -> u64 {
        self.shifted(self.code.decode(bits), self.code.code_word_count() - self.shift)
    }

    /// The value of this key whose bits are those of code word `number`, which cancels the whitening.
    pub(super) fn value_of(&self, number: u64) -> u64 {
        self.shifted(number, self.code.code_word_count() - self.shift)
    }

    #[inline]
    fn shifted(&self, number: u64, shift: u64) -> u64 {
        let sum = number + shift;
        if sum >= self.code.code_word_count() { sum - self.code.code_word_count() } else { sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Goal;
    use proptest::prelude::*;

    fn plan() -> Plan {
        Plan::new(&Goal { false_positive_rate: 1e-6, key_count: 5_000, value_count: 1_000 }).unwrap()
    }

    #[test]
    fn even_steps_are_the_papers() {
        let plan = plan().with_steps(Steps::Even);
        let places: Vec<u64> = WindowStarts::new(&plan, &plan.arrays()[0], 0, 0x1234 << 110 | 0x77 << 50).collect();
        let count = plan.arrays()[0].start_count;
        assert_eq!(places.len(), plan.hash_count() as usize);
        let step = (places[1] + count - places[0]) % count;
        for (index, place) in places.iter().enumerate() {
            // Each step may round by one.
            let off = (place + count - (places[0] + index as u64 * step) % count) % count;
            assert!(off.min(count - off) <= index as u64, "{index}: {off}");
        }
    }

    proptest! {
        #[test]
        fn places_lie_in_the_array_and_values_come_back(hash: u128, value in 0u32..1_000, index in 0usize..3) {
            let plan = plan();
            let array = plan.arrays()[index.min(plan.arrays().len() - 1)];
            let places: Vec<u64> = WindowStarts::new(&plan, &array, index, hash).collect();
            prop_assert_eq!(places.len(), plan.hash_count() as usize);
            prop_assert!(places.iter().all(|place| *place < array.start_count));
            let whitening = Whitening::new(plan.code(), index, hash);
            prop_assert_eq!(whitening.decode(whitening.encode(value)), u64::from(value));
        }
    }
}
