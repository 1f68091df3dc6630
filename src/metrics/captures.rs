//! What capture threads count, and where they publish it.

use crate::metrics::cell::Cell;
use crate::parse::Unusable;
use crate::signal::SignalCounts;
use std::sync::atomic::{AtomicBool, Ordering};

/// Counts of a capture thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Packets taken in.
    pub packets: u64,
    /// Packets that the kernel had no room for.
    pub lost: u64,
    /// Signals that a queue had no room for.
    pub queue_full: u64,
    /// Packets that could not be used, by [`Unusable::index`].
    pub unusable: [u64; Unusable::COUNT],
    /// Counts of the signals that went to the shards.
    pub signals: SignalCounts,
    /// How often the clock stepped back by more than [`FOLLOWS_MAX_NS`](crate::signal::FOLLOWS_MAX_NS).
    pub steps_back: u64,
}

/// The totals of [`CaptureCounts`] in a cell.
const TOTAL_COUNT: usize = 8 + Unusable::COUNT;

impl CaptureCounts {
    /// The sum of what two threads counted. No count wraps.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let (one, other) = (self.totals(), other.totals());
        CaptureCounts::of_totals(std::array::from_fn(|index| one[index].saturating_add(other[index])))
    }

    fn totals(&self) -> [u64; TOTAL_COUNT] {
        let CaptureCounts { packets, lost, queue_full, unusable, signals, steps_back } = *self;
        let SignalCounts { signals, sampled, watched, handshakes_lost } = signals;
        let mut totals = [0; TOTAL_COUNT];
        let (first, last) = totals.split_at_mut(Unusable::COUNT);
        first.copy_from_slice(&unusable);
        last.copy_from_slice(&[packets, lost, queue_full, steps_back, signals, sampled, watched, handshakes_lost]);
        totals
    }

    fn of_totals(totals: [u64; TOTAL_COUNT]) -> Self {
        let mut counts = CaptureCounts::default();
        let (first, last) = totals.split_at(Unusable::COUNT);
        counts.unusable.copy_from_slice(first);
        let &[packets, lost, queue_full, steps_back, signals, sampled, watched, handshakes_lost] = last else {
            unreachable!("there are as many");
        };
        let signals = SignalCounts { signals, sampled, watched, handshakes_lost };
        CaptureCounts { packets, lost, queue_full, steps_back, signals, ..counts }
    }
}

/// Where one capture thread publishes.
#[derive(Debug, Default)]
pub struct CaptureCell {
    totals: Cell<TOTAL_COUNT>,
    is_up: AtomicBool,
}

impl CaptureCell {
    /// Replaces the counts that were published before; wait-free.
    pub fn publish(&self, counts: &CaptureCounts) {
        self.totals.publish(counts.totals());
    }

    /// Sets whether the interface delivers packets. Until then it counts as down.
    pub fn set_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    /// The counts that were published last.
    #[must_use]
    pub fn counts(&self) -> CaptureCounts {
        CaptureCounts::of_totals(self.totals.load())
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_published_last_is_read() {
        let (cell, mut counts) = (CaptureCell::default(), CaptureCounts::default());
        assert_eq!(cell.counts(), counts);
        for packets in [1, 7] {
            counts = CaptureCounts { packets, lost: 2, queue_full: 3, steps_back: 4, ..counts };
            counts.signals = SignalCounts { signals: 5, sampled: 6, watched: 8, handshakes_lost: 9 };
            counts.unusable = std::array::from_fn(|index| packets + index as u64);
            cell.publish(&counts);
            assert_eq!(cell.counts(), counts);
        }
    }

    #[test]
    fn sums_do_not_wrap() {
        let signals = SignalCounts { signals: 3, ..SignalCounts::default() };
        let most = CaptureCounts { packets: u64::MAX, signals, ..CaptureCounts::default() };
        let sum = most.plus(&most);
        assert_eq!((sum.packets, sum.signals.signals, sum.signals.sampled), (u64::MAX, 6, 0));
    }
}
