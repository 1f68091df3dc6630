//! Values: noise stays noise, and a spoilt value is read elsewhere or left in the sums.

use super::*;
use crate::word_key::examples::{FiveWords, TwoWords};

fn insert(key: u64, payload: u32) -> Op {
    Op { key, payload, is_insert: true }
}

/// Inserts `keys`, and of these removes `noisy` keys with one value and inserts them again with another.
fn noise_hides_no_key<K: TableKey>(keys: u64, noisy: u64) {
    let site = Site::<K>::new();
    let geometry = Geometry::for_items(keys * 2);
    let mut ops: Vec<Op> = (0..keys).map(|key| insert(key, key as u32)).collect();
    for key in keys..keys + noisy {
        ops.extend([Op { key, payload: 1, is_insert: false }, insert(key, 2)]);
    }
    let map = map_of(&site, &ops);
    let mut table = table_of(&site, &ops, geometry);
    let peeled = site.peel(&mut table);
    assert_eq!(peeled.len() as u64, keys);
    assert!(table.is_key_free());
    let mut left: Map<K> = map.clone();
    for Peeled { change, value_known } in peeled {
        let (_, value) = map[&change.key];
        assert_eq!((change.count, change.value), (1, if value_known { value } else { 0 }));
        note(&mut left, &change.undone());
    }
    assert!(table == site.encode(&left, geometry), "only noise, and values that could not be found, are left");
    let noisy_cells = table.cells().iter().filter(|cell| **cell != Default::default()).count();
    assert_eq!(table.clear_values(), noisy_cells);
    assert!(table.is_zero());
}

#[test]
fn value_noise_leaves_the_keys_listable() {
    noise_hides_no_key::<TwoWords>(100, 20);
    noise_hides_no_key::<FiveWords>(100, 20);
    noise_hides_no_key::<TwoWords>(100, 1_000);
    noise_hides_no_key::<FiveWords>(100, 1_000);
}

/// A key that shares `shared` of its cells with key 0.
fn neighbour<K: TableKey>(site: &Site<K>, geometry: Geometry, shared: usize) -> u64 {
    let places = |seed: u64| geometry.places(site.placement.of(&key::<K>(seed)));
    let common = |seed: &u64| places(*seed).iter().filter(|place| places(0).contains(place)).count();
    (1..1_000_000).find(|seed| common(seed) == shared).expect("there is such a key among so many")
}

fn one_spoilt_cell_is_read_around<K: TableKey>() {
    let site = Site::<K>::new();
    let geometry = Geometry::new(8);
    for shared in 1..=3 {
        let other = neighbour(&site, geometry, shared);
        for is_insert in [true, false] {
            let ops =
                [Op { is_insert, ..insert(0, 77) }, Op { is_insert: false, ..insert(other, 5) }, insert(other, 6)];
            let mut table = table_of(&site, &ops, geometry);
            let peeled = site.peel(&mut table);
            assert_eq!(peeled, [Peeled { change: site.change(ops[0]), value_known: true }]);
            assert!(table == table_of(&site, &ops[1..], geometry));
        }
    }
}

#[test]
fn a_value_spoilt_in_some_cells_is_read_from_another() {
    one_spoilt_cell_is_read_around::<TwoWords>();
    one_spoilt_cell_is_read_around::<FiveWords>();
}

fn a_value_spoilt_everywhere_is_unknown<K: TableKey>() {
    let site = Site::<K>::new();
    let geometry = Geometry::new(50);
    let key = key::<K>(0);
    let hash = site.placement.of(&key);
    let mut table = table_of(&site, &[insert(0, 77)], geometry);
    table.subtract_value(hash, 123_456);
    let spoilt = table.clone();
    let peeled = site.peel(&mut table);
    assert_eq!(peeled, [Peeled { change: Change { key, hash, count: 1, value: 0 }, value_known: false }]);
    let sums: Vec<u64> = geometry.places(hash).iter().map(|&place| table.cells()[place].value()).collect();
    assert_eq!(sums, vec![site.value(&key, 77).wrapping_sub(123_456); 4], "it is still in the sums");

    let mut table = spoilt;
    let mut taken = Taken { expected: Some(site.value(&key, 77)), ..site.recipient() };
    assert_eq!(Peeler::new(site.placement.clone(), geometry.cell_count()).peel(&mut table, &mut taken), 1);
    assert!(taken.peeled[0].value_known && table.is_key_free());
    table.subtract_value(hash, 123_456u64.wrapping_neg());
    assert!(table.is_zero(), "what the recipient expected was taken, and the noise was left");
}

#[test]
fn a_value_spoilt_in_all_cells_is_unknown_and_stays_in_the_sums() {
    a_value_spoilt_everywhere_is_unknown::<TwoWords>();
    a_value_spoilt_everywhere_is_unknown::<FiveWords>();
}

fn several_values_of_a_key<K: TableKey>() {
    let site = Site::<K>::new();
    let geometry = Geometry::new(50);
    let key = key::<K>(0);
    let ops = [insert(0, 1), insert(0, 2)];
    let sum = site.value(&key, 1).wrapping_add(site.value(&key, 2));
    let mut table = table_of(&site, &ops, geometry);
    let peeled = site.peel(&mut table);
    assert_eq!(peeled.len(), 1);
    assert_eq!((peeled[0].change.key, peeled[0].change.count, peeled[0].value_known), (key, 2, false));
    table.subtract_value(site.placement.of(&key), sum);
    assert!(table.is_zero());

    let mut table = table_of(&site, &ops, geometry);
    let mut taken = Taken { expected: Some(sum), ..site.recipient() };
    assert_eq!(Peeler::new(site.placement.clone(), geometry.cell_count()).peel(&mut table, &mut taken), 1);
    assert!(taken.peeled[0].value_known && table.is_zero());
}

#[test]
fn a_key_with_several_values_is_listed_with_their_number() {
    several_values_of_a_key::<TwoWords>();
    several_values_of_a_key::<FiveWords>();
}

proptest! {
    #[test]
    fn values_show_whose_they_are(seed: u64, other: u64, payload: u32, bit in 0u32..64) {
        let site = Site::<TwoWords>::new();
        let hash = site.placement.of(&key(seed));
        let value = site.code.encode(hash, payload);
        prop_assert_eq!(ValueCode::<TwoWords>::payload(value), payload & 0xff_ffff);
        prop_assert!(site.code.belongs(hash, value));
        prop_assert!(!site.code.belongs(hash, value ^ 1 << bit));
        prop_assert!(seed == other || !site.code.belongs(site.placement.of(&key(other)), value));
    }
}
