//! Queues from the ports to a shard: bounded and lock-free, for blocks of signals and the marks between them.
//!
//! Signals travel in recycled blocks of 64, at a few nanoseconds a signal. The signals of each port come out in their
//! order, and each mark once. Marks come from the port itself where there is only one ([`queue`]), otherwise from a
//! clock ([`timed_queues`]): it sends each shard the ends of intervals, and each port says in its queue how many of
//! them its packets have passed.
//!
//! Wake-ups are rare: the reader is woken when [`QUEUE_WAKE_BLOCKS`] have gathered, when a mark has come, when the
//! writer flushes because it has nothing more for now, and when the writer waits for room. The writer is woken when the
//! queue is half empty. With [`WhenFull::DropAtOnce`] neither ever makes a system call for the other: the reader polls.

mod inbox;
mod marker;

pub use inbox::{ClockWriter, End, Inbox, MERGE_PATIENCE_NS, PORT_PATIENCE_NS};
pub use marker::{Marker, Seen};

use crate::signal::{Signal, TimeBase};
use crossbeam::queue::ArrayQueue;
use crossbeam::sync::{Parker, Unparker};
use flowpeel_lines::prefetch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Signals in a block: enough that the queue costs little a signal, few enough that a block stays in the first-level
/// cache.
pub const BLOCK_SIGNAL_COUNT: usize = 64;

/// The most blocks that wait in a queue: what a shard does in some milliseconds, the time it may be away. They take
/// more than a core's own cache holds (a megabyte or two): a block that has moved from there to the shared cache is
/// read in half the time.
pub const QUEUE_BLOCKS_MAX: usize = 384;

/// Marks that find room in a queue beside the blocks: an end of an interval and a new time base for each of the few
/// intervals that may be under way.
pub const QUEUE_MARKS_MAX: usize = 16;

/// How long a live capture waits for room in a full queue, in microseconds, before it drops a block of signals: as long
/// as the shard may wait for another capture thread's signals and then for its mark, and some more for either to be
/// scheduled. The kernel's ring holds more than comes in meanwhile, so what is lost sooner is lost for nothing.
pub const QUEUE_WAIT_MAX_US: u64 = 40_000;

/// How soon a live capture that waits for room checks again, in microseconds.
const QUEUE_RECHECK_US: u64 = 2_000;

/// Waiting blocks at which a sleeping shard is woken. A wake-up costs as much as handling two blocks, and a shard close
/// behind the capture thread reads from that thread's cache. The rest of the queue holds what comes in until the shard
/// runs.
pub const QUEUE_WAKE_BLOCKS: usize = 160;

/// The longest that either end of a queue sleeps before it checks for itself: a wake-up that is lost
/// costs no more.
pub(crate) const QUEUE_SLEEP_MAX: Duration = Duration::from_millis(20);

const _: () = assert!(QUEUE_WAIT_MAX_US * 1_000 > 2 * MERGE_PATIENCE_NS as u64);

const _: () = assert!(QUEUE_WAKE_BLOCKS < QUEUE_BLOCKS_MAX / 2);

/// Waiting blocks from which on a queue counts as filling: far beyond those at which the shard is woken, and a quarter
/// before what comes is dropped.
const QUEUE_FILLING_BLOCKS: usize = QUEUE_BLOCKS_MAX / 4 * 3;

const _: () = assert!(QUEUE_WAKE_BLOCKS < QUEUE_FILLING_BLOCKS && QUEUE_FILLING_BLOCKS < QUEUE_BLOCKS_MAX);

/// The places of a queue.
const PLACE_COUNT: usize = QUEUE_BLOCKS_MAX + QUEUE_MARKS_MAX;

/// The blocks of a queue apart from the one that the writer fills: those in the queue, two that the reader holds, and
/// the writer's next.
const SPARE_BLOCKS_MAX: usize = QUEUE_BLOCKS_MAX + 3;

/// Signals of its next block that a reader prefetches: while it works off these, the rest is prefetched.
const FIRST_COUNT: usize = 24;

/// A block of signals.
pub struct SignalBlock {
    /// An array, because a vector would have to be able to grow wherever a signal is put into it.
    places: Box<[Signal; BLOCK_SIGNAL_COUNT]>,
    /// How many places are taken, from the first on.
    count: usize,
}

impl SignalBlock {
    fn new() -> Self {
        SignalBlock { places: Box::new([Signal::EMPTY; BLOCK_SIGNAL_COUNT]), count: 0 }
    }

    /// The signals, in order.
    #[must_use]
    pub fn signals(&self) -> &[Signal] {
        &self.places[..self.count.min(BLOCK_SIGNAL_COUNT)]
    }

    /// Prefetches the first signals, which another core has written.
    fn prefetch(&self) {
        self.signals().iter().take(FIRST_COUNT).for_each(prefetch);
    }

    /// Appends a signal to a block that is not full.
    #[inline]
    fn push(&mut self, signal: &Signal) {
        debug_assert!(!self.is_full(), "a signal would take another's place");
        self.places[self.count % BLOCK_SIGNAL_COUNT] = *signal;
        self.count += 1;
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.count >= BLOCK_SIGNAL_COUNT
    }

    fn clear(&mut self) {
        self.count = 0;
    }
}

/// What goes through a queue. [`Message::Passed`] does not come out of an [`Inbox`].
pub enum Message {
    /// Signals. The block goes back with [`Inbox::recycle`].
    Signals(SignalBlock),
    /// A new time base begins here.
    Base(TimeBase),
    /// An interval ends here.
    Marker(Marker),
    /// A cut of the archive: the records of all connections that close before it are sorted together.
    Cut,
    /// The writer's packets have come behind ends of intervals.
    Passed(Passed),
}

/// How many ends of intervals the packets of a port have passed, and what was seen up to the last of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The number of the last end, from 1.
    pub end: u64,
    /// What the port counted since it sent this before.
    pub seen: Seen,
}

/// What a writer does when its queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Waits: nothing is lost, and the input is slowed down.
    Wait,
    /// Waits for at most [`QUEUE_WAIT_MAX_US`], then drops the block of signals and counts them. Marks always wait.
    Drop,
    /// Drops the block of signals at once and counts them. The writer never waits and never wakes the reader, so it
    /// makes no system call; the reader polls. What the writer has passed is sent as soon as there is room.
    DropAtOnce,
}

struct QueueShared {
    full: ArrayQueue<Message>,
    empty: ArrayQueue<SignalBlock>,
    reader_sleeps: AtomicBool,
    writer_sleeps: AtomicBool,
    writer_is_gone: AtomicBool,
    reader_is_gone: AtomicBool,
}

/// A port's end of a queue.
pub struct Writer {
    shared: Arc<QueueShared>,
    block: SignalBlock,
    when_full: WhenFull,
    /// A lower bound of the blocks that there is room for. The exact number depends on the reader, and to look at it is
    /// to fetch a cache line from another core.
    room: usize,
    /// Whether the last block was dropped: then the next one does not wait either.
    is_dropping: bool,
    /// What there was no room for, and goes before the next block.
    unsent: Option<Passed>,
    dropped: u64,
    parker: Parker,
    reader: Unparker,
}

/// A shard's end of one queue.
struct QueueReader {
    shared: Arc<QueueShared>,
    writer: Unparker,
}

/// The queue of a shard that has one port, with all its memory of [`size`] bytes. Marks come through it.
#[must_use]
pub fn queue(when_full: WhenFull) -> (Writer, Inbox) {
    let parker = Parker::new();
    let (writer, reader) = pair(when_full, parker.unparker().clone());
    (writer, Inbox::new(reader, parker))
}

/// The queues of one shard, one for each port, with all their memory of [`size`] bytes each, and the clock's end,
/// through which marks come.
#[must_use]
pub fn timed_queues(writer_count: usize, when_full: WhenFull) -> (Vec<Writer>, ClockWriter, Inbox) {
    let parker = Parker::new();
    let (writers, readers) = (0..writer_count).map(|_| pair(when_full, parker.unparker().clone())).unzip();
    let (clock, inbox) = Inbox::timed(readers, parker, when_full);
    (writers, clock, inbox)
}

fn pair(when_full: WhenFull, reader: Unparker) -> (Writer, QueueReader) {
    let shared = Arc::new(QueueShared {
        full: ArrayQueue::new(PLACE_COUNT),
        empty: ArrayQueue::new(SPARE_BLOCKS_MAX),
        reader_sleeps: AtomicBool::new(false),
        writer_sleeps: AtomicBool::new(false),
        writer_is_gone: AtomicBool::new(false),
        reader_is_gone: AtomicBool::new(false),
    });
    while shared.empty.push(SignalBlock::new()).is_ok() {}
    let parker = Parker::new();
    let writer = parker.unparker().clone();
    let block = SignalBlock::new();
    (
        Writer {
            shared: Arc::clone(&shared),
            block,
            when_full,
            room: 0,
            is_dropping: false,
            unsent: None,
            dropped: 0,
            parker,
            reader,
        },
        QueueReader { shared, writer },
    )
}

/// The memory of a queue in bytes.
#[must_use]
pub const fn size() -> usize {
    (SPARE_BLOCKS_MAX + 1) * BLOCK_SIGNAL_COUNT * size_of::<Signal>()
        + PLACE_COUNT * size_of::<Message>()
        + SPARE_BLOCKS_MAX * size_of::<SignalBlock>()
}

impl Writer {
    /// Appends a signal. It is lost if the reader is gone.
    #[inline]
    pub fn push(&mut self, signal: &Signal) {
        self.block.push(signal);
        if self.block.is_full() {
            self.send_block();
        }
    }

    /// Sends off what was pushed, and wakes the reader unless it polls: there may be nothing more for a while.
    pub fn flush(&mut self) {
        self.send_block();
        if self.when_full != WhenFull::DropAtOnce && !self.shared.full.is_empty() {
            self.wake_reader();
        }
    }

    /// How many signals have been dropped so far because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether the queue is nearly full.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.shared.full.len() >= QUEUE_FILLING_BLOCKS
    }

    /// Makes the writer do this when the queue is full, and returns what it did before.
    pub fn set_when_full(&mut self, when_full: WhenFull) -> WhenFull {
        std::mem::replace(&mut self.when_full, when_full)
    }

    /// Makes the writer wait from now on when the queue is full, even if it dropped before: the input has ended, so
    /// there is time.
    pub fn drop_no_more(&mut self) {
        self.when_full = WhenFull::Wait;
    }

    /// Sends how many ends of intervals the packets that were pushed have passed. If there is no room, and the writer
    /// is not to wait, it is sent before the next block.
    pub fn pass(&mut self, passed: Passed) {
        if self.when_full != WhenFull::DropAtOnce {
            return self.mark(Message::Passed(passed));
        }
        self.send_block();
        let before = self.unsent.map_or(Seen::default(), |unsent| unsent.seen);
        self.unsent = Some(Passed { seen: before.plus(passed.seen), ..passed });
        self.send_passed();
    }

    /// Sends what there was no room for. Returns whether nothing of it is left.
    fn send_passed(&mut self) -> bool {
        let Some(unsent) = self.unsent else { return true };
        // It takes a place that `room` may have counted for a block.
        self.room = 0;
        let is_sent = self.shared.full.push(Message::Passed(unsent)).is_ok();
        if is_sent {
            self.unsent = None;
        }
        is_sent
    }

    /// Sends a mark behind everything that was pushed before, and waits while the queue is full.
    pub fn mark(&mut self, mark: Message) {
        self.send_block();
        // The mark takes a place that `room` may have counted for a block.
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
        let is_in_order = self.send_passed();
        if self.room == 0 {
            self.room = self.room_now();
        }
        if !is_in_order || self.room == 0 && !self.wait_for_room() {
            self.is_dropping = true;
            self.dropped += self.block.count as u64;
            self.block.clear();
            return;
        }
        // If every place of the queue is taken, two blocks are with the reader and one is here, one block is still
        // free.
        let mut next = self.shared.empty.pop().unwrap_or_else(SignalBlock::new);
        next.clear();
        let block = std::mem::replace(&mut self.block, next);
        // Only this thread fills the queue, so the room is still there.
        drop(self.shared.full.push(Message::Signals(block)));
        self.room -= 1;
        self.is_dropping = false;
        // The flag is read first because it seldom changes. If the reader falls asleep just now, the next block or the
        // flush wakes it.
        if self.when_full != WhenFull::DropAtOnce
            && self.shared.reader_sleeps.load(Ordering::SeqCst)
            && self.shared.full.len() >= QUEUE_WAKE_BLOCKS
        {
            self.wake_reader();
        }
    }

    fn room_now(&self) -> usize {
        QUEUE_BLOCKS_MAX.saturating_sub(self.shared.full.len())
    }

    /// Waits for room as [`WhenFull`] says, and returns whether there is any.
    #[cold]
    fn wait_for_room(&mut self) -> bool {
        if self.when_full == WhenFull::DropAtOnce {
            return false;
        }
        let began = Instant::now();
        while self.room_now() == 0 {
            let is_over = match self.when_full {
                WhenFull::Wait => false,
                WhenFull::Drop | WhenFull::DropAtOnce => {
                    self.is_dropping || began.elapsed() > Duration::from_micros(QUEUE_WAIT_MAX_US)
                }
            };
            if is_over || self.shared.reader_is_gone.load(Ordering::Acquire) {
                return false;
            }
            self.sleep(match self.when_full {
                WhenFull::Wait => QUEUE_SLEEP_MAX,
                WhenFull::Drop | WhenFull::DropAtOnce => Duration::from_micros(QUEUE_RECHECK_US),
            });
        }
        self.room = self.room_now();
        true
    }

    /// Sleeps until the reader has made room.
    fn sleep(&mut self, time_max: Duration) {
        self.wake_reader();
        self.shared.writer_sleeps.store(true, Ordering::SeqCst);
        // The reader may have made room just before it could see that this thread sleeps.
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
        self.send_passed();
        self.shared.writer_is_gone.store(true, Ordering::SeqCst);
        self.reader.unpark();
    }
}

impl QueueReader {
    /// The next message, if there is one.
    fn try_receive(&self) -> Option<Message> {
        self.shared.full.pop()
    }

    /// How many messages wait.
    fn len(&self) -> usize {
        self.shared.full.len()
    }

    /// Whether no more messages will be added.
    fn is_closed(&self) -> bool {
        self.shared.writer_is_gone.load(Ordering::SeqCst)
    }

    /// Gives a block back to be filled again.
    fn recycle(&self, block: SignalBlock) {
        // There is room for every block; a surplus one would merely be freed.
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

impl Drop for QueueReader {
    fn drop(&mut self) {
        self.shared.reader_is_gone.store(true, Ordering::Release);
        self.writer.unpark();
    }
}

#[cfg(test)]
mod tests;
