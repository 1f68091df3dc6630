//! Connections that were refused, against a tracker that has room for all: lists are complete again when it is so.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn canonical(key: AnyKey) -> AnyKey {
    match key {
        AnyKey::V4(key) => AnyKey::V4(key.canonical().0),
        AnyKey::V6(key) => AnyKey::V6(key.canonical().0),
    }
}

/// A tracker whose refused connections are tracked at the ends of intervals, and what its events say is open.
struct Limited {
    scene: Scene,
    /// By canonical key: the key, client first, and the payload.
    open: BTreeMap<AnyKey, (AnyKey, u32)>,
}

impl Limited {
    fn new(config: TrackerConfig) -> Self {
        Limited { scene: Scene::new(config), open: BTreeMap::new() }
    }

    fn play(&mut self, key: AnyKey, script: &str) {
        let events = self.scene.play(key, script);
        events.into_iter().for_each(|event| self.apply(event));
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Open(key, payload) | Event::Reopen(key, payload) => {
                assert_eq!(self.open.insert(canonical(key), (key, payload)), None, "{key:?} opens once");
            }
            Event::Close(key, payload) => {
                assert_eq!(self.open.remove(&canonical(key)), Some((key, payload)), "it closes as it opened");
            }
            Event::Replace((before, payload_before), (key, payload)) => {
                self.apply(Event::Close(before, payload_before));
                self.apply(Event::Open(key, payload));
            }
            Event::CloseAndPass((key, payload), _) => self.apply(Event::Close(key, payload)),
            Event::Turn(..) | Event::Pass(..) => {}
        }
    }

    /// Ends an interval, and returns how many connections are said to be missing.
    fn end_interval(&mut self) -> u64 {
        for left in self.scene.tracker.take_refused() {
            let event = self.scene.tracker.track_left(&left);
            event.into_iter().for_each(|event| self.apply(event));
        }
        self.scene.tracker.check_links();
        self.missing()
    }

    fn missing(&self) -> u64 {
        self.scene.counts().untracked_open
    }
}

/// What may be sent after a handshake, with what is repeated; `e` is where the packets of others may come between.
const ENDINGS: [&str; 12] =
    ["", "F", "f", "FefeFeFf", "feF", "FefeRr", "R", "rer", "FeR", "feFeeeFef", "FeeeeeFef", "reRefF"];

const OPENINGS: [&str; 5] = ["SaC", "SSaaCaC", "aCCaC", "SaF", "SaDaC"];

/// A connection: its number, the index of its opening and of its ending, and when its packets come.
type Life = (u32, usize, usize, Vec<u64>);

fn lives(number: impl Strategy<Value = u32>) -> impl Strategy<Value = Vec<Life>> {
    let life = (number, 0..OPENINGS.len(), 0..ENDINGS.len(), prop::collection::vec(0u64..200, 9));
    prop::collection::vec(life, 1..60)
}

/// The parts of all lives with what each plays, in order of time. A later life of a number begins after those before.
fn parts(lives: &[Life]) -> Vec<(u64, u32, String)> {
    let mut parts = Vec::new();
    let mut ended: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
    for (number, opening, ending, times) in lives {
        let (began, isn) = ended.get(number).map_or((0, 1), |(time, isn)| (*time, isn % 9 + 1));
        let mut times: Vec<u64> = times.iter().map(|time| began + time).collect();
        times.sort_unstable();
        let script = format!("{}e{}", OPENINGS[*opening], ENDINGS[*ending]);
        for (part, time) in script.split('e').zip(&times) {
            parts.push((*time, *number, format!("{isn}{part}")));
        }
        ended.insert(*number, (times.last().copied().unwrap_or(began) + 1, isn));
    }
    parts.sort_by_key(|(time, ..)| *time);
    parts
}

/// Plays the lives to a tracker with little room and to one with much, ends an interval every 20 ticks, and passes both
/// to `check` with what is missing.
fn compare(lives: &[Life], config: TrackerConfig, strays: bool, check: impl Fn(&Limited, &Limited, u64)) {
    let mut all = Limited::new(TrackerConfig { connections_max: 1 << 20, ..config.clone() });
    let mut limited = Limited::new(config);
    let mut now = 0;
    for (time, number, part) in parts(lives) {
        while now < time {
            now += 1;
            [&mut all, &mut limited].into_iter().for_each(|tracked| tracked.scene.pass(1));
            if now % 20 == 0 {
                let missing = limited.end_interval();
                check(&all, &limited, missing);
            }
            if strays {
                // Scans, and ends of connections that are older than the start.
                let stray = 1_000_000 + now as u32;
                [&mut all, &mut limited].into_iter().for_each(|tracked| tracked.play(any_key(stray), "RFfr"));
            }
        }
        [&mut all, &mut limited].into_iter().for_each(|tracked| tracked.play(any_key(number), &part));
    }
    let missing = limited.end_interval();
    check(&all, &limited, missing);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn with_records_it_is_known_exactly_what_is_missing(lives in lives(0u32..12), connections_max in 0u64..6, strays: bool) {
        let config = TrackerConfig { connections_max, ..config() };
        compare(&lives, config, strays, |all, limited, missing| {
            assert_eq!(missing as usize, all.open.len() - limited.open.len());
            assert!(limited.open.iter().all(|(key, payload)| all.open.get(key) == Some(payload)));
            assert!(missing == 0 || limited.open.len() as u64 == connections_max, "there is no room");
        });
    }

    #[test]
    fn without_records_nothing_wrong_is_complete(lives in lives(0u32..500_000), connections_max in 0u64..6, strays: bool) {
        let refused = RefusedCounts { records: 4, listed: 64 };
        let config = TrackerConfig { connections_max, refused, ..config() };
        compare(&lives, config, strays, |all, limited, missing| {
            assert!(limited.open.keys().all(|key| all.open.contains_key(key)));
            assert!(missing > 0 || limited.open.len() == all.open.len());
        });
    }
}

/// A spike of so many connections beyond those that there is room for, and its end.
fn spike(times: u32, config: TrackerConfig) {
    let room = config.connections_max as u32;
    let mut limited = Limited::new(config);
    (0..room / 2).for_each(|number| limited.play(any_key(number), "SaC"));
    assert_eq!(limited.end_interval(), 0);
    let spike = room..room * (1 + times);
    for number in spike.clone() {
        limited.play(any_key(number), "SaC");
        // A side that repeats, a scan, and the end of what was never there.
        limited.play(any_key(number), ["", "D", "aC", "S"][number as usize % 4]);
        if number % 16 == 0 {
            limited.play(any_key(10_000_000 + number), "R");
            limited.scene.pass(u64::from(number % 64 == 0));
        }
    }
    assert!(limited.end_interval() > 0);
    // Most end: those that came first, the last, and every other.
    let stays = |number: u32| number % (2 * times) == 1;
    for number in spike.clone().filter(|number| !stays(*number)) {
        limited.play(any_key(number), ["FfF", "fFR", "R", "FFff"][number as usize % 4]);
        limited.scene.pass(u64::from(number % 64 == 0));
    }
    assert_eq!(limited.end_interval(), 0, "{times} times");
    let expected: Vec<u32> = (0..room / 2).chain(spike.filter(|number| stays(*number))).collect();
    assert_eq!(limited.open.len(), expected.len());
    assert!(expected.iter().all(|number| limited.open.contains_key(&canonical(any_key(*number)))));
    // What is tracked again ends as it opened.
    expected.iter().for_each(|number| limited.play(any_key(*number), "Ff"));
    assert_eq!((limited.open.len(), limited.end_interval()), (0, 0));
}

#[test]
fn lists_are_complete_within_an_interval_of_the_end_of_a_spike() {
    for times in [2, 5, 20, 100] {
        let all_known = RefusedCounts { records: 1 << 18, listed: 400 };
        spike(times, TrackerConfig { connections_max: 400, place_count: 7 * 200, refused: all_known, ..config() });
        let few_known = RefusedCounts { records: 500, listed: 3_000 };
        spike(times, TrackerConfig { connections_max: 400, place_count: 7 * 200, refused: few_known, ..config() });
    }
}

#[test]
fn an_end_that_was_none_is_taken_back() {
    let config = || TrackerConfig { connections_max: 1, ..config() };
    // `E` and `e` cannot be played: the packet shows that its sender has not ended.
    for (script, sender, missing) in
        [("SaCR", Sender::Client, 1), ("SaCFf", Sender::Server, 1), ("SaCF", Sender::Client, 1)]
    {
        let mut limited = Limited::new(config());
        limited.play(v4(0), "SaC");
        limited.play(v4(2), script);
        assert_eq!(limited.missing(), u64::from(script == "SaCF"));
        limited.scene.send(v4(2), sender, SignalKind::Alive, 0);
        assert_eq!(limited.end_interval(), missing, "{script}");
        limited.play(v4(0), "Ff");
        assert_eq!(limited.end_interval(), 0, "{script}");
        assert!(limited.open.contains_key(&canonical(v4(2))), "{script}: it is tracked when there is room");
        // One FIN of the other side counts as before.
        limited.play(
            v4(2),
            match script {
                "SaCFf" => "f",
                _ => "Ff",
            },
        );
        assert!(limited.open.is_empty(), "{script}");
    }
}

#[test]
fn what_is_found_midstream_without_room_is_known_once() {
    let config = TrackerConfig { connections_max: 1, candidate_count: 50, ..config() };
    let mut limited = Limited::new(config);
    limited.play(v4(0), "SaC");
    for _ in 0..5 {
        (10..14).for_each(|number| limited.play(any_key(number), "Dd"));
        assert_eq!(limited.end_interval(), 4);
        limited.scene.pass(u64::from(LINGER_TICKS) + 1);
    }
    assert_eq!(limited.scene.counts().refused_pickups, 4);
    limited.play(any_key(10), "R");
    limited.play(any_key(11), "Ff");
    limited.play(any_key(12), "F");
    assert_eq!(limited.end_interval(), 2);
    limited.play(v4(0), "R");
    assert_eq!(limited.end_interval(), 1, "one is tracked");
    let (_, payload) = limited.open.values().next().copied().unwrap();
    assert!(payload & MIDSTREAM != 0);
    (12..14).for_each(|number| limited.play(any_key(number), "Ff"));
    assert_eq!((limited.end_interval(), limited.open.len()), (0, 0));
}

#[test]
fn a_packet_of_a_refused_connection_tracks_it_where_there_is_room() {
    let mut limited = Limited::new(TrackerConfig { connections_max: 1, candidate_count: 50, ..config() });
    limited.play(v4(0), "SaC");
    limited.play(v4(2), "SaC+");
    limited.play(v4(0), "Ff+");
    limited.play(v4(2), "d");
    let payload = limited.open.get(&canonical(v4(2))).map(|(_, payload)| *payload);
    assert_eq!((payload, limited.missing()), (Some(FilterEntry::tick_of(FIRST_TICK)), 0));
}

#[test]
fn the_same_numbers_are_another_refused_connection_when_they_are_shown_behind_the_end() {
    for (after, missing) in [("++C", 0), ("++aC", 1), ("++SaC", 1)] {
        let mut limited = Limited::new(TrackerConfig { connections_max: 0, ..config() });
        limited.play(v4(1), "SaCFaf");
        limited.play(v4(1), after);
        assert_eq!(limited.missing(), missing, "{after}");
    }
}

#[test]
fn a_forged_end_before_the_start_hides_nothing() {
    // More were refused than have records, so an end without one may be of any.
    let refused = RefusedCounts { records: 4, listed: 64 };
    let mut limited = Limited::new(TrackerConfig { connections_max: 0, refused, ..config() });
    (0..40).for_each(|number| limited.play(any_key(number), "SaC"));
    limited.play(any_key(99), "R");
    limited.play(any_key(99), "2SaC");
    (0..40).for_each(|number| limited.play(any_key(number), "R"));
    assert!(limited.end_interval() > 0, "it is open");
}

#[test]
fn a_saved_tracker_knows_what_was_refused() {
    for records in [4, 256] {
        let refused = RefusedCounts { records, listed: 64 };
        let config = TrackerConfig { connections_max: 3, refused, ..config() };
        let mut limited = Limited::new(config.clone());
        (0..30).for_each(|number| limited.play(any_key(number), "SaC"));
        let mut encoder = crate::state::Encoder::default();
        limited.scene.tracker.save(&mut encoder);
        let bytes = encoder.into_bytes();
        let mut restored = Tracker::new(config.clone());
        let mut decoder = crate::state::Decoder::new(&bytes);
        restored.restore(&mut decoder).unwrap();
        decoder.end().unwrap();
        assert_eq!(restored.counts(), limited.scene.counts());
        limited.scene.tracker = restored;
        (0..28).for_each(|number| limited.play(any_key(number), "Ff"));
        assert_eq!(limited.end_interval(), 0);
        let mut left = [28, 29].map(|number| canonical(any_key(number)));
        left.sort();
        assert_eq!(limited.open.keys().copied().collect::<Vec<_>>(), left);
        assert!(Tracker::new(config).restore(&mut crate::state::Decoder::new(&bytes[..bytes.len() - 1])).is_err());
    }
}
