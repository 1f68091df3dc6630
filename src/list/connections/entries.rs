//! Connections side by side without gaps, in pieces of memory that never move.
//!
//! Entries are as short as the listed connections
//! allow. When a connection comes that does not fit, all entries are rewritten, piece by piece, so that memory does not
//! double.

use super::packing::Packing;
use crate::flow::FlowKey as TableKey;
use crate::list::start::Start;
use flowpeel_lines::prefetch;
use std::ops::RangeInclusive;

/// The number of connections in a piece: some tens of kilobytes, so that a short list takes little more than it needs.
const PIECE_COUNT: usize = 1 << 10;

/// Connections by position.
pub(super) struct Entries<K> {
    /// The pieces. All are full except the last one in use; one empty piece may follow it.
    pieces: Vec<Box<[u8]>>,
    len: usize,
    packing: Packing<K>,
}

impl<K: TableKey> Entries<K> {
    pub(super) fn new() -> Self {
        Entries { pieces: Vec::new(), len: 0, packing: Packing::new() }
    }

    /// The number of connections.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes of the entry at a position below [`Self::len`].
    #[inline]
    fn entry(&self, position: usize) -> &[u8] {
        let size = self.packing.entry_size();
        let at = position % PIECE_COUNT * size;
        &self.pieces[position / PIECE_COUNT][at..at + size]
    }

    /// The key at a position below [`Self::len`].
    #[inline]
    pub(super) fn key(&self, position: usize) -> K {
        self.packing.key(self.entry(position))
    }

    /// The start at a position below [`Self::len`].
    #[inline]
    pub(super) fn start(&self, position: usize) -> Start {
        self.packing.start(self.entry(position))
    }

    /// The connection at a position below [`Self::len`].
    #[inline]
    pub(super) fn get(&self, position: usize) -> (K, Start) {
        let entry = self.entry(position);
        (self.packing.key(entry), self.packing.start(entry))
    }

    /// Prefetches the entry at a position below [`Self::len`], which may lie in two cache lines.
    #[inline]
    pub(super) fn prefetch(&self, position: usize) {
        if let [first, .., last] = self.entry(position) {
            prefetch(first);
            prefetch(last);
        }
    }

    /// Writes a connection over another, or after the last.
    #[inline]
    fn write(&mut self, position: usize, key: &K, start: Start) {
        let size = self.packing.entry_size();
        let at = position % PIECE_COUNT * size;
        self.packing.write(&mut self.pieces[position / PIECE_COUNT][at..at + size], key, start);
    }

    /// Adds a connection after the last.
    #[inline]
    pub(super) fn push(&mut self, key: &K, start: Start) {
        if !self.packing.fits(key, start) {
            self.fit(key, start);
        }
        if self.len == self.pieces.len() * PIECE_COUNT {
            self.pieces.push(vec![0; PIECE_COUNT * self.packing.entry_size()].into_boxed_slice());
        }
        self.write(self.len, key, start);
        self.len += 1;
    }

    /// Removes the connection at a position below [`Self::len`]. Returns its start, and the key of the last connection,
    /// which takes its place, unless it was the last.
    pub(super) fn swap_remove(&mut self, position: usize) -> (Start, Option<K>) {
        let start = self.start(position);
        self.len -= 1;
        let moved = (position < self.len).then(|| self.get(self.len));
        if let Some((key, start)) = &moved {
            self.write(position, key, *start);
        }
        // A piece is not freed as soon as it is empty: the next connection may need it again.
        if self.pieces.len() * PIECE_COUNT - self.len >= PIECE_COUNT * 3 / 2 {
            self.pieces.pop();
        }
        (start, moved.map(|(key, _)| key))
    }

    /// Changes the start of the connection with this key, which is at this position.
    pub(super) fn set_start(&mut self, position: usize, key: &K, start: Start) {
        if !self.packing.fits(key, start) {
            self.fit(key, start);
        }
        self.write(position, key, start);
    }

    /// The bytes of all entries, in the order of positions.
    #[inline]
    fn all(&self) -> impl Iterator<Item = &[u8]> {
        let (len, size) = (self.len, self.packing.entry_size());
        self.pieces.iter().enumerate().flat_map(move |(index, piece)| {
            let count = len.saturating_sub(index * PIECE_COUNT).min(PIECE_COUNT);
            piece[..count * size].chunks_exact(size)
        })
    }

    /// All connections, in the order of positions.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, Start)> {
        let packing = self.packing;
        self.all().map(move |entry| (packing.key(entry), packing.start(entry)))
    }

    /// The connections whose key's first word is in this range. The others are skipped without being unpacked.
    #[inline]
    pub(super) fn iter_within(&self, first_words: RangeInclusive<u64>) -> impl Iterator<Item = (K, Start)> {
        let (packing, (low, high)) = (self.packing, first_words.into_inner());
        // One comparison for both ends.
        let size = high - low;
        let within = self.all().filter(move |entry| Packing::<K>::first_word(entry).wrapping_sub(low) <= size);
        within.map(move |entry| (packing.key(entry), packing.start(entry)))
    }

    /// Rewrites all entries in a packing that this connection fits too. What follows the last entry is rewritten as
    /// well; it means nothing before or after.
    #[cold]
    fn fit(&mut self, key: &K, start: Start) {
        let before = self.packing;
        let after = before.fitting(key, start, self.iter().map(|(_, start)| start));
        for piece in &mut self.pieces {
            let mut fitting = vec![0; PIECE_COUNT * after.entry_size()].into_boxed_slice();
            let places = fitting.chunks_exact_mut(after.entry_size());
            for (place, entry) in places.zip(piece.chunks_exact(before.entry_size())) {
                after.write(place, &before.key(entry), before.start(entry));
            }
            *piece = fitting;
        }
        self.packing = after;
    }

    /// The memory that the entries take, in bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }
}
