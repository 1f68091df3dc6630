//! What is open, by the packets that passed a tap and by who sent them, which no tap sees. The rules are in the
//! documentation of the [simulation](super).

use super::clocks::Clocks;
use super::host::Sender;
use super::wire::{ACK, End, Ends, FIN, RST, SYN, Segment};
use super::world::World;
use flowpeel::track::FilterEntry;
use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Display};
use std::ops::RangeInclusive;

const SECOND_US: i64 = 1_000_000;

/// How far behind an end a packet of its side may be and be late, in bytes.
const LATE_SIZE: u32 = 1 << 24;

/// How long after an end that was none its sender has to go on for a list to know it.
const LIFE_SHOWS_US: i64 = 3 * SECOND_US;

/// How long behind a RST a packet of its side is late, at least: what comes later counts as life.
const LATE_BEHIND_RST_US: i64 = 2 * SECOND_US;

/// How long data is late that a RST has overtaken, at least, and how far it may be beyond the RST, in bytes.
const OVERTAKEN_US: i64 = 250_000;
const OVERTAKEN_SIZE: i32 = 1 << 20;

/// How far behind a SYN-ACK's number its client's packets seem to be answers, in bytes.
const FIRST_WINDOW_SIZE: u32 = 1 << 16;

/// How long a handshake may take between the SYN-ACK and its answer, somewhat less than the engine's timeout.
const HANDSHAKE_US: i64 = 59 * SECOND_US;

/// How long a SYN that nothing follows is taken for the beginning of another connection: the engine's timeout.
const ATTEMPT_US: i64 = 62 * SECOND_US;

/// How long SYNs may be repeated until the first counts no longer, somewhat less than what the engine allows.
const REPEATED_US: i64 = 595 * SECOND_US;

/// How soon behind an end its own handshake comes again at most, for the engine to know copies from a connection with
/// the same numbers.
const COPIES_US: i64 = 800_000;

/// How long behind the end of a connection it is not picked up by its last packets and copies of others: somewhat less
/// than the engine's entries of closed connections linger.
const LINGERS_US: i64 = 9 * SECOND_US;

/// How many false ends of a connection leave the true one known.
const FALSE_ENDS_MAX: u32 = 3;

/// The ends that are known for certain, as one in this many of the connections that there is room for: the engine keeps
/// 16 times as many, in sets of four.
const ENDS_KNOWN_DIVISOR: u64 = 256;

/// How long what passes may be of a connection that has ended.
const LATE_MAX_US: i64 = 600 * SECOND_US;

/// A packet that passes a tap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) segment: Segment,
    /// `None` for what no connection is behind.
    pub(super) sender: Option<Sender>,
    /// Whether somebody else sent it in a host's name.
    pub(super) is_forged: bool,
    /// Whether its sender has no such connection any more.
    pub(super) is_gone: bool,
}

impl Passed {
    /// A packet that no connection is behind.
    pub(super) fn of_nobody(segment: Segment) -> Self {
        Passed { segment, sender: None, is_forged: true, is_gone: false }
    }
}

impl Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Passed { segment, sender, is_forged, is_gone } = self;
        let names = [(SYN, "SYN "), (FIN, "FIN "), (RST, "RST "), (ACK, "ACK ")];
        let flags: String = names.iter().filter(|(flag, _)| segment.has(*flag)).map(|(_, name)| *name).collect();
        let Segment { src, dst, seq, ack, data_size, .. } = segment;
        let of = sender.map_or("nobody".to_owned(), |sender| format!("connection {}", sender.connection));
        let how = if *is_forged {
            ", forged"
        } else if *is_gone {
            ", which its host has forgotten"
        } else {
            ""
        };
        write!(f, "{:#x}:{} -> {:#x}:{} {flags}", src.address, src.port, dst.address, dst.port)?;
        write!(f, "seq {seq} ack {ack}, {data_size} bytes, of {of}{how}")
    }
}

/// What a list has to say of two ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shown {
    #[default]
    Absent,
    /// The packets do not show whether a connection is open, for this reason.
    Doubtful(&'static str),
    Open {
        client: End,
        /// When the first packet of its handshake passed, and when its handshake was complete.
        first_us: i64,
        complete_us: i64,
        /// Whether the start may be anywhere between the two, since others interfered with the handshake.
        is_loose: bool,
        /// When its last packet passed, where lists take off what is silent.
        last_us: i64,
    },
}

/// A change of what lists have to say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) at_us: i64,
    pub(super) ends: Ends,
    pub(super) shown: Shown,
}

/// A RST: when it passed, and its number.
#[derive(Clone, Copy, Debug)]
struct Reset {
    at_us: i64,
    number: u32,
}

impl Reset {
    /// How long a packet of its side may come behind it that reaches to this number, and be late.
    fn late_us(self, number: u32) -> i64 {
        match number.wrapping_sub(self.number) as i32 {
            ..=0 => LATE_BEHIND_RST_US,
            1..=OVERTAKEN_SIZE => OVERTAKEN_US,
            _ => 0,
        }
    }
}

/// A connection, as far as it has passed.
#[derive(Clone, Debug)]
struct Connection {
    client: End,
    first_us: i64,
    answered_us: Option<i64>,
    complete_us: Option<i64>,
    /// The FINs of the client and the server.
    fins: [bool; 2],
    ended_us: Option<i64>,
    /// The RSTs of both sides, true or false.
    resets: [Option<Reset>; 2],
    /// The FINs of both sides that were none of theirs: the number behind each, and when it came.
    false_fins: [Vec<u32>; 2],
    false_rst: [bool; 2],
    /// What false SYN-ACKs in the other side's name acknowledged, of the client and the server.
    false_answers: [Vec<u32>; 2],
    false_end_count: u32,
    /// Since when it seems to have ended although it has not.
    hidden_us: Option<i64>,
    is_loose: bool,
    doubt: Option<&'static str>,
    /// Whether data that was not its own has passed of a side that had sent its FIN.
    seems_alive: bool,
    /// Whether a copy of the server's SYN-ACK has passed behind the end.
    is_answered_late: bool,
    /// When the client's last SYN passed.
    syn_us: i64,
    last_us: i64,
    /// Until when a SYN behind a false end seems to have begun another connection.
    blocked_until_us: i64,
    /// How many connections had ended when it ended, or the first FIN passed that made it seem so, and when its own
    /// first FIN did.
    ended_at_count: u64,
    false_fin_at_count: Option<u64>,
    fin_at_count: Option<u64>,
    /// When its own first FIN passed.
    fin_us: Option<i64>,
    /// Whether a clock leaped while it was open.
    was_leaped_over: bool,
    /// Whether the server's FIN has passed before its SYN-ACK.
    has_early_fin: bool,
    /// Whether data of the client and the server has passed.
    has_passed: [bool; 2],
    /// The number behind the client's SYN, once that has passed, and whether what follows it has before any SYN-ACK.
    first_number: Option<u32>,
    is_answered_early: bool,
}

impl Connection {
    fn new(client: End, now_us: i64) -> Self {
        Connection {
            client,
            first_us: now_us,
            answered_us: None,
            complete_us: None,
            fins: [false; 2],
            ended_us: None,
            resets: [None; 2],
            false_fins: Default::default(),
            false_rst: [false; 2],
            false_answers: Default::default(),
            false_end_count: 0,
            hidden_us: None,
            is_loose: false,
            doubt: None,
            seems_alive: false,
            is_answered_late: false,
            syn_us: now_us,
            blocked_until_us: i64::MIN,
            ended_at_count: 0,
            false_fin_at_count: None,
            fin_at_count: None,
            fin_us: None,
            was_leaped_over: false,
            has_early_fin: false,
            last_us: now_us,
            has_passed: [false; 2],
            first_number: None,
            is_answered_early: false,
        }
    }

    fn is_open(&self) -> bool {
        self.complete_us.is_some() && self.ended_us.is_none()
    }

    /// Whether a tracker that believes every end has taken it off.
    fn seems_ended(&self) -> bool {
        let has_fin = |side: usize| self.fins[side] || !self.false_fins[side].is_empty();
        self.false_rst != [false; 2] || has_fin(0) && has_fin(1)
    }

    /// How many others may end until its own ends may be forgotten, of so many where it has no false ones: they are in
    /// sets of four, and each false one leaves fewer places.
    fn known_ends(&self, ends_known: u64) -> u64 {
        ends_known >> (4 * self.false_end_count.min(FALSE_ENDS_MAX))
    }

    fn shown(&self, keeps_last: bool) -> Shown {
        match (self.complete_us, self.ended_us, self.doubt) {
            (_, None, Some(doubt)) => Shown::Doubtful(doubt),
            (Some(complete_us), None, None) => match self.hidden_us {
                Some(_) => Shown::Doubtful("a false end"),
                None => Shown::Open {
                    client: self.client,
                    first_us: self.first_us,
                    complete_us,
                    is_loose: self.is_loose,
                    last_us: if keeps_last { self.last_us } else { 0 },
                },
            },
            _ => Shown::Absent,
        }
    }

    /// Doubts the connection, unless it is doubted already for a reason that outlasts it and its handshake.
    fn doubt_because(&mut self, why: &'static str) {
        let stays = |before: &&str| STAYING.contains(before) && !OF_HANDSHAKE.contains(before);
        self.doubt = self.doubt.filter(stays).or(Some(why));
    }

    /// Doubts the connection if a packet of this side, its own or a false one, happens to follow a false SYN-ACK: the
    /// two are then a handshake for all that passed.
    fn doubt_if_followed(&mut self, segment: &Segment, side: usize) {
        let follows = |answer: &u32| segment.seq.wrapping_sub(*answer) < FIRST_WINDOW_SIZE;
        if self.false_answers[side].iter().any(follows) {
            self.doubt_because("a number happens to follow a false SYN-ACK");
        }
    }

    /// Something that was not of this connection passed, from this side.
    fn interfered(&mut self, now_us: i64, segment: &Segment, side: usize, ended_count: u64) {
        let is_complete = self.complete_us.is_some();
        if segment.has(RST | FIN) {
            self.false_end_count += 1;
            if self.false_end_count > FALSE_ENDS_MAX {
                self.doubt = Some(MANY_FALSE_ENDS);
            }
        }
        if segment.has(RST) {
            self.false_rst[side] |= is_complete;
            self.resets[side] = Some(Reset { at_us: now_us, number: segment.seq });
            if !is_complete && self.answered_us.is_some() {
                self.doubt_because("a false RST in the handshake");
            }
        } else if segment.has(FIN) {
            if self.answered_us.is_some() {
                self.false_fins[side].push(segment.number_behind().wrapping_add(1));
                self.false_fin_at_count.get_or_insert(ended_count);
            }
            if !is_complete && self.answered_us.is_some() && side == 0 {
                self.doubt.get_or_insert(PREMATURE);
            }
        } else if segment.is_plain() && is_complete {
            self.seems_alive |= self.fins[side];
        } else if segment.is_plain() && side == 0 && self.answered_us.is_some() {
            self.doubt.get_or_insert(PREMATURE);
        }
        if !segment.has(SYN | RST) {
            self.doubt_if_followed(segment, side);
        }
        if segment.has(SYN) && segment.has(ACK) {
            self.false_answers[1 - side].push(segment.ack);
        }
        if segment.has(SYN) && !segment.has(ACK) && side == 1 && !is_complete {
            self.doubt = Some(REVERSED);
        }
        if segment.has(SYN) && self.hidden_us.is_some() {
            self.blocked_until_us = now_us + ATTEMPT_US;
            if segment.has(ACK) {
                self.doubt = Some(ANSWERED_BEHIND_END);
            }
        }
        self.is_loose |= !is_complete && !segment.is_plain();
        self.settle(now_us, ended_count);
    }

    fn settle(&mut self, now_us: i64, ended_count: u64) {
        if self.is_open() && self.seems_ended() && self.hidden_us.is_none() {
            self.hidden_us = Some(now_us);
            self.ended_at_count = self.false_fin_at_count.unwrap_or(ended_count);
        }
    }

    /// A packet without a flag of this side passed: it may show that the side has not ended.
    fn goes_on(&mut self, now_us: i64, number: u32, side: usize, ended_count: u64) {
        let Some(hidden_us) = self.hidden_us else { return };
        let is_late = |fin: &u32| (-(LATE_SIZE as i32)..=0).contains(&(number.wrapping_sub(*fin) as i32));
        let was_its = !self.fins[side] && (self.false_rst[side] || !self.false_fins[side].is_empty());
        let shows = now_us - hidden_us >= LIFE_SHOWS_US && now_us >= self.blocked_until_us;
        if was_its && shows && !self.false_fins[side].iter().any(is_late) {
            self.false_rst[side] = false;
            self.false_fins[side].clear();
            self.hidden_us = None;
            self.settle(now_us, ended_count);
        }
    }
}

/// A handshake that somebody else's packet seemed to complete.
const PREMATURE: &str = "a false answer in the handshake";

/// Both sides then seem to open it.
const REVERSED: &str = "a false SYN of the server in the handshake";

/// The packets that follow then seem to be its answers.
const ANSWERED_BEHIND_END: &str = "a false SYN-ACK behind an end";

const MANY_FALSE_ENDS: &str = "many false ends";

/// It then seems to be one that has ended, if that is known, or to answer a SYN-ACK that was forged.
const UNANSWERED: &str = "its SYN-ACK was not captured";

/// It may have been taken off, and with `pickup` found again.
const SILENT: &str = "it was silent for the idle timeout";

/// A handshake of which the answer came before the SYN-ACK, and nothing of the client since.
const ANSWERED_EARLY: &str = "its answer passed before its SYN-ACK";

/// The doubts that outlast their connection: the engine may know no end of it.
const STAYING: [&str; 5] = [PREMATURE, MANY_FALSE_ENDS, REVERSED, ANSWERED_BEHIND_END, UNANSWERED];

/// The doubts that end when the handshake is complete.
const OF_HANDSHAKE: [&str; 3] = [PREMATURE, UNANSWERED, ANSWERED_EARLY];

/// All connections of a world that may matter, and what lists have to say of them.
pub(super) struct Truth {
    connections: HashMap<(u32, Ends), Connection>,
    /// The connections between two ends that have not ended, the oldest first.
    live: HashMap<Ends, Vec<u32>>,
    /// The connections that have ended, the first first.
    ended: VecDeque<(i64, u32, Ends)>,
    /// Ends that seem to be open although no connection is, and why that cannot be known.
    ghosts: HashMap<Ends, &'static str>,
    /// When the last SYN passed between two ends.
    attempts_us: HashMap<Ends, i64>,
    /// The client and its initial number of the last SYN or SYN-ACK between two ends.
    numbers: HashMap<Ends, (End, u32)>,
    /// When the last SYN-ACK passed between two ends that no connection was behind.
    answers_us: HashMap<Ends, i64>,
    current: HashMap<Ends, Shown>,
    log: VecDeque<Change>,
    idle_timeout_us: Option<i64>,
    picks_up: bool,
    /// Whether taps do not capture some packets.
    loses_packets: bool,
    has_flood: bool,
    /// When a clock leaps, for all that is known because that time has passed.
    leap_us: Option<i64>,
    /// The connections that have ended so far.
    ended_count: u64,
    /// Behind so many others the end of a connection may have been forgotten.
    ends_known: u64,
    /// Connections whose handshake was completed.
    pub(super) opened: u64,
}

impl Truth {
    pub(super) fn new(world: &World) -> Self {
        Truth {
            connections: HashMap::new(),
            live: HashMap::new(),
            ended: VecDeque::new(),
            ghosts: HashMap::new(),
            attempts_us: HashMap::new(),
            numbers: HashMap::new(),
            answers_us: HashMap::new(),
            current: HashMap::new(),
            log: VecDeque::new(),
            idle_timeout_us: (world.idle_timeout_s > 0).then_some(world.idle_timeout_s as i64 * SECOND_US),
            picks_up: world.pickup > 0,
            loses_packets: world.uncaptured > 0,
            has_flood: world.flood > 0,
            leap_us: Clocks::new(world, 0).leap_us(),
            ended_count: 0,
            ends_known: world.room / ENDS_KNOWN_DIVISOR,
            opened: 0,
        }
    }

    /// The changes before this time that were not taken yet, in order.
    pub(super) fn take_until(&mut self, until_us: i64) -> impl Iterator<Item = Change> + '_ {
        std::iter::from_fn(move || {
            self.log.front().is_some_and(|change| change.at_us < until_us).then(|| self.log.pop_front()).flatten()
        })
    }

    /// The changes that were not taken yet and are before this time.
    pub(super) fn coming(&self, until_us: i64) -> impl Iterator<Item = &Change> {
        self.log.iter().take_while(move |change| change.at_us < until_us)
    }

    /// When the last SYN or SYN-ACK between these ends passed so far, or what else began a handshake.
    pub(super) fn attempt_us(&self, ends: &Ends) -> Option<i64> {
        self.attempts_us.get(ends).copied()
    }

    /// A packet passes.
    pub(super) fn pass(&mut self, now_us: i64, passed: &Passed) {
        let Passed { segment, sender, is_forged, is_gone } = *passed;
        let ends = segment.ends();
        if segment.has(SYN) {
            self.attempts_us.insert(ends, now_us);
        }
        self.forget_late(now_us);
        let own = sender.filter(|_| !is_forged);
        if let Some(sender) = own {
            self.pass_own(now_us, &segment, sender, is_gone);
        }
        if segment.has(SYN) {
            self.numbers.insert(ends, client_number(&segment));
        }
        let own = own.map(|sender| sender.connection);
        let ended_count = self.ended_count;
        for other in self.live.get(&ends).into_iter().flatten().filter(|other| Some(**other) != own) {
            let connection = self.connections.get_mut(&(*other, ends)).expect("what is live is known");
            connection.interfered(now_us, &segment, usize::from(segment.src != connection.client), ended_count);
        }
        if own.is_none() && segment.has(FIN | RST) {
            self.interfered_behind_end(ends);
        }
        self.haunt(now_us, &segment, own);
        self.record(now_us, ends);
    }

    /// A false end passed between these ends: too many leave none of the true ones known, also of connections that have
    /// ended.
    fn interfered_behind_end(&mut self, ends: Ends) {
        for (_, id, _) in self.ended.iter().filter(|(_, _, its)| *its == ends) {
            let Some(connection) = self.connections.get_mut(&(*id, ends)) else { continue };
            connection.false_end_count += 1;
            if connection.false_end_count > FALSE_ENDS_MAX {
                self.ghosts.insert(ends, MANY_FALSE_ENDS);
            }
        }
    }

    /// A packet that its own connection's side has sent.
    fn pass_own(&mut self, now_us: i64, segment: &Segment, sender: Sender, is_gone: bool) {
        let (ends, id) = (segment.ends(), (sender.connection, segment.ends()));
        let client = if sender.is_client { segment.src } else { segment.dst };
        if !self.connections.contains_key(&id) {
            if !segment.has(SYN) {
                // Mid-stream: the handshake passed elsewhere.
                if self.picks_up {
                    self.ghosts.insert(ends, "it may be picked up");
                } else if self.loses_packets {
                    self.ghosts.insert(ends, UNANSWERED);
                }
                return;
            }
            let mut connection = Connection::new(client, now_us);
            if self.numbers.get(&ends).is_some_and(|before| looks_the_same(*before, client_number(segment))) {
                connection.doubt = Some("the engine knows its number and the last one as the same");
            }
            self.connections.insert(id, connection);
            self.live.entry(ends).or_default().push(sender.connection);
        }
        let side = usize::from(!sender.is_client);
        let connection = self.connections.get_mut(&id).expect("it was just inserted");
        if let Some(idle_us) = self.idle_timeout_us
            && now_us - connection.last_us >= idle_us
            && connection.is_open()
        {
            connection.doubt_because(SILENT);
        }
        connection.was_leaped_over |= connection.is_open() && leaps_in(self.leap_us, connection.last_us..=now_us);
        connection.last_us = now_us;
        let was_complete = connection.complete_us.is_some();
        if connection.hidden_us.is_some() && self.ended_count > connection.ended_at_count {
            connection.doubt.get_or_insert("others ended since a false end");
        }
        own(connection, now_us, segment, side, is_gone, self.ended_count);
        if self.has_flood && segment.has(FIN) && !sender.is_client && connection.complete_us.is_none() {
            self.attempts_us.insert(ends, now_us);
        }
        let is_new = !was_complete && connection.complete_us.is_some();
        self.opened += u64::from(is_new);
        if is_new {
            // A flood may have pushed out what was known of its SYN.
            connection.is_loose |= self.has_flood;
            if leaps_in(self.leap_us, connection.first_us..=now_us) {
                connection.doubt_because("the clock leaped in its handshake");
            }
            connection.is_loose |= self.ghosts.remove(&ends).is_some();
        }
        if self.picks_up && connection.has_passed == [true; 2] && connection.complete_us.is_none() {
            connection.doubt.get_or_insert("it may be picked up");
        }
        let has_ended = connection.ended_us.is_some();
        if segment.has(SYN) && segment.has(ACK) && !has_ended {
            self.contradict_older(ends, sender.connection);
        }
        if is_new {
            self.replace_older(now_us, ends, sender.connection);
        }
        if has_ended {
            self.end(now_us, ends, sender.connection);
        }
    }

    /// A server that answers a SYN has none of the connections before with the same ends; but only the client's answer
    /// shows that it was the server.
    fn contradict_older(&mut self, ends: Ends, newest: u32) {
        for one in self.older(ends, newest) {
            let connection = self.connections.get_mut(&(one, ends)).expect("what is live is known");
            connection.doubt_because("a SYN-ACK of another connection");
        }
    }

    /// The connections between these ends that began before this one and have not ended.
    fn older(&self, ends: Ends, newest: u32) -> Vec<u32> {
        let live = self.live.get(&ends).map_or(&[][..], Vec::as_slice);
        live.iter().copied().take_while(|one| *one != newest).collect()
    }

    /// The client has answered: the connections before have ended.
    fn replace_older(&mut self, now_us: i64, ends: Ends, newest: u32) {
        for one in self.older(ends, newest) {
            let connection = self.connections.get_mut(&(one, ends)).expect("what is live is known");
            let was_open = connection.is_open();
            connection.ended_us = Some(now_us);
            connection.doubt = None;
            self.end(now_us, ends, one);
            if let Some(connection) = self.connections.get_mut(&(newest, ends)) {
                connection.is_loose |= was_open;
            }
        }
    }

    fn end(&mut self, now_us: i64, ends: Ends, connection: u32) {
        if let Some(live) = self.live.get_mut(&ends)
            && let Some(at) = live.iter().position(|one| *one == connection)
        {
            live.remove(at);
            self.ended_count += 1;
            self.ended.push_back((now_us, connection, ends));
            if let Some(connection) = self.connections.get_mut(&(connection, ends)) {
                connection.ended_at_count = self.ended_count;
            }
            if live.is_empty() {
                self.live.remove(&ends);
            }
            let ended = &self.connections[&(connection, ends)];
            // Found half closed it would seem to be open.
            let was_half_closed = ended.fin_us.is_some_and(|fin_us| now_us - fin_us >= LINGERS_US);
            let is_found = ended.doubt != Some(SILENT) || was_half_closed;
            if self.picks_up && was_half_closed && ended.hidden_us.is_some_and(|at_us| now_us - at_us >= LINGERS_US) {
                self.ghosts.insert(ends, "it may be picked up half closed, behind a false end");
            }
            // What the leap took off.
            if self.picks_up && was_half_closed && ended.was_leaped_over && self.idle_timeout_us.is_some() {
                self.ghosts.insert(ends, "it may be picked up half closed, behind a leap of the clock");
            }
            if let Some(doubt) = ended.doubt
                && (self.picks_up && is_found || STAYING.contains(&doubt))
            {
                self.ghosts.insert(ends, doubt);
            }
            if ended.has_early_fin {
                self.ghosts.insert(ends, "its FIN passed before its SYN-ACK");
            }
            if ended.seems_alive {
                self.ghosts.insert(ends, "data that was not its own, of a side that had ended");
            }
        }
    }

    /// What makes ends seem open that are not.
    fn haunt(&mut self, now_us: i64, segment: &Segment, own: Option<u32>) {
        let ends = segment.ends();
        let live = self.live.get(&ends).map_or(&[][..], Vec::as_slice);
        let is_open = live.iter().any(|one| self.connections[&(*one, ends)].complete_us.is_some());
        if is_open {
            return;
        }
        let is_live = own.is_some_and(|own| live.contains(&own));
        if segment.has(SYN) && segment.has(ACK) && !is_live {
            self.answers_us.insert(ends, now_us);
        }
        let was_answered = self.answers_us.get(&ends).is_some_and(|at_us| now_us - at_us <= ATTEMPT_US);
        if was_answered && !is_live && !segment.has(SYN | RST) {
            self.ghosts.insert(ends, ANSWERED_BEHIND_END);
        }
        if !segment.is_plain() {
            return;
        }
        let lingers = |own: &Connection| {
            let ended_us = own.ended_us.filter(|_| own.complete_us.is_some());
            ended_us.is_some_and(|ended_us| now_us - ended_us < LINGERS_US)
        };
        if self.picks_up && !own.and_then(|own| self.connections.get(&(own, ends))).is_some_and(lingers) {
            self.ghosts.insert(ends, "it may be picked up");
        }
        if is_live {
            return;
        }
        match own.and_then(|own| self.connections.get(&(own, ends))) {
            None => drop(self.ghosts.insert(ends, "data that was forged")),
            Some(connection) => {
                let side = usize::from(segment.src != connection.client);
                let leaps_behind = |at_us: i64| leaps_in(self.leap_us, at_us..=now_us);
                let late_us = |reset: Reset| reset.late_us(segment.number_behind());
                let is_life = |reset: Reset| now_us - reset.at_us > late_us(reset) || leaps_behind(reset.at_us);
                let known_at_count = connection.fin_at_count.unwrap_or(connection.ended_at_count);
                let last = || self.ended.iter().rev().find(|(_, _, its)| *its == ends).map(|(_, last, _)| *last);
                let is_old = connection.ended_us.is_some_and(|ended_us| now_us - ended_us > LATE_BEHIND_RST_US);
                if connection.resets[side].is_some_and(is_life) && !connection.fins[side] {
                    self.ghosts.insert(ends, "a copy that came late behind a RST");
                } else if is_old && last() != own {
                    self.ghosts.insert(ends, "data of an earlier connection behind the end of the last");
                } else if connection.is_answered_late && side == 0 {
                    self.ghosts.insert(ends, "a handshake with the same numbers");
                } else if self.ended_count - known_at_count > connection.known_ends(self.ends_known) {
                    self.ghosts.insert(ends, "a copy that came when many others had ended");
                }
            }
        }
    }

    fn forget_late(&mut self, now_us: i64) {
        while let Some((at_us, connection, ends)) = self.ended.front().copied()
            && now_us - at_us > LATE_MAX_US
        {
            self.ended.pop_front();
            self.connections.remove(&(connection, ends));
        }
    }

    /// Writes down what lists have to say now of these ends, if that has changed.
    fn record(&mut self, now_us: i64, ends: Ends) {
        let keeps_last = self.idle_timeout_us.is_some();
        let mut shown = self.ghosts.get(&ends).map_or(Shown::Absent, |why| Shown::Doubtful(why));
        for one in self.live.get(&ends).into_iter().flatten() {
            match self.connections[&(*one, ends)].shown(keeps_last) {
                Shown::Absent => {}
                open @ Shown::Open { .. } => shown = open,
                doubtful @ Shown::Doubtful(_) if matches!(shown, Shown::Absent) => shown = doubtful,
                Shown::Doubtful(_) => {}
            }
        }
        let before = match shown {
            Shown::Absent => self.current.remove(&ends).unwrap_or_default(),
            _ => self.current.insert(ends, shown).unwrap_or_default(),
        };
        if before != shown {
            self.log.push_back(Change { at_us: now_us, ends, shown });
        }
    }
}

/// Whether the clock leaps, if it does, within these times.
fn leaps_in(leap_us: Option<i64>, times_us: RangeInclusive<i64>) -> bool {
    leap_us.is_some_and(|leap_us| times_us.contains(&leap_us))
}

/// The client and its initial number that a SYN or SYN-ACK shows.
fn client_number(segment: &Segment) -> (End, u32) {
    if segment.has(ACK) { (segment.dst, segment.ack.wrapping_sub(1)) } else { (segment.src, segment.seq) }
}

/// Whether the engine, which keeps 17 bits of an initial number, takes two that differ for the same.
fn looks_the_same(before: (End, u32), number: (End, u32)) -> bool {
    before != number && (before.0, FilterEntry::short_isn(before.1)) == (number.0, FilterEntry::short_isn(number.1))
}

/// A packet of a side of a connection, which it has sent itself.
fn own(connection: &mut Connection, now_us: i64, segment: &Segment, side: usize, is_gone: bool, ended_count: u64) {
    if let Some(ended_us) = connection.ended_us {
        connection.is_answered_late |= segment.has(SYN) && side == 1 && now_us - ended_us > COPIES_US;
        return;
    }
    if segment.has(RST) {
        if !is_gone {
            connection.interfered(now_us, segment, side, ended_count);
            return;
        }
        connection.resets[side] = Some(Reset { at_us: now_us, number: segment.seq });
        connection.ended_us = Some(now_us);
        return;
    }
    if segment.has(SYN) {
        if connection.hidden_us.is_some() {
            connection.doubt_because("its handshake came again behind a false end");
        }
        if side == 0 {
            let is_late = now_us - connection.syn_us > HANDSHAKE_US || now_us - connection.first_us > REPEATED_US;
            connection.is_loose |= is_late && connection.complete_us.is_none();
            connection.syn_us = now_us;
            connection.first_number = Some(segment.seq.wrapping_add(1));
        }
        if side == 1 && segment.has(ACK) && connection.complete_us.is_none() {
            connection.is_loose |= now_us - connection.answered_us.unwrap_or(connection.syn_us) > HANDSHAKE_US;
            connection.answered_us = Some(now_us);
            if connection.is_answered_early {
                connection.doubt.get_or_insert(ANSWERED_EARLY);
            }
        }
        return;
    }
    connection.has_passed[side] = true;
    connection.doubt_if_followed(segment, side);
    let follows_syn = side == 0 && connection.first_number == Some(segment.seq);
    connection.is_answered_early |= follows_syn && connection.answered_us.is_none();
    let may_seem_answered = side == 1 || !connection.false_answers[0].is_empty();
    if may_seem_answered && connection.answered_us.is_none() {
        connection.doubt.get_or_insert(UNANSWERED);
    }
    if side == 0
        && connection.complete_us.is_none()
        && let Some(answered_us) = connection.answered_us
    {
        connection.complete_us = Some(now_us);
        connection.doubt = connection.doubt.filter(|doubt| !OF_HANDSHAKE.contains(doubt));
        if now_us - answered_us > HANDSHAKE_US {
            connection.doubt_because("the handshake took too long");
        }
    }
    if segment.has(FIN) {
        connection.has_early_fin |= side == 1 && connection.answered_us.is_none();
        connection.is_loose |= connection.answered_us.is_none();
        connection.fins[side] = true;
        connection.fin_at_count.get_or_insert(ended_count);
        connection.fin_us.get_or_insert(now_us);
        if connection.fins == [true; 2] && connection.complete_us.is_some() {
            connection.ended_us = Some(now_us);
        }
        connection.settle(now_us, ended_count);
    } else {
        connection.goes_on(now_us, segment.number_behind(), side, ended_count);
        connection.settle(now_us, ended_count);
    }
}
