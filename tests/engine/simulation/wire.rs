//! Segments as they are on the wire: of hosts, of the crowd, and forged ones.

use flowpeel::parse::LinkType;
use std::net::{IpAddr, SocketAddr};

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const ACK: u8 = 0x10;

const ETHERNET_SIZE: usize = 14;
const IPV4_SIZE: usize = 20;
const IPV6_SIZE: usize = 40;
const TCP_SIZE: usize = 20;

/// An address and a port. In worlds of IPv6 the address is the last part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct End {
    pub(super) address: u32,
    pub(super) port: u16,
}

impl End {
    /// The end of a listed connection.
    pub(super) fn of(address: SocketAddr) -> Self {
        let bytes = match address.ip() {
            IpAddr::V4(v4) => v4.octets(),
            IpAddr::V6(v6) => v6.octets()[12..].try_into().unwrap(),
        };
        End { address: u32::from_be_bytes(bytes), port: address.port() }
    }
}

/// Both ends of a connection, the lower one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ends(pub(super) End, pub(super) End);

impl Ends {
    pub(super) fn of(one: End, other: End) -> Self {
        Ends(one.min(other), one.max(other))
    }
}

/// The part of a TCP segment that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) src: End,
    pub(super) dst: End,
    pub(super) flags: u8,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) data_size: u16,
}

impl Segment {
    pub(super) fn ends(&self) -> Ends {
        Ends::of(self.src, self.dst)
    }

    pub(super) fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Whether it carries none of the flags that open or end a connection.
    pub(super) fn is_plain(&self) -> bool {
        !self.has(SYN | FIN | RST)
    }

    /// The sequence number behind its data.
    pub(super) fn number_behind(&self) -> u32 {
        self.seq.wrapping_add(u32::from(self.data_size))
    }

    /// The segment in an IPv4 packet.
    pub(super) fn of_packet(packet: &[u8]) -> Self {
        let u16_at = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) << 16 | u32::from(u16_at(at + 2));
        assert_eq!((packet[0], packet[9]), (0x45, 6), "hosts send TCP in IPv4 without options");
        let header_size = IPV4_SIZE + usize::from(packet[IPV4_SIZE + 12] >> 4) * 4;
        Segment {
            src: End { address: u32_at(12), port: u16_at(IPV4_SIZE) },
            dst: End { address: u32_at(16), port: u16_at(IPV4_SIZE + 2) },
            seq: u32_at(IPV4_SIZE + 4),
            ack: u32_at(IPV4_SIZE + 8),
            flags: packet[IPV4_SIZE + 13],
            data_size: u16_at(2) - header_size as u16,
        }
    }

    /// Puts other ends into an IPv4 packet, as a router does that translates addresses. Nobody looks at checksums here.
    pub(super) fn put_ends(packet: &mut [u8], src: End, dst: End) {
        packet[12..16].copy_from_slice(&src.address.to_be_bytes());
        packet[16..20].copy_from_slice(&dst.address.to_be_bytes());
        packet[20..22].copy_from_slice(&src.port.to_be_bytes());
        packet[22..24].copy_from_slice(&dst.port.to_be_bytes());
    }

    /// The segment as an IPv4 packet, its data zeros.
    pub(super) fn to_packet(self) -> Vec<u8> {
        let mut packet = self.frame(false).bytes.split_off(ETHERNET_SIZE);
        packet.resize(packet.len() + usize::from(self.data_size), 0);
        packet
    }

    /// The Ethernet frame up to its data, which a capture with a snap length cuts off.
    pub(super) fn frame(&self, is_v6: bool) -> Frame {
        let tcp_size = TCP_SIZE as u16 + self.data_size;
        let mut bytes = Vec::with_capacity(ETHERNET_SIZE + IPV6_SIZE + TCP_SIZE);
        bytes.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        if is_v6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend(tcp_size.to_be_bytes());
            bytes.extend([6, 64]);
            for end in [self.src, self.dst] {
                bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                bytes.extend(end.address.to_be_bytes());
            }
        } else {
            bytes.extend([8, 0, 0x45, 0]);
            bytes.extend((IPV4_SIZE as u16 + tcp_size).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
            [self.src, self.dst].iter().for_each(|end| bytes.extend(end.address.to_be_bytes()));
        }
        [self.src, self.dst].iter().for_each(|end| bytes.extend(end.port.to_be_bytes()));
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend([0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        Frame { wire_size: bytes.len() + usize::from(self.data_size), bytes }
    }
}

/// A captured frame.
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) wire_size: usize,
}

impl Frame {
    pub(super) const LINK: LinkType = LinkType::ETHERNET;
}
