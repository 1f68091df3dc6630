//! What is peeled was in the table, below the threshold and above it.

use super::*;
use crate::word_key::examples::{FiveWords, TwoWords};

/// Distinct keys, every other one removed instead of inserted.
fn distinct_ops(count: u64, seed: u64) -> Vec<Op> {
    let op = |key: u64| Op { key: seed << 32 | key, payload: mixed(key) as u32, is_insert: key.is_multiple_of(2) };
    (0..count).map(op).collect()
}

fn below_the_threshold_all_lists<K: TableKey>() {
    let site = Site::<K>::new();
    for (round, count) in [1, 2, 10, 100, 1_000, 3_000].into_iter().enumerate() {
        let ops = distinct_ops(count, round as u64);
        let map = map_of(&site, &ops);
        let mut table = site.encode(&map, Geometry::for_items(count + count / 10));
        let peeled = site.peel(&mut table);
        assert!(table.is_zero(), "{count} keys");
        assert!(peeled.iter().all(|peeled| peeled.value_known));
        let listed: Map<K> =
            peeled.iter().map(|peeled| (peeled.change.key, (peeled.change.count, peeled.change.value))).collect();
        assert_eq!(listed, map);
    }
}

#[test]
fn below_the_threshold_a_table_lists_as_its_map() {
    below_the_threshold_all_lists::<TwoWords>();
    below_the_threshold_all_lists::<FiveWords>();
}

fn above_the_threshold<K: TableKey>() {
    let site = Site::<K>::new();
    let geometry = Geometry::for_items(200);
    for load in [2, 5, 20] {
        let map = map_of(&site, &distinct_ops(200 * load, load));
        let peeled = check_listing(&site, &map, geometry);
        assert!(peeled.len() < map.len() / 2, "load {load}");
        assert!(load > 2 || !peeled.is_empty(), "not far above it some still do");
        assert!(peeled.iter().all(|peeled| peeled.value_known));
    }
}

#[test]
fn above_the_threshold_only_what_is_there_comes_out() {
    above_the_threshold::<TwoWords>();
    above_the_threshold::<FiveWords>();
}

fn any_table_lists_as_the_oracle_says<K: TableKey>(ops: &[Op], geometry: Geometry) {
    let site = Site::<K>::new();
    check_listing(&site, &map_of(&site, ops), geometry);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Keys come several times, with several values, both signs, and cancel, to any sum.
    #[test]
    fn peeling_equals_the_oracle(ops in ops(120, 0..400), subtable_cell_count in 1u32..80) {
        any_table_lists_as_the_oracle_says::<TwoWords>(&ops, Geometry::new(subtable_cell_count));
        any_table_lists_as_the_oracle_says::<FiveWords>(&ops, Geometry::new(subtable_cell_count));
    }

    /// Loads from a tenth of the threshold to twenty times it.
    #[test]
    fn peeling_equals_the_oracle_at_every_load(count in 1u64..400, subtable_cell_count in 6u32..120, seed in 0u64..1 << 20) {
        let ops = distinct_ops(count, seed);
        any_table_lists_as_the_oracle_says::<TwoWords>(&ops, Geometry::new(subtable_cell_count));
        any_table_lists_as_the_oracle_says::<FiveWords>(&ops, Geometry::new(subtable_cell_count));
    }
}

/// A table with this key `count` times among 50 others.
fn repeated<K: TableKey>(site: &Site<K>, seed: u64, count: i32) -> (Map<K>, Iblt<K>) {
    let mut ops = distinct_ops(50, seed);
    let op = Op { key: u64::from(u32::MAX) << 8 | seed, payload: seed as u32, is_insert: count > 0 };
    ops.extend(std::iter::repeat_n(op, count.unsigned_abs() as usize));
    let map = map_of(site, &ops);
    let table = table_of(site, &ops, Geometry::for_items(400));
    (map, table)
}

fn repeated_keys_are_one_item<K: TableKey>() {
    let site = Site::<K>::new();
    for seed in 0..40 {
        for count in [-3, -2, 2, 3] {
            let (map, mut table) = repeated(&site, seed, count);
            let peeled = site.peel(&mut table);
            assert_eq!(peeled.len(), map.len());
            let item = peeled.iter().find(|peeled| peeled.change.count == count).expect("it lists as one item");
            assert!(!item.value_known && item.change.value == 0);
            assert!(map.contains_key(&item.change.key));
            assert!(table.is_key_free() && !table.is_zero(), "the sum of its values stays");
        }
        for count in [-5, -4, 4, 5] {
            let (map, mut table) = repeated(&site, seed, count);
            assert_eq!(site.peel(&mut table).len(), map.len() - 1, "the others list around it");
            assert!(!table.is_key_free());
            assert_eq!(table.estimated_count(), u64::from((count * count).unsigned_abs()), "it weighs its square");
        }
    }
}

#[test]
fn a_key_added_two_or_three_times_is_one_item() {
    repeated_keys_are_one_item::<TwoWords>();
    repeated_keys_are_one_item::<FiveWords>();
}
