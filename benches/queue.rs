//! The way of a signal from one thread to another.
//!
//! The limits are a thread that writes blocks and reads them itself, out of its first-level cache, and the same two
//! threads with a queue that takes signals one at a time.

use crate::clock::{process_ns_each, wall_ns_each};
use crate::row::{Case, Pair, Scale, Suite};
use crate::traffic::key_of;
use crossbeam::queue::ArrayQueue;
use crossbeam::utils::Backoff;
use flowpeel::flow::{KeyV4, Side};
use flowpeel::queue::{BLOCK_SIGNAL_COUNT, Message, QUEUE_BLOCKS_MAX, WhenFull, queue};
use flowpeel::signal::{ConnectionHash, Moment, Signal, SignalKind, SignalParts};
use std::hint::black_box;
use std::sync::Arc;

const SIGNAL_COUNT: usize = 1 << 23;
const SIGNAL_COUNT_QUICK: usize = 1 << 19;

pub(crate) fn run(suite: &mut Suite) {
    let case =
        |name, limit, unit, at_most| Case { name, work: "queue, blocks between two threads", limit, unit, at_most };
    let same = "writing and reading a block in one thread";
    suite.compare(case("queue/same-thread", same, "ns a signal", Some(5.0)), |scale| {
        Ok(Queue::new(Measure::Wall, Limit::SameThread, scale))
    });
    suite.compare(case("queue/same-thread-cpu", same, "CPU ns a signal", None), |scale| {
        Ok(Queue::new(Measure::Processor, Limit::SameThread, scale))
    });
    let single = "crossbeam ArrayQueue, one at a time";
    suite.compare(case("queue/array-queue", single, "ns a signal", Some(0.25)), |scale| {
        Ok(Queue::new(Measure::Wall, Limit::OneByOne, scale))
    });
}

/// The time that is measured: wall time, which is what the slower of two threads takes, or the processor time of both
/// threads.
#[derive(Clone, Copy)]
enum Measure {
    Wall,
    Processor,
}

#[derive(Clone, Copy)]
enum Limit {
    SameThread,
    OneByOne,
}

struct Queue {
    measure: Measure,
    limit: Limit,
    count: usize,
    signals: [Signal; BLOCK_SIGNAL_COUNT],
}

impl Queue {
    fn new(measure: Measure, limit: Limit, scale: Scale) -> Self {
        let parts = SignalParts { tick: 1, kind: SignalKind::Syn, sender: Side::First, isn: 1 };
        let signal = |at| Signal::new(&key_of::<KeyV4>(at as u64), ConnectionHash::new(at as u128 + 1), parts);
        let signals = std::array::from_fn(signal);
        Queue { measure, limit, count: scale.of(SIGNAL_COUNT, SIGNAL_COUNT_QUICK), signals }
    }

    fn cost(&self, operations: impl FnOnce()) -> f64 {
        match self.measure {
            Measure::Wall => wall_ns_each(self.count, operations),
            Measure::Processor => process_ns_each(self.count, operations),
        }
    }

    /// The sum that a reader makes of signals.
    #[inline(always)]
    fn read(signals: &[Signal], sum: u64) -> u64 {
        signals
            .iter()
            .fold(sum, |sum, signal| sum.wrapping_add(u64::from(signal.hash().fingerprint()) ^ signal.parts().tick))
    }

    fn blocks(&self) -> u64 {
        let (mut writer, mut inbox) = queue(WhenFull::Wait);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut sum = 0;
                while let Some(message) = inbox.receive(Moment::default) {
                    if let Message::Signals(block) = message {
                        sum = Self::read(block.signals(), sum);
                        inbox.recycle(block);
                    }
                }
                sum
            });
            for _ in 0..self.count / BLOCK_SIGNAL_COUNT {
                self.signals.iter().for_each(|signal| writer.push(signal));
            }
            drop(writer);
            reader.join().expect("the reader does not panic")
        })
    }

    fn same_thread(&self) -> u64 {
        let mut block = Box::new([Signal::EMPTY; BLOCK_SIGNAL_COUNT]);
        let mut sum = 0;
        for _ in 0..self.count / BLOCK_SIGNAL_COUNT {
            *block = *black_box(&self.signals);
            sum = Self::read(black_box(&*block), sum);
        }
        sum
    }

    fn one_by_one(&self) -> u64 {
        let queue = Arc::new(ArrayQueue::new(QUEUE_BLOCKS_MAX * BLOCK_SIGNAL_COUNT));
        let count = self.count;
        std::thread::scope(|scope| {
            let theirs = Arc::clone(&queue);
            let reader = scope.spawn(move || {
                let mut sum = 0;
                for _ in 0..count {
                    let backoff = Backoff::new();
                    let signal = loop {
                        match theirs.pop() {
                            Some(signal) => break signal,
                            None => backoff.snooze(),
                        }
                    };
                    sum = Self::read(std::slice::from_ref(&signal), sum);
                }
                sum
            });
            for at in 0..count {
                let mut signal = self.signals[at % BLOCK_SIGNAL_COUNT];
                let backoff = Backoff::new();
                while let Err(back) = queue.push(signal) {
                    signal = back;
                    backoff.snooze();
                }
            }
            reader.join().expect("the reader does not panic")
        })
    }

    /// The sum over all signals.
    fn expected(&self) -> u64 {
        Self::read(&self.signals, 0).wrapping_mul((self.count / BLOCK_SIGNAL_COUNT) as u64)
    }
}

impl Pair for Queue {
    fn work(&mut self) -> f64 {
        self.cost(|| assert_eq!(self.blocks(), self.expected()))
    }

    fn limit(&mut self) -> f64 {
        self.cost(|| {
            let sum = match self.limit {
                Limit::SameThread => self.same_thread(),
                Limit::OneByOne => self.one_by_one(),
            };
            assert_eq!(sum, self.expected());
        })
    }
}
