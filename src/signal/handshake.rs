//! Handshakes that wait for the client's answer: of all packets without a flag only that answer is forwarded, and the
//! cache says whether it completes the handshake: its sequence number then follows the client's initial one (ISN).
//!
//! A set-associative cache of 8-byte tags, shared by the capture threads, because a SYN-ACK and its ACK may come
//! in on different interfaces. A SYN-ACK puts a tag in; the first packet of its client takes it out. A few bits for
//! each set say whether any handshake waits there. For most sets they say no, and the look-up ends there.
//!
//! The cache may lose a handshake: a flood of answered SYNs evicts the oldest. Such losses are counted, and which
//! connections they were of is remembered, so that their next packets are seen, and a sample of others, for as long as
//! a lost handshake may still be completed.

use crate::error::Result;
use crate::flow::Side;
use crate::signal::SignalKind;
use crate::signal::clock::TICK_NS;
use crate::signal::recent::RecentConnections;
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::{GOLDEN_32, place_of};
use flowpeel_lines::{Lines, SharedLine, prefetch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// How far one capture thread's packets may be ahead of another's, in nanoseconds: half a minute, more than lies in any
/// kernel ring that loses nothing. A handshake that is older than its time stamp can count looks young again for this
/// long and for its timeout, once in 73 minutes.
pub const CAPTURE_AHEAD_MAX_NS: i64 = 1 << 35;

/// The longest `--syn-timeout`, in ticks of 100 ms: ten minutes, far beyond the last retransmission of any SYN.
pub const SYN_TIMEOUT_MAX_TICKS: u64 = 6_000;

/// The handshakes that there is room for: those of one second on a line with a million SYN-ACKs a second, in 8 MiB. How
/// many come at once depends on the line, not on how many connections are to be tracked.
pub const HANDSHAKES_DEFAULT: usize = 1 << 20;

/// The handshakes of the near level: a round trip of a tenth of a second at a line of a million SYN-ACKs a second.
const NEAR_HANDSHAKE_COUNT: usize = 1 << 17;

/// The bits of a hash that choose the set: in the near level those above the tag's, so that set and tag together have
/// as many as can be; in the far one such as a tag has too, because it is all that is left of a hash.
const NEAR_INDEX_SHIFT: u32 = u32::BITS;
const FAR_INDEX_SHIFT: u32 = 1;

/// How many of the connections whose handshakes were lost lately are remembered.
const LOST_COUNT: usize = 1 << 15;

/// Tags in a set, which is a cache line of them.
const WAY_COUNT: usize = size_of::<SharedLine>() / size_of::<u64>();
/// Bits of the time stamp in a tag.
const STAMP_BITS: u32 = 20;
/// Stamps count steps of 2^22 ns (4.2 ms): a flood takes a few of them to fill the cache.
const STAMP_SHIFT: u32 = 22;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
/// Bits of the client's ISN in a tag, hashed; zero if it is unknown.
pub const ISN_BITS: u32 = 8;
const ISN_SHIFT: u32 = STAMP_BITS + 2;
const ISN_MASK: u64 = (1 << ISN_BITS) - 1;
/// The hash is in the bits above: its low 34 bits.
const HASH_SHIFT: u32 = ISN_SHIFT + ISN_BITS;

/// [`CAPTURE_AHEAD_MAX_NS`] in stamps.
const AHEAD_MAX: u64 = CAPTURE_AHEAD_MAX_NS as u64 >> STAMP_SHIFT;

const _: () = assert!(
    (SYN_TIMEOUT_MAX_TICKS * TICK_NS as u64) >> STAMP_SHIFT < STAMP_MASK - AHEAD_MAX,
    "a stamp must not wrap while its handshake may wait"
);

/// Classes of hashes in a set: each has a bit that says whether a handshake of the class waits there. Two, so that all
/// these bits stay in the first-level cache beside everything else.
const CLASS_COUNT: usize = 2;
/// Such bits in a word, of which they are the lower half.
const WAITING_BIT_COUNT: usize = u32::BITS as usize;

/// The sets of tags of one level, and which of them have waiting handshakes. The set is chosen by 32 bits of the hash
/// from bit `INDEX_SHIFT` on.
struct Level<const INDEX_SHIFT: u32> {
    /// The sets of tags.
    sets: Lines<SharedLine>,
    /// Which sets have waiting handshakes, as a bit for each class in the lower half of a word: few enough bytes for
    /// the first-level cache, since every packet reads one. The upper half counts insertions, so that no thread clears
    /// the bit that another has just set.
    waiting: Box<[AtomicU64]>,
    /// Whether several threads write to the cache.
    is_shared: bool,
}

/// The cache. Its memory is fixed when it is made.
///
/// It has two levels: the near one is small enough to stay in the processor's caches, and what is still waiting when
/// its set is full moves to the far one, which only floods touch.
pub struct HandshakeCache {
    near: Level<NEAR_INDEX_SHIFT>,
    far: Option<Level<FAR_INDEX_SHIFT>>,
    /// Whether anything has moved to the far level.
    is_far_used: AtomicBool,
    /// The connections whose handshakes were lost lately.
    lost: RecentConnections,
    /// How long a handshake waits, in stamps.
    timeout: u64,
}

impl<const INDEX_SHIFT: u32> Level<INDEX_SHIFT> {
    fn new(handshake_count: usize) -> Self {
        let set_count = Self::set_count(handshake_count);
        let waiting = (0..Self::word_count(set_count)).map(|_| AtomicU64::new(0)).collect();
        Level { sets: Lines::new(set_count), waiting, is_shared: true }
    }

    fn for_one_thread(self) -> Self {
        Level { is_shared: false, ..self }
    }

    fn size(handshake_count: usize) -> usize {
        let set_count = Self::set_count(handshake_count);
        set_count * size_of::<SharedLine>() + Self::word_count(set_count) * size_of::<u64>()
    }

    fn set_count(handshake_count: usize) -> usize {
        handshake_count.div_ceil(WAY_COUNT).max(1)
    }

    fn word_count(set_count: usize) -> usize {
        (set_count * CLASS_COUNT).div_ceil(WAITING_BIT_COUNT)
    }

    #[inline]
    fn set_index(&self, hash: u64) -> usize {
        place_of((hash >> INDEX_SHIFT) as u32, self.sets.len())
    }

    /// Whether no handshake of this connection's class waits in its set.
    #[inline]
    fn is_idle(&self, hash: u64) -> bool {
        let (word, bit) = self.waiting_bit(self.set_index(hash), class(hash));
        word.load(Relaxed) & bit == 0
    }

    /// The word that has the bit of a class in a set, and the bit.
    #[inline]
    fn waiting_bit(&self, index: usize, class: usize) -> (&AtomicU64, u64) {
        let at = index * CLASS_COUNT + class;
        (&self.waiting[at / WAITING_BIT_COUNT], 1 << (at % WAITING_BIT_COUNT))
    }

    /// Replaces a word that was read as `there`. False if another thread has changed it since.
    #[inline]
    fn replace(&self, word: &AtomicU64, there: u64, new: u64) -> bool {
        if self.is_shared {
            return word.compare_exchange(there, new, SeqCst, Relaxed).is_ok();
        }
        word.store(new, Relaxed);
        true
    }

    /// Sets the bit of a class in a set.
    fn mark(&self, index: usize, class: usize) {
        let (word, bit) = self.waiting_bit(index, class);
        loop {
            // The count changes even if the bit is set already: a thread that is about to clear the bit then notices.
            let before = word.load(Relaxed);
            if self.replace(word, before, before.wrapping_add(1 << WAITING_BIT_COUNT) | bit) {
                return;
            }
        }
    }

    #[inline]
    fn prefetch_set(&self, hash: u64) {
        prefetch(&self.sets[self.set_index(hash)]);
    }

    /// Puts a tag of the connection with this hash in, and returns the tag of another connection that was evicted for
    /// it, or zero; `None` if other threads took every place.
    fn put(&self, hash: u64, tag: u64) -> Option<u64> {
        let index = self.set_index(hash);
        // Another thread may take the place at the same moment; then the next try finds another.
        for _ in 0..WAY_COUNT {
            let (way, there) = self.place(index, tag);
            if self.replace(&self.sets[index].0[way], there, tag) {
                self.mark(index, class(hash));
                if there == 0 || same(there, tag) {
                    return Some(0);
                }
                self.unmark_if_last(index, there);
                return Some(there);
            }
        }
        None
    }

    /// The place in a set for this tag, and the tag that is there now: the first place that is free or has the same
    /// handshake, otherwise the oldest. (If a free place comes first, the handshake has two tags until it is taken.)
    fn place(&self, index: usize, tag: u64) -> (usize, u64) {
        let mut oldest = (0, 0);
        let mut oldest_age = 0;
        for (way, slot) in self.sets[index].0.iter().enumerate() {
            let there = slot.load(Relaxed);
            if there == 0 || same(there, tag) {
                return (way, there);
            }
            let age = age(there, tag);
            if way == 0 || age >= oldest_age {
                (oldest, oldest_age) = ((way, there), age);
            }
        }
        oldest
    }

    /// Clears a place unless it has changed since it was read, and the bit of the class if the tag was its last in the
    /// set.
    fn clear(&self, index: usize, way: usize, there: u64) {
        if self.replace(&self.sets[index].0[way], there, 0) {
            self.unmark_if_last(index, there);
        }
    }

    /// Clears the bit of a tag's class in a set if no other tag of that class is there.
    fn unmark_if_last(&self, index: usize, tag: u64) {
        let class_of_tag = class(tag >> HASH_SHIFT);
        let (word, bit) = self.waiting_bit(index, class_of_tag);
        let before = word.load(SeqCst);
        let is_other = |tag: u64| tag == 0 || class(tag >> HASH_SHIFT) != class_of_tag;
        if self.sets[index].0.iter().all(|slot| is_other(slot.load(SeqCst))) {
            // If this fails, a tag of the class has been put in meanwhile. A bit that is set for nothing only costs a
            // look-up.
            self.replace(word, before, before & !bit);
        }
    }

    /// Removes the tags of the same handshake as `tag`, as [`HandshakeCache::take`].
    #[inline]
    fn take(&self, hash: u64, tag: u64, timeout: u64) -> Option<SignalKind> {
        let index = self.set_index(hash);
        let mut found = None;
        for (way, slot) in self.sets[index].0.iter().enumerate() {
            let there = slot.load(Relaxed);
            let is_same = there != 0 && same(there, tag);
            // Tags that have timed out are cleared in passing, so that the sets become empty again after a flood.
            if there != 0 && (is_same || age(there, tag) > timeout) {
                self.clear(index, way, there);
            }
            if is_same {
                // A handshake that has timed out here may have been given up by its tracker already.
                let is_waiting = age(there, tag) < timeout;
                let is_next = is_waiting && (there ^ tag) & ISN_MASK << ISN_SHIFT == 0;
                let has_completed = found == Some(SignalKind::Completes);
                found = Some(if is_next || has_completed { SignalKind::Completes } else { SignalKind::Ack });
            }
        }
        found
    }

    /// Writes the level into a saved state.
    fn save(&self, encoder: &mut Encoder) {
        let tags = || self.sets.iter().flat_map(|set| &set.0).map(|tag| tag.load(Relaxed));
        encoder.length(tags().filter(|tag| *tag != 0).count());
        for (place, tag) in tags().enumerate().filter(|(_, tag)| *tag != 0) {
            encoder.u64(place as u64);
            encoder.u64(tag);
        }
        // A bit may be set although no handshake waits there any more, and what is sampled depends on it.
        encoder.length(self.waiting.len());
        self.waiting.iter().for_each(|word| encoder.u64(word.load(Relaxed)));
    }

    /// Fills an empty level from a saved state.
    fn restore(&self, decoder: &mut Decoder) -> Result<()> {
        let count = decoder.length(2 * size_of::<u64>(), self.sets.len() * WAY_COUNT)?;
        for _ in 0..count {
            let (place, tag) = (usize::try_from(decoder.u64()?).unwrap_or(usize::MAX), decoder.u64()?);
            let set = decoder.some(self.sets.get(place / WAY_COUNT), "a handshake out of place")?;
            set.0[place % WAY_COUNT].store(tag, Relaxed);
        }
        let count = decoder.length(size_of::<u64>(), self.waiting.len())?;
        decoder.expect(count == self.waiting.len(), "a cache of another size")?;
        for word in &self.waiting {
            word.store(decoder.u64()?, Relaxed);
        }
        Ok(())
    }
}

/// The class of a hash, which is also the class of its tag.
#[inline]
fn class(hash: u64) -> usize {
    hash as usize % CLASS_COUNT
}

/// A tag: hash, hashed ISN, stamp and side. Never zero, because the lowest bit is set.
#[inline]
fn tag(hash: u64, waits_for: Side, isn: u64, now_ns: i64) -> u64 {
    let stamp = (now_ns >> STAMP_SHIFT) as u64 & STAMP_MASK;
    hash << HASH_SHIFT | isn << ISN_SHIFT | stamp << 2 | u64::from(waits_for == Side::Second) << 1 | 1
}

/// The hash of an ISN that a tag keeps. Never zero.
#[inline]
fn short_isn(isn: u32) -> u64 {
    u64::from(isn.wrapping_mul(GOLDEN_32) >> (u32::BITS - ISN_BITS)).max(1)
}

/// Whether two tags are of one connection and wait for the same side.
#[inline]
fn same(tag: u64, other: u64) -> bool {
    (tag ^ other) & !(STAMP_MASK << 2 | ISN_MASK << ISN_SHIFT) == 0
}

/// The age of a tag in stamps; zero if the thread that put it in is ahead of this one.
#[inline]
fn age(tag: u64, now: u64) -> u64 {
    let age = (now >> 2).wrapping_sub(tag >> 2) & STAMP_MASK;
    if age > STAMP_MASK - AHEAD_MAX { 0 } else { age }
}

impl HandshakeCache {
    /// A cache for at least this many handshakes, each of which waits for at most `timeout_ns`, to the precision of a
    /// stamp (4.2 ms).
    #[must_use]
    pub fn new(handshake_count: usize, timeout_ns: i64) -> Self {
        let near_count = handshake_count.min(NEAR_HANDSHAKE_COUNT);
        HandshakeCache {
            near: Level::new(near_count),
            far: (handshake_count > near_count).then(|| Level::new(handshake_count - near_count)),
            is_far_used: AtomicBool::new(false),
            lost: RecentConnections::new(LOST_COUNT),
            timeout: timeout_ns.max(0) as u64 >> STAMP_SHIFT,
        }
    }

    /// This cache for use by one thread alone, which then writes without locked instructions. (If two threads wrote,
    /// one could undo what the other wrote: handshakes would be lost uncounted.)
    #[must_use]
    pub fn for_one_thread(self) -> Self {
        HandshakeCache { near: self.near.for_one_thread(), far: self.far.map(Level::for_one_thread), ..self }
    }

    /// The memory that a cache for this many handshakes takes, in bytes.
    #[must_use]
    pub fn size(handshake_count: usize) -> usize {
        let near_count = handshake_count.min(NEAR_HANDSHAKE_COUNT);
        let far_count = handshake_count - near_count;
        let far_size = if far_count > 0 { Level::<FAR_INDEX_SHIFT>::size(far_count) } else { 0 };
        Level::<NEAR_INDEX_SHIFT>::size(near_count) + far_size + RecentConnections::size(LOST_COUNT)
    }

    /// Whether no handshake of this connection's class waits in its sets, so that [`Self::take`] would find nothing.
    /// True for most.
    #[must_use]
    #[inline]
    pub fn is_idle(&self, hash: u64) -> bool {
        self.near.is_idle(hash) && (!self.is_far_used.load(Relaxed) || self.is_far_idle(hash))
    }

    #[inline(never)]
    fn is_far_idle(&self, hash: u64) -> bool {
        self.far.as_ref().is_none_or(|far| far.is_idle(hash))
    }

    /// The far level, once something has moved there.
    #[inline]
    fn used_far(&self) -> Option<&Level<FAR_INDEX_SHIFT>> {
        self.far.as_ref().filter(|_| self.is_far_used.load(Relaxed))
    }

    /// Prefetches the set that [`Self::put`] and [`Self::take`] read first.
    #[inline]
    pub fn prefetch_set(&self, hash: u64) {
        self.near.prefetch_set(hash);
    }

    /// Remembers that this connection's handshake waits for a packet of `waits_for`. `isn` is the client's ISN if the
    /// handshake waits for the client's answer to a SYN-ACK, and `None` otherwise. The result is true if another
    /// handshake that was still waiting was lost for it.
    pub fn put(&self, hash: u64, waits_for: Side, isn: Option<u32>, now_ns: i64) -> bool {
        let tag = tag(hash, waits_for, isn.map_or(0, short_isn), now_ns);
        let Some(evicted) = self.near.put(hash, tag) else {
            self.lost.put(hash);
            return true;
        };
        evicted != 0 && age(evicted, tag) <= self.timeout && self.move_to_far(evicted)
    }

    /// Moves a handshake that is still waiting to the far level, and returns whether one was lost for it.
    #[cold]
    fn move_to_far(&self, tag: u64) -> bool {
        let hash = tag >> HASH_SHIFT;
        let Some(far) = &self.far else {
            self.lost.put(hash);
            return true;
        };
        self.is_far_used.store(true, Relaxed);
        let evicted = far.put(hash, tag);
        let is_lost = evicted != Some(0) && age(evicted.unwrap_or(tag), tag) <= self.timeout;
        if is_lost {
            self.lost.put(evicted.map_or(hash, |evicted| evicted >> HASH_SHIFT));
        }
        is_lost
    }

    /// Whether a handshake of this connection may have been lost lately.
    #[must_use]
    #[inline]
    pub fn may_have_lost(&self, hash: u64) -> bool {
        self.lost.may_hold(hash)
    }

    /// Removes this connection's handshake, whichever side it waits for: the connection was reset.
    pub fn give_up(&self, hash: u64, now_ns: i64) {
        if !self.is_idle(hash) {
            for side in [Side::First, Side::Second] {
                self.take(hash, side, 0, now_ns);
            }
        }
    }

    /// Removes this connection's handshake if it waits for a packet of `sender`, and returns the kind that a packet
    /// without a flag then is: [`SignalKind::Completes`] if `isn`, the number before its sequence number, is the
    /// client's ISN (or, once in 255 times, has the same hash), and otherwise [`SignalKind::Ack`]. `None` if no
    /// handshake was waiting.
    #[inline]
    pub fn take(&self, hash: u64, sender: Side, isn: u32, now_ns: i64) -> Option<SignalKind> {
        let tag = tag(hash, sender, short_isn(isn), now_ns);
        let near = self.near.take(hash, tag, self.timeout);
        let Some(far) = self.used_far().filter(|far| !far.is_idle(hash)) else { return near };
        let far = far.take(hash, tag, self.timeout);
        if far == Some(SignalKind::Completes) { far } else { near.or(far) }
    }

    /// Writes the cache into a saved state. No other thread may be using it.
    ///
    /// Complexity: a pass over its memory.
    pub fn save(&self, encoder: &mut Encoder) {
        self.near.save(encoder);
        encoder.option(self.used_far(), |encoder, far| far.save(encoder));
        self.lost.save(encoder);
    }

    /// Fills an empty cache from a saved state. After an error the cache is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a cache of this size.
    pub fn restore(&self, decoder: &mut Decoder) -> Result<()> {
        self.near.restore(decoder)?;
        let far = decoder.option(|decoder| {
            let far = decoder.some(self.far.as_ref(), "a cache of another size")?;
            far.restore(decoder)
        })?;
        self.is_far_used.store(far.is_some(), Relaxed);
        self.lost.restore(decoder)
    }
}

#[cfg(test)]
mod tests;
