//! The list thread's part in saving: it gathers the partitions' copies of a cut, adds the list's, and hands them to the
//! writer.
//!
//! It takes the copies that come with hand-overs, and the list behind them, and gives a cut, and from a saved one the
//! list with all that belongs to it.

use super::writer::{Cut, SavingCounts};
use super::{LIST, OUTSIDE, PART_COUNT, POSITION, Saver};
use crate::error::Result;
use crate::flow::AnyKey;
use crate::handover::{Eviction, INQUIRY_MAX, Inquiry};
use crate::metrics::Durations;
use crate::queue::Marker;
use crate::record::SaveHandle;
use crate::signal::{CLOCK_LEAP_MAX_NS, PARTITION_COUNT, TICK_NS, TimeBase};
use crate::state::{Decoder, Encoder};
use crossbeam::channel::Sender;
use std::sync::Arc;
use std::time::Instant;

/// The cut that is being gathered, and the way to the writer.
pub(crate) struct ListSaving {
    saver: Arc<Saver>,
    cuts: Sender<Cut>,
    partitions: Vec<Option<Vec<u8>>>,
    outside: [Option<SaveHandle>; OUTSIDE.len()],
    /// How many marks asked for a save so far.
    mark_count: u64,
    list_pause: Durations,
    put_off: u64,
}

impl ListSaving {
    pub(super) fn new(saver: Arc<Saver>, cuts: Sender<Cut>, outside: [Option<SaveHandle>; OUTSIDE.len()]) -> Self {
        let partitions = vec![None; PARTITION_COUNT];
        ListSaving { saver, cuts, partitions, outside, mark_count: 0, list_pause: Durations::new(), put_off: 0 }
    }

    /// The counts of saving that the list thread knows.
    pub(crate) fn counts(self) -> SavingCounts {
        let ListSaving { list_pause, put_off, .. } = self;
        SavingCounts { list_pause, put_off, ..SavingCounts::default() }
    }

    /// Takes the copy of a partition.
    pub(crate) fn put(&mut self, partition: usize, bytes: Vec<u8>) {
        self.partitions[partition] = Some(bytes);
    }

    /// Makes the cut of a mark whose interval has been listed or could not be, if the mark asked for one and nothing is
    /// missing. `list` encodes the list thread's own part.
    pub(crate) fn cut(&mut self, marker: &Marker, is_listed: bool, list: impl FnOnce() -> Encoder) {
        if !marker.saves {
            return;
        }
        let mark = self.mark_count;
        self.mark_count += 1;
        let partitions: Vec<_> = self.partitions.iter_mut().filter_map(Option::take).collect();
        if !is_listed || partitions.len() < PARTITION_COUNT {
            self.put_off += 1;
            self.saver.put_off();
            return;
        }
        let began = Instant::now();
        let encoder = list();
        self.list_pause.record(began.elapsed());
        let mut parts = Vec::with_capacity(PART_COUNT);
        parts.insert(POSITION, std::mem::take(&mut *self.saver.position.lock()));
        parts.insert(LIST, encoder.into_bytes());
        parts.extend(partitions);
        let outside = self.outside.each_ref().map(|outside| outside.as_ref().map(|handle| handle.save(mark)));
        let cut = Cut { parts, outside };
        // This waits only at the last mark of all, while the save before is being written.
        drop(self.cuts.send(cut));
    }
}

/// The moment of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instants {
    pub(crate) end_ns: i64,
    pub(crate) end_tick: u64,
    within_tick_ns: i64,
}

impl Instants {
    pub(crate) fn of(marker: &Marker) -> Self {
        let Marker { end_ns, end_tick, within_tick_ns, .. } = *marker;
        Instants { end_ns, end_tick, within_tick_ns }
    }

    pub(crate) fn save(self, encoder: &mut Encoder) {
        encoder.i64(self.end_ns);
        encoder.u64(self.end_tick);
        encoder.i64(self.within_tick_ns);
    }

    pub(crate) fn saved(decoder: &mut Decoder) -> Result<Self> {
        let (end_ns, end_tick, within_tick_ns) = (decoder.i64()?, decoder.count()?, decoder.i64()?);
        decoder.expect((0..=TICK_NS).contains(&within_tick_ns), "a time beyond its tick")?;
        Ok(Instants { end_ns, end_tick, within_tick_ns })
    }

    /// The tick at which a live capture continues at this wall time: later by what the wall clock says, by at least one
    /// tick, and by no more than the longest leap there is.
    pub(crate) fn tick_at(self, wall_ns: i64) -> u64 {
        let began_ns = i128::from(self.end_ns) - i128::from(self.within_tick_ns);
        let offset_ns = began_ns - i128::from(self.end_tick) * i128::from(TICK_NS);
        let tick = TimeBase { first_tick: self.end_tick, offset_ns }.tick(wall_ns);
        tick.clamp(self.end_tick + 1, self.end_tick + (CLOCK_LEAP_MAX_NS / TICK_NS) as u64)
    }
}

/// Saves questions that were asked and not answered yet.
pub(crate) fn save_inquiry(inquiry: &Inquiry, encoder: &mut Encoder) {
    encoder.length(inquiry.announcements_max);
    encoder.length(inquiry.listed.len());
    for (key, payload) in &inquiry.listed {
        key.save(encoder);
        encoder.u32(*payload);
    }
    encoder.length(inquiry.evict.len());
    for (key, payload, reason) in &inquiry.evict {
        key.save(encoder);
        encoder.u32(*payload);
        encoder.bool(*reason == Eviction::Aged);
    }
}

/// Reads what [`save_inquiry`] wrote.
pub(crate) fn saved_inquiry(decoder: &mut Decoder) -> Result<Inquiry> {
    let announcements_max = usize::try_from(decoder.count()?).unwrap_or(usize::MAX);
    let mut inquiry = Inquiry { announcements_max, ..Inquiry::default() };
    // At most this many of each family are asked about.
    let most = 2 * INQUIRY_MAX;
    for _ in 0..decoder.length(1, most)? {
        inquiry.listed.push((AnyKey::saved(decoder)?, decoder.u32()?));
    }
    for _ in 0..decoder.length(1, most)? {
        let (key, payload) = (AnyKey::saved(decoder)?, decoder.u32()?);
        inquiry.evict.push((key, payload, if decoder.bool()? { Eviction::Aged } else { Eviction::Idle }));
    }
    Ok(inquiry)
}
