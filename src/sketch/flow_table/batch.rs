//! The way of updates into a table: gathered, hashed and given values together, and summed together.
//!
//! What enters: pairs that are inserted or removed, one by one. What leaves: the sums of [`BATCH_COUNT`] of them at a time in a
//! table, a step later: the cells of some are on their way from memory while others are gathered and hashed. Whoever gives the
//! table away need not wait for these: they go with it, and whoever takes it sums them.

use super::iblt::AHEAD_COUNT;
use crate::hash::{HASH_BATCH_COUNT, HashBatch, KeyedHash, Purpose, Secret};
use crate::sketch::{Cell, HASH_COUNT, Iblt, TableKey, ValueCode, check_of};

/// How many updates are hashed together.
pub const BATCH_COUNT: usize = HASH_BATCH_COUNT;

/// How many updates' cells are asked for before the next are gathered.
const FIRST_COUNT: usize = 2 * AHEAD_COUNT;

/// The most updates that are on their way: those of a step, and what was gathered behind it.
const AWAITED_COUNT_MAX: usize = 2 * BATCH_COUNT;

/// Updates that wait to be hashed. It holds no more than [`BATCH_COUNT`], and allocates only when it is made.
pub struct Batch<K: TableKey> {
    placement: KeyedHash<K>,
    code: ValueCode<K>,
    keys: Vec<K>,
    /// The payload that belongs to each key, and how often it is inserted: once, or minus once.
    payloads: Vec<(u32, i32)>,
}

/// Updates of one table that were hashed and are not in it yet. Nothing may be read from the table before they are.
pub struct Awaited<K: TableKey> {
    count: usize,
    places: [[u32; HASH_COUNT]; AWAITED_COUNT_MAX],
    sums: [K::Cell; AWAITED_COUNT_MAX],
}

impl<K: TableKey> Awaited<K> {
    /// None.
    #[must_use]
    pub fn none() -> Self {
        Awaited {
            count: 0,
            places: [[0; HASH_COUNT]; AWAITED_COUNT_MAX],
            sums: [K::Cell::default(); AWAITED_COUNT_MAX],
        }
    }

    /// Sums them into their table.
    ///
    /// Complexity: `k` random accesses an update.
    ///
    /// # Panics
    ///
    /// The table is smaller than the one they are of.
    pub fn sum_into(&mut self, table: &mut Iblt<K>) {
        table.add_at(&self.places[..self.count], &self.sums, 0..self.count);
        self.count = 0;
    }
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

    /// Sums what `table` awaits, and has it await what was added since the step before; how many updates that was.
    ///
    /// Complexity: `k` random accesses an update.
    ///
    /// # Panics
    ///
    /// The table is smaller than the one that awaits these.
    pub fn step_into(&mut self, table: &mut Iblt<K>, awaited: &mut Awaited<K>) -> u64 {
        let count = self.keys.len();
        self.step(table, awaited);
        // More than one step only for whoever has added to a full batch.
        while !self.keys.is_empty() {
            self.step(table, awaited);
        }
        count as u64
    }

    /// Has `table`, which is to be given away, await what was added since the step before, too; how many updates that was.
    ///
    /// Complexity: no access to the table, unless more was added than fits.
    ///
    /// # Panics
    ///
    /// As [`Self::step_into`].
    pub fn leave_to(&mut self, table: &mut Iblt<K>, awaited: &mut Awaited<K>) -> u64 {
        if awaited.count + self.keys.len() > AWAITED_COUNT_MAX {
            return self.step_into(table, awaited);
        }
        let count = self.keys.len();
        while !self.keys.is_empty() {
            let mut hashes = HashBatch::default();
            self.placement.of_batch(&self.keys, &mut hashes);
            self.place(table, awaited, &mut hashes, |_| ());
        }
        count as u64
    }

    /// Sums what is awaited, and hashes and asks for up to [`BATCH_COUNT`] others.
    fn step(&mut self, table: &mut Iblt<K>, awaited: &mut Awaited<K>) {
        // Some are summed at first, and some after the hashing: so memory is never idle for long.
        let (count, half) = (awaited.count, awaited.count / 2);
        table.add_at(&awaited.places[..count], &awaited.sums, 0..half);
        let mut hashes = HashBatch::default();
        self.placement.of_batch(&self.keys, &mut hashes);
        table.add_at(&awaited.places[..count], &awaited.sums, half..count);
        awaited.count = 0;
        let table = &*table;
        self.place(table, awaited, &mut hashes, |places| places.iter().for_each(|places| table.prefetch(places)));
    }

    /// Puts the places and sums of up to [`BATCH_COUNT`] updates, which have these hashes, behind what is awaited. The first places are
    /// asked for, some before values are worked out and some after.
    #[inline(always)]
    fn place(
        &mut self,
        table: &Iblt<K>,
        awaited: &mut Awaited<K>,
        hashes: &mut HashBatch,
        ask: impl Fn(&[[u32; HASH_COUNT]]),
    ) {
        let count = self.keys.len().min(BATCH_COUNT);
        let (keys, payloads) = (&self.keys[..count], &self.payloads[..count]);
        let places = &mut awaited.places[awaited.count..][..count];
        let sums = &mut awaited.sums[awaited.count..][..count];
        for (at, (key, &(payload, times))) in keys.iter().zip(payloads).enumerate() {
            let hash = hashes.get(at);
            hashes.set(at, ValueCode::<K>::block(hash, payload));
            places[at] = table.places(hash);
            sums[at] = K::Cell::of(key, check_of(hash), times, 0);
        }
        let first = &places[..FIRST_COUNT.min(count)];
        let (soon, later) = first.split_at(AHEAD_COUNT.min(first.len()));
        ask(soon);
        self.code.map(hashes, count);
        ask(later);
        for (at, (sum, &(payload, times))) in sums.iter_mut().zip(payloads).enumerate() {
            let value = ValueCode::<K>::of_image(hashes.get(at), payload);
            sum.set_value(value.wrapping_mul(i64::from(times) as u64));
        }
        awaited.count += count;
        self.keys.drain(..count);
        self.payloads.drain(..count);
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
        let (mut batch, mut awaited) = (Batch::new(&Secret::REPLAY), Awaited::none());
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
                summed += batch.step_into(&mut together, &mut awaited);
                assert_eq!(summed, number + 1);
            }
        }
        assert!(together.is_zero() || count > step_count, "nothing is summed before it is asked for");
        let before = together.clone();
        let is_left_whole = awaited.count + batch.keys.len() <= AWAITED_COUNT_MAX;
        assert_eq!(summed + batch.leave_to(&mut together, &mut awaited), count);
        assert!(!is_left_whole || together == before, "what is left to whoever takes the table does not touch it");
        awaited.sum_into(&mut together);
        assert!(together == apart, "{count} updates, a step every {step_count}");
        assert_eq!(batch.leave_to(&mut together, &mut awaited), 0);
        awaited.sum_into(&mut together);
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
