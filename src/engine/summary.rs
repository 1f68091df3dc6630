//! The summary of a run, for people and for tests.
//!
//! It takes what each thread counted and gives one record of it all, when the run has ended.

use crate::engine::list_thread::ListTotals;
use crate::engine::saving::SavingCounts;
use crate::error::Error;
use crate::handover::Counts;
use crate::list::{Header, Outcome};
use crate::metrics::{CaptureCounts, Durations};
use crate::parse::Unusable;
use crate::signal::SignalCounts;

/// Durations of the list thread's work.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// The time to decode one hand-over of one partition.
    pub peel: Durations,
    /// The time to sort and write one list.
    pub list: Durations,
    /// The time in which a partition did nothing but be copied into a saved state.
    pub pause: Durations,
}

/// The counts and results of a run.
#[derive(Debug)]
pub struct Summary {
    /// Packets read.
    pub packets: u64,
    /// Packets that the kernel had no room for.
    pub lost: u64,
    /// Signals that a queue had no room for.
    pub queue_full: u64,
    /// Packets that could not be used, by reason; reasons that did not occur are left out.
    pub unusable: Vec<(Unusable, u64)>,
    /// How often the clock stepped back by more than [`FOLLOWS_MAX_NS`](crate::signal::FOLLOWS_MAX_NS).
    pub steps_back: u64,
    /// Counts of the signals that went to the shards.
    pub signals: SignalCounts,
    /// Counts of what happened to connections.
    pub counts: Counts,
    /// Counts of what decoding met with.
    pub outcome: Outcome,
    /// Durations of decoding and writing.
    pub latencies: Latencies,
    /// Lists written.
    pub lists: u64,
    /// Lists that were not complete.
    pub incomplete: u64,
    /// The header of the last list.
    pub last: Option<Header>,
    /// The inputs that could not be read, or not to their end.
    pub errors: Vec<Error>,
    /// Events that were not reported because the queue was full.
    pub events_dropped: u64,
    /// Counts of saving the state; `None` when it was not to be saved.
    pub saving: Option<SavingCounts>,
}

impl Summary {
    /// The summary with what the writer of states counted.
    pub(crate) fn with_saving(mut self, written: Option<SavingCounts>) -> Self {
        self.saving = self.saving.zip(written).map(|(cut, written)| cut.plus(written));
        self
    }

    pub(crate) fn new(fed: CaptureCounts, list_totals: ListTotals, errors: Vec<Error>) -> Self {
        let unusable = Unusable::ALL.iter().map(|reason| (*reason, fed.unusable[reason.index()]));
        Summary {
            packets: fed.packets,
            lost: fed.lost,
            queue_full: fed.queue_full,
            unusable: unusable.filter(|(_, count)| *count > 0).collect(),
            steps_back: fed.steps_back,
            signals: fed.signals,
            counts: list_totals.counts,
            outcome: list_totals.outcome,
            latencies: list_totals.latencies,
            lists: list_totals.lists,
            incomplete: list_totals.incomplete,
            last: list_totals.last,
            errors,
            events_dropped: 0,
            saving: list_totals.saving,
        }
    }
}
