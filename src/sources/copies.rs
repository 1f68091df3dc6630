//! Which events are copies: the same packet, captured at another interface.
//!
//! A router forwards what it receives, so two of its interfaces show each packet, within the time that it takes to
//! forward it. A retransmission is another packet: it comes later, and at the same interfaces again. The laws: a packet
//! that comes at several interfaces within [`COPY_AGE_MAX_NS`] counts once; what comes again at one of them counts
//! again; memory and work an event are bounded.
//!
//! Packets are known by a hash of connection, kind and client's initial sequence number, in sets of four of which a new
//! one takes the oldest. One that has to go sooner than its copy comes leaves a packet that counts twice.

use crate::signal::{Moment, ORIGIN_COUNT, Signal};
use flowpeel_iblt::hash::{GOLDEN_64, place_of};

/// How long copies of a packet may be apart, in nanoseconds: longer than a router's queues hold a packet, and half of
/// what a host waits before it sends a SYN again (a second, RFC 6298).
const COPY_AGE_MAX_NS: i64 = 500_000_000;

/// Packets in a set: a cache line.
const SET_PACKET_COUNT: usize = 4;

/// The sets of a partition. Copies are a millisecond apart on most routers; in a flood of a million SYNs a second, 125
/// others of the partition come meanwhile.
const SET_COUNT: usize = 256;

/// A packet that was counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// A hash of what the packet says; zero if the place is empty.
    what: u64,
    moment: Moment,
    /// The interfaces at which it was captured, as bits.
    origins: u16,
}

const _: () = assert!(ORIGIN_COUNT <= u16::BITS as usize);

/// The packets that were counted of late, of one partition.
pub(super) struct Copies {
    sets: Box<[[Counted; SET_PACKET_COUNT]]>,
}

impl Copies {
    /// The memory in bytes.
    pub(super) const SIZE: usize = SET_COUNT * size_of::<[Counted; SET_PACKET_COUNT]>();

    pub(super) fn new() -> Self {
        Copies { sets: vec![[Counted::default(); SET_PACKET_COUNT]; SET_COUNT].into() }
    }

    /// Whether a SYN or SYN-ACK is the copy of one that was counted. If not, it counts.
    ///
    /// Complexity: one set.
    #[inline]
    pub(super) fn take(&mut self, signal: &Signal) -> bool {
        let parts = signal.parts();
        let said = u64::from(parts.isn) | (parts.kind as u64) << 32 | (parts.sender as u64) << 40;
        // Not zero, which is an empty place.
        let what = (signal.hash().to_bits() ^ said.wrapping_mul(GOLDEN_64)) | 1;
        let set = &mut self.sets[place_of((what >> 32) as u32, SET_COUNT)];
        let (moment, origin) = (signal.moment(), 1_u16 << signal.origin().index());
        let is_recent = |counted: &Counted| moment.since_ns(counted.moment).abs() <= COPY_AGE_MAX_NS;
        let found = set.iter().position(|counted| counted.what == what && is_recent(counted));
        match found {
            Some(at) if set[at].origins & origin == 0 => {
                set[at].origins |= origin;
                true
            }
            found => {
                let last = found.unwrap_or(SET_PACKET_COUNT - 1);
                set[..=last].rotate_right(1);
                set[0] = Counted { what, moment, origins: origin };
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{KeyV4, Side, VlanTags};
    use crate::signal::{Origin, SignalKind, SignalParts, numbered};

    fn packet(connection: u64, kind: SignalKind, isn: u32, origin: usize, at_ms: i64) -> Signal {
        let key = KeyV4::new((1, 1), (2, 2), VlanTags::NONE);
        let hash = numbered(connection);
        let parts = SignalParts { tick: 0, kind, sender: Side::First, isn };
        Signal::new(&key, hash, parts).at(Moment::of(at_ms * 1_000_000)).from_origin(Origin::new(origin))
    }

    #[test]
    fn a_packet_at_three_interfaces_counts_once_and_each_repetition_again() {
        let mut copies = Copies::new();
        for (origin, at_ms, is_copy) in [
            (0, 0, false),
            (1, 1, true),
            (2, 2, true),
            // Sent again, and captured in another order.
            (1, 300, false),
            (0, 301, true),
            (2, 302, true),
            // At an interface that has not shown it for a second.
            (0, 2_000, false),
            (1, 3_000, false),
            (2, 3_500, true),
        ] {
            let taken = copies.take(&packet(1, SignalKind::Syn, 7, origin, at_ms));
            assert_eq!(taken, is_copy, "at {at_ms} ms");
        }
    }

    #[test]
    fn another_number_kind_or_connection_is_another_packet() {
        let mut copies = Copies::new();
        assert!(!copies.take(&packet(1, SignalKind::Syn, 7, 0, 0)));
        assert!(!copies.take(&packet(1, SignalKind::Syn, 8, 1, 0)));
        assert!(!copies.take(&packet(1, SignalKind::SynAck, 7, 1, 0)));
        assert!(!copies.take(&packet(2, SignalKind::Syn, 7, 1, 0)));
        assert!(copies.take(&packet(1, SignalKind::Syn, 7, 1, 0)));
    }

    #[test]
    fn copies_are_found_behind_what_a_flood_brings_meanwhile() {
        let mut copies = Copies::new();
        let apart = 125;
        let mut doubled = 0;
        for connection in 0..100_000 {
            assert!(!copies.take(&packet(connection, SignalKind::Syn, 7, 0, 0)));
            if connection >= apart {
                doubled += u32::from(!copies.take(&packet(connection - apart, SignalKind::Syn, 7, 1, 0)));
            }
        }
        assert!(doubled < 1_000, "{doubled} of 100,000 counted twice");
    }
}
