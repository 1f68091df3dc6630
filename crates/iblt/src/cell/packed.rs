//! The cell of an [`Iblt`](crate::Iblt): the fields of [`Sums<K, u64>`](Sums), packed into half a cache line or a whole
//! one.

use super::{CheckField, Sums, TableCell, Values};
use crate::sum::Sum;
use crate::word_key::{KEY_WORD_COUNT_MAX, WordKey};
use flowpeel_lines::{HalfLine, Line, Row, Words};
use std::fmt;

/// A key that an [`Iblt`](crate::Iblt) can hold. `[u64; 1]` to `[u64; 6]` are such keys.
pub trait TableKey: WordKey {
    /// The row that a cell takes: two words more than a key.
    type Row: Row;
}

/// The cell of an [`Iblt`](crate::Iblt): count, key, value and check (sections 2.2 and 3 of the paper) in a row of
/// words, which are all added alike, two or four at a time.
///
/// The first word is 2^32 times the sum of the checks plus the sum of the counts; the sums of the key's words follow,
/// then that of the values. What a negative count borrows from the check above it is known from its sign.
///
/// There is no check of the values: they are 64 bits that may carry a check of their own, as those of a
/// [`ValueCode`](crate::ValueCode) do.
#[derive(Clone, Copy, PartialEq)]
#[repr(transparent)]
pub struct PackedCell<K: TableKey>(K::Row);

/// The check of the key with this hash: the 32 bits that place it in no subtable.
#[inline]
fn check_of(hash: u128) -> u32 {
    CheckField::of(hash)
}

/// Packs count and check into one number.
#[inline]
fn tally(count: i32, check: u32) -> u64 {
    (u64::from(check) << u32::BITS).wrapping_add(i64::from(count) as u64)
}

impl<K: TableKey> PackedCell<K> {
    /// The cell with these words: count and check, the key's, and the value.
    #[inline]
    fn with(tally: u64, key: impl Fn(usize) -> u64, value: u64) -> Self {
        const { assert!(K::WORD_COUNT + 2 <= K::Row::WORD_COUNT, "the key does not fit into its row") };
        PackedCell(K::Row::from_fn(|at| match at {
            0 => tally,
            at if at <= K::WORD_COUNT => key(at - 1),
            at if at == K::WORD_COUNT + 1 => value,
            _ => 0,
        }))
    }

    /// All words but that of the value.
    #[inline]
    fn without_value(&self) -> &[u64] {
        &self.0.words()[..=K::WORD_COUNT]
    }

    /// The sum of the keys, word by word.
    #[must_use]
    #[inline]
    pub fn key_words(&self) -> &[u64] {
        &self.0.words()[1..=K::WORD_COUNT]
    }

    /// The sum of the keys' checks.
    #[must_use]
    #[inline]
    pub fn check(&self) -> u32 {
        let tally = self.0.words()[0];
        (tally.wrapping_sub(i64::from(tally as i32) as u64) >> u32::BITS) as u32
    }

    /// Replaces the sum of the values.
    #[inline]
    pub fn set_value(&mut self, value: u64) {
        self.0.words_mut()[K::WORD_COUNT + 1] = value;
    }

    /// The key of a cell that holds one key once, added or removed. Of any other cell, something that is not
    /// [lone](Self::is_lone) in it.
    #[must_use]
    #[inline]
    pub fn lone_key(&self) -> K {
        let sign = self.count().signum() as u64;
        let mut words = [0; KEY_WORD_COUNT_MAX];
        for (word, sum) in words.iter_mut().zip(self.key_words()) {
            *word = sum.wrapping_mul(sign);
        }
        K::from_words(&words)
    }

    /// Whether the checks are those of the key with this hash, as often as the cell counts.
    #[must_use]
    #[inline]
    pub fn is_lone(&self, hash: u128) -> bool {
        self.agrees(hash, self.count())
    }
}

impl<K: TableKey> Default for PackedCell<K> {
    #[inline]
    fn default() -> Self {
        PackedCell(K::Row::default())
    }
}

impl<K: TableKey> fmt::Debug for PackedCell<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("PackedCell");
        out.field("count", &self.count()).field("key", &self.key_words()).field("value", &self.value());
        out.field("check", &self.check()).finish()
    }
}

// SAFETY: the cell is laid out as its row.
#[allow(unsafe_code)]
unsafe impl<K: TableKey> Words for PackedCell<K> {}

impl<K: TableKey> TableCell for PackedCell<K> {
    type Key = K;
    type Value = u64;
    const SIZE: usize = Sums::<K>::SIZE;
    const IS_COUNTED: bool = true;
    const IS_CHECKED: bool = true;
    const IS_VALUE_CHECKED: bool = false;
    const HAS_VALUE_FIELD: bool = false;
    const IS_MULTISET: bool = true;

    #[inline]
    fn zero() -> Self {
        Self::default()
    }

    #[inline]
    fn of(key: &K, value: u64, hash: u128, count: i64) -> Self {
        // Counts wrap at 32 bits.
        let (words, times) = (key.words(), i64::from(count as i32) as u64);
        let tally = tally(1, check_of(hash)).wrapping_mul(times);
        Self::with(tally, |at| words[at].wrapping_mul(times), value.wrapping_mul(count as u64))
    }

    #[inline]
    fn add(&mut self, other: &Self) {
        for (sum, word) in self.0.words_mut().iter_mut().zip(other.0.words()) {
            *sum = sum.wrapping_add(*word);
        }
    }

    #[inline]
    fn subtract(&mut self, other: &Self) {
        for (sum, word) in self.0.words_mut().iter_mut().zip(other.0.words()) {
            *sum = sum.wrapping_sub(*word);
        }
    }

    #[inline]
    fn count(&self) -> i64 {
        i64::from(self.0.words()[0] as i32)
    }

    #[inline]
    fn value(&self) -> u64 {
        self.0.words()[K::WORD_COUNT + 1]
    }

    #[inline]
    fn is_zero(&self) -> bool {
        self.is_key_free() && self.value() == 0
    }

    #[inline]
    fn is_key_free(&self) -> bool {
        self.without_value().iter().all(|&sum| sum == 0)
    }

    #[inline]
    fn has_keys_of(&self, other: &Self) -> bool {
        self.without_value() == other.without_value()
    }

    #[inline]
    fn candidate(&self, count: i64, lost: u64) -> Option<K> {
        K::from_words(self.key_words()).quotient(count, lost)
    }

    #[inline]
    fn agrees(&self, hash: u128, count: i64) -> bool {
        self.check() == check_of(hash).wrapping_mul(count as u32)
    }

    fn values(&self, _hash: u128, count: i64) -> Values<u64> {
        match count {
            1 | -1 => Values::One(self.value().times(count)),
            _ => Values::Sum(self.value()),
        }
    }

    fn without_keys(&self) -> Self {
        Self::with(0, |_| 0, self.value())
    }

    #[inline]
    fn write(&self, out: &mut [u8]) {
        Sums::<K>::from(*self).write(out);
    }

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Sums::<K>::read(bytes).into()
    }
}

/// Both cells have the same fields.
impl<K: TableKey> From<PackedCell<K>> for Sums<K> {
    #[inline]
    fn from(cell: PackedCell<K>) -> Self {
        let key = K::from_words(cell.key_words());
        Sums { count: cell.count() as i32, key, value: cell.value(), check: cell.check(), ..Sums::zero() }
    }
}

impl<K: TableKey> From<Sums<K>> for PackedCell<K> {
    #[inline]
    fn from(sums: Sums<K>) -> Self {
        let words = sums.key.words();
        Self::with(tally(sums.count, sums.check), |at| words[at], sums.value)
    }
}

/// Rows of words with cells of half a cache line, or of a whole one.
macro_rules! table_keys {
    ($row:ty: $($word_count:literal),*) => {$(
        impl TableKey for [u64; $word_count] {
            type Row = $row;
        }
    )*};
}

table_keys!(HalfLine: 1, 2);
table_keys!(Line: 3, 4, 5, 6);

#[cfg(test)]
impl TableKey for crate::word_key::examples::TwoWords {
    type Row = HalfLine;
}

#[cfg(test)]
impl TableKey for crate::word_key::examples::FiveWords {
    type Row = Line;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn count_and_check_are_kept_apart(parts in prop::collection::vec((any::<u32>(), -9_i64..9), 0..40)) {
            let mut sum = PackedCell::default();
            let hash = |check: u32| u128::from(check) << 96;
            parts.iter().for_each(|&(check, count)| sum.add(&PackedCell::of(&[0; 2], 0, hash(check), count)));
            let counts = parts.iter().map(|(_, count)| count).sum::<i64>();
            let checks = parts.iter().fold(0u32, |sum, &(check, count)| sum.wrapping_add(check.wrapping_mul(count as u32)));
            prop_assert_eq!((sum.count(), sum.check()), (counts, checks));
        }

        #[test]
        fn a_packed_cell_has_the_bytes_of_its_sums(key: [u64; 5], value: u64, hash: u128, count in any::<i32>()) {
            let packed = PackedCell::of(&key, value, hash, i64::from(count));
            let mut bytes = [[0; Sums::<[u64; 5]>::SIZE]; 2];
            packed.write(&mut bytes[0]);
            Sums::<[u64; 5]>::of(&key, value, hash, i64::from(count)).write(&mut bytes[1]);
            prop_assert_eq!(bytes[0], bytes[1]);
            prop_assert_eq!(PackedCell::read(&bytes[0]), packed);
        }
    }
}
