//! Connections that are older than the start, answers that overtake their questions, and connections that end unseen.

use super::*;
use crate::flow::Side;
use crate::handover::{HalfOpenList, MIDSTREAM};
use crate::signal::{Answer, HandshakeCache};
use crate::track::Sighting;

fn scene() -> Scene {
    Scene::new(TrackerConfig { candidate_count: 1_000, ..config() })
}

/// Which end of a test key has the lower port: the server of what is picked up.
fn picked_up(number: u32) -> AnyKey {
    let key = any_key(number);
    match (key, number.is_multiple_of(2)) {
        (key, true) => key,
        (AnyKey::V4(key), false) => AnyKey::V4(key.reversed()),
        (AnyKey::V6(key), false) => AnyKey::V6(key.reversed()),
    }
}

#[test]
fn a_fin_of_a_candidate_is_one_of_the_connection_that_goes_on_behind_a_forged_rst() {
    for number in 0..4 {
        let (key, mut scene) = (any_key(number), scene());
        scene.play(key, "5SaCr");
        scene.pass(2 * u64::from(LINGER_TICKS));
        assert_eq!(scene.play(key, "DF"), [], "it may be older than the start");
        let reopened = scene.send(key, Sender::Server, SignalKind::Alive, 0);
        assert!(matches!(reopened, Some(Event::Reopen(..))), "{reopened:?}");
        let closed = scene.play(key, "f");
        assert!(matches!(closed[..], [Event::Close(..)]), "both sides have ended: {closed:?}");
    }
}

#[test]
fn what_the_system_knows_is_open_at_once_unless_packets_have_shown_more() {
    // In place of the ISN stand the sides that have ended.
    for number in 0..4 {
        for (script, opened, closed) in [
            ("0K", 1, 0),
            ("0KK", 1, 0),
            ("0KDd", 1, 0),
            ("0KFf", 1, 1),
            ("0KF", 1, 0),
            ("0Kr", 1, 1),
            // The client or the server has sent its FIN before; both have.
            ("1Kf", 1, 1),
            ("1KF", 1, 0),
            ("2KF", 1, 1),
            ("2Kf", 1, 0),
            ("3K", 0, 0),
            // A candidate, and what has ended or is opening already.
            ("D0K", 1, 0),
            ("d1Kf", 1, 1),
            ("R0K", 0, 0),
            ("5S0K", 0, 0),
            ("5SaC0K", 1, 0),
            ("5SaCFf0K", 1, 1),
            // A handshake of which the system knew before its packets were read.
            ("0K5SaC", 1, 1),
        ] {
            let mut scene = scene();
            let events = scene.play(any_key(number), script);
            let opens = events.iter().filter(|event| matches!(event, Event::Open(..))).count();
            assert_eq!((opens, events.len() - opens), (opened, closed), "{script}: {events:?}");
            let midstream = events.iter().filter(|event| {
                matches!(event, Event::Open(key, payload) if payload & MIDSTREAM != 0 && *key == any_key(number))
            });
            assert_eq!(midstream.count() as u64, scene.tracker.counts().known, "{script}: {events:?}");
        }
    }
}

#[test]
fn both_sides_make_a_connection_and_one_does_not() {
    for number in 0..4 {
        for (script, opened, closed) in [
            ("D", 0, 0),
            ("DDDD", 0, 0),
            ("Dd", 1, 0),
            ("dD", 1, 0),
            ("Df", 1, 0),
            ("dF", 1, 0),
            ("DfF", 1, 1),
            ("DdFf", 1, 1),
            ("DdFd", 1, 0),
            ("Ddr", 1, 1),
            ("Ddaaa", 1, 0),
            ("DdaaaD", 1, 1),
            ("DdS", 1, 0),
            // A reset, or a FIN of the side that was seen, is no sign of life.
            ("Dr", 0, 0),
            ("DR", 0, 0),
            ("Drd", 0, 0),
            ("DFd", 0, 0),
            ("DFdDd", 0, 0),
            // A handshake begins anew.
            ("DSaD", 1, 0),
            ("DaD", 1, 0),
            ("DS", 0, 0),
        ] {
            let mut scene = scene();
            let events = scene.play(any_key(number), script);
            let opens = events.iter().filter(|event| matches!(event, Event::Open(..))).count();
            assert_eq!((opens, events.len() - opens), (opened, closed), "{script}: {events:?}");
            let half_open = scene.half_open();
            assert!(half_open.iter().all(|record| script.contains(['S', 'a']) && record.short_isn != 0), "{script}");
        }
    }
}

#[test]
fn the_start_is_the_first_sign_of_it_and_the_server_has_the_lower_port() {
    for number in 0..8 {
        for (script, start) in [("D++d++Ff", 0), ("+D+D+f+F", 1), ("d+++D+r", 0)] {
            let mut scene = scene();
            let payload = FilterEntry::tick_of(scene.tick + start) | MIDSTREAM;
            let key = picked_up(number);
            let events = scene.play(any_key(number), script);
            assert_eq!(events, [Event::Open(key, payload), Event::Close(key, payload)], "{script}");
        }
    }
    for (first, second) in [((9, 80), (3, 80)), ((3, 80), (9, 80))] {
        let mut scene = scene();
        let events = scene.play(AnyKey::V4(KeyV4::new(first, second, VlanTags::NONE)), "Dd");
        let expected = AnyKey::V4(KeyV4::new((9, 80), (3, 80), VlanTags::NONE));
        assert!(matches!(events[..], [Event::Open(key, _)] if key == expected), "the lower address is the server");
    }
}

#[test]
fn late_packets_of_what_has_closed_list_nothing() {
    for known in ["SaDdFf", "SaDdr", "F", "Ff", "r", "DF", "DdFf"] {
        for late in ["dDdD", "DFdD", "fDfD", "lfDl+FdD", "rdD", "lFl-Fl-dD"] {
            let mut scene = scene();
            let before = scene.play(v4(2), known).len();
            let late = late.replace('-', "");
            assert_eq!(scene.play(v4(2), &late), [], "{late} after {known}");
            assert!(before <= 2);
        }
    }
}

#[test]
fn a_forged_syn_behind_the_end_makes_no_candidate_of_late_packets() {
    for script in ["SaDFf3sfdDd", "SaDFf3SfdD", "SaDFf3sFDd"] {
        let mut scene = scene();
        assert_eq!(scene.play(v4(1), script).len(), 2, "{script}");
        let counts = scene.counts();
        assert_eq!((counts.opened, counts.closed, counts.candidates), (1, 1, 0), "{script}");
        // The SYN may have been true.
        assert_eq!(scene.play(v4(1), "3SaD").len(), 1, "{script}");
    }
}

#[test]
fn candidates_wait_so_long_and_leave_nothing() {
    let mut scene = scene();
    scene.play(v4(0), "D");
    scene.pass(CANDIDATE_TIMEOUT_TICKS);
    scene.play(v4(2), "D");
    assert_eq!(scene.play(v4(0), "d").len(), 1, "it is the last tick");
    scene.pass(CANDIDATE_TIMEOUT_TICKS + 1);
    assert_eq!(scene.play(v4(2), "d"), []);
    let counts = scene.counts();
    assert_eq!((counts.candidates, counts.picked_up, counts.candidates_expired), (3, 1, 1));
    assert_eq!(scene.counts().untracked(), 0);
}

#[test]
fn a_flood_from_one_side_lists_nothing_and_pushes_out_nothing() {
    let mut scene = Scene::new(TrackerConfig { candidate_count: 1_000, place_count: 7 * 512, ..config() });
    (0..500).for_each(|number| assert_eq!(scene.play(any_key(number), "SaD").len(), 1));
    (500..800).for_each(|number| assert_eq!(scene.play(any_key(number), "S").len(), 0));
    for number in 1_000..1_001_000 {
        assert_eq!(scene.send(v4(number), Sender::Client, SignalKind::Ack, 0), None);
    }
    let counts = scene.counts();
    assert_eq!((counts.opened, counts.picked_up, counts.untracked(), counts.forgotten), (500, 0, 0, 0));
    assert_eq!(counts.candidates, 1_000_000);
    assert!(counts.candidates_recycled >= 999_000, "{counts:?}");
    assert_eq!(scene.half_open().len(), 300);
    let mut ring = HalfOpenList::new(1_024);
    scene.tracker.list_half_open(&mut ring);
    assert_eq!(ring.iter(scene.tick).count(), 300);
    (0..500).for_each(|number| assert_eq!(scene.play(any_key(number), "Ff").len(), 1));
}

#[test]
fn what_can_not_be_tracked_is_counted_once_in_a_while() {
    let mut scene = Scene::new(TrackerConfig { candidate_count: 100, connections_max: 1, ..config() });
    assert_eq!(scene.play(v4(0), "Dd").len(), 1);
    assert_eq!(scene.play(v4(2), "DdDdDdDd"), []);
    let refused = |scene: &Scene| (scene.counts().refused_pickups, scene.counts().untracked_open);
    assert_eq!(refused(&scene), (1, 1));
    assert_eq!(scene.play(v4(2), "l+DdDd"), []);
    assert_eq!(refused(&scene), (1, 1), "the same one again");
    assert_eq!(scene.play(v4(4), "Dd"), []);
    assert_eq!(refused(&scene), (2, 2));
    assert_eq!(scene.play(v4(4), "Ff"), []);
    assert_eq!(refused(&scene), (2, 1));
    assert_eq!(scene.play(v4(0), "r").len(), 1);
    assert_eq!(scene.play(v4(2), "l+Dd").len(), 1, "now there is room");
}

#[test]
fn what_completes_a_handshake_needs_nothing_else() {
    for key in [v4(0), v4(1), v6(0), v6(1)] {
        for (script, opened, closed) in [
            ("C", 1, 0),
            ("CSa", 1, 0),
            ("CaS", 1, 0),
            ("SCa", 1, 0),
            ("S+Ca", 1, 0),
            ("CC", 1, 0),
            ("CSaCFf", 1, 1),
            ("SaCFfC", 1, 1),
            ("SaCFfSaC", 1, 1),
            ("SaCr2C", 2, 1),
            ("SaCr2C2S2a", 2, 1),
            ("2SC", 1, 0),
            ("saC", 1, 0),
            ("Sac", 0, 0),
            ("Sc", 1, 0),
        ] {
            let mut scene = Scene::new(config());
            let events = scene.play(key, script);
            assert_eq!((events.len(), scene.counts().opened), (opened + closed, opened as u64), "{script}");
            assert_eq!(scene.counts().closed, closed as u64, "{script}");
        }
        let mut scene = Scene::new(config());
        let (first, second) = (FilterEntry::tick_of(scene.tick), FilterEntry::tick_of(scene.tick + 1));
        let replaced = Event::Replace((key, first), (key, second));
        assert_eq!(scene.play(key, "SaC+2C2S2a"), [Event::Open(key, first), replaced]);
    }
}

#[test]
fn what_the_capture_takes_for_the_isn_completes_nothing_anew() {
    let cache = HandshakeCache::new(1, 1_000_000_000);
    let completes = |isn, other| {
        cache.put(1, Side::First, Some(isn), 0);
        cache.answer(1, Side::First, other, 0, || false) == Some(Answer::Completes)
    };
    // The hash of the second begins with a zero byte, for which the capture writes another.
    for isn in [1, 1_114_951_855] {
        for fins in ["", "Ff"] {
            let mut skipped = 0;
            for other in isn + 1..isn + 1_000 {
                let mut scene = Scene::new(config());
                let key = v4(1);
                assert_eq!(scene.send(key, Sender::Client, SignalKind::Syn, isn), None);
                assert_eq!(scene.send(key, Sender::Server, SignalKind::SynAck, isn), None);
                assert!(scene.send(key, Sender::Client, SignalKind::Completes, isn).is_some());
                scene.play(key, fins);
                let event = scene.send(key, Sender::Client, SignalKind::Completes, other);
                assert_eq!(event.is_none(), completes(isn, other), "{isn} {other} {fins}");
                skipped += usize::from(event.is_none());
            }
            assert!((1..30).contains(&skipped), "{skipped}");
        }
    }
}

#[test]
fn a_handshake_replaces_a_connection_whose_isn_is_unknown() {
    for isn in [1, 1_114_951_855, 1_114_952_088] {
        let mut scene = scene();
        scene.play(picked_up(0), "Dd");
        assert_eq!(scene.counts().picked_up, 1);
        let event = scene.send(picked_up(0), Sender::Client, SignalKind::Completes, isn);
        assert!(matches!(event, Some(Event::Replace(..))), "{isn}: {event:?}");
    }
}

#[test]
fn where_only_flags_are_seen_the_answer_opens() {
    for (script, opened, closed) in
        [("S", 0, 0), ("Sa", 1, 0), ("a", 1, 0), ("aS", 1, 0), ("SaFf", 1, 1), ("Sar", 1, 1), ("SaSa", 1, 0)]
    {
        let mut scene = Scene::new(TrackerConfig { answer_opens: true, ..config() });
        assert_eq!(scene.play(v6(1), script).len(), opened + closed, "{script}");
        assert_eq!((scene.counts().opened, scene.counts().closed), (opened as u64, closed as u64), "{script}");
        assert!(scene.half_open().is_empty() || script == "S", "{script}");
    }
    let mut scene = Scene::new(TrackerConfig { answer_opens: true, ..config() });
    let start = FilterEntry::tick_of(scene.tick);
    let replaced = Event::Replace((v6(1), start), (v6(1), start + 1));
    assert_eq!(scene.play(v6(1), "Sa+2S2a"), [Event::Open(v6(1), start), replaced]);
}

#[test]
fn a_connection_is_looked_at_and_taken_off() {
    for number in 0..4 {
        let (key, mut scene) = (any_key(number), scene());
        let payload = FilterEntry::tick_of(scene.tick);
        scene.play(key, "SaD+");
        assert_eq!(
            scene.tracker.sighting(&key, payload),
            Sighting::Seen { is_half_closed: false },
            "it was seen to open"
        );
        assert_eq!(scene.tracker.sighting(&key, payload), Sighting::Unseen);
        assert_eq!(scene.tracker.sighting(&key, payload + 1), Sighting::Gone);
        assert_eq!(scene.tracker.sighting(&key, payload | MIDSTREAM), Sighting::Gone);
        assert_eq!(scene.tracker.sighting(&any_key(number + 4), payload), Sighting::Gone);
        for (sign, is_half_closed) in [("D", false), ("d", false), ("S", false), ("a", false), ("F", true), ("C", true)]
        {
            scene.play(key, sign);
            assert_eq!(scene.tracker.evict_idle(&key, payload), (Sighting::Seen { is_half_closed }, None), "{sign}");
        }
        assert_eq!(scene.tracker.evict_aged(&key, payload + 1), None, "that is out of date");
        let closed = Some(Event::Close(key, payload));
        if number % 2 == 0 {
            assert_eq!(scene.tracker.evict_idle(&key, payload), (Sighting::Unseen, closed));
        } else {
            scene.play(key, "D");
            assert_eq!(scene.tracker.evict_aged(&key, payload), closed);
        }
        assert_eq!(scene.tracker.evict_idle(&key, payload), (Sighting::Gone, None));
        let counts = scene.counts();
        assert_eq!((counts.evicted(), counts.opened, counts.closed), (1, 1, 0));
        // Nothing lingers, so it is found again when it speaks.
        assert_eq!(scene.play(key, "Dd").len(), 1);
        assert_eq!(scene.counts().picked_up, 1);
    }
}
