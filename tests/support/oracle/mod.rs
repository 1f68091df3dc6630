//! An exact list of the open connections, to test flowpeel's lists against.
//!
//! What enters: Ethernet frames and their times. What leaves: for every interval the list that flowpeel should give. It
//! keeps the state table of the design on whole keys and whole sequence numbers in an ordinary map, and parses with
//! pnet; it shares no code with flowpeel but for the comparison of lists. It holds one entry for every
//! connection of the last minutes, so it suits captures of some million packets.
//!
//! Time is the highest time seen, in ticks of 100 ms since 1970: it stands while packets are older than that.

mod compared;
mod packet;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

pub(crate) use compared::{assert_lines, line, lists_of, lists_of_part};
pub(crate) use packet::{Segment, frames_of_pcap, segment};

/// A tick of the clock, in microseconds.
pub(crate) const TICK_US: u64 = 100_000;
/// How often, in frames, entries that count as absent are really removed.
const SWEEP_FRAMES: u64 = 1 << 20;

/// A listed connection. Lists are sorted by client, then server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// `established`, `syn_recv` or `syn_sent`.
    pub(crate) state: &'static str,
    /// The tick of the packet that created the entry, in microseconds since 1970.
    pub(crate) start_us: u64,
    /// Whether it is older than the first packet that was seen of it.
    pub(crate) midstream: bool,
}

/// The list at the end of an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    /// The end of the interval; of the last one the highest time seen.
    pub(crate) end_us: u64,
    pub(crate) lines: Vec<Line>,
    /// How many entries became established in the interval.
    pub(crate) opened: u64,
    /// How many ceased to be established.
    pub(crate) closed: u64,
    /// Who opened connections in the interval: SYNs sent, SYN-ACKs that came back, and connections that a RST of the
    /// other side ended when nothing but SYNs had been seen of them.
    pub(crate) sources: BTreeMap<IpAddr, [u64; 3]>,
}

/// A connection that was established and is no longer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ended {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// The ticks in which it started and ended, in microseconds since 1970.
    pub(crate) start_us: u64,
    pub(crate) end_us: u64,
    /// `fin`, `rst` or `replaced`.
    pub(crate) reason: &'static str,
}

/// For so long a SYN-ACK may come again as a copy.
const COPY_TICKS: u64 = 10;

/// What the lists depend on beside the packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The length of an interval; without one there is only the list at the end.
    pub(crate) every_us: Option<u64>,
    /// Half-open entries older than this are absent.
    pub(crate) syn_timeout_ticks: u64,
    /// Closed entries older than this are absent.
    pub(crate) linger_ticks: u64,
    /// Whether connections whose start was not seen are entries, once both sides were.
    pub(crate) pickup: bool,
    /// Entries of which one side was seen are absent when older than this.
    pub(crate) candidate_ticks: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { every_us: None, syn_timeout_ticks: 600, linger_ticks: 100, pickup: false, candidate_ticks: 6_000 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// One side sent something, and how it began was not seen; the entry's client is that side.
    Noticed,
    SynSent,
    SynRecv,
    Established,
    Closed,
}

#[derive(Clone, Debug)]
struct Entry {
    state: State,
    client: SocketAddr,
    server: SocketAddr,
    /// None when the start was not seen.
    isn: Option<u32>,
    client_fin: bool,
    server_fin: bool,
    /// What its timeout counts from.
    since_tick: u64,
    start_tick: u64,
    /// A SYN-ACK with another number that came while it was established, which the client has not answered yet.
    rival: Option<Rival>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rival {
    client: SocketAddr,
    server: SocketAddr,
    isn: u32,
    /// When it came last, and first.
    tick: u64,
    start_tick: u64,
}

/// The state table.
#[derive(Debug)]
pub(crate) struct Oracle {
    rules: Rules,
    entries: HashMap<(SocketAddr, SocketAddr), Entry>,
    highest_us: Option<u64>,
    frame_count: u64,
    opened: u64,
    closed: u64,
    sources: BTreeMap<IpAddr, [u64; 3]>,
    ended: Vec<Ended>,
}

impl Oracle {
    pub(crate) fn new(rules: Rules) -> Self {
        Oracle {
            rules,
            entries: HashMap::new(),
            highest_us: None,
            frame_count: 0,
            opened: 0,
            closed: 0,
            sources: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// All lists of these frames, the one at the end included.
    pub(crate) fn lists<'a>(rules: Rules, frames: impl IntoIterator<Item = (u64, &'a [u8])>) -> Vec<List> {
        let mut oracle = Oracle::new(rules);
        let mut lists: Vec<List> =
            frames.into_iter().filter_map(|(time_us, bytes)| oracle.frame(time_us, bytes)).collect();
        lists.extend(oracle.finish());
        lists
    }

    /// Takes a frame in. If it is the first of a later interval, returns the list at the end of the interval that held
    /// the frames before it.
    pub(crate) fn frame(&mut self, time_us: u64, bytes: &[u8]) -> Option<List> {
        let end_us = self.interval_end_us();
        let list = end_us.filter(|end_us| time_us >= *end_us).map(|end_us| self.list(end_us));
        self.highest_us = self.highest_us.max(Some(time_us));
        self.frame_count += 1;
        if self.frame_count.is_multiple_of(SWEEP_FRAMES) {
            self.sweep();
        }
        if let Some(segment) = segment(bytes) {
            self.step(&segment);
        }
        list
    }

    /// The list at the end of the input; `None` if there was no frame.
    pub(crate) fn finish(mut self) -> Option<List> {
        self.highest_us.map(|end_us| self.list(end_us))
    }

    /// Where the interval of the highest time ends; none before the first frame or without intervals.
    fn interval_end_us(&self) -> Option<u64> {
        let every_us = self.rules.every_us?;
        Some((self.highest_us? / every_us + 1) * every_us)
    }

    fn now_tick(&self) -> u64 {
        self.highest_us.unwrap_or(0) / TICK_US
    }

    fn list(&mut self, end_us: u64) -> List {
        let now = end_us / TICK_US;
        let present = self.entries.values().filter(|entry| !is_absent(entry, now, &self.rules));
        let mut lines: Vec<Line> = present.filter_map(line_of).collect();
        lines.sort();
        let (opened, closed) = (std::mem::take(&mut self.opened), std::mem::take(&mut self.closed));
        List { end_us, lines, opened, closed, sources: std::mem::take(&mut self.sources) }
    }

    fn sweep(&mut self) {
        let (now, rules) = (self.now_tick(), self.rules);
        self.entries.retain(|_, entry| !is_absent(entry, now, &rules));
    }

    /// The state table. When flags are combined a RST counts before a SYN, and a SYN before a FIN.
    fn step(&mut self, segment: &Segment) {
        let (now, rules) = (self.now_tick(), self.rules);
        let key = (segment.src.min(segment.dst), segment.src.max(segment.dst));
        if self.entries.get(&key).is_some_and(|entry| is_absent(entry, now, &rules)) {
            self.entries.remove(&key);
        }
        let before = self.entries.get(&key).cloned();
        let is_unknown = before.as_ref().is_none_or(|entry| entry.state == State::Noticed);
        let after = if rules.pickup && is_unknown && (segment.rst || !segment.syn) {
            after_unknown(before.clone(), segment, now)
        } else if segment.rst {
            after_rst(before.clone(), now)
        } else if segment.syn && !segment.ack_flag {
            after_syn(before.clone(), segment, now)
        } else if segment.syn {
            after_syn_ack(before.clone(), segment, now)
        } else if segment.fin {
            after_fin(before.clone(), segment, now, rules.pickup)
        } else {
            after_other(before.clone(), segment, now, rules)
        };
        self.count(before.as_ref(), after.as_ref(), segment);
        self.count_source(before.as_ref(), segment);
        match after {
            Some(entry) => self.entries.insert(key, entry),
            None => self.entries.remove(&key),
        };
    }

    fn count_source(&mut self, before: Option<&Entry>, segment: &Segment) {
        let is_asked = before.is_some_and(|entry| entry.state == State::SynSent && entry.client == segment.dst);
        let (source, event) = match (segment.rst, segment.syn, segment.ack_flag) {
            (true, ..) if is_asked => (segment.dst, 2),
            (false, true, false) => (segment.src, 0),
            (false, true, true) => (segment.dst, 1),
            _ => return,
        };
        self.sources.entry(source.ip()).or_default()[event] += 1;
    }

    fn count(&mut self, before: Option<&Entry>, after: Option<&Entry>, segment: &Segment) {
        let established = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.state == State::Established);
        let is_replaced = established(before)
            && established(after)
            && before.zip(after).is_some_and(|(before, after)| before.isn != after.isn);
        self.opened += u64::from(!established(before) && established(after) || is_replaced);
        self.closed += u64::from(established(before) && !established(after) || is_replaced);
        // The client's FIN completes a handshake; when the server's FIN came before, it closes in the same step.
        let at_once = before.is_some_and(|entry| entry.state == State::SynRecv)
            && after.is_some_and(|entry| entry.state == State::Closed)
            && segment.fin;
        self.opened += u64::from(at_once);
        self.closed += u64::from(at_once);
        let is_over = established(before) && !established(after) || at_once || is_replaced;
        self.ended.extend(before.filter(|_| is_over).map(|entry| Ended {
            client: entry.client,
            server: entry.server,
            start_us: entry.start_tick * TICK_US,
            end_us: self.now_tick() * TICK_US,
            reason: match (segment.rst, is_replaced) {
                (true, _) => "rst",
                (_, true) => "replaced",
                _ => "fin",
            },
        }));
    }

    /// What has ended so far.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }
}

fn is_absent(entry: &Entry, now: u64, rules: &Rules) -> bool {
    let age = now.saturating_sub(entry.since_tick);
    match entry.state {
        State::Established => false,
        State::Closed => age > rules.linger_ticks,
        State::Noticed => age > rules.candidate_ticks,
        State::SynSent | State::SynRecv => age > rules.syn_timeout_ticks,
    }
}

fn line_of(entry: &Entry) -> Option<Line> {
    let state = match entry.state {
        State::SynSent => "syn_sent",
        State::SynRecv => "syn_recv",
        State::Established => "established",
        State::Closed | State::Noticed => return None,
    };
    let (client, server, midstream) = (entry.client, entry.server, entry.isn.is_none());
    Some(Line { client, server, state, start_us: entry.start_tick * TICK_US, midstream })
}

fn after_rst(before: Option<Entry>, now: u64) -> Option<Entry> {
    let entry = before?;
    match entry.state {
        State::Established => Some(Entry { state: State::Closed, since_tick: now, ..entry }),
        State::Closed => Some(entry),
        State::SynSent | State::SynRecv | State::Noticed => None,
    }
}

/// The entry after a packet of a connection whose start was not seen: packets of both sides make it a connection,
/// unless one of them ends it first. Ended connections are remembered for a while, so that their last packets do not
/// make new ones.
fn after_unknown(before: Option<Entry>, segment: &Segment, now: u64) -> Option<Entry> {
    let noticed = Entry { isn: None, ..half_open(State::Noticed, (segment.src, segment.dst), 0, now) };
    let is_other_side = before.as_ref().is_some_and(|entry| entry.client != segment.src);
    if segment.rst || segment.fin && !is_other_side {
        return Some(Entry { state: State::Closed, ..noticed });
    }
    let Some(mut entry) = before else { return Some(noticed) };
    if is_other_side {
        // The client has the higher port, as a rule.
        let [server, client] = {
            let mut ends = [(segment.src.port(), segment.src), (segment.dst.port(), segment.dst)];
            ends.sort();
            ends.map(|(_, end)| end)
        };
        let (client_fin, server_fin) = (segment.fin && segment.src == client, segment.fin && segment.src == server);
        entry = Entry { state: State::Established, client, server, client_fin, server_fin, ..entry };
    }
    Some(entry)
}

fn after_syn(before: Option<Entry>, segment: &Segment, now: u64) -> Option<Entry> {
    let starts = match &before {
        None => true,
        Some(entry) => match entry.state {
            State::Noticed => true,
            State::Closed => entry.isn != Some(segment.seq),
            State::SynSent if segment.src == entry.client && entry.isn == Some(segment.seq) => {
                // A client that repeats its SYN is waited for longer.
                return Some(Entry { since_tick: now, ..entry.clone() });
            }
            State::SynSent => segment.src == entry.client,
            State::SynRecv | State::Established => false,
        },
    };
    if starts { Some(half_open(State::SynSent, (segment.src, segment.dst), segment.seq, now)) } else { before }
}

fn after_syn_ack(before: Option<Entry>, segment: &Segment, now: u64) -> Option<Entry> {
    let isn = segment.ack.wrapping_sub(1);
    let answered = || Some(half_open(State::SynRecv, (segment.dst, segment.src), isn, now));
    let Some(entry) = before else { return answered() };
    match entry.state {
        State::Noticed => answered(),
        State::Established if entry.isn != Some(isn) => {
            // It may be forged: the client's next packet decides.
            let known = entry.rival.as_ref().filter(|rival| (rival.client, rival.isn) == (segment.dst, isn));
            let start_tick = known.map_or(now, |rival| rival.start_tick);
            let rival = Rival { client: segment.dst, server: segment.src, isn, tick: now, start_tick };
            Some(Entry { rival: Some(rival), ..entry })
        }
        State::Closed if entry.isn != Some(isn) => answered(),
        State::SynSent if segment.src == entry.server => {
            Some(Entry { state: State::SynRecv, since_tick: now, ..entry })
        }
        // A server that repeats its SYN-ACK is waited for longer; what comes within a second is a copy.
        State::SynRecv
            if segment.src == entry.server && entry.isn == Some(isn) && now >= entry.start_tick + COPY_TICKS =>
        {
            Some(Entry { since_tick: now, ..entry })
        }
        _ => Some(entry),
    }
}

fn after_fin(before: Option<Entry>, segment: &Segment, now: u64, pickup: bool) -> Option<Entry> {
    let mut entry = before?;
    match entry.state {
        State::SynSent => return None,
        // While it is repeated, what ended is remembered.
        State::Closed if pickup => return Some(Entry { since_tick: now, ..entry }),
        State::Closed => return Some(entry),
        State::SynRecv | State::Established | State::Noticed => {}
    }
    if segment.src == entry.client {
        entry.client_fin = true;
        entry.state = State::Established;
    } else {
        entry.server_fin = true;
    }
    if entry.client_fin && entry.server_fin {
        entry.state = State::Closed;
        entry.since_tick = now;
    }
    Some(entry)
}

fn after_other(before: Option<Entry>, segment: &Segment, now: u64, rules: Rules) -> Option<Entry> {
    let mut entry = before?;
    if entry.state == State::SynRecv && segment.src == entry.client {
        entry.state = State::Established;
    }
    let Some(rival) = entry.rival.take_if(|rival| rival.client == segment.src) else { return Some(entry) };
    // The window in a SYN-ACK has 16 bits, and is not scaled.
    let follows = segment.seq.wrapping_sub(rival.isn.wrapping_add(1)) <= u32::from(u16::MAX);
    let is_answer = follows && now.saturating_sub(rival.tick) <= rules.syn_timeout_ticks;
    if is_answer && entry.state == State::Established {
        let new = half_open(State::Established, (rival.client, rival.server), rival.isn, rival.start_tick);
        return Some(new);
    }
    Some(entry)
}

fn half_open(state: State, (client, server): (SocketAddr, SocketAddr), isn: u32, now: u64) -> Entry {
    Entry {
        state,
        client,
        server,
        isn: Some(isn),
        client_fin: false,
        server_fin: false,
        since_tick: now,
        start_tick: now,
        rival: None,
    }
}
