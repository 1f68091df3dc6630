//! Handshakes that wait for the client's answer, so that of all packets without a flag only that answer is forwarded.
//!
//! What enters: SYN-ACKs, and the packets that may be the answer. What leaves: whether a packet is one, and whether it is
//! the very one that completes the handshake: the first byte behind the client's initial sequence number.
//!
//! A small set-associative cache of 8-byte tags, shared by the capture threads (a SYN-ACK and the ACK may come in on
//! different interfaces). A SYN-ACK puts a tag in; the first packet of its client takes it out. A few bits a set say
//! whether anybody waits there: of most sets they say no, and the look-up ends there.
//!
//! The cache may lose a handshake: a flood of answered SYNs pushes the oldest out. Such losses are counted, and the
//! caller then samples other packets until they are made good.

mod saved;

use crate::config::{SYN_TIMEOUT_MAX_TICKS, TICK_NS};
use crate::flow::Side;
use crate::hash::{GOLDEN_32, place_of};
use crate::prefetch::prefetch;
use crate::signal::Kind;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Tags in a set: a cache line of them.
const WAY_COUNT: usize = 8;
/// Bits of the time stamp in a tag.
const STAMP_BITS: u32 = 20;
/// Stamps count steps of 2^22 ns (4.2 ms): a flood fills the cache within a few of them.
const STAMP_SHIFT: u32 = 22;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
/// Bits of the client's initial sequence number in a tag, hashed; zero when it is not known.
pub const NUMBER_BITS: u32 = 8;
const NUMBER_SHIFT: u32 = STAMP_BITS + 2;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// Above these the hash: its low 34 bits.
const HASH_SHIFT: u32 = NUMBER_SHIFT + NUMBER_BITS;

/// How far ahead of this thread's packets those of another may be, in stamps: half a minute, which is more than lies in any ring that
/// loses nothing. What is older than stamps can tell looks young again for this long and for the timeout, once in 73 minutes.
const AHEAD_MAX: u64 = 1 << 13;

const _: () = assert!(
    (SYN_TIMEOUT_MAX_TICKS * TICK_NS as u64) >> STAMP_SHIFT < STAMP_MASK - AHEAD_MAX,
    "a stamp must not wrap while its handshake may wait"
);

/// Classes of hashes in a set that are told apart by a bit each where somebody waits: as many as keep these bits few enough to stay
/// in the first-level cache beside what else goes through it.
const CLASS_COUNT: usize = 2;
/// Bits in a word of those.
const WAITING_BIT_COUNT: usize = u32::BITS as usize;

#[repr(align(64))]
struct Set([AtomicU64; WAY_COUNT]);

/// The cache: memory is fixed when it is made.
pub struct HandshakeCache {
    sets: Box<[Set]>,
    /// In which sets somebody waits, a bit for each class in the lower half of a word: few enough bytes to stay in the first-level
    /// cache, since every packet asks. The upper half counts handshakes that came, so that no thread clears the bit of one.
    waiting: Box<[AtomicU64]>,
    /// How long a handshake waits, in stamps.
    timeout: u64,
    /// Whether several threads write here.
    is_shared: bool,
}

impl HandshakeCache {
    /// A cache for at least this many handshakes, each of which waits for at most `timeout_ns`, to the length of a
    /// stamp (4.2 ms).
    #[must_use]
    pub fn new(handshake_count: usize, timeout_ns: i64) -> Self {
        let set_count = handshake_count.div_ceil(WAY_COUNT).max(1);
        HandshakeCache {
            sets: (0..set_count).map(|_| Set(Default::default())).collect(),
            waiting: (0..Self::word_count(set_count)).map(|_| AtomicU64::new(0)).collect(),
            timeout: timeout_ns.max(0) as u64 >> STAMP_SHIFT,
            is_shared: true,
        }
    }

    /// The same cache, for one thread alone, which then need not lock the line of each word that it writes. (Of two threads one could
    /// undo what the other wrote: handshakes would be lost uncounted.)
    #[must_use]
    pub fn for_one_thread(self) -> Self {
        HandshakeCache { is_shared: false, ..self }
    }

    /// The memory that a cache for this many handshakes takes, in bytes.
    #[must_use]
    pub fn size(handshake_count: usize) -> usize {
        let set_count = handshake_count.div_ceil(WAY_COUNT).max(1);
        set_count * size_of::<Set>() + Self::word_count(set_count) * size_of::<u64>()
    }

    fn word_count(set_count: usize) -> usize {
        (set_count * CLASS_COUNT).div_ceil(WAITING_BIT_COUNT)
    }

    #[inline]
    fn set_index(&self, hash: u64) -> usize {
        place_of((hash >> u32::BITS) as u32, self.sets.len())
    }

    /// Whether no handshake of this connection's class waits in its set, as in most: then [`Self::take`] would find nothing.
    #[must_use]
    #[inline]
    pub fn is_idle(&self, hash: u64) -> bool {
        let (word, bit) = self.waiting_bit(self.set_index(hash), Self::class(hash));
        word.load(Relaxed) & bit == 0
    }

    /// The class of a hash, which is also that of its tag.
    #[inline]
    fn class(hash: u64) -> usize {
        hash as usize % CLASS_COUNT
    }

    /// The bit of a class in a set, and the word that has it.
    #[inline]
    fn waiting_bit(&self, index: usize, class: usize) -> (&AtomicU64, u64) {
        let at = index * CLASS_COUNT + class;
        (&self.waiting[at / WAITING_BIT_COUNT], 1 << (at % WAITING_BIT_COUNT))
    }

    /// Replaces a word; whether that was done, because no other thread has since it was read.
    #[inline]
    fn replace(&self, word: &AtomicU64, there: u64, new: u64) -> bool {
        if self.is_shared {
            return word.compare_exchange(there, new, SeqCst, Relaxed).is_ok();
        }
        word.store(new, Relaxed);
        true
    }

    /// Marks a set as one in which somebody of a class waits.
    fn mark(&self, index: usize, class: usize) {
        let (word, bit) = self.waiting_bit(index, class);
        loop {
            // The count too: who is about to clear the bit must see that somebody came, even if the bit is set already.
            let before = word.load(Relaxed);
            if self.replace(word, before, before.wrapping_add(1 << WAITING_BIT_COUNT) | bit) {
                return;
            }
        }
    }

    /// Asks for what [`Self::put`] and [`Self::take`] read.
    #[inline]
    pub fn prefetch_set(&self, hash: u64) {
        prefetch(&self.sets[self.set_index(hash)]);
    }

    /// The hash, the number, a stamp, and the side; never zero, because the lowest bit is set.
    #[inline]
    fn tag(hash: u64, waits_for: Side, number: u64, now_ns: i64) -> u64 {
        let stamp = (now_ns >> STAMP_SHIFT) as u64 & STAMP_MASK;
        hash << HASH_SHIFT | number << NUMBER_SHIFT | stamp << 2 | u64::from(waits_for == Side::Second) << 1 | 1
    }

    /// What a tag keeps of a number: never zero.
    #[inline]
    fn number_of(number: u32) -> u64 {
        u64::from(number.wrapping_mul(GOLDEN_32) >> (u32::BITS - NUMBER_BITS)).max(1)
    }

    /// Whether both are of one connection and wait for the same side.
    #[inline]
    fn same(tag: u64, other: u64) -> bool {
        (tag ^ other) & !(STAMP_MASK << 2 | NUMBER_MASK << NUMBER_SHIFT) == 0
    }

    /// How long ago a tag was put in, in stamps: not at all, if a thread did whose packets are ahead of this one's.
    #[inline]
    fn age(tag: u64, now: u64) -> u64 {
        let age = (now >> 2).wrapping_sub(tag >> 2) & STAMP_MASK;
        if age > STAMP_MASK - AHEAD_MAX { 0 } else { age }
    }

    /// Remembers that this connection's handshake waits for a packet of `waits_for`; where that is the client and its SYN
    /// was answered, `number` is its initial sequence number. The answer is true when another handshake that was still
    /// waiting had to go for it.
    pub fn put(&self, hash: u64, waits_for: Side, number: Option<u32>, now_ns: i64) -> bool {
        let index = self.set_index(hash);
        let tag = Self::tag(hash, waits_for, number.map_or(0, Self::number_of), now_ns);
        // Another thread may take the place at the same moment; then there is another.
        for _ in 0..WAY_COUNT {
            let (way, there) = self.place(index, tag);
            if self.replace(&self.sets[index].0[way], there, tag) {
                self.mark(index, Self::class(hash));
                let has_pushed_out = there != 0 && !Self::same(there, tag);
                if has_pushed_out {
                    self.has_left(index, there);
                }
                return has_pushed_out && Self::age(there, tag) <= self.timeout;
            }
        }
        true
    }

    /// The place of a set that this tag is to have, and what is there: the first that is its own or free, else the oldest's. (Where a free
    /// one comes first it stands twice, until it is taken.)
    fn place(&self, index: usize, tag: u64) -> (usize, u64) {
        let mut oldest = (0, 0);
        let mut oldest_age = 0;
        for (way, slot) in self.sets[index].0.iter().enumerate() {
            let there = slot.load(Relaxed);
            if there == 0 || Self::same(there, tag) {
                return (way, there);
            }
            let age = Self::age(there, tag);
            if way == 0 || age >= oldest_age {
                (oldest, oldest_age) = ((way, there), age);
            }
        }
        oldest
    }

    /// Clears a place, unless something else has been put there since, and the bit of its class with the last of these.
    fn clear(&self, index: usize, way: usize, there: u64) {
        if self.replace(&self.sets[index].0[way], there, 0) {
            self.has_left(index, there);
        }
    }

    /// Clears the bit of the class of a tag that was taken out, if it was the last of these.
    fn has_left(&self, index: usize, tag: u64) {
        let class = Self::class(tag >> HASH_SHIFT);
        let (word, bit) = self.waiting_bit(index, class);
        let before = word.load(SeqCst);
        let is_other = |tag: u64| tag == 0 || Self::class(tag >> HASH_SHIFT) != class;
        if self.sets[index].0.iter().all(|slot| is_other(slot.load(SeqCst))) {
            // Where it fails somebody came meanwhile; a bit too many only costs a look.
            self.replace(word, before, before & !bit);
        }
    }

    /// Lets this connection's handshake wait no longer, for either side: it was reset.
    pub fn give_up(&self, hash: u64, now_ns: i64) {
        if !self.is_idle(hash) {
            for side in [Side::First, Side::Second] {
                self.take(hash, side, 0, now_ns);
            }
        }
    }

    /// Whether this connection's handshake was waiting for a packet of `sender`; it no longer is. The packet that comes
    /// next behind the initial sequence number `number` is the one that completes it, any other of the sender one without a
    /// flag. (Once in 255 times another is taken for it.)
    #[inline]
    pub fn take(&self, hash: u64, sender: Side, number: u32, now_ns: i64) -> Option<Kind> {
        let index = self.set_index(hash);
        let tag = Self::tag(hash, sender, Self::number_of(number), now_ns);
        let mut found = None;
        for (way, slot) in self.sets[index].0.iter().enumerate() {
            let there = slot.load(Relaxed);
            let same = there != 0 && Self::same(there, tag);
            // What has waited too long is cleared in passing: after a flood the sets become empty again.
            if there != 0 && (same || Self::age(there, tag) > self.timeout) {
                self.clear(index, way, there);
            }
            if same {
                // What has waited too long may have been given up already.
                let is_waiting = Self::age(there, tag) < self.timeout;
                let is_next = is_waiting && (there ^ tag) & NUMBER_MASK << NUMBER_SHIFT == 0;
                let has_completed = found == Some(Kind::Completes);
                found = Some(if is_next || has_completed { Kind::Completes } else { Kind::Ack });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
