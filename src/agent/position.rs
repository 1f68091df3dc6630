//! How far the agent is, so that it goes on from there however it ended.
//!
//! What enters: the list that was written last and the snapshot that it was made from. What leaves: a note beside the
//! lists, and at a start the same again. The list itself is not in it, since it is in the files that the note names.
//! The list is written first and the note after it, each whole or not at all: an agent that is killed in between makes
//! the same list from the same snapshot again.

use crate::config::{AGENT_POSITION_SIZE_MAX, AGENT_RUNS_MAX};
use crate::error::{Error, Result};
use crate::flow_list::TickMoment;
use crate::snapshot::file::RouterPart;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

/// The name of the note.
pub(super) const NAME: &str = "collected.json";

/// How far a run of a router was followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) router: String,
    pub(super) run: u64,
    pub(super) interval: u64,
}

impl Run {
    /// The run of a snapshot, up to that snapshot.
    pub(super) fn of(source: &RouterPart) -> Self {
        Run { router: source.router.clone(), run: source.run, interval: source.figures.interval }
    }

    /// Whether both are the same run.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.run == other.run && self.router == other.router
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
    /// The last list's end.
    end_tick: u64,
    within_tick_ns: i64,
}

impl Position {
    /// The note in this directory and when it was written; `None` if there is none.
    pub(super) fn read(directory: &Path) -> Result<Option<(Self, SystemTime)>> {
        let path = directory.join(NAME);
        let cannot = |error: std::io::Error| {
            Error::new("can not read how far lists had come: remove it to start anew").in_file(&path).because(error)
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
        TickMoment { tick: self.end_tick, within_tick_ns: self.within_tick_ns }
    }

    /// Moves on to a list that was made from this snapshot.
    pub(super) fn advance(&mut self, source: &RouterPart, snapshot: String, list: crate::export::WrittenList) {
        let run = Run::of(source);
        if !self.run.is_same(&run) && !self.list.is_empty() {
            self.ended.push(std::mem::take(&mut self.run));
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
        (self.end_tick, self.within_tick_ns) = (source.end_tick, source.within_tick_ns);
    }
}
