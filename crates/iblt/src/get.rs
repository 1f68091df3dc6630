//! Getting (GET, sections 2.3 and 3 of the paper): what is known of one key, without listing.
//!
//! A cell that holds the key alone has its count and values. A cell that is empty, or holds another key alone, proves
//! that the key is absent. Where there is neither, a cell with one other key may help: when another cell gives that
//! key's part, subtracting it leaves the key's own.

use crate::cell::{TableCell, Values};
use crate::key_hash::KeyHash;
use crate::listing::Lone;
use crate::sum::Sum;
use crate::table::{BATCH_COUNT, Table};

/// How many steps `get` follows from a key's cells to those of its neighbours: after three steps little is gained.
const TABLE_GET_DEPTH_MAX: usize = 3;

/// The most cells that `get` visits for one key, so that no table makes it slow.
const TABLE_GET_VISITS_MAX: usize = 512;

/// What a table knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got<V> {
    /// The key was inserted, and not removed as often.
    Found {
        /// How many times it was inserted, less how many times it was removed: positive.
        count: i64,
        /// What is known of its values.
        values: Values<V>,
    },
    /// The key was removed more often than inserted (an extraneous deletion).
    Deleted {
        /// How many times more it was removed: positive.
        count: i64,
        /// What is known of the values.
        values: Values<V>,
    },
    /// The key is not there, or was inserted and removed, perhaps with different values: the paper's null.
    Absent,
    /// The key's cells do not decide (the paper's "not found"): list the table, or make it larger. A key that is there
    /// is found with a probability of at least 1 - (1 - e^(-kn/m))^k.
    Unknown,
}

impl<V> Got<V> {
    /// The value of a key that was inserted with a single value.
    pub fn value(self) -> Option<V> {
        if let Got::Found { values: Values::One(value), .. } = self { Some(value) } else { None }
    }
}

impl<C: TableCell, H: KeyHash<C::Key>> Table<C, H> {
    /// What is known of the key, with the help of the keys that share its cells.
    ///
    /// Complexity: one random access for each of its cells; where these do not decide, a bounded number of others.
    #[must_use]
    pub fn get(&self, key: &C::Key) -> Got<C::Value> {
        self.get_hashed(key, self.hash().of(key))
    }

    /// What is known of each key, in their order. The cells of a batch of keys are prefetched together.
    ///
    /// ```
    /// use flowpeel_iblt::hash::Secret;
    /// use flowpeel_iblt::{Got, Layout, Placement, Sums, Table};
    ///
    /// let layout = Layout::new(Placement::Subtables { hash_count: 4 }, 400);
    /// let mut table = Table::<Sums<u64, u64>>::with_secret(layout, &Secret::REPLAY);
    /// (0..50).for_each(|key| table.insert(&key, 2 * key));
    /// let got = table.get_all(&[7, 49, 50]);
    /// assert_eq!((got[0].value(), got[1].value(), got[2]), (Some(14), Some(98), Got::Absent));
    /// ```
    #[must_use]
    pub fn get_all(&self, keys: &[C::Key]) -> Vec<Got<C::Value>> {
        let mut got = Vec::with_capacity(keys.len());
        for keys in keys.chunks(BATCH_COUNT) {
            let mut hashes = [0; BATCH_COUNT];
            self.hash().of_group(keys, &mut hashes[..keys.len()]);
            hashes[..keys.len()].iter().for_each(|&hash| self.prefetch(hash));
            got.extend(keys.iter().zip(hashes).map(|(key, hash)| self.get_hashed(key, hash)));
        }
        got
    }

    /// What is known from the key's own cells, as in the paper, without the help of other keys.
    #[must_use]
    pub fn get_plain(&self, key: &C::Key) -> Got<C::Value> {
        self.own(key, self.hash().of(key)).unwrap_or(Got::Unknown)
    }

    fn get_hashed(&self, key: &C::Key, hash: u128) -> Got<C::Value> {
        if let Some(got) = self.own(key, hash) {
            return got;
        }
        let mut visits = TABLE_GET_VISITS_MAX;
        if self.is_elsewhere(hash, &mut visits) {
            return Got::Absent;
        }
        match self.decoded(key, hash, TABLE_GET_DEPTH_MAX, &mut visits) {
            Some((part, count)) => found(count, part.values(hash, count)),
            None => Got::Unknown,
        }
    }

    /// What the key's own cells decide, if anything.
    fn own(&self, key: &C::Key, hash: u128) -> Option<Got<C::Value>> {
        for &place in self.places(hash).iter() {
            let cell = self.cell(place);
            if cell.is_key_free() {
                return Some(Got::Absent);
            }
            if let Some(count) = count_of(cell, key, hash) {
                let (_, values) = self.part_of(cell, &Lone { key: *key, hash, count });
                return Some(found(count, values));
            }
            // Without checks, a count of one is taken for a lone key (section 2.3).
            if !C::IS_CHECKED && C::IS_COUNTED && cell.count() == 1 {
                return Some(Got::Absent);
            }
        }
        None
    }

    /// Whether one of the key's cells holds another key alone.
    fn is_elsewhere(&self, hash: u128, visits: &mut usize) -> bool {
        let mut divisions = *visits as u64;
        C::IS_CHECKED
            && self.places(hash).iter().any(|&place| {
                *visits = visits.saturating_sub(1);
                self.lone(self.cell(place), place, &mut divisions).is_some_and(|lone| lone.hash != hash)
            })
    }

    /// The key's part and its count, from a cell that holds it alone, or from one that it shares with one other key
    /// whose part is found in the same way.
    fn decoded(&self, key: &C::Key, hash: u128, depth: usize, visits: &mut usize) -> Option<(C, i64)> {
        let places = self.places(hash);
        for &place in places.iter() {
            let cell = self.cell(place);
            if let Some(count) = count_of(cell, key, hash) {
                return Some((self.part_of(cell, &Lone { key: *key, hash, count }).0, count));
            }
        }
        if depth == 0 || !C::IS_CHECKED {
            return None;
        }
        for &place in places.iter() {
            for sign in if C::IS_MULTISET { [1, -1].as_slice() } else { [1].as_slice() } {
                *visits = visits.checked_sub(1)?;
                let mut rest = *self.cell(place);
                rest.subtract(&C::of(key, C::Value::zero(), hash, *sign));
                let mut divisions = TABLE_GET_VISITS_MAX as u64;
                let Some(other) = self.lone(&rest, place, &mut divisions).filter(|other| other.hash != hash) else {
                    continue;
                };
                if let Some((part, _)) = self.decoded(&other.key, other.hash, depth - 1, visits) {
                    let mut own = *self.cell(place);
                    own.subtract(&part);
                    if let Some(count) = count_of(&own, key, hash) {
                        return Some((own, count));
                    }
                }
            }
        }
        None
    }
}

/// How often the cell holds this key, if it holds no other.
fn count_of<C: TableCell>(cell: &C, key: &C::Key, hash: u128) -> Option<i64> {
    let count = cell.count();
    let alone = C::of(key, C::Value::zero(), hash, count);
    (count != 0 && cell.has_keys_of(&alone) && (count.unsigned_abs() == 1 || C::IS_MULTISET)).then_some(count)
}

fn found<V>(count: i64, values: Values<V>) -> Got<V> {
    if count > 0 { Got::Found { count, values } } else { Got::Deleted { count: count.saturating_neg(), values } }
}
