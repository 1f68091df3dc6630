//! The state table: what each signal does to the connection it belongs to.
//!
//! | signal | no entry | syn_sent | answered | established | closed (lingers) |
//! |---|---|---|---|---|---|
//! | SYN | syn_sent | same number: repeat; other: start over | repeat | ignored | same number: repeat; other: syn_sent |
//! | SYN-ACK | answered | answered | repeat | same number: repeat; other: close, answered | same number: ignored; other: answered |
//! | other, of the client | - | - | established, open | - | - |
//! | FIN | unmatched | removed | mark its side, open when the client's | mark its side; both: close | late |
//! | RST | unmatched | removed | removed | close | late |

use crate::connection::{Entry, Filter, HalfOpen, HalfOpenRing, Placed, Slot, State};
use crate::flow::{FlowKey, KeyV4, KeyV6, Side};
use crate::hash::{HASH_GROUP_COUNT, KeyedHash, Purpose, Secret};
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

/// What happened to the connections of a tracker since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections established.
    pub opened: u64,
    /// Established connections that ended.
    pub closed: u64,
    /// Half-open connections that were reset or given up by a FIN.
    pub refused: u64,
    /// Half-open connections that timed out.
    pub expired: u64,
    /// Half-open connections that had to make room for newer ones, in the ring or in the filter.
    pub recycled: u64,
    /// Packets seen again: repeated SYNs and SYN-ACKs.
    pub repeats: u64,
    /// FINs and RSTs of connections that had closed a short while before.
    pub late: u64,
    /// FINs of connections that are not known.
    pub unmatched_fins: u64,
    /// RSTs of connections that are not known.
    pub unmatched_resets: u64,
    /// Closed connections that had to go before they had lingered.
    pub forgotten: u64,
    /// Connections that were established but could not be tracked: no place, or too many.
    pub refused_open: u64,
    /// About how many of those are open still: what ends without being known takes from it, half a connection a FIN.
    pub untracked_open: u64,
    /// Attempts that found no place at all.
    pub unplaced: u64,
    /// Half-open connections that one side ended without the other ever being seen.
    pub one_sided: u64,
}

impl Counts {
    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Counts {
            opened: self.opened + other.opened,
            closed: self.closed + other.closed,
            refused: self.refused + other.refused,
            expired: self.expired + other.expired,
            recycled: self.recycled + other.recycled,
            repeats: self.repeats + other.repeats,
            late: self.late + other.late,
            unmatched_fins: self.unmatched_fins + other.unmatched_fins,
            unmatched_resets: self.unmatched_resets + other.unmatched_resets,
            forgotten: self.forgotten + other.forgotten,
            refused_open: self.refused_open + other.refused_open,
            untracked_open: self.untracked_open + other.untracked_open,
            unplaced: self.unplaced + other.unplaced,
            one_sided: self.one_sided + other.one_sided,
        }
    }

    /// Connections that could not be tracked: established ones beyond the limit, attempts without a place, and half-open
    /// ones that made room for others.
    #[must_use]
    pub fn untracked(&self) -> u64 {
        self.refused_open + self.unplaced + self.recycled
    }
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
        match found {
            None => self.begin(signal, hash, None, self.fresh(hash, State::SynSent, parts.sender, number)),
            Some((slot, entry)) => match entry.state {
                State::Closed if entry.number != number => {
                    self.begin(signal, hash, Some(slot), self.fresh(hash, State::SynSent, parts.sender, number));
                }
                State::SynSent if entry.number != number && entry.client == parts.sender => {
                    self.begin(signal, hash, Some(slot), self.fresh(hash, State::SynSent, parts.sender, number));
                }
                _ => self.counts.repeats += 1,
            },
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
        self.one_way -= u64::from(matches!(entry.state, State::OneWayClient | State::OneWayServer));
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
        self.one_way += u64::from(matches!(entry.state, State::OneWayClient | State::OneWayServer));
        self.counts.opened += 1;
        self.filter.set(slot, &entry);
        Some(Event::Open(oriented(signal, entry.client), entry.tick))
    }

    fn close(&mut self, signal: &Signal, entry: &Entry) -> Option<Event> {
        self.established -= 1;
        self.one_way -= u64::from(matches!(entry.state, State::OneWayClient | State::OneWayServer));
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

    fn expire(&mut self) {
        // Everything in the old ring is older than everything in the young one.
        while let Some(group) = self.expired(&self.old) {
            self.old.skip(group.iter().flatten());
            self.take_off(&group, |counts| &mut counts.expired);
        }
        while self.old.is_empty()
            && let Some(group) = self.expired(&self.young)
        {
            self.young.skip(group.iter().flatten());
            self.take_off(&group, |counts| &mut counts.expired);
        }
    }

    /// The oldest of a ring's records that have been half-open for too long, if there are any.
    #[inline]
    fn expired(&self, ring: &HalfOpenRing) -> Option<Group> {
        let timeout = self.config.syn_timeout_ticks;
        let is_due = |record: &HalfOpen| self.now.saturating_sub(record.since_tick) > timeout;
        ring.oldest(self.now).filter(is_due)?;
        Some(group(ring.iter(self.now).take_while(is_due)))
    }

    /// Makes room in the young ring: what is half-open still moves over to the old one, where it pushes out the oldest.
    fn move_over(&mut self) {
        let leaving = group(self.young.iter(self.now));
        self.young.skip(leaving.iter().flatten());
        for record in self.current_of(&leaving).into_iter().flatten() {
            while !self.old.has_room() {
                let oldest = group(self.old.iter(self.now));
                self.old.skip(oldest.iter().flatten());
                self.take_off(&oldest, |counts| &mut counts.recycled);
            }
            self.old.push(&record.0);
        }
    }

    /// Takes the connections of these records out of the filter, as far as they are half-open still.
    fn take_off(&mut self, records: &Group, count: impl Fn(&mut Counts) -> &mut u64) {
        for (_, slot) in self.current_of(records).into_iter().flatten() {
            // A connection that was written twice within a tick is there only once.
            if self.filter.get(slot).state.is_half_open() {
                self.filter.remove(slot);
                *count(&mut self.counts) += 1;
            }
        }
    }

    /// Which of these records are half-open still, and where their entries are. The entries of all are asked for before the
    /// first is read.
    fn current_of(&self, records: &Group) -> [Option<(HalfOpen, Slot)>; HASH_GROUP_COUNT] {
        let hashes = self.hashes_of(records);
        for (_, hash) in records.iter().zip(&hashes).filter(|(record, _)| record.is_some()) {
            self.filter.prefetch(*hash);
        }
        std::array::from_fn(|at| {
            let record = records[at]?;
            let (slot, entry) = self.filter.find(hashes[at], self.now).filter(|(_, entry)| record.is_current(entry))?;
            Some((HalfOpen { answered: entry.state.is_answered(), ..record }, slot))
        })
    }

    /// The hashes of these records' connections, hashed together family by family.
    fn hashes_of(&self, records: &Group) -> [ConnectionHash; HASH_GROUP_COUNT] {
        let mut v4 = [KeyV4::default(); HASH_GROUP_COUNT];
        let mut v6 = [KeyV6::default(); HASH_GROUP_COUNT];
        let (mut is_v4, mut is_v6) = (false, false);
        for (at, record) in records.iter().enumerate() {
            match record.map(|record| record.key) {
                Some(AnyKey::V4(key)) => (v4[at], is_v4) = (key.canonical().0, true),
                Some(AnyKey::V6(key)) => (v6[at], is_v6) = (key.canonical().0, true),
                None => {}
            }
        }
        let (mut hashes_v4, mut hashes_v6) = ([0; HASH_GROUP_COUNT], [0; HASH_GROUP_COUNT]);
        if is_v4 {
            self.hash_v4.of_group(&v4, &mut hashes_v4);
        }
        if is_v6 {
            self.hash_v6.of_group(&v6, &mut hashes_v6);
        }
        std::array::from_fn(|at| {
            let is_v4 = records[at].is_some_and(|record| matches!(record.key, AnyKey::V4(_)));
            ConnectionHash::new(if is_v4 { hashes_v4[at] } else { hashes_v6[at] })
        })
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

    /// The half-open connections, oldest first; one that was written twice in a tick may be given twice.
    pub fn half_open(&self) -> impl Iterator<Item = HalfOpen> {
        let mut records = self.old.iter(self.now).chain(self.young.iter(self.now));
        let groups = std::iter::from_fn(move || Some(group(&mut records)).filter(|group| group[0].is_some()));
        groups.flat_map(|group| self.current_of(&group)).flatten().map(|(record, _)| record)
    }

    /// Writes the half-open connections into an empty ring with room for as many.
    pub fn copy_half_open(&self, ring: &mut HalfOpenRing) {
        for record in self.half_open() {
            ring.push(&record);
        }
    }

    fn hash_of(&self, key: &AnyKey) -> ConnectionHash {
        ConnectionHash::new(match key {
            AnyKey::V4(key) => self.hash_v4.of(&key.canonical().0),
            AnyKey::V6(key) => self.hash_v6.of(&key.canonical().0),
        })
    }
}

/// Records that are looked up together.
type Group = [Option<HalfOpen>; HASH_GROUP_COUNT];

/// The next records, as many as there are.
fn group(records: impl Iterator<Item = HalfOpen>) -> Group {
    let mut group = [None; HASH_GROUP_COUNT];
    group.iter_mut().zip(records).for_each(|(place, record)| *place = Some(record));
    group
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
