//! Reconciliation against the sets themselves.

use super::*;
use crate::{Changed, Difference, reconcile};

/// Reconciles two maps through a table and checks all that was found.
fn check<C: TableCell<Key = u64, Value = u64>>(
    layout: Layout,
    here: &BTreeMap<u64, u64>,
    there: &BTreeMap<u64, u64>,
) -> Difference<u64, u64> {
    let list = |map: &BTreeMap<u64, u64>| map.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>();
    let mut theirs = table::<C>(layout);
    theirs.insert_all(&list(there));
    let difference = reconcile(&theirs, &list(here));
    let is_complete = difference.is_complete();
    let is_sure = |values: Values<u64>| is_complete || C::IS_VALUE_CHECKED && matches!(values, Values::One(_));
    for entry in &difference.only_here {
        assert!(entry.count == 1 && !there.contains_key(&entry.key));
        assert!(!is_sure(entry.values) || entry.value() == Some(here[&entry.key]));
    }
    for entry in &difference.only_there {
        assert!(entry.count == 1 && !here.contains_key(&entry.key));
        assert!(!is_sure(entry.values) || entry.value() == Some(there[&entry.key]));
    }
    for Changed { key, here: one, there: other } in &difference.changed {
        assert_eq!((here[key], there[key]), (*one, *other));
    }
    if is_complete {
        let only = |one: &BTreeMap<u64, u64>, other: &BTreeMap<u64, u64>| {
            one.keys().filter(|key| !other.contains_key(key)).count()
        };
        assert_eq!(difference.only_here.len(), only(here, there));
        assert_eq!(difference.only_there.len(), only(there, here));
        let differs = here.iter().filter(|(key, value)| there.get(key).is_some_and(|other| other != *value));
        assert_eq!(difference.changed.len(), differs.count());
    }
    difference
}

fn sets(seed: u64, common: u64, only: u64, changed: u64) -> (BTreeMap<u64, u64>, BTreeMap<u64, u64>) {
    let word = |at: u64| mixed(seed << 40 | at);
    let mut here: BTreeMap<u64, u64> = (0..common + only).map(|at| (word(at), word(!at))).collect();
    let mut there = here.clone();
    (0..only).for_each(|at| _ = there.remove(&word(common + at)));
    there.extend((0..only).map(|at| (word(1 << 30 | at), at)));
    (0..changed).for_each(|at| _ = here.insert(word(at), at));
    (here, there)
}

#[test]
fn everything_that_differs_is_found_both_ways() {
    for seed in 0..20 {
        let (here, there) = sets(seed, 5_000, 50, 100);
        let difference = check::<CheckedCell<u64>>(subtables(4, 400), &here, &there);
        assert!(difference.is_complete(), "{seed}: {:?}", difference.residue);
    }
}

#[test]
fn values_that_differ_are_known_from_two_cells_that_agree_where_nothing_checks_them() {
    for seed in 0..20 {
        let (here, there) = sets(seed, 5_000, 30, 30);
        let difference = check::<Sums<u64, u64>>(subtables(4, 2_000), &here, &there);
        assert_eq!((difference.only_here.len(), difference.only_there.len()), (30, 30));
        // A key is not found when others cover two of its cells; it is then in the residue.
        let changed = difference.changed.len();
        assert!(changed == 30 && difference.is_complete() || changed >= 28 && !difference.residue.is_empty());
    }
}

proptest! {
    #[test]
    fn what_is_found_is_true(
        layout in layouts(1..200),
        here in prop::collection::btree_map(0u64..60, 0u64..4, 0..50),
        there in prop::collection::btree_map(0u64..60, 0u64..4, 0..50),
    ) {
        let _ = check::<CheckedCell<u64>>(layout, &here, &there);
    }
}
