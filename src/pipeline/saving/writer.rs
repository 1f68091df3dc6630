//! The thread that writes states, so that nobody else waits for a disk.
//!
//! What enters: cuts, one at a time. What leaves: generations, and what came of them. A state that can not be written stops nothing:
//! the run goes on, the state before stays, and the next end of an interval tries again.

use super::Saver;
use crate::error::Error;
use crate::metrics::Durations;
use crate::state::StateDirectory;
use crossbeam::channel::Receiver;
use std::sync::Arc;
use std::time::Instant;

/// A cut: the parts of a state.
pub(super) type Cut = Vec<Vec<u8>>;

/// What saving came to.
#[derive(Clone, Debug, Default)]
pub struct SavingCounts {
    /// States saved.
    pub saved: u64,
    /// Those that could not be written.
    pub failed: u64,
    /// Whether the last of all is one of these: what was known at the end is not saved.
    pub has_failed: bool,
    /// Those that were put off to a later end of an interval, because changes were held back or no list was written.
    pub put_off: u64,
    /// The size of the last, in bytes.
    pub size: u64,
    /// For how long the list stood still.
    pub list_pause: Durations,
    /// How long writing took, which nobody waited for.
    pub writing: Durations,
    /// Why the last that failed did.
    pub error: Option<String>,
}

impl SavingCounts {
    /// What the list thread and the writer counted, together.
    pub(in crate::pipeline) fn plus(self, written: Self) -> Self {
        let SavingCounts { list_pause, put_off, .. } = self;
        SavingCounts { list_pause, put_off, ..written }
    }
}

/// What one save came to: its size, or why there is none.
pub type Written<'a> = Result<u64, &'a Error>;

/// Writes cuts to a directory.
pub(in crate::pipeline) struct Writer<'a> {
    pub(super) directory: StateDirectory,
    pub(super) saver: Arc<Saver>,
    pub(super) cuts: Receiver<Cut>,
    pub(super) on_written: Box<dyn Fn(Written) + Send + 'a>,
}

impl Writer<'_> {
    /// Writes until no more cuts can come.
    pub(in crate::pipeline) fn run(mut self) -> SavingCounts {
        let mut counts = SavingCounts::default();
        for cut in self.cuts {
            let began = Instant::now();
            match self.directory.save(&cut) {
                Ok(size) => {
                    counts.saved += 1;
                    counts.has_failed = false;
                    counts.size = size;
                    counts.writing.record(began.elapsed());
                    (self.on_written)(Ok(size));
                }
                Err(error) => {
                    counts.failed += 1;
                    counts.has_failed = true;
                    (self.on_written)(Err(&error));
                    counts.error = Some(error.to_string());
                }
            }
            // What the copies took is given back before the next may be made.
            drop(cut);
            self.saver.ended();
        }
        counts
    }
}
