//! A shard: the partitions of one worker thread. Blocks of signals come in, and between them the marks that end
//! intervals or start a new time base; hand-overs go out through its [`Exchange`], which also provides empty deltas.

use crate::handover::{Counts, Delta, HalfOpenList, HandOver, Inquiry};
use crate::queue::Marker;
use crate::signal::{PARTITION_COUNT, Signal, TimeBase};
use crate::sources::{SourceDelta, SourceTally, event_of};
use crate::track::Partition;
use flowpeel_lines::prefetch;

/// How many signals ahead of the one that is handled the second bucket is prefetched, once the first says that it will
/// be read. Each prefetch needs what the one before it brought, so these distances are as long as memory takes to
/// answer, and no longer.
pub const SECOND_AHEAD: usize = 6;

/// How many signals ahead the first bucket is prefetched, once the signal with its hash is there.
pub const BUCKET_AHEAD: usize = 14;

/// How many signals ahead the signal itself is prefetched, which another core has written.
pub const SIGNAL_AHEAD: usize = 24;

/// Where full deltas go and empty ones come from.
pub trait Exchange {
    /// An empty delta for this partition. `None` if there is none and the shard is not to wait.
    fn spare(&mut self, partition: usize) -> Option<Box<Delta>>;
    /// The empty list of half-open connections for this partition. `None` if there is none and the shard is not to
    /// wait.
    fn spare_half_open(&mut self, partition: usize) -> Option<Box<HalfOpenList>>;
    /// The list's question to this partition, if it has one.
    fn inquiry(&mut self, partition: usize) -> Option<Inquiry>;
    /// Takes what was counted of sources in an interval, before any partition hands over at its end, and returns an
    /// empty delta. If there is none and the shard is not to wait, the same delta comes back and keeps growing.
    fn exchange_sources(&mut self, counted: Box<SourceDelta>) -> Box<SourceDelta> {
        counted
    }
    /// Takes a hand-over of a partition.
    fn hand_over(&mut self, hand_over: HandOver);
}

/// The partitions of one worker thread.
pub struct Shard {
    partitions: Vec<Partition>,
    /// The index of each partition in `partitions`; out of range for those that the shard does not own.
    positions: [usize; PARTITION_COUNT],
    /// The hand-overs at the end of an interval, until all partitions have made theirs.
    ended: Vec<HandOver>,
    /// The counting of sources, if it is on.
    sources: Option<SourceTally>,
}

impl Shard {
    /// A shard with these partitions, which must all be different.
    #[must_use]
    pub fn new(partitions: Vec<Partition>) -> Self {
        let mut positions = [usize::MAX; PARTITION_COUNT];
        for (position, partition) in partitions.iter().enumerate() {
            positions[partition.index()] = position;
        }
        Shard { ended: Vec::with_capacity(partitions.len()), partitions, positions, sources: None }
    }

    /// Makes the shard count sources in this delta, which has a place for each of the partitions.
    #[must_use]
    pub fn with_sources(self, delta: Box<SourceDelta>) -> Self {
        Shard { sources: Some(SourceTally::new(delta)), ..self }
    }

    /// Applies signals in order. Signals of partitions that the shard does not own change nothing.
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

    /// Prefetches for a signal, in its partition.
    #[inline]
    fn ask(&self, signal: &Signal, prefetch: impl Fn(&Partition, &Signal)) {
        if let Some(partition) = self.partitions.get(self.positions[signal.hash().partition()]) {
            prefetch(partition, signal);
        }
    }

    /// Begins a new time base: what was summed before is handed over under the old one.
    pub fn start_base(&mut self, base: TimeBase, exchange: &mut impl Exchange) {
        self.partitions.iter_mut().for_each(|partition| partition.start_base(base, exchange));
    }

    /// Ends an interval.
    pub fn end_interval(&mut self, marker: &Marker, exchange: &mut impl Exchange) {
        let sources = self.sources.take();
        self.sources = sources.map(|sources| sources.exchange(|counted| exchange.exchange_sources(counted)));
        // The hand-overs go together: the list sleeps until the first comes, and is woken once.
        self.ended.extend(self.partitions.iter_mut().map(|partition| partition.end_interval(marker, exchange)));
        self.ended.drain(..).for_each(|hand_over| exchange.hand_over(hand_over));
    }

    /// All partitions, to restore them.
    pub fn partitions(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.partitions.iter_mut()
    }

    /// Makes a cut of the archive.
    pub fn cut(&mut self) {
        self.partitions.iter_mut().for_each(Partition::cut);
    }

    /// The counts of all partitions, each with its index.
    pub fn counts(&self) -> impl Iterator<Item = (usize, Counts)> {
        self.partitions.iter().map(|partition| (partition.index(), partition.counts()))
    }
}

#[cfg(test)]
mod tests;
