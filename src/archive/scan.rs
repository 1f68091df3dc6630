//! A file of blocks -> the entries that can be read of it, whatever became of it.
//!
//! What enters: a segment, a log, or what is left of one. What leaves: the entries of every whole block, and where the file is
//! damaged. Behind damage the next block is looked for, so that a flipped bit costs one block and no more.

use crate::archive::Entry;
use crate::archive::block::{self, HEADER_SIZE, Header};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// The size of what every file begins with.
pub(super) const FILE_HEADER_SIZE: u64 = 16;
const MAGIC: [u8; 8] = *b"FPARCHV1";

/// Bytes that are looked through at once for the next block.
const SEARCH_SIZE: usize = 1 << 16;

/// What a file of this number begins with.
pub(super) fn file_header(number: u32) -> [u8; FILE_HEADER_SIZE as usize] {
    let mut header = [0; FILE_HEADER_SIZE as usize];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&number.to_le_bytes());
    let checksum = crc32fast::hash(&header[..12]);
    header[12..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// What reading a file came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Entries read.
    pub(super) entry_count: u64,
    /// Where the last whole block ends.
    pub(super) whole_end: u64,
    /// Where the first damage is that whole blocks follow.
    pub(super) damage: Option<u64>,
    /// Bytes behind the last whole block: of a log the tail that was not finished, else damage.
    pub(super) tail_size: u64,
}

impl Scan {
    /// The damage in a file that should be whole.
    pub(super) fn damage_in(&self, path: &Path) -> Option<Error> {
        let at = self.damage.or((self.tail_size > 0).then_some(self.whole_end))?;
        Some(damaged(path).at(at))
    }
}

fn damaged(path: &Path) -> Error {
    Error::new("the archive is damaged here; what can be read of the file is used").in_file(path)
}

/// Reads all blocks of a file up to `end`, or to its end, and gives the entries of each to `visit`.
///
/// # Errors
///
/// The file can not be read. Damage is no error, but told in what is returned.
pub(super) fn scan(file: &File, number: u32, end: Option<u64>, mut visit: impl FnMut(Vec<Entry>)) -> io::Result<Scan> {
    let size = file.metadata()?.len();
    let end = end.unwrap_or(size).min(size);
    let mut source = Source { reader: BufReader::with_capacity(SEARCH_SIZE, file), end };
    let mut scan = Scan { whole_end: FILE_HEADER_SIZE.min(end), ..Scan::default() };
    let mut at = FILE_HEADER_SIZE;
    let mut head = [0; FILE_HEADER_SIZE as usize];
    let mut bad = (!source.read_at(0, &mut head)? || head != file_header(number)).then_some(0);
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

/// Reads a file that should be there and whole, and names what is wrong with it.
///
/// # Errors
///
/// It can not be read.
pub(super) fn scan_file(path: &Path, number: u32, end: Option<u64>, visit: impl FnMut(Vec<Entry>)) -> Result<Scan> {
    let cannot = |error: io::Error| Error::new("can not read the archive").in_file(path).because(error);
    let file = File::open(path).map_err(cannot)?;
    scan(&file, number, end, visit).map_err(cannot)
}

struct Source<'a> {
    reader: BufReader<&'a File>,
    end: u64,
}

impl Source<'_> {
    /// Fills `bytes` from this place; whether the file goes on for so long.
    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<bool> {
        if at.saturating_add(bytes.len() as u64) > self.end {
            return Ok(false);
        }
        let present = self.reader.stream_position()?;
        // Within the buffer this asks for nothing.
        self.reader.seek_relative(at.wrapping_sub(present) as i64)?;
        match self.reader.read_exact(bytes) {
            Ok(()) => Ok(true),
            // Somebody cut it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The block at this place, if it is whole, and where it ends.
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

    /// The next place from here at which a block may begin.
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
            let mut bytes = file_header(5).to_vec();
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
            // A flip in the file's header costs no block; one in a block costs that one.
            let others = blocks.iter().enumerate().filter(|(index, _)| index + 1 != hit);
            let left: Vec<_> = others.flat_map(|(_, block)| block.clone()).collect();
            prop_assert_eq!(entries, left);
            prop_assert!(damaged.damage_in(Path::new("x")).is_some());
        }
    }
}
