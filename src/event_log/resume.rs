//! A log whose run is continued from a saved state: no event is written to a file twice, and none is lost unsaid.
//!
//! The saved state is older than the log. A replay makes the same events again behind the save point: those up to the
//! last line that is there are passed over, and a line that was cut is completed. What passed live is gone: the log is
//! read back to the save point, and the connections that ended there are remembered, because the saved state takes them
//! to be open and is going to end them once more.
//!
//! What has gone to a socket nobody can read back. There a replay repeats events, with the numbers that they had, and a
//! live capture goes on with numbers that no event can have had.

use crate::archive::Ages;
use crate::disk::{Crc32, Decoder, Encoder};
use crate::error::{Error, Result};
use crate::event_log::destination::Destination;
use crate::event_log::read_back::{Behind, FilePlace, last_line};
use crate::export::{EventLines, FlowEvent, Logged, LoggedLine};
use crate::record::Remembered;
use std::path::Path;

/// How many numbers lie between those that two starts of a live capture give: more than there are events between two
/// saves. Numbers stay below 2^53, which every reader of JSON has, for two million starts.
const NUMBERS_APART: u64 = 1 << 32;

/// Where a file was when the state was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePoint {
    pub(super) place: FilePlace,
    /// The period of its rotation.
    pub(super) period: Option<i64>,
    /// The last line of the log; `None` if there is none, and while there are lines behind the save point already.
    pub(super) last: Option<Vec<u8>>,
}

impl FilePoint {
    pub(super) fn save(&self, encoder: &mut Encoder) {
        let FilePlace { device, inode, size, modified: (seconds, ns) } = self.place;
        [device, inode, size].into_iter().for_each(|number| encoder.u64(number));
        [seconds, ns].into_iter().for_each(|number| encoder.i64(number));
        encoder.option(self.period, Encoder::i64);
        encoder.option(self.last.as_ref(), |encoder, line| encoder.bytes(line));
    }

    pub(super) fn saved(decoder: &mut Decoder) -> Result<Self> {
        let (device, inode, size) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
        let place = FilePlace { device, inode, size, modified: (decoder.i64()?, decoder.i64()?) };
        let period = decoder.option(Decoder::i64)?;
        let last = decoder.option(|decoder| Ok(decoder.bytes()?.to_vec()))?;
        Ok(FilePoint { place, period, last })
    }
}

/// What a log writes and where to, which a run has in common with the one that it continues.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) openings: bool,
    pub(super) destinations: Vec<Destination>,
}

impl Shape {
    fn names(&self) -> impl Iterator<Item = String> {
        self.destinations.iter().map(|destination| format!("{destination:?}"))
    }

    /// The part of a log in a saved state, with the old connections and what its destinations gave.
    pub(super) fn part(&self, ages: &Ages, outputs: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.bool(self.openings);
        encoder.length(self.destinations.len());
        self.names().for_each(|name| encoder.bytes(name.as_bytes()));
        ages.save(&mut encoder);
        encoder.bytes(outputs);
        encoder.sealed::<Crc32>()
    }

    /// Reads what [`Self::part`] gave.
    ///
    /// # Errors
    ///
    /// The part is damaged, or of a log with other destinations.
    pub(super) fn read_part<'a>(&self, part: &'a [u8]) -> Result<(Ages, &'a [u8])> {
        let damaged = || Error::new("what belongs to the log of events is damaged: remove the directory to begin anew");
        let mut decoder = Decoder::of_sealed::<Crc32>(part).ok_or_else(damaged)?;
        let todo = "name the same again, or another directory with --state, or remove this one";
        let other = |name: &str| Error::new(format!("this state was saved with another {name}: {todo}"));
        if decoder.bool()? != self.openings {
            return Err(other("--events-open"));
        }
        let mut are_same = decoder.length(1, usize::MAX)? == self.destinations.len();
        for name in self.names() {
            are_same = are_same && decoder.bytes()? == name.as_bytes();
        }
        if !are_same {
            return Err(other("--events"));
        }
        let ages = Ages::saved(&mut decoder)?;
        let outputs = decoder.bytes()?;
        decoder.end()?;
        Ok((ages, outputs))
    }
}

/// Which events a file has already, of those that come.
pub(super) enum Known {
    /// None.
    Nothing,
    /// In a replay, those up to the one of this number.
    UpTo(u64),
    /// In a replay, those up to the one of this line, whose number is not known.
    UpToLine(LoggedLine),
    /// Live, the ends of these connections.
    Ends(Remembered),
}

impl Known {
    /// What a replay that has written events up to the number `sequence` has written behind the save point to the log
    /// at this path; and whether its last line is about events that were lost.
    ///
    /// # Errors
    ///
    /// The log cannot be read, or is not the one of the state.
    pub(super) fn of_replay(path: &Path, point: &FilePoint, sequence: u64) -> Result<(Self, bool)> {
        let cannot = |error| Error::new("cannot read the log of events back").in_file(path).because(error);
        let last = last_line(path).map_err(cannot)?;
        if last.as_ref().map(|(line, _)| line) == point.last.as_ref() {
            return Ok((Known::Nothing, false));
        }
        let what = "the log does not hold what it did when the state was saved, so it is unknown which events were \
                    written: put back what was moved, or remove the state to begin anew";
        let other = || Error::new(what).in_file(path);
        let (_, line) = last.ok_or_else(other)?;
        let is_loss = matches!(line.about, Logged::Loss(_));
        match line.sequence() {
            Some(last) if last < sequence => Err(other()),
            Some(last) => Ok((Known::UpTo(last), is_loss)),
            None => Ok((Known::UpToLine(line), is_loss)),
        }
    }

    /// The connections that ended behind the save point, of a live log at this path, and those in `ended`; and what
    /// else is known of it.
    ///
    /// # Errors
    ///
    /// The log cannot be read.
    pub(super) fn of_live(path: &Path, point: &FilePoint, ended: Remembered) -> Result<Behind> {
        let cannot = |error| Error::new("cannot read the log of events back").in_file(path).because(error);
        Behind::read(path, &point.place, ended).map_err(cannot)
    }

    /// Whether a replay has written this event already. `lines` are those of the file.
    pub(super) fn passes(&mut self, event: &FlowEvent, lines: &mut EventLines) -> bool {
        match self {
            Known::Nothing | Known::Ends(_) => false,
            Known::UpTo(last) if event.sequence <= *last => true,
            Known::UpTo(_) => {
                *self = Known::Nothing;
                false
            }
            Known::UpToLine(line) => {
                let (id, has_ended) = (event.flow.id(), event.flow.reason.is_some());
                let Logged::Flow { flow_id, is_closed, .. } = line.about else { return true };
                let is_same = (flow_id, is_closed) == (id, has_ended);
                if is_same && line.timestamp == lines.time(event.flow.end_ns) {
                    *self = Known::Nothing;
                }
                true
            }
        }
    }

    /// Whether a live log has the end of this connection already.
    pub(super) fn meets(&mut self, event: &FlowEvent) -> bool {
        match self {
            Known::Ends(ended) => event.flow.reason.is_some() && ended.meets(event.flow.id()),
            _ => false,
        }
    }
}

/// The number of the last event, as a live capture has it that continues and cannot know how many it sent: every later
/// number is one that no event can have had.
pub(super) fn number_apart(sequence: u64) -> u64 {
    (sequence / NUMBERS_APART + 1).saturating_mul(NUMBERS_APART)
}
