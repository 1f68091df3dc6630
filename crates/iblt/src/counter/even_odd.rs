//! The even-odd counter: two sums of keys in every cell, each of one half of all keys (section IV of the paper). A bit
//! of its hash decides which sum a key is added to. So a cell with one key of each half can be split, by trying how its
//! count is divided between the two.

use super::split::{self, Budget, Parts, Splits, keys_of, may_hold, shares};
use super::{Counter, Tally, least_count, signed};
use crate::cell::{CheckField, TableCell, Values};
use crate::hash::mixed;
use crate::key_hash::{KeyHash, SecretHash};
use crate::placement::Layout;
use crate::refused::Refused;
use crate::sum::{Key, Sum};
use crate::table::Table;

/// The sums of an [`EvenOdd`] counter's cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvenOddCell<K> {
    count: i64,
    keys: [K; 2],
    check: u64,
}

/// The half that a key with this hash belongs to.
#[inline]
fn half_of(hash: u128) -> usize {
    // Single bits of the hash already place and check, so this one depends on all of them.
    (mixed(hash as u64 ^ (hash >> 64) as u64) & 1) as usize
}

impl<K: Key> TableCell for EvenOddCell<K> {
    type Key = K;
    type Value = ();
    const SIZE: usize = i64::SIZE + 2 * K::SIZE + u64::SIZE;
    const IS_COUNTED: bool = true;
    const IS_CHECKED: bool = true;
    const IS_VALUE_CHECKED: bool = false;
    const HAS_VALUE_FIELD: bool = false;
    const IS_MULTISET: bool = true;

    #[inline]
    fn zero() -> Self {
        EvenOddCell { count: 0, keys: [K::zero(); 2], check: 0 }
    }

    #[inline]
    fn of(key: &K, (): (), hash: u128, count: i64) -> Self {
        let mut keys = [K::zero(); 2];
        keys[half_of(hash)] = key.times(count);
        EvenOddCell { count, keys, check: <u64 as CheckField>::of(hash).times(count) }
    }

    #[inline]
    fn add(&mut self, other: &Self) {
        self.count = self.count.plus(other.count);
        self.keys = [self.keys[0].plus(other.keys[0]), self.keys[1].plus(other.keys[1])];
        self.check = self.check.plus(other.check);
    }

    #[inline]
    fn subtract(&mut self, other: &Self) {
        self.count = self.count.minus(other.count);
        self.keys = [self.keys[0].minus(other.keys[0]), self.keys[1].minus(other.keys[1])];
        self.check = self.check.minus(other.check);
    }

    #[inline]
    fn count(&self) -> i64 {
        self.count
    }

    #[inline]
    fn value(&self) {}

    #[inline]
    fn is_zero(&self) -> bool {
        *self == Self::zero()
    }

    #[inline]
    fn is_key_free(&self) -> bool {
        self.is_zero()
    }

    #[inline]
    fn has_keys_of(&self, other: &Self) -> bool {
        self == other
    }

    fn candidate(&self, count: i64, lost: u64) -> Option<K> {
        let sum = match self.keys {
            [sum, other] | [other, sum] if other == K::zero() => sum,
            _ => return None,
        };
        sum.quotient(count, lost)
    }

    #[inline]
    fn agrees(&self, hash: u128, count: i64) -> bool {
        self.check == <u64 as CheckField>::of(hash).times(count) && self.keys[1 - half_of(hash)] == K::zero()
    }

    fn values(&self, _hash: u128, _count: i64) -> Values<()> {
        Values::One(())
    }

    fn without_keys(&self) -> Self {
        Self::zero()
    }

    fn write(&self, out: &mut [u8]) {
        let (count, rest) = out.split_at_mut(i64::SIZE);
        let (even, rest) = rest.split_at_mut(K::SIZE);
        let (odd, check) = rest.split_at_mut(K::SIZE);
        self.count.write(count);
        self.keys[0].write(even);
        self.keys[1].write(odd);
        self.check.write(check);
    }

    fn read(bytes: &[u8]) -> Self {
        let (count, rest) = bytes.split_at(i64::SIZE);
        let (even, rest) = rest.split_at(K::SIZE);
        let (odd, check) = rest.split_at(K::SIZE);
        EvenOddCell { count: i64::read(count), keys: [K::read(even), K::read(odd)], check: u64::read(check) }
    }
}

/// The even-odd invertible Bloom counter.
///
/// Complexity: updates as for [`Standard`](super::Standard); listing tries as many splits of a stuck cell as the cell
/// counts.
#[derive(Clone)]
pub struct EvenOdd<K: Key, H = SecretHash<K>> {
    table: Table<EvenOddCell<K>, H>,
}

impl<K: Key, H: KeyHash<K>> EvenOdd<K, H> {
    /// An empty counter.
    #[must_use]
    pub fn new(layout: Layout, hash: H) -> Self {
        EvenOdd { table: Table::new(layout, hash) }
    }

    /// The sums of the counter.
    #[must_use]
    pub fn table(&self) -> &Table<EvenOddCell<K>, H> {
        &self.table
    }

    /// Adds all that another counter holds.
    ///
    /// # Errors
    /// [`Refused::Layout`]: the counters have different layouts.
    pub fn merge(&mut self, other: &Self) -> Result<(), Refused> {
        self.table.merge(&other.table)
    }

    /// Takes away all that another counter holds.
    ///
    /// # Errors
    /// [`Refused::Layout`]: the counters have different layouts.
    pub fn subtract(&mut self, other: &Self) -> Result<(), Refused> {
        self.table.subtract(&other.table)
    }

    /// Decodes a counter from the bytes of its table. Any bytes of the right length are a counter.
    ///
    /// # Errors
    /// [`Refused::Length`]: the bytes are not as many as the layout needs.
    pub fn from_bytes(layout: Layout, hash: H, bytes: &[u8]) -> Result<Self, Refused> {
        Ok(EvenOdd { table: Table::from_bytes(layout, hash, bytes)? })
    }
}

/// Splits a cell between one key of each half.
struct Halves;

impl<K: Key, H: KeyHash<K>> Splits<EvenOddCell<K>, H> for Halves {
    fn has_triples(&self) -> bool {
        false
    }

    /// The even key, with its count, of a cell that holds one key of each half.
    fn split(
        &self,
        table: &Table<EvenOddCell<K>, H>,
        place: u32,
        _parts: Parts,
        budget: &mut Budget,
    ) -> Option<(K, i64)> {
        let cell = *table.cell(place);
        for (first, second) in shares(cell.count) {
            for even in keys_of(cell.keys[0], first) {
                for odd in keys_of(cell.keys[1], second) {
                    if !budget.take() {
                        return None;
                    }
                    let hashes = [table.hash().of(&even), table.hash().of(&odd)];
                    let check = |hash: u128, count: i64| <u64 as CheckField>::of(hash).times(count);
                    let is_right = check(hashes[0], first).plus(check(hashes[1], second)) == cell.check
                        && hashes.map(half_of) == [0, 1]
                        && may_hold(table, place, hashes[0], first)
                        && may_hold(table, place, hashes[1], second);
                    if is_right {
                        return Some((even, first));
                    }
                }
            }
        }
        None
    }

    fn taken(&mut self, _table: &Table<EvenOddCell<K>, H>, _key: &K) {}
}

impl<K: Key, H: KeyHash<K>> Counter for EvenOdd<K, H> {
    type Key = K;

    fn add(&mut self, key: &K, count: u64) {
        self.table.update(key, (), signed(count));
    }

    fn remove(&mut self, key: &K, count: u64) {
        self.table.update(key, (), signed(count).wrapping_neg());
    }

    fn query(&self, key: &K) -> u64 {
        least_count(&self.table, key)
    }

    fn list(&mut self) -> Tally<K> {
        split::list(&mut self.table, &mut Halves)
    }
}
