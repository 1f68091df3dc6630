//! One TCP segment and the bytes of the frame around it: an Ethernet frame with correct lengths and checksums, cut like
//! a capture with a snap length. The payload is all zeros, so the checksum of a packet whose payload was cut off is
//! still correct.

use pnet::packet::MutablePacket;
use pnet::packet::ethernet::{EtherTypes, EthernetPacket, MutableEthernetPacket};
use pnet::packet::ip::IpNextHeaderProtocols;
use pnet::packet::ipv4::{self, Ipv4Flags, Ipv4Packet, MutableIpv4Packet};
use pnet::packet::ipv6::{Ipv6Packet, MutableIpv6Packet};
use pnet::packet::tcp::{MutableTcpPacket, TcpPacket};
use pnet::util::MacAddr;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const PSH: u8 = 8;
pub(super) const ACK: u8 = 16;

/// The Ethernet, IPv6 and TCP headers with the option of a SYN: what no cut may remove.
pub(super) const HEADERS_SIZE_MAX: usize = 14 + 40 + 24;
/// The largest payload of one packet: what an Ethernet frame of 1500 bytes holds after an IPv6 and a TCP header.
pub(super) const PAYLOAD_SIZE_MAX: u64 = 1500 - 40 - 20;

/// Locally administered addresses of the router's two neighbours: towards the clients, towards the servers.
const MAC_CLIENTS: MacAddr = MacAddr(2, 0, 0, 0, 0, 1);
const MAC_SERVERS: MacAddr = MacAddr(2, 0, 0, 0, 0, 2);

/// The hop limit of every packet, as most systems send it.
const HOP_LIMIT: u8 = 64;

/// The option of a SYN: a maximum segment size of 1440 bytes.
const MSS_OPTION: [u8; 4] = [2, 4, 0x05, 0xa0];

/// One TCP segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
    /// Whether the segment goes from the client's side of the router to the server's.
    pub(super) to_server: bool,
    pub(super) flags: u8,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) payload_size: u16,
}

impl Packet {
    /// Writes the frame's first `captured_size_max` bytes to `frame`, which is cleared first. Returns the frame's size
    /// on the wire.
    pub(super) fn encode(&self, captured_size_max: usize, frame: &mut Vec<u8>) -> usize {
        let ip_size = if self.is_v4() { Ipv4Packet::minimum_packet_size() } else { Ipv6Packet::minimum_packet_size() };
        let options: &[u8] = if self.flags & SYN != 0 { &MSS_OPTION } else { &[] };
        let tcp_size = TcpPacket::minimum_packet_size() + options.len();
        let tcp_at = EthernetPacket::minimum_packet_size() + ip_size;
        frame.clear();
        frame.resize(tcp_at + tcp_size, 0);
        self.write_headers(options, frame).expect("the frame has room for all headers");
        let pseudo_sum = sum(&frame[self.addresses(tcp_at)])
            + u32::from(IpNextHeaderProtocols::Tcp.0)
            + (tcp_size + usize::from(self.payload_size)) as u32;
        // The payload is zeros and adds nothing, so it need not be there to be covered.
        let check = checksum(pseudo_sum + sum(&frame[tcp_at..]));
        frame[tcp_at + 16..tcp_at + 18].copy_from_slice(&check.to_be_bytes());
        let wire_size = frame.len() + usize::from(self.payload_size);
        frame.resize(wire_size.min(captured_size_max), 0);
        wire_size
    }

    fn is_v4(&self) -> bool {
        self.src.is_ipv4() && self.dst.is_ipv4()
    }

    /// Where the frame has its IP addresses, the last bytes before the TCP header.
    fn addresses(&self, tcp_at: usize) -> Range<usize> {
        tcp_at - if self.is_v4() { 8 } else { 32 }..tcp_at
    }

    /// Writes all headers but TCP's checksum. `None` if the frame is too short for them.
    fn write_headers(&self, options: &[u8], frame: &mut [u8]) -> Option<()> {
        let mut ethernet = MutableEthernetPacket::new(frame)?;
        let (to, from) = if self.to_server { (MAC_SERVERS, MAC_CLIENTS) } else { (MAC_CLIENTS, MAC_SERVERS) };
        ethernet.set_destination(to);
        ethernet.set_source(from);
        let segment_size = (TcpPacket::minimum_packet_size() + options.len()) as u16 + self.payload_size;
        let payload = match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                ethernet.set_ethertype(EtherTypes::Ipv4);
                let mut ip = MutableIpv4Packet::new(ethernet.payload_mut())?;
                ip.set_version(4);
                ip.set_header_length((Ipv4Packet::minimum_packet_size() / 4) as u8);
                ip.set_total_length(Ipv4Packet::minimum_packet_size() as u16 + segment_size);
                ip.set_flags(Ipv4Flags::DontFragment);
                ip.set_ttl(HOP_LIMIT);
                ip.set_next_level_protocol(IpNextHeaderProtocols::Tcp);
                ip.set_source(src);
                ip.set_destination(dst);
                ip.set_checksum(ipv4::checksum(&ip.to_immutable()));
                &mut frame[EthernetPacket::minimum_packet_size() + Ipv4Packet::minimum_packet_size()..]
            }
            (src, dst) => {
                ethernet.set_ethertype(EtherTypes::Ipv6);
                let mut ip = MutableIpv6Packet::new(ethernet.payload_mut())?;
                ip.set_version(6);
                ip.set_payload_length(segment_size);
                ip.set_next_header(IpNextHeaderProtocols::Tcp);
                ip.set_hop_limit(HOP_LIMIT);
                ip.set_source(v6(src));
                ip.set_destination(v6(dst));
                &mut frame[EthernetPacket::minimum_packet_size() + Ipv6Packet::minimum_packet_size()..]
            }
        };
        let mut tcp = MutableTcpPacket::new(payload)?;
        tcp.set_source(self.src.port());
        tcp.set_destination(self.dst.port());
        tcp.set_sequence(self.seq);
        tcp.set_acknowledgement(self.ack);
        tcp.set_data_offset(((TcpPacket::minimum_packet_size() + options.len()) / 4) as u8);
        tcp.set_flags(self.flags);
        tcp.set_window(u16::MAX);
        tcp.get_options_raw_mut().copy_from_slice(options);
        Some(())
    }
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The sum of the 16-bit big-endian words of `bytes`, whose size is even.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum()
}

/// The Internet checksum of words that add up to `sum`.
fn checksum(sum: u32) -> u16 {
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded >> 16) + (folded & 0xffff)) as u16
}
