//! Routers that see one direction only.

use super::*;
use crate::handover::SidesSeen;

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
