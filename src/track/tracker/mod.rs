//! The state table: what each signal does to its connection.
//!
//! What enters: the signals of one partition, in order. What leaves: exactly one opening and one closing for each
//! connection, whatever is retransmitted, late or forged, and counts of the rest. ("Answered" is `syn_recv` in lists.
//! The ISN is the client's initial sequence number.)
//!
//! | signal | no entry | syn_sent | answered | established | closed (lingers) |
//! |---|---|---|---|---|---|
//! | SYN | syn_sent | of the client, other ISN: start over; else: repeat | repeat | repeat | same ISN: repeat; other: syn_sent |
//! | SYN-ACK | answered | of the server: answered; else: repeat | repeat | same ISN: repeat; other: close, answered | same ISN: repeat; other: answered |
//! | completes, of the client | open | open | open | same ISN: -; other: close, open | same ISN: -; other: open |
//! | other, of the client | - | - | open | - | - |
//! | FIN | unmatched | removed | mark the server's; the client's: open, mark; both: open, close | mark its side; both: close | late |
//! | RST | unmatched | removed | removed | close | late |
//!
//! A signal that completes a handshake may overtake the SYN and the SYN-ACK if these come in by another queue, and is
//! sufficient by itself; in a simultaneous open it may be the server's in syn_sent. If a SYN-ACK is enough to open a
//! connection, "answered" means "open". If connections may open that are seen from one side only, a further packet of
//! that side opens them. Connections that are older than the start are in [`pickup`].

mod handshake;
mod liveness;
mod pickup;
mod rings;
mod saved;
mod untracked;

pub use liveness::Sighting;

use crate::flow::{FlowKey, KeyV4, KeyV6, Side};
use crate::handover::Counts;
use crate::hash::{KeyedHash, Purpose, Secret};
use crate::signal::{AnyKey, ConnectionHash, Kind, SYN_TIMEOUT_MAX_TICKS, Signal, SignalParts};
use crate::track::half_open::{RingCounts, Rings};
use crate::track::{Entry, Filter, FilterConfig, ISN_UNKNOWN, Moved, Placed, Slot, State};
use untracked::Untracked;

/// How long a closed connection lingers, in ticks of 100 ms: late packets and retransmissions come within seconds.
pub const LINGER_TICKS: u32 = 100;

/// The most connections, and the most openings and closings an interval, that can be asked for: a subtable's cells are
/// chosen by 24 bits of a hash, and a partition's share of more would crowd together.
pub const CONNECTIONS_MAX: u64 = 100_000_000;

/// How long a candidate waits for a packet of its other side, in ticks of 100 ms: ten minutes, in which a sample of one
/// packet in 16 meets both sides of a connection that sends a packet every ten seconds.
pub const CANDIDATE_TIMEOUT_TICKS: u64 = 6_000;

const _: () = assert!(CANDIDATE_TIMEOUT_TICKS <= 2 * SYN_TIMEOUT_MAX_TICKS, "a delta must be able to tell its start");

const _: () = assert!((LINGER_TICKS as u64) < SYN_TIMEOUT_MAX_TICKS);

/// The configuration of a [`Tracker`].
#[derive(Clone, Debug)]
pub struct TrackerConfig {
    /// The secret under which connections are hashed.
    pub secret: Secret,
    /// The fewest places of the filter.
    pub place_count: usize,
    /// How many IPv4 connections the half-open ring has room for.
    pub half_open_count: usize,
    /// The most established connections to track.
    pub connections_max: u64,
    /// How long a half-open connection is kept, in ticks; at most
    /// [`SYN_TIMEOUT_MAX_TICKS`](crate::signal::SYN_TIMEOUT_MAX_TICKS).
    pub syn_timeout_ticks: u64,
    /// How long a closed connection lingers, in ticks.
    pub linger_ticks: u32,
    /// The most connections that may be open with packets of one side only; zero turns this off.
    pub one_way_max: u64,
    /// How many IPv4 candidates there is room for; zero turns picking up off.
    pub candidate_count: usize,
    /// How long a candidate waits for its other side, in ticks.
    pub candidate_timeout_ticks: u64,
    /// How long an untracked connection may be open without being found, in ticks; `None` for ever.
    pub untracked_ticks: Option<u64>,
    /// Whether a SYN-ACK is enough to open a connection, because packets without a flag are not seen.
    pub answer_opens: bool,
    /// The width of the filter's fingerprints: [`FINGERPRINT_BITS`](crate::signal::FINGERPRINT_BITS), or fewer in a
    /// test.
    pub fingerprint_bits: u32,
}

impl TrackerConfig {
    /// The memory of both rings, in bytes.
    #[must_use]
    pub fn rings_size(&self) -> usize {
        Rings::size(self.ring_counts())
    }

    fn ring_counts(&self) -> RingCounts {
        RingCounts { half_open: self.half_open_count, candidates: self.candidate_count }
    }

    fn filter(&self) -> FilterConfig {
        let TrackerConfig { place_count, linger_ticks, fingerprint_bits, .. } = *self;
        FilterConfig { place_count, linger_ticks, fingerprint_bits }
    }
}

/// A change of the set of open connections. The payload goes with the key, and is the same for the closing as for the
/// opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection with this key, client first, has opened.
    Open(AnyKey, u32),
    /// The connection with this key has closed.
    Close(AnyKey, u32),
    /// The first connection has closed, and the second, between the same ends, has opened.
    Replace((AnyKey, u32), (AnyKey, u32)),
    /// The connection opened and closed with one packet: there is nothing to insert and delete.
    Pass(AnyKey, u32),
}

/// The connections of one partition. All memory is allocated when it is made.
pub struct Tracker {
    filter: Filter,
    rings: Rings,
    hash_v4: KeyedHash<KeyV4>,
    hash_v6: KeyedHash<KeyV6>,
    config: TrackerConfig,
    now: u64,
    established: u64,
    one_way: u64,
    /// An estimate of the established connections that are not tracked.
    untracked: Untracked,
    counts: Counts,
}

impl Tracker {
    /// A tracker without a connection.
    ///
    /// # Panics
    ///
    /// The rings are for more than 2^[`TICK_BITS`](crate::signal::TICK_BITS) connections together.
    #[must_use]
    pub fn new(config: TrackerConfig) -> Self {
        Tracker {
            filter: Filter::new(config.filter()),
            rings: Rings::new(config.ring_counts()),
            hash_v4: KeyedHash::new(&config.secret, Purpose::Connection),
            hash_v6: KeyedHash::new(&config.secret, Purpose::Connection),
            config,
            now: 0,
            established: 0,
            one_way: 0,
            untracked: Untracked::default(),
            counts: Counts::default(),
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { untracked_open: self.untracked.connections(), ..self.counts }
    }

    /// Prefetches what [`Self::handle`] reads first for this signal.
    #[inline]
    pub fn prefetch(&self, signal: &Signal) {
        self.filter.prefetch(signal.hash());
    }

    /// Prefetches what [`Self::handle`] reads next for this signal, once the first has arrived.
    #[inline]
    pub fn prefetch_second(&self, signal: &Signal) {
        self.filter.prefetch_second(signal.hash());
    }

    /// Moves time on to `tick`, and removes what has timed out.
    #[inline]
    pub fn advance(&mut self, tick: u64) {
        if tick > self.now {
            self.now = tick;
            self.expire();
        }
    }

    /// Applies a signal.
    #[inline]
    pub fn handle(&mut self, signal: &Signal) -> Option<Event> {
        let parts = signal.parts();
        self.advance(parts.tick);
        let hash = signal.hash();
        let Some((slot, entry)) = self.filter.find(hash, self.now) else {
            return self.handle_unknown(signal, parts);
        };
        let found = (slot, self.rings.with_tick(entry));
        if entry.state.is_established() {
            self.filter.mark_seen(slot);
        } else if entry.state == State::Candidate {
            return self.candidate(signal, parts, found);
        }
        match parts.kind {
            Kind::Syn => self.syn(signal, parts, found),
            Kind::SynAck => self.syn_ack(signal, parts, found),
            Kind::Completes => self.completes(signal, parts, found),
            Kind::Ack => self.ack(signal, parts, found),
            Kind::Fin => self.fin(signal, parts, found),
            Kind::Rst => self.reset(signal, found),
        }
    }

    /// Applies a signal of an unknown connection.
    #[inline]
    fn handle_unknown(&mut self, signal: &Signal, parts: SignalParts) -> Option<Event> {
        match parts.kind {
            Kind::Syn | Kind::SynAck | Kind::Completes => return self.begin_anew(signal, parts, None),
            Kind::Ack => self.notice(signal, parts),
            Kind::Fin => {
                self.unmatched_fin();
                self.leave_trace(signal.hash());
            }
            Kind::Rst => {
                self.unmatched_reset();
                self.leave_trace(signal.hash());
            }
        }
        None
    }

    fn fin(&mut self, signal: &Signal, parts: SignalParts, (slot, entry): (Slot, Entry)) -> Option<Event> {
        let from_client = parts.sender == entry.client;
        let marked = match (entry.state, from_client) {
            (State::SynSent, _) => {
                // The client ends a connection without an answer: the answer came another way.
                self.counts.one_sided += u64::from(from_client);
                self.refuse(slot);
                return None;
            }
            (State::SynRecv | State::SynRecvLate | State::AnsweredUnseen, true) => {
                return self.open(signal, slot, Entry { state: State::EstablishedClientFin, ..entry });
            }
            (state, true) if state.is_answered() => {
                self.counts.opened += 1;
                self.counts.closed += 1;
                self.end_half_open(slot);
                self.linger(slot, &entry);
                return Some(Event::Pass(oriented(signal, entry.client), entry.payload()));
            }
            (State::SynRecv, false) => State::SynRecvServerFin,
            (State::SynRecvLate, false) => State::SynRecvLateServerFin,
            (State::AnsweredUnseen, false) => {
                self.counts.one_sided += 1;
                State::AnsweredUnseenServerFin
            }
            (State::Established, true) => State::EstablishedClientFin,
            (State::Established, false) => State::EstablishedServerFin,
            (State::OneWayClient, false) => State::EstablishedServerFin,
            (State::OneWayServer, true) => State::EstablishedClientFin,
            (State::OneWayClient, true)
            | (State::OneWayServer, false)
            | (State::EstablishedServerFin, true)
            | (State::EstablishedClientFin, false) => {
                let event = self.close(signal, &entry);
                self.linger(slot, &entry);
                return event;
            }
            (State::Closed, _) => {
                self.late_fin(slot, &entry);
                return None;
            }
            _ => return None,
        };
        self.one_way -= u64::from(entry.state.is_one_way());
        self.filter.set_state(slot, marked);
        None
    }

    fn reset(&mut self, signal: &Signal, (slot, entry): (Slot, Entry)) -> Option<Event> {
        if entry.is_trace() {
            self.unmatched_reset();
        } else if entry.state == State::Closed {
            self.counts.late += 1;
        } else if entry.state.is_established() {
            let event = self.close(signal, &entry);
            self.linger(slot, &entry);
            return event;
        } else {
            self.refuse(slot);
        }
        None
    }

    /// An entry of the present tick.
    fn fresh(&self, hash: ConnectionHash, state: State, client: Side, short_isn: u32) -> Entry {
        Entry { fingerprint: self.filter.fingerprint(hash), state, client, tick: Entry::tick_of(self.now), short_isn }
    }

    /// Notes that the connection in this slot is no longer half-open or gets another record. Call this before its entry
    /// is changed.
    #[inline]
    fn end_half_open(&mut self, slot: Slot) {
        self.rings.end(&self.filter.get(slot));
    }

    /// Places the entry of a connection that has none, and returns its slot if there was a place. The entry of a
    /// half-open connection names the record that is written next.
    #[inline(always)]
    fn place(&mut self, hash: ConnectionHash, entry: &Entry) -> Option<Slot> {
        let (rings, now) = (&self.rings, self.now);
        let Some((slot, placed)) = self.filter.insert(hash, entry, now, |held| rings.with_tick(*held).age(now)) else {
            self.counts.unplaced += 1;
            return None;
        };
        match placed {
            Placed::Free => {}
            Placed::Moved(Moved { to, has_forgotten }) => {
                to.into_iter().flatten().for_each(|to| self.rings.entry_moved(&self.filter.get(to), to));
                self.counts.forgotten += u64::from(has_forgotten);
            }
            Placed::Evicted(entry) => {
                self.rings.end(&entry);
                match entry.state {
                    State::Closed => self.counts.forgotten += 1,
                    State::Candidate => self.counts.candidates_recycled += 1,
                    _ => self.counts.recycled += 1,
                }
            }
        }
        Some(slot)
    }

    /// Opens a connection in its slot, unless there are too many already.
    fn open(&mut self, signal: &Signal, slot: Slot, entry: Entry) -> Option<Event> {
        self.end_half_open(slot);
        if self.established >= self.config.connections_max {
            self.refuse_open(&entry);
            self.filter.remove(slot);
            return None;
        }
        self.opened(signal, slot, entry)
    }

    /// Opens a connection that has no slot, unless there are too many already.
    fn open_unplaced(&mut self, signal: &Signal, entry: Entry) -> Option<Event> {
        // One that is refused must not take the place of another.
        if self.established >= self.config.connections_max {
            self.refuse_open(&entry);
            return None;
        }
        let slot = self.place(signal.hash(), &entry)?;
        self.opened(signal, slot, entry)
    }

    /// Notes that a connection is established which is one too many to track.
    fn refuse_open(&mut self, entry: &Entry) {
        self.counts.refused_open += 1;
        let has_fin = matches!(entry.state, State::EstablishedClientFin | State::EstablishedServerFin);
        self.untracked.refuse(if has_fin { 1 } else { 2 }, self.now);
    }

    fn opened(&mut self, signal: &Signal, slot: Slot, entry: Entry) -> Option<Event> {
        self.established += 1;
        self.one_way += u64::from(entry.state.is_one_way());
        self.counts.opened += 1;
        self.filter.set(slot, &entry);
        self.filter.mark_seen(slot);
        Some(Event::Open(oriented(signal, entry.client), entry.payload()))
    }

    /// Notes that an open connection is open no longer.
    fn end_established(&mut self, entry: &Entry) {
        self.established -= 1;
        self.one_way -= u64::from(entry.state.is_one_way());
    }

    fn close(&mut self, signal: &Signal, entry: &Entry) -> Option<Event> {
        self.end_established(entry);
        self.counts.closed += 1;
        Some(Event::Close(oriented(signal, entry.client), entry.payload()))
    }

    /// Leaves a closed entry behind. Its short ISN marks it as a connection that was known, even if the ISN was not.
    fn linger(&mut self, slot: Slot, entry: &Entry) {
        let (tick, short_isn) = (Entry::tick_of(self.now), entry.short_isn.max(ISN_UNKNOWN + 1));
        self.filter.set(slot, &Entry { state: State::Closed, tick, short_isn, ..*entry });
    }

    fn refuse(&mut self, slot: Slot) {
        self.counts.refused += 1;
        self.end_half_open(slot);
        // Nothing lingers: the SYN may be retransmitted with the same ISN.
        self.filter.remove(slot);
    }
}

/// The key of the signal, client first.
#[inline]
fn oriented(signal: &Signal, client: Side) -> AnyKey {
    match signal.key() {
        AnyKey::V4(key) => AnyKey::V4(of_client(key, client)),
        AnyKey::V6(key) => AnyKey::V6(of_client(key, client)),
    }
}

/// A canonical key turned round if need be, so that the client is first.
#[inline]
fn of_client<K: FlowKey>(key: K, client: Side) -> K {
    match client {
        Side::First => key,
        Side::Second => key.reversed(),
    }
}
