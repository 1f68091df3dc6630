//! What a shipper has done, and what is before it.

use crate::metrics::{Count, Figures, Reached, count, gauge, seconds, write_counts};
use crate::spool::SpoolCounts;
use std::time::SystemTime;

/// How the broker took the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShipCounts {
    /// Messages that the broker has.
    pub messages: u64,
    /// Of these, how many it had already.
    pub duplicates: u64,
    /// How often a message was sent again.
    pub again: u64,
}

/// What a shipper has done, and what is before it.
#[derive(Clone, Debug, Default)]
pub struct ShipFigures {
    /// What became of snapshots.
    pub spool: SpoolCounts,
    /// How the broker took messages.
    pub broker: ShipCounts,
    /// Snapshots that the broker does not have yet.
    pub waiting: u64,
    /// The last snapshot that the broker has.
    pub reached: Option<Reached>,
    /// Whether the broker is connected.
    pub is_connected: bool,
}

impl ShipFigures {
    /// All counts.
    #[must_use]
    pub fn counts(&self) -> [Count; 10] {
        let (spool, broker) = (self.spool, self.broker);
        [
            count(
                spool.sent,
                "snapshots sent",
                "flowpeel_ship_snapshots_total",
                "Snapshots of which the broker has all.",
            ),
            count(spool.size, "bytes", "flowpeel_ship_bytes_total", "Bytes of the frames of these snapshots."),
            count(spool.frames, "frames", "flowpeel_ship_frames_total", "Frames of these snapshots."),
            count(
                spool.whole,
                "of them whole",
                "flowpeel_ship_whole_frames_total",
                "Of these, those that build on none.",
            ),
            count(broker.messages, "messages", "flowpeel_ship_messages_total", "Messages that the broker has."),
            count(
                broker.duplicates,
                "which the broker had already",
                "flowpeel_ship_duplicates_total",
                "Of these messages, those that the broker had already.",
            ),
            count(broker.again, "sent again", "flowpeel_ship_again_total", "How often a message was sent again."),
            count(
                spool.removed,
                "intervals without a snapshot",
                "flowpeel_ship_removed_total",
                "Intervals without a snapshot: removed before it could be sent, or never written.",
            ),
            count(
                spool.covered,
                "snapshots late or doubled",
                "flowpeel_ship_covered_total",
                "Snapshots that were older than what was sent already.",
            ),
            count(spool.refused, "files refused", "flowpeel_ship_refused_total", "Files that could not be used."),
        ]
    }
}

impl Figures for ShipFigures {
    fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn write(&self, text: &mut String, now: SystemTime) {
        gauge(text, "flowpeel_ship_connected", "Whether the broker is connected.").value(u8::from(self.is_connected));
        gauge(text, "flowpeel_ship_waiting", "Snapshots that the broker does not have yet.").value(self.waiting);
        if let Some(reached) = self.reached {
            gauge(text, "flowpeel_ship_end_seconds", "When the last snapshot ended that the broker has, since 1970.")
                .value(seconds(reached.end_ns));
            gauge(text, "flowpeel_ship_lag_seconds", "The time since that end.").value(seconds(reached.lag_ns(now)));
            if let Some(intervals) = reached.lag_intervals(now) {
                gauge(text, "flowpeel_ship_lag_intervals", "How many of its intervals that is.").value(intervals);
            }
        }
        write_counts(text, self.counts());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::{assert_has, page};

    #[test]
    fn lag_is_the_time_since_the_last_end_and_its_whole_intervals() {
        let reached = Some(Reached { end_ns: 1_000_000_000_000, interval_ns: 10_000_000_000 });
        let text = page(ShipFigures { reached, waiting: 3, ..ShipFigures::default() }, 1_025);
        assert_has(&text, "flowpeel_ship_end_seconds 1000");
        assert_has(&text, "flowpeel_ship_lag_seconds 25");
        assert_has(&text, "flowpeel_ship_lag_intervals 2");
        assert_has(&text, "flowpeel_ship_waiting 3");
        // A router's clock may be ahead.
        assert_has(&page(ShipFigures { reached, ..ShipFigures::default() }, 900), "flowpeel_ship_lag_seconds 0");
        let unknown = reached.map(|reached| Reached { interval_ns: 0, ..reached });
        assert!(!page(ShipFigures { reached: unknown, ..ShipFigures::default() }, 1_025).contains("lag_intervals"));
        assert!(!page(ShipFigures::default(), 1_025).contains("lag"));
    }

    #[test]
    fn every_count_is_served() {
        let text = page(ShipFigures { is_connected: true, ..ShipFigures::default() }, 0);
        for count in ShipFigures::default().counts() {
            assert_has(&text, &format!("{} 0", count.name));
        }
        assert_has(&text, "flowpeel_ship_connected 1");
    }
}
