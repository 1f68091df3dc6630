//! The removal of old segments, and of indexes whose segments are all gone.
//!
//! What enters: the files of an archive, and each segment as it is sealed. What leaves: the files that `--archive-keep`
//! no longer allows, the oldest first. The newest segment is always kept.

use crate::archive::index;
use crate::archive::names::{FileName, Inventory};
use crate::archive::segment::Segment;
use crate::config::TICK_NS;
use crate::error::{Error, Result};
use crate::export::Keep;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

struct Kept {
    size: u64,
    /// When the last of its connections ended, in ticks; `None` until the segment was looked at.
    end_max: Option<i64>,
}

/// The sealed segments of an archive.
pub(super) struct Retention {
    directory: PathBuf,
    keep: Keep,
    kept: BTreeMap<u32, Kept>,
    total_size: u64,
    newest_end: i64,
}

impl Retention {
    pub(super) fn new(directory: &Path, keep: Keep, inventory: &Inventory) -> Self {
        let kept = |(number, size): (&u32, &u64)| (*number, Kept { size: *size, end_max: None });
        Retention {
            directory: directory.to_path_buf(),
            keep,
            kept: inventory.segments.iter().map(kept).collect(),
            total_size: inventory.segments.values().sum(),
            newest_end: i64::MIN,
        }
    }

    /// Notes a sealed segment, and removes what is now too much. Returns how many segments were removed.
    ///
    /// # Errors
    ///
    /// A file cannot be removed.
    pub(super) fn sealed(&mut self, number: u32, size: u64, end_max: i64) -> Result<u64> {
        self.kept.insert(number, Kept { size, end_max: Some(end_max) });
        self.total_size += size;
        self.newest_end = self.newest_end.max(end_max);
        let age_ticks = self.keep.age.map(|age| i64::try_from(age.as_nanos() / TICK_NS as u128).unwrap_or(i64::MAX));
        let oldest_end = age_ticks.map(|age_ticks| self.newest_end.saturating_sub(age_ticks));
        let mut removed = 0;
        while self.kept.len() > 1
            && let Some((&oldest, _)) = self.kept.first_key_value()
        {
            let is_surplus = self.keep.size.is_some_and(|size| self.total_size > size);
            let is_old = oldest_end.is_some_and(|oldest_end| self.end_of(oldest).is_some_and(|end| end < oldest_end));
            if !is_surplus && !is_old {
                break;
            }
            self.remove(oldest)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// When the last connection of a segment ended. A damaged segment that cannot tell is taken to be as old as the
    /// next.
    fn end_of(&mut self, number: u32) -> Option<i64> {
        self.kept.range_mut(number..).find_map(|(number, kept)| {
            if kept.end_max.is_none() {
                let path = self.directory.join(FileName::Segment(*number).to_string());
                kept.end_max = Segment::open(&path, *number).ok().map(|segment| segment.trailer().end_max);
            }
            kept.end_max
        })
    }

    fn remove(&mut self, number: u32) -> Result<()> {
        remove(&self.directory, FileName::Segment(number))?;
        if let Some(kept) = self.kept.remove(&number) {
            self.total_size = self.total_size.saturating_sub(kept.size);
        }
        let (first, last) = index::group_of(number);
        let is_group_gone = self.kept.range(first..=last).next().is_none();
        if is_group_gone { remove(&self.directory, FileName::Index(first, last)) } else { Ok(()) }
    }
}

/// Removes a file. One that is not there was removed by somebody else.
fn remove(directory: &Path, name: FileName) -> Result<()> {
    let path = directory.join(name.to_string());
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::new("can not remove what is not to be kept").in_file(&path).because(error))
        }
        _ => Ok(()),
    }
}
