//! A ring of fixed size with the half-open connections and their keys, oldest first.
//!
//! What enters: connections as they begin. What leaves: the same, oldest first. The filter has no keys, so a connection
//! needs a record here for as long as a list may have to show it, or a timeout to remove it, before its handshake is
//! complete. Candidates (connections older than the start, of which one side was seen) have a ring of their own.
//!
//! A record is written when the SYN is seen, and again when the SYN-ACK is seen in a later tick, because the timeout
//! then counts from there. A flood overwrites the oldest records.

mod marked;
mod rings;
mod saved;

pub(super) use marked::{Mark, MarkedRing, Room};
pub(super) use rings::{RingCounts, Rings};

use crate::flow::{FlowKey, KeyV6, WordKey};
use crate::handover::half_open::{HalfOpenHeader, UNIT_WORD_COUNT, half_open_word_count};

use crate::track::{Entry, Slot};

/// The most half-open connections that are kept: at a million attempts a second the oldest is then a quarter of a
/// second old when it has to go, longer than most round trips.
pub const HALF_OPEN_MAX: u64 = 1 << 18;

/// The bits at the end of a key that hold its VLAN tags. Few keys have tags, so a record has here the slot of the
/// connection's entry in the filter, and the tags, if any, in a word of their own.
const TAGS: u64 = (1 << u32::BITS) - 1;

/// The position of a record in its ring, valid until the record is removed or moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    index: usize,
    header: HalfOpenHeader,
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
    header: HalfOpenHeader,
    mark: Mark,
    key: K,
}

impl<K: FlowKey> Draft<K> {
    /// The record of the connection with this key, client first, and this entry, at the tick `now`.
    #[inline]
    pub(super) fn new(key: K, entry: &Entry, now: u64) -> Self {
        let header =
            HalfOpenHeader::new(&key, now, u64::from(entry.age(now)), entry.short_isn, entry.state.is_answered());
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
        HalfOpenRing { words: vec![0; half_open_word_count(connection_count)].into_boxed_slice(), head: 0, used: 0 }
    }

    /// The memory of such a ring, in bytes.
    fn size(connection_count: usize) -> usize {
        half_open_word_count(connection_count) * size_of::<u64>()
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
        let place = self.words.get_mut(at..at + 1 + words.len()).filter(|_| header.0 & HalfOpenHeader::TAGGED == 0);
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
    fn write_in_parts(&mut self, at: usize, header: HalfOpenHeader, words: &[u64], closing: [u64; 2]) {
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
        Record { index, header: HalfOpenHeader(self.words[index]) }
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
        let tags = if record.header.0 & HalfOpenHeader::TAGGED == 0 {
            0
        } else {
            self.words[self.behind(record.index, 1 + K::WORD_COUNT)]
        };
        words[K::WORD_COUNT - 1] = words[K::WORD_COUNT - 1] & !TAGS | tags & TAGS;
        K::from_words(&words)
    }
}
