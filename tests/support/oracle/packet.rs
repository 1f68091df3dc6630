//! Frames and captures as the oracle sees them: parsed by pnet, not by flowpeel.

use std::net::{IpAddr, SocketAddr};

use pnet::packet::Packet;
use pnet::packet::ethernet::{EtherType, EtherTypes, EthernetPacket};
use pnet::packet::ip::{IpNextHeaderProtocol, IpNextHeaderProtocols};
use pnet::packet::ipv4::Ipv4Packet;
use pnet::packet::ipv6::Ipv6Packet;
use pnet::packet::tcp::{TcpFlags, TcpPacket};
use pnet::packet::vlan::VlanPacket;

/// The fields of a TCP segment that the state table reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) syn: bool,
    pub(crate) ack_flag: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
}

/// The TCP segment in an Ethernet frame, behind any VLAN tags; `None` if there is none or its header is cut.
pub(crate) fn segment(frame: &[u8]) -> Option<Segment> {
    let ethernet = EthernetPacket::new(frame)?;
    network(ethernet.get_ethertype(), ethernet.payload())
}

fn network(ether_type: EtherType, bytes: &[u8]) -> Option<Segment> {
    match ether_type {
        EtherTypes::Vlan | EtherTypes::QinQ => {
            let vlan = VlanPacket::new(bytes)?;
            network(vlan.get_ethertype(), vlan.payload())
        }
        EtherTypes::Ipv4 => {
            let ip = Ipv4Packet::new(bytes)?;
            let is_tcp = ip.get_next_level_protocol() == IpNextHeaderProtocols::Tcp;
            if !is_tcp || ip.get_fragment_offset() != 0 {
                return None;
            }
            tcp(ip.get_source().into(), ip.get_destination().into(), ip.payload())
        }
        EtherTypes::Ipv6 => {
            let ip = Ipv6Packet::new(bytes)?;
            let payload = behind_extensions(ip.get_next_header(), ip.payload())?;
            tcp(ip.get_source().into(), ip.get_destination().into(), payload)
        }
        _ => None,
    }
}

/// The bytes behind hop-by-hop options, routing, destination options and a first fragment's header, where TCP follows
/// them.
fn behind_extensions(mut protocol: IpNextHeaderProtocol, mut bytes: &[u8]) -> Option<&[u8]> {
    while protocol != IpNextHeaderProtocols::Tcp {
        match protocol {
            IpNextHeaderProtocols::Hopopt | IpNextHeaderProtocols::Ipv6Route | IpNextHeaderProtocols::Ipv6Opts => {
                protocol = IpNextHeaderProtocol::new(*bytes.first()?);
                bytes = bytes.get(8 * (usize::from(*bytes.get(1)?) + 1)..)?;
            }
            // The first fragment holds the TCP header.
            IpNextHeaderProtocols::Ipv6Frag if bytes.get(2..4).is_some_and(is_first_fragment) => {
                protocol = IpNextHeaderProtocol::new(bytes[0]);
                bytes = bytes.get(8..)?;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

fn is_first_fragment(offset_and_flags: &[u8]) -> bool {
    offset_and_flags[0] == 0 && offset_and_flags[1] & 0xf8 == 0
}

fn tcp(src: IpAddr, dst: IpAddr, bytes: &[u8]) -> Option<Segment> {
    let tcp = TcpPacket::new(bytes)?;
    let has = |flag: u8| tcp.get_flags() & flag != 0;
    Some(Segment {
        src: SocketAddr::new(src, tcp.get_source()),
        dst: SocketAddr::new(dst, tcp.get_destination()),
        syn: has(TcpFlags::SYN),
        ack_flag: has(TcpFlags::ACK),
        fin: has(TcpFlags::FIN),
        rst: has(TcpFlags::RST),
        seq: tcp.get_sequence(),
        ack: tcp.get_acknowledgement(),
    })
}

/// The frames of a classic little-endian capture in microseconds: time and captured bytes.
///
/// # Panics
/// `capture` is not such a capture, or ends within a frame.
pub(crate) fn frames_of_pcap(capture: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().expect("four bytes"));
    assert_eq!((word(0), word(20)), (0xa1b2_c3d4, 1), "a little-endian capture of Ethernet frames in microseconds");
    let mut at = 24;
    std::iter::from_fn(move || {
        if at == capture.len() {
            return None;
        }
        let time_us = u64::from(word(at)) * 1_000_000 + u64::from(word(at + 4));
        let end = at + 16 + word(at + 8) as usize;
        let frame = &capture[at + 16..end];
        at = end;
        Some((time_us, frame))
    })
}
