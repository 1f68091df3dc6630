//! Handshakes that wait for the client's answer: of all packets without a flag only that answer is forwarded, and the
//! cache says whether it completes the handshake: its sequence number then follows the client's initial one (ISN).
//!
//! A set-associative cache of 8-byte tags, shared by the capture threads, because a SYN-ACK and its ACK may come
//! in on different interfaces. A SYN-ACK puts a tag in; the first packet of its client takes it out. If that does not
//! follow the ISN it may be forged, or of the connection before, and the tag stays for one more packet, which may
//! complete the handshake still. A SYN-ACK with another number may be forged too, so that its tag takes no place from
//! the first: both wait, and the client's answer completes the one that it follows. Before any tag is read, a small
//! table of counts says for nearly all connections that no handshake waits.
//!
//! The cache may lose a handshake: a flood of answered SYNs evicts the oldest. Such losses are counted, and which
//! connections they were of is remembered, so that their next packets are seen, and a sample of others, for as long as
//! a lost handshake may still be completed.

use crate::error::Result;
use crate::flow::Side;
use crate::signal::clock::TICK_NS;
use crate::signal::ones::ones;
use crate::signal::recent::RecentConnections;
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::{GOLDEN_32, place_of};
use flowpeel_lines::{Lines, SharedLine, prefetch};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};

/// How far one capture thread's packets may be ahead of another's, in nanoseconds: half a minute, more than lies in any
/// kernel ring that loses nothing.
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
/// The bit of a tag whose side has sent no packet yet.
const NONE_CAME_BIT: u64 = 1;
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

/// The parts of the cache, of which one after the other is looked through for what has timed out.
const PART_COUNT: u64 = 1 << 10;

/// The bits of a stamp within a step, of which each is the next part's turn: 2.1 s. All have had theirs in half of the
/// time in which stamps come round.
const STEP_BITS: u32 = STAMP_BITS - 1 - PART_COUNT.ilog2();

const _: () = assert!(
    2 * (((SYN_TIMEOUT_MAX_TICKS * TICK_NS as u64) >> STAMP_SHIFT) + AHEAD_MAX) < 1 << (STAMP_BITS - 1),
    "a handshake that has timed out must be found before its stamp comes round, even if its part's turn is late"
);

/// The places of [`WaitingCounts`]: hardly more than a first-level cache holds, because every packet reads two of them.
const WAITING_PLACE_COUNT: usize = 1 << 15;

/// The places of a cache line.
const LINE_PLACE_COUNT: usize = size_of::<SharedLine>();

const _: () = assert!(
    2 * HANDSHAKES_DEFAULT / WAITING_PLACE_COUNT <= 64,
    "a place that counts 256 would read as zero: where 64 are expected the probability is less than 10^-70"
);

/// What a packet without a flag is to a handshake that waited for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// The sender's next packet: which it is was not known, or it comes too late or behind another.
    Next,
    /// The client's first packet behind a SYN-ACK, which does not follow its ISN.
    First,
    /// The client's packet that follows its ISN (or, once in 255 times, has a number of the same hash).
    Completes,
}

/// How many handshakes wait, at two places of a cache line for each connection: where one of them counts none, none of
/// the connection waits. Every packet reads both.
#[repr(C, align(64))]
struct WaitingCounts {
    places: [AtomicU8; WAITING_PLACE_COUNT],
    /// Whether several threads write to the cache.
    is_shared: bool,
}

impl WaitingCounts {
    fn new() -> Self {
        WaitingCounts { places: [const { AtomicU8::new(0) }; WAITING_PLACE_COUNT], is_shared: true }
    }

    #[inline]
    fn places(&self, hash: u64) -> [&AtomicU8; 2] {
        let first = hash as usize % WAITING_PLACE_COUNT;
        // Another one of the same line.
        let step = ((hash as usize / WAITING_PLACE_COUNT) | 1) % LINE_PLACE_COUNT;
        [&self.places[first], &self.places[first ^ step]]
    }

    #[inline]
    fn is_zero(&self, hash: u64) -> bool {
        let [first, second] = self.places(hash).map(|place| place.load(Acquire) == 0);
        first | second
    }

    /// Counts a handshake that is there. If another thread has taken it already, that count comes first and wraps.
    #[inline]
    fn add(&self, hash: u64) {
        self.change(hash, 1);
    }

    /// Counts one less.
    #[inline]
    fn remove(&self, hash: u64) {
        self.change(hash, u8::MAX);
    }

    #[inline]
    fn change(&self, hash: u64, by: u8) {
        for place in self.places(hash) {
            if self.is_shared {
                place.fetch_add(by, SeqCst);
            } else {
                place.store(place.load(Relaxed).wrapping_add(by), Relaxed);
            }
        }
    }
}

/// The sets of tags of one level. The set is chosen by 32 bits of the hash from bit `INDEX_SHIFT` on.
struct Level<const INDEX_SHIFT: u32> {
    /// The sets of tags.
    sets: Lines<SharedLine>,
    /// Whether several threads write to the cache.
    is_shared: bool,
}

/// The cache. Its memory is fixed when it is made.
///
/// It has two levels: the near one is small enough to stay in the processor's caches, and what is still waiting when
/// its set is full moves to the far one, which only floods touch.
pub struct HandshakeCache {
    waiting: WaitingCounts,
    near: Level<NEAR_INDEX_SHIFT>,
    far: Option<Level<FAR_INDEX_SHIFT>>,
    /// Whether anything has moved to the far level.
    is_far_used: AtomicBool,
    /// The connections whose handshakes were lost lately.
    lost: RecentConnections,
    /// How long a handshake waits, in stamps.
    timeout: u64,
    /// The last step for which a part was looked through.
    last_step: AtomicU64,
}

impl<const INDEX_SHIFT: u32> Level<INDEX_SHIFT> {
    fn new(handshake_count: usize) -> Self {
        Level { sets: Lines::new(Self::set_count(handshake_count)), is_shared: true }
    }

    fn for_one_thread(self) -> Self {
        Level { is_shared: false, ..self }
    }

    fn size(handshake_count: usize) -> usize {
        Self::set_count(handshake_count) * size_of::<SharedLine>()
    }

    fn set_count(handshake_count: usize) -> usize {
        handshake_count.div_ceil(WAY_COUNT).max(1)
    }

    #[inline]
    fn set_index(&self, hash: u64) -> usize {
        place_of((hash >> INDEX_SHIFT) as u32, self.sets.len())
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

    #[inline]
    fn prefetch_set(&self, hash: u64) {
        prefetch(&self.sets[self.set_index(hash)]);
    }

    /// Puts a tag of the connection with this hash in, counts it, and returns the tag of another connection that was
    /// evicted for it, which still counts, or zero; `None` if other threads took every place.
    fn put(&self, hash: u64, tag: u64, timeout: u64, waiting: &WaitingCounts) -> Option<u64> {
        let index = self.set_index(hash);
        // Another thread may take the place at the same moment; then the next try finds another.
        for _ in 0..WAY_COUNT {
            let (way, there) = self.place(index, tag, timeout);
            if self.replace(&self.sets[index].0[way], there, tag) {
                if there != 0 && same(there, tag) {
                    return Some(0);
                }
                waiting.add(hash);
                return Some(there);
            }
        }
        None
    }

    /// The place in a set for this tag, and the tag that is there now: the first place that is free or has the same
    /// handshake, otherwise the oldest. (If a free place comes first, the handshake has two tags until it is taken.) Of
    /// two handshakes with other numbers the first keeps its place, and the last gives way, so that one connection does
    /// not fill the set.
    fn place(&self, index: usize, tag: u64, timeout: u64) -> (usize, u64) {
        let mut oldest = (0, 0);
        let mut oldest_age = 0;
        let mut rival = None;
        for (way, slot) in self.sets[index].0.iter().enumerate() {
            let there = slot.load(Relaxed);
            if there == 0 {
                return (way, there);
            }
            let age = age(there, tag);
            if same(there, tag) {
                if !is_rival(there, tag) || age >= timeout {
                    return (way, there);
                }
                if let Some((first, first_age)) = rival {
                    return if first_age < age { first } else { (way, there) };
                }
                rival = Some(((way, there), age));
            }
            if way == 0 || age >= oldest_age {
                (oldest, oldest_age) = ((way, there), age);
            }
        }
        oldest
    }

    /// Clears a place unless it has changed since it was read.
    fn clear(&self, index: usize, way: usize, there: u64, waiting: &WaitingCounts) {
        if self.replace(&self.sets[index].0[way], there, 0) {
            waiting.remove(hash_of(there));
        }
    }

    /// Whether a tag of the connection and side of this one is there that waits for what follows an ISN.
    fn holds(&self, hash: u64, tag: u64, timeout: u64) -> bool {
        let is_it = |there: u64| there != 0 && same(there, tag) && awaits_first(there) && age(there, tag) < timeout;
        self.sets[self.set_index(hash)].0.iter().any(|slot| is_it(slot.load(Relaxed)))
    }

    /// The ways of a set that have a tag, as bits. Few have one, and which cannot be foretold.
    #[inline(always)]
    fn taken_ways(&self, index: usize) -> u64 {
        let slots = &self.sets[index].0;
        (0..WAY_COUNT).fold(0, |taken, way| taken | u64::from(slots[way].load(Relaxed) != 0) << way)
    }

    /// Takes the tags of the same handshake as `tag` out, or leaves them, as [`HandshakeCache::answer`].
    #[inline]
    fn answer(
        &self,
        hash: u64,
        tag: u64,
        timeout: u64,
        waiting: &WaitingCounts,
        is_none: impl Fn() -> bool,
    ) -> Option<Answer> {
        let index = self.set_index(hash);
        let (mut found, mut is_left) = (None, false);
        for way in ones::<WAY_COUNT>(self.taken_ways(index)) {
            let slot = &self.sets[index].0[way];
            // Another thread may have changed it since.
            let there = slot.load(Relaxed);
            if there == 0 {
                continue;
            }
            if !same(there, tag) {
                // Cleared in passing, so that nothing seems to wait any more after a flood.
                if age(there, tag) > timeout {
                    self.clear(index, way, there, waiting);
                }
                continue;
            }
            // A handshake that has timed out here may have been given up by its tracker already.
            let is_waiting = age(there, tag) < timeout;
            let answer = if is_waiting && has_same_isn(there, tag) {
                Answer::Completes
            } else if is_waiting && is_none() {
                continue;
            } else if is_waiting && awaits_first(there) {
                self.replace(slot, there, behind_first(there));
                (found, is_left) = (found.max(Some(Answer::First)), true);
                continue;
            } else {
                Answer::Next
            };
            self.clear(index, way, there, waiting);
            found = found.max(Some(answer));
        }
        // It stood twice, or another with it.
        if is_left && found == Some(Answer::Completes) {
            self.remove(hash, tag, waiting);
        }
        found
    }

    /// Makes the handshakes whose tags have timed out wait for any packet of their side, in one of [`PART_COUNT`]
    /// parts.
    fn time_out(&self, part: u64, has_timed_out: impl Fn(u64) -> bool) {
        let start_of = |part: u64| (self.sets.len() as u64 * part / PART_COUNT) as usize;
        for slot in self.sets[start_of(part)..start_of(part + 1)].iter().flat_map(|set| &set.0) {
            let there = slot.load(Relaxed);
            if has_isn(there) && has_timed_out(there) {
                self.replace(slot, there, without_isn(there));
            }
        }
    }

    /// Removes the tags of the same handshake as `tag`.
    fn remove(&self, hash: u64, tag: u64, waiting: &WaitingCounts) {
        let index = self.set_index(hash);
        for (way, slot) in self.sets[index].0.iter().enumerate() {
            let there = slot.load(Relaxed);
            if there != 0 && same(there, tag) {
                self.clear(index, way, there, waiting);
            }
        }
    }

    /// Writes the level into a saved state.
    fn save(&self, encoder: &mut Encoder) {
        let tags = || self.sets.iter().flat_map(|set| &set.0).map(|tag| tag.load(Relaxed));
        encoder.length(tags().filter(|tag| *tag != 0).count());
        for (place, tag) in tags().enumerate().filter(|(_, tag)| *tag != 0) {
            encoder.u64(place as u64);
            encoder.u64(tag);
        }
    }

    /// Fills an empty level from a saved state, and counts what waits there.
    fn restore(&self, decoder: &mut Decoder, waiting: &WaitingCounts) -> Result<()> {
        let count = decoder.length(2 * size_of::<u64>(), self.sets.len() * WAY_COUNT)?;
        for _ in 0..count {
            let (place, tag) = (usize::try_from(decoder.u64()?).unwrap_or(usize::MAX), decoder.u64()?);
            let set = decoder.some(self.sets.get(place / WAY_COUNT), "a handshake out of place")?;
            let before = set.0[place % WAY_COUNT].swap(tag, Relaxed);
            decoder.expect(before == 0 && tag != 0, "two handshakes in one place")?;
            waiting.add(hash_of(tag));
        }
        Ok(())
    }
}

/// A tag: hash, hashed ISN, stamp, side, and in the lowest bit whether no packet of the side has come yet. Never zero:
/// behind a first packet it stays only if it has an ISN.
#[inline]
fn tag(hash: u64, waits_for: Side, isn: u64, now_ns: i64) -> u64 {
    let stamp = (now_ns >> STAMP_SHIFT) as u64 & STAMP_MASK;
    hash << HASH_SHIFT | isn << ISN_SHIFT | stamp << 2 | u64::from(waits_for == Side::Second) << 1 | NONE_CAME_BIT
}

/// The low bits of the hash that a tag keeps.
#[inline]
fn hash_of(tag: u64) -> u64 {
    tag >> HASH_SHIFT
}

/// The hash of an ISN that a tag keeps. Never zero.
#[inline]
fn short_isn(isn: u32) -> u64 {
    u64::from(isn.wrapping_mul(GOLDEN_32) >> (u32::BITS - ISN_BITS)).max(1)
}

/// Whether two tags are of one connection and wait for the same side.
#[inline]
fn same(tag: u64, other: u64) -> bool {
    (tag ^ other) & !(STAMP_MASK << 2 | ISN_MASK << ISN_SHIFT | NONE_CAME_BIT) == 0
}

/// Whether a tag waits for what follows an ISN.
#[inline]
fn has_isn(tag: u64) -> bool {
    tag & ISN_MASK << ISN_SHIFT != 0
}

/// This tag, once it has timed out: any packet of its side is the next.
#[inline]
fn without_isn(tag: u64) -> u64 {
    tag & !(ISN_MASK << ISN_SHIFT) | NONE_CAME_BIT
}

/// Whether a tag waits for the first packet of a client behind a SYN-ACK.
#[inline]
fn awaits_first(tag: u64) -> bool {
    tag & NONE_CAME_BIT != 0 && has_isn(tag)
}

/// Whether two tags of one connection and side wait for what follows different ISNs.
#[inline]
fn is_rival(tag: u64, other: u64) -> bool {
    has_isn(tag) && has_isn(other) && !has_same_isn(tag, other)
}

/// This tag, behind a first packet that did not follow its ISN.
#[inline]
fn behind_first(tag: u64) -> u64 {
    tag & !NONE_CAME_BIT
}

/// Whether a tag waits for what follows the ISN of this one.
#[inline]
fn has_same_isn(tag: u64, other: u64) -> bool {
    (tag ^ other) & ISN_MASK << ISN_SHIFT == 0
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
            waiting: WaitingCounts::new(),
            near: Level::new(near_count),
            far: (handshake_count > near_count).then(|| Level::new(handshake_count - near_count)),
            is_far_used: AtomicBool::new(false),
            lost: RecentConnections::new(LOST_COUNT),
            timeout: timeout_ns.max(0) as u64 >> STAMP_SHIFT,
            last_step: AtomicU64::new(0),
        }
    }

    /// This cache for use by one thread alone, which then writes without locked instructions. (If two threads wrote,
    /// one could undo what the other wrote: handshakes would be lost uncounted.)
    #[must_use]
    pub fn for_one_thread(self) -> Self {
        let waiting = WaitingCounts { is_shared: false, ..self.waiting };
        HandshakeCache { waiting, near: self.near.for_one_thread(), far: self.far.map(Level::for_one_thread), ..self }
    }

    /// The memory that a cache for this many handshakes takes, in bytes.
    #[must_use]
    pub fn size(handshake_count: usize) -> usize {
        let near_count = handshake_count.min(NEAR_HANDSHAKE_COUNT);
        let far_count = handshake_count - near_count;
        let far_size = if far_count > 0 { Level::<FAR_INDEX_SHIFT>::size(far_count) } else { 0 };
        let levels_size = Level::<NEAR_INDEX_SHIFT>::size(near_count) + far_size;
        levels_size + RecentConnections::size(LOST_COUNT) + WAITING_PLACE_COUNT
    }

    /// Whether no handshake of this connection waits, so that [`Self::answer`] would find nothing. True for most.
    #[must_use]
    #[inline]
    pub fn is_idle(&self, hash: u64) -> bool {
        self.waiting.is_zero(hash)
    }

    /// Prepares for a handshake of this connection: until this is [retracted](Self::retract), the connection is not
    /// idle.
    #[inline]
    pub fn announce(&self, hash: u64) {
        self.waiting.add(hash);
    }

    /// Takes one announcement back.
    #[inline]
    pub fn retract(&self, hash: u64) {
        self.waiting.remove(hash);
    }

    /// The far level, once something has moved there.
    #[inline]
    fn used_far(&self) -> Option<&Level<FAR_INDEX_SHIFT>> {
        self.far.as_ref().filter(|_| self.is_far_used.load(Relaxed))
    }

    /// Prefetches the set that [`Self::put`] and [`Self::answer`] read first.
    #[inline]
    pub fn prefetch_set(&self, hash: u64) {
        self.near.prefetch_set(hash);
    }

    /// Whether a handshake that began at `began_ns` still waits at `now_ns`, less than 73 minutes later.
    #[must_use]
    #[inline]
    pub fn is_in_time(&self, began_ns: i64, now_ns: i64) -> bool {
        let at = |time_ns| tag(0, Side::First, 0, time_ns);
        age(at(began_ns), at(now_ns)) < self.timeout
    }

    /// The step of time, of 2.1 s, in which a packet came.
    #[must_use]
    #[inline]
    pub fn step(now_ns: i64) -> u64 {
        now_ns.max(0) as u64 >> (STAMP_SHIFT + STEP_BITS)
    }

    /// Moves time on: what has timed out no longer waits for what follows its ISN. Its stamp says so too, but comes
    /// round in 73 minutes. To be called with the time of the first packet of each [step](Self::step) before what is
    /// asked of it.
    ///
    /// Complexity: every 2.1 s a 1,024th of the memory, and all of it behind a gap that is longer than the timeout.
    pub fn advance(&self, now_ns: i64) {
        let step = Self::step(now_ns);
        if step > self.last_step.load(Relaxed) {
            self.time_out(step, now_ns);
        }
    }

    #[cold]
    fn time_out(&self, step: u64, now_ns: i64) {
        let last_step = self.last_step.fetch_max(step, Relaxed);
        let gap = step.saturating_sub(last_step) << STEP_BITS;
        let now = tag(0, Side::First, 0, now_ns);
        if gap > self.timeout + AHEAD_MAX {
            // Every handshake from before the gap has timed out, even if its stamp looks young. One that another thread
            // adds during this pass may be taken for such: its next packet opens it if the tracker knows it.
            (0..PART_COUNT).for_each(|part| self.time_out_part(part, |_| true));
        } else {
            let has_timed_out = |there: u64| age(there, now) > self.timeout;
            (last_step + 1..=step).for_each(|step| self.time_out_part(step % PART_COUNT, has_timed_out));
        }
    }

    fn time_out_part(&self, part: u64, has_timed_out: impl Fn(u64) -> bool) {
        self.near.time_out(part, &has_timed_out);
        self.used_far().into_iter().for_each(|far| far.time_out(part, &has_timed_out));
    }

    /// Remembers that this connection's handshake waits for a packet of `waits_for`. `isn` is the client's ISN if the
    /// handshake waits for the client's answer to a SYN-ACK, and `None` otherwise. The result is true if another
    /// handshake that was still waiting was lost for it.
    pub fn put(&self, hash: u64, waits_for: Side, isn: Option<u32>, now_ns: i64) -> bool {
        let tag = tag(hash, waits_for, isn.map_or(0, short_isn), now_ns);
        let Some(evicted) = self.near.put(hash, tag, self.timeout, &self.waiting) else {
            self.lost.put(hash);
            return true;
        };
        evicted != 0 && self.evict(evicted, tag)
    }

    /// Moves a handshake that was evicted from the near level to the far one if it still waits now, which is when `now`
    /// was made, and returns whether one was lost.
    #[cold]
    fn evict(&self, tag: u64, now: u64) -> bool {
        let hash = hash_of(tag);
        let is_lost = age(tag, now) <= self.timeout && self.move_to_far(hash, tag);
        // Where it is now it was counted again.
        self.waiting.remove(hash);
        is_lost
    }

    fn move_to_far(&self, hash: u64, tag: u64) -> bool {
        let Some(far) = &self.far else {
            self.lost.put(hash);
            return true;
        };
        self.is_far_used.store(true, Relaxed);
        let evicted = far.put(hash, tag, self.timeout, &self.waiting);
        let is_lost = evicted != Some(0) && age(evicted.unwrap_or(tag), tag) <= self.timeout;
        if is_lost {
            self.lost.put(evicted.map_or(hash, hash_of));
        }
        if let Some(evicted) = evicted.filter(|evicted| *evicted != 0) {
            self.waiting.remove(hash_of(evicted));
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
    pub fn give_up(&self, hash: u64) {
        for side in [Side::First, Side::Second] {
            self.remove(hash, side);
        }
    }

    /// Removes this connection's handshake if it waits for a packet of this side.
    pub fn remove(&self, hash: u64, waits_for: Side) {
        if self.is_idle(hash) {
            return;
        }
        // Neither its stamp nor its ISN is compared.
        let tag = tag(hash, waits_for, 0, 0);
        self.near.remove(hash, tag, &self.waiting);
        if let Some(far) = self.used_far() {
            far.remove(hash, tag, &self.waiting);
        }
    }

    /// Whether this connection's handshake waits for the answer of this client to a SYN-ACK.
    #[must_use]
    pub fn awaits_answer(&self, hash: u64, client: Side, now_ns: i64) -> bool {
        let tag = tag(hash, client, 0, now_ns);
        let is_in_far = || self.used_far().is_some_and(|far| far.holds(hash, tag, self.timeout));
        !self.is_idle(hash) && (self.near.holds(hash, tag, self.timeout) || is_in_far())
    }

    /// What a packet of `sender` without a flag is to this connection's handshake, where `isn` is the number before its
    /// sequence number; `None` if no handshake waits for it, or if it does not complete it and `is_none` says that it
    /// answers nothing. The handshake then waits no longer, or if this was the first packet, for one more.
    #[inline]
    pub fn answer(&self, hash: u64, sender: Side, isn: u32, now_ns: i64, is_none: impl Fn() -> bool) -> Option<Answer> {
        let tag = tag(hash, sender, short_isn(isn), now_ns);
        let near = self.near.answer(hash, tag, self.timeout, &self.waiting, &is_none);
        let Some(far) = self.used_far().filter(|_| !self.is_idle(hash)) else { return near };
        let answer = near.max(far.answer(hash, tag, self.timeout, &self.waiting, &is_none));
        if answer == Some(Answer::Completes) {
            // Another may have waited with it in the other level.
            self.remove(hash, sender);
        }
        answer
    }

    /// Writes the cache into a saved state. No other thread may be using it.
    ///
    /// Complexity: a pass over its memory.
    pub fn save(&self, encoder: &mut Encoder) {
        self.near.save(encoder);
        encoder.option(self.used_far(), |encoder, far| far.save(encoder));
        self.lost.save(encoder);
        encoder.u64(self.last_step.load(Relaxed));
    }

    /// Fills an empty cache from a saved state. After an error the cache is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a cache of this size.
    pub fn restore(&self, decoder: &mut Decoder) -> Result<()> {
        self.near.restore(decoder, &self.waiting)?;
        let far = decoder.option(|decoder| {
            let far = decoder.some(self.far.as_ref(), "a cache of another size")?;
            far.restore(decoder, &self.waiting)
        })?;
        self.is_far_used.store(far.is_some(), Relaxed);
        self.lost.restore(decoder)?;
        self.last_step.store(decoder.count()?, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
