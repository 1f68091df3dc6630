//! The cache by itself, and under several threads.

use super::*;
use flowpeel_iblt::hash::GOLDEN_64;

const TIMEOUT_NS: i64 = 60_000_000_000;

const ISN: u32 = 77;

impl HandshakeCache {
    fn take(&self, hash: u64, sender: Side, isn: u32, now_ns: i64) -> Option<Answer> {
        self.answer(hash, sender, isn, now_ns, || false)
    }
}

fn takes(cache: &HandshakeCache, hash: u64, sender: Side, now_ns: i64) -> bool {
    cache.take(hash, sender, ISN, now_ns).is_some()
}

/// Whether no connection at all seems to wait.
fn is_all_idle(cache: &HandshakeCache) -> bool {
    cache.waiting.places.iter().all(|place| place.load(Relaxed) == 0)
}

/// The hash of a connection. Those of some thousand are spread evenly, so that no set has more of them than others.
fn hash(number: u64) -> u64 {
    (number + 1).wrapping_mul(GOLDEN_64)
}

#[test]
fn the_first_packet_of_the_client_is_reported_once() {
    let cache = HandshakeCache::new(1024, TIMEOUT_NS);
    assert!(!takes(&cache, hash(1), Side::First, 0));
    assert!(!cache.put(hash(1), Side::First, Some(ISN), 0));
    assert!(!takes(&cache, hash(1), Side::Second, 0));
    assert!(!takes(&cache, hash(2), Side::First, 0));
    assert!(takes(&cache, hash(1), Side::First, 5));
    assert!(!takes(&cache, hash(1), Side::First, 6));
}

#[test]
fn a_thread_that_is_behind_clears_nothing_of_one_that_is_ahead() {
    let cache = HandshakeCache::new(WAY_COUNT, TIMEOUT_NS);
    assert!(!cache.put(hash(1), Side::First, Some(7), 1_000_000_000));
    assert!(!takes(&cache, hash(2), Side::First, 0), "both are in the only set");
    assert!(!cache.put(hash(3), Side::First, Some(7), 0));
    assert!(takes(&cache, hash(1), Side::First, 0));
}

#[test]
fn what_a_flood_left_behind_gives_way_to_the_young_even_an_hour_later() {
    const MINUTE_NS: i64 = 60_000_000_000;
    for minutes in [2, 30, 36, 38, 50, 70] {
        let cache = HandshakeCache::new(WAY_COUNT, TIMEOUT_NS);
        (0..WAY_COUNT as u64).for_each(|number| assert!(!cache.put(hash(number), Side::First, Some(7), 0)));
        let now_ns = minutes * MINUTE_NS;
        let young = 100..100 + WAY_COUNT as u64;
        young.clone().for_each(|number| assert!(!cache.put(hash(number), Side::First, Some(7), now_ns), "{minutes}"));
        young.for_each(|number| assert!(takes(&cache, hash(number), Side::First, now_ns), "{minutes}"));
    }
}

#[test]
fn what_stands_twice_completes_by_either_number() {
    for numbers in [[7, ISN], [ISN, 7]] {
        let cache = HandshakeCache::new(WAY_COUNT, TIMEOUT_NS);
        assert!(!cache.put(hash(1), Side::First, Some(7), 0));
        assert!(!cache.put(hash(2), Side::First, Some(numbers[0]), 0));
        cache.remove(hash(1), Side::First);
        assert!(!cache.put(hash(2), Side::First, Some(numbers[1]), 0), "a place before its own is free");
        assert_eq!(cache.take(hash(2), Side::First, ISN, 0), Some(Answer::Completes), "{numbers:?}");
        assert!(!takes(&cache, hash(2), Side::First, 0), "both are taken");
    }
}

#[test]
fn for_one_thread_it_is_the_same() {
    let shared = HandshakeCache::new(2 * WAY_COUNT, TIMEOUT_NS);
    let caches = [HandshakeCache::new(2 * WAY_COUNT, TIMEOUT_NS).for_one_thread(), shared];
    let mut seen = [0; 3];
    for step in 0..20_000 {
        let (random, now_ns) = (hash(step), step as i64 * TIMEOUT_NS / 200);
        let (of, side) = (hash(random >> 8 & 31), if random & 64 == 0 { Side::First } else { Side::Second });
        let did = caches.each_ref().map(|cache| match random & 3 {
            0 | 1 => (usize::from(cache.put(of, side, Some(ISN), now_ns)), None),
            2 => (0, cache.take(of, side, ISN, now_ns)),
            _ => {
                cache.give_up(of);
                (0, None)
            }
        });
        assert_eq!(did[0], did[1], "{step}");
        seen[did[0].0 + 2 * usize::from(did[0].1.is_some())] += 1;
    }
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    let saved = caches.map(|cache| {
        let mut encoder = crate::state::Encoder::default();
        cache.save(&mut encoder);
        encoder.into_bytes()
    });
    assert_eq!(saved[0], saved[1]);
}

#[test]
fn threads_that_share_a_set_lose_nothing() {
    const ROUNDS: u64 = 20_000;
    let cache = HandshakeCache::new(WAY_COUNT, TIMEOUT_NS);
    let lost: u64 = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let cache = &cache;
            move || {
                // Two a thread at a time, so there is always room for all.
                let mut lost = 0;
                for round in 0..ROUNDS {
                    let hashes = [hash(4 * round + 2 * thread), hash(4 * round + 2 * thread + 1)];
                    for hash in hashes {
                        assert!(!cache.put(hash, Side::First, Some(7), 0));
                    }
                    for hash in hashes {
                        lost += u64::from(cache.is_idle(hash) || cache.take(hash, Side::First, 7, 0).is_none());
                    }
                }
                lost
            }
        };
        let threads = [scope.spawn(work(0)), scope.spawn(work(1))];
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert_eq!(lost, 0);
    assert!(is_all_idle(&cache));
}

#[test]
fn what_waits_counts_once_in_either_level_and_what_is_lost_does_not() {
    let near_and_far = NEAR_HANDSHAKE_COUNT + (1 << 14);
    let shared = HandshakeCache::new(near_and_far, TIMEOUT_NS);
    for cache in [HandshakeCache::new(near_and_far, TIMEOUT_NS).for_one_thread(), shared] {
        let spread = |number: u64| flowpeel_iblt::hash::mixed(number);
        let put_count = near_and_far as u64 * 5 / 4;
        let lost_count =
            (0..put_count).filter(|number| cache.put(spread(*number), Side::First, Some(ISN), *number as i64)).count();
        assert!(lost_count > 0 && cache.used_far().is_some());
        let taken_count = (0..put_count).filter(|number| takes(&cache, spread(*number), Side::First, 0)).count();
        assert_eq!(taken_count + lost_count, put_count as usize);
        assert!(is_all_idle(&cache));
    }
}

#[test]
fn what_is_announced_is_not_idle() {
    let cache = HandshakeCache::new(1024, TIMEOUT_NS);
    cache.announce(hash(1));
    cache.put(hash(1), Side::First, Some(ISN), 0);
    cache.retract(hash(1));
    assert!(!cache.is_idle(hash(1)) && takes(&cache, hash(1), Side::First, 0) && cache.is_idle(hash(1)));
}

#[test]
fn a_flood_pushes_out_the_oldest_and_says_so() {
    let cache = HandshakeCache::new(WAY_COUNT, TIMEOUT_NS);
    for seed in 0..WAY_COUNT as u64 {
        assert!(!cache.put(hash(seed), Side::First, Some(ISN), (seed as i64) << STAMP_SHIFT));
    }
    assert!(cache.put(hash(100), Side::First, Some(ISN), 100 << STAMP_SHIFT));
    assert!(!takes(&cache, hash(0), Side::First, 100 << STAMP_SHIFT));
    for seed in (1..WAY_COUNT as u64).chain([100]) {
        assert!(takes(&cache, hash(seed), Side::First, 100 << STAMP_SHIFT), "{seed}");
    }
}

#[test]
fn what_waited_too_long_makes_room_without_a_loss() {
    let cache = HandshakeCache::new(WAY_COUNT, TIMEOUT_NS);
    for seed in 0..WAY_COUNT as u64 {
        cache.put(hash(seed), Side::First, Some(ISN), 0);
    }
    let later = TIMEOUT_NS + (2 << STAMP_SHIFT);
    assert!(!cache.put(hash(50), Side::Second, Some(ISN), later));
    assert!(takes(&cache, hash(50), Side::Second, later));
    assert!(!takes(&cache, hash(7), Side::First, later));
    assert!(cache.is_idle(hash(7)));
}

#[test]
fn only_what_comes_next_completes() {
    let cache = HandshakeCache::new(1024, TIMEOUT_NS);
    for (isn, taken, answers) in [
        (Some(ISN), ISN, [Some(Answer::Completes), None, None]),
        (Some(ISN), ISN + 1_000, [Some(Answer::First), Some(Answer::Next), None]),
        (Some(0), 0, [Some(Answer::Completes), None, None]),
        (None, ISN, [Some(Answer::Next), None, None]),
        (None, 0, [Some(Answer::Next), None, None]),
    ] {
        cache.put(hash(1), Side::First, isn, 0);
        for answer in answers {
            assert_eq!(cache.take(hash(1), Side::First, taken, 0), answer, "{isn:?} {taken}");
        }
        assert!(cache.is_idle(hash(1)));
    }
    // One that comes again replaces what waits.
    cache.put(hash(1), Side::First, Some(ISN), 0);
    cache.put(hash(1), Side::First, Some(ISN), TIMEOUT_NS / 2);
    assert_eq!(cache.take(hash(1), Side::First, ISN, TIMEOUT_NS), Some(Answer::Completes));
    assert_eq!(cache.take(hash(1), Side::First, ISN, TIMEOUT_NS), None);
    cache.put(hash(1), Side::First, Some(ISN), 0);
    assert_eq!(cache.take(hash(1), Side::First, ISN, TIMEOUT_NS), Some(Answer::Next), "it may have timed out");
    cache.put(hash(1), Side::First, Some(ISN), 0);
    cache.give_up(hash(1));
    assert_eq!(cache.take(hash(1), Side::First, ISN, 0), None);
    let others = (0..100_000).filter(|other| {
        cache.put(hash(1), Side::First, Some(ISN), 0);
        cache.take(hash(1), Side::First, ISN + 1 + other, 0) == Some(Answer::Completes)
    });
    let others = others.count();
    assert!((300..500).contains(&others), "{others} of 100,000 are taken for it");
}

#[test]
fn behind_a_packet_that_is_no_answer_the_answer_is_waited_for() {
    let cache = HandshakeCache::new(1024, TIMEOUT_NS);
    cache.put(hash(1), Side::First, Some(ISN), 0);
    assert_eq!(cache.answer(hash(1), Side::First, 9, 0, || true), None, "what is late changes nothing");
    assert!(cache.awaits_answer(hash(1), Side::First, 0));
    assert_eq!(cache.answer(hash(1), Side::First, 9, 0, || false), Some(Answer::First));
    assert!(!cache.is_idle(hash(1)) && !cache.awaits_answer(hash(1), Side::First, 0), "that it was none is not known");
    assert_eq!(cache.answer(hash(1), Side::First, 9, 0, || true), None, "nor is it the one more");
    assert_eq!(cache.answer(hash(1), Side::First, ISN, 0, || false), Some(Answer::Completes));
    assert!(cache.is_idle(hash(1)));
    cache.put(hash(1), Side::First, Some(ISN), 0);
    assert_eq!(cache.answer(hash(1), Side::First, 9, 0, || false), Some(Answer::First));
    cache.remove(hash(1), Side::Second);
    assert!(!cache.is_idle(hash(1)));
    cache.remove(hash(1), Side::First);
    assert!(cache.is_idle(hash(1)), "behind an end nothing waits");
}

#[test]
fn of_two_handshakes_between_the_same_ends_the_one_that_is_answered_completes() {
    const OTHER: u32 = ISN + 1_000_000;
    let wait_for = |isns: &[u32]| {
        let cache = HandshakeCache::new(1024, TIMEOUT_NS);
        // Each comes twice.
        isns.iter().for_each(|isn| (0..2).for_each(|_| assert!(!cache.put(hash(1), Side::First, Some(*isn), 0))));
        cache
    };
    for isns in [[ISN, OTHER], [OTHER, ISN]] {
        for denied in [0, 1] {
            let cache = wait_for(&isns);
            for _ in 0..denied {
                assert_eq!(cache.take(hash(1), Side::First, 9, 0), Some(Answer::First));
            }
            assert_eq!(cache.take(hash(1), Side::First, ISN, 0), Some(Answer::Completes), "{isns:?} {denied}");
            assert!(cache.is_idle(hash(1)), "the other waits no longer");
        }
        let cache = wait_for(&isns);
        let answers = [9, 9, ISN].map(|isn| cache.take(hash(1), Side::First, isn, 0));
        assert_eq!(answers, [Some(Answer::First), Some(Answer::Next), None]);
        assert!(cache.is_idle(hash(1)));
    }
    // However many come, the first and the last are there.
    let forged: Vec<u32> = (1..20).map(|number| ISN + number * 1_000_003).collect();
    for isns in [[&[ISN], &forged[..]].concat(), [&forged[..], &[ISN]].concat()] {
        assert_eq!(wait_for(&isns).take(hash(1), Side::First, ISN, 0), Some(Answer::Completes));
    }
    let cache = HandshakeCache::new(WAY_COUNT, TIMEOUT_NS);
    let others = 2..WAY_COUNT as u64;
    others.clone().for_each(|other| assert!(!cache.put(hash(other), Side::First, Some(ISN), 0)));
    forged.iter().for_each(|isn| assert!(!cache.put(hash(1), Side::First, Some(*isn), 0), "no other gives way"));
    others.for_each(|other| assert!(takes(&cache, hash(other), Side::First, 0)));
    // One that has timed out does.
    let cache = wait_for(&[OTHER]);
    (0..2).for_each(|_| assert!(!cache.put(hash(1), Side::First, Some(ISN), TIMEOUT_NS)));
    assert_eq!(cache.take(hash(1), Side::First, OTHER, TIMEOUT_NS), Some(Answer::First));
}

#[test]
fn two_that_wait_in_two_levels_are_one_connections() {
    let near_and_far = NEAR_HANDSHAKE_COUNT + (1 << 14);
    let cache = HandshakeCache::new(near_and_far, TIMEOUT_NS);
    cache.put(hash(1), Side::First, Some(ISN), 0);
    // Others of its set push it out.
    let set_index = |hash: u64| cache.near.set_index(hash);
    let others = (2..).map(hash).filter(|other| set_index(*other) == set_index(hash(1)));
    for other in others.take(WAY_COUNT) {
        cache.put(other, Side::First, Some(ISN), 1 << STAMP_SHIFT);
    }
    assert!(cache.used_far().is_some());
    cache.put(hash(1), Side::First, Some(9), 2 << STAMP_SHIFT);
    assert_eq!(cache.take(hash(1), Side::First, ISN, 2 << STAMP_SHIFT), Some(Answer::Completes));
    assert_eq!(cache.take(hash(1), Side::First, 9, 2 << STAMP_SHIFT), None);
}

#[test]
fn those_that_wait_wait_on() {
    let cache = HandshakeCache::new(256, 60_000_000_000);
    for number in 0..300 {
        cache.put(hash(number), Side::First, Some(number as u32), number as i64);
    }
    for number in 0..50 {
        cache.take(hash(number), Side::First, number as u32, 400);
    }
    let mut encoder = Encoder::default();
    cache.save(&mut encoder);
    let bytes = encoder.into_bytes();
    let other = HandshakeCache::new(256, 60_000_000_000);
    let mut decoder = Decoder::new(&bytes);
    other.restore(&mut decoder).unwrap();
    assert!(decoder.end().is_ok());
    let mut waited_count = 0;
    for number in 0..300 {
        assert_eq!(other.is_idle(hash(number)), cache.is_idle(hash(number)));
        let kind = cache.take(hash(number), Side::First, number as u32, 400);
        waited_count += usize::from(kind.is_some());
        assert_eq!(other.take(hash(number), Side::First, number as u32, 400), kind);
    }
    assert!(waited_count > 150, "{waited_count}");
    assert!(HandshakeCache::new(8, 1).restore(&mut Decoder::new(&bytes)).is_err());
    assert!(other.restore(&mut Decoder::new(&bytes[..bytes.len() - 1])).is_err());
}

/// When the stamp of the first moment comes round.
const ROUND_NS: i64 = 1 << (STAMP_BITS + STAMP_SHIFT);

#[test]
fn what_has_timed_out_does_not_complete_when_its_stamp_comes_round() {
    let second_ns = 1_000_000_000;
    // Steadily, and with gaps.
    for step_ns in [second_ns, 10 * second_ns, 70 * second_ns, 2_000 * second_ns, ROUND_NS, 5 * ROUND_NS] {
        let cache = HandshakeCache::new(NEAR_HANDSHAKE_COUNT + (1 << 14), TIMEOUT_NS);
        let hashes = || (0..10_000).map(hash);
        hashes().for_each(|hash| assert!(!cache.put(hash, Side::First, Some(ISN), 1_000)));
        for hash in hashes().step_by(3) {
            cache.move_to_far(hash, tag(hash, Side::First, short_isn(ISN), 1_000));
        }
        let mut now_ns = step_ns;
        while now_ns < ROUND_NS + second_ns {
            cache.advance(now_ns);
            now_ns += step_ns;
        }
        cache.advance(now_ns);
        for hash in hashes() {
            assert!(!cache.awaits_answer(hash, Side::First, now_ns), "steps of {step_ns} ns");
            assert_eq!(cache.take(hash, Side::First, ISN, now_ns), Some(Answer::Next), "steps of {step_ns} ns");
        }
        assert!(hashes().all(|hash| cache.take(hash, Side::First, ISN, now_ns).is_none()));
        assert!(is_all_idle(&cache));
    }
}

#[test]
fn what_waits_is_not_timed_out_as_time_passes() {
    let cache = HandshakeCache::new(1 << 14, TIMEOUT_NS);
    let mut now_ns = 0;
    for number in 0..2_000 {
        now_ns += 2_500_000_000;
        cache.advance(now_ns);
        cache.put(hash(number), Side::First, Some(ISN), now_ns);
        if let Some(before) = number.checked_sub(20) {
            assert_eq!(cache.take(hash(before), Side::First, ISN, now_ns), Some(Answer::Completes), "{number}");
        }
    }
    // Behind a gap that is shorter than the timeout, and beyond the time of this thread by what others may be ahead.
    cache.advance(now_ns + CAPTURE_AHEAD_MAX_NS);
    assert_eq!(cache.take(hash(1_999), Side::First, ISN, now_ns), Some(Answer::Completes));
}

#[test]
fn while_many_wait_hardly_another_seems_to() {
    let waiting = WaitingCounts::new();
    (0..1_700).for_each(|number| waiting.add(hash(number)));
    assert!((0..1_700).all(|number| !waiting.is_zero(hash(number))));
    let seem_to_wait = (10_000..20_000).filter(|number| !waiting.is_zero(hash(*number))).count();
    assert!((50..250).contains(&seem_to_wait), "{seem_to_wait}");
    (0..1_700).for_each(|number| waiting.remove(hash(number)));
    assert!(waiting.places.iter().all(|place| place.load(Relaxed) == 0));
}

#[test]
fn the_counts_of_a_connection_are_two_of_a_line() {
    let waiting = WaitingCounts::new();
    for number in 0..1_000 {
        let [first, second] = waiting.places(hash(number)).map(|place| std::ptr::from_ref(place).addr());
        assert!(first != second && first / LINE_PLACE_COUNT == second / LINE_PLACE_COUNT, "{number}");
    }
}
