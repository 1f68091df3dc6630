//! A capture thread's work: packets in; signals and marks out to the shards' queues.
//!
//! Marks go to all queues behind the signals of every packet before them, so that all shards cut at the same packet.

use crate::capture::Packet;
use crate::config::PARTITION_COUNT;
use crate::error::{Error, Result};
use crate::parse::{LinkType, PlainFrame, PlainIpv4, PlainIpv6, TcpSegment, Unusable, parse_frame, walk_frame};
use crate::pipeline::intervals::Intervals;
use crate::pipeline::saving::{Reading, Saver};
use crate::queue::{Message, Writer};
use crate::signal::{Signal, SignalCounts, Signaller, TimeBase};
use crate::snapshot::{Marker, Seen};
use crate::state::{Decoder, Encoder};
use std::sync::Arc;

/// What has to be said before a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) end: Option<Marker>,
    pub(super) base: Option<TimeBase>,
}

/// Tells a capture thread the time, and where intervals end.
pub(super) trait Timekeeper {
    /// Moves on to a packet of this time if nothing has to be said before it, and returns whether it did. If not, [`Self::packet`] is
    /// to be asked.
    fn advance_if_quiet(&mut self, time_ns: i64) -> bool;
    /// Moves on to a packet of this time; what has to be said before it. Called again with the same time, it says what is
    /// to be said after that.
    fn packet(&mut self, time_ns: i64) -> Marks;
    /// Whether a packet of this time comes after the end of the present interval. Live nothing does: intervals end by the clock.
    fn is_over(&self, _time_ns: i64) -> bool {
        false
    }
    /// The tick of the last packet.
    fn tick(&self) -> u64;
    /// How long the clock had run at the last packet; unlike wall time it never steps back.
    fn elapsed_ns(&self) -> i64;
    /// Its bytes in a saved state, where it goes on in another process.
    fn save(&self, _encoder: &mut Encoder) {}
}

/// What a capture thread counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Packets taken in.
    pub packets: u64,
    /// Packets that the kernel had no room for.
    pub lost: u64,
    /// Signals that a queue had no room for.
    pub queue_full: u64,
    /// Packets that could not be used, by [`Unusable::index`].
    pub unusable: [u64; Unusable::COUNT],
    /// What went to the shards.
    pub signals: SignalCounts,
    /// How often the clock stepped back by more than a minute.
    pub steps_back: u64,
}

impl CaptureCounts {
    /// What two threads counted together.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.unusable.iter_mut().zip(other.unusable).for_each(|(sum, count)| *sum += count);
        CaptureCounts {
            packets: self.packets + other.packets,
            lost: self.lost + other.lost,
            queue_full: self.queue_full + other.queue_full,
            unusable: self.unusable,
            signals: self.signals.plus(other.signals),
            steps_back: self.steps_back + other.steps_back,
        }
    }

    fn seen(&self) -> Seen {
        let damaged = Unusable::ALL.iter().filter(|reason| !reason.is_ordinary());
        Seen {
            packets: self.packets,
            dropped: self.lost + self.queue_full,
            unusable: damaged.map(|reason| self.unusable[reason.index()]).sum(),
            handshakes_lost: self.signals.handshakes_lost,
        }
    }
}

/// Feeds the shards.
pub(super) struct Feeder<T> {
    writers: Writers,
    signaller: Signaller,
    time: T,
    packets: u64,
    lost: u64,
    unusable: [u64; Unusable::COUNT],
    /// What was seen up to the last marker.
    marked: Seen,
    /// What was seen already and belongs behind the next marker.
    ahead: Seen,
    /// Where it tells how far it has come when the state is saved, and in which input it is.
    saving: Option<(Arc<Saver>, Reading)>,
    /// The packets from one cut of the archive to the next, if there are any, and those after which the next is due.
    cut_packets: Option<u64>,
    next_cut: u64,
}

/// The queues to all shards.
struct Writers {
    all: Vec<Writer>,
    /// The shard that owns each partition.
    shards: [usize; PARTITION_COUNT],
}

impl Writers {
    fn new(all: Vec<Writer>) -> Self {
        assert!(!all.is_empty(), "signals need a shard to go to");
        Writers { shards: std::array::from_fn(|partition| partition % all.len()), all }
    }

    /// Sends a signal to the shard that owns its partition.
    #[inline]
    fn send(&mut self, signal: &Signal) {
        self.all[self.shards[signal.hash().partition() % PARTITION_COUNT]].push(signal);
    }
}

impl<T: Timekeeper> Feeder<T> {
    /// A feeder of these queues, one for each shard; there is at least one.
    pub(super) fn new(writers: Vec<Writer>, signaller: Signaller, time: T) -> Self {
        Feeder {
            writers: Writers::new(writers),
            signaller,
            time,
            packets: 0,
            lost: 0,
            unusable: [0; Unusable::COUNT],
            marked: Seen::default(),
            ahead: Seen::default(),
            saving: None,
            cut_packets: None,
            next_cut: 0,
        }
    }

    /// Cuts the archive every so many packets.
    pub(super) fn set_cuts(&mut self, cut_packets: Option<u64>) {
        self.cut_packets = cut_packets;
        self.next_cut = cut_packets.unwrap_or(0);
    }

    /// Says a cut when one is due. Where it falls depends on the packets alone.
    pub(super) fn cut_if_due(&mut self) {
        let Some(cut_packets) = self.cut_packets.filter(|_| self.packets >= self.next_cut) else { return };
        self.next_cut = self.packets + cut_packets;
        let writers = &mut self.writers;
        self.signaller.flush(|signal| writers.send(&signal));
        writers.all.iter_mut().for_each(|writer| writer.mark(Message::Cut));
    }

    /// The packets so far whose link type can be read.
    pub(super) fn packets(&self) -> u64 {
        self.packets - self.unusable[Unusable::UnsupportedLink.index()]
    }

    /// The clock that the packets are timed by.
    pub(super) fn time(&mut self) -> &mut T {
        &mut self.time
    }

    /// Takes in one packet.
    #[inline(always)]
    pub(super) fn packet(&mut self, packet: &Packet) {
        if !self.time.advance_if_quiet(packet.time_ns) {
            self.turn(packet.time_ns, packet.link);
        }
        self.packets += 1;
        // Nearly all frames are plain. Family by family, so that what is read of one need not go through memory.
        let read = if packet.link == LinkType::ETHERNET && packet.vlan.is_none() {
            if let Some(frame) = PlainIpv4::of(packet.bytes) {
                return self.plain(frame);
            }
            if let Some(frame) = PlainIpv6::of(packet.bytes) {
                return self.plain(frame);
            }
            walk_frame(packet.link, packet.bytes)
        } else {
            parse_frame(packet.link, packet.bytes)
        };
        match read {
            Ok(segment) => self.segment(segment, packet.vlan),
            Err(reason) => self.unusable[reason.index()] += 1,
        }
    }

    #[inline(always)]
    fn plain<'a>(&mut self, frame: impl PlainFrame<'a>) {
        let (writers, time) = (&mut self.writers, &self.time);
        self.signaller.push_plain(frame, || (time.tick(), time.elapsed_ns()), |signal| writers.send(&signal));
    }

    #[inline(always)]
    fn segment(&mut self, segment: TcpSegment, vlan: Option<u16>) {
        let segment = vlan.map_or(segment, |tag| segment.behind_tag(tag));
        let (writers, time) = (&mut self.writers, &self.time);
        self.signaller.push(&segment, || (time.tick(), time.elapsed_ns()), |signal| writers.send(&signal));
    }

    /// Says what has to be said before a packet of this time.
    #[cold]
    fn turn(&mut self, time_ns: i64, link: LinkType) {
        if !link.is_supported() {
            // What can not be read does not end an interval, for its interface may have a clock of its own: it is counted in the
            // next list when it comes after the end of this one.
            let count = u64::from(self.time.is_over(time_ns));
            self.ahead.packets += count;
            self.ahead.unusable += count;
            return;
        }
        let mut marks = self.time.packet(time_ns);
        while marks != Marks::default() {
            self.mark(marks);
            marks = self.time.packet(time_ns);
        }
    }

    /// Takes note of how many packets the kernel has lost so far.
    pub(super) fn set_lost(&mut self, lost: u64) {
        self.lost = lost;
    }

    /// Sends off all signals, because there may be no more packets for a while.
    pub(super) fn flush(&mut self) {
        let writers = &mut self.writers;
        self.signaller.flush(|signal| writers.send(&signal));
        writers.all.iter_mut().for_each(Writer::flush);
    }

    /// Waits from now on where a queue is full: what comes last has time.
    pub(super) fn drop_no_more(&mut self) {
        self.writers.all.iter_mut().for_each(Writer::drop_no_more);
    }

    /// Says what has to be said between two packets, to all shards.
    pub(super) fn mark(&mut self, mut marks: Marks) {
        if marks.end.is_some_and(|end| end.is_last) {
            self.drop_no_more();
        }
        // What a full queue can not take is lost before it is told how much was.
        self.flush();
        if let Some(end) = &mut marks.end {
            let seen = self.counts().seen().minus(std::mem::take(&mut self.ahead));
            end.seen = seen.minus(self.marked);
            self.marked = seen;
        }
        self.save_at(&mut marks);
        for writer in &mut self.writers.all {
            if let Some(end) = marks.end {
                writer.mark(Message::Marker(end));
            }
            if let Some(base) = marks.base {
                writer.mark(Message::Base(base));
            }
        }
    }

    /// What was counted so far.
    pub(super) fn counts(&self) -> CaptureCounts {
        CaptureCounts {
            packets: self.packets,
            lost: self.lost,
            queue_full: self.writers.all.iter().map(Writer::dropped).sum(),
            unusable: self.unusable,
            signals: self.signaller.counts(),
            steps_back: 0,
        }
    }
}

impl<T: Timekeeper> Feeder<T> {
    /// Tells how far it has come, if the state is to be saved at the mark that is being made.
    fn save_at(&self, marks: &mut Marks) {
        let (Some((saver, reading)), Some(end)) = (&self.saving, &mut marks.end) else { return };
        // The end of an input is no place to go on from: its last interval was cut short.
        if end.is_last || !saver.begins(false) {
            return;
        }
        end.saves = true;
        let mut encoder = Encoder::default();
        encoder.u64(self.packets);
        encoder.u64(self.lost);
        encoder.counts(self.unusable);
        let Seen { packets, dropped, unusable, handshakes_lost } = self.marked;
        encoder.counts([packets, dropped, unusable, handshakes_lost]);
        self.signaller.save(&mut encoder);
        self.time.save(&mut encoder);
        saver.put_position(reading, self.packets, &encoder.into_bytes());
    }
}

impl Feeder<Intervals> {
    /// Has the state saved from now on.
    pub(super) fn set_saving(&mut self, saver: Arc<Saver>, reading: Reading) {
        self.saving = Some((saver, reading));
    }

    /// The packets that come next are those of the input of this index, of which `fed` have been fed already; `errors` are
    /// those of the inputs before.
    pub(super) fn begin_input(&mut self, input: usize, fed: u64, errors: &[Error]) {
        if let Some((_, reading)) = &mut self.saving {
            let errors = errors.iter().map(Error::to_string).collect();
            *reading = Reading { input, packets_before: self.packets.saturating_sub(fed), errors };
        }
    }

    /// Goes on where another of the same configuration stood.
    pub(super) fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let mut decoder = Decoder::new(bytes);
        self.packets = decoder.count()?;
        self.lost = decoder.count()?;
        self.unusable = decoder.counts()?;
        let [packets, dropped, unusable, handshakes_lost] = decoder.counts()?;
        self.marked = Seen { packets, dropped, unusable, handshakes_lost };
        self.signaller.restore(&mut decoder)?;
        let seen = self.counts().seen();
        let is_seen = packets <= seen.packets && dropped <= seen.dropped && unusable <= seen.unusable;
        decoder.expect(is_seen && handshakes_lost <= seen.handshakes_lost, "more marked than seen")?;
        self.time.restore(&mut decoder)?;
        decoder.end()?;
        // The time base was told behind the mark at which the state was cut.
        self.mark(Marks { end: None, base: self.time.base() });
        Ok(())
    }

    /// Ends the last interval and the queues. There is no last list when no packet could be read and `is_sound` says that there
    /// should have been one.
    pub(super) fn finish(mut self, is_sound: bool) -> CaptureCounts {
        if self.packets() > 0 || is_sound {
            // There is no list behind the last.
            self.ahead = Seen::default();
            let end = self.time.finish();
            self.mark(Marks { end: Some(end), base: None });
        }
        CaptureCounts { steps_back: self.time.steps_back(), ..self.counts() }
    }
}

#[cfg(test)]
mod tests;
