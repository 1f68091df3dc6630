//! What the packet path reads of a packet, whether its frame is plain or was walked.

use super::TcpSegment;
use crate::flow::{FlowKey, VlanTags};

/// The parts of a TCP header, and of the IP header around it, that decide what a packet says. Each is read when it is
/// asked for: of most packets only the ends and the flags are.
pub trait PacketHeader: Copy {
    /// The key of the packet's connection.
    type Key: FlowKey;

    /// The address and port of sender and receiver.
    fn ends(self) -> [(<Self::Key as FlowKey>::Address, u16); 2];
    /// The VLAN tags on the way to the header.
    #[inline(always)]
    fn vlan(self) -> VlanTags {
        VlanTags::NONE
    }
    /// The TCP flags.
    fn flags(self) -> u8;
    /// The sequence number.
    fn seq(self) -> u32;
    /// The acknowledgement number; meaningless without the ACK flag.
    fn ack(self) -> u32;
    /// The bytes of data behind the header, captured or not, if the IP header says how many.
    fn payload_size(self) -> Option<u32>;
}

/// A header that was read into a segment, with its ends as those of one family.
#[derive(Clone, Copy, Debug)]
pub struct ReadHeader<K: FlowKey> {
    ends: [(K::Address, u16); 2],
    vlan: VlanTags,
    flags: u8,
    seq: u32,
    ack: u32,
    payload_size: Option<u32>,
}

impl<K: FlowKey> ReadHeader<K> {
    /// The header of a segment between these addresses.
    #[must_use]
    #[inline(always)]
    pub fn new(segment: &TcpSegment, [src, dst]: [K::Address; 2]) -> Self {
        let TcpSegment { src_port, dst_port, vlan, flags, seq, ack, payload_size, .. } = *segment;
        ReadHeader { ends: [(src, src_port), (dst, dst_port)], vlan, flags, seq, ack, payload_size }
    }
}

impl<K: FlowKey> PacketHeader for ReadHeader<K> {
    type Key = K;

    #[inline(always)]
    fn ends(self) -> [(K::Address, u16); 2] {
        self.ends
    }

    #[inline(always)]
    fn vlan(self) -> VlanTags {
        self.vlan
    }

    #[inline(always)]
    fn flags(self) -> u8 {
        self.flags
    }

    #[inline(always)]
    fn seq(self) -> u32 {
        self.seq
    }

    #[inline(always)]
    fn ack(self) -> u32 {
        self.ack
    }

    #[inline(always)]
    fn payload_size(self) -> Option<u32> {
        self.payload_size
    }
}
