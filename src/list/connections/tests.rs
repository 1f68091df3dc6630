//! The list holds what a map holds, for any keys and starts, and in how many bytes.

use super::*;
use crate::flow::{FlowKey, KeyV4, KeyV6};
use crate::list::start::NEAR_TICKS;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A key with this number and these VLAN tags, which are its last four bytes.
fn key<K: FlowKey>(number: u64, tags: u32) -> K {
    let mut words = [number % 7, number << 32, 1, 2, 3 << 32];
    words[K::WORD_COUNT - 1] |= u64::from(tags);
    let key = K::from_words(&words);
    assert_eq!(key.vlan().number(), tags);
    key
}

/// A connection that opens, closes or gets another start.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open,
    Close,
    Change,
}

/// The number of a key, its tags, what it does, and its start.
type Steps = Vec<(u64, u32, Step, Start)>;

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![5 => Just(Step::Open), 3 => Just(Step::Close), 1 => Just(Step::Change)]
}

/// Steps between which the clock advances by this many ticks, with starts of all times and any other fields.
fn steps(forward_ticks: impl Strategy<Value = u64>) -> impl Strategy<Value = Steps> {
    let step = (0u64..300, prop_oneof![9 => Just(0), 1 => 1..u32::MAX], any_step(), forward_ticks, any::<u64>());
    (prop::collection::vec(step, 0..2_000), 0..2_000usize).prop_map(|(steps, untagged)| {
        let mut tick = 1 << 20;
        let steps = steps.into_iter().enumerate().map(|(at, (number, tags, step, forward, others))| {
            tick += forward;
            // Some started long ago.
            let start = Start::at(tick - others % (1 << 20), false).to_bits() | others >> 45 << 45;
            (number, if at < untagged { 0 } else { tags }, step, Start::of_bits(start))
        });
        steps.collect()
    })
}

/// Takes the steps, with a map beside it that takes the same.
fn check<K: TableKey>(steps: &Steps) {
    let (mut connections, mut map) = (Connections::<K>::new(), BTreeMap::new());
    for &(number, tags, step, start) in steps {
        let key = key::<K>(number, tags);
        let before = map.get(&key).copied();
        assert_eq!(connections.get(&key), before);
        match step {
            Step::Open => {
                assert_eq!(connections.insert(key, start), before.is_none());
                map.entry(key).or_insert(start);
            }
            Step::Close => assert_eq!(connections.remove(&key), map.remove(&key)),
            Step::Change => {
                let change = |was| {
                    assert_eq!(Some(was), before);
                    start
                };
                assert_eq!(connections.update(&key, change), before);
                map.entry(key).and_modify(|was| *was = start);
            }
        }
        assert_eq!((connections.len(), connections.get(&key)), (map.len(), map.get(&key).copied()));
    }
    let mut listed: Vec<_> = connections.iter().collect();
    listed.sort_unstable_by_key(|(key, _)| *key);
    assert_eq!(listed, map.into_iter().collect::<Vec<_>>());
    assert!(connections.keys().enumerate().all(|(position, key)| connections.key_at(position) == key));
    for (key, start) in listed {
        assert_eq!((connections.contains(&key), connections.remove(&key)), (true, Some(start)));
    }
    assert!(connections.is_empty() && connections.iter().next().is_none());
}

proptest! {
    #[test]
    fn it_is_a_map(steps in steps(0u64..10)) {
        check::<KeyV4>(&steps);
        check::<KeyV6>(&steps);
    }

    #[test]
    fn so_it_is_where_the_clock_leaps(steps in steps(prop_oneof![20 => 0u64..10, 1 => 0..NEAR_TICKS / 8])) {
        check::<KeyV4>(&steps);
        check::<KeyV6>(&steps);
    }

    #[test]
    fn and_where_starts_are_of_all_times(steps in steps(prop_oneof![50 => 0u64..10, 1 => 0..1u64 << 33])) {
        check::<KeyV4>(&steps);
        check::<KeyV6>(&steps);
    }
}

#[test]
fn so_is_a_long_one() {
    let number = |step: u64| step.wrapping_mul(0x9e37_79b9) % 40_000;
    let what = |step: u64| if step < 60_000 || !step.is_multiple_of(3) { Step::Open } else { Step::Close };
    // A tag comes late, and later the clock has gone on for too long.
    let tags = |step: u64| u32::from(step > 90_000 && step.is_multiple_of(50));
    let start = |step: u64| Start::at((1 << 20) + step + if step > 120_000 { 2 * NEAR_TICKS } else { 0 }, false);
    check::<KeyV4>(&(0..150_000).map(|step| (number(step), tags(step), what(step), start(step))).collect());
}

#[test]
fn all_starts_can_be_changed() {
    let mut connections = Connections::<KeyV4>::new();
    assert!((0..3_000).all(|number| connections.insert(key(number, 0), Start::at(number, false))));
    // The second half takes more bytes than the first.
    let later = |start: Start| Start::at(start.tick() * (NEAR_TICKS / 1_500), true);
    connections.update_all(|_, start| later(start));
    assert!((0..3_000).all(|number| connections.get(&key(number, 0)) == Some(later(Start::at(number, false)))));
    assert_eq!(connections.update(&key(3_000, 0), |_| unreachable!("it is not listed")), None);
}

/// The size of an entry in bytes.
fn entry_size<K: TableKey>(connections: &Connections<K>) -> usize {
    let size = connections.entries.size();
    let piece_count = connections.len().div_ceil(1_024);
    assert_eq!(size % (piece_count * 1_024), 0);
    size / (piece_count * 1_024)
}

/// Lists 3,000 connections and measures how many bytes each takes while the clock advances, when it has advanced for
/// too long, and with a tag.
fn check_sizes<K: TableKey>([near, tagged, whole]: [usize; 3]) {
    let fill = || {
        let mut connections = Connections::<K>::new();
        assert!((0..3_000).all(|number| connections.insert(key(number, 0), Start::at(1 << 20, false))));
        assert_eq!(entry_size(&connections), near);
        connections
    };
    let mut connections = fill();
    for year in 1..=30 {
        let start = Start::at((1 << 20) + year * (NEAR_TICKS / 2), false);
        for number in 0..3_000 {
            assert!(connections.remove(&key(number, 0)).is_some() && connections.insert(key(number, 0), start));
        }
        assert!(connections.iter().all(|(_, listed)| listed == start));
        assert_eq!(entry_size(&connections), near);
    }
    assert!(connections.insert(key(1, 1), Start::at(0, false)));
    assert_eq!(entry_size(&connections), whole);
    let mut connections = fill();
    assert!(connections.insert(key(1, 1), Start::at(1 << 21, false)));
    assert_eq!(entry_size(&connections), tagged);
    assert!(connections.insert(key(2, 1), Start::at(1 << 40, false)));
    assert_eq!(entry_size(&connections), whole);
    assert!(connections.iter().filter(|(_, start)| *start == Start::at(1 << 20, false)).count() == 3_000);
}

#[test]
fn entries_are_as_short_as_what_is_listed_allows() {
    check_sizes::<KeyV4>([18, 22, 24]);
    check_sizes::<KeyV6>([42, 46, 48]);
}

#[test]
fn room_that_was_needed_is_given_back() {
    let mut connections = Connections::<KeyV4>::new();
    assert!((0..3_000).all(|number| connections.insert(key(number, 0), Start::at(number, false))));
    let size = connections.entries.size();
    assert!((0..3_000).all(|number| connections.remove(&key(number, 0)).is_some()));
    assert!(connections.entries.size() <= size / 3);
}

#[test]
fn a_connection_takes_little_more_than_it_holds() {
    let mut connections = Connections::<KeyV4>::new();
    let mut most: f64 = 0.0;
    for number in 0..100_000 {
        connections.insert(key(number, 0), Start::at(number, false));
        let size = connections.entries.size() + connections.index.size();
        if number > 50_000 {
            most = most.max(size as f64 / number as f64);
        }
    }
    println!("{most:.1} bytes a connection at most");
    assert!(most < 24.3);
}
