//! A ring of fixed size with the half-open connections and their keys, oldest first.
//!
//! What enters: connections as they begin. What leaves: the same, oldest first. The filter has no keys, so a connection
//! needs a record here for as long as a list may have to show it, or a timeout to remove it, before its handshake is
//! complete. Candidates (connections older than the start, of which one side was seen) have a ring of their own.
//!
//! A record is written when the SYN is seen, and again when the SYN-ACK is seen in a later tick, because the timeout
//! then counts from there. A flood overwrites the oldest records.

mod list;
mod marked;
mod rings;
mod saved;

pub use list::HalfOpenList;
pub(super) use marked::{Mark, MarkedRing, Room};
pub(super) use rings::{RingCounts, Rings};

use crate::connection::{Entry, ISN_BITS, Slot};
use crate::flow::{Family, FlowKey, KeyV4, KeyV6, VlanTags, WordKey};
use crate::signal::{AnyKey, CLOCK_LEAP_MAX_NS, SYN_TIMEOUT_MAX_TICKS, TICK_NS};

/// The most half-open connections that are kept: at a million attempts a second the oldest is then a quarter of a
/// second old when it has to go, longer than most round trips.
pub const HALF_OPEN_MAX: u64 = 1 << 18;

/// Bits of the delay: the ticks from the start of a connection to the packet by which its record was written.
const DELAY_BITS: u32 = 13;

/// Bits of the tick of that packet.
const SINCE_BITS: u32 = 31;

const _: () = assert!(SYN_TIMEOUT_MAX_TICKS < 1 << DELAY_BITS);
const _: () = assert!(SINCE_BITS + DELAY_BITS + ISN_BITS + 3 == u64::BITS);
// The full tick is recovered from these bits, even after a leap.
const _: () = assert!(SYN_TIMEOUT_MAX_TICKS + ((CLOCK_LEAP_MAX_NS / TICK_NS) as u64) < 1 << (SINCE_BITS - 1));

/// Words of the largest record: header, IPv6 key and VLAN tags.
const RECORD_WORD_COUNT_MAX: usize = 3 * UNIT_WORD_COUNT;

// Two units hold an IPv6 record without tags, and three are needed with tags.
const _: () = assert!((1 + KeyV6::WORD_COUNT).next_multiple_of(UNIT_WORD_COUNT) == 2 * UNIT_WORD_COUNT);
const _: () = assert!((2 + KeyV6::WORD_COUNT).next_multiple_of(UNIT_WORD_COUNT) == RECORD_WORD_COUNT_MAX);

/// Words of the smallest record. Every record takes a multiple of this, and so does a ring. So every record begins at a
/// multiple, and a record of this size never wraps around the end.
const UNIT_WORD_COUNT: usize = 1 + KeyV4::WORD_COUNT;

/// The bits at the end of a key that hold its VLAN tags. Few keys have tags, so a record has here the slot of the
/// connection's entry in the filter, and the tags, if any, in a word of their own.
const TAGS: u64 = (1 << u32::BITS) - 1;

/// A half-open connection as the ring has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HalfOpen<K = AnyKey> {
    /// The key, client first.
    pub key: K,
    /// The tick at which the connection started.
    pub start_tick: u64,
    /// The tick of the packet that brought the connection into its state.
    pub since_tick: u64,
    /// Whether the SYN was answered, as far as was known when the record was written.
    pub answered: bool,
    /// The client's short ISN, as in [`Entry`].
    pub short_isn: u32,
}

impl<K> HalfOpen<K> {
    /// Decodes a record's header at the tick `now`.
    #[inline]
    fn new(key: K, header: Header, now: u64) -> Self {
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
    fn header(&self, key: &impl FlowKey) -> Header {
        let delay = self.since_tick.wrapping_sub(self.start_tick);
        Header::new(key, self.since_tick, delay, self.short_isn, self.answered)
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
struct Header(u64);

impl Header {
    const TAGGED: u64 = 4;
    const ANSWERED: u64 = 2;
    const V6: u64 = 1;

    /// The header of a connection with this key, written at the tick `since_tick`, `delay` ticks after its start.
    #[inline]
    fn new<K: FlowKey>(key: &K, since_tick: u64, delay: u64, short_isn: u32, answered: bool) -> Self {
        Header(
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
    fn key_word_count(self) -> usize {
        if self.0 & Self::V6 == 0 { KeyV4::WORD_COUNT } else { KeyV6::WORD_COUNT }
    }

    /// Words of the record: one unit, and one more each for an IPv6 key and for tags.
    #[inline]
    fn word_count(self) -> usize {
        let [is_v6, is_tagged] = [self.0 & Self::V6 != 0, self.0 & Self::TAGGED != 0];
        UNIT_WORD_COUNT * (1 + usize::from(is_v6) + usize::from(is_tagged))
    }

    #[inline]
    fn family(self) -> Family {
        if self.0 & Self::V6 == 0 { Family::V4 } else { Family::V6 }
    }

    /// Whether the record is of the most common kind: IPv4 without tags.
    #[inline]
    fn is_small(self) -> bool {
        self.0 & (Self::V6 | Self::TAGGED) == 0
    }

    #[inline]
    fn answered(self) -> bool {
        self.0 & Self::ANSWERED != 0
    }

    /// The header with this value for whether the SYN was answered.
    #[inline]
    fn with_answered(self, answered: bool) -> Self {
        Header(self.0 & !Self::ANSWERED | if answered { Self::ANSWERED } else { 0 })
    }

    /// The low bits of the packet's tick.
    #[inline]
    fn since_low(self) -> u32 {
        (self.0 >> (u64::BITS - SINCE_BITS)) as u32
    }

    /// The tick of the packet, seen at the tick `now`: of all ticks with its low bits the nearest.
    #[inline]
    fn since_tick(self, now: u64) -> u64 {
        let unused = u32::BITS - SINCE_BITS;
        let ago = ((now as u32).wrapping_sub(self.since_low()) << unused) as i32 >> unused;
        now.wrapping_sub(i64::from(ago) as u64)
    }

    /// The ticks from the start of the connection to that packet.
    #[inline]
    fn delay(self) -> u64 {
        self.0 >> (ISN_BITS + 3) & ((1 << DELAY_BITS) - 1)
    }

    #[inline]
    fn short_isn(self) -> u32 {
        (self.0 >> 3) as u32 & ((1 << ISN_BITS) - 1)
    }
}

/// The position of a record in its ring, valid until the record is removed or moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    index: usize,
    header: Header,
}

impl Record {
    /// The unit of the ring at which the record begins.
    #[inline]
    fn unit(self) -> usize {
        self.index / UNIT_WORD_COUNT
    }

    /// The size of the record, in words.
    #[inline]
    pub(super) fn size(self) -> usize {
        self.header.word_count()
    }

    /// The tick of the packet by which the record was written, seen at the tick `now`.
    #[inline]
    pub(super) fn since_tick(self, now: u64) -> u64 {
        self.header.since_tick(now)
    }
}

/// A record that is to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft<K> {
    header: Header,
    mark: Mark,
    key: K,
}

impl<K: FlowKey> Draft<K> {
    /// The record of the connection with this key, client first, and this entry, at the tick `now`.
    #[inline]
    pub(super) fn new(key: K, entry: &Entry, now: u64) -> Self {
        let header = Header::new(&key, now, u64::from(entry.age(now)), entry.short_isn, entry.state.is_answered());
        Draft { header, mark: Mark::of(entry.state), key }
    }

    /// The size of the record, in words.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.header.word_count()
    }
}

/// A position between two records of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    index: usize,
    /// Words of records from here on.
    left: usize,
}

/// A ring of records: 24 bytes for an IPv4 connection, 48 for an IPv6 one, and 24 more with VLAN tags.
struct HalfOpenRing {
    words: Box<[u64]>,
    /// Where the oldest record begins, and how many words of records follow from there, wrapping around the end.
    head: usize,
    used: usize,
}

impl HalfOpenRing {
    /// A ring for this many IPv4 connections (half as many IPv6 ones).
    fn new(connection_count: usize) -> Self {
        HalfOpenRing { words: vec![0; Self::word_count(connection_count)].into_boxed_slice(), head: 0, used: 0 }
    }

    fn word_count(connection_count: usize) -> usize {
        (connection_count * UNIT_WORD_COUNT).max(RECORD_WORD_COUNT_MAX)
    }

    /// The memory of such a ring, in bytes.
    fn size(connection_count: usize) -> usize {
        Self::word_count(connection_count) * size_of::<u64>()
    }

    /// How many IPv4 connections it has room for.
    #[inline]
    fn connection_count(&self) -> usize {
        self.words.len() / UNIT_WORD_COUNT
    }

    /// The word `distance` behind `index`, wrapping around the end. Both are less than the length of the ring.
    #[inline]
    fn behind(&self, index: usize, distance: usize) -> usize {
        let sum = index + distance;
        if sum < self.words.len() { sum } else { sum - self.words.len() }
    }

    /// The word at which the next record begins.
    #[inline]
    fn end(&self) -> usize {
        self.behind(self.head, self.used)
    }

    /// Writes a record at the end, for the connection with its entry in `slot`. There must be room.
    #[inline]
    fn write<K: FlowKey>(&mut self, draft: &Draft<K>, at: usize, slot: Slot) {
        let (header, words) = (draft.header, draft.key.words());
        let last = words.len() - 1;
        let closing = words[last] & !TAGS | u64::from(slot.to_bits());
        let place = self.words.get_mut(at..at + 1 + words.len()).filter(|_| header.0 & Header::TAGGED == 0);
        if let Some(place) = place {
            place[0] = header.0;
            place[1..=last].copy_from_slice(&words[..last]);
            place[1 + last] = closing;
        } else {
            self.write_in_parts(at, header, &words[..last], [closing, u64::from(draft.key.vlan().number())]);
        }
        self.used += header.word_count();
    }

    /// Writes a record with tags, or one that wraps around the end.
    #[inline(never)]
    fn write_in_parts(&mut self, at: usize, header: Header, words: &[u64], closing: [u64; 2]) {
        let all = std::iter::once(&header.0).chain(words).chain(&closing);
        for (distance, word) in all.take(header.word_count()).enumerate() {
            let place = self.behind(at, distance);
            self.words[place] = *word;
        }
    }

    /// The position before the oldest record.
    #[inline]
    fn start(&self) -> Cursor {
        Cursor { index: self.head, left: self.used }
    }

    /// The record behind a position, and the position behind that record.
    #[inline]
    fn after(&self, Cursor { index, left }: Cursor) -> Option<(Record, Cursor)> {
        if left == 0 {
            return None;
        }
        let record = self.record(index);
        Some((record, Cursor { index: self.behind(index, record.size()), left: left - record.size() }))
    }

    /// The record that begins at this word.
    #[inline]
    fn record(&self, index: usize) -> Record {
        Record { index, header: Header(self.words[index]) }
    }

    /// Removes all records before this position.
    #[inline]
    fn skip_to(&mut self, Cursor { index, left }: Cursor) {
        (self.head, self.used) = (index, left);
    }

    /// The index of the word with the end of a record's key and the slot of its entry.
    #[inline]
    fn closing(&self, record: Record) -> usize {
        self.behind(record.index, record.header.key_word_count())
    }

    /// The slot of the entry of a record's connection.
    #[inline]
    fn slot(&self, record: Record) -> Slot {
        Slot::from_bits(self.words[self.closing(record)] as u32)
    }

    /// The key of a record, which must be of family `K`.
    fn key<K: FlowKey>(&self, record: Record) -> K {
        let mut words: [u64; KeyV6::WORD_COUNT] =
            std::array::from_fn(|at| self.words[self.behind(record.index, (1 + at).min(K::WORD_COUNT))]);
        let tags = if record.header.0 & Header::TAGGED == 0 {
            0
        } else {
            self.words[self.behind(record.index, 1 + K::WORD_COUNT)]
        };
        words[K::WORD_COUNT - 1] = words[K::WORD_COUNT - 1] & !TAGS | tags & TAGS;
        K::from_words(&words)
    }
}
