//! Cells: the sums that a table is made of, one layout for each key size.
//!
//! What enters: keys with their checks, counts and values. What leaves: their sums, and whether anything is in them.
//! The fields are those of sections 2.2 and 3 of the paper: `count`, `keySum`, `valueSum`, and `hashkeySum` as the
//! check. The check of the values is part of the values themselves. Sums are used, not XORs: a key that is in a cell
//! twice must not vanish.

use super::check_of;
use crate::word_key::WordKey;
use crate::{Sum, Sums, TableCell, Values};
use flowpeel_lines::{HalfLine, Line, Row, Words};
use std::fmt;
use std::marker::PhantomData;

/// A key for which there are tables, and the cell that sums it.
pub trait TableKey: WordKey {
    /// The cell for keys of this size.
    type Cell: Cell<Key = Self>;
}

/// The sums of everything that was placed in one cell. All sums wrap, so updates give the same result in every order.
pub trait Cell: Words + Copy + PartialEq + fmt::Debug {
    /// The keys it sums.
    type Key: WordKey;

    /// What this key with this check adds to a cell when inserted `count` times, with `value` as its whole contribution
    /// to the value sum.
    fn of(key: &Self::Key, check: u32, count: i32, value: u64) -> Self;
    /// The cell with these sums. Missing words count as zero.
    fn of_sums(count: i32, check: u32, key_words: &[u64], value: u64) -> Self;
    /// Adds another cell's sums to those of this cell.
    fn add(&mut self, other: &Self);
    /// Takes another cell's sums from those of this cell.
    fn subtract(&mut self, other: &Self);
    /// How many times keys were added less how many times they were removed.
    fn count(&self) -> i32;
    /// The sum of the keys' checks.
    fn check(&self) -> u32;
    /// The sum of the keys, word by word.
    fn key_words(&self) -> &[u64];
    /// The sum of the values.
    fn value(&self) -> u64;
    /// Replaces the value sum.
    fn set_value(&mut self, value: u64);

    /// The key that gives this cell's sum of keys when taken as often as the cell counts, if there is one. Of several,
    /// it is the one with zeros for the bits that such a division loses at the top of each word.
    fn quotient(&self) -> Option<Self::Key>;

    /// Whether no key is left in the cell, whatever its value sum. A count of zero alone does not say so.
    fn is_key_free(&self) -> bool;

    /// Whether all sums are zero.
    #[inline]
    fn is_zero(&self) -> bool {
        self.is_key_free() && self.value() == 0
    }
}

/// Packs count and check into one number.
#[inline]
fn tally(count: i32, check: u32) -> u64 {
    (u64::from(check) << u32::BITS).wrapping_add(i64::from(count) as u64)
}

/// The cell of keys that fit into a row together with two words more.
///
/// The first word is 2^32 times the sum of the checks plus the sum of the counts; the sums of the key's words follow,
/// then that of the values. With count and check in one number, a cell is a row of words that are all added alike, two
/// or four at a time. What a negative count borrows from the check above it is known from its sign.
#[repr(transparent)]
pub struct PackedCell<K, R>(R, PhantomData<fn() -> K>);

impl<K: WordKey, R: Row> PackedCell<K, R> {
    /// The row that the parts of a cell make.
    #[inline]
    fn with(tally: u64, key: impl Fn(usize) -> u64, value: u64) -> Self {
        const { assert!(K::WORD_COUNT + 2 <= R::WORD_COUNT, "the key does not fit into such a row") };
        let word = |at| match at {
            0 => tally,
            at if at <= K::WORD_COUNT => key(at - 1),
            at if at == K::WORD_COUNT + 1 => value,
            _ => 0,
        };
        PackedCell(R::from_fn(word), PhantomData)
    }

    /// The words that say which keys are in the cell.
    #[inline]
    fn of_keys(&self) -> &[u64] {
        &self.0.words()[..=K::WORD_COUNT]
    }
}

impl<K, R: Copy> Clone for PackedCell<K, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, R: Copy> Copy for PackedCell<K, R> {}

impl<K, R: PartialEq> PartialEq for PackedCell<K, R> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K, R: Default> Default for PackedCell<K, R> {
    #[inline]
    fn default() -> Self {
        PackedCell(R::default(), PhantomData)
    }
}

impl<K, R: fmt::Debug> fmt::Debug for PackedCell<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// SAFETY: it is laid out as the row that it consists of.
#[allow(unsafe_code)]
unsafe impl<K: WordKey, R: Row> Words for PackedCell<K, R> {}

impl<K: WordKey, R: Row> Cell for PackedCell<K, R> {
    type Key = K;

    #[inline]
    fn of(key: &K, check: u32, count: i32, value: u64) -> Self {
        let (words, times) = (key.words(), i64::from(count) as u64);
        Self::with(tally(1, check).wrapping_mul(times), |at| words[at].wrapping_mul(times), value)
    }

    fn of_sums(count: i32, check: u32, key_words: &[u64], value: u64) -> Self {
        Self::with(tally(count, check), |at| key_words.get(at).copied().unwrap_or(0), value)
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
    fn count(&self) -> i32 {
        self.0.words()[0] as i32
    }

    #[inline]
    fn check(&self) -> u32 {
        let tally = self.0.words()[0];
        (tally.wrapping_sub(i64::from(tally as i32) as u64) >> u32::BITS) as u32
    }

    #[inline]
    fn key_words(&self) -> &[u64] {
        &self.0.words()[1..=K::WORD_COUNT]
    }

    #[inline]
    fn value(&self) -> u64 {
        self.0.words()[K::WORD_COUNT + 1]
    }

    #[inline]
    fn set_value(&mut self, value: u64) {
        self.0.words_mut()[K::WORD_COUNT + 1] = value;
    }

    fn quotient(&self) -> Option<K> {
        self.candidate(i64::from(Cell::count(self)), 0)
    }

    #[inline]
    fn is_key_free(&self) -> bool {
        self.of_keys().iter().all(|&sum| sum == 0)
    }
}

/// Lets general tables be made of these cells, which are as [`Sums`] of such keys, but aligned.
impl<K: WordKey, R: Row> TableCell for PackedCell<K, R> {
    type Key = K;
    type Value = u64;
    const SIZE: usize = <Sums<K> as TableCell>::SIZE;
    const IS_CHECKED: bool = true;
    const IS_VALUE_CHECKED: bool = false;
    const IS_MULTISET: bool = true;

    fn zero() -> Self {
        Self::default()
    }

    #[inline]
    fn of(key: &K, value: u64, hash: u128, count: i64) -> Self {
        <Self as Cell>::of(key, check_of(hash), count as i32, value.wrapping_mul(count as u64))
    }

    #[inline]
    fn add(&mut self, other: &Self) {
        Cell::add(self, other);
    }

    #[inline]
    fn subtract(&mut self, other: &Self) {
        Cell::subtract(self, other);
    }

    #[inline]
    fn count(&self) -> Option<i64> {
        Some(i64::from(Cell::count(self)))
    }

    #[inline]
    fn value(&self) -> u64 {
        Cell::value(self)
    }

    #[inline]
    fn is_zero(&self) -> bool {
        Cell::is_zero(self)
    }

    #[inline]
    fn is_key_free(&self) -> bool {
        Cell::is_key_free(self)
    }

    #[inline]
    fn has_keys_of(&self, other: &Self) -> bool {
        self.of_keys() == other.of_keys()
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
            1 | -1 => Values::One(Cell::value(self).times(count)),
            _ => Values::Sum(Cell::value(self)),
        }
    }

    fn without_keys(&self) -> Self {
        Self::with(0, |_| 0, Cell::value(self))
    }

    fn write(&self, out: &mut [u8]) {
        let (count, rest) = out.split_at_mut(i32::SIZE);
        let (key, rest) = rest.split_at_mut(<K as Sum>::SIZE);
        let (value, check) = rest.split_at_mut(u64::SIZE);
        Cell::count(self).write(count);
        key.chunks_mut(u64::SIZE).zip(self.key_words()).for_each(|(out, word)| word.write(out));
        Cell::value(self).write(value);
        self.check().write(check);
    }

    fn read(bytes: &[u8]) -> Self {
        let (count, rest) = bytes.split_at(i32::SIZE);
        let (key, rest) = rest.split_at(<K as Sum>::SIZE);
        let (value, check) = rest.split_at(u64::SIZE);
        let word = |at: usize| u64::read(&key[at * u64::SIZE..][..u64::SIZE]);
        Self::with(tally(Sum::read(count), Sum::read(check)), word, Sum::read(value))
    }
}

/// Rows of words are keys with cells in half a cache line, or in a whole one.
macro_rules! table_keys {
    ($row:ty: $($word_count:literal),*) => {$(
        impl TableKey for [u64; $word_count] {
            type Cell = PackedCell<Self, $row>;
        }
    )*};
}

table_keys!(HalfLine: 1, 2);
table_keys!(Line: 3, 4, 5, 6);

#[cfg(test)]
impl TableKey for crate::word_key::examples::TwoWords {
    type Cell = PackedCell<Self, HalfLine>;
}

#[cfg(test)]
impl TableKey for crate::word_key::examples::FiveWords {
    type Cell = PackedCell<Self, Line>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn count_and_check_are_told_apart(parts in prop::collection::vec((any::<u32>(), -9_i32..9), 0..40)) {
            type Packed = <[u64; 2] as TableKey>::Cell;
            let mut sum = Packed::default();
            parts.iter().for_each(|&(check, count)| Cell::add(&mut sum, &<Packed as Cell>::of(&[0; 2], check, count, 0)));
            let counts = parts.iter().map(|(_, count)| count).sum::<i32>();
            let checks = parts.iter().fold(0u32, |sum, &(check, count)| sum.wrapping_add(check.wrapping_mul(count as u32)));
            prop_assert_eq!((Cell::count(&sum), sum.check()), (counts, checks));
        }
    }
}
