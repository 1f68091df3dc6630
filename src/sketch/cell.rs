//! Cells: the sums that a table is made of, one layout for each key size.
//!
//! What enters: keys with their checks, counts and values. What leaves: their sums, and whether anything is in them.
//! Fields are those of sections 2.2 and 3 of the paper: `count`, `keySum`, `valueSum`, and `hashkeySum` as the check. A
//! check of the value sum stands in the values themselves. Sums, not XORs: a key that is in a cell twice must not
//! vanish.

use crate::flow::{FlowKey, KeyV4, KeyV6};

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
