//! What a run did, for people and for tests.
//!
//! What enters: what each thread counted. What leaves: one record of it all, when the run has ended.

use crate::connection::Counts;
use crate::error::Error;
use crate::flow_list::{Header, Outcome};
use crate::parse::Unusable;
use crate::pipeline::feeder::CaptureCounts;
use crate::pipeline::list_thread::Told;
use crate::signal::SignalCounts;
use hdrhistogram::Histogram;
use std::time::Duration;

/// How long things took, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// From a packet to the tables, in a live capture.
    pub signal_ns: Histogram<u64>,
    /// To decode one hand-over of one partition.
    pub peel_ns: Histogram<u64>,
    /// To sort and write one list.
    pub list_ns: Histogram<u64>,
}

impl Latencies {
    pub(super) fn new() -> Self {
        Latencies { signal_ns: histogram(), peel_ns: histogram(), list_ns: histogram() }
    }

    pub(super) fn peel(&mut self, took: Duration) {
        self.peel_ns.saturating_record(took.as_nanos() as u64);
    }

    pub(super) fn list(&mut self, took: Duration) {
        self.list_ns.saturating_record(took.as_nanos() as u64);
    }
}

/// An empty histogram: two digits tell what there is to tell, and what takes longer than an hour counts as an hour.
pub(super) fn histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, 3_600_000_000_000, 2) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("the bounds are constants that fit: {error}"),
    }
}

/// What a run did.
#[derive(Debug)]
pub struct Summary {
    /// Packets read.
    pub packets: u64,
    /// Packets that the kernel had no room for.
    pub lost: u64,
    /// Signals that a queue had no room for.
    pub queue_full: u64,
    /// Those of them that could not be used, each with the reason; reasons that did not occur are left out.
    pub unusable: Vec<(Unusable, u64)>,
    /// How often the clock stepped back by more than a minute.
    pub steps_back: u64,
    /// What went to the shards.
    pub signals: SignalCounts,
    /// What happened to connections.
    pub counts: Counts,
    /// What decoding met with.
    pub outcome: Outcome,
    /// How long decoding and writing took.
    pub latencies: Latencies,
    /// Lists written.
    pub lists: u64,
    /// Those of them that were not complete.
    pub incomplete: u64,
    /// The header of the last list.
    pub last: Option<Header>,
    /// The inputs that could not be read, or not to their end.
    pub errors: Vec<Error>,
}

impl Summary {
    pub(super) fn new(fed: CaptureCounts, told: Told, errors: Vec<Error>) -> Self {
        let unusable = Unusable::ALL.iter().map(|reason| (*reason, fed.unusable[reason.index()]));
        Summary {
            packets: fed.packets,
            lost: fed.lost,
            queue_full: fed.queue_full,
            unusable: unusable.filter(|(_, count)| *count > 0).collect(),
            steps_back: fed.steps_back,
            signals: fed.signals,
            counts: told.counts,
            outcome: told.outcome,
            latencies: told.latencies,
            lists: told.lists,
            incomplete: told.incomplete,
            last: told.last,
            errors,
        }
    }
}
