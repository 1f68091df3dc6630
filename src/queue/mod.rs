//! The way from the capture threads to a shard: bounded lock-free queues of blocks of signals, and of the marks between them.
//!
//! What enters: signals one by one, and marks. What leaves: the same, those of each capture thread in their order, and the
//! marks of all threads as one. Signals travel in recycled blocks of 64, which makes a queue cost a few nanoseconds a signal.
//! Neither side wakes the other more often than it must: the reader is woken when a few blocks have gathered, when a mark has
//! come or when the writer has nothing more for now, the writer when the queue is half empty.

mod inbox;

pub use inbox::Inbox;

use crate::config::{
    BLOCK_SIGNAL_COUNT, QUEUE_BLOCKS_MAX, QUEUE_MARKS_MAX, QUEUE_SLEEP_MAX, QUEUE_WAIT_MAX_US, QUEUE_WAKE_BLOCKS,
};
use crate::prefetch::prefetch;
use crate::signal::{Signal, TimeBase};
use crate::snapshot::Marker;
use crossbeam::queue::ArrayQueue;
use crossbeam::sync::{Parker, Unparker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a queue holds at most.
const PLACE_COUNT: usize = QUEUE_BLOCKS_MAX + QUEUE_MARKS_MAX;

/// Blocks beside the writer's own: those in the queue, the one that the reader works off and its next, and the writer's next.
const SPARE_BLOCKS_MAX: usize = QUEUE_BLOCKS_MAX + 3;

/// Signals of a reader's next block that it asks for while it works off the one before: until these are worked off there is time to ask
/// for the rest.
const FIRST_COUNT: usize = 24;

/// Signals on their way.
pub struct Block {
    signals: [Signal; BLOCK_SIGNAL_COUNT],
    count: usize,
}

impl Block {
    fn new() -> Box<Self> {
        Box::new(Block { signals: [Signal::EMPTY; BLOCK_SIGNAL_COUNT], count: 0 })
    }

    /// The signals, in order.
    #[must_use]
    pub fn signals(&self) -> &[Signal] {
        &self.signals[..self.count]
    }

    /// Asks for its first signals, and for their number: another core has written them.
    fn prefetch(&self) {
        prefetch(&self.count);
        self.signals.iter().take(FIRST_COUNT).for_each(prefetch);
    }

    #[inline]
    fn push(&mut self, signal: &Signal) {
        self.signals[self.count] = *signal;
        self.count += 1;
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.count == BLOCK_SIGNAL_COUNT
    }
}

/// What comes out of a queue.
pub enum Message {
    /// Signals; the block is to be given back with [`Inbox::recycle`].
    Signals(Box<Block>),
    /// A new time base begins here.
    Base(TimeBase),
    /// An interval ends here.
    Marker(Marker),
    /// A cut of the archive: what closes before it is sorted together.
    Cut,
}

/// What a writer does when its queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits: nothing is lost, and the input comes slower.
    Wait,
    /// It waits for [`QUEUE_WAIT_MAX_US`] at most, and then drops a block of signals and counts them. Marks always wait.
    Drop,
}

struct Shared {
    full: ArrayQueue<Message>,
    empty: ArrayQueue<Box<Block>>,
    reader_sleeps: AtomicBool,
    writer_sleeps: AtomicBool,
    writer_is_gone: AtomicBool,
    reader_is_gone: AtomicBool,
}

/// A capture thread's end of a queue.
pub struct Writer {
    shared: Arc<Shared>,
    block: Box<Block>,
    when_full: WhenFull,
    /// Blocks that there is room for at least: how many there are is the reader's to change, and to look at it is to fetch it from
    /// another core.
    room: usize,
    /// Whether the last block was dropped: then the next does not wait either.
    is_dropping: bool,
    dropped: u64,
    parker: Parker,
    reader: Unparker,
}

/// A shard's end of one queue.
struct Reader {
    shared: Arc<Shared>,
    writer: Unparker,
}

/// The queues of one shard, one for each capture thread, with all their memory: [`size`] bytes each.
#[must_use]
pub fn queues(writer_count: usize, when_full: WhenFull) -> (Vec<Writer>, Inbox) {
    let parker = Parker::new();
    let (writers, readers) = (0..writer_count).map(|_| queue(when_full, parker.unparker().clone())).unzip();
    (writers, Inbox::new(readers, parker))
}

fn queue(when_full: WhenFull, reader: Unparker) -> (Writer, Reader) {
    let shared = Arc::new(Shared {
        full: ArrayQueue::new(PLACE_COUNT),
        empty: ArrayQueue::new(SPARE_BLOCKS_MAX),
        reader_sleeps: AtomicBool::new(false),
        writer_sleeps: AtomicBool::new(false),
        writer_is_gone: AtomicBool::new(false),
        reader_is_gone: AtomicBool::new(false),
    });
    while shared.empty.push(Block::new()).is_ok() {}
    let parker = Parker::new();
    let writer = parker.unparker().clone();
    let block = Block::new();
    (
        Writer {
            shared: Arc::clone(&shared),
            block,
            when_full,
            room: 0,
            is_dropping: false,
            dropped: 0,
            parker,
            reader,
        },
        Reader { shared, writer },
    )
}

/// The memory of a queue in bytes.
#[must_use]
pub const fn size() -> usize {
    (SPARE_BLOCKS_MAX + 1) * size_of::<Block>()
        + PLACE_COUNT * size_of::<Message>()
        + SPARE_BLOCKS_MAX * size_of::<Box<Block>>()
}

impl Writer {
    /// Appends a signal. Once the reader is gone, what is appended is lost.
    #[inline]
    pub fn push(&mut self, signal: &Signal) {
        self.block.push(signal);
        if self.block.is_full() {
            self.send_block();
        }
    }

    /// Sends off what was pushed, and lets the reader know: there may be nothing more for a while.
    pub fn flush(&mut self) {
        self.send_block();
        if !self.shared.full.is_empty() {
            self.wake_reader();
        }
    }

    /// Signals that were dropped so far because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Waits from now on when the queue is full, whatever it did before: there is time, because nothing comes any more.
    pub fn drop_no_more(&mut self) {
        self.when_full = WhenFull::Wait;
    }

    /// Sends off a mark, behind all that was pushed before; waits while the queue is full.
    pub fn mark(&mut self, mark: Message) {
        self.send_block();
        // It takes a place that a block may have been counted on.
        self.room = 0;
        let mut waiting = Some(mark);
        while let Some(mark) = waiting.take()
            && let Err(back) = self.shared.full.push(mark)
        {
            if self.shared.reader_is_gone.load(Ordering::Acquire) {
                return;
            }
            waiting = Some(back);
            self.sleep(QUEUE_SLEEP_MAX);
        }
        self.wake_reader();
    }

    fn send_block(&mut self) {
        if self.block.count == 0 {
            return;
        }
        if self.room == 0 {
            self.room = self.room_now();
        }
        if self.room == 0 && !self.wait_for_room() {
            self.is_dropping = true;
            self.dropped += self.block.count as u64;
            self.block.count = 0;
            return;
        }
        // With every place of the queue taken, two blocks in the reader's hands and this one, another is still free.
        let mut next = self.shared.empty.pop().unwrap_or_else(Block::new);
        next.count = 0;
        let block = std::mem::replace(&mut self.block, next);
        // Only this thread fills the queue, so the room that was found is still there.
        drop(self.shared.full.push(Message::Signals(block)));
        self.room -= 1;
        self.is_dropping = false;
        // Whether it sleeps is asked first: that seldom changes. If it just falls asleep the next block wakes it, or the flush behind.
        if self.shared.reader_sleeps.load(Ordering::SeqCst) && self.shared.full.len() >= QUEUE_WAKE_BLOCKS {
            self.wake_reader();
        }
    }

    fn room_now(&self) -> usize {
        QUEUE_BLOCKS_MAX.saturating_sub(self.shared.full.len())
    }

    /// Waits for room as the policy has it; whether there is any.
    #[cold]
    fn wait_for_room(&mut self) -> bool {
        let began = Instant::now();
        while self.room_now() == 0 {
            let is_over = match self.when_full {
                WhenFull::Wait => false,
                WhenFull::Drop => self.is_dropping || began.elapsed() > Duration::from_micros(QUEUE_WAIT_MAX_US),
            };
            if is_over || self.shared.reader_is_gone.load(Ordering::Acquire) {
                return false;
            }
            self.sleep(match self.when_full {
                WhenFull::Wait => QUEUE_SLEEP_MAX,
                WhenFull::Drop => Duration::from_micros(QUEUE_WAIT_MAX_US),
            });
        }
        self.room = self.room_now();
        true
    }

    /// Sleeps until the reader has made room.
    fn sleep(&mut self, time_max: Duration) {
        self.wake_reader();
        self.shared.writer_sleeps.store(true, Ordering::SeqCst);
        // The reader may have made room just before it could know that it is waited for.
        if self.shared.full.len() > QUEUE_BLOCKS_MAX / 2 {
            self.parker.park_timeout(time_max);
        }
        self.shared.writer_sleeps.store(false, Ordering::SeqCst);
    }

    fn wake_reader(&self) {
        if self.shared.reader_sleeps.swap(false, Ordering::SeqCst) {
            self.reader.unpark();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.send_block();
        self.shared.writer_is_gone.store(true, Ordering::SeqCst);
        self.reader.unpark();
    }
}

impl Reader {
    /// The next message, if there is one.
    fn try_receive(&self) -> Option<Message> {
        self.shared.full.pop()
    }

    /// How much waits here.
    fn len(&self) -> usize {
        self.shared.full.len()
    }

    /// Whether there will be no more, once what waits has been taken.
    fn is_closed(&self) -> bool {
        self.shared.writer_is_gone.load(Ordering::SeqCst)
    }

    /// Gives a block back, so that it can be filled again.
    fn recycle(&self, block: Box<Block>) {
        // There is room for every block; one too many would merely be freed.
        drop(self.shared.empty.push(block));
        self.wake_writer();
    }

    fn wake_writer(&self) {
        let shared = &self.shared;
        let may_wake = shared.writer_sleeps.load(Ordering::SeqCst) && shared.full.len() <= QUEUE_BLOCKS_MAX / 2;
        if may_wake && shared.writer_sleeps.swap(false, Ordering::SeqCst) {
            self.writer.unpark();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.reader_is_gone.store(true, Ordering::Release);
        self.writer.unpark();
    }
}

#[cfg(test)]
mod tests;
