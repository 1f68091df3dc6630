//! The half-open connections with their keys, oldest first, in a ring of fixed size.
//!
//! What enters: connections as they begin. What leaves: the same, oldest first. The filter has no keys, so whatever a
//! list is to show, or a timeout to take off, before the handshake is complete has to stand here. Candidates for
//! connections that are older than the start stand in a ring of their own.
//!
//! A connection is written when its SYN is seen, and again when its SYN-ACK is seen in a later tick, because the timeout
//! counts from there; what was written before is then skipped, as is what is half-open no longer. A flood overwrites the oldest.

use crate::config::{CLOCK_LEAP_MAX_NS, SYN_TIMEOUT_MAX_TICKS, TICK_NS};
use crate::connection::{Entry, INITIAL_NUMBER_BITS, State};
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

/// A half-open connection as the ring holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl HalfOpen {
    /// Whether this is what the filter's entry says still. A candidate is told from a half-open connection by its number, which
    /// is not known.
    #[must_use]
    #[inline]
    pub fn is_current(&self, entry: &Entry) -> bool {
        let names_client_first = match self.key {
            AnyKey::V4(key) => names_first(&key, entry.client),
            AnyKey::V6(key) => names_first(&key, entry.client),
        };
        (entry.state.is_half_open() || entry.state == State::Candidate)
            && names_client_first
            && entry.state.is_answered_late() == (self.since_tick != self.start_tick)
            && entry.tick == Entry::tick_of(self.start_tick)
            && entry.number == self.number
    }

    fn word_count(&self) -> usize {
        1 + match self.key {
            AnyKey::V4(_) => KeyV4::WORD_COUNT,
            AnyKey::V6(_) => KeyV6::WORD_COUNT,
        }
    }
}

/// Whether the key names this end of its canonical form first. A key whose ends are the same names both.
#[inline]
fn names_first<K: FlowKey>(key: &K, side: Side) -> bool {
    match side {
        Side::First => *key <= key.reversed(),
        Side::Second => *key >= key.reversed(),
    }
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
        (connection_count * (1 + KeyV4::WORD_COUNT)).max(RECORD_WORD_COUNT_MAX)
    }

    /// The memory of such a ring in bytes.
    #[must_use]
    pub fn size(connection_count: usize) -> usize {
        Self::word_count(connection_count) * size_of::<u64>()
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
        debug_assert!(self.used + record.word_count() <= self.words.len());
        let delay = record.since_tick.saturating_sub(record.start_tick).min((1 << DELAY_BITS) - 1);
        let (family, words) = match &record.key {
            AnyKey::V4(key) => (Family::V4, key.words()),
            AnyKey::V6(key) => (Family::V6, key.words()),
        };
        let header = (record.since_tick & 0xffff_ffff) << 32
            | delay << (INITIAL_NUMBER_BITS + 2)
            | u64::from(record.number) << 2
            | u64::from(record.answered) << 1
            | u64::from(family == Family::V6);
        let mut at = self.behind(self.head, self.used);
        for word in std::iter::once(&header).chain(words) {
            self.words[at] = *word;
            at = self.behind(at, 1);
        }
        self.used += 1 + words.len();
    }

    /// The oldest connection, as seen at the tick `now`.
    #[must_use]
    #[inline]
    pub fn oldest(&self, now: u64) -> Option<HalfOpen> {
        (self.used > 0).then(|| self.read(self.head, now))
    }

    /// Takes off the oldest connections, which are these.
    #[inline]
    pub fn skip<'a>(&mut self, oldest: impl Iterator<Item = &'a HalfOpen>) {
        for record in oldest {
            self.head = self.behind(self.head, record.word_count());
            self.used -= record.word_count();
        }
    }

    /// Whether nothing is in it.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// All that was written and not taken off, oldest first, as seen at the tick `now`.
    pub fn iter(&self, now: u64) -> impl Iterator<Item = HalfOpen> {
        let (mut at, mut left) = (self.head, self.used);
        std::iter::from_fn(move || {
            let record = (left > 0).then(|| self.read(at, now))?;
            at = self.behind(at, record.word_count());
            left -= record.word_count();
            Some(record)
        })
    }

    #[inline]
    fn read(&self, index: usize, now: u64) -> HalfOpen {
        let word = |distance: usize| self.words[self.behind(index, distance)];
        let header = word(0);
        let key = if header & 1 == 0 {
            AnyKey::V4(KeyV4::from_words(&[word(1), word(2)]))
        } else {
            AnyKey::V6(KeyV6::from_words(&[word(1), word(2), word(3), word(4), word(5)]))
        };
        // The header has the low 32 bits of the tick: it is the one of these ticks that is nearest to now.
        let ago = (now as u32).wrapping_sub((header >> 32) as u32) as i32;
        let since_tick = now.wrapping_sub(i64::from(ago) as u64);
        let delay = header >> (INITIAL_NUMBER_BITS + 2) & ((1 << DELAY_BITS) - 1);
        HalfOpen {
            key,
            start_tick: since_tick.wrapping_sub(delay),
            since_tick,
            answered: header & 2 != 0,
            number: (header >> 2) as u32 & ((1 << INITIAL_NUMBER_BITS) - 1),
        }
    }
}
