//! Frames built header by header from the inside out, one for each way to carry TCP.

use crate::flow::VlanTags;
use crate::parse::{Addresses, LinkType, TcpSegment};

/// A frame and what has to be read from it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) link: LinkType,
    pub(crate) frame: Vec<u8>,
    pub(crate) segment: TcpSegment,
}

/// The addresses of the innermost IPv4 header; the tunnels around it have others.
pub(super) const INNER: Addresses = Addresses::V4 { src: 0x0a01_0203, dst: 0xc0a8_0a14 };
const INNER_V6: Addresses =
    Addresses::V6 { src: 0x2001_0db8_0000_0001_0000_0000_0000_000a, dst: 0x2001_0db8_0000_0002_0000_0000_0000_000b };

fn segment(addresses: Addresses, tags: &[u16]) -> TcpSegment {
    TcpSegment {
        addresses,
        src_port: 40_000,
        dst_port: 443,
        vlan: tags.iter().fold(VlanTags::NONE, |vlan, &tag| vlan.with(tag)),
        // With the ECN echo, which the parser passes on and nothing here asks for.
        flags: TcpSegment::SYN | 0x40,
        seq: 0xdead_beef,
        ack: 0x0102_0304,
        payload_size: Some(3),
    }
}

pub(super) fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// A header with four bytes of options, and three bytes of data.
pub(super) fn tcp() -> Vec<u8> {
    let s = segment(INNER, &[]);
    let ports = [s.src_port.to_be_bytes(), s.dst_port.to_be_bytes()].concat();
    let numbers = [s.seq.to_be_bytes(), s.ack.to_be_bytes()].concat();
    join(&[&ports, &numbers, &[0x60, s.flags, 0xff, 0xff, 0, 0, 0, 0], &[2, 4, 5, 0xb4], b"abc"])
}

fn u16_of(size: usize) -> [u8; 2] {
    u16::try_from(size).expect("a test frame is small").to_be_bytes()
}

/// IPv4 with these options (whole words), flags and offset, and payload.
pub(super) fn ipv4_with(protocol: u8, options: &[u8], fragment: u16, addresses: (u32, u32), payload: &[u8]) -> Vec<u8> {
    let version_and_length = 0x40 | u8::try_from(5 + options.len() / 4).expect("at most ten words of options");
    let total = u16_of(20 + options.len() + payload.len());
    join(&[
        &[version_and_length, 0],
        &total,
        &[0, 7],
        &fragment.to_be_bytes(),
        &[64, protocol, 0, 0],
        &addresses.0.to_be_bytes(),
        &addresses.1.to_be_bytes(),
        options,
        payload,
    ])
}

pub(super) fn ipv4() -> Vec<u8> {
    let Addresses::V4 { src, dst } = INNER else { unreachable!("INNER is IPv4") };
    ipv4_with(6, &[], 0x4000, (src, dst), &tcp())
}

/// IPv4 of a tunnel.
pub(super) fn outer(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with(protocol, &[], 0, (0x6401_0101, 0x6401_0102), payload)
}

pub(super) fn ipv6_with(next: u8, payload: &[u8]) -> Vec<u8> {
    let Addresses::V6 { src, dst } = INNER_V6 else { unreachable!("INNER_V6 is IPv6") };
    join(&[&[0x60, 0, 0, 0], &u16_of(payload.len()), &[next, 64], &src.to_be_bytes(), &dst.to_be_bytes(), payload])
}

pub(super) fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ether_type.to_be_bytes(), payload])
}

pub(super) fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[0xc0, 0x00], &port.to_be_bytes(), &u16_of(8 + payload.len()), &[0, 0], payload])
}

/// A UDP datagram from this port.
fn udp_from(port: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&port.to_be_bytes(), &[0xc0, 0x00], &u16_of(8 + payload.len()), &[0, 0], payload])
}

/// An 802.11 frame with this frame control, fragment number, and header behind the sequence number, around a payload
/// with an EtherType of its own.
pub(super) fn wlan(control: [u8; 2], fragment: u8, more: &[u8], payload: &[u8]) -> Vec<u8> {
    join(&[&control, &[0, 0], &[2; 18], &[0x50 | fragment, 1], more, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], payload])
}

fn tunnelled(protocol: u8, header: &[u8], payload: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &outer(protocol, &join(&[header, payload])))
}

pub(super) fn over_udp(port: u16, header: &[u8], payload: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &outer(17, &udp(port, &join(&[header, payload]))))
}

fn case(name: &'static str, frame: Vec<u8>) -> Case {
    Case { name, link: LinkType::ETHERNET, frame, segment: segment(INNER, &[]) }
}

/// The case of a packet whose headers do not say how much data it has.
fn unknown_size(case: Case) -> Case {
    Case { segment: TcpSegment { payload_size: None, ..case.segment }, ..case }
}

fn tagged(name: &'static str, frame: Vec<u8>, tags: &[u16]) -> Case {
    Case { name, link: LinkType::ETHERNET, frame, segment: segment(INNER, tags) }
}

fn v6(name: &'static str, next: u8, payload: &[u8]) -> Case {
    let frame = ethernet(0x86dd, &ipv6_with(next, payload));
    Case { name, link: LinkType::ETHERNET, frame, segment: segment(INNER_V6, &[]) }
}

fn linked(name: &'static str, link: LinkType, header: &[u8]) -> Case {
    Case { name, link, frame: join(&[header, &ipv4()]), segment: segment(INNER, &[]) }
}

/// Every way to carry TCP that is read.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = untunnelled();
    cases.extend(tunnels());
    cases
}

/// Those without a tunnel over IP.
pub(crate) fn untunnelled() -> Vec<Case> {
    let mut cases = links();
    cases.extend(on_ethernet());
    cases.extend(on_ip());
    cases
}

fn links() -> Vec<Case> {
    let sll = [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x08, 0x00];
    let sll2 = [0x08, 0x00, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
    let raw_v6 = |link, header: &[u8]| Case {
        name: "IPv6 on a raw link",
        link,
        frame: join(&[header, &ipv6_with(6, &tcp())]),
        segment: segment(INNER_V6, &[]),
    };
    vec![
        linked("null, little-endian", LinkType::NULL, &[2, 0, 0, 0]),
        linked("null, big-endian", LinkType::NULL, &[0, 0, 0, 2]),
        raw_v6(LinkType::NULL, &[30, 0, 0, 0]),
        raw_v6(LinkType::NULL, &[0, 0, 0, 10]),
        raw_v6(LinkType::LOOP, &[0, 0, 0, 24]),
        raw_v6(LinkType::LOOP, &[0, 0, 0, 28]),
        linked("raw", LinkType::RAW, &[]),
        linked("raw, BSD's number", LinkType::RAW_BSD, &[]),
        linked("raw, OpenBSD's number", LinkType::RAW_OPENBSD, &[]),
        linked("IPv4", LinkType::IPV4, &[]),
        raw_v6(LinkType::RAW, &[]),
        raw_v6(LinkType::IPV6, &[]),
        linked("PPP with address and control", LinkType::PPP, &[0xff, 0x03, 0x00, 0x21]),
        linked("PPP without them", LinkType::PPP, &[0x00, 0x21]),
        linked("PPP, compressed protocol", LinkType::PPP_SERIAL, &[0xff, 0x03, 0x21]),
        linked("PPP, MPLS", LinkType::PPP, &[0x02, 0x81, 0, 0, 0x11, 64]),
        raw_v6(LinkType::PPP, &[0x57]),
        linked("Cisco HDLC as PPP_SERIAL", LinkType::PPP_SERIAL, &[0x0f, 0, 0x08, 0x00]),
        linked("PPP_ETHER", LinkType::PPP_ETHER, &[0x11, 0, 0, 9, 0, 0xff, 0x00, 0x21]),
        linked("Cisco HDLC", LinkType::C_HDLC, &[0x8f, 0, 0x08, 0x00]),
        linked("Linux cooked", LinkType::LINUX_SLL, &sll),
        linked("Linux cooked, version 2", LinkType::LINUX_SLL2, &sll2),
    ]
}

fn on_ethernet() -> Vec<Case> {
    let ip = ipv4();
    let llc = join(&[&[0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0x00], &ip]);
    let llc_size = u16::from_be_bytes(u16_of(llc.len()));
    let pppoe = |ppp: &[u8]| join(&[&[0x11, 0, 0, 9], &u16_of(ppp.len() + ip.len()), ppp, &ip]);
    let pseudowire = ethernet(0x0800, &ip);
    let mut unicast = pseudowire.clone();
    unicast[..3].copy_from_slice(&[0x00, 0x1b, 0x21]);
    vec![
        case("plain", ethernet(0x0800, &ip)),
        case("padded", ethernet(0x0800, &join(&[&ip, &[0; 9]]))),
        tagged("802.1Q", ethernet(0x8100, &join(&[&[0x20, 10, 0x08, 0x00], &ip])), &[10]),
        tagged("priority tag", ethernet(0x8100, &join(&[&[0xe0, 0, 0x08, 0x00], &ip])), &[]),
        tagged("802.1ad", ethernet(0x88a8, &join(&[&[0, 7, 0x81, 0, 0, 8, 0x08, 0x00], &ip])), &[7, 8]),
        tagged(
            "three tags",
            ethernet(0x9100, &join(&[&[0, 1, 0x91, 0, 0, 2, 0x81, 0, 0, 3, 0x08, 0x00], &ip])),
            &[1, 2],
        ),
        tagged(
            "802.1ah",
            ethernet(
                0x88a8,
                &join(&[&[0, 5, 0x88, 0xe7, 0, 1, 2, 3], &ethernet(0x8100, &join(&[&[0, 6, 8, 0], &ip]))]),
            ),
            &[5, 6],
        ),
        case("Cisco metadata", ethernet(0x8909, &join(&[&[1, 1, 0, 1, 0, 2, 0x08, 0x00], &ip]))),
        tagged("VN-Tag", ethernet(0x8926, &join(&[&[0, 0, 0, 0x33, 0x81, 0, 0, 250, 8, 0], &ip])), &[250]),
        case("LLC and SNAP", ethernet(llc_size, &join(&[&llc, &[0; 5]]))),
        case("MPLS", ethernet(0x8847, &join(&[&[0, 1, 0x10, 64, 0, 2, 0x11, 64], &ip]))),
        case("MPLS pseudowire", ethernet(0x8847, &join(&[&[0, 1, 0x11, 64, 0, 0, 0, 1], &pseudowire]))),
        case("the same without control word", ethernet(0x8848, &join(&[&[0, 1, 0x11, 64], &unicast]))),
        case("transparent Ethernet", ethernet(0x6558, &pseudowire)),
        case("PPPoE", ethernet(0x8864, &join(&[&pppoe(&[0x00, 0x21]), &[0; 4]]))),
        case("PPPoE, compressed protocol", ethernet(0x8864, &pppoe(&[0x21]))),
        case("PPPoE with address and control", ethernet(0x8864, &pppoe(&[0xff, 0x03, 0x00, 0x21]))),
        case("PPPoE, MPLS", ethernet(0x8864, &pppoe(&[0x02, 0x81, 0, 0, 0x11, 64]))),
        case("PPPoE, MPLS multicast", ethernet(0x8864, &pppoe(&[0x02, 0x83, 0, 0, 0x11, 64]))),
    ]
}

fn on_ip() -> Vec<Case> {
    let Addresses::V4 { src, dst } = INNER else { unreachable!("INNER is IPv4") };
    let ah = join(&[&[6, 4, 0, 0], &[0; 20], &tcp()]);
    let chain = join(&[
        &[43, 0, 1, 4, 0, 0, 0, 0],
        &[60, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[44, 0, 1, 4, 0, 0, 0, 0],
        &[51, 0, 0, 0, 0, 0, 0, 9],
        &ah,
    ]);
    let newer = [[139, 0, 0, 0, 0, 0, 0, 0], [140, 0, 0, 0, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0, 0, 0]].concat();
    let mut unsegmented = ipv4();
    unsegmented[2..4].fill(0);
    let mut jumbo = ipv6_with(6, &tcp());
    jumbo[4..6].fill(0);
    let mut cases = vec![
        case("IPv4 options", ethernet(0x0800, &ipv4_with(6, &[1; 12], 0, (src, dst), &tcp()))),
        unknown_size(case("first fragment", ethernet(0x0800, &ipv4_with(6, &[], 0x2000, (src, dst), &tcp())))),
        case("AH in IPv4", ethernet(0x0800, &ipv4_with(51, &[], 0, (src, dst), &ah))),
        unknown_size(case("total length 0", ethernet(0x0800, &unsegmented))),
        v6("plain IPv6", 6, &tcp()),
        v6("IPv6 extension headers", 0, &chain),
        unknown_size(v6("first IPv6 fragment", 44, &join(&[&[6, 0, 0, 1, 0, 0, 0, 9], &tcp()]))),
        v6("AH in IPv6", 51, &ah),
        v6("mobility, host identity and shim6", 135, &join(&[&newer, &tcp()])),
    ];
    cases.push(unknown_size(Case { frame: ethernet(0x86dd, &jumbo), ..v6("payload length 0", 6, &[]) }));
    cases
}

pub(crate) fn tunnels() -> Vec<Case> {
    let mut cases = wired_tunnels();
    cases.extend(wireless_tunnels());
    cases
}

/// The tunnels between access points and their controllers.
fn wireless_tunnels() -> Vec<Case> {
    let ip = ipv4();
    let frame = ethernet(0x0800, &ip);
    let header = |kind, flags| [0, 0x10, kind, flags, 0, 7, 0, 0];
    // The addresses of the radio, and what it measured.
    let radio = [6, 2, 2, 2, 2, 2, 2, 0, 4, 1, 2, 3, 4, 0, 0, 0];
    let long = join(&[&[0, 0x30, 0x43, 0x30, 0, 0, 0, 0], &radio]);
    let capwap = |control, more: &[u8]| over_udp(5247, &header(3, 0), &wlan(control, 0, more, &ip));
    let from_controller = udp_from(5247, &join(&[&header(2, 0), &frame]));
    vec![
        case("CAPWAP, 802.3", over_udp(5247, &header(2, 0), &frame)),
        case("CAPWAP from the controller", ethernet(0x0800, &outer(17, &from_controller))),
        case("CAPWAP, 802.11", capwap([0x08, 0x01], &[])),
        case("CAPWAP, with the radio's part", over_udp(5247, &long, &wlan([0x88, 0x0a], 0, &[5, 0], &ip))),
        case("CAPWAP, four addresses", capwap([0x08, 0x03], &[2; 6])),
        case("CAPWAP, all of 802.11", capwap([0x88, 0x83], &[2, 2, 2, 2, 2, 2, 0, 0, 1, 2, 3, 4])),
        case("CAPWAP, bytes of frame control swapped", capwap([0x02, 0x88], &[5, 0])),
        case("CAPWAP, first fragment", over_udp(5247, &header(2, 0x80), &frame)),
        case("CAPWAP, first fragment of 802.11", capwap([0x08, 0x05], &[])),
        case("802.11 in GRE", tunnelled(47, &[0, 0, 0x82, 0], &wlan([0x08, 0x02], 0, &[], &ip))),
        case("802.11 in GRE, last type", tunnelled(47, &[0, 0, 0x83, 0x70], &wlan([0x88, 0x01], 0, &[0, 0], &ip))),
        case(
            "802.11 in GRE, other type",
            tunnelled(47, &[0x20, 0, 0x90, 0, 0, 0, 0, 9], &wlan([0x08, 1], 0, &[], &ip)),
        ),
    ]
}

fn wired_tunnels() -> Vec<Case> {
    let ip = ipv4();
    let frame = ethernet(0x0800, &ip);
    let erspan_three = [0x20, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let gtp_size = |extra: usize| u16_of(ip.len() + extra);
    let gtp = |flags, extra: &[u8]| join(&[&[flags, 0xff], &gtp_size(extra.len()), &[0, 0, 0, 1], extra]);
    let v6_in_v4 = ethernet(0x0800, &outer(41, &ipv6_with(6, &tcp())));
    vec![
        case("IPIP", tunnelled(4, &[], &ip)),
        Case { frame: v6_in_v4, ..v6("6in4", 6, &[]) },
        case("IPv4 in IPv6", ethernet(0x86dd, &ipv6_with(4, &ip))),
        case("GRE", tunnelled(47, &[0, 0, 0x08, 0x00], &ip)),
        case("GRE with all fields", tunnelled(47, &[0xb0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2], &ip)),
        case("NVGRE", tunnelled(47, &[0x20, 0, 0x65, 0x58, 0, 0, 1, 0], &frame)),
        case("GRE, MPLS", tunnelled(47, &[0, 0, 0x88, 0x47, 0, 0, 0x11, 64], &ip)),
        case("ERSPAN I", tunnelled(47, &[0, 0, 0x88, 0xbe], &frame)),
        case("ERSPAN II", tunnelled(47, &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 1, 0, 0, 0, 1], &frame)),
        case("ERSPAN III", tunnelled(47, &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1], &join(&[&erspan_three, &frame]))),
        case("PPTP", tunnelled(47, &[0x30, 0x81, 0x88, 0x0b, 0, 9, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0x21], &ip)),
        case("VXLAN", over_udp(4789, &[8, 0, 0, 0, 0, 0, 1, 0], &frame)),
        case("VXLAN with a group policy", over_udp(8472, &[0x88, 0, 0, 9, 0, 0, 1, 0], &frame)),
        case("VXLAN-GPE", over_udp(4790, &[0x0c, 0, 0, 1, 0, 0, 1, 0], &ip)),
        case("Geneve", over_udp(6081, &[0, 0, 0x65, 0x58, 0, 0, 1, 0], &frame)),
        case("Geneve with options", over_udp(6081, &[2, 0, 8, 0, 0, 0, 1, 0, 0, 1, 0, 1, 9, 9, 9, 9], &ip)),
        case("GTP-U", over_udp(2152, &gtp(0x30, &[]), &ip)),
        case("GTP-U with a sequence number", over_udp(2152, &gtp(0x32, &[0, 1, 0, 0x85]), &ip)),
        case("GTP-U extensions", over_udp(2152, &gtp(0x34, &[0, 0, 0, 0x85, 1, 0, 9, 0xc0, 1, 1, 1, 0]), &ip)),
    ]
}
