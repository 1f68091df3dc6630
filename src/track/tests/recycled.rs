//! Handshakes that a flood has pushed out of the ring while the capture side still waits for their answers.

use super::*;
use Sender::{Client, Server};

const ISN: u32 = 7 << 20;

/// A tracker whose ring has recycled the handshake of this connection.
fn flooded(key: AnyKey, begun: &str) -> Scene {
    let mut scene = Scene::new(TrackerConfig { half_open_count: 64, ..config() });
    assert_eq!(scene.play(key, begun), []);
    for number in 100..1_000 {
        assert_eq!(scene.send(any_key(number), Client, SignalKind::Syn, ISN), None);
    }
    assert!(!scene.half_open().iter().any(|record| record.key == key));
    scene.pass(1);
    scene
}

#[test]
fn a_client_that_is_waited_for_opens_its_connection_at_an_unknown_start() {
    for key in [v4(1), v4(2), v6(1), v6(2)] {
        let mut scene = flooded(key, "7Sa");
        assert_eq!(scene.send(key, Client, SignalKind::Ack, ISN + 1_000), None, "a packet of an unknown connection");
        let opened = scene.send_awaited(key, SignalKind::Ack, ISN + 1_000);
        assert_eq!(opened, Some(Event::Open(key, FilterEntry::tick_of(scene.tick) | MIDSTREAM)));
        assert_eq!(scene.send_awaited(key, SignalKind::Ack, ISN), None, "it is open");
        assert!(matches!(scene.play(key, "Ff")[..], [Event::Close(..)]));
    }
}

#[test]
fn a_client_that_is_waited_for_may_end_with_its_first_packet() {
    for key in [v4(1), v4(2), v6(1), v6(2)] {
        let mut scene = flooded(key, "7Sa");
        let opened = FilterEntry::tick_of(scene.tick) | MIDSTREAM;
        assert_eq!(scene.send_awaited(key, SignalKind::Fin, ISN), Some(Event::Open(key, opened)));
        assert_eq!(scene.send(key, Server, SignalKind::Fin, 5), Some(Event::Close(key, opened)));
    }
}

#[test]
fn a_client_that_denies_a_forged_syn_ack_opens_nothing() {
    for key in [v4(1), v6(2)] {
        // This one, to which no SYN was seen, is known whole.
        let mut scene = flooded(key, "7a");
        assert_eq!(scene.send_awaited(key, SignalKind::Ack, 1 << 30), None);
        assert!(matches!(scene.send_awaited(key, SignalKind::Ack, ISN + 3), Some(Event::Open(..))));
    }
}

#[test]
fn an_answer_opens_in_place_of_a_forged_syn_ack_that_came_between() {
    for key in [v4(1), v4(2), v6(1), v6(2)] {
        // The forged one took the place of what the ring had forgotten.
        let mut scene = flooded(key, "7Sa");
        assert_eq!(scene.send(key, Server, SignalKind::SynAck, 9 << 21), None);
        assert!(scene.half_open().iter().any(|record| record.key == key));
        let opened = Event::Open(key, FilterEntry::tick_of(scene.tick));
        assert_eq!(scene.send(key, Client, SignalKind::Completes, ISN), Some(opened));
        assert!(!scene.half_open().iter().any(|record| record.key == key));
        assert_eq!(scene.send(key, Client, SignalKind::Ack, ISN + 1_000), None, "nor is it contested");
        assert!(matches!(scene.play(key, "Ff")[..], [Event::Close(..)]));
    }
}

#[test]
fn the_fin_of_a_server_before_the_answer_counts() {
    for key in [v4(1), v4(2), v6(1), v6(2)] {
        for (kind, isn) in [(SignalKind::Completes, ISN), (SignalKind::Ack, ISN + 1_000)] {
            let mut scene = flooded(key, "7Sa");
            assert_eq!(scene.send_fin_before_answer(key, Server, ISN), None);
            let start = FilterEntry::tick_of(scene.tick);
            assert!(scene.half_open().iter().any(|record| record.key == key && record.answered));
            scene.pass(1);
            assert_eq!(scene.send_awaited(key, kind, isn), Some(Event::Open(key, start)), "{kind:?}");
            assert_eq!(scene.send(key, Client, SignalKind::Fin, isn), Some(Event::Close(key, start)), "{kind:?}");
        }
        let mut scene = flooded(key, "7Sa");
        assert_eq!(scene.send(key, Server, SignalKind::Fin, ISN), None, "nobody waits");
        assert_eq!(scene.counts().unmatched_fins, 1);
    }
}
