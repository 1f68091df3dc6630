//! How far the agent is, so that it continues from there however it ended.
//!
//! It takes the list that was written last and the snapshot that it was made from, and gives a note beside the lists,
//! and at a start the same again. The list itself is not in it, since it is in the files that the note names. The list
//! is written first and the note after it, each whole or not at all: an agent that is killed in between makes the same
//! list from the same snapshot again.

use crate::error::{Error, Result};
use crate::list::TickMoment;
use crate::signal::PartitionSet;
use crate::snapshot::{ROUTER_NAME_SIZE_MAX, RouterPart};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

/// Earlier runs that the agent remembers, so that a late snapshot of one is not taken for a new run: a restart a day
/// for two months, or an hour that went very wrong.
const AGENT_RUNS_MAX: usize = 64;

/// The most bytes of the agent's note of its position: all runs that it can name, with router names of full length,
/// take less.
const AGENT_POSITION_SIZE_MAX: u64 = 64 << 10;

const _: () = assert!(AGENT_RUNS_MAX as u64 * (6 * ROUTER_NAME_SIZE_MAX as u64 + 256) < AGENT_POSITION_SIZE_MAX);

/// The name of the file that says how far the lists in a directory are.
pub const NAME: &str = "collected.json";

/// How far a run of a router was followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) router: String,
    pub(super) run: u64,
    /// The last list's number.
    pub(super) interval: u64,
    /// Its end, by the clock that never steps back within a run, and by the wall clock.
    end_tick: u64,
    within_tick_ns: i64,
    pub(super) end_ns: i64,
    /// When the run began, by the wall clock, where that is known: replays of different captures have nothing else
    /// that differs.
    origin_ns: Option<i64>,
    /// Whether it was followed for a while until the run before it continued.
    pub(super) is_stray: bool,
}

impl Run {
    /// The run of a snapshot, up to that snapshot.
    pub(super) fn of(source: &RouterPart) -> Self {
        Run {
            router: source.router.clone(),
            run: source.run,
            interval: source.figures.interval,
            end_tick: source.end_tick,
            within_tick_ns: source.within_tick_ns,
            end_ns: source.figures.end_ns,
            origin_ns: source.origin_ns(),
            is_stray: false,
        }
    }

    /// Whether both are the same run.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let have_one_origin = match (self.origin_ns, other.origin_ns) {
            (Some(origin_ns), Some(other_ns)) => origin_ns == other_ns,
            // The time bases of a run are remembered up to a number.
            _ => true,
        };
        self.run == other.run && self.router == other.router && have_one_origin
    }

    /// What grows from list to list: numbers too, but a router that was killed begins them anew where its state was
    /// saved.
    pub(super) fn end(&self) -> (u64, i64) {
        (self.end_tick, self.within_tick_ns)
    }
}

/// The contents of the note.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The run that is followed.
    pub(super) run: Run,
    /// The runs before it, the latest last.
    pub(super) ended: Vec<Run>,
    /// The snapshot that the last list was made from.
    pub(super) snapshot: String,
    /// The file of the last list in full, and the file of the last list. They are the same unless the last list was
    /// written as changes.
    pub(super) full: String,
    pub(super) list: String,
    /// The partitions that the lists are of, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) part: Option<PartitionSet>,
}

impl Position {
    /// The note in this directory and when it was written; `None` if there is none.
    pub(super) fn read(directory: &Path) -> Result<Option<(Self, SystemTime)>> {
        let path = directory.join(NAME);
        let cannot = |error: std::io::Error| {
            Error::new("cannot read how far lists had come: remove it to start anew").in_file(&path).because(error)
        };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(error)),
        };
        let modified = file.metadata().and_then(|metadata| metadata.modified()).map_err(cannot)?;
        let mut bytes = Vec::new();
        file.take(AGENT_POSITION_SIZE_MAX).read_to_end(&mut bytes).map_err(cannot)?;
        let position = serde_json::from_slice(&bytes).map_err(|error| cannot(error.into()))?;
        Ok(Some((position, modified)))
    }

    /// The note as the bytes of its file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        // All of it can be written as JSON.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// The end of the last list.
    pub(super) fn end(&self) -> TickMoment {
        TickMoment { tick: self.run.end_tick, within_tick_ns: self.run.within_tick_ns }
    }

    /// Whether this is the run that is followed.
    pub(super) fn follows(&self, run: &Run) -> bool {
        !self.list.is_empty() && self.run.is_same(run)
    }

    /// Moves on to a list that was made from this snapshot of this run.
    pub(super) fn advance(&mut self, run: Run, snapshot: String, list: crate::export::WrittenList) {
        if !self.list.is_empty() && !self.follows(&run) {
            // A run that continues has not ended: what was followed meanwhile came late.
            let is_stray = self.ended.iter().any(|ended| ended.is_same(&run));
            self.ended.retain(|ended| !ended.is_same(&run));
            self.ended.push(Run { is_stray, ..std::mem::take(&mut self.run) });
            if self.ended.len() > AGENT_RUNS_MAX {
                self.ended.remove(0);
            }
        }
        self.run = run;
        self.snapshot = snapshot;
        if list.is_full {
            self.full.clone_from(&list.name);
        }
        self.list = list.name;
    }
}
