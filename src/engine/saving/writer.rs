//! The thread that writes states, so that no other thread waits for a disk.
//!
//! It takes cuts, one at a time, and gives generations, and whether they were written. A state that cannot be written
//! stops nothing: the run continues, the state before it stays, and the next end of an interval tries again.

use super::{OUTSIDE, Saver};
use crate::error::{Error, Result};
use crate::metrics::Durations;
use crate::state::StateDirectory;
use crossbeam::channel::Receiver;
use std::sync::Arc;
use std::time::Instant;

/// A cut: the parts of a state.
#[derive(Default)]
pub(crate) struct Cut {
    pub(super) parts: Vec<Vec<u8>>,
    /// The parts of those outside that there are. Each comes when what it belongs to is on the disk up to the cut.
    pub(super) outside: [Option<Receiver<Vec<u8>>>; OUTSIDE.len()],
}

impl Cut {
    /// All parts, once those outside have given theirs.
    fn whole(self) -> Result<Vec<Vec<u8>>> {
        let Cut { mut parts, outside } = self;
        for (part, name) in outside.into_iter().zip(OUTSIDE) {
            let failed = |_| Error::new(format!("the {name} that belongs to the state cannot be written to"));
            parts.push(part.map_or(Ok(Vec::new()), |part| part.recv().map_err(failed))?);
        }
        Ok(parts)
    }
}

/// Counts and times of saving the state.
#[derive(Clone, Debug, Default)]
pub struct SavingCounts {
    /// States saved.
    pub saved: u64,
    /// States that could not be written.
    pub failed: u64,
    /// Whether the last state could not be written, so that what was known at the end is not saved.
    pub has_failed: bool,
    /// States that were put off to a later end of an interval, because changes were held back or no list was written.
    pub put_off: u64,
    /// The size of the last state, in bytes.
    pub size: u64,
    /// How long the list stood still.
    pub list_pause: Durations,
    /// How long writing took, for which no other thread waited.
    pub writing: Durations,
    /// The last error of writing.
    pub error: Option<String>,
}

impl SavingCounts {
    /// The counts of the list thread, completed with those of the writer.
    pub(crate) fn plus(self, written: Self) -> Self {
        let SavingCounts { list_pause, put_off, .. } = self;
        SavingCounts { list_pause, put_off, ..written }
    }
}

/// The result of one save: its size in bytes, or the error.
pub type Written<'a> = std::result::Result<u64, &'a Error>;

/// The writer of cuts to a directory.
pub(crate) struct Writer<'a> {
    pub(super) directory: StateDirectory,
    pub(super) saver: Arc<Saver>,
    pub(super) cuts: Receiver<Cut>,
    pub(super) on_written: Box<dyn Fn(Written) + Send + 'a>,
}

impl Writer<'_> {
    /// Writes until no more cuts can come.
    pub(crate) fn run(mut self) -> SavingCounts {
        let mut counts = SavingCounts::default();
        for cut in self.cuts {
            let began = Instant::now();
            // What the copies took is given back before the next may be made.
            let saved = cut.whole().and_then(|parts| self.directory.save(&parts));
            match saved {
                Ok(size) => {
                    counts.saved += 1;
                    counts.has_failed = false;
                    counts.size = size;
                    counts.writing.record(began.elapsed());
                    self.saver.ended();
                    (self.on_written)(Ok(size));
                }
                Err(error) => {
                    counts.failed += 1;
                    counts.has_failed = true;
                    self.saver.put_off();
                    (self.on_written)(Err(&error));
                    counts.error = Some(error.to_string());
                }
            }
        }
        counts
    }
}
