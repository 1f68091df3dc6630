//! The way of updates into a table: gathered, hashed and given values in groups, and summed together.
//!
//! What enters: pairs that are inserted or removed, one by one. What leaves: the sums of up to [`BATCH_COUNT`] of them at a time
//! in a table. All are hashed before the first cell is touched: what hashing writes would wait behind cells that are still
//! on their way.

use crate::hash::{HASH_GROUP_COUNT, KeyedHash, Purpose, Secret};
use crate::sketch::{Change, Iblt, TableKey, ValueCode};

/// How many updates are summed together: enough to hide the memory's latency behind each other.
pub const BATCH_COUNT: usize = 32;

const _: () = assert!(BATCH_COUNT.is_multiple_of(HASH_GROUP_COUNT));

/// Updates that wait to be summed into a table. It holds no more than [`BATCH_COUNT`], and allocates only when it is made.
pub struct Batch<K> {
    placement: KeyedHash<K>,
    code: ValueCode<K>,
    updates: Vec<(K, u32, bool)>,
}

impl<K: TableKey> Batch<K> {
    /// An empty batch; keys are placed and values checked under this secret.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        Batch {
            placement: KeyedHash::new(secret, Purpose::Placement),
            code: ValueCode::new(KeyedHash::new(secret, Purpose::Value)),
            updates: Vec::with_capacity(BATCH_COUNT),
        }
    }

    /// Adds an insertion, or a removal, of a key with the value of this payload; whether the batch is full with it. A full
    /// batch is to be summed before anything else is added.
    #[inline]
    pub fn push(&mut self, key: K, payload: u32, is_insert: bool) -> bool {
        self.updates.push((key, payload, is_insert));
        self.updates.len() >= BATCH_COUNT
    }

    /// Sums what waits into `table`, and goes on empty; how many updates it was.
    ///
    /// Complexity: `k` random accesses an update.
    pub fn sum_into(&mut self, table: &mut Iblt<K>) -> u64 {
        let mut changes = [Change::insert(K::from_words(&[]), 0, 0); BATCH_COUNT];
        for updates in self.updates.chunks(BATCH_COUNT) {
            let groups = updates.chunks(HASH_GROUP_COUNT).zip(changes.chunks_mut(HASH_GROUP_COUNT));
            groups.for_each(|(updates, changes)| self.hash_group(updates, changes));
            table.apply(&changes[..updates.len()]);
        }
        let count = self.updates.len() as u64;
        self.updates.clear();
        count
    }

    /// What up to [`HASH_GROUP_COUNT`] updates change.
    #[inline]
    fn hash_group(&self, updates: &[(K, u32, bool)], changes: &mut [Change<K>]) {
        let mut keys = [K::from_words(&[]); HASH_GROUP_COUNT];
        let mut payloads = [0; HASH_GROUP_COUNT];
        let mut hashes = [0; HASH_GROUP_COUNT];
        for ((key, payload), update) in keys.iter_mut().zip(&mut payloads).zip(updates) {
            (*key, *payload) = (update.0, update.1);
        }
        self.placement.of_group(&keys[..updates.len()], &mut hashes);
        let values = self.code.encode_group(&hashes, &payloads);
        for (((change, update), hash), value) in changes.iter_mut().zip(updates).zip(hashes).zip(values) {
            let (key, _, is_insert) = *update;
            *change = if is_insert { Change::insert(key, hash, value) } else { Change::remove(key, hash, value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{KeyV4, KeyV6};
    use crate::sketch::Geometry;

    /// Sums `count` updates by a batch, and one by one.
    fn compare<K: TableKey>(count: u64) {
        let placement = KeyedHash::<K>::new(&Secret::REPLAY, Purpose::Placement);
        let code = ValueCode::new(KeyedHash::<K>::new(&Secret::REPLAY, Purpose::Value));
        let mut batch = Batch::new(&Secret::REPLAY);
        let (mut together, mut apart) = (Iblt::new(Geometry::new(50)), Iblt::new(Geometry::new(50)));
        for number in 0..count {
            let key = K::from_words(&[number, !number, number << 40, 5, number << 16]);
            let (hash, payload, is_insert) = (placement.of(&key), u32::MAX - number as u32, number % 3 != 0);
            let value = code.encode(hash, payload);
            let change = if is_insert { Change::insert(key, hash, value) } else { Change::remove(key, hash, value) };
            apart.apply_one(&change);
            assert_eq!(batch.push(key, payload, is_insert), number + 1 == BATCH_COUNT as u64);
        }
        assert!(together.is_zero(), "nothing is summed before it is asked for");
        assert_eq!(batch.sum_into(&mut together), count);
        assert!(together == apart, "{count} updates");
        assert_eq!(batch.sum_into(&mut together), 0);
        assert!(together == apart, "nothing is left in the batch");
    }

    #[test]
    fn a_batch_sums_what_its_updates_sum() {
        for count in 0..=BATCH_COUNT as u64 {
            compare::<KeyV4>(count);
            compare::<KeyV6>(count);
        }
    }
}
