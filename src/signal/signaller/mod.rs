//! The last step of the capture side: it decides which few packets of a capture the shards get to see.
//!
//! What enters: parsed segments. What leaves: signals. Most packets carry no flag and belong to no handshake: one bit
//! of the handshake cache says so, and they go no further. The others wait in a small stage, so that all their cache
//! lines are prefetched before the first is looked up, and signals are hashed in batches.

mod awaited;
mod family_hash;
mod saved;
mod stage;

use crate::flow::{KeyV4, KeyV6, QuickHash, Side, VlanTags};
use crate::hash::{HASH_BATCH_COUNT, Secret};
use crate::parse::{Addresses, PlainFrame, TcpSegment};
use crate::signal::sampler::Sampler;
use crate::signal::{ConnectionHash, HandshakeCache, Kind, Moment, Signal, SignalParts, Watch};
use awaited::Awaited;
use family_hash::FamilyHash;
use stage::{Look, Place, STAGE_COUNT, Stage, Taken, places};
use std::hint::select_unpredictable;
use std::sync::Arc;

/// How long each of several capture threads remembers the SYNs it read, in nanoseconds: a long round trip, and the
/// delay in the rings. The shorter this is, the more SYNs a second fit before any is forgotten too soon.
const SEEN_SYN_TIMEOUT_NS: i64 = 4_000_000_000;

const _: () = assert!(STAGE_COUNT == HASH_BATCH_COUNT, "a full stage is what is hashed fastest");

/// The configuration of a [`Signaller`].
#[derive(Clone, Debug)]
pub struct SignallerConfig {
    /// The secret under which connections are hashed.
    pub secret: Secret,
    /// Whether VLAN tags are part of a connection's key.
    pub vlan_key: bool,
    /// Whether connections of which only one side is seen are to open. The cache then also waits for the client's next
    /// packet after its SYN, and for the server's after its SYN-ACK.
    pub one_way: bool,
    /// How long a handshake may take, in ns.
    pub syn_timeout_ns: i64,
    /// One in this many of the packets that carry no flag and that no handshake waits for is handed on; zero turns this
    /// off.
    pub pickup: u32,
    /// Whether a SYN-ACK is enough to open a connection: then it leaves no handshake to wait for.
    pub answer_opens: bool,
    /// How many SYNs this thread remembers to have seen, for itself; zero turns this off, as is right if no other
    /// thread sees packets of the same connections.
    pub seen_syn_count: usize,
}

/// The counts of a [`Signaller`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalCounts {
    /// Signals handed on.
    pub signals: u64,
    /// Signals that are samples of other packets.
    pub sampled: u64,
    /// Signals that are the first of a connection under watch.
    pub watched: u64,
    /// Handshakes that were evicted from the cache before their answer came.
    pub handshakes_lost: u64,
}

impl SignalCounts {
    /// The sum of two signallers' counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        SignalCounts {
            signals: self.signals + other.signals,
            sampled: self.sampled + other.sampled,
            watched: self.watched + other.watched,
            handshakes_lost: self.handshakes_lost + other.handshakes_lost,
        }
    }
}

/// Turns segments into signals; one for each capture thread.
pub struct Signaller {
    config: SignallerConfig,
    cache: Arc<HandshakeCache>,
    /// Connections whose SYN came in here. The SYN-ACK may come in at another thread, which may read it only after this
    /// thread has read its answer. So the client's next packet is waited for from the SYN on.
    seen_syns: Option<HandshakeCache>,
    watch: Option<Arc<Watch>>,
    sampler: Sampler,
    /// Whether a packet without a flag may be a signal although no handshake waits for it.
    is_watchful: bool,
    hasher: QuickHash,
    v4: FamilyHash<KeyV4>,
    v6: FamilyHash<KeyV6>,
    stage: Stage,
    /// The connections in the stage that a cache is to wait for but does not know yet.
    awaited: Awaited,
    counts: SignalCounts,
}

impl Signaller {
    /// A signaller that shares the cache with the other capture threads, and the watch with the list too.
    #[must_use]
    pub fn new(config: SignallerConfig, cache: Arc<HandshakeCache>, watch: Option<Arc<Watch>>) -> Self {
        let seen_syn_timeout_ns = config.syn_timeout_ns.min(SEEN_SYN_TIMEOUT_NS);
        let seen_syns = (config.seen_syn_count > 0)
            .then(|| HandshakeCache::new(config.seen_syn_count, seen_syn_timeout_ns).for_one_thread());
        let signaller = Signaller {
            is_watchful: false,
            cache,
            seen_syns,
            watch,
            sampler: Sampler::new(config.pickup, config.syn_timeout_ns),
            hasher: QuickHash::new(&config.secret),
            v4: FamilyHash::new(&config.secret),
            v6: FamilyHash::new(&config.secret),
            stage: Stage::new(),
            awaited: Awaited::new(),
            counts: SignalCounts::default(),
            config,
        };
        Signaller { is_watchful: signaller.has_to_watch(), ..signaller }
    }

    /// The value of `is_watchful`: SYNs are remembered, connections are watched or samples are drawn.
    fn has_to_watch(&self) -> bool {
        self.seen_syns.is_some() || self.watch.is_some() || !self.sampler.is_idle()
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> SignalCounts {
        self.counts
    }

    /// Takes in one segment, and hands the signals in the stage to `out`, in order, when the stage is full. `time`
    /// tells the tick of the segment and how long the clock has run, in ns (not a wall time: a step back would age the
    /// waiting handshakes); it is called only if that matters.
    ///
    /// Complexity: two multiplications and a look at one word for most packets (and at one byte if connections are
    /// watched); one hash and one cache set for the others.
    #[inline(always)]
    pub fn push(&mut self, segment: &TcpSegment, time: impl FnOnce() -> (u64, i64), out: impl FnMut(Signal)) {
        let vlan = if self.config.vlan_key { segment.vlan } else { VlanTags::NONE };
        let quick_hash = self.quick_hash_of(segment, vlan);
        if !self.try_skip(segment.flags, quick_hash) {
            // A copy, so that the segment of a packet that is skipped is never in memory.
            self.look(&TcpSegment { vlan, ..*segment }, quick_hash, time(), out);
        }
    }

    /// As [`Self::push`], for a plain frame, which has no VLAN tags. Of most frames only the addresses, ports and flags
    /// are read.
    #[inline(always)]
    pub fn push_plain<'a, F: PlainFrame<'a>>(
        &mut self,
        frame: F,
        time: impl FnOnce() -> (u64, i64),
        out: impl FnMut(Signal),
    ) {
        let quick_hash = self.hasher.of_ends::<F::Key>(frame.ends(), VlanTags::NONE);
        if !self.try_skip(frame.flags(), quick_hash) {
            self.look(&frame.segment(), quick_hash, time(), out);
        }
    }

    #[inline(always)]
    fn quick_hash_of(&self, segment: &TcpSegment, vlan: VlanTags) -> u64 {
        let (src_port, dst_port) = (segment.src_port, segment.dst_port);
        match segment.addresses {
            Addresses::V4 { src, dst } => self.hasher.of_ends::<KeyV4>([(src, src_port), (dst, dst_port)], vlan),
            Addresses::V6 { src, dst } => self.hasher.of_ends::<KeyV6>([(src, src_port), (dst, dst_port)], vlan),
        }
    }

    /// Skips a packet that says nothing, as most do, and returns whether it did: a packet without a flag that no
    /// handshake and no watch waits for and that the sampler does not draw.
    #[inline(always)]
    fn try_skip(&mut self, flags: u8, quick_hash: u64) -> bool {
        flags & (TcpSegment::SYN | TcpSegment::FIN | TcpSegment::RST) == 0
            && self.cache.is_idle(quick_hash)
            && !self.awaited.may_hold(quick_hash)
            && (!self.is_watchful || self.try_skip_watched(quick_hash))
    }

    /// The part of [`Self::try_skip`] that concerns seen SYNs, the watch and the sampler.
    #[inline(never)]
    fn try_skip_watched(&mut self, quick_hash: u64) -> bool {
        !self.watch.as_ref().is_some_and(|watch| watch.may_hold(quick_hash))
            && !self.may_have_seen_syn(quick_hash)
            && self.sampler.try_skip()
    }

    /// Whether a SYN of this connection may have been seen.
    #[inline]
    fn may_have_seen_syn(&self, quick_hash: u64) -> bool {
        self.seen_syns.as_ref().is_some_and(|syns| !syns.is_idle(quick_hash))
    }

    /// Takes in a segment that may be a signal.
    #[inline(never)]
    fn look(&mut self, segment: &TcpSegment, quick_hash: u64, (tick, now_ns): (u64, i64), out: impl FnMut(Signal)) {
        let kind = Kind::of_flags(segment.flags);
        let mut is_chosen = false;
        if kind == Kind::Ack {
            is_chosen = self.take_watched(quick_hash);
            let is_answer = self.awaited.may_hold(quick_hash) && self.awaited.take(quick_hash, sender_of(segment));
            if self.cache.is_idle(quick_hash) && !is_answer && !self.may_have_seen_syn(quick_hash) {
                is_chosen |= self.draw_sample(now_ns);
                if !is_chosen {
                    return;
                }
            }
        }
        if matches!(kind, Kind::Ack | Kind::SynAck) || self.config.one_way {
            self.cache.prefetch_set(quick_hash);
        }
        if let Some(seen_syns) = self.seen_syns.as_ref().filter(|_| matches!(kind, Kind::Ack | Kind::Syn)) {
            seen_syns.prefetch_set(quick_hash);
        }
        let isn = isn_of(segment, kind);
        let parts = SignalParts { tick, kind, sender: Side::First, isn };
        let is_open = self.is_open(kind) || kind == Kind::Fin && self.may_be_awaited(quick_hash);
        let place = Place { is_v6: matches!(segment.addresses, Addresses::V6 { .. }), is_open };
        let look = Look { quick_hash, now_ns, is_chosen };
        let sender = self.stage.push(place, look, |slot| unhashed(segment, parts, now_ns, slot));
        if kind == Kind::SynAck {
            self.awaited.put(quick_hash, sender.other());
        }
        if self.config.one_way && matches!(kind, Kind::Syn | Kind::SynAck)
            || self.seen_syns.is_some() && kind == Kind::Syn
        {
            self.awaited.put(quick_hash, sender);
        }
        if self.stage.is_full() {
            self.flush(out);
        }
    }

    /// Ends the watch over the connection of a packet, and returns whether it was under watch.
    #[inline]
    fn take_watched(&mut self, quick_hash: u64) -> bool {
        let Some(watch) = &self.watch else { return false };
        let is_watched = watch.may_hold(quick_hash) && watch.take(quick_hash);
        self.counts.watched += u64::from(is_watched);
        is_watched
    }

    /// Whether a handshake of this connection may wait for a packet, in the stage or in a cache.
    #[inline]
    fn may_be_awaited(&self, quick_hash: u64) -> bool {
        !self.cache.is_idle(quick_hash) || self.awaited.may_hold(quick_hash) || self.may_have_seen_syn(quick_hash)
    }

    /// Whether a signal of this kind always needs more than its hash: a SYN seldom does, and a FIN only if a handshake
    /// waits.
    #[inline(always)]
    fn is_open(&self, kind: Kind) -> bool {
        const OPEN: u8 =
            1 << Kind::Ack as u8 | 1 << Kind::Completes as u8 | 1 << Kind::SynAck as u8 | 1 << Kind::Rst as u8;
        let is_syn_open = self.config.one_way || self.seen_syns.is_some();
        (OPEN | u8::from(is_syn_open) << Kind::Syn as u8) >> kind as u8 & 1 != 0
    }

    /// Empties the stage, and hands its signals to `out`.
    pub fn flush(&mut self, mut out: impl FnMut(Signal)) {
        let Taken { all, v6, open } = self.stage.take();
        let mut kept = all;
        for at in places(open) {
            if !self.resolve(at) {
                kept &= !(1 << at);
            }
        }
        self.counts.signals += u64::from(kept.count_ones());
        let signals = self.stage.signals_mut();
        self.v4.set(signals, kept & !v6);
        self.v6.set(signals, kept & v6);
        places(kept).for_each(|at| out(signals[at]));
        self.awaited.clear();
        self.is_watchful = self.has_to_watch();
    }

    /// Decides for the packet at this place of the stage whether it is handed on, and as which kind.
    #[inline(always)]
    fn resolve(&mut self, at: usize) -> bool {
        let look = self.stage.looks()[at];
        let Look { quick_hash, now_ns, is_chosen } = look;
        let SignalParts { kind, sender, isn, .. } = self.stage.signals_mut()[at].parts();
        match kind {
            Kind::Ack | Kind::Completes => {
                let waited_for = self.cache.take(quick_hash, sender, isn, now_ns);
                let seen_syn = self.seen_syns.as_ref().and_then(|syns| syns.take(quick_hash, sender, isn, now_ns));
                self.stage.signals_mut()[at].set_kind(waited_for.unwrap_or(Kind::Ack));
                is_chosen || waited_for.is_some() || seen_syn.is_some() || self.draw_sample(now_ns)
            }
            Kind::SynAck => {
                if !self.config.answer_opens {
                    self.await_answer(look, sender.other(), Some(isn));
                }
                if self.config.one_way {
                    self.await_answer(look, sender, None);
                }
                true
            }
            Kind::Syn => {
                if self.config.one_way {
                    self.await_answer(look, sender, None);
                }
                self.remember_syn(look, sender);
                true
            }
            Kind::Rst => {
                // No later packet completes the handshake.
                self.cache.give_up(quick_hash, now_ns);
                self.seen_syns.iter().for_each(|syns| syns.give_up(quick_hash, now_ns));
                true
            }
            Kind::Fin => {
                // The sender's handshake waits no longer: a retransmission behind the end must not complete it again.
                self.cache.take(quick_hash, sender, isn, now_ns);
                if let Some(seen_syns) = &self.seen_syns {
                    seen_syns.take(quick_hash, sender, isn, now_ns);
                }
                true
            }
        }
    }

    fn await_answer(&mut self, look: Look, from: Side, isn: Option<u32>) {
        let has_lost = self.cache.put(look.quick_hash, from, isn, look.now_ns);
        self.count_lost(has_lost, look.now_ns);
    }

    /// Waits for the client's next packet. Which one completes the handshake is not known yet.
    fn remember_syn(&mut self, look: Look, client: Side) {
        let has_lost = self.seen_syns.as_ref().is_some_and(|syns| syns.put(look.quick_hash, client, None, look.now_ns));
        self.count_lost(has_lost, look.now_ns);
    }

    fn count_lost(&mut self, has_lost: bool, now_ns: i64) {
        if has_lost {
            self.counts.handshakes_lost += 1;
            self.sampler.lost(now_ns);
        }
    }

    /// Whether a packet that no handshake waits for is handed on as a sample.
    #[inline]
    fn draw_sample(&mut self, now_ns: i64) -> bool {
        let is_sample = !self.sampler.is_idle() && self.sampler.draw(now_ns);
        self.counts.sampled += u64::from(is_sample);
        is_sample
    }
}

/// The end of the canonical key that sent a segment.
#[inline]
fn sender_of(segment: &TcpSegment) -> Side {
    let (src_port, dst_port) = (segment.src_port, segment.dst_port);
    let is_first = match segment.addresses {
        Addresses::V4 { src, dst } => (src, src_port) <= (dst, dst_port),
        Addresses::V6 { src, dst } => (src, src_port) <= (dst, dst_port),
    };
    if is_first { Side::First } else { Side::Second }
}

/// Writes the signal of a segment into its slot, all but the hash, and returns which end sent it.
#[inline(always)]
fn unhashed(segment: &TcpSegment, parts: SignalParts, now_ns: i64, slot: &mut Signal) -> Side {
    let TcpSegment { src_port, dst_port, vlan, .. } = *segment;
    let (moment, hash) = (Moment::of(now_ns), ConnectionHash::new(0));
    match segment.addresses {
        Addresses::V4 { src, dst } => {
            let (key, sender) = KeyV4::canonical_of((src, src_port), (dst, dst_port), vlan);
            *slot = Signal::new(&key, hash, SignalParts { sender, ..parts }).at(moment);
            sender
        }
        Addresses::V6 { src, dst } => {
            let (key, sender) = KeyV6::canonical_of((src, src_port), (dst, dst_port), vlan);
            *slot = Signal::new(&key, hash, SignalParts { sender, ..parts }).at(moment);
            sender
        }
    }
}

/// The client's ISN, as far as a packet of this kind tells it, otherwise zero.
#[inline(always)]
fn isn_of(segment: &TcpSegment, kind: Kind) -> u32 {
    // A select instead of a branch: which kind comes next is unpredictable, and half of the branches would be
    // mispredicted. Nor a table: both numbers were just written one by one, and an indexed read would have to wait for
    // both stores.
    const TOLD: u8 = 1 << Kind::Syn as u8 | 1 << Kind::SynAck as u8 | 1 << Kind::Ack as u8;
    const IS_NEXT: u8 = 1 << Kind::SynAck as u8 | 1 << Kind::Ack as u8;
    let is_in = |kinds: u8| kinds >> kind as u8 & 1;
    let isn = select_unpredictable(kind == Kind::SynAck, segment.ack, segment.seq);
    isn.wrapping_sub(u32::from(is_in(IS_NEXT))) & u32::from(is_in(TOLD)).wrapping_neg()
}

#[cfg(test)]
mod tests;
