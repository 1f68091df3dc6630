//! The deltas of partitions -> the exact list of open connections, and the snapshots that other machines list.
//!
//! [`FlowList`] takes what partitions hand over and makes a list of every interval that all of them have ended. It
//! keeps the exact list, or the sum of all deltas that snapshots hold, or both. A list of its own can be kept from
//! snapshots alone ([`SnapshotList`]), on any machine that has the secret, and one of several routers together
//! ([`MergedList`]).

mod changes;
mod connections;
mod copy;
mod ends;
mod exact;
mod family;
mod former;
mod from_snapshots;
mod in_order;
mod intervals;
mod known_since;
mod liveness;
mod merged;
mod row;
mod rows;
mod snapshot_log;
mod start;
mod translations;

pub use changes::{Change, EarlierList, End};
pub use connections::LISTED_MAX;
pub use copy::ListCopy;
pub use ends::{ListEnds, UnlistedEnds};
pub use family::Outcome;
pub use from_snapshots::{KnownConnection, SnapshotList, TickMoment};
pub use liveness::{EvictionTimes, IDLE_EPOCHS};
pub use merged::{MergedList, MergedRow};
pub use row::{Row, RowState};
pub use rows::{Header, List};
pub use snapshot_log::SnapshotConfig;
pub use translations::{Nat, TranslationSource, Translations};

use crate::error::Result;
use crate::handover::{Counts, Delta, DeltaGeometry, HalfOpenList, HandOver, Inquiry, LatestSums};
use crate::signal::{PARTITION_COUNT, TwoNames, WarmUp, Watch};
use crate::snapshot::SnapshotFile;
use crate::state::{Decoder, Encoder};
use crate::track::DELTA_SPAN_MAX_TICKS;
use exact::ExactList;
use flowpeel_iblt::hash::Secret;
use intervals::{EndedInterval, Intervals};
use known_since::KnownSince;
use snapshot_log::SnapshotLog;
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

/// What is kept of the deltas.
enum Kept {
    List(ExactList),
    Snapshots(SnapshotLog),
    Both(ExactList, SnapshotLog),
}

impl Kept {
    fn list(&self) -> Option<&ExactList> {
        match self {
            Kept::List(list) | Kept::Both(list, _) => Some(list),
            Kept::Snapshots(_) => None,
        }
    }

    fn snapshots(&self) -> Option<&SnapshotLog> {
        match self {
            Kept::Snapshots(log) | Kept::Both(_, log) => Some(log),
            Kept::List(_) => None,
        }
    }

    fn parts(&mut self) -> (Option<&mut ExactList>, Option<&mut SnapshotLog>) {
        match self {
            Kept::List(list) => (Some(list), None),
            Kept::Snapshots(log) => (None, Some(log)),
            Kept::Both(list, log) => (Some(list), Some(log)),
        }
    }
}

/// Calls `with` with a list in which a translated connection stands once, if its names are known, and returns its
/// header.
fn with_names(list: List, translations: Option<&dyn TranslationSource>, with: impl FnOnce(&List)) -> Header {
    let Some(source) = translations else {
        with(&list);
        return list.header;
    };
    let mut header = list.header;
    let mut todo = Some((list, with));
    source.with_current(&mut |translations| {
        if let Some((list, with)) = todo.take() {
            let list = list.with_names(translations);
            header = list.header;
            with(&list);
        }
    });
    header
}

/// What is made of the deltas of all partitions: the list, snapshots, or both.
pub struct FlowList {
    intervals: Intervals,
    latest_sums: LatestSums,
    kept: Kept,
    /// Where the names of translated connections come from, if somebody knows them.
    translations: Option<Arc<dyn TranslationSource>>,
    /// How long a connection can be silent and be listed, in ticks.
    silent_ticks_max: Option<u64>,
    /// What finds that there are such, where nobody knows them.
    two_names: Option<TwoNames>,
}

impl FlowList {
    /// An empty list. With an idle timeout it needs the watch that the capture threads have, unless they sample every
    /// packet.
    #[must_use]
    pub fn new(config: &FlowListConfig, watch: Option<&Arc<Watch>>) -> Self {
        Self::keeping(config, Kept::List(ExactList::new(config, watch)))
    }

    /// An empty list with the sum of all deltas beside it, for [`Self::snapshot`].
    #[must_use]
    pub fn with_snapshots(config: &FlowListConfig, watch: Option<&Arc<Watch>>, snapshots: &SnapshotConfig) -> Self {
        Self::keeping(config, Kept::Both(ExactList::new(config, watch), SnapshotLog::new(config, snapshots)))
    }

    /// The sum of all deltas alone, for [`Self::snapshot`]: nothing is listed, and no partition is asked anything.
    #[must_use]
    pub fn of_snapshots(config: &FlowListConfig, snapshots: &SnapshotConfig) -> Self {
        Self::keeping(config, Kept::Snapshots(SnapshotLog::new(config, snapshots)))
    }

    fn keeping(config: &FlowListConfig, kept: Kept) -> Self {
        FlowList {
            intervals: Intervals::new(config.eviction.idle_ticks),
            latest_sums: LatestSums::new(&config.secret),
            kept,
            translations: None,
            silent_ticks_max: config.eviction.silent_ticks_max(),
            two_names: None,
        }
    }

    /// Lists a translated connection once, by what this source knows.
    pub(crate) fn set_translations(&mut self, translations: Arc<dyn TranslationSource>) {
        self.translations = Some(translations);
    }

    /// Has headers say how many connections this finds under two names.
    pub(crate) fn set_two_names(&mut self, two_names: TwoNames) {
        self.two_names = Some(two_names);
    }

    /// Has headers say that this is the list of a live capture, which began at this time, in ns since 1970, and is
    /// looking for older connections until the warm-up ends.
    pub(crate) fn set_since(&mut self, since_ns: i64, warm_up: Option<Arc<WarmUp>>) {
        self.intervals.set_since(KnownSince::new(since_ns, warm_up, self.silent_ticks_max));
    }

    /// The snapshot as of the last list, if snapshots are kept. It is valid until the next hand-over.
    #[must_use]
    pub fn snapshot(&self) -> Option<&SnapshotFile> {
        self.kept.snapshots().map(SnapshotLog::file)
    }

    /// Whether this partition has handed over the end of the present interval. Its next hand-over belongs to the next
    /// interval and must wait until [`Self::end_interval`] has been called.
    #[must_use]
    pub fn has_ended(&self, partition: usize) -> bool {
        self.intervals.has_ended(partition)
    }

    /// Whether every partition has handed over the end of the interval, so that it can be ended.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.intervals.is_due()
    }

    /// How many intervals were merged into the next since the start: their end was passed over, or a shard held its
    /// changes back.
    #[must_use]
    pub fn merged_intervals(&self) -> u64 {
        self.intervals.merged_intervals()
    }

    /// Applies what a partition hands over, and returns the delta, empty. A partition that does not exist changes
    /// nothing.
    ///
    /// Complexity: a pass over the delta's cells, and what decoding takes where a list is kept.
    ///
    /// # Panics
    ///
    /// The delta does not have the configured shape.
    pub fn apply(&mut self, hand_over: HandOver) -> Option<Box<Delta>> {
        let HandOver { partition, delta, is_held_back, tick, base, end, findings } = hand_over;
        if partition >= PARTITION_COUNT {
            return None;
        }
        let Self { intervals, latest_sums, kept, .. } = self;
        let (mut list, mut snapshots) = kept.parts();
        let since = tick.saturating_sub(DELTA_SPAN_MAX_TICKS);
        intervals.bases_mut().learn(base);
        let delta = delta.map(|mut delta| {
            latest_sums.sum_into(&mut delta);
            if let Some(snapshots) = &mut snapshots {
                snapshots.add(partition, &delta);
            }
            match &mut list {
                Some(list) => list.apply(partition, &mut delta, since, tick),
                None => delta.clear(),
            }
            delta
        });
        if let (Some(list), Some(findings)) = (list, findings) {
            list.answer(partition, findings, since, tick);
        }
        if let Some(end) = end {
            if let Some(snapshots) = snapshots {
                snapshots.cut(partition, tick);
            }
            intervals.end_partition(partition, end, is_held_back);
        }
        delta
    }

    /// Ends the interval that has ended in every partition, and returns the header of its list. The list itself, if one
    /// is kept, is passed to `write`. The buffers of half-open connections are then emptied and passed to `give_back`.
    /// There is no list when a partition held changes back: the interval becomes part of the next.
    pub fn end_interval(
        &mut self,
        write: impl FnOnce(&List),
        give_back: impl FnMut(usize, Box<HalfOpenList>),
    ) -> Option<Header> {
        let header = self.intervals.end().map(|ended| self.listed(&ended, write));
        self.intervals.begin(give_back);
        header
    }

    /// Makes the list and the snapshot of an interval.
    fn listed(&mut self, ended: &EndedInterval, write: impl FnOnce(&List)) -> Header {
        let Self { intervals, kept, translations, two_names, .. } = self;
        let (list, mut snapshots) = kept.parts();
        let EndedInterval { marker, figures, since, unarchived } = *ended;
        let mut header = Header { figures, since, unarchived, is_last: marker.is_last, ..Header::default() };
        header.missing = figures.missing_elsewhere + list.as_ref().map_or(0, |list| list.missing());
        header.extraneous = list.as_ref().map_or(0, |list| list.extraneous());
        header.complete = header.missing == 0;
        header.doubled = two_names.as_mut().map_or(0, |two_names| two_names.end_interval(figures.dropped > 0));
        let open_count = snapshots.as_mut().map(|snapshots| {
            snapshots.end_interval(ended, intervals);
            snapshots.open_count()
        });
        let established = list.as_ref().map_or(&[][..], |list| list.partitions());
        intervals.sort_half_open(established);
        let made = List::new(established, intervals.half_open(), header, intervals.times(&marker));
        let made = made.with_ends(intervals.ends());
        if let Some(snapshots) = snapshots {
            snapshots.set_unsettled(made.header.unsettled);
        }
        let has_list = list.is_some();
        let header = with_names(made, translations.as_deref(), |made| {
            if has_list {
                write(made);
            }
        });
        match list {
            Some(list) => {
                list.end_interval(marker.end_tick);
                header
            }
            None => Header { flows: open_count.unwrap_or(0), ..header },
        }
    }

    /// What to ask a partition: whether listed connections are still alive, and more if not everything could be
    /// decoded. The answer comes with the end of the partition's next interval.
    pub fn inquiry(&mut self, partition: usize) -> Option<Inquiry> {
        self.kept.parts().0?.inquiry(partition)
    }

    /// The sum of what all partitions counted up to the last interval's end.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.intervals.counts()
    }

    /// What reconciling did since the start, in all partitions together.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.kept.list().map(ExactList::outcome).unwrap_or_default()
    }

    /// About how many bytes [`Self::save`] writes while everything can be decoded.
    #[must_use]
    pub fn saved_size(&self) -> usize {
        self.kept.list().map_or(0, ExactList::saved_size) + (1 << 16)
    }

    /// Encodes the list for a saved state, right after an interval was listed. The law, what the partitions know = the
    /// list + the residue, has to hold after a restart, so both are saved, and the partitions at the same packet.
    ///
    /// Complexity: linear in the list.
    pub fn save(&self, encoder: &mut Encoder) {
        self.intervals.save(encoder);
        if let Some(list) = self.kept.list() {
            list.save(encoder);
        }
        if let Some(snapshots) = self.kept.snapshots() {
            snapshots.save(encoder);
        }
    }

    /// Fills an empty list with what one with the same configuration saved. If this fails the list must not be used.
    ///
    /// # Errors
    ///
    /// The bytes are not those of a list.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.intervals.restore(decoder)?;
        let (list, snapshots) = self.kept.parts();
        list.map_or(Ok(()), |list| list.restore(decoder))?;
        snapshots.map_or(Ok(()), |snapshots| snapshots.restore(decoder))
    }

    /// Marks all listed connections as unsettled, after packets passed unseen up to the tick `resumed_tick`: each may
    /// have closed, until a packet of it is seen.
    pub fn unsettle(&mut self, resumed_tick: u64) {
        self.intervals.resume_at(resumed_tick);
        if let Some(list) = self.kept.parts().0 {
            list.unsettle(resumed_tick);
        }
    }

    /// Leaves out the numbers of so many lists: another run may have used them.
    pub fn skip_intervals(&mut self, interval_count: u64) {
        self.intervals.skip(interval_count);
    }
}

#[cfg(test)]
mod tests;
