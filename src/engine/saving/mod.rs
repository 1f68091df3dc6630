//! The state of a run: when it is saved, which threads take part, and what a run continues from.
//!
//! It takes the parts of a cut and gives generations in a directory, and out of the newest of them a run that continues
//! as if it had never ended. A cut is made at a mark: the capture thread, every partition and the list each give a copy
//! of what they know at the same packet, and continue. A thread of its own writes the copies. At most one save is under
//! way, so the memory of copies has a bound.

mod identity;
mod list_part;
mod position;
mod start;
mod writer;

pub use position::Position;
pub use writer::{SavingCounts, Written};

pub(crate) use writer::Writer;

pub(crate) use list_part::{Instants, ListSaving, save_inquiry, saved_inquiry};
pub(crate) use position::Reading;
pub(crate) use start::{ResumedClock, Start};

use crate::archive::SavedRun;
use crate::engine::Plan;
use crate::error::{Error, Result};
use crate::record::SaveHandle;
use crate::signal::PARTITION_COUNT;
use crate::state::{Decoder, Opened, Saved, StateDirectory};
use parking_lot::Mutex;
use position::InputId;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The index of the capture thread's part of a state.
const POSITION: usize = 0;
/// The index of the list's part of a state; those of the partitions follow.
const LIST: usize = 1;
/// What has a part in a state without being of the engine. Its parts follow, and are empty where there is none.
const OUTSIDE: [&str; 2] = ["archive", "log of events"];
const FIRST_OUTSIDE: usize = 2 + PARTITION_COUNT;
/// The index of the archive's part of a state.
const ARCHIVE: usize = FIRST_OUTSIDE;
/// The index of the part of the log of events.
const EVENTS: usize = FIRST_OUTSIDE + 1;
const PART_COUNT: usize = FIRST_OUTSIDE + OUTSIDE.len();
/// The name of the file with the part of the log of events at the beginning of the run.
const EVENTS_AT_BEGINNING: &str = "events";

/// The saved state of a run: where and how often it is saved, and what the run continues from.
#[derive(Debug)]
pub struct Saving {
    directory: StateDirectory,
    saver: Arc<Saver>,
    saved: Option<Saved>,
    warnings: Vec<Error>,
    position: Option<Position>,
    outside: [Option<SaveHandle>; OUTSIDE.len()],
}

impl Saving {
    /// Saving for a replay of these captures: it continues behind the packet at which the state was saved.
    ///
    /// # Errors
    ///
    /// The run has no intervals, one of its captures is no file, the directory cannot be used, or the state in it does
    /// not fit.
    pub fn of_replay(path: &Path, every: Duration, plan: &Plan, inputs: &[PathBuf]) -> Result<Self> {
        if plan.config().every.is_none() {
            return Err(Error::new(
                "--state needs lists between which it can be saved: give their interval, as in --every 10s",
            ));
        }
        let inputs = inputs.iter().map(|path| InputId::of(path)).collect::<Result<Vec<_>>>()?;
        let mut saving = Saving::open(path, every, plan, inputs)?;
        if let Some(part) = saving.part(POSITION) {
            let position = Position::saved(&mut Decoder::new(part))?;
            position.check(&saving.saver.inputs).map_err(|error| error.in_file(path))?;
            saving.position = Some(position);
        }
        Ok(saving)
    }

    /// Saving for a live capture: it continues with what was known; what passed meanwhile is unknown.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or the state in it does not fit.
    pub fn of_live(path: &Path, every: Duration, plan: &Plan) -> Result<Self> {
        Saving::open(path, every, plan, Vec::new())
    }

    fn open(path: &Path, every: Duration, plan: &Plan, inputs: Vec<InputId>) -> Result<Self> {
        let identity = identity::of(plan);
        let Opened { directory, saved, warnings } =
            StateDirectory::open(path, identity, plan.config().memory_size_max)?;
        let has_all = saved.as_ref().is_none_or(|saved| saved.parts().len() == PART_COUNT);
        Decoder::new(&[]).expect(has_all, "it has not all its parts").map_err(|error| error.in_file(path))?;
        let saver = Saver {
            every,
            last: Mutex::new(Instant::now()),
            is_busy: AtomicBool::new(false),
            inputs,
            position: Mutex::new(Vec::new()),
        };
        Ok(Saving { directory, saver: Arc::new(saver), saved, warnings, position: None, outside: [None, None] })
    }

    fn part(&self, index: usize) -> Option<&[u8]> {
        self.saved.as_ref().and_then(|saved| saved.parts().nth(index))
    }

    /// The part of a partition, if there is a state.
    pub(crate) fn partition(&self, index: usize) -> Option<&[u8]> {
        self.part(2 + index)
    }

    /// The list's part, if there is a state.
    pub(crate) fn list(&self) -> Option<&[u8]> {
        self.part(LIST)
    }

    /// The run as its archive has to know it, with what the archive gave to the state.
    ///
    /// # Errors
    ///
    /// The number of the run cannot be read or kept.
    pub fn run_of_archive(&self) -> Result<SavedRun> {
        Ok(SavedRun { number: self.directory.run_number()?, part: self.part(ARCHIVE).map(<[u8]>::to_vec) })
    }

    /// Has every state hold the part of this archive.
    pub fn set_archive(&mut self, archive: SaveHandle) {
        self.outside[ARCHIVE - FIRST_OUTSIDE] = Some(archive);
    }

    /// What the log of events gave to the state that the run continues from or, if none was saved yet, gave at the
    /// beginning of the run; `None` at its beginning.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn part_of_events(&self) -> Result<Option<Vec<u8>>> {
        match self.part(EVENTS) {
            Some(part) => Ok(Some(part.to_vec())),
            None => self.directory.kept(EVENTS_AT_BEGINNING),
        }
    }

    /// Has every state hold the part of this log of events. At the beginning of a run `beginning` is kept, so that what
    /// the log holds is known even after a crash before the first save.
    ///
    /// # Errors
    ///
    /// It cannot be kept.
    pub fn set_events(&mut self, events: SaveHandle, beginning: &[u8]) -> Result<()> {
        if self.part_of_events()?.is_none() {
            self.directory.keep(EVENTS_AT_BEGINNING, beginning)?;
        }
        self.outside[EVENTS - FIRST_OUTSIDE] = Some(events);
        Ok(())
    }

    /// The part that the threads which make marks share.
    pub(crate) fn saver(&self) -> Arc<Saver> {
        Arc::clone(&self.saver)
    }

    /// When the state was cut, if there is one.
    pub(crate) fn instants(&self) -> Result<Option<Instants>> {
        self.list().map(|part| Instants::saved(&mut Decoder::new(part))).transpose()
    }

    /// The generation that the run continues from; `None` when it starts anew.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.saved.as_ref().map(|saved| saved.number)
    }

    /// Where a replay continues; `None` when it starts anew.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// The index of the first capture that the run is to be given; those before it are done with.
    #[must_use]
    pub fn first_input(&self) -> usize {
        self.position.as_ref().map_or(0, |position| position.input)
    }

    /// Warnings about damaged generations that were passed over.
    #[must_use]
    pub fn warnings(&self) -> &[Error] {
        &self.warnings
    }
}

/// The schedule of saves, shared by all threads: when it is time, and whether the save before is done.
#[derive(Debug)]
pub(crate) struct Saver {
    every: Duration,
    last: Mutex<Instant>,
    is_busy: AtomicBool,
    inputs: Vec<InputId>,
    /// The capture thread's part of the save that is under way.
    position: Mutex<Vec<u8>>,
}

impl Saver {
    /// Whether the state is to be saved at the mark that is being made; if so, a save begins. It always does when it
    /// `must`, at the last mark of all.
    pub(crate) fn begins(&self, must: bool) -> bool {
        let mut last = self.last.lock();
        let begins = must || last.elapsed() >= self.every && !self.is_busy.load(Ordering::Acquire);
        if begins {
            self.is_busy.store(true, Ordering::Release);
            *last = Instant::now();
        }
        begins
    }

    /// Gives up the save that was under way: the next mark is to try again.
    fn put_off(&self) {
        let mut last = self.last.lock();
        *last = last.checked_sub(self.every).unwrap_or(*last);
        self.is_busy.store(false, Ordering::Release);
    }

    /// Notes that the save that was under way is done.
    pub(crate) fn ended(&self) {
        self.is_busy.store(false, Ordering::Release);
    }
}
#[cfg(test)]
mod tests;
