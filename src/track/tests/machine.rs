//! The tracker against a plain machine on whole keys: the table in the tracker's documentation, written out.

use super::*;
use crate::handover::SidesSeen;
use crate::track::tracker::REPEATED_ONCE_MAX_TICKS;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Candidate,
    SynSent,
    Answered,
    Open,
    Closed,
}

#[derive(Clone, Debug)]
struct Known {
    stage: Stage,
    client: Sender,
    /// Zero for a connection of which the start was not seen.
    isn: u32,
    start: u64,
    /// The tick from which its timeout counts.
    since: u64,
    /// The sides that were seen, those that have sent a FIN, and those that have sent a RST.
    heard: Vec<Sender>,
    ended: Vec<Sender>,
    reset: Vec<Sender>,
    /// Whether it began with a SYN-ACK.
    is_unseen: bool,
    /// Whether the client has answered a SYN-ACK that was not seen yet.
    has_answered: bool,
    /// When its handshake came again after the end.
    again: Option<u64>,
}

#[derive(Default)]
struct Machine {
    rules: Rules,
    known: BTreeMap<u32, Known>,
    /// The connections that have ended, as they were when they had.
    ended: BTreeMap<u32, Known>,
    /// The handshakes that contradict a connection.
    rivals: BTreeMap<u32, Vec<Shown>>,
    opened: u64,
    reopened: u64,
    closed: u64,
}

/// A handshake that contradicts a connection: its client and ISN, and when it was shown last and first.
#[derive(Clone, Copy, Debug)]
struct Shown {
    client: Sender,
    isn: u32,
    since: u64,
    start: u64,
    has_server_fin: bool,
}

#[derive(Clone, Copy, Default)]
struct Rules {
    one_way: bool,
    pickup: bool,
    answer_opens: bool,
}

fn other(sender: Sender) -> Sender {
    if sender == Sender::Client { Sender::Server } else { Sender::Client }
}

/// A packet; here `Sender::Client` is only the end that the key names first, client or server.
#[derive(Clone, Copy, Debug)]
struct Packet {
    connection: u32,
    sender: Sender,
    kind: SignalKind,
    isn: u32,
    /// Of a FIN of what is known: whether the capture side waits for the answer of the other side, whose ISN this is.
    is_before_answer: bool,
    /// Of a FIN or a packet without a flag: whether it shows that another connection has begun than the one that had
    /// ended.
    begins_another: bool,
    pause_ticks: u64,
}

impl Machine {
    fn forget(&mut self, now: u64) {
        let rules = self.rules;
        self.known.retain(|_, known| {
            let age = now - known.since;
            match known.stage {
                Stage::Open => true,
                Stage::Closed => age <= u64::from(LINGER_TICKS),
                Stage::Candidate => age <= CANDIDATE_TIMEOUT_TICKS,
                Stage::Answered if rules.one_way && is_shown_shortly(known) => age <= PRESUMED_TICKS,
                Stage::SynSent | Stage::Answered => age <= SYN_TIMEOUT_TICKS,
            }
        });
    }

    /// A packet whose sender has not ended, although it seemed so, and the connection that it opens again.
    fn reopened(&mut self, packet: Packet) -> Option<Known> {
        let is_other = self.known.get(&packet.connection).is_some_and(|known| match known.stage {
            Stage::Open | Stage::Answered => true,
            Stage::SynSent => known.client == packet.sender,
            Stage::Closed | Stage::Candidate => false,
        });
        if packet.kind == SignalKind::Alive && !is_other { self.take_back(packet) } else { None }
    }

    /// The handshakes that contradict the connection of a packet, of which its sender is the client.
    fn rivals_of(&self, packet: Packet, now: u64) -> Vec<Shown> {
        let rivals = self.rivals.get(&packet.connection).into_iter().flatten().copied();
        rivals.filter(|rival| rival.client == packet.sender && now - rival.since <= SYN_TIMEOUT_TICKS).collect()
    }

    /// Of these, those that contradict an open connection: neither its own nor one before.
    fn rivals_of_open(&self, packet: Packet, known: &Known, now: u64) -> Vec<Shown> {
        let is_later =
            |rival: &Shown| (rival.client, rival.isn) != (known.client, known.isn) && rival.since >= known.start;
        self.rivals_of(packet, now).into_iter().filter(is_later).collect()
    }

    /// The start of the handshake that a packet answers, if one is kept, and otherwise the present; and who has ended
    /// it.
    fn start_of(&self, packet: Packet, now: u64) -> (u64, Vec<Sender>) {
        let rivals = self.rivals_of(packet, now);
        let answered = rivals.iter().find(|rival| rival.isn == packet.isn);
        answered.map_or((now, vec![]), |rival| (rival.start, server_fin(rival)))
    }

    /// Keeps a handshake that contradicts its connection, and returns whether the connection stays as it is.
    fn is_contradicted(&mut self, packet: Packet, now: u64) -> bool {
        let Some(known) = self.known.get(&packet.connection) else { return false };
        let client = if packet.kind == SignalKind::Syn { packet.sender } else { other(packet.sender) };
        let is_open = known.stage == Stage::Open && is_both(known) && !self.rules.answer_opens;
        let is_other = (known.client, known.isn) != (client, packet.isn);
        let (is_contradicted, stays) = match (packet.kind, known.stage) {
            (SignalKind::Syn | SignalKind::SynAck, Stage::SynSent) if known.client != client => (true, true),
            // What takes the place of a SYN.
            (SignalKind::Syn, Stage::SynSent) => (is_other, false),
            // Its client has answered its own already.
            (SignalKind::SynAck, Stage::SynSent) => {
                (is_other && !self.rules.answer_opens, is_other && !self.rules.answer_opens && known.has_answered)
            }
            (SignalKind::Syn, Stage::Answered) => (is_other, !known.is_unseen),
            (SignalKind::SynAck, Stage::Answered) if is_presumed(known, now, self.rules) => (false, false),
            (SignalKind::SynAck, Stage::Answered) => (is_other, true),
            (SignalKind::SynAck, _) => (known.isn != packet.isn && is_open, is_open),
            (SignalKind::Syn, _) => (known.isn != packet.isn && known.stage != Stage::Open, false),
            _ => (false, false),
        };
        // What comes again of the connection before is no other.
        if is_contradicted && !(stays && self.is_former(packet, client, now)) {
            self.put_rival(packet.connection, (client, packet.isn), now);
        }
        is_contradicted && stays
    }

    /// Whether a packet has the client and number of the connection that ended lately between its ends.
    fn is_former(&self, packet: Packet, client: Sender, now: u64) -> bool {
        self.ended.get(&packet.connection).is_some_and(|before| {
            (before.client, before.isn) == (client, packet.isn) && now - before.since <= u64::from(LINGER_TICKS)
        })
    }

    /// Keeps the handshake of a SYN-ACK that is the first packet of its connection.
    fn keep_unseen(&mut self, packet: Packet, now: u64) {
        let begins = self.known.get(&packet.connection).is_none_or(|known| match known.stage {
            Stage::Candidate => true,
            Stage::Closed | Stage::Open => known.isn != packet.isn,
            Stage::Answered => {
                is_presumed(known, now, self.rules) && (known.client, known.isn) != (other(packet.sender), packet.isn)
            }
            Stage::SynSent => false,
        });
        if packet.kind == SignalKind::SynAck && begins && !self.rules.answer_opens {
            self.put_rival(packet.connection, (other(packet.sender), packet.isn), now);
        }
    }

    fn put_rival(&mut self, connection: u32, (client, isn): (Sender, u32), now: u64) {
        let rivals = self.rivals.entry(connection).or_default();
        let is_same = |rival: &Shown| (rival.client, rival.isn) == (client, isn);
        let before = rivals.iter().find(|rival| is_same(rival) && now - rival.since <= SYN_TIMEOUT_TICKS);
        let start = before.map_or(now, |before| before.start.max(now - RIVAL_DELAY_MAX));
        let has_server_fin = before.is_some_and(|before| before.has_server_fin);
        rivals.retain(|rival| !is_same(rival));
        rivals.push(Shown { client, isn, since: now, start, has_server_fin });
    }

    /// Whether a packet shows that the SYN-ACK with which its connection began was none of its server's.
    fn is_refuted(&self, packet: Packet, now: u64) -> bool {
        let may_refute = matches!(packet.kind, SignalKind::Ack | SignalKind::Alive | SignalKind::Fin);
        let is_other = self.known.get(&packet.connection).is_some_and(|known| {
            known.stage == Stage::Answered
                && known.is_unseen
                && known.client == packet.sender
                && known.isn != packet.isn
        });
        may_refute && is_other && self.follows_none(packet, now)
    }

    /// Whether there are handshakes that contradict the connection of a packet, and it follows none of them.
    fn follows_none(&self, packet: Packet, now: u64) -> bool {
        let rivals = self.rivals_of(packet, now);
        !rivals.is_empty() && rivals.iter().all(|rival| rival.isn != packet.isn)
    }

    /// The start of the connection that a packet opens because it answers another handshake than the one under way.
    fn answered(&mut self, packet: Packet, now: u64) -> Option<u64> {
        let known = self.known.get(&packet.connection)?;
        let is_half_open = matches!(known.stage, Stage::SynSent | Stage::Answered);
        let is_plain = matches!(packet.kind, SignalKind::Ack | SignalKind::Completes | SignalKind::Alive);
        let is_own = (known.client, known.isn) == (packet.sender, packet.isn);
        if !is_half_open || !is_plain || is_own {
            return None;
        }
        let rivals = self.rivals_of(packet, now);
        let answered = rivals.iter().find(|rival| rival.isn == packet.isn)?;
        let (start, ended) = (answered.start, server_fin(answered));
        let new = Known { start, ended, heard: BOTH.into(), ..fresh(Stage::Open, packet.sender, packet, now) };
        self.known.insert(packet.connection, new);
        self.rivals.remove(&packet.connection);
        Some(start)
    }

    /// What a packet says about the handshakes that contradict its open connection: the events, if it says anything.
    fn judged(&mut self, packet: Packet, now: u64) -> Option<Vec<(bool, Sender, u64)>> {
        let known = self.known.get(&packet.connection).filter(|known| known.stage == Stage::Open && is_both(known))?;
        let rivals = self.rivals_of_open(packet, known, now);
        let is_plain = match packet.kind {
            SignalKind::Ack => true,
            SignalKind::Alive => !is_marked(known, packet.sender),
            SignalKind::Completes => !rivals.is_empty() || known.isn == packet.isn,
            _ => false,
        };
        let answered = rivals.iter().find(|rival| is_plain && rival.isn == packet.isn)?;
        let Shown { client, isn, start, .. } = *answered;
        let closed = (false, known.client, known.start);
        let ended = server_fin(answered);
        let new = Known { start, ended, ..fresh(Stage::Open, client, Packet { isn, ..packet }, now) };
        self.known.insert(packet.connection, Known { heard: BOTH.into(), ..new });
        self.rivals.remove(&packet.connection);
        Some(vec![closed, (true, client, start)])
    }

    /// What a FIN does to the handshakes that contradict its connection: the events, if it is of one of them.
    fn contested_fin(&mut self, packet: Packet, now: u64) -> Option<Vec<(bool, Sender, u64)>> {
        let is_contested = |known: &&Known| match known.stage {
            Stage::Open => is_both(known),
            Stage::SynSent | Stage::Answered => true,
            Stage::Closed | Stage::Candidate => false,
        };
        let known = self.known.get(&packet.connection).filter(is_contested)?;
        if packet.kind != SignalKind::Fin {
            return None;
        }
        let is_open = known.stage == Stage::Open;
        let mut rivals = if is_open { self.rivals_of_open(packet, known, now) } else { self.rivals_of(packet, now) };
        rivals.retain(|rival| (rival.client, rival.isn) != (known.client, known.isn));
        if let Some(answered) = rivals.iter().find(|rival| rival.isn == packet.isn) {
            let closed = (false, known.client, known.start);
            let opened = (true, packet.sender, answered.start);
            let ended = [vec![packet.sender], server_fin(answered)].concat();
            let is_over = answered.has_server_fin;
            let stage = if is_over { Stage::Closed } else { Stage::Open };
            let new = fresh(stage, packet.sender, packet, now);
            let new = Known { start: answered.start, ended, heard: BOTH.into(), ..new };
            if is_over {
                self.ended.insert(packet.connection, new.clone());
            }
            self.known.insert(packet.connection, new);
            self.rivals.remove(&packet.connection);
            let passed = (false, packet.sender, answered.start);
            let events = [is_open.then_some(closed), Some(opened), is_over.then_some(passed)];
            self.closed += u64::from(is_open) + u64::from(is_over);
            self.opened += 1;
            return Some(events.into_iter().flatten().collect());
        }
        if !packet.is_before_answer {
            return None;
        }
        let client = other(packet.sender);
        let is_own = (known.client, known.isn) == (client, packet.isn);
        let rivals = self.rivals.get_mut(&packet.connection)?.iter_mut();
        let of_server = |rival: &&mut Shown| {
            (rival.client, rival.isn) == (client, packet.isn) && now - rival.since <= SYN_TIMEOUT_TICKS && !is_own
        };
        rivals.into_iter().find(of_server)?.has_server_fin = true;
        Some(vec![])
    }

    /// The connection that had ended, if this packet of an answered one is of it.
    fn gone_on(&mut self, packet: Packet, now: u64) -> Option<Known> {
        let known = self.known.get(&packet.connection)?;
        let is_first = known.stage == Stage::Answered && known.client == packet.sender && known.isn != packet.isn;
        let is_alive = packet.kind == SignalKind::Alive;
        if !is_first || packet.kind != SignalKind::Ack && !is_alive {
            return None;
        }
        let ended = self.ended.get(&packet.connection)?;
        let has_ended = BOTH.iter().all(|side| ended.ended.contains(side));
        let rivals = self.rivals_of(packet, now);
        let is_of = |isn: u32| rivals.iter().any(|rival| rival.isn == isn);
        let is_other = match (is_of(packet.isn), is_of(known.isn)) {
            (true, _) => false,
            (false, false) => is_alive && !has_ended,
            (false, true) => packet.kind != SignalKind::Ack || !has_ended,
        };
        if is_other { self.open_again(packet) } else { None }
    }

    /// Takes back the end of a packet's sender, and returns the connection unless a RST of the other side has ended it.
    fn take_back(&mut self, packet: Packet) -> Option<Known> {
        let ended = self.ended.get_mut(&packet.connection)?;
        if ended.reset.contains(&other(packet.sender)) {
            ended.ended.retain(|side| *side != packet.sender);
            ended.reset.retain(|side| *side != packet.sender);
            return None;
        }
        self.open_again(packet)
    }

    fn open_again(&mut self, packet: Packet) -> Option<Known> {
        let mut ended = self.ended.remove(&packet.connection)?;
        ended.ended.retain(|side| *side != packet.sender);
        Some(Known { stage: Stage::Open, heard: BOTH.into(), reset: vec![], ..ended })
    }

    /// Keeps what a FIN or RST has ended.
    fn keep_ended(&mut self, packet: Packet, before: Option<&Known>, after: Option<&Known>) {
        let stage = before.map(|known| known.stage);
        let is_trace = before.is_some_and(|known| known.stage == Stage::Closed && known.isn == 0);
        let closed = after.filter(|known| known.stage == Stage::Closed && stage != Some(Stage::Closed));
        let is_of_unseen = before.is_some_and(|known| {
            known.stage == Stage::Answered && known.is_unseen && known.client != packet.sender && known.ended.is_empty()
        });
        let known = self.ended.entry(packet.connection);
        match (packet.kind, stage) {
            (SignalKind::Fin, None | Some(Stage::Closed | Stage::SynSent)) => {
                known.and_modify(|known| known.ended.push(packet.sender));
            }
            // One of the other side finds it.
            (SignalKind::Fin, Some(Stage::Candidate)) if before.is_some_and(|known| known.client == packet.sender) => {
                known.and_modify(|known| known.ended.push(packet.sender));
            }
            (SignalKind::Fin, _) if is_of_unseen && closed.is_none() => {
                known.and_modify(|known| known.ended.push(packet.sender));
            }
            (SignalKind::Rst, None | Some(Stage::Closed | Stage::SynSent | Stage::Answered | Stage::Candidate))
                if !is_trace =>
            {
                known.and_modify(|known| known.reset.push(packet.sender));
            }
            (SignalKind::Fin | SignalKind::Rst, Some(Stage::Open | Stage::Answered)) => {
                let Some(closed) = closed.cloned() else { return };
                let is_fin = packet.kind == SignalKind::Fin;
                let ended = if is_fin { BOTH.into() } else { closed.ended.clone() };
                let reset = if is_fin { vec![] } else { vec![packet.sender] };
                known.insert_entry(Known { ended, reset, ..closed });
            }
            _ => {}
        }
    }

    /// The openings (true) and closings that a packet makes, each with the client and the start.
    fn step(&mut self, packet: Packet, now: u64) -> Vec<(bool, Sender, u64)> {
        self.forget(now);
        let stage = self.known.get(&packet.connection).map(|known| known.stage);
        if packet.begins_another && matches!(stage, Some(Stage::SynSent | Stage::Answered)) {
            self.ended.remove(&packet.connection);
        }
        if self.is_contradicted(packet, now) {
            return vec![];
        }
        if let Some(events) = self.contested_fin(packet, now) {
            return events;
        }
        if let Some(events) = self.judged(packet, now) {
            self.opened += 1;
            self.closed += 1;
            return events;
        }
        let reopened = self.reopened(packet);
        let goes_on = packet.kind == SignalKind::Alive && stage.is_none();
        let rivals = if goes_on { self.rivals_of(packet, now) } else { vec![] };
        if let Some(rival) = rivals.iter().find(|rival| rival.isn == packet.isn) {
            let new = fresh(Stage::Open, packet.sender, packet, now);
            let new = Known { start: rival.start, ended: server_fin(rival), heard: BOTH.into(), ..new };
            self.known.insert(packet.connection, new);
            self.opened += 1;
            return vec![(true, packet.sender, rival.start)];
        }
        if reopened.is_none()
            && let Some(start) = self.answered(packet, now)
        {
            self.opened += 1;
            return vec![(true, packet.sender, start)];
        }
        if let Some(known) = reopened.or_else(|| self.gone_on(packet, now)) {
            self.reopened += 1;
            let event = (true, known.client, known.start);
            self.known.insert(packet.connection, known);
            return vec![event];
        }
        if self.is_refuted(packet, now) {
            if packet.kind == SignalKind::Fin {
                self.ended.entry(packet.connection).and_modify(|known| known.ended.push(packet.sender));
            }
            return vec![];
        }
        self.keep_unseen(packet, now);
        let before = self.known.remove(&packet.connection);
        let open = before.as_ref().filter(|known| known.stage == Stage::Open && known.isn != packet.isn);
        let is_contested = open.is_some_and(|known| !self.rivals_of_open(packet, known, now).is_empty());
        let was = before.clone();
        let rules = self.rules;
        let is_candidate = before.as_ref().is_some_and(|known| known.stage == Stage::Candidate);
        let is_other = before.as_ref().is_some_and(|known| {
            let is_own = (known.client, known.isn) == (packet.sender, packet.isn);
            !is_own && !matches!(known.stage, Stage::Closed | Stage::Candidate)
        });
        let is_closed = before.as_ref().is_some_and(|known| known.stage == Stage::Closed && known.isn != packet.isn);
        // It only seems to follow the handshake that was forged before the end.
        let only_seems_to = is_closed && self.follows_none(packet, now);
        let is_former = is_other && self.is_former(packet, packet.sender, now);
        let (after, events) = match packet.kind {
            SignalKind::Ack | SignalKind::Alive | SignalKind::Fin | SignalKind::Rst if is_candidate => {
                after_candidate(before, packet, now)
            }
            SignalKind::Ack | SignalKind::Alive if before.is_none() && rules.pickup => {
                (Some(Known { isn: 0, ..fresh(Stage::Candidate, packet.sender, packet, now) }), vec![])
            }
            SignalKind::Fin | SignalKind::Rst if before.is_none() && rules.pickup => (Some(trace(packet, now)), vec![]),
            SignalKind::Syn => (Some(after_syn(before, packet, now)), vec![]),
            SignalKind::SynAck => after_syn_ack(before, packet, now, rules),
            SignalKind::Completes if is_contested => after_data(before, packet, rules.one_way),
            SignalKind::Completes if is_former || only_seems_to => (before, vec![]),
            SignalKind::Completes => after_completes(before, packet, (now, self.start_of(packet, now)), rules),
            SignalKind::Alive if before.as_ref().is_some_and(|known| is_marked(known, packet.sender)) => {
                let unmarked = before.map(|known| Known { ended: vec![], ..known });
                (unmarked, vec![])
            }
            SignalKind::Ack | SignalKind::Alive => after_data(before, packet, rules.one_way),
            SignalKind::Fin => after_fin(before, packet, now, rules),
            SignalKind::Rst => after_rst(before, now),
            SignalKind::Known => unreachable!("no packet makes one"),
        };
        self.keep_ended(packet, was.as_ref(), after.as_ref());
        // A closed connection has an ISN, even if only one that cannot come again.
        let after = after.map(|known| {
            let was_open = !events.is_empty() && known.stage == Stage::Closed && known.isn == 0;
            Known { isn: if was_open { u32::MAX } else { known.isn }, ..known }
        });
        self.opened += events.iter().filter(|event| event.0).count() as u64;
        self.closed += events.iter().filter(|event| !event.0).count() as u64;
        self.known.extend(after.map(|known| (packet.connection, known)));
        if was.is_some() && events.last().is_some_and(|event| event.0) {
            self.rivals.remove(&packet.connection);
        }
        events
    }
}

/// The ticks between the last and the first showing of a handshake that are kept.
const RIVAL_DELAY_MAX: u64 = 1_023;

type After = (Option<Known>, Vec<(bool, Sender, u64)>);

/// Whether this side of an open connection has sent a FIN, and the other has not.
fn is_marked(known: &Known, side: Sender) -> bool {
    known.stage == Stage::Open && known.ended.contains(&side)
}

/// The FIN of the server of a handshake, if it has sent one.
fn server_fin(rival: &Shown) -> Vec<Sender> {
    if rival.has_server_fin { vec![other(rival.client)] } else { vec![] }
}

/// Whether nothing was seen of a connection but a SYN-ACK, which was repeated shortly behind it at most.
fn is_shown_shortly(known: &Known) -> bool {
    known.stage == Stage::Answered && known.is_unseen && known.since - known.start <= REPEATED_ONCE_MAX_TICKS
}

/// Whether a connection is half-open still although its timeout has passed, because its server does not go on to
/// repeat its SYN-ACK.
fn is_presumed(known: &Known, now: u64, rules: Rules) -> bool {
    rules.one_way && is_shown_shortly(known) && now - known.since > SYN_TIMEOUT_TICKS
}

fn is_both(known: &Known) -> bool {
    BOTH.iter().all(|sender| known.heard.contains(sender))
}

fn fresh(stage: Stage, client: Sender, packet: Packet, now: u64) -> Known {
    let Packet { sender, isn, .. } = packet;
    Known {
        stage,
        client,
        isn,
        start: now,
        since: now,
        heard: vec![sender],
        ended: vec![],
        reset: vec![],
        is_unseen: stage == Stage::Answered,
        has_answered: false,
        again: None,
    }
}

fn after_syn(before: Option<Known>, packet: Packet, now: u64) -> Known {
    let new = fresh(Stage::SynSent, packet.sender, packet, now);
    match before {
        None => new,
        Some(known) => match known.stage {
            Stage::Candidate => new,
            Stage::SynSent if known.isn != packet.isn && known.client == packet.sender => new,
            Stage::SynSent if known.client == packet.sender && !known.has_answered => Known { since: now, ..known },
            Stage::Answered if (known.client, known.isn) != (packet.sender, packet.isn) => new,
            Stage::Closed if known.isn != packet.isn => new,
            Stage::Closed if known.client == packet.sender && now > known.since => {
                Known { since: now, again: Some(now), ..known }
            }
            _ => known,
        },
    }
}

fn after_syn_ack(before: Option<Known>, packet: Packet, now: u64, rules: Rules) -> After {
    let stage = if rules.answer_opens { Stage::Open } else { Stage::Answered };
    let answered = fresh(stage, other(packet.sender), packet, now);
    // Where no other packets are seen, the client counts as seen.
    let answered = if rules.answer_opens { Known { heard: BOTH.into(), ..answered } } else { answered };
    let opens: Vec<_> = rules.answer_opens.then_some((true, answered.client, now)).into_iter().collect();
    let Some(mut known) = before else { return (Some(answered), opens) };
    let is_same = known.isn == packet.isn;
    match known.stage {
        Stage::Candidate => return (Some(answered), opens),
        Stage::SynSent if known.client != packet.sender && (rules.answer_opens || known.has_answered) => {
            let event = (true, known.client, known.start);
            return (Some(Known { stage: Stage::Open, isn: packet.isn, heard: BOTH.into(), ..known }), vec![event]);
        }
        Stage::SynSent if known.client != packet.sender => {
            known.start = if is_same { known.start } else { now };
            known.isn = packet.isn;
            known.stage = Stage::Answered;
            known.since = now;
            known.heard.push(packet.sender);
        }
        Stage::Closed if !is_same => return (Some(answered), opens),
        Stage::Answered if is_presumed(&known, now, rules) && !(is_same && known.client != packet.sender) => {
            return (Some(answered), vec![]);
        }
        Stage::Open if !is_same => {
            return (Some(answered), [vec![(false, known.client, known.start)], opens].concat());
        }
        Stage::Open if known.client != packet.sender => known.heard.push(packet.sender),
        // Copies come within a tick.
        Stage::Answered if is_same && known.client != packet.sender && now > known.start => known.since = now,
        Stage::Closed if known.client != packet.sender && now > known.since && known.again.is_none() => {
            (known.since, known.again) = (now, Some(now));
        }
        _ => {}
    }
    (Some(known), vec![])
}

const BOTH: [Sender; 2] = [Sender::Client, Sender::Server];

/// The trace of a connection that ended without having been known.
fn trace(packet: Packet, now: u64) -> Known {
    Known { isn: 0, ..fresh(Stage::Closed, packet.sender, packet, now) }
}

/// Neither a SYN nor an answer comes of a candidate.
fn after_candidate(before: Option<Known>, packet: Packet, now: u64) -> After {
    let known = before.unwrap();
    match packet.kind {
        SignalKind::Ack | SignalKind::Alive if packet.sender == known.client => (Some(known), vec![]),
        SignalKind::Ack | SignalKind::Alive | SignalKind::Fin if packet.sender != known.client => {
            // In the keys here the end with the greater port comes first if their number is even.
            let client = if packet.connection.is_multiple_of(2) { Sender::Client } else { Sender::Server };
            let ended = if packet.kind == SignalKind::Fin { vec![packet.sender] } else { vec![] };
            let event = (true, client, known.start);
            (Some(Known { stage: Stage::Open, client, heard: BOTH.into(), ended, ..known }), vec![event])
        }
        _ => (Some(trace(packet, now)), vec![]),
    }
}

/// `start` is that of a connection that the packet opens anew, and `ended` who has ended it.
fn after_completes(
    before: Option<Known>,
    packet: Packet,
    (now, (start, ended)): (u64, (u64, Vec<Sender>)),
    rules: Rules,
) -> After {
    let anew = Known { start, ended, heard: BOTH.into(), ..fresh(Stage::Open, packet.sender, packet, now) };
    let opens = (true, packet.sender, start);
    let Some(known) = before else { return (Some(anew), vec![opens]) };
    let is_same = known.isn == packet.isn;
    let is_client = known.client == packet.sender || known.isn == 0;
    let is_both = is_both(&known);
    match known.stage {
        Stage::SynSent if known.client == packet.sender && is_same => {
            let event = (true, known.client, known.start);
            (Some(Known { stage: Stage::Open, heard: BOTH.into(), ..known }), vec![event])
        }
        Stage::SynSent if known.client == packet.sender => (Some(anew), vec![opens]),
        Stage::SynSent => {
            let event = (true, known.client, known.start);
            (Some(Known { stage: Stage::Open, isn: packet.isn, heard: BOTH.into(), ..known }), vec![event])
        }
        Stage::Candidate => (Some(anew), vec![opens]),
        Stage::Closed if !is_same && is_client => (Some(anew), vec![opens]),
        Stage::Closed
            if is_same
                && known.client == packet.sender
                && let Some(start) = known.again =>
        {
            (Some(Known { start, ended: vec![], ..anew }), vec![(true, packet.sender, start)])
        }
        Stage::Open if !is_same && is_both && is_client => {
            (Some(anew), vec![(false, known.client, known.start), opens])
        }
        // The SYN-ACK that is known was forged.
        Stage::Answered if !is_same && known.is_unseen => (Some(anew), vec![opens]),
        Stage::Answered if known.client == packet.sender && !known.is_unseen => {
            after_data(Some(Known { isn: packet.isn, ..known }), packet, rules.one_way)
        }
        _ => after_data(Some(known), packet, rules.one_way),
    }
}

fn after_data(before: Option<Known>, packet: Packet, one_way: bool) -> After {
    let Some(mut known) = before else { return (None, vec![]) };
    let from_client = packet.sender == known.client;
    let is_unheard = !known.heard.contains(&known.client);
    let opens = match known.stage {
        Stage::Answered => from_client || one_way && is_unheard && known.ended.is_empty(),
        Stage::SynSent => {
            known.has_answered |= from_client && known.isn == packet.isn;
            from_client && one_way
        }
        Stage::Open => {
            known.heard.push(packet.sender);
            false
        }
        Stage::Closed | Stage::Candidate => false,
    };
    if !opens {
        return (Some(known), vec![]);
    }
    known.stage = Stage::Open;
    known.heard.push(packet.sender);
    let event = (true, known.client, known.start);
    (Some(known), vec![event])
}

fn after_fin(before: Option<Known>, packet: Packet, now: u64, rules: Rules) -> After {
    let Some(mut known) = before else { return (None, vec![]) };
    let was_open = known.stage == Stage::Open;
    let opening = (true, known.client, known.start);
    let closing = (false, known.client, known.start);
    match known.stage {
        Stage::SynSent if rules.pickup => return (Some(trace(packet, now)), vec![]),
        Stage::SynSent => return (None, vec![]),
        // Repeated, it is answered again: the answers must not be taken for a connection.
        Stage::Closed if rules.pickup => return (Some(Known { since: now, again: None, ..known }), vec![]),
        Stage::Closed => return (Some(known), vec![]),
        Stage::Answered if packet.sender == known.client || known.is_unseen && rules.one_way => {
            known.stage = Stage::Open;
        }
        Stage::Answered | Stage::Open | Stage::Candidate => {}
    }
    known.heard.push(packet.sender);
    known.ended.push(packet.sender);
    let is_over = known.stage == Stage::Open && known.heard.iter().all(|sender| known.ended.contains(sender));
    if is_over {
        known.stage = Stage::Closed;
        known.since = now;
        known.again = None;
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
            (Some(Known { stage: Stage::Closed, since: now, again: None, ..known }), vec![event])
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
        3 => Just(SignalKind::Syn), 3 => Just(SignalKind::SynAck), 4 => Just(SignalKind::Ack), 2 => Just(SignalKind::Fin), 1 => Just(SignalKind::Rst),
        1 => Just(SignalKind::Completes), 1 => Just(SignalKind::Alive)
    ];
    let pause = prop_oneof![8 => Just(0u64), 4 => 1u64..4, 1 => LINGER_TICKS as u64 - 1..SYN_TIMEOUT_TICKS + 2];
    let packet = (0u32..5, any::<bool>(), kind, 1u32..3, any::<bool>(), any::<bool>(), pause);
    let packet = packet.prop_map(|(connection, first, kind, isn, is_before_answer, begins_another, pause_ticks)| {
        let sender = if first { Sender::Client } else { Sender::Server };
        // Further from each other than a window.
        let isn = isn << 20;
        let begins_another = begins_another && matches!(kind, SignalKind::Ack | SignalKind::Fin);
        Packet { connection, sender, kind, isn, is_before_answer, begins_another, pause_ticks }
    });
    prop::collection::vec(packet, 1..300)
}

/// The sides seen that the payload of an open connection names.
#[derive(Clone, Copy, Default)]
struct OpenSides(Option<SidesSeen>);

impl OpenSides {
    /// Whether the event says that the other side was seen too, which the machine does not report.
    fn turns(&mut self, event: &Event, rules: Rules) -> bool {
        let Event::Turn(_, before, after) = *event else { return false };
        let (sides, sides_after) = (SidesSeen::of_payload(before), SidesSeen::of_payload(after));
        assert!(rules.one_way && sides != SidesSeen::Both && sides_after == SidesSeen::Both);
        assert_eq!(before ^ sides.payload_bits(), after);
        assert_eq!(self.0.replace(sides_after), Some(sides));
        true
    }

    fn follow(&mut self, event: &Event) {
        let of = SidesSeen::of_payload;
        match event {
            Event::Open(_, payload) | Event::Reopen(_, payload) => assert_eq!(self.0.replace(of(*payload)), None),
            Event::Close(_, payload) | Event::CloseAndPass((_, payload), _) => {
                assert_eq!(self.0.take(), Some(of(*payload)), "it closes as it opened");
            }
            Event::Replace((_, before), (_, payload)) => {
                assert_eq!(self.0.replace(of(*payload)), Some(of(*before)), "it closes as it opened");
            }
            Event::Turn(..) | Event::Pass(..) => {}
        }
    }
}

fn is_midstream(payload: u32) -> bool {
    payload & MIDSTREAM != 0
}

fn agrees(packets: &[Packet], rules: Rules) {
    let mut scene = Scene::new(TrackerConfig {
        one_way_max: if rules.one_way { 100 } else { 0 },
        candidate_count: if rules.pickup { 100 } else { 0 },
        answer_opens: rules.answer_opens,
        ..config()
    });
    let mut machine = Machine { rules, ..Machine::default() };
    let payload = FilterEntry::tick_of;
    // Of the open connections, whether they are listed as older than the start.
    let mut listed = [None; 5];
    // And the sides that their payloads name.
    let mut sides = [OpenSides::default(); 5];
    for &packet in packets {
        scene.pass(packet.pause_ticks);
        let Packet { connection, sender, kind, isn, .. } = packet;
        machine.forget(scene.tick);
        let is_before_answer = packet.is_before_answer && machine.known.contains_key(&connection);
        let mut signal = scene.signal(any_key(connection), sender, kind, isn);
        if kind == SignalKind::Fin && is_before_answer {
            signal.set_before_answer(isn);
        }
        if packet.begins_another {
            signal.set_begins_another();
        }
        scene.tracker.prefetch(&signal);
        let event = scene.tracker.handle(&signal);
        let event = event.filter(|event| !sides[connection as usize].turns(event, rules));
        if let Some(event) = &event {
            sides[connection as usize].follow(event);
        }
        let reopened_before = machine.reopened;
        let expected = machine.step(packet, scene.tick);
        let is_reopened = machine.reopened > reopened_before;
        let reported = match expected[..] {
            [] => None,
            [(true, client, start)] if is_reopened => Some(Event::Reopen(oriented(connection, client), payload(start))),
            [(true, client, start)] => Some(Event::Open(oriented(connection, client), payload(start))),
            [(false, client, start)] => Some(Event::Close(oriented(connection, client), payload(start))),
            [(false, before, start_before), (true, client, start)] => Some(Event::Replace(
                (oriented(connection, before), payload(start_before)),
                (oriented(connection, client), payload(start)),
            )),
            [(true, client, start), (false, ..)] => Some(Event::Pass(oriented(connection, client), payload(start))),
            [(false, before, start_before), (true, client, start), (false, ..)] => Some(Event::CloseAndPass(
                (oriented(connection, before), payload(start_before)),
                (oriented(connection, client), payload(start)),
            )),
            _ => unreachable!("no packet does more: {expected:?}"),
        };
        // The flag is the same at both ends, which the list sees to; here it only follows from what is known.
        let flags = |event: Event| match event {
            Event::Open(key, payload) => (Event::Open(key, payload % MIDSTREAM), vec![is_midstream(payload)]),
            Event::Close(key, payload) => (Event::Close(key, payload % MIDSTREAM), vec![is_midstream(payload)]),
            Event::Reopen(key, payload) => (Event::Reopen(key, payload % MIDSTREAM), vec![is_midstream(payload)]),
            Event::Replace((before, payload_before), (key, payload)) => (
                Event::Replace((before, payload_before % MIDSTREAM), (key, payload % MIDSTREAM)),
                vec![is_midstream(payload_before), is_midstream(payload)],
            ),
            Event::Turn(..) => unreachable!("it was taken out"),
            Event::Pass(key, payload) => (Event::Pass(key, payload % MIDSTREAM), vec![is_midstream(payload); 2]),
            Event::CloseAndPass((before, payload_before), (key, payload)) => (
                Event::CloseAndPass((before, payload_before % MIDSTREAM), (key, payload % MIDSTREAM)),
                vec![is_midstream(payload_before), is_midstream(payload), is_midstream(payload)],
            ),
        };
        let midstream = event.map(flags);
        let event = midstream.as_ref().map(|(event, _)| *event);
        for (is_midstream, &(is_open, ..)) in midstream.iter().flat_map(|(_, flags)| flags).zip(&expected) {
            let open = &mut listed[connection as usize];
            if is_open {
                let is_unknown = machine.known[&connection].isn == 0;
                assert_eq!(*is_midstream, is_unknown, "{packet:?} at {}", scene.tick);
                *open = Some(*is_midstream);
            } else {
                assert_eq!(open.take(), Some(*is_midstream), "{packet:?}: it closes as it opened");
            }
        }
        assert_eq!(event, reported, "{packet:?} at {}", scene.tick);
        let counts = scene.counts();
        let expected = (machine.opened, machine.closed, machine.reopened);
        assert_eq!((counts.opened, counts.closed, counts.reopened), expected);
        let half_open: BTreeSet<_> = scene
            .half_open()
            .iter()
            .map(|record| (record.key, record.start_tick, record.since_tick, record.answered, record.short_isn))
            .collect();
        let waiting = machine.known.iter().filter(|(_, known)| matches!(known.stage, Stage::SynSent | Stage::Answered));
        let waiting: BTreeSet<_> = waiting
            .map(|(connection, known)| {
                let key = oriented(*connection, known.client);
                let is_answered = known.stage == Stage::Answered;
                (key, known.start, known.since, is_answered, FilterEntry::short_isn(known.isn))
            })
            .collect();
        assert_eq!(half_open, waiting, "{packet:?} at {}", scene.tick);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_tracker_is_the_table(packets in packets()) {
        agrees(&packets, Rules::default());
    }

    #[test]
    fn the_tracker_is_the_table_with_one_side_alone(packets in packets()) {
        agrees(&packets, Rules { one_way: true, ..Rules::default() });
    }

    #[test]
    fn the_tracker_is_the_table_with_pickup(packets in packets()) {
        agrees(&packets, Rules { pickup: true, ..Rules::default() });
    }

    #[test]
    fn the_tracker_is_the_table_when_an_answer_opens(packets in packets()) {
        agrees(&packets, Rules { answer_opens: true, ..Rules::default() });
    }
}
