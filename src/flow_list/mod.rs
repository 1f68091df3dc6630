//! Deltas -> the exact list of open connections.
//!
//! What enters: the hand-overs of all partitions. What leaves: at the end of each interval the sorted list, with a header
//! that says whether it is complete and what is known to be missing. Whatever could not be decoded is kept as a residue,
//! and the law is: what the shards know = the list + the residue.

mod changes;
mod difference;
mod recovery;
mod resync;
mod rows;
mod time_bases;

pub use changes::{Change, EarlierList};
pub use difference::Outcome;
pub use rows::{Header, List, Row, RowState};

use crate::config::{ANNOUNCEMENTS_MAX, INQUIRY_MAX, PARTITION_COUNT};
use crate::connection::{Counts, HalfOpenRing};
use crate::flow::{KeyV4, KeyV6};
use crate::hash::Secret;
use crate::signal::AnyKey;
use crate::snapshot::{Delta, DeltaGeometry, Findings, HandOver, Inquiry, IntervalEnd, Marker, Seen};
use difference::FamilyList;
use resync::Settlement;
use rows::Rows;
use time_bases::TimeBases;

/// What a [`FlowList`] is told once.
#[derive(Clone, Debug)]
pub struct FlowListConfig {
    /// The secret under which the deltas were filled.
    pub secret: Secret,
    /// The shape of the deltas.
    pub geometry: DeltaGeometry,
    /// The most connections listed in one partition.
    pub partition_connections_max: u64,
}

struct PartitionList {
    v4: FamilyList<KeyV4>,
    v6: FamilyList<KeyV6>,
    half_open: Option<Box<HalfOpenRing>>,
    /// What was counted up to the list before, and up to the interval that is ending.
    listed_counts: Counts,
    counts: Counts,
    has_ended: bool,
    held_back: bool,
}

/// The exporter's list of all partitions.
pub struct FlowList {
    partitions: Vec<PartitionList>,
    bases: TimeBases,
    rows: Rows,
    /// The interval that is ending: its marker once the first partition has told.
    ending: Option<Marker>,
    /// The start of the interval, when intervals before it had to be merged into it.
    merged_start_ns: Option<i64>,
    /// What the capture saw in the interval, those merged into it included.
    seen: Seen,
    interval: u64,
    merged: u64,
}

impl FlowList {
    /// An empty list.
    #[must_use]
    pub fn new(config: &FlowListConfig) -> Self {
        let partition = |_| PartitionList {
            v4: FamilyList::new(&config.secret, config.geometry.v4, config.partition_connections_max),
            v6: FamilyList::new(&config.secret, config.geometry.v6, config.partition_connections_max),
            half_open: None,
            listed_counts: Counts::default(),
            counts: Counts::default(),
            has_ended: false,
            held_back: false,
        };
        FlowList {
            partitions: (0..PARTITION_COUNT).map(partition).collect(),
            bases: TimeBases::new(),
            rows: Rows::default(),
            ending: None,
            merged_start_ns: None,
            seen: Seen::default(),
            interval: 0,
            merged: 0,
        }
    }

    /// Whether this partition has told the end of the present interval. Its next hand-over belongs to the next interval and
    /// must wait until [`Self::list`] has been called.
    #[must_use]
    pub fn has_ended(&self, partition: usize) -> bool {
        self.partitions.get(partition).is_some_and(|partition| partition.has_ended)
    }

    /// Whether every partition has told the end of the interval, so that the list can be made.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.partitions.iter().all(|partition| partition.has_ended)
    }

    /// How many intervals were merged into the next because a shard held its changes back.
    #[must_use]
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// Applies what a partition hands over; the delta comes back empty. A partition that does not exist changes
    /// nothing.
    ///
    /// # Panics
    ///
    /// The delta has not the configured shape.
    pub fn apply(&mut self, hand_over: HandOver) -> Option<Box<Delta>> {
        let HandOver { partition, delta, is_held_back, tick, base, end, findings } = hand_over;
        self.bases.learn(base);
        let list = self.partitions.get_mut(partition)?;
        let delta = delta.map(|mut delta| {
            if delta.updates_v4 > 0 {
                list.v4.apply(&mut delta.v4, tick);
            }
            if delta.updates_v6 > 0 {
                list.v6.apply(&mut delta.v6, tick);
            }
            (delta.updates_v4, delta.updates_v6) = (0, 0);
            delta
        });
        if let Some(Findings { gone, open }) = findings {
            let ((gone_v4, gone_v6), (open_v4, open_v6)) = (by_family(&gone), by_family(&open));
            list.v4.settle(&Settlement { gone: gone_v4, open: open_v4 }, tick);
            list.v6.settle(&Settlement { gone: gone_v6, open: open_v6 }, tick);
        }
        if let Some(IntervalEnd { marker, half_open, counts }) = end {
            list.counts = counts;
            list.half_open = half_open;
            list.has_ended = true;
            list.held_back = is_held_back;
            if self.ending.is_none() {
                self.seen = self.seen.plus(marker.seen);
                self.ending = Some(marker);
            }
        }
        delta
    }

    /// Makes the list of the interval that has ended in every partition, and gives it to `write` together with the rings
    /// that came with it. There is none when a partition held changes back: its interval becomes part of the next.
    pub fn list<T>(
        &mut self,
        write: impl FnOnce(&List) -> T,
        mut give_back: impl FnMut(usize, Box<HalfOpenRing>),
    ) -> Option<T> {
        let marker = self.ending.take()?;
        let is_held_back = self.partitions.iter().any(|partition| partition.held_back) && !marker.is_last;
        let written = if is_held_back {
            self.merged += 1;
            self.merged_start_ns.get_or_insert(marker.start_ns);
            None
        } else {
            self.interval += 1;
            let header = self.header(&marker);
            self.merged_start_ns = None;
            self.seen = Seen::default();
            let rings = self.partitions.iter().filter_map(|partition| partition.half_open.as_deref());
            self.rows.collect(
                self.partitions.iter().map(|partition| &partition.v4),
                self.partitions.iter().map(|partition| &partition.v6),
                rings,
                marker.end_tick,
            );
            for partition in &mut self.partitions {
                partition.listed_counts = partition.counts;
                partition.v4.end_interval();
                partition.v6.end_interval();
            }
            Some(write(&self.rows.list(header, &marker, &self.bases)))
        };
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            partition.has_ended = false;
            if let Some(mut ring) = partition.half_open.take() {
                ring.clear();
                give_back(index, ring);
            }
        }
        written
    }

    /// What to ask a partition whose residue does not settle by itself. The answer comes with the end of its next
    /// interval.
    pub fn inquiry(&mut self, partition: usize) -> Option<Inquiry> {
        let list = self.partitions.get_mut(partition)?;
        let mut listed = Vec::new();
        if list.v4.needs_answers() {
            listed.extend(list.v4.questions(INQUIRY_MAX).into_iter().map(|(key, payload)| (AnyKey::V4(key), payload)));
        }
        if list.v6.needs_answers() {
            listed.extend(list.v6.questions(INQUIRY_MAX).into_iter().map(|(key, payload)| (AnyKey::V6(key), payload)));
        }
        let asks = list.v4.needs_answers() || list.v6.needs_answers();
        asks.then_some(Inquiry { listed, announcements_max: ANNOUNCEMENTS_MAX })
    }

    fn header(&self, marker: &Marker) -> Header {
        let mut header = Header {
            interval: self.interval,
            start_ns: self.merged_start_ns.unwrap_or(marker.start_ns),
            end_ns: marker.end_ns,
            dropped: self.seen.dropped,
            unusable: self.seen.unusable,
            ..Header::default()
        };
        for partition in &self.partitions {
            let (now, before) = (&partition.counts, &partition.listed_counts);
            header.opened += now.opened - before.opened;
            header.closed += now.closed - before.closed;
            header.recycled += now.recycled - before.recycled;
            header.untracked += now.untracked() - before.untracked();
            header.missing += partition.v4.missing() + partition.v6.missing() + now.untracked_open;
            header.extraneous += partition.v4.extraneous() + partition.v6.extraneous();
        }
        header.complete = header.missing == 0;
        header
    }

    /// The sum of what all partitions counted up to the last interval's end.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.partitions.iter().fold(Counts::default(), |sum, partition| sum.plus(&partition.counts))
    }

    /// What reconciling did since the start, all partitions together.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let families = self.partitions.iter().flat_map(|partition| [partition.v4.outcome(), partition.v6.outcome()]);
        families.fold(Outcome::default(), Outcome::plus)
    }
}

/// Connections with what goes with each, family by family.
type ByFamily = (Vec<(KeyV4, u32)>, Vec<(KeyV6, u32)>);

fn by_family(keys: &[(AnyKey, u32)]) -> ByFamily {
    let mut families = ByFamily::default();
    for (key, payload) in keys {
        match key {
            AnyKey::V4(key) => families.0.push((*key, *payload)),
            AnyKey::V6(key) => families.1.push((*key, *payload)),
        }
    }
    families
}

#[cfg(test)]
mod tests;
