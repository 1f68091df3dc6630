//! The way of updates into a table: gathered, hashed and given values together, and summed together.
//!
//! What enters: pairs that are inserted or removed, one by one. What leaves: the sums of [`BATCH_COUNT`] of them at a time in a
//! table, a step later: the cells of some are on their way from memory while others are gathered and hashed.

use super::iblt::AHEAD_COUNT;
use crate::hash::{HASH_BATCH_COUNT, HashBatch, KeyedHash, Purpose, Secret};
use crate::sketch::{Cell, HASH_COUNT, Iblt, TableKey, ValueCode, check_of};

/// How many updates are hashed together.
pub const BATCH_COUNT: usize = HASH_BATCH_COUNT;

/// How many updates' cells are asked for before the next are gathered.
const FIRST_COUNT: usize = 2 * AHEAD_COUNT;

/// Updates that wait to be summed into a table. It holds no more than twice [`BATCH_COUNT`], and allocates only when it is made.
pub struct Batch<K: TableKey> {
    placement: KeyedHash<K>,
    code: ValueCode<K>,
    keys: Vec<K>,
    /// The payload that belongs to each key, and how often it is inserted: once, or minus once.
    payloads: Vec<(u32, i32)>,
    asked: Asked<K>,
}

/// Updates that were hashed, the cells of the first of which are on their way.
struct Asked<K: TableKey> {
    count: usize,
    places: [[u32; HASH_COUNT]; BATCH_COUNT],
    sums: [K::Cell; BATCH_COUNT],
}

impl<K: TableKey> Batch<K> {
    /// An empty batch; keys are placed and values checked under this secret.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        Batch {
            placement: KeyedHash::new(secret, Purpose::Placement),
            code: ValueCode::new(KeyedHash::new(secret, Purpose::Value)),
            keys: Vec::with_capacity(BATCH_COUNT),
            payloads: Vec::with_capacity(BATCH_COUNT),
            asked: Asked { count: 0, places: [[0; HASH_COUNT]; BATCH_COUNT], sums: [K::Cell::default(); BATCH_COUNT] },
        }
    }

    /// Adds an insertion, or a removal, of a key with the value of this payload; whether the batch is full with it. With a full
    /// batch a step is to be made before anything else is added.
    #[inline]
    pub fn push(&mut self, key: K, payload: u32, is_insert: bool) -> bool {
        self.keys.push(key);
        self.payloads.push((payload, if is_insert { 1 } else { -1 }));
        self.keys.len() >= BATCH_COUNT
    }

    /// Sums what the step before has asked `table` for, and asks for what was added since; how many updates that was. The next step
    /// must be into the same table, and nothing may be read from it before [`Self::sum_into`].
    ///
    /// Complexity: `k` random accesses an update.
    ///
    /// # Panics
    ///
    /// The table is smaller than that of the step before.
    pub fn step_into(&mut self, table: &mut Iblt<K>) -> u64 {
        let count = self.keys.len();
        self.step(table);
        // More than one step only for whoever has added to a full batch.
        while !self.keys.is_empty() {
            self.step(table);
        }
        count as u64
    }

    /// Sums all that waits into `table`, which is that of the step before if there was one, and goes on empty; how many updates were
    /// added since the step.
    ///
    /// Complexity: `k` random accesses an update.
    ///
    /// # Panics
    ///
    /// The table is smaller than that of the step before.
    pub fn sum_into(&mut self, table: &mut Iblt<K>) -> u64 {
        let count = self.step_into(table);
        self.step(table);
        count
    }

    /// Sums what was asked for, and hashes and asks for up to [`BATCH_COUNT`] others.
    fn step(&mut self, table: &mut Iblt<K>) {
        let Asked { count, places, sums } = &mut self.asked;
        // Some are summed at first, and some after the hashing: so memory is never idle for long.
        let half = *count / 2;
        table.add_at(&places[..*count], sums, 0..half);
        let mut hashes = HashBatch::default();
        self.placement.of_batch(&self.keys, &mut hashes);
        table.add_at(&places[..*count], sums, half..*count);
        *count = self.keys.len().min(BATCH_COUNT);
        let (keys, payloads) = (&self.keys[..*count], &self.payloads[..*count]);
        for (at, (key, &(payload, times))) in keys.iter().zip(payloads).enumerate() {
            let hash = hashes.get(at);
            hashes.set(at, ValueCode::<K>::block(hash, payload));
            places[at] = table.places(hash);
            sums[at] = K::Cell::of(key, check_of(hash), times, 0);
        }
        let first = &places[..FIRST_COUNT.min(*count)];
        let (soon, later) = first.split_at(AHEAD_COUNT.min(first.len()));
        soon.iter().for_each(|places| table.prefetch(places));
        self.code.map(&mut hashes, *count);
        later.iter().for_each(|places| table.prefetch(places));
        for (at, (sum, &(payload, times))) in sums.iter_mut().zip(payloads).enumerate() {
            let value = ValueCode::<K>::of_image(hashes.get(at), payload);
            sum.set_value(value.wrapping_mul(i64::from(times) as u64));
        }
        self.keys.drain(..*count);
        self.payloads.drain(..*count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{KeyV4, KeyV6};
    use crate::sketch::{Change, Geometry};

    /// Sums `count` updates by a batch, with a step whenever so many wait, and one by one.
    fn compare<K: TableKey>(count: u64, step_count: u64) {
        let placement = KeyedHash::<K>::new(&Secret::REPLAY, Purpose::Placement);
        let code = ValueCode::new(KeyedHash::<K>::new(&Secret::REPLAY, Purpose::Value));
        let mut batch = Batch::new(&Secret::REPLAY);
        let (mut together, mut apart) = (Iblt::new(Geometry::new(50)), Iblt::new(Geometry::new(50)));
        let mut summed = 0;
        for number in 0..count {
            let key = K::from_words(&[number, !number, number << 40, 5, number << 16]);
            let (hash, payload, is_insert) = (placement.of(&key), u32::MAX - number as u32, number % 3 != 0);
            let value = code.encode(hash, payload);
            let change = if is_insert { Change::insert(key, hash, value) } else { Change::remove(key, hash, value) };
            apart.apply_one(&change);
            assert_eq!(batch.push(key, payload, is_insert), number % step_count + 1 >= BATCH_COUNT as u64);
            if (number + 1).is_multiple_of(step_count) {
                summed += batch.step_into(&mut together);
                assert_eq!(summed, number + 1);
            }
        }
        assert!(together.is_zero() || count > step_count, "nothing is summed before it is asked for");
        assert_eq!(summed + batch.sum_into(&mut together), count);
        assert!(together == apart, "{count} updates, a step every {step_count}");
        assert_eq!(batch.sum_into(&mut together), 0);
        assert!(together == apart, "nothing is left in the batch");
    }

    #[test]
    fn a_batch_sums_what_its_updates_sum() {
        let full = BATCH_COUNT as u64;
        for count in 0..=3 * full {
            compare::<KeyV4>(count, full);
            compare::<KeyV6>(count, full);
        }
        // Steps before it is full, and too late.
        for step_count in [1, 7, full - 1, full + 1, 3 * full + 5] {
            compare::<KeyV4>(5 * full, step_count);
            compare::<KeyV6>(5 * full, step_count);
        }
    }
}
