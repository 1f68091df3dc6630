//! Connections that are older than the start, found by packets midstream.
//!
//! What enters: a sample of the packets without a flag, and all signals of connections that are candidates or traces.
//! What leaves: openings of connections of which both sides were seen.
//!
//! | signal | no entry | candidate, same side | candidate, other side |
//! |---|---|---|---|
//! | SYN, SYN-ACK, completes | as in the state table | as without an entry | as without an entry |
//! | other | candidate | - | established, open |
//! | FIN | unmatched, trace | unmatched, trace | established with its side marked, open |
//! | RST | unmatched, trace | unmatched, trace | unmatched, trace |
//!
//! One side alone proves nothing: a flood of forged packets fills the candidates' ring and lists nothing. A trace
//! lingers when a connection ends that was not known: the last packets of both sides, which follow a FIN within
//! seconds, must not make it a candidate again.

use crate::flow::{FlowKey, Side};
use crate::signal::{AnyKey, ConnectionHash, Kind, Signal, SignalParts};
use crate::track::half_open::Draft;
use crate::track::{Entry, Event, ISN_UNKNOWN, Placed, Slot, State, Tracker};

impl Entry {
    /// Whether this is a trace.
    pub(super) fn is_trace(&self) -> bool {
        self.state == State::Closed && self.short_isn == ISN_UNKNOWN
    }
}

impl Tracker {
    /// Makes a candidate of an unknown connection, on a packet without a flag: it may be older than the start.
    #[cold]
    pub(super) fn notice(&mut self, signal: &Signal, parts: SignalParts) {
        if self.config.candidate_count == 0 {
            return;
        }
        match signal.key() {
            AnyKey::V4(key) => self.write_candidate(&key, parts.sender, signal.hash()),
            AnyKey::V6(key) => self.write_candidate(&key, parts.sender, signal.hash()),
        }
    }

    fn write_candidate<K: FlowKey>(&mut self, key: &K, sender: Side, hash: ConnectionHash) {
        let candidate = self.fresh(hash, State::Candidate, sender, ISN_UNKNOWN);
        let draft = Draft::new(super::of_client(*key, sender), &candidate, self.now);
        self.counts.candidates_recycled += self.make_room(|rings| &mut rings.candidates, draft.size());
        self.counts.candidates += 1;
        let spot = self.rings.candidates.next_spot();
        let named = Entry { tick: spot.place, ..candidate };
        let (rings, now) = (&self.rings, self.now);
        let placed = self.filter.insert_weak(hash, &named, now, |held| rings.with_tick(*held).age(now));
        self.counts.candidates_recycled += u64::from(!matches!(placed, Some((_, Placed::Free))));
        if let Some((slot, placed)) = placed {
            if let Placed::Evicted(entry) = placed {
                self.rings.end(&entry);
            }
            self.rings.candidates.push(&draft, spot, slot);
        }
    }

    /// Applies a signal of a candidate.
    #[cold]
    pub(super) fn candidate(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        (slot, entry): (Slot, Entry),
    ) -> Option<Event> {
        match parts.kind {
            Kind::Syn | Kind::SynAck | Kind::Completes => self.begin_anew(signal, parts, Some(slot)),
            Kind::Ack | Kind::Fin if parts.sender != entry.client => self.pick_up(signal, parts, slot, entry),
            Kind::Ack => None,
            Kind::Fin => {
                self.unmatched_fin();
                self.trace(slot, &entry);
                None
            }
            Kind::Rst => {
                self.unmatched_reset();
                self.trace(slot, &entry);
                None
            }
        }
    }

    /// Opens a candidate whose other side was seen. Which side opened it is unknown: the end with the lower port is
    /// taken for the server, and of equal ports the end with the lower address.
    fn pick_up(&mut self, signal: &Signal, parts: SignalParts, slot: Slot, entry: Entry) -> Option<Event> {
        if self.established >= self.config.connections_max {
            // A trace lingers, unlike after a refused handshake; otherwise every other packet would count.
            self.counts.refused_pickups += 1;
            let sides = if parts.kind == Kind::Fin { 1 } else { 2 };
            self.untracked.refuse_found(sides, self.now, u64::from(self.config.linger_ticks));
            self.trace(slot, &entry);
            return None;
        }
        let client = likely_client(signal);
        let state = match (parts.kind, parts.sender == client) {
            (Kind::Fin, true) => State::EstablishedClientFin,
            (Kind::Fin, false) => State::EstablishedServerFin,
            _ => State::Established,
        };
        self.counts.picked_up += 1;
        // If untracked connections are open, this most likely was one of them.
        self.untracked.end(2);
        self.open(signal, slot, Entry { state, client, ..entry })
    }

    /// Leaves a trace of an unknown connection that ended, if there is a free place.
    pub(super) fn leave_trace(&mut self, hash: ConnectionHash) {
        if self.config.candidate_count > 0 {
            let trace = self.fresh(hash, State::Closed, Side::First, ISN_UNKNOWN);
            // A trace evicts nothing, so ages do not matter.
            self.filter.insert_weak(hash, &trace, self.now, |_| 0);
        }
    }

    /// Turns a candidate into a trace.
    fn trace(&mut self, slot: Slot, entry: &Entry) {
        self.end_half_open(slot);
        let trace = Entry { state: State::Closed, tick: Entry::tick_of(self.now), short_isn: ISN_UNKNOWN, ..*entry };
        self.filter.set(slot, &trace);
    }

    pub(super) fn unmatched_fin(&mut self) {
        self.counts.unmatched_fins += 1;
        self.untracked.end(1);
    }

    pub(super) fn unmatched_reset(&mut self) {
        self.counts.unmatched_resets += 1;
        self.untracked.end(2);
    }

    /// Handles a FIN of a closed connection. It may be retransmitted at ever longer intervals, and answered each time.
    /// Meanwhile the entry must go on lingering, or the answers would make a candidate of the connection.
    pub(super) fn late_fin(&mut self, slot: Slot, entry: &Entry) {
        if entry.is_trace() {
            self.unmatched_fin();
        } else {
            self.counts.late += 1;
        }
        if self.config.candidate_count > 0 {
            self.filter.set(slot, &Entry { tick: Entry::tick_of(self.now), ..*entry });
        }
    }
}

/// The end of a connection that is more likely the client.
fn likely_client(signal: &Signal) -> Side {
    let (first, second) = match signal.key() {
        AnyKey::V4(key) => (key.first().port(), key.second().port()),
        AnyKey::V6(key) => (key.first().port(), key.second().port()),
    };
    // In a canonical key the end with the lower address comes first.
    if second < first { Side::First } else { Side::Second }
}
