//! Batched updates of a table: gathered, hashed and given values together, and summed together.
//!
//! [`BATCH_COUNT`] updates make a step, and reach the table one step later: the cells of some updates are on their way
//! from memory while others are gathered and hashed. A table can be given away without waiting for its latest updates:
//! they go with it as they are, and the receiver sums them with a batch of its own.

use super::iblt::AHEAD_COUNT;
use crate::hash::{HASH_BATCH_COUNT, HashBatch, KeyedHash, Purpose, Secret};
use crate::{HASH_COUNT, Iblt, PackedCell, TableCell, TableKey, ValueCode};

/// How many updates are hashed together.
pub const BATCH_COUNT: usize = HASH_BATCH_COUNT;

/// How many updates' cells are prefetched before the next updates are gathered.
const FIRST_COUNT: usize = 2 * AHEAD_COUNT;

/// The most updates that are not in a table yet: those of a step, and those gathered after it.
const LATEST_COUNT_MAX: usize = 2 * BATCH_COUNT;

/// The latest updates of a table that is given away. The table must not be read before [`Batch::sum`] has summed them.
pub type Latest<K> = Updates<K, LATEST_COUNT_MAX>;

/// Up to `COUNT_MAX` updates, not summed yet.
pub struct Updates<K, const COUNT_MAX: usize> {
    count: usize,
    keys: [K; COUNT_MAX],
    /// The payload of each key, and its count: 1 for an insertion, -1 for a removal.
    payloads: [(u32, i32); COUNT_MAX],
}

impl<K: TableKey, const COUNT_MAX: usize> Updates<K, COUNT_MAX> {
    /// No updates.
    #[must_use]
    pub fn none() -> Self {
        Updates { count: 0, keys: [K::from_words(&[]); COUNT_MAX], payloads: [(0, 0); COUNT_MAX] }
    }

    #[inline]
    fn push(&mut self, key: K, payload: (u32, i32)) {
        (self.keys[self.count], self.payloads[self.count]) = (key, payload);
        self.count += 1;
    }

    #[inline]
    fn all(&self) -> (&[K], &[(u32, i32)]) {
        (&self.keys[..self.count], &self.payloads[..self.count])
    }
}

/// Updates that wait to be hashed, and those that were hashed in the step before and are not in the table yet. A batch
/// allocates no memory.
pub struct Batch<K: TableKey> {
    placement: KeyedHash<K>,
    code: ValueCode<K>,
    waiting: Updates<K, BATCH_COUNT>,
    /// Updates of the step before: how many, their places, and what each adds there.
    hashed_count: usize,
    places: [[u32; HASH_COUNT]; BATCH_COUNT],
    sums: [PackedCell<K>; BATCH_COUNT],
}

impl<K: TableKey> Batch<K> {
    /// An empty batch that places keys and checks values under this secret.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        Batch {
            placement: KeyedHash::new(secret, Purpose::Placement),
            code: ValueCode::new(KeyedHash::new(secret, Purpose::Value)),
            waiting: Updates::none(),
            hashed_count: 0,
            places: [[0; HASH_COUNT]; BATCH_COUNT],
            sums: [PackedCell::default(); BATCH_COUNT],
        }
    }

    /// Whether all updates are in the table.
    #[must_use]
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.waiting.count + self.hashed_count == 0
    }

    /// Adds an insertion or a removal of a key with the value of this payload, and returns whether the batch is full
    /// with it. After a full batch, a step must follow before anything else is added.
    ///
    /// # Panics
    ///
    /// The batch was already full.
    #[inline]
    pub fn push(&mut self, key: K, payload: u32, is_insert: bool) -> bool {
        self.waiting.push(key, (payload, if is_insert { 1 } else { -1 }));
        self.waiting.count == BATCH_COUNT
    }

    /// Sums what was hashed in the step before into its table, and hashes what was added since. Returns how many
    /// updates were hashed.
    ///
    /// Complexity: `k` random accesses an update.
    ///
    /// # Panics
    ///
    /// The table is smaller than it was in the step before.
    pub fn step_into(&mut self, table: &mut Iblt<K>) -> u64 {
        // Some are summed before the hashing and some after it, so that memory is never idle for long.
        let (hashed_count, half) = (self.hashed_count, self.hashed_count / 2);
        table.add_at(&self.places[..hashed_count], &self.sums, 0..half);
        let mut hashes = HashBatch::default();
        self.placement.of_batch(self.waiting.all().0, &mut hashes);
        table.add_at(&self.places[..hashed_count], &self.sums, half..hashed_count);
        self.prepare(table, &mut hashes)
    }

    /// Moves all updates that are not in the table into `latest`, because the table is to be given away. Returns how
    /// many of these no step has counted.
    ///
    /// Complexity: linear in their number; no access to the table.
    ///
    /// # Panics
    ///
    /// `latest` already holds updates.
    pub fn drain_into(&mut self, latest: &mut Latest<K>) -> u64 {
        assert!(latest.count == 0, "the updates drained before were not summed");
        for sum in &self.sums[..self.hashed_count] {
            // The sum of a single update gives its value.
            let value = sum.value().wrapping_mul(sum.count() as u64);
            latest.push(sum.lone_key(), (ValueCode::<K>::payload(value), sum.count() as i32));
        }
        let (keys, payloads) = self.waiting.all();
        keys.iter().zip(payloads).for_each(|(key, payload)| latest.push(*key, *payload));
        let count = keys.len() as u64;
        (self.hashed_count, self.waiting.count) = (0, 0);
        count
    }

    /// Sums the latest updates of a table that was given away into it. The batch must be idle, and is idle again
    /// afterwards.
    ///
    /// Complexity: `k` random accesses an update.
    pub fn sum(&mut self, latest: &mut Latest<K>, table: &mut Iblt<K>) {
        let (keys, payloads) = latest.all();
        for (key, payload) in keys.iter().zip(payloads) {
            self.waiting.push(*key, *payload);
            if self.waiting.count == BATCH_COUNT {
                self.step_into(table);
            }
        }
        while !self.is_idle() {
            self.step_into(table);
        }
        latest.count = 0;
    }

    /// Computes the places and sums of the waiting updates, which have these hashes, and returns how many there are.
    /// The first places are prefetched, some before the values are computed and some after.
    #[inline(always)]
    fn prepare(&mut self, table: &Iblt<K>, hashes: &mut HashBatch) -> u64 {
        let (keys, payloads) = self.waiting.all();
        let count = keys.len();
        for (at, (key, &(payload, times))) in keys.iter().zip(payloads).enumerate() {
            let hash = hashes.get(at);
            hashes.set(at, ValueCode::<K>::block(hash, payload));
            self.places[at] = table.places(hash);
            self.sums[at] = PackedCell::of(key, 0, hash, i64::from(times));
        }
        let first = &self.places[..FIRST_COUNT.min(count)];
        let (soon, later) = first.split_at(AHEAD_COUNT.min(first.len()));
        soon.iter().for_each(|places| table.prefetch(places));
        self.code.map(hashes, count);
        later.iter().for_each(|places| table.prefetch(places));
        for (at, (sum, &(payload, times))) in self.sums.iter_mut().zip(payloads).enumerate() {
            let value = ValueCode::<K>::of_image(hashes.get(at), payload);
            sum.set_value(value.wrapping_mul(i64::from(times) as u64));
        }
        (self.hashed_count, self.waiting.count) = (count, 0);
        count as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word_key::examples::{FiveWords, TwoWords};
    use crate::{Change, Geometry};

    /// Sums `count` updates by a batch, with a step whenever `step_count` wait, and compares with summing one by one.
    fn compare<K: TableKey>(count: u64, step_count: u64) {
        let placement = KeyedHash::<K>::new(&Secret::REPLAY, Purpose::Placement);
        let code = ValueCode::new(KeyedHash::<K>::new(&Secret::REPLAY, Purpose::Value));
        let (mut batch, mut others, mut latest) =
            (Batch::new(&Secret::REPLAY), Batch::new(&Secret::REPLAY), Latest::none());
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
        assert!(together.is_zero() || count > step_count, "nothing is summed before a step");
        assert_eq!(batch.is_idle(), count == 0);
        assert_eq!(summed + batch.drain_into(&mut latest), count);
        assert!(batch.is_idle(), "the batch is empty");
        others.sum(&mut latest, &mut together);
        assert!(together == apart, "{count} updates, a step every {step_count}");
        assert!(others.is_idle() && batch.drain_into(&mut latest) == 0);
        others.sum(&mut latest, &mut together);
        assert!(together == apart, "the drained updates are summed once");
    }

    #[test]
    fn a_batch_sums_what_its_updates_sum() {
        let full = BATCH_COUNT as u64;
        for count in 0..=3 * full {
            compare::<TwoWords>(count, full);
            compare::<FiveWords>(count, full);
        }
        // Steps before the batch is full.
        for step_count in [1, 7, full - 1] {
            compare::<TwoWords>(5 * full, step_count);
            compare::<FiveWords>(5 * full, step_count);
        }
    }
}
