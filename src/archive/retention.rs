//! The removal of old segments, and of indexes whose segments are all gone.
//!
//! It takes the files of an archive, and each segment as it is sealed, and gives the files that `--archive-keep` no
//! longer allows, the oldest first. The newest segment is always kept.

use crate::archive::index;
use crate::archive::names::{FileName, Inventory, NEWEST, OPEN_LIST};
use crate::archive::segment::Segment;
use crate::error::{Error, Result};
use crate::export::{KEPT_AGED_MIN, KEPT_AGED_SHARE, Keep};
use crate::signal::TICK_NS;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::{fs, io};

struct Kept {
    size: u64,
    /// When the last of its connections ended, in ticks; `None` until the segment was looked at.
    end_max: Option<i64>,
}

/// The sealed segments of an archive, and the sizes of what is beside them.
pub(super) struct Retention {
    directory: PathBuf,
    keep: Keep,
    kept: BTreeMap<u32, Kept>,
    /// The bytes of the segments.
    segments_size: u64,
    /// The indexes that were found so far, each with its size, and all their bytes.
    indexes: BTreeMap<(u32, u32), u64>,
    indexes_size: u64,
    /// The groups of segments whose index was not found yet: it is made on a thread of its own.
    unindexed: BTreeSet<(u32, u32)>,
}

/// What is removed at once.
#[derive(Clone, Copy)]
struct Surplus {
    /// When the newest ended, by which others are old; none when that is not known.
    newest_end: Option<i64>,
    /// The bytes of the logs, of the list of what is open, and of the file that names the newest.
    beside_size: u64,
    /// One in so many of the segments may go for its age.
    share: usize,
}

impl Retention {
    pub(super) fn new(directory: &Path, keep: Keep, inventory: &Inventory) -> Self {
        let kept = |(number, size): (&u32, &u64)| (*number, Kept { size: *size, end_max: None });
        let groups = inventory.segments.keys().map(|number| index::group_of(*number));
        Retention {
            directory: directory.to_path_buf(),
            keep,
            kept: inventory.segments.iter().map(kept).collect(),
            segments_size: inventory.segments.values().sum(),
            indexes: inventory.indexes.clone(),
            indexes_size: inventory.indexes.values().sum(),
            unindexed: groups.filter(|group| !inventory.indexes.contains_key(group)).collect(),
        }
    }

    /// Whether there is no segment.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Removes what is too much before anything is written, as a full disk may call for. Returns how many segments were
    /// removed. Segments that ended after `now`, in ticks, were written under a wrong clock and make no other old.
    ///
    /// # Errors
    ///
    /// A file cannot be removed.
    pub(super) fn opened(&mut self, now: i64, logs: &BTreeSet<u32>) -> Result<u64> {
        // Without an age no end is needed, and no segment has to be opened.
        let numbers: Vec<u32> = self.keep.age.iter().flat_map(|_| self.kept.keys().rev().copied()).collect();
        let newest_end = numbers.into_iter().find_map(|number| self.own_end(number).filter(|end| *end <= now));
        self.remove_surplus(Surplus { newest_end, beside_size: self.beside_size(logs.iter().copied()), share: 1 })
    }

    /// Notes a sealed segment, whose log is still there, and removes what is now too much. Returns how many segments
    /// were removed.
    ///
    /// # Errors
    ///
    /// A file cannot be removed.
    pub(super) fn sealed(&mut self, number: u32, size: u64, end_max: i64) -> Result<u64> {
        self.kept.insert(number, Kept { size, end_max: Some(end_max) });
        self.segments_size += size;
        let group = index::group_of(number);
        if !self.indexes.contains_key(&group) {
            self.unindexed.insert(group);
        }
        let beside_size = self.beside_size([number, number.saturating_add(1)]);
        self.remove_surplus(Surplus { newest_end: Some(end_max), beside_size, share: KEPT_AGED_SHARE })
    }

    fn remove_surplus(&mut self, surplus: Surplus) -> Result<u64> {
        let Surplus { newest_end, beside_size, share } = surplus;
        self.find_indexes();
        let age_ticks = self.keep.age.map(|age| i64::try_from(age.as_nanos() / TICK_NS as u128).unwrap_or(i64::MAX));
        let limit = age_ticks.zip(newest_end).map(|(age_ticks, end)| (end, end.saturating_sub(age_ticks)));
        let aged_max = (self.kept.len() / share).max(KEPT_AGED_MIN) as u64;
        let mut removed = 0;
        while self.kept.len() > 1
            && let Some((&oldest, _)) = self.kept.first_key_value()
        {
            let total_size = self.segments_size.saturating_add(self.indexes_size).saturating_add(beside_size);
            let is_surplus = self.keep.size.is_some_and(|size| total_size > size);
            let is_old = removed < aged_max
                && limit.is_some_and(|(newest, limit)| self.end_of(oldest, newest).is_some_and(|end| end < limit));
            if !is_surplus && !is_old {
                break;
            }
            self.remove(oldest)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// When the last connection of a segment ended. A damaged segment, and one that ended after the newest under a
    /// wrong clock, is taken to be as old as the next.
    fn end_of(&mut self, number: u32, newest_end: i64) -> Option<i64> {
        let mut next = Some(number);
        while let Some(number) = next {
            if let Some(end) = self.own_end(number).filter(|end| *end <= newest_end) {
                return Some(end);
            }
            next = self.kept.range((Bound::Excluded(number), Bound::Unbounded)).next().map(|(number, _)| *number);
        }
        None
    }

    /// What a segment says itself of when the last of its connections ended; nothing when it is damaged.
    fn own_end(&mut self, number: u32) -> Option<i64> {
        let kept = self.kept.get_mut(&number)?;
        if kept.end_max.is_none() {
            let path = FileName::Segment(number).path_in(&self.directory);
            kept.end_max = Segment::open(&path, number).ok().map(|segment| segment.trailer().end_max);
        }
        kept.end_max
    }

    /// Takes note of the indexes that were made since.
    fn find_indexes(&mut self) {
        if self.keep.size.is_none() {
            return;
        }
        let Retention { directory, unindexed, indexes, indexes_size, .. } = self;
        unindexed.retain(|(first, last)| {
            let size = size_of(&FileName::Index(*first, *last).path_in(directory));
            if size > 0 {
                indexes.insert((*first, *last), size);
                *indexes_size += size;
            }
            size == 0
        });
    }

    /// The bytes of these logs, of the list of what is open, and of the file that names the newest.
    fn beside_size(&self, logs: impl IntoIterator<Item = u32>) -> u64 {
        let logs = logs.into_iter().map(|number| FileName::Log(number).to_string());
        logs.chain([OPEN_LIST, NEWEST].map(str::to_owned)).map(|name| size_of(&self.directory.join(name))).sum()
    }

    fn remove(&mut self, number: u32) -> Result<()> {
        remove(&self.directory, FileName::Segment(number))?;
        if let Some(kept) = self.kept.remove(&number) {
            self.segments_size = self.segments_size.saturating_sub(kept.size);
        }
        let (first, last) = index::group_of(number);
        if self.kept.range(first..=last).next().is_some() {
            return Ok(());
        }
        self.unindexed.remove(&(first, last));
        let index_size = self.indexes.remove(&(first, last)).unwrap_or(0);
        self.indexes_size = self.indexes_size.saturating_sub(index_size);
        remove(&self.directory, FileName::Index(first, last))
    }
}

/// The size of a file; 0 of one that is not there.
fn size_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Removes a file. One that is not there was removed by somebody else.
fn remove(directory: &Path, name: FileName) -> Result<()> {
    let path = name.path_in(directory);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::new("cannot remove what is not to be kept").in_file(&path).because(error))
        }
        _ => Ok(()),
    }
}
