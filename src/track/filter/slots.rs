//! Tests of all seven slots of a bucket at once: which hold a fingerprint, which are unused, and which are closed.
//!
//! What enters: a bucket. What leaves: the set of slots that pass. These tests are most of what a signal costs, so they
//! are free of branches and take few instructions.

use super::SLOT_COUNT;
use crate::lines::Line;
use crate::track::State;
use crate::track::entry::{FINGERPRINT_SHIFT, STATE_BITS, STATE_SHIFT};

/// The slots of a bucket that hold this fingerprint, a bit each.
#[inline]
pub(super) fn with_fingerprint(bucket: &Line, fingerprint: u32) -> u32 {
    // With constant bits the comparison is vectorised. The eighth word is no entry.
    const BITS: [u64; 8] = [1 << 32, 1 << 33, 1 << 34, 1 << 35, 1 << 36, 1 << 37, 1 << 38, 0];
    let slots = bucket.0.iter().zip(BITS).fold(0, |slots, (word, bit)| {
        // If nothing differs, the subtraction borrows from all bits above.
        let difference = (word >> FINGERPRINT_SHIFT) ^ u64::from(fingerprint);
        slots | difference.wrapping_sub(1) & bit
    });
    (slots >> u32::BITS) as u32
}

const _: () = assert!(u64::BITS - FINGERPRINT_SHIFT <= u32::BITS);

/// A set of a bucket's slots. Each slot has [`STATE_BITS`] bits, of which the topmost says whether it is in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places(u32);

// All slots fit into the number, and a state has to be shifted down, never up, to its bits there.
const _: () = assert!((SLOT_COUNT as u32 - 1) * STATE_BITS <= STATE_SHIFT);

/// The lowest bit of each slot.
const ONES: u32 = (1 << (SLOT_COUNT as u32 * STATE_BITS)) / ((1 << STATE_BITS) - 1);
const TOPS: u32 = ONES << (STATE_BITS - 1);

impl Places {
    /// The slots whose bits in `states` are all zero.
    #[inline]
    fn of_zeros(states: u32) -> Self {
        // Whatever is not zero carries into the topmost bit of its slot, and no further.
        let below = TOPS - ONES;
        Places(!(((states & below) + below) | states) & TOPS)
    }

    /// Whether the set is empty.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The first slot of the set, which must not be empty.
    #[inline]
    pub(super) fn first(self) -> u32 {
        self.0.trailing_zeros() / STATE_BITS
    }

    /// The set without its first slot.
    #[inline]
    pub(super) fn without_first(self) -> Self {
        Places(self.0 & self.0.wrapping_sub(1))
    }

    /// The set with this slot, if `passes`.
    #[inline]
    pub(super) fn with(self, index: u32, passes: bool) -> Self {
        Places(self.0 | u32::from(passes) << (index * STATE_BITS + STATE_BITS - 1))
    }
}

/// The unused slots of a bucket, and the closed ones, which may still linger.
#[inline]
pub(super) fn unused_and_closed(bucket: &Line) -> (Places, Places) {
    let states = bucket.0[..SLOT_COUNT].iter().enumerate().fold(0, |states, (index, word)| {
        let shift = index as u32 * STATE_BITS;
        states | (word >> (STATE_SHIFT - shift)) as u32 & ((1 << STATE_BITS) - 1) << shift
    });
    // The two states of an unused slot, Empty and Removed, differ in the lowest bit only.
    const _: () = assert!(State::Empty as u32 == 0 && State::Removed as u32 == 1 && State::Closed as u32 == 2);
    (Places::of_zeros(states & !ONES), Places::of_zeros(states ^ (ONES * State::Closed as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::Entry;
    use crate::track::entry::state_of;
    use proptest::prelude::*;

    fn indices(mut places: Places) -> Vec<u32> {
        let mut indices = Vec::new();
        while !places.is_empty() {
            indices.push(places.first());
            places = places.without_first();
        }
        indices
    }

    proptest! {
        /// Words of few fingerprints and all states, so that everything is met.
        #[test]
        fn all_at_once_is_one_by_one(words in prop::array::uniform8((0u64..3, any::<u64>())), fingerprint in 0u32..3) {
            let low = (1 << FINGERPRINT_SHIFT) - 1;
            let bucket = Line(words.map(|(few, any)| few << FINGERPRINT_SHIFT | any & low));
            let slots_where = |passes: &dyn Fn(u64) -> bool| {
                (0..SLOT_COUNT as u32).filter(|index| passes(bucket.0[*index as usize])).collect::<Vec<_>>()
            };
            let found = with_fingerprint(&bucket, fingerprint);
            let held = slots_where(&|word| Entry::unpack(word, 0).fingerprint == fingerprint);
            prop_assert_eq!(found, held.iter().fold(0, |bits, index| bits | 1 << index));
            let (unused, closed) = unused_and_closed(&bucket);
            let is_unused = |word| matches!(state_of(word), State::Empty | State::Removed);
            prop_assert_eq!(indices(unused), slots_where(&is_unused));
            prop_assert_eq!(indices(closed), slots_where(&|word| state_of(word) == State::Closed));
            let all = (0..SLOT_COUNT as u32).fold(closed, |places, index| places.with(index, index % 2 == 0));
            prop_assert_eq!(indices(all), slots_where(&|_| true).into_iter().filter(|index| {
                index % 2 == 0 || state_of(bucket.0[*index as usize]) == State::Closed
            }).collect::<Vec<_>>());
        }
    }
}
