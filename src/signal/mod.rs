//! TCP header -> signal: the few packets that can change what is known of a connection.
//!
//! A signal takes 64 bytes, and is hashed and ready for the connection filter. Every SYN, SYN-ACK, FIN and RST makes
//! one, and so do the client's packet that completes a handshake, the next packet of each connection under watch, and a
//! sample of all others where pickup is on or a handshake may have been missed. Signals carry the time of a clock that
//! never steps back.

mod clock;
mod ends;
mod handshake;
mod ones;
mod partition_set;
mod recent;
mod sampler;
mod signaller;
mod two_names;
mod warm_up;
mod watch;

pub use clock::{
    CLOCK_LEAP_MAX_NS, Clock, FOLLOWS_MAX_NS, JUDGED_COUNT_MAX, TICK_BITS, TICK_NS, TIME_BASES_MAX, TimeBase,
    TimeBases, TimeDoubt, Verdict,
};
pub use ends::{BehindEnd, BesideEnd, End, Numbers, RecentEnds};
pub use handshake::{
    Answer, CAPTURE_AHEAD_MAX_NS, HANDSHAKES_DEFAULT, HandshakeCache, ISN_BITS as HANDSHAKE_ISN_BITS,
    SYN_TIMEOUT_MAX_TICKS,
};
pub use partition_set::PartitionSet;
pub use signaller::{SignalCounts, Signaller, SignallerConfig};
pub use two_names::{SynSampler, TwoNames};
pub use warm_up::WarmUp;
pub use watch::Watch;

pub use crate::flow::AnyKey;
use crate::flow::{Family, FlowKey, KeyV4, KeyV6, Side, WordKey};
use crate::parse::TcpSegment;
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret, place_of};
pub use sampler::SAMPLE_INTERVAL_PACKETS;
use std::hint::select_unpredictable;

/// Bits of a connection's hash that choose its partition.
pub const PARTITION_BITS: u32 = 3;

/// Partitions into which the state is split by the key's hash, for any number of shards: lists and counts are then
/// the same with one shard and with eight.
pub const PARTITION_COUNT: usize = 1 << PARTITION_BITS;

/// Bits of a connection's hash that distinguish it from the others in its buckets of the filter: a connection that is
/// not there is taken for another about once in 10^8 look-ups.
pub const FINGERPRINT_BITS: u32 = 30;

/// What a packet says about its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SignalKind {
    /// SYN without ACK: the sender wants to open.
    Syn,
    /// SYN with ACK: the sender answers.
    SynAck,
    /// None of SYN, FIN and RST: the sender is there.
    Ack,
    /// FIN: the sender has no more to say.
    Fin,
    /// RST: the connection has ended.
    Rst,
    /// As [`SignalKind::Ack`], and it is the client's answer to a SYN-ACK that was seen.
    Completes,
    /// As [`SignalKind::Ack`], and its numbers show that the sender has not ended, although a FIN or RST seemed to say
    /// so.
    Alive,
    /// No packet: the system knows that the connection is open, and that the sender is its client. In place of the ISN
    /// stand the [`SidesEnded`].
    Known,
}

/// The sides that have ended of a connection that the system knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SidesEnded {
    /// Whether the client has sent a FIN.
    pub client: bool,
    /// Whether the server has.
    pub server: bool,
}

impl SidesEnded {
    /// As a signal carries it.
    #[must_use]
    pub fn to_bits(self) -> u32 {
        u32::from(self.client) | u32::from(self.server) << 1
    }

    /// From what a signal carries.
    #[must_use]
    pub fn of_bits(bits: u32) -> Self {
        SidesEnded { client: bits & 1 != 0, server: bits & 2 != 0 }
    }
}

/// A connection that the system knows to be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownOpen {
    /// Its key, with the client's end first and without VLAN tags.
    pub key: AnyKey,
    /// The sides that have ended.
    pub ended: SidesEnded,
}

/// The flags that decide a packet's kind (SYN, ACK, FIN, RST), and PSH, which lies among them.
const DECIDING_FLAGS: u8 = TcpSegment::SYN | TcpSegment::ACK | TcpSegment::FIN | TcpSegment::RST | TcpSegment::PSH;

impl SignalKind {
    const ALL: [Self; 8] = [
        SignalKind::Syn,
        SignalKind::SynAck,
        SignalKind::Ack,
        SignalKind::Fin,
        SignalKind::Rst,
        SignalKind::Completes,
        SignalKind::Alive,
        SignalKind::Known,
    ];

    /// The kind of a packet with these TCP flags. Of contradictory flags the strongest counts: RST before SYN before
    /// FIN.
    #[must_use]
    #[inline]
    pub fn of_flags(flags: u8) -> Self {
        // A table instead of branches: which packet comes next is unpredictable, and branches would often be
        // mispredicted.
        const KINDS: [SignalKind; DECIDING_FLAGS as usize + 1] = {
            let mut kinds = [SignalKind::Ack; DECIDING_FLAGS as usize + 1];
            let mut flags = 0;
            while flags <= DECIDING_FLAGS {
                kinds[flags as usize] = SignalKind::by_strength(flags);
                flags += 1;
            }
            kinds
        };
        KINDS[(flags & DECIDING_FLAGS) as usize]
    }

    const fn by_strength(flags: u8) -> Self {
        if flags & TcpSegment::RST != 0 {
            SignalKind::Rst
        } else if flags & TcpSegment::SYN != 0 {
            if flags & TcpSegment::ACK != 0 { SignalKind::SynAck } else { SignalKind::Syn }
        } else if flags & TcpSegment::FIN != 0 {
            SignalKind::Fin
        } else {
            SignalKind::Ack
        }
    }
}

/// The hash of a connection's canonical key, cut into independent parts for its users.
///
/// Bits 0-2 choose the partition, 3-32 are the fingerprint, 33-63 choose the first of the connection filter's two
/// buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionHash(u64);

const _: () = assert!(PARTITION_BITS + FINGERPRINT_BITS + BUCKET_BITS == u64::BITS);

/// Bits of the hash that choose a bucket.
const BUCKET_BITS: u32 = 31;

impl ConnectionHash {
    /// Takes the low 64 bits of a hash.
    #[must_use]
    #[inline]
    pub fn new(hash: u128) -> Self {
        ConnectionHash(hash as u64)
    }

    /// The index of the connection's partition, one of 2^[`PARTITION_BITS`].
    #[must_use]
    #[inline]
    pub fn partition(self) -> usize {
        (self.0 & ((1 << PARTITION_BITS) - 1)) as usize
    }

    /// All bits.
    #[must_use]
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The part that distinguishes connections in one bucket, [`FINGERPRINT_BITS`] wide.
    #[must_use]
    #[inline]
    pub fn fingerprint(self) -> u32 {
        (self.0 >> PARTITION_BITS) as u32 & ((1 << FINGERPRINT_BITS) - 1)
    }

    /// The index of the connection's first bucket out of `bucket_count`.
    #[must_use]
    #[inline]
    pub fn bucket(self, bucket_count: usize) -> usize {
        let part = (self.0 >> (u64::BITS - BUCKET_BITS)) << (u32::BITS - BUCKET_BITS);
        place_of(part as u32, bucket_count)
    }
}

/// Which partition the connections of a site belong to.
#[derive(Clone)]
pub struct Partitions {
    hash_v4: KeyedHash<KeyV4>,
    hash_v6: KeyedHash<KeyV6>,
}

impl Partitions {
    /// The partitions of connections that are hashed under this secret.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        let purpose = Purpose::Connection;
        Partitions { hash_v4: KeyedHash::new(secret, purpose), hash_v6: KeyedHash::new(secret, purpose) }
    }

    /// The index of the partition of a connection.
    ///
    /// Complexity: a hash.
    #[must_use]
    pub fn of(&self, key: &AnyKey) -> usize {
        let hash = match key {
            AnyKey::V4(key) => self.hash_v4.of(&key.canonical().0),
            AnyKey::V6(key) => self.hash_v6.of(&key.canonical().0),
        };
        ConnectionHash::new(hash).partition()
    }
}

/// One packet that may change what is known of its connection: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Signal {
    key: [u64; 5],
    hash: u64,
    /// Tick in the upper 48 bits, then a byte for the kind, whether the packet comes before an answer, and whether it
    /// begins another connection, and one for family, side, origin, whether it has data, and whether it was awaited.
    time_and_kind: u64,
    isn: u32,
    moment: Moment,
}

const _: () = assert!(size_of::<Signal>() == 64);

/// The origins that signals distinguish. Those of larger numbers share them, in turn.
pub const ORIGIN_COUNT: usize = 1 << ORIGIN_BITS;

const ORIGIN_BITS: u32 = 4;

/// Where the origin stands in the lowest byte of a signal's time and kind, behind family and side.
const ORIGIN_SHIFT: u32 = 2;

/// The bits behind the origin.
const DATA_SHIFT: u32 = ORIGIN_SHIFT + ORIGIN_BITS;
const AWAITED_SHIFT: u32 = DATA_SHIFT + 1;

/// Where the kind stands, and the bits behind it.
const KIND_SHIFT: u32 = u8::BITS;
const KIND_MASK: u64 = SignalKind::ALL.len() as u64 - 1;
const BEFORE_ANSWER_SHIFT: u32 = KIND_SHIFT + SignalKind::ALL.len().ilog2();
const BEGINS_SHIFT: u32 = BEFORE_ANSWER_SHIFT + 1;
const TICK_SHIFT: u32 = 2 * u8::BITS;

const _: () = assert!(AWAITED_SHIFT < KIND_SHIFT && BEGINS_SHIFT < TICK_SHIFT);
const _: () = assert!(SignalKind::ALL.len().is_power_of_two());

/// Where a packet was captured: an interface of a capture, or a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin(u8);

impl Origin {
    /// The origin of this number.
    #[must_use]
    pub fn new(number: usize) -> Self {
        Origin((number % ORIGIN_COUNT) as u8)
    }

    /// The index of the origin, less than [`ORIGIN_COUNT`].
    #[must_use]
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// When a packet came, in steps of about a microsecond that wrap after 73 minutes. It orders the signals of several
/// capture threads, which are never more than seconds apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment(u32);

impl Moment {
    /// The moment at which the clock had run for `elapsed_ns`.
    #[must_use]
    #[inline]
    pub fn of(elapsed_ns: i64) -> Self {
        Moment((elapsed_ns >> 10) as u32)
    }

    /// The time from `earlier` to this moment in ns, negative if this one is before.
    #[must_use]
    #[inline]
    pub fn since_ns(self, earlier: Self) -> i64 {
        i64::from(self.0.wrapping_sub(earlier.0) as i32) << 10
    }
}

/// The parts of a signal that do not depend on the address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalParts {
    /// When the packet came, in ticks of the [`Clock`].
    pub tick: u64,
    /// What the packet says.
    pub kind: SignalKind,
    /// Which end of the canonical key sent the packet.
    pub sender: Side,
    /// The client's initial sequence number, for kinds that carry it: a SYN, a SYN-ACK, and the packet that completes a
    /// handshake.
    pub isn: u32,
}

impl Signal {
    /// The bit of a packet with data.
    const DATA: u64 = 1 << DATA_SHIFT;
    /// The bit of a packet that a handshake waited for.
    const AWAITED: u64 = 1 << AWAITED_SHIFT;
    /// The bit of a packet whose server's handshake waits for the client.
    const BEFORE_ANSWER: u64 = 1 << BEFORE_ANSWER_SHIFT;
    /// The bit of a packet that shows that the connection before has ended.
    const BEGINS: u64 = 1 << BEGINS_SHIFT;

    /// A placeholder.
    pub const EMPTY: Self = Signal { key: [0; 5], hash: 0, time_and_kind: 0, isn: 0, moment: Moment(0) };

    /// The signal of a packet of the connection with this canonical key.
    #[must_use]
    #[inline]
    pub fn new<K: FlowKey>(canonical: &K, hash: ConnectionHash, parts: SignalParts) -> Self {
        let mut key = [0; 5];
        key[..K::WORD_COUNT].copy_from_slice(canonical.words());
        let bits = u64::from(K::FAMILY == Family::V6) | u64::from(parts.sender == Side::Second) << 1;
        Signal {
            key,
            hash: hash.0,
            time_and_kind: parts.tick << TICK_SHIFT | (parts.kind as u64) << KIND_SHIFT | bits,
            isn: parts.isn,
            moment: Moment(0),
        }
    }

    /// This signal, of a packet that came at this moment.
    #[must_use]
    #[inline]
    pub fn at(self, moment: Moment) -> Self {
        Signal { moment, ..self }
    }

    /// This signal, of a packet that was captured there.
    #[must_use]
    #[inline]
    pub fn from_origin(self, origin: Origin) -> Self {
        Signal { time_and_kind: self.time_and_kind | u64::from(origin.0) << ORIGIN_SHIFT, ..self }
    }

    /// Where the packet was captured.
    #[must_use]
    #[inline]
    pub fn origin(&self) -> Origin {
        Origin::new((self.time_and_kind >> ORIGIN_SHIFT) as usize)
    }

    /// This signal, of a packet with data if `has_data`.
    #[must_use]
    #[inline]
    pub fn with_data(self, has_data: bool) -> Self {
        Signal { time_and_kind: self.time_and_kind & !Self::DATA | if has_data { Self::DATA } else { 0 }, ..self }
    }

    /// Whether the packet is a SYN with data, which its SYN-ACK may acknowledge. Of other packets this is not known.
    #[must_use]
    #[inline]
    pub fn has_data(&self) -> bool {
        self.time_and_kind & Self::DATA != 0
    }

    /// Whether the packet is the first of its client behind a SYN-ACK, although it does not follow its number, or a
    /// FIN. Of other kinds than [`SignalKind::Ack`] and [`SignalKind::Fin`] this is not known.
    #[must_use]
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.time_and_kind & Self::AWAITED != 0
    }

    /// Says that a handshake waited for the packet.
    #[inline]
    pub fn set_awaited(&mut self) {
        self.time_and_kind |= Self::AWAITED;
    }

    /// Whether the packet is a FIN of a server whose client has not answered its SYN-ACK yet.
    #[must_use]
    #[inline]
    pub fn is_before_answer(&self) -> bool {
        self.time_and_kind & Self::BEFORE_ANSWER != 0
    }

    /// Says that the client of the packet's sender has not answered its SYN-ACK, which acknowledges this ISN.
    pub fn set_before_answer(&mut self, isn: u32) {
        self.time_and_kind |= Self::BEFORE_ANSWER;
        self.isn = isn;
    }

    /// Whether the packet is the first, behind the end of a connection, that another one between the same ends has
    /// begun with for certain: it follows the numbers of its SYN. Of a SYN, a SYN-ACK and a RST this is not known.
    #[must_use]
    #[inline]
    pub fn begins_another(&self) -> bool {
        self.time_and_kind & Self::BEGINS != 0
    }

    /// Says that another connection has begun for certain.
    pub fn set_begins_another(&mut self) {
        self.time_and_kind |= Self::BEGINS;
    }

    /// Sets the hash of the connection.
    #[inline]
    fn set_hash(&mut self, hash: ConnectionHash) {
        self.hash = hash.0;
    }

    /// Changes the kind.
    #[inline]
    fn set_kind(&mut self, kind: SignalKind) {
        self.time_and_kind = self.time_and_kind & !(KIND_MASK << KIND_SHIFT) | (kind as u64) << KIND_SHIFT;
    }

    /// The moment at which the packet came.
    #[must_use]
    #[inline]
    pub fn moment(&self) -> Moment {
        self.moment
    }

    /// The hash of the connection.
    #[must_use]
    #[inline]
    pub fn hash(&self) -> ConnectionHash {
        ConnectionHash(self.hash)
    }

    /// What the packet says.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> SignalKind {
        SignalKind::ALL[(self.time_and_kind >> KIND_SHIFT & KIND_MASK) as usize]
    }

    /// Whether the packet may end its connection, or take an end back.
    #[must_use]
    #[inline]
    pub fn is_of_an_end(&self) -> bool {
        const KINDS: u64 = 1 << SignalKind::Fin as u8 | 1 << SignalKind::Rst as u8 | 1 << SignalKind::Alive as u8;
        KINDS >> (self.time_and_kind >> KIND_SHIFT & KIND_MASK) & 1 != 0
    }

    /// Everything but the key, the hash and the moment.
    #[must_use]
    #[inline]
    pub fn parts(&self) -> SignalParts {
        let kind = self.kind();
        // Either side sends as often.
        let sender = select_unpredictable(self.time_and_kind & 2 == 0, Side::First, Side::Second);
        SignalParts { tick: self.time_and_kind >> TICK_SHIFT, kind, sender, isn: self.isn }
    }

    #[inline]
    fn family(&self) -> Family {
        if self.time_and_kind & 1 == 0 { Family::V4 } else { Family::V6 }
    }

    /// The canonical key, as one of family `K`, which it has to be.
    #[inline]
    fn key_words<K: FlowKey>(&self) -> K {
        K::from_words(&self.key)
    }

    /// The canonical key of the connection.
    #[must_use]
    #[inline]
    pub fn key(&self) -> AnyKey {
        match self.family() {
            Family::V4 => AnyKey::V4(KeyV4::from_words(&self.key)),
            Family::V6 => AnyKey::V6(KeyV6::from_words(&self.key)),
        }
    }
}

/// The number of a connection as good as a hash of it, for tests.
#[cfg(test)]
pub(crate) fn mixed(number: u64) -> u64 {
    let word = (number + 1).wrapping_mul(flowpeel_iblt::hash::GOLDEN_64);
    (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The hash of the connection with this number, for tests.
#[cfg(test)]
pub(crate) fn numbered(number: u64) -> ConnectionHash {
    ConnectionHash::new(u128::from(mixed(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::VlanTags;

    #[test]
    fn strongest_flag_wins() {
        for (flags, kind) in [
            (0x02, SignalKind::Syn),
            (0x12, SignalKind::SynAck),
            (0x10, SignalKind::Ack),
            (0x00, SignalKind::Ack),
            (0x18, SignalKind::Ack),
            (0x11, SignalKind::Fin),
            (0x04, SignalKind::Rst),
            (0x07, SignalKind::Rst),
            (0x03, SignalKind::Syn),
            (0x13, SignalKind::SynAck),
        ] {
            assert_eq!(SignalKind::of_flags(flags), kind, "{flags:#x}");
        }
    }

    #[test]
    fn a_signal_keeps_its_parts() {
        let hash = ConnectionHash::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        let key = KeyV6::new((1 << 127 | 5, 443), (7, 65535), VlanTags::NONE.with(12));
        for kind in SignalKind::ALL {
            for sender in [Side::First, Side::Second] {
                let parts = SignalParts { tick: (1 << 48) - 1, kind, sender, isn: u32::MAX };
                let origin = Origin::new(ORIGIN_COUNT - 1);
                let signal = Signal::new(&key, hash, parts).from_origin(origin);
                assert_eq!((signal.parts(), signal.origin()), (parts, origin));
                assert_eq!(signal.key(), AnyKey::V6(key));
                assert_eq!(signal.hash(), hash);
            }
        }
    }

    #[test]
    fn moments_are_ordered_over_their_wrap() {
        let wrap_ns = 1_i64 << 42;
        let (before, after) = (Moment::of(wrap_ns - 2_048), Moment::of(wrap_ns + 2_048));
        assert_eq!((after.since_ns(before), before.since_ns(after)), (4_096, -4_096));
    }

    #[test]
    fn buckets_stay_in_range() {
        for hash in [0, u128::MAX] {
            assert!(ConnectionHash::new(hash).bucket(7) < 7);
        }
    }
}
