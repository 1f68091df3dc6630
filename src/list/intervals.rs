//! The intervals as partitions end them: common to the list and to snapshots.
//!
//! Partitions end an interval at different moments. An interval has ended when all of them have; if one held changes
//! back, it becomes part of the next.

use crate::error::Result;
use crate::flow::{KeyV4, KeyV6};
use crate::handover::{Counts, Ends, HalfOpenList, IntervalEnd};
use crate::list::exact::PartitionList;
use crate::list::known_since::KnownSince;
use crate::list::row::ListTimes;
use crate::queue::{Marker, Seen};
use crate::signal::{PARTITION_COUNT, TimeBases, TimeDoubt};
use crate::snapshot::{Figures, Since};
use crate::state::{Decoder, Encoder};

/// What a partition counted, and whether it has ended the present interval.
#[derive(Clone, Copy, Default)]
struct PartitionEnd {
    /// The counts up to the list before, and up to the end of the present interval.
    listed_counts: Counts,
    counts: Counts,
    has_ended: bool,
    is_held_back: bool,
}

/// The intervals of a run, the present one and what they amount to.
pub(super) struct Intervals {
    partitions: [PartitionEnd; PARTITION_COUNT],
    /// The half-open connections of each partition at its end of the interval.
    half_open: [Option<Box<HalfOpenList>>; PARTITION_COUNT],
    /// What ended in each partition since the list before.
    ends: [Ends; PARTITION_COUNT],
    bases: TimeBases,
    /// The marker of the interval that is ending, once the first partition has handed it over.
    ending: Option<Marker>,
    /// The start of the first interval that was merged into the present one, if any was.
    merged_start_ns: Option<i64>,
    /// What the capture counted in the interval and in those merged into it.
    seen: Seen,
    /// Whether the capture has ever cut a packet before its TCP flags. What such packets opened may still be open.
    has_cut: bool,
    interval: u64,
    /// Intervals that were merged into the next one: since the start, and since the last list.
    merged_intervals: u64,
    covered_intervals: u64,
    /// The handshakes that were lost, and may be of connections that are open.
    lost: LostHandshakes,
    /// The tick at which this run continued one that had ended, if packets passed unseen in between.
    resumed_tick: Option<u64>,
    /// What is known of the time before the capture, if it is live.
    known_since: Option<KnownSince>,
}

/// An interval that has ended in every partition.
#[derive(Clone, Copy)]
pub(super) struct EndedInterval {
    pub(super) marker: Marker,
    pub(super) figures: Figures,
    pub(super) since: Option<Since>,
    /// Connections that ended in it and did not get into the archive.
    pub(super) unarchived: u64,
}

impl Intervals {
    /// The intervals of a list that takes off what was silent for so many ticks, if it does.
    pub(super) fn new(idle_ticks: Option<u64>) -> Self {
        Intervals {
            lost: LostHandshakes { kept_ticks: idle_ticks, ..LostHandshakes::default() },
            partitions: [PartitionEnd::default(); PARTITION_COUNT],
            half_open: std::array::from_fn(|_| None),
            ends: Default::default(),
            bases: TimeBases::new(),
            ending: None,
            merged_start_ns: None,
            seen: Seen::default(),
            has_cut: false,
            interval: 0,
            merged_intervals: 0,
            covered_intervals: 0,
            resumed_tick: None,
            known_since: None,
        }
    }

    /// Sets what is known of the time before the capture.
    pub(super) fn set_since(&mut self, known_since: KnownSince) {
        self.known_since = Some(known_since);
    }

    /// Records that a partition has ended the interval. It must exist.
    pub(super) fn end_partition(&mut self, partition: usize, end: IntervalEnd, is_held_back: bool) {
        let IntervalEnd { marker, half_open, counts, ends, .. } = end;
        // Without the half-open connections the list would be incomplete too.
        let is_held_back = is_held_back || half_open.is_none();
        self.half_open[partition] = half_open;
        self.ends[partition].append(ends);
        self.partitions[partition] =
            PartitionEnd { counts, has_ended: true, is_held_back, ..self.partitions[partition] };
        self.ending.get_or_insert(marker);
        // Shards may have reported what a late port has seen with different intervals: those of one partition count.
        if partition == 0 {
            self.seen = self.seen.plus(marker.seen);
        }
    }

    /// Whether this partition has ended the present interval.
    pub(super) fn has_ended(&self, partition: usize) -> bool {
        self.partitions.get(partition).is_some_and(|partition| partition.has_ended)
    }

    /// Whether every partition has ended the present interval.
    pub(super) fn is_due(&self) -> bool {
        self.partitions.iter().all(|partition| partition.has_ended)
    }

    /// Ends the interval. Returns `None` if a partition held changes back: the interval becomes part of the next.
    pub(super) fn end(&mut self) -> Option<EndedInterval> {
        let marker = self.ending.take()?;
        let is_held_back = self.partitions.iter().any(|partition| partition.is_held_back) && !marker.is_last;
        let merged = u64::from(marker.merged) + u64::from(is_held_back);
        self.merged_intervals += merged;
        self.covered_intervals += merged;
        if is_held_back {
            self.merged_start_ns.get_or_insert(marker.start_ns);
            return None;
        }
        self.interval += 1;
        self.has_cut |= self.seen.cut > 0;
        let ended = self.ended(marker);
        self.merged_start_ns = None;
        self.covered_intervals = 0;
        self.seen = Seen::default();
        self.partitions.iter_mut().for_each(|partition| partition.listed_counts = partition.counts);
        Some(ended)
    }

    fn ended(&mut self, marker: Marker) -> EndedInterval {
        let mut figures = Figures {
            interval: self.interval,
            start_ns: self.merged_start_ns.unwrap_or(marker.start_ns),
            end_ns: marker.end_ns,
            dropped: self.seen.dropped,
            unusable: self.seen.unusable,
            cut: self.seen.cut,
            unopened: self.seen.unopened,
            merged: self.covered_intervals,
            time_uncertain: self.seen.time_doubt != TimeDoubt::None,
            ..Figures::default()
        };
        let (mut unarchived, mut older) = (0, 0);
        for PartitionEnd { counts: now, listed_counts: before, .. } in &self.partitions {
            figures.opened += now.opened - before.opened;
            figures.closed += now.closed - before.closed;
            figures.reopened += now.reopened - before.reopened;
            figures.recycled += now.recycled - before.recycled;
            figures.untracked += now.untracked() - before.untracked();
            figures.evicted += now.evicted() - before.evicted();
            unarchived += now.unarchived - before.unarchived;
            older += now.picked_up - before.picked_up;
        }
        let found =
            self.partitions.iter().map(|end| end.counts.found_answered - end.listed_counts.found_answered).sum();
        self.lost.add(self.seen.handshakes_lost, found, marker.end_tick);
        figures.handshakes_lost = self.lost.count;
        let since = self.known_since.as_mut().map(|known_since| known_since.end_interval(older, marker.end_tick));
        // While older connections are found about as many more may be: one at least.
        let not_found = if since.is_some_and(|since| since.is_warming_up) { older.max(1) } else { 0 };
        figures.missing_elsewhere = self.missing_elsewhere(figures.opened + figures.closed) + not_found;
        EndedInterval { marker, figures, since, unarchived }
    }

    /// About how many changes are missing that no table holds, in an interval with this many changes: connections that
    /// were not tracked, and what was in packets that were lost or cut. Of what was cut in an interval before only this
    /// is known: that it may still be open.
    fn missing_elsewhere(&self, changes: u64) -> u64 {
        let untracked = self.partitions.iter().map(|partition| partition.counts.untracked_open);
        // What was taken off in time that may not have passed may still be open: one at least.
        let taken_off = u64::from(self.seen.time_doubt == TimeDoubt::Passed);
        untracked.sum::<u64>() + self.lost.count + missed(&self.seen, changes).max(u64::from(self.has_cut)) + taken_off
    }

    /// Sorts the half-open connections, and removes those that are established too. A key that is half-open twice, as
    /// it may be within one tick, counts once.
    pub(super) fn sort_half_open(&mut self, established: &[PartitionList]) {
        for (partition, half_open) in self.half_open.iter_mut().enumerate() {
            let Some(half_open) = half_open else { continue };
            let established = established.get(partition);
            half_open.sort();
            half_open.retain::<KeyV4>(|key| !established.is_some_and(|list| list.v4.listed().contains(key)));
            half_open.retain::<KeyV6>(|key| !established.is_some_and(|list| list.v6.listed().contains(key)));
        }
    }

    /// The half-open connections of each partition.
    pub(super) fn half_open(&self) -> &[Option<Box<HalfOpenList>>] {
        &self.half_open
    }

    /// What ended in each partition since the list before.
    pub(super) fn ends(&self) -> &[Ends] {
        &self.ends
    }

    /// Begins the next interval. The buffers of half-open connections are emptied and passed to `give_back`.
    pub(super) fn begin(&mut self, mut give_back: impl FnMut(usize, Box<HalfOpenList>)) {
        // What ended in an interval that became part of the next is in the list of that one.
        if self.covered_intervals == 0 {
            self.ends = Default::default();
        }
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            partition.has_ended = false;
            if let Some(mut half_open) = self.half_open[index].take() {
                half_open.clear();
                give_back(index, half_open);
            }
        }
    }

    /// The times of a list that ends at this marker.
    pub(super) fn times(&self, marker: &Marker) -> ListTimes<'_> {
        let Marker { end_tick, within_tick_ns, .. } = *marker;
        ListTimes { bases: &self.bases, within_tick_ns, end_tick, resumed_tick: self.resumed_tick }
    }

    /// What maps ticks to wall time.
    pub(super) fn bases(&self) -> &TimeBases {
        &self.bases
    }

    /// What maps ticks to wall time, to add to it.
    pub(super) fn bases_mut(&mut self) -> &mut TimeBases {
        &mut self.bases
    }

    /// The sum of what all partitions counted up to the last interval's end.
    pub(super) fn counts(&self) -> Counts {
        self.partitions.iter().fold(Counts::default(), |sum, partition| sum.plus(&partition.counts))
    }

    /// How many intervals were merged into the next since the start.
    pub(super) fn merged_intervals(&self) -> u64 {
        self.merged_intervals
    }

    /// Leaves out the numbers of so many intervals.
    pub(super) fn skip(&mut self, interval_count: u64) {
        self.interval = self.interval.saturating_add(interval_count);
    }

    /// Records that packets passed unseen up to this tick.
    pub(super) fn resume_at(&mut self, resumed_tick: u64) {
        self.resumed_tick = Some(resumed_tick);
    }

    /// Encodes it for a saved state, between two intervals.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        debug_assert!(self.ending.is_none() && self.covered_intervals == 0);
        encoder.u64(self.interval);
        encoder.u64(self.merged_intervals);
        encoder.bool(self.has_cut);
        encoder.option(self.resumed_tick, Encoder::u64);
        self.bases.save(encoder);
        encoder.u64(self.lost.count);
        encoder.u64(self.lost.last_tick);
        self.partitions.iter().for_each(|partition| partition.counts.save(encoder));
    }

    /// Restores what was saved.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.interval = decoder.count()?;
        self.merged_intervals = decoder.count()?;
        self.has_cut = decoder.bool()?;
        self.resumed_tick = decoder.option(Decoder::count)?;
        self.bases = TimeBases::saved(decoder)?;
        (self.lost.count, self.lost.last_tick) = (decoder.count()?, decoder.count()?);
        for partition in &mut self.partitions {
            partition.counts = Counts::saved(decoder)?;
            partition.listed_counts = partition.counts;
        }
        Ok(())
    }
}

/// An estimate of the connections that may be open and whose handshake was forgotten before it was complete.
///
/// Each that is found by another packet takes one off. That may have been one whose handshake was not lost, so one is
/// left until a connection that says nothing would be off the list too.
#[derive(Clone, Copy, Default)]
struct LostHandshakes {
    count: u64,
    /// The tick at the end of the last interval with losses.
    last_tick: u64,
    /// How long a connection that is silent stays on the list, in ticks; `None` for ever.
    kept_ticks: Option<u64>,
}

impl LostHandshakes {
    /// Adds those that were lost in an interval that ended at this tick, and takes off those that were found.
    fn add(&mut self, lost: u64, found: u64, end_tick: u64) {
        if lost > 0 {
            self.last_tick = end_tick;
        }
        let is_past = self.kept_ticks.is_some_and(|kept_ticks| end_tick.saturating_sub(self.last_tick) > kept_ticks);
        let count = self.count + lost;
        self.count = if is_past { 0 } else { count.saturating_sub(found).max(u64::from(count > 0)) };
    }
}

/// About how many openings and closings were in packets that were lost or cut: in proportion to those in the packets
/// that were read, and at least one, since it cannot be known that there was none.
fn missed(seen: &Seen, changes: u64) -> u64 {
    let unread = seen.dropped.saturating_add(seen.cut);
    if unread == 0 {
        return u64::from(seen.has_doubtful_losses);
    }
    let read = seen.packets.saturating_sub(seen.cut).max(1);
    let share = u128::from(unread) * u128::from(changes) / u128::from(read);
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends an interval in which this was seen.
    fn ended(intervals: &mut Intervals, seen: Seen) -> Figures {
        for partition in 0..PARTITION_COUNT {
            let half_open = Some(Box::new(HalfOpenList::of(&[])));
            let marker = Marker { seen, ..Marker::default() };
            let end = IntervalEnd { marker, half_open, counts: Counts::default(), ends: Ends::default(), saved: None };
            intervals.end_partition(partition, end, false);
        }
        let figures = intervals.end().expect("nothing is held back").figures;
        intervals.begin(|_, _| {});
        figures
    }

    #[test]
    fn what_was_cut_may_be_open_in_every_later_interval_also_of_a_run_that_goes_on_from_a_state() {
        let (nothing, cut) = (Seen { packets: 9, ..Seen::default() }, Seen { packets: 9, cut: 4, ..Seen::default() });
        let mut intervals = Intervals::new(None);
        let missing = |figures: Figures| (figures.cut, figures.missing_elsewhere);
        assert_eq!(missing(ended(&mut intervals, nothing)), (0, 0));
        assert_eq!(missing(ended(&mut intervals, cut)), (4, 1));
        assert_eq!(missing(ended(&mut intervals, nothing)), (0, 1));
        let mut encoder = Encoder::default();
        intervals.save(&mut encoder);
        let (bytes, mut restored) = (encoder.into_bytes(), Intervals::new(None));
        restored.restore(&mut Decoder::new(&bytes)).unwrap();
        assert_eq!(missing(ended(&mut restored, nothing)), (0, 1));
    }

    #[test]
    fn what_was_cut_is_estimated_by_what_was_read() {
        let seen = |dropped, cut| Seen { packets: 1_000, dropped, cut, ..Seen::default() };
        assert_eq!(missed(&seen(0, 0), 80), 0);
        assert_eq!(missed(&seen(100, 0), 80), 8);
        assert_eq!(missed(&seen(0, 200), 80), 20);
        assert_eq!(missed(&seen(0, 1), 80), 1);
        assert_eq!(missed(&seen(0, 1_000), 0), 1);
        assert_eq!(missed(&seen(u64::MAX, 1_000), u64::MAX), u64::MAX);
    }
}
