//! The filters of `--capture`: which packets the kernel hands over.
//!
//! What enters: the link type of an interface. What leaves: the program. All programs pass what the parser could make
//! something of and they can not decide: IPv6 with extension headers, deep stacks of tags and labels, rare tags, Ethernet inside
//! of Ethernet. They hold back what has no TCP header of its own: other protocols, later fragments, and whatever is inside of
//! tunnels over IP.

use super::BpfProgram;
use super::assembler::{Assembler, Label, Step, Test};
use crate::config::{LIVE_FILTER_LABEL_COUNT, LIVE_FILTER_TAG_COUNT, LIVE_SNAP_SIZE, LIVE_TUNNEL_SNAP_SIZE};
use crate::parse::LinkType;

const VLAN_TYPES: [u32; 3] = [0x8100, 0x88a8, 0x9100];
const MPLS_TYPES: [u32; 2] = [0x8847, 0x8848];
const IPV4_TYPE: u32 = 0x0800;
const IPV6_TYPE: u32 = 0x86dd;
const PPPOE_SESSION_TYPE: u32 = 0x8864;
/// Ethernet in Ethernet (transparent, and 802.1ah), Cisco metadata, VN-Tag: rare enough for the parser to decide them all.
const RARE_TYPES: [u32; 4] = [0x6558, 0x88e7, 0x8909, 0x8926];
/// PPP's numbers for IPv4 and IPv6.
const PPP_IPV4: u32 = 0x21;
const PPP_IPV6: u32 = 0x57;
/// MPLS in PPP, and PPP's address and control, which stand before its number where both ends keep them.
const RARE_PPP_TYPES: [u32; 3] = [0x0281, 0x0283, 0xff03];
/// Up to this an EtherType is a length, and logical link control follows.
const LENGTH_MAX: u32 = 1500;
/// The access points of SNAP and of IP.
const LLC_ACCESS_POINTS: [u32; 2] = [0xaaaa, 0x0606];
const TCP: u32 = 6;
const AUTHENTICATION: u32 = 51;
/// Hop-by-hop, routing, fragment, authentication, destination options, mobility, host identity, shim6. What is encrypted can
/// not be read behind its header.
const IPV6_EXTENSIONS: [u32; 8] = [0, 43, 44, AUTHENTICATION, 60, 135, 139, 140];
const FRAGMENT_OFFSET: u32 = 0x1fff;
/// FIN, SYN and RST.
const OPENING_AND_CLOSING_FLAGS: u32 = 0x07;

/// Where the ways through a filter meet.
struct Exits {
    /// IPv4 at X.
    v4: Label,
    /// IPv6 at X.
    v6: Label,
    /// The packet is taken.
    take: Label,
    /// It is not.
    refuse: Label,
}

/// Takes nothing: for a socket that is not ready yet.
#[must_use]
pub(in crate::capture::live) fn nothing() -> BpfProgram {
    verdict(0)
}

/// Takes every packet, for whatever tunnels may hold.
#[must_use]
pub(in crate::capture::live) fn everything() -> BpfProgram {
    verdict(LIVE_TUNNEL_SNAP_SIZE)
}

/// Takes the headers of every TCP packet.
#[must_use]
pub(in crate::capture::live) fn headers(link: LinkType) -> BpfProgram {
    tcp(link, false)
}

/// Takes the headers of TCP packets that open or close: with SYN, FIN or RST.
#[must_use]
pub(in crate::capture::live) fn flags(link: LinkType) -> BpfProgram {
    tcp(link, true)
}

fn verdict(size: u32) -> BpfProgram {
    let mut assembler = Assembler::default();
    assembler.step(Step::Return(size));
    assembler.finish()
}

fn tcp(link: LinkType, only_flags: bool) -> BpfProgram {
    let mut a = Assembler::default();
    let exits = Exits { v4: a.label(), v6: a.label(), take: a.label(), refuse: a.label() };
    if link == LinkType::ETHERNET {
        ethernet(&mut a, &exits);
    } else {
        a.step(Step::LoadIndex(0));
    }
    ip(&mut a, &exits);
    ipv4(&mut a, &exits, only_flags);
    ipv6(&mut a, &exits, only_flags);
    a.place(exits.take);
    a.step(Step::Return(LIVE_SNAP_SIZE));
    a.place(exits.refuse);
    a.step(Step::Return(0));
    a.finish()
}

/// The EtherType, and those behind so many tags. Every tag has its own copy of the code, so that all places are fixed.
fn ethernet(a: &mut Assembler, exits: &Exits) {
    let labelled = a.label();
    for tag_count in 0..=LIVE_FILTER_TAG_COUNT {
        let payload = 14 + 4 * tag_count;
        let [tag, pppoe, mpls] = std::array::from_fn(|_| a.label());
        a.step(Step::LoadHalf(payload - 2));
        a.step(Step::LoadIndex(payload));
        a.jump_if(Test::Equal(IPV4_TYPE), exits.v4);
        a.jump_if(Test::Equal(IPV6_TYPE), exits.v6);
        let is_last = tag_count == LIVE_FILTER_TAG_COUNT;
        for ether_type in VLAN_TYPES {
            a.jump_if(Test::Equal(ether_type), if is_last { exits.take } else { tag });
        }
        a.jump_if(Test::Equal(PPPOE_SESSION_TYPE), pppoe);
        for ether_type in MPLS_TYPES {
            a.jump_if(Test::Equal(ether_type), mpls);
        }
        for ether_type in RARE_TYPES {
            a.jump_if(Test::Equal(ether_type), exits.take);
        }
        a.jump_if(Test::Greater(LENGTH_MAX), exits.refuse);
        a.step(Step::LoadHalf(payload));
        for access_point in LLC_ACCESS_POINTS {
            a.jump_if(Test::Equal(access_point), exits.take);
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

/// Six bytes of PPPoE, then PPP's protocol number in two, or in one when that is odd.
fn pppoe_session(a: &mut Assembler, exits: &Exits, start: u32) {
    a.step(Step::LoadHalf(start + 6));
    a.step(Step::LoadIndex(start + 8));
    a.jump_if(Test::Equal(PPP_IPV4), exits.v4);
    a.jump_if(Test::Equal(PPP_IPV6), exits.v6);
    for number in RARE_PPP_TYPES {
        a.jump_if(Test::Equal(number), exits.take);
    }
    a.step(Step::LoadByte(start + 6));
    a.step(Step::LoadIndex(start + 7));
    a.jump_if(Test::Equal(PPP_IPV4), exits.v4);
    a.jump_if(Test::Equal(PPP_IPV6), exits.v6);
    a.jump(exits.refuse);
}

/// Labels of four bytes, of which the last is marked; behind it `labelled` goes on, at X.
fn label_stack(a: &mut Assembler, exits: &Exits, start: u32, labelled: Label) {
    const BOTTOM_OF_STACK: u32 = 1;
    for label in 0..LIVE_FILTER_LABEL_COUNT {
        let end = start + 4 * (label + 1);
        a.step(Step::LoadIndex(end));
        a.step(Step::LoadByte(end - 2));
        a.jump_if(Test::AnyBits(BOTTOM_OF_STACK), labelled);
    }
    a.jump(exits.take);
}

/// Behind labels zero bits begin what is no IP: the control word of a pseudowire, or the Ethernet header in it. What follows in
/// the program asks which IP it is.
fn pseudowire(a: &mut Assembler, exits: &Exits) {
    a.step(Step::LoadByteIndexed(0));
    a.step(Step::And(0xf0));
    a.jump_if(Test::Equal(0), exits.take);
}

/// IPv4 or IPv6 at X, by the first four bits.
fn ip(a: &mut Assembler, exits: &Exits) {
    a.step(Step::LoadByteIndexed(0));
    a.step(Step::And(0xf0));
    a.jump_if(Test::Equal(0x40), exits.v4);
    a.jump_if(Test::Equal(0x60), exits.v6);
    a.jump(exits.refuse);
}

fn ipv4(a: &mut Assembler, exits: &Exits, only_flags: bool) {
    let tcp = a.label();
    a.place(exits.v4);
    a.step(Step::LoadHalfIndexed(6));
    a.jump_if(Test::AnyBits(FRAGMENT_OFFSET), exits.refuse);
    a.step(Step::LoadByteIndexed(9));
    a.jump_if(Test::Equal(TCP), tcp);
    a.jump_if(Test::Equal(AUTHENTICATION), exits.take);
    a.jump(exits.refuse);
    a.place(tcp);
    if only_flags {
        // The header's size is given in words of four bytes.
        a.step(Step::LoadByteIndexed(0));
        a.step(Step::And(0x0f));
        a.step(Step::ShiftLeft(2));
        a.step(Step::AddIndex);
        a.step(Step::IndexFromA);
        flag_byte(a, exits, 0);
    } else {
        a.jump(exits.take);
    }
}

fn ipv6(a: &mut Assembler, exits: &Exits, only_flags: bool) {
    const IPV6_SIZE: u32 = 40;
    let tcp = a.label();
    a.place(exits.v6);
    a.step(Step::LoadByteIndexed(6));
    a.jump_if(Test::Equal(TCP), tcp);
    for extension in IPV6_EXTENSIONS {
        a.jump_if(Test::Equal(extension), exits.take);
    }
    a.jump(exits.refuse);
    a.place(tcp);
    if only_flags {
        flag_byte(a, exits, IPV6_SIZE);
    } else {
        a.jump(exits.take);
    }
}

/// The flags of a TCP header that begins so far behind X.
fn flag_byte(a: &mut Assembler, exits: &Exits, start: u32) {
    a.step(Step::LoadByteIndexed(start + 13));
    a.jump_if(Test::AnyBits(OPENING_AND_CLOSING_FLAGS), exits.take);
    a.jump(exits.refuse);
}
