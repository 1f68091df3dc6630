//! A shard on its thread, and the way its deltas go to the list and come back.
//!
//! It takes the messages of its queue and gives hand-overs. Deltas and half-open lists circulate: the shard takes an
//! empty one for each that it hands over, so there are never more than were made at the start.

use crate::engine::source_exchange::{self, SourceChannel, SourceReports};
use crate::engine::{Plan, partitions_of};
use crate::error::Result;
use crate::handover::{Delta, HalfOpenList, HandOver, Inquiry};
use crate::queue::{Inbox, Message, WhenFull};
use crate::signal::{Moment, PARTITION_COUNT};
use crate::sources::SourceDelta;
use crate::track::{Exchange, Partition, Shard};
use crossbeam::channel::{Receiver, Sender, bounded};

/// The shards' end of what circulates: empty deltas and half-open lists of each partition to take, and questions to
/// answer.
#[derive(Clone)]
pub(crate) struct Pool {
    deltas: Vec<Receiver<Box<Delta>>>,
    half_open: Vec<Receiver<Box<HalfOpenList>>>,
    inquiries: Vec<Receiver<Inquiry>>,
    /// The channel of each shard, where sources are counted.
    sources: Vec<SourceChannel>,
}

/// The list's end, which gives back what circulates and asks questions.
pub(crate) struct Returns {
    deltas: Vec<Sender<Box<Delta>>>,
    half_open: Vec<Sender<Box<HalfOpenList>>>,
    inquiries: Vec<Sender<Inquiry>>,
    /// The list's end of source counts, where there are any.
    pub(crate) sources: Option<SourceReports>,
}

impl Returns {
    /// Gives back an empty delta.
    pub(crate) fn delta(&self, partition: usize, delta: Box<Delta>) {
        // The channel has room for every delta in circulation. Once the shard has ended none is needed.
        drop(self.deltas[partition].try_send(delta));
    }

    /// Asks a partition, unless a question is still waiting there.
    pub(crate) fn ask(&self, partition: usize, inquiry: Inquiry) {
        drop(self.inquiries[partition].try_send(inquiry));
    }

    /// Gives back an empty half-open list.
    pub(crate) fn half_open(&self, partition: usize, half_open: Box<HalfOpenList>) {
        drop(self.half_open[partition].try_send(half_open));
    }
}

/// A pool with some deltas and one half-open list for each partition. Each partition has its own: one that runs ahead
/// of the list can then never take what another needs to catch up.
pub(crate) fn pool(plan: &Plan) -> (Pool, Returns) {
    let (delta_senders, delta_receivers) = (0..PARTITION_COUNT).map(|_| bounded(plan.spare_count)).unzip();
    let (half_open_senders, half_open) = (0..PARTITION_COUNT).map(|_| bounded(1)).unzip();
    let (inquiry_senders, inquiries) = (0..PARTITION_COUNT).map(|_| bounded(1)).unzip();
    let (sources, reports) = source_exchange::channels(plan);
    let returns =
        Returns { deltas: delta_senders, half_open: half_open_senders, inquiries: inquiry_senders, sources: reports };
    for partition in 0..PARTITION_COUNT {
        for _ in 0..plan.spare_count {
            returns.delta(partition, Box::new(Delta::new(plan.partition.geometry)));
        }
        returns.half_open(partition, Box::new(HalfOpenList::new(plan.partition.tracker.half_open_count)));
    }
    (Pool { deltas: delta_receivers, half_open, inquiries, sources }, returns)
}

struct Channels {
    /// The shard's index.
    index: usize,
    pool: Pool,
    hand_overs: Sender<HandOver>,
    when_full: WhenFull,
}

impl Channels {
    fn take<T>(&self, spares: &Receiver<T>) -> Option<T> {
        match self.when_full {
            // A replay waits for the list: nothing is lost when it is slower than the capture.
            WhenFull::Wait => spares.recv().ok(),
            WhenFull::Drop | WhenFull::DropAtOnce => spares.try_recv().ok(),
        }
    }
}

impl Exchange for Channels {
    fn spare(&mut self, partition: usize) -> Option<Box<Delta>> {
        self.take(&self.pool.deltas[partition])
    }

    fn spare_half_open(&mut self, partition: usize) -> Option<Box<HalfOpenList>> {
        self.take(&self.pool.half_open[partition])
    }

    fn inquiry(&mut self, partition: usize) -> Option<Inquiry> {
        self.pool.inquiries[partition].try_recv().ok()
    }

    fn exchange_sources(&mut self, counted: Box<SourceDelta>) -> Box<SourceDelta> {
        let Some(channel) = self.pool.sources.get(self.index) else { return counted };
        let (sent, kept) = match self.take(&channel.spares) {
            Some(spare) => (Some(counted), spare),
            None => (None, counted),
        };
        drop(channel.counted.send(sent));
        kept
    }

    fn hand_over(&mut self, hand_over: HandOver) {
        // The list thread takes everything until the last shard has ended, even when its output fails.
        drop(self.hand_overs.send(hand_over));
    }
}

/// A shard with what it reads from and writes to.
pub(crate) struct ShardThread {
    shard: Shard,
    inbox: Inbox,
    channels: Channels,
}

/// The timing of a shard's work, as it is measured in a live capture; a replay measures nothing.
pub(crate) trait Timing {
    /// The present moment, on the clock that signals carry.
    fn moment(&self) -> Moment;
    /// Called when signals whose first packet came at this moment have reached the tables.
    fn handled(&mut self, first: Moment);
    /// Called when an interval has ended.
    fn ended(&mut self);
}

/// Measures nothing.
impl Timing for () {
    fn moment(&self) -> Moment {
        Moment::default()
    }

    fn handled(&mut self, _: Moment) {}

    fn ended(&mut self) {}
}

impl ShardThread {
    /// The shard of this index.
    pub(crate) fn new(plan: &Plan, index: usize, inbox: Inbox, pool: Pool, hand_overs: Sender<HandOver>) -> Self {
        let partitions = partitions_of(index, plan.shard_count());
        let partitions = partitions.map(|index| {
            let mut partition = Partition::new(index, &plan.partition);
            if plan.ends_max() > 0 {
                partition = partition.with_ends(plan.ends_max());
            }
            for inlet in plan.records() {
                partition = partition.recording(inlet.clone());
            }
            partition
        });
        let shard = Shard::new(partitions.collect());
        let shard = match source_exchange::delta(plan, index) {
            Some(delta) => shard.with_sources(delta),
            None => shard,
        };
        ShardThread { shard, inbox, channels: Channels { index, pool, hand_overs, when_full: plan.when_full() } }
    }

    /// Restores the shard's partitions, those for which a saved state has a part.
    ///
    /// # Errors
    ///
    /// A part does not fit.
    pub(crate) fn restore<'a>(&mut self, part: impl Fn(usize) -> Option<&'a [u8]>) -> Result<()> {
        self.shard
            .partitions()
            .try_for_each(|partition| part(partition.index()).map_or(Ok(()), |part| partition.restore(part)))
    }

    /// Has the shard's partitions forget which connections were seen.
    pub(crate) fn forget_seen(&mut self) {
        self.shard.partitions().for_each(Partition::forget_seen);
    }

    /// Handles the shard's messages until its queues end.
    pub(crate) fn run(mut self, mut timing: impl Timing) {
        while let Some(message) = self.inbox.receive(|| timing.moment()) {
            match message {
                Message::Signals(block) => {
                    self.shard.handle(block.signals(), &mut self.channels);
                    if let Some(signal) = block.signals().first() {
                        timing.handled(signal.moment());
                    }
                    self.inbox.recycle(block);
                }
                Message::Cut => self.shard.cut(),
                // It is for the inbox.
                Message::Passed(_) => {}
                Message::Base(base) => self.shard.start_base(base, &mut self.channels),
                Message::Marker(marker) => {
                    // Behind the last mark nothing can be lost by waiting, and its list is to be whole.
                    if marker.is_last {
                        self.channels.when_full = WhenFull::Wait;
                    }
                    self.shard.end_interval(&marker, &mut self.channels);
                    timing.ended();
                }
            }
        }
    }
}
