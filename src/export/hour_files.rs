//! Rows in files by the hour, as hive names directories: `date=2026-01-01/hour=08/connections-0001.parquet`. Each file
//! is whole or not there.

use crate::disk::whole_file::NewFile;
use crate::error::{Error, Result};
use crate::export::file_name::hour_directory;
use crate::export::output_directory::OutputDirectory;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// An hour, in ns.
pub(super) const HOUR_NS: i64 = 3_600_000_000_000;

/// How rows are divided into files.
pub(super) struct Division {
    /// The time that a file covers: an hour or less.
    pub(super) period_ns: i64,
    /// A row that is older than the file under way, by no more than this, stands in it all the same.
    pub(super) late_ns: i64,
}

/// A directory of files, of which one is under way.
pub(super) struct HourFiles<R> {
    output: OutputDirectory,
    division: Division,
    present: Option<Present<R>>,
}

/// The file that is being written.
struct Present<R> {
    /// The number of its period since 1970.
    period: i64,
    new: NewFile,
    rows: R,
}

impl<R> HourFiles<R> {
    /// Writes to this directory, which is made if there is none; `what` names what a file holds.
    ///
    /// # Errors
    ///
    /// The directory cannot be made or written to, or another process writes to it.
    pub(super) fn new(path: &Path, what: &'static str, division: Division) -> Result<Self> {
        let (output, _) = OutputDirectory::open(path.to_path_buf(), what)?;
        Ok(HourFiles { output, division, present: None })
    }

    /// Whether a row of this time belongs to another file than the one that is being written, or there is none.
    pub(super) fn is_due(&self, time_ns: i64) -> bool {
        let Division { period_ns, late_ns } = self.division;
        self.present.as_ref().is_none_or(|present| {
            let early_ns = present.period.saturating_mul(period_ns).saturating_sub(time_ns);
            present.period != time_ns.div_euclid(period_ns) && !(1..=late_ns).contains(&early_ns)
        })
    }

    /// Begins a file for rows from this time on, under the first free one of the names that `name` gives for 1, 2, ...
    ///
    /// # Errors
    ///
    /// It cannot be begun.
    pub(super) fn begin(&mut self, time_ns: i64, rows: R, name: impl Fn(u64) -> String) -> Result<()> {
        let hour = hour_directory(time_ns.div_euclid(1_000_000_000));
        let mut paths = (1..).map(|number| hour.join(name(number)));
        let is_free = |path: &PathBuf| !self.output.path().join(path).exists();
        let Some(path) = paths.find(is_free) else { return Ok(()) };
        let new = self.output.begin(&path)?;
        self.present = Some(Present { period: time_ns.div_euclid(self.division.period_ns), new, rows });
        Ok(())
    }

    /// The rows of the file that is being written, and where their bytes go.
    pub(super) fn present(&mut self) -> Option<(&mut R, &File)> {
        self.present.as_mut().map(|present| (&mut present.rows, present.new.file()))
    }

    /// Ends the file that is being written, if there is one, with the bytes that `finish` writes.
    ///
    /// # Errors
    ///
    /// It cannot be written; then it is not there.
    pub(super) fn end(&mut self, finish: impl FnOnce(R, &mut dyn io::Write) -> io::Result<()>) -> Result<()> {
        let Some(Present { new, rows, .. }) = self.present.take() else { return Ok(()) };
        let written = finish(rows, &mut new.file()).and_then(|()| new.finish());
        written.map(drop).map_err(|error| self.cannot_write(error))
    }

    /// Gives up the file that is being written.
    pub(super) fn abandon(&mut self) {
        self.present = None;
    }

    /// The error of a row that cannot be written.
    pub(super) fn cannot_write(&self, cause: io::Error) -> Error {
        self.output.cannot_write(cause)
    }
}
