//! The queues of one shard, merged into one stream: the signals of all ports in the order in which their packets came,
//! and each mark once. So the two directions of a connection may come in on two ports, and all shards still cut at the
//! same packet.
//!
//! With one port blocks pass through untouched. With several, a signal is passed on when every other port has shown
//! that it has nothing older: by a younger signal, by the end of an interval, or by silence for [`MERGE_PATIENCE_NS`].
//!
//! Where a clock sends the ends of intervals, each port's queue says which of them its packets have passed. An end is
//! passed on when every port has passed it. A port that says nothing holds it up for [`PORT_PATIENCE_NS`] and no
//! longer: what it sends afterwards counts in the next interval.

use super::{Marker, Message, Passed, QUEUE_BLOCKS_MAX, QUEUE_SLEEP_MAX, QueueReader, Seen, SignalBlock, WhenFull};
use crate::signal::{Moment, TimeBase};

use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};
use crossbeam::sync::{Parker, Unparker};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a shard waits for older signals of a silent port, in nanoseconds: longer than the kernel holds packets back
/// in a block of its ring that is not full.
pub const MERGE_PATIENCE_NS: i64 = 15_000_000;

/// How long the end of an interval waits for a port of which nothing is heard, in nanoseconds: longer than a thread
/// that is ready to run usually waits for a core, and short beside the seconds between lists.
pub const PORT_PATIENCE_NS: i64 = 250_000_000;

const _: () = assert!(PORT_PATIENCE_NS > 2 * MERGE_PATIENCE_NS);

/// How long a shard sleeps while it waits out the silence of a port: a fifteenth of [`MERGE_PATIENCE_NS`], so that it
/// ends that little late.
const MERGE_SLEEP: Duration = Duration::from_millis(1);

/// How long a shard sleeps that writers do not wake: a queue takes more than comes in meanwhile, ten million signals a
/// second for more than two milliseconds.
const POLL_SLEEP: Duration = Duration::from_millis(1);

/// Messages of the clock that find room: the ends of some seconds, however short intervals are.
const CLOCK_MESSAGES_MAX: usize = 64;

/// The end of an interval, as the clock sends it to every shard.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The number of the end, from 1.
    pub number: u64,
    /// When the clock came to it.
    pub moment: Moment,
    /// The mark that belongs there. `None` where the end is passed over, and its interval becomes part of the next.
    pub marker: Option<Marker>,
    /// The time base that begins behind it, if one does.
    pub base: Option<TimeBase>,
}

/// A message of the clock.
enum ClockMessage {
    Base(TimeBase),
    End(End),
    Cut,
}

/// The clock's way to a shard.
pub struct ClockWriter {
    messages: Sender<ClockMessage>,
    reader: Unparker,
}

impl ClockWriter {
    fn send(&self, message: ClockMessage) {
        // This waits only for a shard that has not run for seconds. One that has ended takes nothing.
        drop(self.messages.send(message));
        self.reader.unpark();
    }

    /// Sends the time base before the first packet.
    pub fn base(&self, base: TimeBase) {
        self.send(ClockMessage::Base(base));
    }

    /// Sends the end of an interval.
    pub fn end(&self, end: End) {
        self.send(ClockMessage::End(end));
    }

    /// Sends a [cut](Message::Cut).
    pub fn cut(&self) {
        // A shard that is behind needs no more of them.
        if self.messages.is_empty() {
            self.send(ClockMessage::Cut);
        }
    }
}

/// A shard's end of the clock's way.
struct Clock {
    messages: Receiver<ClockMessage>,
    /// The message that was received and is not passed on yet.
    next: Option<ClockMessage>,
    /// The time base that is to be passed on behind the mark before it.
    base: Option<TimeBase>,
    /// The number of the last end that was passed on or passed over.
    ended: u64,
    /// What ports have seen that no mark has reported yet.
    seen: Seen,
}

/// The queue of one port, with the message that was taken from it but not passed on yet.
struct MergedQueue {
    reader: QueueReader,
    head: Option<Message>,
    /// How many signals of the head block have been passed on.
    taken: usize,
    /// The number of the last end that the port has passed.
    passed: u64,
    is_over: bool,
}

/// The front of a queue.
enum QueueFront {
    Signal(Moment),
    /// The port has passed an end that the shard has not.
    End,
    Nothing,
    Over,
}

/// The reading end of a shard's queues.
pub struct Inbox {
    sources: Vec<MergedQueue>,
    parker: Parker,
    /// The clock; `None` where marks come through the queue.
    clock: Option<Clock>,
    /// The block in which the signals of several queues are gathered, lent out with each message.
    gathered: Option<SignalBlock>,
    /// The longest sleep while nothing is there.
    sleep_max: Duration,
}

impl Inbox {
    /// The inbox of a shard with one port, through whose queue marks come.
    pub(super) fn new(reader: QueueReader, parker: Parker) -> Self {
        Inbox {
            sources: vec![MergedQueue::new(reader)],
            parker,
            clock: None,
            gathered: None,
            sleep_max: QUEUE_SLEEP_MAX,
        }
    }

    /// The inbox of a shard to which a clock sends marks.
    pub(super) fn timed(readers: Vec<QueueReader>, parker: Parker, when_full: WhenFull) -> (ClockWriter, Self) {
        let (sender, messages) = bounded(CLOCK_MESSAGES_MAX);
        let clock = Clock { messages, next: None, base: None, ended: 0, seen: Seen::default() };
        let inbox = Inbox {
            gathered: (readers.len() > 1).then(SignalBlock::new),
            sources: readers.into_iter().map(MergedQueue::new).collect(),
            clock: Some(clock),
            sleep_max: if when_full == WhenFull::DropAtOnce { POLL_SLEEP } else { QUEUE_SLEEP_MAX },
            parker,
        };
        let reader = inbox.parker.unparker().clone();
        (ClockWriter { messages: sender, reader }, inbox)
    }

    /// The next message. Waits for one, and returns `None` when there will be no more: the writer is gone, or the clock
    /// has sent its last end. `now` returns the present moment on the clock of the signals.
    pub fn receive(&mut self, now: impl Fn() -> Moment) -> Option<Message> {
        loop {
            let (message, is_over) = self.next(&now);
            if message.is_some() || is_over {
                return message;
            }
            self.sleep();
        }
    }

    /// The next message that is there, and if there is none, whether there will be none.
    pub(super) fn next(&mut self, now: &impl Fn() -> Moment) -> (Option<Message>, bool) {
        match self.clock.take() {
            None => self.untimed(),
            Some(mut clock) => {
                let next = self.timed_message(&mut clock, now);
                self.clock = Some(clock);
                next
            }
        }
    }

    /// The next message of the one queue, and if there is none, whether there will be none.
    fn untimed(&mut self) -> (Option<Message>, bool) {
        let Some(source) = self.sources.first_mut() else { return (None, true) };
        // Read before the queue, so nothing that the writer pushed before it went is missed.
        let is_closed = source.reader.is_closed();
        let message = source.next();
        let is_over = is_closed && message.is_none();
        (message, is_over)
    }

    fn sleep(&mut self) {
        let readers = || self.sources.iter().map(|source| &source.reader);
        let set_sleeping =
            |sleeps| readers().for_each(|reader| reader.shared.reader_sleeps.store(sleeps, Ordering::SeqCst));
        set_sleeping(true);
        // A writer may have sent something just before it could see that this thread sleeps. If signals wait for older
        // ones of a silent port, or an end for one that has not passed it, the sleep is short and nothing else ends the
        // wait.
        let is_end_waiting = self.clock.as_ref().is_some_and(|clock| clock.next.is_some());
        let is_idle = !is_end_waiting && self.sources.iter().all(|source| source.head.is_none());
        if !is_idle || readers().all(|reader| reader.len() == 0) {
            self.parker.park_timeout(if is_idle { self.sleep_max } else { MERGE_SLEEP });
        }
        set_sleeping(false);
    }

    /// Gives back the block of a message.
    pub fn recycle(&mut self, block: SignalBlock) {
        match &mut self.sources[..] {
            [source] => source.reader.recycle(block),
            _ => self.gathered = Some(block),
        }
    }

    /// The next message where a clock makes the marks, and if there is none, whether there will be none.
    fn timed_message(&mut self, clock: &mut Clock, now: &impl Fn() -> Moment) -> (Option<Message>, bool) {
        if let Some(base) = clock.base.take() {
            return (Some(Message::Base(base)), false);
        }
        if clock.receive() {
            return (None, true);
        }
        match &clock.next {
            Some(ClockMessage::Base(base)) => {
                clock.base = Some(*base);
                clock.next = None;
                return self.timed_message(clock, now);
            }
            Some(ClockMessage::Cut) => {
                clock.next = None;
                return (Some(Message::Cut), false);
            }
            Some(ClockMessage::End(End { marker: None, number, .. })) => {
                clock.ended = *number;
                clock.next = None;
            }
            Some(ClockMessage::End(_)) | None => {}
        }
        let message = self.signals(clock, now).or_else(|| self.end(clock, now));
        (message, false)
    }

    /// The next signals in order, if there are any that can be passed on.
    fn signals(&mut self, clock: &mut Clock, now: &impl Fn() -> Moment) -> Option<Message> {
        if let [source] = &mut self.sources[..] {
            return match source.front(clock) {
                QueueFront::Signal(_) => source.next_block(),
                QueueFront::End | QueueFront::Nothing | QueueFront::Over => None,
            };
        }
        let mut gathered = self.gathered.take().unwrap_or_else(SignalBlock::new);
        gathered.clear();
        let now = now();
        while !gathered.is_full()
            && let Some(next) = self.next_source(clock, now)
        {
            self.sources[next].pass_on(&mut gathered);
        }
        if !gathered.signals().is_empty() {
            return Some(Message::Signals(gathered));
        }
        self.gathered = Some(gathered);
        None
    }

    /// The queue with the oldest signal at its front, if that signal may be passed on.
    fn next_source(&mut self, clock: &mut Clock, now: Moment) -> Option<usize> {
        let mut oldest: Option<(usize, Moment)> = None;
        let mut is_silent = false;
        for (index, source) in self.sources.iter_mut().enumerate() {
            match source.front(clock) {
                QueueFront::Signal(moment) => {
                    if oldest.is_none_or(|(_, other)| moment.since_ns(other) < 0) {
                        oldest = Some((index, moment));
                    }
                }
                QueueFront::Nothing => is_silent = true,
                QueueFront::End | QueueFront::Over => {}
            }
        }
        let may_go = |moment: &Moment| !is_silent || now.since_ns(*moment) > MERGE_PATIENCE_NS || self.is_crowded();
        oldest.filter(|(_, moment)| may_go(moment)).map(|(index, _)| index)
    }

    /// Whether a queue with signals is filling up: a full one loses signals, which is worse than passing some on out of
    /// order.
    fn is_crowded(&self) -> bool {
        let has_signals = |source: &&MergedQueue| matches!(source.head, Some(Message::Signals(_)));
        self.sources.iter().filter(has_signals).any(|source| source.reader.len() > QUEUE_BLOCKS_MAX / 2)
    }

    /// The mark of the end that has come, with what all ports have seen before it, once every port has passed it or has
    /// been waited for long enough.
    fn end(&mut self, clock: &mut Clock, now: &impl Fn() -> Moment) -> Option<Message> {
        let Some(ClockMessage::End(End { number, moment, marker: Some(marker), base })) = clock.next else {
            return None;
        };
        let mut is_waiting = false;
        for source in &mut self.sources {
            match source.front(clock) {
                QueueFront::End | QueueFront::Over => {}
                // It is not waited for again before it has passed the end before.
                QueueFront::Nothing => is_waiting |= source.passed >= clock.ended,
                QueueFront::Signal(_) => return None,
            }
        }
        if is_waiting && now().since_ns(moment) <= PORT_PATIENCE_NS {
            return None;
        }
        clock.next = None;
        clock.ended = number;
        clock.base = base;
        Some(Message::Marker(Marker { seen: std::mem::take(&mut clock.seen), ..marker }))
    }
}

impl Clock {
    /// Receives the next message if the one before it has been passed on. Returns whether there is none and will be
    /// none.
    fn receive(&mut self) -> bool {
        if self.next.is_some() {
            return false;
        }
        match self.messages.try_recv() {
            Ok(message) => {
                self.next = Some(message);
                false
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => true,
        }
    }
}

impl MergedQueue {
    fn new(reader: QueueReader) -> Self {
        MergedQueue { reader, head: None, taken: 0, passed: 0, is_over: false }
    }

    /// The next message. The one behind it is fetched as well, and its signals are prefetched.
    fn next(&mut self) -> Option<Message> {
        let message = self.head.take().or_else(|| self.reader.try_receive())?;
        self.head = self.reader.try_receive();
        if let Some(Message::Signals(block)) = &self.head {
            block.prefetch();
        }
        Some(message)
    }

    /// The block at the front, as a whole.
    fn next_block(&mut self) -> Option<Message> {
        self.taken = 0;
        self.next()
    }

    /// The front, fetched from the queue if need be. What the port says of ends that the shard has passed already is
    /// only counted.
    fn front(&mut self, clock: &mut Clock) -> QueueFront {
        while self.passed <= clock.ended {
            if self.head.is_none() && !self.is_over {
                // Read before the queue, so nothing that the writer pushed before it went is missed.
                let is_closed = self.reader.is_closed();
                self.head = self.reader.try_receive();
                self.taken = 0;
                self.is_over = is_closed && self.head.is_none();
            }
            match &self.head {
                Some(Message::Signals(block)) => {
                    let moment = block.signals().get(self.taken).map_or_else(Moment::default, |signal| signal.moment());
                    return QueueFront::Signal(moment);
                }
                Some(Message::Passed(Passed { end, seen })) => {
                    self.passed = *end;
                    clock.seen = clock.seen.plus(*seen);
                    self.head = None;
                    self.reader.wake_writer();
                }
                // Where there is a clock, ports send no other marks.
                Some(Message::Base(_) | Message::Marker(_) | Message::Cut) => self.head = None,
                None if self.is_over => return QueueFront::Over,
                None => return QueueFront::Nothing,
            }
        }
        QueueFront::End
    }

    /// Moves the signal at the front into `gathered`.
    fn pass_on(&mut self, gathered: &mut SignalBlock) {
        let Some(Message::Signals(block)) = &self.head else { return };
        if let Some(signal) = block.signals().get(self.taken) {
            gathered.push(signal);
        }
        self.taken += 1;
        if self.taken >= block.signals().len()
            && let Some(Message::Signals(block)) = self.head.take()
        {
            self.reader.recycle(block);
        }
    }
}
