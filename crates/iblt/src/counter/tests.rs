//! Counters compared with a plain map, and with cells of any content.

use super::*;
use crate::hash::Secret;
use crate::placement::{Layout, Placement};
use crate::{SecretHash, Sum};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Narrow = u64;
type Roomy = Wide<4, 8>;

fn layout(hash_count: u32, cell_count: u32) -> Layout {
    Layout::new(Placement::Subtables { hash_count }, cell_count)
}

fn hash<K: Key>() -> SecretHash<K> {
    SecretHash::new(&Secret::REPLAY)
}

fn roomy(key: u32) -> Roomy {
    Wide::new(key.to_le_bytes())
}

/// One counter of each kind, and for each kind of keeping one with and one without the optimisations.
fn all<K: Key>(layout: Layout) -> Vec<Box<dyn Counter<Key = K>>> {
    let mut counters: Vec<Box<dyn Counter<Key = K>>> =
        vec![Box::new(Standard::<K>::new(layout, hash())), Box::new(EvenOdd::new(layout, hash()))];
    for keeping in [Keeping::First, Keeping::Last, Keeping::Random(1), Keeping::Coin(1), Keeping::Drawn] {
        for bits in 0..8 {
            let [forgets_listed, tries_all_kept, tries_pairs] = [1, 2, 4].map(|bit| bits & bit > 0);
            let optimisations = Optimisations { forgets_listed, tries_all_kept, tries_pairs };
            counters.push(Box::new(OneKey::new(layout, hash(), keeping, optimisations)));
        }
    }
    counters
}

/// Fills a counter with these keys and compares queries and the list with them.
fn assert_counts<K: Key>(counter: &mut dyn Counter<Key = K>, updates: &[(K, u64, u64)]) {
    let mut exact = BTreeMap::new();
    for &(key, added, removed) in updates {
        let removed = removed.min(added);
        counter.add(&key, added);
        counter.remove(&key, removed);
        *exact.entry(key).or_insert(0) += added - removed;
    }
    for (key, &count) in &exact {
        assert!(counter.query(key) >= count, "{key:?} is there {count} times, not {}", counter.query(key));
    }
    exact.retain(|_, count| *count > 0);
    let tally = counter.list();
    let listed: BTreeMap<K, u64> = tally.keys.iter().map(|&(key, count)| (key, count.unsigned_abs())).collect();
    assert_eq!(listed.len(), tally.keys.len(), "each key once");
    for (key, count) in &listed {
        assert_eq!(exact.get(key), Some(count), "{key:?}");
    }
    // What is listed plus what is left is what there was.
    assert_eq!(tally.is_complete(), listed == exact);
    for (key, count) in exact.iter().filter(|(key, _)| !listed.contains_key(key)) {
        assert!(counter.query(key) >= *count);
    }
}

proptest! {
    #[test]
    fn every_kind_counts_as_a_map_does(
        updates in prop::collection::vec((any::<u32>(), 0u64..30, 0u64..30), 0..60),
        cell_count in 6u32..120,
        hash_count in 3u32..6,
    ) {
        let narrow: Vec<(Narrow, u64, u64)> = updates.iter().map(|&(key, a, r)| (u64::from(key), a, r)).collect();
        let wide: Vec<(Roomy, u64, u64)> = updates.iter().map(|&(key, a, r)| (roomy(key), a, r)).collect();
        for counter in &mut all(layout(hash_count, cell_count)) {
            assert_counts(counter.as_mut(), &narrow);
        }
        for counter in &mut all(layout(hash_count, cell_count)) {
            assert_counts(counter.as_mut(), &wide);
        }
    }

    #[test]
    fn cells_of_any_content_neither_panic_nor_last(
        seed in prop::collection::vec(any::<u8>(), 1..200),
        kept in prop::collection::vec(any::<Option<u64>>(), 12),
        is_small: bool,
    ) {
        let layout = layout(3, 12);
        // Small counts are those that splits are tried for.
        let bytes = |size: usize| -> Vec<u8> {
            let byte = |at: usize| if is_small && (1..8).contains(&(at % (size / 12))) { 0 } else { seed[at % seed.len()] };
            (0..size).map(byte).collect()
        };
        let mut standard = Standard::<u64>::from_bytes(layout, hash(), &bytes(12 * 24)).unwrap();
        let mut even_odd = EvenOdd::<u64>::from_bytes(layout, hash(), &bytes(12 * 32)).unwrap();
        let [mut one_key, mut extended] = [Optimisations::BOTH, Optimisations::EXTENDED].map(|optimisations| {
            OneKey::<u64>::from_parts(layout, hash(), &bytes(12 * 24), kept.clone(), optimisations).unwrap()
        });
        let counters: [&mut dyn Counter<Key = u64>; 4] =
            [&mut standard, &mut even_odd, &mut one_key, &mut extended];
        for counter in counters {
            counter.query(&1);
            let tally = counter.list();
            prop_assert!(tally.keys.len() <= 12 * 5);
        }
    }

    #[test]
    fn wide_keys_divide_by_every_count(key: [u8; 16], count in 1i64..i64::MAX, other: [u8; 16]) {
        let wide = Wide::<16, 20>::new(key);
        if count.trailing_zeros() <= 32 {
            prop_assert_eq!(wide.times(count).quotient(count, 0), Some(wide));
            prop_assert_eq!(wide.times(-count).quotient(-count, 0), Some(wide));
        }
        prop_assert_eq!(wide.quotient(count, 1), None);
        let sum = wide.plus(Wide::new(other));
        prop_assert_eq!(sum.minus(Wide::new(other)), wide);
        let mut bytes = [0; 20];
        sum.write(&mut bytes);
        prop_assert_eq!(Wide::<16, 20>::read(&bytes), sum);
    }

    #[test]
    fn linear_kinds_add_and_subtract(
        ours in prop::collection::vec((0u64..50, 1u64..9), 0..20),
        theirs in prop::collection::vec((0u64..50, 1u64..9), 0..20),
    ) {
        let layout = layout(4, 200);
        let filled = |updates: &[(u64, u64)]| {
            let mut counters = (Standard::<u64>::new(layout, hash()), EvenOdd::<u64>::new(layout, hash()));
            for (key, count) in updates {
                counters.0.add(key, *count);
                counters.1.add(key, *count);
            }
            counters
        };
        let (mut both, other) = (filled(&ours), filled(&theirs));
        both.0.merge(&other.0).unwrap();
        both.1.merge(&other.1).unwrap();
        let together = filled(&[ours.clone(), theirs].concat());
        prop_assert!(both.0.table() == together.0.table() && both.1.table() == together.1.table());
        both.0.subtract(&other.0).unwrap();
        both.1.subtract(&other.1).unwrap();
        let before = filled(&ours);
        prop_assert!(both.0.table() == before.0.table() && both.1.table() == before.1.table());
    }
}

#[test]
fn counts_with_any_factors_of_two_are_listed() {
    for bits in 0..33 {
        let mut counter = Standard::<Roomy>::new(layout(3, 9), hash());
        counter.add(&roomy(0xdead_beef), 1 << bits);
        assert_eq!(counter.query(&roomy(0xdead_beef)), 1 << bits);
        assert_eq!(counter.list().keys, [(roomy(0xdead_beef), 1 << bits)]);
    }
}

#[test]
fn a_count_of_zero_is_not_empty() {
    for mut counter in all::<Roomy>(layout(3, 9)) {
        counter.add(&roomy(1), 3);
        counter.remove(&roomy(2), 3);
        let tally = counter.list();
        let exact = [(roomy(1), 3), (roomy(2), -3)];
        assert!(tally.keys.iter().all(|entry| exact.contains(entry)), "{tally:?}");
        assert_eq!(tally.is_complete(), tally.keys.len() == 2);
    }
}

#[test]
fn a_standard_counter_lists_what_was_summed_beside_a_key() {
    let mut counter = Standard::<u64, (u64, u64)>::new(layout(4, 40), hash());
    counter.add_all(&[(7, (1, 0)), (7, (0, 0)), (9, (0, 1)), (7, (1, 0))]);
    let mut listing = counter.list_values();
    listing.inserted.sort_by_key(|entry| entry.key);
    assert!(listing.is_complete());
    let entries: Vec<_> = listing.inserted.iter().map(|entry| (entry.key, entry.count, entry.values)).collect();
    use crate::Values;
    assert_eq!(entries, [(7, 3, Values::Sum((2, 0))), (9, 1, Values::One((0, 1)))]);
}

#[test]
fn drawn_keys_are_the_same_in_any_order_however_often_they_are_added() {
    let counter = |updates: &[(u64, u64)]| {
        let mut counter = OneKey::<u64>::new(layout(3, 30), hash(), Keeping::Drawn, Optimisations::BOTH);
        updates.iter().for_each(|(key, count)| counter.add(key, *count));
        counter
    };
    let updates: Vec<(u64, u64)> = (0..36).map(|key| (key, key % 5 + 1)).collect();
    let backwards: Vec<(u64, u64)> =
        updates.iter().rev().flat_map(|&(key, count)| [(key, count - 1), (key, 1)]).collect();
    let (mut one, mut other) = (counter(&updates), counter(&backwards));
    assert_eq!(one.kept(), other.kept());
    let kept: std::collections::BTreeSet<_> = one.kept().iter().flatten().collect();
    assert!(kept.len() > 15, "{} different ones", kept.len());
    assert_eq!(one.list(), other.list());
}

#[test]
fn splits_separate_two_keys_that_share_all_their_cells() {
    // Three cells in all: a standard counter never lists two keys.
    let keys: Vec<Roomy> = (0..64).map(roomy).collect();
    let half = |key: &Roomy| EvenOddCell::of(key, (), hash::<Roomy>().of(key), 1);
    let is_even = |key: &&Roomy| half(key).candidate(1, 0) == Some(**key) && half(key) != half(&keys[0]);
    let other = keys[1..].iter().filter(is_even).find(|key| {
        let mut counter = EvenOdd::new(layout(3, 3), hash());
        counter.add(&keys[0], 5);
        counter.add(key, 9);
        counter.list().keys.len() == 2
    });
    let other = other.expect("one of 63 keys is in the other half");
    for mut counter in all::<Roomy>(layout(3, 3)).into_iter().skip(1) {
        counter.add(&keys[0], 5);
        counter.add(other, 9);
        let mut listed = counter.list().keys;
        listed.sort();
        assert_eq!(listed, [(keys[0], 5), (*other, 9)]);
    }
    let mut standard = Standard::<Roomy>::new(layout(3, 3), hash());
    standard.add(&keys[0], 5);
    standard.add(other, 9);
    assert_eq!((standard.list().keys.len(), standard.query(other)), (0, 14));
}

#[test]
fn the_extension_separates_three_keys_that_share_all_their_cells() {
    let keys: Vec<Roomy> = (0..64).map(roomy).collect();
    // Three cells in all, which keep the smallest keys by hashes of their own: some keep two of the three.
    let listed = |others: &[Roomy], optimisations| {
        let mut counter = OneKey::new(layout(3, 3), hash(), Keeping::Drawn, optimisations);
        [(keys[0], 5), (others[0], 9), (others[1], 2)].iter().for_each(|(key, count)| counter.add(key, *count));
        let kept: std::collections::BTreeSet<_> = counter.kept().iter().flatten().copied().collect();
        let mut tally = counter.list();
        tally.keys.sort();
        (kept.len(), tally)
    };
    let (mut stuck_count, mut listed_count) = (0, 0);
    for others in keys[1..].chunks_exact(2) {
        let (kept_count, tally) = listed(others, Optimisations::EXTENDED);
        stuck_count += usize::from(!listed(others, Optimisations::BOTH).1.is_complete());
        assert_eq!(tally.is_complete(), kept_count > 1, "two kept keys and the third one");
        if tally.is_complete() {
            assert_eq!(tally.keys, [(keys[0], 5), (others[0], 9), (others[1], 2)]);
            listed_count += 1;
        }
    }
    assert!(stuck_count == 31 && listed_count > 10, "{stuck_count} {listed_count}");
}
