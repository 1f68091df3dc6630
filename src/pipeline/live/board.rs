//! What the threads of a live capture show of their work while it goes on.
//!
//! What enters: each thread's counts, at its rest points. What leaves: all of them together, for whoever watches. Nothing here is
//! touched for a packet.

use super::pacer::Clocks;
use crate::connection::Counts;
use crate::flow_list::{FlowList, Header, Outcome};
use crate::pipeline::CaptureCounts;
use crate::pipeline::list_thread::Told;
use crate::pipeline::shard_thread::Timing;
use crate::pipeline::summary::{Latencies, histogram};
use crate::signal::Moment;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// How far a live capture has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// What each source's thread counted.
    pub captures: Vec<CaptureCounts>,
    /// What was listed.
    pub list: ListProgress,
    /// How long things took.
    pub latencies: Latencies,
}

/// What was shown of the lists.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListProgress {
    /// Lists written.
    pub lists: u64,
    /// Those of them that were not complete.
    pub incomplete: u64,
    /// Intervals without a list of their own, because the lists were behind.
    pub merged: u64,
    /// The last list's header.
    pub last: Option<Header>,
    /// What happened to connections up to it.
    pub counts: Counts,
    /// What decoding met with.
    pub outcome: Outcome,
}

/// The places where threads show what they do.
pub(super) struct Board {
    captures: Vec<Mutex<CaptureCounts>>,
    list: Mutex<ListProgress>,
    latencies: Mutex<Latencies>,
}

impl Board {
    pub(super) fn new(capture_count: usize) -> Self {
        Board {
            captures: (0..capture_count).map(|_| Mutex::default()).collect(),
            list: Mutex::default(),
            latencies: Mutex::new(Latencies::new()),
        }
    }

    /// Shows what a capture thread counted.
    pub(super) fn capture(&self, index: usize, counts: CaptureCounts) {
        *self.captures[index].lock() = counts;
    }

    /// Shows how far the list is.
    pub(super) fn list(&self, list: &FlowList, told: &Told) {
        *self.list.lock() = ListProgress {
            lists: told.lists,
            incomplete: told.incomplete,
            merged: list.merged(),
            last: told.last,
            counts: list.counts(),
            outcome: list.outcome(),
        };
        let mut latencies = self.latencies.lock();
        latencies.peel_ns.clone_from(&told.latencies.peel_ns);
        latencies.list_ns.clone_from(&told.latencies.list_ns);
    }

    /// All that is shown at present.
    pub(super) fn progress(&self) -> Progress {
        Progress {
            captures: self.captures.iter().map(|counts| *counts.lock()).collect(),
            list: *self.list.lock(),
            latencies: self.latencies.lock().clone(),
        }
    }
}

/// How long a shard's signals took to reach its tables.
pub(super) struct ShardTiming<'a> {
    clocks: Clocks,
    took_ns: Histogram<u64>,
    board: &'a Board,
}

impl<'a> ShardTiming<'a> {
    pub(super) fn new(clocks: Clocks, board: &'a Board) -> Self {
        ShardTiming { clocks, took_ns: histogram(), board }
    }
}

impl Timing for ShardTiming<'_> {
    fn moment(&self) -> Moment {
        self.clocks.moment()
    }

    fn handled(&mut self, first: Moment) {
        self.took_ns.saturating_record(self.moment().since_ns(first).max(0) as u64);
    }

    fn ended(&mut self) {
        let added = self.board.latencies.lock().signal_ns.add(&self.took_ns);
        debug_assert!(added.is_ok(), "both have the same bounds");
        self.took_ns.reset();
    }
}
