//! The queues of one shard, merged into one stream.
//!
//! What enters: the queues of all capture threads, each in the order of its packets. What leaves: their signals in the
//! order in which the packets came, and each mark once all threads have sent it. So the two directions of a connection
//! may come in on two interfaces, and all shards still cut at the same packet.
//!
//! With a single capture thread blocks pass through untouched. With several, a signal goes on when every other thread
//! has shown that it has nothing older: by a younger signal, by a mark, or by silence for [`MERGE_PATIENCE_NS`].

use super::{Block, Message, Reader};
use crate::queue::{QUEUE_BLOCKS_MAX, QUEUE_SLEEP_MAX, Seen};
use crate::signal::Moment;
use crossbeam::sync::Parker;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a shard waits for older signals of a silent capture thread, in nanoseconds: longer than the kernel holds
/// packets back in a block of its ring that is not full.
pub const MERGE_PATIENCE_NS: i64 = 15_000_000;

/// How long a shard sleeps while it waits out the silence of a capture thread: a fifteenth of [`MERGE_PATIENCE_NS`], so
/// that it ends that little late.
const MERGE_SLEEP: Duration = Duration::from_millis(1);

/// The queue of one capture thread, with the message that was taken from it but not passed on yet.
struct Source {
    reader: Reader,
    head: Option<Message>,
    /// How many signals of the head block have been passed on.
    taken: usize,
    is_over: bool,
}

/// The front of a queue.
enum Front {
    Signal(Moment),
    Mark,
    Nothing,
    Over,
}

/// The reading end of a shard's queues.
pub struct Inbox {
    sources: Vec<Source>,
    parker: Parker,
    /// The block in which the signals of several queues are gathered, lent out with each message.
    gathered: Option<Box<Block>>,
}

impl Inbox {
    pub(super) fn new(readers: Vec<Reader>, parker: Parker) -> Self {
        let sources = readers.into_iter().map(|reader| Source { reader, head: None, taken: 0, is_over: false });
        let sources: Vec<_> = sources.collect();
        let gathered = (sources.len() > 1).then(Block::new);
        Inbox { sources, parker, gathered }
    }

    /// The next message. Waits for one, and returns `None` when there will be no more. `now` tells the present moment
    /// on the clock of the signals.
    pub fn receive(&mut self, now: impl Fn() -> Moment) -> Option<Message> {
        loop {
            let is_over = self.sources.iter().all(|source| source.reader.is_closed());
            let message = if self.sources.len() == 1 { self.sources[0].next() } else { self.merge(now()) };
            if message.is_some() {
                return message;
            }
            // `is_over` was read before the queues, so nothing that a writer pushed before it went is missed.
            if is_over && self.sources.iter().all(|source| source.head.is_none()) {
                return None;
            }
            self.sleep();
        }
    }

    fn sleep(&mut self) {
        let readers = || self.sources.iter().map(|source| &source.reader);
        let tell = |sleeps| readers().for_each(|reader| reader.shared.reader_sleeps.store(sleeps, Ordering::SeqCst));
        tell(true);
        // A writer may have sent something just before it could see that this thread sleeps. If signals wait for older
        // ones of a silent thread, the sleep is short and nothing else ends the wait.
        let is_idle = self.sources.iter().all(|source| source.head.is_none());
        if !is_idle || readers().all(|reader| reader.len() == 0) {
            self.parker.park_timeout(if is_idle { QUEUE_SLEEP_MAX } else { MERGE_SLEEP });
        }
        tell(false);
    }

    /// Gives back the block of a message.
    pub fn recycle(&mut self, block: Box<Block>) {
        if self.sources.len() == 1 {
            self.sources[0].reader.recycle(block);
        } else {
            self.gathered = Some(block);
        }
    }

    /// The next signals in order, or, if there are none, the mark that all threads have sent.
    pub(super) fn merge(&mut self, now: Moment) -> Option<Message> {
        let mut gathered = self.gathered.take().unwrap_or_else(Block::new);
        gathered.count = 0;
        while !gathered.is_full()
            && let Some(next) = self.next_source(now)
        {
            self.sources[next].pass_on(&mut gathered);
        }
        if gathered.count > 0 {
            return Some(Message::Signals(gathered));
        }
        self.gathered = Some(gathered);
        self.mark()
    }

    /// The queue with the oldest signal at its front, if that signal may go on.
    fn next_source(&mut self, now: Moment) -> Option<usize> {
        let mut oldest: Option<(usize, Moment)> = None;
        let mut is_silent = false;
        for (index, source) in self.sources.iter_mut().enumerate() {
            match source.front() {
                Front::Signal(moment) => {
                    if oldest.is_none_or(|(_, other)| moment.since_ns(other) < 0) {
                        oldest = Some((index, moment));
                    }
                }
                Front::Nothing => is_silent = true,
                Front::Mark | Front::Over => {}
            }
        }
        let may_go = |moment: &Moment| !is_silent || now.since_ns(*moment) > MERGE_PATIENCE_NS || self.is_crowded();
        oldest.filter(|(_, moment)| may_go(moment)).map(|(index, _)| index)
    }

    /// Whether a queue with signals is filling up: a full one loses signals, which is worse than passing some on out of
    /// order.
    fn is_crowded(&self) -> bool {
        let has_signals = |source: &&Source| matches!(source.head, Some(Message::Signals(_)));
        self.sources.iter().filter(has_signals).any(|source| source.reader.len() > QUEUE_BLOCKS_MAX / 2)
    }

    /// The mark at the front of every queue, with the sum over all queues of what was seen before it.
    fn mark(&mut self) -> Option<Message> {
        let are_all_marks = self.sources.iter_mut().all(|source| matches!(source.front(), Front::Mark | Front::Over));
        if !are_all_marks {
            return None;
        }
        let mut seen = Seen::default();
        let mut mark = None;
        for source in &mut self.sources {
            let head = source.head.take();
            if let Some(Message::Marker(marker)) = &head {
                seen = seen.plus(marker.seen);
            }
            mark = head.or(mark);
            source.reader.wake_writer();
        }
        if let Some(Message::Marker(marker)) = &mut mark {
            marker.seen = seen;
        }
        mark
    }
}

impl Source {
    /// The next message. The one behind it is fetched as well, and its signals are prefetched.
    fn next(&mut self) -> Option<Message> {
        let message = self.head.take().or_else(|| self.reader.try_receive())?;
        self.head = self.reader.try_receive();
        if let Some(Message::Signals(block)) = &self.head {
            block.prefetch();
        }
        Some(message)
    }

    /// The front, fetched from the queue if need be.
    fn front(&mut self) -> Front {
        if self.head.is_none() && !self.is_over {
            let is_closed = self.reader.is_closed();
            self.head = self.reader.try_receive();
            self.taken = 0;
            self.is_over = is_closed && self.head.is_none();
        }
        match &self.head {
            Some(Message::Signals(block)) => {
                Front::Signal(block.signals().get(self.taken).map_or_else(Moment::default, |signal| signal.moment()))
            }
            Some(Message::Base(_) | Message::Marker(_) | Message::Cut) => Front::Mark,
            None if self.is_over => Front::Over,
            None => Front::Nothing,
        }
    }

    /// Moves the signal at the front into `gathered`.
    fn pass_on(&mut self, gathered: &mut Block) {
        let Some(Message::Signals(block)) = &self.head else { return };
        if let Some(signal) = block.signals().get(self.taken) {
            gathered.push(signal);
        }
        self.taken += 1;
        if self.taken >= block.count
            && let Some(Message::Signals(block)) = self.head.take()
        {
            self.reader.recycle(block);
        }
    }
}
