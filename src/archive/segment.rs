//! Sealed segments: sorted entries, and filters that show what may be among them without reading them.
//!
//! It takes the entries of a segment and gives a file that is written whole or not at all; and from such a file whether
//! it may hold a connection or an address, from one page of it.
//!
//! | part | what it is |
//! |---|---|
//! | 24 bytes | `FPARCHV2`, the number, the number of the run if it saves its state, CRC-32 of all this |
//! | blocks | see [`block`] |
//! | pages | the filter of connections, then that of addresses, see [`filter`] |
//! | 64 bytes | the trailer: where all this is |

use crate::archive::block::ARCHIVE_BLOCK_ENTRIES_MAX;
use crate::archive::entry::Hasher;
use crate::archive::filter::{ADDRESSES, CONNECTIONS, PAGE_SIZE, Place, Shape};
use crate::archive::scan::{self, FileId};
use crate::archive::{Entry, Fate, block, filter};
use crate::disk::whole_file::{NewFile, Temporary};
use crate::error::{Error, Result};
use crate::signal::TICK_NS;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The default size at which a segment is sealed, in bytes: some 80,000 connections, which are read in some
/// milliseconds.
pub(super) const SEGMENT_SIZE_DEFAULT: u64 = 1 << 20;

/// The smallest segment that can be asked for, in bytes: smaller ones are mostly filters.
pub const SEGMENT_SIZE_MIN: u64 = 1 << 14;

/// The largest segment that can be asked for, in bytes: until it is sealed its entries stand in memory, where they take
/// six times as much.
pub const SEGMENT_SIZE_MAX: u64 = 64 << 20;

/// The fewest bytes that an entry is reckoned to take in a segment: this bounds the entries of one segment.
pub(super) const SEGMENT_ENTRY_SIZE_MIN: u64 = 8;

const _: () = assert!(SEGMENT_SIZE_MIN <= SEGMENT_SIZE_DEFAULT && SEGMENT_SIZE_DEFAULT <= SEGMENT_SIZE_MAX);

/// The mode of an archive's files, which keeps others from reading: they show who talked to whom.
pub(super) const FILE_MODE: u32 = 0o640;

/// How a file is called until it is whole.
pub(super) const TEMPORARY: Temporary = Temporary { prefix: ".archive-", suffix: ".tmp", mode: FILE_MODE };

const TICKS_PER_SECOND: i64 = 1_000_000_000 / TICK_NS;

const TRAILER_SIZE: usize = 64;
const TRAILER_MAGIC: [u8; 8] = *b"FPARCEND";

/// The trailer at the end of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) entry_count: u64,
    /// The earliest and the latest end, in ticks.
    pub(super) end_min: i64,
    pub(super) end_max: i64,
    /// By how much the earliest start is before the earliest end, in seconds, rounded up; `None` if that is not known.
    start_before_s: Option<u32>,
    /// How many entries are of open connections; `None` if that is not known.
    open_count: Option<u32>,
    /// The offset at which the blocks end and the filters begin.
    pub(super) filters_offset: u64,
    /// The number of pages of each filter. Zero means that there is no filter, and anything may be inside.
    connection_page_count: u32,
    address_page_count: u32,
}

impl Trailer {
    fn encode(&self, number: u32) -> [u8; TRAILER_SIZE] {
        let mut bytes = [0; TRAILER_SIZE];
        bytes[..8].copy_from_slice(&TRAILER_MAGIC);
        bytes[8..12].copy_from_slice(&number.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.connection_page_count.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.address_page_count.to_le_bytes());
        // What is not known is 0 there, as it is in segments that were written before it was.
        let known = |value: Option<u32>| value.and_then(|value| value.checked_add(1)).unwrap_or(0).to_le_bytes();
        bytes[20..24].copy_from_slice(&known(self.open_count));
        bytes[24..32].copy_from_slice(&self.entry_count.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.end_min.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.end_max.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.filters_offset.to_le_bytes());
        bytes[56..60].copy_from_slice(&known(self.start_before_s));
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The trailer in these bytes, if it belongs to this segment and to a file of this size.
    fn decode(bytes: &[u8; TRAILER_SIZE], number: u32, file_size: u64) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if bytes[..8] != TRAILER_MAGIC || word(8)? != number || word(60)? != crc32fast::hash(&bytes[..60]) {
            return None;
        }
        let trailer = Trailer {
            connection_page_count: word(12)?,
            address_page_count: word(16)?,
            open_count: word(20)?.checked_sub(1),
            start_before_s: word(56)?.checked_sub(1),
            entry_count: long(24)?,
            end_min: long(32)? as i64,
            end_max: long(40)? as i64,
            filters_offset: long(48)?,
        };
        let size = trailer.filters_offset.checked_add(trailer.filters_size())?.checked_add(TRAILER_SIZE as u64)?;
        (size == file_size).then_some(trailer)
    }

    /// A time before which nothing in it has started, in ticks; the least number if none is known.
    pub(super) fn start_min(&self) -> i64 {
        let before = self.start_before_s.map(|before_s| i64::from(before_s) * TICKS_PER_SECOND);
        before.map_or(i64::MIN, |before| self.end_min.saturating_sub(before))
    }

    /// Whether all entries are of connections that have ended.
    pub(super) fn has_no_open(&self) -> bool {
        self.open_count == Some(0)
    }

    /// Whether all entries are of connections that were open.
    pub(super) fn is_all_open(&self) -> bool {
        self.open_count.is_some_and(|count| u64::from(count) == self.entry_count)
    }

    fn connection_pages(&self) -> Pages {
        Pages { shape: CONNECTIONS, first: 0, count: self.connection_page_count }
    }

    fn address_pages(&self) -> Pages {
        Pages { shape: ADDRESSES, first: u64::from(self.connection_page_count), count: self.address_page_count }
    }

    fn filters_size(&self) -> u64 {
        (u64::from(self.connection_page_count) + u64::from(self.address_page_count)) * PAGE_SIZE as u64
    }
}

/// The pages of one filter among all pages of a segment.
struct Pages {
    shape: Shape,
    first: u64,
    count: u32,
}

/// A segment that is being written block by block without filters, for more entries than can be held.
pub(super) struct BlockFile {
    file: NewFile,
    id: FileId,
    trailer: Trailer,
    start_min: i64,
    open_count: u64,
    bytes: Vec<u8>,
}

impl BlockFile {
    pub(super) fn new(path: &Path, id: FileId) -> io::Result<Self> {
        let file = NewFile::begin(path, &TEMPORARY)?;
        let header = id.header();
        file.file().write_all(&header)?;
        let trailer =
            Trailer { end_min: i64::MAX, end_max: i64::MIN, filters_offset: header.len() as u64, ..Trailer::default() };
        Ok(BlockFile { file, id, trailer, start_min: i64::MAX, open_count: 0, bytes: Vec::new() })
    }

    pub(super) fn add(&mut self, entries: &[Entry]) -> io::Result<()> {
        for block in entries.chunks(ARCHIVE_BLOCK_ENTRIES_MAX) {
            self.bytes.clear();
            block::encode(block, self.id.number, &mut self.bytes)?;
            self.file.file().write_all(&self.bytes)?;
            let trailer = &mut self.trailer;
            trailer.filters_offset += self.bytes.len() as u64;
            trailer.entry_count += block.len() as u64;
            trailer.end_min = block.iter().map(|entry| entry.end).fold(trailer.end_min, i64::min);
            trailer.end_max = block.iter().map(|entry| entry.end).fold(trailer.end_max, i64::max);
            self.start_min = block.iter().map(|entry| entry.start).fold(self.start_min, i64::min);
            self.open_count += block.iter().filter(|entry| entry.fate == Fate::Open).count() as u64;
        }
        Ok(())
    }

    /// Gives the file its name. Returns its trailer, and its size in bytes.
    pub(super) fn finish(mut self) -> io::Result<(Trailer, u64)> {
        let before = self.trailer.end_min.saturating_sub(self.start_min).max(0);
        self.trailer.start_before_s = u32::try_from(before.unsigned_abs().div_ceil(TICKS_PER_SECOND as u64)).ok();
        self.trailer.open_count = u32::try_from(self.open_count).ok();
        self.file.file().write_all(&self.trailer.encode(self.id.number))?;
        Ok((self.trailer, self.file.finish()?))
    }
}

/// Writes the segment of these sorted entries. Returns its trailer, and its size in bytes.
pub(super) fn write(path: &Path, id: FileId, entries: &[Entry], hasher: &Hasher) -> io::Result<(Trailer, u64)> {
    let mut file = BlockFile::new(path, id)?;
    file.add(entries)?;
    let mut connections: Vec<u128> = entries.iter().map(|entry| hasher.connection(&entry.key)).collect();
    connections.sort_unstable();
    connections.dedup();
    let mut addresses: Vec<_> = entries.iter().flat_map(|entry| [entry.client().ip(), entry.server().ip()]).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let addresses: Vec<u128> = addresses.into_iter().map(|address| hasher.address(address)).collect();
    for (shape, hashes) in [(CONNECTIONS, connections), (ADDRESSES, addresses)] {
        file.file.file().write_all(&shape.pages(id.number, &hashes))?;
        let page_count = shape.page_count(hashes.len());
        *(if shape == CONNECTIONS {
            &mut file.trailer.connection_page_count
        } else {
            &mut file.trailer.address_page_count
        }) = page_count;
    }
    file.finish()
}

/// A sealed segment that is open for reading.
pub(super) struct Segment {
    file: File,
    path: PathBuf,
    number: u32,
    trailer: Trailer,
}

impl Segment {
    /// Opens a segment by its trailer.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or the trailer is damaged.
    pub(super) fn open(path: &Path, number: u32) -> Result<Self> {
        let cannot = |error: io::Error| Error::new("cannot read the archive").in_file(path).because(error);
        let mut file = File::open(path).map_err(cannot)?;
        let size = file.metadata().map_err(cannot)?.len();
        let mut bytes = [0; TRAILER_SIZE];
        let damaged = || Error::new("the end of this segment is damaged: it is read without its filters").in_file(path);
        let at = size.checked_sub(TRAILER_SIZE as u64).ok_or_else(damaged)?;
        file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes)).map_err(cannot)?;
        let trailer = Trailer::decode(&bytes, number, size).ok_or_else(|| damaged().at(at))?;
        Ok(Segment { file, path: path.to_path_buf(), number, trailer })
    }

    pub(super) fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    /// The size of its filters, in bytes.
    pub(super) fn filters_size(&self) -> u64 {
        self.trailer.filters_size()
    }

    /// Whether it may hold the connection with this hash.
    ///
    /// # Errors
    ///
    /// The page cannot be read or is damaged: then it may.
    pub(super) fn may_hold_connection(&mut self, hash: u128) -> Result<bool> {
        self.may_hold(&self.trailer.connection_pages(), hash)
    }

    /// Whether it may hold a connection of the address with this hash.
    ///
    /// # Errors
    ///
    /// The page cannot be read or is damaged: then it may.
    pub(super) fn may_hold_address(&mut self, hash: u128) -> Result<bool> {
        self.may_hold(&self.trailer.address_pages(), hash)
    }

    fn may_hold(&mut self, pages: &Pages, hash: u128) -> Result<bool> {
        if pages.count == 0 {
            return Ok(true);
        }
        let page = pages.shape.page_of(hash, pages.count);
        let at = self.trailer.filters_offset + (pages.first + u64::from(page)) * PAGE_SIZE as u64;
        let mut bytes = [0; filter::PAGE_SIZE];
        let cannot = |error: io::Error| Error::new("cannot read the archive").in_file(&self.path).at(at).because(error);
        self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.read_exact(&mut bytes)).map_err(cannot)?;
        let place = Place { number: self.number, page };
        let damaged = || Error::new("this page of a filter is damaged: the segment is read").in_file(&self.path).at(at);
        pages.shape.holds(&bytes, place, hash).ok_or_else(damaged)
    }

    /// Reads the entries, block by block. Returns the first damage, if any.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(super) fn entries(&self, visit: impl FnMut(Vec<Entry>)) -> Result<Option<Error>> {
        let cannot = |error: io::Error| Error::new("cannot read the archive").in_file(&self.path).because(error);
        let scan = scan::scan(&self.file, self.number, Some(self.trailer.filters_offset), visit).map_err(cannot)?;
        let short = (scan.entry_count != self.trailer.entry_count).then(|| {
            let what = format!("{} of {} entries are left of this segment", scan.entry_count, self.trailer.entry_count);
            Error::new(what).in_file(&self.path)
        });
        Ok(scan.damage_in(&self.path).or(short))
    }
}
