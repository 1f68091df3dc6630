//! The last step of the capture side: it decides which few packets of a capture the shards get to see.
//!
//! Most packets carry no flag and belong to no handshake: the counts of the handshake cache say so, and they are
//! skipped. The others are staged and looked up, in this order:
//!
//! 1. The stage holds up to 64 signals without their hashes, so that all cache lines are prefetched before the first
//!    signal is looked up, and the signals are hashed together. Handshakes whose SYN or SYN-ACK is still in the stage
//!    are in no cache yet; [`StagedHandshakes`] has them. An answer that finds its SYN-ACK there completes the
//!    handshake, which then never comes into a cache. Of a side whose first packet without a flag is in the stage the
//!    next are skipped again ([`StagedAnswers`]).
//! 2. When the stage is full, or what is in it has to be known, each signal in it for which a handshake may wait is
//!    looked up in the [`HandshakeCache`], which all capture threads share and which knows the handshakes that wait for
//!    the client's answer to a SYN-ACK.
//! 3. With several capture threads, it is then looked up among the SYNs that this thread has seen itself: another
//!    thread may read the SYN-ACK only after this one has read its answer.
//!
//! What was waited for, what carries a flag, what goes on behind its own end ([`RecentEnds`]), and a sample of the rest
//! is handed on.

use crate::error::Result;
use crate::flow::{Family, FlowKey, KeyV4, KeyV6, QuickHash, Side, VlanTags};
use crate::parse::{Addresses, PacketHeader, ReadHeader, TcpSegment};
use crate::signal::ones::ones;
use crate::signal::sampler::Sampler;
use crate::signal::{
    Answer, AnyKey, BehindEnd, BesideEnd, ConnectionHash, End, HandshakeCache, KnownOpen, Moment, Numbers, Origin,
    RecentEnds, Signal, SignalKind, SignalParts, WarmUp, Watch,
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

/// What it takes to look a staged signal up.
#[derive(Clone, Copy, Default)]
struct StagedLookup {
    quick_hash: u64,
    now_ns: i64,
    /// How far the sender has come.
    numbers: Numbers,
}

/// A packet of either family that is not skipped at once, without the ends of its connection.
#[derive(Clone, Copy)]
struct Unskipped {
    kind: SignalKind,
    quick_hash: u64,
    /// Whether no side of its connection has ended lately.
    is_quiet: bool,
    sender: Side,
    numbers: Numbers,
    /// The client's initial sequence number, if the packet is one of its handshake.
    isn: u32,
    /// Whether it is known how much data the packet has.
    has_size: bool,
    tick: u64,
    now_ns: i64,
}

/// A packet without a flag that goes into the stage.
struct Unflagged {
    kind: SignalKind,
    /// Whether it shows that another connection has begun.
    begins_another: bool,
    /// Whether it is handed on in any case.
    is_chosen: bool,
    /// Whether a handshake may wait for it.
    is_looked_up: bool,
}

/// The places, and how many are taken: fewer than all, except while [`Self::is_full`] is true.
struct Stage {
    signals: Box<[Signal; STAGE_COUNT]>,
    lookups: Box<[StagedLookup; STAGE_COUNT]>,
    count: usize,
    /// The signals of IPv6 connections.
    v6: u64,
    /// The signals that are handed on in any case.
    chosen: u64,
    unsettled: Unsettled,
    /// Where the other side's FIN is, for each second FIN.
    first_fins: [u8; STAGE_COUNT],
    /// The signals that are not handed on.
    dropped: u64,
}

/// The signals of a stage that are not looked up, or recorded, yet.
#[derive(Clone, Copy, Default)]
struct Unsettled {
    /// Those behind which a side's next packet is waited for.
    handshakes: u64,
    /// Those without a flag for which a handshake may wait: whether they are handed on depends on that, or their kinds.
    answers: u64,
    /// FINs for which a handshake may wait.
    awaited_fins: u64,
    /// The ends of sides, without a FIN that is recorded together with the other side's.
    ends: u64,
    /// Those of the ends with which the other side's FIN is recorded.
    second_fins: u64,
}

impl Stage {
    fn new() -> Self {
        let signals = Box::new([Signal::EMPTY; STAGE_COUNT]);
        let lookups = Box::new([StagedLookup::default(); STAGE_COUNT]);
        Stage {
            signals,
            lookups,
            count: 0,
            v6: 0,
            chosen: 0,
            unsettled: Unsettled::default(),
            first_fins: [0; STAGE_COUNT],
            dropped: 0,
        }
    }

    /// Takes the next place for a signal, and returns it, as a set.
    #[inline(always)]
    fn push(&mut self, lookup: StagedLookup, signal: Signal) -> u64 {
        let at = self.count % STAGE_COUNT;
        self.lookups[at] = lookup;
        self.signals[at] = signal;
        self.count += 1;
        1 << at
    }

    fn is_full(&self) -> bool {
        self.count == STAGE_COUNT
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Frees all places, and returns which signals are handed on, and which of them are of IPv6 connections. They stay
    /// until they are overwritten.
    fn take(&mut self) -> (u64, u64) {
        // As many ones from the lowest bit on.
        let all = u64::MAX.checked_shr((STAGE_COUNT - self.count) as u32).unwrap_or(0);
        let kept = all & !self.dropped;
        let v6 = kept & self.v6;
        (self.count, self.v6, self.chosen, self.dropped) = (0, 0, 0, 0);
        (kept, v6)
    }

    /// Has the FIN at this place, which is a set, recorded together with that of the other side at `first_fin`, unless
    /// a handshake may wait for one of them.
    fn pair_fins(&mut self, first_fin: usize, second_fin: u64) {
        let both = 1 << first_fin | second_fin;
        if self.unsettled.awaited_fins & both == 0 {
            self.first_fins[second_fin.trailing_zeros() as usize % STAGE_COUNT] = first_fin as u8;
            self.unsettled.second_fins |= second_fin;
            self.unsettled.ends &= !(1 << first_fin);
        }
    }

    fn is_chosen(&self, at: usize) -> bool {
        self.chosen >> (at % STAGE_COUNT) & 1 != 0
    }

    fn lookups(&self) -> &[StagedLookup; STAGE_COUNT] {
        &self.lookups
    }

    fn signals_mut(&mut self) -> &mut [Signal; STAGE_COUNT] {
        &mut self.signals
    }
}

/// Connections in the stage: a bit for each of them, in enough words that few others share one. A stage that is settled
/// for another connection waits for memory that has only been asked for.
#[derive(Default)]
struct StagedConnections([u64; CONNECTION_WORD_COUNT]);

const CONNECTION_WORD_COUNT: usize = 32;

impl StagedConnections {
    #[inline]
    fn place(quick_hash: u64) -> (usize, u64) {
        (quick_hash as usize / 64 % CONNECTION_WORD_COUNT, 1 << (quick_hash % 64))
    }

    #[inline]
    fn put(&mut self, quick_hash: u64) {
        let (word, bit) = Self::place(quick_hash);
        self.0[word] |= bit;
    }

    #[inline]
    fn may_hold(&self, quick_hash: u64) -> bool {
        let (word, bit) = Self::place(quick_hash);
        self.0[word] & bit != 0
    }

    fn clear(&mut self) {
        self.0 = Default::default();
    }
}

/// The handshakes in the stage that wait for a packet. Each is [announced](HandshakeCache::announce) to the cache.
struct StagedHandshakes {
    /// Their connections, and those that were there.
    connections: StagedConnections,
    waiting: Vec<StagedHandshake>,
}

/// A handshake in the stage that waits for a packet.
#[derive(Clone, Copy)]
struct StagedHandshake {
    quick_hash: u64,
    waits_for: Side,
    /// The ISN that the packet is to follow, if it is known.
    isn: Option<u32>,
    /// The place of its SYN-ACK, as a set, if no other handshake of the connection waited; empty otherwise.
    alone: u64,
}

impl StagedHandshakes {
    fn new() -> Self {
        // A SYN adds one, and a SYN-ACK one, or with --one-way two.
        StagedHandshakes { connections: StagedConnections::default(), waiting: Vec::with_capacity(2 * STAGE_COUNT) }
    }

    fn put(&mut self, handshake: StagedHandshake) {
        self.connections.put(handshake.quick_hash);
        self.waiting.push(handshake);
    }

    #[inline]
    fn may_hold(&self, quick_hash: u64) -> bool {
        self.connections.may_hold(quick_hash)
    }

    /// Removes the handshakes of a connection that wait for a packet of this side, and returns how many there were, and
    /// the last.
    fn take(&mut self, quick_hash: u64, side: Side) -> (usize, Option<StagedHandshake>) {
        let (before, mut last) = (self.waiting.len(), None);
        self.waiting.retain(|waiting| {
            let is_it = (waiting.quick_hash, waiting.waits_for) == (quick_hash, side);
            last = if is_it { Some(*waiting) } else { last };
            !is_it
        });
        (before - self.waiting.len(), last)
    }

    /// The hashes of the connections that wait, each as often as it does.
    fn hashes(&self) -> impl Iterator<Item = u64> {
        self.waiting.iter().map(|waiting| waiting.quick_hash)
    }

    fn clear(&mut self) {
        self.connections.clear();
        self.waiting.clear();
    }
}

/// The sides of connections of which a packet without a flag is in the stage. What such a side sends next answers no
/// handshake that is in a cache already: all that wait for the side there are given to the first packet. (Not if that
/// comes late, or was overtaken: then the next is looked up too.)
struct StagedAnswers {
    /// The hash of the last connection that came to each place, of either side, or zero.
    hashes: [[u64; STAGE_COUNT]; 2],
    /// The number before the sequence number of its packet.
    numbers: [[u32; STAGE_COUNT]; 2],
}

impl StagedAnswers {
    fn new() -> Self {
        StagedAnswers { hashes: [[0; STAGE_COUNT]; 2], numbers: [[0; STAGE_COUNT]; 2] }
    }

    fn put(&mut self, quick_hash: u64, side: Side, number: u32) {
        let place = quick_hash as usize % STAGE_COUNT;
        self.hashes[side as usize][place] = quick_hash;
        self.numbers[side as usize][place] = number;
    }

    /// Whether a packet of this side is there that does not come behind one with this number.
    fn holds_before(&self, quick_hash: u64, side: Side, number: u32) -> bool {
        let place = quick_hash as usize % STAGE_COUNT;
        let is_there = self.hashes[side as usize][place] == quick_hash;
        is_there && number.wrapping_sub(self.numbers[side as usize][place]) as i32 >= 0
    }

    fn clear(&mut self) {
        self.hashes = [[0; STAGE_COUNT]; 2];
    }
}

/// A FIN in the stage.
#[derive(Clone, Copy, Default)]
struct StagedFin {
    /// The number behind it.
    number: u32,
    /// Its place in the stage.
    at: u32,
}

/// The FINs in the stage, which are not recorded yet. The last packet of a connection follows its own side's FIN
/// immediately: it is compared with the FIN here, and the stage need not be settled for it.
struct StagedFins {
    /// The connection, by its hash, whose FIN came to each place, for each side.
    hashes: [[u64; STAGE_COUNT]; 2],
    fins: [[StagedFin; STAGE_COUNT]; 2],
    /// The places to which a FIN came.
    taken: [u64; 2],
    /// Connections whose ends are not all known: of which a RST came, or a FIN to a place that was taken.
    unclear: StagedConnections,
}

impl StagedFins {
    fn new() -> Self {
        let fins = [[StagedFin::default(); STAGE_COUNT]; 2];
        StagedFins { hashes: [[0; STAGE_COUNT]; 2], fins, taken: [0; 2], unclear: StagedConnections::default() }
    }

    #[inline]
    fn put(&mut self, quick_hash: u64, side: Side, fin: StagedFin) {
        let (side, place) = (side as usize, quick_hash as usize % STAGE_COUNT);
        if self.taken[side] >> place & 1 != 0 {
            self.unclear.put(self.hashes[side][place]);
            self.unclear.put(quick_hash);
        }
        self.taken[side] |= 1 << place;
        self.hashes[side][place] = quick_hash;
        self.fins[side][place] = fin;
    }

    /// Puts an end of whichever side, of which it is not known where it is.
    #[inline]
    fn put_unclear(&mut self, quick_hash: u64) {
        self.unclear.put(quick_hash);
    }

    /// Whether it is known which ends of a connection are there: none, or one FIN of a side.
    #[inline]
    fn is_clear(&self, quick_hash: u64) -> bool {
        !self.unclear.may_hold(quick_hash)
    }

    /// Whether an end of this connection may be there.
    #[inline]
    fn may_hold(&self, quick_hash: u64) -> bool {
        let has_fin = |side| self.fin(quick_hash, side).is_some();
        !self.is_clear(quick_hash) | has_fin(Side::First) | has_fin(Side::Second)
    }

    /// The one FIN of this side, if there is one.
    #[inline]
    fn fin(&self, quick_hash: u64, side: Side) -> Option<StagedFin> {
        let (side, place) = (side as usize, quick_hash as usize % STAGE_COUNT);
        let is_there = self.taken[side] >> place & 1 != 0 && self.hashes[side][place] == quick_hash;
        is_there.then(|| self.fins[side][place])
    }

    /// The other side's FIN, if it is the only end of the connection that is there before the FIN of this side comes.
    #[inline]
    fn other(&self, quick_hash: u64, side: Side) -> Option<StagedFin> {
        let is_alone = self.is_clear(quick_hash) && self.fin(quick_hash, side).is_none();
        self.fin(quick_hash, side.other()).filter(|_| is_alone)
    }

    fn clear(&mut self) {
        self.taken = [0; 2];
        self.unclear.clear();
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
        self.keys.iter_mut().zip(ones::<STAGE_COUNT>(set)).for_each(|(key, at)| *key = signals[at].key_words());
        self.hash.of_batch(&self.keys[..count], &mut self.hashes);
        for (number, at) in ones::<STAGE_COUNT>(set).enumerate() {
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
    /// Whether the next packet of who sent a SYN is waited for, and a SYN is looked up for it.
    looks_up_syns: bool,
    /// Whether the client's answer to a SYN-ACK completes a handshake, and nothing else is waited for.
    completes_in_stage: bool,
    hasher: QuickHash,
    v4: FamilyHash<KeyV4>,
    v6: FamilyHash<KeyV6>,
    stage: Stage,
    /// The handshakes in the stage, which no cache knows yet.
    awaited: StagedHandshakes,
    /// The sides of which a packet without a flag is in the stage.
    answered: StagedAnswers,
    /// The ends in the stage that are not recorded yet.
    fins: StagedFins,
    /// The connections of the packets without a flag in the stage that are not looked up yet.
    looked_up: StagedConnections,
    /// The step of the caches' time in which the packets in the stage came that are not looked up yet.
    step: u64,
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
        let signaller = Signaller {
            is_watchful: false,
            looks_up_syns: config.one_way || seen_syns.is_some(),
            completes_in_stage: !config.one_way && seen_syns.is_none() && !config.answer_opens,
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
            answered: StagedAnswers::new(),
            fins: StagedFins::new(),
            looked_up: StagedConnections::default(),
            step: 0,
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

    /// Takes in one segment, as [`Self::push_header`] its header.
    #[inline(always)]
    pub fn push(&mut self, segment: &TcpSegment, time: impl Fn() -> (u64, i64), out: impl FnMut(&Signal)) {
        match segment.addresses {
            Addresses::V4 { src, dst } => {
                self.push_header(ReadHeader::<KeyV4>::new(segment, [src, dst]), time, out);
            }
            Addresses::V6 { src, dst } => {
                self.push_header(ReadHeader::<KeyV6>::new(segment, [src, dst]), time, out);
            }
        }
    }

    /// Takes in the header of one packet, and hands the signals in the stage to `out`, in order, when the stage is
    /// full. `time` returns the tick of the packet and how long the clock has run, in ns (not a wall time: a step back
    /// would age the waiting handshakes); it is called only if that matters.
    ///
    /// Complexity: two multiplications and reads of two cache lines for most packets (and of a third while connections
    /// are under watch); one hash and one cache set for the others.
    #[inline(always)]
    pub fn push_header<H: PacketHeader>(&mut self, header: H, time: impl Fn() -> (u64, i64), out: impl FnMut(&Signal)) {
        let quick_hash = self.hasher.of_ends::<H::Key>(header.ends(), self.vlan_in_key(header));
        // Packets with a flag need it too.
        let is_quiet = self.ends.is_quiet(quick_hash);
        let is_skipped = self.try_skip(header, quick_hash, is_quiet, || time().1);
        if !is_skipped && self.push_unskipped(header, quick_hash, is_quiet, time()) {
            self.flush(out);
        }
    }

    /// The VLAN tags of a packet that are part of its connection's key.
    #[inline(always)]
    fn vlan_in_key(&self, header: impl PacketHeader) -> VlanTags {
        if self.config.vlan_key { header.vlan() } else { VlanTags::NONE }
    }

    /// Skips a packet that says nothing, as most do, and returns whether it did: a packet without a flag that no
    /// handshake and no watch waits for and that the sampler does not draw, of a connection of which no side has ended,
    /// or where its own side has.
    #[inline(always)]
    fn try_skip<H: PacketHeader>(
        &mut self,
        header: H,
        quick_hash: u64,
        is_quiet: bool,
        now_ns: impl Fn() -> i64,
    ) -> bool {
        if header.flags() & (TcpSegment::SYN | TcpSegment::FIN | TcpSegment::RST) != 0 {
            return false;
        }
        if !is_quiet {
            return self.try_skip_at_end(header, quick_hash, now_ns());
        }
        let is_idle = self.cache.is_idle(quick_hash)
            || !self.awaited.may_hold(quick_hash) && self.is_header_behind_answer(header, quick_hash);
        is_idle && (!self.is_watchful || self.try_skip_watched(quick_hash))
    }

    /// The part of [`Self::try_skip`] that concerns connections that are not quiet.
    #[inline(never)]
    fn try_skip_at_end<H: PacketHeader>(&mut self, header: H, quick_hash: u64, now_ns: i64) -> bool {
        let sender = H::Key::side_of_sender(header.ends());
        self.cache.is_idle(quick_hash)
            && self.is_at_end(quick_hash, sender, numbers_of(header).sent, now_ns)
            && (!self.is_watchful || self.try_skip_watched(quick_hash))
    }

    /// As [`Self::is_behind_answer`], of the header of the packet.
    #[inline(never)]
    fn is_header_behind_answer<H: PacketHeader>(&self, header: H, quick_hash: u64) -> bool {
        self.is_behind_answer(quick_hash, H::Key::side_of_sender(header.ends()), header.seq().wrapping_sub(1))
    }

    /// Whether a packet without a flag, with this number before its own, comes behind one of its side in the stage, to
    /// which all handshakes in the cache are given that wait for the side. True for most of which the connection is not
    /// idle.
    #[inline]
    fn is_behind_answer(&self, quick_hash: u64, sender: Side, number: u32) -> bool {
        self.seen_syns.is_none()
            && self.answered.holds_before(quick_hash, sender, number)
            && self.ends.has_none(quick_hash)
    }

    /// The part of [`Self::try_skip`] that concerns seen SYNs, the watch and the sampler.
    #[inline(never)]
    fn try_skip_watched(&mut self, quick_hash: u64) -> bool {
        !self.watch.as_ref().is_some_and(|watch| watch.may_hold(quick_hash))
            && !self.may_have_seen_syn(quick_hash)
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

    /// Puts a packet that may be a signal into the stage, and returns whether that is full now.
    #[inline(never)]
    fn push_unskipped<H: PacketHeader>(
        &mut self,
        header: H,
        quick_hash: u64,
        is_quiet: bool,
        (tick, now_ns): (u64, i64),
    ) -> bool {
        self.advance(now_ns);
        let kind = SignalKind::of_flags(header.flags());
        let packet = Unskipped {
            kind,
            quick_hash,
            is_quiet,
            sender: H::Key::side_of_sender(header.ends()),
            numbers: numbers_of(header),
            isn: isn_of(header, kind),
            has_size: header.payload_size().is_some(),
            tick,
            now_ns,
        };
        if kind != SignalKind::Ack {
            let has_data = kind == SignalKind::Syn && packet.numbers.sent != packet.isn;
            let place = self.stage(header, &packet, kind, has_data);
            self.take_flagged(&packet, place);
        } else if let Some(unflagged) = self.take_unflagged(&packet) {
            let Unflagged { kind, begins_another, is_chosen, is_looked_up } = unflagged;
            let place = self.stage(header, &packet, kind, false);
            if begins_another {
                self.stage.signals_mut()[place.trailing_zeros() as usize].set_begins_another();
            }
            self.stage.unsettled.answers |= if is_looked_up { place } else { 0 };
            self.stage.chosen |= if is_chosen { place } else { 0 };
        }
        self.stage.is_full()
    }

    /// Notes what a packet with a flag, which is at this place of the stage, says of its connection.
    #[inline(always)]
    fn take_flagged(&mut self, packet: &Unskipped, place: u64) {
        match packet.kind {
            SignalKind::Syn => self.take_syn(packet, place),
            SignalKind::SynAck => self.take_syn_ack(packet, place),
            SignalKind::Fin => self.take_fin(packet, place),
            SignalKind::Rst => self.take_rst(packet, place),
            // Flags make no other.
            SignalKind::Ack | SignalKind::Completes | SignalKind::Alive | SignalKind::Known => {}
        }
    }

    #[inline(always)]
    fn take_syn(&mut self, packet: &Unskipped, place: u64) {
        let &Unskipped { quick_hash, is_quiet, sender, isn, now_ns, .. } = packet;
        if !is_quiet {
            self.begin_behind_ends(quick_hash, sender, isn.wrapping_add(1), now_ns);
        }
        if self.looks_up_syns {
            self.settle_before_handshake(quick_hash);
            self.cache.prefetch_set(quick_hash);
            self.seen_syns.iter().for_each(|syns| syns.prefetch_set(quick_hash));
            self.stage.unsettled.handshakes |= place;
            self.await_staged(StagedHandshake { quick_hash, waits_for: sender, isn: Some(isn), alone: 0 });
        }
    }

    #[inline(always)]
    fn take_syn_ack(&mut self, packet: &Unskipped, place: u64) {
        let &Unskipped { quick_hash, is_quiet, sender, numbers, isn, now_ns, .. } = packet;
        self.settle_before_handshake(quick_hash);
        self.cache.prefetch_set(quick_hash);
        let is_alone = self.completes_in_stage && self.cache.is_idle(quick_hash);
        let alone = if is_alone { place } else { 0 };
        self.await_staged(StagedHandshake { quick_hash, waits_for: sender.other(), isn: Some(isn), alone });
        if !is_quiet {
            self.follow_ends(quick_hash, sender, numbers, now_ns);
        }
        self.stage.unsettled.handshakes |= place;
        if self.config.one_way {
            self.await_staged(StagedHandshake { quick_hash, waits_for: sender, isn: None, alone: 0 });
        }
    }

    #[inline(always)]
    fn take_fin(&mut self, packet: &Unskipped, place: u64) {
        let &Unskipped { quick_hash, sender, numbers, .. } = packet;
        if self.may_be_awaited(quick_hash) {
            self.cache.prefetch_set(quick_hash);
            self.stage.unsettled.awaited_fins |= place;
        }
        // Where it was not seen how much data it has, nothing can be said of what comes behind it.
        if packet.has_size {
            self.ends.announce(quick_hash);
            self.stage.unsettled.ends |= place;
            if let Some(first_fin) = self.fins.other(quick_hash, sender) {
                self.stage.pair_fins(first_fin.at as usize, place);
            }
            let number = numbers.with_flag().sent;
            self.fins.put(quick_hash, sender, StagedFin { number, at: place.trailing_zeros() });
        } else {
            self.fins.put_unclear(quick_hash);
        }
    }

    #[inline(always)]
    fn take_rst(&mut self, packet: &Unskipped, place: u64) {
        self.ends.announce(packet.quick_hash);
        self.stage.unsettled.ends |= place;
        self.fins.put_unclear(packet.quick_hash);
    }

    /// Whether a packet without a flag goes into the stage, and as what.
    #[inline(always)]
    fn take_unflagged(&mut self, packet: &Unskipped) -> Option<Unflagged> {
        let &Unskipped { quick_hash, is_quiet, sender, numbers, isn, now_ns, .. } = packet;
        let shown = if is_quiet { BehindEnd::Nothing } else { self.shown_by(quick_hash, sender, numbers, now_ns) };
        // Another may have seemed to be the answer with which the next connection begins.
        let mut is_chosen = shown != BehindEnd::Nothing;
        if self.is_watchful {
            is_chosen |= self.take_watched(quick_hash) || self.may_be_lost(quick_hash);
        }
        let kind = if shown == BehindEnd::GoesOn { SignalKind::Alive } else { SignalKind::Ack };
        let begins_another = shown == BehindEnd::Begins;
        let may_be_staged = self.awaited.may_hold(quick_hash);
        let answer = if may_be_staged { self.take_staged(packet) } else { None };
        if answer == Some(Answer::Completes) {
            let kind = SignalKind::Completes;
            return Some(Unflagged { kind, begins_another, is_chosen: true, is_looked_up: false });
        }
        let is_looked_up = answer.is_some()
            || self.may_be_awaited(quick_hash) && !(is_quiet && self.is_behind_answer(quick_hash, sender, isn));
        if is_looked_up {
            if self.fins.may_hold(quick_hash) {
                self.settle();
            }
            self.looked_up.put(quick_hash);
            self.cache.prefetch_set(quick_hash);
            self.seen_syns.iter().for_each(|syns| syns.prefetch_set(quick_hash));
            if is_quiet {
                self.ends.prefetch(quick_hash);
                self.answered.put(quick_hash, sender, isn);
            }
        } else {
            is_chosen |= self.draw_sample(now_ns);
            if !is_chosen {
                return None;
            }
        }
        Some(Unflagged { kind, begins_another, is_chosen, is_looked_up })
    }

    /// Puts the signal of a packet into the stage, and returns its place, as a set.
    #[inline(always)]
    fn stage<H: PacketHeader>(&mut self, header: H, packet: &Unskipped, kind: SignalKind, has_data: bool) -> u64 {
        let &Unskipped { quick_hash, sender, numbers, isn, tick, now_ns, .. } = packet;
        let key = H::Key::canonical_of(header.ends(), sender, self.vlan_in_key(header));
        let signal = Signal::new(&key, ConnectionHash::new(0), SignalParts { tick, kind, sender, isn });
        let signal = signal.at(Moment::of(now_ns)).with_data(has_data).from_origin(self.origin);
        let place = self.stage.push(StagedLookup { quick_hash, now_ns, numbers }, signal);
        if H::Key::FAMILY == Family::V6 {
            self.stage.v6 |= place;
        }
        place
    }

    /// Settles the stage if a packet may be in it that came before this handshake begins, and would be looked up behind
    /// it.
    #[inline]
    fn settle_before_handshake(&mut self, quick_hash: u64) {
        if self.looked_up.may_hold(quick_hash) || self.fins.may_hold(quick_hash) {
            self.settle();
        }
    }

    /// Records the ends of a connection that wait in the stage, once what came before them is looked up. Those of
    /// others say nothing of it.
    #[inline]
    fn record_ends(&mut self, quick_hash: u64) {
        if self.fins.may_hold(quick_hash) {
            self.settle();
        }
    }

    /// Looks the signals in the stage up, and records its ends. One kind goes after the other, because which one comes
    /// next is unpredictable. Those of one connection are in order then, too: what would come before another that it
    /// came behind is not staged before that is settled.
    #[inline(never)]
    fn settle(&mut self) {
        let Unsettled { handshakes, answers, awaited_fins, ends, second_fins } =
            std::mem::take(&mut self.stage.unsettled);
        self.fins.clear();
        self.looked_up.clear();
        ones::<STAGE_COUNT>(handshakes).for_each(|at| self.begin_handshake(at));
        for at in ones::<STAGE_COUNT>(answers) {
            let is_kept = self.look_up_answer(at);
            self.stage.dropped |= u64::from(!is_kept) << at;
        }
        for at in ones::<STAGE_COUNT>(ends | awaited_fins) {
            let is_in = |set: u64| set >> at & 1 != 0;
            if is_in(second_fins) {
                self.record_both_fins(at);
                continue;
            }
            let is_kept = self.end_side(at, is_in(ends), is_in(awaited_fins));
            self.stage.dropped |= u64::from(!is_kept) << at;
        }
    }

    /// Records that a side has sent a FIN.
    #[inline(always)]
    fn record_fin(&mut self, lookup: StagedLookup, sender: Side) -> BesideEnd {
        let StagedLookup { quick_hash, now_ns, numbers } = lookup;
        let at = numbers.with_flag();
        self.ends.put(quick_hash, sender, End { is_rst: false, at }, now_ns)
    }

    /// Records the FIN at this place of the stage together with that of the other side, which came before.
    #[inline(always)]
    fn record_both_fins(&mut self, second_at: usize) {
        let places = [usize::from(self.stage.first_fins[second_at]) % STAGE_COUNT, second_at];
        let [first, second] = places.map(|at| self.stage.lookups()[at]);
        let SignalParts { sender, .. } = self.stage.signals_mut()[places[0]].parts();
        let ends = [first, second].map(|lookup| End { is_rst: false, at: lookup.numbers.with_flag() });
        let shown = self.ends.put_both(first.quick_hash, sender, ends, [first.now_ns, second.now_ns]);
        for (at, BesideEnd { begins, .. }) in places.into_iter().zip(shown) {
            if begins {
                self.stage.signals_mut()[at].set_begins_another();
            }
        }
    }

    /// Records that a side has sent a RST, and returns whether it ends its connection: not if it is that of an earlier
    /// one.
    fn record_rst(&mut self, lookup: StagedLookup, sender: Side) -> bool {
        let StagedLookup { quick_hash, now_ns, numbers: at } = lookup;
        if self.ends.is_of_earlier(quick_hash, sender, at.sent, now_ns) {
            self.ends.retract(quick_hash);
            return false;
        }
        self.ends.put(quick_hash, sender, End { is_rst: true, at }, now_ns);
        true
    }

    /// What a packet without a flag shows, of a connection that is not quiet.
    #[inline(never)]
    fn shown_by(&mut self, quick_hash: u64, sender: Side, numbers: Numbers, now_ns: i64) -> BehindEnd {
        if self.fins.may_hold(quick_hash) {
            if self.is_at_end(quick_hash, sender, numbers.sent, now_ns) {
                return BehindEnd::Nothing;
            }
            self.settle();
        }
        self.ends.shown_by(quick_hash, sender, numbers, now_ns)
    }

    /// Whether a packet without a flag comes where its side has ended, as the last of a connection does: it shows
    /// nothing then, and the ends in the stage need not be recorded to see that.
    #[inline]
    fn is_at_end(&self, quick_hash: u64, sender: Side, sent: u32, now_ns: i64) -> bool {
        self.fins.is_clear(quick_hash) && {
            let staged = self.fins.fin(quick_hash, sender).map(|fin| fin.number);
            self.ends.is_at_end((quick_hash, sender), sent, staged, now_ns)
        }
    }

    /// Records that a SYN-ACK begins another connection between ends of which one has ended.
    #[cold]
    fn follow_ends(&mut self, quick_hash: u64, sender: Side, numbers: Numbers, now_ns: i64) {
        self.record_ends(quick_hash);
        self.ends.follow(quick_hash, sender, numbers.with_flag(), now_ns);
    }

    /// Records that a SYN, whose first byte of data has this number, may begin another connection between ends of which
    /// one has ended.
    #[cold]
    fn begin_behind_ends(&mut self, quick_hash: u64, sender: Side, first: u32, now_ns: i64) {
        self.record_ends(quick_hash);
        self.ends.begin(quick_hash, sender, first, now_ns);
    }

    /// Ends the watch over the connection of a packet, and returns whether it was under watch.
    #[inline]
    fn take_watched(&mut self, quick_hash: u64) -> bool {
        let Some(watch) = &self.watch else { return false };
        let is_watched = watch.may_hold(quick_hash) && watch.take(quick_hash);
        self.counts.watched += u64::from(is_watched);
        is_watched
    }

    /// Waits for the next packet of a side, of a handshake in the stage.
    fn await_staged(&mut self, handshake: StagedHandshake) {
        self.cache.announce(handshake.quick_hash);
        self.awaited.put(handshake);
    }

    /// Waits no longer for the sender of this packet if a handshake in the stage did, and returns what it is to that:
    /// [`Answer::Completes`] if the cache need not be asked, because it was the only one. What is late is no answer:
    /// the handshake waits on. Behind another that does not follow its ISN it waits for one more, as in the cache.
    #[inline(always)]
    fn take_staged(&mut self, packet: &Unskipped) -> Option<Answer> {
        let &Unskipped { quick_hash, sender, numbers, isn, now_ns, .. } = packet;
        let (count, last) = self.awaited.take(quick_hash, sender);
        let last = last?;
        if last.isn.is_some_and(|awaited_isn| awaited_isn != isn) {
            let isn = last.isn.filter(|_| self.is_late(quick_hash, sender, numbers, now_ns));
            (0..count).for_each(|_| self.awaited.put(StagedHandshake { isn, alone: 0, ..last }));
            return Some(Answer::Next);
        }
        (0..count).for_each(|_| self.cache.retract(quick_hash));
        // An end in between is looked up for whether it came before the answer.
        let is_completed = count == 1 && !self.fins.may_hold(quick_hash) && self.complete_staged(last.alone, now_ns);
        Some(if is_completed { Answer::Completes } else { Answer::Next })
    }

    /// Completes the handshake whose SYN-ACK is at this place of the stage, which is a set, by what follows its ISN
    /// now: it then never comes into the cache. False if it is there already, if others may be, or if it has timed out.
    #[inline(always)]
    fn complete_staged(&mut self, syn_ack: u64, now_ns: i64) -> bool {
        let is_staged = self.stage.unsettled.handshakes & syn_ack != 0;
        let began_ns = self.stage.lookups()[syn_ack.trailing_zeros() as usize % STAGE_COUNT].now_ns;
        let is_completed = is_staged && self.cache.is_in_time(began_ns, now_ns);
        if is_completed {
            self.stage.unsettled.handshakes &= !syn_ack;
        }
        is_completed
    }

    /// Whether a packet without a flag comes late, behind an end of its connection.
    #[cold]
    fn is_late(&mut self, quick_hash: u64, sender: Side, numbers: Numbers, now_ns: i64) -> bool {
        self.record_ends(quick_hash);
        self.ends.is_late(quick_hash, sender, numbers, now_ns)
    }

    /// Whether a handshake of this connection may wait for a packet, in the stage or in a cache.
    #[inline(always)]
    fn may_be_awaited(&self, quick_hash: u64) -> bool {
        !self.cache.is_idle(quick_hash) || self.may_have_seen_syn(quick_hash)
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
    pub fn flush(&mut self, mut out: impl FnMut(&Signal)) {
        self.settle();
        let (kept, v6) = self.stage.take();
        self.counts.signals += u64::from(kept.count_ones());
        let signals = self.stage.signals_mut();
        self.v4.set(signals, kept & !v6);
        self.v6.set(signals, v6);
        ones::<STAGE_COUNT>(kept).for_each(|at| out(&signals[at]));
        self.awaited.hashes().for_each(|quick_hash| self.cache.retract(quick_hash));
        self.awaited.clear();
        self.answered.clear();
        if self.warm_up.as_ref().is_some_and(|warm_up| warm_up.has_ended()) {
            self.warm_up = None;
            self.sampler.set_pickup(self.config.pickup);
        }
        self.is_watchful = self.has_to_watch();
    }

    /// Waits for the packets that the SYN or SYN-ACK at this place of the stage is followed by.
    #[inline(always)]
    fn begin_handshake(&mut self, at: usize) {
        let lookup = self.stage.lookups()[at];
        let SignalParts { kind, sender, isn, .. } = self.stage.signals_mut()[at].parts();
        if kind == SignalKind::Syn {
            self.remember_syn(lookup, sender, isn);
        } else if !self.config.answer_opens {
            self.await_answer(lookup, sender.other(), Some(isn));
        }
        if self.config.one_way {
            self.await_answer(lookup, sender, None);
        }
    }

    /// Decides for the packet without a flag at this place of the stage whether it is handed on, as it is in any case
    /// if it was chosen, and as which kind.
    #[inline(always)]
    fn look_up_answer(&mut self, at: usize) -> bool {
        let StagedLookup { quick_hash, now_ns, numbers } = self.stage.lookups()[at];
        let SignalParts { sender, isn, .. } = self.stage.signals_mut()[at].parts();
        // What is late is no answer to the handshake of the next connection.
        let is_late = || self.ends.is_late(quick_hash, sender, numbers, now_ns);
        let answer = self.cache.answer(quick_hash, sender, isn, now_ns, is_late);
        let answer_syn = |syns: &HandshakeCache| syns.answer(quick_hash, sender, isn, now_ns, is_late);
        let seen_syn = self.seen_syns.as_deref().and_then(answer_syn);
        if answer == Some(Answer::Completes) {
            self.stage.signals_mut()[at].set_kind(SignalKind::Completes);
        } else if answer == Some(Answer::First) {
            self.stage.signals_mut()[at].set_awaited();
        }
        answer.is_some() || self.stage.is_chosen(at) || seen_syn.is_some() || self.draw_sample(now_ns)
    }

    /// Records the end of a side that is at this place of the stage, or looks it up, or both, and returns whether it is
    /// handed on.
    #[inline(always)]
    fn end_side(&mut self, at: usize, is_recorded: bool, is_awaited: bool) -> bool {
        let lookup = self.stage.lookups()[at];
        let SignalParts { kind, sender, .. } = self.stage.signals_mut()[at].parts();
        if kind == SignalKind::Rst {
            return self.end_by_rst(lookup, sender);
        }
        let BesideEnd { is_second, begins } =
            if is_recorded { self.record_fin(lookup, sender) } else { BesideEnd::default() };
        if begins {
            self.stage.signals_mut()[at].set_begins_another();
        }
        if is_awaited {
            self.look_up_fin(lookup, at, is_second);
        }
        true
    }

    #[inline(never)]
    fn end_by_rst(&mut self, lookup: StagedLookup, sender: Side) -> bool {
        let StagedLookup { quick_hash, .. } = lookup;
        let is_end = self.record_rst(lookup, sender);
        if is_end {
            // No later packet completes the handshake.
            self.cache.give_up(quick_hash);
            self.seen_syns.iter().for_each(|syns| syns.give_up(quick_hash));
        }
        is_end
    }

    /// Notes of a FIN, which is at this place of the stage, what a handshake that waits makes of it, if it is not the
    /// second FIN of a connection before.
    #[inline(never)]
    fn look_up_fin(&mut self, lookup: StagedLookup, at: usize, is_second: bool) {
        let StagedLookup { quick_hash, now_ns, numbers } = lookup;
        let SignalParts { sender, isn, .. } = self.stage.signals_mut()[at].parts();
        // Of a server that ends before its client has answered the ISN is the one that it acknowledges, or shortly
        // before it, where data of the client was not captured.
        if !is_second && self.cache.awaits_answer(quick_hash, sender.other(), now_ns) {
            self.stage.signals_mut()[at].set_before_answer(numbers.acked.wrapping_sub(1));
        }
        if self.cache.awaits_answer(quick_hash, sender, now_ns) {
            self.stage.signals_mut()[at].set_awaited();
        }
        // It may be forged, or of the connection before: what follows the number may come still.
        self.cache.answer(quick_hash, sender, isn, now_ns, || false);
        self.seen_syns.iter().for_each(|syns| syns.remove(quick_hash, sender));
    }

    /// Moves the time of the caches on, once what came before is looked up.
    #[inline]
    fn advance(&mut self, now_ns: i64) {
        let step = HandshakeCache::step(now_ns);
        if step != self.step {
            self.settle();
            self.step = step;
            self.cache.advance(now_ns);
            self.seen_syns.iter().for_each(|syns| syns.advance(now_ns));
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

/// The client's initial sequence number in a packet of this kind, if the packet is one of its handshake. A RST is none.
#[inline(always)]
fn isn_of(header: impl PacketHeader, kind: SignalKind) -> u32 {
    // A select instead of a branch: which kind comes next is unpredictable.
    let number = select_unpredictable(kind == SignalKind::SynAck, header.ack(), header.seq());
    let isn = number.wrapping_sub(u32::from(kind != SignalKind::Syn));
    select_unpredictable(kind == SignalKind::Rst, 0, isn)
}

/// How far the sender of a packet has come with it: the number behind its data, and what it acknowledges.
#[inline(always)]
fn numbers_of(header: impl PacketHeader) -> Numbers {
    Numbers { sent: header.seq().wrapping_add(header.payload_size().unwrap_or(0)), acked: header.ack() }
}

#[cfg(test)]
mod tests;
