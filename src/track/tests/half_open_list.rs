//! A list of what is half-open against sorted maps.

use super::*;
use crate::flow::WordKey;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: u64 = 1 << 20;

proptest! {
    #[test]
    fn it_sorts_and_keeps_what_a_map_would(
        numbers in prop::collection::vec((0u32..200, 0u64..100, any::<bool>()), 0..300),
        modulus in 1u32..5,
    ) {
        let all = numbers.iter().map(|&(number, ago, answered)| {
            let since_tick = NOW - ago;
            HalfOpen { key: any_key(number), start_tick: since_tick - ago, since_tick, answered, short_isn: number }
        });
        let all: Vec<HalfOpen> = all.collect();
        let mut list = HalfOpenList::of(&all);
        prop_assert_eq!(list.len(), all.len());
        list.sort();
        let mut sorted: Vec<AnyKey> = all.iter().map(|one| one.key).collect();
        sorted.sort_unstable();
        prop_assert_eq!(list.iter(NOW).map(|one| one.key).collect::<Vec<_>>(), sorted);
        let is_kept = |port: u32| !port.is_multiple_of(modulus);
        list.retain::<KeyV4>(|key| is_kept(key.words()[0] as u32 ^ key.words()[1] as u32));
        list.retain::<KeyV6>(|key| is_kept(key.words()[1] as u32));
        let kept_by = |one: &HalfOpen| match &one.key {
            AnyKey::V4(key) => is_kept(key.words()[0] as u32 ^ key.words()[1] as u32),
            AnyKey::V6(key) => is_kept(key.words()[1] as u32),
        };
        // Of what is there twice the one that came into its state first stays.
        let mut expected: BTreeMap<AnyKey, HalfOpen> = BTreeMap::new();
        for one in all.iter().filter(|one| kept_by(one)) {
            let held = expected.entry(one.key).or_insert(*one);
            if one.since_tick < held.since_tick {
                *held = *one;
            }
        }
        let listed: Vec<HalfOpen> = list.iter(NOW).collect();
        prop_assert_eq!(listed.len(), expected.len());
        for (one, (key, held)) in listed.iter().zip(expected) {
            prop_assert_eq!((one.key, one.since_tick), (key, held.since_tick));
        }
    }
}
