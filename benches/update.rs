//! Updates of the tables: hashing, placing and summing, in the batches that partitions use.
//!
//! The limit of a table is a bare loop over memory of its size; the rival is a hash map of the same keys and values.

use crate::clock::thread_ns_each;
use crate::memory::Lines;
use crate::row::{Case, Pair, Scale, Suite};
use crate::traffic::key_of;
use flowpeel::flow::FlowKey as TableKey;
use flowpeel::flow::{KeyV4, KeyV6, WordKey};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Batch, Geometry, HASH_COUNT, Iblt, PackedCell};
use std::collections::HashMap;

/// The number of openings and closings in one round.
const UPDATE_COUNT: usize = 4_000_000;
const UPDATE_COUNT_QUICK: usize = 200_000;

/// The number of connections that are open at any time.
const LIVE_COUNT: u64 = 1_000_000;

const BARE: &str = "bare loop, 4 random lines a key";
const UNIT: &str = "ns an update";

pub(crate) fn run(suite: &mut Suite) {
    let bare = |name, work, at_most| Case { name, work, limit: BARE, unit: UNIT, at_most: Some(at_most) };
    suite.compare(bare("update/ipv4-512mb", "update, 32-byte cells, 512 MB", 1.15), |scale| {
        Ok(Bare::<KeyV4>::new(512 << 20, scale))
    });
    suite.compare(bare("update/ipv4-32mb", "update, 32-byte cells, 32 MB", 1.5), |scale| {
        Ok(Bare::<KeyV4>::new(32 << 20, scale))
    });
    suite.compare(bare("update/ipv6-32mb", "update, 64-byte cells, 32 MB", 1.75), |scale| {
        Ok(Bare::<KeyV6>::new(32 << 20, scale))
    });
    let map = Case {
        name: "update/hash-map",
        work: "update, table that lists 1M keys",
        limit: "hash map (hashbrown, ahash), 1M live keys",
        unit: UNIT,
        at_most: Some(0.67),
    };
    suite.compare(map, |scale| Ok(Map::new(scale)));
}

/// The updates of a table: each key is inserted, and removed when a million others have been.
struct Updates<K: TableKey> {
    table: Iblt<K>,
    batch: Batch<K>,
    next: u64,
}

impl<K: TableKey> Updates<K> {
    fn new(geometry: Geometry) -> Self {
        let mut table = Iblt::new(geometry);
        // Touches every page before anything is measured.
        table.clear();
        Updates { table, batch: Batch::new(&Secret::REPLAY), next: 0 }
    }

    fn update(&mut self, count: usize) {
        for _ in 0..count / 2 {
            self.push(self.next, true);
            self.push(self.next.wrapping_sub(LIVE_COUNT), false);
            self.next += 1;
        }
    }

    #[inline(always)]
    fn push(&mut self, number: u64, is_insert: bool) {
        let key: K = key_of(number);
        if self.batch.push(key, key.words()[0] as u32, is_insert) {
            self.batch.step_into(&mut self.table);
        }
    }
}

/// Updates against bare accesses.
struct Bare<K: TableKey> {
    updates: Updates<K>,
    lines: Lines,
    count: usize,
}

impl<K: TableKey> Bare<K> {
    fn new(size: usize, scale: Scale) -> Self {
        let subtable_cell_count = size / size_of::<PackedCell<K>>() / HASH_COUNT;
        Bare {
            updates: Updates::new(Geometry::new(subtable_cell_count as u32)),
            lines: Lines::new(size),
            count: scale.of(UPDATE_COUNT, UPDATE_COUNT_QUICK),
        }
    }
}

impl<K: TableKey> Pair for Bare<K> {
    fn work(&mut self) -> f64 {
        thread_ns_each(self.count, || self.updates.update(self.count))
    }

    fn limit(&mut self) -> f64 {
        thread_ns_each(self.count, || self.lines.touch(self.count * HASH_COUNT))
    }
}

/// Updates against those of a hash map.
struct Map {
    updates: Updates<KeyV4>,
    /// The key as one number, which hashes fastest.
    map: HashMap<u128, u64, ahash::RandomState>,
    next: u64,
    count: usize,
}

impl Map {
    fn new(scale: Scale) -> Self {
        let mut map =
            HashMap::with_capacity_and_hasher(LIVE_COUNT as usize, ahash::RandomState::with_seeds(1, 2, 3, 4));
        for number in 0..LIVE_COUNT {
            map.insert(number_of(number), number);
        }
        let updates = Updates::new(Geometry::for_items(LIVE_COUNT));
        Map { updates, map, next: LIVE_COUNT, count: scale.of(UPDATE_COUNT, UPDATE_COUNT_QUICK) }
    }
}

/// The words of a key, in one number.
#[inline(always)]
fn number_of(number: u64) -> u128 {
    let key: KeyV4 = key_of(number);
    u128::from(key.words()[0]) << 64 | u128::from(key.words()[1])
}

impl Pair for Map {
    fn work(&mut self) -> f64 {
        thread_ns_each(self.count, || self.updates.update(self.count))
    }

    fn limit(&mut self) -> f64 {
        let count = self.count;
        thread_ns_each(count, || {
            for _ in 0..count / 2 {
                self.map.insert(number_of(self.next), self.next);
                self.map.remove(&number_of(self.next - LIVE_COUNT));
                self.next += 1;
            }
            assert_eq!(self.map.len() as u64, LIVE_COUNT);
        })
    }
}
