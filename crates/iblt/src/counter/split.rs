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

/// Shares that are tried in any counter, however small: the smallest have no average.
const COUNTER_SPLITS_MIN: u64 = 1 << 16;

/// The most keys that splits take out of a counter, for each of its cells: three times as many as any counter lists.
const COUNTER_KEYS_PER_CELL: usize = 4;

/// Splits that may still be tried.
pub(super) struct Budget(u64);

impl Budget {
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

/// The keys that are `sum` when taken `count` times.
pub(super) fn keys_of<K: Key>(sum: K, count: i64) -> impl Iterator<Item = K> {
    (0..quotients::<K>(count).unwrap_or(0)).map_while(move |lost| sum.quotient(count, lost))
}

/// Takes out of `table` all keys that stand alone, and then those that `split` finds in other cells, for as long as
/// there are any. `taken` is called for every key; `state` is what both closures share.
pub(super) fn list<C, H, S>(
    table: &mut Table<C, H>,
    state: &mut S,
    split: impl Fn(&S, &Table<C, H>, u32, &mut Budget) -> Option<(C::Key, i64)>,
    taken: impl Fn(&mut S, &Table<C, H>, &C::Key),
) -> Tally<C::Key>
where
    C: TableCell<Value = ()>,
    H: KeyHash<C::Key>,
{
    let cell_count = table.cells().len();
    let mut keys = Vec::new();
    let mut budget = Budget(COUNTER_SPLITS_MIN + COUNTER_SPLITS_PER_CELL * cell_count as u64);
    let mut keys_left = COUNTER_KEYS_PER_CELL * cell_count;
    // What a cell held when no split was found. It is not tried again until it holds something else.
    let mut failed: Vec<C> = vec![C::zero(); cell_count];
    loop {
        let first = keys.len();
        table.peel(Rule::Aggregates, |entry| keys.push(counted(entry)));
        keys[first..].iter().for_each(|(key, _)| taken(state, table, key));
        let mut has_split = false;
        for place in 0..cell_count as u32 {
            let cell = *table.cell(place);
            if cell == failed[place as usize] || keys_left == 0 {
                continue;
            }
            match split(state, table, place, &mut budget) {
                Some((key, count)) => {
                    table.update(&key, (), count.wrapping_neg());
                    taken(state, table, &key);
                    keys.push((key, count));
                    keys_left -= 1;
                    has_split = true;
                }
                None => failed[place as usize] = cell,
            }
        }
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
