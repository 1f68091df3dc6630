//! The positions of connections by their hashes, in four bytes each, with few empty slots.
//!
//! A line has the size of a cache line: fifteen slots, and
//! the number of connections that went past it because it was full. So most look-ups read one line, also for keys that
//! are not there, and a removal leaves nothing behind. A slot holds a byte of the hash too, so a connection other than
//! the right one is hardly ever read.

use crate::signal::PARTITION_COUNT;
use crate::track::CONNECTIONS_MAX;
use flowpeel_iblt::hash::place_of;
use flowpeel_lines::prefetch;

/// The most connections that are listed in one family of one partition: an index has 24 bits for each.
pub const LISTED_MAX: usize = 15_000_000;

/// How full the lines of a list's index become on average before it grows, in percent: one connection in five is then
/// in the line after its own.
const LIST_INDEX_LOAD_PERCENT_MAX: usize = 90;

/// By which part a list's index grows at least, as one in this many: a quarter keeps the memory close to what is
/// listed, and a list is indexed anew a few times while it doubles.
const LIST_INDEX_GROWTH_DIVISOR: usize = 4;

// Partitions do not share evenly.
const _: () = assert!(CONNECTIONS_MAX / PARTITION_COUNT as u64 * 9 / 8 <= LISTED_MAX as u64);

const SLOT_COUNT: usize = 15;

/// How many of a slot's 32 bits hold the tag, a part of the hash. The others hold the position plus one; zero is an
/// empty slot.
const TAG_BITS: u32 = 8;

const _: () = assert!(LISTED_MAX < 1 << (u32::BITS - TAG_BITS));

/// The word of a line behind its slots: the number of connections in later lines whose home is this line or an earlier
/// one.
const PASSED_COUNT: usize = SLOT_COUNT;

/// The slots, and [`PASSED_COUNT`].
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u32; PASSED_COUNT + 1]);

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    /// The slots that pass, a bit each. All are looked at, without a branch.
    #[inline]
    fn slots(&self, passes: impl Fn(u32) -> bool) -> u32 {
        // With constant bits this is vectorised. The last word is no slot.
        const BITS: [u32; PASSED_COUNT + 1] = {
            let (mut bits, mut at) = ([0; PASSED_COUNT + 1], 0);
            while at < SLOT_COUNT {
                bits[at] = 1 << at;
                at += 1;
            }
            bits
        };
        let words = self.0.iter().zip(BITS);
        words.fold(0, |slots, (word, bit)| slots | if passes(*word) { bit } else { 0 })
    }
}

fn slot_of(hash: u64, position: usize) -> u32 {
    (position as u32 + 1) << TAG_BITS | hash as u32 & ((1 << TAG_BITS) - 1)
}

fn position_of(slot: u32) -> Option<usize> {
    (slot >> TAG_BITS).checked_sub(1).map(|position| position as usize)
}

/// Positions by hashes.
pub(super) struct Index {
    lines: Vec<Line>,
    /// The number of positions that there is room for.
    count_max: usize,
}

impl Index {
    /// An index without room for anything.
    pub(super) fn new() -> Self {
        Index { lines: Vec::new(), count_max: 0 }
    }

    /// Whether an index with this many positions has no room for another.
    pub(super) fn is_full(&self, count: usize) -> bool {
        count >= self.count_max
    }

    /// Empties the index, and makes room for `count` positions, or for a quarter more than before if that is more. The
    /// old memory is freed first.
    pub(super) fn clear(&mut self, count: usize) {
        let count = count.max(self.count_max + self.count_max / LIST_INDEX_GROWTH_DIVISOR).max(SLOT_COUNT);
        self.lines = Vec::new();
        let line_count = (count * 100).div_ceil(SLOT_COUNT * LIST_INDEX_LOAD_PERCENT_MAX);
        self.lines = vec![Line::default(); line_count];
        self.count_max = line_count * SLOT_COUNT * LIST_INDEX_LOAD_PERCENT_MAX / 100;
    }

    /// The memory that the index takes, in bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// The home of a hash: the line in which a connection with it is looked for first.
    fn home(&self, hash: u64) -> usize {
        place_of((hash >> u32::BITS) as u32, self.lines.len())
    }

    /// Prefetches the home line of a hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(self.home(hash)) {
            prefetch(line);
        }
    }

    fn behind(&self, line: usize) -> usize {
        if line + 1 < self.lines.len() { line + 1 } else { 0 }
    }

    /// The line, the slot and the position of the connection with this hash whose position passes.
    fn locate(&self, hash: u64, passes: impl Fn(usize) -> bool) -> Option<(usize, usize, usize)> {
        let (mut index, tag) = (self.home(hash), hash as u8);
        for _ in 0..self.lines.len() {
            let line = &self.lines[index];
            let mut slots = line.slots(|slot| slot as u8 == tag);
            while slots != 0 {
                let at = slots.trailing_zeros() as usize;
                slots &= slots - 1;
                if let Some(position) = position_of(line.0[at]).filter(|position| passes(*position)) {
                    return Some((index, at, position));
                }
            }
            if line.0[PASSED_COUNT] == 0 {
                return None;
            }
            index = self.behind(index);
        }
        None
    }

    /// The position with this hash that passes.
    pub(super) fn find(&self, hash: u64, passes: impl Fn(usize) -> bool) -> Option<usize> {
        self.locate(hash, passes).map(|(_, _, position)| position)
    }

    /// Adds a position. The index must have room.
    pub(super) fn insert(&mut self, hash: u64, position: usize) {
        let mut index = self.home(hash);
        loop {
            let line = &mut self.lines[index];
            let free = line.slots(|slot| slot == 0);
            if free != 0 {
                line.0[free.trailing_zeros() as usize] = slot_of(hash, position);
                return;
            }
            line.0[PASSED_COUNT] += 1;
            index = self.behind(index);
        }
    }

    /// Removes and returns the position with this hash that passes.
    pub(super) fn remove(&mut self, hash: u64, passes: impl Fn(usize) -> bool) -> Option<usize> {
        let (last, slot, position) = self.locate(hash, passes)?;
        self.lines[last].0[slot] = 0;
        let mut index = self.home(hash);
        while index != last {
            self.lines[index].0[PASSED_COUNT] -= 1;
            index = self.behind(index);
        }
        Some(position)
    }

    /// Replaces the position `before`, which has this hash, with `after`.
    pub(super) fn replace(&mut self, hash: u64, before: usize, after: usize) {
        if let Some((index, slot, _)) = self.locate(hash, |position| position == before) {
            self.lines[index].0[slot] = slot_of(hash, after);
        }
    }
}
