//! The directory of snapshots on a router -> the frames to send, oldest first.
//!
//! It follows the directory that `flowpeel live --snapshots` writes and changes nothing in it. What was sent is
//! remembered in a note beside the directory, written after the broker has it, whole or not at all: a shipper that is
//! killed in between sends the same frames of the same snapshot again, byte for byte.

use crate::frame::{End, Hashed, Keys, Place, RunId, seal};
use crate::key::RouterKey;
use crate::metrics::Reached;
use crate::subject;
use flowpeel::agent::{Incoming, Settled};
use flowpeel::disk::whole_file::{NewFile, Temporary};
use flowpeel::error::{Error, Result};
use flowpeel::export::SnapshotName;
use flowpeel::signal::PARTITION_COUNT;
use flowpeel::snapshot::{RouterPart, SnapshotFile};
use flowpeel_iblt::hash::Secret;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A frame is whole at least this often: in five minutes where intervals have ten seconds. Whoever has lost one waits
/// no longer.
pub const WHOLE_EVERY: u32 = 30;

/// The most bytes of the note: a router's name of full length, escaped, and numbers take less.
const NOTE_SIZE_MAX: u64 = 4 << 10;

/// The temporary name of the note while it is being written.
const NOTE_TEMPORARY: Temporary = Temporary { prefix: ".shipped-", suffix: ".tmp", mode: 0o640 };

/// Where snapshots are, and under what they are sent.
#[derive(Clone, Debug)]
pub struct SpoolConfig {
    /// The directory of snapshots.
    pub directory: PathBuf,
    /// The note of what was sent.
    pub note: PathBuf,
    /// The secret under which the snapshots were written.
    pub secret: Secret,
    /// The router's key.
    pub key: RouterKey,
}

/// What a shipper has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolCounts {
    /// Snapshots sent.
    pub sent: u64,
    /// Frames sent.
    pub frames: u64,
    /// Of these, those that were whole.
    pub whole: u64,
    /// Bytes of the frames that were sent.
    pub size: u64,
    /// Intervals without a snapshot: they were removed before they could be sent, or never written.
    pub removed: u64,
    /// Snapshots that were older than what was sent already.
    pub covered: u64,
    /// Files that could not be used, each of them reported.
    pub refused: u64,
}

/// What was sent last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    router: String,
    run: u64,
    origin_ns: Option<i64>,
    interval: u64,
    end_tick: u64,
    within_tick_ns: i64,
    /// The name of the snapshot.
    snapshot: String,
    /// How many frames of each partition were sent since the last whole one.
    since_whole: u32,
}

impl Note {
    fn of(source: &RouterPart, name: SnapshotName, since_whole: u32) -> Self {
        Note {
            router: source.router.clone(),
            run: source.run,
            origin_ns: source.origin_ns(),
            interval: source.figures.interval,
            end_tick: source.end_tick,
            within_tick_ns: source.within_tick_ns,
            snapshot: name.to_string(),
            since_whole,
        }
    }

    fn run(&self) -> RunId {
        RunId { run: self.run, origin_ns: self.origin_ns }
    }

    fn end(&self) -> End {
        (self.end_tick, self.within_tick_ns)
    }

    fn is_of_run(&self, source: &RouterPart) -> bool {
        self.router == source.router && self.run().is_same(&RunId { run: source.run, origin_ns: source.origin_ns() })
    }

    /// The note in this file and when it was written; `None` if there is none.
    fn read(path: &Path) -> Result<Option<(Self, SystemTime)>> {
        let cannot = |error: io::Error| {
            Error::new("cannot read what was sent already: remove it to send all again").in_file(path).because(error)
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(error)),
        };
        let modified = file.metadata().and_then(|metadata| metadata.modified()).map_err(cannot)?;
        let mut bytes = Vec::new();
        file.take(NOTE_SIZE_MAX).read_to_end(&mut bytes).map_err(cannot)?;
        let note = serde_json::from_slice(&bytes).map_err(|error| cannot(error.into()))?;
        Ok(Some((note, modified)))
    }

    fn write(&self, path: &Path) -> Result<()> {
        let cannot = |error: io::Error| Error::new("cannot note what was sent").in_file(path).because(error);
        // All of it can be written as JSON.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        let file = NewFile::begin(path, &NOTE_TEMPORARY).map_err(cannot)?;
        file.file().write_all(&bytes).map_err(cannot)?;
        file.finish().map(drop).map_err(cannot)
    }
}

/// A snapshot that is to be sent.
#[derive(Debug)]
pub struct Parcel {
    /// The name of its file.
    pub name: SnapshotName,
    /// How many snapshots there are behind it.
    pub behind: usize,
    /// The subject and the frame of each partition.
    pub frames: Vec<(String, Vec<u8>)>,
    source: RouterPart,
    images: Vec<Hashed>,
    since_whole: u32,
}

/// Follows a directory of snapshots.
pub struct Spool {
    incoming: Incoming,
    /// Names that the last look found.
    due: VecDeque<SnapshotName>,
    config: SpoolConfig,
    note: Option<Note>,
    /// The images of the snapshot that was sent last.
    sent: Option<Vec<Hashed>>,
    reached: Option<Reached>,
    counts: SpoolCounts,
}

impl Spool {
    /// A spool that continues where the last one of the same note stopped, however that ended.
    ///
    /// # Errors
    ///
    /// The directory does not exist, or the note cannot be read.
    pub fn new(config: SpoolConfig) -> Result<Self> {
        let (note, since) = Note::read(&config.note)?.unzip();
        let done = note.as_ref().and_then(|note| SnapshotName::parse(&note.snapshot)).zip(since);
        let incoming = Incoming::new(config.directory.clone(), done)?;
        let counts = SpoolCounts::default();
        let reached =
            done.map(|(name, _)| Reached { end_ns: name.end_s().saturating_mul(1_000_000_000), interval_ns: 0 });
        let mut spool = Spool { incoming, due: VecDeque::new(), config, note, sent: None, reached, counts };
        if let Some((images, reached)) = spool.last_sent() {
            (spool.sent, spool.reached) = (Some(images), Some(reached));
        }
        Ok(spool)
    }

    /// The images of the snapshot that was sent last, and when it ended, if its file is still there.
    fn last_sent(&self) -> Option<(Vec<Hashed>, Reached)> {
        let note = self.note.as_ref()?;
        let path = self.incoming.file(SnapshotName::parse(&note.snapshot)?);
        let snapshot = SnapshotFile::open(&path, &self.config.secret).ok()?;
        let source = snapshot.header.sources.first()?;
        let is_it = note.is_of_run(source) && (source.end_tick, source.within_tick_ns) == note.end();
        let images = snapshot.partition_images(&self.config.secret).ok()?;
        is_it.then(|| (images.into_iter().map(Hashed::new).collect(), Reached::of(source)))
    }

    /// The last snapshot of which the broker has all, if there is one.
    #[must_use]
    pub fn reached(&self) -> Option<Reached> {
        self.reached
    }

    /// How many snapshots are there that are not sent.
    ///
    /// Complexity: a look at every name in the directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn waiting(&mut self) -> Result<usize> {
        self.incoming.look().map(|names| names.len())
    }

    /// What was done since the start.
    #[must_use]
    pub fn counts(&self) -> SpoolCounts {
        self.counts
    }

    /// The next snapshot to send, the oldest that is there; `None` if all have been sent. Files that cannot be used are
    /// passed to `refused`; unless this is the last look, one that may still be arriving is looked at again.
    ///
    /// Complexity: reading the file, and the compression of its frames.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn next(&mut self, is_last_look: bool, refused: &mut impl FnMut(Error)) -> Result<Option<Parcel>> {
        if self.due.is_empty() {
            let names = self.incoming.look()?;
            self.due = self.incoming.ordered(names, &self.config.secret).into();
        }
        while let Some(name) = self.due.pop_front() {
            let opened = self.open(name);
            let parcel = opened
                .and_then(|opened| opened.map(|(snapshot, source)| self.parcel(name, snapshot, source)).transpose());
            match self.incoming.settle(name, parcel, is_last_look) {
                Settled::Read(parcel) => return Ok(Some(parcel)),
                Settled::Covered => self.counts.covered += 1,
                Settled::Refused(error) => {
                    self.counts.refused += 1;
                    refused(error);
                }
                Settled::Doubtful => {}
            }
        }
        Ok(None)
    }

    /// Reads a snapshot; `None` if what was sent is newer.
    fn open(&self, name: SnapshotName) -> Result<Option<(SnapshotFile, RouterPart)>> {
        let path = self.incoming.file(name);
        let snapshot = SnapshotFile::open(&path, &self.config.secret)?;
        let [source] = snapshot.header.sources.as_slice() else {
            return Err(Error::new("this is no snapshot of one router").in_file(&path));
        };
        if source.router.is_empty() {
            let what = "this router has no name: give it one with --router, so that its snapshots are distinguished";
            return Err(Error::new(what).in_file(&path));
        }
        let is_sent = self
            .note
            .as_ref()
            .is_some_and(|note| note.is_of_run(source) && (source.end_tick, source.within_tick_ns) <= note.end());
        let source = source.clone();
        Ok((!is_sent).then_some((snapshot, source)))
    }

    /// Cuts a snapshot into its frames.
    fn parcel(&self, name: SnapshotName, snapshot: SnapshotFile, source: RouterPart) -> Result<Parcel> {
        let images = snapshot.partition_images(&self.config.secret)?;
        let images: Vec<Hashed> = images.into_iter().map(Hashed::new).collect();
        let bases = self.bases(&source, &images);
        let since_whole = bases.map_or(0, |(_, since_whole)| since_whole);
        let mut frames = Vec::new();
        for (partition, image) in images.iter().enumerate() {
            let place = Place {
                router: source.router.clone(),
                key_id: snapshot.header.key_id,
                run: RunId { run: source.run, origin_ns: source.origin_ns() },
                interval: source.figures.interval,
                end: (source.end_tick, source.within_tick_ns),
                name,
                partition,
            };
            let base = bases.map(|(bases, _)| &bases[partition]);
            let keys = Keys { secret: &self.config.secret, router: &self.config.key };
            frames.push((subject::of(&source.router, partition), seal(&place, image, base, keys)?));
        }
        Ok(Parcel { name, behind: self.due.len(), frames, source, images, since_whole })
    }

    /// What the next frames build on and how many there will be since the last whole ones; `None` if they are to be
    /// whole.
    fn bases(&self, source: &RouterPart, images: &[Hashed]) -> Option<(&[Hashed], u32)> {
        let note = self.note.as_ref().filter(|note| note.is_of_run(source))?;
        let since_whole = note.since_whole.saturating_add(1);
        let sent = self.sent.as_ref().filter(|sent| since_whole < WHOLE_EVERY && sent.len() == PARTITION_COUNT)?;
        let have_one_shape =
            sent.iter().zip(images).all(|(sent, now)| sent.image.tables.len() == now.image.tables.len());
        have_one_shape.then_some((sent, since_whole))
    }

    /// Notes that the broker has all of a parcel.
    ///
    /// # Errors
    ///
    /// The note cannot be written. The parcel would be sent again.
    pub fn done(&mut self, parcel: Parcel) -> Result<()> {
        let Parcel { name, frames, source, images, since_whole, .. } = parcel;
        let expected = match &self.note {
            Some(note) if note.is_of_run(&source) => note.interval.saturating_add(1),
            // What there was of a run before the first that was sent is not known.
            _ => source.figures.interval,
        };
        let note = Note::of(&source, name, since_whole);
        note.write(&self.config.note)?;
        self.note = Some(note);
        self.sent = Some(images);
        self.reached = Some(Reached::of(&source));
        self.incoming.done(name);
        self.counts.sent += 1;
        self.counts.frames += frames.len() as u64;
        self.counts.whole += if since_whole == 0 { frames.len() as u64 } else { 0 };
        self.counts.size += frames.iter().map(|(_, frame)| frame.len() as u64).sum::<u64>();
        self.counts.removed += source.figures.interval.saturating_sub(expected);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
