//! Values that carry a check of their own, so that a value sum can be told from noise.
//!
//! What enters: a payload of the caller's, and the placement hash of its key. What leaves: a 64-bit value, and whether
//! one is genuine. It does the work of the paper's `hashvalueSum` (section 3) in the value sum itself: noise passes
//! once in 2^40. The key's check covers the key alone: a key with several values still verifies. Which value is its own
//! is told by the 40 bits that every value carries beside its payload, a keyed function of the key's placement hash and
//! the payload.

use crate::hash::{HASH_GROUP_COUNT, KeyedHash};
use crate::sketch::TableKey;

/// The bits of a value that are the caller's.
pub const PAYLOAD_BITS: u32 = 24;

const PAYLOAD_MASK: u64 = (1 << PAYLOAD_BITS) - 1;

/// Encodes payloads into values and tells whether a value belongs to a key.
#[derive(Clone)]
pub struct ValueCode<K> {
    hash: KeyedHash<K>,
}

impl<K: TableKey> ValueCode<K> {
    /// The code that uses this function, which must be that for [`Purpose::Value`](crate::hash::Purpose::Value).
    #[must_use]
    pub fn new(hash: KeyedHash<K>) -> Self {
        ValueCode { hash }
    }

    /// The value of `payload` (its low [`PAYLOAD_BITS`]) for the key with this placement hash.
    #[must_use]
    #[inline]
    pub fn encode(&self, placement: u128, payload: u32) -> u64 {
        let payload = u64::from(payload) & PAYLOAD_MASK;
        Self::checked(self.hash.of_block(placement ^ u128::from(payload)), payload)
    }

    /// The values of a group of payloads, as by [`Self::encode`], each for the key with the placement hash at its place: a
    /// quarter of the time.
    #[must_use]
    #[inline]
    pub fn encode_group(
        &self,
        placements: &[u128; HASH_GROUP_COUNT],
        payloads: &[u32; HASH_GROUP_COUNT],
    ) -> [u64; HASH_GROUP_COUNT] {
        let payloads = payloads.map(|payload| u64::from(payload) & PAYLOAD_MASK);
        let mut blocks = std::array::from_fn(|at| placements[at] ^ u128::from(payloads[at]));
        self.hash.of_blocks(&mut blocks);
        std::array::from_fn(|at| Self::checked(blocks[at], payloads[at]))
    }

    /// A payload with its check, which is the low bits of a hash.
    #[inline]
    fn checked(hash: u128, payload: u64) -> u64 {
        (hash as u64) << PAYLOAD_BITS | payload
    }

    /// The payload of a value.
    #[must_use]
    pub fn payload(value: u64) -> u32 {
        (value & PAYLOAD_MASK) as u32
    }

    /// Whether `value` is that of some payload for the key with this placement hash.
    #[must_use]
    pub fn belongs(&self, placement: u128, value: u64) -> bool {
        self.encode(placement, Self::payload(value)) == value
    }
}
