//! The archive's thread: records and lists of open connections in, segments out.
//!
//! It takes the queue of records, lists of open connections, and the end of the run, and gives the archive's files. In
//! a live capture shards never wait for the disk: they count what does not fit into the queue. After a failure
//! everything is still received and nothing is written, and the run gets the error at its next list.

use crate::archive::ages::Ages;
use crate::archive::block::ARCHIVE_BLOCK_ENTRIES_MAX;
use crate::archive::index::IndexThread;
use crate::archive::resume::{Recorded, SavePoint};
use crate::archive::sorter::Sorter;
use crate::archive::writer::{OpenList, Origin};
use crate::archive::{ArchiveConfig, Entry, Recovery, SavedRun, Writer, Written};
use crate::error::{Error, Result};
use crate::queue::WhenFull;
use crate::record::{self, Inlet, Message, Outlet, Received, Remembered, SaveCuts, SaveHandle};
use crossbeam::channel::{Receiver, Sender, bounded, never};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use std::time::Instant;

/// How long live records wait before they are synced to the disk: the most that a crash may lose.
const ARCHIVE_FLUSH_DELAY: Duration = Duration::from_secs(1);

/// Parts of a list of open connections, of [`ARCHIVE_BLOCK_ENTRIES_MAX`] each, that wait for the archive.
const ARCHIVE_OPEN_CHUNKS_MAX: usize = 2;

/// A command from the list thread.
#[derive(Debug)]
pub(super) enum Command {
    /// The old connections at the end of a list.
    Ages(Arc<Ages>),
    /// A list of open connections begins.
    BeginOpen,
    /// A part of that list.
    Open(Vec<Entry>),
    /// That list is complete.
    EndOpen,
    /// The state of the run is saved at this cut; the archive's part of it is wanted.
    Save(Mark, Sender<Vec<u8>>),
    /// The run has ended.
    Finish,
}

/// The number of a save in a run, from 0.
type Mark = u64;

/// What an archive has done in a run.
#[derive(Debug, Default)]
pub struct Summary {
    /// What was written.
    pub written: Written,
    /// How many connections came once more, because the run continued from a saved state.
    pub repeated: u64,
    /// How many indexes were built.
    pub indexes: u64,
    /// What went wrong with indexes. Nothing is lost by that: `find` is slower without them.
    pub warnings: Vec<Error>,
}

/// A running archive. When it is dropped, all that has come in is written, and errors are ignored.
pub struct Archive {
    inlet: Inlet,
    commands: Sender<Command>,
    has_failed: Arc<AtomicBool>,
    is_live: bool,
    thread: Option<JoinHandle<Result<Summary>>>,
}

impl Archive {
    /// Opens an archive and starts its thread. With [`WhenFull::Wait`] a full queue makes shards wait; otherwise they
    /// drop records.
    ///
    /// # Errors
    ///
    /// The archive cannot be opened, or a thread cannot be started.
    pub fn start(directory: &Path, config: ArchiveConfig, when_full: WhenFull) -> Result<(Self, Recovery)> {
        Archive::start_for(directory, config, when_full, None)
    }

    /// As [`Self::start`], for a run that saves its state, or one that does not. What the archive has from behind the
    /// save point is not archived twice.
    ///
    /// # Errors
    ///
    /// As [`Self::start`]; or the archive is not the one that belongs to the state, or another run has written to it
    /// since.
    pub fn start_for(
        directory: &Path,
        config: ArchiveConfig,
        when_full: WhenFull,
        run: Option<&SavedRun>,
    ) -> Result<(Self, Recovery)> {
        let is_live = when_full == WhenFull::Drop;
        let point = run.and_then(|run| run.part.as_deref()).map(SavePoint::decode).transpose()?;
        let segment = point.as_ref().map_or(0, |point| point.segment);
        let origin = run.map(|run| Origin { run: run.number, repeats_from: (!is_live).then_some(segment) });
        let (writer, mut recovery) = Writer::open_for(directory, config, origin)?;
        let recorded = point.as_ref().filter(|_| is_live);
        let recorded = recorded.map(|point| Recorded::of(directory, point)).transpose()?;
        recovery.unremembered = recorded.as_ref().map_or(0, |recorded| recorded.surplus_count());
        let (inlet, outlet) = record::queue(when_full);
        let (commands, received) = bounded(ARCHIVE_OPEN_CHUNKS_MAX);
        let has_failed = Arc::new(AtomicBool::new(false));
        let worker = Worker {
            segment_before: writer.number(),
            writer,
            outlet,
            commands: received,
            sorter: Sorter::new(),
            ages: point.map(|point| Arc::new(point.ages)).unwrap_or_default(),
            recorded,
            repeated: 0,
            save_segments: SaveCuts::new(),
            open_list: None,
            index: IndexThread::start(directory)?,
            waiting_since: None,
            error: None,
            has_failed: Arc::clone(&has_failed),
            is_live,
        };
        let thread = Builder::new().name("archive".to_owned()).spawn(|| worker.run());
        let thread = thread.map_err(|error| Error::new("cannot start a thread").because(error))?;
        Ok((Archive { inlet, commands, has_failed, is_live, thread: Some(thread) }, recovery))
    }

    /// The memory in bytes that an archive takes. Live, more is taken if the state is saved.
    #[must_use]
    pub fn memory_size(config: &ArchiveConfig, saves_live: bool) -> u64 {
        let entries_max = config.segment_entries_max();
        let segment_size = entries_max * (size_of::<Entry>() + 2 * size_of::<u128>());
        let open_size = ARCHIVE_OPEN_CHUNKS_MAX * ARCHIVE_BLOCK_ENTRIES_MAX * size_of::<Entry>();
        let recorded_size = if saves_live { Remembered::SIZE_MAX } else { 0 };
        (record::size() + segment_size + open_size) as u64 + IndexThread::memory_size(entries_max) + recorded_size
    }

    /// The inlet for records.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        self.inlet.clone()
    }

    /// What gives the archive's part of saved states.
    #[must_use]
    pub fn save_handle(&self) -> SaveHandle {
        SaveHandle::by(self.commands.clone(), Command::Save)
    }

    /// Whether the archive can no longer be written to. [`Self::finish`] returns the reason.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    pub(super) fn send(&self, command: Command) {
        // The thread receives everything until the message to finish.
        drop(self.commands.send(command));
    }

    /// Writes all that has come in, and ends the thread. Everything that sends records must have ended before.
    ///
    /// # Errors
    ///
    /// Something could not be written, now or earlier.
    pub fn finish(mut self) -> Result<Summary> {
        self.send(Command::Finish);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(summary)) => summary,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(Summary::default()),
        }
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.send(Command::Finish);
            drop(thread.join());
        }
    }
}

struct Worker {
    writer: Writer,
    outlet: Outlet,
    commands: Receiver<Command>,
    sorter: Sorter<Entry>,
    ages: Arc<Ages>,
    /// Live, the connections that were archived behind the state that the run continues from.
    recorded: Option<Recorded>,
    /// How many of them have ended once more.
    repeated: u64,
    /// In a replay, the segments that began at the cuts of saves.
    save_segments: SaveCuts<u32>,
    /// Live, the segment that was being filled at the save before.
    segment_before: u32,
    open_list: Option<OpenList>,
    index: IndexThread,
    /// When the oldest entry came in that is not on the disk.
    waiting_since: Option<Instant>,
    error: Option<Error>,
    has_failed: Arc<AtomicBool>,
    is_live: bool,
}

impl Worker {
    fn run(mut self) -> Result<Summary> {
        // What earlier runs left without an index, and what was recovered, is indexed now.
        self.writer.take_sealed();
        self.index.submit_missing();
        let (messages, commands) = (self.outlet.messages().clone(), self.commands.clone());
        loop {
            let time =
                self.waiting_since.map_or_else(never, |since| crossbeam::channel::at(since + ARCHIVE_FLUSH_DELAY));
            match record::receive(&messages, &commands, &time, |message| self.message(message)) {
                Received::Records => {}
                Received::Command(Some(Command::Finish) | None) => break,
                Received::Command(Some(command)) => self.command(command),
                Received::Time => self.flush(),
            }
        }
        self.flush();
        // What could not be written whole is as a killed process leaves it. Written again, it would be there twice.
        if self.error.is_none() {
            let finished = self.writer.finish();
            self.take_down(finished);
        }
        self.index.submit(self.writer.take_sealed());
        let written = self.writer.written();
        let (indexes, warnings) = self.index.finish();
        match self.error {
            Some(error) => Err(error),
            None => Ok(Summary { written, repeated: self.repeated, indexes, warnings }),
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Records(block) => {
                self.records(&block);
                self.outlet.recycle(block);
            }
            Message::Cut { partition, saves } => self.cut(partition, saves),
        }
    }

    fn records(&mut self, block: &record::Block) {
        let Worker { ages, recorded, repeated, .. } = self;
        let entries = block.records().iter().map(|record| ages.with_known_start(Entry::from(record)));
        let entries = entries.filter(|entry| {
            let is_known = recorded.as_mut().is_some_and(|recorded| recorded.meets(entry));
            *repeated += u64::from(is_known);
            !is_known
        });
        self.sorter.add(block.partition(), entries);
        if self.is_live {
            self.waiting_since.get_or_insert_with(Instant::now);
            if self.sorter.len() >= ARCHIVE_BLOCK_ENTRIES_MAX {
                self.flush();
            }
        }
    }

    /// Writes what came before a cut that all partitions have reached. Where the state is saved a segment ends, so that
    /// what comes behind it can be taken back.
    fn cut(&mut self, partition: usize, saves: bool) {
        let Some((sorted, saves)) = self.sorter.cut(partition, saves) else { return };
        if self.error.is_some() {
            return;
        }
        let mut done = self.writer.add(sorted);
        if saves {
            done = done.and_then(|()| self.writer.seal());
            self.save_segments.push(self.writer.number());
        }
        self.take_down(done);
        self.index.submit(self.writer.take_sealed());
    }

    /// Gives the archive's part of a saved state, once everything that it has to have is on the disk.
    fn save(&mut self, mark: Mark, reply: &Sender<Vec<u8>>) {
        let segment = if self.is_live {
            self.flush();
            // A partition may have been ahead of the save, but none by so much as from this save to the next.
            Some(std::mem::replace(&mut self.segment_before, self.writer.number()))
        } else {
            self.save_segments.of(mark).copied()
        };
        if let Some(segment) = segment.filter(|_| self.error.is_none()) {
            drop(reply.send(SavePoint::encode(segment, &self.ages, self.recorded.as_ref())));
        }
    }

    /// Writes all that has come in to the disk.
    fn flush(&mut self) {
        self.waiting_since = None;
        let sorted = self.sorter.drain();
        if self.error.is_none() {
            let flushed = self.writer.add(sorted).and_then(|()| self.writer.flush());
            self.take_down(flushed);
            self.index.submit(self.writer.take_sealed());
        }
    }

    fn command(&mut self, command: Command) {
        if self.error.is_some() {
            return;
        }
        let done = match command {
            Command::Ages(ages) => {
                self.ages = ages;
                Ok(())
            }
            Command::BeginOpen => {
                // Connections that are no longer on the list must be on the disk before the list is.
                if self.is_live {
                    self.flush();
                }
                self.writer.begin_open_list().map(|list| self.open_list = Some(list))
            }
            Command::Open(entries) => self.open_list.as_mut().map_or(Ok(()), |list| list.add(&entries)),
            Command::EndOpen => self.open_list.take().map_or(Ok(()), |list| self.writer.finish_open_list(list)),
            Command::Save(mark, reply) => {
                self.save(mark, &reply);
                Ok(())
            }
            Command::Finish => Ok(()),
        };
        self.take_down(done);
    }

    fn take_down(&mut self, done: Result<()>) {
        if let Err(error) = done {
            self.has_failed.store(true, Ordering::Relaxed);
            self.error.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Endpoint, Query, SEGMENT_SIZE_MIN, find};
    use crate::flow::{AnyKey, VlanTags};
    use crate::record::{Ending, Recorder};
    use crate::signal::{PARTITION_COUNT, TimeBase};
    use std::fs;
    use std::net::{IpAddr, SocketAddr};

    const SERVER: [u8; 4] = [192, 0, 2, 1];

    #[test]
    fn what_was_written_when_it_failed_is_there_once() {
        let place = tempfile::tempdir().unwrap();
        let config = ArchiveConfig { segment_size: SEGMENT_SIZE_MIN, ..ArchiveConfig::default() };
        let (archive, _) = Archive::start(place.path(), config, WhenFull::Drop).unwrap();
        let base = TimeBase { first_tick: 1 << 20, offset_ns: 0 };
        let mut recorders: Vec<_> = (0..PARTITION_COUNT).map(|index| Recorder::new(index, archive.inlet())).collect();
        recorders.iter_mut().for_each(|recorder| recorder.start_base(base));
        let mut record = |range: std::ops::Range<u32>| {
            for index in range {
                let client = SocketAddr::from((index.wrapping_mul(0x9e37_79b9).to_be_bytes(), 40_000));
                let key = AnyKey::of_ends(client, (SERVER, 443).into(), VlanTags::NONE).unwrap();
                recorders[0].record(key, 0, Some(Ending::Fin), None, base.first_tick + 5);
            }
            recorders.iter_mut().for_each(Recorder::cut);
        };
        record(0..100);
        let log = place.path().join("segment-0000000001.log");
        while !fs::metadata(&log).is_ok_and(|log| log.len() > 100) {
            std::thread::yield_now();
        }
        // From now on no further segment can be begun: what would say so is in the way.
        let newest = place.path().join("newest");
        fs::remove_file(&newest).unwrap();
        fs::create_dir(&newest).unwrap();
        record(100..30_000);
        archive.finish().map(drop).unwrap_err();
        fs::remove_dir(&newest).unwrap();
        let server = Endpoint { address: IpAddr::from(SERVER), port: None };
        let mut found = find(place.path(), &Query { one: server, other: None }).unwrap().entries;
        let count = found.len();
        found.sort_unstable();
        found.dedup();
        assert!(found.len() == count && count >= 100, "{} of {count} connections", found.len());
    }
}
