//! The stage, in which segments wait so that they are looked up together.
//!
//! What enters: signals without hashes, each with what is needed to look it up. What leaves: the signals, and which of
//! them are IPv6 or have to be looked up. A signal is built in its place and stays there until it is handed on. Groups
//! of places are sets with a bit for each place, so that no signal has to be read to see whether it belongs to one.

use crate::signal::Signal;

/// The places of a stage: as many as a set has bits.
pub(super) const STAGE_COUNT: usize = u64::BITS as usize;

/// What it takes to look a staged signal up.
#[derive(Clone, Copy, Default)]
pub(super) struct Look {
    pub(super) quick_hash: u64,
    pub(super) now_ns: i64,
    /// Whether the signal is handed on in any case.
    pub(super) is_chosen: bool,
}

/// The sets that a signal belongs to.
pub(super) struct Place {
    /// The connection is of IPv6.
    pub(super) is_v6: bool,
    /// The signal needs more than its hash.
    pub(super) is_open: bool,
}

/// The contents of a stage, as sets of places.
pub(super) struct Taken {
    pub(super) all: u64,
    /// The signals of IPv6 connections.
    pub(super) v6: u64,
    /// The signals that need more than their hash.
    pub(super) open: u64,
}

/// The places, and how many are taken: fewer than all, except while [`Self::is_full`] is true.
pub(super) struct Stage {
    signals: Box<[Signal; STAGE_COUNT]>,
    looks: Box<[Look; STAGE_COUNT]>,
    count: usize,
    v6: u64,
    open: u64,
}

impl Stage {
    pub(super) fn new() -> Self {
        let signals = Box::new([Signal::EMPTY; STAGE_COUNT]);
        Stage { signals, looks: Box::new([Look::default(); STAGE_COUNT]), count: 0, v6: 0, open: 0 }
    }

    /// Takes the next place, in which `make` builds a signal.
    #[inline(always)]
    pub(super) fn push<T>(&mut self, place: Place, look: Look, make: impl FnOnce(&mut Signal) -> T) -> T {
        let at = self.count % STAGE_COUNT;
        self.looks[at] = look;
        self.v6 |= u64::from(place.is_v6) << at;
        self.open |= u64::from(place.is_open) << at;
        self.count += 1;
        make(&mut self.signals[at])
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == STAGE_COUNT
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Frees all places, and returns which were taken. The signals in them stay until they are overwritten.
    pub(super) fn take(&mut self) -> Taken {
        // As many ones from the lowest bit on.
        let all = u64::MAX.checked_shr((STAGE_COUNT - self.count) as u32).unwrap_or(0);
        let taken = Taken { all, v6: self.v6, open: self.open };
        (self.count, self.v6, self.open) = (0, 0, 0);
        taken
    }

    pub(super) fn looks(&self) -> &[Look; STAGE_COUNT] {
        &self.looks
    }

    pub(super) fn signals_mut(&mut self) -> &mut [Signal; STAGE_COUNT] {
        &mut self.signals
    }
}

/// The places of a set, in order.
#[inline(always)]
pub(super) fn places(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros() as usize;
        let is_there = set != 0;
        set &= set.wrapping_sub(1);
        is_there.then_some(at)
    })
}
