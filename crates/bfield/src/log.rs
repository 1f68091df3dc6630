//! The insertion log of a field that grows: a file that gives the pairs back in the order of their insertion, wherever
//! it was cut off, and counts what is damaged.
//!
//! A head of 32 bytes (`FPBFLOG1`, the number of values, zeros, CRC-32) is followed by records of 24 bytes: hash,
//! value, and a CRC-32 of the record's number and both.

use crate::Pair;
use crate::error::{FileError, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Records of an insertion log that are read at once.
const BFIELD_LOG_READ_COUNT: usize = 1_024;

const HEAD_SIZE: usize = 32;
const RECORD_SIZE: usize = 24;
const CHECK_SIZE: usize = 4;
const MAGIC: &[u8; 8] = b"FPBFLOG1";

/// What was found in a log when it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Pairs that were read back.
    pub pair_count: u64,
    /// Bytes that were cut off at the end, which a crash left half written.
    pub cut_size: u64,
    /// Damaged records before that, which are lost. Their keys may be reported absent, so rebuild the field.
    pub damaged_count: u64,
}

/// A log that can be written to.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    out: BufWriter<File>,
    record_count: u64,
    /// Whether a write failed: records after it would look like damage.
    has_failed: bool,
}

fn head(value_count: u64) -> [u8; HEAD_SIZE] {
    let mut head = [0; HEAD_SIZE];
    head[..8].copy_from_slice(MAGIC);
    head[8..16].copy_from_slice(&value_count.to_le_bytes());
    let check = crc32fast::hash(&head[..HEAD_SIZE - CHECK_SIZE]);
    head[HEAD_SIZE - CHECK_SIZE..].copy_from_slice(&check.to_le_bytes());
    head
}

fn record(index: u64, pair: &Pair) -> [u8; RECORD_SIZE] {
    let mut record = [0; RECORD_SIZE];
    record[..16].copy_from_slice(&pair.hash.to_le_bytes());
    record[16..20].copy_from_slice(&pair.value.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&index.to_le_bytes());
    hasher.update(&record[..RECORD_SIZE - CHECK_SIZE]);
    record[RECORD_SIZE - CHECK_SIZE..].copy_from_slice(&hasher.finalize().to_le_bytes());
    record
}

/// The pair of a record, unless the record is damaged.
fn pair_of(index: u64, bytes: &[u8]) -> Option<Pair> {
    let hash = u128::from_le_bytes(bytes.get(..16)?.try_into().ok()?);
    let value = u32::from_le_bytes(bytes.get(16..20)?.try_into().ok()?);
    let pair = Pair { hash, value };
    (record(index, &pair) == *bytes).then_some(pair)
}

impl Log {
    /// Opens a log of pairs with `value_count` values, creating it if there is none, and calls `visit` with blocks of
    /// its pairs. What a crash left half written at its end is cut off.
    ///
    /// # Errors
    ///
    /// The log cannot be read or written, is no log, or is one with other values; or `visit` fails. Nothing was changed
    /// then.
    pub(super) fn open(
        path: &Path,
        value_count: u64,
        visit: &mut dyn FnMut(&[Pair]) -> Result<()>,
    ) -> Result<(Self, Recovered)> {
        let cannot = |error: io::Error| FileError::new("cannot open the log").in_file(path).because(error);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(cannot)?;
        // A file system without locks cannot keep other processes out.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(FileError::new("another process writes this log").in_file(path));
        }
        let size = file.metadata().map_err(cannot)?.len();
        let head = head(value_count);
        let mut found = [0; HEAD_SIZE];
        let found = &mut found[..size.min(HEAD_SIZE as u64) as usize];
        file.read_exact(found).map_err(cannot)?;
        if size >= HEAD_SIZE as u64 && *found != head || !head.starts_with(&found[..found.len().min(8)]) {
            return Err(FileError::new("it is no log of this index: move it away to begin a new one").in_file(path));
        }
        let mut recovered = Recovered::default();
        let end = if size < HEAD_SIZE as u64 {
            recovered.cut_size = size;
            file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&head)).map_err(cannot)?;
            HEAD_SIZE as u64
        } else {
            let mut reader = LogReader::new(path, (size - HEAD_SIZE as u64) / RECORD_SIZE as u64)?;
            while let Some(pairs) = reader.next_pairs()? {
                recovered.pair_count += pairs.len() as u64;
                visit(pairs)?;
            }
            // What is damaged after the last good record was never finished.
            recovered.damaged_count = reader.good_end - recovered.pair_count;
            let end = HEAD_SIZE as u64 + reader.good_end * RECORD_SIZE as u64;
            recovered.cut_size = size - end;
            end
        };
        file.set_len(end)
            .and_then(|()| file.seek(SeekFrom::Start(end)))
            .and_then(|_| file.sync_all())
            .map_err(cannot)?;
        let record_count = (end - HEAD_SIZE as u64) / RECORD_SIZE as u64;
        let log = Log { path: path.to_path_buf(), out: BufWriter::new(file), record_count, has_failed: false };
        Ok((log, recovered))
    }

    /// Appends pairs. They are on disk after the next [`Self::sync`].
    pub(super) fn append(&mut self, pairs: &[Pair]) -> Result<()> {
        if self.has_failed {
            return Err(FileError::new("a write failed before: open it again").in_file(&self.path));
        }
        for pair in pairs {
            if let Err(error) = self.out.write_all(&record(self.record_count, pair)) {
                return Err(self.failed(error));
            }
            self.record_count += 1;
        }
        Ok(())
    }

    /// Hands what was appended to the system, so that readers see it.
    pub(super) fn write(&mut self) -> Result<()> {
        self.out.flush().map_err(|error| self.failed(error))
    }

    /// Writes what was appended to disk.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.write()?;
        self.out.get_ref().sync_data().map_err(|error| self.failed(error))
    }

    fn failed(&mut self, error: io::Error) -> FileError {
        self.has_failed = true;
        FileError::new("cannot write the log").in_file(&self.path).because(error)
    }

    /// A reader of everything written so far.
    pub(super) fn reader(&self) -> Result<LogReader> {
        LogReader::new(&self.path, self.record_count)
    }
}

/// Reads the records of a log from the first.
#[derive(Debug)]
pub(super) struct LogReader {
    path: PathBuf,
    file: File,
    index: u64,
    record_count: u64,
    /// The number of records up to the last good one.
    good_end: u64,
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
}

impl LogReader {
    fn new(path: &Path, record_count: u64) -> Result<Self> {
        let open = |path: &Path| {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(HEAD_SIZE as u64))?;
            Ok(file)
        };
        let file = open(path)
            .map_err(|error: io::Error| FileError::new("cannot read the log").in_file(path).because(error))?;
        let (bytes, pairs) = (Vec::new(), Vec::new());
        Ok(LogReader { path: path.to_path_buf(), file, index: 0, record_count, good_end: 0, bytes, pairs })
    }

    /// The good records among the next ones; `None` at the end.
    pub(super) fn next_pairs(&mut self) -> Result<Option<&[Pair]>> {
        let count = (self.record_count - self.index).min(BFIELD_LOG_READ_COUNT as u64);
        if count == 0 {
            return Ok(None);
        }
        self.bytes.resize(count as usize * RECORD_SIZE, 0);
        let read = self.file.read_exact(&mut self.bytes);
        read.map_err(|error| FileError::new("cannot read the log").in_file(&self.path).because(error))?;
        self.pairs.clear();
        for bytes in self.bytes.chunks_exact(RECORD_SIZE) {
            self.index += 1;
            if let Some(pair) = pair_of(self.index - 1, bytes) {
                self.pairs.push(pair);
                self.good_end = self.index;
            }
        }
        Ok(Some(&self.pairs))
    }
}
