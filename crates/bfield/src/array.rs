//! One array of bits, which windows of it are read from and ones are written to.

use flowpeel_lines::prefetch;

/// An array of bits, with room after the last place where a window can begin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BitArray {
    words: Vec<u64>,
    /// The distance from the first bit of a window to its last.
    reach: u64,
}

/// The index of a bit's word, and the bit's position in it.
#[inline]
fn split(place: u64) -> (usize, u32) {
    ((place / u64::from(u64::BITS)) as usize, (place % u64::from(u64::BITS)) as u32)
}

impl BitArray {
    /// An array of these words, whose windows have `nu` bits.
    pub(super) fn new(words: Vec<u64>, nu: u32) -> Self {
        BitArray { words, reach: u64::from(nu) - 1 }
    }

    /// The words, bit 0 of the first being place 0.
    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The window that begins here; bits above its length are meaningless.
    #[inline]
    pub(super) fn window(&self, place: u64) -> u64 {
        let (first, shift) = split(place);
        // Where the window ends in its first word, that word is read twice, and the upper copy is shifted out of the
        // window.
        let (last, _) = split(place + self.reach);
        let both = u128::from(self.words[last]) << u64::BITS | u128::from(self.words[first]);
        (both >> shift) as u64
    }

    /// Sets these bits of the window that begins here, and returns whether any was not set before.
    #[inline]
    pub(super) fn set(&mut self, place: u64, bits: u64) -> bool {
        let (first, shift) = split(place);
        let (last, _) = split(place + self.reach);
        let both = u128::from(bits) << shift;
        let (low, high) = (both as u64, (both >> u64::BITS) as u64);
        let is_new = low & !self.words[first] | high & !self.words[last] != 0;
        self.words[first] |= low;
        self.words[last] |= high;
        is_new
    }

    /// Prefetches the memory of a window.
    #[inline]
    pub(super) fn prefetch(&self, place: u64) {
        prefetch(&self.words[split(place).0]);
        prefetch(&self.words[split(place + self.reach).0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn windows_are_the_bits_that_were_set(
            nu in 1u32..=64,
            sets in prop::collection::vec((0u64..1_000, any::<u64>()), 0..20),
            place in 0u64..1_000,
        ) {
            let mask = u64::MAX >> (64 - nu);
            let mut array = BitArray::new(vec![0; (999 + nu as usize).div_ceil(64)], nu);
            let mut bits = vec![false; 999 + nu as usize];
            for (place, word) in sets {
                let set: Vec<u64> = (0..u64::from(nu)).filter(|at| word >> at & 1 == 1).map(|at| place + at).collect();
                prop_assert_eq!(array.set(place, word & mask), set.iter().any(|at| !bits[*at as usize]));
                set.iter().for_each(|at| bits[*at as usize] = true);
            }
            let expected = (0..nu).filter(|at| bits[place as usize + *at as usize]).fold(0, |word, at| word | 1 << at);
            prop_assert_eq!(array.window(place) & mask, expected);
        }
    }
}
