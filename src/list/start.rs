//! What the list remembers of a connection beside its key: 64 bits.
//!
//! A list of a million connections has a million of these, so each field is only as wide as it must be.

use crate::flow::FlowKey as TableKey;
use crate::handover::{MIDSTREAM, SidesSeen, ticks_since};
use crate::signal::{Clock, TICK_BITS};
use flowpeel_iblt::ValueCode;

/// Bits of the tick: all that the other fields leave. They wrap after 27,000 years.
const START_BITS: u32 = 43;
const START_MASK: u64 = (1 << START_BITS) - 1;
const UNSETTLED_SHIFT: u32 = START_BITS;
const COURSE_SHIFT: u32 = UNSETTLED_SHIFT + 1;
const BOUND_SHIFT: u32 = COURSE_SHIFT + 2;
const SEEN_SHIFT: u32 = BOUND_SHIFT + 1;
const WATCHED_SHIFT: u32 = SEEN_SHIFT + u8::BITS;

/// The one of the four courses that is no [`SidesSeen`].
const MIDSTREAM_COURSE: u64 = 3;

const _: () = assert!(WATCHED_SHIFT + u8::BITS + 1 == u64::BITS);

/// How many bytes of a packed start are enough if it is less than [`NEAR_TICKS`] after the tick from which it is
/// counted. They hold the lower bits of the tick and then all other fields; the upper bits of the tick come last.
pub(super) const NEAR_SIZE: usize = 6;
const PACKED_BITS: u32 = NEAR_SIZE as u32 * u8::BITS;
const NEAR_BITS: u32 = PACKED_BITS - (u64::BITS - START_BITS);

/// Five months.
pub(super) const NEAR_TICKS: u64 = 1 << NEAR_BITS;

/// A span of time in which every listed connection is asked about once. Epoch numbers wrap: what was seen before time
/// leaps over many gets another ([`EpochLeap`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Epoch(pub(super) u8);

impl Epoch {
    /// How many epoch numbers there are. The value of a byte that is left over stands for "none".
    pub(super) const COUNT: u64 = u8::MAX as u64;

    /// The oldest that an epoch looks behind a leap of time: older than any that is asked about, and no later epoch has
    /// its number soon.
    pub(super) const AGE_MAX: u64 = Self::COUNT - 8;

    /// The epoch of a tick, with epochs of this many ticks.
    pub(super) fn of(tick: u64, length_ticks: u64) -> Self {
        Epoch((tick / length_ticks % Self::COUNT) as u8)
    }

    /// The epoch that began so many before this one, at most [`Self::AGE_MAX`].
    fn before(self, count: u64) -> Self {
        Epoch(((u64::from(self.0) + Self::COUNT - count) % Self::COUNT) as u8)
    }

    /// How many epochs before this one the other began.
    pub(super) fn since(self, other: Self) -> u64 {
        (u64::from(self.0) + Self::COUNT - u64::from(other.0)) % Self::COUNT
    }
}

/// A leap of time over so many epochs that their numbers may come round.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochLeap {
    before: Epoch,
    after: Epoch,
    length: u64,
}

impl EpochLeap {
    /// The leap from one tick to another, with epochs of this many ticks.
    pub(super) fn new((from_tick, to_tick): (u64, u64), length_ticks: u64) -> Self {
        EpochLeap {
            before: Epoch::of(from_tick, length_ticks),
            after: Epoch::of(to_tick, length_ticks),
            length: to_tick / length_ticks - from_tick / length_ticks,
        }
    }

    /// An epoch before the leap, as it is to be known behind it.
    pub(super) fn known(self, epoch: Epoch) -> Epoch {
        self.after.before((self.before.since(epoch) + self.length).min(Epoch::AGE_MAX))
    }
}

/// When a listed connection started, and when it was last known to be alive.
///
/// From the top bit down: whether the start is only a bound, because the value could not be read; the epoch in which
/// the connection came under watch, plus one; the epoch in which it was last known to be alive; whether the start is
/// only a bound, because the tick of its payload has wrapped; two bits for the sides that were seen, or midstream, of
/// which both sides were; whether it is unsettled; the tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start(u64);

impl Start {
    const UNKNOWN: u64 = 1 << 63;

    /// A start whose value is still in the residue. The tick is the latest that it can have been.
    pub(super) fn unknown(latest_tick: u64, seen: Epoch) -> Self {
        Start(latest_tick & START_MASK | Self::UNKNOWN).seen_in(seen)
    }

    /// The start in a payload of a delta handed over at the tick `cut`, of a connection seen in this epoch.
    pub(super) fn of_payload(payload: u32, cut: u64, seen: Epoch) -> Self {
        let ago = ticks_since(payload, cut);
        let course = if payload & MIDSTREAM != 0 { MIDSTREAM_COURSE } else { SidesSeen::of_payload(payload) as u64 };
        Start(cut.saturating_sub(u64::from(ago)) & START_MASK | course << COURSE_SHIFT).seen_in(seen)
    }

    /// A start in exactly this tick, of a connection of which nothing else is known.
    pub(super) fn at(tick: u64, midstream: bool) -> Self {
        let course = if midstream { MIDSTREAM_COURSE } else { SidesSeen::Both as u64 };
        Start(tick & START_MASK | course << COURSE_SHIFT)
    }

    pub(super) fn is_known(self) -> bool {
        self.0 & Self::UNKNOWN == 0
    }

    pub(super) fn tick(self) -> u64 {
        self.0 & START_MASK
    }

    /// Whether the connection may have started earlier: the tick is the latest that it can have been.
    pub(super) fn is_bound(self) -> bool {
        !self.is_known() || self.0 >> BOUND_SHIFT & 1 != 0
    }

    /// This start, marked as the latest that there can have been.
    pub(super) fn bound(self) -> Self {
        Start(self.0 | 1 << BOUND_SHIFT)
    }

    /// This start, marked as a bound if the tick that its payload has may have been at another time, since `earliest`.
    /// If it has not been since then at all the connection was open before, and has not ended after all.
    pub(super) fn bound_since(self, earliest: u64) -> Self {
        let earliest = if self.tick() < earliest { Clock::FIRST_TICK } else { earliest };
        let before = self.tick().checked_sub(1 << TICK_BITS);
        if before.is_some_and(|before| before >= earliest) { self.bound() } else { self }
    }

    /// Whether the handshake of the connection was not seen.
    pub(super) fn is_midstream(self) -> bool {
        self.0 >> COURSE_SHIFT & 3 == MIDSTREAM_COURSE
    }

    /// The sides of the connection that were seen.
    pub(super) fn sides(self) -> SidesSeen {
        SidesSeen::of_bits(self.0 >> COURSE_SHIFT)
    }

    /// This start, of a connection that is not midstream and of which these sides were seen.
    pub(super) fn of_sides(self, sides: SidesSeen) -> Self {
        if self.is_midstream() {
            return self;
        }
        Start(self.0 & !(3 << COURSE_SHIFT) | (sides as u64) << COURSE_SHIFT)
    }

    /// Whether the connection may have closed unseen, and was not seen since.
    pub(super) fn is_unsettled(self) -> bool {
        self.0 >> UNSETTLED_SHIFT & 1 != 0
    }

    /// This start, marked as unsettled.
    pub(super) fn unsettled(self) -> Self {
        Start(self.0 | 1 << UNSETTLED_SHIFT)
    }

    /// This start, no longer marked as unsettled.
    pub(super) fn settled(self) -> Self {
        Start(self.0 & !(1 << UNSETTLED_SHIFT))
    }

    /// The bits of this start, for a saved state.
    pub(super) fn to_bits(self) -> u64 {
        self.0
    }

    /// The start with these bits.
    pub(super) fn of_bits(bits: u64) -> Self {
        Start(bits)
    }

    /// This start with its tick counted from `first_tick`: a number of [`NEAR_SIZE`] bytes if it is less than
    /// [`NEAR_TICKS`] later.
    #[inline]
    pub(super) fn to_packed(self, first_tick: u64) -> u64 {
        let ticks = self.tick().wrapping_sub(first_tick) & START_MASK;
        ticks >> NEAR_BITS << PACKED_BITS | self.0 >> START_BITS << NEAR_BITS | ticks & (NEAR_TICKS - 1)
    }

    /// The start that was packed.
    #[inline]
    pub(super) fn of_packed(packed: u64, first_tick: u64) -> Self {
        let ticks = packed >> PACKED_BITS << NEAR_BITS | packed & (NEAR_TICKS - 1);
        let others = packed >> NEAR_BITS << START_BITS;
        Start(others | ticks.wrapping_add(first_tick) & START_MASK)
    }

    /// The payload by which the partition knows this start.
    pub(super) fn payload(self) -> u32 {
        let midstream = if self.is_midstream() { MIDSTREAM } else { 0 };
        self.tick() as u32 & ((1 << TICK_BITS) - 1) | midstream | self.sides().payload_bits()
    }

    /// The value in the tables of a connection with this start.
    pub(super) fn value<K: TableKey>(self, code: &ValueCode<K>, placement: u128) -> u64 {
        if self.is_known() { code.encode(placement, self.payload()) } else { 0 }
    }

    /// The epoch in which the connection was last known to be alive.
    pub(super) fn seen(self) -> Epoch {
        Epoch((self.0 >> SEEN_SHIFT) as u8)
    }

    /// The epoch in which the connection came under watch, if it is.
    pub(super) fn watched(self) -> Option<Epoch> {
        let watched = (self.0 >> WATCHED_SHIFT) as u8;
        watched.checked_sub(1).map(Epoch)
    }

    /// This start, known to be alive in this epoch and not under watch.
    pub(super) fn seen_in(self, epoch: Epoch) -> Self {
        let others = self.0 & !(u64::from(u16::MAX) << SEEN_SHIFT);
        Start(others | u64::from(epoch.0) << SEEN_SHIFT)
    }

    /// This start, of a connection that was listed before a leap of time, behind it.
    pub(super) fn behind(self, leap: EpochLeap) -> Self {
        let seen = self.seen_in(leap.known(self.seen()));
        self.watched().map_or(seen, |watched| seen.watched_since(leap.known(watched)))
    }

    /// This start, under watch since this epoch.
    pub(super) fn watched_since(self, epoch: Epoch) -> Self {
        let others = self.0 & !(u64::from(u8::MAX) << WATCHED_SHIFT);
        Start(others | (u64::from(epoch.0) + 1) << WATCHED_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_come_back(tick in 1u64 << 21..START_MASK, ago in 0u64..1 << TICK_BITS, course in 0u32..4, epochs: (u64, u64)) {
            let midstream = course == 3;
            let (seen, watched) = (Epoch::of(epochs.0, 7), Epoch::of(epochs.1, 1));
            let flags = if midstream { MIDSTREAM } else { course << (TICK_BITS + 1) };
            let payload = (tick - ago) as u32 & ((1 << TICK_BITS) - 1) | flags;
            let start = Start::of_payload(payload, tick, seen);
            for start in [start, start.watched_since(watched), start.watched_since(watched).seen_in(seen)] {
                prop_assert_eq!((start.tick(), start.payload(), start.is_midstream()), (tick - ago, payload, midstream));
                prop_assert_eq!((start.seen(), start.is_known()), (seen, true));
            }
            prop_assert_eq!(start.watched(), None);
            let unsettled = start.unsettled();
            prop_assert!(unsettled.is_unsettled() && !unsettled.settled().is_unsettled() && !start.is_unsettled());
            prop_assert_eq!((unsettled.tick(), unsettled.payload(), unsettled.seen()), (start.tick(), payload, seen));
            prop_assert_eq!(unsettled.settled(), start);
            prop_assert_eq!(Start::of_bits(unsettled.to_bits()), unsettled);
            prop_assert_eq!(start.watched_since(watched).watched(), Some(watched));
            prop_assert_eq!(start.watched_since(watched).seen_in(seen).watched(), None);
            prop_assert!(!Start::unknown(tick, seen).is_known() && Start::unknown(tick, seen).is_bound());
            prop_assert!(start.bound().is_bound() && !start.is_bound() && start.bound().is_known());
            prop_assert_eq!((start.bound().tick(), start.bound().payload()), (start.tick(), payload));
            prop_assert_eq!((start.bound().seen(), start.bound().is_unsettled()), (start.seen(), false));
        }

        #[test]
        fn what_is_packed_comes_back(bits: u64, first_tick in 0..START_MASK, ticks in 0..2 * NEAR_TICKS) {
            let start = Start::of_bits(bits);
            prop_assert_eq!(Start::of_packed(start.to_packed(first_tick), first_tick), start);
            let start = Start::of_bits(bits & !START_MASK | first_tick.wrapping_add(ticks) & START_MASK);
            let packed = start.to_packed(first_tick);
            prop_assert_eq!((packed < 1 << PACKED_BITS, Start::of_packed(packed, first_tick)), (ticks < NEAR_TICKS, start));
        }

        #[test]
        fn a_start_is_a_bound_where_the_tick_was_twice(ago in 0u64..1 << TICK_BITS, since in 1u64 << 21..1 << 40, span in 0u64..1 << 22) {
            let cut = since + span;
            let start = Start::of_payload((cut - ago) as u32 & ((1 << TICK_BITS) - 1), cut, Epoch::default());
            prop_assert_eq!(start.tick(), cut - ago);
            let is_before = cut - ago < since;
            let earliest = if is_before { Clock::FIRST_TICK } else { since };
            let is_twice = (cut - ago).saturating_sub(1 << TICK_BITS) >= earliest;
            prop_assert_eq!(start.bound_since(since).is_bound(), is_twice);
            prop_assert!(span > 1 << TICK_BITS || is_before || !is_twice);
        }

        #[test]
        fn no_age_is_taken_for_a_greater_one(tick in 0u64..1 << 40, later in 0u64..1 << 40, length in 1u64..100_000) {
            let age = Epoch::of(tick + later, length).since(Epoch::of(tick, length));
            prop_assert!(age <= (tick + later) / length - tick / length);
            if later < length * (Epoch::COUNT - 1) {
                prop_assert!(age >= later / length);
            }
        }
    }
}
