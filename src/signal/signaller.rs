//! The capture side's last step: segments in, signals out. It decides which few packets of a capture the shards get to
//! see.
//!
//! Most packets carry no flag and belong to no handshake: one bit of the handshake cache says so, and they go no further. The
//! others wait in a small stage, so that the cache lines of all are asked for before the first is looked up, and signals are
//! hashed together.

mod awaited;
mod family_hash;
mod saved;
mod stage;

use crate::config::ASKED_TIMEOUT_NS;
use crate::flow::{KeyV4, KeyV6, Side, VlanTags};
use crate::hash::{HASH_BATCH_COUNT, QuickHash, Secret};
use crate::parse::{Addresses, PlainFrame, TcpSegment};
use crate::signal::sampler::Sampler;
use crate::signal::{ConnectionHash, HandshakeCache, Kind, Moment, Signal, SignalParts, Watch};
use awaited::Awaited;
use family_hash::FamilyHash;
use stage::{Look, Place, STAGE_COUNT, Stage, Taken, places};
use std::hint::select_unpredictable;
use std::sync::Arc;

const _: () = assert!(STAGE_COUNT == HASH_BATCH_COUNT, "a full stage is what is hashed fastest");

/// What a [`Signaller`] is told once.
#[derive(Clone, Debug)]
pub struct SignallerConfig {
    /// The secret under which connections are placed.
    pub secret: Secret,
    /// Whether VLAN tags are part of a connection's key.
    pub vlan_key: bool,
    /// Whether connections of which only one side is seen are to open: then the answer to a SYN is waited for too, and the
    /// server's packets after a SYN-ACK.
    pub one_way: bool,
    /// How long a handshake may take, in ns.
    pub syn_timeout_ns: i64,
    /// One in so many of the packets that carry no flag and that no handshake waits for is looked at; zero: none.
    pub pickup: u32,
    /// Whether a SYN-ACK is enough to open a connection: then no handshake waits for anything.
    pub answer_opens: bool,
    /// The handshakes of which this thread alone remembers that it saw the SYN; zero: none, as is right where no other thread sees
    /// packets of the same connections.
    pub asked_count: usize,
}

/// What a [`Signaller`] counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalCounts {
    /// Signals handed on.
    pub signals: u64,
    /// Those of them that are samples of other packets.
    pub sampled: u64,
    /// Those of them that are the first of a connection under watch.
    pub watched: u64,
    /// Handshakes that were pushed out of the cache before their answer came.
    pub handshakes_lost: u64,
}

impl SignalCounts {
    /// What two signallers counted together.
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
    /// Whose SYN came in here. The SYN-ACK may come in at another thread, and be read there when its answer has been read here: so the
    /// client is waited for from the SYN on.
    asked: Option<HandshakeCache>,
    watch: Option<Arc<Watch>>,
    sampler: Sampler,
    /// Whether SYNs are remembered, there is a watch, or samples are taken: then packets that carry no flag may say something all the same.
    is_watchful: bool,
    quick: QuickHash,
    v4: FamilyHash<KeyV4>,
    v6: FamilyHash<KeyV6>,
    stage: Stage,
    /// The connections in the stage whose handshake may come to wait, or whose SYN is to be remembered: no cache knows of them yet.
    awaited: Awaited,
    counts: SignalCounts,
}

impl Signaller {
    /// A signaller that shares this cache with the other capture threads, and the watch with the list too.
    #[must_use]
    pub fn new(config: SignallerConfig, cache: Arc<HandshakeCache>, watch: Option<Arc<Watch>>) -> Self {
        let asked_timeout_ns = config.syn_timeout_ns.min(ASKED_TIMEOUT_NS);
        let asked = (config.asked_count > 0)
            .then(|| HandshakeCache::new(config.asked_count, asked_timeout_ns).for_one_thread());
        let signaller = Signaller {
            is_watchful: false,
            cache,
            asked,
            watch,
            sampler: Sampler::new(config.pickup, config.syn_timeout_ns),
            quick: QuickHash::new(&config.secret),
            v4: FamilyHash::new(&config.secret),
            v6: FamilyHash::new(&config.secret),
            stage: Stage::new(),
            awaited: Awaited::new(),
            counts: SignalCounts::default(),
            config,
        };
        Signaller { is_watchful: signaller.has_to_watch(), ..signaller }
    }

    /// Whether packets that carry no flag may say something although no handshake waits for them.
    fn has_to_watch(&self) -> bool {
        self.asked.is_some() || self.watch.is_some() || !self.sampler.is_idle()
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> SignalCounts {
        self.counts
    }

    /// Takes in one segment; `time` tells the tick at which it was seen and how long the clock had run, in ns (not a wall time: a step
    /// back would age the handshakes that wait). It is asked where that matters. Signals come out when the stage is full, in the order of
    /// their segments.
    ///
    /// Complexity: two multiplications and a look at one word for most packets (and at a byte where connections are watched); one
    /// hash and one cache set for the others.
    #[inline(always)]
    pub fn push(&mut self, segment: &TcpSegment, time: impl FnOnce() -> (u64, i64), out: impl FnMut(Signal)) {
        let vlan = if self.config.vlan_key { segment.vlan } else { VlanTags::NONE };
        let quick = self.quick_of(segment, vlan);
        if !self.passes(segment.flags, quick) {
            // A copy, so that the segment of a packet that passes is never in memory.
            let (tick, now_ns) = time();
            self.look(&TcpSegment { vlan, ..*segment }, quick, tick, now_ns, out);
        }
    }

    /// The same of a plain frame, which has no VLAN tags; nothing of it is read but its ends and its flags where that is enough.
    #[inline(always)]
    pub fn push_plain<'a, F: PlainFrame<'a>>(
        &mut self,
        frame: F,
        time: impl FnOnce() -> (u64, i64),
        out: impl FnMut(Signal),
    ) {
        let quick = self.quick.of_ends::<F::Key>(frame.ends(), VlanTags::NONE);
        if !self.passes(frame.flags(), quick) {
            let (tick, now_ns) = time();
            self.look(&frame.segment(), quick, tick, now_ns, out);
        }
    }

    #[inline(always)]
    fn quick_of(&self, segment: &TcpSegment, vlan: VlanTags) -> u64 {
        let (src_port, dst_port) = (segment.src_port, segment.dst_port);
        match segment.addresses {
            Addresses::V4 { src, dst } => self.quick.of_ends::<KeyV4>([(src, src_port), (dst, dst_port)], vlan),
            Addresses::V6 { src, dst } => self.quick.of_ends::<KeyV6>([(src, src_port), (dst, dst_port)], vlan),
        }
    }

    /// Whether a packet says nothing, as most: it carries no flag, nobody waits for it or watches, and it is no sample.
    #[inline(always)]
    fn passes(&mut self, flags: u8, quick: u64) -> bool {
        flags & (TcpSegment::SYN | TcpSegment::FIN | TcpSegment::RST) == 0
            && self.cache.is_idle(quick)
            && !self.awaited.may_hold(quick)
            && (!self.is_watchful || self.passes_watch(quick))
    }

    /// The same, as far as remembered SYNs, watch and samples go.
    #[inline(never)]
    fn passes_watch(&mut self, quick: u64) -> bool {
        !self.watch.as_ref().is_some_and(|watch| watch.may_hold(quick))
            && !self.may_have_asked(quick)
            && self.sampler.passes()
    }

    /// Whether a SYN of this connection may be remembered.
    #[inline]
    fn may_have_asked(&self, quick: u64) -> bool {
        self.asked.as_ref().is_some_and(|asked| !asked.is_idle(quick))
    }

    /// Takes in a segment that may say something.
    #[inline(never)]
    fn look(&mut self, segment: &TcpSegment, quick: u64, tick: u64, now_ns: i64, out: impl FnMut(Signal)) {
        let kind = Kind::of_flags(segment.flags);
        let mut is_chosen = false;
        if kind == Kind::Ack {
            is_chosen = self.is_watched(quick);
            let is_answer = self.awaited.may_hold(quick) && self.awaited.take(quick, sender_of(segment));
            if self.cache.is_idle(quick) && !is_answer && !self.may_have_asked(quick) {
                is_chosen |= self.is_sample(now_ns);
                if !is_chosen {
                    return;
                }
            }
        }
        if matches!(kind, Kind::Ack | Kind::SynAck) || self.config.one_way {
            self.cache.prefetch_set(quick);
        }
        if let Some(asked) = self.asked.as_ref().filter(|_| matches!(kind, Kind::Ack | Kind::Syn)) {
            asked.prefetch_set(quick);
        }
        let number = initial_number(segment, kind);
        let parts = SignalParts { tick, kind, sender: Side::First, number };
        let is_open = self.is_open(kind) || kind == Kind::Fin && self.may_be_awaited(quick);
        let place = Place { is_v6: matches!(segment.addresses, Addresses::V6 { .. }), is_open };
        let look = Look { quick, now_ns, is_chosen };
        let sender = self.stage.push(place, look, |slot| unhashed(segment, parts, now_ns, slot));
        if kind == Kind::SynAck {
            self.awaited.put(quick, sender.other());
        }
        if self.config.one_way && matches!(kind, Kind::Syn | Kind::SynAck) || self.asked.is_some() && kind == Kind::Syn
        {
            self.awaited.put(quick, sender);
        }
        if self.stage.is_full() {
            self.flush(out);
        }
    }

    /// Whether this packet is the first of a connection under watch since the watch began; it ends with it.
    #[inline]
    fn is_watched(&mut self, quick: u64) -> bool {
        let Some(watch) = &self.watch else { return false };
        let is_watched = watch.may_hold(quick) && watch.take(quick);
        self.counts.watched += u64::from(is_watched);
        is_watched
    }

    /// Whether a handshake of this connection may wait for a packet, in the stage or in a cache.
    #[inline]
    fn may_be_awaited(&self, quick: u64) -> bool {
        !self.cache.is_idle(quick) || self.awaited.may_hold(quick) || self.may_have_asked(quick)
    }

    /// Whether more has to be found out of a signal of this kind than its hash: mostly not of a SYN, and of a FIN only where a handshake
    /// waits.
    #[inline(always)]
    fn is_open(&self, kind: Kind) -> bool {
        const OPEN: u8 =
            1 << Kind::Ack as u8 | 1 << Kind::Completes as u8 | 1 << Kind::SynAck as u8 | 1 << Kind::Rst as u8;
        let is_syn_open = self.config.one_way || self.asked.is_some();
        (OPEN | u8::from(is_syn_open) << Kind::Syn as u8) >> kind as u8 & 1 != 0
    }

    /// Lets out what is waiting in the stage.
    pub fn flush(&mut self, mut out: impl FnMut(Signal)) {
        let Taken { all, v6, open } = self.stage.take();
        let mut kept = all;
        for at in places(open) {
            if !self.is_signal(at) {
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

    /// Whether the packet at this place of the stage is to be handed on, and as what.
    #[inline(always)]
    fn is_signal(&mut self, at: usize) -> bool {
        let look = self.stage.looks()[at];
        let Look { quick, now_ns, is_chosen } = look;
        let SignalParts { kind, sender, number, .. } = self.stage.signals_mut()[at].parts();
        match kind {
            Kind::Ack | Kind::Completes => {
                let waited_for = self.cache.take(quick, sender, number, now_ns);
                let asked = self.asked.as_ref().and_then(|asked| asked.take(quick, sender, number, now_ns));
                self.stage.signals_mut()[at].set_kind(waited_for.unwrap_or(Kind::Ack));
                is_chosen || waited_for.is_some() || asked.is_some() || self.is_sample(now_ns)
            }
            Kind::SynAck => {
                if !self.config.answer_opens {
                    self.await_answer(look, sender.other(), Some(number));
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
                // What comes after it completes nothing.
                self.cache.give_up(quick, now_ns);
                self.asked.iter().for_each(|asked| asked.give_up(quick, now_ns));
                true
            }
            Kind::Fin => {
                // It is all that its sender's handshake waited for: a repeated packet must not complete it once more, behind the end.
                self.cache.take(quick, sender, number, now_ns);
                if let Some(asked) = &self.asked {
                    asked.take(quick, sender, number, now_ns);
                }
                true
            }
        }
    }

    fn await_answer(&mut self, look: Look, from: Side, number: Option<u32>) {
        let has_lost = self.cache.put(look.quick, from, number, look.now_ns);
        self.count_lost(has_lost, look.now_ns);
    }

    /// Waits for the client itself: nothing tells yet what completes the handshake.
    fn remember_syn(&mut self, look: Look, client: Side) {
        let has_lost = self.asked.as_ref().is_some_and(|asked| asked.put(look.quick, client, None, look.now_ns));
        self.count_lost(has_lost, look.now_ns);
    }

    fn count_lost(&mut self, has_lost: bool, now_ns: i64) {
        if has_lost {
            self.counts.handshakes_lost += 1;
            self.sampler.lost(now_ns);
        }
    }

    /// Whether a packet that no handshake waits for is handed on all the same.
    #[inline]
    fn is_sample(&mut self, now_ns: i64) -> bool {
        let is_sample = !self.sampler.is_idle() && self.sampler.takes(now_ns);
        self.counts.sampled += u64::from(is_sample);
        is_sample
    }
}

/// Which end of its connection's canonical key sent a segment.
#[inline]
fn sender_of(segment: &TcpSegment) -> Side {
    let (src_port, dst_port) = (segment.src_port, segment.dst_port);
    let is_first = match segment.addresses {
        Addresses::V4 { src, dst } => (src, src_port) <= (dst, dst_port),
        Addresses::V6 { src, dst } => (src, src_port) <= (dst, dst_port),
    };
    if is_first { Side::First } else { Side::Second }
}

/// Puts the signal of a segment in its place, but for its hash; which end sent it is found out here.
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

/// The initial sequence number of the client, as far as a packet of this kind tells it.
#[inline(always)]
fn initial_number(segment: &TcpSegment, kind: Kind) -> u32 {
    // Selected and not decided: what comes next is anybody's guess, and the processor's would be wrong half of the time. Nor put side by
    // side to be looked up: both numbers were written just before, each by itself, and a read of both at once would wait for that.
    const TOLD: u8 = 1 << Kind::Syn as u8 | 1 << Kind::SynAck as u8 | 1 << Kind::Ack as u8;
    const IS_NEXT: u8 = 1 << Kind::SynAck as u8 | 1 << Kind::Ack as u8;
    let is_in = |kinds: u8| kinds >> kind as u8 & 1;
    let number = select_unpredictable(kind == Kind::SynAck, segment.ack, segment.seq);
    number.wrapping_sub(u32::from(is_in(IS_NEXT))) & u32::from(is_in(TOLD)).wrapping_neg()
}

#[cfg(test)]
mod tests;
