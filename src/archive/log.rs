//! The log of the segment that is being filled, of which a crash leaves what was flushed.
//!
//! What enters: entries as they come. What leaves: blocks one after another in a file, and after a crash the entries of
//! the whole ones.

use crate::archive::names::FileName;
use crate::archive::scan::{FILE_HEADER_SIZE, FileId, scan_file};
use crate::archive::{Entry, block, segment};
use crate::disk::whole_file::sync_directory_of;
use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// An open log.
pub(super) struct Log {
    file: File,
    path: PathBuf,
    id: FileId,
    size: u64,
    is_synced: bool,
    bytes: Vec<u8>,
}

impl Log {
    /// A new log for the segment of this number and run.
    ///
    /// # Errors
    ///
    /// The log cannot be written, or exists already.
    pub(super) fn new(directory: &Path, id: FileId) -> Result<Self> {
        let path = FileName::Log(id.number).path_in(directory);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, segment::FILE_MODE);
        let created = options.open(&path).and_then(|mut file| {
            file.write_all(&id.header())?;
            sync_directory_of(&path)?;
            Ok(file)
        });
        let file = created.map_err(|error| cannot(&path, error))?;
        Ok(Log { file, path, id, size: FILE_HEADER_SIZE, is_synced: false, bytes: Vec::new() })
    }

    /// The number and the run of the log's segment.
    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// The size of the log so far, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Appends entries as one block, from 1 to as many as a block may have.
    ///
    /// # Errors
    ///
    /// The entries cannot be written.
    pub(super) fn append(&mut self, entries: &[Entry]) -> Result<()> {
        self.bytes.clear();
        let written =
            block::encode(entries, self.id.number, &mut self.bytes).and_then(|()| self.file.write_all(&self.bytes));
        written.map_err(|error| cannot(&self.path, error))?;
        self.size += self.bytes.len() as u64;
        self.is_synced = false;
        Ok(())
    }

    /// Forces the log to the disk.
    ///
    /// # Errors
    ///
    /// The log cannot be forced to the disk.
    pub(super) fn sync(&mut self) -> Result<()> {
        if !self.is_synced {
            self.file.sync_data().map_err(|error| cannot(&self.path, error))?;
            self.is_synced = true;
        }
        Ok(())
    }

    /// Removes the log, whose entries are in a segment.
    ///
    /// # Errors
    ///
    /// The log cannot be removed.
    pub(super) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(|error| cannot(&self.path, error))
    }
}

fn cannot(path: &Path, error: std::io::Error) -> Error {
    Error::new("cannot write to the archive").in_file(path).because(error)
}

/// What was found in the log of a process that did not end properly.
#[derive(Debug)]
pub struct RecoveredLog {
    /// The path of the log.
    pub path: PathBuf,
    /// How many connections were in it.
    pub entry_count: u64,
    /// How many bytes at its end were no whole block.
    pub lost_size: u64,
    /// The first damage before that, if any.
    pub damage: Option<Error>,
}

/// Reads the entries of a log that a process left behind.
///
/// # Errors
///
/// The log cannot be read.
pub(super) fn recover(directory: &Path, number: u32) -> Result<(Vec<Entry>, RecoveredLog)> {
    let path = FileName::Log(number).path_in(directory);
    let mut entries = Vec::new();
    let scan = scan_file(&path, number, None, |block| entries.extend(block))?;
    let damage = scan.damage.map(|at| Error::new("the log is damaged here").in_file(&path).at(at));
    Ok((entries, RecoveredLog { path, entry_count: scan.entry_count, lost_size: scan.tail_size, damage }))
}
