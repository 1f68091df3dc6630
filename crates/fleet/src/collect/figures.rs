//! What a collector has done, and what is before it.

use crate::collect::CheckpointCounts;
use crate::inbox::Refusals;
use crate::metrics::{Count, Figures, Reached, count, gauge, seconds, write_counts};
use flowpeel::agent::AgentCounts;
use flowpeel::metrics::{Heading, Kind, Samples};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// How a collector and the broker got along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectCounts {
    /// Messages taken.
    pub messages: u64,
    /// Their bytes.
    pub size: u64,
    /// Of these, how many had been delivered before.
    pub redelivered: u64,
    /// How often the consumer began again, because something was missing or the connection was lost.
    pub restarts: u64,
}

/// What a collector has done, and what is before it.
#[derive(Clone, Debug, Default)]
pub struct CollectFigures {
    /// What became of snapshots.
    pub lists: AgentCounts,
    /// How it and the broker got along.
    pub broker: CollectCounts,
    /// What was written down for another collector.
    pub checkpoints: CheckpointCounts,
    /// What its share is called, as in the name of the stream in which its checkpoints are.
    pub share: String,
    /// Whether it holds its share.
    pub is_holder: bool,
    /// Frames that were used.
    pub frames: u64,
    /// What was not used, by reason.
    pub refusals: Refusals,
    /// Messages that the broker has for it still.
    pub waiting: u64,
    /// Snapshots of which some frames have come, and not all.
    pub unfinished: u64,
    /// The last snapshot of each router.
    pub reached: BTreeMap<String, Reached>,
    /// Whether the broker is connected.
    pub is_connected: bool,
}

/// What became of the snapshots of which lists are made.
#[must_use]
pub fn list_counts(lists: &AgentCounts) -> [Count; 5] {
    [
        count(lists.lists, "lists", "flowpeel_collect_lists_total", "Lists written."),
        count(
            lists.incomplete,
            "not complete",
            "flowpeel_collect_incomplete_lists_total",
            "Of these, lists that are not complete.",
        ),
        count(
            lists.passed_over,
            "intervals without a snapshot",
            "flowpeel_collect_passed_over_total",
            "Intervals without a snapshot, which the next list covers.",
        ),
        count(
            lists.covered,
            "snapshots late or doubled",
            "flowpeel_collect_covered_total",
            "Snapshots that came late or twice.",
        ),
        count(lists.refused, "files refused", "flowpeel_collect_refused_total", "Snapshots that could not be listed."),
    ]
}

impl CollectFigures {
    /// All counts but those by reason.
    #[must_use]
    pub fn counts(&self) -> Vec<Count> {
        let broker = self.broker;
        let of_broker = [
            count(broker.messages, "messages", "flowpeel_collect_messages_total", "Messages taken."),
            count(broker.size, "bytes", "flowpeel_collect_bytes_total", "Bytes of these messages."),
            count(
                broker.redelivered,
                "delivered again",
                "flowpeel_collect_redelivered_total",
                "Of these messages, those that had been delivered before.",
            ),
            count(
                broker.restarts,
                "times begun again",
                "flowpeel_collect_restarts_total",
                "How often consumers began again: something was missing, or the connection was lost.",
            ),
            count(self.frames, "frames used", "flowpeel_collect_frames_total", "Frames that were used."),
        ];
        let checkpoints = self.checkpoints;
        let of_checkpoints = [
            count(
                checkpoints.restored,
                "routers continued from checkpoints",
                "flowpeel_collect_restored_total",
                "Routers that were continued from a checkpoint of another collector.",
            ),
            count(checkpoints.written, "checkpoints", "flowpeel_collect_checkpoints_total", "Checkpoints written."),
            count(
                checkpoints.size,
                "bytes of them",
                "flowpeel_collect_checkpoint_bytes_total",
                "Bytes of these checkpoints.",
            ),
            count(
                checkpoints.failed,
                "checkpoints that could not be written",
                "flowpeel_collect_failed_checkpoints_total",
                "Checkpoints that could not be written.",
            ),
        ];
        list_counts(&self.lists).into_iter().chain(of_checkpoints).chain(of_broker).collect()
    }
}

impl Figures for CollectFigures {
    fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn write(&self, text: &mut String, now: SystemTime) {
        gauge(text, "flowpeel_collect_connected", "Whether the broker is connected.")
            .value(u8::from(self.is_connected));
        gauge(text, "flowpeel_collect_holder", "Whether it holds its share: a standby does not.")
            .labelled(&[("share", &self.share)], u8::from(self.is_holder));
        gauge(text, "flowpeel_collect_waiting_messages", "Messages that the broker has for this collector still.")
            .value(self.waiting);
        gauge(text, "flowpeel_collect_waiting", "Snapshots of which some frames have come, and not all.")
            .value(self.unfinished);
        let mut ends = gauge(text, "flowpeel_collect_end_seconds", "When a router's last snapshot ended, since 1970.");
        for (router, reached) in &self.reached {
            ends.labelled(&[("router", router)], seconds(reached.end_ns));
        }
        let mut lags = gauge(text, "flowpeel_collect_lag_seconds", "The time since that end.");
        for (router, reached) in &self.reached {
            lags.labelled(&[("router", router)], seconds(reached.lag_ns(now)));
        }
        let mut lags = gauge(text, "flowpeel_collect_lag_intervals", "How many of its intervals that is.");
        for (router, reached) in &self.reached {
            if let Some(intervals) = reached.lag_intervals(now) {
                lags.labelled(&[("router", router)], intervals);
            }
        }
        write_counts(text, self.counts());
        let (name, help) = ("flowpeel_collect_unused_total", "Messages, frames and snapshots that could not be used.");
        let mut unused = Samples::new(text, Heading { name, kind: Kind::Counter, help });
        for (refusal, count) in self.refusals.all() {
            unused.labelled(&[("reason", refusal.name())], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::{assert_has, page};

    #[test]
    fn every_count_and_every_reason_is_served() {
        let reached = Reached { end_ns: 5_500_000_000, interval_ns: 1_000_000_000 };
        let reached = BTreeMap::from([("a\"b".to_owned(), reached)]);
        let share = "collect-0123".to_owned();
        let text = page(CollectFigures { reached, share, is_holder: true, ..CollectFigures::default() }, 7);
        assert_has(&text, "flowpeel_collect_holder{share=\"collect-0123\"} 1");
        for count in CollectFigures::default().counts() {
            assert_has(&text, &format!("{} 0", count.name));
        }
        for (refusal, _) in Refusals::default().all() {
            assert_has(&text, &format!("flowpeel_collect_unused_total{{reason=\"{}\"}} 0", refusal.name()));
        }
        assert_has(&text, "flowpeel_collect_lag_seconds{router=\"a\\\"b\"} 1.5");
        assert_has(&text, "flowpeel_collect_lag_intervals{router=\"a\\\"b\"} 1");
    }
}
