//! Frames of TCP without options or payload, in IPv4, in Ethernet.

use flowpeel::parse::TcpSegment;
use std::net::{IpAddr, SocketAddr};

/// A frame from one end to another, each the last byte of an address below 192.0.2.0 and a port.
pub(crate) fn plain_frame(src: (u8, u16), dst: (u8, u16), flags: u8, (seq, ack): (u32, u32)) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, src.0, 192, 0, 2, dst.0]);
    frame.extend([src.1, dst.1].iter().flat_map(|port| port.to_be_bytes()));
    frame.extend([seq, ack].iter().flat_map(|number| number.to_be_bytes()));
    frame.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
    frame
}

/// An Ethernet frame to everybody with a TCP header in IPv4, from this port.
pub(crate) fn ipv4_tcp(src_port: u16, flags: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 9, 0x08, 0x00]);
    frame.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 88, 0, 9, 10, 88, 0, 1]);
    frame.extend(src_port.to_be_bytes());
    frame.extend([0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    assert_eq!(flags & !(TcpSegment::SYN | TcpSegment::ACK), 0);
    frame
}

/// The frame with these tags, outermost first: the type that announces each, and its control information.
pub(crate) fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    for (ether_type, control) in tags {
        tagged.extend(ether_type.to_be_bytes());
        tagged.extend(control.to_be_bytes());
    }
    tagged.extend(&frame[12..]);
    tagged
}

/// A frame from one end to another of the same family, without tags.
pub(crate) fn frame_between(src: SocketAddr, dst: SocketAddr, flags: u8, (seq, ack): (u32, u32)) -> Vec<u8> {
    let mut frame = vec![0; 12];
    match (src.ip(), dst.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
            frame.extend([from, to].iter().flat_map(|address| address.octets()));
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            frame.extend([from, to].iter().flat_map(|address| address.octets()));
        }
        ends => panic!("two families: {ends:?}"),
    }
    frame.extend([src.port(), dst.port()].iter().flat_map(|port| port.to_be_bytes()));
    frame.extend([seq, ack].iter().flat_map(|number| number.to_be_bytes()));
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}
