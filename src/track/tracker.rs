//! The state table: what each signal does to its connection.
//!
//! A tracker takes the signals of one partition in order, and returns exactly one opening and one closing for each
//! connection, however much is retransmitted, late or forged. ("Answered" is `syn_recv` in lists. The ISN is the
//! client's initial sequence number.)
//!
//! | signal | no entry | syn_sent | answered | established | closed (lingers) |
//! |---|---|---|---|---|---|
//! | SYN | syn_sent | of the client: same ISN: keep it longer, other: start over; else: contradicts | same ISN: repeat; other: contradicts, or start over if its own SYN was not seen | repeat | same ISN: repeat; other: syn_sent |
//! | SYN-ACK | answered | of the server: answered, or open if the client has answered it already; another than it has answered, or of the client: contradicts | same ISN: keep it longer; other: contradicts | same ISN: repeat; other: contradicts | same ISN: repeat; other: answered |
//! | completes, of the client | open | open | open | same ISN: -; other: close, open | same ISN: open if its handshake came again; other: open, or - if it follows none of what contradicts |
//! | other, of the client | open if it was awaited | if it follows the ISN: has answered | open | if it answers what contradicts: close, open | - |
//! | FIN | of a client that was awaited: open, mark; of a server whose client is awaited: answered, mark; else: unmatched | of what contradicts: as when established; else: removed | of what contradicts: as when established; else: mark the server's; the client's: open, mark; both: open, close | of what contradicts: its client's: close, open, mark; its server's: mark that; else: mark its side; both: close | late |
//! | RST | unmatched | removed | removed | close | late |
//! | alive | of a handshake that was reset: open; else: reopen | of the server: reopen; else as other | as other | unmark its side | reopen |
//! | known | open, mark its ended side | - | - | - | - |
//!
//! A signal that completes a handshake may overtake the SYN and the SYN-ACK if these come in by another queue, and is
//! sufficient by itself; in a simultaneous open it may be the server's in syn_sent. If a SYN-ACK is enough to open a
//! connection, "answered" means "open". If connections may open that are seen from one side only, a further packet of
//! that side opens them, and a FIN of the server ends them at once.
//!
//! Of these a handshake of which nothing was seen but a SYN-ACK is presumed to be answered if its server does not go on
//! to repeat it: with an ACK, or with a RST, neither of which is seen. It stays half-open beyond the timeout, until its
//! server says something, shows another handshake or repeats that one, while there is room.
//!
//! A flood pushes handshakes out of their ring before their time. The capture side remembers longer which clients still
//! have to answer ("awaited"). A connection that opens then starts with that answer, or its start is unknown. A SYN-ACK
//! that is forged before the answer takes the handshake's place here, but not there, so that what completes no
//! handshake that is known here opens its connection in place of one whose SYN was not seen.
//!
//! A client repeats its SYN for minutes, and a server its SYN-ACK: the connection is kept for a timeout from the last
//! of them, and starts with the first. A stack with fixed numbers may open the same ports again with the same ISN: what
//! it sends is a repeat until the handshake is complete, since that takes a SYN or SYN-ACK that came after the end, and
//! its answer. (Within a second from the end they may be copies of the same packets, from another interface.)
//!
//! # Ends that were none
//!
//! A RST or FIN may be forged, or that of an earlier connection between the same ends. A packet that shows by its
//! numbers that its sender has not ended ("alive") takes the end back: the connection is open again with the start that
//! it had, which [`EndedConnections`] knows, and a FIN of its other side still counts. The first packet that follows
//! the SYN of another connection says that the end was true, and what is known of the one before is forgotten.
//!
//! A SYN-ACK may be forged too. One with another ISN than that of the open connection "contradicts" it, and is kept in
//! [`Rivals`]. If the client's next packet follows its number, the client has opened another connection. Otherwise the
//! connection goes on as it was. The same holds of a handshake that is under way, which may be forged itself: the
//! first packet that follows a SYN or SYN-ACK says which of them was true. A SYN-ACK to a SYN that was not seen is
//! forged if its client's first packet, which may be a FIN, does not follow it. If the end before it was forged
//! too, the earlier connection is still open, and the client's first packet has the numbers of that.
//! (Where only one side is seen, or only flags are, nothing can contradict a SYN-ACK, and the connection is closed at
//! once.)
//!
//! # Connections that are older than the start
//!
//! They are picked up midstream, from a sample of the packets without a flag:
//!
//! | signal | no entry | candidate, same side | candidate, other side |
//! |---|---|---|---|
//! | SYN, SYN-ACK, completes | as in the state table | as without an entry | as without an entry |
//! | other | candidate | - | established, open |
//! | FIN | unmatched, trace | unmatched, trace | established with its side marked, open |
//! | RST | unmatched, trace | unmatched, trace | unmatched, trace |
//! | known | as in the state table | established, open | established, open |
//!
//! One side alone proves nothing: a flood of forged packets fills the candidates' ring and lists nothing. A trace
//! lingers when a connection ends that was not known: the last packets of both sides, which follow a FIN within
//! seconds, must not make it a candidate again.
//!
//! # What leaves the rings
//!
//! A record stays in its ring until it is the oldest, or until it is compacted away because it is no longer in use.
//! Records leave in batches: the entries of those that are still in use are prefetched together.
//!
//! # Connections that are refused
//!
//! What opens and finds no room is known to [`Refused`] only. It is treated as the state table says of an established
//! connection, so far as its record is there, and is tracked again when there is room.
//!
//! # Questions of the list
//!
//! Only the list knows the keys of open connections. It asks with a key and the payload of its opening. A question is
//! out of date if the connection has closed, and perhaps opened again; it then finds another payload or none, and
//! changes nothing.

use crate::error::Result;
use crate::flow::{AnyKey, FlowKey, KeyV4, KeyV6, Side};
use crate::handover::{Counts, HalfOpenList, MIDSTREAM, SidesSeen};
use crate::signal::{ConnectionHash, SYN_TIMEOUT_MAX_TICKS, SidesEnded, Signal, SignalKind, SignalParts};
use crate::state::{Decoder, Encoder};
use crate::track::ended::{Ended, EndedConnections};
use crate::track::half_open::{
    MarkedRing, RecordDraft, RecordMark, RingCounts, RingCursor, RingRecord, RingRoom, Rings,
};
use crate::track::refused::{EndedSides, LeftConnection, Refused, RefusedCounts, RefusedRecord, state_of};
use crate::track::rivals::{Rival, Rivals, Verdict};
use crate::track::side_sums::Sides;
use crate::track::{ConnectionState, Filter, FilterConfig, FilterEntry, FilterSlot, ISN_UNKNOWN, Moved, Placed};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_lines::prefetch;
use std::hint::select_unpredictable;
use std::ops::ControlFlow;

/// How long a closed connection lingers, in ticks of 100 ms: late packets and retransmissions come within seconds.
pub const LINGER_TICKS: u32 = 100;

/// For this part of the time that a closed connection lingers, which is a second of ten, copies of the packets of its
/// handshake may come: capture threads are less apart.
const COPY_LINGER_DIVISOR: u32 = 10;

/// The most connections, and the most openings and closings an interval, that can be asked for: a subtable's cells are
/// chosen by 24 bits of a hash, and a partition's share of more would crowd together.
pub const CONNECTIONS_MAX: u64 = 100_000_000;

/// How long a candidate waits for a packet of its other side, in ticks of 100 ms: ten minutes, in which a sample of one
/// packet in 16 meets both sides of a connection that sends a packet every ten seconds.
pub const CANDIDATE_TIMEOUT_TICKS: u64 = 6_000;

const _: () =
    assert!(CANDIDATE_TIMEOUT_TICKS <= 2 * SYN_TIMEOUT_MAX_TICKS, "a delta must be able to express its start");

const _: () = assert!((LINGER_TICKS as u64) < SYN_TIMEOUT_MAX_TICKS);

/// A server repeats a SYN-ACK that is not answered a second after it, and again two seconds after that (RFC 6298,
/// sections 2.1 and 5.5). Of one that was seen last so many ticks after the first at most, it was repeated once.
pub(super) const REPEATED_ONCE_MAX_TICKS: u64 = 20;

/// Of the half-open connections that there is room for, those that may be presumed to be answered are one in this many.
const PRESUMED_DIVISOR: usize = 2;

/// The most records that are taken off a half-open ring together: as many as hide the memory's latency behind each
/// other.
const HALF_OPEN_BATCH_MAX: usize = 32;

/// The fewest, in a small ring.
const HALF_OPEN_BATCH_MIN: usize = 8;

/// The part of a ring that is taken off together, as one in this many: making room in a small ring does not empty it.
const HALF_OPEN_BATCHES_IN_RING: usize = 64;

const _: () = assert!(HALF_OPEN_BATCH_MIN <= HALF_OPEN_BATCH_MAX);

/// The entries that are changed together when their records have moved.
const MOVED_COUNT_MAX: usize = 16;

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
    /// How long a handshake is kept of which nothing was seen but a SYN-ACK, not repeated or once, in ticks, if
    /// connections may be open with packets of one side only; at most
    /// [`PRESUMED_MAX_TICKS`](crate::handover::PRESUMED_MAX_TICKS).
    pub presumed_ticks: u64,
    /// How many connections that have ended there is room for, so that they can be open again as they were.
    pub ended_count: usize,
    /// What there is room for of connections that are open and not tracked.
    pub refused: RefusedCounts,
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
    /// The memory of the rings, of the connections that have ended and of what contradicts others, in bytes.
    #[must_use]
    pub fn rings_size(&self) -> usize {
        Rings::size(self.ring_counts()) + EndedConnections::size(self.ended_count) + Rivals::size()
    }

    /// The memory of what is known of connections that are open and not tracked, in bytes.
    #[must_use]
    pub fn refused_size(&self) -> usize {
        Refused::size(self.refused)
    }

    /// The most that a saved state takes, in bytes.
    #[must_use]
    pub fn state_size(&self) -> usize {
        Filter::size(self.place_count) + self.rings_size() + Refused::state_size(self.refused)
    }

    fn ring_counts(&self) -> RingCounts {
        let presumed = if self.one_way_max == 0 { 0 } else { self.half_open_count / PRESUMED_DIVISOR };
        RingCounts { half_open: self.half_open_count, candidates: self.candidate_count, presumed }
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
    /// The connection with this key is open after all, with the payload of its opening: its closing was none.
    Reopen(AnyKey, u32),
    /// The first connection has closed, and the second, between the same ends, has opened.
    Replace((AnyKey, u32), (AnyKey, u32)),
    /// The connection with this key stays open, and its payload is another: its other side was seen.
    Turn(AnyKey, u32, u32),
    /// The connection opened and closed with one packet: there is nothing to insert and delete.
    Pass(AnyKey, u32),
    /// The first connection has closed, and the second, between the same ends, has opened and closed with that packet.
    CloseAndPass((AnyKey, u32), (AnyKey, u32)),
}

/// What the filter knows of a listed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// The connection is not open, or is another one than the list has.
    Gone,
    /// A packet was seen since the last question.
    Seen {
        /// Whether one side has ended.
        is_half_closed: bool,
    },
    /// No packet was seen since the last question, or since time leaped, but one was between them.
    SeenBefore {
        /// Whether one side has ended.
        is_half_closed: bool,
    },
    /// No packet was seen since the last question.
    Unseen,
}

/// A batch of the oldest records of a ring: the slots of those that are in use, and the position behind all of them.
struct LeavingRecords {
    slots: [FilterSlot; HALF_OPEN_BATCH_MAX],
    count: usize,
    /// Words of the records that are in use.
    useful: usize,
    end: RingCursor,
}

impl LeavingRecords {
    /// The oldest records of a ring, up to the first that is not wanted.
    #[inline]
    fn new(ring: &MarkedRing, is_wanted: impl Fn(RingRecord) -> bool) -> Self {
        let count_max =
            (ring.connection_count() / HALF_OPEN_BATCHES_IN_RING).clamp(HALF_OPEN_BATCH_MIN, HALF_OPEN_BATCH_MAX);
        let mut leaving = LeavingRecords {
            slots: [FilterSlot::default(); HALF_OPEN_BATCH_MAX],
            count: 0,
            useful: 0,
            end: ring.start(),
        };
        for _ in 0..count_max {
            let Some((record, end)) = ring.after(leaving.end).filter(|(record, _)| is_wanted(*record)) else { break };
            let is_useful = ring.mark(record) != RecordMark::Over;
            leaving.slots[leaving.count] = ring.slot(record);
            leaving.count += usize::from(is_useful);
            leaving.useful += if is_useful { record.size() } else { 0 };
            leaving.end = end;
        }
        leaving
    }

    #[inline]
    fn slots(&self) -> &[FilterSlot] {
        &self.slots[..self.count]
    }
}

/// The connections of one partition. All memory is allocated when it is made.
pub struct Tracker {
    filter: Filter,
    rings: Rings,
    ended: EndedConnections,
    rivals: Rivals,
    hash_v4: KeyedHash<KeyV4>,
    hash_v6: KeyedHash<KeyV6>,
    config: TrackerConfig,
    now: u64,
    established: u64,
    one_way: u64,
    /// The open connections that are not tracked.
    refused: Refused,
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
            ended: EndedConnections::new(config.ended_count),
            rivals: Rivals::new(config.syn_timeout_ticks),
            refused: Refused::new(&config.secret, config.refused),
            hash_v4: KeyedHash::new(&config.secret, Purpose::Connection),
            hash_v6: KeyedHash::new(&config.secret, Purpose::Connection),
            config,
            now: 0,
            established: 0,
            one_way: 0,
            counts: Counts::default(),
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { untracked_open: self.refused.connections(), ..self.counts }
    }

    /// Prefetches what [`Self::handle`] reads first for this signal.
    #[inline]
    pub fn prefetch(&self, signal: &Signal) {
        prefetch(self.filter.first_bucket(signal.hash()));
    }

    /// Prefetches what [`Self::handle`] reads next for this signal, once the first has arrived.
    #[inline]
    pub fn prefetch_second(&self, signal: &Signal) {
        self.filter.prefetch_second(signal.hash());
        self.rivals.prefetch(signal.hash());
        // Of another signal what is in the cache already, because which signals are of ends cannot be foretold.
        let hash = signal.hash();
        prefetch(select_unpredictable(signal.is_of_an_end(), self.ended.set(hash), self.filter.first_bucket(hash)));
        if self.refused.is_in_use() {
            self.refused.prefetch(signal.hash());
        }
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
        if self.refused.is_in_use()
            && let ControlFlow::Break(event) = self.handle_refused(signal, parts)
        {
            return event;
        }
        let Some((slot, entry)) = self.filter.find(hash, self.now) else {
            return self.handle_unknown(signal, parts);
        };
        let found = (slot, self.rings.with_tick(entry));
        if entry.state.is_established() {
            self.filter.mark_seen(slot);
        } else if entry.state == ConnectionState::Candidate {
            return self.candidate(signal, parts, found);
        }
        match parts.kind {
            SignalKind::Syn => self.syn(signal, parts, found),
            SignalKind::SynAck => self.syn_ack(signal, parts, found),
            SignalKind::Completes => self.completes(signal, parts, found),
            SignalKind::Ack => self.ack(signal, parts, found),
            SignalKind::Alive => self.alive(signal, parts, found),
            // What the packets have shown is newer.
            SignalKind::Known => None,
            SignalKind::Fin => self.fin(signal, parts, found),
            SignalKind::Rst => self.reset(signal, parts, found),
        }
    }

    /// Applies a signal of an unknown connection.
    #[inline]
    fn handle_unknown(&mut self, signal: &Signal, parts: SignalParts) -> Option<Event> {
        match parts.kind {
            SignalKind::Syn | SignalKind::SynAck | SignalKind::Completes => {
                return self.begin_anew(signal, parts, None);
            }
            SignalKind::Known => return self.open_known(signal, parts, None),
            SignalKind::Ack | SignalKind::Fin if signal.is_awaited() => return self.open_awaited(signal, parts),
            SignalKind::Ack => self.begin_candidate(signal, parts),
            SignalKind::Alive => return self.go_on(signal, parts),
            SignalKind::Fin if signal.is_before_answer() && self.config.one_way_max == 0 => {
                let (state, client) = (ConnectionState::AnsweredUnseenServerFin, parts.sender.other());
                let answered = self.new_entry(signal.hash(), state, client, FilterEntry::short_isn(parts.isn));
                self.counts.one_sided += 1;
                self.begin(signal, None, &answered);
            }
            SignalKind::Fin => {
                // If the connection has not ended after all, this side has.
                self.ended.put_fin(signal.hash(), parts.sender);
                self.counts.unmatched_fins += 1;
                self.leave_trace(signal.hash());
            }
            SignalKind::Rst => {
                self.ended.put_rst(signal.hash(), parts.sender);
                self.counts.unmatched_resets += 1;
                self.leave_trace(signal.hash());
            }
        }
        None
    }

    // Connections that were refused.

    /// Applies a signal to the connection if it was refused. Continues if that is not all that there is to do.
    #[cold]
    fn handle_refused(&mut self, signal: &Signal, parts: SignalParts) -> ControlFlow<Option<Event>> {
        let (key, hash, now) = (signal.key(), signal.hash(), self.now);
        let found = self.filter.find(hash, now);
        let entry = found.map(|(_, entry)| entry);
        // What is tracked, or was lately, was removed.
        if entry.is_some_and(|entry| {
            entry.state.is_established() || entry.state == ConnectionState::Closed && !entry.is_trace()
        }) {
            return ControlFlow::Continue(());
        }
        let is_half_open = entry.is_some_and(|entry| entry.state.is_half_open());
        if !is_half_open && let ControlFlow::Break(event) = self.contested_refused(signal, parts, found) {
            return ControlFlow::Break(event);
        }
        if let SignalKind::Fin | SignalKind::Rst = parts.kind {
            // A handshake of which the SYN was seen is another connection's, and most that are reset are scans.
            let may_be_there = !is_half_open || entry.is_some_and(|entry| entry.state.is_unseen());
            let ended = if parts.kind == SignalKind::Fin { EndedSides::fin(parts.sender) } else { EndedSides::ALL };
            self.refused.end(&key, hash, ended, may_be_there, now);
            return ControlFlow::Continue(());
        }
        let Some(record) = self.refused.record(hash).filter(|_| !is_half_open) else {
            return ControlFlow::Continue(());
        };
        let is_same = record.short_isn == FilterEntry::short_isn(parts.isn);
        let has_changed_lately = record.unchanged_ticks(now) <= u64::from(self.config.linger_ticks);
        match parts.kind {
            SignalKind::Alive => {
                self.refused.take_back_end(&key, hash, parts.sender, now);
                if record.is_certain { self.track_refused(signal, found) } else { ControlFlow::Continue(()) }
            }
            SignalKind::Ack if record.is_open() => self.track_refused(signal, found),
            // Late packets, which must not make a candidate of the connection, or open it again: another one with its
            // numbers has shown them since its end, and is half-open.
            SignalKind::Ack if has_changed_lately => ControlFlow::Break(None),
            SignalKind::Completes if is_same && !record.is_open() && has_changed_lately => ControlFlow::Break(None),
            // A SYN-ACK with another ISN may be forged: the client's answer replaces the connection.
            SignalKind::Syn | SignalKind::SynAck if record.is_open() || is_same && self.is_copy_of(&record) => {
                if parts.kind == SignalKind::SynAck && !is_same {
                    self.rivals.put(hash, parts.sender.other(), parts.isn, now);
                }
                self.counts.repeats += 1;
                ControlFlow::Break(None)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// Applies a packet to the handshakes that contradict an open connection that was refused, as to those of one that
    /// is tracked. Continues if it is of none of them.
    fn contested_refused(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        found: Option<(FilterSlot, FilterEntry)>,
    ) -> ControlFlow<Option<Event>> {
        let is_fin = parts.kind == SignalKind::Fin;
        let may_answer = is_fin || matches!(parts.kind, SignalKind::Ack | SignalKind::Alive);
        let (hash, now) = (signal.hash(), self.now);
        if !may_answer || !self.rivals.may_contest(hash, now) {
            return ControlFlow::Continue(());
        }
        let Some(record) = self.refused.record(hash).filter(RefusedRecord::is_open) else {
            return ControlFlow::Continue(());
        };
        let known = self.entry_of_refused(hash, &record);
        if let Some(rival) = self.judge(signal, parts, Some(&known)).answered() {
            let entry = FilterEntry { fingerprint: known.fingerprint, ..rival.entry(is_fin) };
            self.rivals.forget(hash);
            if is_fin && rival.has_server_fin {
                self.refused.end(&signal.key(), hash, EndedSides::ALL, true, now);
                return ControlFlow::Break(None);
            }
            return ControlFlow::Break(match found {
                Some((slot, _)) => self.open(signal, slot, entry),
                None => self.open_unplaced(signal, entry),
            });
        }
        if is_fin && self.rivals.end_server(hash, (parts.sender.other(), parts.isn), &known, now) {
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(())
    }

    /// Whether what has the number of this refused connection, which has ended, may be a copy of its own packets.
    fn is_copy_of(&self, record: &RefusedRecord) -> bool {
        record.open == Sides::NONE && record.unchanged_ticks(self.now) < u64::from(self.copy_ticks())
    }

    /// Tracks the refused connection of this signal, if it is open and there is room.
    fn track_refused(
        &mut self,
        signal: &Signal,
        found: Option<(FilterSlot, FilterEntry)>,
    ) -> ControlFlow<Option<Event>> {
        let record = self.refused.record(signal.hash()).filter(RefusedRecord::is_open);
        let Some(record) = record.filter(|_| self.established < self.config.connections_max) else {
            return ControlFlow::Break(None);
        };
        let entry = self.entry_of_refused(signal.hash(), &record);
        ControlFlow::Break(match found {
            Some((slot, _)) => self.open(signal, slot, entry),
            None => self.open_unplaced(signal, entry),
        })
    }

    /// The entry of a refused connection that is to be tracked.
    fn entry_of_refused(&self, hash: ConnectionHash, record: &RefusedRecord) -> FilterEntry {
        let (tick, short_isn) = self.refused.start_of(record, self.now);
        let state = state_of(record.open, record.client);
        FilterEntry { fingerprint: self.filter.fingerprint(hash), state, client: record.client, tick, short_isn }
    }

    /// Counts a connection that is established and cannot be tracked because there are too many.
    fn refuse_open(&mut self, signal: &Signal, entry: &FilterEntry) {
        let before = self.refused.record(signal.hash());
        let is_copy = before.is_some_and(|before| before.short_isn == entry.short_isn && self.is_copy_of(&before));
        if !is_copy && self.refused.refuse(&signal.key(), signal.hash(), entry, self.now) {
            self.counts.refused_open += 1;
        } else {
            self.counts.repeats += 1;
        }
    }

    /// Takes the refused connections that are left out of the sums, if they are few enough to be listed and that helps.
    /// Each is to be passed to [`Self::track_left`].
    pub fn take_refused(&mut self) -> Vec<LeftConnection> {
        let room = self.config.connections_max.saturating_sub(self.established);
        let (hash_v4, hash_v6) = (&self.hash_v4, &self.hash_v6);
        self.refused.take_left(room, |key| match key {
            AnyKey::V4(key) => hashed(hash_v4, key).0,
            AnyKey::V6(key) => hashed(hash_v6, key).0,
        })
    }

    /// Tracks a refused connection that was taken out of the sums, or puts it back where there is no room.
    pub fn track_left(&mut self, left: &LeftConnection) -> Option<Event> {
        let (hash, _) = self.hash_and_client(&left.key);
        let found = self.filter.find(hash, self.now);
        // What was tracked since is another connection, or is listed already.
        let is_over = |entry: &FilterEntry| {
            entry.state.is_established() || entry.state == ConnectionState::Closed && !entry.is_trace()
        };
        if left.open() == Some(Sides::NONE) || found.is_some_and(|(_, entry)| is_over(&entry)) {
            return None;
        }
        let is_half_open = found.is_some_and(|(_, entry)| entry.state.is_half_open());
        let open = left.open().filter(|_| !is_half_open && self.established < self.config.connections_max);
        let placed = open.and_then(|open| {
            let entry = match &left.record {
                Some(record) if record.is_open() => self.entry_of_refused(hash, &RefusedRecord { open, ..*record }),
                _ => {
                    let client = likely_client(&left.key);
                    self.new_entry(hash, state_of(open, client), client, ISN_UNKNOWN)
                }
            };
            let slot = match found {
                Some((slot, _)) => {
                    self.end_half_open(slot);
                    slot
                }
                None => self.place(hash, &entry)?,
            };
            Some((slot, entry))
        });
        let Some((slot, entry)) = placed else {
            self.refused.put_back(left, hash, self.now);
            return None;
        };
        self.write_opened(slot, &entry);
        Some(Event::Open(client_first(left.key, entry.client), entry.payload()))
    }

    // Ends, and what the kinds of signals share.

    fn fin(&mut self, signal: &Signal, parts: SignalParts, (slot, entry): (FilterSlot, FilterEntry)) -> Option<Event> {
        self.forget_former(signal, &entry);
        if self.rivals.may_contest(signal.hash(), self.now)
            && let ControlFlow::Break(event) = self.contested_fin(signal, parts, (slot, entry))
        {
            return event;
        }
        let from_client = parts.sender == entry.client;
        let marked = match (entry.state, from_client) {
            (ConnectionState::SynSent, _) => {
                // The client ends a connection without an answer: the answer came another way.
                self.counts.one_sided += u64::from(from_client);
                // If the SYN was forged, this is the FIN of the connection before it, which may still be open.
                self.ended.put_fin(signal.hash(), parts.sender);
                self.refuse(slot, &entry, self.config.candidate_count > 0);
                return None;
            }
            (ConnectionState::SynRecv | ConnectionState::SynRecvLate | ConnectionState::AnsweredUnseen, true) => {
                return self.open(signal, slot, FilterEntry { state: ConnectionState::EstablishedClientFin, ..entry });
            }
            (state, true) if state.is_answered() => {
                return Some(self.pass(signal, slot, &entry, None));
            }
            (ConnectionState::SynRecv, false) => ConnectionState::SynRecvServerFin,
            (ConnectionState::SynRecvLate, false) => ConnectionState::SynRecvLateServerFin,
            // A server has no connection to end before its client has answered.
            (ConnectionState::AnsweredUnseen, false) if self.config.one_way_max > 0 => {
                let opened = FilterEntry { state: ConnectionState::OneWayServer, ..entry };
                return Some(self.pass(signal, slot, &opened, None));
            }
            (ConnectionState::AnsweredUnseen, false) => {
                // If the SYN-ACK was forged, this is the FIN of the connection before it, which may still be open.
                self.ended.put_fin(signal.hash(), parts.sender);
                self.counts.one_sided += 1;
                ConnectionState::AnsweredUnseenServerFin
            }
            (ConnectionState::Established, true) => ConnectionState::EstablishedClientFin,
            (ConnectionState::Established, false) => ConnectionState::EstablishedServerFin,
            (ConnectionState::OneWayClient, false) => {
                return Some(self.turn(signal, (slot, entry), ConnectionState::EstablishedServerFin));
            }
            (ConnectionState::OneWayServer, true) => {
                return Some(self.turn(signal, (slot, entry), ConnectionState::EstablishedClientFin));
            }
            (ConnectionState::OneWayClient, true)
            | (ConnectionState::OneWayServer, false)
            | (ConnectionState::EstablishedServerFin, true)
            | (ConnectionState::EstablishedClientFin, false) => {
                let event = self.close(signal, &entry);
                self.end(signal, slot, &entry, [true; 2], [false; 2]);
                return event;
            }
            (ConnectionState::Closed, _) => {
                self.ended.put_fin(signal.hash(), parts.sender);
                self.late_fin(slot, &entry);
                return None;
            }
            _ => return None,
        };
        self.filter.set_state(slot, marked);
        None
    }

    /// Marks an open connection of which one side was seen as one of which both were, in this state.
    fn turn(&mut self, signal: &Signal, (slot, entry): (FilterSlot, FilterEntry), state: ConnectionState) -> Event {
        self.one_way -= 1;
        self.filter.set_state(slot, state);
        let after = FilterEntry { state, ..entry };
        Event::Turn(oriented(signal, entry.client), entry.payload(), after.payload())
    }

    fn reset(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        (slot, entry): (FilterSlot, FilterEntry),
    ) -> Option<Event> {
        if entry.is_trace() {
            self.counts.unmatched_resets += 1;
        } else if entry.state == ConnectionState::Closed {
            self.ended.put_rst(signal.hash(), parts.sender);
            self.counts.late += 1;
        } else if entry.state.is_established() {
            let event = self.close(signal, &entry);
            let of_client = entry.state == ConnectionState::EstablishedClientFin;
            let of_server = entry.state == ConnectionState::EstablishedServerFin;
            let has_fin = if entry.client == Side::First { [of_client, of_server] } else { [of_server, of_client] };
            let has_rst = [Side::First, Side::Second].map(|side| side == parts.sender);
            self.end(signal, slot, &entry, has_fin, has_rst);
            return event;
        } else {
            self.ended.put_rst(signal.hash(), parts.sender);
            self.refuse(slot, &entry, false);
        }
        None
    }

    /// An entry of the present tick.
    fn new_entry(&self, hash: ConnectionHash, state: ConnectionState, client: Side, short_isn: u32) -> FilterEntry {
        FilterEntry {
            fingerprint: self.filter.fingerprint(hash),
            state,
            client,
            tick: FilterEntry::tick_of(self.now),
            short_isn,
        }
    }

    /// Marks the record of the connection in this slot as over: the connection is no longer half-open or gets another
    /// record. Call this before its entry is changed.
    #[inline]
    fn end_half_open(&mut self, slot: FilterSlot) {
        self.rings.end(&self.filter.get(slot));
    }

    /// Places the entry of a connection that has none, and returns its slot if there was a place. The entry of a
    /// half-open connection names the record that is written next.
    #[inline(always)]
    fn place(&mut self, hash: ConnectionHash, entry: &FilterEntry) -> Option<FilterSlot> {
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
                    ConnectionState::Closed => self.counts.forgotten += 1,
                    ConnectionState::Candidate => self.counts.candidates_recycled += 1,
                    _ if self.rings.is_presumed(entry.tick) => self.counts.expired += 1,
                    _ => self.counts.recycled += 1,
                }
            }
        }
        Some(slot)
    }

    /// Opens a connection in its slot, unless there are too many already.
    fn open(&mut self, signal: &Signal, slot: FilterSlot, entry: FilterEntry) -> Option<Event> {
        self.end_half_open(slot);
        // The answer has shown which handshake was true.
        if self.rivals.may_contest(signal.hash(), self.now) {
            self.rivals.forget(signal.hash());
        }
        if self.established >= self.config.connections_max {
            self.refuse_open(signal, &entry);
            self.filter.remove(slot);
            return None;
        }
        Some(self.opened(signal, slot, &entry))
    }

    /// Opens a connection that has no slot, unless there are too many already.
    fn open_unplaced(&mut self, signal: &Signal, entry: FilterEntry) -> Option<Event> {
        // One that is refused must not take the place of another.
        if self.established >= self.config.connections_max {
            self.refuse_open(signal, &entry);
            return None;
        }
        let Some(slot) = self.place(signal.hash(), &entry) else {
            self.refused.refuse(&signal.key(), signal.hash(), &entry, self.now);
            return None;
        };
        Some(self.opened(signal, slot, &entry))
    }

    fn opened(&mut self, signal: &Signal, slot: FilterSlot, entry: &FilterEntry) -> Event {
        let known;
        let entry = if self.refused.is_in_use() {
            known = self.no_longer_refused(signal, entry);
            &known
        } else {
            entry
        };
        self.write_opened(slot, entry);
        Event::Open(oriented(signal, entry.client), entry.payload())
    }

    /// Removes a connection that opens from those that were refused, and returns its entry with what was known of it.
    #[cold]
    fn no_longer_refused(&mut self, signal: &Signal, entry: &FilterEntry) -> FilterEntry {
        let hash = signal.hash();
        let Some(record) = self.refused.remove(&signal.key(), hash, self.now) else { return *entry };
        let is_same = record.short_isn == entry.short_isn || entry.short_isn == ISN_UNKNOWN;
        if is_same { self.entry_of_refused(hash, &record) } else { *entry }
    }

    /// Writes the entry of a connection that opens into its slot.
    #[inline]
    fn write_opened(&mut self, slot: FilterSlot, entry: &FilterEntry) {
        self.established += 1;
        self.one_way += u64::from(entry.state.is_one_way());
        self.counts.opened += 1;
        self.filter.set(slot, entry);
        self.filter.mark_seen(slot);
    }

    /// Counts an open connection as open no longer.
    fn end_established(&mut self, entry: &FilterEntry) {
        self.established -= 1;
        self.one_way -= u64::from(entry.state.is_one_way());
    }

    fn close(&mut self, signal: &Signal, entry: &FilterEntry) -> Option<Event> {
        self.end_established(entry);
        self.counts.closed += 1;
        Some(Event::Close(oriented(signal, entry.client), entry.payload()))
    }

    /// Opens and closes a connection with one packet, which also closes another between the same ends, if it does.
    fn pass(&mut self, signal: &Signal, slot: FilterSlot, entry: &FilterEntry, closed: Option<Event>) -> Event {
        self.counts.opened += 1;
        self.counts.closed += 1;
        self.end_half_open(slot);
        self.end(signal, slot, entry, [true; 2], [false; 2]);
        let passed = (oriented(signal, entry.client), entry.payload());
        match closed {
            Some(Event::Close(before, payload)) => Event::CloseAndPass((before, payload), passed),
            _ => Event::Pass(passed.0, passed.1),
        }
    }

    /// Leaves a closed entry of an open connection behind, whose sides have sent these FINs and RSTs, and records it as
    /// ended.
    #[inline]
    fn end(&mut self, signal: &Signal, slot: FilterSlot, entry: &FilterEntry, has_fin: [bool; 2], has_rst: [bool; 2]) {
        self.ended.put(signal.hash(), Ended::of(entry, has_fin, has_rst), self.now);
        // The short ISN marks it as a connection that was known, even if the ISN was not.
        let (tick, short_isn) = (FilterEntry::tick_of(self.now), entry.short_isn.max(ISN_UNKNOWN + 1));
        self.filter.set_unseen(slot, &FilterEntry { state: ConnectionState::Closed, tick, short_isn, ..*entry });
    }

    /// Applies a packet whose sender has not ended, although it seemed so: the connection is open again, or the mark of
    /// its FIN is taken off.
    #[cold]
    fn alive(&mut self, signal: &Signal, parts: SignalParts, found: (FilterSlot, FilterEntry)) -> Option<Event> {
        let (slot, entry) = found;
        let is_marked = match entry.state {
            ConnectionState::EstablishedClientFin => parts.sender == entry.client,
            ConnectionState::EstablishedServerFin => parts.sender != entry.client,
            _ => false,
        };
        if is_marked {
            self.filter.set_state(slot, ConnectionState::Established);
            return None;
        }
        // Of another connection between the same ends the client's packets may have any numbers, and the server's have
        // once it has answered. Before that an attempt to open it was forged too, or fails.
        let is_other_attempt = entry.state == ConnectionState::SynSent && parts.sender != entry.client;
        if entry.state != ConnectionState::Closed && !is_other_attempt {
            return self.ack(signal, parts, found);
        }
        match self.ended.take_back(signal.hash(), parts.sender) {
            Some(ended) => self.reopen(signal, parts, Some(slot), ended),
            None => self.ack(signal, parts, found),
        }
    }

    /// Opens the connection, which is not known, of a packet that came behind its sender's end: one whose handshake was
    /// reset by a RST that was forged, or the one that had ended.
    #[cold]
    fn go_on(&mut self, signal: &Signal, parts: SignalParts) -> Option<Event> {
        let ended = self.ended.take_back(signal.hash(), parts.sender);
        if let Some(rival) = self.judge(signal, parts, None).answered() {
            let fingerprint = self.filter.fingerprint(signal.hash());
            return self.open_unplaced(signal, FilterEntry { fingerprint, ..rival.entry(false) });
        }
        let Some(ended) = ended else {
            self.begin_candidate(signal, parts);
            return None;
        };
        self.reopen(signal, parts, None, ended)
    }

    /// Opens a connection again that had ended, as it was but for the end of this packet's sender.
    fn reopen(&mut self, signal: &Signal, parts: SignalParts, slot: Option<FilterSlot>, ended: Ended) -> Option<Event> {
        // The tick of a start that is old may have come round.
        let (tick, short_isn) = if ended.is_old {
            (FilterEntry::tick_of(self.now), ISN_UNKNOWN)
        } else {
            (ended.start_tick, ended.short_isn)
        };
        let entry = FilterEntry {
            fingerprint: self.filter.fingerprint(signal.hash()),
            state: ended.state_without_end_of(parts.sender),
            client: ended.client,
            tick,
            short_isn,
        };
        let placed = if self.established >= self.config.connections_max {
            self.refuse_open(signal, &entry);
            None
        } else if slot.is_some() {
            slot
        } else {
            let placed = self.place(signal.hash(), &entry);
            if placed.is_none() {
                self.refused.refuse(&signal.key(), signal.hash(), &entry, self.now);
            }
            placed
        };
        if let Some(slot) = slot {
            self.end_half_open(slot);
            if placed.is_none() {
                self.filter.remove(slot);
            }
        }
        let slot = placed?;
        self.established += 1;
        self.counts.reopened += 1;
        self.filter.set(slot, &entry);
        self.filter.mark_seen(slot);
        Some(Event::Reopen(oriented(signal, entry.client), entry.payload()))
    }

    /// Removes a half-open connection that was refused, or leaves a trace of it so that what comes late behind its end
    /// makes no candidate of it. Otherwise nothing lingers: the SYN may be retransmitted with the same ISN.
    fn refuse(&mut self, slot: FilterSlot, entry: &FilterEntry, leaves_trace: bool) {
        self.counts.refused += 1;
        if leaves_trace {
            self.turn_into_trace(slot, entry);
        } else {
            self.end_half_open(slot);
            self.filter.remove(slot);
        }
    }

    /// Whether this signal is a RST that refuses a connection: it answers a SYN after which nothing else was seen of
    /// the connection. Call this before the signal is handled.
    pub fn refuses(&mut self, signal: &Signal) -> bool {
        let parts = signal.parts();
        self.advance(parts.tick);
        let found = self.filter.find(signal.hash(), self.now);
        parts.kind == SignalKind::Rst
            && found.is_some_and(|(_, entry)| entry.state == ConnectionState::SynSent && entry.client != parts.sender)
    }

    // How connections begin: SYN, SYN-ACK, and the client's answer.

    /// Begins a connection with a signal of its handshake as if nothing were known of it, in its slot or in a new
    /// place.
    #[inline(always)]
    fn begin_anew(&mut self, signal: &Signal, parts: SignalParts, slot: Option<FilterSlot>) -> Option<Event> {
        match parts.kind {
            // Its SYN-ACK may acknowledge the data as well. Of what takes the place of another the client's first
            // packet has to be known, whichever that is.
            SignalKind::Syn if signal.has_data() || slot.is_some() => {
                self.rivals.put(signal.hash(), parts.sender, parts.isn, self.now);
            }
            // It may be forged, of which its whole number says more than the entry.
            SignalKind::SynAck if !self.config.answer_opens => {
                self.rivals.put(signal.hash(), parts.sender.other(), parts.isn, self.now);
            }
            _ => {}
        }
        let entry = |state, client| self.new_entry(signal.hash(), state, client, FilterEntry::short_isn(parts.isn));
        let opened = match parts.kind {
            SignalKind::Completes => {
                let opened = entry(ConnectionState::Established, parts.sender);
                match self.judge(signal, parts, None).answered() {
                    Some(rival) => {
                        let FilterEntry { tick, state, .. } = rival.entry(false);
                        FilterEntry { tick, state, ..opened }
                    }
                    None => opened,
                }
            }
            SignalKind::SynAck if self.config.answer_opens => entry(ConnectionState::Established, parts.sender.other()),
            kind => {
                let (state, client) = match kind {
                    SignalKind::SynAck => (ConnectionState::AnsweredUnseen, parts.sender.other()),
                    _ => (ConnectionState::SynSent, parts.sender),
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

    /// Opens an unknown connection whose client's answer to a SYN-ACK this is, although it is a FIN or does not follow
    /// its number.
    #[cold]
    fn open_awaited(&mut self, signal: &Signal, parts: SignalParts) -> Option<Event> {
        // A host that is asked by a forged SYN-ACK says where it is.
        if self.judge(signal, parts, None) == Verdict::Contradicts {
            return None;
        }
        let state = match parts.kind {
            SignalKind::Fin => ConnectionState::EstablishedClientFin,
            _ => ConnectionState::Established,
        };
        self.open_unplaced(signal, self.new_entry(signal.hash(), state, parts.sender, ISN_UNKNOWN))
    }

    fn syn(&mut self, signal: &Signal, parts: SignalParts, (slot, entry): (FilterSlot, FilterEntry)) -> Option<Event> {
        let short_isn = FilterEntry::short_isn(parts.isn);
        let is_same = entry.short_isn == short_isn;
        let age = entry.age(self.now);
        match entry.state {
            ConnectionState::Closed if !is_same => return self.begin_anew(signal, parts, Some(slot)),
            ConnectionState::SynSent if entry.client == parts.sender => {
                if !is_same || u64::from(age) > SYN_TIMEOUT_MAX_TICKS {
                    return self.begin_anew(signal, parts, Some(slot));
                }
                if age > 0 && !self.filter.is_seen(slot) {
                    self.begin(signal, Some(slot), &entry);
                }
            }
            ConnectionState::Closed if entry.client == parts.sender && self.is_past_copies(&entry) => {
                self.begin_with_same_numbers(slot, &entry);
            }
            state if !state.is_half_open() || is_same && entry.client == parts.sender => {}
            // The SYN-ACK may be forged: only this one may be answered.
            state if state.is_unseen() => {
                self.counts.expired += u64::from(self.is_presumed(slot));
                return self.begin_anew(signal, parts, Some(slot));
            }
            _ => self.put_rival(signal, (parts.sender, parts.isn)),
        }
        self.counts.repeats += 1;
        None
    }

    fn syn_ack(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        (slot, entry): (FilterSlot, FilterEntry),
    ) -> Option<Event> {
        let client = parts.sender.other();
        let short_isn = FilterEntry::short_isn(parts.isn);
        match entry.state {
            // From here on the ISN is the one that the SYN-ACK acknowledges. The server may have accepted data in the
            // SYN, and then the client's next packet and a retransmitted SYN-ACK go by that number.
            ConnectionState::SynSent
                if entry.client == client
                    && (self.config.answer_opens || entry.short_isn == short_isn && self.filter.is_seen(slot)) =>
            {
                self.open(signal, slot, FilterEntry { state: ConnectionState::Established, short_isn, ..entry })
            }
            ConnectionState::SynSent
                if entry.client == client && entry.age(self.now) == 0 && entry.short_isn == short_isn =>
            {
                self.filter.set_state(slot, ConnectionState::SynRecv);
                self.rings.answer(self.filter.get(slot).tick);
                None
            }
            // The client has answered another: this one may be forged.
            ConnectionState::SynSent if entry.client == client && self.filter.is_seen(slot) => {
                self.put_rival(signal, (client, parts.isn));
                self.counts.repeats += 1;
                None
            }
            ConnectionState::SynSent if entry.client == client => {
                // What acknowledges neither the SYN nor its data answers another one, which was not seen.
                let is_of_syn =
                    entry.short_isn == short_isn || self.rivals.follows(signal.hash(), &entry, parts.isn, self.now);
                if !is_of_syn {
                    self.rivals.put(signal.hash(), client, parts.isn, self.now);
                }
                let tick = if is_of_syn { entry.tick } else { FilterEntry::tick_of(self.now) };
                let answered = FilterEntry { state: ConnectionState::SynRecvLate, short_isn, tick, ..entry };
                self.begin(signal, Some(slot), &answered);
                None
            }
            ConnectionState::Closed if entry.short_isn != short_isn => self.begin_anew(signal, parts, Some(slot)),
            state
                if state.is_established()
                    && !state.is_one_way()
                    && !self.config.answer_opens
                    && entry.short_isn != short_isn =>
            {
                // It may be forged: the client's next packet says which connection there is.
                self.put_rival(signal, (client, parts.isn));
                self.counts.repeats += 1;
                None
            }
            // The one before has ended, or its client has refused it.
            ConnectionState::AnsweredUnseen
                if self.is_presumed(slot)
                    && (!entry.is_of(client, parts.isn) || u64::from(entry.age(self.now)) > SYN_TIMEOUT_MAX_TICKS) =>
            {
                self.counts.expired += 1;
                self.begin_anew(signal, parts, Some(slot))
            }
            state if state.is_half_open() && (entry.client != client || entry.short_isn != short_isn) => {
                self.put_rival(signal, (client, parts.isn));
                self.counts.repeats += 1;
                None
            }
            state if state.is_established() && entry.short_isn != short_isn => {
                let closed = self.close(signal, &entry);
                let opened = self.begin_anew(signal, parts, Some(slot));
                replaced(closed, opened)
            }
            ConnectionState::OneWayClient if entry.client == client => {
                Some(self.turn(signal, (slot, entry), ConnectionState::Established))
            }
            state => {
                if state == ConnectionState::Closed
                    && entry.client == client
                    && self.is_past_copies(&entry)
                    && !self.filter.is_seen(slot)
                {
                    self.begin_with_same_numbers(slot, &entry);
                }
                // Who repeats it waits for the answer still.
                let age = entry.age(self.now);
                if state.is_answered() && age >= self.copy_ticks() && u64::from(age) <= SYN_TIMEOUT_MAX_TICKS {
                    self.begin(signal, Some(slot), &entry);
                }
                self.counts.repeats += 1;
                None
            }
        }
    }

    /// Whether the half-open connection in this slot is presumed to be answered.
    fn is_presumed(&self, slot: FilterSlot) -> bool {
        self.rings.is_presumed(self.filter.get(slot).tick)
    }

    /// Records in a closed entry that its numbers are shown again, so late that they are no copies: if the client
    /// answers, they open another connection, which started here.
    fn begin_with_same_numbers(&mut self, slot: FilterSlot, entry: &FilterEntry) {
        self.filter.set(slot, &FilterEntry { tick: FilterEntry::tick_of(self.now), ..*entry });
        self.filter.mark_seen(slot);
    }

    /// Whether a connection closed so long ago that no copies of its first packets come any more: of two interfaces
    /// that see the same packets, one may be behind.
    fn is_past_copies(&self, entry: &FilterEntry) -> bool {
        !entry.is_trace() && entry.age(self.now) >= self.copy_ticks()
    }

    /// How long copies of a packet may come, in ticks.
    fn copy_ticks(&self) -> u32 {
        (self.config.linger_ticks / COPY_LINGER_DIVISOR).max(1)
    }

    /// Writes a half-open connection into the ring and the filter, in its slot or in a new place.
    #[inline(always)]
    fn begin(&mut self, signal: &Signal, slot: Option<FilterSlot>, entry: &FilterEntry) {
        match signal.key() {
            AnyKey::V4(key) => self.begin_as(of_client(key, entry.client), signal.hash(), slot, entry),
            AnyKey::V6(key) => self.begin_as(of_client(key, entry.client), signal.hash(), slot, entry),
        }
    }

    #[inline(never)]
    fn begin_as<K: FlowKey>(&mut self, key: K, hash: ConnectionHash, slot: Option<FilterSlot>, entry: &FilterEntry) {
        if let Some(slot) = slot {
            self.end_half_open(slot);
        }
        let draft = RecordDraft::new(key, entry, self.now);
        self.counts.recycled += self.make_room(|rings| &mut rings.half_open, draft.size());
        while self.rings.presumed.is_used() && self.rings.are_too_many(draft.size()) {
            self.counts.expired += self.take_off(|rings| &mut rings.presumed, |_| true);
        }
        let spot = self.rings.half_open.next_spot();
        let named = FilterEntry { tick: spot.place, ..*entry };
        let slot = match slot {
            Some(slot) => {
                self.filter.set_unseen(slot, &named);
                slot
            }
            None => match self.place(hash, &named) {
                Some(slot) => slot,
                None => return,
            },
        };
        self.rings.half_open.push(&draft, spot, slot);
    }

    #[inline(always)]
    fn completes(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        (slot, entry): (FilterSlot, FilterEntry),
    ) -> Option<Event> {
        // Nearly all are the answer to the one SYN-ACK.
        if entry.is_of(parts.sender, parts.isn)
            && let Some(state) = entry.state.answered_by_client()
        {
            return self.open(signal, slot, FilterEntry { state, ..entry });
        }
        self.completes_another(signal, parts, (slot, entry))
    }

    /// Applies what completes a handshake, other than that of the connection that was answered.
    #[inline(never)]
    fn completes_another(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        (slot, entry): (FilterSlot, FilterEntry),
    ) -> Option<Event> {
        let short_isn = FilterEntry::short_isn(parts.isn);
        let is_own = entry.is_of(parts.sender, parts.isn);
        if entry.state.is_established()
            && entry.short_isn != short_isn
            && self.judge(signal, parts, Some(&entry)) != Verdict::Uncontested
        {
            return self.ack(signal, parts, (slot, entry));
        }
        if let Some(rival) = self.answered_rival(signal, parts, &entry) {
            return self.replace(signal, (slot, entry), rival, false);
        }
        if !is_own && entry.state != ConnectionState::Closed && self.is_of_former(signal, (parts.sender, parts.isn)) {
            return None;
        }
        match entry.state {
            ConnectionState::SynSent if is_own => {
                self.open(signal, slot, FilterEntry { state: ConnectionState::Established, ..entry })
            }
            ConnectionState::SynSent if entry.client == parts.sender => self.begin_anew(signal, parts, Some(slot)),
            // In a simultaneous open: the side whose SYN was seen first has answered the SYN of this one.
            ConnectionState::SynSent => {
                self.open(signal, slot, FilterEntry { state: ConnectionState::Established, short_isn, ..entry })
            }
            // The handshake came after the end: the same numbers open another connection.
            ConnectionState::Closed if is_own && self.filter.take_seen(slot) => {
                self.open(signal, slot, FilterEntry { state: ConnectionState::Established, ..entry })
            }
            // The capture side knows few bits of the ISN: if these agree it is a later packet of the known connection.
            _ if entry.capture_isn_matches(short_isn) => self.ack(signal, parts, (slot, entry)),
            // The SYN-ACK that is known was forged, and took the place of this client's, which the capture side knows.
            state
                if state.is_unseen()
                    && !self.rivals.may_complete(signal.hash(), (parts.sender, parts.isn), self.now) =>
            {
                self.counts.expired += u64::from(self.is_presumed(slot));
                self.begin_anew(signal, parts, Some(slot))
            }
            // A packet of the other side may be the answer in a simultaneous open, which has two ISNs. (If the start
            // was not seen, which side is the client is a guess.)
            _ if entry.client != parts.sender && entry.short_isn != ISN_UNKNOWN => {
                self.ack(signal, parts, (slot, entry))
            }
            // It follows the handshake that was forged before the end in the few bits that the capture side knows.
            ConnectionState::Closed if self.judge(signal, parts, None) == Verdict::Contradicts => None,
            ConnectionState::Closed => self.begin_anew(signal, parts, Some(slot)),
            state if state.is_established() && !state.is_one_way() => {
                let closed = self.close(signal, &entry);
                let opened = self.begin_anew(signal, parts, Some(slot));
                replaced(closed, opened)
            }
            // An earlier SYN-ACK with another ISN was no answer to this client.
            state if state.is_answered() && !state.is_unseen() && entry.client == parts.sender => {
                self.ack(signal, parts, (slot, FilterEntry { short_isn, ..entry }))
            }
            _ => self.ack(signal, parts, (slot, entry)),
        }
    }

    fn ack(&mut self, signal: &Signal, parts: SignalParts, (slot, entry): (FilterSlot, FilterEntry)) -> Option<Event> {
        let from_client = parts.sender == entry.client;
        self.forget_former(signal, &entry);
        if let Some(rival) = self.answered_rival(signal, parts, &entry) {
            return self.replace(signal, (slot, entry), rival, false);
        }
        if entry.state.is_answered()
            && from_client
            && entry.short_isn != FilterEntry::short_isn(parts.isn)
            && let Some(ended) = self.contradicted(signal, parts, &entry)
        {
            return self.reopen(signal, parts, Some(slot), ended);
        }
        if self.is_refuted(signal, parts, &entry) {
            // A host that is asked by a forged SYN-ACK says where it is.
            return None;
        }
        let one_way_allowed = self.one_way < self.config.one_way_max;
        let state = match entry.state {
            state if from_client && let Some(answered) = state.answered_by_client() => answered,
            ConnectionState::SynSent if from_client && one_way_allowed => ConnectionState::OneWayClient,
            // The answer to a SYN-ACK that is still on its way here, from another capture thread.
            ConnectionState::SynSent if from_client && entry.short_isn == FilterEntry::short_isn(parts.isn) => {
                self.filter.mark_seen(slot);
                return None;
            }
            ConnectionState::AnsweredUnseen if !from_client && one_way_allowed => ConnectionState::OneWayServer,
            ConnectionState::OneWayClient | ConnectionState::OneWayServer => {
                // The other side is there after all: from now on both have to end the connection.
                let is_other = from_client == (entry.state == ConnectionState::OneWayServer);
                return is_other.then(|| self.turn(signal, (slot, entry), ConnectionState::Established));
            }
            ConnectionState::Established
            | ConnectionState::EstablishedClientFin
            | ConnectionState::EstablishedServerFin => {
                return match self.judge(signal, parts, Some(&entry)) {
                    Verdict::Answers(rival) => self.replace(signal, (slot, entry), rival, false),
                    Verdict::Uncontested | Verdict::Contradicts => None,
                };
            }
            _ => return None,
        };
        self.counts.found_answered += u64::from(entry.state.is_answered() && parts.kind == SignalKind::Ack);
        self.open(signal, slot, FilterEntry { state, ..entry })
    }

    // Handshakes that contradict what is known.

    /// Records a handshake that contradicts a known one, unless it is that of the connection before once more.
    #[cold]
    fn put_rival(&mut self, signal: &Signal, (client, isn): (Side, u32)) {
        if !self.is_of_former(signal, (client, isn)) {
            self.rivals.put(signal.hash(), client, isn, self.now);
        }
    }

    /// Forgets the connection that ended lately between the ends of a half-open one if this packet shows that another
    /// has begun for certain: nothing that is forged brings it back then.
    #[inline]
    fn forget_former(&mut self, signal: &Signal, entry: &FilterEntry) {
        if signal.begins_another() && entry.state.is_half_open() {
            self.ended.take(signal.hash());
        }
    }

    /// Whether a client and its ISN are those of the connection that ended lately between the ends of a known one:
    /// behind the copies of its handshake come those of its client's packets.
    #[cold]
    fn is_of_former(&self, signal: &Signal, (client, isn): (Side, u32)) -> bool {
        let ended_ticks_ago = self.ended.age_of(signal.hash(), (client, FilterEntry::short_isn(isn)), self.now);
        ended_ticks_ago.is_some_and(|ticks| ticks <= u64::from(self.config.linger_ticks))
    }

    /// What a packet without a flag says about the handshakes that contradict its connection, which is known or not.
    #[inline]
    fn judge(&self, signal: &Signal, parts: SignalParts, known: Option<&FilterEntry>) -> Verdict {
        self.rivals.judge(signal.hash(), (parts.sender, parts.isn), known, self.now)
    }

    /// The handshake that a packet answers, if it is another than the one that is under way.
    #[inline]
    fn answered_rival(&self, signal: &Signal, parts: SignalParts, entry: &FilterEntry) -> Option<Rival> {
        if !entry.state.is_half_open() || entry.is_of(parts.sender, parts.isn) {
            return None;
        }
        self.judge(signal, parts, Some(entry)).answered()
    }

    /// Whether a packet of the client follows neither the SYN-ACK of a handshake whose SYN was not seen, nor another:
    /// the SYN-ACK was forged, or the packet is.
    #[inline]
    fn is_refuted(&self, signal: &Signal, parts: SignalParts, entry: &FilterEntry) -> bool {
        entry.state.is_unseen()
            && entry.client == parts.sender
            && entry.short_isn != FilterEntry::short_isn(parts.isn)
            && self.judge(signal, parts, None) == Verdict::Contradicts
    }

    /// The connection that a client goes on with whose packet does not follow the number of the SYN-ACK that was last
    /// seen, of the connection with this entry: it had ended, or so it seemed, and both that and the SYN-ACK were
    /// forged. Its last packets may come late, so that of a connection which both sides have ended only what shows
    /// that its sender has not counts.
    #[cold]
    fn contradicted(&mut self, signal: &Signal, parts: SignalParts, entry: &FilterEntry) -> Option<Ended> {
        let has_ended = self.ended.get(signal.hash())?.has_fin == [true; 2];
        let is_other = match self.judge(signal, parts, None) {
            Verdict::Answers(_) => false,
            // One that completes the handshake in the few bits that the capture side knows says no less. Where the
            // number of the handshake is not known whole, the client's first packet may follow it behind others.
            Verdict::Contradicts if self.rivals.knows(signal.hash(), entry, self.now) => {
                parts.kind != SignalKind::Ack || !has_ended
            }
            Verdict::Contradicts | Verdict::Uncontested => parts.kind == SignalKind::Alive && !has_ended,
        };
        if is_other { self.ended.take(signal.hash()) } else { None }
    }

    /// Applies a FIN to the handshakes that contradict a connection. Its client may answer one with it, or its server
    /// send it before that. Continues if it is of none of them.
    #[cold]
    fn contested_fin(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        (slot, entry): (FilterSlot, FilterEntry),
    ) -> ControlFlow<Option<Event>> {
        if entry.state.is_one_way() || entry.state == ConnectionState::Closed {
            return ControlFlow::Continue(());
        }
        let answered = match entry.state.is_established() {
            true => self.judge(signal, parts, Some(&entry)).answered(),
            false => self.answered_rival(signal, parts, &entry),
        };
        if let Some(rival) = answered {
            return ControlFlow::Break(self.replace(signal, (slot, entry), rival, true));
        }
        // Of another FIN the ISN is not the one that it acknowledges.
        if signal.is_before_answer()
            && self.rivals.end_server(signal.hash(), (parts.sender.other(), parts.isn), &entry, self.now)
        {
            return ControlFlow::Break(None);
        }
        if self.is_refuted(signal, parts, &entry) {
            // If the connection before has not ended after all, this side has.
            self.ended.put_fin(signal.hash(), parts.sender);
            self.counts.unmatched_fins += 1;
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(())
    }

    /// Opens the connection of a handshake in place of what is known, which is closed if it was open.
    #[cold]
    fn replace(
        &mut self,
        signal: &Signal,
        (slot, entry): (FilterSlot, FilterEntry),
        rival: Rival,
        has_client_fin: bool,
    ) -> Option<Event> {
        let closed = if entry.state.is_established() { self.close(signal, &entry) } else { None };
        let entry = FilterEntry { fingerprint: entry.fingerprint, ..rival.entry(has_client_fin) };
        if has_client_fin && rival.has_server_fin {
            self.rivals.forget(signal.hash());
            return Some(self.pass(signal, slot, &entry, closed));
        }
        let opened = self.open(signal, slot, entry);
        replaced(closed, opened)
    }

    // Connections that are older than the start: candidates and traces.

    /// Makes a candidate of an unknown connection, on a packet without a flag: it may be older than the start.
    #[cold]
    fn begin_candidate(&mut self, signal: &Signal, parts: SignalParts) {
        if self.config.candidate_count == 0 {
            return;
        }
        match signal.key() {
            AnyKey::V4(key) => self.write_candidate(&key, parts.sender, signal.hash()),
            AnyKey::V6(key) => self.write_candidate(&key, parts.sender, signal.hash()),
        }
    }

    fn write_candidate<K: FlowKey>(&mut self, key: &K, sender: Side, hash: ConnectionHash) {
        let candidate = self.new_entry(hash, ConnectionState::Candidate, sender, ISN_UNKNOWN);
        let draft = RecordDraft::new(of_client(*key, sender), &candidate, self.now);
        self.counts.candidates_recycled += self.make_room(|rings| &mut rings.candidates, draft.size());
        self.counts.candidates += 1;
        let spot = self.rings.candidates.next_spot();
        let named = FilterEntry { tick: spot.place, ..candidate };
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
    fn candidate(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        (slot, entry): (FilterSlot, FilterEntry),
    ) -> Option<Event> {
        match parts.kind {
            SignalKind::Syn | SignalKind::SynAck | SignalKind::Completes => self.begin_anew(signal, parts, Some(slot)),
            SignalKind::Alive => self.alive_candidate(signal, parts, slot, entry),
            SignalKind::Known => self.open_known(signal, parts, Some(slot)),
            SignalKind::Ack | SignalKind::Fin if parts.sender != entry.client => {
                self.pick_up(signal, parts, slot, entry)
            }
            SignalKind::Ack => None,
            // If the connection before has not ended after all, this side has.
            SignalKind::Fin => {
                self.ended.put_fin(signal.hash(), parts.sender);
                self.counts.unmatched_fins += 1;
                self.turn_into_trace(slot, &entry);
                None
            }
            SignalKind::Rst => {
                self.ended.put_rst(signal.hash(), parts.sender);
                self.counts.unmatched_resets += 1;
                self.turn_into_trace(slot, &entry);
                None
            }
        }
    }

    /// Applies a packet of a candidate whose sender has not ended, although it seemed so.
    fn alive_candidate(
        &mut self,
        signal: &Signal,
        parts: SignalParts,
        slot: FilterSlot,
        entry: FilterEntry,
    ) -> Option<Event> {
        match self.ended.take_back(signal.hash(), parts.sender) {
            Some(ended) => self.reopen(signal, parts, Some(slot), ended),
            None if parts.sender != entry.client => self.pick_up(signal, parts, slot, entry),
            None => None,
        }
    }

    /// Opens a candidate whose other side was seen. Which side opened it is unknown: the end with the lower port is
    /// taken for the server, and of equal ports the end with the lower address.
    fn pick_up(&mut self, signal: &Signal, parts: SignalParts, slot: FilterSlot, entry: FilterEntry) -> Option<Event> {
        let client = likely_client(&signal.key());
        let state = match (parts.kind, parts.sender == client) {
            (SignalKind::Fin, true) => ConnectionState::EstablishedClientFin,
            (SignalKind::Fin, false) => ConnectionState::EstablishedServerFin,
            _ => ConnectionState::Established,
        };
        let found = FilterEntry { state, client, ..entry };
        if self.established >= self.config.connections_max {
            // A trace lingers, unlike after a refused handshake; otherwise every other packet would count.
            let is_new = self.refused.refuse_found(&signal.key(), signal.hash(), &found, self.now);
            self.counts.refused_pickups += u64::from(is_new);
            self.turn_into_trace(slot, &entry);
            return None;
        }
        self.counts.picked_up += 1;
        if self.refused.is_in_use() {
            self.refused.remove_found(&signal.key(), signal.hash(), self.now);
        }
        self.open(signal, slot, found)
    }

    /// Opens a connection that the system knows and of which nothing else is known, in the slot of its candidate or in
    /// a new place.
    #[cold]
    fn open_known(&mut self, signal: &Signal, parts: SignalParts, slot: Option<FilterSlot>) -> Option<Event> {
        let ended = SidesEnded::of_bits(parts.isn);
        let state = match (ended.client, ended.server) {
            (false, false) => ConnectionState::Established,
            (true, false) => ConnectionState::EstablishedClientFin,
            (false, true) => ConnectionState::EstablishedServerFin,
            (true, true) => return None,
        };
        let known = self.new_entry(signal.hash(), state, parts.sender, ISN_UNKNOWN);
        let opened = match slot {
            Some(slot) => self.open(signal, slot, known),
            None => self.open_unplaced(signal, known),
        };
        self.counts.known += u64::from(opened.is_some());
        opened
    }

    /// Leaves a trace of an unknown connection that ended, if there is a free place.
    fn leave_trace(&mut self, hash: ConnectionHash) {
        if self.config.candidate_count > 0 {
            let trace = self.new_entry(hash, ConnectionState::Closed, Side::First, ISN_UNKNOWN);
            // A trace evicts nothing, so ages do not matter.
            self.filter.insert_weak(hash, &trace, self.now, |_| 0);
        }
    }

    /// Turns a candidate or a half-open connection into a trace.
    fn turn_into_trace(&mut self, slot: FilterSlot, entry: &FilterEntry) {
        self.end_half_open(slot);
        let trace = FilterEntry {
            state: ConnectionState::Closed,
            tick: FilterEntry::tick_of(self.now),
            short_isn: ISN_UNKNOWN,
            ..*entry
        };
        self.filter.set_unseen(slot, &trace);
    }

    /// Handles a FIN of a closed connection. It may be retransmitted at ever longer intervals, and answered each time.
    /// Meanwhile the entry must continue lingering, or the answers would make a candidate of the connection.
    fn late_fin(&mut self, slot: FilterSlot, entry: &FilterEntry) {
        if entry.is_trace() {
            self.counts.unmatched_fins += 1;
        } else {
            self.counts.late += 1;
        }
        if self.config.candidate_count > 0 {
            // The time is no longer that of a SYN.
            self.filter.set_unseen(slot, &FilterEntry { tick: FilterEntry::tick_of(self.now), ..*entry });
        }
    }

    // Questions of the list, and evictions.

    /// Whether the connection with this key, client first, is established and opened with this payload.
    #[must_use]
    pub fn is_open(&self, key: &AnyKey, payload: u32) -> bool {
        self.find_open(key, payload).is_some()
    }

    /// Whether a listed connection is open and was seen since the last question. Clears the mark that it was seen.
    pub fn sighting(&mut self, key: &AnyKey, payload: u32) -> Sighting {
        match self.find_open(key, payload) {
            None => Sighting::Gone,
            Some((slot, entry)) => self.take_sighting(slot, entry.state.is_half_closed()),
        }
    }

    fn take_sighting(&mut self, slot: FilterSlot, is_half_closed: bool) -> Sighting {
        let was_seen_before = self.filter.take_seen_before(slot);
        match self.filter.take_seen(slot) {
            true => Sighting::Seen { is_half_closed },
            false if was_seen_before => Sighting::SeenBefore { is_half_closed },
            false => Sighting::Unseen,
        }
    }

    /// Keeps what was seen so far apart from what is seen from now on, because time leaps, and returns whether it did:
    /// see [`Filter::keep_seen`].
    ///
    /// Complexity: two passes over the filter.
    pub fn keep_seen(&mut self) -> bool {
        self.filter.keep_seen()
    }

    /// Evicts a connection of which nothing was seen for too long, unless something was seen since the last question.
    pub fn evict_idle(&mut self, key: &AnyKey, payload: u32) -> (Sighting, Option<Event>) {
        let Some((slot, entry)) = self.find_open(key, payload) else { return (Sighting::Gone, None) };
        let sighting = self.take_sighting(slot, entry.state.is_half_closed());
        if sighting != Sighting::Unseen {
            return (sighting, None);
        }
        self.counts.evicted_idle += 1;
        (Sighting::Unseen, Some(self.evict(*key, slot, &entry)))
    }

    /// Evicts a connection because of its age.
    pub fn evict_aged(&mut self, key: &AnyKey, payload: u32) -> Option<Event> {
        let (slot, entry) = self.find_open(key, payload)?;
        self.counts.evicted_aged += 1;
        Some(self.evict(*key, slot, &entry))
    }

    /// Removes an open connection. Nothing lingers, so that a further packet finds it again.
    fn evict(&mut self, key: AnyKey, slot: FilterSlot, entry: &FilterEntry) -> Event {
        self.end_established(entry);
        self.filter.remove(slot);
        // What ended between the same ends before must not be taken for this one.
        self.ended.take(self.hash_and_client(&key).0);
        Event::Close(key, entry.payload())
    }

    fn find_open(&self, key: &AnyKey, payload: u32) -> Option<(FilterSlot, FilterEntry)> {
        let (hash, client) = self.hash_and_client(key);
        let found = self.filter.find(hash, self.now);
        found.filter(|(_, entry)| entry.state.is_established() && entry.client == client && entry.payload() == payload)
    }

    /// The sides that were seen of an established connection with this payload; `None` where that is not known: of one
    /// that may be known from the system alone, or from a SYN-ACK alone.
    ///
    /// Without [`TrackerConfig::one_way_max`] nothing opens before both sides were seen. With it, the payload says so,
    /// unless it was lost since: by an end that was taken back, or for want of room.
    #[must_use]
    pub fn sides_seen(&self, payload: u32) -> Option<SidesSeen> {
        let Counts { reopened, refused_open, unplaced, .. } = self.counts;
        let is_lost = self.config.one_way_max > 0 && reopened + refused_open + unplaced > 0;
        match SidesSeen::of_payload(payload) {
            SidesSeen::Both if payload & MIDSTREAM != 0 || self.config.answer_opens || is_lost => None,
            sides => Some(sides),
        }
    }

    /// The established connection of this signal, client first, with the payload of its opening.
    #[must_use]
    pub fn established(&self, signal: &Signal) -> Option<(AnyKey, u32)> {
        let (_, entry) = self.filter.find(signal.hash(), self.now)?;
        entry.state.is_established().then(|| (oriented(signal, entry.client), entry.payload()))
    }

    /// The hash of a key, and which end of the canonical key comes first in it, the client.
    fn hash_and_client(&self, key: &AnyKey) -> (ConnectionHash, Side) {
        match key {
            AnyKey::V4(key) => hashed(&self.hash_v4, key),
            AnyKey::V6(key) => hashed(&self.hash_v6, key),
        }
    }

    // What leaves the rings: what has timed out, and the oldest records when a ring is full.

    /// Removes everything that has been half-open or a candidate for too long. Not inlined: the batches on its stack
    /// would make every function that it is inlined into spill its registers.
    #[inline(never)]
    fn expire(&mut self) {
        self.ended.age(self.now);
        if self.refused.is_in_use() {
            self.refused.advance(self.now, self.config.untracked_ticks, self.config.linger_ticks);
        }
        if self.config.one_way_max > 0 {
            self.counts.expired += self.presume_due();
            self.counts.expired += self.take_off_due(|rings| &mut rings.presumed, self.config.presumed_ticks);
        }
        self.counts.expired += self.take_off_due(|rings| &mut rings.half_open, self.config.syn_timeout_ticks);
        self.counts.candidates_expired +=
            self.take_off_due(|rings| &mut rings.candidates, self.config.candidate_timeout_ticks);
    }

    /// What says of a record whether it is older than `timeout` ticks now.
    fn is_due(&self, timeout: u64) -> impl Fn(RingRecord) -> bool + use<> {
        let now = self.now;
        move |record| now.saturating_sub(record.since_tick(now)) > timeout
    }

    /// Moves handshakes whose timeout has passed to the presumed ring if only a SYN-ACK of them was seen, repeated once
    /// at most: a server repeats an unanswered SYN-ACK more often. The client's answer is not visible here. Returns how
    /// many presumed handshakes were evicted to make room.
    fn presume_due(&mut self) -> u64 {
        let is_due = self.is_due(self.config.syn_timeout_ticks);
        let (mut count, mut cursor) = (0, self.rings.half_open.start());
        while let Some((record, behind)) = self.rings.half_open.after(cursor).filter(|(record, _)| is_due(*record)) {
            cursor = behind;
            let ring = &self.rings.half_open;
            if ring.mark(record) == RecordMark::Answered
                && record.delay() <= REPEATED_ONCE_MAX_TICKS
                && self.filter.get(ring.slot(record)).state == ConnectionState::AnsweredUnseen
            {
                count += self.make_room(|rings| &mut rings.presumed, record.size());
                let (slot, place) = self.rings.presume(record);
                self.filter.set_record(slot, place);
            }
        }
        count
    }

    /// Removes all records older than `timeout` ticks from a ring, and returns how many were in use.
    fn take_off_due(&mut self, ring: impl Fn(&mut Rings) -> &mut MarkedRing, timeout: u64) -> u64 {
        let is_due = self.is_due(timeout);
        let mut count = 0;
        loop {
            let due = ring(&mut self.rings);
            if !due.after(due.start()).is_some_and(|(oldest, _)| is_due(oldest)) {
                return count;
            }
            count += self.take_off(&ring, &is_due);
        }
    }

    /// Makes room in a ring for a record of this size, and returns how many connections, the oldest, were evicted.
    #[inline]
    fn make_room(&mut self, ring: impl Fn(&mut Rings) -> &mut MarkedRing, size: usize) -> u64 {
        match ring(&mut self.rings).room(size) {
            RingRoom::Enough => 0,
            _ => self.make_more_room(ring, size),
        }
    }

    #[inline(never)]
    fn make_more_room(&mut self, ring: impl Fn(&mut Rings) -> &mut MarkedRing, size: usize) -> u64 {
        let mut count = 0;
        loop {
            match ring(&mut self.rings).room(size) {
                RingRoom::Enough => return count,
                RingRoom::Compact => self.compact(&ring),
                RingRoom::Full => count += self.take_off(&ring, |_| true),
            }
        }
    }

    /// Compacts a ring. The entries of the records that move are prefetched, and changed together.
    fn compact(&mut self, ring: impl Fn(&mut Rings) -> &mut MarkedRing) {
        let mut moved = [(FilterSlot::default(), 0); MOVED_COUNT_MAX];
        let mut count = 0;
        let filter = &mut self.filter;
        ring(&mut self.rings).compact(|slot, place| {
            filter.prefetch_slot(slot);
            moved[count] = (slot, place);
            count += 1;
            if count == moved.len() {
                moved.iter().for_each(|(slot, place)| filter.set_record(*slot, *place));
                count = 0;
            }
        });
        moved[..count].iter().for_each(|(slot, place)| filter.set_record(*slot, *place));
    }

    /// Removes a batch of the oldest records from a ring, up to the first that is not wanted, and their connections
    /// from the filter. Returns how many connections that were.
    fn take_off(
        &mut self,
        ring: impl Fn(&mut Rings) -> &mut MarkedRing,
        is_wanted: impl Fn(RingRecord) -> bool,
    ) -> u64 {
        let ring = ring(&mut self.rings);
        let leaving = LeavingRecords::new(ring, is_wanted);
        leaving.slots().iter().for_each(|slot| self.filter.prefetch_slot(*slot));
        leaving.slots().iter().for_each(|slot| self.filter.remove(*slot));
        ring.skip_to(leaving.end, leaving.useful);
        ring.prefetch_behind(leaving.end, HALF_OPEN_BATCH_MAX);
        leaving.count as u64
    }

    /// Whether anything is half-open or a candidate.
    #[must_use]
    pub fn has_records(&self) -> bool {
        self.rings.all().into_iter().any(MarkedRing::is_used)
    }

    /// Adds the half-open connections, in no order, to an empty list, which must have room for them.
    ///
    /// Complexity: a look at every eight marks, and at each of these records.
    pub fn list_half_open(&self, list: &mut HalfOpenList) {
        self.rings.half_open.copy_to(list);
        self.rings.presumed.copy_to(list);
    }

    // The saved state.

    /// About how many bytes [`Self::save`] writes.
    #[must_use]
    pub fn saved_size(&self) -> usize {
        Filter::size(self.config.place_count) + self.config.rings_size() + self.refused.saved_size()
    }

    /// Writes the tracker into a saved state.
    ///
    /// Complexity: a pass over its memory.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.now);
        self.counts.save(encoder);
        self.filter.save(encoder);
        self.rings.all().into_iter().for_each(|ring| ring.save(encoder));
        self.ended.save(encoder);
        self.rivals.save(encoder);
        self.refused.save(encoder);
    }

    /// Continues from a saved state of the same configuration. After an error the tracker is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode such a tracker.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.now = decoder.count()?;
        self.counts = Counts::saved(decoder)?;
        self.filter.restore(decoder)?;
        let mut named_count = 0;
        for ring in self.rings.all_mut() {
            named_count += ring.restore(decoder, &self.filter)?;
        }
        // No two entries name the same record, so if the numbers are equal every entry has its record.
        decoder.expect(named_count == self.filter.recorded_count(), "half-open connections without a record")?;
        decoder.expect(!self.rings.are_too_many(0), "more half-open connections than a list has room for")?;
        self.ended.restore(decoder)?;
        self.rivals.restore(decoder, self.now)?;
        self.refused.restore(decoder)?;
        // Counted, not read: both are decremented, and must never be too small.
        (self.established, self.one_way) = self.filter.established();
        Ok(())
    }

    /// Forgets which connections were seen: what was seen before a restart says nothing about the time after it.
    pub fn forget_seen(&mut self) {
        self.filter.forget_seen();
    }
}

/// The key of the signal, client first.
#[inline]
fn oriented(signal: &Signal, client: Side) -> AnyKey {
    client_first(signal.key(), client)
}

/// A canonical key of either family, client first.
#[inline]
fn client_first(key: AnyKey, client: Side) -> AnyKey {
    match key {
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

/// The one event for a closing and an opening.
fn replaced(closed: Option<Event>, opened: Option<Event>) -> Option<Event> {
    match (closed, opened) {
        (Some(Event::Close(before, payload_before)), Some(Event::Open(after, payload))) => {
            Some(Event::Replace((before, payload_before), (after, payload)))
        }
        (closed, opened) => closed.or(opened),
    }
}

/// The end of a connection that is more likely the client.
fn likely_client(key: &AnyKey) -> Side {
    let (first, second) = match key {
        AnyKey::V4(key) => (key.first().port(), key.second().port()),
        AnyKey::V6(key) => (key.first().port(), key.second().port()),
    };
    // In a canonical key the end with the lower address comes first.
    if second < first { Side::First } else { Side::Second }
}

fn hashed<K: FlowKey>(hash: &KeyedHash<K>, key: &K) -> (ConnectionHash, Side) {
    let (canonical, client) = key.canonical();
    (ConnectionHash::new(hash.of(&canonical)), client)
}

#[cfg(test)]
impl Tracker {
    /// The list of [`Self::list_half_open`], made by looking the key of every record up in the filter.
    pub(super) fn list_looked_up(&self, list: &mut HalfOpenList) {
        for ring in [&self.rings.half_open, &self.rings.presumed] {
            ring.each_record(|record, place, key| {
                let found = self.filter.find(self.hash_and_client(&key).0, self.now);
                if let Some((_, entry)) = found.filter(|(_, entry)| entry.state.is_half_open() && entry.tick == place) {
                    ring.copy_one(record, entry.state.is_answered(), list);
                }
            });
        }
    }

    /// Asserts that records and entries name each other.
    pub(super) fn check_links(&self) {
        let mut named_count = 0;
        assert!(!self.rings.are_too_many(0));
        for ring in self.rings.all() {
            ring.each_record(|record, place, key| {
                if ring.mark(record) != RecordMark::Over {
                    let entry = self.filter.get(ring.slot(record));
                    assert!(entry.state.is_recorded() && entry.tick == place, "{entry:?} of {key:?} at {place}");
                    assert_eq!(ring.mark(record) == RecordMark::Answered, entry.state.is_answered());
                    named_count += 1;
                }
            });
        }
        assert_eq!(named_count, self.filter.recorded_count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Stamp;
    use crate::flow::VlanTags;
    use crate::handover::HalfOpenList;
    use crate::parse::{LinkType, parse_frame};
    use crate::signal::{Clock, HandshakeCache, RecentEnds, Signal, Signaller, SignallerConfig};
    use crate::track::TrackerConfig;
    use flowpeel_iblt::hash::Secret;
    use flowpeel_traffic::{Traffic, TrafficConfig};
    use std::sync::Arc;

    fn config() -> TrackerConfig {
        TrackerConfig {
            secret: Secret::REPLAY,
            place_count: 4_000,
            half_open_count: 600,
            connections_max: 3_000,
            syn_timeout_ticks: 20,
            linger_ticks: 10,
            one_way_max: 0,
            presumed_ticks: 60,
            ended_count: 200,
            refused: RefusedCounts { records: 200, listed: 100 },
            candidate_count: 50,
            candidate_timeout_ticks: 100,
            untracked_ticks: None,
            answer_opens: false,
            fingerprint_bits: crate::signal::FINGERPRINT_BITS,
        }
    }

    /// The signals of generated traffic.
    fn signals() -> Vec<Signal> {
        let config = SignallerConfig {
            secret: Secret::REPLAY,
            vlan_key: false,
            one_way: false,
            syn_timeout_ns: 2_000_000_000,
            pickup: 4,
            answer_opens: false,
            seen_syn_count: 0,
        };
        let mut signaller = Signaller::new(
            config,
            Arc::new(HandshakeCache::new(64, 2_000_000_000)),
            Arc::new(RecentEnds::new(64)),
            None,
        );
        let mut traffic = Traffic::new(TrafficConfig::mixed(3, 2_000)).unwrap();
        let mut clock = None;
        let mut signals = Vec::new();
        while let Some(frame) = traffic.next_frame() {
            let time_ns = frame.time_us as i64 * 1_000;
            let clock = clock.get_or_insert_with(|| Clock::new(Stamp::unnamed(time_ns)));
            clock.advance(time_ns);
            if let Ok(segment) = parse_frame(LinkType::ETHERNET, frame.bytes) {
                signaller.push(&segment, || (clock.tick(), clock.elapsed_ns()), |signal| signals.push(*signal));
            }
        }
        signaller.flush(|signal| signals.push(*signal));
        signals
    }

    fn saved(tracker: &Tracker) -> Vec<u8> {
        let mut encoder = Encoder::default();
        tracker.save(&mut encoder);
        encoder.into_bytes()
    }

    #[test]
    fn a_tracker_goes_on_as_if_nothing_had_been() {
        // Of some the beginning is not seen.
        let signals = &signals()[300..];
        let (before, after) = signals.split_at(signals.len() / 2);
        let mut tracker = Tracker::new(config());
        for signal in before {
            tracker.handle(signal);
        }
        let bytes = saved(&tracker);
        let mut other = Tracker::new(config());
        let mut decoder = Decoder::new(&bytes);
        other.restore(&mut decoder).unwrap();
        assert!(decoder.end().is_ok());
        assert_eq!((other.established, other.one_way), (tracker.established, tracker.one_way));
        let mut event_count = 0;
        for signal in after {
            let event = tracker.handle(signal);
            event_count += usize::from(event.is_some());
            assert_eq!(other.handle(signal), event);
        }
        assert!(event_count > 300, "{event_count}");
        assert_eq!(other.counts(), tracker.counts());
        let half_open = |tracker: &mut Tracker| {
            let mut copy = HalfOpenList::new(config().half_open_count);
            tracker.list_half_open(&mut copy);
            copy.iter(signals.last().unwrap().parts().tick).collect::<Vec<_>>()
        };
        assert_eq!(half_open(&mut other), half_open(&mut tracker));
        assert!(tracker.counts().expired > 0 && tracker.counts().candidates > 0, "{:?}", tracker.counts());
    }

    #[test]
    fn more_than_a_list_has_room_for_is_refused() {
        let config = TrackerConfig { one_way_max: 10, half_open_count: 90, ..config() };
        let mut tracker = Tracker::new(config.clone());
        let begin = |tracker: &mut Tracker, number: u16, state| {
            let (key, client) = KeyV4::new((1, number), (2, 443), VlanTags::NONE).canonical();
            let (hash, _) = tracker.hash_and_client(&AnyKey::V4(key));
            let entry = tracker.new_entry(hash, state, client, 7);
            tracker.begin_as(of_client(key, client), hash, None, &entry);
        };
        (0..10).for_each(|number| begin(&mut tracker, number, ConnectionState::AnsweredUnseen));
        tracker.advance(config.syn_timeout_ticks + 1);
        // A flood that does not know of them.
        let mut presumed = Rings::new(config.ring_counts()).presumed;
        for (most, fits) in [(80, true), (81, false)] {
            std::mem::swap(&mut tracker.rings.presumed, &mut presumed);
            let there = tracker.filter.recorded_count() as u16;
            (there..10 + most).for_each(|number| begin(&mut tracker, number, ConnectionState::SynSent));
            std::mem::swap(&mut tracker.rings.presumed, &mut presumed);
            assert_eq!((tracker.filter.recorded_count(), tracker.counts.recycled), (usize::from(10 + most), 0));
            let restored = Tracker::new(config.clone()).restore(&mut Decoder::new(&saved(&tracker)));
            assert_eq!(restored.is_ok(), fits, "{restored:?}");
        }
    }

    #[test]
    fn what_is_cut_or_of_another_size_is_refused() {
        let mut tracker = Tracker::new(config());
        for signal in signals().iter().take(500) {
            tracker.handle(signal);
        }
        let bytes = saved(&tracker);
        for end in (0..bytes.len()).step_by(97) {
            assert!(Tracker::new(config()).restore(&mut Decoder::new(&bytes[..end])).is_err(), "{end}");
        }
        let smaller = TrackerConfig { place_count: 3_000, ..config() };
        assert!(Tracker::new(smaller).restore(&mut Decoder::new(&bytes)).is_err());
        let smaller = TrackerConfig { half_open_count: 2, candidate_count: 0, ..config() };
        assert!(Tracker::new(smaller).restore(&mut Decoder::new(&bytes)).is_err());
    }
}
