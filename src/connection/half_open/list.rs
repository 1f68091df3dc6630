//! The half-open connections at the end of an interval, in the memory in which the list then sorts them.
//!
//! What enters: records of a ring, in any order. What leaves: the connections of either family, sorted by key. There is
//! room for as much as the ring holds: IPv4 connections grow from the start of the memory and IPv6 connections from its
//! end, each as the words of its key and a header, so that they are sorted in place.

use super::{HalfOpen, HalfOpenRing, Header, UNIT_WORD_COUNT};
use crate::flow::{Family, FlowKey, KeyV4, KeyV6, WordKey};
use crate::signal::AnyKey;
use std::ops::Range;

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
        let words = vec![0; HalfOpenRing::word_count(connection_count)].into_boxed_slice();
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
        HalfOpenRing::size(connection_count)
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
    pub(super) fn add<K: FlowKey>(&mut self, key: &K, header: Header) {
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
    pub fn of_family<K: FlowKey>(&self, now: u64) -> impl Iterator<Item = HalfOpen<K>> {
        let records = self.words[self.place_of::<K>()].chunks_exact(K::WORD_COUNT + 1);
        records.map(move |words| HalfOpen::new(K::from_words(words), Header(words[K::WORD_COUNT]), now))
    }

    /// All connections, seen at the tick `now`, IPv4 before IPv6.
    pub fn iter(&self, now: u64) -> impl Iterator<Item = HalfOpen> {
        let v4 = self.of_family(now).map(|one| one.with_key(AnyKey::V4));
        v4.chain(self.of_family(now).map(|one| one.with_key(AnyKey::V6)))
    }
}
