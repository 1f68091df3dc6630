//! The file that names the newest part of an archive, so that its loss shows.
//!
//! It takes what a writer has created last and gives a small file, and from that file and the files that are there,
//! what is missing. A gap among the segments shows by itself; behind the last nothing does. The file never names what
//! does not exist: it is written after what it names was created, and before that is removed. It may name less.
//!
//! | bytes | what they are |
//! |---|---|
//! | 8 | `FPARCNEW` |
//! | 4 | the highest number that was given to a segment; 0 if none was |
//! | 4 | bit 0: there is that segment, or its log; bit 1: there is a list of open connections |
//! | 8 | the number of the run that wrote this, if it saves its state, else 0 |
//! | 4 | CRC-32 of all this |

use crate::archive::names::{FileName, Inventory, NEWEST, OPEN_LIST};
use crate::archive::segment::TEMPORARY;
use crate::disk::whole_file::NewFile;
use crate::error::{Error, Result};
use std::io::{self, Write};
use std::path::Path;
use std::{fs, iter};

const MAGIC: [u8; 8] = *b"FPARCNEW";
const NEWEST_SIZE: usize = 28;

/// How often the file and the directory are compared before something is said to be missing: a writer may change both
/// in between.
const NEWEST_READS_MAX: usize = 3;

/// What the newest part of an archive is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Newest {
    /// The highest number that was given to a segment or log, of those that were not taken back.
    pub(super) number: u32,
    /// Whether there is a file of this number. There is none when all that is older has expired and what was newer was
    /// taken back.
    pub(super) is_there: bool,
    /// Whether there is a list of open connections.
    pub(super) has_open_list: bool,
    /// The number of the run that wrote this, if it saves its state; otherwise 0.
    pub(super) run: u64,
}

impl Newest {
    /// What the file in this archive says; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is damaged.
    pub(super) fn of(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(NEWEST);
        let size = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata.map(|metadata| metadata.len()),
        };
        let cannot = |error: io::Error| Error::new("cannot read the archive").in_file(&path).because(error);
        let is_whole = size.map_err(cannot)? == NEWEST_SIZE as u64;
        let bytes = if is_whole { fs::read(&path).map_err(cannot)? } else { Vec::new() };
        let newest = <&[u8; NEWEST_SIZE]>::try_from(bytes.as_slice()).ok().and_then(Newest::decode);
        let what = "this file is damaged: whether the newest segment is there is not known; the next run with \
                    --archive writes it anew";
        newest.map(Some).ok_or_else(|| Error::new(what).in_file(&path))
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    ///
    /// The file cannot be written. The one before is still there.
    pub(super) fn write(self, directory: &Path) -> Result<()> {
        let path = directory.join(NEWEST);
        let written = NewFile::begin(&path, &TEMPORARY).and_then(|file| {
            file.file().write_all(&self.encode())?;
            file.finish()
        });
        written.map(drop).map_err(|error| Error::new("cannot write to the archive").in_file(&path).because(error))
    }

    fn encode(self) -> [u8; NEWEST_SIZE] {
        let mut bytes = [0; NEWEST_SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        let flags = u32::from(self.is_there) | u32::from(self.has_open_list) << 1;
        bytes[12..16].copy_from_slice(&flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.run.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..24]);
        bytes[24..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; NEWEST_SIZE]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let run = u64::from_le_bytes(bytes[16..24].try_into().ok()?);
        let flags = word(12)?;
        let (is_there, has_open_list) = (flags & 1 != 0, flags & 2 != 0);
        let newest = Newest { number: word(8)?, is_there, has_open_list, run };
        (newest.encode() == *bytes).then_some(newest)
    }

    /// What this names and the archive does not have.
    fn missing(self, directory: &Path, inventory: &Inventory) -> Vec<Error> {
        let last = inventory.segments.keys().chain(&inventory.logs).copied().max();
        let segments = match last {
            _ if !self.is_there || self.number <= last.unwrap_or(0) => None,
            Some(last) => Some(gap(directory, last.saturating_add(1), self.number - last)),
            None => {
                let path = FileName::Segment(self.number).path_in(directory);
                Some(Error::new("the newest segment is missing, and there is none before it").in_file(path))
            }
        };
        let list = (self.has_open_list && !inventory.has_open_list)
            .then(|| Error::new("the list of the open connections is missing").in_file(directory.join(OPEN_LIST)));
        segments.into_iter().chain(list).collect()
    }
}

/// That `count` segments are missing, from this one on.
pub(super) fn gap(directory: &Path, first: u32, count: u32) -> Error {
    let what = match count {
        1 => "this segment is missing".to_owned(),
        count => format!("this segment is missing, and {} after it", count - 1),
    };
    Error::new(what).in_file(FileName::Segment(first).path_in(directory))
}

/// What is missing of the newest part of an archive, which may be written to meanwhile; and whether there is an
/// archive.
///
/// # Errors
///
/// The directory cannot be read.
pub(super) fn loss(directory: &Path) -> io::Result<(Vec<Error>, bool)> {
    let mut found = (Vec::new(), false);
    for _ in 0..NEWEST_READS_MAX {
        // First the file: what it names is there until the file says otherwise.
        let newest = Newest::of(directory);
        let inventory = Inventory::of(directory)?;
        let is_archive = inventory.has_open_list || inventory.last_number() > 0 || !matches!(newest, Ok(None));
        let missing = match newest {
            Ok(Some(newest)) => newest.missing(directory, &inventory),
            Ok(None) if is_archive => iter::once(unnamed(directory)).collect(),
            Ok(None) => Vec::new(),
            Err(error) => vec![error],
        };
        found = (missing, is_archive);
        if found.0.is_empty() {
            break;
        }
    }
    Ok(found)
}

fn unnamed(directory: &Path) -> Error {
    let what = "this file is missing, which names the newest segment: whether that is there is not known; the next run \
                with --archive writes it anew";
    Error::new(what).in_file(directory.join(NEWEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(directory: &Path) -> Vec<String> {
        loss(directory).unwrap().0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn it_comes_back_and_damage_shows() {
        let place = tempfile::tempdir().unwrap();
        assert!(Newest::of(place.path()).unwrap().is_none());
        let newest = Newest { number: 7, is_there: true, has_open_list: true, run: 9 };
        newest.write(place.path()).unwrap();
        assert_eq!(Newest::of(place.path()).unwrap(), Some(newest));
        let path = place.path().join(NEWEST);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(said(place.path())[0].contains("newest: this file is damaged"));
            fs::write(&path, &whole[..at]).unwrap();
            assert!(Newest::of(place.path()).is_err());
        }
    }

    #[test]
    fn what_it_names_and_is_not_there_is_missing() {
        let place = tempfile::tempdir().unwrap();
        assert!(!loss(place.path()).unwrap().1, "an empty directory is no archive");
        fs::write(FileName::Segment(3).path_in(place.path()), "").unwrap();
        assert!(said(place.path())[0].contains("newest: this file is missing"));
        let newest = |number, has_open_list| {
            Newest { number, is_there: number > 0, has_open_list, run: 0 }.write(place.path()).unwrap();
        };
        for number in 0..=3 {
            newest(number, false);
            assert!(said(place.path()).is_empty());
        }
        newest(6, true);
        let missing = said(place.path());
        assert!(missing[0].ends_with("segment-0000000004.fpa: this segment is missing, and 2 after it"), "{missing:?}");
        assert!(missing[1].ends_with("open.fpa: the list of the open connections is missing"), "{missing:?}");
        fs::write(FileName::Log(6).path_in(place.path()), "").unwrap();
        fs::write(place.path().join(OPEN_LIST), "").unwrap();
        assert!(said(place.path()).is_empty());
        fs::remove_file(FileName::Log(6).path_in(place.path())).unwrap();
        fs::remove_file(FileName::Segment(3).path_in(place.path())).unwrap();
        assert!(said(place.path())[0].ends_with("the newest segment is missing, and there is none before it"));
        Newest { number: 6, is_there: false, has_open_list: true, run: 0 }.write(place.path()).unwrap();
        assert!(said(place.path()).is_empty(), "its writer took it back");
    }
}
