//! A port: packets in, signals and marks out to the shards' queues.
//!
//! Marks go to all queues, behind the signals of every packet before them, so that all shards cut at the same packet.

use crate::capture::{ClockName, Packet, PacketSink, Stamp};
use crate::engine::saving::{Reading, Saver};
use crate::engine::{PacketTime, WallTime, shard_of};
use crate::error::{Error, Result};
use crate::list::TickMoment;
use crate::metrics::{CaptureCounts, Metrics};
use crate::parse::{LinkType, PlainFrame, PlainIpv4, PlainIpv6, TcpSegment, Unusable, parse_captured, walk};
use crate::queue::{Marker, Message, Passed, Seen, WhenFull, Writer};
use crate::signal::{
    JUDGED_COUNT_MAX, KnownOpen, Origin, PARTITION_COUNT, Signal, Signaller, SynSampler, TimeBase, TimeDoubt,
};
use crate::state::{Decoder, Encoder};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Packets of a replay between two cuts of the archive: at most this many records are sorted together, some megabytes.
pub const RECORD_CUT_PACKETS: u64 = 1 << 16;

/// The marks that belong before a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub(crate) end: Option<Marker>,
    pub(crate) base: Option<TimeBase>,
    /// The last of the ends that the clock makes and that are passed here.
    pub(crate) passed: Option<PassedEnd>,
}

/// An end of an interval that a port's packets have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassedEnd {
    /// Its number, from 1.
    pub(crate) number: u64,
    pub(crate) at: TickMoment,
}

/// The time that a port goes by, which also knows where intervals end.
pub trait Timekeeper {
    /// Whether signals are sent on when they may have waited long enough, each time that [`Self::packet`] was called.
    const FLUSHES: bool = false;

    /// Moves on to a packet of this time by the first clock if nothing is to be done before it, and returns whether it
    /// did. If not, call [`Self::packet`].
    fn advance_if_quiet(&mut self, time_ns: i64) -> bool;
    /// Moves on to a packet of this stamp, and returns the marks that belong before it. Further calls with the same
    /// stamp return further marks, until there are none.
    fn packet(&mut self, stamp: Stamp) -> Marks;
    /// Whether a packet of this stamp waits, as those behind it, until these show what its time means. It is then the
    /// last of those that wait.
    fn defers(&mut self, _stamp: Stamp) -> bool {
        false
    }
    /// Whether the first packet that waits is to be passed to [`Self::packet`] now; then it waits no longer. With
    /// `are_all` no more packets come.
    fn is_ready(&mut self, _are_all: bool) -> bool {
        false
    }
    /// How far the time of packets is in doubt.
    fn doubt(&self) -> TimeDoubt {
        TimeDoubt::None
    }
    /// Whether a packet of this time comes after the end of the present interval. By the wall clock none does:
    /// intervals end by the clock.
    fn is_over(&self, _time_ns: i64) -> bool {
        false
    }
    /// The tick of the last packet.
    fn tick(&self) -> u64;
    /// How long the clock had run at the last packet, in nanoseconds; unlike wall time it never steps back.
    fn elapsed_ns(&self) -> i64;
    /// The number of the last end that packets have passed, where it is the clock that makes them.
    fn passed_end(&self) -> u64 {
        0
    }
    /// The end of the last interval, where it is the port that ends it.
    fn last_end(&self) -> Option<Marker> {
        None
    }
    /// How often the clock stepped back.
    fn steps_back(&self) -> u64 {
        0
    }
    /// Writes the clock to a saved state. Only the time of packets is saved.
    fn save(&self, _encoder: &mut Encoder) {}
}

/// What is counted of an interval, of these counts.
fn seen(counts: &CaptureCounts) -> Seen {
    let damaged = Unusable::ALL.iter().filter(|reason| !reason.is_ordinary());
    Seen {
        packets: counts.packets,
        dropped: counts.lost + counts.queue_full,
        unusable: damaged.map(|reason| counts.unusable[reason.index()]).sum(),
        cut: counts.unusable[Unusable::CutShort.index()],
        unopened: counts.unusable[Unusable::UnopenedTunnel.index()],
        handshakes_lost: counts.signals.handshakes_lost,
        has_doubtful_losses: false,
        time_doubt: TimeDoubt::None,
    }
}

/// What each port counted, once it has ended.
#[derive(Debug)]
pub(crate) struct Totals {
    ports: Vec<Mutex<Option<CaptureCounts>>>,
}

impl Totals {
    /// A place for each port.
    pub(crate) fn new(port_count: usize) -> Arc<Self> {
        Arc::new(Totals { ports: (0..port_count).map(|_| Mutex::new(None)).collect() })
    }

    /// Whether a port has not ended.
    pub(crate) fn has_open_ports(&self) -> bool {
        self.ports.iter().any(|port| port.lock().is_none())
    }

    /// The sum of all ports. For one that has not ended, it is what `published` returns for its index.
    pub(crate) fn sum(&self, published: impl Fn(usize) -> CaptureCounts) -> CaptureCounts {
        let ports = self.ports.iter().enumerate();
        let counts = ports.map(|(index, port)| port.lock().unwrap_or_else(|| published(index)));
        counts.fold(CaptureCounts::default(), |sum, counts| sum.plus(&counts))
    }
}

/// What a packet of a capture holds, with the VLAN tag that the kernel has taken off.
fn read(
    link: LinkType,
    bytes: &[u8],
    wire_size: usize,
    vlan: Option<u16>,
) -> std::result::Result<TcpSegment, Unusable> {
    let segment = parse_captured(link, bytes, wire_size)?;
    Ok(vlan.map_or(segment, |tag| segment.behind_tag(tag)))
}

/// One thread's way into an engine: it takes packets, and sends what may matter to the shards.
///
/// The time of its packets is their own ([`PacketTime`]), as in a capture, or the wall clock ([`WallTime`]). Dropping a
/// port ends its part; with packets' own time that makes the last list.
///
/// # Complexity
///
/// Some tens of nanoseconds a packet: two multiplications and one look at memory for most. On the wall clock nothing on
/// this path allocates, locks, reads a clock or calls the system. By packets' own time a full queue makes the caller
/// wait.
pub struct Port<T: Timekeeper = WallTime> {
    writers: Writers,
    signaller: Signaller,
    time: T,
    packets: u64,
    lost: u64,
    /// When it was last found that the kernel had lost packets.
    lost_until: TickMoment,
    unusable: [u64; Unusable::COUNT],
    /// Packets that wait until those behind them show what their time means: a bounded number.
    deferred: VecDeque<Deferred>,
    /// Counts of what was seen up to the last marker, and the end that it marks.
    marked: Seen,
    marked_end: TickMoment,
    /// Counts of what was seen already but belongs behind the next marker.
    ahead: Seen,
    /// The saver that gets the position when the state is saved, and the input that is being read.
    saving: Option<(Arc<Saver>, Reading)>,
    /// The packets after which the next cut of the archive is due, if it is cut.
    next_cut: Option<u64>,
    /// Whether nothing failed before the packets came here.
    is_sound: bool,
    /// The index of the port, where it publishes what it counts, and where it leaves it at the end.
    index: usize,
    metrics: Option<Arc<Metrics>>,
    totals: Arc<Totals>,
}

/// A packet that waits, and what was read of it.
struct Deferred {
    stamp: Stamp,
    read: std::result::Result<TcpSegment, Unusable>,
}

/// The queues to all shards.
struct Writers {
    all: Vec<Writer>,
    /// The shard that owns each partition.
    shards: [usize; PARTITION_COUNT],
    /// What samples SYNs, where connections may come under two names.
    syns: Option<SynSampler>,
}

impl Writers {
    fn new(all: Vec<Writer>) -> Self {
        assert!(!all.is_empty(), "signals need a shard to go to");
        Writers { shards: std::array::from_fn(|partition| shard_of(partition, all.len())), all, syns: None }
    }

    /// Sends a signal to the shard that owns its partition.
    #[inline]
    fn send(&mut self, signal: &Signal) {
        if let Some(syns) = &mut self.syns {
            syns.take(signal);
        }
        self.all[self.shards[signal.hash().partition() % PARTITION_COUNT]].push(signal);
    }
}

impl<T: Timekeeper> Port<T> {
    /// A port of these queues, one for each shard.
    ///
    /// # Panics
    ///
    /// There is no queue.
    pub(crate) fn new(writers: Vec<Writer>, signaller: Signaller, time: T) -> Self {
        Port {
            writers: Writers::new(writers),
            signaller,
            time,
            packets: 0,
            lost: 0,
            lost_until: TickMoment::default(),
            unusable: [0; Unusable::COUNT],
            deferred: VecDeque::with_capacity(JUDGED_COUNT_MAX),
            marked: Seen::default(),
            marked_end: TickMoment::default(),
            ahead: Seen::default(),
            saving: None,
            next_cut: None,
            is_sound: true,
            index: 0,
            metrics: None,
            totals: Totals::new(1),
        }
    }

    /// The port as the one of this index, with where it publishes what it counts, and where it leaves it at the end.
    pub(crate) fn publishing(self, index: usize, metrics: Option<&Arc<Metrics>>, totals: &Arc<Totals>) -> Self {
        let (metrics, totals) = (metrics.cloned(), Arc::clone(totals));
        let mut port = self;
        (port.index, port.metrics, port.totals) = (index, metrics, totals);
        port.signaller.set_origin(Origin::new(index));
        port
    }

    /// Takes in a frame that came at this time, in ns since 1970. By packets' own time all such are of one clock: where
    /// there are several sources, each comes as a [`Packet`] with the name of its clock.
    /// A router takes the time when the frame comes in, before it forwards it: the answer may come in at another port,
    /// and must not seem older.
    ///
    /// The bytes are the whole frame: what a router cut comes with its size on the wire, as a [`Packet`] to
    /// [`Self::packet`]. A frame that holds no TCP header that can be read is counted with the reason, and changes
    /// nothing else.
    #[inline]
    pub fn frame(&mut self, time_ns: i64, link: LinkType, bytes: &[u8]) {
        self.packet(&Packet::whole(time_ns, link, bytes));
    }

    /// Takes in a packet of a capture.
    #[inline]
    pub fn packet(&mut self, packet: &Packet) {
        self.take(packet);
        self.cut_if_due();
    }

    /// Takes in the TCP header of a packet that came at this time, in ns since 1970: for a router that has parsed the
    /// packet.
    #[inline]
    pub fn header(&mut self, time_ns: i64, header: &TcpSegment) {
        if self.time.advance_if_quiet(time_ns)
            || !self.turn(Stamp::unnamed(time_ns), LinkType::ETHERNET, || Ok(*header))
        {
            self.packets += 1;
            self.segment(*header);
        }
        self.cut_if_due();
    }

    /// The port whose SYNs are sampled, if they are to be.
    pub(crate) fn sampling_syns(self, syns: Option<SynSampler>) -> Self {
        let mut port = self;
        port.writers.syns = syns;
        port
    }

    /// Has the archive cut every [`RECORD_CUT_PACKETS`] packets.
    pub(crate) fn set_cuts(&mut self) {
        self.next_cut = Some(RECORD_CUT_PACKETS);
    }

    /// Sends a cut when one is due. Its place depends on the packets alone.
    #[inline]
    pub(crate) fn cut_if_due(&mut self) {
        if self.next_cut.is_some_and(|next_cut| self.packets >= next_cut) {
            self.cut();
        }
    }

    #[cold]
    fn cut(&mut self) {
        self.next_cut = Some(self.packets + RECORD_CUT_PACKETS);
        self.flush_stage();
        self.writers.all.iter_mut().for_each(|writer| writer.mark(Message::Cut));
    }

    /// Sends the signals that wait in the stage.
    fn flush_stage(&mut self) {
        let writers = &mut self.writers;
        self.signaller.flush(|signal| writers.send(signal));
    }

    /// The number of packets so far whose link type can be read.
    pub(crate) fn packets(&self) -> u64 {
        self.packets - self.unusable[Unusable::UnsupportedLink.index()]
    }

    /// The clock by which packets are timed.
    pub(crate) fn time(&mut self) -> &mut T {
        &mut self.time
    }

    /// Takes in a packet, of some between which [`Self::cut_if_due`] is called.
    #[inline(always)]
    pub(crate) fn take(&mut self, packet: &Packet) {
        // Passed on piece by piece, so that a packet is in memory only where something is to be done.
        let Packet { time_ns, clock, link, bytes, wire_size, vlan } = *packet;
        if clock != ClockName::FIRST {
            return self.take_elsewhere(Packet { time_ns, clock, link, bytes, wire_size, vlan });
        }
        if !self.time.advance_if_quiet(time_ns)
            && self.turn(Stamp { time_ns, clock }, link, move || read(link, bytes, wire_size, vlan))
        {
            return;
        }
        self.packets += 1;
        // Nearly all frames are plain. They are tried family by family, so that what is read of one stays in registers.
        if link == LinkType::ETHERNET && vlan.is_none() {
            if let Some(frame) = PlainIpv4::of(bytes) {
                return self.plain(frame);
            }
            if let Some(frame) = PlainIpv6::of(bytes) {
                return self.plain(frame);
            }
        }
        self.layered(link, bytes, wire_size, vlan);
    }

    /// Takes in a packet of another interface than the first, whose clock has its name.
    #[inline(never)]
    fn take_elsewhere(&mut self, packet: Packet) {
        let Packet { time_ns, clock, link, bytes, wire_size, vlan } = packet;
        if !self.turn(Stamp { time_ns, clock }, link, move || read(link, bytes, wire_size, vlan)) {
            self.take_read(clock, read(link, bytes, wire_size, vlan));
        }
    }

    /// Takes in what was read of a packet of the interface with this clock. All other packets are of the first, so that
    /// their path does not ask.
    fn take_read(&mut self, clock: ClockName, read: std::result::Result<TcpSegment, Unusable>) {
        self.signaller.set_origin(Origin::new(self.index + clock.index()));
        self.packets += 1;
        self.segment_or_reason(read);
        self.signaller.set_origin(Origin::new(self.index));
    }

    /// Takes in a packet that is no plain frame, or that comes with a VLAN tag.
    #[inline(never)]
    fn layered(&mut self, link: LinkType, bytes: &[u8], wire_size: usize, vlan: Option<u16>) {
        let is_ethernet = link == LinkType::ETHERNET && vlan.is_none();
        let read = if is_ethernet { walk(link, bytes, wire_size) } else { read(link, bytes, wire_size, vlan) };
        self.segment_or_reason(read);
    }

    #[inline(always)]
    fn segment_or_reason(&mut self, read: std::result::Result<TcpSegment, Unusable>) {
        match read {
            Ok(segment) => self.segment(segment),
            Err(reason) => self.unusable[reason.index()] += 1,
        }
    }

    #[inline(always)]
    fn plain<'a>(&mut self, frame: impl PlainFrame<'a>) {
        let (writers, time) = (&mut self.writers, &self.time);
        self.signaller.push_header(frame, || (time.tick(), time.elapsed_ns()), |signal| writers.send(signal));
    }

    #[inline(always)]
    fn segment(&mut self, segment: TcpSegment) {
        let (writers, time) = (&mut self.writers, &self.time);
        self.signaller.push(&segment, || (time.tick(), time.elapsed_ns()), |signal| writers.send(signal));
    }

    /// Sends the marks that belong before a packet of this stamp. Returns whether the packet waits instead, which
    /// `read` then reads.
    #[cold]
    fn turn(
        &mut self,
        stamp: Stamp,
        link: LinkType,
        read: impl FnOnce() -> std::result::Result<TcpSegment, Unusable>,
    ) -> bool {
        if !link.is_supported() {
            // A packet that cannot be read does not end an interval, for its interface may have a clock of its own. It
            // counts in the next list when it comes after the end of this one.
            let count = u64::from(self.time.is_over(stamp.time_ns));
            self.ahead.packets += count;
            self.ahead.unusable += count;
            return false;
        }
        let is_deferred = self.time.defers(stamp);
        if is_deferred {
            self.deferred.push_back(Deferred { stamp, read: read() });
            self.release(false);
        } else {
            self.turn_to(stamp);
        }
        is_deferred
    }

    /// Sends the marks that belong before a packet of this stamp.
    fn turn_to(&mut self, stamp: Stamp) {
        let mut marks = self.time.packet(stamp);
        while marks != Marks::default() {
            self.mark(marks);
            marks = self.time.packet(stamp);
        }
        if T::FLUSHES {
            // Before the signals of the stage, of which some may be the last for a while.
            self.ease();
            self.flush();
            self.publish();
        }
    }

    /// Goes over to a sample of packets if a queue is about to be full of the signals of a warm-up.
    fn ease(&self) {
        if let Some(warm_up) = self.signaller.warm_up()
            && self.writers.all.iter().any(Writer::is_filling)
        {
            warm_up.cut_short();
        }
    }

    /// Takes in the packets that have waited long enough: with `are_all`, all of them.
    fn release(&mut self, are_all: bool) {
        while self.time.is_ready(are_all) {
            let Some(Deferred { stamp, read }) = self.deferred.pop_front() else { return };
            self.turn_to(stamp);
            self.take_read(stamp.clock, read);
        }
    }

    /// Publishes what was counted.
    pub(crate) fn publish(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.capture(self.index).publish(&self.counts());
        }
    }

    /// Sets how many packets the kernel has lost up to now.
    pub(crate) fn set_lost(&mut self, lost: u64, now: TickMoment) {
        if lost > self.lost {
            self.lost_until = now;
        }
        self.lost = lost;
    }

    /// Sends all signals that are held back, because there may be no more packets for a while.
    pub(crate) fn flush(&mut self) {
        self.flush_stage();
        self.writers.syns.iter_mut().for_each(SynSampler::pass_on);
        self.writers.all.iter_mut().for_each(Writer::flush);
    }

    /// Waits from now on where a queue is full, instead of dropping: at the end there is time.
    pub(crate) fn drop_no_more(&mut self) {
        self.writers.all.iter_mut().for_each(Writer::drop_no_more);
    }

    /// Sends marks to all shards.
    pub(crate) fn mark(&mut self, mut marks: Marks) {
        if marks.end.is_some_and(|end| end.is_last) {
            self.drop_no_more();
        }
        // Signals are sent first, so that those which a full queue drops count in this interval.
        self.flush();
        if let Some(end) = &mut marks.end {
            end.seen = self.seen_up_to(TickMoment { tick: end.end_tick, within_tick_ns: end.within_tick_ns });
        }
        if let Some(PassedEnd { number, at }) = marks.passed {
            let passed = Passed { end: number, seen: self.seen_up_to(at) };
            self.writers.all.iter_mut().for_each(|writer| writer.pass(passed));
        }
        self.publish();
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

    /// What was seen since the end before, up to this one.
    fn seen_up_to(&mut self, end: TickMoment) -> Seen {
        let seen = seen(&self.counts()).minus(std::mem::take(&mut self.ahead));
        // What was lost up to a moment in this interval may have been reported with the one before.
        let has_doubtful_losses = self.lost_until > self.marked_end;
        let since = Seen { has_doubtful_losses, time_doubt: self.time.doubt(), ..seen.minus(self.marked) };
        self.marked = seen;
        self.marked_end = end;
        since
    }

    /// The counts so far.
    pub fn counts(&self) -> CaptureCounts {
        CaptureCounts {
            packets: self.packets,
            lost: self.lost,
            queue_full: self.writers.all.iter().map(Writer::dropped).sum(),
            unusable: self.unusable,
            signals: self.signaller.counts(),
            steps_back: self.time.steps_back(),
        }
    }
}

impl<T: Timekeeper> Port<T> {
    /// Gives the saver the thread's position, if the state is to be saved at the mark that is being made.
    fn save_at(&self, marks: &mut Marks) {
        let (Some((saver, reading)), Some(end)) = (&self.saving, &mut marks.end) else { return };
        // The end of an input is no place to continue from: its last interval was cut short.
        // Nor is one between packets that wait: those behind it would be judged without those before.
        if end.is_last || !self.deferred.is_empty() || !saver.begins(false) {
            return;
        }
        end.saves = true;
        let mut encoder = Encoder::default();
        encoder.u64(self.packets);
        encoder.u64(self.next_cut.unwrap_or(0));
        encoder.u64(self.lost);
        encoder.counts(self.unusable);
        let Seen { packets, dropped, unusable, cut, unopened, handshakes_lost, .. } = self.marked;
        encoder.counts([packets, dropped, unusable, cut, unopened, handshakes_lost]);
        self.signaller.save(&mut encoder);
        self.time.save(&mut encoder);
        saver.put_position(reading, self.packets, &encoder.into_bytes());
    }
}

impl Port<PacketTime> {
    /// Has the state saved from now on.
    pub(crate) fn set_saving(&mut self, saver: Arc<Saver>, reading: Reading) {
        self.saving = Some((saver, reading));
    }

    /// Begins the input of this index, of which `fed` packets have been fed already. `errors` are those of the inputs
    /// before.
    pub(crate) fn begin_input(&mut self, input: usize, fed: u64, errors: &[Error]) {
        if let Some((_, reading)) = &mut self.saving {
            let errors = errors.iter().map(Error::to_string).collect();
            let taken = self.packets + self.deferred.len() as u64;
            *reading = Reading { input, packets_before: taken.saturating_sub(fed), errors };
        }
    }

    /// Takes over the saved position of another port of the same configuration.
    ///
    /// # Errors
    ///
    /// The bytes are no such position.
    pub(crate) fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let mut decoder = Decoder::new(bytes);
        self.packets = decoder.count()?;
        let next_cut = decoder.count()?;
        self.next_cut = self.next_cut.map(|_| next_cut);
        self.lost = decoder.count()?;
        self.unusable = decoder.counts()?;
        let [packets, dropped, unusable, cut, unopened, handshakes_lost] = decoder.counts()?;
        self.signaller.restore(&mut decoder)?;
        let seen = seen(&self.counts());
        let is_seen = packets <= seen.packets && dropped <= seen.dropped && unusable <= seen.unusable;
        let is_seen =
            is_seen && cut <= seen.cut && unopened <= seen.unopened && handshakes_lost <= seen.handshakes_lost;
        decoder.expect(is_seen, "more marked than seen")?;
        // A port that is dropped after an error counts what it has seen since.
        self.marked = Seen { packets, dropped, unusable, cut, unopened, handshakes_lost, ..Seen::default() };
        self.time.restore(&mut decoder)?;
        decoder.end()?;
        // The time base was sent behind the mark at which the state was cut.
        self.mark(Marks { base: self.time.base(), ..Marks::default() });
        Ok(())
    }

    /// Notes that an input could not be read.
    pub(crate) fn set_unsound(&mut self) {
        self.is_sound = false;
    }
}

impl Port<WallTime> {
    /// Says that the port's packets are stamped by a clock of its own, as a network card's: one of any epoch that may
    /// be set, but runs about as fast as any. It is mapped onto the engine's by how late packets come at least, so
    /// what lies between a stamp and its call counts. Times are printed by the wall clock.
    ///
    /// Call it before the first packet. A port that does not is stamped by the wall clock, as all ports of one program
    /// should be that can read it.
    pub fn set_own_clock(&mut self) {
        self.time.set_own_clock();
    }

    /// Says that there is nothing to take in up to now, in ns since 1970. A port without packets calls this every few
    /// milliseconds, so that no signal of other ports and no end of an interval waits for it. It may be called as often
    /// as a port is polled: what waits in the port is sent on every five milliseconds.
    pub fn idle(&mut self, now_ns: i64) {
        if !self.time.advance_if_quiet(now_ns) {
            self.turn_to(Stamp::unnamed(now_ns));
        }
    }

    /// Takes in a connection that the system knows to be open, as at the start of a capture, at this time, in ns since
    /// 1970. Where packets have shown more of it already, nothing changes; otherwise it is listed as `midstream`.
    ///
    /// The system's knowledge has to be newer than the first packet that the engine is given: what ended in between
    /// would stay listed. It waits where a queue is full, and is for the time before packets.
    pub fn known(&mut self, time_ns: i64, known: &KnownOpen) {
        if !self.time.advance_if_quiet(time_ns) {
            self.turn_to(Stamp::unnamed(time_ns));
        }
        let signal = self.signaller.known(known, (self.time.tick(), self.time.elapsed_ns()));
        let writers = &mut self.writers;
        let shard = writers.shards[signal.hash().partition() % PARTITION_COUNT];
        let writer = &mut writers.all[shard];
        let when_full = writer.set_when_full(WhenFull::Wait);
        writer.push(&signal);
        writer.set_when_full(when_full);
    }

    /// Says that packets wait for this thread, and that it may lose some: it then inspects no more of them than it has
    /// to.
    pub fn hurry(&mut self) {
        if let Some(warm_up) = self.signaller.warm_up() {
            warm_up.cut_short();
        }
    }

    /// Sets how many packets were lost before they came here, since the start.
    pub fn set_dropped(&mut self, dropped: u64) {
        let now = self.time.now();
        self.set_lost(dropped, now);
    }
}

/// For the packets between two cuts of the archive, each of which is due behind some of them.
impl<T: Timekeeper> PacketSink for Port<T> {
    #[inline(always)]
    fn take_packet(&mut self, packet: &Packet<'_>) {
        self.take(packet);
    }
}

/// Sends what was taken in. With packets' own time the last interval ends; there is no last list when no packet could
/// be read and not all was sound, that is, when an input failed.
impl<T: Timekeeper> Drop for Port<T> {
    fn drop(&mut self) {
        self.release(true);
        match self.time.last_end() {
            Some(end) if self.packets() > 0 || self.is_sound => {
                // There is no list after the last.
                self.ahead = Seen::default();
                self.mark(Marks { end: Some(end), ..Marks::default() });
            }
            _ => {
                self.drop_no_more();
                self.flush();
                // What was seen since the last end is reported with the next.
                let passed = Passed { end: self.time.passed_end(), seen: self.seen_up_to(self.marked_end) };
                self.writers.all.iter_mut().for_each(|writer| writer.pass(passed));
            }
        }
        self.publish();
        if let Some(total) = self.totals.ports.get(self.index) {
            *total.lock() = Some(self.counts());
        }
    }
}

#[cfg(test)]
mod tests;
