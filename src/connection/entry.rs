//! What the filter remembers of a connection: 72 bits.
//!
//! What enters: fingerprint, state, orientation, time and initial sequence number. What leaves: a word of 64 bits and a
//! byte, and the same out of them again. Every bit is paid for once a connection, so each field has just the width that
//! it needs.

use crate::config::{FINGERPRINT_BITS, TICK_BITS};
use crate::flow::Side;
use crate::hash::GOLDEN_32;
use crate::signal::HANDSHAKE_NUMBER_BITS;

/// Bits of the client's initial sequence number, hashed: two connections on the same ports are taken for one with a
/// probability of 2^-17. (At 10 bits, four of 4,000 reused port pairs were.)
pub const INITIAL_NUMBER_BITS: u32 = 17;

/// Those of them that stand in the entry's word; the rest are in its extension byte.
const NUMBER_LOW_BITS: u32 = 9;
pub(super) const STATE_BITS: u32 = 4;

const _: () = assert!(FINGERPRINT_BITS + STATE_BITS + 1 + TICK_BITS + NUMBER_LOW_BITS == u64::BITS);
const _: () = assert!(INITIAL_NUMBER_BITS - NUMBER_LOW_BITS == u8::BITS);
const _: () = assert!(HANDSHAKE_NUMBER_BITS < INITIAL_NUMBER_BITS);

const NUMBER_SHIFT: u32 = 0;
const TICK_SHIFT: u32 = NUMBER_SHIFT + NUMBER_LOW_BITS;
const SIDE_SHIFT: u32 = TICK_SHIFT + TICK_BITS;
pub(super) const STATE_SHIFT: u32 = SIDE_SHIFT + 1;
pub(super) const FINGERPRINT_SHIFT: u32 = STATE_SHIFT + STATE_BITS;

/// In place of a hashed initial sequence number: it was never seen, because the connection is older than the start.
pub const NUMBER_UNKNOWN: u32 = 0;

/// The bit of a payload that tells of a connection whose start was not seen.
pub const MIDSTREAM: u32 = 1 << TICK_BITS;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// No connection was ever here.
    Empty,
    /// A connection was here and left nothing behind.
    Removed,
    /// Ended; lingers for some seconds, so that late packets and repeats are known for what they are.
    Closed,
    /// The client's SYN was seen.
    SynSent,
    /// SYN and SYN-ACK were seen, in one tick.
    SynRecv,
    /// The same, and the server has sent its FIN.
    SynRecvServerFin,
    /// SYN and SYN-ACK were seen, the SYN-ACK in a later tick: the timeout counts from there.
    SynRecvLate,
    /// The same, and the server has sent its FIN.
    SynRecvLateServerFin,
    /// A SYN-ACK was seen, but never the client.
    AnsweredUnseen,
    /// The same, and the server has sent its FIN.
    AnsweredUnseenServerFin,
    /// The handshake is complete.
    Established,
    /// The same, and the client has sent its FIN.
    EstablishedClientFin,
    /// The same, and the server has sent its FIN.
    EstablishedServerFin,
    /// Taken for established by the client's packets alone.
    OneWayClient,
    /// Taken for established by the server's packets alone.
    OneWayServer,
    /// A packet without a flag was seen of a connection whose start was not: "client" is who sent it. The other side has to
    /// be seen before it is taken for a connection.
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

    /// Whether a ring has a record of the connection: it is half-open, or a candidate.
    #[must_use]
    #[inline]
    pub fn is_recorded(self) -> bool {
        const RECORDED: u32 = ((1 << (State::AnsweredUnseenServerFin as u32 + 1)) - (1 << State::SynSent as u32))
            | 1 << State::Candidate as u32;
        RECORDED >> self as u32 & 1 != 0
    }

    /// Whether the connection is open by the packets of one side alone.
    #[must_use]
    #[inline]
    pub fn is_one_way(self) -> bool {
        matches!(self, State::OneWayClient | State::OneWayServer)
    }

    /// Whether the connection is open, as the IBLT holds it.
    #[must_use]
    #[inline]
    pub fn is_established(self) -> bool {
        (State::Established as u8..=State::OneWayServer as u8).contains(&(self as u8))
    }
}

/// One entry of the filter, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What tells it from others in its bucket.
    pub fingerprint: u32,
    /// Where the connection stands.
    pub state: State,
    /// Which end of the canonical key is the client.
    pub client: Side,
    /// When it started (when it ended, once closed): the low [`TICK_BITS`] of the tick. In the filter, of what a ring has a record
    /// of, the place of that record instead: it knows the rest.
    pub tick: u32,
    /// The client's initial sequence number, hashed to [`INITIAL_NUMBER_BITS`], or [`NUMBER_UNKNOWN`].
    pub number: u32,
}

impl Entry {
    /// The low [`TICK_BITS`] of a tick.
    #[must_use]
    #[inline]
    pub fn tick_of(tick: u64) -> u32 {
        tick as u32 & ((1 << TICK_BITS) - 1)
    }

    /// An initial sequence number as entries keep it. Multiplying by an odd number and taking the top bits makes near
    /// numbers differ. Never [`NUMBER_UNKNOWN`].
    #[must_use]
    #[inline]
    pub fn number_of(initial_number: u32) -> u32 {
        let number = initial_number.wrapping_mul(GOLDEN_32) >> (u32::BITS - INITIAL_NUMBER_BITS);
        if number == NUMBER_UNKNOWN { 1 } else { number }
    }

    /// Whether the capture side, which waits for a handshake's last packet by fewer bits of the number, takes these for the same: both
    /// are the top bits of one product.
    #[must_use]
    #[inline]
    pub fn is_told_as(number: u32, other: u32) -> bool {
        (number ^ other) >> (INITIAL_NUMBER_BITS - HANDSHAKE_NUMBER_BITS) == 0
    }

    /// What goes with the key of an established connection: when it started, and [`MIDSTREAM`] if that was not seen. It is the
    /// same from the opening to the closing, because neither tick nor number changes.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> u32 {
        self.tick | if self.number == NUMBER_UNKNOWN { MIDSTREAM } else { 0 }
    }

    /// How many ticks ago the entry's time was, up to the wrap.
    #[must_use]
    #[inline]
    pub fn age(&self, now: u64) -> u32 {
        Entry::tick_of(now).wrapping_sub(self.tick) & ((1 << TICK_BITS) - 1)
    }

    /// The word and the extension byte.
    #[must_use]
    #[inline]
    pub(super) fn pack(&self) -> (u64, u8) {
        let word = u64::from(self.fingerprint) << FINGERPRINT_SHIFT
            | (self.state as u64) << STATE_SHIFT
            | u64::from(self.client == Side::Second) << SIDE_SHIFT
            | u64::from(self.tick) << TICK_SHIFT
            | u64::from(self.number) & ((1 << NUMBER_LOW_BITS) - 1);
        (word, (self.number >> NUMBER_LOW_BITS) as u8)
    }

    /// The entry of a word and an extension byte.
    #[must_use]
    #[inline]
    pub(super) fn unpack(word: u64, extension: u8) -> Self {
        Entry {
            fingerprint: (word >> FINGERPRINT_SHIFT) as u32,
            state: state_of(word),
            client: if word >> SIDE_SHIFT & 1 == 0 { Side::First } else { Side::Second },
            tick: (word >> TICK_SHIFT) as u32 & ((1 << TICK_BITS) - 1),
            number: u32::from(extension) << NUMBER_LOW_BITS | word as u32 & ((1 << NUMBER_LOW_BITS) - 1),
        }
    }
}

/// The state in an entry's word.
#[inline]
pub(super) fn state_of(word: u64) -> State {
    State::ALL[(word >> STATE_SHIFT) as usize & ((1 << STATE_BITS) - 1)]
}

/// Whether a word's place can be used again without losing anything: nothing is in it, or what has been closed for more than
/// `linger_ticks`.
#[inline]
pub(super) fn is_free(word: u64, now: u64, linger_ticks: u32) -> bool {
    let state = (word >> STATE_SHIFT) as u8 & ((1 << STATE_BITS) - 1);
    if state > State::Closed as u8 {
        return false;
    }
    let age = Entry::tick_of(now).wrapping_sub((word >> TICK_SHIFT) as u32) & ((1 << TICK_BITS) - 1);
    state < State::Closed as u8 || age > linger_ticks
}

/// What is left of a word whose connection leaves nothing behind.
#[inline]
pub(super) fn removed(word: u64) -> u64 {
    word & ((1 << STATE_SHIFT) - 1) | (State::Removed as u64) << STATE_SHIFT
}

/// A word in another state.
#[inline]
pub(super) fn in_state(word: u64, state: State) -> u64 {
    word & !(((1 << STATE_BITS) - 1) << STATE_SHIFT) | (state as u64) << STATE_SHIFT
}

/// A word whose record stands at another place.
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
            number in 0u32..1 << INITIAL_NUMBER_BITS,
        ) {
            let client = if second { Side::Second } else { Side::First };
            let entry = Entry { fingerprint, state: State::ALL[state], client, tick, number };
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
            number: 0,
        })
        .pack();
        assert_eq!(Entry::unpack(word, extension).age(start + 25), 25);
    }
}
