//! The engine on one thread.

use crate::handover::{Delta, DeltaGeometry, HalfOpenList, HandOver, INQUIRY_MAX, Inquiry};
use crate::list::{EvictionTimes, FlowList, FlowListConfig, Header, List};
use crate::queue::Marker;
use crate::signal::{PARTITION_COUNT, Signal, TimeBase, Watch};
use crate::track::{Exchange, Partition, PartitionConfig, Shard};
use std::sync::Arc;

/// The configuration of a [`Lockstep`].
#[derive(Clone, Debug)]
pub struct LockstepConfig {
    /// What each partition tracks, and the shape of its deltas.
    pub partition: PartitionConfig,
    /// The most connections listed in one partition.
    pub partition_connections_max: u64,
    /// When connections are taken off that were not seen to end.
    pub eviction: EvictionTimes,
    /// Whether the list asks partitions about connections that it cannot decode, or that may be dead.
    pub asks: bool,
}

/// All partitions and their list, without threads and queues: what is handed over is applied at once, so that the
/// caller decides what the list knows when, and equal calls give equal lists.
///
/// It is for tests and simulations, and for programs that have one thread. Packets become [`Signal`]s by a
/// [`Signaller`](crate::signal::Signaller).
pub struct Lockstep {
    /// All partitions.
    pub shard: Shard,
    /// What is on its way between the shard and the list: nothing, between two calls.
    pub exchange: LocalExchange,
    /// The list.
    pub list: FlowList,
    /// Whether the list asks partitions about connections that it cannot decode, or that may be dead.
    pub asks: bool,
}

impl Lockstep {
    /// An empty list, and partitions that track nothing yet. With an idle timeout it needs the watch that the signaller
    /// has, unless that samples every packet.
    #[must_use]
    pub fn new(config: &LockstepConfig, watch: Option<&Arc<Watch>>) -> Self {
        let LockstepConfig { partition, partition_connections_max, eviction, asks } = config;
        let list = FlowListConfig {
            secret: partition.tracker.secret.clone(),
            geometry: partition.geometry,
            partition_connections_max: *partition_connections_max,
            eviction: *eviction,
            inquiry_max: INQUIRY_MAX,
        };
        Lockstep {
            shard: Shard::new((0..PARTITION_COUNT).map(|index| Partition::new(index, partition)).collect()),
            exchange: LocalExchange::new(partition.geometry, partition.tracker.half_open_count),
            list: FlowList::new(&list, watch),
            asks: *asks,
        }
    }

    /// Begins a time base, as has to be done before the first signal.
    pub fn start_base(&mut self, base: TimeBase) {
        self.shard.start_base(base, &mut self.exchange);
        self.apply();
    }

    /// Tracks what these signals say, in their order.
    pub fn handle(&mut self, signals: &[Signal]) {
        self.shard.handle(signals, &mut self.exchange);
        self.apply();
    }

    /// Ends an interval, and passes its list to `write`. Returns the list's header; `None` if partitions had to hold
    /// changes back, so that the interval becomes part of the next.
    pub fn end_interval(&mut self, marker: &Marker, write: impl FnOnce(&List)) -> Option<Header> {
        self.shard.end_interval(marker, &mut self.exchange);
        self.apply();
        let header = self.list.end_interval(write, |_, _| ())?;
        self.ask();
        Some(header)
    }

    /// Passes the list's questions to the partitions, which answer when the next interval ends.
    pub fn ask(&mut self) {
        for partition in 0..PARTITION_COUNT {
            let inquiry = self.list.inquiry(partition).filter(|_| self.asks);
            self.exchange.ask(partition, inquiry);
        }
    }

    /// Applies what was handed over.
    pub fn apply(&mut self) {
        for hand_over in self.exchange.take() {
            if let Some(delta) = self.list.apply(hand_over) {
                self.exchange.give_back(delta);
            }
        }
    }
}

/// An [`Exchange`] on the shard's own thread: it keeps what is handed over until [`Self::take`], and has an empty delta
/// whenever one is asked for, unless it is stalled.
pub struct LocalExchange {
    geometry: DeltaGeometry,
    half_open_count: usize,
    /// Whether there are no empty deltas, as when the list does not keep up.
    pub is_stalled: bool,
    /// Deltas that are empty again.
    spares: Vec<Box<Delta>>,
    inquiries: Vec<Option<Inquiry>>,
    handed_over: Vec<HandOver>,
}

impl LocalExchange {
    /// An exchange of deltas of this shape, and of lists of this many half-open connections.
    #[must_use]
    pub fn new(geometry: DeltaGeometry, half_open_count: usize) -> Self {
        LocalExchange {
            geometry,
            half_open_count,
            is_stalled: false,
            spares: Vec::new(),
            inquiries: (0..PARTITION_COUNT).map(|_| None).collect(),
            handed_over: Vec::new(),
        }
    }

    /// What was handed over since the last call, in order.
    pub fn take(&mut self) -> Vec<HandOver> {
        std::mem::take(&mut self.handed_over)
    }

    /// Takes a delta back, which has to be empty.
    pub fn give_back(&mut self, delta: Box<Delta>) {
        self.spares.push(delta);
    }

    /// Asks a partition when its interval ends, in place of what it was not asked yet.
    ///
    /// # Panics
    ///
    /// There is no such partition.
    pub fn ask(&mut self, partition: usize, inquiry: Option<Inquiry>) {
        self.inquiries[partition] = inquiry;
    }

    /// How many partitions have a question to answer.
    #[must_use]
    pub fn asked_count(&self) -> usize {
        self.inquiries.iter().flatten().count()
    }
}

impl Exchange for LocalExchange {
    fn spare(&mut self, _partition: usize) -> Option<Box<Delta>> {
        let spare = || self.spares.pop().unwrap_or_else(|| Box::new(Delta::new(self.geometry)));
        (!self.is_stalled).then(spare)
    }

    fn spare_half_open(&mut self, _partition: usize) -> Option<Box<HalfOpenList>> {
        Some(Box::new(HalfOpenList::new(self.half_open_count)))
    }

    fn inquiry(&mut self, partition: usize) -> Option<Inquiry> {
        self.inquiries[partition].take()
    }

    fn hand_over(&mut self, hand_over: HandOver) {
        self.handed_over.push(hand_over);
    }
}
