//! Cells: the sums that a table is made of, one layout for each key size.
//!
//! What enters: keys with their checks, counts and values. What leaves: their sums, and whether anything is in them.
//! The fields are those of sections 2.2 and 3 of the paper: `count`, `keySum`, `valueSum`, and `hashkeySum` as the
//! check. The check of the values is part of the values themselves. Sums are used, not XORs: a key that is in a cell
//! twice must not vanish.

use super::check_of;
use crate::flow::{FlowKey, KeyV4, KeyV6};
use crate::lines::{HalfLine, Line, Words};
use crate::sketch::{Sum, Sums, TableCell, Values};
use std::fmt;

/// A key for which there are tables, and the cell that sums it.
pub trait TableKey: FlowKey {
    /// The cell for keys of this size.
    type Cell: Cell<Key = Self>;
}

/// The sums of everything that was placed in one cell. All sums wrap, so updates give the same result in every order.
pub trait Cell: Words + Copy + PartialEq + fmt::Debug {
    /// The keys it sums.
    type Key: FlowKey;

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

/// Makes cells from the words they consist of.
trait FromWords {
    fn with(tally: u64, key: impl Fn(usize) -> u64, value: u64) -> Self;
}

macro_rules! cell {
    ($(#[$doc:meta])* $name:ident, $line:ident, $key:ty, $words:literal) => {
        $(#[$doc])*
        ///
        /// The first word is 2^32 times the sum of the checks plus the sum of the counts; the sums of the key's words
        /// follow, then that of the values. With count and check in one number, a cell is a row of words that are all
        /// added alike, two or four at a time. What a negative count borrows from the check above it is known from its
        /// sign.
        pub type $name = $line;

        const _: () = assert!(size_of::<$name>() >= ($words + 2) * size_of::<u64>() && <$key as FlowKey>::WORD_COUNT == $words);

        impl FromWords for $name {
            #[inline]
            fn with(tally: u64, key: impl Fn(usize) -> u64, value: u64) -> Self {
                let word = |at| match at {
                    0 => tally,
                    1..=$words => key(at - 1),
                    at if at == $words + 1 => value,
                    _ => 0,
                };
                $line(std::array::from_fn(word))
            }
        }

        impl TableKey for $key {
            type Cell = $name;
        }

        impl Cell for $name {
            type Key = $key;

            #[inline]
            fn of(key: &$key, check: u32, count: i32, value: u64) -> Self {
                let (words, times) = (key.words(), i64::from(count) as u64);
                Self::with(tally(1, check).wrapping_mul(times), |at| words[at].wrapping_mul(times), value)
            }

            fn of_sums(count: i32, check: u32, key_words: &[u64], value: u64) -> Self {
                Self::with(tally(count, check), |at| key_words.get(at).copied().unwrap_or(0), value)
            }

            #[inline]
            fn add(&mut self, other: &Self) {
                for (sum, word) in self.0.iter_mut().zip(&other.0) {
                    *sum = sum.wrapping_add(*word);
                }
            }

            #[inline]
            fn subtract(&mut self, other: &Self) {
                for (sum, word) in self.0.iter_mut().zip(&other.0) {
                    *sum = sum.wrapping_sub(*word);
                }
            }

            #[inline]
            fn count(&self) -> i32 {
                self.0[0] as i32
            }

            #[inline]
            fn check(&self) -> u32 {
                (self.0[0].wrapping_sub(i64::from(self.0[0] as i32) as u64) >> u32::BITS) as u32
            }

            #[inline]
            fn key_words(&self) -> &[u64] {
                &self.0[1..=$words]
            }

            #[inline]
            fn value(&self) -> u64 {
                self.0[$words + 1]
            }

            #[inline]
            fn set_value(&mut self, value: u64) {
                self.0[$words + 1] = value;
            }

            fn quotient(&self) -> Option<$key> {
                self.candidate(i64::from(Cell::count(self)), 0)
            }

            #[inline]
            fn is_key_free(&self) -> bool {
                self.0[..=$words].iter().all(|&sum| sum == 0)
            }
        }

        /// Lets general tables be made of these cells, which are as [`Sums`] of such keys, but aligned.
        impl TableCell for $name {
            type Key = $key;
            type Value = u64;
            const SIZE: usize = <Sums<$key> as TableCell>::SIZE;
            const IS_CHECKED: bool = true;
            const IS_VALUE_CHECKED: bool = false;
            const IS_MULTISET: bool = true;

            fn zero() -> Self {
                Self::default()
            }

            #[inline]
            fn of(key: &$key, value: u64, hash: u128, count: i64) -> Self {
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
                self.0[..=$words] == other.0[..=$words]
            }

            #[inline]
            fn candidate(&self, count: i64, lost: u64) -> Option<$key> {
                <$key>::from_words(self.key_words()).quotient(count, lost)
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
                let (key, rest) = rest.split_at_mut(<$key as Sum>::SIZE);
                let (value, check) = rest.split_at_mut(u64::SIZE);
                Cell::count(self).write(count);
                key.chunks_mut(u64::SIZE).zip(self.key_words()).for_each(|(out, word)| word.write(out));
                Cell::value(self).write(value);
                self.check().write(check);
            }

            fn read(bytes: &[u8]) -> Self {
                let (count, rest) = bytes.split_at(i32::SIZE);
                let (key, rest) = rest.split_at(<$key as Sum>::SIZE);
                let (value, check) = rest.split_at(u64::SIZE);
                let word = |at: usize| u64::read(&key[at * u64::SIZE..][..u64::SIZE]);
                Self::with(tally(Sum::read(count), Sum::read(check)), word, Sum::read(value))
            }
        }
    };
}

cell!(
    /// The cell of IPv4 keys: 32 bytes, two to a cache line.
    CellV4, HalfLine, KeyV4, 2
);
cell!(
    /// The cell of IPv6 keys: 56 bytes of sums in a cache line of their own.
    CellV6, Line, KeyV6, 5
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn count_and_check_are_told_apart(parts in prop::collection::vec((any::<u32>(), -9_i32..9), 0..40)) {
            let mut sum = CellV4::default();
            let key = KeyV4::default();
            parts.iter().for_each(|&(check, count)| Cell::add(&mut sum, &<CellV4 as Cell>::of(&key, check, count, 0)));
            let counts = parts.iter().map(|(_, count)| count).sum::<i32>();
            let checks = parts.iter().fold(0u32, |sum, &(check, count)| sum.wrapping_add(check.wrapping_mul(count as u32)));
            prop_assert_eq!((Cell::count(&sum), sum.check()), (counts, checks));
        }
    }
}
