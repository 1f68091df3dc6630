//! Handshakes that wait for the client's answer, so that of all packets without a flag only that answer is forwarded.
//!
//! What enters: SYN-ACKs, and the packets that may be the answer. What leaves: whether a packet is one.
//!
//! A small set-associative cache of 8-byte tags, shared by the capture threads (a SYN-ACK and the ACK may come in on
//! different interfaces). A SYN-ACK puts a tag in; the first packet of its client takes it out. One byte a set says
//! which of its places are taken: most sets are empty, and the look-up ends there.
//!
//! The cache may lose a handshake (a flood of answered SYNs pushes the oldest out; so may two threads that write one set
//! at the same moment). Losses it sees are counted, and the caller then samples other packets until they are made good.

use crate::config::{SYN_TIMEOUT_MAX_TICKS, TICK_NS};
use crate::flow::Side;
use crate::hash::place_of;
use crate::prefetch::prefetch;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Tags in a set: a cache line of them.
const WAY_COUNT: usize = 8;
/// Bits of the time stamp in a tag.
const STAMP_BITS: u32 = 20;
/// Stamps count steps of 2^22 ns (4.2 ms): a flood fills the cache within a few of them.
const STAMP_SHIFT: u32 = 22;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

const _: () = assert!(
    (SYN_TIMEOUT_MAX_TICKS * TICK_NS as u64) >> STAMP_SHIFT < STAMP_MASK / 2,
    "a stamp must not wrap while its handshake may wait"
);

#[repr(align(64))]
struct Set([AtomicU64; WAY_COUNT]);

/// The cache: memory is fixed when it is made.
pub struct HandshakeCache {
    sets: Box<[Set]>,
    taken: Box<[AtomicU8]>,
    /// How long a handshake waits, in stamps.
    timeout: u64,
}

impl HandshakeCache {
    /// A cache for at least this many handshakes, each of which waits for at most `timeout_ns`, to the length of a
    /// stamp (4.2 ms).
    #[must_use]
    pub fn new(handshake_count: usize, timeout_ns: i64) -> Self {
        let set_count = handshake_count.div_ceil(WAY_COUNT).max(1);
        HandshakeCache {
            sets: (0..set_count).map(|_| Set(Default::default())).collect(),
            taken: (0..set_count).map(|_| AtomicU8::new(0)).collect(),
            timeout: timeout_ns.max(0) as u64 >> STAMP_SHIFT,
        }
    }

    /// The memory that a cache for this many handshakes takes, in bytes.
    #[must_use]
    pub fn size(handshake_count: usize) -> usize {
        handshake_count.div_ceil(WAY_COUNT).max(1) * (size_of::<Set>() + 1)
    }

    fn set_index(&self, hash: u64) -> usize {
        place_of((hash >> u32::BITS) as u32, self.sets.len())
    }

    /// Whether no handshake waits in this connection's set, as in most: then [`Self::take`] would find nothing.
    #[must_use]
    #[inline]
    pub fn is_idle(&self, hash: u64) -> bool {
        self.taken[self.set_index(hash)].load(Relaxed) == 0
    }

    /// Asks for what [`Self::put`] and [`Self::take`] read.
    #[inline]
    pub fn prefetch_set(&self, hash: u64) {
        prefetch(&self.sets[self.set_index(hash)]);
    }

    /// The low 42 bits of the hash, a stamp, and the side; never zero, because the lowest bit is set.
    #[inline]
    fn tag(hash: u64, waits_for: Side, now_ns: i64) -> u64 {
        let stamp = (now_ns >> STAMP_SHIFT) as u64 & STAMP_MASK;
        hash << (STAMP_BITS + 2) | stamp << 2 | u64::from(waits_for == Side::Second) << 1 | 1
    }

    #[inline]
    fn same(tag: u64, other: u64) -> bool {
        (tag ^ other) & !(STAMP_MASK << 2) == 0
    }

    /// How long ago a tag was put in, in stamps.
    #[inline]
    fn age(tag: u64, now: u64) -> u64 {
        (now >> 2).wrapping_sub(tag >> 2) & STAMP_MASK
    }

    /// Remembers that this connection's handshake waits for a packet of `waits_for`. The answer is true when another
    /// handshake that was still waiting had to go for it.
    pub fn put(&self, hash: u64, waits_for: Side, now_ns: i64) -> bool {
        let index = self.set_index(hash);
        let tag = Self::tag(hash, waits_for, now_ns);
        let mut place = (0, 0);
        for (way, slot) in self.sets[index].0.iter().enumerate() {
            let there = slot.load(Relaxed);
            if there == 0 || Self::same(there, tag) {
                place = (way, 0);
                break;
            }
            let age = Self::age(there, tag);
            if age >= place.1 {
                place = (way, age + 1);
            }
        }
        let (way, age) = place;
        self.sets[index].0[way].store(tag, Relaxed);
        self.taken[index].fetch_or(1 << way, Relaxed);
        age != 0 && age - 1 <= self.timeout
    }

    /// Whether this connection's handshake was waiting for a packet of `sender`; it no longer is.
    #[inline]
    pub fn take(&self, hash: u64, sender: Side, now_ns: i64) -> bool {
        let index = self.set_index(hash);
        let tag = Self::tag(hash, sender, now_ns);
        let mut found = false;
        for (way, slot) in self.sets[index].0.iter().enumerate() {
            let there = slot.load(Relaxed);
            let same = there != 0 && Self::same(there, tag);
            // What has waited too long is cleared in passing: after a flood the sets become empty again.
            if there != 0 && (same || Self::age(there, tag) > self.timeout) {
                slot.store(0, Relaxed);
                self.taken[index].fetch_and(!(1 << way), Relaxed);
            }
            found |= same;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT_NS: i64 = 60_000_000_000;

    fn hash(seed: u64) -> u64 {
        (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn the_first_packet_of_the_client_is_told_once() {
        let cache = HandshakeCache::new(1024, TIMEOUT_NS);
        assert!(!cache.take(hash(1), Side::First, 0));
        assert!(!cache.put(hash(1), Side::First, 0));
        assert!(!cache.take(hash(1), Side::Second, 0));
        assert!(!cache.take(hash(2), Side::First, 0));
        assert!(cache.take(hash(1), Side::First, 5));
        assert!(!cache.take(hash(1), Side::First, 6));
    }

    #[test]
    fn a_flood_pushes_out_the_oldest_and_says_so() {
        let cache = HandshakeCache::new(WAY_COUNT, TIMEOUT_NS);
        for seed in 0..WAY_COUNT as u64 {
            assert!(!cache.put(hash(seed), Side::First, (seed as i64) << STAMP_SHIFT));
        }
        assert!(cache.put(hash(100), Side::First, 100 << STAMP_SHIFT));
        assert!(!cache.take(hash(0), Side::First, 100 << STAMP_SHIFT));
        for seed in (1..WAY_COUNT as u64).chain([100]) {
            assert!(cache.take(hash(seed), Side::First, 100 << STAMP_SHIFT), "{seed}");
        }
    }

    #[test]
    fn what_waited_too_long_makes_room_without_a_loss() {
        let cache = HandshakeCache::new(WAY_COUNT, TIMEOUT_NS);
        for seed in 0..WAY_COUNT as u64 {
            cache.put(hash(seed), Side::First, 0);
        }
        let later = TIMEOUT_NS + (2 << STAMP_SHIFT);
        assert!(!cache.put(hash(50), Side::Second, later));
        assert!(cache.take(hash(50), Side::Second, later));
        assert!(!cache.take(hash(7), Side::First, later));
        assert_eq!(cache.taken[0].load(Relaxed), 0);
    }
}
