//! The fast path: TCP directly in IP directly in Ethernet, which nearly every frame is.
//!
//! What enters: an Ethernet frame. What leaves: exactly what [`walk`](super::walk) would say, or `None` when the frame
//! is anything but plain, and the walk has to say it. All that is read lies at fixed places, so one check of the length
//! covers it.

use super::ethernet::EtherType;
use super::ip::{IPV4_FRAGMENT_OFFSET, IPV4_MORE_FRAGMENTS, Protocol};
use super::{Addresses, TcpSegment, tcp};
use crate::flow::VlanTags;

const ETHERNET_SIZE: usize = 14;
const IPV4_SIZE: usize = 20;
const IPV6_SIZE: usize = 40;

/// The segment of a plain frame.
#[inline]
pub(super) fn plain_ethernet(frame: &[u8]) -> Option<TcpSegment> {
    plain_ipv4(frame).or_else(|| plain_ipv6(frame))
}

/// The segment of a plain Ethernet frame with IPv4, and `None` of any other frame: TCP directly in IP without options or fragments.
/// [`parse_frame`](super::parse_frame) says the same of such a frame. It is inlined where every packet counts, so that what is read
/// stays in registers.
#[inline(always)]
#[must_use]
pub fn plain_ipv4(frame: &[u8]) -> Option<TcpSegment> {
    const VERSION_4_WITHOUT_OPTIONS: u64 = 0x45;
    const IS_FRAGMENT: u32 = ((IPV4_MORE_FRAGMENTS | IPV4_FRAGMENT_OFFSET) as u32) << 16;
    let head = frame.first_chunk::<{ ETHERNET_SIZE + IPV4_SIZE + tcp::READ_SIZE }>()?;
    let (ip, tcp_header) = split::<IPV4_SIZE, _>(head)?;
    // A word at a time: EtherType, version, header length, type of service, total length and identification; then fragment,
    // time to live and protocol.
    let first = u64::from_be_bytes(*head[ETHERNET_SIZE - 2..].first_chunk()?);
    let second = u32::from_be_bytes(*ip[6..].first_chunk()?);
    let total_size = usize::from((first >> 16) as u16);
    let is_plain = first >> 40 == u64::from(EtherType::IPV4.0) << 8 | VERSION_4_WITHOUT_OPTIONS
        && second & (IS_FRAGMENT | 0xff) == u32::from(Protocol::TCP.0)
        && IPV4_SIZE + tcp::header_size(tcp_header)? <= total_size;
    let addresses = Addresses::V4 {
        src: u32::from_be_bytes([ip[12], ip[13], ip[14], ip[15]]),
        dst: u32::from_be_bytes([ip[16], ip[17], ip[18], ip[19]]),
    };
    is_plain.then(|| TcpSegment::from_header(tcp_header, addresses, VlanTags::NONE))
}

/// The segment of a plain Ethernet frame with IPv6, likewise.
#[inline(always)]
#[must_use]
pub fn plain_ipv6(frame: &[u8]) -> Option<TcpSegment> {
    let head = frame.first_chunk::<{ ETHERNET_SIZE + IPV6_SIZE + tcp::READ_SIZE }>()?;
    let (ip, tcp_header) = split::<IPV6_SIZE, _>(head)?;
    let payload_size = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let is_plain = EtherType(u16::from_be_bytes([head[12], head[13]])) == EtherType::IPV6
        && ip[0] >> 4 == 6
        && Protocol(ip[6]) == Protocol::TCP
        && tcp::header_size(tcp_header)? <= payload_size;
    let addresses = Addresses::V6 {
        src: u128::from_be_bytes(*ip[8..].first_chunk()?),
        dst: u128::from_be_bytes(*ip[24..].first_chunk()?),
    };
    is_plain.then(|| TcpSegment::from_header(tcp_header, addresses, VlanTags::NONE))
}

/// The IP header and the TCP header behind it; the lengths are known when this is compiled, so nothing is checked.
#[inline]
fn split<const IP_SIZE: usize, const N: usize>(head: &[u8; N]) -> Option<(&[u8; IP_SIZE], &[u8; tcp::READ_SIZE])> {
    let (ip, tcp_header) = head.get(ETHERNET_SIZE..)?.split_first_chunk::<IP_SIZE>()?;
    Some((ip, tcp_header.first_chunk()?))
}
