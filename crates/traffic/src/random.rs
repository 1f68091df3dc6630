//! Numbers that look random and are the same on every machine: a stream that follows from a seed (xoshiro256++), or the
//! number at any place of a stream without those before it (SplitMix64).
//!
//! Shares are compared as 32-bit integers: a product with a power of two is exact, so rounding is the same on every
//! machine.

use std::ops::RangeInclusive;

/// The step between two states of SplitMix64: 2^64 divided by the golden ratio, made odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number at place `index` of the SplitMix64 stream of `seed`.
#[inline]
pub(super) fn number_at(seed: u64, index: u64) -> u64 {
    let mut mixed = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Scales `number` (uniform over 64 bits) to a number below `bound`; zero when `bound` is zero.
#[inline]
pub(super) fn scaled(number: u64, bound: u64) -> u64 {
    ((u128::from(number) * u128::from(bound)) >> 64) as u64
}

/// Whether `number` (uniform over 32 bits) falls into the first `share` of its range.
#[inline]
pub(super) fn within(number: u32, share: f64) -> bool {
    f64::from(number) < share * 4_294_967_296.0
}

/// A stream of numbers: xoshiro256++.
pub struct Random([u64; 4]);

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(std::array::from_fn(|index| number_at(seed, index as u64)))
    }

    /// The next number, uniform over 64 bits.
    #[inline]
    pub fn number(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ b << 17, d.rotate_left(45)];
        result
    }

    /// A number below `bound`; zero when `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        scaled(self.number(), bound)
    }

    /// A number of `range`, drawn uniformly; its start when the range is empty.
    pub fn uniform(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let width = range.end().saturating_sub(*range.start());
        range.start() + self.below(width.saturating_add(1))
    }

    /// A number of `range`, drawn uniformly on a logarithmic scale, as times on a network are distributed.
    pub fn log_uniform(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let low = (*range.start()).max(1);
        let high = (*range.end()).max(low);
        let (first, last) = (low.ilog2(), high.ilog2());
        let power = 1u64 << (u64::from(first) + self.below(u64::from(last - first) + 1));
        self.uniform(&(low.max(power)..=high.min(power | (power - 1))))
    }

    /// True for `share` of the calls.
    #[inline]
    pub fn chance(&mut self, share: f64) -> bool {
        within((self.number() >> 32) as u32, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_its_published_numbers() {
        assert_eq!(number_at(1_234_567, 0), 6_457_827_717_110_365_317);
        assert_eq!(number_at(1_234_567, 1), 3_203_168_211_198_807_973);
    }

    #[test]
    fn xoshiro_gives_its_published_numbers() {
        let mut random = Random([1, 2, 3, 4]);
        let numbers: Vec<u64> = (0..4).map(|_| random.number()).collect();
        assert_eq!(numbers, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn ranges_and_shares_are_kept() {
        let mut random = Random::new(3);
        let mut hits = 0;
        let mut powers = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            assert!((5..=9).contains(&random.uniform(&(5..=9))));
            let number = random.log_uniform(&(100..=200_000));
            assert!((100..=200_000).contains(&number));
            powers.insert(number.ilog2());
            hits += u32::from(random.chance(0.25));
        }
        assert!((2_300..2_700).contains(&hits), "{hits} of 10,000 for a quarter");
        assert_eq!(powers, (6..=17).collect());
        assert_eq!((random.below(0), random.uniform(&(4..=4)), random.log_uniform(&(0..=1))), (0, 4, 1));
    }
}
