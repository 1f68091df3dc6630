//! Where segments wait that are looked up together.
//!
//! What enters: signals that lack their hashes, each with what is still to be found out of it. What leaves: the same, and of which
//! places what has to be found out. A signal is made in its place and stays there until it is handed on. Places are told as sets, a
//! bit for each, so that nobody has to look at a signal to see whether it concerns him.

use crate::signal::Signal;

/// Segments that are looked up together: as many as a set has bits.
pub(super) const STAGE_COUNT: usize = u64::BITS as usize;

/// What is still to be found out of a staged signal.
#[derive(Clone, Copy, Default)]
pub(super) struct Look {
    pub(super) quick_hash: u64,
    pub(super) now_ns: i64,
    /// Whether it is handed on in any case.
    pub(super) is_chosen: bool,
}

/// The sets that a signal belongs to.
pub(super) struct Place {
    /// It is of an IPv6 connection.
    pub(super) is_v6: bool,
    /// More has to be found out of it than its hash.
    pub(super) is_open: bool,
}

/// What there was in a stage: sets of places.
pub(super) struct Taken {
    pub(super) all: u64,
    /// Those of IPv6 connections.
    pub(super) v6: u64,
    /// Those of which more has to be found out than the hash.
    pub(super) open: u64,
}

/// The places, and how many are taken: always fewer than all, but while [`Self::is_full`] says so.
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

    /// Takes the next place, in which `make` makes a signal.
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

    /// Which places are taken. They are free now, but what is in them stays there.
    pub(super) fn take(&mut self) -> Taken {
        // As many ones, from below.
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
