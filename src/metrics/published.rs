//! Counters as their owners publish them: whole records in, whole records out, without a lock.
//!
//! What enters: a thread's own totals, stored now and then, never per packet. What leaves: the totals that were stored
//! last. Every field is an atomic of its own, so a reader may see a record half old and half new, but each counter by
//! itself only grows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Declares a record of counters and the cell that it is published in.
macro_rules! published {
    ($(#[$about:meta])* $counts:ident in $cell:ident { $($(#[$field_about:meta])* $field:ident,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $counts {
            $($(#[$field_about])* pub $field: u64,)+
        }

        #[doc = concat!("Where one thread publishes its [`", stringify!($counts), "`].")]
        #[derive(Debug, Default)]
        pub struct $cell {
            $($field: AtomicU64,)+
        }

        impl $cell {
            /// Replaces the record that was published before: a relaxed store for each field, and no waiting.
            pub fn publish(&self, counts: &$counts) {
                $(self.$field.store(counts.$field, Ordering::Relaxed);)+
            }

            pub(super) fn load(&self) -> $counts {
                $counts { $($field: self.$field.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

published! {
    /// Counts of a capture thread since it began.
    CaptureCounts in CaptureCell {
        /// Packets taken in.
        packets,
        /// Packets that the kernel counted as lost because the thread was too slow.
        dropped_packets,
        /// Signals handed on.
        signals,
        /// Signals that are samples of other packets.
        sampled,
        /// Signals lost because a shard's queue was full.
        dropped_signals,
        /// Handshakes that were pushed out of the cache before their answer came.
        handshakes_lost,
    }
}

impl CaptureCounts {
    pub(super) fn plus(self, other: Self) -> Self {
        CaptureCounts {
            packets: self.packets.saturating_add(other.packets),
            dropped_packets: self.dropped_packets.saturating_add(other.dropped_packets),
            signals: self.signals.saturating_add(other.signals),
            sampled: self.sampled.saturating_add(other.sampled),
            dropped_signals: self.dropped_signals.saturating_add(other.dropped_signals),
            handshakes_lost: self.handshakes_lost.saturating_add(other.handshakes_lost),
        }
    }
}

published! {
    /// Counts of all shards since the start, as in `connection::Counts`, and how full their filters are.
    ConnectionCounts in ConnectionCell {
        /// Connections established.
        opened,
        /// Established connections that ended.
        closed,
        /// Connections taken off because no packet of theirs came for too long.
        evicted_idle,
        /// Connections taken off because they were too old.
        evicted_aged,
        /// Half-open connections that were reset or given up.
        refused,
        /// Half-open connections that timed out.
        expired,
        /// Half-open connections that made room for newer ones.
        recycled,
        /// Retransmitted SYNs and SYN-ACKs.
        repeats,
        /// FINs and RSTs of connections that had closed a short while before.
        late,
        /// FINs of unknown connections.
        unmatched_fins,
        /// RSTs of unknown connections.
        unmatched_resets,
        /// Closed connections that made room before they had lingered.
        forgotten,
        /// Connections established beyond the limit.
        refused_open,
        /// Times that a connection found in its midst was beyond the limit.
        refused_pickups,
        /// Attempts that found no place in the filter.
        unplaced,
        /// Connections of which only the side that ended them was seen.
        one_sided,
        /// Connections that ended and did not get into the archive.
        unarchived,
        /// Places of the filters that are taken now.
        filter_used,
        /// Places that the filters have.
        filter_places,
    }
}

/// The cells in which one capture thread publishes.
#[derive(Debug)]
pub struct Capture {
    counts: CaptureCell,
    /// Packets that could not be used, in the order of the reasons.
    unusable: Vec<AtomicU64>,
    is_up: AtomicBool,
}

impl Capture {
    pub(super) fn new(reason_count: usize) -> Self {
        let unusable = (0..reason_count).map(|_| AtomicU64::new(0)).collect();
        Capture { counts: CaptureCell::default(), unusable, is_up: AtomicBool::new(false) }
    }

    /// Replaces the counts that were published before. `unusable` has a total for each reason, in the order of
    /// [`Setup::unusable_reasons`](super::Setup::unusable_reasons); totals beyond those are left out.
    pub fn publish(&self, counts: &CaptureCounts, unusable: &[u64]) {
        self.counts.publish(counts);
        for (cell, count) in self.unusable.iter().zip(unusable) {
            cell.store(*count, Ordering::Relaxed);
        }
    }

    /// Sets whether the interface delivers packets. Until then it counts as down.
    pub fn set_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    /// The counts that were published last.
    #[must_use]
    pub fn counts(&self) -> CaptureCounts {
        self.counts.load()
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    /// The packets that could not be used, in the order of the reasons.
    pub fn unusable(&self) -> impl Iterator<Item = u64> {
        self.unusable.iter().map(|cell| cell.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_published_last_is_read() {
        let cell = CaptureCell::default();
        assert_eq!(cell.load(), CaptureCounts::default());
        for packets in [1, 7] {
            let counts = CaptureCounts { packets, signals: 2 * packets, ..CaptureCounts::default() };
            cell.publish(&counts);
            assert_eq!(cell.load(), counts);
        }
    }

    #[test]
    fn sums_do_not_wrap() {
        let most = CaptureCounts { packets: u64::MAX, signals: 3, ..CaptureCounts::default() };
        let sum = most.plus(most);
        assert_eq!((sum.packets, sum.signals, sum.sampled), (u64::MAX, 6, 0));
    }

    #[test]
    fn reasons_beyond_those_agreed_on_are_left_out() {
        let capture = Capture::new(2);
        capture.publish(&CaptureCounts::default(), &[1, 2, 3]);
        assert_eq!(capture.unusable().collect::<Vec<_>>(), [1, 2]);
        capture.publish(&CaptureCounts::default(), &[5]);
        assert_eq!(capture.unusable().collect::<Vec<_>>(), [5, 2]);
    }
}
