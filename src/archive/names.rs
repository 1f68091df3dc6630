//! The files of an archive: what each is, by its name.
//!
//! It takes names found in a directory and gives the files of the archive, oldest first. Names that are not exactly
//! ours are ignored, since files with our names may be removed.

use crate::archive::index::group_of;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the list of open connections.
pub(super) const OPEN_LIST: &str = "open.fpa";

/// The name of the file that names the newest segment or log.
pub(super) const NEWEST: &str = "newest";

/// What a file of an archive is. Segments are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileName {
    /// A sealed segment.
    Segment(u32),
    /// The log of a segment that is being filled.
    Log(u32),
    /// The index of a group, from its first segment to its last.
    Index(u32, u32),
}

impl FileName {
    /// What this name says, if it is one of ours.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let number = |digits: &str| {
            let is_number = digits.len() == 10 && digits.bytes().all(|digit| digit.is_ascii_digit());
            is_number.then(|| digits.parse().ok().filter(|number| *number > 0)).flatten()
        };
        if let Some(stem) = name.strip_prefix("segment-") {
            let (digits, kind) = stem.split_once('.')?;
            return match kind {
                "fpa" => number(digits).map(FileName::Segment),
                "log" => number(digits).map(FileName::Log),
                _ => None,
            };
        }
        let (first, last) = name.strip_prefix("index-")?.strip_suffix(".bfield")?.split_once('-')?;
        let group = (number(first)?, number(last)?);
        (group == group_of(group.0)).then_some(FileName::Index(group.0, group.1))
    }

    /// The number of the segment; of an index that of its first.
    pub(super) fn number(self) -> u32 {
        match self {
            FileName::Segment(number) | FileName::Log(number) | FileName::Index(number, _) => number,
        }
    }

    /// The path of the file in an archive.
    pub(super) fn path_in(self, directory: &Path) -> PathBuf {
        directory.join(self.to_string())
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Segment(number) => write!(f, "segment-{number:010}.fpa"),
            FileName::Log(number) => write!(f, "segment-{number:010}.log"),
            FileName::Index(first, last) => write!(f, "index-{first:010}-{last:010}.bfield"),
        }
    }
}

/// The files of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    /// The segments, each with its size in bytes.
    pub(super) segments: BTreeMap<u32, u64>,
    /// The logs of segments that do not exist yet.
    pub(super) logs: BTreeSet<u32>,
    /// The logs of segments that do exist: a process ended between writing the one and removing the other.
    pub(super) stale_logs: BTreeSet<u32>,
    /// The indexes, by first and last segment, each with its size in bytes.
    pub(super) indexes: BTreeMap<(u32, u32), u64>,
    pub(super) has_open_list: bool,
}

impl Inventory {
    /// Looks through a directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let mut inventory = Inventory::default();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            inventory.has_open_list |= name == OPEN_LIST;
            // A file that has gone away meanwhile has no size.
            let size = || entry.metadata().map_or(0, |metadata| metadata.len());
            match FileName::parse(name) {
                Some(FileName::Segment(number)) => drop(inventory.segments.insert(number, size())),
                Some(FileName::Log(number)) => drop(inventory.logs.insert(number)),
                Some(FileName::Index(first, last)) => drop(inventory.indexes.insert((first, last), size())),
                None => {}
            }
        }
        inventory.stale_logs =
            inventory.logs.iter().copied().filter(|log| inventory.segments.contains_key(log)).collect();
        inventory.logs.retain(|log| !inventory.segments.contains_key(log));
        Ok(inventory)
    }

    /// The highest number that was given.
    pub(super) fn last_number(&self) -> u32 {
        let segment = self.segments.last_key_value().map_or(0, |(number, _)| *number);
        let index = self.indexes.keys().map(|(_, last)| *last).max().unwrap_or(0);
        segment.max(index).max(self.logs.last().copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_say_nothing() {
        for name in [FileName::Segment(1), FileName::Log(4_000_000_000), FileName::Index(33, 64)] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
        for name in [
            "segment-1.fpa",
            "segment-0000000000.fpa",
            "segment-9999999999.fpa",
            "segment-+000000001.fpa",
            "segment-0000000001.fpa.bak",
            "segment-0000000001",
            "index-0000000001.bfield",
            "index-0000000001-0000000032.old",
            "index-0000000001-4294967295.bfield",
            "open.fpa",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_log_whose_segment_is_there_is_stale() {
        let place = tempfile::tempdir().unwrap();
        for name in
            ["segment-0000000003.fpa", "segment-0000000003.log", "segment-0000000004.log", "notes.txt", OPEN_LIST]
        {
            std::fs::write(place.path().join(name), "x").unwrap();
        }
        let inventory = Inventory::of(place.path()).unwrap();
        assert_eq!(inventory.segments, BTreeMap::from([(3, 1)]));
        assert_eq!((inventory.logs.clone(), inventory.stale_logs.clone()), ([4].into(), [3].into()));
        assert!(inventory.has_open_list);
        assert_eq!(inventory.last_number(), 4);
    }
}
