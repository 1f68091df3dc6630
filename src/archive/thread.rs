//! The archive's thread: records and lists of open connections in, segments out.
//!
//! What enters: the queue of records, lists of open connections, and the end of the run. What leaves: the archive's
//! files. In a live capture shards never wait for the disk: they count what does not fit into the queue. After a
//! failure everything is still received and nothing is written, and the run gets the error at its next list.

use crate::archive::ages::Ages;
use crate::archive::block::ARCHIVE_BLOCK_ENTRIES_MAX;
use crate::archive::index::IndexThread;
use crate::archive::sorter::Sorter;
use crate::archive::writer::OpenList;
use crate::archive::{ArchiveConfig, Entry, Recovery, Writer, Written};
use crate::error::{Error, Result};
use crate::queue::WhenFull;
use crate::record::{self, Inlet, Message, Outlet};
use crossbeam::channel::{Receiver, Sender, bounded, never, select};
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
pub(super) enum Command {
    /// The old connections at the end of a list.
    Ages(Ages),
    /// A list of open connections begins.
    BeginOpen,
    /// A part of that list.
    Open(Vec<Entry>),
    /// That list is complete.
    EndOpen,
    /// The run has ended.
    Finish,
}

/// What an archive has done in a run.
#[derive(Debug, Default)]
pub struct Summary {
    /// What was written.
    pub written: Written,
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
        let is_live = when_full == WhenFull::Drop;
        let (writer, recovery) = Writer::open(directory, config)?;
        let (inlet, outlet) = record::queue(when_full);
        let (commands, received) = bounded(ARCHIVE_OPEN_CHUNKS_MAX);
        let has_failed = Arc::new(AtomicBool::new(false));
        let worker = Worker {
            writer,
            outlet,
            commands: received,
            sorter: Sorter::new(),
            ages: Ages::default(),
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

    /// The memory in bytes that an archive takes.
    #[must_use]
    pub fn memory_size(config: &ArchiveConfig) -> u64 {
        let entries_max = config.segment_entries_max();
        let segment_size = entries_max * (size_of::<Entry>() + 2 * size_of::<u128>());
        let open_size = ARCHIVE_OPEN_CHUNKS_MAX * ARCHIVE_BLOCK_ENTRIES_MAX * size_of::<Entry>();
        (record::size() + segment_size + open_size) as u64 + IndexThread::memory_size(entries_max)
    }

    /// The inlet for records.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        self.inlet.clone()
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
        // The thread receives everything until it is told to finish.
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
    ages: Ages,
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
        loop {
            let messages = self.outlet.messages().clone();
            let commands = self.commands.clone();
            let timeout =
                self.waiting_since.map_or_else(never, |since| crossbeam::channel::at(since + ARCHIVE_FLUSH_DELAY));
            select! {
                recv(messages) -> message => message.into_iter().for_each(|message| self.message(message)),
                recv(commands) -> command => {
                    // What was recorded before the command was sent comes before it.
                    messages.try_iter().take(messages.len()).for_each(|message| self.message(message));
                    match command {
                        Ok(Command::Finish) | Err(_) => break,
                        Ok(command) => self.command(command),
                    }
                }
                recv(timeout) -> _ => self.flush(),
            }
        }
        self.flush();
        let finished = self.writer.finish();
        self.take_down(finished);
        self.index.submit(self.writer.take_sealed());
        let written = self.writer.written();
        let (indexes, warnings) = self.index.finish();
        match self.error {
            Some(error) => Err(error),
            None => Ok(Summary { written, indexes, warnings }),
        }
    }

    fn message(&mut self, message: Message) {
        let sorted = match message {
            Message::Records(block) => {
                let partition = block.partition();
                let ages = &self.ages;
                self.sorter.add(partition, block.records().iter().map(|record| ages.told(Entry::from(record))));
                self.outlet.recycle(block);
                if self.is_live {
                    self.waiting_since.get_or_insert_with(Instant::now);
                    if self.sorter.len() >= ARCHIVE_BLOCK_ENTRIES_MAX {
                        self.flush();
                    }
                }
                return;
            }
            Message::Cut(partition) => self.sorter.cut(partition),
        };
        if self.error.is_none() && !sorted.is_empty() {
            let added = self.writer.add(sorted);
            self.take_down(added);
            self.index.submit(self.writer.take_sealed());
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
            Command::EndOpen => self.open_list.take().map_or(Ok(()), OpenList::finish),
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
