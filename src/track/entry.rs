//! What the filter remembers of a connection: 72 bits.
//!
//! What enters: fingerprint, state, orientation, time and initial sequence number (ISN). What leaves: a word of 64 bits
//! and an extension byte, and the fields decoded from them. Every connection pays for every bit, so each field has just
//! the width that it needs.

use crate::flow::Side;
use crate::handover::{ISN_BITS, MIDSTREAM};
use crate::hash::GOLDEN_32;
use crate::signal::{FINGERPRINT_BITS, HANDSHAKE_ISN_BITS, TICK_BITS};

/// Bits of the short ISN in the entry's word; the rest are in the extension byte.
const ISN_LOW_BITS: u32 = 9;
pub(super) const STATE_BITS: u32 = 4;

const _: () = assert!(FINGERPRINT_BITS + STATE_BITS + 1 + TICK_BITS + ISN_LOW_BITS == u64::BITS);
const _: () = assert!(ISN_BITS - ISN_LOW_BITS == u8::BITS);
const _: () = assert!(HANDSHAKE_ISN_BITS < ISN_BITS);

const ISN_SHIFT: u32 = 0;
const TICK_SHIFT: u32 = ISN_SHIFT + ISN_LOW_BITS;
const SIDE_SHIFT: u32 = TICK_SHIFT + TICK_BITS;
pub(super) const STATE_SHIFT: u32 = SIDE_SHIFT + 1;
pub(super) const FINGERPRINT_SHIFT: u32 = STATE_SHIFT + STATE_BITS;

/// The short ISN of a connection that is older than the start, so that its ISN was never seen.
pub const ISN_UNKNOWN: u32 = 0;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
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
    /// [`State::SynRecv`], and the server has sent its FIN.
    SynRecvServerFin,
    /// SYN and SYN-ACK were seen, the SYN-ACK in a later tick: the timeout counts from there.
    SynRecvLate,
    /// [`State::SynRecvLate`], and the server has sent its FIN.
    SynRecvLateServerFin,
    /// A SYN-ACK was seen, but no packet of the client.
    AnsweredUnseen,
    /// [`State::AnsweredUnseen`], and the server has sent its FIN.
    AnsweredUnseenServerFin,
    /// The handshake is complete.
    Established,
    /// [`State::Established`], and the client has sent its FIN.
    EstablishedClientFin,
    /// [`State::Established`], and the server has sent its FIN.
    EstablishedServerFin,
    /// Open, but only packets of the client were seen.
    OneWayClient,
    /// Open, but only packets of the server were seen.
    OneWayServer,
    /// A packet without a flag was seen of a connection whose start was not. Its sender counts as the client. The
    /// connection opens when the other side is seen.
    Candidate,
}

impl State {
    const ALL: [Self; 1 << STATE_BITS] = [
        State::Empty,
        State::Removed,
        State::Closed,
        State::SynSent,
        State::SynRecv,
        State::SynRecvServerFin,
        State::SynRecvLate,
        State::SynRecvLateServerFin,
        State::AnsweredUnseen,
        State::AnsweredUnseenServerFin,
        State::Established,
        State::EstablishedClientFin,
        State::EstablishedServerFin,
        State::OneWayClient,
        State::OneWayServer,
        State::Candidate,
    ];

    /// Whether the connection was answered but its handshake is not complete.
    #[must_use]
    #[inline]
    pub fn is_answered(self) -> bool {
        (State::SynRecv as u8..=State::AnsweredUnseenServerFin as u8).contains(&(self as u8))
    }

    /// Whether the handshake is not complete.
    #[must_use]
    #[inline]
    pub fn is_half_open(self) -> bool {
        self == State::SynSent || self.is_answered()
    }

    /// Whether a ring has a record of the connection, which is half-open or a candidate.
    #[must_use]
    #[inline]
    pub fn is_recorded(self) -> bool {
        const RECORDED: u32 = ((1 << (State::AnsweredUnseenServerFin as u32 + 1)) - (1 << State::SynSent as u32))
            | 1 << State::Candidate as u32;
        RECORDED >> self as u32 & 1 != 0
    }

    /// Whether the connection is open although only one side was seen.
    #[must_use]
    #[inline]
    pub fn is_one_way(self) -> bool {
        matches!(self, State::OneWayClient | State::OneWayServer)
    }

    /// Whether the connection is open, and so in the table of open connections.
    #[must_use]
    #[inline]
    pub fn is_established(self) -> bool {
        (State::Established as u8..=State::OneWayServer as u8).contains(&(self as u8))
    }
}

/// An entry of the filter, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The part of the connection's hash that tells it from others in its bucket.
    pub fingerprint: u32,
    /// The state of the connection.
    pub state: State,
    /// Which end of the canonical key is the client.
    pub client: Side,
    /// When the connection started or, in [`State::Closed`], ended: the low [`TICK_BITS`] of the tick. In the filter,
    /// the entry of a connection with a record in a ring has the place of that record here instead, and the record has
    /// the tick.
    pub tick: u32,
    /// The client's ISN, hashed to [`ISN_BITS`], or [`ISN_UNKNOWN`].
    pub short_isn: u32,
}

impl Entry {
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

    /// Whether the connection's ISN is known and the same as another to the capture side, which waits for the last
    /// packet of a handshake by fewer bits: the top bits of the same product, never zero either.
    #[must_use]
    #[inline]
    pub fn is_told_as(&self, short_isn: u32) -> bool {
        let told = |short_isn: u32| (short_isn >> (ISN_BITS - HANDSHAKE_ISN_BITS)).max(1);
        self.short_isn != ISN_UNKNOWN && told(self.short_isn) == told(short_isn)
    }

    /// The payload of an established connection, which goes with its key: the start tick, and [`MIDSTREAM`] if the
    /// start was not seen. It does not change from the opening to the closing, because neither tick nor short ISN does.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> u32 {
        self.tick | if self.short_isn == ISN_UNKNOWN { MIDSTREAM } else { 0 }
    }

    /// The age of the entry's tick in ticks, up to the wrap.
    #[must_use]
    #[inline]
    pub fn age(&self, now: u64) -> u32 {
        Entry::tick_of(now).wrapping_sub(self.tick) & ((1 << TICK_BITS) - 1)
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
        Entry {
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
pub(super) fn state_of(word: u64) -> State {
    State::ALL[(word >> STATE_SHIFT) as usize & ((1 << STATE_BITS) - 1)]
}

/// Whether a word's place is free: nothing is in it, or a connection that was closed more than `linger_ticks` ago.
#[inline]
pub(super) fn is_free(word: u64, now: u64, linger_ticks: u32) -> bool {
    let state = (word >> STATE_SHIFT) as u8 & ((1 << STATE_BITS) - 1);
    if state > State::Closed as u8 {
        return false;
    }
    let age = Entry::tick_of(now).wrapping_sub((word >> TICK_SHIFT) as u32) & ((1 << TICK_BITS) - 1);
    state < State::Closed as u8 || age > linger_ticks
}

/// The word that remains when a connection is removed.
#[inline]
pub(super) fn removed(word: u64) -> u64 {
    word & ((1 << STATE_SHIFT) - 1) | (State::Removed as u64) << STATE_SHIFT
}

/// The word with another state.
#[inline]
pub(super) fn in_state(word: u64, state: State) -> u64 {
    word & !(((1 << STATE_BITS) - 1) << STATE_SHIFT) | (state as u64) << STATE_SHIFT
}

/// The word with another place of the connection's record.
#[inline]
pub(super) fn recorded_at(word: u64, place: u32) -> u64 {
    word & !(((1 << TICK_BITS) - 1) << TICK_SHIFT) | u64::from(place) << TICK_SHIFT
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
            let entry = Entry { fingerprint, state: State::ALL[state], client, tick, short_isn };
            let (word, extension) = entry.pack();
            prop_assert_eq!(Entry::unpack(word, extension), entry);
            prop_assert_eq!(State::ALL[state] as usize, state);
            let changed = |word| Entry::unpack(word, extension);
            prop_assert_eq!(changed(in_state(word, State::SynRecv)), Entry { state: State::SynRecv, ..entry });
            prop_assert_eq!(changed(recorded_at(word, 77)), Entry { tick: 77, ..entry });
        }
    }

    #[test]
    fn what_is_half_open_or_a_candidate_is_recorded() {
        for state in State::ALL {
            assert_eq!(state.is_recorded(), state.is_half_open() || state == State::Candidate, "{state:?}");
        }
    }

    #[test]
    fn a_zero_word_is_empty() {
        assert_eq!(state_of(0), State::Empty);
    }

    #[test]
    fn ages_count_over_the_wrap() {
        let start = (5 << TICK_BITS) - 10;
        let (word, extension) = (Entry {
            fingerprint: 1,
            state: State::SynSent,
            client: Side::First,
            tick: Entry::tick_of(start),
            short_isn: 0,
        })
        .pack();
        assert_eq!(Entry::unpack(word, extension).age(start + 25), 25);
    }
}
