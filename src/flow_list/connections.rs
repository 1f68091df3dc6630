//! The listed connections of one family of one partition, densely.
//!
//! What enters: connections that open and close. What leaves: who is listed, by key or one after another. There may be a million of
//! them, and the machine that lists them is the router itself, so nothing doubles: keys and starts stand side by side without gaps,
//! in pieces that never move, and an [index](index::Index) of four bytes each finds them.

mod index;

use crate::config::LISTED_MAX;
use crate::flow_list::start::Start;
use crate::prefetch::prefetch;
use crate::sketch::TableKey;
use ahash::RandomState;
use index::Index;

/// Connections in a piece: some tens of kilobytes, so that a short list takes little more than it needs.
const PIECE_COUNT: usize = 1 << 10;

#[derive(Clone, Copy)]
struct Entry<K> {
    key: K,
    start: Start,
}

/// Who is listed, with the start of each.
pub(super) struct Connections<K> {
    /// All but the last are full, and none is empty.
    pieces: Vec<Vec<Entry<K>>>,
    len: usize,
    index: Index,
    /// Keys come from the wire, so the hash is seeded at random; nothing depends on it but where in the index they stand.
    hash: RandomState,
}

impl<K: TableKey> Connections<K> {
    pub(super) fn new() -> Self {
        Connections { pieces: Vec::new(), len: 0, index: Index::new(), hash: RandomState::new() }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The connection at a position below [`Self::len`].
    fn entry(&self, position: usize) -> &Entry<K> {
        &self.pieces[position / PIECE_COUNT][position % PIECE_COUNT]
    }

    fn position(&self, key: &K) -> Option<usize> {
        self.index.find(self.hash.hash_one(key), |position| self.entry(position).key == *key)
    }

    /// The key at a position below [`Self::len`].
    pub(super) fn key_at(&self, position: usize) -> K {
        self.entry(position).key
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.position(key).is_some()
    }

    pub(super) fn get(&self, key: &K) -> Option<Start> {
        self.position(key).map(|position| self.entry(position).start)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut Start> {
        let position = self.position(key)?;
        Some(&mut self.pieces[position / PIECE_COUNT][position % PIECE_COUNT].start)
    }

    /// Asks for where in the index this key is looked for; its hash.
    #[inline]
    pub(super) fn prefetch(&self, key: &K) -> u64 {
        let hash = self.hash.hash_one(key);
        self.index.prefetch(hash);
        hash
    }

    /// Asks for the connection with this hash, as far as the index tells.
    #[inline]
    pub(super) fn prefetch_entry(&self, hash: u64) {
        if let Some(position) = self.index.find(hash, |_| true) {
            prefetch(self.entry(position));
        }
    }

    /// Lists a connection, unless it is listed or there are [`LISTED_MAX`]; whether that was done.
    ///
    /// Complexity: constant on average; that of a pass over the list whenever it has grown by a quarter.
    pub(super) fn insert(&mut self, key: K, start: Start) -> bool {
        let hash = self.hash.hash_one(key);
        let is_listed = self.index.find(hash, |position| self.entry(position).key == key).is_some();
        if is_listed || self.len >= LISTED_MAX {
            return false;
        }
        if self.index.is_full(self.len) {
            self.grow(self.len + 1);
        }
        self.index.insert(hash, self.len);
        match self.pieces.last_mut().filter(|piece| piece.len() < PIECE_COUNT) {
            Some(piece) => piece.push(Entry { key, start }),
            None => {
                let mut piece = Vec::with_capacity(PIECE_COUNT);
                piece.push(Entry { key, start });
                self.pieces.push(piece);
            }
        }
        self.len += 1;
        true
    }

    /// Makes room in the index for so many. The old one goes first: all that it holds follows from the connections.
    pub(super) fn grow(&mut self, count: usize) {
        self.index.clear(count);
        for (position, entry) in self.pieces.iter().flatten().enumerate() {
            self.index.insert(self.hash.hash_one(entry.key), position);
        }
    }

    /// Takes a connection off; its start, if it was listed. The last one takes its place.
    pub(super) fn remove(&mut self, key: &K) -> Option<Start> {
        let hash = self.hash.hash_one(key);
        let pieces = &self.pieces;
        let is_meant = |position: usize| pieces[position / PIECE_COUNT][position % PIECE_COUNT].key == *key;
        let position = self.index.remove(hash, is_meant)?;
        let piece = self.pieces.last_mut()?;
        let last = piece.pop()?;
        if piece.is_empty() {
            self.pieces.pop();
        }
        self.len -= 1;
        if position == self.len {
            return Some(last.start);
        }
        self.index.replace(self.hash.hash_one(last.key), self.len, position);
        let place = &mut self.pieces[position / PIECE_COUNT][position % PIECE_COUNT];
        Some(std::mem::replace(place, last).start)
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, Start)> {
        self.pieces.iter().flatten().map(|entry| (entry.key, entry.start))
    }

    /// Their keys, in no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = K> {
        self.pieces.iter().flatten().map(|entry| entry.key)
    }

    /// All of them, to change their starts.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut Start)> {
        self.pieces.iter_mut().flatten().map(|entry| (&entry.key, &mut entry.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{FlowKey, KeyV4, KeyV6};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key<K: FlowKey>(number: u64) -> K {
        K::from_words(&[number % 7, number, 1, 2, 3])
    }

    /// Opens and closes as told, beside a map that does the same.
    fn check<K: TableKey>(steps: &[(u64, bool)]) {
        let (mut connections, mut map) = (Connections::<K>::new(), BTreeMap::new());
        for (tick, (number, opens)) in steps.iter().enumerate() {
            let (key, start) = (key::<K>(*number), Start::at(tick as u64, false));
            assert_eq!(connections.get(&key), map.get(&key).copied());
            if *opens {
                assert_eq!(connections.insert(key, start), !map.contains_key(&key));
                map.entry(key).or_insert(start);
            } else {
                assert_eq!(connections.remove(&key), map.remove(&key));
            }
            assert_eq!((connections.len(), connections.contains(&key)), (map.len(), *opens));
        }
        let mut listed: Vec<_> = connections.iter().collect();
        listed.sort_unstable_by_key(|(key, _)| *key);
        assert_eq!(listed, map.into_iter().collect::<Vec<_>>());
        assert!(connections.keys().enumerate().all(|(position, key)| connections.key_at(position) == key));
        for (key, start) in listed {
            assert_eq!(connections.remove(&key), Some(start));
        }
        assert!(connections.is_empty() && connections.pieces.is_empty() && connections.iter().next().is_none());
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u64..300, any::<bool>()), 0..2_000)) {
            check::<KeyV4>(&steps);
            check::<KeyV6>(&steps);
        }
    }

    #[test]
    fn so_is_a_long_one() {
        let number = |step: u64| step.wrapping_mul(0x9e37_79b9) % 40_000;
        let steps: Vec<_> = (0..150_000).map(|step| (number(step), step < 60_000 || step % 3 > 0)).collect();
        check::<KeyV4>(&steps);
    }

    #[test]
    fn starts_can_be_changed() {
        let mut connections = Connections::<KeyV4>::new();
        assert!((0..3_000).all(|number| connections.insert(key(number), Start::at(number, false))));
        *connections.get_mut(&key(2_000)).unwrap() = Start::at(7, true);
        assert_eq!((connections.get(&key(2_000)), connections.get_mut(&key(3_000))), (Some(Start::at(7, true)), None));
        connections.iter_mut().for_each(|(_, start)| *start = Start::at(9, false));
        assert!(connections.iter().all(|(_, start)| start == Start::at(9, false)));
    }

    #[test]
    fn a_connection_takes_little_more_than_it_holds() {
        let mut connections = Connections::<KeyV4>::new();
        let mut most: f64 = 0.0;
        for number in 0..100_000 {
            connections.insert(key(number), Start::at(number, false));
            let size = connections.pieces.len() * PIECE_COUNT * size_of::<Entry<KeyV4>>() + connections.index.size();
            if number > 50_000 {
                most = most.max(size as f64 / number as f64);
            }
        }
        println!("{most:.1} bytes a connection at most");
        assert!(most < 30.5);
    }
}
