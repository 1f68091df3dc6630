//! What the filter stores of a connection: 72 bits, as a word of 64 bits and an extension byte; and the searches over
//! the words of a bucket.
//!
//! Every connection pays for every bit, so each field has just the width that it needs.

use crate::flow::Side;
use crate::handover::{ISN_BITS, MIDSTREAM, SidesSeen};
use crate::signal::{FINGERPRINT_BITS, HANDSHAKE_ISN_BITS, TICK_BITS};
use flowpeel_iblt::hash::GOLDEN_32;
use flowpeel_lines::Line;

/// Entries in a bucket: seven words of 64 bits. The eighth word has an extension byte for each of them.
pub const SLOT_COUNT: usize = 7;

/// Bits of the short ISN in the entry's word; the rest are in the extension byte.
const ISN_LOW_BITS: u32 = 9;
const STATE_BITS: u32 = 4;

const _: () = assert!(FINGERPRINT_BITS + STATE_BITS + 1 + TICK_BITS + ISN_LOW_BITS == u64::BITS);
const _: () = assert!(ISN_BITS - ISN_LOW_BITS == u8::BITS);
const _: () = assert!(HANDSHAKE_ISN_BITS < ISN_BITS);

const ISN_SHIFT: u32 = 0;
const TICK_SHIFT: u32 = ISN_SHIFT + ISN_LOW_BITS;
const SIDE_SHIFT: u32 = TICK_SHIFT + TICK_BITS;
const STATE_SHIFT: u32 = SIDE_SHIFT + 1;
const FINGERPRINT_SHIFT: u32 = STATE_SHIFT + STATE_BITS;

/// The short ISN of a connection that is older than the start, so that its ISN was never seen.
pub const ISN_UNKNOWN: u32 = 0;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnectionState {
    /// The place was never used.
    Empty,
    /// The place was used, and what was there left nothing behind.
    Removed,
    /// The connection has ended. The entry lingers for some seconds, so that late packets and retransmissions are
    /// recognised.
    Closed,
    /// The client's SYN was seen.
    SynSent,
    /// SYN and SYN-ACK were seen, in one tick.
    SynRecv,
    /// [`ConnectionState::SynRecv`], and the server has sent its FIN.
    SynRecvServerFin,
    /// SYN and SYN-ACK were seen, the SYN-ACK in a later tick: the timeout counts from there.
    SynRecvLate,
    /// [`ConnectionState::SynRecvLate`], and the server has sent its FIN.
    SynRecvLateServerFin,
    /// A SYN-ACK was seen, but no packet of the client.
    AnsweredUnseen,
    /// [`ConnectionState::AnsweredUnseen`], and the server has sent its FIN.
    AnsweredUnseenServerFin,
    /// The handshake is complete.
    Established,
    /// [`ConnectionState::Established`], and the client has sent its FIN.
    EstablishedClientFin,
    /// [`ConnectionState::Established`], and the server has sent its FIN.
    EstablishedServerFin,
    /// Open, but only packets of the client were seen.
    OneWayClient,
    /// Open, but only packets of the server were seen.
    OneWayServer,
    /// A packet without a flag was seen of a connection whose start was not. Its sender counts as the client. The
    /// connection opens when the other side is seen.
    Candidate,
}

impl ConnectionState {
    const ALL: [Self; 1 << STATE_BITS] = [
        ConnectionState::Empty,
        ConnectionState::Removed,
        ConnectionState::Closed,
        ConnectionState::SynSent,
        ConnectionState::SynRecv,
        ConnectionState::SynRecvServerFin,
        ConnectionState::SynRecvLate,
        ConnectionState::SynRecvLateServerFin,
        ConnectionState::AnsweredUnseen,
        ConnectionState::AnsweredUnseenServerFin,
        ConnectionState::Established,
        ConnectionState::EstablishedClientFin,
        ConnectionState::EstablishedServerFin,
        ConnectionState::OneWayClient,
        ConnectionState::OneWayServer,
        ConnectionState::Candidate,
    ];

    /// Whether the connection was answered but its handshake is not complete.
    #[must_use]
    #[inline]
    pub fn is_answered(self) -> bool {
        (ConnectionState::SynRecv as u8..=ConnectionState::AnsweredUnseenServerFin as u8).contains(&(self as u8))
    }

    /// The state of a connection that was answered, once its client has answered in turn.
    #[must_use]
    #[inline]
    pub fn answered_by_client(self) -> Option<Self> {
        match self {
            ConnectionState::SynRecv | ConnectionState::SynRecvLate | ConnectionState::AnsweredUnseen => {
                Some(ConnectionState::Established)
            }
            ConnectionState::SynRecvServerFin
            | ConnectionState::SynRecvLateServerFin
            | ConnectionState::AnsweredUnseenServerFin => Some(ConnectionState::EstablishedServerFin),
            _ => None,
        }
    }

    /// Whether the handshake is complete, and one side has sent its FIN.
    #[must_use]
    #[inline]
    pub fn is_half_closed(self) -> bool {
        matches!(self, ConnectionState::EstablishedClientFin | ConnectionState::EstablishedServerFin)
    }

    /// Whether the handshake is not complete.
    #[must_use]
    #[inline]
    pub fn is_half_open(self) -> bool {
        self == ConnectionState::SynSent || self.is_answered()
    }

    /// Whether a ring has a record of the connection, which is half-open or a candidate.
    #[must_use]
    #[inline]
    pub fn is_recorded(self) -> bool {
        const RECORDED: u32 = ((1 << (ConnectionState::AnsweredUnseenServerFin as u32 + 1))
            - (1 << ConnectionState::SynSent as u32))
            | 1 << ConnectionState::Candidate as u32;
        RECORDED >> self as u32 & 1 != 0
    }

    /// Whether the SYN was answered and not seen.
    #[must_use]
    #[inline]
    pub fn is_unseen(self) -> bool {
        matches!(self, ConnectionState::AnsweredUnseen | ConnectionState::AnsweredUnseenServerFin)
    }

    /// Whether the connection is open although only one side was seen.
    #[must_use]
    #[inline]
    pub fn is_one_way(self) -> bool {
        matches!(self, ConnectionState::OneWayClient | ConnectionState::OneWayServer)
    }

    /// The sides that were seen of an open connection.
    #[must_use]
    #[inline]
    pub fn sides_seen(self) -> SidesSeen {
        match self {
            ConnectionState::OneWayClient => SidesSeen::Client,
            ConnectionState::OneWayServer => SidesSeen::Server,
            _ => SidesSeen::Both,
        }
    }

    /// Whether the connection is open, and so in the table of open connections.
    #[must_use]
    #[inline]
    pub fn is_established(self) -> bool {
        (ConnectionState::Established as u8..=ConnectionState::OneWayServer as u8).contains(&(self as u8))
    }
}

/// An entry of the filter, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterEntry {
    /// The part of the connection's hash that distinguishes it from others in its bucket.
    pub fingerprint: u32,
    /// The state of the connection.
    pub state: ConnectionState,
    /// Which end of the canonical key is the client.
    pub client: Side,
    /// When the connection started or, in [`ConnectionState::Closed`], ended: the low [`TICK_BITS`] of the tick. In the
    /// filter, the entry of a connection with a record in a ring has the place of that record here instead, and the
    /// record has the tick.
    pub tick: u32,
    /// The client's ISN, hashed to [`ISN_BITS`], or [`ISN_UNKNOWN`].
    pub short_isn: u32,
}

impl FilterEntry {
    /// The low [`TICK_BITS`] of a tick.
    #[must_use]
    #[inline]
    pub fn tick_of(tick: u64) -> u32 {
        tick as u32 & ((1 << TICK_BITS) - 1)
    }

    /// The short ISN of an ISN. Multiplying by an odd number and taking the top bits makes near numbers differ. Never
    /// [`ISN_UNKNOWN`].
    #[must_use]
    #[inline]
    pub fn short_isn(isn: u32) -> u32 {
        let short_isn = isn.wrapping_mul(GOLDEN_32) >> (u32::BITS - ISN_BITS);
        if short_isn == ISN_UNKNOWN { 1 } else { short_isn }
    }

    /// Whether the connection's ISN is known and agrees with another in the bits that the capture side keeps, by which
    /// it waits for the last packet of a handshake: the top bits of the same product, never zero either.
    #[must_use]
    #[inline]
    pub fn capture_isn_matches(&self, short_isn: u32) -> bool {
        let kept = |short_isn: u32| (short_isn >> (ISN_BITS - HANDSHAKE_ISN_BITS)).max(1);
        self.short_isn != ISN_UNKNOWN && kept(self.short_isn) == kept(short_isn)
    }

    /// Whether this is the connection that this client began with this ISN, as far as an entry keeps it.
    #[must_use]
    pub fn is_of(&self, client: Side, isn: u32) -> bool {
        self.client == client && self.short_isn == Self::short_isn(isn)
    }

    /// The payload of an established connection, which goes with its key: the start tick, [`MIDSTREAM`] if the start
    /// was not seen, and the sides that were seen. Only these change from the opening to the closing, which the tracker
    /// reports.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> u32 {
        self.tick | if self.short_isn == ISN_UNKNOWN { MIDSTREAM } else { 0 } | self.state.sides_seen().payload_bits()
    }

    /// The age of the entry's tick in ticks, up to the wrap.
    #[must_use]
    #[inline]
    pub fn age(&self, now: u64) -> u32 {
        FilterEntry::tick_of(now).wrapping_sub(self.tick) & ((1 << TICK_BITS) - 1)
    }

    /// Whether this is a trace.
    #[inline]
    pub(super) fn is_trace(&self) -> bool {
        self.state == ConnectionState::Closed && self.short_isn == ISN_UNKNOWN
    }

    /// Packs the entry into a word and an extension byte.
    #[must_use]
    #[inline]
    pub(super) fn pack(&self) -> (u64, u8) {
        let word = u64::from(self.fingerprint) << FINGERPRINT_SHIFT
            | (self.state as u64) << STATE_SHIFT
            | u64::from(self.client == Side::Second) << SIDE_SHIFT
            | u64::from(self.tick) << TICK_SHIFT
            | u64::from(self.short_isn) & ((1 << ISN_LOW_BITS) - 1);
        (word, (self.short_isn >> ISN_LOW_BITS) as u8)
    }

    /// Unpacks the entry from a word and an extension byte.
    #[must_use]
    #[inline]
    pub(super) fn unpack(word: u64, extension: u8) -> Self {
        FilterEntry {
            fingerprint: (word >> FINGERPRINT_SHIFT) as u32,
            state: state_of(word),
            client: if word >> SIDE_SHIFT & 1 == 0 { Side::First } else { Side::Second },
            tick: (word >> TICK_SHIFT) as u32 & ((1 << TICK_BITS) - 1),
            short_isn: u32::from(extension) << ISN_LOW_BITS | word as u32 & ((1 << ISN_LOW_BITS) - 1),
        }
    }
}

/// The state in a packed word.
#[inline]
pub(super) fn state_of(word: u64) -> ConnectionState {
    ConnectionState::ALL[(word >> STATE_SHIFT) as usize & ((1 << STATE_BITS) - 1)]
}

/// Whether a word's place is free: nothing is in it, or a connection that was closed more than `linger_ticks` ago.
#[inline]
pub(super) fn is_free(word: u64, now: u64, linger_ticks: u32) -> bool {
    let state = (word >> STATE_SHIFT) as u8 & ((1 << STATE_BITS) - 1);
    if state > ConnectionState::Closed as u8 {
        return false;
    }
    let age = FilterEntry::tick_of(now).wrapping_sub((word >> TICK_SHIFT) as u32) & ((1 << TICK_BITS) - 1);
    state < ConnectionState::Closed as u8 || age > linger_ticks
}

/// The word that remains when a connection is removed.
#[inline]
pub(super) fn removed(word: u64) -> u64 {
    word & ((1 << STATE_SHIFT) - 1) | (ConnectionState::Removed as u64) << STATE_SHIFT
}

/// The word with another state.
#[inline]
pub(super) fn in_state(word: u64, state: ConnectionState) -> u64 {
    word & !(((1 << STATE_BITS) - 1) << STATE_SHIFT) | (state as u64) << STATE_SHIFT
}

/// The word with another place of the connection's record.
#[inline]
pub(super) fn recorded_at(word: u64, place: u32) -> u64 {
    word & !(((1 << TICK_BITS) - 1) << TICK_SHIFT) | u64::from(place) << TICK_SHIFT
}

/// The slots of a bucket that hold this fingerprint, a bit each.
#[inline]
pub(super) fn with_fingerprint(bucket: &Line, fingerprint: u32) -> u32 {
    // With constant bits the comparison is vectorised. The eighth word is no entry.
    const BITS: [u64; 8] = [1 << 32, 1 << 33, 1 << 34, 1 << 35, 1 << 36, 1 << 37, 1 << 38, 0];
    let slots = bucket.0.iter().zip(BITS).fold(0, |slots, (word, bit)| {
        // If nothing differs, the subtraction borrows from all bits above.
        let difference = (word >> FINGERPRINT_SHIFT) ^ u64::from(fingerprint);
        slots | difference.wrapping_sub(1) & bit
    });
    (slots >> u32::BITS) as u32
}

const _: () = assert!(u64::BITS - FINGERPRINT_SHIFT <= u32::BITS);

/// A set of a bucket's slots. Each slot has [`STATE_BITS`] bits, of which the topmost says whether it is in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotSet(u32);

// All slots fit into the number, and a state has to be shifted down, never up, to its bits there.
const _: () = assert!((SLOT_COUNT as u32 - 1) * STATE_BITS <= STATE_SHIFT);

/// The lowest bit of each slot.
const ONES: u32 = (1 << (SLOT_COUNT as u32 * STATE_BITS)) / ((1 << STATE_BITS) - 1);
const TOPS: u32 = ONES << (STATE_BITS - 1);

impl SlotSet {
    /// The slots whose bits in `states` are all zero.
    #[inline]
    fn of_zeros(states: u32) -> Self {
        // Whatever is not zero carries into the topmost bit of its slot, and no further.
        let below = TOPS - ONES;
        SlotSet(!(((states & below) + below) | states) & TOPS)
    }

    /// Whether the set is empty.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The first slot of the set, which must not be empty.
    #[inline]
    pub(super) fn first(self) -> u32 {
        self.0.trailing_zeros() / STATE_BITS
    }

    /// The set without its first slot.
    #[inline]
    pub(super) fn without_first(self) -> Self {
        SlotSet(self.0 & self.0.wrapping_sub(1))
    }

    /// The set with this slot, if `passes`.
    #[inline]
    pub(super) fn with(self, index: u32, passes: bool) -> Self {
        SlotSet(self.0 | u32::from(passes) << (index * STATE_BITS + STATE_BITS - 1))
    }
}

/// The unused slots of a bucket, and the closed ones, which may still linger.
#[inline]
pub(super) fn unused_and_closed(bucket: &Line) -> (SlotSet, SlotSet) {
    let states = bucket.0[..SLOT_COUNT].iter().enumerate().fold(0, |states, (index, word)| {
        let shift = index as u32 * STATE_BITS;
        states | (word >> (STATE_SHIFT - shift)) as u32 & ((1 << STATE_BITS) - 1) << shift
    });
    // The two states of an unused slot, Empty and Removed, differ in the lowest bit only.
    const _: () = assert!(
        ConnectionState::Empty as u32 == 0
            && ConnectionState::Removed as u32 == 1
            && ConnectionState::Closed as u32 == 2
    );
    (SlotSet::of_zeros(states & !ONES), SlotSet::of_zeros(states ^ (ONES * ConnectionState::Closed as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_come_back(
            fingerprint in 0u32..1 << FINGERPRINT_BITS,
            state in 0usize..1 << STATE_BITS,
            second: bool,
            tick in 0u32..1 << TICK_BITS,
            short_isn in 0u32..1 << ISN_BITS,
        ) {
            let client = if second { Side::Second } else { Side::First };
            let entry = FilterEntry { fingerprint, state: ConnectionState::ALL[state], client, tick, short_isn };
            let (word, extension) = entry.pack();
            prop_assert_eq!(FilterEntry::unpack(word, extension), entry);
            prop_assert_eq!(ConnectionState::ALL[state] as usize, state);
            let changed = |word| FilterEntry::unpack(word, extension);
            prop_assert_eq!(changed(in_state(word, ConnectionState::SynRecv)), FilterEntry { state: ConnectionState::SynRecv, ..entry });
            prop_assert_eq!(changed(recorded_at(word, 77)), FilterEntry { tick: 77, ..entry });
        }
    }

    #[test]
    fn what_is_half_open_or_a_candidate_is_recorded() {
        for state in ConnectionState::ALL {
            assert_eq!(state.is_recorded(), state.is_half_open() || state == ConnectionState::Candidate, "{state:?}");
        }
    }

    #[test]
    fn a_zero_word_is_empty() {
        assert_eq!(state_of(0), ConnectionState::Empty);
    }

    #[test]
    fn ages_count_over_the_wrap() {
        let start = (5 << TICK_BITS) - 10;
        let (word, extension) = (FilterEntry {
            fingerprint: 1,
            state: ConnectionState::SynSent,
            client: Side::First,
            tick: FilterEntry::tick_of(start),
            short_isn: 0,
        })
        .pack();
        assert_eq!(FilterEntry::unpack(word, extension).age(start + 25), 25);
    }

    fn indices(mut places: SlotSet) -> Vec<u32> {
        let mut indices = Vec::new();
        while !places.is_empty() {
            indices.push(places.first());
            places = places.without_first();
        }
        indices
    }

    proptest! {
        /// Words of few fingerprints and all states, so that everything is met.
        #[test]
        fn all_at_once_is_one_by_one(words in prop::array::uniform8((0u64..3, any::<u64>())), fingerprint in 0u32..3) {
            let low = (1 << FINGERPRINT_SHIFT) - 1;
            let bucket = Line(words.map(|(few, any)| few << FINGERPRINT_SHIFT | any & low));
            let slots_where = |passes: &dyn Fn(u64) -> bool| {
                (0..SLOT_COUNT as u32).filter(|index| passes(bucket.0[*index as usize])).collect::<Vec<_>>()
            };
            let found = with_fingerprint(&bucket, fingerprint);
            let held = slots_where(&|word| FilterEntry::unpack(word, 0).fingerprint == fingerprint);
            prop_assert_eq!(found, held.iter().fold(0, |bits, index| bits | 1 << index));
            let (unused, closed) = unused_and_closed(&bucket);
            let is_unused = |word| matches!(state_of(word), ConnectionState::Empty | ConnectionState::Removed);
            prop_assert_eq!(indices(unused), slots_where(&is_unused));
            prop_assert_eq!(indices(closed), slots_where(&|word| state_of(word) == ConnectionState::Closed));
            let all = (0..SLOT_COUNT as u32).fold(closed, |places, index| places.with(index, index % 2 == 0));
            prop_assert_eq!(indices(all), slots_where(&|_| true).into_iter().filter(|index| {
                index % 2 == 0 || state_of(bucket.0[*index as usize]) == ConnectionState::Closed
            }).collect::<Vec<_>>());
        }
    }
}
