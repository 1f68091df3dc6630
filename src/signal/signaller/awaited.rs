//! Handshakes whose SYN or SYN-ACK is still in the stage, so that no cache knows of them.
//!
//! What enters: connections, each with the side that it waits for. What leaves: whether a packet is one that is waited
//! for.

use super::stage::STAGE_COUNT;
use crate::flow::Side;

/// The handshakes in the stage that wait for a packet.
pub(super) struct Awaited {
    /// A bit for each of them, in enough words that few other connections share one.
    bits: [u64; AWAITED_WORD_COUNT],
    /// The hashes of their connections, each with the side that it waits for.
    waiting: Vec<(u64, Side)>,
}

const AWAITED_WORD_COUNT: usize = 8;

impl Awaited {
    pub(super) fn new() -> Self {
        // A SYN adds one, and a SYN-ACK one, or with --one-way two.
        Awaited { bits: Default::default(), waiting: Vec::with_capacity(2 * STAGE_COUNT) }
    }

    #[inline]
    fn place(quick_hash: u64) -> (usize, u64) {
        (quick_hash as usize / 64 % AWAITED_WORD_COUNT, 1 << (quick_hash % 64))
    }

    fn mark(&mut self, quick_hash: u64) {
        let (word, bit) = Awaited::place(quick_hash);
        self.bits[word] |= bit;
    }

    pub(super) fn put(&mut self, quick_hash: u64, side: Side) {
        self.mark(quick_hash);
        self.waiting.push((quick_hash, side));
    }

    #[inline]
    pub(super) fn may_hold(&self, quick_hash: u64) -> bool {
        let (word, bit) = Awaited::place(quick_hash);
        self.bits[word] & bit != 0
    }

    /// Removes a connection if it waits for a packet of this side, and returns whether it did.
    pub(super) fn take(&mut self, quick_hash: u64, side: Side) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != (quick_hash, side));
        let is_taken = self.waiting.len() < before;
        if is_taken {
            self.bits = Default::default();
            (0..self.waiting.len()).for_each(|at| self.mark(self.waiting[at].0));
        }
        is_taken
    }

    pub(super) fn clear(&mut self) {
        self.bits = Default::default();
        self.waiting.clear();
    }
}
