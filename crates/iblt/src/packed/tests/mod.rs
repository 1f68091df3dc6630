//! Every operation of an `Iblt`, compared with a plain map of its contents.

mod capacity;
mod hostile;
mod listing;
mod lost;
mod sums;
mod values;

use super::{Change, Geometry, Iblt, Peeled, Peeler, Recipient, ValueCode};
use crate::hash::{KeyedHash, Purpose, Secret};
use crate::{TableCell, TableKey};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// What a table holds: for every key the sum of its counts and the sum of its signed values.
type Map<K> = BTreeMap<K, (i32, u64)>;

/// The functions by which the tables of these tests are filled.
struct Site<K: TableKey> {
    placement: KeyedHash<K>,
    code: ValueCode<K>,
}

impl<K: TableKey> Site<K> {
    fn new() -> Self {
        let code = ValueCode::new(KeyedHash::new(&Secret::REPLAY, Purpose::Value));
        Site { placement: KeyedHash::new(&Secret::REPLAY, Purpose::Placement), code }
    }

    fn value(&self, key: &K, payload: u32) -> u64 {
        self.code.encode(self.placement.of(key), payload)
    }

    /// One insertion or removal of a pair.
    fn change(&self, op: Op) -> Change<K> {
        let key = key(op.key);
        let hash = self.placement.of(&key);
        let value = self.code.encode(hash, op.payload);
        if op.is_insert { Change::insert(key, hash, value) } else { Change::remove(key, hash, value) }
    }

    /// The table with the contents of the map, filled with one change a key.
    fn encode(&self, map: &Map<K>, geometry: Geometry) -> Iblt<K> {
        let mut table = Iblt::new(geometry);
        for (key, &(count, value)) in map {
            table.apply_one(&Change { key: *key, hash: self.placement.of(key), count, value });
        }
        table
    }

    fn recipient(&self) -> Taken<'_, K> {
        Taken { code: &self.code, expected: None, peeled: Vec::new() }
    }

    /// Peels `table` and checks what must hold for any contents: the number returned is the number given, and what was
    /// given plus what is left is what there was.
    fn peel(&self, table: &mut Iblt<K>) -> Vec<Peeled<K>> {
        let whole = table.clone();
        let mut taken = self.recipient();
        let count = Peeler::new(self.placement.clone(), table.geometry().cell_count()).peel(table, &mut taken);
        assert_eq!(count, taken.peeled.len());
        assert!(count <= table.geometry().cell_count());
        let mut again = table.clone();
        taken.peeled.iter().for_each(|peeled| again.apply_one(&peeled.change));
        assert!(again == whole, "what was peeled and what is left are not the whole");
        taken.peeled
    }
}

/// One insertion or removal, before it has a key and a value of a family.
#[derive(Clone, Copy, Debug)]
struct Op {
    key: u64,
    payload: u32,
    is_insert: bool,
}

/// A recipient that keeps everything, and knows one value if it is given.
struct Taken<'a, K: TableKey> {
    code: &'a ValueCode<K>,
    expected: Option<u64>,
    peeled: Vec<Peeled<K>>,
}

impl<K: TableKey> Recipient<K> for Taken<'_, K> {
    fn belongs(&self, placement: u128, value: u64) -> bool {
        self.code.belongs(placement, value)
    }

    fn expected(&self, _key: &K, _placement: u128, _count: i32) -> Option<u64> {
        self.expected
    }

    fn take(&mut self, peeled: Peeled<K>) {
        self.peeled.push(peeled);
    }
}

/// A well-mixed number for every number (the finaliser of SplitMix64).
fn mixed(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// A key that uses all its bits, including the top ones.
fn key<K: TableKey>(seed: u64) -> K {
    K::from_words(&std::array::from_fn::<_, 5, _>(|at| mixed(seed << 3 | at as u64)))
}

/// Adds the change to the map. A key with neither count nor value left is not in it.
fn note<K: TableKey>(map: &mut Map<K>, change: &Change<K>) {
    let (count, value) = map.entry(change.key).or_default();
    *count = count.wrapping_add(change.count);
    *value = value.wrapping_add(change.value);
    if (*count, *value) == (0, 0) {
        map.remove(&change.key);
    }
}

fn map_of<K: TableKey>(site: &Site<K>, ops: &[Op]) -> Map<K> {
    let mut map = Map::new();
    ops.iter().for_each(|op| note(&mut map, &site.change(*op)));
    map
}

fn table_of<K: TableKey>(site: &Site<K>, ops: &[Op], geometry: Geometry) -> Iblt<K> {
    let mut table = Iblt::new(geometry);
    ops.iter().for_each(|op| table.apply_one(&site.change(*op)));
    table
}

/// Insertions and removals of `key_count` keys, with few enough payloads that values cancel too.
fn ops(key_count: u64, length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<Op>> {
    let op = (0..key_count, 0u32..4, any::<bool>());
    prop::collection::vec(op.prop_map(|(key, payload, is_insert)| Op { key, payload, is_insert }), length)
}

/// The largest count that one key may have and still be listed.
const COUNT_MAX: u32 = 3;

/// The keys that can be listed from a table with this shape and these subtables lost: while some cell holds one key
/// alone, and not too often, take that key away. This is a plain oracle for peeling that looks at the map only, never
/// at a sum.
fn listable<K: TableKey>(site: &Site<K>, map: &Map<K>, geometry: Geometry, lost: &[usize]) -> BTreeSet<K> {
    let mut cells = vec![BTreeSet::new(); geometry.cell_count()];
    let keys = map.iter().filter(|(_, (count, _))| *count != 0);
    for (key, _) in keys {
        for (at, place) in geometry.places(site.placement.of(key)).into_iter().enumerate() {
            if !lost.contains(&at) {
                cells[place].insert(*key);
            }
        }
    }
    let mut listed = BTreeSet::new();
    let is_pure = |cell: &BTreeSet<K>| cell.len() == 1 && cell.iter().all(|key| map[key].0.unsigned_abs() <= COUNT_MAX);
    while let Some(pure) = cells.iter().find(|cell| is_pure(cell)) {
        let key = *pure.first().expect("it holds one key");
        for place in geometry.places(site.placement.of(&key)) {
            cells[place].remove(&key);
        }
        listed.insert(key);
    }
    listed
}

/// Peels the table of `map` and checks that exactly the listable keys come out, with the count and, where it is known,
/// the value that they have in the map.
fn check_listing<K: TableKey>(site: &Site<K>, map: &Map<K>, geometry: Geometry) -> Vec<Peeled<K>> {
    check_listing_without(site, map, geometry, &[])
}

/// As [`check_listing`], of a table that has lost these subtables.
fn check_listing_without<K: TableKey>(
    site: &Site<K>,
    map: &Map<K>,
    geometry: Geometry,
    lost: &[usize],
) -> Vec<Peeled<K>> {
    let mut table = site.encode(map, geometry);
    lost.iter().for_each(|at| table.lose_subtable(*at).expect("one is left"));
    let peeled = site.peel(&mut table);
    for Peeled { change, value_known } in &peeled {
        let (count, value) = map[&change.key];
        assert_eq!(change.count, count);
        assert_eq!(change.hash, site.placement.of(&change.key));
        assert_eq!(change.value, if *value_known { value } else { 0 });
    }
    let keys: BTreeSet<K> = peeled.iter().map(|peeled| peeled.change.key).collect();
    assert_eq!(keys.len(), peeled.len(), "a key came out twice");
    assert_eq!(keys, listable(site, map, geometry, lost));
    peeled
}
