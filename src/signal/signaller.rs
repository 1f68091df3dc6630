//! The capture side's last step: segments in, signals out. It decides which few packets of a capture the shards get to
//! see.
//!
//! Most packets carry no flag and belong to no handshake: one bit of the handshake cache says so, and they go no further. The
//! others wait in a small stage, so that the cache lines of all are asked for before the first is looked up, and signals are
//! hashed in groups.

use crate::flow::{FlowKey, KeyV4, KeyV6, Side, VlanTags};
use crate::hash::{HASH_GROUP_COUNT, KeyedHash, Purpose, QuickHash, Secret};
use crate::parse::{Addresses, TcpSegment};
use crate::signal::sampler::Sampler;
use crate::signal::{AnyKey, ConnectionHash, HandshakeCache, Kind, Moment, Signal, SignalParts, Watch};
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
    /// One in so many of the packets that carry no flag and that no handshake waits for is looked at; zero: none.
    pub pickup: u32,
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

#[derive(Clone, Copy)]
struct Staged {
    key: AnyKey,
    kind: Kind,
    sender: Side,
    number: u32,
    tick: u64,
    now_ns: i64,
    quick: u64,
    /// Whether it is handed on in any case.
    is_chosen: bool,
}

/// Turns segments into signals; one for each capture thread.
pub struct Signaller {
    config: SignallerConfig,
    cache: Arc<HandshakeCache>,
    watch: Option<Arc<Watch>>,
    sampler: Sampler,
    quick: QuickHash,
    hash_v4: KeyedHash<KeyV4>,
    hash_v6: KeyedHash<KeyV6>,
    stage: Vec<Staged>,
    /// Of the connections in the stage whose handshake may come to wait, one bit each: the cache does not know of them yet.
    awaited: u64,
    counts: SignalCounts,
}

impl Signaller {
    /// A signaller that shares this cache with the other capture threads, and the watch with the list too.
    #[must_use]
    pub fn new(config: SignallerConfig, cache: Arc<HandshakeCache>, watch: Option<Arc<Watch>>) -> Self {
        Signaller {
            cache,
            watch,
            sampler: Sampler::new(config.pickup, config.syn_timeout_ns),
            quick: QuickHash::new(&config.secret),
            hash_v4: KeyedHash::new(&config.secret, Purpose::Connection),
            hash_v6: KeyedHash::new(&config.secret, Purpose::Connection),
            stage: Vec::with_capacity(STAGE_COUNT),
            awaited: 0,
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
    /// Complexity: a look at one word for most packets (and at a byte where connections are watched); one hash and one cache set for
    /// the others.
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
        let mut is_chosen = false;
        if kind == Kind::Ack {
            is_chosen = self.is_watched(quick);
            if self.cache.is_idle(quick) && self.awaited & awaited_bit(quick) == 0 {
                is_chosen |= self.is_sample(now_ns);
                if !is_chosen {
                    return;
                }
            }
        }
        let number = match kind {
            Kind::Syn => segment.seq,
            Kind::SynAck => segment.ack.wrapping_sub(1),
            Kind::Ack | Kind::Completes => segment.seq.wrapping_sub(1),
            Kind::Fin | Kind::Rst => 0,
        };
        self.stage(Staged { key, kind, sender, number, tick, now_ns, quick, is_chosen }, out);
    }

    /// Whether this packet is the first of a connection under watch since the watch began; it ends with it.
    #[inline]
    fn is_watched(&mut self, quick: u64) -> bool {
        let Some(watch) = &self.watch else { return false };
        let is_watched = watch.may_hold(quick) && watch.take(quick);
        self.counts.watched += u64::from(is_watched);
        is_watched
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
        stage.retain_mut(|staged| self.is_signal(staged));
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

    /// Whether this packet is to be handed on, and as what.
    #[inline]
    fn is_signal(&mut self, staged: &mut Staged) -> bool {
        let Staged { quick, sender, number, now_ns, .. } = *staged;
        match staged.kind {
            Kind::Ack | Kind::Completes => {
                let waited_for = self.cache.take(quick, sender, number, now_ns);
                staged.kind = waited_for.unwrap_or(Kind::Ack);
                staged.is_chosen || waited_for.is_some() || self.is_sample(now_ns)
            }
            Kind::SynAck => {
                self.await_answer(staged, sender.other(), Some(number));
                if self.config.one_way {
                    self.await_answer(staged, sender, None);
                }
                true
            }
            Kind::Syn => {
                if self.config.one_way {
                    self.await_answer(staged, sender, None);
                }
                true
            }
            Kind::Rst => {
                // What comes after it completes nothing.
                self.cache.give_up(quick, now_ns);
                true
            }
            Kind::Fin => true,
        }
    }

    fn await_answer(&mut self, staged: &Staged, from: Side, number: Option<u32>) {
        if self.cache.put(staged.quick, from, number, staged.now_ns) {
            self.counts.handshakes_lost += 1;
            self.sampler.lost(staged.now_ns);
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
mod tests;
