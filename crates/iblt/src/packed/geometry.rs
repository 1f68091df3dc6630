//! The shape of an [`Iblt`](crate::Iblt): how large it is, and which of its cells a key is summed into. The cells are
//! split into subtables, one for each hash function, so that a key's places are distinct (section 2.2 of the paper).

use crate::hash::place_of;
use std::ops::Range;

/// The number of which the cells of a snapshot's subtable are a multiple: it folds by 2 to 6, 10, 12, 15, 20, 30 and
/// 60.
const FOLD_BASE: u32 = 60;

/// The number of cells that every key is summed into (the paper's k), one in each subtable.
///
/// There are four: with three cells a key, fewer cells are needed, but two keys on the same three cells are common in
/// small tables, and a stuck pair costs an interval (two keys share the same `k` cells with a probability of
/// O(n^(2-k)), section 2.4).
pub const HASH_COUNT: usize = 4;

/// Bits of the hash that choose the cell of one subtable. Four times 24 and a check of 32 make up all 128 bits. The
/// parts are independent, as listing needs (parts that are multiples of one another make pairs of keys share all their
/// cells).
const PLACE_BITS: u32 = 24;

const _: () = assert!(HASH_COUNT as u32 * PLACE_BITS + u32::BITS == u128::BITS);

/// Cells beyond one an item, in percent of the items: a point and a half above the threshold of large tables with four
/// subtables, which is 1.295 cells an item.
const MORE_CELLS_PERCENT: u64 = 31;

/// Cells for each item of the square root of the number of items: small tables scatter by that around the threshold.
const SCATTER_CELLS: u64 = 3;

/// Cells that every table has in addition: the smallest tables fail by items that share all their cells.
const SMALLEST_CELLS: u64 = 64;

/// The shape of a table: `k` subtables of equally many cells. Shapes are ordered by their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Geometry {
    subtable_cell_count: u32,
}

impl Geometry {
    /// The shape with this many cells in each subtable (at least 1, at most 2^24).
    #[must_use]
    pub fn new(subtable_cell_count: u32) -> Self {
        Geometry { subtable_cell_count: subtable_cell_count.clamp(1, 1 << PLACE_BITS) }
    }

    /// The shape that lists `item_count` items in all but about one of a thousand tries, or the largest shape.
    ///
    /// With four subtables, the threshold of large tables is 1.295 cells an item (the paper's `c_k`, Table 1). Small
    /// tables scatter by the square root of their size, and the smallest fail by items that share all their cells.
    #[must_use]
    pub fn for_items(item_count: u64) -> Self {
        // This many are more than the largest table lists, and far from an overflow.
        let item_count = item_count.min(1 << (PLACE_BITS + HASH_COUNT as u32));
        let cell_count =
            item_count + item_count * MORE_CELLS_PERCENT / 100 + SCATTER_CELLS * item_count.isqrt() + SMALLEST_CELLS;
        Geometry::new(u32::try_from(cell_count.div_ceil(HASH_COUNT as u64)).unwrap_or(u32::MAX))
    }

    /// How many items a table of this shape lists in all but about one of a thousand tries: the inverse of
    /// [`Self::for_items`].
    ///
    /// Complexity: a binary search over the number of cells.
    #[must_use]
    pub fn item_count(self) -> u64 {
        let (mut low, mut high) = (0, self.cell_count() as u64);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if Geometry::for_items(middle).cell_count() <= self.cell_count() { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// The smallest shape, at least as large, whose subtables fold into many smaller ones: their number of cells is 60
    /// times a number with no prime factor but 2, 3 and 5. From two thousand cells on, this adds an eighth at most. The
    /// largest shapes stay as they are.
    #[must_use]
    pub fn foldable(self) -> Self {
        let is_smooth = |mut count: u32| {
            for factor in [2, 3, 5] {
                while count.is_multiple_of(factor) {
                    count /= factor;
                }
            }
            count == 1
        };
        let least = self.subtable_cell_count.div_ceil(FOLD_BASE);
        let most = (1 << PLACE_BITS) / FOLD_BASE;
        let multiple = (least..=most).find(|multiple| is_smooth(*multiple));
        multiple.map_or(self, |multiple| Geometry::new(multiple * FOLD_BASE))
    }

    /// The shape with one cell for each `run` neighbouring ones; `None` if `run` does not divide the subtables.
    #[must_use]
    pub fn folded(self, run: u32) -> Option<Self> {
        let divides = run > 0 && self.subtable_cell_count.is_multiple_of(run);
        divides.then(|| Geometry { subtable_cell_count: self.subtable_cell_count / run })
    }

    /// The number of cells of each subtable.
    #[must_use]
    #[inline]
    pub fn subtable_cell_count(self) -> u32 {
        self.subtable_cell_count
    }

    /// The number of cells of the whole table.
    #[must_use]
    #[inline]
    pub fn cell_count(self) -> usize {
        self.subtable_cell_count as usize * HASH_COUNT
    }

    /// The cells of subtable `at`, of [`HASH_COUNT`].
    #[must_use]
    #[inline]
    pub fn subtable(self, at: usize) -> Range<usize> {
        let count = self.subtable_cell_count as usize;
        at * count..(at + 1) * count
    }

    /// The cells of the key with this placement hash, one in each subtable.
    #[must_use]
    #[inline]
    pub fn places(self, hash: u128) -> [usize; HASH_COUNT] {
        std::array::from_fn(|subtable| {
            // The part goes into the upper bits of 32, so that it chooses a place like any other part of a hash.
            let part = ((hash >> (PLACE_BITS * subtable as u32)) as u32) << (u32::BITS - PLACE_BITS);
            let count = self.subtable_cell_count as usize;
            subtable * count + place_of(part, count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_in_their_subtables() {
        let geometry = Geometry::new(1000);
        for hash in [0, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            for (subtable, place) in geometry.places(hash).into_iter().enumerate() {
                assert!((subtable * 1000..(subtable + 1) * 1000).contains(&place));
            }
        }
    }

    #[test]
    fn foldable_shapes_are_little_larger_and_fold_evenly() {
        for cells in [1, 59, 61, 1_000, 4_931, 123_457, 5_000_001] {
            let folded = Geometry::new(cells).foldable();
            let count = folded.subtable_cell_count();
            assert!(count >= cells && (count - cells) * 8 <= cells.max(1_920), "{cells} became {count}");
            assert!([2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60].iter().all(|run| folded.folded(*run).is_some()), "{count}");
        }
        assert_eq!((Geometry::new(120).folded(7), Geometry::new(120).folded(0)), (None, None));
        let largest = Geometry::new(u32::MAX);
        assert_eq!(largest.foldable(), largest);
    }

    #[test]
    fn a_folded_place_is_the_place_in_the_folded_shape() {
        let geometry = Geometry::new(720);
        let folded = geometry.folded(6).unwrap();
        for seed in 0..1_000u128 {
            let hash = seed.wrapping_mul(0x0123_4567_89ab_cdef_0fed_cba9_8765_4321).rotate_left(seed as u32);
            assert_eq!(geometry.places(hash).map(|place| place / 6), folded.places(hash));
        }
    }

    #[test]
    fn item_count_is_the_reverse_of_for_items() {
        for items in [0, 1, 10, 100, 12_500, 1_000_000] {
            let back = Geometry::for_items(items).item_count();
            assert!((items..items + 4).contains(&back), "{items} came back as {back}");
        }
        assert_eq!(Geometry::for_items(u64::MAX).cell_count(), HASH_COUNT << PLACE_BITS);
    }
}
