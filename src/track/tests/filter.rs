//! The filter against a map, how full it becomes, what it gives up, and how often it is wrong.

use super::super::{ConnectionState, Filter, FilterConfig, FilterSlot, Placed, SLOT_COUNT};
use super::*;
use crate::flow::Side;
use crate::state::{Decoder, Encoder};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A well-mixed hash for every number (the finaliser of SplitMix64, twice).
fn hash(number: u64) -> ConnectionHash {
    let mixed = |seed: u64| {
        let mut word = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    };
    ConnectionHash::new(u128::from(mixed(2 * number)) << 64 | u128::from(mixed(2 * number + 1)))
}

fn entry(filter: &Filter, number: u64, state: ConnectionState, tick: u64) -> FilterEntry {
    let client = if number & 1 == 0 { Side::First } else { Side::Second };
    let fingerprint = filter.fingerprint(hash(number));
    FilterEntry {
        fingerprint,
        state,
        client,
        tick: FilterEntry::tick_of(tick),
        short_isn: FilterEntry::short_isn(number as u32),
    }
}

const NOW: u64 = 5 << 20;

fn filter_of(place_count: usize, fingerprint_bits: u32) -> Filter {
    Filter::new(FilterConfig { place_count, linger_ticks: LINGER_TICKS, fingerprint_bits })
}

/// Places an entry under its number's hash; what that took, if there was a place.
fn place(filter: &mut Filter, number: u64, entry: &FilterEntry) -> Option<Placed> {
    let (slot, placed) = filter.insert(hash(number), entry, NOW, |held| held.age(NOW))?;
    assert_eq!(filter.get(slot), *entry);
    Some(placed)
}

/// A filter with established connections in `percent` of its places, the map of what is in it, and how many found none.
fn filled(bucket_count: usize, percent: usize, fingerprint_bits: u32) -> (Filter, BTreeMap<u64, FilterEntry>, usize) {
    let mut filter = filter_of(bucket_count * SLOT_COUNT, fingerprint_bits);
    let mut map = BTreeMap::new();
    let mut full = 0;
    for number in 0..(bucket_count * SLOT_COUNT * percent / 100) as u64 {
        let entry = entry(&filter, number, ConnectionState::Established, NOW - number);
        match place(&mut filter, number, &entry) {
            Some(Placed::Free | Placed::Moved(..)) => drop(map.insert(number, entry)),
            Some(Placed::Evicted(entry)) => panic!("{entry:?} had to go, but all are established"),
            None => full += 1,
        }
    }
    (filter, map, full)
}

fn is_as(filter: &Filter, map: &BTreeMap<u64, FilterEntry>, numbers: u64) {
    for number in 0..numbers {
        let found = filter.find(hash(number), NOW).map(|(_, entry)| entry);
        assert_eq!(found, map.get(&number).copied(), "{number}");
    }
}

#[test]
fn it_fills_and_finds_everything() {
    for (percent, full_max_permille) in [(50, 0), (75, 0), (90, 0), (95, 0), (97, 1), (98, 1), (100, 20)] {
        let (filter, map, full) = filled(4_096, percent, FINGERPRINT_BITS);
        let asked = map.len() + full;
        println!("{percent} %: {full} of {asked} found no place");
        assert!(full * 1_000 <= asked * full_max_permille, "{percent} %: {full} of {asked}");
        is_as(&filter, &map, 2 * asked as u64);
    }
}

#[test]
fn it_stays_a_map_under_churn() {
    for percent in [50, 90, 97] {
        let (mut filter, mut map, _) = filled(512, percent, FINGERPRINT_BITS);
        let capacity = 512 * SLOT_COUNT * percent / 100;
        let mut next = map.len() as u64 * 2;
        for round in 0..40 {
            let leaving: Vec<u64> = map.keys().copied().filter(|number| (number * 31 + round) % 10 == 0).collect();
            for number in &leaving {
                let (slot, found) = filter.find(hash(*number), NOW).expect("it is in the map");
                assert_eq!(Some(found), map.remove(number));
                filter.remove(slot);
                assert_eq!(filter.find(hash(*number), NOW), None);
            }
            // Who found no place does not come again, but others do.
            for _ in 0..capacity - map.len() {
                let entry = entry(&filter, next, ConnectionState::Established, NOW);
                if place(&mut filter, next, &entry).is_some() {
                    map.insert(next, entry);
                }
                next += 1;
            }
        }
        is_as(&filter, &map, next);
        println!("{percent} % under churn: {} of {capacity} placed", map.len());
        assert_eq!(map.len(), capacity);
    }
}

#[test]
fn short_fingerprints_are_wrong_as_often_as_they_must_be() {
    for percent in [50usize, 90] {
        let (filter, map, _) = filled(4_096, percent, 12);
        let absent = 1_000_000..1_400_000u64;
        let asked = (absent.end - absent.start) as f64;
        let rate = absent.filter(|number| filter.find(hash(*number), NOW).is_some()).count() as f64 / asked;
        // One bucket is looked at, or two when the first has overflowed: so many of their places are taken.
        let in_bucket = map.len() as f64 / 4_096.0;
        let (low, high) = (in_bucket / 4_096.0, 2.0 * in_bucket / 4_096.0);
        println!("{percent} %: wrong once in {:.0} look-ups, {:.2} buckets each", 1.0 / rate, rate / low);
        assert!((0.95 * low..1.05 * high).contains(&rate), "{percent} %: {rate}, not {low}..{high}");
    }
}

#[test]
fn long_fingerprints_are_not_wrong_in_a_million() {
    let (filter, ..) = filled(4_096, 90, FINGERPRINT_BITS);
    assert!((1_000_000..2_000_000).all(|number| filter.find(hash(number), NOW).is_none()));
}

#[test]
fn closed_entries_linger_just_so_long() {
    for start in [NOW, (6 << 20) - 2] {
        let mut filter = filter_of(70, FINGERPRINT_BITS);
        let closed = entry(&filter, 1, ConnectionState::Closed, start);
        assert!(matches!(filter.insert(hash(1), &closed, start, |_| 0), Some((_, Placed::Free))));
        for age in 0..=u64::from(LINGER_TICKS) {
            assert_eq!(filter.find(hash(1), start + age).map(|(_, entry)| entry), Some(closed), "{age}");
        }
        assert_eq!(filter.find(hash(1), start + u64::from(LINGER_TICKS) + 1), None);
    }
}

const STATES: [ConnectionState; 14] = [
    ConnectionState::Removed,
    ConnectionState::Closed,
    ConnectionState::SynSent,
    ConnectionState::SynRecv,
    ConnectionState::SynRecvServerFin,
    ConnectionState::SynRecvLate,
    ConnectionState::SynRecvLateServerFin,
    ConnectionState::AnsweredUnseen,
    ConnectionState::AnsweredUnseenServerFin,
    ConnectionState::Established,
    ConnectionState::EstablishedClientFin,
    ConnectionState::OneWayClient,
    ConnectionState::OneWayServer,
    ConnectionState::Candidate,
];

/// Which of two goes first: the closed, then candidates, then those only asked for, then the answered, and of equals
/// the older. None when it has to stay.
fn rank(state: ConnectionState, age: u64) -> Option<(u8, u64)> {
    match state {
        ConnectionState::Closed => Some((4, age)),
        ConnectionState::Candidate => Some((3, age)),
        ConnectionState::SynSent => Some((2, age)),
        state if state.is_answered() => Some((1, age)),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_weakest_and_oldest_goes(held in prop::collection::vec((0..STATES.len(), 0u64..10), SLOT_COUNT)) {
        let mut filter = filter_of(SLOT_COUNT, FINGERPRINT_BITS);
        // Placed as established, so that none pushes out another, and given their states afterwards.
        for number in 0..SLOT_COUNT as u64 {
            let placeholder = entry(&filter, number, ConnectionState::Established, NOW);
            prop_assert_eq!(place(&mut filter, number, &placeholder), Some(Placed::Free));
        }
        for (number, &(state, age)) in held.iter().enumerate() {
            let (slot, _) = filter.find(hash(number as u64), NOW).expect("it was placed");
            filter.set(slot, &entry(&filter, number as u64, STATES[state], NOW - age));
        }
        let is_gone = |state: ConnectionState, age: u64| {
            state == ConnectionState::Removed || state == ConnectionState::Closed && age > u64::from(LINGER_TICKS)
        };
        let held: Vec<(ConnectionState, u64)> = held.into_iter().map(|(state, age)| (STATES[state], age)).collect();
        let new = entry(&filter, 99, ConnectionState::SynSent, NOW);
        let placed = place(&mut filter, 99, &new);
        let kept = |number: usize| filter.find(hash(number as u64), NOW).is_some();
        let lost: Vec<_> = (0..SLOT_COUNT).filter(|&at| !is_gone(held[at].0, held[at].1) && !kept(at)).collect();
        if held.iter().any(|&(state, age)| is_gone(state, age)) {
            prop_assert_eq!(placed, Some(Placed::Free));
            prop_assert!(lost.is_empty());
        } else if let Some(weakest) = held.iter().filter_map(|&(state, age)| rank(state, age)).max() {
            prop_assert_eq!(lost.len(), 1);
            let (state, age) = held[lost[0]];
            prop_assert_eq!(rank(state, age), Some(weakest));
            prop_assert!(matches!(placed, Some(Placed::Evicted(entry)) if entry.state == state), "{placed:?}");
        } else {
            prop_assert_eq!(placed, None);
            prop_assert!(lost.is_empty());
        }
        let found = filter.find(hash(99), NOW).map(|(_, entry)| entry);
        prop_assert_eq!(found, placed.map(|_| new));
    }
}

#[test]
fn what_is_worth_little_pushes_out_nothing_but_its_like() {
    let oldest = entry(&filter_of(SLOT_COUNT, FINGERPRINT_BITS), 0, ConnectionState::Candidate, NOW - 1);
    for (held, candidate, trace) in [
        (ConnectionState::Established, None, None),
        (ConnectionState::SynSent, None, None),
        (ConnectionState::Closed, None, None),
        (ConnectionState::Candidate, Some(Placed::Evicted(oldest)), None),
        (ConnectionState::Removed, Some(Placed::Free), Some(Placed::Free)),
    ] {
        for (state, expected) in [(ConnectionState::Candidate, candidate), (ConnectionState::Closed, trace)] {
            let mut filter = filter_of(SLOT_COUNT, FINGERPRINT_BITS);
            for number in 0..SLOT_COUNT as u64 {
                let entry = entry(&filter, number, held, NOW - u64::from(number == 0));
                place(&mut filter, number, &entry);
            }
            let new = entry(&filter, 99, state, NOW);
            let placed = filter.insert_weak(hash(99), &new, NOW, |held| held.age(NOW)).map(|(_, placed)| placed);
            assert_eq!(placed, expected, "{state:?} among {held:?}");
        }
    }
}

/// Marks every third entry of a filter as seen, changes the filter, and fills it further so that some of them move.
/// `take` then says once, for each of those, that it was seen.
#[track_caller]
fn check_seen_moves(change: fn(&mut Filter), take: fn(&mut Filter, FilterSlot) -> bool) {
    let (mut filter, map, _) = filled(64, 60, FINGERPRINT_BITS);
    let is_marked = |number: &u64| number.is_multiple_of(3);
    for number in map.keys().filter(|number| is_marked(number)) {
        let (slot, _) = filter.find(hash(*number), NOW).unwrap();
        filter.mark_seen(slot);
    }
    change(&mut filter);
    // Those that come now make some of the others move.
    let mut reported = 0;
    let before: Vec<_> = map.keys().map(|number| filter.find(hash(*number), NOW).unwrap().0).collect();
    for number in 1_000..1_000 + 64 * SLOT_COUNT as u64 * 35 / 100 {
        let entry = entry(&filter, number, ConnectionState::Established, NOW);
        reported += u64::from(matches!(place(&mut filter, number, &entry), Some(Placed::Moved(..))));
    }
    let after: Vec<_> = map.keys().map(|number| filter.find(hash(*number), NOW).unwrap().0).collect();
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    println!("{moved} of {} moved", map.len());
    assert!(moved > 5 && reported >= moved as u64);
    for (number, slot) in map.keys().zip(after) {
        assert_eq!(take(&mut filter, slot), is_marked(number), "{number}");
        assert!(!take(&mut filter, slot));
    }
}

#[test]
fn what_was_seen_is_reported_once_and_moves_along() {
    check_seen_moves(|_| (), Filter::take_seen);
}

#[test]
fn what_was_seen_before_a_leap_of_time_moves_along() {
    let leap = |filter: &mut Filter| assert!(filter.keep_seen());
    check_seen_moves(leap, Filter::take_seen_before);
    let leap_and_restart = |filter: &mut Filter| {
        assert!(filter.keep_seen());
        let mut encoder = Encoder::default();
        filter.save(&mut encoder);
        filter.forget_seen();
        filter.restore(&mut Decoder::new(&encoder.into_bytes())).unwrap();
    };
    check_seen_moves(leap_and_restart, Filter::take_seen_before);
}

#[test]
fn of_two_leaps_of_time_the_first_counts_for_what_was_silent_since() {
    let (mut filter, map, _) = filled(64, 40, FINGERPRINT_BITS);
    let slots: Vec<FilterSlot> = map.keys().map(|number| filter.find(hash(*number), NOW).unwrap().0).collect();
    slots.iter().for_each(|slot| filter.mark_seen(*slot));
    assert!(filter.keep_seen());
    let (speaking, silent) = slots.split_at(slots.len() / 4);
    speaking.iter().for_each(|slot| filter.mark_seen(*slot));
    assert!(!filter.keep_seen());
    assert!(speaking.iter().all(|slot| filter.take_seen(*slot)));
    assert!(silent.iter().all(|slot| !filter.take_seen(*slot) && filter.take_seen_before(*slot)));
    // What was asked about since the first leap does not count.
    silent.iter().for_each(|slot| filter.mark_seen(*slot));
    assert!(filter.keep_seen());
    assert!(silent.iter().all(|slot| !filter.take_seen(*slot) && filter.take_seen_before(*slot)));
}
