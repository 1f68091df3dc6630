//! What happens when there is more than there is room for, and when time runs out.

use super::*;
use crate::engine::FILTER_ESTABLISHED_PERCENT;
use std::collections::BTreeSet;

fn keys_of(half_open: &[HalfOpen]) -> BTreeSet<AnyKey> {
    let keys: BTreeSet<AnyKey> = half_open.iter().map(|half_open| half_open.key).collect();
    assert_eq!(keys.len(), half_open.len(), "each connection is there once");
    keys
}

#[test]
fn connections_beyond_the_limit_are_refused_and_counted() {
    let mut scene = Scene::new(TrackerConfig { connections_max: 3, ..config() });
    for number in 0..6 {
        let opened = scene.play(any_key(number), "SaD").len();
        assert_eq!(opened, usize::from(number < 3));
    }
    let estimates = |scene: &Scene| (scene.counts().refused_open, scene.counts().untracked_open);
    assert_eq!(estimates(&scene), (3, 3));
    for (number, script, left) in [(3, "F", 3), (9, "Ff", 3), (3, "f", 2), (4, "R", 1), (5, "f", 1), (5, "F", 0)] {
        assert_eq!(scene.play(any_key(number), script), []);
        assert_eq!(estimates(&scene), (3, left), "after {script} of {number}");
    }
    assert_eq!(scene.play(any_key(1), "Ff").len(), 1);
    assert_eq!(scene.play(any_key(7), "SaD").len(), 1, "what closes makes room");
    assert_eq!(scene.play(any_key(8), "SaD").len(), 0);
    assert_eq!(scene.counts().opened - scene.counts().closed, 3);
}

#[test]
fn a_refused_connection_that_one_side_has_ended_waits_for_one_more_fin() {
    for (script, last) in [("SaF", "f"), ("SafD", "F"), ("S+afD", "F"), ("afD", "F"), ("aF", "f")] {
        let mut scene = Scene::new(TrackerConfig { connections_max: 0, ..config() });
        assert_eq!(scene.play(v4(1), script), [], "{script}");
        assert_eq!(scene.counts().untracked_open, 1, "{script}");
        scene.play(v4(1), last);
        assert_eq!(scene.counts().untracked_open, 0, "{script}{last}");
    }
}

#[test]
fn what_was_refused_and_says_nothing_counts_until_it_would_be_off_the_list() {
    let mut scene = Scene::new(TrackerConfig { connections_max: 1, untracked_ticks: Some(1_000), ..config() });
    (0..3).for_each(|number| drop(scene.play(v4(number), "SaD")));
    // Older than the start, one that ends with a reset behind its FINs, and one that repeats a FIN.
    (10..20).for_each(|number| assert_eq!(scene.play(v4(number), "FfrF"), []));
    assert_eq!(scene.counts().untracked_open, 2);
    scene.pass(1_000);
    assert_eq!(scene.counts().untracked_open, 2);
    scene.pass(1);
    assert_eq!(scene.counts().untracked_open, 0);
}

#[test]
fn the_timeout_takes_all_of_its_tick_and_no_other() {
    let mut scene = Scene::new(config());
    for tick in 0..10 {
        for number in 0..40 {
            scene.play(any_key(tick * 40 + number), if number % 5 == 0 { "Sa" } else { "S" });
        }
        scene.pass(1);
    }
    scene.pass(SYN_TIMEOUT_TICKS - 10);
    for tick in 0..10 {
        assert_eq!(scene.half_open().len() as u32, 400 - tick * 40);
        assert_eq!(scene.counts().expired, u64::from(tick) * 40);
        scene.pass(1);
    }
    assert_eq!(scene.half_open(), []);
    for number in 0..400 {
        assert_eq!(scene.play(any_key(number), "D"), [], "what expired cannot be completed");
    }
}

#[test]
fn a_connection_of_an_end_with_itself_times_out_too() {
    let v4 = AnyKey::V4(KeyV4::new((7, 80), (7, 80), VlanTags::NONE));
    let v6 = AnyKey::V6(KeyV6::new((7, 80), (7, 80), VlanTags::NONE));
    for (key, script) in [(v4, "S"), (v4, "A"), (v4, "SA"), (v6, "S"), (v6, "A"), (v6, "S+A")] {
        let mut scene = Scene::new(config());
        scene.play(key, script);
        assert_eq!(scene.half_open().len(), 1, "{script}");
        scene.pass(SYN_TIMEOUT_TICKS + 1);
        assert_eq!((scene.half_open().len(), scene.counts().expired), (0, 1), "{script}");
    }
}

#[test]
fn a_leap_of_time_expires_everything() {
    let mut scene = Scene::new(config());
    for number in 0..300 {
        scene.play(any_key(number), "S");
    }
    scene.pass(30 * 86_400 * 10);
    assert_eq!(scene.half_open(), []);
    assert_eq!(scene.counts().expired, 300);
}

/// The ring is as good as full: room is made for fifteen at a time.
const NEARLY_FULL: std::ops::RangeInclusive<usize> = 980..=1_000;

#[test]
fn a_flood_recycles_the_oldest_first() {
    let mut scene = Scene::new(TrackerConfig { half_open_count: 1_000, ..config() });
    for number in 0..6_000 {
        scene.play(v4(number), if number % 3 == 0 { "Sa" } else { "S" });
        if number % 1_000 == 999 {
            let half_open = scene.half_open();
            assert!(NEARLY_FULL.contains(&half_open.len()), "{}", half_open.len());
            let oldest = number + 1 - half_open.len() as u32;
            assert_eq!(keys_of(&half_open), (oldest..=number).map(v4).collect());
            assert!(half_open.iter().all(|half_open| half_open.since_tick <= scene.tick));
            assert_eq!(scene.counts().recycled, u64::from(oldest));
            scene.pass(1);
        }
    }
    assert_eq!(scene.counts().untracked(), scene.counts().recycled);
}

#[test]
fn what_lasts_survives_what_does_not() {
    for fleeting in ["SaDFf", "Sr", "SaR", "SaD"] {
        let mut scene = Scene::new(TrackerConfig { half_open_count: 1_000, place_count: 7 * 4_096, ..config() });
        let lasting: BTreeSet<AnyKey> = (0..200).map(any_key).collect();
        lasting.iter().for_each(|key| assert_eq!(scene.play(*key, "Sa"), []));
        for number in 200..16_200 {
            scene.play(any_key(number), fleeting);
            if number % 2_000 == 0 {
                scene.pass(1);
            }
        }
        assert!(keys_of(&scene.half_open()) == lasting, "{fleeting}");
        assert_eq!((scene.counts().recycled, scene.counts().expired), (0, 0), "{fleeting}");
        for key in lasting {
            assert_eq!(scene.play(key, "D").len(), 1);
        }
        assert_eq!(scene.half_open(), []);
    }
}

#[test]
fn both_families_share_the_rings() {
    let mut scene = Scene::new(TrackerConfig { half_open_count: 100, ..config() });
    for number in 0..5_000 {
        scene.play(any_key(number), if number % 7 == 0 { "Saf" } else { "S" });
        let half_open = scene.half_open();
        let oldest = number + 1 - half_open.len() as u32;
        assert_eq!(keys_of(&half_open), (oldest..=number).map(any_key).collect());
        // 300 words hold 66 of both families in turn; room is made for eight at a time.
        assert!(half_open.len() <= 67 && (number < 66 || half_open.len() >= 45), "{}", half_open.len());
        assert_eq!(scene.counts().recycled, u64::from(oldest));
    }
}

#[test]
fn an_answer_that_makes_room_does_not_push_out_its_own_connection() {
    // The ring is full, and A's record is the oldest, when its SYN-ACK is written.
    let mut scene = Scene::new(TrackerConfig { half_open_count: 40, ..config() });
    (0..20).for_each(|number| drop(scene.play(v6(number), "S")));
    scene.pass(1);
    scene.play(v6(0), "a");
    let half_open: BTreeSet<AnyKey> = keys_of(&scene.half_open());
    assert!(half_open.contains(&v6(0)) && half_open.len() as u64 + scene.counts().recycled == 20);
    (20..30).for_each(|number| drop(scene.play(v6(number), "S")));
    let half_open = keys_of(&scene.half_open());
    assert!(half_open.contains(&v6(0)) && !half_open.contains(&v6(1)), "the oldest went");
    assert_eq!(half_open.len() as u64 + scene.counts().recycled, 30);
}

#[test]
fn a_copy_of_the_half_open_is_what_they_are() {
    let mut scene = Scene::new(TrackerConfig { half_open_count: 300, ..config() });
    let mut ring = crate::handover::HalfOpenList::new(300);
    for number in 0..2_000 {
        scene.play(any_key(number), ["S", "Sa", "S+a", "SaD", "Sr"][number as usize % 5]);
        if number % 100 == 0 {
            ring.clear();
            scene.tracker.list_half_open(&mut ring);
            assert_eq!(ring.iter(scene.tick).collect::<Vec<_>>(), scene.half_open());
        }
    }
}

#[test]
fn a_filter_as_full_as_it_is_meant_to_become_has_a_place_for_each() {
    let place_count = 7_000;
    let count = place_count * FILTER_ESTABLISHED_PERCENT as u32 / 100;
    let config = TrackerConfig { place_count: place_count as usize, connections_max: count.into(), ..config() };
    let mut scene = Scene::new(config);
    (0..count).for_each(|number| assert_eq!(scene.play(any_key(number), "SaC").len(), 1, "{number}"));
    // Then each that closes is followed by another, and lingers beside the others for as long as it can.
    for number in 0..10 * count {
        assert_eq!(scene.play(any_key(number), "Ff").len(), 1, "{number}");
        assert_eq!(scene.play(any_key(number + count), "SaC").len(), 1, "{number}");
    }
    let counts = scene.counts();
    assert!(counts.refused_open == 0 && counts.forgotten > 0, "{counts:?}");
    println!("{} of {} had no place while they were half-open", counts.unplaced, 11 * count);
    assert!(counts.unplaced < u64::from(count) / 500, "{counts:?}");
    scene.tracker.check_links();
}

#[test]
fn a_full_filter_gives_up_the_closed_then_the_half_open_and_never_the_established() {
    // One bucket of seven places.
    let mut scene = Scene::new(TrackerConfig { place_count: 7, ..config() });
    (0..3).for_each(|number| assert_eq!(scene.play(v4(number), "SaD").len(), 1));
    (3..5).for_each(|number| assert_eq!(scene.play(v4(number), "SaDR").len(), 2));
    (5..7).for_each(|number| assert_eq!(scene.play(v4(number), "Sa").len(), 0));
    let counted = |scene: &Scene| {
        let counts = scene.counts();
        (counts.forgotten, counts.recycled, counts.unplaced)
    };
    scene.play(v4(7), "S");
    assert_eq!(counted(&scene), (1, 0, 0));
    scene.play(v4(8), "S");
    assert_eq!(counted(&scene), (2, 0, 0));
    scene.play(v4(9), "S");
    assert_eq!(counted(&scene), (2, 1, 0));
    for number in [5, 6, 9] {
        assert_eq!(scene.play(v4(number), "aD").len(), 1, "{number} was kept: the oldest syn_sent went");
    }
    scene.play(v4(8), "aD");
    scene.play(v4(10), "S");
    assert_eq!(counted(&scene), (2, 1, 1), "all seven are established");
    assert_eq!(scene.half_open(), []);
    assert_eq!(scene.counts().untracked(), 2);
    (0..3).for_each(|number| assert_eq!(scene.play(v4(number), "R").len(), 1));
}
