//! The writer of an archive: entries in, segments out.
//!
//! It takes entries, sorted as far as possible, and gives a log that grows, and from time to time a sealed segment in
//! its place, sorted and with filters; what is too old or too much is removed. At any moment all that was flushed is in
//! a log or in a segment.

use crate::archive::block::ARCHIVE_BLOCK_ENTRIES_MAX;
use crate::archive::entry::Hasher;
use crate::archive::log::{self, Log, RecoveredLog};
use crate::archive::names::{FileName, Inventory, OPEN_LIST};
use crate::archive::newest::{self, Newest};
use crate::archive::retention::Retention;
use crate::archive::scan::{FileId, scan_file};
use crate::archive::segment::{
    self, BlockFile, SEGMENT_ENTRY_SIZE_MIN, SEGMENT_SIZE_DEFAULT, SEGMENT_SIZE_MAX, SEGMENT_SIZE_MIN, TEMPORARY,
};
use crate::archive::{Entry, Fate, resume};
use crate::disk::whole_file::sync_directory_of;
use crate::error::{Error, Result};
use crate::export::Keep;
use crate::signal::TICK_NS;
use crate::state::lock;
use jiff::Timestamp;
use std::fs::{self, File};
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default age at which a segment is sealed.
const SEGMENT_AGE_DEFAULT: Duration = Duration::from_secs(3_600);

/// How an archive is divided into segments, and how much of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveConfig {
    /// The size of its log in bytes at which a segment is sealed, from [`SEGMENT_SIZE_MIN`] to [`SEGMENT_SIZE_MAX`].
    pub segment_size: u64,
    /// The time between the first and the last end of its connections at which a segment is sealed.
    pub segment_age: Duration,
    /// How much is kept. Segments whose last connection ended longer than the age before the newest are removed, and
    /// the oldest while all files of the archive together are larger than the size.
    pub keep: Keep,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        let keep = Keep::default();
        ArchiveConfig { segment_size: SEGMENT_SIZE_DEFAULT, segment_age: SEGMENT_AGE_DEFAULT, keep }
    }
}

impl ArchiveConfig {
    /// The most connections of one segment, which are in memory until it is sealed. The limit holds however well they
    /// compress.
    #[must_use]
    pub fn segment_entries_max(&self) -> usize {
        (self.segment_size / SEGMENT_ENTRY_SIZE_MIN) as usize
    }

    /// Checks that the values are in range.
    ///
    /// # Errors
    ///
    /// A value is out of range.
    pub fn check(&self) -> Result<()> {
        if !(SEGMENT_SIZE_MIN..=SEGMENT_SIZE_MAX).contains(&self.segment_size) {
            let (least, most) = (SEGMENT_SIZE_MIN >> 10, SEGMENT_SIZE_MAX >> 20);
            return Err(Error::new(format!("--segment-size must be from {least}KiB to {most}MiB")));
        }
        if self.segment_age < Duration::from_secs(1) {
            return Err(Error::new("--segment-age must be at least 1s"));
        }
        Ok(())
    }
}

/// What was recovered when an archive was opened.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The logs of a process that did not end properly. Their connections are in segments now.
    pub logs: Vec<RecoveredLog>,
    /// How many connections were open when the last process ended. They are in a segment now.
    pub carried_over: u64,
    /// The damage in the list of these, if any.
    pub damage: Option<Error>,
    /// What is missing of the newest part of the archive. It stays missing; what is written comes behind it.
    pub missing: Vec<Error>,
    /// How many connections that were archived behind the saved state are too many to be remembered: they may be
    /// archived twice.
    pub unremembered: u64,
}

/// What was written to an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// How many connections were added.
    pub entries: u64,
    /// How many segments were sealed.
    pub segments: u64,
    /// The size of these segments, in bytes.
    pub size: u64,
    /// How many segments were removed because they were too old or too much.
    pub expired: u64,
}

/// How a run that saves its state takes up an archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The number of the run.
    pub(super) run: NonZeroU64,
    /// The first segment of what the run is going to repeat; live nothing is.
    pub(super) repeats_from: Option<u32>,
}

/// An archive that can be added to. It belongs to one process at a time.
pub struct Writer {
    directory: PathBuf,
    config: ArchiveConfig,
    hasher: Hasher,
    number: u32,
    /// The number of the run that writes, if it saves its state; otherwise 0.
    run: u64,
    /// The log, which exists even while it is empty, until [`Self::finish`]: a log that is left shows that a process
    /// did not end properly.
    log: Option<Log>,
    /// The entries of the segment that is being filled, and how many of them are in the log.
    entries: Vec<Entry>,
    logged_count: usize,
    retention: Retention,
    /// What the file of the newest part says.
    newest: Newest,
    /// Whether something of it was missing when the archive was opened.
    has_lost: bool,
    sealed: Vec<u32>,
    written: Written,
    /// The lock of the directory, which the system releases however the process ends.
    _lock: Option<File>,
}

impl Writer {
    /// Opens or creates an archive, and recovers what a killed process has left.
    ///
    /// # Errors
    ///
    /// The directory cannot be created, read or written to, or another process holds it.
    pub fn open(directory: &Path, config: ArchiveConfig) -> Result<(Self, Recovery)> {
        Writer::open_for(directory, config, None)
    }

    /// As [`Self::open`], for a run that saves its state.
    pub(super) fn open_for(
        directory: &Path,
        config: ArchiveConfig,
        origin: Option<Origin>,
    ) -> Result<(Self, Recovery)> {
        config.check()?;
        if fs::metadata(directory).is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(Error::new("it is not a directory: an archive is a directory of its own").in_file(directory));
        }
        let cannot = |error: io::Error| Error::new("cannot keep an archive here").in_file(directory).because(error);
        fs::create_dir_all(directory).map_err(cannot)?;
        let lock = lock(directory, "another process writes here: an archive needs a directory of its own")?;
        TEMPORARY.remove_leftovers(directory).map_err(cannot)?;
        sync_directory_of(&directory.join(OPEN_LIST)).map_err(cannot)?;
        if let Some(Origin { run, repeats_from: Some(segment) }) = origin {
            resume::rewind(directory, run, segment)?;
        }
        let inventory = Inventory::of(directory).map_err(cannot)?;
        let newest = Newest::of(directory).ok().flatten();
        let (missing, _) = newest::loss(directory).map_err(cannot)?;
        for number in &inventory.stale_logs {
            fs::remove_file(FileName::Log(*number).path_in(directory)).map_err(cannot)?;
        }
        let mut writer = Writer {
            directory: directory.to_path_buf(),
            config,
            hasher: Hasher::new(),
            // A number that is missing is not given again: the gap goes on showing.
            number: inventory.last_number().max(newest.map_or(0, |newest| newest.number)),
            run: 0,
            log: None,
            entries: Vec::new(),
            logged_count: 0,
            retention: Retention::new(directory, config.keep, &inventory),
            newest: newest.unwrap_or_default(),
            has_lost: !missing.is_empty(),
            sealed: Vec::new(),
            written: Written::default(),
            _lock: lock,
        };
        // Sealing what is left takes room, of which there may be none before something is removed.
        writer.written.expired += writer.retention.opened(now(), &inventory.logs)?;
        let mut recovery = Recovery { missing, ..Recovery::default() };
        if newest.is_none() {
            // Before there is a log: without the file there is no archive, or something is missing.
            writer.newest.write(directory)?;
        }
        for number in inventory.logs {
            recovery.logs.push(writer.seal_left(number)?);
        }
        // A replay that repeats what it did writes its own list again.
        let own = origin.filter(|origin| origin.repeats_from.is_some()).map(|origin| origin.run.get());
        let list = directory.join(OPEN_LIST);
        if inventory.has_open_list && (own.is_none() || FileId::of(&list).map_err(cannot)?.map(|id| id.run) != own) {
            writer.carry_over(&mut recovery)?;
        }
        writer.run = origin.map_or(0, |origin| origin.run.get());
        writer.begin_log()?;
        Ok((writer, recovery))
    }

    /// Seals a log that was left.
    fn seal_left(&mut self, number: u32) -> Result<RecoveredLog> {
        let (mut entries, recovered) = log::recover(&self.directory, number)?;
        if !entries.is_empty() {
            let cannot = |error| Error::new("cannot read the archive").in_file(&recovered.path).because(error);
            let run = FileId::of(&recovered.path).map_err(cannot)?.map_or(0, |id| id.run);
            self.write_segment(FileId { number, run }, &mut entries)?;
        } else if number == self.number {
            // No file has this number then, and a gap would look like a segment that was taken away.
            self.number -= 1;
            self.unname(number)?;
        }
        let removed = fs::remove_file(&recovered.path);
        removed.map_err(|error| Error::new("cannot remove it").in_file(&recovered.path).because(error))?;
        Ok(recovered)
    }

    /// Adds the connections that were open when the last process ended to the archive, since their list is soon
    /// replaced.
    fn carry_over(&mut self, recovery: &mut Recovery) -> Result<()> {
        let path = self.directory.join(OPEN_LIST);
        let end = segment::Segment::open(&path, 0).map(|segment| segment.trailer().filters_offset);
        let mut failed = Ok(());
        let scan = scan_file(&path, 0, end.as_ref().ok().copied(), |block| {
            if failed.is_ok() {
                failed = self.add(&block);
            }
        })?;
        failed?;
        // They are no part of the run that begins.
        self.finish()?;
        recovery.carried_over = scan.entry_count;
        recovery.damage = end.err().or_else(|| scan.damage_in(&path));
        self.name_newest(Newest { has_open_list: false, ..self.newest })?;
        fs::remove_file(&path).map_err(|error| Error::new("cannot remove it").in_file(&path).because(error))
    }

    /// Adds connections. They are on the disk after [`Self::flush`] at the latest.
    ///
    /// # Errors
    ///
    /// The connections cannot be written. What was flushed before is safe.
    pub fn add(&mut self, entries: &[Entry]) -> Result<()> {
        let block_count = self.config.segment_entries_max().min(ARCHIVE_BLOCK_ENTRIES_MAX);
        for entry in entries {
            self.entries.push(*entry);
            self.written.entries += 1;
            if self.entries.len() - self.logged_count >= block_count {
                self.log()?;
                self.seal_if_due()?;
            }
        }
        Ok(())
    }

    /// Begins the log of the next segment, unless there is one already.
    fn begin_log(&mut self) -> Result<()> {
        if self.log.is_none() {
            let next = self.number.checked_add(1);
            let what = "this archive has as many segments as there are numbers: begin another";
            self.number = next.ok_or_else(|| Error::new(what).in_file(&self.directory))?;
            self.log = Some(Log::new(&self.directory, FileId { number: self.number, run: self.run })?);
            self.name_newest(Newest { number: self.number, is_there: true, ..self.newest })?;
        }
        Ok(())
    }

    /// Records what the newest part of the archive is.
    fn name_newest(&mut self, newest: Newest) -> Result<()> {
        let newest = Newest { run: self.run, ..newest };
        if newest != self.newest {
            newest.write(&self.directory)?;
            self.newest = newest;
        }
        Ok(())
    }

    /// Records, before the file of this number is removed, that it is not the newest any more.
    fn unname(&mut self, number: u32) -> Result<()> {
        if self.newest.number != number {
            return Ok(());
        }
        let is_there = self.has_lost || !self.retention.is_empty();
        self.name_newest(Newest { number: number - 1, is_there, ..self.newest })
    }

    /// Appends the entries to the log that are not in it yet.
    fn log(&mut self) -> Result<()> {
        if self.entries.len() > self.logged_count {
            self.begin_log()?;
            if let Some(log) = &mut self.log {
                log.append(&self.entries[self.logged_count..])?;
            }
            self.logged_count = self.entries.len();
        }
        Ok(())
    }

    fn seal_if_due(&mut self) -> Result<()> {
        let age_ticks = self.config.segment_age.as_nanos() / TICK_NS as u128;
        let ends = || self.entries.iter().map(|entry| entry.end);
        let (first, last) = (ends().min().unwrap_or(0), ends().max().unwrap_or(0));
        let is_due = self.log.as_ref().is_some_and(|log| log.size() >= self.config.segment_size)
            || self.entries.len() >= self.config.segment_entries_max()
            || u128::from(last.abs_diff(first)) >= age_ticks;
        if is_due { self.seal() } else { Ok(()) }
    }

    /// Forces all that was added to the disk.
    ///
    /// # Errors
    ///
    /// What was added cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        self.log()?;
        if let Some(log) = &mut self.log {
            log.sync()?;
        }
        self.seal_if_due()
    }

    /// Seals the segment that is being filled, if there is anything in it.
    ///
    /// # Errors
    ///
    /// The segment cannot be written. Its entries are still in the log.
    pub fn seal(&mut self) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.log()?;
        let full = self.log.take();
        // The next log is created before this one is removed, so that there always is one.
        self.begin_log()?;
        full.map_or(Ok(()), |log| self.seal_log(log))
    }

    /// Seals the segment that is being filled, and leaves the archive as one that ended properly.
    ///
    /// # Errors
    ///
    /// The segment cannot be written. Its entries are still in the log.
    pub fn finish(&mut self) -> Result<()> {
        self.log()?;
        self.log.take().map_or(Ok(()), |log| self.seal_log(log))
    }

    /// Replaces the log with the segment of its entries. An empty log is only removed.
    fn seal_log(&mut self, log: Log) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        self.logged_count = 0;
        let id = log.id();
        let written = if entries.is_empty() { self.unname(id.number) } else { self.write_segment(id, &mut entries) };
        entries.clear();
        self.entries = entries;
        written.and_then(|()| log.remove())
    }

    fn write_segment(&mut self, id: FileId, entries: &mut [Entry]) -> Result<()> {
        entries.sort_unstable();
        let number = id.number;
        let path = FileName::Segment(number).path_in(&self.directory);
        let written = segment::write(&path, id, entries, &self.hasher);
        let cannot = |error| Error::new("cannot write to the archive").in_file(&path).because(error);
        let (trailer, size) = written.map_err(cannot)?;
        self.sealed.push(number);
        self.written.segments += 1;
        self.written.size += size;
        self.written.expired += self.retention.sealed(number, size, trailer.end_max)?;
        Ok(())
    }

    /// The segments that were sealed since this was last called.
    pub fn take_sealed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.sealed)
    }

    /// The number of the segment that is being filled.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// What was written since the archive was opened.
    #[must_use]
    pub fn written(&self) -> Written {
        self.written
    }

    /// Begins a list of open connections that will replace the one before.
    ///
    /// # Errors
    ///
    /// The list cannot be written.
    pub fn begin_open_list(&self) -> Result<OpenList> {
        let path = self.directory.join(OPEN_LIST);
        match BlockFile::new(&path, FileId { number: 0, run: self.run }) {
            Ok(file) => Ok(OpenList { file, path }),
            Err(error) => Err(Error::new("cannot write the open connections").in_file(&path).because(error)),
        }
    }

    /// Replaces the list of open connections with this one.
    ///
    /// # Errors
    ///
    /// The list cannot be written. The one before is still there.
    pub fn finish_open_list(&mut self, list: OpenList) -> Result<()> {
        let OpenList { file, path } = list;
        let cannot = |error| Error::new("cannot write the open connections").in_file(&path).because(error);
        file.finish().map_err(cannot)?;
        self.name_newest(Newest { has_open_list: true, ..self.newest })
    }
}

/// A list of open connections that is being written, until [`Writer::finish_open_list`].
pub struct OpenList {
    file: BlockFile,
    path: PathBuf,
}

impl OpenList {
    /// Adds connections that are open.
    ///
    /// # Errors
    ///
    /// The connections cannot be written.
    pub fn add(&mut self, entries: &[Entry]) -> Result<()> {
        debug_assert!(entries.iter().all(|entry| entry.fate == Fate::Open));
        let cannot = |error| Error::new("cannot write the open connections").in_file(&self.path).because(error);
        self.file.add(entries).map_err(cannot)
    }
}

/// The time by the clock of this machine, in ticks since 1970.
fn now() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond() / i128::from(TICK_NS)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
