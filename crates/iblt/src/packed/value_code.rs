//! Values that carry a check of their own, so that a value sum can be distinguished from noise.
//!
//! This does the work of the paper's `hashvalueSum` (section 3) in the value sum itself. The key's check covers the key
//! alone, so a key with several values still verifies. Whether a value is the key's own is decided by the 40 bits that
//! every value carries beside its payload: a keyed function of the key's placement hash and the payload. Noise passes
//! with a probability of 2^-40.

use crate::TableKey;
use crate::hash::{HASH_BATCH_COUNT, HashBatch, KeyedHash};

/// The bits of a value that belong to the caller.
pub const PAYLOAD_BITS: u32 = 24;

const PAYLOAD_MASK: u64 = (1 << PAYLOAD_BITS) - 1;

/// Encodes payloads into values, and decides whether a value belongs to a key.
///
/// ```
/// use flowpeel_iblt::ValueCode;
/// use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
///
/// let hash = KeyedHash::<[u64; 2]>::new(&Secret::REPLAY, Purpose::Placement).of(&[1, 2]);
/// let code = ValueCode::<[u64; 2]>::new(KeyedHash::new(&Secret::REPLAY, Purpose::Value));
/// let value = code.encode(hash, 1_234);
/// assert!(code.belongs(hash, value) && ValueCode::<[u64; 2]>::payload(value) == 1_234);
/// assert!(!code.belongs(hash ^ 1, value) && !code.belongs(hash, value + 1));
/// ```
#[derive(Clone)]
pub struct ValueCode<K> {
    hash: KeyedHash<K>,
}

impl<K: TableKey> ValueCode<K> {
    /// The code that uses this function, which must be the one for [`Purpose::Value`](crate::hash::Purpose::Value).
    #[must_use]
    pub fn new(hash: KeyedHash<K>) -> Self {
        ValueCode { hash }
    }

    /// The value of `payload` (its low [`PAYLOAD_BITS`]) for the key with this placement hash.
    #[must_use]
    #[inline]
    pub fn encode(&self, placement: u128, payload: u32) -> u64 {
        Self::of_image(self.hash.of_block(Self::block(placement, payload)), payload)
    }

    /// The block whose image becomes the value of `payload` for the key with this placement hash.
    #[must_use]
    #[inline]
    pub(super) fn block(placement: u128, payload: u32) -> u128 {
        placement ^ u128::from(u64::from(payload) & PAYLOAD_MASK)
    }

    /// Replaces the first `count` blocks by their images, of which [`Self::of_image`] makes values. That takes an
    /// eighth of the time of mapping them one by one.
    #[inline]
    pub(super) fn map(&self, blocks: &mut HashBatch, count: usize) {
        self.hash.of_hashes(blocks, count);
    }

    /// The value of `payload`, from the image of its block: the payload and its check, the low bits of the image.
    #[must_use]
    #[inline]
    pub(super) fn of_image(image: u128, payload: u32) -> u64 {
        (image as u64) << PAYLOAD_BITS | u64::from(payload) & PAYLOAD_MASK
    }

    /// The payload of a value.
    #[must_use]
    pub fn payload(value: u64) -> u32 {
        (value & PAYLOAD_MASK) as u32
    }

    /// Whether `value` is the value of some payload for the key with this placement hash.
    #[must_use]
    pub fn belongs(&self, placement: u128, value: u64) -> bool {
        self.encode(placement, Self::payload(value)) == value
    }

    /// Checks up to [`HASH_BATCH_COUNT`] pairs together as [`Self::belongs`] does, in a fraction of the time. Verdicts
    /// beyond that stay unchanged.
    #[inline]
    pub fn belong(&self, placements: &[u128], values: &[u64], verdicts: &mut [bool]) {
        let count = placements.len().min(values.len()).min(verdicts.len()).min(HASH_BATCH_COUNT);
        let mut blocks = HashBatch::default();
        (0..count).for_each(|at| blocks.set(at, Self::block(placements[at], Self::payload(values[at]))));
        self.map(&mut blocks, count);
        (0..count)
            .for_each(|at| verdicts[at] = Self::of_image(blocks.get(at), Self::payload(values[at])) == values[at]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{Purpose, Secret};
    use crate::word_key::examples::TwoWords;

    #[test]
    fn values_are_checked_together_as_they_are_one_by_one() {
        let code = ValueCode::<TwoWords>::new(KeyedHash::new(&Secret::REPLAY, Purpose::Value));
        for count in [0, 1, 7, 21, 22, HASH_BATCH_COUNT] {
            let placements: Vec<u128> = (0..count as u128).map(|at| at << 96 ^ at).collect();
            let spoilt = |at: usize| u64::from(at % 3 == 1) << (at % 64);
            let values = (0..).zip(&placements).map(|(at, hash)| code.encode(*hash, 5 * at as u32) ^ spoilt(at));
            let values: Vec<u64> = values.collect();
            let mut verdicts = vec![false; count];
            code.belong(&placements, &values, &mut verdicts);
            for at in 0..count {
                assert_eq!((verdicts[at], verdicts[at]), (spoilt(at) == 0, code.belongs(placements[at], values[at])));
            }
        }
    }
}
