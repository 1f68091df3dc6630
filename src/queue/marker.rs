//! The end of an interval, as it travels between the signals, and what the capture counted in it.

use crate::signal::TimeDoubt;

/// One interval of the capture, as its end is marked in the stream of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marker {
    /// When the interval began, in ns since 1970.
    pub start_ns: i64,
    /// When the interval ended, in ns since 1970.
    pub end_ns: i64,
    /// The tick of its end.
    pub end_tick: u64,
    /// The time from the beginning of that tick to the end, in ns.
    pub within_tick_ns: i64,
    /// What the capture counted since the marker before.
    pub seen: Seen,
    /// Ends of intervals that were passed over since the marker before because lists were late.
    pub merged: u32,
    /// Whether it is the last marker.
    pub is_last: bool,
    /// Whether the state is to be saved at this marker.
    pub saves: bool,
}

/// What the capture counted in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Packets that the capture yielded.
    pub packets: u64,
    /// Packets that the kernel lost and signals that a full queue lost.
    pub dropped: u64,
    /// Packets that should have been TCP and could not be read as such: damaged, or cut too short.
    pub unusable: u64,
    /// Those of them that the capture cut before the TCP flags, or before it could be known whether they are TCP.
    pub cut: u64,
    /// Packets of tunnels that are known and not opened: ordinary traffic, and not in `unusable`.
    pub unopened: u64,
    /// Handshakes whose last packet could no longer be waited for. Such a connection is listed only once a sample shows
    /// a later packet.
    pub handshakes_lost: u64,
    /// Whether a part of the losses that were counted in the interval before may belong here: the kernel counts losses,
    /// and does not say when.
    pub has_doubtful_losses: bool,
    /// How far the time of the interval's end is in doubt.
    pub time_doubt: TimeDoubt,
}

impl Seen {
    /// The counts of two captures together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Seen {
            packets: self.packets + other.packets,
            dropped: self.dropped + other.dropped,
            unusable: self.unusable + other.unusable,
            cut: self.cut + other.cut,
            unopened: self.unopened + other.unopened,
            handshakes_lost: self.handshakes_lost + other.handshakes_lost,
            has_doubtful_losses: self.has_doubtful_losses || other.has_doubtful_losses,
            time_doubt: self.time_doubt.max(other.time_doubt),
        }
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn minus(self, earlier: Self) -> Self {
        Seen {
            packets: self.packets - earlier.packets,
            dropped: self.dropped - earlier.dropped,
            unusable: self.unusable - earlier.unusable,
            cut: self.cut - earlier.cut,
            unopened: self.unopened - earlier.unopened,
            handshakes_lost: self.handshakes_lost - earlier.handshakes_lost,
            has_doubtful_losses: self.has_doubtful_losses,
            time_doubt: self.time_doubt,
        }
    }
}
