//! Listing (LISTENTRIES, section 2.4 of the paper, with the checks of section 3): take out a key that stands alone in a
//! cell, subtract it from its other cells, and go on with those.
//!
//! What enters: a table, and whoever is to be given what is in it. What leaves: keys with their counts and values, one
//! by one, and the table without them. A key added or removed several times with different values is taken out as one
//! sum, where the paper (sections 3 and 6) gives such keys up.
//!
//! A cell is taken for a lone key only when the key's check agrees and the key maps to this very cell. Work is bounded
//! whatever the table holds: no more keys are taken out than there are cells, which is as many as an honest table gives.

use crate::config::{AGGREGATE_COUNT_MAX, AGGREGATE_LOST_BITS_MAX};
use crate::hash::{HASH_GROUP_COUNT, KeyedHash};
use crate::prefetch::prefetch;
use crate::sketch::{Cell, Change, HASH_COUNT, Iblt, TableKey, check_of};

/// How many candidate cells are looked at together: enough to hide the memory's latency behind each other.
const BATCH_COUNT: usize = 32;

const _: () = assert!(BATCH_COUNT.is_multiple_of(HASH_GROUP_COUNT));

/// Whoever is given what is peeled: it knows which values are genuine.
pub trait Recipient<K> {
    /// Whether `value` is one that the key with this placement hash can have.
    fn belongs(&self, placement: u128, value: u64) -> bool;

    /// What a key's contribution to the value sum must be, where no cell shows it unspoilt.
    fn expected(&self, _key: &K, _placement: u128, _count: i32) -> Option<u64> {
        None
    }

    /// Takes what was peeled. It is no longer in the table.
    fn take(&mut self, peeled: Peeled<K>);
}

/// One key that was peeled out of a table, as the change that is no longer in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeled<K> {
    /// The key with its count. Its value is what was subtracted from the value sums: the signed value when
    /// `value_known`, else zero, and then the value is still in the sums.
    pub change: Change<K>,
    /// Whether a value was found that belongs to the key.
    pub value_known: bool,
}

/// Peels tables of one size; it holds the work list, so that peeling allocates nothing.
pub struct Peeler<K: TableKey> {
    hash: KeyedHash<K>,
    work: Vec<u32>,
    overflowed: bool,
    /// The largest count that is taken for one key.
    aggregate_max: u32,
}

impl<K: TableKey> Peeler<K> {
    /// A peeler for tables with up to `cell_count` cells, filled by whoever places keys by `hash`.
    #[must_use]
    pub fn new(hash: KeyedHash<K>, cell_count: usize) -> Self {
        let work = Vec::with_capacity(cell_count / 2 + BATCH_COUNT * HASH_COUNT);
        Peeler { hash, work, overflowed: false, aggregate_max: AGGREGATE_COUNT_MAX }
    }

    /// The same for sums of so many tables, in each of which a key may be. Its count then is at most their number.
    ///
    /// Complexity: for every factor of two in a count, twice to the power of the words of a key as many keys are tried; those for
    /// which that is more than two to the power of [`AGGREGATE_LOST_BITS_MAX`] are left in the table.
    #[must_use]
    pub fn for_sum_of(mut self, table_count: u32) -> Self {
        self.aggregate_max = table_count.max(AGGREGATE_COUNT_MAX);
        self
    }

    /// The function by which keys are placed.
    #[must_use]
    pub fn hash(&self) -> &KeyedHash<K> {
        &self.hash
    }

    /// Takes out of `table` every key that can be told, giving each to `recipient`. What could not be told stays in the
    /// table. The number of keys taken out.
    ///
    /// Complexity: a pass over the cells, then `k` random accesses a key.
    pub fn peel(&mut self, table: &mut Iblt<K>, recipient: &mut impl Recipient<K>) -> usize {
        let mut budget = table.geometry().cell_count();
        let whole = budget;
        loop {
            let before = budget;
            self.scan(table, recipient, 1, &mut budget);
            if !self.overflowed {
                // Only a table that is stuck is searched for keys that are in it several times.
                let stuck = !table.is_key_free();
                if stuck {
                    self.scan(table, recipient, self.aggregate_max, &mut budget);
                }
                if !stuck || budget == before {
                    return whole - budget;
                }
            }
            if budget == 0 {
                return whole;
            }
        }
    }

    /// One pass over the cells in order, following every key taken out to its other cells before going on.
    fn scan(&mut self, table: &mut Iblt<K>, recipient: &mut impl Recipient<K>, count_max: u32, budget: &mut usize) {
        self.work.clear();
        self.overflowed = false;
        let mut next = 0;
        let mut batch = [0u32; BATCH_COUNT];
        loop {
            let mut count = 0;
            while count < BATCH_COUNT {
                if let Some(place) = self.work.pop() {
                    prefetch(&table.cells()[place as usize]);
                    batch[count] = place;
                    count += 1;
                } else if let Some(cell) = table.cells().get(next) {
                    if (1..=count_max).contains(&cell.count().unsigned_abs()) {
                        batch[count] = next as u32;
                        count += 1;
                    }
                    next += 1;
                } else {
                    break;
                }
            }
            if count == 0 || *budget == 0 {
                return;
            }
            self.peel_batch(table, recipient, count_max, &batch[..count], budget);
        }
    }

    fn peel_batch(
        &mut self,
        table: &mut Iblt<K>,
        recipient: &mut impl Recipient<K>,
        count_max: u32,
        batch: &[u32],
        budget: &mut usize,
    ) {
        let mut keys = [K::from_words(&[]); BATCH_COUNT];
        let mut hashes = [0; BATCH_COUNT];
        for (key, &place) in keys.iter_mut().zip(batch) {
            *key = Self::lone_key(&table.cells()[place as usize]);
        }
        let groups = keys.chunks(HASH_GROUP_COUNT).zip(hashes.chunks_mut(HASH_GROUP_COUNT));
        groups.take(batch.len().div_ceil(HASH_GROUP_COUNT)).for_each(|(keys, hashes)| self.hash.of_group(keys, hashes));
        // The other cells of all are asked for before the first is touched.
        for (&place, &hash) in batch.iter().zip(&hashes) {
            let cell = &table.cells()[place as usize];
            if cell.count().unsigned_abs() == 1 && Self::is_lone(cell, hash) {
                table.geometry().places(hash).iter().for_each(|&other| prefetch(&table.cells()[other]));
            }
        }
        for ((&place, &key), &hash) in batch.iter().zip(&keys).zip(&hashes) {
            let cell = &table.cells()[place as usize];
            // An earlier key of this batch may have left the cell, so it is read again, not remembered.
            let found = if cell.count().unsigned_abs() != 1 {
                self.aggregate(cell)
            } else if Self::lone_key(cell) == key && Self::is_lone(cell, hash) {
                Some((key, hash))
            } else {
                None
            };
            let Some((key, hash)) = found else { continue };
            if *budget > 0 && table.geometry().places(hash).contains(&(place as usize)) {
                *budget -= 1;
                let peeled = self.remove(table, recipient, key, hash, place as usize);
                self.follow(table, hash, count_max);
                recipient.take(peeled);
            }
        }
    }

    /// The key of a cell that holds one key once, added or removed; of any other cell, something that does not verify.
    #[must_use]
    #[inline]
    pub fn lone_key(cell: &K::Cell) -> K {
        let sign = cell.count().signum() as i64 as u64;
        let mut words = [0; 8];
        for (word, sum) in words.iter_mut().zip(cell.key_words()) {
            *word = sum.wrapping_mul(sign);
        }
        K::from_words(&words)
    }

    /// Whether the check sum is that of the key with this placement hash alone, as often as the cell counts.
    #[must_use]
    #[inline]
    pub fn is_lone(cell: &K::Cell, hash: u128) -> bool {
        cell.check() == check_of(hash).wrapping_mul(cell.count() as u32)
    }

    /// The key that stands in this cell alone but several times, when there is one.
    fn aggregate(&self, cell: &K::Cell) -> Option<(K, u128)> {
        let count = cell.count();
        if !(2..=self.aggregate_max).contains(&count.unsigned_abs()) {
            return None;
        }
        let twos = count.trailing_zeros();
        let lost_bits = twos * K::WORD_COUNT as u32;
        let is_divisible = cell.key_words().iter().all(|sum| sum.trailing_zeros() >= twos);
        if lost_bits > AGGREGATE_LOST_BITS_MAX || !is_divisible {
            return None;
        }
        let inverse = odd_inverse((count >> twos) as i64 as u64);
        // A word times an even count has lost its top bits: all of them are tried.
        for first in (0..1u64 << lost_bits).step_by(HASH_GROUP_COUNT) {
            let mut keys = [K::from_words(&[]); HASH_GROUP_COUNT];
            let mut hashes = [0; HASH_GROUP_COUNT];
            for (key, lost) in keys.iter_mut().zip(first..1 << lost_bits) {
                *key = Self::quotient(cell, twos, inverse, lost);
            }
            let count = HASH_GROUP_COUNT.min((1 << lost_bits) - first as usize);
            self.hash.of_group(&keys[..count], &mut hashes);
            let mut tried = keys.into_iter().zip(hashes).take(count);
            if let Some(found) = tried.find(|(_, hash)| Self::is_lone(cell, *hash)) {
                return Some(found);
            }
        }
        None
    }

    /// The cell's key sum divided by its count, an odd number with this inverse times two to the power of `twos`, with these bits
    /// for the lost ones.
    fn quotient(cell: &K::Cell, twos: u32, inverse: u64, lost: u64) -> K {
        let mut words = [0; 8];
        for (at, (word, &sum)) in words.iter_mut().zip(cell.key_words()).enumerate() {
            let top = lost >> (at as u32 * twos) & ((1 << twos) - 1);
            let low = (sum >> twos).wrapping_mul(inverse) << twos >> twos;
            *word = if twos == 0 { low } else { low | top << (u64::BITS - twos) };
        }
        K::from_words(&words)
    }

    /// Subtracts the key that stands alone at `place` from all its cells.
    fn remove(
        &self,
        table: &mut Iblt<K>,
        recipient: &impl Recipient<K>,
        key: K,
        hash: u128,
        place: usize,
    ) -> Peeled<K> {
        let places = table.geometry().places(hash);
        let cell = table.cells()[place];
        let count = cell.count();
        // Noise of another key may lie on the value here and not elsewhere: any cell that holds this key alone may tell.
        let lone = std::iter::once(place).chain(places);
        let lone =
            lone.map(|at| table.cells()[at]).filter(|at| at.count() == count && at.key_words() == cell.key_words());
        let known = lone.map(|at| at.value()).find(|&value| match count {
            1 => recipient.belongs(hash, value),
            -1 => recipient.belongs(hash, value.wrapping_neg()),
            _ => false,
        });
        let known = known.or_else(|| recipient.expected(&key, hash, count));
        let change = Change { key, hash, count, value: known.unwrap_or(0) };
        table.apply_one(&change.undone());
        Peeled { change, value_known: known.is_some() }
    }

    /// Puts those cells of a key that was taken out on the work list in which there may now be a lone one.
    fn follow(&mut self, table: &Iblt<K>, hash: u128, count_max: u32) {
        for at in table.geometry().places(hash) {
            if (1..=count_max).contains(&table.cells()[at].count().unsigned_abs()) {
                if self.work.len() < self.work.capacity() {
                    self.work.push(at as u32);
                } else {
                    self.overflowed = true;
                }
            }
        }
    }
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the bits that are right.
fn odd_inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    inverse
}
