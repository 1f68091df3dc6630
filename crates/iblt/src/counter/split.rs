//! Listing with splits: where no cell holds a key alone, a cell with two keys may be split.
//!
//! The invariant is that of listing, and work is bounded as there: splits take out at most a multiple of the number of
//! cells, and the number of splits that are tried is limited for each cell.

use super::{Tally, counted};
use crate::cell::TableCell;
use crate::key_hash::KeyHash;
use crate::listing::Rule;
use crate::sum::{Key, quotients};
use crate::table::Table;

/// The largest count of a counter's cell that is split between two keys: it takes a try for every share, and splits are
/// meant for small multiplicities.
const COUNTER_SPLIT_COUNT_MAX: i64 = 1 << 12;

/// Shares that are tried for each cell of a counter, on average: at the threshold of one kept key a cell of four keys
/// is tried some twenty times with two hundred shares.
const COUNTER_SPLITS_PER_CELL: u64 = 1 << 12;

/// The largest count of a counter's cell that is split between three keys: there are half as many ways as its square.
const COUNTER_TRIPLE_COUNT_MAX: i64 = 1 << 8;

/// Shares that are tried for each cell of a counter that also splits cells of three keys, on average: a few kept keys
/// make some pairs, and each has up to two thousand shares in a cell of multiplicities up to 20.
const COUNTER_TRIPLE_SPLITS_PER_CELL: u64 = 1 << 16;

/// Shares that are tried in any counter, however small: the smallest have no average.
const COUNTER_SPLITS_MIN: u64 = 1 << 16;

/// The most keys that splits take out of a counter, for each of its cells: three times as many as any counter lists.
const COUNTER_KEYS_PER_CELL: usize = 4;

/// Splits that may still be tried.
pub(super) struct Budget(u64);

impl Budget {
    /// The tries of a counter with so many cells, which are split between two keys, or between up to three.
    fn new(cell_count: usize, has_triples: bool) -> Self {
        let per_cell = if has_triples { COUNTER_TRIPLE_SPLITS_PER_CELL } else { COUNTER_SPLITS_PER_CELL };
        Budget(COUNTER_SPLITS_MIN + per_cell * cell_count as u64)
    }

    /// Takes one try; whether there was one left.
    pub(super) fn take(&mut self) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left
    }
}

/// The ways to divide a count between two keys, each of which gets at least one. Empty for counts that have too many
/// ways.
pub(super) fn shares(count: i64) -> impl Iterator<Item = (i64, i64)> {
    let end = if count > COUNTER_SPLIT_COUNT_MAX { 1 } else { count };
    (1..end).map(move |first| (first, count - first))
}

/// The ways to divide a count between three keys, as the parts of the first two, of which neither exceeds its most.
/// Empty for counts that have too many ways.
pub(super) fn triples(count: i64, most: [i64; 2]) -> impl Iterator<Item = (i64, i64)> {
    let end = if count > COUNTER_TRIPLE_COUNT_MAX { 1 } else { count };
    (1..(end - 1).min(most[0].saturating_add(1)))
        .flat_map(move |first| (1..(end - first).min(most[1].saturating_add(1))).map(move |second| (first, second)))
}

/// The keys that are `sum` when taken `count` times.
pub(super) fn keys_of<K: Key>(sum: K, count: i64) -> impl Iterator<Item = K> {
    (0..quotients::<K>(count).unwrap_or(0)).map_while(move |lost| sum.quotient(count, lost))
}

/// How many keys a split supposes in a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    Two,
    Three,
}

/// How cells are split: what the counter knows beside the table.
pub(super) trait Splits<C: TableCell, H> {
    /// Whether cells of three keys are split too.
    fn has_triples(&self) -> bool;
    /// One key, with its count, of a cell that holds so many keys.
    fn split(&self, table: &Table<C, H>, place: u32, parts: Parts, budget: &mut Budget) -> Option<(C::Key, i64)>;
    /// Is called for every key that was taken out.
    fn taken(&mut self, table: &Table<C, H>, key: &C::Key);
}

/// The passes of one listing over cells that hold several keys.
struct Sweeps<C> {
    /// What a cell held when no split into two keys was found, and none into three. It is not tried again until it
    /// holds something else.
    failed: [Vec<C>; 2],
    budget: Budget,
    keys_left: usize,
}

impl<C: TableCell<Value = ()>> Sweeps<C> {
    /// Splits the cells in order. Splits into three are dear, so the first that succeeds ends the pass: what it frees
    /// may be listed in cheaper ways. Returns whether any did.
    fn pass<H: KeyHash<C::Key>>(
        &mut self,
        table: &mut Table<C, H>,
        splits: &mut impl Splits<C, H>,
        parts: Parts,
        keys: &mut Vec<(C::Key, i64)>,
    ) -> bool {
        let failed = &mut self.failed[usize::from(parts == Parts::Three)];
        let mut has_split = false;
        for place in 0..failed.len() as u32 {
            let cell = *table.cell(place);
            if cell == failed[place as usize] || self.keys_left == 0 {
                continue;
            }
            match splits.split(table, place, parts, &mut self.budget) {
                Some((key, count)) => {
                    table.update(&key, (), count.wrapping_neg());
                    splits.taken(table, &key);
                    keys.push((key, count));
                    self.keys_left -= 1;
                    has_split = true;
                    if parts == Parts::Three {
                        break;
                    }
                }
                None => failed[place as usize] = cell,
            }
        }
        has_split
    }
}

/// Takes out of `table` all keys that stand alone, and then those that splits find in other cells, for as long as there
/// are any.
pub(super) fn list<C, H>(table: &mut Table<C, H>, splits: &mut impl Splits<C, H>) -> Tally<C::Key>
where
    C: TableCell<Value = ()>,
    H: KeyHash<C::Key>,
{
    let cell_count = table.cells().len();
    let mut keys = Vec::new();
    let mut sweeps = Sweeps {
        failed: [vec![C::zero(); cell_count], vec![C::zero(); if splits.has_triples() { cell_count } else { 0 }]],
        budget: Budget::new(cell_count, splits.has_triples()),
        keys_left: COUNTER_KEYS_PER_CELL * cell_count,
    };
    loop {
        let first = keys.len();
        table.peel(Rule::Aggregates, |entry| keys.push(counted(entry)));
        keys[first..].iter().for_each(|(key, _)| splits.taken(table, key));
        let has_split =
            sweeps.pass(table, splits, Parts::Two, &mut keys) || sweeps.pass(table, splits, Parts::Three, &mut keys);
        if !has_split {
            return Tally { keys, residue: table.residue() };
        }
    }
}

/// Whether a key may be in the cell at `place` `count` times: it maps there, and all its cells count at least as much.
pub(super) fn may_hold<C: TableCell, H: KeyHash<C::Key>>(
    table: &Table<C, H>,
    place: u32,
    hash: u128,
    count: i64,
) -> bool {
    let places = table.places(hash);
    places.contains(&place) && places.iter().all(|&place| table.cell(place).count() >= count)
}
