//! The way from a capture thread to a shard: a bounded lock-free queue of blocks of signals, and of the marks between them.
//!
//! What enters: signals one by one, and marks. What leaves: the same in the same order. Signals travel in recycled blocks of
//! 64, which makes the queue cost a few nanoseconds a signal. Neither side wakes the other more often than it must: the
//! reader is woken when a few blocks have gathered or a mark has come, the writer when the queue is half empty; and both
//! look for themselves every millisecond, so that no wake-up can be missed for longer.

use crate::config::{BLOCK_SIGNAL_COUNT, QUEUE_BLOCKS_MAX, QUEUE_WAKE_BLOCKS};
use crate::signal::{Signal, TimeBase};
use crate::snapshot::Marker;
use crossbeam::queue::ArrayQueue;
use crossbeam::sync::{Parker, Unparker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long either side sleeps without looking for itself.
const SLEEP: Duration = Duration::from_millis(1);

/// Blocks beside the writer's own: those in the queue, the one that the reader works off, and the writer's next.
const SPARE_BLOCKS_MAX: usize = QUEUE_BLOCKS_MAX + 2;

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
}

/// What comes out of a queue.
pub enum Message {
    /// Signals; the block is to be given back with [`Reader::recycle`].
    Signals(Box<Block>),
    /// A new time base begins here.
    Base(TimeBase),
    /// An interval ends here.
    Marker(Marker),
}

struct Shared {
    full: ArrayQueue<Message>,
    empty: ArrayQueue<Box<Block>>,
    reader_sleeps: AtomicBool,
    writer_sleeps: AtomicBool,
    writer_is_gone: AtomicBool,
    reader_is_gone: AtomicBool,
}

/// The capture thread's end.
pub struct Writer {
    shared: Arc<Shared>,
    block: Box<Block>,
    parker: Parker,
    reader: Unparker,
}

/// The shard's end.
pub struct Reader {
    shared: Arc<Shared>,
    parker: Parker,
    writer: Unparker,
}

/// A queue with all its memory: [`size`] bytes.
#[must_use]
pub fn queue() -> (Writer, Reader) {
    let shared = Arc::new(Shared {
        full: ArrayQueue::new(QUEUE_BLOCKS_MAX),
        empty: ArrayQueue::new(SPARE_BLOCKS_MAX),
        reader_sleeps: AtomicBool::new(false),
        writer_sleeps: AtomicBool::new(false),
        writer_is_gone: AtomicBool::new(false),
        reader_is_gone: AtomicBool::new(false),
    });
    while shared.empty.push(Block::new()).is_ok() {}
    let (writer_parker, reader_parker) = (Parker::new(), Parker::new());
    let (writer, reader) = (writer_parker.unparker().clone(), reader_parker.unparker().clone());
    (
        Writer { shared: Arc::clone(&shared), block: Block::new(), parker: writer_parker, reader },
        Reader { shared, parker: reader_parker, writer },
    )
}

/// The memory of a queue in bytes.
#[must_use]
pub const fn size() -> usize {
    (SPARE_BLOCKS_MAX + 1) * size_of::<Block>()
        + QUEUE_BLOCKS_MAX * size_of::<Message>()
        + SPARE_BLOCKS_MAX * size_of::<Box<Block>>()
}

impl Writer {
    /// Appends a signal; waits while the queue is full. Once the reader is gone, what is appended is lost.
    #[inline]
    pub fn push(&mut self, signal: &Signal) {
        self.block.signals[self.block.count] = *signal;
        self.block.count += 1;
        if self.block.count == BLOCK_SIGNAL_COUNT {
            self.flush();
        }
    }

    /// Sends off what was pushed; waits while the queue is full.
    pub fn flush(&mut self) {
        if self.block.count == 0 {
            return;
        }
        // With every place of the queue taken, one block in the reader's hands and this one, another is still free.
        let mut next = self.shared.empty.pop().unwrap_or_else(Block::new);
        next.count = 0;
        let block = std::mem::replace(&mut self.block, next);
        self.send(Message::Signals(block));
        if self.shared.full.len() >= QUEUE_WAKE_BLOCKS {
            self.wake_reader();
        }
    }

    /// Sends off a mark, behind all that was pushed before; waits while the queue is full.
    pub fn mark(&mut self, mark: Message) {
        self.flush();
        self.send(mark);
        self.wake_reader();
    }

    fn send(&mut self, mut message: Message) {
        while let Err(back) = self.shared.full.push(message) {
            if self.shared.reader_is_gone.load(Ordering::Acquire) {
                return;
            }
            message = back;
            self.wake_reader();
            self.shared.writer_sleeps.store(true, Ordering::Release);
            self.parker.park_timeout(SLEEP);
            self.shared.writer_sleeps.store(false, Ordering::Release);
        }
    }

    fn wake_reader(&self) {
        if self.shared.reader_sleeps.swap(false, Ordering::AcqRel) {
            self.reader.unpark();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.flush();
        self.shared.writer_is_gone.store(true, Ordering::Release);
        self.reader.unpark();
    }
}

impl Reader {
    /// The next message; waits for one, and answers none when there will be no more.
    pub fn receive(&mut self) -> Option<Message> {
        loop {
            // Read before the queue is looked at: what was pushed before the writer went is then not missed.
            let is_last = self.shared.writer_is_gone.load(Ordering::Acquire);
            if let Some(message) = self.shared.full.pop() {
                return Some(message);
            }
            if is_last {
                return None;
            }
            self.shared.reader_sleeps.store(true, Ordering::Release);
            self.parker.park_timeout(SLEEP);
            self.shared.reader_sleeps.store(false, Ordering::Release);
        }
    }

    /// Gives a block back, so that it can be filled again.
    pub fn recycle(&self, block: Box<Block>) {
        // There is room for every block; one too many would merely be freed.
        drop(self.shared.empty.push(block));
        if self.shared.full.len() <= QUEUE_BLOCKS_MAX / 2 && self.shared.writer_sleeps.swap(false, Ordering::AcqRel) {
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
mod tests {
    use super::*;
    use crate::flow::{KeyV4, Side, VlanTags};
    use crate::signal::{ConnectionHash, Kind, SignalParts};

    fn signal(tick: u64) -> Signal {
        let key = KeyV4::new((1, 1), (2, 2), VlanTags::NONE);
        Signal::new(&key, ConnectionHash::new(0), SignalParts { tick, kind: Kind::Ack, sender: Side::First, number: 0 })
    }

    #[test]
    fn everything_comes_out_once_and_in_order() {
        const SIGNALS: u64 = 100_000;
        let (mut writer, mut reader) = queue();
        let thread = std::thread::spawn(move || {
            for tick in 0..SIGNALS {
                writer.push(&signal(tick));
                if tick % 1_000 == 999 {
                    writer.mark(Message::Base(TimeBase { first_tick: tick, offset_ns: 0 }));
                }
            }
        });
        let (mut next, mut marks) = (0, 0);
        while let Some(message) = reader.receive() {
            match message {
                Message::Signals(block) => {
                    for signal in block.signals() {
                        assert_eq!(signal.parts().tick, next);
                        next += 1;
                    }
                    reader.recycle(block);
                }
                Message::Base(base) => {
                    assert_eq!(base.first_tick, next - 1);
                    marks += 1;
                }
                Message::Marker(_) => unreachable!("none was sent"),
            }
        }
        thread.join().unwrap();
        assert_eq!((next, marks), (SIGNALS, SIGNALS / 1_000));
    }

    #[test]
    fn a_writer_without_a_reader_does_not_wait_for_ever() {
        let (mut writer, reader) = queue();
        drop(reader);
        for tick in 0..(2 * QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT) as u64 {
            writer.push(&signal(tick));
        }
    }
}
