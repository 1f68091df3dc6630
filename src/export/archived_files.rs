//! Connections of an archive in files, by the hour in which they ended or were last known to be open.

use crate::error::{Error, Result};
use crate::export::csv;
use crate::export::eve::append_archived_eve;
use crate::export::flow_line::{ArchivedFlow, append_archived};
use crate::export::hour_files::{Division, HOUR_NS, HourFiles};
use crate::export::lines::BUFFER_SIZE;
use crate::export::parquet::{self, ArchivedRows};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// What the files look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchivedFormat {
    /// A line of JSON for each connection.
    Ndjson,
    /// A line of Suricata's EVE for each.
    Eve,
    /// Comma-separated values, with the names of the columns in the first row of a file.
    Csv,
    /// Columns of Parquet.
    Parquet,
}

impl ArchivedFormat {
    /// Checks that this build can write it.
    ///
    /// # Errors
    ///
    /// It cannot.
    pub fn check(self) -> Result<()> {
        if self == ArchivedFormat::Parquet { parquet::check() } else { Ok(()) }
    }

    fn extension(self) -> &'static str {
        match self {
            ArchivedFormat::Ndjson | ArchivedFormat::Eve => "ndjson",
            ArchivedFormat::Csv => "csv",
            ArchivedFormat::Parquet => "parquet",
        }
    }
}

/// The rows of a file.
enum Rows {
    Lines(Vec<u8>),
    Parquet(Box<ArchivedRows>),
}

impl Rows {
    fn new(format: ArchivedFormat) -> io::Result<Self> {
        Ok(match format {
            ArchivedFormat::Ndjson | ArchivedFormat::Eve => Rows::Lines(Vec::new()),
            ArchivedFormat::Csv => Rows::Lines(csv::archived(std::iter::empty(), true)),
            ArchivedFormat::Parquet => Rows::Parquet(Box::new(ArchivedRows::new()?)),
        })
    }

    fn row(&mut self, format: ArchivedFormat, out: &mut dyn Write, flow: &ArchivedFlow) -> io::Result<()> {
        let lines = match self {
            Rows::Parquet(rows) => return rows.row(out, flow),
            Rows::Lines(lines) => lines,
        };
        match format {
            ArchivedFormat::Eve => append_archived_eve(lines, flow),
            ArchivedFormat::Csv => lines.extend(csv::archived(std::iter::once(*flow), false)),
            ArchivedFormat::Ndjson | ArchivedFormat::Parquet => append_archived(lines, flow),
        }
        if lines.len() >= BUFFER_SIZE {
            out.write_all(lines)?;
            lines.clear();
        }
        Ok(())
    }

    fn finish(self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Rows::Lines(lines) => out.write_all(&lines),
            Rows::Parquet(rows) => rows.finish(out),
        }
    }
}

/// Writes connections of an archive to a directory, in files by the hour in which they ended, or were last known to be
/// open: `date=2026-01-01/hour=08/connections-0001.parquet`, numbered in the order in which they are written.
pub struct ArchivedFiles {
    files: HourFiles<Rows>,
    format: ArchivedFormat,
    file_count: u64,
}

impl ArchivedFiles {
    /// Writes to this directory, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// There is something in the directory, it cannot be created or written to, or this build does not have the format.
    pub fn new(path: &Path, format: ArchivedFormat) -> Result<Self> {
        format.check()?;
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            let what = "there is something in this directory already: whoever reads it would find connections twice";
            return Err(Error::new(what).in_file(path));
        }
        let division = Division { period_ns: HOUR_NS, late_ns: 0 };
        Ok(ArchivedFiles { files: HourFiles::new(path, "connection", division)?, format, file_count: 0 })
    }

    /// Writes a connection.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&mut self, flow: &ArchivedFlow) -> Result<()> {
        if self.files.is_due(flow.end_ns) {
            self.end_file()?;
            let rows = Rows::new(self.format).map_err(|error| self.files.cannot_write(error))?;
            self.file_count += 1;
            let (extension, before) = (self.format.extension(), self.file_count - 1);
            self.files.begin(flow.end_ns, rows, |number| format!("connections-{:04}.{extension}", before + number))?;
        }
        let format = self.format;
        let Some((rows, mut file)) = self.files.present() else { return Ok(()) };
        let written = rows.row(format, &mut file, flow);
        written.map_err(|error| self.files.cannot_write(error))
    }

    /// Ends the last file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.end_file()
    }

    fn end_file(&mut self) -> Result<()> {
        self.files.end(Rows::finish)
    }
}
