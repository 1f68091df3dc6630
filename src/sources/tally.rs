//! How a shard counts sources: signals in, and a delta out when it is asked for. Events are gathered in batches, so
//! that they are hashed together and the cache misses of their cells overlap.

use crate::flow::{AnyKey, FlowKey, Side};
use crate::signal::{Signal, SignalKind};
use crate::sources::SourceDelta;
use crate::sources::address::{SourceKeyV4, SourceKeyV6, key_v4, key_v6};
use crate::sources::copies::Copies;
use crate::sources::delta::{FamilyDelta, SourceValues};
use std::net::IpAddr;

/// How many events of one family are counted together.
pub(super) const BATCH_COUNT: usize = 32;

/// An event of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// The source sent a SYN.
    Attempt,
    /// A SYN-ACK came back.
    Answer,
    /// An RST came back instead.
    Refusal,
}

impl SourceEvent {
    /// The number of kinds of events.
    pub(super) const COUNT: usize = 3;

    #[inline]
    fn values(self) -> SourceValues {
        (u64::from(self == SourceEvent::Answer), u64::from(self == SourceEvent::Refusal))
    }
}

/// The event that a packet is to a source, and which end of its connection's canonical key the source is. `refuses` is
/// called for an RST only: whether it ends a connection of which only a SYN of the other side was seen.
#[must_use]
#[inline]
pub fn event_of(signal: &Signal, refuses: impl FnOnce() -> bool) -> Option<(SourceEvent, Side)> {
    let parts = signal.parts();
    match parts.kind {
        SignalKind::Syn => Some((SourceEvent::Attempt, parts.sender)),
        SignalKind::SynAck => Some((SourceEvent::Answer, parts.sender.other())),
        SignalKind::Rst if refuses() => Some((SourceEvent::Refusal, parts.sender.other())),
        _ => None,
    }
}

/// Events of one family that wait to be counted.
struct PendingEvents<K: flowpeel_iblt::Key> {
    pairs: Vec<(K, SourceValues)>,
    events: Vec<(usize, SourceEvent)>,
}

impl<K: flowpeel_iblt::Key> PendingEvents<K> {
    fn new() -> Self {
        PendingEvents { pairs: Vec::with_capacity(BATCH_COUNT), events: Vec::with_capacity(BATCH_COUNT) }
    }

    #[inline]
    fn push(&mut self, key: K, position: usize, event: SourceEvent, family: &mut FamilyDelta<K>) {
        self.pairs.push((key, event.values()));
        self.events.push((position, event));
        if self.pairs.len() == BATCH_COUNT {
            self.flush(family);
        }
    }

    fn flush(&mut self, family: &mut FamilyDelta<K>) {
        family.count(&self.pairs, &self.events);
        self.pairs.clear();
        self.events.clear();
    }
}

/// Counts the sources of one shard.
pub struct SourceTally {
    delta: Box<SourceDelta>,
    v4: PendingEvents<SourceKeyV4>,
    v6: PendingEvents<SourceKeyV6>,
    /// What was counted of late, for each of the shard's partitions.
    copies: Vec<Copies>,
}

impl SourceTally {
    /// A tally that counts in this delta, which is empty.
    #[must_use]
    pub fn new(delta: Box<SourceDelta>) -> Self {
        let copies = delta.v4.recent.iter().map(|_| Copies::new()).collect();
        SourceTally { delta, v4: PendingEvents::new(), v6: PendingEvents::new(), copies }
    }

    /// Counts an event of the source at one end of a signal's connection, unless the packet is a copy of one that was
    /// counted. `position` is that of the partition among the shard's.
    #[inline]
    pub fn count(&mut self, signal: &Signal, (event, side): (SourceEvent, Side), position: usize) {
        if event != SourceEvent::Refusal && self.copies.get_mut(position).is_some_and(|copies| copies.take(signal)) {
            return;
        }
        self.delta.totals[event as usize] += 1;
        match address(signal.key(), side) {
            IpAddr::V4(address) => self.v4.push(key_v4(address), position, event, &mut self.delta.v4),
            IpAddr::V6(address) => self.v6.push(key_v6(address), position, event, &mut self.delta.v6),
        }
    }

    /// Passes the delta, with everything counted so far, to `exchange`, and continues with the one that it returns: an
    /// empty one, or the same.
    pub fn exchange(self, exchange: impl FnOnce(Box<SourceDelta>) -> Box<SourceDelta>) -> Self {
        let SourceTally { mut delta, mut v4, mut v6, copies } = self;
        v4.flush(&mut delta.v4);
        v6.flush(&mut delta.v6);
        SourceTally { delta: exchange(delta), v4, v6, copies }
    }
}

/// The address of one end of a connection.
#[inline]
fn address(key: AnyKey, side: Side) -> IpAddr {
    match key {
        AnyKey::V4(key) => end(&key, side),
        AnyKey::V6(key) => end(&key, side),
    }
}

#[inline]
fn end(key: &impl FlowKey, side: Side) -> IpAddr {
    match side {
        Side::First => key.first().ip(),
        Side::Second => key.second().ip(),
    }
}
