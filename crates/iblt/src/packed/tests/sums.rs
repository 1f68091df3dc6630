//! Updates commute and cancel; tables add and subtract.

use super::*;
use crate::Refused;
use crate::word_key::examples::{FiveWords, TwoWords};

fn order_does_not_matter<K: TableKey>(ops: &[Op], shuffled: &[Op], geometry: Geometry) {
    let site = Site::<K>::new();
    let table = table_of(&site, ops, geometry);
    assert!(table == table_of(&site, shuffled, geometry));
    assert!(table == site.encode(&map_of(&site, ops), geometry));
    let changes: Vec<Change<K>> = ops.iter().map(|op| site.change(*op)).collect();
    let mut batched = Iblt::new(geometry);
    changes.chunks(7).for_each(|changes| batched.apply(changes));
    assert!(table == batched);
}

fn what_is_undone_leaves_nothing<K: TableKey>(ops: &[Op], geometry: Geometry) {
    let site = Site::<K>::new();
    let mut table = table_of(&site, ops, geometry);
    for op in ops.iter().rev() {
        table.apply_one(&site.change(Op { is_insert: !op.is_insert, ..*op }));
    }
    assert!(table.is_zero() && table.is_key_free() && table == Iblt::new(geometry));
    assert_eq!(table.estimated_count(), 0);
    for op in ops {
        table.apply_one(&site.change(*op));
        table.apply_one(&site.change(*op).undone());
    }
    assert!(table.is_zero());
}

fn counts_are_undone_but_for_the_lowest<K: TableKey>() {
    let site = Site::<K>::new();
    let change = |count| Change { count, ..site.change(Op { key: 3, payload: 9, is_insert: true }) };
    let left = |change: Change<K>| {
        let mut table = Iblt::new(Geometry::new(5));
        table.apply_one(&change);
        table.apply_one(&change.undone());
        table
    };
    for count in [1, -1, i32::MAX, -i32::MAX, i32::MIN + 1] {
        assert!(left(change(count)).is_zero(), "{count}");
    }
    assert_eq!(change(i32::MIN).undone().count, i32::MIN);
    assert!(!left(change(i32::MIN)).is_zero(), "its key is left 2^32 times, the wrong way");
}

#[test]
fn every_count_but_the_lowest_has_an_opposite() {
    counts_are_undone_but_for_the_lowest::<TwoWords>();
    counts_are_undone_but_for_the_lowest::<FiveWords>();
}

fn tables_add_and_subtract<K: TableKey>(left: &[Op], right: &[Op], geometry: Geometry) {
    let site = Site::<K>::new();
    let (a, b) = (table_of(&site, left, geometry), table_of(&site, right, geometry));
    let mut sum = a.clone();
    sum.merge(&b).unwrap();
    assert!(sum == site.encode(&map_of(&site, &[left, right].concat()), geometry));
    let taken: Vec<Op> = right.iter().map(|op| Op { is_insert: !op.is_insert, ..*op }).collect();
    let mut difference = a.clone();
    difference.subtract(&b).unwrap();
    assert!(difference == site.encode(&map_of(&site, &[left, &taken].concat()), geometry));
    sum.subtract(&b).unwrap();
    difference.merge(&b).unwrap();
    assert!(sum == a && difference == a);
}

fn other_shapes_are_refused<K: TableKey>(ops: &[Op], geometry: Geometry) {
    let site = Site::<K>::new();
    let table = table_of(&site, ops, geometry);
    let other = table_of(&site, ops, Geometry::new(geometry.cell_count() as u32 / 4 + 1));
    let mut same = table.clone();
    assert_eq!((same.merge(&other), same.subtract(&other)), (Err(Refused::Layout), Err(Refused::Layout)));
    assert!(same == table);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn updates_commute(
        (ops, shuffled) in ops(40, 0..200).prop_flat_map(|ops| (Just(ops.clone()), Just(ops).prop_shuffle())),
        subtable_cell_count in 1u32..60,
    ) {
        order_does_not_matter::<TwoWords>(&ops, &shuffled, Geometry::new(subtable_cell_count));
        order_does_not_matter::<FiveWords>(&ops, &shuffled, Geometry::new(subtable_cell_count));
    }

    #[test]
    fn insert_then_remove_leaves_zero(ops in ops(40, 0..200), subtable_cell_count in 1u32..60) {
        what_is_undone_leaves_nothing::<TwoWords>(&ops, Geometry::new(subtable_cell_count));
        what_is_undone_leaves_nothing::<FiveWords>(&ops, Geometry::new(subtable_cell_count));
    }

    #[test]
    fn sums_are_unions_and_differences_are_differences(
        left in ops(40, 0..100),
        right in ops(40, 0..100),
        subtable_cell_count in 1u32..60,
    ) {
        tables_add_and_subtract::<TwoWords>(&left, &right, Geometry::new(subtable_cell_count));
        tables_add_and_subtract::<FiveWords>(&left, &right, Geometry::new(subtable_cell_count));
    }

    #[test]
    fn a_table_of_another_shape_changes_nothing(ops in ops(40, 0..100), subtable_cell_count in 1u32..60) {
        other_shapes_are_refused::<TwoWords>(&ops, Geometry::new(subtable_cell_count));
        other_shapes_are_refused::<FiveWords>(&ops, Geometry::new(subtable_cell_count));
    }
}
