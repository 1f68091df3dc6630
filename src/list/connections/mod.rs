//! The listed connections of one family of one partition, stored densely.
//!
//! There may be a million of them, and the machine that lists them is the router itself, so no memory doubles when it
//! grows: keys and starts stand side by side without gaps, in as few bytes as they need, and an [index](index::Index)
//! of four bytes each finds them.

mod entries;
mod index;
mod packing;

use crate::flow::FlowKey as TableKey;
use crate::list::start::Start;
use ahash::RandomState;
use entries::Entries;
use index::Index;
pub use index::LISTED_MAX;
use std::ops::RangeInclusive;

/// How many connections ahead the line of one is prefetched while the index is made anew.
const GROWTH_AHEAD_COUNT: usize = 16;

/// The listed connections, each with its start.
pub(super) struct Connections<K> {
    entries: Entries<K>,
    index: Index,
    /// Keys come from the wire, so the hash is seeded at random. Only positions in the index depend on it.
    hash: RandomState,
}

impl<K: TableKey> Connections<K> {
    pub(super) fn new() -> Self {
        Connections { entries: Entries::new(), index: Index::new(), hash: RandomState::new() }
    }

    /// The number of connections.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn position(&self, key: &K) -> Option<usize> {
        self.index.find(self.hash.hash_one(key), |position| self.entries.key(position) == *key)
    }

    /// The key at a position below [`Self::len`].
    pub(super) fn key_at(&self, position: usize) -> K {
        self.entries.key(position)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.position(key).is_some()
    }

    pub(super) fn get(&self, key: &K) -> Option<Start> {
        self.position(key).map(|position| self.entries.start(position))
    }

    /// Prefetches the line of the index for this key. Returns the key's hash.
    #[inline]
    pub(super) fn prefetch(&self, key: &K) -> u64 {
        let hash = self.hash.hash_one(key);
        self.index.prefetch(hash);
        hash
    }

    /// Prefetches the first connection that the index has for this hash.
    #[inline]
    pub(super) fn prefetch_entry(&self, hash: u64) {
        if let Some(position) = self.index.find(hash, |_| true) {
            self.entries.prefetch(position);
        }
    }

    /// Lists a connection, unless it is listed or there are [`LISTED_MAX`]. Returns whether it was listed now.
    ///
    /// Complexity: constant on average; a pass over the list whenever it has grown by a quarter.
    pub(super) fn insert(&mut self, key: K, start: Start) -> bool {
        let hash = self.hash.hash_one(key);
        let is_listed = self.index.find(hash, |position| self.entries.key(position) == key).is_some();
        if is_listed || self.len() >= LISTED_MAX {
            return false;
        }
        if self.index.is_full(self.len()) {
            self.grow(self.len() + 1);
        }
        self.index.insert(hash, self.len());
        self.entries.push(&key, start);
        true
    }

    /// Makes room in the index for `count` connections. The old index is freed first, since all of it follows from the
    /// connections.
    pub(super) fn grow(&mut self, count: usize) {
        let Self { entries, index, hash } = self;
        index.clear(count);
        let mut hashes = [0; GROWTH_AHEAD_COUNT];
        for (position, (key, _)) in entries.iter().enumerate() {
            let hash = hash.hash_one(key);
            index.prefetch(hash);
            let before = std::mem::replace(&mut hashes[position % GROWTH_AHEAD_COUNT], hash);
            if let Some(position) = position.checked_sub(GROWTH_AHEAD_COUNT) {
                index.insert(before, position);
            }
        }
        for position in entries.len().saturating_sub(GROWTH_AHEAD_COUNT)..entries.len() {
            index.insert(hashes[position % GROWTH_AHEAD_COUNT], position);
        }
    }

    /// Takes a connection off; the last one takes its place. Returns its start, if it was listed.
    pub(super) fn remove(&mut self, key: &K) -> Option<Start> {
        let entries = &self.entries;
        let position = self.index.remove(self.hash.hash_one(key), |position| entries.key(position) == *key)?;
        let (start, moved) = self.entries.swap_remove(position);
        if let Some(moved) = moved {
            self.index.replace(self.hash.hash_one(moved), self.len(), position);
        }
        Some(start)
    }

    /// Changes the start of a connection. Returns the earlier start, if the connection is listed.
    pub(super) fn update(&mut self, key: &K, change: impl FnOnce(Start) -> Start) -> Option<Start> {
        let position = self.position(key)?;
        let before = self.entries.start(position);
        self.entries.set_start(position, key, change(before));
        Some(before)
    }

    /// Changes the starts of all connections.
    pub(super) fn update_all(&mut self, change: impl Fn(&K, Start) -> Start) {
        for position in 0..self.len() {
            let (key, start) = self.entries.get(position);
            self.entries.set_start(position, &key, change(&key, start));
        }
    }

    /// All connections, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, Start)> {
        self.entries.iter()
    }

    /// The connections whose key's first word is in this range, in no order. Of the others only that word is read.
    pub(super) fn iter_within(&self, first_words: RangeInclusive<u64>) -> impl Iterator<Item = (K, Start)> {
        self.entries.iter_within(first_words)
    }

    /// The keys of all connections, in no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = K> {
        self.entries.iter().map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests;
