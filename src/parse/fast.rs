//! The fast path: TCP directly in IP directly in Ethernet, which nearly every frame is.
//!
//! The result is exactly what [`walk`](super::walk) would return, or `None` if the frame
//! is not plain and has to be walked. Everything that is read lies at fixed offsets, so one check of the length covers
//! it.

use super::ip::{IPV4_FRAGMENT_OFFSET, IPV4_MORE_FRAGMENTS, Protocol};
use super::link::EtherType;
use super::{Addresses, PacketHeader, TcpSegment, tcp};
use crate::flow::{KeyV4, KeyV6, VlanTags};

const ETHERNET_SIZE: usize = 14;
const IPV4_SIZE: usize = 20;
const IPV6_SIZE: usize = 40;

/// A plain frame. Of nearly all packets only the connection and the flags matter, so the rest is read when it is asked
/// for. [`parse_frame`](super::parse_frame) returns the same for such a frame. Everything is inlined on the path of
/// every packet, so that what is read stays in registers.
pub trait PlainFrame<'a>: PacketHeader {
    /// The plain frame that these bytes are, or `None`.
    fn of(frame: &'a [u8]) -> Option<Self>;
    /// The whole segment.
    fn segment(self) -> TcpSegment;
}

/// The segment of a plain frame.
#[inline]
pub(super) fn plain_ethernet(frame: &[u8]) -> Option<TcpSegment> {
    let ipv4 = PlainIpv4::of(frame).map(PlainIpv4::segment);
    ipv4.or_else(|| PlainIpv6::of(frame).map(PlainIpv6::segment))
}

/// An Ethernet frame with IPv4 and TCP directly in it, without options of IP or fragments.
#[derive(Clone, Copy, Debug)]
pub struct PlainIpv4<'a> {
    ip: &'a [u8; IPV4_SIZE],
    tcp: &'a [u8; tcp::READ_SIZE],
}

impl<'a> PlainFrame<'a> for PlainIpv4<'a> {
    #[inline(always)]
    fn of(frame: &'a [u8]) -> Option<Self> {
        const VERSION_4_WITHOUT_OPTIONS: u64 = 0x45;
        const IS_FRAGMENT: u32 = ((IPV4_MORE_FRAGMENTS | IPV4_FRAGMENT_OFFSET) as u32) << 16;
        let head = frame.first_chunk::<{ ETHERNET_SIZE + IPV4_SIZE + tcp::READ_SIZE }>()?;
        let (ip, tcp) = split::<IPV4_SIZE, _>(head)?;
        // A word at a time: EtherType, version, header length, type of service, total length and identification; then
        // fragment, time to live and protocol.
        let first = u64::from_be_bytes(*head[ETHERNET_SIZE - 2..].first_chunk()?);
        let second = u32::from_be_bytes(*ip[6..].first_chunk()?);
        let total_size = usize::from((first >> 16) as u16);
        let is_plain = first >> 40 == u64::from(EtherType::IPV4.0) << 8 | VERSION_4_WITHOUT_OPTIONS
            && second & (IS_FRAGMENT | 0xff) == u32::from(Protocol::TCP.0)
            && IPV4_SIZE + tcp::header_size(tcp)? <= total_size;
        is_plain.then_some(PlainIpv4 { ip, tcp })
    }

    #[inline]
    fn segment(self) -> TcpSegment {
        let [(src, _), (dst, _)] = self.ends();
        TcpSegment::from_header(self.tcp, self.payload_size(), Addresses::V4 { src, dst }, VlanTags::NONE)
    }
}

impl PacketHeader for PlainIpv4<'_> {
    type Key = KeyV4;

    #[inline(always)]
    fn ends(self) -> [(u32, u16); 2] {
        let ip = self.ip;
        let (src, dst) = ([ip[12], ip[13], ip[14], ip[15]], [ip[16], ip[17], ip[18], ip[19]]);
        let [src_port, dst_port] = tcp::ports(self.tcp);
        [(u32::from_be_bytes(src), src_port), (u32::from_be_bytes(dst), dst_port)]
    }

    #[inline(always)]
    fn flags(self) -> u8 {
        tcp::flags(self.tcp)
    }

    #[inline(always)]
    fn seq(self) -> u32 {
        tcp::seq(self.tcp)
    }

    #[inline(always)]
    fn ack(self) -> u32 {
        tcp::ack(self.tcp)
    }

    #[inline(always)]
    fn payload_size(self) -> Option<u32> {
        let size = u32::from(u16::from_be_bytes([self.ip[2], self.ip[3]])).wrapping_sub(IPV4_SIZE as u32);
        Some(tcp::payload_size(self.tcp, size))
    }
}

/// An Ethernet frame with IPv6 and TCP directly in it.
#[derive(Clone, Copy, Debug)]
pub struct PlainIpv6<'a> {
    ip: &'a [u8; IPV6_SIZE],
    tcp: &'a [u8; tcp::READ_SIZE],
}

impl<'a> PlainFrame<'a> for PlainIpv6<'a> {
    #[inline(always)]
    fn of(frame: &'a [u8]) -> Option<Self> {
        const VERSION_6: u32 = 6;
        let head = frame.first_chunk::<{ ETHERNET_SIZE + IPV6_SIZE + tcp::READ_SIZE }>()?;
        let (ip, tcp) = split::<IPV6_SIZE, _>(head)?;
        // A word at a time: EtherType, version, traffic class and half of the flow label; then payload length, next
        // header and hop limit.
        let first = u32::from_be_bytes(*head[ETHERNET_SIZE - 2..].first_chunk()?);
        let second = u32::from_be_bytes(*ip[4..].first_chunk()?);
        let payload_size = (second >> 16) as usize;
        let is_plain = first >> 12 == u32::from(EtherType::IPV6.0) << 4 | VERSION_6
            && Protocol((second >> 8) as u8) == Protocol::TCP
            && tcp::header_size(tcp)? <= payload_size;
        is_plain.then_some(PlainIpv6 { ip, tcp })
    }

    #[inline]
    fn segment(self) -> TcpSegment {
        let [(src, _), (dst, _)] = self.ends();
        TcpSegment::from_header(self.tcp, self.payload_size(), Addresses::V6 { src, dst }, VlanTags::NONE)
    }
}

impl PacketHeader for PlainIpv6<'_> {
    type Key = KeyV6;

    #[inline(always)]
    fn ends(self) -> [(u128, u16); 2] {
        let address = |at: usize| self.ip[at..].first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes));
        let [src_port, dst_port] = tcp::ports(self.tcp);
        [(address(8), src_port), (address(24), dst_port)]
    }

    #[inline(always)]
    fn flags(self) -> u8 {
        tcp::flags(self.tcp)
    }

    #[inline(always)]
    fn seq(self) -> u32 {
        tcp::seq(self.tcp)
    }

    #[inline(always)]
    fn ack(self) -> u32 {
        tcp::ack(self.tcp)
    }

    #[inline(always)]
    fn payload_size(self) -> Option<u32> {
        let size = u32::from(u16::from_be_bytes([self.ip[4], self.ip[5]]));
        Some(tcp::payload_size(self.tcp, size))
    }
}

/// The IP header and the TCP header behind it. The lengths are known at compile time, so nothing is checked at run
/// time.
#[inline]
fn split<const IP_SIZE: usize, const N: usize>(head: &[u8; N]) -> Option<(&[u8; IP_SIZE], &[u8; tcp::READ_SIZE])> {
    let (ip, tcp_header) = head.get(ETHERNET_SIZE..)?.split_first_chunk::<IP_SIZE>()?;
    Some((ip, tcp_header.first_chunk()?))
}
