//! An archive whose run is continued from a saved state: no connection is archived twice, and none is lost.
//!
//! A replay repeats exactly what it did behind the save point, so what it wrote there is removed first and written
//! again. What passed live is gone: what was written behind the save point stays, and is remembered, because the saved
//! state takes those connections to be open and is going to end them once more.

use crate::archive::ages::Ages;
use crate::archive::names::{FileName, Inventory};
use crate::archive::newest::Newest;
use crate::archive::scan::{FILE_HEADER_SIZE, FileId, scan_file};
use crate::archive::segment::Segment;
use crate::archive::{Entry, Fate};
use crate::disk::whole_file::sync_directory_of;
use crate::disk::{Decoder, Encoder};
use crate::error::{Error, Result};
use crate::export::ArchivedFlow;
use crate::record::Remembered;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::{fs, io};

/// A run that saves its state, as its archive knows it.
#[derive(Clone, Debug)]
pub struct SavedRun {
    /// The number of the run among those that write to the archive.
    pub number: NonZeroU64,
    /// What [`SaveHandle::save`](crate::record::SaveHandle::save) gave for the state that the run continues from;
    /// `None` if no state was saved yet.
    pub part: Option<Vec<u8>>,
}

/// Where an archive was when the state was saved.
#[derive(Default)]
pub(super) struct SavePoint {
    /// What was written behind the save point is in segments from this number on.
    pub(super) segment: u32,
    pub(super) ages: Ages,
    /// Live, the connections that were archived behind an earlier state, and have not ended once more since.
    pub(super) unmet: Vec<u64>,
}

impl SavePoint {
    /// Encodes the save point for a saved state.
    pub(super) fn encode(segment: u32, ages: &Ages, recorded: Option<&Recorded>) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.u32(segment);
        ages.save(&mut encoder);
        let unmet: Vec<_> = recorded.into_iter().flat_map(|recorded| recorded.connections.unmet()).collect();
        encoder.length(unmet.len());
        encoder.words(&unmet);
        encoder.into_bytes()
    }

    /// Decodes what [`Self::encode`] encoded.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut decoder = Decoder::new(bytes);
        let (segment, ages) = (decoder.u32()?, Ages::saved(&mut decoder)?);
        let mut unmet = vec![0; decoder.length(size_of::<u64>(), usize::MAX)?];
        decoder.words(&mut unmet)?;
        decoder.end()?;
        Ok(SavePoint { segment, ages, unmet })
    }
}

/// Removes what a run wrote to segments from `first` on.
///
/// # Errors
///
/// A file cannot be read or removed; or the archive is another one, has lost segments, or another run has written to it
/// since. Nothing was changed in these cases.
pub(super) fn rewind(directory: &Path, run: NonZeroU64, first: u32) -> Result<()> {
    let cannot = |error: io::Error| Error::new("cannot set the archive back").in_file(directory).because(error);
    let inventory = Inventory::of(directory).map_err(cannot)?;
    let newest = Newest::of(directory).ok().flatten().unwrap_or_default();
    let last_number = inventory.last_number().max(if newest.is_there { 0 } else { newest.number });
    if last_number.saturating_add(1) < first {
        let what = "this archive has fewer segments than when the state was saved: name the archive of that run, or \
                    remove the state to begin anew";
        return Err(Error::new(what).in_file(directory));
    }
    let segments = inventory.segments.keys().map(|number| FileName::Segment(*number));
    let logs = inventory.logs.iter().chain(&inventory.stale_logs).map(|number| FileName::Log(*number));
    let mut behind: BTreeMap<u32, Vec<FileName>> = BTreeMap::new();
    let mut empty = Vec::new();
    let mut others_last = None;
    for name in segments.chain(logs) {
        let number = name.number();
        if number < first {
            continue;
        }
        // A crash can leave a log without its header. Behind a save point it can only be the run's own. Before the
        // first one it may be of another, but nothing is in it if it has no room for a header.
        let path = name.path_in(directory);
        let writer = FileId::of(&path).map_err(cannot)?.map(|id| id.run);
        let is_log = matches!(name, FileName::Log(_));
        if writer == Some(run.get()) || writer.is_none() && first > 0 {
            behind.entry(number).or_default().push(name);
        } else if is_log && fs::metadata(&path).map_err(cannot)?.len() < FILE_HEADER_SIZE {
            empty.push(name);
        } else {
            others_last = others_last.max(Some(number));
        }
    }
    let oldest = behind.keys().next().copied();
    for name in empty.into_iter().filter(|name| oldest.is_some_and(|oldest| name.number() >= oldest)) {
        behind.entry(name.number()).or_default().push(name);
    }
    if oldest.is_some_and(|oldest| others_last > Some(oldest)) {
        let what = "another run has written to this archive since the state was saved, so the archive cannot be set \
                    back to there: name another directory with --archive, and remove the state to begin anew";
        return Err(Error::new(what).in_file(directory));
    }
    // What the run wrote behind a save point and somebody took away is written again as well.
    let is_own = newest.run == run.get() && first > 0;
    let left = if is_own { others_last.max(Some(first - 1)) } else { oldest.map(|oldest| oldest - 1) };
    if let Some(number) = left.filter(|left| *left < newest.number) {
        let is_there = inventory.segments.range(..=number).next().is_some();
        Newest { number, is_there, ..newest }.write(directory)?;
    }
    let Some(oldest) = oldest else { return Ok(()) };
    // An index is made again once its group is whole. The newest segments go first: a crash leaves no gap.
    let indexes = inventory.indexes.keys().filter(|(_, last)| *last >= oldest);
    let indexes = indexes.map(|(first, last)| FileName::Index(*first, *last));
    for name in indexes.chain(behind.into_values().rev().flatten()) {
        fs::remove_file(name.path_in(directory)).map_err(cannot)?;
    }
    sync_directory_of(&FileName::Log(oldest).path_in(directory)).map_err(cannot)
}

/// The connections that a live archive has from behind the save point.
pub(super) struct Recorded {
    /// By the numbers that their lines have.
    connections: Remembered,
}

impl Recorded {
    /// The connections in segments from that of the save point on, and those that it has itself. Damaged segments give
    /// what can be read of them.
    pub(super) fn of(directory: &Path, point: &SavePoint) -> Result<Self> {
        let cannot = |error: io::Error| Error::new("cannot read the archive").in_file(directory).because(error);
        let inventory = Inventory::of(directory).map_err(cannot)?;
        let mut recorded = Recorded { connections: Remembered::default() };
        point.unmet.iter().for_each(|number| recorded.connections.remember(*number));
        for number in inventory.segments.range(point.segment..).rev().map(|(number, _)| *number) {
            let path = FileName::Segment(number).path_in(directory);
            let end = Segment::open(&path, number).ok().map(|segment| segment.trailer().filters_offset);
            scan_file(&path, number, end, |block| block.iter().for_each(|entry| recorded.remember(entry)))?;
        }
        recorded.connections.sort();
        Ok(recorded)
    }

    fn remember(&mut self, entry: &Entry) {
        if entry.fate != Fate::Open {
            self.connections.remember(ArchivedFlow::from(entry).id());
        }
    }

    /// How many there are beyond those that are remembered.
    pub(super) fn surplus_count(&self) -> u64 {
        self.connections.surplus_count
    }

    /// Whether the archive has this connection, which has ended once more. Each is met once.
    pub(super) fn meets(&mut self, entry: &Entry) -> bool {
        self.connections.meets(ArchivedFlow::from(entry).id())
    }
}

#[cfg(test)]
mod tests;
