//! One destination of columns: a directory with files of Parquet, and how many events were written and lost there.

use crate::error::{Error, Result};
use crate::event_log::file::Rotation;
use crate::export::{EventFiles, FlowEvent, LostEvents};
use crate::metrics::EventCounts;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A destination of columns. A file stays in memory and under a temporary name until it ends, so an event counts as
/// written when it is taken, and as lost when its file turns out not to be.
pub(super) struct ColumnOutput {
    name: String,
    files: EventFiles,
    /// The number of the last event, lost ones included.
    sequence: u64,
    counts: Arc<EventCounts>,
    /// Whether it was reported that the destination fails.
    is_failing: bool,
}

type Warn<'a> = &'a mut (dyn FnMut(&Error) + Send);

impl ColumnOutput {
    /// Opens a directory, which is made if there is none.
    ///
    /// # Errors
    ///
    /// It cannot be made or written to, or this build does not have Parquet.
    pub(super) fn open(path: &Path, rotation: Rotation, counts: Arc<EventCounts>) -> Result<Self> {
        let files = EventFiles::new(path, rotation.age)?;
        Ok(ColumnOutput { name: path.display().to_string(), files, sequence: 0, counts, is_failing: false })
    }

    /// Counts events that never came here.
    pub(super) fn skip(&mut self, count: u64) {
        self.sequence += count;
        self.files.skip(count);
    }

    /// Takes an event, of which the number is given here.
    pub(super) fn put(&mut self, event: &FlowEvent, warn: Warn) {
        self.sequence += 1;
        self.counts.written.fetch_add(1, Ordering::Relaxed);
        let written = self.files.write(&FlowEvent { sequence: self.sequence, ..*event });
        self.settle(written, warn);
    }

    /// Ends the file under way if no event of it can come any more at this time.
    pub(super) fn pass(&mut self, time_ns: i64, warn: Warn) {
        let ended = self.files.pass(time_ns);
        self.settle(ended, warn);
    }

    /// Ends the file under way.
    pub(super) fn end(&mut self, warn: Warn) {
        let ended = self.files.end();
        self.settle(ended, warn);
    }

    fn settle(&mut self, written: std::result::Result<(), LostEvents>, warn: Warn) {
        let Err(LostEvents { count, cause }) = written else { return };
        self.counts.written.fetch_sub(count, Ordering::Relaxed);
        self.counts.lost.fetch_add(count, Ordering::Relaxed);
        if !std::mem::replace(&mut self.is_failing, true) {
            warn(
                &Error::new("cannot write events; those of a file that fails are lost")
                    .in_file(&self.name)
                    .because(cause),
            );
        }
    }
}
