//! Deltas -> the exact list of open connections.
//!
//! What enters: the hand-overs of all partitions. What leaves: at the end of each interval the sorted list, with a
//! header that says whether it is complete and how much is known to be missing. What could not be decoded is kept as a
//! residue. The law: what the shards know = the list + the residue.

mod changes;
mod connections;
mod family;
mod from_snapshots;
mod in_order;
mod liveness;
mod merged;
mod recovery;
mod resync;
mod rows;
mod saved;
mod snapshots;
mod start;

pub use changes::{Change, EarlierList};
pub use family::Outcome;
pub use from_snapshots::{KnownConnection, SnapshotList, TickMoment};
pub use liveness::{EvictionTimes, IDLE_EPOCHS};
pub use merged::{MergedList, MergedRow};
pub use rows::{Header, List, Row, RowState};
pub use snapshots::SnapshotConfig;

use crate::connection::{Counts, HalfOpenList};
use crate::flow::{KeyV4, KeyV6};
use crate::hash::Secret;
use crate::signal::{AnyKey, PARTITION_COUNT, TimeBases, Watch};
use crate::sketch::Geometry;
use crate::snapshot::file::{Figures, SnapshotFile};
use crate::snapshot::{
    ANNOUNCEMENTS_MAX, Delta, DeltaGeometry, Findings, HandOver, Inquiry, IntervalEnd, LatestSums, Marker, Seen,
};
pub use connections::LISTED_MAX;
use family::FamilyList;
use resync::{Answers, Questions};
use rows::ListTimes;
use snapshots::{SnapshotInput, Snapshots};
use std::sync::Arc;

/// The configuration of a [`FlowList`].
#[derive(Clone, Debug)]
pub struct FlowListConfig {
    /// The secret under which the deltas were filled.
    pub secret: Secret,
    /// The shape of the deltas.
    pub geometry: DeltaGeometry,
    /// The most connections listed in one partition.
    pub partition_connections_max: u64,
    /// When connections are taken off that were not seen to end.
    pub eviction: EvictionTimes,
    /// How many listed connections of each family a partition is asked about at the end of an interval.
    pub inquiry_max: usize,
}

struct PartitionList {
    v4: FamilyList<KeyV4>,
    v6: FamilyList<KeyV6>,
    /// The half-open connections at the end of the interval. [`Self::sort_half_open`] sorts them and removes those that
    /// are established.
    half_open: Option<Box<HalfOpenList>>,
    /// What was counted up to the list before, and up to the end of the present interval.
    listed_counts: Counts,
    counts: Counts,
    has_ended: bool,
    held_back: bool,
}

/// The list of all partitions, as the exporter keeps it.
pub struct FlowList {
    partitions: Vec<PartitionList>,
    latest_sums: LatestSums,
    inquiry_max: usize,
    bases: TimeBases,
    /// The sum of all deltas, if snapshots are wanted.
    snapshots: Option<Snapshots>,
    /// The marker of the interval that is ending, once the first partition has handed it over.
    ending: Option<Marker>,
    /// The start of the first interval that was merged into the present one, if any was.
    merged_start_ns: Option<i64>,
    /// What the capture counted in the interval and in those merged into it.
    seen: Seen,
    interval: u64,
    /// Intervals that were merged into the next one: since the start, and since the last list.
    merged_intervals: u64,
    covered_intervals: u64,
    /// The tick at which this run went on after one that had ended, if packets passed unseen in between.
    resumed_tick: Option<u64>,
}

impl FlowList {
    /// An empty list. With an idle timeout it needs the watch that the capture threads have, unless they look at every
    /// packet.
    #[must_use]
    pub fn new(config: &FlowListConfig, watch: Option<&Arc<Watch>>) -> Self {
        let partition = |_| PartitionList {
            v4: FamilyList::new(config, config.geometry.v4, watch.cloned()),
            v6: FamilyList::new(config, config.geometry.v6, watch.cloned()),
            half_open: None,
            listed_counts: Counts::default(),
            counts: Counts::default(),
            has_ended: false,
            held_back: false,
        };
        FlowList {
            partitions: (0..PARTITION_COUNT).map(partition).collect(),
            latest_sums: LatestSums::new(&config.secret),
            inquiry_max: config.inquiry_max,
            bases: TimeBases::new(),
            snapshots: None,
            ending: None,
            merged_start_ns: None,
            seen: Seen::default(),
            interval: 0,
            merged_intervals: 0,
            covered_intervals: 0,
            resumed_tick: None,
        }
    }

    /// An empty list that also keeps the sum of all deltas, for [`Self::snapshot`]. Without
    /// [`SnapshotConfig::keeps_list`] it keeps the sum alone: its lists then hold half-open connections only, and no
    /// partition is asked anything.
    #[must_use]
    pub fn with_snapshots(config: &FlowListConfig, watch: Option<&Arc<Watch>>, snapshots: &SnapshotConfig) -> Self {
        let list = if snapshots.keeps_list {
            FlowList::new(config, watch)
        } else {
            let geometry = DeltaGeometry { v4: Geometry::new(1), v6: Geometry::new(1) };
            FlowList::new(&FlowListConfig { geometry, eviction: EvictionTimes::default(), ..config.clone() }, None)
        };
        FlowList { snapshots: Some(Snapshots::new(config, snapshots)), ..list }
    }

    /// Whether established connections are listed.
    #[must_use]
    pub fn keeps_list(&self) -> bool {
        self.snapshots.as_ref().is_none_or(|snapshots| snapshots.keeps_list)
    }

    /// The snapshot as of the last list, if snapshots are wanted. It is valid until the next hand-over.
    #[must_use]
    pub fn snapshot(&self) -> Option<&SnapshotFile> {
        self.snapshots.as_ref().map(Snapshots::file)
    }

    /// Whether this partition has handed over the end of the present interval. Its next hand-over belongs to the next
    /// interval and must wait until [`Self::list`] has been called.
    #[must_use]
    pub fn has_ended(&self, partition: usize) -> bool {
        self.partitions.get(partition).is_some_and(|partition| partition.has_ended)
    }

    /// Whether every partition has handed over the end of the interval, so that the list can be made.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.partitions.iter().all(|partition| partition.has_ended)
    }

    /// How many intervals were merged into the next since the start: their end was passed over, or a shard held its
    /// changes back.
    #[must_use]
    pub fn merged_intervals(&self) -> u64 {
        self.merged_intervals
    }

    /// Applies what a partition hands over, and returns the delta, empty. A partition that does not exist changes
    /// nothing.
    ///
    /// # Panics
    ///
    /// The delta does not have the configured shape.
    pub fn apply(&mut self, hand_over: HandOver) -> Option<Box<Delta>> {
        let HandOver { partition, delta, is_held_back, tick, base, end, findings } = hand_over;
        self.bases.learn(base);
        let keeps_list = self.keeps_list();
        let list = self.partitions.get_mut(partition)?;
        let delta = delta.map(|mut delta| {
            self.latest_sums.sum_into(&mut delta);
            if let Some(snapshots) = &mut self.snapshots {
                snapshots.add(partition, &delta);
            }
            if keeps_list {
                list.v4.apply(&mut delta.v4, tick);
                list.v6.apply(&mut delta.v6, tick);
                delta.begin_again();
            } else {
                delta.clear();
            }
            delta
        });
        if let Some(Findings { gone, open, seen }) = findings {
            let ((gone_v4, gone_v6), (open_v4, open_v6)) = (by_family(gone), by_family(open));
            list.v4.apply_answers(&Answers { gone: gone_v4, open: open_v4 }, tick);
            list.v6.apply_answers(&Answers { gone: gone_v6, open: open_v6 }, tick);
            let (seen_v4, seen_v6) = by_family(seen);
            list.v4.see(&seen_v4, tick);
            list.v6.see(&seen_v6, tick);
        }
        if let Some(IntervalEnd { marker, half_open, counts, .. }) = end {
            list.counts = counts;
            list.half_open = half_open;
            list.has_ended = true;
            if let Some(snapshots) = &mut self.snapshots {
                snapshots.cut(partition, tick);
            }
            // Without the half-open connections the list would be incomplete too.
            list.held_back = is_held_back || list.half_open.is_none();
            if self.ending.is_none() {
                self.seen = self.seen.plus(marker.seen);
                self.ending = Some(marker);
            }
        }
        delta
    }

    /// Makes the list of the interval that has ended in every partition, and passes it to `write`. The buffers of
    /// half-open connections are then emptied and passed to `give_back`. There is no list when a partition held changes
    /// back: the interval becomes part of the next.
    pub fn list<T>(
        &mut self,
        write: impl FnOnce(&List) -> T,
        mut give_back: impl FnMut(usize, Box<HalfOpenList>),
    ) -> Option<T> {
        let marker = self.ending.take()?;
        let is_held_back = self.partitions.iter().any(|partition| partition.held_back) && !marker.is_last;
        let merged = u64::from(marker.merged) + u64::from(is_held_back);
        self.merged_intervals += merged;
        self.covered_intervals += merged;
        let written = if is_held_back {
            self.merged_start_ns.get_or_insert(marker.start_ns);
            None
        } else {
            self.interval += 1;
            let header = self.header(&marker);
            self.end_snapshot(&marker, header.figures);
            self.merged_start_ns = None;
            self.covered_intervals = 0;
            self.seen = Seen::default();
            self.partitions.iter_mut().for_each(PartitionList::sort_half_open);
            let Marker { end_tick, within_tick_ns, .. } = marker;
            let times = ListTimes { bases: &self.bases, within_tick_ns, end_tick };
            let mut list = List::new(&self.partitions, header, times, self.resumed_tick);
            if let Some(snapshots) = self.snapshots.as_ref().filter(|snapshots| !snapshots.keeps_list) {
                list.header.flows = snapshots.open_count();
            }
            let written = write(&list);
            for partition in &mut self.partitions {
                partition.listed_counts = partition.counts;
                partition.v4.end_interval(marker.end_tick);
                partition.v6.end_interval(marker.end_tick);
            }
            Some(written)
        };
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            partition.has_ended = false;
            if let Some(mut half_open) = partition.half_open.take() {
                half_open.clear();
                give_back(index, half_open);
            }
        }
        written
    }

    /// What to ask a partition: whether listed connections are still alive, and more if the residue does not resolve by
    /// itself. The answer comes with the end of the partition's next interval.
    pub fn inquiry(&mut self, partition: usize) -> Option<Inquiry> {
        let list = self.partitions.get_mut(partition)?;
        if !list.v4.has_questions() && !list.v6.has_questions() {
            return None;
        }
        let needs_answers = list.v4.needs_answers() || list.v6.needs_answers();
        let announcements_max = if needs_answers { ANNOUNCEMENTS_MAX } else { 0 };
        let mut inquiry = Inquiry { announcements_max, ..Inquiry::default() };
        if list.v4.has_questions() {
            ask(&mut inquiry, list.v4.questions(self.inquiry_max), AnyKey::V4);
        }
        if list.v6.has_questions() {
            ask(&mut inquiry, list.v6.questions(self.inquiry_max), AnyKey::V6);
        }
        Some(inquiry)
    }

    fn header(&self, marker: &Marker) -> Header {
        let mut figures = Figures {
            interval: self.interval,
            start_ns: self.merged_start_ns.unwrap_or(marker.start_ns),
            end_ns: marker.end_ns,
            dropped: self.seen.dropped,
            unusable: self.seen.unusable,
            merged: self.covered_intervals,
            ..Figures::default()
        };
        let mut header = Header { is_last: marker.is_last, ..Header::default() };
        for partition in &self.partitions {
            let (now, before) = (&partition.counts, &partition.listed_counts);
            figures.opened += now.opened - before.opened;
            figures.closed += now.closed - before.closed;
            figures.recycled += now.recycled - before.recycled;
            figures.untracked += now.untracked() - before.untracked();
            figures.evicted += now.evicted() - before.evicted();
            header.unarchived += now.unarchived - before.unarchived;
            header.missing += partition.v4.missing() + partition.v6.missing();
            header.extraneous += partition.v4.extraneous() + partition.v6.extraneous();
        }
        figures.untracked += self.seen.handshakes_lost;
        figures.missing_elsewhere = self.missing_elsewhere(figures.opened + figures.closed);
        header.missing += figures.missing_elsewhere;
        Header { figures, complete: header.missing == 0, ..header }
    }

    /// About how many changes are missing that no table holds, in an interval with this many changes: connections that
    /// were not tracked, and what the lost packets held.
    fn missing_elsewhere(&self, changes: u64) -> u64 {
        let untracked = self.partitions.iter().map(|partition| partition.counts.untracked_open);
        untracked.sum::<u64>() + missed(&self.seen, changes)
    }

    /// Completes the snapshot of an interval that has ended in every partition.
    fn end_snapshot(&mut self, marker: &Marker, figures: Figures) {
        let totals = self.counts();
        let half_open = self.partitions.iter().filter_map(|partition| partition.half_open.as_deref());
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.end_interval(SnapshotInput { marker, figures, totals, bases: &self.bases, half_open });
        }
    }

    /// The sum of what all partitions counted up to the last interval's end.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.partitions.iter().fold(Counts::default(), |sum, partition| sum.plus(&partition.counts))
    }

    /// What reconciling did since the start, in all partitions together.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let families = self.partitions.iter().flat_map(|partition| [partition.v4.outcome(), partition.v6.outcome()]);
        families.fold(Outcome::default(), Outcome::plus)
    }
}

impl PartitionList {
    /// Sorts the half-open connections and removes those that are established too. A key that is half-open twice, as it
    /// may be within one tick, counts once.
    fn sort_half_open(&mut self) {
        if let Some(half_open) = &mut self.half_open {
            half_open.sort();
            half_open.retain::<KeyV4>(|key| !self.v4.listed().contains(key));
            half_open.retain::<KeyV6>(|key| !self.v6.listed().contains(key));
        }
    }
}

/// About how many openings and closings were lost with packets: in proportion to those in the packets that were seen,
/// and at least one, since it cannot be known that there was none.
fn missed(seen: &Seen, changes: u64) -> u64 {
    if seen.dropped == 0 {
        return u64::from(seen.has_doubtful_losses);
    }
    let share = u128::from(seen.dropped) * u128::from(changes) / u128::from(seen.packets.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

/// Adds the questions of one family to an inquiry.
fn ask<K>(inquiry: &mut Inquiry, questions: Questions<K>, any: impl Fn(K) -> AnyKey) {
    inquiry.listed.extend(questions.listed.into_iter().map(|(key, payload)| (any(key), payload)));
    inquiry.evict.extend(questions.evict.into_iter().map(|(key, payload, reason)| (any(key), payload, reason)));
}

/// The connections of each family, each with what comes with it.
type ByFamily<T> = (Vec<(KeyV4, T)>, Vec<(KeyV6, T)>);

fn by_family<T>(all: impl IntoIterator<Item = (AnyKey, T)>) -> ByFamily<T> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (key, with) in all {
        match key {
            AnyKey::V4(key) => v4.push((key, with)),
            AnyKey::V6(key) => v6.push((key, with)),
        }
    }
    (v4, v6)
}

#[cfg(test)]
mod tests;
