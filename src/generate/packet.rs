//! One TCP segment and the bytes of the frame around it.
//!
//! What enters: a sender, a receiver, flags, numbers and a payload size. What leaves: an Ethernet frame with correct
//! lengths and checksums, cut like a capture with a snap length. The payload is all zeros, so the checksum of a packet
//! whose payload was cut off is still correct.

use std::net::{IpAddr, SocketAddr};

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
const MAC_CLIENTS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_SERVERS: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The option of a SYN: a maximum segment size of 1440 bytes.
const MSS_OPTION: [u8; 4] = [2, 4, 0x05, 0xa0];
const PROTOCOL_TCP: u8 = 6;

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
        frame.clear();
        let (to, from) = if self.to_server { (MAC_SERVERS, MAC_CLIENTS) } else { (MAC_CLIENTS, MAC_SERVERS) };
        frame.extend_from_slice(&to);
        frame.extend_from_slice(&from);
        let options: &[u8] = if self.flags & SYN != 0 { &MSS_OPTION } else { &[] };
        let tcp_size = (20 + options.len()) as u16;
        let pseudo_sum = self.push_ip(tcp_size + self.payload_size, frame);
        self.push_tcp(options, pseudo_sum, frame);
        let wire_size = frame.len() + usize::from(self.payload_size);
        frame.resize(wire_size.min(captured_size_max), 0);
        wire_size
    }

    /// Appends the Ethernet type and the IP header. Returns the sum of the pseudo-header that TCP's checksum covers.
    fn push_ip(&self, segment_size: u16, frame: &mut Vec<u8>) -> u32 {
        let addresses_at = match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                frame.extend_from_slice(&[0x08, 0x00]);
                let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, PROTOCOL_TCP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                header[2..4].copy_from_slice(&(20 + segment_size).to_be_bytes());
                header[12..16].copy_from_slice(&src.octets());
                header[16..].copy_from_slice(&dst.octets());
                let check = checksum(sum(&header));
                header[10..12].copy_from_slice(&check.to_be_bytes());
                frame.extend_from_slice(&header);
                frame.len() - 8
            }
            (src, dst) => {
                frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend_from_slice(&segment_size.to_be_bytes());
                frame.extend_from_slice(&[PROTOCOL_TCP, 64]);
                frame.extend_from_slice(&v6_octets(src));
                frame.extend_from_slice(&v6_octets(dst));
                frame.len() - 32
            }
        };
        sum(&frame[addresses_at..]) + u32::from(PROTOCOL_TCP) + u32::from(segment_size)
    }

    fn push_tcp(&self, options: &[u8], pseudo_sum: u32, frame: &mut Vec<u8>) {
        let tcp_at = frame.len();
        frame.extend_from_slice(&self.src.port().to_be_bytes());
        frame.extend_from_slice(&self.dst.port().to_be_bytes());
        frame.extend_from_slice(&self.seq.to_be_bytes());
        frame.extend_from_slice(&self.ack.to_be_bytes());
        let words = (5 + options.len() / 4) as u8;
        frame.extend_from_slice(&[words << 4, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend_from_slice(options);
        let check = checksum(pseudo_sum + sum(&frame[tcp_at..]));
        frame[tcp_at + 16..tcp_at + 18].copy_from_slice(&check.to_be_bytes());
    }
}

fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
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
