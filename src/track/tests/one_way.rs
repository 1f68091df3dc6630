//! Routers that see one direction only.

use super::*;
use crate::handover::{PRESUMED_MAX_TICKS, SidesSeen};
use crate::signal::SYN_TIMEOUT_MAX_TICKS;
use crate::state::{Decoder, Encoder};

fn scene(one_way_max: u64) -> Scene {
    Scene::new(TrackerConfig { one_way_max, ..config() })
}

#[test]
fn one_side_alone_opens_and_closes() {
    for key in [v4(0), v4(1), v6(0), v6(1)] {
        for (script, open, closed) in [
            ("SD", 1, 0),
            ("SDDD", 1, 0),
            ("SDF", 1, 1),
            ("SDR", 1, 1),
            ("Sd", 0, 0),
            ("ad", 1, 0),
            ("adf", 1, 1),
            ("adr", 1, 1),
            ("aD", 1, 0),
            ("ar", 0, 0),
        ] {
            let events = scene(10).play(key, script);
            assert_eq!(events.len(), open + closed, "{script}: {events:?}");
        }
        assert_eq!(scene(0).play(key, "SDDF"), []);
        assert_eq!(scene(0).play(key, "adddf"), []);
    }
}

#[test]
fn once_the_other_side_appears_both_have_to_end_it() {
    // The SYN-ACK, data and the FIN of the other side each show that it is there.
    for (script, ended_by) in
        [("SDaF", "f"), ("SDdF", "f"), ("SDf", "F"), ("SDaf", "F"), ("adDf", "F"), ("adDF", "f"), ("adF", "f")]
    {
        for key in [v4(0), v4(1), v6(0), v6(1)] {
            let mut scene = scene(1);
            let events = scene.play(key, script);
            let [Event::Open(opened, before), Event::Turn(turned, from, to)] = events[..] else {
                panic!("{script} leaves it open: {events:?}");
            };
            let side = if script.starts_with('S') { SidesSeen::Client } else { SidesSeen::Server };
            assert_eq!((opened, before, SidesSeen::of_payload(from)), (turned, from, side), "{script}");
            assert_eq!(SidesSeen::of_payload(to), SidesSeen::Both, "{script}");
            // It no longer counts as one-way, so that there is room for another.
            assert_eq!(scene.play(v4(100), "SD").len(), 1, "{script}");
            assert_eq!(scene.play(v4(102), "SD").len(), 0, "{script}");
            assert!(matches!(scene.play(key, ended_by)[..], [Event::Close(..)]), "{script}{ended_by}");
        }
    }
}

#[test]
fn there_are_never_more_than_allowed() {
    for (open, close) in [("SD", "F"), ("ad", "f"), ("SD", "r"), ("ad", "2a")] {
        let mut scene = scene(5);
        for number in 0..20 {
            assert_eq!(scene.play(any_key(number), open).len(), usize::from(number < 5), "{open}");
        }
        for number in 0..5 {
            assert_eq!(scene.play(any_key(number), close).len(), 1, "{close}");
        }
        for number in 20..40 {
            assert_eq!(scene.play(any_key(number), open).len(), usize::from(number < 25), "{open} after {close}");
        }
    }
}

#[test]
fn what_only_one_side_gave_up_is_counted() {
    let mut scene = scene(0);
    scene.play(v4(0), "SF");
    scene.play(v4(1), "af");
    scene.play(v4(2), "SaDFf");
    scene.play(v4(3), "Sr");
    assert_eq!(scene.counts().one_sided, 2);
}

/// The keys, starts and ages in their states of what is half-open.
fn listed(scene: &Scene) -> Vec<(AnyKey, u64, u64)> {
    scene.tracker.check_links();
    let mut listed: Vec<_> =
        scene.half_open().iter().map(|one| (one.key, one.start_tick, scene.tick - one.since_tick)).collect();
    listed.sort_unstable();
    listed
}

#[test]
fn a_server_that_ends_what_nothing_else_was_seen_of_has_had_a_connection() {
    for key in [v4(0), v4(1), v6(0), v6(1)] {
        for wait in ["", "+", "t", "tt"] {
            let mut scene = scene(1);
            // As one of which both may be open: it takes no room of those.
            scene.play(v4(50), "SD");
            let [Event::Pass(ended, payload)] = scene.play(key, &format!("a{wait}f"))[..] else {
                panic!("{wait}: it opens and closes");
            };
            let start = FilterEntry::tick_of(FIRST_TICK);
            assert_eq!((ended, payload), (key, start | SidesSeen::Server.payload_bits()), "{wait}");
            assert_eq!(scene.tracker.sides_seen(payload), Some(SidesSeen::Server));
            assert_eq!(listed(&scene), []);
            let Counts { opened, closed, one_sided, expired, .. } = scene.counts();
            assert_eq!((opened, closed, one_sided, expired), (2, 1, 0, 0), "{wait}");
            // It may repeat its FIN.
            assert_eq!((scene.play(key, "f"), scene.counts().late), (vec![], 1), "{wait}");
            assert!(matches!(scene.play(key, "2a+f")[..], [Event::Pass(..)]), "{wait}: the next of the same ports");
        }
    }
}

#[test]
fn a_server_that_does_not_go_on_to_repeat_its_syn_ack_was_answered() {
    for key in [v4(0), v4(1), v6(0), v6(1)] {
        let mut scene = scene(10);
        let start = scene.tick;
        scene.play(key, "at");
        assert_eq!(listed(&scene), [(key, start, SYN_TIMEOUT_TICKS)]);
        scene.play(v4(50), "+");
        scene.pass(PRESUMED_TICKS - SYN_TIMEOUT_TICKS - 1);
        assert_eq!(listed(&scene), [(key, start, PRESUMED_TICKS)]);
        assert!(scene.half_open().iter().all(|one| one.answered));
        let mut silent = Scene::new(TrackerConfig { one_way_max: 10, ..config() });
        silent.play(key, "a");
        silent.pass(PRESUMED_TICKS + 1);
        assert_eq!((listed(&silent), silent.counts().expired), (vec![], 1));
        // What it says then opens it, with its own start.
        let payload = FilterEntry::tick_of(start) | SidesSeen::Server.payload_bits();
        assert_eq!(scene.play(key, "d"), [Event::Open(key, payload)]);
        assert_eq!((listed(&scene), scene.counts().expired), (vec![], 0));
    }
}

#[test]
fn what_the_server_repeats_or_the_client_was_seen_of_times_out() {
    // The SYN-ACK was repeated twice, or once behind the timeout; the SYN was seen; the client is heard alone.
    let [once, twice] = ["a+++++++++a", "a+++++++++a++++++++++++++++++a"];
    for (script, waits) in
        [(twice, 0), ("at+a", 0), ("Sa", 0), ("S+a", 0), ("S", 0), ("a", 1), ("aa", 1), (once, 1), ("ata", 1)]
    {
        let mut scene = scene(10);
        scene.play(v4(0), script);
        scene.play(v4(50), "t");
        assert_eq!(scene.half_open().len(), 1, "{script}");
        scene.pass(1);
        assert_eq!((listed(&scene).len(), scene.counts().expired), (waits, 1 - waits as u64), "{script}");
    }
    // Without connections that are open by one side alone, too.
    let mut scene = scene(0);
    scene.play(v4(0), "at+");
    assert_eq!((listed(&scene), scene.counts().expired), (vec![], 1));
}

#[test]
fn another_handshake_of_the_same_ports_is_one_of_its_own() {
    for (script, number) in [("2a", 2), ("A", 1), ("S", 1), ("2S", 2)] {
        let mut scene = scene(10);
        scene.play(v4(0), "at+");
        let now = scene.tick;
        scene.play(v4(0), script);
        let [HalfOpen { start_tick, short_isn, .. }] = scene.half_open()[..] else { panic!("{script}: there is one") };
        let is_of_same = script == "S";
        assert_eq!(short_isn, FilterEntry::short_isn(number * ISN_STEP));
        assert_eq!((start_tick == now, scene.counts().expired == 1), (!is_of_same, !is_of_same), "{script}");
    }
}

#[test]
fn a_syn_ack_that_comes_again_after_hours_begins_anew() {
    let mut scene = Scene::new(TrackerConfig { one_way_max: 10, presumed_ticks: PRESUMED_MAX_TICKS, ..config() });
    let start = scene.tick;
    scene.play(v4(0), "a");
    scene.pass(SYN_TIMEOUT_MAX_TICKS);
    scene.play(v4(0), "a");
    assert_eq!(listed(&scene), [(v4(0), start, 0)], "its server waits for an answer");
    scene.play(v4(2), "a");
    scene.pass(SYN_TIMEOUT_MAX_TICKS + 1);
    assert_eq!((listed(&scene).len(), scene.counts().expired), (1, 1));
    scene.play(v4(2), "a");
    assert_eq!((listed(&scene), scene.counts().expired), (vec![(v4(2), scene.tick, 0)], 2));
    scene.pass(PRESUMED_MAX_TICKS);
    let start = FilterEntry::tick_of(scene.tick - PRESUMED_MAX_TICKS) | SidesSeen::Server.payload_bits();
    assert_eq!(scene.play(v4(2), "d"), [Event::Open(v4(2), start)], "with a start twelve hours ago");
}

#[test]
fn those_that_are_presumed_to_be_answered_go_before_any_handshake_that_may_be_under_way() {
    let mut scene = Scene::new(TrackerConfig { one_way_max: 10, half_open_count: 1_000, ..config() });
    // Half of the room is theirs at most: the oldest go.
    (0..700).for_each(|number| drop(scene.play(v4(number), "a")));
    scene.pass(SYN_TIMEOUT_TICKS + 1);
    let presumed = listed(&scene);
    assert!((400..=500).contains(&presumed.len()), "{}", presumed.len());
    assert_eq!(presumed.len() as u64 + scene.counts().expired, 700);
    let newest: Vec<AnyKey> = (700 - presumed.len() as u32..700).map(v4).collect();
    assert!(presumed.iter().all(|(key, ..)| newest.contains(key)));
    // A flood takes their room before any of its own.
    let kept = presumed.len() as u32;
    for number in 0..1_000 {
        scene.play(v4(10_000 + number), "S");
        let presumed_count = scene.half_open().iter().filter(|one| one.answered).count() as u32;
        assert!(presumed_count + number < 1_000 && presumed_count <= kept, "{presumed_count} beside {number}");
        assert_eq!(presumed_count == kept, number + kept < 1_000, "{presumed_count} beside {number}");
    }
    assert_eq!(scene.counts().recycled, 0);
    assert_eq!(scene.counts().untracked(), 0, "no list is incomplete for them");
    assert_eq!((listed(&scene).len(), scene.counts().expired), (1_000, 700));
    scene.play(v4(20_000), "S");
    assert!(scene.counts().recycled > 0);
}

#[test]
fn the_saved_state_has_those_that_are_presumed_to_be_answered() {
    let config = TrackerConfig { one_way_max: 10, presumed_ticks: 1_000, half_open_count: 200, ..config() };
    let mut scene = Scene::new(config.clone());
    (0..40).for_each(|number| drop(scene.play(any_key(number), "a")));
    scene.pass(SYN_TIMEOUT_TICKS + 1);
    (40..60).for_each(|number| drop(scene.play(any_key(number), ["S", "a"][number as usize % 2])));
    let mut encoder = Encoder::default();
    scene.tracker.save(&mut encoder);
    let (bytes, before) = (encoder.into_bytes(), listed(&scene));
    assert_eq!(before.len(), 60);
    scene.tracker = Tracker::new(config.clone());
    scene.tracker.restore(&mut Decoder::new(&bytes)).expect("it fits");
    assert_eq!(listed(&scene), before);
    assert_eq!(scene.play(any_key(3), "d").len(), 1);
    scene.pass(SYN_TIMEOUT_TICKS + 1);
    assert_eq!((listed(&scene).len(), scene.counts().expired), (39 + 10, 10));
}

#[test]
fn one_that_is_presumed_to_be_answered_and_loses_its_place_in_the_filter_has_timed_out() {
    let mut scene = Scene::new(TrackerConfig { one_way_max: 10, place_count: 7, ..config() });
    (0..7).for_each(|number| drop(scene.play(v4(number), "a")));
    scene.pass(SYN_TIMEOUT_TICKS + 1);
    let kept = listed(&scene).len() as u64;
    (100..107).for_each(|number| drop(scene.play(v4(number), "a")));
    let Counts { expired, recycled, unplaced, .. } = scene.counts();
    assert!(kept == 7 && (expired, recycled, unplaced) == (7, 0, 0), "{:?}", scene.counts());
}
