//! Cells: the sums that a table is made of, one layout for each key size.
//!
//! What enters: keys with their checks, counts and values. What leaves: their sums, and whether anything is in them.
//! Fields are those of sections 2.2 and 3 of the paper: `count`, `keySum`, `valueSum`, and `hashkeySum` as the check. A
//! check of the value sum stands in the values themselves. Sums, not XORs: a key that is in a cell twice must not
//! vanish.

use super::check_of;
use crate::flow::{FlowKey, KeyV4, KeyV6};
use crate::sketch::{Sum, Sums, TableCell, Values};

/// A key that tables are kept for, and the cell that sums it.
pub trait TableKey: FlowKey {
    /// The cell for keys of this size.
    type Cell: Cell<Key = Self>;
}

/// The sums of everything that was placed in one cell. All sums wrap, so that every order of updates gives the same.
pub trait Cell: Copy + Default + PartialEq + Send + std::fmt::Debug + 'static {
    /// The keys it sums.
    type Key: FlowKey;

    /// What `count` times this key with this check is in a cell, with `value` as its whole contribution to the value sum.
    fn of(key: &Self::Key, check: u32, count: i32, value: u64) -> Self;
    /// Adds another cell's sums to these.
    fn add(&mut self, other: &Self);
    /// Takes another cell's sums from these.
    fn subtract(&mut self, other: &Self);
    /// How many times keys were added less how many times they were removed.
    fn count(&self) -> i32;
    /// The sum of the keys' checks.
    fn check(&self) -> u32;
    /// The sum of the keys, word by word.
    fn key_words(&self) -> &[u64];
    /// The sum of the values.
    fn value(&self) -> u64;
    /// Sets the value sum alone.
    fn set_value(&mut self, value: u64);

    /// Whether no key is left in it, whatever its value sum. A count of zero alone does not say so.
    #[inline]
    fn is_key_free(&self) -> bool {
        self.count() == 0 && self.check() == 0 && self.key_words().iter().all(|&word| word == 0)
    }

    /// Whether all its sums are zero.
    #[inline]
    fn is_zero(&self) -> bool {
        self.is_key_free() && self.value() == 0
    }
}

macro_rules! cell {
    ($(#[$doc:meta])* $name:ident, $key:ty, $words:literal, $size:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C, align($size))]
        pub struct $name {
            count: i32,
            check: u32,
            key: [u64; $words],
            value: u64,
        }

        const _: () = assert!(size_of::<$name>() == $size && <$key as FlowKey>::WORD_COUNT == $words);

        impl TableKey for $key {
            type Cell = $name;
        }

        impl Cell for $name {
            type Key = $key;

            #[inline]
            fn of(key: &$key, check: u32, count: i32, value: u64) -> Self {
                let words = key.words();
                $name {
                    count,
                    check: check.wrapping_mul(count as u32),
                    key: std::array::from_fn(|at| words[at].wrapping_mul(count as i64 as u64)),
                    value,
                }
            }

            #[inline]
            fn add(&mut self, other: &Self) {
                self.count = self.count.wrapping_add(other.count);
                self.check = self.check.wrapping_add(other.check);
                for (sum, word) in self.key.iter_mut().zip(&other.key) {
                    *sum = sum.wrapping_add(*word);
                }
                self.value = self.value.wrapping_add(other.value);
            }

            #[inline]
            fn subtract(&mut self, other: &Self) {
                self.count = self.count.wrapping_sub(other.count);
                self.check = self.check.wrapping_sub(other.check);
                for (sum, word) in self.key.iter_mut().zip(&other.key) {
                    *sum = sum.wrapping_sub(*word);
                }
                self.value = self.value.wrapping_sub(other.value);
            }

            #[inline]
            fn count(&self) -> i32 {
                self.count
            }

            #[inline]
            fn check(&self) -> u32 {
                self.check
            }

            #[inline]
            fn key_words(&self) -> &[u64] {
                &self.key
            }

            #[inline]
            fn value(&self) -> u64 {
                self.value
            }

            #[inline]
            fn set_value(&mut self, value: u64) {
                self.value = value;
            }
        }

        /// The same sums as [`Sums`] of such keys, in a cell that is aligned: general tables can be made of it too.
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
                Some(i64::from(self.count))
            }

            #[inline]
            fn value(&self) -> u64 {
                self.value
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
                (self.count, self.check, self.key) == (other.count, other.check, other.key)
            }

            #[inline]
            fn candidate(&self, count: i64, lost: u64) -> Option<$key> {
                <$key>::from_words(&self.key).quotient(count, lost)
            }

            #[inline]
            fn agrees(&self, hash: u128, count: i64) -> bool {
                self.check == check_of(hash).wrapping_mul(count as u32)
            }

            fn values(&self, _hash: u128, count: i64) -> Values<u64> {
                match count {
                    1 | -1 => Values::One(self.value.times(count)),
                    _ => Values::Sum(self.value),
                }
            }

            fn without_keys(&self) -> Self {
                $name { value: self.value, ..Self::default() }
            }

            fn write(&self, out: &mut [u8]) {
                let (count, rest) = out.split_at_mut(i32::SIZE);
                let (key, rest) = rest.split_at_mut(<$key as Sum>::SIZE);
                let (value, check) = rest.split_at_mut(u64::SIZE);
                self.count.write(count);
                key.chunks_mut(u64::SIZE).zip(&self.key).for_each(|(out, word)| word.write(out));
                self.value.write(value);
                self.check.write(check);
            }

            fn read(bytes: &[u8]) -> Self {
                let (count, rest) = bytes.split_at(i32::SIZE);
                let (key, rest) = rest.split_at(<$key as Sum>::SIZE);
                let (value, check) = rest.split_at(u64::SIZE);
                let mut cell = $name { count: Sum::read(count), check: Sum::read(check), value: Sum::read(value), ..Self::default() };
                cell.key.iter_mut().zip(key.chunks(u64::SIZE)).for_each(|(word, bytes)| *word = u64::read(bytes));
                cell
            }
        }
    };
}

cell!(
    /// The cell of IPv4 keys: 32 bytes, two to a cache line.
    CellV4, KeyV4, 2, 32
);
cell!(
    /// The cell of IPv6 keys: 56 bytes of sums in a cache line of their own.
    CellV6, KeyV6, 5, 64
);
