//! The rings of a partition, addressed by place.
//!
//! What enters: the places that the filter's entries name. What leaves: what the records there say. One ring has the
//! half-open connections and another the candidates, whose places follow those of the first.

use super::MarkedRing;
use crate::signal::TICK_BITS;
use crate::track::{Entry, Slot};

/// How many IPv4 connections each ring has room for (half as many of IPv6).
#[derive(Clone, Copy, Debug)]
pub(in crate::track) struct RingCounts {
    pub(in crate::track) half_open: usize,
    pub(in crate::track) candidates: usize,
}

/// The rings of a partition.
pub(in crate::track) struct Rings {
    /// The half-open connections.
    pub(in crate::track) half_open: MarkedRing,
    /// Connections that may be older than the start.
    pub(in crate::track) candidates: MarkedRing,
}

impl Rings {
    /// Empty rings for this many connections.
    ///
    /// # Panics
    ///
    /// The rings have more places together than an entry can name.
    pub(in crate::track) fn new(counts: RingCounts) -> Self {
        let half_open = MarkedRing::new(counts.half_open, 0);
        let candidates = MarkedRing::new(counts.candidates, half_open.places_end());
        assert!(candidates.places_end() <= 1 << TICK_BITS, "an entry has no number for so many places");
        Rings { half_open, candidates }
    }

    /// The memory of such rings, in bytes.
    pub(in crate::track) fn size(counts: RingCounts) -> usize {
        MarkedRing::size(counts.half_open) + MarkedRing::size(counts.candidates)
    }

    #[inline]
    fn of(&self, place: u32) -> &MarkedRing {
        if place < self.candidates.first_place { &self.half_open } else { &self.candidates }
    }

    #[inline]
    fn of_mut(&mut self, place: u32) -> &mut MarkedRing {
        if place < self.candidates.first_place { &mut self.half_open } else { &mut self.candidates }
    }

    /// An entry of the filter with the tick at which its connection started, from the record if there is one.
    #[inline]
    pub(in crate::track) fn with_tick(&self, entry: Entry) -> Entry {
        if entry.state.is_recorded() { Entry { tick: self.start_tick(entry.tick), ..entry } } else { entry }
    }

    /// The low bits of the start tick of the connection with its record at this place.
    #[inline]
    fn start_tick(&self, place: u32) -> u32 {
        let header = self.of(place).record(place).header;
        Entry::tick_of(u64::from(header.since_low()).wrapping_sub(header.delay()))
    }

    /// Notes that the record of this entry, if it has one, is of no more use: its connection is no longer half-open, or
    /// gets another.
    #[inline]
    pub(in crate::track) fn end(&mut self, entry: &Entry) {
        if entry.state.is_recorded() {
            self.of_mut(entry.tick).end(entry.tick);
        }
    }

    /// Notes that the connection with its record at this place was answered, in the tick in which it began.
    #[inline]
    pub(in crate::track) fn answer(&mut self, place: u32) {
        self.of_mut(place).answer(place);
    }

    /// Notes that an entry of the filter has moved to `slot`.
    pub(in crate::track) fn entry_moved(&mut self, entry: &Entry, slot: Slot) {
        if entry.state.is_recorded() {
            self.of_mut(entry.tick).set_slot(entry.tick, slot);
        }
    }
}
