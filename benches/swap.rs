//! The end of an interval for a worker: it swaps full tables for empty ones, and another thread zeroes and returns
//! them.
//!
//! A worker handles blocks of signals, and every few hundred of them a marker behind the block. Each block is a step,
//! its marker part of it, and what counts is the longest step, against the longest of as many without markers. Steps
//! are measured in processor time: a worker never waits, it keeps its table if there is no empty one, and the time of
//! other processes is no stall of its own.

use crate::clock::thread_ns;
use crate::row::{Case, Pair, Scale, Suite};
use crate::traffic::{Connections, SIGNALS_EACH, TRACKER};
use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use flowpeel::flow::KeyV4;
use flowpeel::handover::{Delta, DeltaGeometry, HalfOpenList, HandOver, Inquiry, LatestSums};
use flowpeel::queue::{BLOCK_SIGNAL_COUNT, Marker};
use flowpeel::signal::{PARTITION_COUNT, Signal};
use flowpeel::track::{Exchange, LINGER_TICKS, Partition, PartitionConfig, Shard, TrackerConfig};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Geometry, HASH_COUNT, Iblt, PackedCell};
use hdrhistogram::Histogram;
use std::thread::JoinHandle;

/// The IPv4 tables of all partitions together, in bytes.
const TABLES_SIZE: usize = 32 << 20;

/// Connections that begin in one stretch, in which no table fills up, so that tables are handed over only at markers.
const BEGIN_COUNT: usize = 128_000;

/// The number of blocks between two markers.
const MARKER_BLOCKS: usize = 500;

/// Stretches of one round.
const STRETCH_COUNT: usize = 10;
const STRETCH_COUNT_QUICK: usize = 1;

const LIVE_COUNT: usize = 100_000;
const HALF_OPEN_COUNT: usize = 1 << 14;

pub(crate) fn run(suite: &mut Suite) {
    let case = |name, work| Case { name, work, limit: "the same without markers", unit: "ns", at_most: Some(1.5) };
    suite
        .compare(case("swap/longest", "longest stall with markers, 32 MB tables"), |scale| Ok(Worker::new(1.0, scale)));
    suite.compare(case("swap/99.99", "the same, 99.99 % of all steps"), |scale| Ok(Worker::new(0.9999, scale)));
}

/// The worker's end of the exchange, which never waits.
struct Channels {
    deltas: Vec<Receiver<Box<Delta>>>,
    half_open: Vec<Receiver<Box<HalfOpenList>>>,
    hand_overs: Sender<HandOver>,
    held_back_count: usize,
}

impl Exchange for Channels {
    fn spare(&mut self, partition: usize) -> Option<Box<Delta>> {
        self.deltas[partition].try_recv().ok()
    }

    fn spare_half_open(&mut self, partition: usize) -> Option<Box<HalfOpenList>> {
        self.half_open[partition].try_recv().ok()
    }

    fn inquiry(&mut self, _: usize) -> Option<Inquiry> {
        None
    }

    fn hand_over(&mut self, hand_over: HandOver) {
        self.held_back_count += usize::from(hand_over.is_held_back);
        self.hand_overs.send(hand_over).expect("whoever returns tables is there as long as the worker");
    }
}

/// The other end of the exchange, which zeroes tables and gives them back.
struct Returner {
    deltas: Vec<Sender<Box<Delta>>>,
    half_open: Vec<Sender<Box<HalfOpenList>>>,
}

impl Returner {
    fn run(self, hand_overs: &Receiver<HandOver>) {
        let mut latest_sums = LatestSums::new(&Secret::REPLAY);
        for hand_over in hand_overs {
            if let Some(mut delta) = hand_over.delta {
                latest_sums.sum_into(&mut delta);
                delta.clear();
                // This fails only after the worker has gone.
                drop(self.deltas[hand_over.partition].send(delta));
            }
            if let Some(mut half_open) = hand_over.end.and_then(|end| end.half_open) {
                half_open.clear();
                drop(self.half_open[hand_over.partition].send(half_open));
            }
        }
    }
}

/// A shard with all partitions, at work.
struct Worker {
    shard: Shard,
    channels: Channels,
    connections: Connections,
    signals: Vec<Signal>,
    /// The quantile of a round's steps that is reported: 1 for the longest.
    quantile: f64,
    stretch_count: usize,
    /// Ends when the channel to it is closed.
    _returner: JoinHandle<()>,
}

impl Worker {
    fn new(quantile: f64, scale: Scale) -> Self {
        let cells = TABLES_SIZE / PARTITION_COUNT / size_of::<PackedCell<KeyV4>>() / HASH_COUNT;
        let geometry = DeltaGeometry { v4: Geometry::new(cells as u32), v6: Geometry::for_items(1_000) };
        assert_eq!(Iblt::<KeyV4>::size(geometry.v4) * PARTITION_COUNT, TABLES_SIZE);
        let tracker = TrackerConfig {
            place_count: 2 * LIVE_COUNT / PARTITION_COUNT,
            half_open_count: HALF_OPEN_COUNT / PARTITION_COUNT,
            connections_max: LIVE_COUNT as u64,
            ..TRACKER
        };
        let (delta_senders, deltas): (Vec<_>, Vec<_>) = (0..PARTITION_COUNT).map(|_| bounded(1)).unzip();
        let (half_open_senders, half_open): (Vec<_>, Vec<_>) = (0..PARTITION_COUNT).map(|_| bounded(1)).unzip();
        for (delta, half_open) in delta_senders.iter().zip(&half_open_senders) {
            let mut empty = Box::new(Delta::new(geometry));
            empty.v4.table.clear();
            delta.send(empty).expect("it has room for one");
            half_open.send(Box::new(HalfOpenList::new(tracker.half_open_count))).expect("it has room for one");
        }
        let (hand_overs, handed) = unbounded();
        let returner = Returner { deltas: delta_senders, half_open: half_open_senders };
        let config = PartitionConfig { tracker, geometry, idle_ticks: None };
        let mut worker = Worker {
            shard: Shard::new((0..PARTITION_COUNT).map(|index| Partition::new(index, &config)).collect()),
            channels: Channels { deltas, half_open, hand_overs, held_back_count: 0 },
            connections: Connections::new(LIVE_COUNT as u64, (LIVE_COUNT / 10 / LINGER_TICKS as usize) as u64),
            signals: Vec::with_capacity(BEGIN_COUNT * SIGNALS_EACH),
            quantile,
            stretch_count: scale.of(STRETCH_COUNT, STRETCH_COUNT_QUICK),
            _returner: std::thread::spawn(move || returner.run(&handed)),
        };
        worker.longest(false);
        worker
    }

    /// The end of an interval, at this tick.
    fn end_interval(&mut self, end_tick: u64) {
        let marker = Marker { end_tick, ..Marker::default() };
        self.shard.end_interval(&marker, &mut self.channels);
    }

    /// Waits until everything that was handed over is back, because real intervals take seconds.
    fn wait_for_spares(&self) {
        let is_away = || {
            self.channels.deltas.iter().any(Receiver::is_empty)
                || self.channels.half_open.iter().any(Receiver::is_empty)
        };
        while is_away() {
            std::thread::yield_now();
        }
    }

    /// The longest step of a round, or the one at the quantile, in nanoseconds.
    fn longest(&mut self, has_markers: bool) -> f64 {
        let mut steps = Histogram::<u64>::new(3).expect("three digits are possible");
        let mut marker_count = 0;
        for _ in 0..self.stretch_count {
            self.connections.fill(&mut self.signals, BEGIN_COUNT);
            let signals = std::mem::take(&mut self.signals);
            for (at, block) in signals.chunks(BLOCK_SIGNAL_COUNT).enumerate() {
                let is_marked = has_markers && at % MARKER_BLOCKS == MARKER_BLOCKS - 1;
                if is_marked {
                    self.wait_for_spares();
                }
                // The tick of the signals before the marker, which does not come before its time.
                let end_tick = block.last().map_or(0, |signal| signal.parts().tick);
                let began = thread_ns();
                self.shard.handle(block, &mut self.channels);
                if is_marked {
                    self.end_interval(end_tick);
                }
                steps.record(thread_ns() - began).expect("a histogram that grows takes any time");
                marker_count += usize::from(is_marked);
            }
            self.signals = signals;
            // Tables that fill up without markers are emptied between stretches, which is not measured.
            self.wait_for_spares();
            self.end_interval(self.connections.tick());
            self.wait_for_spares();
        }
        assert_eq!(self.channels.held_back_count, 0, "there were no empty tables");
        assert!(has_markers == (marker_count > 0));
        steps.value_at_quantile(self.quantile) as f64
    }
}

impl Pair for Worker {
    fn work(&mut self) -> f64 {
        self.longest(true)
    }

    fn limit(&mut self) -> f64 {
        self.longest(false)
    }
}
