//! The filters of `--capture`: which packets the kernel hands over.
//!
//! There is a program for each link type. All of them pass what they cannot decide and
//! the parser may be able to read: IPv6 with extension headers, deep stacks of tags and labels, rare tags, Ethernet
//! inside Ethernet. They hold back what has no TCP header of its own: other protocols, later fragments, and what is
//! inside tunnels over IP.

use super::BpfProgram;
use super::{Assembler, BpfLabel, BpfStep, BpfTest};
use crate::parse::ip::{IPV4_FRAGMENT_OFFSET, Protocol};
use crate::parse::link::{self, EtherType};
use crate::parse::{LinkType, TcpSegment};

/// Bytes of a packet that `--capture headers` and `--capture flags` take: 22 of Ethernet with two tags, 40 of IPv6, 60
/// of the longest TCP header, and 70 for extension headers, an MPLS stack or another Ethernet header between them.
pub(super) const LIVE_SNAP_SIZE: u32 = 192;

/// Bytes of a packet that `--tunnels` takes: the headers above twice, with those of a tunnel or two between them.
pub(super) const LIVE_TUNNEL_SNAP_SIZE: u32 = 512;

/// VLAN tags in a frame that the in-kernel filter follows, not counting the one that the kernel takes out of the frame.
/// Frames with more tags pass, and the parser decides.
const LIVE_FILTER_TAG_COUNT: u32 = 2;

/// MPLS labels that the in-kernel filter follows; frames with more of them pass.
const LIVE_FILTER_LABEL_COUNT: u32 = 3;

const _: () = assert!(LIVE_SNAP_SIZE >= 22 + 40 + 60 && LIVE_TUNNEL_SNAP_SIZE >= 2 * LIVE_SNAP_SIZE);

const VLAN_TYPES: [EtherType; 3] = [EtherType::VLAN, EtherType::SERVICE_VLAN, EtherType::QINQ];
const MPLS_TYPES: [EtherType; 2] = [EtherType::MPLS, EtherType::MPLS_MULTICAST];
/// Rare enough for the parser to decide them all.
const RARE_TYPES: [EtherType; 4] =
    [EtherType::TRANSPARENT_ETHERNET, EtherType::BACKBONE_BRIDGE, EtherType::CISCO_METADATA, EtherType::VN_TAG];
/// MPLS in PPP, and PPP's address and control, which stand before its number where both ends keep them.
const RARE_PPP_TYPES: [u16; 3] =
    [link::PPP_MPLS, link::PPP_MPLS_MULTICAST, u16::from_be_bytes([link::PPP_ADDRESS, link::PPP_CONTROL])];
/// The service access points behind which IP may follow; destination and source are the same.
const LLC_ACCESS_POINTS: [u8; 2] = [link::LLC_SNAP, link::LLC_IP];
/// The extension headers of IPv6. What is encrypted cannot be read behind its header.
const IPV6_EXTENSIONS: [Protocol; 8] = [
    Protocol::HOP_BY_HOP,
    Protocol::ROUTING,
    Protocol::FRAGMENT,
    Protocol::AUTHENTICATION,
    Protocol::DESTINATION_OPTIONS,
    Protocol::MOBILITY,
    Protocol::HOST_IDENTITY,
    Protocol::SHIM6,
];
const OPENING_AND_CLOSING_FLAGS: u8 = TcpSegment::FIN | TcpSegment::SYN | TcpSegment::RST;

/// The labels that all paths through a filter lead to.
struct Exits {
    /// IPv4 at X.
    v4: BpfLabel,
    /// IPv6 at X.
    v6: BpfLabel,
    /// The packet is taken.
    take: BpfLabel,
    /// The packet is not taken.
    refuse: BpfLabel,
}

/// The program that takes nothing, for a socket that is not ready yet.
#[must_use]
pub(in crate::capture::live) fn nothing() -> BpfProgram {
    verdict(0)
}

/// The program that takes every packet, for what tunnels may hold.
#[must_use]
pub(in crate::capture::live) fn everything() -> BpfProgram {
    verdict(LIVE_TUNNEL_SNAP_SIZE)
}

/// The program that takes the headers of every TCP packet.
#[must_use]
pub(in crate::capture::live) fn headers(link: LinkType) -> BpfProgram {
    tcp(link, false)
}

/// The program that takes the headers of TCP packets that open or close a connection: with SYN, FIN or RST.
#[must_use]
pub(in crate::capture::live) fn flags(link: LinkType) -> BpfProgram {
    tcp(link, true)
}

fn verdict(size: u32) -> BpfProgram {
    let mut assembler = Assembler::default();
    assembler.step(BpfStep::Return(size));
    assembler.finish()
}

fn tcp(link: LinkType, only_flags: bool) -> BpfProgram {
    let mut a = Assembler::default();
    let exits = Exits { v4: a.label(), v6: a.label(), take: a.label(), refuse: a.label() };
    if link == LinkType::ETHERNET {
        ethernet(&mut a, &exits);
    } else {
        a.step(BpfStep::LoadIndex(0));
    }
    ip(&mut a, &exits);
    ipv4(&mut a, &exits, only_flags);
    ipv6(&mut a, &exits, only_flags);
    a.place(exits.take);
    a.step(BpfStep::Return(LIVE_SNAP_SIZE));
    a.place(exits.refuse);
    a.step(BpfStep::Return(0));
    a.finish()
}

fn is_type(ether_type: EtherType) -> BpfTest {
    BpfTest::Equal(ether_type.0.into())
}

fn is_protocol(protocol: Protocol) -> BpfTest {
    BpfTest::Equal(protocol.0.into())
}

/// The EtherType of the frame, and those behind each of the tags. Every tag has its own copy of the code, so that all
/// offsets are fixed.
fn ethernet(a: &mut Assembler, exits: &Exits) {
    let labelled = a.label();
    for tag_count in 0..=LIVE_FILTER_TAG_COUNT {
        let payload = 14 + 4 * tag_count;
        let [tag, pppoe, mpls] = std::array::from_fn(|_| a.label());
        a.step(BpfStep::LoadHalf(payload - 2));
        a.step(BpfStep::LoadIndex(payload));
        a.jump_if(is_type(EtherType::IPV4), exits.v4);
        a.jump_if(is_type(EtherType::IPV6), exits.v6);
        let is_last = tag_count == LIVE_FILTER_TAG_COUNT;
        for ether_type in VLAN_TYPES {
            a.jump_if(is_type(ether_type), if is_last { exits.take } else { tag });
        }
        a.jump_if(is_type(EtherType::PPPOE_SESSION), pppoe);
        for ether_type in MPLS_TYPES {
            a.jump_if(is_type(ether_type), mpls);
        }
        for ether_type in RARE_TYPES {
            a.jump_if(is_type(ether_type), exits.take);
        }
        a.jump_if(BpfTest::Greater(link::ETHERNET_LENGTH_MAX.into()), exits.refuse);
        a.step(BpfStep::LoadHalf(payload));
        for access_point in LLC_ACCESS_POINTS {
            a.jump_if(BpfTest::Equal(u16::from_be_bytes([access_point; 2]).into()), exits.take);
        }
        a.jump(exits.refuse);
        a.place(pppoe);
        pppoe_session(a, exits, payload);
        a.place(mpls);
        label_stack(a, exits, payload, labelled);
        if !is_last {
            a.place(tag);
        }
    }
    a.place(labelled);
    pseudowire(a, exits);
}

/// Six bytes of PPPoE, then PPP's protocol number in two bytes, or in one byte if that is odd.
fn pppoe_session(a: &mut Assembler, exits: &Exits, start: u32) {
    a.step(BpfStep::LoadHalf(start + 6));
    a.step(BpfStep::LoadIndex(start + 8));
    a.jump_if(BpfTest::Equal(link::PPP_IPV4.into()), exits.v4);
    a.jump_if(BpfTest::Equal(link::PPP_IPV6.into()), exits.v6);
    for number in RARE_PPP_TYPES {
        a.jump_if(BpfTest::Equal(number.into()), exits.take);
    }
    a.step(BpfStep::LoadByte(start + 6));
    a.step(BpfStep::LoadIndex(start + 7));
    a.jump_if(BpfTest::Equal(link::PPP_IPV4.into()), exits.v4);
    a.jump_if(BpfTest::Equal(link::PPP_IPV6.into()), exits.v6);
    a.jump(exits.refuse);
}

/// Labels of four bytes, of which the last is marked; the code at `labelled` continues behind it, at X.
fn label_stack(a: &mut Assembler, exits: &Exits, start: u32, labelled: BpfLabel) {
    const BOTTOM_OF_STACK: u32 = 1;
    for label in 0..LIVE_FILTER_LABEL_COUNT {
        let end = start + 4 * (label + 1);
        a.step(BpfStep::LoadIndex(end));
        a.step(BpfStep::LoadByte(end - 2));
        a.jump_if(BpfTest::AnyBits(BOTTOM_OF_STACK), labelled);
    }
    a.jump(exits.take);
}

/// Behind labels, what begins with four zero bits is not IP: the control word of a pseudowire, or the Ethernet header
/// in it. The code that follows asks which IP it is.
fn pseudowire(a: &mut Assembler, exits: &Exits) {
    a.step(BpfStep::LoadByteIndexed(0));
    a.step(BpfStep::And(0xf0));
    a.jump_if(BpfTest::Equal(0), exits.take);
}

/// IPv4 or IPv6 at X, by the first four bits.
fn ip(a: &mut Assembler, exits: &Exits) {
    a.step(BpfStep::LoadByteIndexed(0));
    a.step(BpfStep::And(0xf0));
    a.jump_if(BpfTest::Equal(0x40), exits.v4);
    a.jump_if(BpfTest::Equal(0x60), exits.v6);
    a.jump(exits.refuse);
}

fn ipv4(a: &mut Assembler, exits: &Exits, only_flags: bool) {
    let tcp = a.label();
    a.place(exits.v4);
    a.step(BpfStep::LoadHalfIndexed(6));
    a.jump_if(BpfTest::AnyBits(IPV4_FRAGMENT_OFFSET.into()), exits.refuse);
    a.step(BpfStep::LoadByteIndexed(9));
    a.jump_if(is_protocol(Protocol::TCP), tcp);
    a.jump_if(is_protocol(Protocol::AUTHENTICATION), exits.take);
    a.jump(exits.refuse);
    a.place(tcp);
    if only_flags {
        // The header's size is given in words of four bytes.
        a.step(BpfStep::LoadByteIndexed(0));
        a.step(BpfStep::And(0x0f));
        a.step(BpfStep::ShiftLeft(2));
        a.step(BpfStep::AddIndex);
        a.step(BpfStep::IndexFromA);
        flag_byte(a, exits, 0);
    } else {
        a.jump(exits.take);
    }
}

fn ipv6(a: &mut Assembler, exits: &Exits, only_flags: bool) {
    const IPV6_SIZE: u32 = 40;
    let tcp = a.label();
    a.place(exits.v6);
    a.step(BpfStep::LoadByteIndexed(6));
    a.jump_if(is_protocol(Protocol::TCP), tcp);
    for extension in IPV6_EXTENSIONS {
        a.jump_if(is_protocol(extension), exits.take);
    }
    a.jump(exits.refuse);
    a.place(tcp);
    if only_flags {
        flag_byte(a, exits, IPV6_SIZE);
    } else {
        a.jump(exits.take);
    }
}

/// The flags of a TCP header that begins at X plus `start`.
fn flag_byte(a: &mut Assembler, exits: &Exits, start: u32) {
    a.step(BpfStep::LoadByteIndexed(start + 13));
    a.jump_if(BpfTest::AnyBits(OPENING_AND_CLOSING_FLAGS.into()), exits.take);
    a.jump(exits.refuse);
}
