//! Quotienting (section 4 of the paper): the place of a cell carries a part of the key, and the cell stores the rest.
//!
//! Each subtable permutes the keys in its own way. A permuted key divided by the number of cells leaves a remainder,
//! which is the key's cell, and a quotient, which is what the cell sums. Whoever finds a key alone in a cell puts the
//! two together again and undoes the permutation. In subtables of 2^b cells a key takes b bits less.
//!
//! It pays where keys are about as long as places: addresses, numbers of records, ports. What it costs: a permutation
//! is four hashes where a place takes a part of one, and there is no check for free any more. (In other tables a sum of
//! several keys rarely is a key that belongs into this very cell. Here every sum does.) Where nothing is removed that
//! was not inserted, a count of one is proof enough, and the saving is whole; elsewhere the check takes b bits more for
//! the same certainty, and nothing is saved.

use crate::hash::{KeyedHash, Purpose, Secret};
use crate::refused::Refused;

/// Bits of a cell's count, which wraps.
const COUNT_BITS: u32 = 16;

/// The most bits of a check.
const CHECK_BITS_MAX: u32 = 32;

/// The rounds of a permutation: four make one that nobody tells from a random one.
const ROUND_COUNT: u64 = 4;

/// The shape of a [`QuotientTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotientShape {
    /// The bits of a key, 8 to 64: keys are below 2 to their power.
    pub key_bits: u32,
    /// The number of subtables, and of the cells of a key (the paper's k): 2 to 16.
    pub hash_count: u32,
    /// The cells of each subtable: at least 1.
    pub subtable_cell_count: u32,
    /// The bits of a cell's check, up to 32: 0 where nothing is removed that was not inserted.
    pub check_bits: u32,
}

impl QuotientShape {
    /// The bits in which a cell sums what the places of its keys do not say.
    #[must_use]
    pub fn quotient_bits(&self) -> u32 {
        u64::BITS - (mask(self.key_bits) / u64::from(self.subtable_cell_count)).leading_zeros()
    }

    /// The bits of a cell: count, quotients, check.
    #[must_use]
    pub fn cell_bits(&self) -> u32 {
        COUNT_BITS + self.quotient_bits() + self.check_bits
    }

    fn within_range(self) -> Self {
        QuotientShape {
            key_bits: self.key_bits.clamp(8, 64),
            hash_count: self.hash_count.clamp(2, 16),
            subtable_cell_count: self.subtable_cell_count.max(1),
            check_bits: self.check_bits.min(CHECK_BITS_MAX),
        }
    }

    fn cell_count(&self) -> usize {
        self.hash_count as usize * self.subtable_cell_count as usize
    }
}

/// The lowest bits, up to 64.
fn mask(bits: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0)
}

/// The sums of one cell, each modulo its width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    count: u64,
    quotient: u64,
    check: u64,
}

/// What was listed of a [`QuotientTable`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a listing may be partial"]
pub struct QuotientListing {
    /// Keys that were inserted.
    pub inserted: Vec<u64>,
    /// Keys that were removed without having been inserted.
    pub deleted: Vec<u64>,
    /// Whether that is all.
    pub is_complete: bool,
}

/// A table of a set of keys of few bits, whose cells store only what their places do not say, bit by bit side by side.
///
/// The laws are those of [`Table`](crate::Table): updates commute, an insertion and a removal leave nothing, and what
/// is listed plus what is left is what was there. A key must not be inserted twice.
///
/// ```
/// use flowpeel_iblt::hash::Secret;
/// use flowpeel_iblt::{QuotientShape, QuotientTable};
///
/// // IPv4 addresses in four subtables of 4,096 cells: 20 bits of a key are left, and a cell takes 36 bits, not 48.
/// let shape = QuotientShape { key_bits: 32, hash_count: 4, subtable_cell_count: 4_096, check_bits: 0 };
/// assert_eq!(shape.cell_bits(), 36);
/// let mut table = QuotientTable::new(shape, &Secret::REPLAY);
/// (0..100_000).for_each(|host| table.insert(0x0a00_0000 + host));
/// (0..90_000).for_each(|host| table.remove(0x0a00_0000 + host));
/// let mut listing = table.list();
/// listing.inserted.sort_unstable();
/// let expected = (90_000..100_000).map(|host| 0x0a00_0000 + host);
/// assert!(listing.is_complete && listing.inserted.into_iter().eq(expected));
/// ```
#[derive(Clone)]
pub struct QuotientTable {
    shape: QuotientShape,
    hash: KeyedHash<[u64; 2]>,
    /// The cells, subtable after subtable, and a word or two behind them so that three words can always be read.
    words: Vec<u64>,
}

impl QuotientTable {
    /// An empty table. Numbers out of range are replaced by the nearest in range.
    #[must_use]
    pub fn new(shape: QuotientShape, secret: &Secret) -> Self {
        let shape = shape.within_range();
        let bits = shape.cell_count() * shape.cell_bits() as usize;
        let words = vec![0; bits.div_ceil(u64::BITS as usize) + 2];
        QuotientTable { shape, hash: KeyedHash::new(secret, Purpose::Placement), words }
    }

    /// The shape of the table.
    #[must_use]
    pub fn shape(&self) -> QuotientShape {
        self.shape
    }

    /// The size of the cells, in bytes.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    /// Inserts a key, of which the lowest `key_bits` bits count.
    ///
    /// Complexity: four hashes for each of its cells.
    pub fn insert(&mut self, key: u64) {
        self.update(key, 1);
    }

    /// Removes a key that was inserted or will be.
    pub fn remove(&mut self, key: u64) {
        self.update(key, -1);
    }

    fn update(&mut self, key: u64, count: i64) {
        let key = key & mask(self.shape.key_bits);
        let check = self.check_of(key);
        for subtable in 0..self.shape.hash_count {
            let (place, quotient) = self.place(key, subtable);
            let Cell { count: before, quotient: sum, check: checks } = self.cell(place);
            let times = |part: u64| part.wrapping_mul(count as u64);
            self.set(
                place,
                Cell {
                    count: before.wrapping_add(times(1)),
                    quotient: sum.wrapping_add(times(quotient)),
                    check: checks.wrapping_add(times(check)),
                },
            );
        }
    }

    /// Adds all that another table holds.
    ///
    /// # Errors
    ///
    /// [`Refused::Layout`]: the tables have different shapes. Nothing has changed then.
    pub fn merge(&mut self, other: &Self) -> Result<(), Refused> {
        self.combine(other, u64::wrapping_add)
    }

    /// Takes away all that another table holds.
    ///
    /// # Errors
    ///
    /// [`Refused::Layout`]: the tables have different shapes. Nothing has changed then.
    pub fn subtract(&mut self, other: &Self) -> Result<(), Refused> {
        self.combine(other, u64::wrapping_sub)
    }

    fn combine(&mut self, other: &Self, operation: impl Fn(u64, u64) -> u64) -> Result<(), Refused> {
        if self.shape != other.shape {
            return Err(Refused::Layout);
        }
        for place in 0..self.shape.cell_count() {
            let (own, others) = (self.cell(place), other.cell(place));
            self.set(
                place,
                Cell {
                    count: operation(own.count, others.count),
                    quotient: operation(own.quotient, others.quotient),
                    check: operation(own.check, others.check),
                },
            );
        }
        Ok(())
    }

    /// Whether nothing is in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Lists what is in the table and takes it out; what stays could not be listed.
    ///
    /// Complexity: a pass over the cells, and for each key its cells; no more keys are taken out than there are cells.
    pub fn list(&mut self) -> QuotientListing {
        let mut listing = QuotientListing::default();
        let mut work: Vec<usize> = (0..self.shape.cell_count()).rev().collect();
        let mut budget = work.len();
        while let Some(place) = work.pop() {
            let Some((key, count)) = self.lone(place).filter(|_| budget > 0) else { continue };
            budget -= 1;
            self.update(key, -count);
            (if count > 0 { &mut listing.inserted } else { &mut listing.deleted }).push(key);
            work.extend((0..self.shape.hash_count).map(|subtable| self.place(key, subtable).0));
        }
        listing.is_complete = self.is_empty();
        listing
    }

    /// The key that is alone in this cell, and whether it was inserted (1) or removed (-1).
    fn lone(&self, place: usize) -> Option<(u64, i64)> {
        let cell = self.cell(place);
        let count = match cell.count {
            1 => 1,
            count if count == mask(COUNT_BITS) => -1,
            _ => return None,
        };
        let times = |sum: u64, bits: u32| sum.wrapping_mul(count as u64) & mask(bits);
        let quotient = times(cell.quotient, self.shape.quotient_bits());
        let cells = self.shape.subtable_cell_count as usize;
        let permuted = u128::from(quotient) * cells as u128 + (place % cells) as u128;
        let permuted = u64::try_from(permuted).ok().filter(|permuted| *permuted <= mask(self.shape.key_bits))?;
        let key = self.restored(permuted, (place / cells) as u32);
        (self.check_of(key) == times(cell.check, self.shape.check_bits)).then_some((key, count))
    }

    /// The key's cell in a subtable, and what the cell sums.
    fn place(&self, key: u64, subtable: u32) -> (usize, u64) {
        let cells = u64::from(self.shape.subtable_cell_count);
        let permuted = self.permuted(key, subtable);
        (subtable as usize * cells as usize + (permuted % cells) as usize, permuted / cells)
    }

    /// The key as this subtable permutes it: a Feistel network over its two halves.
    fn permuted(&self, key: u64, subtable: u32) -> u64 {
        (0..ROUND_COUNT).fold(key, |key, round| self.round(key, subtable, round))
    }

    /// The key that was permuted to this.
    fn restored(&self, permuted: u64, subtable: u32) -> u64 {
        (0..ROUND_COUNT).rev().fold(permuted, |key, round| self.round(key, subtable, round))
    }

    /// Mixes one half into the other, which undoes itself.
    fn round(&self, key: u64, subtable: u32, round: u64) -> u64 {
        let low_bits = self.shape.key_bits.div_ceil(2);
        let (low, high) = (key & mask(low_bits), key >> low_bits);
        let mixed = |half: u64| self.hash.of(&[half, u64::from(subtable) << 8 | round]) as u64;
        if round.is_multiple_of(2) {
            (high ^ mixed(low) & mask(self.shape.key_bits - low_bits)) << low_bits | low
        } else {
            high << low_bits | low ^ mixed(high) & mask(low_bits)
        }
    }

    fn check_of(&self, key: u64) -> u64 {
        match self.shape.check_bits {
            0 => 0,
            // No round of a permutation has this number.
            bits => self.hash.of(&[key, u64::MAX]) as u64 & mask(bits),
        }
    }

    /// Where a cell begins: the word and the bit in it.
    fn begin(&self, place: usize) -> (usize, u32) {
        let bit = place * self.shape.cell_bits() as usize;
        (bit / u64::BITS as usize, (bit % u64::BITS as usize) as u32)
    }

    fn cell(&self, place: usize) -> Cell {
        let (word, shift) = self.begin(place);
        let [first, second, third] = std::array::from_fn(|at| u128::from(self.words[word + at]));
        let low = first | second << 64;
        let bits = if shift == 0 { low } else { low >> shift | third << (128 - shift) };
        let quotient_bits = self.shape.quotient_bits();
        Cell {
            count: bits as u64 & mask(COUNT_BITS),
            quotient: (bits >> COUNT_BITS) as u64 & mask(quotient_bits),
            check: (bits >> (COUNT_BITS + quotient_bits)) as u64 & mask(self.shape.check_bits),
        }
    }

    /// Writes the sums, each modulo its width.
    fn set(&mut self, place: usize, Cell { count, quotient, check }: Cell) {
        let QuotientShape { check_bits, .. } = self.shape;
        let quotient_bits = self.shape.quotient_bits();
        let bits = u128::from(count & mask(COUNT_BITS))
            | u128::from(quotient & mask(quotient_bits)) << COUNT_BITS
            | u128::from(check & mask(check_bits)) << (COUNT_BITS + quotient_bits);
        let width = (1u128 << self.shape.cell_bits()) - 1;
        let (word, shift) = self.begin(place);
        let parts = |bits: u128| {
            let third = if shift == 0 { 0 } else { bits >> (128 - shift) };
            [(bits << shift) as u64, ((bits << shift) >> 64) as u64, third as u64]
        };
        for ((word, own), new) in self.words[word..].iter_mut().zip(parts(width)).zip(parts(bits)) {
            *word = *word & !own | new;
        }
    }
}

const _: () = assert!(COUNT_BITS + u64::BITS + CHECK_BITS_MAX < u128::BITS);

impl PartialEq for QuotientTable {
    /// Tables are equal when their shapes and cells are; secrets cannot be compared.
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && self.words == other.words
    }
}

impl std::fmt::Debug for QuotientTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuotientTable").field("shape", &self.shape).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn shapes() -> impl Strategy<Value = QuotientShape> {
        (8u32..=64, 2u32..6, 1u32..300, 0u32..=32).prop_map(
            |(key_bits, hash_count, subtable_cell_count, check_bits)| QuotientShape {
                key_bits,
                hash_count,
                subtable_cell_count,
                check_bits,
            },
        )
    }

    fn table(shape: QuotientShape, keys: &[u64]) -> QuotientTable {
        let mut table = QuotientTable::new(shape, &Secret::REPLAY);
        keys.iter().for_each(|key| table.insert(*key));
        table
    }

    #[test]
    fn a_permutation_hits_every_value_once() {
        for key_bits in [8, 9, 13] {
            let shape = QuotientShape { key_bits, hash_count: 3, subtable_cell_count: 7, check_bits: 0 };
            let table = QuotientTable::new(shape, &Secret::REPLAY);
            for subtable in 0..3 {
                let images: BTreeSet<u64> = (0..1 << key_bits).map(|key| table.permuted(key, subtable)).collect();
                assert!(images.len() == 1 << key_bits && images.last() == Some(&mask(key_bits)));
            }
            assert!((0..100).any(|key| table.permuted(key, 0) % 7 != table.permuted(key, 1) % 7));
        }
    }

    #[test]
    fn cells_are_spread_evenly() {
        let shape = QuotientShape { key_bits: 32, hash_count: 4, subtable_cell_count: 100, check_bits: 0 };
        let table = QuotientTable::new(shape, &Secret::REPLAY);
        let mut counts = [0u32; 400];
        (0..40_000).for_each(|key| (0..4).for_each(|subtable| counts[table.place(key, subtable).0] += 1));
        // 400 in each on average, and a standard deviation of 20.
        assert!(counts.iter().all(|count| (300..500).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_table_takes_what_its_shape_says() {
        let shape = |key_bits, subtable_cell_count, check_bits| QuotientShape {
            key_bits,
            hash_count: 4,
            subtable_cell_count,
            check_bits,
        };
        assert_eq!(shape(32, 1 << 16, 0).quotient_bits(), 16);
        assert_eq!(shape(32, (1 << 16) + 1, 0).quotient_bits(), 16);
        assert_eq!(shape(32, (1 << 16) - 1, 0).quotient_bits(), 17);
        assert_eq!((shape(64, 1, 32).cell_bits(), shape(8, 256, 0).cell_bits()), (112, 16));
        let table = QuotientTable::new(shape(32, 1 << 12, 8), &Secret::REPLAY);
        assert_eq!(table.byte_count(), (1 << 14) * (16 + 20 + 8) / 8 + 16);
    }

    proptest! {
        #[test]
        fn what_is_permuted_is_restored(key: u64, key_bits in 8u32..=64, subtable in 0u32..4) {
            let shape = QuotientShape { key_bits, hash_count: 4, subtable_cell_count: 10, check_bits: 0 };
            let table = QuotientTable::new(shape, &Secret::REPLAY);
            let key = key & mask(key_bits);
            let permuted = table.permuted(key, subtable);
            prop_assert!(permuted <= mask(key_bits));
            prop_assert_eq!(table.restored(permuted, subtable), key);
        }

        #[test]
        fn cells_stand_side_by_side(shape in shapes(), sums in prop::collection::vec(any::<[u64; 3]>(), 1..40)) {
            let mut table = QuotientTable::new(shape, &Secret::REPLAY);
            let count = table.shape.cell_count();
            let cells: Vec<Cell> = sums.iter().map(|[count, quotient, check]| Cell {
                count: count & mask(COUNT_BITS),
                quotient: quotient & mask(table.shape.quotient_bits()),
                check: check & mask(table.shape.check_bits),
            }).collect();
            // Those that come later overwrite earlier ones, and nothing beside them.
            (0..2 * count).zip(cells.iter().cycle()).for_each(|(at, cell)| table.set(at % count, *cell));
            for place in 0..count {
                prop_assert_eq!(table.cell(place), cells[(count + place) % cells.len()]);
            }
        }

        #[test]
        fn below_the_threshold_all_lists_above_it_nothing_wrong_does(
            keys in prop::collection::btree_set(any::<u32>(), 0..200),
            removed in prop::collection::btree_set(any::<u32>(), 0..40),
            cells in 20u32..200,
        ) {
            let shape = QuotientShape { key_bits: 32, hash_count: 4, subtable_cell_count: cells, check_bits: 24 };
            let keys: Vec<u64> = keys.into_iter().map(u64::from).collect();
            let mut table = table(shape, &keys);
            removed.iter().for_each(|key| table.remove(u64::from(*key)));
            let whole = table.clone();
            let listing = table.list();
            let expected = |key: &u64, is_inserted: bool| {
                keys.contains(key) == is_inserted && removed.contains(&(*key as u32)) != is_inserted
            };
            prop_assert!(listing.inserted.iter().all(|key| expected(key, true)));
            prop_assert!(listing.deleted.iter().all(|key| expected(key, false)));
            prop_assert!(listing.is_complete || keys.len() + removed.len() > cells as usize);
            // What was listed and what is left are what there was.
            listing.inserted.iter().for_each(|key| table.insert(*key));
            listing.deleted.iter().for_each(|key| table.remove(*key));
            prop_assert!(table == whole);
        }

        #[test]
        fn tables_add_and_subtract(
            shape in shapes(),
            one in prop::collection::vec(any::<u64>(), 0..60),
            other in prop::collection::vec(any::<u64>(), 0..60),
        ) {
            let (a, b) = (table(shape, &one), table(shape, &other));
            let mut sum = a.clone();
            sum.merge(&b).unwrap();
            prop_assert!(sum == table(shape, &[one, other.clone()].concat()));
            sum.subtract(&b).unwrap();
            prop_assert!(sum == a);
            other.iter().for_each(|key| sum.insert(*key));
            other.iter().rev().for_each(|key| sum.remove(*key));
            prop_assert!(sum == a);
            let mut of_another = QuotientTable::new(QuotientShape { hash_count: shape.hash_count + 1, ..shape }, &Secret::REPLAY);
            prop_assert_eq!(of_another.merge(&a), Err(Refused::Layout));
            prop_assert!(of_another.is_empty());
        }
    }
}
