//! Half-open connections: the record of each as the ring has it, and the list of all that a partition hands over at the
//! end of an interval, in the memory in which the flow list sorts them.
//!
//! A list has room for as much as the ring holds: IPv4 connections grow from the start of the memory and IPv6
//! connections from its end, each as the words of its key and a header, so that they are sorted in place.

use crate::flow::{AnyKey, Family, FlowKey, KeyV4, KeyV6, VlanTags, WordKey};
use crate::signal::{CLOCK_LEAP_MAX_NS, SYN_TIMEOUT_MAX_TICKS, TICK_NS};
use std::ops::Range;

/// Bits of the hashed ISN, the short ISN: two connections on the same ports are taken for one with a probability of
/// 2^-17. (With 10 bits, four of 4,000 reused port pairs were.)
pub const ISN_BITS: u32 = 17;

/// Bits of the delay: the ticks from the start of a connection to the packet by which its record was written.
const DELAY_BITS: u32 = 13;

/// The longest that a handshake which is presumed to be answered is kept, in ticks: twelve hours. With the longest span
/// of a delta that is less than the 29 hours after which the tick of a start repeats.
pub const PRESUMED_MAX_TICKS: u64 = 432_000;

/// Bits of the tick of that packet.
const SINCE_BITS: u32 = 31;

const _: () = assert!(SYN_TIMEOUT_MAX_TICKS < 1 << DELAY_BITS);
const _: () = assert!(SINCE_BITS + DELAY_BITS + ISN_BITS + 3 == u64::BITS);
// The full tick is recovered from these bits, even after a leap.
const _: () = assert!(PRESUMED_MAX_TICKS + ((CLOCK_LEAP_MAX_NS / TICK_NS) as u64) < 1 << (SINCE_BITS - 1));
const _: () = assert!(SYN_TIMEOUT_MAX_TICKS <= PRESUMED_MAX_TICKS);

/// Words of the largest record: header, IPv6 key and VLAN tags.
pub(crate) const RECORD_WORD_COUNT_MAX: usize = 3 * UNIT_WORD_COUNT;

// Two units hold an IPv6 record without tags, and three are needed with tags.
const _: () = assert!((1 + KeyV6::WORD_COUNT).next_multiple_of(UNIT_WORD_COUNT) == 2 * UNIT_WORD_COUNT);
const _: () = assert!((2 + KeyV6::WORD_COUNT).next_multiple_of(UNIT_WORD_COUNT) == RECORD_WORD_COUNT_MAX);

/// Words of the smallest record. Every record takes a multiple of this, and so does a ring. So every record begins at a
/// multiple, and a record of this size never wraps around the end.
pub(crate) const UNIT_WORD_COUNT: usize = 1 + KeyV4::WORD_COUNT;

/// A half-open connection as the ring has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HalfOpen<K = AnyKey> {
    /// The key, client first.
    pub key: K,
    /// The tick at which the connection started.
    pub start_tick: u64,
    /// The tick of the packet that brought the connection into its state.
    pub since_tick: u64,
    /// Whether the SYN was known to be answered when the record was written.
    pub answered: bool,
    /// The client's short ISN, hashed to [`ISN_BITS`].
    pub short_isn: u32,
}

impl<K> HalfOpen<K> {
    /// Decodes a record's header at the tick `now`.
    #[inline]
    fn new(key: K, header: HalfOpenHeader, now: u64) -> Self {
        let since_tick = header.since_tick(now);
        HalfOpen {
            key,
            start_tick: since_tick.wrapping_sub(header.delay()),
            since_tick,
            answered: header.answered(),
            short_isn: header.short_isn(),
        }
    }

    /// The header of the connection's record; `key` is the key of the connection.
    fn header(&self, key: &impl FlowKey) -> HalfOpenHeader {
        let delay = self.since_tick.wrapping_sub(self.start_tick);
        HalfOpenHeader::new(key, self.since_tick, delay, self.short_isn, self.answered)
    }

    /// The connection with its key converted.
    fn with_key<L>(self, key: impl FnOnce(K) -> L) -> HalfOpen<L> {
        let HalfOpen { start_tick, since_tick, answered, short_isn, .. } = self;
        HalfOpen { key: key(self.key), start_tick, since_tick, answered, short_isn }
    }
}

/// All of a record but its key, in a word: the low bits of the packet's tick, the delay, the short ISN, and a bit each
/// for tags, for an answered SYN, and for IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpenHeader(pub(crate) u64);

impl HalfOpenHeader {
    pub(crate) const TAGGED: u64 = 4;
    const ANSWERED: u64 = 2;
    const V6: u64 = 1;

    /// The header of a connection with this key, written at the tick `since_tick`, `delay` ticks after its start.
    #[inline]
    pub(crate) fn new<K: FlowKey>(key: &K, since_tick: u64, delay: u64, short_isn: u32, answered: bool) -> Self {
        HalfOpenHeader(
            since_tick << (u64::BITS - SINCE_BITS)
                | delay.min((1 << DELAY_BITS) - 1) << (ISN_BITS + 3)
                | u64::from(short_isn) << 3
                | if key.vlan() == VlanTags::NONE { 0 } else { Self::TAGGED }
                | if answered { Self::ANSWERED } else { 0 }
                | if K::FAMILY == Family::V6 { Self::V6 } else { 0 },
        )
    }

    /// Words of the record's key.
    #[inline]
    pub(crate) fn key_word_count(self) -> usize {
        if self.0 & Self::V6 == 0 { KeyV4::WORD_COUNT } else { KeyV6::WORD_COUNT }
    }

    /// Words of the record: one unit, and one more each for an IPv6 key and for tags.
    #[inline]
    pub(crate) fn word_count(self) -> usize {
        let [is_v6, is_tagged] = [self.0 & Self::V6 != 0, self.0 & Self::TAGGED != 0];
        UNIT_WORD_COUNT * (1 + usize::from(is_v6) + usize::from(is_tagged))
    }

    #[inline]
    pub(crate) fn family(self) -> Family {
        if self.0 & Self::V6 == 0 { Family::V4 } else { Family::V6 }
    }

    /// Whether the record is of the most common kind: IPv4 without tags.
    #[inline]
    pub(crate) fn is_small(self) -> bool {
        self.0 & (Self::V6 | Self::TAGGED) == 0
    }

    #[inline]
    pub(crate) fn answered(self) -> bool {
        self.0 & Self::ANSWERED != 0
    }

    /// The header with this value for whether the SYN was answered.
    #[inline]
    pub(crate) fn with_answered(self, answered: bool) -> Self {
        HalfOpenHeader(self.0 & !Self::ANSWERED | if answered { Self::ANSWERED } else { 0 })
    }

    /// The low bits of the packet's tick.
    #[inline]
    pub(crate) fn since_low(self) -> u32 {
        (self.0 >> (u64::BITS - SINCE_BITS)) as u32
    }

    /// The tick of the packet, seen at the tick `now`: of all ticks with its low bits the nearest.
    #[inline]
    pub(crate) fn since_tick(self, now: u64) -> u64 {
        let unused = u32::BITS - SINCE_BITS;
        let ago = ((now as u32).wrapping_sub(self.since_low()) << unused) as i32 >> unused;
        now.wrapping_sub(i64::from(ago) as u64)
    }

    /// The ticks from the start of the connection to that packet.
    #[inline]
    pub(crate) fn delay(self) -> u64 {
        self.0 >> (ISN_BITS + 3) & ((1 << DELAY_BITS) - 1)
    }

    #[inline]
    pub(crate) fn short_isn(self) -> u32 {
        (self.0 >> 3) as u32 & ((1 << ISN_BITS) - 1)
    }
}

/// The words that hold this many IPv4 connections (half as many IPv6 ones), in a ring or in a list.
pub(crate) fn half_open_word_count(connection_count: usize) -> usize {
    (connection_count * UNIT_WORD_COUNT).max(RECORD_WORD_COUNT_MAX)
}

const WORD_COUNT_V4: usize = KeyV4::WORD_COUNT + 1;
const WORD_COUNT_V6: usize = KeyV6::WORD_COUNT + 1;

// Everything that fits into a ring fits here, because nothing is larger than its record there.
const _: () = assert!(WORD_COUNT_V4 <= UNIT_WORD_COUNT && WORD_COUNT_V6 <= 2 * UNIT_WORD_COUNT);

/// Half-open connections of one partition: 24 bytes each, or 48 for IPv6.
pub struct HalfOpenList {
    words: Box<[u64]>,
    v4_count: usize,
    v6_count: usize,
}

impl HalfOpenList {
    /// An empty list with room for this many IPv4 connections (half as many IPv6 ones).
    #[must_use]
    pub fn new(connection_count: usize) -> Self {
        let words = vec![0; half_open_word_count(connection_count)].into_boxed_slice();
        HalfOpenList { words, v4_count: 0, v6_count: 0 }
    }

    /// A list of these connections.
    #[must_use]
    pub fn of(all: &[HalfOpen]) -> Self {
        // Each IPv6 connection takes the room of two.
        let v6_count = all.iter().filter(|one| matches!(one.key, AnyKey::V6(_))).count();
        let mut list = HalfOpenList::new(all.len() + v6_count);
        all.iter().for_each(|one| list.push(one));
        list
    }

    /// The memory of such a list in bytes, the same as that of the ring.
    #[must_use]
    pub fn size(connection_count: usize) -> usize {
        half_open_word_count(connection_count) * size_of::<u64>()
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        (self.v4_count, self.v6_count) = (0, 0);
    }

    /// The number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4_count + self.v6_count
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a connection. There must be room.
    fn push(&mut self, half_open: &HalfOpen) {
        match &half_open.key {
            AnyKey::V4(key) => self.add(key, half_open.header(key)),
            AnyKey::V6(key) => self.add(key, half_open.header(key)),
        }
    }

    /// Adds the connection with this key and header. There must be room.
    #[inline]
    pub(crate) fn add<K: FlowKey>(&mut self, key: &K, header: HalfOpenHeader) {
        let taken = self.place_of::<K>();
        let place = match K::FAMILY {
            Family::V4 => taken.end,
            Family::V6 => taken.start - WORD_COUNT_V6,
        };
        debug_assert!(self.v4_count * WORD_COUNT_V4 + self.v6_count * WORD_COUNT_V6 + K::WORD_COUNT < self.words.len());
        let words = &mut self.words[place..=place + K::WORD_COUNT];
        words[..K::WORD_COUNT].copy_from_slice(key.words());
        words[K::WORD_COUNT] = header.0;
        *self.count_of::<K>() += 1;
    }

    fn count_of<K: FlowKey>(&mut self) -> &mut usize {
        match K::FAMILY {
            Family::V4 => &mut self.v4_count,
            Family::V6 => &mut self.v6_count,
        }
    }

    /// The words of one family's records.
    fn place_of<K: FlowKey>(&self) -> Range<usize> {
        match K::FAMILY {
            Family::V4 => 0..self.v4_count * WORD_COUNT_V4,
            Family::V6 => self.words.len() - self.v6_count * WORD_COUNT_V6..self.words.len(),
        }
    }

    /// Sorts both families by key.
    ///
    /// Complexity: that of sorting in place.
    pub fn sort(&mut self) {
        let [v4, v6] = [self.place_of::<KeyV4>(), self.place_of::<KeyV6>()];
        self.words[v4].as_chunks_mut::<WORD_COUNT_V4>().0.sort_unstable();
        self.words[v6].as_chunks_mut::<WORD_COUNT_V6>().0.sort_unstable();
    }

    /// Keeps of one family, which must be sorted, the keys for which `is_kept` is true, each once.
    pub fn retain<K: FlowKey>(&mut self, is_kept: impl Fn(&K) -> bool) {
        let (size, place) = (K::WORD_COUNT + 1, self.place_of::<K>());
        let words = &mut self.words[place];
        let (mut kept, mut before) = (0, None);
        for at in (0..words.len()).step_by(size) {
            let key = K::from_words(&words[at..at + size]);
            if before != Some(key) && is_kept(&key) {
                words.copy_within(at..at + size, kept);
                kept += size;
            }
            before = Some(key);
        }
        if K::FAMILY == Family::V6 {
            words.copy_within(..kept, words.len() - kept);
        }
        *self.count_of::<K>() = kept / size;
    }

    /// The connections of one family, seen at the tick `now`.
    pub fn of_family<K: FlowKey>(&self, now: u64) -> impl ExactSizeIterator<Item = HalfOpen<K>> {
        let records = self.words[self.place_of::<K>()].chunks_exact(K::WORD_COUNT + 1);
        records.map(move |words| HalfOpen::new(K::from_words(words), HalfOpenHeader(words[K::WORD_COUNT]), now))
    }

    /// All connections, seen at the tick `now`, IPv4 before IPv6.
    pub fn iter(&self, now: u64) -> impl Iterator<Item = HalfOpen> {
        let v4 = self.of_family(now).map(|one| one.with_key(AnyKey::V4));
        v4.chain(self.of_family(now).map(|one| one.with_key(AnyKey::V6)))
    }
}
