//! The log of the segment that is being filled: what a crash leaves of it is what was flushed.
//!
//! What enters: entries as they come. What leaves: blocks behind each other in one file, and after a crash the entries of those
//! that are whole.

use crate::archive::names::FileName;
use crate::archive::scan::{FILE_HEADER_SIZE, file_header, scan_file};
use crate::archive::segment;
use crate::archive::{Entry, block};
use crate::error::{Error, Result};
use crate::whole_file::sync_directory_of;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// An open log.
pub(super) struct Log {
    file: File,
    path: PathBuf,
    number: u32,
    size: u64,
    is_synced: bool,
    bytes: Vec<u8>,
}

impl Log {
    /// A new log for the segment of this number.
    ///
    /// # Errors
    ///
    /// It can not be written, or is there already.
    pub(super) fn new(directory: &Path, number: u32) -> Result<Self> {
        let path = directory.join(FileName::Log(number).to_string());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, segment::FILE_MODE);
        let created = options.open(&path).and_then(|mut file| {
            file.write_all(&file_header(number))?;
            sync_directory_of(&path)?;
            Ok(file)
        });
        let file = created.map_err(|error| cannot(&path, error))?;
        Ok(Log { file, path, number, size: FILE_HEADER_SIZE, is_synced: false, bytes: Vec::new() })
    }

    /// The number of its segment.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Its size so far.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Appends entries as a block; there are some, and not too many for one.
    ///
    /// # Errors
    ///
    /// They can not be written.
    pub(super) fn append(&mut self, entries: &[Entry]) -> Result<()> {
        self.bytes.clear();
        let written =
            block::encode(entries, self.number, &mut self.bytes).and_then(|()| self.file.write_all(&self.bytes));
        written.map_err(|error| cannot(&self.path, error))?;
        self.size += self.bytes.len() as u64;
        self.is_synced = false;
        Ok(())
    }

    /// Waits until all of it is on the disk.
    ///
    /// # Errors
    ///
    /// It is not.
    pub(super) fn sync(&mut self) -> Result<()> {
        if !self.is_synced {
            self.file.sync_data().map_err(|error| cannot(&self.path, error))?;
            self.is_synced = true;
        }
        Ok(())
    }

    /// Removes it, now that its entries are elsewhere.
    ///
    /// # Errors
    ///
    /// It can not be removed.
    pub(super) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(|error| cannot(&self.path, error))
    }
}

fn cannot(path: &Path, error: std::io::Error) -> Error {
    Error::new("can not write to the archive").in_file(path).because(error)
}

/// What was found in the log of a process that did not end as it should.
#[derive(Debug)]
pub struct RecoveredLog {
    /// The log.
    pub path: PathBuf,
    /// Connections that were in it.
    pub entry_count: u64,
    /// Bytes at its end that were no whole block any more.
    pub lost_size: u64,
    /// Where it was damaged before that.
    pub damage: Option<Error>,
}

/// The entries of a log that somebody left.
///
/// # Errors
///
/// It can not be read.
pub(super) fn recover(directory: &Path, number: u32) -> Result<(Vec<Entry>, RecoveredLog)> {
    let path = directory.join(FileName::Log(number).to_string());
    let mut entries = Vec::new();
    let scan = scan_file(&path, number, None, |block| entries.extend(block))?;
    let damage = scan.damage.map(|at| Error::new("the log is damaged here").in_file(&path).at(at));
    Ok((entries, RecoveredLog { path, entry_count: scan.entry_count, lost_size: scan.tail_size, damage }))
}
