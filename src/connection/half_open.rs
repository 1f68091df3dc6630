//! The half-open connections with their keys, oldest first, in a ring of fixed size.
//!
//! What enters: connections as they begin. What leaves: the same, oldest first. The filter has no keys, so whatever a
//! list is to show, or a timeout to take off, before the handshake is complete has to stand here. Candidates for
//! connections that are older than the start stand in a ring of their own.
//!
//! A connection is written when its SYN is seen, and again when its SYN-ACK is seen in a later tick, because the timeout
//! counts from there; what was written before is then skipped, as is what is half-open no longer. A flood overwrites the oldest.

mod marked;
mod saved;

pub(super) use marked::{Mark, MarkedRing};

use crate::config::{CLOCK_LEAP_MAX_NS, SYN_TIMEOUT_MAX_TICKS, TICK_NS};
use crate::connection::entry::Likeness;
use crate::connection::{Entry, INITIAL_NUMBER_BITS};
use crate::flow::{Family, FlowKey, KeyV4, KeyV6, Side};
use crate::signal::AnyKey;

/// Bits of the ticks between the start of a connection and the packet by which it was written.
const DELAY_BITS: u32 = 13;

const _: () = assert!(SYN_TIMEOUT_MAX_TICKS < 1 << DELAY_BITS);
const _: () = assert!(32 + DELAY_BITS + INITIAL_NUMBER_BITS + 2 == u64::BITS);
// A record's tick is found again from its low 32 bits, even after a leap.
const _: () = assert!(SYN_TIMEOUT_MAX_TICKS + ((CLOCK_LEAP_MAX_NS / TICK_NS) as u64) < 1 << 31);

/// Words of the largest record: a header and an IPv6 key.
const RECORD_WORD_COUNT_MAX: usize = 1 + KeyV6::WORD_COUNT;

/// Words of the smallest. Each record takes a multiple of them, and so does a ring: a record begins at a multiple, too, and one
/// of this size never goes over the end.
const UNIT_WORD_COUNT: usize = 1 + KeyV4::WORD_COUNT;

const _: () = assert!(RECORD_WORD_COUNT_MAX == 2 * UNIT_WORD_COUNT);

/// A half-open connection as the ring holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HalfOpen {
    /// Its key, client first.
    pub key: AnyKey,
    /// The tick at which it started.
    pub start_tick: u64,
    /// The tick of the packet that brought it into its state.
    pub since_tick: u64,
    /// Whether its SYN was answered, as far as was known when it was written.
    pub answered: bool,
    /// The client's initial sequence number as entries keep it.
    pub number: u32,
}

/// Everything of a record but its key, in a word: the low 32 bits of the tick, how long after the start that was, the number,
/// whether the SYN was answered, and the family.
#[derive(Clone, Copy, Debug, Default)]
struct Header(u64);

impl Header {
    const ANSWERED: u64 = 2;
    const V6: u64 = 1;

    /// The header of a connection that was written at this tick, so long after its start.
    #[inline]
    fn new<K: FlowKey>(since_tick: u64, delay: u64, number: u32, answered: bool) -> Self {
        Header(
            (since_tick & 0xffff_ffff) << 32
                | delay.min((1 << DELAY_BITS) - 1) << (INITIAL_NUMBER_BITS + 2)
                | u64::from(number) << 2
                | if answered { Self::ANSWERED } else { 0 }
                | if K::FAMILY == Family::V6 { Self::V6 } else { 0 },
        )
    }

    #[inline]
    fn word_count(self) -> usize {
        1 + if self.0 & Self::V6 == 0 { KeyV4::WORD_COUNT } else { KeyV6::WORD_COUNT }
    }

    /// The tick of the packet, as seen at the tick `now`: of all with its low 32 bits the one that is nearest.
    #[inline]
    fn since_tick(self, now: u64) -> u64 {
        let ago = (now as u32).wrapping_sub((self.0 >> 32) as u32) as i32;
        now.wrapping_sub(i64::from(ago) as u64)
    }

    /// The ticks from the start to that packet.
    #[inline]
    fn delay(self) -> u64 {
        self.0 >> (INITIAL_NUMBER_BITS + 2) & ((1 << DELAY_BITS) - 1)
    }

    #[inline]
    fn number(self) -> u32 {
        (self.0 >> 2) as u32 & ((1 << INITIAL_NUMBER_BITS) - 1)
    }
}

/// Where a record stands in its ring, until that is taken off.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    index: usize,
    header: Header,
}

impl Record {
    /// The unit of its ring at which it begins.
    #[inline]
    fn unit(self) -> usize {
        self.index / UNIT_WORD_COUNT
    }

    /// Its connection's family.
    #[inline]
    pub(super) fn family(self) -> Family {
        if self.header.0 & Header::V6 == 0 { Family::V4 } else { Family::V6 }
    }

    /// Whether its SYN was answered, as far as was known when it was written.
    #[inline]
    pub(super) fn answered(self) -> bool {
        self.header.0 & Header::ANSWERED != 0
    }

    /// The tick of the packet by which it was written, as seen at the tick `now`.
    #[inline]
    pub(super) fn since_tick(self, now: u64) -> u64 {
        self.header.since_tick(now)
    }
}

/// A place between two records of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    index: usize,
    /// The words of records that follow.
    left: usize,
}

/// How far the records of a ring have been gone through that are kept in it: where the next one goes, and their words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    end: usize,
    used: usize,
}

/// The ring: 24 bytes an IPv4 connection, 48 an IPv6 one.
pub struct HalfOpenRing {
    words: Box<[u64]>,
    /// Where the oldest record begins, and how many words of records follow from there, over the end to the start.
    head: usize,
    used: usize,
}

impl HalfOpenRing {
    /// A ring for this many IPv4 connections (half as many IPv6 ones).
    #[must_use]
    pub fn new(connection_count: usize) -> Self {
        HalfOpenRing { words: vec![0; Self::word_count(connection_count)].into_boxed_slice(), head: 0, used: 0 }
    }

    fn word_count(connection_count: usize) -> usize {
        (connection_count * UNIT_WORD_COUNT).max(RECORD_WORD_COUNT_MAX)
    }

    /// The memory of such a ring in bytes.
    #[must_use]
    pub fn size(connection_count: usize) -> usize {
        Self::word_count(connection_count) * size_of::<u64>()
    }

    /// How many IPv4 connections it has room for.
    #[must_use]
    #[inline]
    pub fn connection_count(&self) -> usize {
        self.words.len() / UNIT_WORD_COUNT
    }

    /// Whether another connection can be written without taking one off.
    #[must_use]
    #[inline]
    pub fn has_room(&self) -> bool {
        self.words.len() - self.used >= RECORD_WORD_COUNT_MAX
    }

    /// Takes off everything.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// The word this far behind another. Both are less than the ring is long.
    #[inline]
    fn behind(&self, index: usize, distance: usize) -> usize {
        let sum = index + distance;
        if sum < self.words.len() { sum } else { sum - self.words.len() }
    }

    /// Writes a connection. There must be room.
    #[inline]
    pub fn push(&mut self, record: &HalfOpen) {
        let HalfOpen { since_tick, answered, number, .. } = *record;
        let delay = since_tick.saturating_sub(record.start_tick);
        match &record.key {
            AnyKey::V4(key) => self.write(Header::new::<KeyV4>(since_tick, delay, number, answered), key.words()),
            AnyKey::V6(key) => self.write(Header::new::<KeyV6>(since_tick, delay, number, answered), key.words()),
        }
    }

    /// Writes the connection of another ring's record, of which it is now known whether it was answered. There must be room.
    #[inline]
    pub(super) fn push_from(&mut self, other: &Self, record: Record, answered: bool) {
        let header = Header(record.header.0 & !Header::ANSWERED | if answered { Header::ANSWERED } else { 0 });
        let (from, to) = (record.index, self.end());
        let words = other.words.get(from..from + UNIT_WORD_COUNT).filter(|_| record.family() == Family::V4);
        if let Some(words) = words
            && let Some(place) = self.words.get_mut(to..to + UNIT_WORD_COUNT)
        {
            place[0] = header.0;
            place[1..].copy_from_slice(&words[1..]);
            self.used += UNIT_WORD_COUNT;
        } else {
            self.push_key_from(other, record, header);
        }
    }

    /// The same of any family, and where either record goes over the end.
    #[inline(never)]
    fn push_key_from(&mut self, other: &Self, record: Record, header: Header) {
        match record.family() {
            Family::V4 => self.write(header, other.key::<KeyV4>(record).words()),
            Family::V6 => self.write(header, other.key::<KeyV6>(record).words()),
        }
    }

    /// Where the next record will begin.
    #[inline]
    fn end(&self) -> usize {
        self.behind(self.head, self.used)
    }

    #[inline]
    fn write(&mut self, header: Header, key: &[u64]) {
        let count = 1 + key.len();
        debug_assert!(self.used + count <= self.words.len());
        let at = self.end();
        if let Some(words) = self.words.get_mut(at..at + count) {
            words[0] = header.0;
            words[1..].copy_from_slice(key);
        } else {
            self.write_over_end(at, header, key);
        }
        self.used += count;
    }

    /// Writes a record that goes over the end to the start.
    #[cold]
    #[inline(never)]
    fn write_over_end(&mut self, at: usize, header: Header, key: &[u64]) {
        for (distance, word) in std::iter::once(&header.0).chain(key).enumerate() {
            self.words[self.behind(at, distance)] = *word;
        }
    }

    /// Whether nothing is in it.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The place before the oldest record.
    #[inline]
    pub(super) fn start(&self) -> Cursor {
        Cursor { index: self.head, left: self.used }
    }

    /// The record behind this place, and the place behind it.
    #[inline]
    pub(super) fn after(&self, Cursor { index, left }: Cursor) -> Option<(Record, Cursor)> {
        if left == 0 {
            return None;
        }
        let header = Header(self.words[index]);
        let count = header.word_count();
        Some((Record { index, header }, Cursor { index: self.behind(index, count), left: left - count }))
    }

    /// Takes off all records before this place.
    #[inline]
    pub(super) fn skip_to(&mut self, Cursor { index, left }: Cursor) {
        (self.head, self.used) = (index, left);
    }

    /// None of its records is kept yet.
    pub(super) fn none_kept(&self) -> Kept {
        Kept { end: self.head, used: 0 }
    }

    /// Keeps a record, which is younger than those that were kept before it: it moves up behind them.
    #[inline]
    pub(super) fn keep(&mut self, kept: &mut Kept, record: Record) {
        let count = record.header.word_count();
        if kept.end != record.index {
            for distance in 0..count {
                self.words[self.behind(kept.end, distance)] = self.words[self.behind(record.index, distance)];
            }
        }
        *kept = Kept { end: self.behind(kept.end, count), used: kept.used + count };
    }

    /// Takes off all records but these.
    pub(super) fn retain(&mut self, kept: Kept) {
        self.used = kept.used;
    }

    /// The key of a record of this family.
    #[inline]
    pub(super) fn key<K: FlowKey>(&self, record: Record) -> K {
        let first = self.behind(record.index, 1);
        match self.words.get(first..first + K::WORD_COUNT) {
            Some(words) => K::from_words(words),
            None => {
                let words: [u64; RECORD_WORD_COUNT_MAX] =
                    std::array::from_fn(|at| self.words[self.behind(first, at.min(K::WORD_COUNT - 1))]);
                K::from_words(&words)
            }
        }
    }

    /// Whether a record is what the filter's entry, as that is kept, says still; `client` is the end of the canonical key that the
    /// record names first. A candidate is told from a half-open connection by its number, which is not known.
    #[inline]
    pub(super) fn is_current(&self, record: Record, client: Side, (word, extension): (u64, u8)) -> bool {
        let (header, delay) = (record.header, record.header.delay());
        let tick = Entry::tick_of((header.0 >> 32).wrapping_sub(delay));
        let likeness = Likeness::new(client, tick, header.number(), delay != 0);
        likeness.is_of(word, extension).unwrap_or_else(|| self.is_of_one_end(record))
    }

    /// Whether a connection is one of an end with itself: its key names either side first.
    #[cold]
    fn is_of_one_end(&self, record: Record) -> bool {
        fn is_symmetric<K: FlowKey>(key: &K) -> bool {
            *key == key.reversed()
        }
        match record.family() {
            Family::V4 => is_symmetric(&self.key::<KeyV4>(record)),
            Family::V6 => is_symmetric(&self.key::<KeyV6>(record)),
        }
    }

    /// Whether this is a record of the connection with this key, client first.
    #[inline]
    fn is_of<K: FlowKey>(&self, record: Record, key: &K) -> bool {
        record.family() == K::FAMILY && *key == self.key(record)
    }

    /// All that was written and not taken off, oldest first, as seen at the tick `now`.
    pub fn iter(&self, now: u64) -> impl Iterator<Item = HalfOpen> {
        let mut cursor = self.start();
        std::iter::from_fn(move || {
            let (record, next) = self.after(cursor)?;
            cursor = next;
            Some(self.read(record, now))
        })
    }

    #[inline]
    fn read(&self, record: Record, now: u64) -> HalfOpen {
        let key = match record.family() {
            Family::V4 => AnyKey::V4(self.key(record)),
            Family::V6 => AnyKey::V6(self.key(record)),
        };
        let since_tick = record.since_tick(now);
        HalfOpen {
            key,
            start_tick: since_tick.wrapping_sub(record.header.delay()),
            since_tick,
            answered: record.answered(),
            number: record.header.number(),
        }
    }
}
