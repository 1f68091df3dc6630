//! Handshakes that contradict each other, of which the client's first packet shows the true one.

use super::*;
use Sender::{Client, Server};

/// Numbers further from each other than a window.
const ISN: u32 = 1 << 20;
const FORGED: u32 = 9 << 20;

const KEYS: [fn() -> AnyKey; 4] = [|| v4(0), || v4(1), || v6(0), || v6(1)];

fn tick(scene: &Scene) -> u32 {
    FilterEntry::tick_of(scene.tick)
}

/// A connection that was open for a tick, and that both sides have ended.
fn ended(key: AnyKey) -> Scene {
    let mut scene = Scene::new(config());
    let events = scene.play(key, "7SaD+Ff");
    assert_eq!(events.len(), 2);
    scene
}

/// A handshake, and the event of the client's answer.
fn handshake(scene: &mut Scene, key: AnyKey, kinds: &[(Sender, SignalKind)]) -> Option<Event> {
    let events: Vec<_> = kinds.iter().filter_map(|(sender, kind)| scene.send(key, *sender, *kind, ISN)).collect();
    assert!(events.len() < 2, "{events:?}");
    events.first().copied()
}

#[test]
fn a_syn_ack_that_is_forged_behind_an_end_hides_the_next_connection_from_neither_side() {
    let whole = [(Client, SignalKind::Syn), (Server, SignalKind::SynAck), (Client, SignalKind::Completes)];
    for key in KEYS.map(|key| key()) {
        for forger in [Client, Server] {
            for from in [0, 1] {
                let mut scene = ended(key);
                scene.pass(3);
                assert_eq!(scene.send(key, forger, SignalKind::SynAck, FORGED), None);
                scene.pass(2);
                let start = tick(&scene);
                let event = handshake(&mut scene, key, &whole[from..]);
                assert_eq!(event, Some(Event::Open(key, start)), "{forger:?}, from packet {from} on");
            }
        }
    }
}

#[test]
fn of_two_handshakes_at_once_the_one_that_is_answered_opens_with_its_own_start() {
    for key in KEYS.map(|key| key()) {
        let mut scene = Scene::new(config());
        scene.send(key, Client, SignalKind::Syn, FORGED);
        scene.send(key, Server, SignalKind::SynAck, FORGED);
        scene.pass(2);
        let start = tick(&scene);
        scene.send(key, Client, SignalKind::Syn, ISN);
        scene.pass(3);
        scene.send(key, Server, SignalKind::SynAck, ISN);
        // Behind lost packets, within the first window.
        let opened = scene.send(key, Client, SignalKind::Ack, ISN + 3_000);
        assert_eq!(opened, Some(Event::Open(key, start)));
        assert_eq!(scene.send(key, Client, SignalKind::Ack, FORGED), None, "the other is forgotten");
    }
}

/// A number that does not follow another, and agrees with it in the bits that the capture side keeps.
fn like(isn: u32) -> u32 {
    let mut numbers = (1..).map(|number| isn.wrapping_sub(number << 17));
    let of_isn = FilterEntry { short_isn: FilterEntry::short_isn(isn), ..FilterEntry::unpack(0, 0) };
    numbers.find(|number| of_isn.capture_isn_matches(FilterEntry::short_isn(*number))).unwrap()
}

#[test]
fn a_syn_ack_that_its_client_does_not_follow_opens_nothing() {
    for key in KEYS.map(|key| key()) {
        // The last three agree with a forged number in the eight bits that the capture side keeps of it.
        for (kind, forged, isn) in [
            (SignalKind::Ack, &[FORGED][..], ISN),
            (SignalKind::Alive, &[FORGED], ISN),
            (SignalKind::Completes, &[FORGED], like(FORGED)),
            (SignalKind::Completes, &[FORGED, 5 << 20], like(FORGED)),
            (SignalKind::Completes, &[5 << 20, FORGED], like(FORGED)),
        ] {
            let mut scene = Scene::new(config());
            forged.iter().for_each(|forged| assert_eq!(scene.send(key, Server, SignalKind::SynAck, *forged), None));
            assert_eq!(scene.send(key, Client, kind, isn), None, "{kind:?}");
            assert_eq!(scene.send(key, Client, kind, FORGED), Some(Event::Open(key, tick(&scene))), "{kind:?}");
        }
    }
}

#[test]
fn copies_of_the_handshake_before_contradict_nothing() {
    for key in KEYS.map(|key| key()) {
        for begun in ["7SaC", "7Sa", "7a"] {
            let mut scene = Scene::new(config());
            assert_eq!(scene.play(key, "3SaCFf+").len(), 2);
            let start = tick(&scene);
            let mut events = scene.play(key, begun);
            scene.pass(u64::from(LINGER_TICKS) - 1);
            // The SYN-ACK, and data that follows the client's number.
            events.extend(scene.play(key, "3aC7aC"));
            assert_eq!(events, [Event::Open(key, start)], "{begun}");
        }
        // Later it is another connection.
        let mut scene = Scene::new(config());
        scene.play(key, "3SaCFf+7SaC");
        scene.pass(u64::from(LINGER_TICKS) + 1);
        assert!(matches!(scene.play(key, "3aC")[..], [Event::Replace(..)]));
    }
}

#[test]
fn a_client_that_denies_a_forged_syn_ack_goes_on_with_what_a_forged_rst_had_ended() {
    for key in KEYS.map(|key| key()) {
        let mut scene = Scene::new(config());
        let start = tick(&scene);
        assert_eq!(scene.play(key, "7SaD+r").len(), 2);
        scene.pass(u64::from(LINGER_TICKS) + 3);
        scene.send(key, Server, SignalKind::SynAck, FORGED);
        assert_eq!(scene.send(key, Client, SignalKind::Ack, ISN), Some(Event::Reopen(key, start)));
    }
}

#[test]
fn a_fin_behind_a_forged_syn_ack_ends_what_it_is_of() {
    for key in KEYS.map(|key| key()) {
        let mut scene = Scene::new(config());
        assert_eq!(scene.play(key, "7SaDr").len(), 2);
        scene.play(key, "F");
        scene.send(key, Server, SignalKind::SynAck, FORGED);
        assert_eq!(scene.play(key, "f"), []);
        assert_eq!(scene.send(key, Client, SignalKind::Ack, ISN), None, "both have ended");
    }
}

#[test]
fn a_first_packet_behind_lost_ones_is_not_of_the_connection_before() {
    for key in KEYS.map(|key| key()) {
        for is_syn_seen in [true, false] {
            let mut scene = Scene::new(config());
            assert_eq!(scene.play(key, "7SaD+r").len(), 2);
            scene.pass(3);
            // Nothing answers this one.
            scene.send(key, Client, SignalKind::Syn, FORGED);
            scene.pass(8);
            let mut start = tick(&scene);
            if is_syn_seen {
                scene.send(key, Client, SignalKind::Syn, ISN);
            }
            scene.pass(1);
            if !is_syn_seen {
                start = tick(&scene);
            }
            scene.send(key, Server, SignalKind::SynAck, ISN);
            scene.pass(1);
            let opened = scene.send(key, Client, SignalKind::Ack, ISN + 854);
            assert_eq!(opened, Some(Event::Open(key, start)), "SYN seen: {is_syn_seen}");
        }
        // Where a SYN-ACK was forged meanwhile.
        let mut scene = Scene::new(config());
        assert_eq!(scene.play(key, "7SaD+r").len(), 2);
        scene.pass(u64::from(LINGER_TICKS) + 3);
        let start = tick(&scene);
        scene.send(key, Client, SignalKind::Syn, ISN);
        scene.pass(1);
        scene.send(key, Server, SignalKind::SynAck, ISN);
        scene.send(key, Server, SignalKind::SynAck, FORGED);
        let opened = scene.send(key, Client, SignalKind::Ack, ISN + 854);
        assert_eq!(opened, Some(Event::Open(key, start)));
    }
}

#[test]
fn a_server_ends_the_one_of_two_handshakes_that_it_acknowledges() {
    for key in KEYS.map(|key| key()) {
        // Data of the client may have been lost that the FIN acknowledges.
        for acknowledged in [ISN, ISN + 500] {
            for ends_with_answer in [false, true] {
                let mut scene = Scene::new(config());
                for isn in [FORGED, ISN] {
                    scene.send(key, Client, SignalKind::Syn, isn);
                    scene.send(key, Server, SignalKind::SynAck, isn);
                }
                let start = tick(&scene);
                assert_eq!(scene.send_fin_before_answer(key, Server, acknowledged), None);
                if ends_with_answer {
                    let passed = scene.send(key, Client, SignalKind::Fin, ISN);
                    assert_eq!(passed, Some(Event::Pass(key, start)));
                } else {
                    let opened = scene.send(key, Client, SignalKind::Completes, ISN);
                    assert_eq!(opened, Some(Event::Open(key, start)));
                    assert_eq!(scene.send(key, Client, SignalKind::Fin, ISN + 900), Some(Event::Close(key, start)));
                }
                assert_eq!(scene.half_open(), []);
            }
        }
    }
}

#[test]
fn what_goes_on_behind_a_forged_rst_in_its_handshake_is_not_the_connection_before() {
    for key in KEYS.map(|key| key()) {
        let mut scene = Scene::new(config());
        assert_eq!(scene.play(key, "7SaDFf+").len(), 2, "one that has opened and closed");
        let start = tick(&scene);
        scene.send(key, Client, SignalKind::Syn, ISN);
        scene.send(key, Server, SignalKind::SynAck, ISN);
        assert_eq!(scene.send(key, Client, SignalKind::Rst, 0), None);
        scene.play(key, "++");
        assert_eq!(scene.send(key, Client, SignalKind::Alive, ISN), Some(Event::Open(key, start)));
        assert_eq!(scene.send(key, Server, SignalKind::Fin, FORGED), None);
        assert_eq!(scene.send(key, Client, SignalKind::Fin, ISN + 900), Some(Event::Close(key, start)));
    }
}

#[test]
fn what_goes_on_behind_a_forged_rst_in_its_handshake_has_begun_though_nothing_was_before() {
    for key in KEYS.map(|key| key()) {
        let mut scene = Scene::new(config());
        scene.send(key, Server, SignalKind::SynAck, ISN);
        let start = tick(&scene);
        assert_eq!(scene.send(key, Client, SignalKind::Rst, 0), None);
        scene.play(key, "++");
        assert_eq!(scene.send(key, Client, SignalKind::Alive, FORGED), None);
        assert_eq!(scene.send(key, Client, SignalKind::Alive, ISN), Some(Event::Open(key, start)));
    }
}

#[test]
fn where_another_has_begun_for_certain_a_forged_syn_ack_does_not_bring_back_the_one_before() {
    for (key, is_certain) in [false, true].into_iter().flat_map(|is_certain| KEYS.map(|key| (key(), is_certain))) {
        for (shown_by, kind) in [(Server, SignalKind::Ack), (Server, SignalKind::Fin), (Client, SignalKind::Ack)] {
            let mut scene = Scene::new(config());
            assert_eq!(scene.play(key, "7SaDr").len(), 2, "one that its server has reset");
            scene.pass(u64::from(LINGER_TICKS) + 1);
            scene.send(key, Client, SignalKind::Syn, ISN);
            assert_eq!(
                match is_certain {
                    true => scene.send_beginning(key, shown_by, kind, ISN),
                    false => scene.send(key, shown_by, kind, ISN),
                },
                None
            );
            scene.pass(SYN_TIMEOUT_TICKS + 1);
            // In the client's name: who seems to be the client of another says where it is.
            scene.send(key, Client, SignalKind::SynAck, FORGED);
            let answer = scene.send(key, Server, SignalKind::Ack, ISN);
            assert_eq!(matches!(answer, Some(Event::Reopen(..))), !is_certain, "{shown_by:?} {kind:?}");
        }
    }
}

#[test]
fn what_takes_the_place_of_another_and_ends_with_one_packet_has_opened_and_closed() {
    for key in KEYS.map(|key| key()) {
        let mut scene = Scene::new(config());
        let first = tick(&scene);
        assert_eq!(scene.play(key, "7SaD+").len(), 1);
        let second = tick(&scene);
        scene.send(key, Server, SignalKind::SynAck, ISN);
        assert_eq!(scene.send_fin_before_answer(key, Server, ISN + 3_000), None);
        let event = scene.send(key, Client, SignalKind::Fin, ISN);
        assert_eq!(event, Some(Event::CloseAndPass((key, first), (key, second))));
        assert_eq!((scene.counts().opened, scene.counts().closed), (2, 2));
    }
}

#[test]
fn what_acknowledges_neither_a_syn_nor_its_data_starts_where_it_is_seen() {
    for key in KEYS.map(|key| key()) {
        for (acknowledged, has_data, is_of_syn) in
            [(ISN, false, true), (ISN + 900, false, false), (ISN + 900, true, true), (FORGED, true, false)]
        {
            let mut scene = Scene::new(config());
            let syn_tick = tick(&scene);
            let AnyKey::V4(v4) = key else { continue };
            let syn = signal(&scene.hash_v4, &v4, Client, (scene.tick, SignalKind::Syn, ISN)).with_data(has_data);
            assert_eq!(scene.tracker.handle(&syn), None);
            scene.pass(4);
            scene.send(key, Server, SignalKind::SynAck, acknowledged);
            let start = if is_of_syn { syn_tick } else { tick(&scene) };
            scene.pass(1);
            let opened = scene.send(key, Client, SignalKind::Completes, acknowledged);
            assert_eq!(opened, Some(Event::Open(key, start)), "{acknowledged} {has_data}");
        }
    }
}

#[test]
fn what_goes_on_long_after_its_end_is_midstream() {
    for key in KEYS.map(|key| key()) {
        for (pause_ticks, is_midstream) in [(100_000, false), (700_000, true), (3 << 20, true)] {
            let mut scene = Scene::new(config());
            let start = tick(&scene);
            assert_eq!(scene.play(key, "7SaD+r").len(), 2);
            scene.pass(pause_ticks);
            let payload = if is_midstream { tick(&scene) | MIDSTREAM } else { start };
            assert_eq!(scene.send(key, Server, SignalKind::Alive, ISN), Some(Event::Reopen(key, payload)));
        }
    }
}
