//! How connections begin: SYN, SYN-ACK, and the client's answer.
//!
//! What enters: a signal, and the entry of its connection. What leaves: half-open entries, and openings.

use super::of_client;
use crate::flow::FlowKey;
use crate::signal::{AnyKey, ConnectionHash, Kind, Signal, SignalParts};
use crate::track::half_open::Draft;
use crate::track::{Entry, Event, ISN_UNKNOWN, Slot, State, Tracker};

impl Tracker {
    /// Whether this signal is a RST that refuses a connection: it answers a SYN after which nothing else was seen of
    /// the connection. Call this before the signal is handled.
    pub fn refuses(&mut self, signal: &Signal) -> bool {
        let parts = signal.parts();
        self.advance(parts.tick);
        let found = self.filter.find(signal.hash(), self.now);
        parts.kind == Kind::Rst
            && found.is_some_and(|(_, entry)| entry.state == State::SynSent && entry.client != parts.sender)
    }

    /// Begins a connection with a signal of its handshake as if nothing were known of it, in its slot or in a new
    /// place.
    #[inline(always)]
    pub(super) fn begin_anew(&mut self, signal: &Signal, parts: SignalParts, slot: Option<Slot>) -> Option<Event> {
        let entry = |state, client| self.fresh(signal.hash(), state, client, Entry::short_isn(parts.isn));
        let opened = match parts.kind {
            Kind::Completes => entry(State::Established, parts.sender),
            Kind::SynAck if self.config.answer_opens => entry(State::Established, parts.sender.other()),
            kind => {
                let (state, client) = match kind {
                    Kind::SynAck => (State::AnsweredUnseen, parts.sender.other()),
                    _ => (State::SynSent, parts.sender),
                };
                let half_open = entry(state, client);
                self.begin(signal, slot, &half_open);
                return None;
            }
        };
        match slot {
            Some(slot) => self.open(signal, slot, opened),
            None => self.open_unplaced(signal, opened),
        }
    }

    pub(super) fn syn(&mut self, signal: &Signal, parts: SignalParts, (slot, entry): (Slot, Entry)) -> Option<Event> {
        let short_isn = Entry::short_isn(parts.isn);
        let begins = match entry.state {
            State::Closed => entry.short_isn != short_isn,
            State::SynSent => entry.short_isn != short_isn && entry.client == parts.sender,
            _ => false,
        };
        if begins {
            return self.begin_anew(signal, parts, Some(slot));
        }
        self.counts.repeats += 1;
        None
    }

    pub(super) fn syn_ack(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        (slot, entry): (Slot, Entry),
    ) -> Option<Event> {
        let client = parts.sender.other();
        let short_isn = Entry::short_isn(parts.isn);
        match entry.state {
            // From here on the ISN is the one that the SYN-ACK acknowledges. The server may have accepted data in the
            // SYN, and then the client's next packet and a retransmitted SYN-ACK go by that number.
            State::SynSent if entry.client == client && self.config.answer_opens => {
                self.open(signal, slot, Entry { state: State::Established, short_isn, ..entry })
            }
            State::SynSent if entry.client == client && entry.age(self.now) == 0 && entry.short_isn == short_isn => {
                self.filter.set_state(slot, State::SynRecv);
                self.rings.answer(self.filter.get(slot).tick);
                None
            }
            State::SynSent if entry.client == client => {
                self.begin(signal, Some(slot), &Entry { state: State::SynRecvLate, short_isn, ..entry });
                None
            }
            State::Closed if entry.short_isn != short_isn => self.begin_anew(signal, parts, Some(slot)),
            state if state.is_established() && entry.short_isn != short_isn => {
                let closed = self.close(signal, &entry);
                let opened = self.begin_anew(signal, parts, Some(slot));
                replaced(closed, opened)
            }
            State::OneWayClient if entry.client == client => {
                self.one_way -= 1;
                self.filter.set_state(slot, State::Established);
                None
            }
            _ => {
                self.counts.repeats += 1;
                None
            }
        }
    }

    /// Writes a half-open connection into the ring and the filter, in its slot or in a new place.
    #[inline(always)]
    pub(super) fn begin(&mut self, signal: &Signal, slot: Option<Slot>, entry: &Entry) {
        match signal.key() {
            AnyKey::V4(key) => self.begin_as(of_client(key, entry.client), signal.hash(), slot, entry),
            AnyKey::V6(key) => self.begin_as(of_client(key, entry.client), signal.hash(), slot, entry),
        }
    }

    #[inline(never)]
    fn begin_as<K: FlowKey>(&mut self, key: K, hash: ConnectionHash, slot: Option<Slot>, entry: &Entry) {
        if let Some(slot) = slot {
            self.end_half_open(slot);
        }
        let draft = Draft::new(key, entry, self.now);
        self.counts.recycled += self.make_room(|rings| &mut rings.half_open, draft.size());
        let spot = self.rings.half_open.next_spot();
        let named = Entry { tick: spot.place, ..*entry };
        let slot = match slot {
            Some(slot) => {
                self.filter.set(slot, &named);
                slot
            }
            None => match self.place(hash, &named) {
                Some(slot) => slot,
                None => return,
            },
        };
        self.rings.half_open.push(&draft, spot, slot);
    }

    pub(super) fn completes(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        (slot, entry): (Slot, Entry),
    ) -> Option<Event> {
        let short_isn = Entry::short_isn(parts.isn);
        match entry.state {
            State::SynSent if entry.client == parts.sender && entry.short_isn == short_isn => {
                self.open(signal, slot, Entry { state: State::Established, ..entry })
            }
            State::SynSent if entry.client == parts.sender => self.begin_anew(signal, parts, Some(slot)),
            // In a simultaneous open: the side whose SYN was seen first has answered the SYN of this one.
            State::SynSent => self.open(signal, slot, Entry { state: State::Established, short_isn, ..entry }),
            // The capture side knows few bits of the ISN: if these agree it is a later packet of the known connection.
            _ if entry.is_told_as(short_isn) => self.ack(signal, parts, (slot, entry)),
            // A packet of the other side may be the answer in a simultaneous open, which has two ISNs. (If the start
            // was not seen, which side is the client is a guess.)
            _ if entry.client != parts.sender && entry.short_isn != ISN_UNKNOWN => {
                self.ack(signal, parts, (slot, entry))
            }
            State::Closed => self.begin_anew(signal, parts, Some(slot)),
            state if state.is_established() && !state.is_one_way() => {
                let closed = self.close(signal, &entry);
                let opened = self.begin_anew(signal, parts, Some(slot));
                replaced(closed, opened)
            }
            // An earlier SYN-ACK with another ISN was no answer to this client.
            state if state.is_answered() && entry.client == parts.sender => {
                self.ack(signal, parts, (slot, Entry { short_isn, ..entry }))
            }
            _ => self.ack(signal, parts, (slot, entry)),
        }
    }

    pub(super) fn ack(&mut self, signal: &Signal, parts: SignalParts, (slot, entry): (Slot, Entry)) -> Option<Event> {
        let from_client = parts.sender == entry.client;
        let one_way_allowed = self.one_way < self.config.one_way_max;
        let state = match entry.state {
            State::SynRecv | State::SynRecvLate | State::AnsweredUnseen if from_client => State::Established,
            state if state.is_answered() && from_client => State::EstablishedServerFin,
            State::SynSent if from_client && one_way_allowed => State::OneWayClient,
            State::AnsweredUnseen if !from_client && one_way_allowed => State::OneWayServer,
            State::OneWayClient | State::OneWayServer => {
                // The other side is there after all: from now on both have to end the connection.
                if from_client == (entry.state == State::OneWayServer) {
                    self.one_way -= 1;
                    self.filter.set_state(slot, State::Established);
                }
                return None;
            }
            _ => return None,
        };
        self.open(signal, slot, Entry { state, ..entry })
    }
}

/// The one event for a closing and an opening.
fn replaced(closed: Option<Event>, opened: Option<Event>) -> Option<Event> {
    match (closed, opened) {
        (Some(Event::Close(before, payload_before)), Some(Event::Open(after, payload))) => {
            Some(Event::Replace((before, payload_before), (after, payload)))
        }
        (closed, opened) => closed.or(opened),
    }
}
