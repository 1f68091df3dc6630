//! The state table: what each signal does to the connection it belongs to.
//!
//! What enters: the signals of one partition, in order. What leaves: openings and closings, exactly one of each a
//! connection, whatever is repeated, late or forged; and counts of the rest. ("Answered" is `syn_recv` in lists; a
//! number is the client's initial sequence number.)
//!
//! | signal | no entry | syn_sent | answered | established | closed (lingers) |
//! |---|---|---|---|---|---|
//! | SYN | syn_sent | same number: repeat; other: start over | repeat | ignored | same number: repeat; other: syn_sent |
//! | SYN-ACK | answered | answered | repeat | same number: repeat; other: close, answered | same number: ignored; other: answered |
//! | other, of the client | - | - | established, open | - | - |
//! | FIN | unmatched | removed | mark its side, open when the client's | mark its side; both: close | late |
//! | RST | unmatched | removed | removed | close | late |

mod rings;

use crate::connection::{Counts, Entry, Filter, HalfOpen, HalfOpenRing, Placed, Slot, State};
use crate::flow::{FlowKey, KeyV4, KeyV6, Side};
use crate::hash::{KeyedHash, Purpose, Secret};
use crate::signal::{AnyKey, ConnectionHash, Kind, Signal, SignalParts};

/// What a [`Tracker`] is told once.
#[derive(Clone, Debug)]
pub struct TrackerConfig {
    /// The secret under which signals were hashed.
    pub secret: Secret,
    /// The places of the filter.
    pub place_count: usize,
    /// The IPv4 connections that the half-open ring has room for.
    pub half_open_count: usize,
    /// The most established connections that are tracked.
    pub connections_max: u64,
    /// How long a half-open connection is kept, in ticks; at most [`SYN_TIMEOUT_MAX_TICKS`](crate::config::SYN_TIMEOUT_MAX_TICKS).
    pub syn_timeout_ticks: u64,
    /// How long a closed connection lingers, in ticks.
    pub linger_ticks: u32,
    /// The most connections that may be open by the packets of one side alone; zero: none.
    pub one_way_max: u64,
    /// The width of the filter's fingerprints: [`FINGERPRINT_BITS`](crate::config::FINGERPRINT_BITS), or less in a test.
    pub fingerprint_bits: u32,
}

/// What a signal did to the set of open connections. The payload is what goes with the key: it is the same at the close
/// as it was at the opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection with this key, client first, is established.
    Open(AnyKey, u32),
    /// It is no longer.
    Close(AnyKey, u32),
}

/// The connections of one partition. All memory is taken when it is made.
pub struct Tracker {
    filter: Filter,
    /// The half-open connections as they come. Most are established or refused before they reach the end of it;
    young: HalfOpenRing,
    /// the others move over, so that those that last are not pushed out by those that do not.
    old: HalfOpenRing,
    hash_v4: KeyedHash<KeyV4>,
    hash_v6: KeyedHash<KeyV6>,
    config: TrackerConfig,
    now: u64,
    established: u64,
    one_way: u64,
    /// The sides that have not ended of established connections that are not tracked.
    untracked_ends: u64,
    counts: Counts,
}

impl Tracker {
    /// A tracker that knows of no connection.
    #[must_use]
    pub fn new(config: TrackerConfig) -> Self {
        Tracker {
            filter: Filter::new(config.place_count, config.linger_ticks, config.fingerprint_bits),
            young: HalfOpenRing::new(config.half_open_count / 2),
            old: HalfOpenRing::new(config.half_open_count - config.half_open_count / 2),
            hash_v4: KeyedHash::new(&config.secret, Purpose::Connection),
            hash_v6: KeyedHash::new(&config.secret, Purpose::Connection),
            config,
            now: 0,
            established: 0,
            one_way: 0,
            untracked_ends: 0,
            counts: Counts::default(),
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { untracked_open: self.untracked_ends.div_ceil(2), ..self.counts }
    }

    /// Asks for what [`Self::handle`] will read for this signal.
    #[inline]
    pub fn prefetch(&self, signal: &Signal) {
        self.filter.prefetch(signal.hash());
    }

    /// Moves time on, and takes off what has been half-open for too long.
    #[inline]
    pub fn advance(&mut self, tick: u64) {
        if tick > self.now {
            self.now = tick;
            self.expire();
        }
    }

    /// Does what a signal says.
    #[inline]
    pub fn handle(&mut self, signal: &Signal) -> Option<Event> {
        let parts = signal.parts();
        self.advance(parts.tick);
        let hash = signal.hash();
        let found = self.filter.find(hash, self.now);
        match parts.kind {
            Kind::Syn => self.syn(signal, parts, hash, found),
            Kind::SynAck => self.syn_ack(signal, parts, hash, found),
            Kind::Ack => self.ack(signal, parts, found?),
            Kind::Fin => self.fin(signal, parts, found),
            Kind::Rst => self.reset(signal, found),
        }
    }

    fn syn(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        hash: ConnectionHash,
        found: Option<(Slot, Entry)>,
    ) -> Option<Event> {
        let number = Entry::number_of(parts.number);
        let begins = found.is_none_or(|(_, entry)| match entry.state {
            State::Closed => entry.number != number,
            State::SynSent => entry.number != number && entry.client == parts.sender,
            _ => false,
        });
        if begins {
            let asked = self.fresh(hash, State::SynSent, parts.sender, number);
            self.begin(signal, hash, found.map(|(slot, _)| slot), asked);
        } else {
            self.counts.repeats += 1;
        }
        None
    }

    fn syn_ack(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        hash: ConnectionHash,
        found: Option<(Slot, Entry)>,
    ) -> Option<Event> {
        let client = parts.sender.other();
        let number = Entry::number_of(parts.number);
        let unseen = self.fresh(hash, State::AnsweredUnseen, client, number);
        let Some((slot, entry)) = found else {
            self.begin(signal, hash, None, unseen);
            return None;
        };
        match entry.state {
            State::SynSent if entry.client == client && entry.age(self.now) == 0 => {
                self.filter.set(slot, &Entry { state: State::SynRecv, ..entry });
                None
            }
            State::SynSent if entry.client == client => {
                self.begin(signal, hash, Some(slot), Entry { state: State::SynRecvLate, ..entry });
                None
            }
            State::Closed if entry.number != number => {
                self.begin(signal, hash, Some(slot), unseen);
                None
            }
            state if state.is_established() && entry.number != number => {
                let event = self.close(signal, &entry);
                self.begin(signal, hash, Some(slot), unseen);
                event
            }
            State::OneWayClient if entry.client == client => {
                self.one_way -= 1;
                self.filter.set(slot, &Entry { state: State::Established, ..entry });
                None
            }
            _ => {
                self.counts.repeats += 1;
                None
            }
        }
    }

    fn ack(&mut self, signal: &Signal, parts: SignalParts, (slot, entry): (Slot, Entry)) -> Option<Event> {
        let from_client = parts.sender == entry.client;
        let one_way_allowed = self.one_way < self.config.one_way_max;
        let state = match entry.state {
            State::SynRecv | State::SynRecvLate | State::AnsweredUnseen if from_client => State::Established,
            state if state.is_answered() && from_client => State::EstablishedServerFin,
            State::SynSent if from_client && one_way_allowed => State::OneWayClient,
            State::AnsweredUnseen if !from_client && one_way_allowed => State::OneWayServer,
            State::OneWayClient | State::OneWayServer => {
                // The other side is there after all: from now on both have to end it.
                if from_client == (entry.state == State::OneWayServer) {
                    self.one_way -= 1;
                    self.filter.set(slot, &Entry { state: State::Established, ..entry });
                }
                return None;
            }
            _ => return None,
        };
        self.open(signal, slot, Entry { state, ..entry })
    }

    fn fin(&mut self, signal: &Signal, parts: SignalParts, found: Option<(Slot, Entry)>) -> Option<Event> {
        let Some((slot, entry)) = found else {
            self.counts.unmatched_fins += 1;
            self.untracked_ends = self.untracked_ends.saturating_sub(1);
            return None;
        };
        let from_client = parts.sender == entry.client;
        let marked = match (entry.state, from_client) {
            (State::SynSent, _) => {
                // A client that ends what nobody answered had its answer on another way.
                self.counts.one_sided += u64::from(from_client);
                self.refuse(slot);
                return None;
            }
            (State::SynRecv | State::SynRecvLate | State::AnsweredUnseen, true) => {
                return self.open(signal, slot, Entry { state: State::EstablishedClientFin, ..entry });
            }
            (state, true) if state.is_answered() => {
                // It opened and closed with one packet: there is nothing to insert and remove again.
                self.counts.opened += 1;
                self.counts.closed += 1;
                self.linger(slot, &entry);
                return None;
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
                self.counts.late += 1;
                return None;
            }
            _ => return None,
        };
        self.one_way -= u64::from(entry.state.is_one_way());
        self.filter.set(slot, &Entry { state: marked, ..entry });
        None
    }

    fn reset(&mut self, signal: &Signal, found: Option<(Slot, Entry)>) -> Option<Event> {
        match found {
            None => {
                self.counts.unmatched_resets += 1;
                self.untracked_ends = self.untracked_ends.saturating_sub(2);
            }
            Some((_, entry)) if entry.state == State::Closed => self.counts.late += 1,
            Some((slot, entry)) if entry.state.is_established() => {
                let event = self.close(signal, &entry);
                self.linger(slot, &entry);
                return event;
            }
            Some((slot, _)) => self.refuse(slot),
        }
        None
    }

    /// An entry that starts now.
    fn fresh(&self, hash: ConnectionHash, state: State, client: Side, number: u32) -> Entry {
        Entry { fingerprint: self.filter.fingerprint(hash), state, client, tick: Entry::tick_of(self.now), number }
    }

    /// Writes a half-open connection, in the place it has or in a new one, and in the ring.
    fn begin(&mut self, signal: &Signal, hash: ConnectionHash, slot: Option<Slot>, entry: Entry) {
        // Written before room is made: what the rings hold of it is then out of date and does not take it off.
        if let Some(slot) = slot {
            self.filter.set(slot, &entry);
        }
        while !self.young.has_room() {
            self.move_over();
        }
        if slot.is_none() {
            match self.filter.insert(hash, &entry, self.now) {
                Placed::Free => {}
                Placed::Evicted(State::Closed) => self.counts.forgotten += 1,
                Placed::Evicted(_) => self.counts.recycled += 1,
                Placed::Full => {
                    self.counts.unplaced += 1;
                    return;
                }
            }
        }
        self.young.push(&HalfOpen {
            key: oriented(signal, entry.client),
            start_tick: self.now - u64::from(entry.age(self.now)),
            since_tick: self.now,
            answered: entry.state.is_answered(),
            number: entry.number,
        });
    }

    /// Makes a half-open connection an open one, if there may be another.
    fn open(&mut self, signal: &Signal, slot: Slot, entry: Entry) -> Option<Event> {
        if self.established >= self.config.connections_max {
            self.counts.refused_open += 1;
            let has_fin = matches!(entry.state, State::EstablishedClientFin | State::EstablishedServerFin);
            self.untracked_ends += if has_fin { 1 } else { 2 };
            self.filter.remove(slot);
            return None;
        }
        self.established += 1;
        self.one_way += u64::from(entry.state.is_one_way());
        self.counts.opened += 1;
        self.filter.set(slot, &entry);
        Some(Event::Open(oriented(signal, entry.client), entry.tick))
    }

    fn close(&mut self, signal: &Signal, entry: &Entry) -> Option<Event> {
        self.established -= 1;
        self.one_way -= u64::from(entry.state.is_one_way());
        self.counts.closed += 1;
        Some(Event::Close(oriented(signal, entry.client), entry.tick))
    }

    /// Leaves a closed entry behind.
    fn linger(&mut self, slot: Slot, entry: &Entry) {
        self.filter.set(slot, &Entry { state: State::Closed, tick: Entry::tick_of(self.now), ..*entry });
    }

    fn refuse(&mut self, slot: Slot) {
        self.counts.refused += 1;
        // Nothing lingers: the SYN may come again with the same number.
        self.filter.remove(slot);
    }

    /// Whether the connection with this key, client first, is established and opened with this payload.
    #[must_use]
    pub fn is_open(&self, key: &AnyKey, payload: u32) -> bool {
        let client = match key {
            AnyKey::V4(key) => key.canonical().1,
            AnyKey::V6(key) => key.canonical().1,
        };
        let found = self.filter.find(self.hash_of(key), self.now);
        found.is_some_and(|(_, entry)| entry.state.is_established() && entry.client == client && entry.tick == payload)
    }

    /// The established connection that this signal belongs to, client first, with the payload it opened with.
    #[must_use]
    pub fn established(&self, signal: &Signal) -> Option<(AnyKey, u32)> {
        let (_, entry) = self.filter.find(signal.hash(), self.now)?;
        entry.state.is_established().then(|| (oriented(signal, entry.client), entry.tick))
    }

    fn hash_of(&self, key: &AnyKey) -> ConnectionHash {
        ConnectionHash::new(match key {
            AnyKey::V4(key) => self.hash_v4.of(&key.canonical().0),
            AnyKey::V6(key) => self.hash_v6.of(&key.canonical().0),
        })
    }
}

/// The signal's key with the client first.
#[inline]
fn oriented(signal: &Signal, client: Side) -> AnyKey {
    match (signal.key(), client) {
        (key, Side::First) => key,
        (AnyKey::V4(key), Side::Second) => AnyKey::V4(key.reversed()),
        (AnyKey::V6(key), Side::Second) => AnyKey::V6(key.reversed()),
    }
}
