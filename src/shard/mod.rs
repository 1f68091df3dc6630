//! Signals -> deltas: the connection filter's events summed into tables, one partition at a time.
//!
//! What enters: blocks of signals, and between them the marks that end intervals or start a new time base. What leaves:
//! hand-overs of deltas. A shard owns its partitions and shares them with nobody; how the empty deltas come and the full ones
//! go is its [`Exchange`]'s business.

mod partition;

pub use partition::{Partition, PartitionConfig};

use crate::config::PARTITION_COUNT;
use crate::connection::{Counts, HalfOpenList};
use crate::prefetch::prefetch;
use crate::signal::{Signal, TimeBase};
use crate::snapshot::{Delta, HandOver, Inquiry, Marker};
use crate::sources::{SourceDelta, SourceTally, event_of};

// Each of these must have arrived before the address of the next is known, and none so early that it is evicted before its use.

/// How many signals before its use a signal's second bucket is prefetched.
pub const SECOND_AHEAD: usize = 6;
/// How many signals before its use a signal's first bucket is prefetched.
pub const BUCKET_AHEAD: usize = 14;
/// How many signals before its use a signal itself, which another core wrote, is prefetched.
pub const SIGNAL_AHEAD: usize = 24;

/// Where full deltas go and empty ones come from.
pub trait Exchange {
    /// An empty delta of this partition's, as soon as there is one; none when there is none and the shard is not to wait.
    fn spare(&mut self, partition: usize) -> Option<Box<Delta>>;
    /// The empty list of this partition for what is half-open, on the same terms.
    fn spare_half_open(&mut self, partition: usize) -> Option<Box<HalfOpenList>>;
    /// What the list asks this partition, if it asks anything.
    fn inquiry(&mut self, partition: usize) -> Option<Inquiry>;
    /// Takes what was counted of sources up to the end of an interval, before anything of that end is handed over, and gives an
    /// empty delta for it, on the same terms: where there is none the same comes back, and goes on growing.
    fn exchange_sources(&mut self, counted: Box<SourceDelta>) -> Box<SourceDelta> {
        counted
    }
    /// Takes what a partition hands over.
    fn hand_over(&mut self, hand_over: HandOver);
}

/// One worker's partitions.
pub struct Shard {
    partitions: Vec<Partition>,
    /// Where each partition stands in `partitions`.
    positions: [usize; PARTITION_COUNT],
    /// What they hand over at the end of an interval, until all have.
    ended: Vec<HandOver>,
    /// Who opens connections, where that is counted.
    sources: Option<SourceTally>,
}

impl Shard {
    /// A shard with these partitions, each of which is a different one.
    #[must_use]
    pub fn new(partitions: Vec<Partition>) -> Self {
        let mut positions = [usize::MAX; PARTITION_COUNT];
        for (position, partition) in partitions.iter().enumerate() {
            positions[partition.index()] = position;
        }
        Shard { ended: Vec::with_capacity(partitions.len()), partitions, positions, sources: None }
    }

    /// The same shard, which counts sources in this delta; it has a place for each of the partitions.
    #[must_use]
    pub fn with_sources(self, delta: Box<SourceDelta>) -> Self {
        Shard { sources: Some(SourceTally::new(delta)), ..self }
    }

    /// Does what the signals say, in order. Signals of partitions that it does not own are not for it and change nothing.
    pub fn handle(&mut self, signals: &[Signal], exchange: &mut impl Exchange) {
        for signal in signals.iter().take(SIGNAL_AHEAD) {
            prefetch(signal);
        }
        for signal in signals.iter().take(BUCKET_AHEAD) {
            self.ask(signal, Partition::prefetch);
        }
        for (at, signal) in signals.iter().enumerate() {
            if let Some(ahead) = signals.get(at + SIGNAL_AHEAD) {
                prefetch(ahead);
            }
            if let Some(ahead) = signals.get(at + BUCKET_AHEAD) {
                self.ask(ahead, Partition::prefetch);
            }
            if let Some(ahead) = signals.get(at + SECOND_AHEAD) {
                self.ask(ahead, Partition::prefetch_second);
            }
            let position = self.positions[signal.hash().partition()];
            if let Some(partition) = self.partitions.get_mut(position) {
                if let Some(sources) = &mut self.sources
                    && let Some(event) = event_of(signal, || partition.refuses(signal))
                {
                    sources.count(signal, event, position);
                }
                partition.handle(signal, exchange);
            }
        }
    }

    /// Has the partition of this signal ask for what it will read.
    #[inline]
    fn ask(&self, signal: &Signal, prefetch: impl Fn(&Partition, &Signal)) {
        if let Some(partition) = self.partitions.get(self.positions[signal.hash().partition()]) {
            prefetch(partition, signal);
        }
    }

    /// A new time base begins: what was summed before is handed over under the old one.
    pub fn start_base(&mut self, base: TimeBase, exchange: &mut impl Exchange) {
        self.partitions.iter_mut().for_each(|partition| partition.start_base(base, exchange));
    }

    /// An interval ends here.
    pub fn end_interval(&mut self, marker: &Marker, exchange: &mut impl Exchange) {
        let sources = self.sources.take();
        self.sources = sources.map(|sources| sources.exchange(|counted| exchange.exchange_sources(counted)));
        // Handed over together: the list sleeps until the first comes, and is woken once.
        self.ended.extend(self.partitions.iter_mut().map(|partition| partition.end_interval(marker, exchange)));
        self.ended.drain(..).for_each(|hand_over| exchange.hand_over(hand_over));
    }

    /// Its partitions, to be restored.
    pub fn partitions(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.partitions.iter_mut()
    }

    /// A cut of the archive.
    pub fn cut(&mut self) {
        self.partitions.iter_mut().for_each(Partition::cut);
    }

    /// What its partitions counted, each with its index.
    pub fn counts(&self) -> impl Iterator<Item = (usize, Counts)> {
        self.partitions.iter().map(|partition| (partition.index(), partition.counts()))
    }
}

#[cfg(test)]
mod tests;
