//! The algebra: updates commute, tables add and subtract, and listing takes out what is there and leaves the rest.

use super::*;
use crate::hash::{KeyedHash, Purpose};
use crate::word_key::WordKey;
use crate::word_key::examples::{FiveWords, TwoWords};
use crate::{PackedCell, Refused};

type Plain = Sums<u64, u64>;

proptest! {
    #[test]
    fn updates_commute_and_batches_are_their_parts(layout in layouts(1..200), mut ops in ops(30, 0..60)) {
        let forward = filled::<CheckedCell<u64>>(layout, &ops);
        ops.reverse();
        prop_assert_eq!(&forward, &filled(layout, &ops));
        let pairs: Vec<(u64, u64)> = ops.iter().map(|op| (op.key, op.value)).collect();
        let mut batched = table::<CheckedCell<u64>>(layout);
        let mut single = batched.clone();
        batched.insert_all(&pairs);
        pairs.iter().for_each(|(key, value)| single.insert(key, *value));
        prop_assert_eq!(&batched, &single);
        batched.remove_all(&pairs);
        prop_assert!(batched.is_empty());
        pairs.iter().for_each(|(key, value)| single.remove(key, *value));
        prop_assert!(single.is_empty());
    }

    #[test]
    fn merged_and_subtracted_tables_hold_the_union_and_the_difference(
        layout in layouts(1..100), one in ops(20, 0..40), other in ops(20, 0..40),
    ) {
        let (a, b) = (filled::<Plain>(layout, &one), filled(layout, &other));
        let mut sum = a.clone();
        sum.merge(&b).unwrap();
        prop_assert_eq!(&sum, &filled(layout, &[one.clone(), other.clone()].concat()));
        sum.subtract(&b).unwrap();
        prop_assert_eq!(&sum, &a);
        sum.subtract(&a).unwrap();
        prop_assert!(sum.is_empty());
    }

    #[test]
    fn what_is_listed_and_what_is_left_is_the_map(layout in layouts(1..150), ops in ops(30, 0..50)) {
        let map = map_of(&ops);
        let whole = filled::<CheckedCell<u64>>(layout, &ops);
        check_listing(&whole, &map, Rule::Aggregates);
        check_listing(&whole, &map, Rule::SingleValued);
        check_listing(&filled::<Sums<u64, u64, i32, u32, (ValueCheck, Squares)>>(layout, &ops), &map, Rule::Aggregates);
        check_listing(&filled::<Sums<u64, u64, i32, u32, Squares>>(layout, &ops), &map, Rule::Aggregates);
        check_listing(&filled::<Plain>(layout, &ops), &map, Rule::Aggregates);
    }

    #[test]
    fn what_is_listed_put_back_into_what_is_left_is_the_table(layout in layouts(1..100), ops in ops(30, 0..50)) {
        let mut table = table::<Sums<u64, (), i64, u64>>(layout);
        ops.iter().for_each(|op| table.update(&op.key, (), op.count));
        let whole = table.clone();
        let listing = table.list(Rule::Aggregates);
        listing.inserted.iter().chain(&listing.deleted).for_each(|entry| table.update(&entry.key, (), entry.count));
        prop_assert_eq!(table, whole);
    }

    #[test]
    fn enough_cells_list_everything(placement in placements(), ops in ops(40, 0..60)) {
        // Where one value goes with each key, no noise is left.
        let ops: Vec<Op> = ops.into_iter().map(|op| Op { value: !op.key, ..op }).collect();
        let map = map_of(&ops);
        let count = check_listing(&filled::<Plain>(Layout::new(placement, 4_000), &ops), &map, Rule::Aggregates);
        prop_assert_eq!(count, map.len());
    }
}

proptest! {
    #[test]
    fn folded_tables_are_those_of_that_size(hash_count in 2u32..6, size in 5u32..20, run in 1u32..9, ops in ops(30, 0..40)) {
        let large = filled::<CheckedCell<u64>>(subtables(hash_count, hash_count * size * run), &ops);
        prop_assert_eq!(large.folded(run).unwrap(), filled(subtables(hash_count, hash_count * size), &ops));
    }
}

#[test]
fn a_folded_difference_still_lists() {
    let layout = subtables(4, 16_384);
    let mut here = table::<Plain>(layout);
    here.insert_all(&pairs(0..20_000));
    let mut there = table::<Plain>(layout);
    there.insert_all(&pairs(40..20_040));
    here.subtract(&there).unwrap();
    let listing = here.folded(128).unwrap().list(Rule::Aggregates);
    assert!(listing.is_complete());
    assert_eq!((listing.inserted.len(), listing.deleted.len()), (40, 40));
    assert_eq!(here.folded(3), Err(Refused::Layout));
    assert_eq!(here.folded(0), Err(Refused::Layout));
}

#[test]
fn values_that_all_differ_hide_no_key() {
    // 20,000 common keys with different values, in 1,024 cells each: the difference gives the keys that only one side
    // has.
    let layout = subtables(4, 1_024);
    let mut here = table::<Plain>(layout);
    let mut there = here.clone();
    (0..20_025u64).for_each(|key| here.insert(&mixed(key), 1 + key));
    (25..20_040u64).for_each(|key| there.insert(&mixed(key), mixed(key)));
    here.subtract(&there).unwrap();
    let listing = here.list(Rule::Aggregates);
    let keys = |entries: &[crate::Entry<u64, u64>]| {
        let mut keys: Vec<u64> = entries.iter().map(|entry| entry.key).collect();
        keys.sort_unstable();
        keys
    };
    let expected = |range: std::ops::Range<u64>| {
        let mut keys: Vec<u64> = range.map(mixed).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(keys(&listing.inserted), expected(0..25));
    assert_eq!(keys(&listing.deleted), expected(20_025..20_040));
    assert!(listing.residue.key_cell_count == 0 && listing.residue.noise_cell_count > 1_000);
    assert!(listing.inserted.iter().all(|entry| entry.values == Values::Unknown));
}

#[test]
fn tables_of_other_layouts_are_refused() {
    let mut one = table::<Plain>(subtables(4, 100));
    one.insert(&1, 2);
    let before = one.clone();
    assert_eq!(one.merge(&table(subtables(5, 100))), Err(Refused::Layout));
    assert_eq!(one.subtract(&table(subtables(4, 101))), Err(Refused::Layout));
    assert_eq!(one.lose_subtable(4), Err(Refused::Subtable));
    assert_eq!(one, before);
}

#[test]
fn an_overloaded_table_lists_again_when_the_load_has_gone() {
    let mut table = table::<Plain>(subtables(4, 1_400));
    table.insert_all(&pairs(0..20_000));
    let overloaded = table.listing(Rule::Aggregates);
    assert!(!overloaded.is_complete() && overloaded.residue.key_cell_count == 1_400);
    assert!(overloaded.complete().is_err());
    table.remove_all(&pairs(1_000..20_000));
    let (inserted, deleted) = table.list(Rule::Aggregates).complete().expect("complete");
    assert_eq!((inserted.len(), deleted.len()), (1_000, 0));
}

#[test]
fn a_lost_subtable_is_done_without() {
    for lost in 0..5 {
        let mut table = table::<Plain>(subtables(5, 20_000));
        table.insert_all(&pairs(0..1_000));
        table.lose_subtable(lost).unwrap();
        // Updates work as before, and so does getting.
        table.remove_all(&pairs(900..1_000));
        assert_eq!(table.get(&mixed(3)).value(), Some(mixed(!3)));
        let estimate = table.estimated_count().unwrap();
        assert!(estimate.abs_diff(900) < 90, "{estimate}");
        let listing = table.list(Rule::Aggregates);
        assert!(listing.is_complete());
        assert_eq!(listing.inserted.len(), 900);
    }
    let mut table = table::<Plain>(subtables(2, 10));
    assert!(table.lose_subtable(0).is_ok() && table.lose_subtable(1).is_err());
}

#[test]
fn a_difference_lists_below_the_threshold_for_who_knows_the_list_before() {
    let before = pairs(0..20_000);
    for (hash_count, per_difference) in [(4, 0.84), (3, 0.76)] {
        let cell_count = 6_000;
        let half = (f64::from(cell_count) / per_difference / 2.0) as u64;
        let mut table = table::<Plain>(subtables(hash_count, cell_count));
        table.insert_all(&pairs(100_000..100_000 + half));
        table.remove_all(&before[..half as usize]);
        assert!(!table.listing(Rule::Aggregates).is_complete());
        let listing = table.list_knowing(&before, Rule::Aggregates);
        assert!(listing.is_complete(), "{hash_count}: {:?}", listing.residue);
        assert_eq!((listing.inserted.len() as u64, listing.deleted.len() as u64), (half, half));
        let mut deleted: Vec<_> = listing.deleted.iter().map(|entry| (entry.key, entry.value().unwrap())).collect();
        let mut expected = before[..half as usize].to_vec();
        deleted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(deleted, expected);
    }
}

#[test]
fn sets_of_which_no_key_is_twice_list_by_exclusive_ors() {
    let layout = subtables(4, 1_400);
    let mut here = table::<XorCell<u64>>(layout);
    let mut there = here.clone();
    (0..10_500u64).for_each(|key| here.insert(&mixed(key), ()));
    (500..11_000u64).for_each(|key| there.insert(&mixed(key), ()));
    here.subtract(&there).unwrap();
    let listing = here.list(Rule::Aggregates);
    assert!(listing.is_complete());
    assert_eq!(listing.inserted.len(), 1_000);
    let mut counted = table::<Sums<u64, u64, i32, u32, ValueCheck, Xoring>>(layout);
    counted.insert_all(&pairs(0..500));
    counted.remove_all(&pairs(500..1_000));
    let listing = counted.list(Rule::SingleValued);
    assert!(listing.is_complete());
    assert_eq!((listing.inserted.len(), listing.deleted.len()), (500, 500));
    assert!(listing.deleted.iter().all(|entry| pairs(500..1_000).contains(&(entry.key, entry.value().unwrap()))));
}

/// A table of packed cells holds and lists what a table of `Sums` does.
fn check_packed_cells<K, C>(hash: &KeyedHash<K>)
where
    K: WordKey,
    C: TableCell<Key = K, Value = u64>,
{
    let key = |at: u64| K::from_words(&std::array::from_fn::<_, 5, _>(|word| mixed(at << 3 | word as u64)));
    let mut tuned = Table::<C, _>::new(subtables(4, 300), hash.clone());
    let mut general = Table::<Sums<K>, _>::new(subtables(4, 300), hash.clone());
    for at in 0..180 {
        let count = [1, 1, -1, 2, -3][at as usize % 5];
        tuned.update(&key(at), at, count);
        general.update(&key(at), at, count);
    }
    assert_eq!(tuned.to_bytes(), general.to_bytes());
    assert_eq!(Table::from_bytes(tuned.layout(), hash.clone(), &general.to_bytes()).unwrap(), tuned);
    assert_eq!(tuned.get(&key(3)), general.get(&key(3)));
    let (one, other) = (tuned.list(Rule::Aggregates), general.list(Rule::Aggregates));
    assert!(one.is_complete() && one == other);
    assert_eq!(one.inserted.len() + one.deleted.len(), 180);
}

#[test]
fn packed_cells_are_general_cells_too() {
    check_packed_cells::<TwoWords, PackedCell<TwoWords>>(&KeyedHash::new(&Secret::REPLAY, Purpose::Placement));
    check_packed_cells::<FiveWords, PackedCell<FiveWords>>(&KeyedHash::new(&Secret::REPLAY, Purpose::Placement));
}

#[test]
fn tables_may_go_to_other_threads() {
    fn check<T: Send + Sync>(_: &T) {}
    check(&table::<CheckedCell<u64>>(subtables(3, 9)));
    check(&table::<XorCell<[u8; 20]>>(subtables(3, 9)).listing(Rule::Aggregates));
}
