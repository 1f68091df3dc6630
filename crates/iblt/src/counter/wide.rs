//! Keys with spare bits above them, so that a sum of many equal keys divides by any count.
//!
//! A sum that wraps at the width of its keys loses a bit for every factor of two in a count, and each lost bit doubles
//! the number of keys it may stand for. Where the lost bits lie above the key, there is at most one key. The law of
//! [`Sum`] holds with one exception: a sum whose quotient would be no key has no quotient.

use crate::sum::{Key, Sum};

/// A key of `KEY` bytes that is summed in `SUM` bytes, both as little-endian numbers.
///
/// With four bytes more than a key has, every count that is not a multiple of 2^33 divides with a single candidate.
///
/// ```
/// use flowpeel_iblt::{Sum, Wide};
///
/// let key = Wide::<4, 8>::new([10, 0, 0, 7]);
/// assert_eq!(key.times(1 << 20).quotient(1 << 20, 0), Some(key));
/// assert_eq!(key.plus(Wide::new([1; 4])).quotient(2, 0), None);
/// assert_eq!(key.key(), [10, 0, 0, 7]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wide<const KEY: usize, const SUM: usize>([u8; SUM]);

impl<const KEY: usize, const SUM: usize> Wide<KEY, SUM> {
    /// Bits above the key.
    const SPARE_BITS: u32 = 8 * (SUM - KEY) as u32;

    /// The key of these bytes.
    #[must_use]
    #[inline]
    pub fn new(key: [u8; KEY]) -> Self {
        const { assert!(KEY < SUM, "a key without room above it needs no such type") };
        let mut sum = [0; SUM];
        sum[..KEY].copy_from_slice(&key);
        Wide(sum)
    }

    /// The bytes of the key.
    #[must_use]
    pub fn key(&self) -> [u8; KEY] {
        std::array::from_fn(|at| self.0[at])
    }
}

impl<const KEY: usize, const SUM: usize> Sum for Wide<KEY, SUM> {
    const SIZE: usize = SUM;
    /// Zero: lost bits lie above the key, so no word of it loses any.
    const WORD_COUNT: u32 = 0;

    #[inline]
    fn zero() -> Self {
        Wide([0; SUM])
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        Wide(self.0.plus(other.0))
    }

    #[inline]
    fn minus(self, other: Self) -> Self {
        Wide(self.0.minus(other.0))
    }

    #[inline]
    fn xor(self, other: Self) -> Self {
        Wide(self.0.xor(other.0))
    }

    #[inline]
    fn times(self, count: i64) -> Self {
        Wide(self.0.times(count))
    }

    fn quotient(self, count: i64, lost: u64) -> Option<Self> {
        if lost != 0 || count.trailing_zeros() > Self::SPARE_BITS {
            return None;
        }
        let quotient = self.0.quotient(count, 0)?;
        quotient[KEY..].iter().all(|&byte| byte == 0).then_some(Wide(quotient))
    }

    #[inline]
    fn write(&self, out: &mut [u8]) {
        self.0.write(out);
    }

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Wide(Sum::read(bytes))
    }
}

impl<const KEY: usize, const SUM: usize> Key for Wide<KEY, SUM> {
    #[inline]
    fn block(&self, at: usize) -> u128 {
        self.0.block(at)
    }
}
