//! A file of blocks -> all entries that can be read, however damaged it is.
//!
//! It takes a segment, a log, or what is left of one, and gives the entries of every whole block, and where the file is
//! damaged. After damage the next block is searched for, so that a flipped bit costs one block only.

use crate::archive::Entry;
use crate::archive::block::{self, HEADER_SIZE, Header};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// The size of the header of every file, in bytes.
pub(super) const FILE_HEADER_SIZE: u64 = 24;
const MAGIC: [u8; 8] = *b"FPARCHV2";

/// How many bytes are searched at once for the next block.
const SEARCH_SIZE: usize = 1 << 16;

/// What the header of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    /// The number of the segment; 0 of the list of open connections.
    pub(super) number: u32,
    /// The number of the run that wrote it, if that saves its state; otherwise 0.
    pub(super) run: u64,
}

impl FileId {
    /// The header of the file.
    pub(super) fn header(self) -> [u8; FILE_HEADER_SIZE as usize] {
        let mut header = [0; FILE_HEADER_SIZE as usize];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&self.number.to_le_bytes());
        header[12..20].copy_from_slice(&self.run.to_le_bytes());
        let checksum = crc32fast::hash(&header[..20]);
        header[20..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// What this header says; `None` if it is damaged.
    fn decode(header: &[u8; FILE_HEADER_SIZE as usize]) -> Option<Self> {
        let number = u32::from_le_bytes(header[8..12].try_into().ok()?);
        let id = FileId { number, run: u64::from_le_bytes(header[12..20].try_into().ok()?) };
        (id.header() == *header).then_some(id)
    }

    /// What the header of this file says; `None` if it is damaged or cut short.
    pub(super) fn of(path: &Path) -> io::Result<Option<Self>> {
        let mut header = [0; FILE_HEADER_SIZE as usize];
        match File::open(path)?.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| FileId::decode(&header)),
        }
    }
}

/// The result of reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// How many entries were read.
    pub(super) entry_count: u64,
    /// The offset at which the last whole block ends.
    pub(super) whole_end: u64,
    /// The offset of the first damage that is followed by a whole block.
    pub(super) damage: Option<u64>,
    /// How many bytes follow the last whole block: in a log the unfinished tail, otherwise damage.
    pub(super) tail_size: u64,
}

impl Scan {
    /// The first damage in a file that should be whole.
    pub(super) fn damage_in(&self, path: &Path) -> Option<Error> {
        let at = self.damage.or((self.tail_size > 0).then_some(self.whole_end))?;
        Some(damaged(path).at(at))
    }
}

fn damaged(path: &Path) -> Error {
    Error::new("the archive is damaged here; what can be read of the file is used").in_file(path)
}

/// Reads all blocks of a file up to `end`, or to the end of the file, and passes the entries of each to `visit`.
///
/// # Errors
///
/// The file cannot be read. Damage is not an error: it is part of the result.
pub(super) fn scan(file: &File, number: u32, end: Option<u64>, mut visit: impl FnMut(Vec<Entry>)) -> io::Result<Scan> {
    let size = file.metadata()?.len();
    let end = end.unwrap_or(size).min(size);
    let mut source = Source { reader: BufReader::with_capacity(SEARCH_SIZE, file), end };
    let mut scan = Scan { whole_end: FILE_HEADER_SIZE.min(end), ..Scan::default() };
    let mut at = FILE_HEADER_SIZE;
    let mut head = [0; FILE_HEADER_SIZE as usize];
    let is_whole = source.read_at(0, &mut head)? && FileId::decode(&head).is_some_and(|id| id.number == number);
    let mut bad = (!is_whole).then_some(0);
    if bad.is_some() {
        scan.whole_end = 0;
    }
    while at < end {
        if let Some((entries, next)) = source.block(at, number)? {
            scan.damage = scan.damage.or(bad.take());
            scan.entry_count += entries.len() as u64;
            scan.whole_end = next;
            at = next;
            visit(entries);
        } else {
            bad = bad.or(Some(at));
            match source.search(at + 1, number)? {
                Some(next) => at = next,
                None => break,
            }
        }
    }
    scan.tail_size = end - scan.whole_end.min(end);
    Ok(scan)
}

/// Opens a file and reads all its blocks, as [`scan`] does.
///
/// # Errors
///
/// The file cannot be read.
pub(super) fn scan_file(path: &Path, number: u32, end: Option<u64>, visit: impl FnMut(Vec<Entry>)) -> Result<Scan> {
    let cannot = |error: io::Error| Error::new("cannot read the archive").in_file(path).because(error);
    let file = File::open(path).map_err(cannot)?;
    scan(&file, number, end, visit).map_err(cannot)
}

struct Source<'a> {
    reader: BufReader<&'a File>,
    end: u64,
}

impl Source<'_> {
    /// Fills `bytes` from this offset. Returns whether the file is long enough.
    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<bool> {
        if at.saturating_add(bytes.len() as u64) > self.end {
            return Ok(false);
        }
        let present = self.reader.stream_position()?;
        // Within the buffer this makes no system call.
        self.reader.seek_relative(at.wrapping_sub(present) as i64)?;
        match self.reader.read_exact(bytes) {
            Ok(()) => Ok(true),
            // The file was cut meanwhile.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The block at this offset, if it is whole, and the offset of its end.
    fn block(&mut self, at: u64, number: u32) -> io::Result<Option<(Vec<Entry>, u64)>> {
        let mut head = [0; HEADER_SIZE];
        if !self.read_at(at, &mut head)? {
            return Ok(None);
        }
        let Some(header) = Header::read(&head, number) else { return Ok(None) };
        let mut stored = vec![0; header.stored_size];
        if !self.read_at(at + HEADER_SIZE as u64, &mut stored)? {
            return Ok(None);
        }
        let next = at + (HEADER_SIZE + header.stored_size) as u64;
        Ok(block::decode(&header, &head, &stored).map(|entries| (entries, next)))
    }

    /// The next offset, from this one, at which a block may begin.
    fn search(&mut self, mut at: u64, number: u32) -> io::Result<Option<u64>> {
        let mut bytes = vec![0; SEARCH_SIZE];
        while at + HEADER_SIZE as u64 <= self.end {
            let count = usize::try_from(self.end - at).unwrap_or(SEARCH_SIZE).min(SEARCH_SIZE);
            if !self.read_at(at, &mut bytes[..count])? {
                return Ok(None);
            }
            let found = bytes[..count].windows(HEADER_SIZE).position(|window| Header::read(window, number).is_some());
            if let Some(found) = found {
                return Ok(Some(at + found as u64));
            }
            at += (count - (HEADER_SIZE - 1)) as u64;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::block::tests::some_entry;
    use proptest::prelude::*;
    use std::io::Write;

    fn scanned(bytes: &[u8]) -> (Scan, Vec<Entry>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        let mut entries = Vec::new();
        let scan = scan(&file, 5, None, |block| entries.extend(block)).unwrap();
        (scan, entries)
    }

    proptest! {
        #[test]
        fn damage_costs_one_block_and_a_cut_the_tail(
            blocks in prop::collection::vec(prop::collection::vec(some_entry(), 1..12), 1..6),
            at: prop::sample::Index,
            bit in 0u32..8,
        ) {
            let mut bytes = FileId { number: 5, run: 9 }.header().to_vec();
            let mut ends = vec![bytes.len()];
            for block in &blocks {
                block::encode(block, 5, &mut bytes).unwrap();
                ends.push(bytes.len());
            }
            let (whole, entries) = scanned(&bytes);
            prop_assert_eq!(entries, blocks.concat());
            prop_assert_eq!((whole.damage, whole.tail_size, whole.whole_end), (None, 0, bytes.len() as u64));

            let cut = at.index(bytes.len());
            let (short, entries) = scanned(&bytes[..cut]);
            let kept = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
            prop_assert_eq!(entries, blocks[..kept].concat());
            prop_assert_eq!(short.damage, None);
            prop_assert_eq!(short.whole_end + short.tail_size, cut as u64);

            let hit = ends.iter().position(|end| cut < *end).unwrap();
            bytes[cut] ^= 1 << bit;
            let (damaged, entries) = scanned(&bytes);
            // A flipped bit in the file's header costs no block; one in a block costs that block.
            let others = blocks.iter().enumerate().filter(|(index, _)| index + 1 != hit);
            let left: Vec<_> = others.flat_map(|(_, block)| block.clone()).collect();
            prop_assert_eq!(entries, left);
            prop_assert!(damaged.damage_in(Path::new("x")).is_some());
        }
    }
}
