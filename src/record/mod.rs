//! Records of connections that have ended, on their way from the shards to an archive; and of those that have opened
//! too, on their way to whom the engine reports events.
//!
//! Blocks of records, and the cuts between them, go through one bounded queue. Blocks are recycled. When the queue is
//! full a replay waits; a live capture drops the block and counts its records, since no archive may hold up packets.
//!
//! The records of one partition stay in order; those of different partitions are interleaved as their threads happen to
//! run. A cut is at the same packet in all partitions, so sorting the records between two cuts gives the same result
//! with any number of shards.

mod recorder;
mod remembered;
mod saves;

pub use crate::handover::{Ending, SidesSeen};
pub use recorder::{RecordedTime, Recorder};
pub(crate) use remembered::Remembered;
pub(crate) use saves::SaveCuts;
pub use saves::SaveHandle;

use crate::flow::AnyKey;
use crate::queue::WhenFull;
use crate::signal::PARTITION_COUNT;
use crossbeam::channel::{Receiver, Sender, bounded, select};
use crossbeam::queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Records in a block: as for signals, enough that the queue costs little a record.
pub(crate) const RECORD_BLOCK_COUNT: usize = 64;

/// The most blocks of records that wait for the archive: half a second at 100,000 closings a second, longer than a disk
/// usually stalls.
const RECORD_QUEUE_BLOCKS_MAX: usize = 1_024;

/// A connection that was established: it has opened, or it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key, client first.
    pub key: AnyKey,
    /// When it started, in ticks of wall time since 1970.
    pub start: i64,
    /// When it ended or, if it did not, when it was established, in ticks of wall time since 1970.
    pub end: i64,
    /// By how much the wall clock was set between the two, in ticks: the connection lasted `end - start - clock_set`.
    pub clock_set: i64,
    /// How it ended; `None` where it has opened.
    pub ending: Option<Ending>,
    /// Which sides were seen, of one that has ended, where that is known.
    pub seen: Option<SidesSeen>,
    /// Whether the start was not seen: then `start` is when the connection was first seen.
    pub midstream: bool,
    /// Whether it may have started some whole wraps of the tick earlier: filters know starts only up to the wrap
    /// ([`TICK_BITS`](crate::signal::TICK_BITS)), and this connection could be older.
    pub may_be_older: bool,
}

/// Records of one partition, in the order in which the connections ended.
pub struct Block {
    partition: usize,
    records: Vec<Record>,
}

impl Block {
    fn new() -> Box<Self> {
        Box::new(Block { partition: 0, records: Vec::with_capacity(RECORD_BLOCK_COUNT) })
    }

    /// The partition that the records are of.
    #[must_use]
    pub fn partition(&self) -> usize {
        self.partition
    }

    /// The records, in order.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

/// A message of the queue.
pub enum Message {
    /// Records. The block goes back with [`Outlet::recycle`].
    Records(Box<Block>),
    /// This partition has sent everything up to the cut.
    Cut {
        /// The partition.
        partition: usize,
        /// Whether the state of the run is saved at the cut.
        saves: bool,
    },
}

/// The end of the queue for the recorders, of which there may be as many as there are partitions.
#[derive(Clone, Debug)]
pub struct Inlet {
    full: Sender<Message>,
    empty: Arc<ArrayQueue<Box<Block>>>,
    when_full: WhenFull,
    /// Whether openings are recorded too.
    takes_openings: bool,
    /// Whether the records are for an archive: what is dropped of them is not in it.
    is_of_archive: bool,
    /// How many records all recorders have dropped.
    dropped: Arc<AtomicU64>,
}

/// The end of the queue for the archive.
pub struct Outlet {
    full: Receiver<Message>,
    empty: Arc<ArrayQueue<Box<Block>>>,
}

/// All blocks: those in the queue, those that the partitions fill, and the one that is being read.
const BLOCKS_MAX: usize = RECORD_QUEUE_BLOCKS_MAX + PARTITION_COUNT + 1;

/// A queue with all its memory of [`size`] bytes.
#[must_use]
pub fn queue(when_full: WhenFull) -> (Inlet, Outlet) {
    let (sender, receiver) = bounded(RECORD_QUEUE_BLOCKS_MAX);
    let empty = Arc::new(ArrayQueue::new(BLOCKS_MAX));
    while empty.push(Block::new()).is_ok() {}
    let inlet = Inlet {
        full: sender,
        empty: Arc::clone(&empty),
        when_full,
        takes_openings: false,
        is_of_archive: true,
        dropped: Arc::default(),
    };
    (inlet, Outlet { full: receiver, empty })
}

/// The memory of a queue, in bytes.
#[must_use]
pub const fn size() -> usize {
    BLOCKS_MAX * (RECORD_BLOCK_COUNT * size_of::<Record>() + size_of::<Block>() + size_of::<Message>())
}

impl Inlet {
    /// This inlet, of records that become events, with one of every opening or without.
    #[must_use]
    pub fn of_events(self, takes_openings: bool) -> Self {
        Inlet { takes_openings, is_of_archive: false, ..self }
    }

    /// Where the records that are dropped are counted, of all recorders together.
    #[must_use]
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Sends a block and puts an empty one in its place. Returns how many records were dropped because the queue was
    /// full or closed.
    fn send(&self, block: &mut Box<Block>) -> u64 {
        let empty = self.empty.pop().unwrap_or_else(Block::new);
        let full = Message::Records(std::mem::replace(block, empty));
        let refused = match self.when_full {
            WhenFull::Wait => self.full.send(full).err().map(|error| error.0),
            WhenFull::Drop | WhenFull::DropAtOnce => self.full.try_send(full).err().map(|error| error.into_inner()),
        };
        let Some(Message::Records(mut refused)) = refused else { return 0 };
        let dropped = refused.records.len() as u64;
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
        refused.records.clear();
        // There is room for every block.
        drop(self.empty.push(refused));
        dropped
    }

    /// Sends a partition's cut. Only a replay has cuts, and it waits for room.
    fn cut(&self, partition: usize, saves: bool) {
        if self.when_full == WhenFull::Wait {
            // If the archive is gone there is nothing to cut.
            drop(self.full.send(Message::Cut { partition, saves }));
        }
    }
}

impl Outlet {
    /// The receiver of the queue, which is closed when all recorders and their [`Inlet`]s are gone.
    #[must_use]
    pub fn messages(&self) -> &Receiver<Message> {
        &self.full
    }

    /// Gives a block back to be filled again.
    pub fn recycle(&self, mut block: Box<Block>) {
        block.records.clear();
        // There is room for every block; a surplus one would merely be freed.
        drop(self.empty.push(block));
    }
}

/// What ended a wait for records.
pub(crate) enum Received<C> {
    /// Records came, and were passed on.
    Records,
    /// A command came; `None` if no more can come.
    Command(Option<C>),
    /// It was time.
    Time,
}

/// Waits for messages, a command or a point in time. What was recorded before a command was sent is passed to `take`
/// before the command is returned.
pub(crate) fn receive<C>(
    messages: &Receiver<Message>,
    commands: &Receiver<C>,
    time: &Receiver<Instant>,
    take: impl FnMut(Message),
) -> Received<C> {
    select! {
        recv(messages) -> message => {
            message.into_iter().chain(messages.try_iter().take(messages.len())).for_each(take);
            Received::Records
        }
        recv(commands) -> command => {
            messages.try_iter().take(messages.len()).for_each(take);
            Received::Command(command.ok())
        }
        recv(time) -> _ => Received::Time,
    }
}

#[cfg(test)]
mod tests;
