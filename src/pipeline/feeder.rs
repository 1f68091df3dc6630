//! The capture thread's work: packets in; signals and marks out to the shards' queues.
//!
//! Marks go to all queues behind the signals of every packet before them, so that all shards cut at the same packet.

use crate::capture::Packet;
use crate::parse::{Unusable, parse_frame};
use crate::pipeline::intervals::{Intervals, Marks};
use crate::queue::{Message, Writer};
use crate::signal::{Signal, SignalCounts, Signaller};

/// What the capture thread counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FeederCounts {
    pub(super) packets: u64,
    pub(super) unusable: [u64; Unusable::COUNT],
    pub(super) signals: SignalCounts,
    pub(super) steps_back: u64,
}

/// Feeds the shards.
pub(super) struct Feeder {
    writers: Vec<Writer>,
    signaller: Signaller,
    intervals: Intervals,
    packets: u64,
    unusable: [u64; Unusable::COUNT],
}

/// Sends a signal to the shard that owns its partition.
#[inline]
fn send(writers: &mut [Writer], signal: &Signal) {
    let shard = signal.hash().partition() % writers.len();
    writers[shard].push(signal);
}

impl Feeder {
    /// A feeder of these queues, one for each shard; there is at least one.
    pub(super) fn new(writers: Vec<Writer>, signaller: Signaller, every_ns: Option<i64>) -> Self {
        assert!(!writers.is_empty(), "signals need a shard to go to");
        Feeder { writers, signaller, intervals: Intervals::new(every_ns), packets: 0, unusable: [0; Unusable::COUNT] }
    }

    /// The packets so far.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Takes in one packet.
    #[inline]
    pub(super) fn packet(&mut self, packet: &Packet) {
        self.packets += 1;
        let marks = self.intervals.packet(packet.time_ns);
        if marks != Marks::default() {
            self.mark(marks);
        }
        match parse_frame(packet.link, packet.bytes) {
            Ok(segment) => {
                let (tick, elapsed_ns) = (self.intervals.tick(), self.intervals.elapsed_ns());
                let writers = &mut self.writers;
                self.signaller.push(&segment, tick, elapsed_ns, |signal| send(writers, &signal));
            }
            Err(reason) => self.unusable[reason.index()] += 1,
        }
    }

    /// Counts packets that were passed over because of their link type.
    pub(super) fn skip(&mut self, count: u64) {
        self.packets += count;
        self.unusable[Unusable::UnsupportedLink.index()] += count;
    }

    /// Says what has to be said between two packets, to all shards.
    fn mark(&mut self, marks: Marks) {
        let writers = &mut self.writers;
        self.signaller.flush(|signal| send(writers, &signal));
        for writer in &mut self.writers {
            if let Some(end) = marks.end {
                writer.mark(Message::Marker(end));
            }
            if let Some(base) = marks.base {
                writer.mark(Message::Base(base));
            }
        }
    }

    /// Ends the last interval and the queues. There is no last list when there was no packet and `is_sound` says that there
    /// should have been.
    pub(super) fn finish(mut self, is_sound: bool) -> FeederCounts {
        if self.packets > 0 || is_sound {
            let end = self.intervals.finish();
            self.mark(Marks { end: Some(end), base: None });
        }
        FeederCounts {
            packets: self.packets,
            unusable: self.unusable,
            signals: self.signaller.counts(),
            steps_back: self.intervals.steps_back(),
        }
    }
}
