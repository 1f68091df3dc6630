//! The tracker against a plain machine on whole keys: the table in the tracker's documentation, written out.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    SynSent,
    Answered,
    Open,
    Closed,
}

#[derive(Clone, Debug)]
struct Known {
    stage: Stage,
    client: Sender,
    number: u32,
    start: u64,
    /// What its timeout counts from.
    since: u64,
    /// Who was seen, and who has sent a FIN.
    heard: Vec<Sender>,
    ended: Vec<Sender>,
}

#[derive(Default)]
struct Machine {
    one_way: bool,
    known: BTreeMap<u32, Known>,
    opened: u64,
    closed: u64,
}

fn other(sender: Sender) -> Sender {
    if sender == Sender::Client { Sender::Server } else { Sender::Client }
}

/// A packet; here `Sender::Client` is only the end that the key names first, whatever its part in the connection.
#[derive(Clone, Copy, Debug)]
struct Packet {
    connection: u32,
    sender: Sender,
    kind: Kind,
    number: u32,
    pause_ticks: u64,
}

impl Machine {
    fn forget(&mut self, now: u64) {
        self.known.retain(|_, known| {
            let age = now - known.since;
            match known.stage {
                Stage::Open => true,
                Stage::Closed => age <= u64::from(LINGER_TICKS),
                Stage::SynSent | Stage::Answered => age <= SYN_TIMEOUT_TICKS,
            }
        });
    }

    /// The openings (true) and closings that a packet makes, each with the client and the start.
    fn step(&mut self, packet: Packet, now: u64) -> Vec<(bool, Sender, u64)> {
        self.forget(now);
        let before = self.known.remove(&packet.connection);
        let (after, events) = match packet.kind {
            Kind::Syn => (Some(after_syn(before, packet, now)), vec![]),
            Kind::SynAck => after_syn_ack(before, packet, now),
            Kind::Ack => after_data(before, packet, self.one_way),
            Kind::Fin => after_fin(before, packet, now),
            Kind::Rst => after_rst(before, now),
        };
        self.opened += events.iter().filter(|event| event.0).count() as u64;
        self.closed += events.iter().filter(|event| !event.0).count() as u64;
        self.known.extend(after.map(|known| (packet.connection, known)));
        events
    }
}

type After = (Option<Known>, Vec<(bool, Sender, u64)>);

fn fresh(stage: Stage, client: Sender, packet: Packet, now: u64) -> Known {
    let Packet { sender, number, .. } = packet;
    Known { stage, client, number, start: now, since: now, heard: vec![sender], ended: vec![] }
}

fn after_syn(before: Option<Known>, packet: Packet, now: u64) -> Known {
    let new = fresh(Stage::SynSent, packet.sender, packet, now);
    match before {
        None => new,
        Some(known) => match known.stage {
            Stage::SynSent if known.number != packet.number && known.client == packet.sender => new,
            Stage::Closed if known.number != packet.number => new,
            _ => known,
        },
    }
}

fn after_syn_ack(before: Option<Known>, packet: Packet, now: u64) -> After {
    let answered = fresh(Stage::Answered, other(packet.sender), packet, now);
    let Some(mut known) = before else { return (Some(answered), vec![]) };
    let is_same = known.number == packet.number;
    match known.stage {
        Stage::SynSent if known.client != packet.sender => {
            known.stage = Stage::Answered;
            known.since = now;
            known.heard.push(packet.sender);
        }
        Stage::Closed if !is_same => known = answered,
        Stage::Open if !is_same => return (Some(answered), vec![(false, known.client, known.start)]),
        Stage::Open if known.client != packet.sender => known.heard.push(packet.sender),
        _ => {}
    }
    (Some(known), vec![])
}

fn after_data(before: Option<Known>, packet: Packet, one_way: bool) -> After {
    let Some(mut known) = before else { return (None, vec![]) };
    let from_client = packet.sender == known.client;
    let is_unheard = !known.heard.contains(&known.client);
    let opens = match known.stage {
        Stage::Answered => from_client || one_way && is_unheard && known.ended.is_empty(),
        Stage::SynSent => from_client && one_way,
        Stage::Open => {
            known.heard.push(packet.sender);
            false
        }
        Stage::Closed => false,
    };
    if !opens {
        return (Some(known), vec![]);
    }
    known.stage = Stage::Open;
    known.heard.push(packet.sender);
    let event = (true, known.client, known.start);
    (Some(known), vec![event])
}

fn after_fin(before: Option<Known>, packet: Packet, now: u64) -> After {
    let Some(mut known) = before else { return (None, vec![]) };
    let was_open = known.stage == Stage::Open;
    let opening = (true, known.client, known.start);
    let closing = (false, known.client, known.start);
    match known.stage {
        Stage::SynSent => return (None, vec![]),
        Stage::Closed => return (Some(known), vec![]),
        Stage::Answered if packet.sender == known.client => known.stage = Stage::Open,
        Stage::Answered | Stage::Open => {}
    }
    known.heard.push(packet.sender);
    known.ended.push(packet.sender);
    let is_over = known.stage == Stage::Open && known.heard.iter().all(|sender| known.ended.contains(sender));
    if is_over {
        known.stage = Stage::Closed;
        known.since = now;
    }
    let events = match (was_open, is_over) {
        (true, true) => vec![closing],
        (false, true) => vec![opening, closing],
        (false, false) if known.stage == Stage::Open => vec![opening],
        _ => vec![],
    };
    (Some(known), events)
}

fn after_rst(before: Option<Known>, now: u64) -> After {
    match before {
        Some(known) if known.stage == Stage::Open => {
            let event = (false, known.client, known.start);
            (Some(Known { stage: Stage::Closed, since: now, ..known }), vec![event])
        }
        Some(known) if known.stage == Stage::Closed => (Some(known), vec![]),
        _ => (None, vec![]),
    }
}

fn oriented(connection: u32, client: Sender) -> AnyKey {
    match (any_key(connection), client) {
        (key, Sender::Client) => key,
        (AnyKey::V4(key), Sender::Server) => AnyKey::V4(key.reversed()),
        (AnyKey::V6(key), Sender::Server) => AnyKey::V6(key.reversed()),
    }
}

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let kind = prop_oneof![
        3 => Just(Kind::Syn), 3 => Just(Kind::SynAck), 4 => Just(Kind::Ack), 2 => Just(Kind::Fin), 1 => Just(Kind::Rst)
    ];
    let pause = prop_oneof![8 => Just(0u64), 4 => 1u64..4, 1 => LINGER_TICKS as u64 - 1..SYN_TIMEOUT_TICKS + 2];
    let packet = (0u32..5, any::<bool>(), kind, 1u32..3, pause).prop_map(|(connection, first, kind, number, pause)| {
        let sender = if first { Sender::Client } else { Sender::Server };
        Packet { connection, sender, kind, number, pause_ticks: pause }
    });
    prop::collection::vec(packet, 1..300)
}

fn agrees(packets: &[Packet], one_way: bool) {
    let mut scene = Scene::new(TrackerConfig { one_way_max: if one_way { 100 } else { 0 }, ..config() });
    let mut machine = Machine { one_way, ..Machine::default() };
    for &packet in packets {
        scene.pass(packet.pause_ticks);
        let Packet { connection, sender, kind, number, .. } = packet;
        let event = scene.send(any_key(connection), sender, kind, number);
        let expected = machine.step(packet, scene.tick);
        // What opens and closes with one packet is counted, but there is nothing to tell.
        let told = if expected.len() == 2 { None } else { expected.first() };
        let told = told.map(|&(is_open, client, start)| {
            let (key, payload) = (oriented(connection, client), Entry::tick_of(start));
            if is_open { Event::Open(key, payload) } else { Event::Close(key, payload) }
        });
        assert_eq!(event, told, "{packet:?} at {}", scene.tick);
        assert_eq!((scene.counts().opened, scene.counts().closed), (machine.opened, machine.closed));
        let half_open: BTreeSet<_> = scene
            .half_open()
            .iter()
            .map(|record| (record.key, record.start_tick, record.since_tick, record.answered, record.number))
            .collect();
        let waiting = machine.known.iter().filter(|(_, known)| matches!(known.stage, Stage::SynSent | Stage::Answered));
        let waiting: BTreeSet<_> = waiting
            .map(|(connection, known)| {
                let key = oriented(*connection, known.client);
                let is_answered = known.stage == Stage::Answered;
                (key, known.start, known.since, is_answered, Entry::number_of(known.number))
            })
            .collect();
        assert_eq!(half_open, waiting, "{packet:?} at {}", scene.tick);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_tracker_is_the_table(packets in packets()) {
        agrees(&packets, false);
    }

    #[test]
    fn the_tracker_is_the_table_with_one_side_alone(packets in packets()) {
        agrees(&packets, true);
    }
}
