//! Every encapsulation whole, cut and damaged, and the two paths against each other.

pub(crate) mod frames;

use super::LAYER_COUNT_MAX;
use super::{Addresses, LinkType, TcpSegment, Unusable, fast, parse_captured, parse_frame, walk};
use frames::{Case, cases, ethernet, ipv4, ipv6_with, join, outer, over_udp, tcp, udp, wlan};
use pnet::packet::Packet;
use pnet::packet::ethernet::EthernetPacket;
use pnet::packet::ipv4::Ipv4Packet;
use pnet::packet::tcp::TcpPacket;
use proptest::prelude::*;

fn on_ethernet(ether_type: u16, payload: &[u8]) -> Result<TcpSegment, Unusable> {
    parse_frame(LinkType::ETHERNET, &ethernet(ether_type, payload))
}

#[test]
fn every_encapsulation_gives_its_innermost_tcp_header() {
    for Case { name, link, frame, segment } in cases() {
        assert_eq!(parse_frame(link, &frame), Ok(segment), "{name}");
        assert_eq!(walk(link, &frame, frame.len()), Ok(segment), "{name}");
    }
}

#[test]
fn every_supported_link_type_has_a_case() {
    for link in LinkType::SUPPORTED {
        assert!(cases().iter().any(|case| case.link == link), "{link}");
    }
}

#[test]
fn a_cut_frame_gives_the_same_segment_or_none() {
    for Case { name, link, frame, segment } in cases() {
        let mut size_needed = None;
        for size in 0..=frame.len() {
            match parse_captured(link, &frame[..size], frame.len()) {
                Ok(cut) => {
                    assert_eq!(cut, segment, "{name}, {size} bytes");
                    size_needed.get_or_insert(size);
                }
                Err(reason) => {
                    assert_eq!(reason, Unusable::CutShort, "{name}, {size} bytes");
                    assert_eq!(size_needed, None, "{name}: readable at fewer bytes than {size}");
                }
            }
        }
        let tcp_at = frame.windows(tcp().len()).position(|bytes| bytes == tcp()).expect("each case ends in TCP");
        assert_eq!(size_needed, Some(tcp_at + 14), "{name}: the flags are the last byte that is needed");
    }
}

#[test]
fn a_frame_that_ended_on_the_wire_is_malformed_and_not_cut() {
    for Case { name, link, frame, segment } in cases() {
        for size in 0..frame.len() {
            match parse_frame(link, &frame[..size]) {
                Ok(whole) => assert_eq!(whole, segment, "{name}, {size} bytes"),
                Err(reason) => assert_ne!(reason, Unusable::CutShort, "{name}, {size} bytes"),
            }
            // As much as was captured, or less, is all that there was.
            let claimed = parse_captured(link, &frame[..size], size / 2);
            assert_eq!(claimed, parse_frame(link, &frame[..size]), "{name}, {size} bytes");
        }
    }
}

#[test]
fn a_cut_before_the_protocol_is_known_is_a_cut_and_behind_it_is_none() {
    let udp = ethernet(0x0800, &outer(17, &udp(53, &[0; 40])));
    let icmp = ethernet(0x86dd, &ipv6_with(58, &[0; 40]));
    let arp = ethernet(0x0806, &[0; 28]);
    for (name, frame, needed, reason) in [
        ("UDP", udp, 14 + 20 + 4, Unusable::NotTcp),
        ("ICMP in IPv6", icmp, 14 + 40, Unusable::NotTcp),
        ("ARP", arp, 14, Unusable::NotIp),
    ] {
        for size in 0..=frame.len() {
            let expected = if size < needed { Unusable::CutShort } else { reason };
            let cut = parse_captured(LinkType::ETHERNET, &frame[..size], frame.len());
            assert_eq!(cut, Err(expected), "{name}, {size} bytes");
        }
    }
}

#[test]
fn what_a_cut_frame_did_not_have_on_the_wire_is_malformed() {
    // The IPv4 header says that there are 40 bytes, and there were 33.
    let frame = &ethernet(0x0800, &ipv4())[..14 + 33];
    for size in 14 + 20..frame.len() {
        let cut = parse_captured(LinkType::ETHERNET, &frame[..size], frame.len());
        assert_eq!(cut, Err(Unusable::MalformedTcp), "{size} bytes");
    }
    let tiny = frames::ipv4_with(6, &[], 0x2000, (1, 2), &tcp()[..8]);
    assert_eq!(on_ethernet(0x0800, &tiny), Err(Unusable::MalformedTcp), "a first fragment that ends before the flags");
}

#[test]
fn the_common_frames_take_the_fast_path() {
    for case in cases() {
        let plain = ["plain", "padded", "plain IPv6"].contains(&case.name);
        let taken = case.link == LinkType::ETHERNET && fast::plain_ethernet(&case.frame).is_some();
        assert_eq!(taken, plain, "{}", case.name);
    }
}

#[test]
fn an_independent_parser_reads_the_same() {
    let frame = ethernet(0x0800, &ipv4());
    let link = EthernetPacket::new(&frame).expect("long enough");
    let ip = Ipv4Packet::new(link.payload()).expect("long enough");
    let tcp = TcpPacket::new(ip.payload()).expect("long enough");
    let segment = parse_frame(LinkType::ETHERNET, &frame).expect("plain TCP");
    assert_eq!(
        segment.addresses,
        Addresses::V4 { src: ip.get_source().to_bits(), dst: ip.get_destination().to_bits() }
    );
    assert_eq!((segment.src_port, segment.dst_port), (tcp.get_source(), tcp.get_destination()));
    assert_eq!((segment.seq, segment.ack), (tcp.get_sequence(), tcp.get_acknowledgement()));
    assert_eq!(segment.flags, tcp.get_flags());
}

#[test]
fn traffic_without_tcp_is_not_damage() {
    let frame = ethernet(0x0800, &ipv4());
    let icmp_quote = join(&[&[3, 3, 0, 0, 0, 0, 0, 0], &ipv4()]);
    let checks = [
        ("ARP", Unusable::NotIp, on_ethernet(0x0806, &[0; 28])),
        ("spanning tree", Unusable::NotIp, on_ethernet(38, &[0x42; 46])),
        ("PPPoE discovery", Unusable::NotIp, on_ethernet(0x8864, &[0x11, 9, 0, 0, 0, 0])),
        ("LCP", Unusable::NotIp, parse_frame(LinkType::PPP, &[0xff, 3, 0xc0, 0x21, 1, 1])),
        ("netlink", Unusable::NotIp, parse_frame(LinkType::NULL, &[16, 0, 0, 0])),
        ("TCP quoted by ICMP", Unusable::NotTcp, on_ethernet(0x0800, &outer(1, &icmp_quote))),
        ("no next header", Unusable::NotTcp, on_ethernet(0x86dd, &ipv6_with(59, &[]))),
        ("extension header in IPv4", Unusable::NotTcp, on_ethernet(0x0800, &outer(60, &tcp()))),
        ("UDP", Unusable::NotTcp, on_ethernet(0x0800, &outer(17, &udp(53, &frame)))),
        ("HIP in IPv4", Unusable::NotTcp, on_ethernet(0x0800, &outer(139, &[6, 0, 0, 0, 0, 0, 0, 0]))),
        ("an acknowledgement of PPTP", Unusable::NotTcp, on_ethernet(0x0800, &outer(47, &[0x20, 0x81, 0x88, 0x0b]))),
    ];
    for (name, expected, got) in checks {
        assert_eq!(got, Err(expected), "{name}");
    }
    let of_udp = |port, header: &[u8]| parse_frame(LinkType::ETHERNET, &over_udp(port, header, &frame));
    for (port, header) in [
        (4789, &[0u8, 0, 0, 0, 0, 0, 1, 0][..]),
        (6081, &[0xc0, 0, 0x65, 0x58, 0, 0, 1, 0]),
        (2152, &[0x30, 1, 0, 0, 0, 0, 0, 1]),
        (2152, &[0x34, 0xff, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0x85, 0]),
        // Another version, a header without its first words, and a message that keeps the tunnel alive.
        (5247, &[0x10, 0x10, 2, 0, 0, 0, 0, 0]),
        (5247, &[0, 0x08, 2, 0, 0, 0, 0, 0]),
        (5247, &[0, 0x10, 2, 0x08, 0, 0, 0, 0]),
        // The key exchange of IPsec.
        (4500, &[0, 0, 0, 0, 1, 2, 3, 4]),
    ] {
        assert_eq!(of_udp(port, header), Err(Unusable::NotTcp), "{port} {header:?}");
    }
    for (port, payload) in [(4789, &[8u8, 0, 0][..]), (4500, &[0xff]), (5247, &[0, 0x10, 2])] {
        let short = ethernet(0x0800, &outer(17, &udp(port, payload)));
        assert_eq!(parse_frame(LinkType::ETHERNET, &join(&[&short, &[0; 15]])), Err(Unusable::NotTcp), "{port}");
    }
}

/// An 802.11 frame with this frame control, fragment number, and more of a header, in CAPWAP.
fn in_capwap(control: [u8; 2], fragment: u8, more: &[u8]) -> Result<TcpSegment, Unusable> {
    let frame = wlan(control, fragment, more, &ipv4());
    parse_frame(LinkType::ETHERNET, &over_udp(5247, &[0, 0x10, 3, 0, 0, 0, 0, 0], &frame))
}

#[test]
fn the_packets_of_a_tunnel_that_is_not_opened_are_counted_as_such() {
    let ip = ipv4();
    let frame = ethernet(0x0800, &ip);
    let gre = |header: &[u8]| on_ethernet(0x0800, &outer(47, &join(&[header, &ip])));
    let of_udp = |port, header: &[u8]| parse_frame(LinkType::ETHERNET, &over_udp(port, header, &frame));
    let checks = [
        ("ESP", on_ethernet(0x0800, &outer(50, &tcp()))),
        ("ESP in IPv6", on_ethernet(0x86dd, &ipv6_with(50, &tcp()))),
        ("ESP in UDP", of_udp(4500, &[0, 0, 0, 1, 0, 0, 0, 1])),
        ("IPComp", on_ethernet(0x0800, &outer(108, &tcp()))),
        ("L2TP", on_ethernet(0x0800, &outer(115, &tcp()))),
        ("L2TP in UDP", of_udp(1701, &[0, 2, 0, 1, 0, 1])),
        ("Teredo", of_udp(3544, &[])),
        ("MPLS in UDP", of_udp(6635, &[0, 1, 0x11, 64])),
        ("network service header in VXLAN-GPE", of_udp(4790, &[0x0c, 0, 0, 4, 0, 0, 1, 0])),
        ("GRE with source routes", gre(&[0x40, 0, 8, 0])),
        ("GRE of version 2", gre(&[0, 2, 8, 0])),
        ("GRE of version 1 that is not PPTP's", gre(&[0x20, 1, 0x64, 0, 0, 9, 0, 1])),
        ("CAPWAP under DTLS", of_udp(5247, &[1, 0, 0, 0, 23, 0xfe, 0xfd])),
        ("CAPWAP of another radio", of_udp(5247, &[0, 0x10, 7, 0, 0, 0, 0, 0])),
        ("encrypted 802.11", in_capwap([0x08, 0x41], 0, &[])),
        ("encrypted 802.11, bytes swapped", in_capwap([0x42, 0x88], 0, &[0, 0])),
        ("an aggregate of 802.11", in_capwap([0x88, 0x01], 0, &[0x80, 0])),
        ("encrypted 802.11 in GRE", gre(&join(&[&[0, 0, 0x82, 0x10], &wlan([0x88, 0x41], 0, &[0, 0], &[])]))),
    ];
    for (name, got) in checks {
        assert_eq!(got, Err(Unusable::UnopenedTunnel), "{name}");
    }
    assert!(Unusable::UnopenedTunnel.is_ordinary());
}

#[test]
fn of_802_11_only_whole_data_frames_and_first_fragments_are_read() {
    for (name, expected, got) in [
        ("beacon", Unusable::NotIp, in_capwap([0x80, 0], 0, &[])),
        ("acknowledgement", Unusable::NotIp, in_capwap([0xd4, 0], 0, &[])),
        ("no data", Unusable::NotIp, in_capwap([0x48, 1], 0, &[])),
        ("no data, with quality of service", Unusable::NotIp, in_capwap([0xc8, 1], 0, &[0, 0])),
        ("another version", Unusable::NotIp, in_capwap([0x09, 1], 0, &[])),
        ("later fragment", Unusable::LaterFragment, in_capwap([0x08, 1], 3, &[])),
    ] {
        assert_eq!(got, Err(expected), "{name}");
    }
    let later = over_udp(5247, &[0, 0x10, 2, 0xc0, 0, 7, 0, 8], &ipv4());
    assert_eq!(parse_frame(LinkType::ETHERNET, &later), Err(Unusable::LaterFragment), "of CAPWAP");
    let short = over_udp(5247, &[0, 0x10, 3, 0, 0, 0, 0, 0], &[0x08, 1, 0, 0]);
    assert_eq!(parse_frame(LinkType::ETHERNET, &short), Err(Unusable::MalformedLink), "it ends in its addresses");
}

#[test]
fn damage_is_counted_where_it_is() {
    let later = |offset| frames::ipv4_with(6, &[], offset, (1, 2), &tcp());
    let with = |mut packet: Vec<u8>, at: usize, value: u8| {
        packet[at] = value;
        packet
    };
    let checks = [
        ("later fragment", Unusable::LaterFragment, on_ethernet(0x0800, &later(0x2001))),
        ("last fragment", Unusable::LaterFragment, on_ethernet(0x0800, &later(0x1000))),
        (
            "later IPv6 fragment",
            Unusable::LaterFragment,
            on_ethernet(0x86dd, &ipv6_with(44, &join(&[&[6, 0, 0, 9, 0, 0, 0, 9], &tcp()]))),
        ),
        ("header length 4", Unusable::MalformedIpv4, on_ethernet(0x0800, &with(ipv4(), 0, 0x44))),
        ("version 5", Unusable::MalformedIpv4, on_ethernet(0x0800, &with(ipv4(), 0, 0x55))),
        ("total length 19", Unusable::MalformedIpv4, on_ethernet(0x0800, &with(ipv4(), 3, 19))),
        ("version 4", Unusable::MalformedIpv6, on_ethernet(0x86dd, &with(ipv6_with(6, &tcp()), 0, 0x40))),
        ("extension too long", Unusable::MalformedIpv6, on_ethernet(0x86dd, &ipv6_with(0, &[6, 1, 0, 0, 0, 0, 0, 0]))),
        ("AH of 8 bytes", Unusable::MalformedIpv4, on_ethernet(0x0800, &outer(51, &with(tcp(), 1, 0)))),
        ("data offset 4", Unusable::MalformedTcp, on_ethernet(0x0800, &with(ipv4(), 32, 0x40))),
        ("options beyond the packet", Unusable::MalformedTcp, on_ethernet(0x0800, &with(ipv4(), 32, 0xf0))),
        // The padding would make a whole header.
        ("padding", Unusable::MalformedTcp, on_ethernet(0x0800, &with(ipv4(), 3, 39))),
        ("empty IPIP", Unusable::MalformedIpv4, on_ethernet(0x0800, &outer(4, &[]))),
        ("short GRE", Unusable::MalformedTunnel, on_ethernet(0x0800, &outer(47, &[0x20, 0, 8, 0]))),
        ("PPPoE version 2", Unusable::MalformedLink, on_ethernet(0x8864, &[0x21, 0, 0, 0, 0, 0, 0, 0])),
        ("ended in IPv4", Unusable::MalformedIpv4, on_ethernet(0x0800, &[0x45])),
        ("ended in the addresses", Unusable::MalformedLink, parse_frame(LinkType::ETHERNET, &[2; 11])),
        ("radiotap", Unusable::UnsupportedLink, parse_frame(LinkType(127), &ethernet(0x0800, &ipv4()))),
    ];
    for (name, expected, got) in checks {
        assert_eq!(got, Err(expected), "{name}");
    }
}

#[test]
fn nesting_has_an_end() {
    let tags = |count: usize| [[0, 9, 0x81, 0]; 400][..count].concat();
    let tagged = |count| on_ethernet(0x8100, &join(&[&tags(count), &[0, 9, 8, 0], &ipv4()]));
    // Beside the tags a frame takes the steps Ethernet, the last tag, EtherType of IPv4, IPv4, protocol, TCP.
    assert!(tagged(LAYER_COUNT_MAX - 6).is_ok());
    assert_eq!(tagged(LAYER_COUNT_MAX - 5), Err(Unusable::NestedTooDeep));
    let nested = (0..200).fold(ipv4(), |inner, _| outer(4, &inner));
    assert_eq!(on_ethernet(0x0800, &nested), Err(Unusable::NestedTooDeep));
    let labels = [[0, 1, 0x10, 64]; 400].concat();
    assert_eq!(on_ethernet(0x8847, &labels), Err(Unusable::NestedTooDeep));
    let options = [[60, 0, 1, 4, 0, 0, 0, 0]; 100].concat();
    assert_eq!(on_ethernet(0x86dd, &ipv6_with(60, &options)), Err(Unusable::NestedTooDeep));
    let wireless = (0..20).fold(wlan([0x08, 1], 0, &[], &ipv4()), |inner, _| {
        let datagram = udp(5247, &join(&[&[0, 0x10, 3, 0, 0, 0, 0, 0], &inner]));
        wlan([0x08, 1], 0, &[], &outer(17, &datagram))
    });
    let wireless = over_udp(5247, &[0, 0x10, 3, 0, 0, 0, 0, 0], &wireless);
    assert_eq!(parse_frame(LinkType::ETHERNET, &wireless), Err(Unusable::NestedTooDeep));
    let extensions = [[1, 0, 0, 0x85]; 100].concat();
    let gtp = over_udp(2152, &join(&[&[0x34, 0xff, 1, 0x94, 0, 0, 0, 1, 0, 0, 0, 0x85], &extensions]), &[]);
    assert_eq!(parse_frame(LinkType::ETHERNET, &gtp), Err(Unusable::NestedTooDeep));
}

fn link_type() -> impl Strategy<Value = LinkType> {
    prop_oneof![prop::sample::select(&LinkType::SUPPORTED[..]), any::<u32>().prop_map(LinkType)]
}

/// A frame of each encapsulation with up to four bytes set to other values.
fn mutated() -> impl Strategy<Value = (LinkType, Vec<u8>)> {
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5);
    let size = prop_oneof![2 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    (0..cases().len(), damage, size).prop_map(|(at, damage, size)| {
        let Case { link, mut frame, .. } = cases().swap_remove(at);
        for (place, value) in damage {
            let place = place.index(frame.len());
            frame[place] = value;
        }
        if let Some(size) = size {
            frame.truncate(size.index(frame.len()));
        }
        (link, frame)
    })
}

/// Cutting a frame hides what it says, and never changes it.
fn check_cuts(link: LinkType, frame: &[u8]) -> Result<(), TestCaseError> {
    let whole = parse_frame(link, frame);
    prop_assert!(whole != Err(Unusable::CutShort), "{link}: {frame:02x?}");
    for size in 0..frame.len() {
        let cut = parse_captured(link, &frame[..size], frame.len());
        prop_assert!(cut == whole || cut == Err(Unusable::CutShort), "{link}, {size} bytes: {cut:?}, whole {whole:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read_or_refused(link in link_type(), frame in prop::collection::vec(any::<u8>(), 0..200)) {
        check_cuts(link, &frame)?;
    }

    #[test]
    fn any_damage_is_read_or_refused((link, frame) in mutated()) {
        check_cuts(link, &frame)?;
    }

    #[test]
    fn both_paths_say_the_same_of_damaged_frames((_, frame) in mutated()) {
        prop_assert_eq!(parse_frame(LinkType::ETHERNET, &frame), walk(LinkType::ETHERNET, &frame, frame.len()));
    }

    /// The bytes that decide between the paths are drawn from the values that matter.
    #[test]
    fn both_paths_say_the_same_of_any_frame(
        ether_type in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100]),
        version in prop::sample::select(vec![0x45u8, 0x46, 0x44, 0x55, 0x60, 0x6f]),
        sizes in (0u16..80, 0u16..80),
        fragment in prop::sample::select(vec![0u16, 0x4000, 0x2000, 1, 0x8000]),
        protocol in prop::sample::select(vec![6u8, 17, 4, 0]),
        rest in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut frame = ethernet(ether_type, &[version, 0]);
        frame.extend_from_slice(&sizes.0.to_be_bytes());
        // Where IPv4 has its identification IPv6 has its length, and in the next word its next header.
        frame.extend_from_slice(&sizes.1.to_be_bytes());
        let word = if version >> 4 == 6 { u16::from(protocol) << 8 } else { fragment };
        frame.extend_from_slice(&word.to_be_bytes());
        frame.extend_from_slice(&[64, protocol]);
        frame.extend_from_slice(&rest);
        prop_assert_eq!(parse_frame(LinkType::ETHERNET, &frame), walk(LinkType::ETHERNET, &frame, frame.len()));
    }
}
