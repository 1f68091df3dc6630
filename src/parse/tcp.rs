//! The TCP header: ports, numbers, flags.

use super::unread::Unread;
use super::{Addresses, TcpSegment, Unusable};
use crate::flow::VlanTags;
use std::net::{IpAddr, SocketAddr};

/// The bytes that are read of a TCP header: ports, sequence and acknowledgement number, data offset, flags.
pub(super) const READ_SIZE: usize = 14;

/// The smallest data offset, in words of four bytes: a header without options.
pub(super) const DATA_OFFSET_MIN: usize = 5;

impl TcpSegment {
    /// The sender has no more data.
    pub const FIN: u8 = 0x01;
    /// The sender opens a connection.
    pub const SYN: u8 = 0x02;
    /// The connection is aborted.
    pub const RST: u8 = 0x04;
    /// The receiver is asked to pass on what it has.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;

    /// A segment from one address and port to another, without a flag, a number or a VLAN tag; `None` if the
    /// addresses are of different families.
    #[must_use]
    pub fn between(sender: SocketAddr, receiver: SocketAddr) -> Option<Self> {
        let addresses = match (sender.ip(), receiver.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Addresses::V4 { src: src.to_bits(), dst: dst.to_bits() },
            (IpAddr::V6(src), IpAddr::V6(dst)) => Addresses::V6 { src: src.to_bits(), dst: dst.to_bits() },
            _ => return None,
        };
        let (src_port, dst_port) = (sender.port(), receiver.port());
        Some(TcpSegment {
            addresses,
            src_port,
            dst_port,
            vlan: VlanTags::NONE,
            flags: 0,
            seq: 0,
            ack: 0,
            payload_size: Some(0),
        })
    }

    /// The segment whose header begins with these bytes, with so many bytes of data if that is known.
    #[inline]
    pub(super) fn from_header(
        header: &[u8; READ_SIZE],
        payload_size: Option<u32>,
        addresses: Addresses,
        vlan: VlanTags,
    ) -> Self {
        let [src_port, dst_port] = ports(header);
        TcpSegment {
            addresses,
            src_port,
            dst_port,
            vlan,
            flags: flags(header),
            seq: seq(header),
            ack: ack(header),
            payload_size,
        }
    }
}

/// The ports of sender and receiver.
#[inline(always)]
pub(super) fn ports(header: &[u8; READ_SIZE]) -> [u16; 2] {
    let [s0, s1, d0, d1, ..] = *header;
    [u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])]
}

/// The sequence number.
#[inline(always)]
pub(super) fn seq(header: &[u8; READ_SIZE]) -> u32 {
    u32::from_be_bytes([header[4], header[5], header[6], header[7]])
}

/// The acknowledgement number.
#[inline(always)]
pub(super) fn ack(header: &[u8; READ_SIZE]) -> u32 {
    u32::from_be_bytes([header[8], header[9], header[10], header[11]])
}

/// The flags.
#[inline(always)]
pub(super) fn flags(header: &[u8; READ_SIZE]) -> u8 {
    header[READ_SIZE - 1]
}

/// The header's size in bytes by its data offset; `None` when the offset points into the fixed part.
#[inline]
pub(super) fn header_size(header: &[u8; READ_SIZE]) -> Option<usize> {
    let offset = usize::from(header[12] >> 4);
    (offset >= DATA_OFFSET_MIN).then_some(offset * 4)
}

/// The bytes of data behind a header, of so many bytes with it. They are not fewer than [`header_size`].
#[inline(always)]
pub(super) fn payload_size(header: &[u8; READ_SIZE], with_header_size: u32) -> u32 {
    with_header_size.wrapping_sub(u32::from(header[12] >> 4) * 4)
}

/// Reads the header. The options need not have been captured, but they must fit in the packet.
pub(super) fn segment(addresses: Addresses, vlan: VlanTags, unread: &mut Unread<'_>) -> Result<TcpSegment, Unusable> {
    let header = unread.peek::<READ_SIZE>(Unusable::MalformedTcp)?;
    match header_size(header) {
        Some(size) if size <= unread.declared_size() => {
            let payload_size = unread.size().map(|with_header_size| with_header_size.saturating_sub(size) as u32);
            Ok(TcpSegment::from_header(header, payload_size, addresses, vlan))
        }
        _ => Err(Unusable::MalformedTcp),
    }
}
