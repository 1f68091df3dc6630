//! The capture side's last step: segments in, signals out. It decides which few packets of a capture the shards get to
//! see.
//!
//! Most packets carry no flag and belong to no handshake: one byte of the handshake cache says so, and they go no further. The
//! others wait in a small stage, so that the cache lines of all are asked for before the first is looked up, and signals are
//! hashed in groups.

use crate::config::SAMPLE_INTERVAL_PACKETS;
use crate::flow::{FlowKey, KeyV4, KeyV6, Side, VlanTags};
use crate::hash::{HASH_GROUP_COUNT, KeyedHash, Purpose, QuickHash, Secret};
use crate::parse::{Addresses, TcpSegment};
use crate::signal::{AnyKey, ConnectionHash, HandshakeCache, Kind, Moment, Signal, SignalParts};
use std::sync::Arc;

/// Segments that are looked up together.
const STAGE_COUNT: usize = 32;

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
}

/// What a [`Signaller`] counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalCounts {
    /// Signals handed on.
    pub signals: u64,
    /// Those of them that are samples of other packets.
    pub sampled: u64,
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
            handshakes_lost: self.handshakes_lost + other.handshakes_lost,
        }
    }
}

#[derive(Clone, Copy)]
struct Staged {
    key: AnyKey,
    kind: Kind,
    sender: Side,
    number: u32,
    tick: u64,
    now_ns: i64,
    quick: u64,
    is_sample: bool,
}

/// Turns segments into signals; one for each capture thread.
pub struct Signaller {
    config: SignallerConfig,
    cache: Arc<HandshakeCache>,
    quick: QuickHash,
    hash_v4: KeyedHash<KeyV4>,
    hash_v6: KeyedHash<KeyV6>,
    stage: Vec<Staged>,
    /// Of the connections in the stage whose handshake may come to wait, one bit each: the cache does not know of them yet.
    awaited: u64,
    sample_until_ns: Option<i64>,
    unsampled: u32,
    counts: SignalCounts,
}

impl Signaller {
    /// A signaller that shares this cache with the other capture threads.
    #[must_use]
    pub fn new(config: SignallerConfig, cache: Arc<HandshakeCache>) -> Self {
        Signaller {
            cache,
            quick: QuickHash::new(&config.secret),
            hash_v4: KeyedHash::new(&config.secret, Purpose::Connection),
            hash_v6: KeyedHash::new(&config.secret, Purpose::Connection),
            stage: Vec::with_capacity(STAGE_COUNT),
            awaited: 0,
            sample_until_ns: None,
            unsampled: 0,
            counts: SignalCounts::default(),
            config,
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> SignalCounts {
        self.counts
    }

    /// Takes in one segment, seen at `tick` and when the clock had run for `now_ns` (not at a wall time: a step back would age
    /// the handshakes that wait). Signals come out when the stage is full, in the order of their segments.
    ///
    /// Complexity: a look at one byte for most packets; one hash and one cache set for the others.
    #[inline]
    pub fn push(&mut self, segment: &TcpSegment, tick: u64, now_ns: i64, out: impl FnMut(Signal)) {
        let vlan = if self.config.vlan_key { segment.vlan } else { VlanTags::NONE };
        let kind = Kind::of_flags(segment.flags);
        let (key, sender, quick) = match segment.addresses {
            Addresses::V4 { src, dst } => {
                let (key, sender) = KeyV4::canonical_of((src, segment.src_port), (dst, segment.dst_port), vlan);
                (AnyKey::V4(key), sender, self.quick.of(&key))
            }
            Addresses::V6 { src, dst } => {
                let (key, sender) = KeyV6::canonical_of((src, segment.src_port), (dst, segment.dst_port), vlan);
                (AnyKey::V6(key), sender, self.quick.of(&key))
            }
        };
        if kind == Kind::Ack && self.cache.is_idle(quick) && self.awaited & awaited_bit(quick) == 0 {
            if self.sample_until_ns.is_none() || !self.is_sample(now_ns) {
                return;
            }
            self.stage(Staged { key, kind, sender, number: 0, tick, now_ns, quick, is_sample: true }, out);
            return;
        }
        let number = match kind {
            Kind::Syn => segment.seq,
            Kind::SynAck => segment.ack.wrapping_sub(1),
            _ => 0,
        };
        self.stage(Staged { key, kind, sender, number, tick, now_ns, quick, is_sample: false }, out);
    }

    fn stage(&mut self, staged: Staged, out: impl FnMut(Signal)) {
        if matches!(staged.kind, Kind::Ack | Kind::SynAck) || self.config.one_way {
            self.cache.prefetch_set(staged.quick);
        }
        if staged.kind == Kind::SynAck || self.config.one_way {
            self.awaited |= awaited_bit(staged.quick);
        }
        self.stage.push(staged);
        if self.stage.len() == STAGE_COUNT {
            self.flush(out);
        }
    }

    /// Lets out what is waiting in the stage.
    pub fn flush(&mut self, mut out: impl FnMut(Signal)) {
        let mut stage = std::mem::take(&mut self.stage);
        stage.retain(|staged| self.is_signal(staged));
        self.counts.signals += stage.len() as u64;
        for staged in stage.chunks(HASH_GROUP_COUNT) {
            let mut hashes = [ConnectionHash::new(0); HASH_GROUP_COUNT];
            self.hash(staged, &mut hashes);
            for (staged, hash) in staged.iter().zip(hashes) {
                let Staged { kind, sender, number, tick, now_ns, .. } = *staged;
                let parts = SignalParts { tick, kind, sender, number };
                let signal = match &staged.key {
                    AnyKey::V4(key) => Signal::new(key, hash, parts),
                    AnyKey::V6(key) => Signal::new(key, hash, parts),
                };
                out(signal.at(Moment::of(now_ns)));
            }
        }
        stage.clear();
        self.stage = stage;
        self.awaited = 0;
    }

    /// Hashes a group of connections, each family with its own function.
    fn hash(&self, staged: &[Staged], hashes: &mut [ConnectionHash; HASH_GROUP_COUNT]) {
        let keys = staged.iter().enumerate();
        let v4 = keys
            .clone()
            .filter_map(|(at, staged)| if let AnyKey::V4(key) = staged.key { Some((at, key)) } else { None });
        hash_family(&self.hash_v4, v4, hashes);
        let v6 = keys.filter_map(|(at, staged)| if let AnyKey::V6(key) = staged.key { Some((at, key)) } else { None });
        hash_family(&self.hash_v6, v6, hashes);
    }

    /// Whether this packet is to be handed on.
    #[inline]
    fn is_signal(&mut self, staged: &Staged) -> bool {
        let hash = staged.quick;
        match staged.kind {
            Kind::Ack => {
                staged.is_sample || self.cache.take(hash, staged.sender, staged.now_ns) || self.is_sample(staged.now_ns)
            }
            Kind::SynAck => {
                self.await_answer(hash, staged.sender.other(), staged.now_ns);
                if self.config.one_way {
                    self.await_answer(hash, staged.sender, staged.now_ns);
                }
                true
            }
            Kind::Syn => {
                if self.config.one_way {
                    self.await_answer(hash, staged.sender, staged.now_ns);
                }
                true
            }
            Kind::Fin | Kind::Rst => true,
        }
    }

    fn await_answer(&mut self, hash: u64, from: Side, now_ns: i64) {
        if self.cache.put(hash, from, now_ns) {
            self.counts.handshakes_lost += 1;
            self.sample_until_ns = Some(now_ns.saturating_add(self.config.syn_timeout_ns));
        }
    }

    /// Whether a packet that no handshake waits for is handed on all the same: one in a few, for as long as a handshake
    /// that was lost may still be completed by any later packet of its client.
    #[inline]
    fn is_sample(&mut self, now_ns: i64) -> bool {
        let Some(until_ns) = self.sample_until_ns else { return false };
        if now_ns > until_ns {
            self.sample_until_ns = None;
            return false;
        }
        // The clock may have stepped back for years: that must not make the sampling last as long.
        self.sample_until_ns = Some(until_ns.min(now_ns.saturating_add(self.config.syn_timeout_ns)));
        self.unsampled += 1;
        let due = self.unsampled == SAMPLE_INTERVAL_PACKETS;
        if due {
            self.unsampled = 0;
            self.counts.sampled += 1;
        }
        due
    }
}

/// The bit of a connection among 64.
#[inline]
fn awaited_bit(quick: u64) -> u64 {
    1 << (quick & 63)
}

fn hash_family<K: FlowKey>(
    hash: &KeyedHash<K>,
    keys: impl Iterator<Item = (usize, K)>,
    hashes: &mut [ConnectionHash; HASH_GROUP_COUNT],
) {
    let mut group = [K::from_words(&[]); HASH_GROUP_COUNT];
    let mut indices = [0; HASH_GROUP_COUNT];
    let mut count = 0;
    for (at, key) in keys {
        (group[count], indices[count]) = (key, at);
        count += 1;
    }
    if count > 0 {
        let mut group_hashes = [0; HASH_GROUP_COUNT];
        hash.of_group(&group[..count], &mut group_hashes);
        for (&at, &hash) in indices[..count].iter().zip(&group_hashes) {
            hashes[at] = ConnectionHash::new(hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const ACK: u8 = TcpSegment::ACK;
    const FIN: u8 = TcpSegment::FIN;
    const SYN: u8 = TcpSegment::SYN;

    fn segment(from: (u32, u16), to: (u32, u16), flags: u8) -> TcpSegment {
        TcpSegment {
            addresses: Addresses::V4 { src: from.0, dst: to.0 },
            src_port: from.1,
            dst_port: to.1,
            vlan: VlanTags::NONE.with(7),
            flags,
            seq: 100,
            ack: 200,
        }
    }

    fn signaller(one_way: bool, handshake_count: usize) -> Signaller {
        let config =
            SignallerConfig { secret: Secret::REPLAY, vlan_key: false, one_way, syn_timeout_ns: 60_000_000_000 };
        Signaller::new(config, Arc::new(HandshakeCache::new(handshake_count, 60_000_000_000)))
    }

    fn kinds(signaller: &mut Signaller, segments: &[TcpSegment]) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for segment in segments {
            signaller.push(segment, 1, 0, |signal| kinds.push(signal.parts().kind));
        }
        signaller.flush(|signal| kinds.push(signal.parts().kind));
        kinds
    }

    const CLIENT: (u32, u16) = (9, 40000);
    const SERVER: (u32, u16) = (5, 80);

    #[test]
    fn of_the_packets_without_a_flag_only_the_answer_goes_on() {
        let (there, back) = (|flags| segment(CLIENT, SERVER, flags), |flags| segment(SERVER, CLIENT, flags));
        let packets = [
            there(ACK),
            there(SYN),
            there(ACK),
            back(SYN | ACK),
            back(ACK),
            there(ACK),
            there(ACK),
            back(ACK),
            there(FIN | ACK),
        ];
        let kinds = kinds(&mut signaller(false, 1024), &packets);
        assert_eq!(kinds, [Kind::Syn, Kind::SynAck, Kind::Ack, Kind::Fin]);
    }

    #[test]
    fn one_way_waits_for_the_client_after_its_syn() {
        let packets = [segment(CLIENT, SERVER, SYN), segment(CLIENT, SERVER, ACK), segment(CLIENT, SERVER, ACK)];
        assert_eq!(kinds(&mut signaller(true, 1024), &packets), [Kind::Syn, Kind::Ack]);
        assert_eq!(kinds(&mut signaller(false, 1024), &packets), [Kind::Syn]);
    }

    #[test]
    fn a_lost_handshake_makes_samples_of_the_others() {
        let mut signaller = signaller(false, 8);
        let flood: Vec<_> = (0..100).map(|port| segment(SERVER, (77, port), SYN | ACK)).collect();
        assert_eq!(kinds(&mut signaller, &flood).len(), 100);
        assert!(signaller.counts().handshakes_lost > 0);
        let others: Vec<_> = (0..160).map(|port| segment((1, port), (2, 2), ACK)).collect();
        assert_eq!(kinds(&mut signaller, &others).len(), 160 / SAMPLE_INTERVAL_PACKETS as usize);
    }

    #[test]
    fn a_clock_that_steps_back_does_not_make_the_sampling_last() {
        const TIMEOUT_NS: i64 = 60_000_000_000;
        let mut signaller = signaller(false, 8);
        for port in 0..100 {
            signaller.push(&segment(SERVER, (77, port), SYN | ACK), 1, 1_000 * TIMEOUT_NS, |_| ());
        }
        signaller.flush(|_| ());
        let mut samples = |now_ns| {
            let mut count = 0;
            for port in 0..160 {
                signaller.push(&segment((1, port), (2, 2), ACK), 1, now_ns, |_| count += 1);
            }
            signaller.flush(|_| count += 1);
            count
        };
        assert_eq!(samples(0), 160 / SAMPLE_INTERVAL_PACKETS, "a timeout from here on");
        assert_eq!(samples(TIMEOUT_NS + 1), 0);
    }

    #[test]
    fn both_directions_have_one_key_without_tags_unless_asked() {
        let mut signals = Vec::new();
        let mut signaller = signaller(false, 64);
        for segment in [segment(CLIENT, SERVER, SYN), segment(SERVER, CLIENT, SYN | ACK)] {
            signaller.push(&segment, 1, 0, |signal| signals.push(signal));
        }
        signaller.flush(|signal| signals.push(signal));
        assert_eq!(signals[0].key(), signals[1].key());
        assert_eq!(signals[0].hash(), signals[1].hash());
        assert_eq!(signals[0].parts().sender, signals[1].parts().sender.other());
        assert_eq!((signals[0].parts().number, signals[1].parts().number), (100, 199));
        let AnyKey::V4(key) = signals[0].key() else { panic!("an IPv4 key") };
        assert_eq!(key.vlan(), VlanTags::NONE);
    }
}
