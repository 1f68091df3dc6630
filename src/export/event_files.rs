//! Events in files of Parquet, by the hour in which they happened.

use crate::error::{Error, Result};
use crate::export::file_name::events_stem;
use crate::export::flow_line::FlowEvent;
use crate::export::hour_files::{Division, HOUR_NS, HourFiles};
use crate::export::parquet::{self, EventRows, PARQUET_EVENTS_SIZE};
use std::path::Path;
use std::time::Duration;

/// By how much events may be out of order in a live capture, in ns, with much to spare: a shard sends them within a
/// second.
const LATE_NS: i64 = 10_000_000_000;

/// Writes events to a directory, each file whole or not at all:
/// `date=2026-01-01/hour=08/events-20260101T081000Z.parquet`, named by its first event.
pub struct EventFiles {
    files: HourFiles<EventRows>,
    /// How many events the file under way has.
    count: u64,
    /// How many are missing since the file before ended.
    missing: u64,
}

/// Events that cannot be written.
#[derive(Debug)]
pub struct LostEvents {
    /// How many: those of the file that was under way.
    pub count: u64,
    /// Why.
    pub cause: Error,
}

impl EventFiles {
    /// The memory that it takes, in bytes.
    pub const MEMORY_SIZE: u64 = PARQUET_EVENTS_SIZE;

    /// Checks that this build can write them.
    ///
    /// # Errors
    ///
    /// It cannot.
    pub fn check() -> Result<()> {
        parquet::check()
    }

    /// Writes to this directory, which is made if there is none. A file covers an hour, or this age if that is less.
    ///
    /// # Errors
    ///
    /// The directory cannot be made or written to, or this build does not have Parquet.
    pub fn new(path: &Path, age: Option<Duration>) -> Result<Self> {
        parquet::check()?;
        let period_ns = age.map_or(HOUR_NS, |age| i64::try_from(age.as_nanos()).unwrap_or(HOUR_NS).clamp(1, HOUR_NS));
        let division = Division { period_ns, late_ns: LATE_NS.min(period_ns) };
        Ok(EventFiles { files: HourFiles::new(path, "event", division)?, count: 0, missing: 0 })
    }

    /// Counts events that never came here.
    pub fn skip(&mut self, count: u64) {
        self.missing += count;
    }

    /// Writes an event.
    ///
    /// # Errors
    ///
    /// The events of the file that ends before this one are lost, or those of its own file and this one with them, or
    /// both.
    pub fn write(&mut self, event: &FlowEvent) -> std::result::Result<(), LostEvents> {
        let time_ns = event.flow.end_ns;
        let ended = if self.files.is_due(time_ns) { self.end() } else { Ok(()) };
        let written = self.begin(time_ns).and_then(|()| self.row(event));
        self.count += 1;
        let written = written.map_err(|cause| self.lose(cause));
        match (ended, written) {
            (Err(before), Err(LostEvents { count, .. })) => {
                Err(LostEvents { count: before.count + count, cause: before.cause })
            }
            (ended, written) => ended.and(written),
        }
    }

    /// Begins a file, if none is under way.
    fn begin(&mut self, time_ns: i64) -> Result<()> {
        if self.files.present().is_some() {
            return Ok(());
        }
        let rows = EventRows::new().map_err(|error| self.files.cannot_write(error))?;
        self.files.begin(time_ns, rows, |number| events_stem("events", time_ns, number) + ".parquet")
    }

    /// Writes an event to the file that is under way.
    fn row(&mut self, event: &FlowEvent) -> Result<()> {
        let Some((rows, mut file)) = self.files.present() else { return Ok(()) };
        let written = rows.row(&mut file, event);
        written.map_err(|error| self.files.cannot_write(error))
    }

    /// Ends the file that is under way if it has no room for events of this time.
    ///
    /// # Errors
    ///
    /// Its events are lost.
    pub fn pass(&mut self, time_ns: i64) -> std::result::Result<(), LostEvents> {
        let is_over = self.files.is_due(time_ns) && self.files.is_due(time_ns.saturating_sub(LATE_NS));
        if is_over { self.end() } else { Ok(()) }
    }

    /// Ends the file that is under way.
    ///
    /// # Errors
    ///
    /// Its events are lost.
    pub fn end(&mut self) -> std::result::Result<(), LostEvents> {
        let missing = self.missing;
        match self.files.end(|rows, out| rows.finish(out, missing)) {
            Ok(()) => {
                self.missing = if self.count > 0 { 0 } else { missing };
                self.count = 0;
                Ok(())
            }
            Err(cause) => Err(self.lose(cause)),
        }
    }

    /// Gives up the file that is under way.
    fn lose(&mut self, cause: Error) -> LostEvents {
        self.files.abandon();
        let count = std::mem::take(&mut self.count);
        self.missing += count;
        LostEvents { count, cause }
    }
}
