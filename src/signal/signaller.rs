//! The last step of the capture side: it decides which few packets of a capture the shards get to see.
//!
//! Most packets carry no flag and belong to no handshake: one byte of the handshake cache says so, and they are
//! skipped. The others are staged and looked up, in this order:
//!
//! 1. The stage holds up to 64 signals without their hashes, so that all cache lines are prefetched before the first
//!    signal is looked up, and the signals are hashed together. Handshakes whose SYN or SYN-ACK is still in the stage
//!    are in no cache yet; [`StagedHandshakes`] has them.
//! 2. When the stage is full, each signal in it is looked up in the [`HandshakeCache`], which all capture threads share
//!    and which knows the handshakes that wait for the client's answer to a SYN-ACK.
//! 3. With several capture threads, it is then looked up among the SYNs that this thread has seen itself: another
//!    thread may read the SYN-ACK only after this one has read its answer.
//!
//! What was waited for, what carries a flag, what goes on behind its own end ([`RecentEnds`]), and a sample of the rest
//! is handed on.

use crate::error::Result;
use crate::flow::{FlowKey, KeyV4, KeyV6, QuickHash, Side, VlanTags};
use crate::parse::{Addresses, PlainFrame, TcpSegment};
use crate::signal::sampler::Sampler;
use crate::signal::{
    AnyKey, ConnectionHash, End, HandshakeCache, KnownOpen, Moment, Numbers, Origin, RecentEnds, Signal, SignalKind,
    SignalParts, WarmUp, Watch,
};
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::hash::{HASH_BATCH_COUNT, HashBatch, KeyedHash, Purpose, Secret};
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

/// The places of a stage: as many as a set has bits.
const STAGE_COUNT: usize = u64::BITS as usize;

/// The kinds that every signaller looks up, as bits.
const LOOKED_UP: u8 = 1 << SignalKind::Ack as u8
    | 1 << SignalKind::Alive as u8
    | 1 << SignalKind::Completes as u8
    | 1 << SignalKind::SynAck as u8
    | 1 << SignalKind::Rst as u8;

/// What it takes to look a staged signal up.
#[derive(Clone, Copy, Default)]
struct StagedLookup {
    quick_hash: u64,
    now_ns: i64,
    /// How far the sender has come.
    numbers: Numbers,
}

/// The sets that a signal belongs to.
struct StagePlace {
    /// The connection is of IPv6.
    is_v6: bool,
    /// The signal is looked up in the caches: its kind depends on them, or it changes them.
    needs_lookup: bool,
    /// The signal is handed on in any case.
    is_chosen: bool,
    /// The signal is the end of a side, which is not recorded yet.
    is_end: bool,
}

/// The contents of a stage, as sets of places.
struct StageContents {
    all: u64,
    /// The signals of IPv6 connections.
    v6: u64,
    /// The signals that are looked up in the caches.
    to_look_up: u64,
    /// The signals that are handed on in any case.
    chosen: u64,
}

/// The places, and how many are taken: fewer than all, except while [`Self::is_full`] is true.
struct Stage {
    signals: Box<[Signal; STAGE_COUNT]>,
    lookups: Box<[StagedLookup; STAGE_COUNT]>,
    count: usize,
    v6: u64,
    to_look_up: u64,
    chosen: u64,
    /// The signals that are the end of a side, which is not recorded yet.
    ends: u64,
    /// The signals that are not handed on: ends of earlier connections.
    passed_over: u64,
}

impl Stage {
    fn new() -> Self {
        let signals = Box::new([Signal::EMPTY; STAGE_COUNT]);
        let lookups = Box::new([StagedLookup::default(); STAGE_COUNT]);
        Stage { signals, lookups, count: 0, v6: 0, to_look_up: 0, chosen: 0, ends: 0, passed_over: 0 }
    }

    /// Takes the next place, in which `make` builds a signal.
    #[inline(always)]
    fn push<T>(&mut self, place: StagePlace, lookup: StagedLookup, make: impl FnOnce(&mut Signal) -> T) -> T {
        let at = self.count % STAGE_COUNT;
        self.lookups[at] = lookup;
        self.v6 |= u64::from(place.is_v6) << at;
        self.to_look_up |= u64::from(place.needs_lookup) << at;
        self.chosen |= u64::from(place.is_chosen) << at;
        self.ends |= u64::from(place.is_end) << at;
        self.count += 1;
        make(&mut self.signals[at])
    }

    fn is_full(&self) -> bool {
        self.count == STAGE_COUNT
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Frees all places, and returns which were taken. The signals in them stay until they are overwritten.
    fn take(&mut self) -> StageContents {
        // As many ones from the lowest bit on.
        let all = u64::MAX.checked_shr((STAGE_COUNT - self.count) as u32).unwrap_or(0);
        let taken = StageContents { all, v6: self.v6, to_look_up: self.to_look_up, chosen: self.chosen };
        (self.count, self.v6, self.to_look_up, self.chosen) = (0, 0, 0, 0);
        taken
    }

    fn has_ends(&self) -> bool {
        self.ends != 0
    }

    /// The places of ends that are not recorded yet; they are to be recorded now.
    fn take_ends(&mut self) -> u64 {
        std::mem::take(&mut self.ends)
    }

    /// Says that the signal at this place is not handed on.
    fn pass_over(&mut self, at: usize) {
        self.passed_over |= 1 << (at % STAGE_COUNT);
    }

    fn is_passed_over(&self, at: usize) -> bool {
        self.passed_over >> (at % STAGE_COUNT) & 1 != 0
    }

    fn lookups(&self) -> &[StagedLookup; STAGE_COUNT] {
        &self.lookups
    }

    fn signals_mut(&mut self) -> &mut [Signal; STAGE_COUNT] {
        &mut self.signals
    }
}

/// The places of a set, in order.
#[inline(always)]
fn places(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros() as usize;
        let is_there = set != 0;
        set &= set.wrapping_sub(1);
        is_there.then_some(at)
    })
}

/// The handshakes in the stage that wait for a packet. Each is [announced](HandshakeCache::announce) to the cache.
struct StagedHandshakes {
    /// A bit for each of them, in enough words that few other connections share one.
    bits: [u64; AWAITED_WORD_COUNT],
    /// The hashes of their connections, each with the side that it waits for, and the ISN that this is to follow.
    waiting: Vec<(u64, Side, Option<u32>)>,
}

const AWAITED_WORD_COUNT: usize = 8;

impl StagedHandshakes {
    fn new() -> Self {
        // A SYN adds one, and a SYN-ACK one, or with --one-way two.
        StagedHandshakes { bits: Default::default(), waiting: Vec::with_capacity(2 * STAGE_COUNT) }
    }

    #[inline]
    fn place(quick_hash: u64) -> (usize, u64) {
        (quick_hash as usize / 64 % AWAITED_WORD_COUNT, 1 << (quick_hash % 64))
    }

    fn mark(&mut self, quick_hash: u64) {
        let (word, bit) = StagedHandshakes::place(quick_hash);
        self.bits[word] |= bit;
    }

    fn put(&mut self, quick_hash: u64, side: Side, isn: Option<u32>) {
        self.mark(quick_hash);
        self.waiting.push((quick_hash, side, isn));
    }

    #[inline]
    fn may_hold(&self, quick_hash: u64) -> bool {
        let (word, bit) = StagedHandshakes::place(quick_hash);
        self.bits[word] & bit != 0
    }

    /// Removes a connection if it waits for a packet of this side, and returns how often it did, and the ISN that the
    /// packet was to follow.
    fn take(&mut self, quick_hash: u64, side: Side) -> (usize, Option<u32>) {
        let (before, mut awaited_isn) = (self.waiting.len(), None);
        self.waiting.retain(|(hash, waits_for, isn)| {
            let is_it = (*hash, *waits_for) == (quick_hash, side);
            awaited_isn = if is_it { *isn } else { awaited_isn };
            !is_it
        });
        let count = before - self.waiting.len();
        if count > 0 {
            self.bits = Default::default();
            (0..self.waiting.len()).for_each(|at| self.mark(self.waiting[at].0));
        }
        (count, awaited_isn)
    }

    /// The hashes of the connections that wait, each as often as it does.
    fn hashes(&self) -> impl Iterator<Item = u64> {
        self.waiting.iter().map(|waiting| waiting.0)
    }

    fn clear(&mut self) {
        self.bits = Default::default();
        self.waiting.clear();
    }
}

/// Hashes the connections of signals of one family together, in memory that need not be cleared each time.
struct FamilyHash<K: FlowKey> {
    hash: KeyedHash<K>,
    keys: [K; STAGE_COUNT],
    hashes: HashBatch,
}

impl<K: FlowKey> FamilyHash<K> {
    fn new(secret: &Secret) -> Self {
        let hash = KeyedHash::new(secret, Purpose::Connection);
        FamilyHash { hash, keys: [K::from_words(&[]); STAGE_COUNT], hashes: HashBatch::default() }
    }

    /// The signal with these parts of the connection with this key, whose first end is the sender.
    fn signal(&self, key: &K, parts: SignalParts, now_ns: i64) -> Signal {
        let (canonical, sender) = key.canonical();
        let hash = ConnectionHash::new(self.hash.of(&canonical));
        Signal::new(&canonical, hash, SignalParts { sender, ..parts }).at(Moment::of(now_ns))
    }

    /// Gives the signals at these places, which are all of this family, their hashes.
    fn set(&mut self, signals: &mut [Signal; STAGE_COUNT], set: u64) {
        let count = set.count_ones() as usize;
        self.keys.iter_mut().zip(places(set)).for_each(|(key, at)| *key = signals[at].key_words());
        self.hash.of_batch(&self.keys[..count], &mut self.hashes);
        for (number, at) in places(set).enumerate() {
            signals[at].set_hash(ConnectionHash::new(self.hashes.get(number)));
        }
    }
}

/// Turns segments into signals; one for each capture thread.
pub struct Signaller {
    config: SignallerConfig,
    cache: Arc<HandshakeCache>,
    /// Connections whose SYN came in here. The SYN-ACK may come in at another thread, which may read it only after this
    /// thread has read its answer. So the client's next packet is waited for from the SYN on.
    seen_syns: Option<Box<HandshakeCache>>,
    ends: Arc<RecentEnds>,
    watch: Option<Arc<Watch>>,
    sampler: Sampler,
    /// While every packet is inspected instead of a sample.
    warm_up: Option<Arc<WarmUp>>,
    /// Whether a packet without a flag may be a signal although no handshake waits for it.
    is_watchful: bool,
    /// The kinds that are always looked up, as bits: a SYN seldom is, and a FIN only if a handshake waits.
    looked_up: u8,
    hasher: QuickHash,
    v4: FamilyHash<KeyV4>,
    v6: FamilyHash<KeyV6>,
    stage: Stage,
    /// The handshakes in the stage, which no cache knows yet.
    awaited: StagedHandshakes,
    /// Where the segments come from.
    origin: Origin,
    counts: SignalCounts,
}

impl Signaller {
    /// A signaller that shares the cache and the ends with the other capture threads, and the watch with the list too.
    #[must_use]
    pub fn new(
        config: SignallerConfig,
        cache: Arc<HandshakeCache>,
        ends: Arc<RecentEnds>,
        watch: Option<Arc<Watch>>,
    ) -> Self {
        let seen_syn_timeout_ns = config.syn_timeout_ns.min(SEEN_SYN_TIMEOUT_NS);
        let seen_syns = (config.seen_syn_count > 0)
            .then(|| Box::new(HandshakeCache::new(config.seen_syn_count, seen_syn_timeout_ns).for_one_thread()));
        let looks_up_syns = config.one_way || seen_syns.is_some();
        let signaller = Signaller {
            is_watchful: false,
            looked_up: LOOKED_UP | u8::from(looks_up_syns) << SignalKind::Syn as u8,
            cache,
            ends,
            seen_syns,
            watch,
            sampler: Sampler::new(config.pickup, config.syn_timeout_ns),
            warm_up: None,
            hasher: QuickHash::new(&config.secret),
            v4: FamilyHash::new(&config.secret),
            v6: FamilyHash::new(&config.secret),
            stage: Stage::new(),
            awaited: StagedHandshakes::new(),
            origin: Origin::default(),
            counts: SignalCounts::default(),
            config,
        };
        Signaller { is_watchful: signaller.has_to_watch(), ..signaller }
    }

    /// Says where the segments come from, from now on.
    pub fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// The signaller that inspects every packet until this has ended, and a sample from then on.
    #[must_use]
    pub fn warming_up(self, warm_up: Arc<WarmUp>) -> Self {
        let mut signaller = self;
        signaller.sampler.set_pickup(1);
        signaller.warm_up = Some(warm_up);
        signaller.is_watchful = true;
        signaller
    }

    /// What ends the time in which every packet is inspected, while that lasts.
    #[must_use]
    pub fn warm_up(&self) -> Option<&WarmUp> {
        self.warm_up.as_deref()
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
    /// returns the tick of the segment and how long the clock has run, in ns (not a wall time: a step back would age
    /// the waiting handshakes); it is called only if that matters.
    ///
    /// Complexity: two multiplications and reads of two bytes for most packets (and of a third if connections are
    /// watched); one hash and one cache set for the others.
    #[inline(always)]
    pub fn push(&mut self, segment: &TcpSegment, time: impl FnOnce() -> (u64, i64), out: impl FnMut(Signal)) {
        let vlan = if self.config.vlan_key { segment.vlan } else { VlanTags::NONE };
        let quick_hash = self.quick_hash_of(segment, vlan);
        if !self.try_skip(segment.flags, quick_hash) {
            // A copy, so that the segment of a packet that is skipped is never in memory.
            self.push_unskipped(&TcpSegment { vlan, ..*segment }, quick_hash, time(), out);
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
            self.push_unskipped(&frame.segment(), quick_hash, time(), out);
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
            && self.ends.is_quiet(quick_hash)
            && (!self.is_watchful || self.try_skip_watched(quick_hash))
    }

    /// The part of [`Self::try_skip`] that concerns seen SYNs, the watch and the sampler.
    #[inline(never)]
    fn try_skip_watched(&mut self, quick_hash: u64) -> bool {
        !self.watch.as_ref().is_some_and(|watch| watch.may_hold(quick_hash))
            && !self.may_have_seen_syn(quick_hash)
            && !self.may_be_lost(quick_hash)
            && self.sampler.try_skip()
    }

    /// Whether a handshake of this connection may have been lost that may still be completed.
    #[inline]
    fn may_be_lost(&self, quick_hash: u64) -> bool {
        self.sampler.is_recovering() && self.cache.may_have_lost(quick_hash)
    }

    /// Whether a SYN of this connection may have been seen.
    #[inline]
    fn may_have_seen_syn(&self, quick_hash: u64) -> bool {
        self.seen_syns.as_ref().is_some_and(|syns| !syns.is_idle(quick_hash))
    }

    /// Puts a segment that may be a signal into the stage.
    #[inline(never)]
    fn push_unskipped(
        &mut self,
        segment: &TcpSegment,
        quick_hash: u64,
        (tick, now_ns): (u64, i64),
        out: impl FnMut(Signal),
    ) {
        let kind = SignalKind::of_flags(segment.flags);
        let mut is_chosen = false;
        let mut is_alive = false;
        if kind == SignalKind::Ack {
            is_alive = !self.ends.is_quiet(quick_hash) && self.goes_on(segment, quick_hash, now_ns);
            is_chosen = self.take_watched(quick_hash) || is_alive || self.may_be_lost(quick_hash);
            let is_answer = self.awaited.may_hold(quick_hash) && self.take_staged(segment, quick_hash, now_ns);
            if self.cache.is_idle(quick_hash) && !is_answer && !self.may_have_seen_syn(quick_hash) {
                is_chosen |= self.draw_sample(now_ns);
                if !is_chosen {
                    return;
                }
            }
        }
        if matches!(kind, SignalKind::Ack | SignalKind::Alive | SignalKind::SynAck) || self.config.one_way {
            self.cache.prefetch_set(quick_hash);
        }
        if let Some(seen_syns) = self.seen_syns.as_ref().filter(|_| matches!(kind, SignalKind::Ack | SignalKind::Syn)) {
            seen_syns.prefetch_set(quick_hash);
        }
        let isn = isn_of(segment, kind);
        let kind = if is_alive { SignalKind::Alive } else { kind };
        let parts = SignalParts { tick, kind, sender: Side::First, isn };
        let needs_lookup = self.needs_lookup(kind) || kind == SignalKind::Fin && self.may_be_awaited(quick_hash);
        let is_end = is_end(segment, kind);
        if is_end {
            self.ends.announce(quick_hash);
        }
        let is_v6 = matches!(segment.addresses, Addresses::V6 { .. });
        let place = StagePlace { is_v6, needs_lookup, is_chosen, is_end };
        let lookup = StagedLookup { quick_hash, now_ns, numbers: numbers_of(segment) };
        let origin = self.origin;
        let sender = self.stage.push(place, lookup, |slot| write_unhashed(segment, parts, (now_ns, origin), slot));
        if kind == SignalKind::SynAck {
            self.await_staged(quick_hash, sender.other(), Some(isn));
            if !self.ends.is_quiet(quick_hash) {
                self.follow_ends(segment, quick_hash, sender, now_ns);
            }
        } else if kind == SignalKind::Syn && !self.ends.is_quiet(quick_hash) {
            self.begin_behind_ends(segment, quick_hash, sender, now_ns);
        }
        if self.config.one_way && matches!(kind, SignalKind::Syn | SignalKind::SynAck)
            || self.seen_syns.is_some() && kind == SignalKind::Syn
        {
            self.await_staged(quick_hash, sender, (kind == SignalKind::Syn).then_some(isn));
        }
        if self.stage.is_full() {
            self.flush(out);
        }
    }

    /// Records the ends that wait in the stage.
    #[inline]
    fn record_ends(&mut self) {
        if self.stage.has_ends() {
            self.record_staged_ends();
        }
    }

    #[inline(never)]
    fn record_staged_ends(&mut self) {
        places(self.stage.take_ends()).for_each(|at| self.record_end(at));
    }

    /// Records the end of a side, at this place of the stage.
    #[inline]
    fn record_end(&mut self, at: usize) {
        let StagedLookup { quick_hash, now_ns, numbers: Numbers { sent, acked } } = self.stage.lookups()[at];
        let SignalParts { kind, sender, .. } = self.stage.signals_mut()[at].parts();
        let is_rst = kind == SignalKind::Rst;
        if is_rst && self.ends.is_of_earlier(quick_hash, sender, sent, now_ns) {
            self.ends.retract(quick_hash);
            self.stage.pass_over(at);
            return;
        }
        let at = Numbers { sent: sent.wrapping_add(u32::from(!is_rst)), acked };
        self.ends.put(quick_hash, sender, End { is_rst, at }, now_ns);
    }

    /// Whether a packet without a flag, of a connection that is not quiet, shows that its sender has not ended.
    #[inline(never)]
    fn goes_on(&mut self, segment: &TcpSegment, quick_hash: u64, now_ns: i64) -> bool {
        self.record_ends();
        self.ends.goes_on(quick_hash, sender_of(segment), numbers_of(segment), now_ns)
    }

    /// Records that a SYN-ACK begins another connection between ends of which one has ended.
    #[cold]
    fn follow_ends(&mut self, segment: &TcpSegment, quick_hash: u64, sender: Side, now_ns: i64) {
        self.record_ends();
        let Numbers { sent, acked } = numbers_of(segment);
        self.ends.follow(quick_hash, sender, Numbers { sent: sent.wrapping_add(1), acked }, now_ns);
    }

    /// Records that a SYN may begin another connection between ends of which one has ended.
    #[cold]
    fn begin_behind_ends(&mut self, segment: &TcpSegment, quick_hash: u64, sender: Side, now_ns: i64) {
        self.record_ends();
        self.ends.begin(quick_hash, sender, segment.seq.wrapping_add(1), now_ns);
    }

    /// Ends the watch over the connection of a packet, and returns whether it was under watch.
    #[inline]
    fn take_watched(&mut self, quick_hash: u64) -> bool {
        let Some(watch) = &self.watch else { return false };
        let is_watched = watch.may_hold(quick_hash) && watch.take(quick_hash);
        self.counts.watched += u64::from(is_watched);
        is_watched
    }

    /// Waits for the next packet of this side, of a handshake in the stage.
    fn await_staged(&mut self, quick_hash: u64, side: Side, isn: Option<u32>) {
        self.cache.announce(quick_hash);
        self.awaited.put(quick_hash, side, isn);
    }

    /// Waits no longer for the sender of this packet if a handshake in the stage did, and returns whether one did. What
    /// is late is no answer: the handshake waits on.
    fn take_staged(&mut self, segment: &TcpSegment, quick_hash: u64, now_ns: i64) -> bool {
        let (side, isn) = (sender_of(segment), isn_of(segment, SignalKind::Ack));
        let (count, awaited_isn) = self.awaited.take(quick_hash, side);
        if awaited_isn.is_some_and(|awaited_isn| awaited_isn != isn) && self.is_late(segment, quick_hash, now_ns) {
            (0..count).for_each(|_| self.awaited.put(quick_hash, side, awaited_isn));
            return true;
        }
        (0..count).for_each(|_| self.cache.retract(quick_hash));
        count > 0
    }

    /// Whether a packet without a flag comes late, behind an end of its connection.
    #[cold]
    fn is_late(&mut self, segment: &TcpSegment, quick_hash: u64, now_ns: i64) -> bool {
        self.record_ends();
        self.ends.is_late(quick_hash, sender_of(segment), numbers_of(segment), now_ns)
    }

    /// Whether a handshake of this connection may wait for a packet, in the stage or in a cache.
    #[inline(always)]
    fn may_be_awaited(&self, quick_hash: u64) -> bool {
        !self.cache.is_idle(quick_hash) || self.may_have_seen_syn(quick_hash)
    }

    /// Whether a signal of this kind is always looked up.
    #[inline(always)]
    fn needs_lookup(&self, kind: SignalKind) -> bool {
        self.looked_up >> kind as u8 & 1 != 0
    }

    /// The signal of a connection that the system knows to be open, with the client's end first in its key.
    #[must_use]
    pub fn known(&self, known: &KnownOpen, (tick, now_ns): (u64, i64)) -> Signal {
        let parts = SignalParts { tick, kind: SignalKind::Known, sender: Side::First, isn: known.ended.to_bits() };
        match &known.key {
            AnyKey::V4(key) => self.v4.signal(key, parts, now_ns),
            AnyKey::V6(key) => self.v6.signal(key, parts, now_ns),
        }
    }

    /// Empties the stage, and hands its signals to `out`.
    #[inline(never)]
    pub fn flush(&mut self, mut out: impl FnMut(Signal)) {
        let ends = self.stage.take_ends();
        let StageContents { all, v6, to_look_up, chosen } = self.stage.take();
        let mut kept = all;
        // In order: what came before an end is not late behind it.
        for at in places(to_look_up | ends) {
            if ends >> at & 1 != 0 {
                self.record_end(at);
            }
            let is_chosen = chosen >> at & 1 != 0;
            if self.stage.is_passed_over(at) || to_look_up >> at & 1 != 0 && !self.resolve(at, is_chosen) {
                kept &= !(1 << at);
            }
        }
        self.stage.passed_over = 0;
        self.counts.signals += u64::from(kept.count_ones());
        let signals = self.stage.signals_mut();
        self.v4.set(signals, kept & !v6);
        self.v6.set(signals, kept & v6);
        places(kept).for_each(|at| out(signals[at]));
        self.awaited.hashes().for_each(|quick_hash| self.cache.retract(quick_hash));
        self.awaited.clear();
        if self.warm_up.as_ref().is_some_and(|warm_up| warm_up.has_ended()) {
            self.warm_up = None;
            self.sampler.set_pickup(self.config.pickup);
        }
        self.is_watchful = self.has_to_watch();
    }

    /// Decides for the packet at this place of the stage whether it is handed on, as it is in any case if it was
    /// chosen, and as which kind.
    #[inline(always)]
    fn resolve(&mut self, at: usize, is_chosen: bool) -> bool {
        let lookup = self.stage.lookups()[at];
        let StagedLookup { quick_hash, now_ns, numbers } = lookup;
        let SignalParts { kind, sender, isn, .. } = self.stage.signals_mut()[at].parts();
        match kind {
            SignalKind::Ack | SignalKind::Completes | SignalKind::Alive => {
                // What is late is no answer to the handshake of the next connection.
                let is_late = || self.ends.is_late(quick_hash, sender, numbers, now_ns);
                let waited_for = self.cache.take_unless(quick_hash, sender, isn, now_ns, is_late);
                let take_syn = |syns: &HandshakeCache| syns.take_unless(quick_hash, sender, isn, now_ns, is_late);
                let seen_syn = self.seen_syns.as_deref().and_then(take_syn);
                if waited_for == Some(SignalKind::Completes) {
                    self.stage.signals_mut()[at].set_kind(SignalKind::Completes);
                }
                is_chosen || waited_for.is_some() || seen_syn.is_some() || self.draw_sample(now_ns)
            }
            // No segment makes one.
            SignalKind::Known => true,
            SignalKind::SynAck => {
                if !self.config.answer_opens {
                    self.await_answer(lookup, sender.other(), Some(isn));
                }
                if self.config.one_way {
                    self.await_answer(lookup, sender, None);
                }
                true
            }
            SignalKind::Syn => {
                if self.config.one_way {
                    self.await_answer(lookup, sender, None);
                }
                self.remember_syn(lookup, sender, isn);
                true
            }
            SignalKind::Rst => {
                // No later packet completes the handshake.
                self.cache.give_up(quick_hash, now_ns);
                self.seen_syns.iter().for_each(|syns| syns.give_up(quick_hash, now_ns));
                true
            }
            SignalKind::Fin => {
                // Of a server that ends before its client has answered the ISN is the one that it acknowledges, or
                // shortly before it, where data of the client was not captured.
                if self.cache.awaits_answer(quick_hash, sender.other(), now_ns) {
                    self.stage.signals_mut()[at].set_isn(numbers.acked.wrapping_sub(1));
                }
                // The sender's handshake waits no longer: a retransmission behind the end must not complete it again.
                self.cache.take(quick_hash, sender, isn, now_ns);
                if let Some(seen_syns) = &self.seen_syns {
                    seen_syns.take(quick_hash, sender, isn, now_ns);
                }
                true
            }
        }
    }

    fn await_answer(&mut self, lookup: StagedLookup, from: Side, isn: Option<u32>) {
        let has_lost = self.cache.put(lookup.quick_hash, from, isn, lookup.now_ns);
        self.count_lost(has_lost, lookup.now_ns);
    }

    /// Waits for the client's next packet. Which one completes the handshake is not known yet, but one that does not
    /// follow this number may be late.
    fn remember_syn(&mut self, lookup: StagedLookup, client: Side, isn: u32) {
        let StagedLookup { quick_hash, now_ns, .. } = lookup;
        let has_lost = self.seen_syns.as_ref().is_some_and(|syns| syns.put(quick_hash, client, Some(isn), now_ns));
        self.count_lost(has_lost, lookup.now_ns);
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

    /// Writes the signaller and the cache, which no other thread may be using, into a saved state. The stage must have
    /// been [flushed](Self::flush).
    pub fn save(&self, encoder: &mut Encoder) {
        debug_assert!(self.stage.is_empty());
        let SignalCounts { signals, sampled, watched, handshakes_lost } = self.counts;
        encoder.counts([signals, sampled, watched, handshakes_lost]);
        self.sampler.save(encoder);
        self.cache.save(encoder);
        self.ends.save(encoder);
    }

    /// Continues from a saved state of the same configuration. After an error the signaller is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode such a signaller.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let [signals, sampled, watched, handshakes_lost] = decoder.counts()?;
        self.counts = SignalCounts { signals, sampled, watched, handshakes_lost };
        self.sampler.restore(decoder)?;
        self.is_watchful = self.has_to_watch();
        self.cache.restore(decoder)?;
        self.ends.restore(decoder)
    }
}

/// How far the sender of a segment has come with it: the number behind its data, and what it acknowledges.
#[inline]
fn numbers_of(segment: &TcpSegment) -> Numbers {
    Numbers { sent: segment.seq.wrapping_add(segment.payload_size.unwrap_or(0)), acked: segment.ack }
}

/// Whether a packet of this kind is the end of its side. Where it was not seen how much data a FIN has, nothing can be
/// said of what comes behind it.
#[inline(always)]
fn is_end(segment: &TcpSegment, kind: SignalKind) -> bool {
    kind == SignalKind::Rst || kind == SignalKind::Fin && segment.payload_size.is_some()
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

/// Writes the signal of a segment that came at this time from there into its slot, all but the hash, and returns which
/// end sent it.
#[inline(always)]
fn write_unhashed(
    segment: &TcpSegment,
    parts: SignalParts,
    (now_ns, origin): (i64, Origin),
    slot: &mut Signal,
) -> Side {
    let TcpSegment { src_port, dst_port, vlan, .. } = *segment;
    let (moment, hash) = (Moment::of(now_ns), ConnectionHash::new(0));
    let has_data = parts.kind == SignalKind::Syn && segment.payload_size.is_some_and(|size| size > 0);
    match segment.addresses {
        Addresses::V4 { src, dst } => {
            let (key, sender) = KeyV4::canonical_of((src, src_port), (dst, dst_port), vlan);
            let signal = Signal::new(&key, hash, SignalParts { sender, ..parts });
            *slot = signal.at(moment).with_data(has_data).from_origin(origin);
            sender
        }
        Addresses::V6 { src, dst } => {
            let (key, sender) = KeyV6::canonical_of((src, src_port), (dst, dst_port), vlan);
            let signal = Signal::new(&key, hash, SignalParts { sender, ..parts });
            *slot = signal.at(moment).with_data(has_data).from_origin(origin);
            sender
        }
    }
}

/// The client's ISN if a packet of this kind says it, otherwise zero.
#[inline(always)]
fn isn_of(segment: &TcpSegment, kind: SignalKind) -> u32 {
    // A select instead of a branch: which kind comes next is unpredictable, and half of the branches would be
    // mispredicted. Nor a table: both numbers were just written one by one, and an indexed read would have to wait for
    // both stores.
    const IS_NEXT: u8 = 1 << SignalKind::SynAck as u8 | 1 << SignalKind::Ack as u8 | 1 << SignalKind::Fin as u8;
    const KNOWN: u8 = IS_NEXT | 1 << SignalKind::Syn as u8;
    let is_in = |kinds: u8| kinds >> kind as u8 & 1;
    let isn = select_unpredictable(kind == SignalKind::SynAck, segment.ack, segment.seq);
    isn.wrapping_sub(u32::from(is_in(IS_NEXT))) & u32::from(is_in(KNOWN)).wrapping_neg()
}

#[cfg(test)]
mod tests;
