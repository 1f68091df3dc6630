//! The way of source counts from the shards to the list, and the reports that are made of them there.
//!
//! It takes the deltas of all shards, one message each for every interval, and gives reports, and empty deltas. Each
//! shard has two deltas, one in use and one spare, so memory is fixed. A live shard without a spare says so instead,
//! and the interval becomes part of the next, since its report would lack what that shard counted.

use crate::engine::{PENDING_INTERVALS_MAX, Plan, partitions_of};
use crate::list::Header;
use crate::sources::{Period, Report, SourceDelta, SourceLedger};
use crossbeam::channel::{Receiver, Sender, bounded};

/// A shard's end: empty deltas, and where full ones go.
#[derive(Clone)]
pub(crate) struct SourceChannel {
    pub(crate) spares: Receiver<Box<SourceDelta>>,
    /// Filled deltas; `None` where there was no spare.
    pub(crate) counted: Sender<Option<Box<SourceDelta>>>,
}

/// The list's end of one shard.
struct ShardEnd {
    spares: Sender<Box<SourceDelta>>,
    counted: Receiver<Option<Box<SourceDelta>>>,
}

/// The list's end.
pub(crate) struct SourceReports {
    shards: Vec<ShardEnd>,
    ledger: SourceLedger,
    /// The start of the period, and the packets lost in it, when intervals before the present one are part of it.
    carried: Option<Period>,
}

/// An empty delta for the shard at `index`; `None` where sources are not counted.
pub(crate) fn delta(plan: &Plan, index: usize) -> Option<Box<SourceDelta>> {
    let partition_count = partitions_of(index, plan.shard_count()).count();
    plan.sources.map(|geometry| Box::new(SourceDelta::new(geometry, &plan.list.secret, partition_count)))
}

/// Both ends for all shards, with a spare for each. There are none where sources are not counted.
pub(crate) fn channels(plan: &Plan) -> (Vec<SourceChannel>, Option<SourceReports>) {
    let Some(geometry) = plan.sources else { return (Vec::new(), None) };
    let (mut ends, mut shards) = (Vec::new(), Vec::new());
    for spare in (0..plan.shard_count()).filter_map(|index| delta(plan, index)) {
        let (give, spares) = bounded(1);
        // As many ends of intervals can be under way.
        let (counted, take) = bounded(PENDING_INTERVALS_MAX + 3);
        drop(give.try_send(spare));
        ends.push(SourceChannel { spares, counted });
        shards.push(ShardEnd { spares: give, counted: take });
    }
    let ledger = SourceLedger::new(geometry, &plan.list.secret);
    (ends, Some(SourceReports { shards, ledger, carried: None }))
}

impl SourceReports {
    /// Takes the counts of all shards for the interval that has ended, and makes the report beside the list with this
    /// header. There is no report when a shard held its counts back, or when there is no list: the next one covers
    /// them.
    pub(crate) fn end_interval(&mut self, listed: Option<&Header>) -> Option<Report> {
        let mut is_held_back = false;
        for ShardEnd { spares, counted } in &self.shards {
            // Shards send this before anything else of the interval's end, so it has come.
            match counted.try_recv() {
                Ok(Some(mut delta)) => {
                    self.ledger.add(&delta);
                    delta.clear();
                    // The channel has room for each that is under way. Once the shard has ended none is needed.
                    drop(spares.try_send(delta));
                }
                _ => is_held_back = true,
            }
        }
        let header = listed?;
        let carried = self.carried.take();
        let period = Period {
            interval: header.figures.interval,
            start_ns: carried.map_or(header.figures.start_ns, |carried| carried.start_ns),
            end_ns: header.figures.end_ns,
            dropped: header.figures.dropped + carried.map_or(0, |carried| carried.dropped),
            cut: header.figures.cut + carried.map_or(0, |carried| carried.cut),
            merged: header.figures.merged + carried.map_or(0, |carried| carried.merged),
        };
        if is_held_back {
            self.carried = Some(Period { merged: period.merged + 1, ..period });
            return None;
        }
        Some(self.ledger.report(period))
    }
}
