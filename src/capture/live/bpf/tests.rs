//! The filters against frames, run by a small BPF machine; on real interfaces the kernel runs them
//! (tests/live/capture).

use super::{BpfProgram, Instruction, code, everything, flags, headers, nothing};
use crate::capture::live::bpf::BPF_INSTRUCTION_COUNT_MAX;
use crate::capture::live::bpf::filters::{LIVE_SNAP_SIZE, LIVE_TUNNEL_SNAP_SIZE};
use crate::parse::tests::frames::{Case, tunnels, untunnelled};
use crate::parse::{LinkType, TcpSegment, Unusable, parse_frame};
use proptest::prelude::*;

/// What the program says of a packet. A read behind its end refuses it, as in the kernel.
fn run(program: &BpfProgram, packet: &[u8]) -> u32 {
    let byte = |at: u32| packet.get(at as usize).copied().map(u32::from);
    let half = |at: u32| Some(byte(at)? << 8 | byte(at.checked_add(1)?)?);
    let (mut a, mut x, mut at) = (0_u32, 0_u32, 0);
    loop {
        let Instruction { code, jump_true, jump_false, operand: k } = program.instructions()[at];
        at += 1;
        let mut branch = |holds: bool| at += usize::from(if holds { jump_true } else { jump_false });
        let loaded = match code {
            code::RETURN => return k,
            code::JUMP_EQUAL => {
                branch(a == k);
                continue;
            }
            code::JUMP_GREATER => {
                branch(a > k);
                continue;
            }
            code::JUMP_ANY_BITS => {
                branch(a & k != 0);
                continue;
            }
            code::JUMP => {
                at += k as usize;
                continue;
            }
            code::LOAD_INDEX => {
                x = k;
                continue;
            }
            code::INDEX_FROM_A => {
                x = a;
                continue;
            }
            code::LOAD_BYTE => byte(k),
            code::LOAD_HALF => half(k),
            code::LOAD_BYTE_INDEXED => byte(x + k),
            code::LOAD_HALF_INDEXED => half(x + k),
            code::AND => Some(a & k),
            code::SHIFT_LEFT => Some(a << k),
            code::ADD_INDEX => Some(a + x),
            _ => panic!("no filter has {code:#x}"),
        };
        let Some(value) = loaded else { return 0 };
        a = value;
    }
}

const SYN: u8 = TcpSegment::SYN;
const ACK: u8 = TcpSegment::ACK;

fn tcp(flags: u8) -> Vec<u8> {
    vec![0, 1, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]
}

/// IPv4 with so many words of options, this offset field and protocol.
fn ipv4(option_words: u8, fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header_size = 20 + 4 * usize::from(option_words);
    let mut packet = vec![0x45 + option_words, 0];
    packet.extend(((header_size + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.resize(header_size, 1);
    packet.extend(payload);
    packet
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend([0x20; 32]);
    packet.extend(payload);
    packet
}

/// Ethernet with what stands between the addresses and the payload.
fn ethernet(types: &[u8], payload: &[u8]) -> Vec<u8> {
    [&[2; 12], types, payload].concat()
}

/// Ways to carry IPv4 and IPv6 in Ethernet: what stands in front of each.
fn encapsulations() -> Vec<(Vec<u8>, Vec<u8>)> {
    let tags: [&[u8]; 4] =
        [&[], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 5, 0x81, 0, 0x60, 7], &[0x91, 0, 0, 1, 0x81, 0, 0, 2]];
    let mut all = Vec::new();
    for tag in tags {
        let with = |rest: &[u8]| [tag, rest].concat();
        all.push((with(&[0x08, 0]), with(&[0x86, 0xdd])));
        let pppoe = [0x88, 0x64, 0x11, 0, 0, 1, 0x05, 0xdc];
        all.push((with(&[&pppoe[..], &[0, 0x21]].concat()), with(&[&pppoe[..], &[0, 0x57]].concat())));
        all.push((with(&[&pppoe[..], &[0x21]].concat()), with(&[&pppoe[..], &[0x57]].concat())));
        for label_count in 1..=3 {
            let mut labels = [0, 1, 0x40, 64].repeat(label_count);
            labels[4 * label_count - 2] |= 1;
            let mpls = with(&[&[0x88, 0x47], &labels[..]].concat());
            all.push((mpls.clone(), mpls));
        }
    }
    all
}

#[test]
fn tcp_passes_however_it_is_carried_and_flags_alone_with_flags() {
    let (headers, flags) = (headers(LinkType::ETHERNET), flags(LinkType::ETHERNET));
    for (v4_types, v6_types) in encapsulations() {
        for segment_flags in 0..=255_u8 {
            let wanted = if segment_flags & 0x07 != 0 { LIVE_SNAP_SIZE } else { 0 };
            for frame in [
                ethernet(&v4_types, &ipv4(0, 0x4000, 6, &tcp(segment_flags))),
                ethernet(&v4_types, &ipv4(10, 0, 6, &tcp(segment_flags))),
                ethernet(&v4_types, &ipv4(1, 0x2000, 6, &tcp(segment_flags))),
                ethernet(&v6_types, &ipv6(6, &tcp(segment_flags))),
            ] {
                assert!(parse_frame(LinkType::ETHERNET, &frame).is_ok(), "{frame:02x?}");
                assert_eq!(run(&headers, &frame), LIVE_SNAP_SIZE, "{frame:02x?}");
                assert_eq!(run(&flags, &frame), wanted, "{segment_flags:#x} in {frame:02x?}");
            }
        }
    }
}

#[test]
fn what_has_no_tcp_header_is_held_back() {
    for program in [headers(LinkType::ETHERNET), flags(LinkType::ETHERNET)] {
        for (v4_types, v6_types) in encapsulations() {
            for frame in [
                ethernet(&v4_types, &ipv4(0, 0, 17, &tcp(SYN))),
                ethernet(&v4_types, &ipv4(0, 0, 47, &tcp(SYN))),
                ethernet(&v4_types, &ipv4(0, 0x2001, 6, &tcp(SYN))),
                ethernet(&v4_types, &ipv4(0, 0x1fff, 6, &tcp(SYN))),
                ethernet(&v6_types, &ipv6(17, &tcp(SYN))),
                ethernet(&v6_types, &ipv6(50, &tcp(SYN))),
                ethernet(&v6_types, &ipv6(59, &[])),
            ] {
                assert_eq!(run(&program, &frame), 0, "{frame:02x?}");
            }
        }
        for types in [[0x08, 0x06], [0x88, 0xcc], [0x88, 0x63], [0, 38], [0xff, 0xff]] {
            assert_eq!(run(&program, &ethernet(&types, &[0x45; 64])), 0, "{types:02x?}");
        }
        assert_eq!(run(&program, &[]), 0);
    }
}

#[test]
fn what_only_the_parser_can_decide_passes() {
    for program in [headers(LinkType::ETHERNET), flags(LinkType::ETHERNET)] {
        for extension in [0, 43, 44, 51, 60, 135, 139, 140] {
            let frame = ethernet(&[0x86, 0xdd], &ipv6(extension, &[6, 0, 0, 0, 0, 0, 0, 0]));
            assert_eq!(run(&program, &frame), LIVE_SNAP_SIZE, "{extension}");
        }
        let tcp = ipv4(0, 0, 6, &tcp(ACK));
        let deep = [&[0x81, 0, 0, 1].repeat(3)[..], &[0x08, 0]].concat();
        let labels = [&[0x88, 0x47][..], &[0, 1, 0x40, 64].repeat(3), &[0, 1, 0x41, 64]].concat();
        let snap = [0, 48, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
        let metadata = [0x81, 0, 0, 5, 0x89, 0x09, 1, 1, 0, 1, 0, 2, 8, 0];
        let vn_tag = [0x89, 0x26, 0, 0, 0, 3, 8, 0];
        let backbone = [&[0x88, 0xa8, 0, 5, 0x88, 0xe7, 0, 1, 2, 3][..], &[2; 12], &[8, 0]].concat();
        let transparent = [&[0x65, 0x58][..], &[2; 12], &[8, 0]].concat();
        let labels_in_ppp = [0x88, 0x64, 0x11, 0, 0, 1, 5, 0xdc, 2, 0x81, 0, 1, 0x41, 64];
        let uncompressed = [0x88, 0x64, 0x11, 0, 0, 1, 5, 0xdc, 0xff, 3, 0, 0x21];
        let pseudowire = [&[0x88, 0x47, 0, 1, 0x41, 64, 0, 0, 0, 1][..], &[2; 12], &[8, 0]].concat();
        let tags = [&deep[..], &snap, &metadata, &vn_tag, &backbone, &transparent];
        let labelled = [&labels[..], &labels_in_ppp, &uncompressed, &pseudowire];
        for types in tags.into_iter().chain(labelled) {
            assert!(parse_frame(LinkType::ETHERNET, &ethernet(types, &tcp)).is_ok(), "{types:02x?}");
            assert_eq!(run(&program, &ethernet(types, &tcp)), LIVE_SNAP_SIZE, "{types:02x?}");
        }
        let authenticated = ethernet(&[0x08, 0], &ipv4(0, 0, 51, &[6; 40]));
        assert_eq!(run(&program, &authenticated), LIVE_SNAP_SIZE);
    }
}

#[test]
fn whatever_the_parser_reads_passes_but_for_tunnels_over_ip() {
    let passes = |Case { link, frame, .. }: &Case| {
        [headers(*link), flags(*link)].map(|program| run(&program, frame)) == [LIVE_SNAP_SIZE; 2]
    };
    // The link types that interfaces have.
    let cases = untunnelled().into_iter().filter(|case| [LinkType::ETHERNET, LinkType::RAW].contains(&case.link));
    for case in cases {
        assert!(passes(&case), "{}", case.name);
    }
    for case in tunnels() {
        assert!(!passes(&case), "{}", case.name);
    }
}

/// All numbers that name what follows: the parser can learn none that the filters refuse.
#[test]
fn the_filters_know_the_numbers_that_the_parser_knows() {
    const TYPE_MIN: u16 = 1501;
    let (v4, v6) = (ipv4(0, 0, 6, &tcp(SYN)), ipv6(6, &tcp(SYN)));
    let behind = |header: &[u8]| [header, &v4].concat();
    let payloads = [
        behind(&[]),
        v6.clone(),
        behind(&[0, 5, 8, 0]),
        behind(&[0, 1, 0x41, 64]),
        behind(&[0x11, 0, 0, 1, 5, 0xdc, 0, 0x21]),
    ];
    // Where PPP's number has one byte the other is the first of the packet.
    let in_ppp = [&v4[..], &v6, &v4[1..], &v6[1..]];
    // The flags are behind all numbers.
    let program = headers(LinkType::ETHERNET);
    let check = |types: &[u8], payloads: &[&[u8]]| {
        let is_known = parse_frame(LinkType::ETHERNET, &ethernet(types, &[])) != Err(Unusable::NotIp);
        let passes = payloads.iter().any(|payload| run(&program, &ethernet(types, payload)) > 0);
        assert_eq!(passes, is_known, "{types:02x?}");
    };
    for number in TYPE_MIN..=u16::MAX {
        check(&number.to_be_bytes(), &payloads.each_ref().map(Vec::as_slice));
    }
    for number in 0..=u16::MAX {
        let [high, low] = number.to_be_bytes();
        check(&[0x88, 0x64, 0x11, 0, 0, 1, 5, 0xdc, high, low], &in_ppp);
    }
}

#[test]
fn without_a_link_header_packets_begin_with_ip() {
    let (headers, flags) = (headers(LinkType::RAW), flags(LinkType::RAW));
    for (packet, is_syn) in [
        (ipv4(3, 0, 6, &tcp(SYN)), true),
        (ipv4(3, 0, 6, &tcp(ACK)), false),
        (ipv6(6, &tcp(SYN)), true),
        (ipv6(6, &tcp(ACK)), false),
    ] {
        assert_eq!(run(&headers, &packet), LIVE_SNAP_SIZE);
        assert_eq!(run(&flags, &packet), if is_syn { LIVE_SNAP_SIZE } else { 0 });
    }
    assert_eq!(run(&headers, &ipv4(0, 0, 17, &tcp(SYN))), 0);
    assert_eq!(run(&headers, &[0x50; 60]), 0);
}

#[test]
fn all_and_nothing() {
    assert_eq!(run(&everything(), &[]), LIVE_TUNNEL_SNAP_SIZE);
    assert_eq!(run(&nothing(), &ethernet(&[0x08, 0], &ipv4(0, 0, 6, &tcp(SYN)))), 0);
}

/// The listing of a program, as `tcpdump -ddd` would print it.
fn listing(program: &BpfProgram) -> String {
    let mut text = format!("{}\n", program.instructions().len());
    for Instruction { code, jump_true, jump_false, operand } in program.instructions() {
        text += &format!("{code} {jump_true} {jump_false} {operand}\n");
    }
    text
}

#[test]
fn our_own_programs_pass_the_check_of_foreign_ones() {
    for link in [LinkType::ETHERNET, LinkType::RAW] {
        for program in [headers(link), flags(link), everything(), nothing()] {
            assert_eq!(BpfProgram::from_listing(&listing(&program)).unwrap(), program);
        }
    }
}

#[test]
fn a_wrong_listing_is_refused_with_its_line() {
    let most = BPF_INSTRUCTION_COUNT_MAX;
    for (text, message) in [
        ("", "line 1: a program as"),
        ("(000) ret #0\n", "line 1: a program as"),
        ("0\n", "line 1: a program as"),
        (&format!("{}\n", most + 1), "line 1: a program as"),
        ("-1\n6 0 0 0\n", "line 1: a program as"),
        ("1\n6 0 0\n", "line 2: an instruction is"),
        ("1\n6 0 0 0 0\n", "line 2: an instruction is"),
        ("1\n6 0 256 0\n", "line 2: an instruction is"),
        ("1\n6 0 0 4294967296\n", "line 2: an instruction is"),
        ("2\n6 0 0 0\n", "line 2: there are fewer"),
        ("1\n6 0 0 0\n6 0 0 0\n", "line 3: there are more"),
        ("1\n40 0 0 12\n", "line 2: the last"),
        ("2\n21 0 1 2048\n6 0 0 0\n", "line 2: it jumps"),
        ("2\n5 0 0 1\n6 0 0 0\n", "line 2: it jumps"),
        ("2\n5 0 0 4294967295\n6 0 0 0\n", "line 2: it jumps"),
    ] {
        let error = BpfProgram::from_listing(text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{text:?}: {error}");
    }
    let longest = format!("{most}\n{}", "6 0 0 0\n".repeat(most));
    assert_eq!(BpfProgram::from_listing(&longest).unwrap().instructions().len(), most);
}

#[test]
fn a_listing_is_read_from_a_file_that_errors_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("filter");
    std::fs::write(&path, "1\n6 0 0 96\n").unwrap();
    assert_eq!(run(&BpfProgram::read(&path).unwrap(), &[]), 96);
    std::fs::write(&path, "1\n".repeat(1 << 20)).unwrap();
    let error = BpfProgram::read(&path).unwrap_err().to_string();
    assert!(error.ends_with("filter: it is too long for a program as tcpdump -ddd prints it"), "{error}");
    assert!(BpfProgram::read(directory.path()).is_err());
}

proptest! {
    #[test]
    fn hostile_listings_are_read_to_an_end(text in "[0-9]{1,2}\n([0-9 ]{0,9}\n){0,9}") {
        if let Ok(program) = BpfProgram::from_listing(&text) {
            prop_assert_eq!(program.instructions().last().unwrap().code & code::CLASS_MASK, code::CLASS_RETURN);
        }
    }

    #[test]
    fn no_program_that_is_accepted_jumps_out_of_itself(lines in prop::collection::vec(
        (prop_oneof![Just(code::JUMP), Just(code::JUMP_EQUAL), Just(code::RETURN), any::<u16>()], 0_u8..6, 0_u8..6, 0_u32..6), 1..9)) {
        let instructions = lines.into_iter().map(|(code, jump_true, jump_false, operand)| Instruction { code, jump_true, jump_false, operand });
        let program = BpfProgram(instructions.collect());
        if BpfProgram::from_listing(&listing(&program)).is_ok() {
            let count = program.instructions().len();
            for (at, instruction) in program.instructions().iter().enumerate() {
                let target = match instruction.code {
                    code if code & code::CLASS_MASK != code::CLASS_JUMP => at,
                    code::JUMP => at + 1 + instruction.operand as usize,
                    _ => at + 1 + usize::from(instruction.jump_true.max(instruction.jump_false)),
                };
                prop_assert!(target < count);
            }
        }
    }

    #[test]
    fn what_the_parser_finds_in_plain_frames_passes(bytes in prop::collection::vec(any::<u8>(), 0..120), v6 in any::<bool>()) {
        let frame = ethernet(if v6 { &[0x86, 0xdd] } else { &[0x08, 0] }, &bytes);
        // Tunnels, which the parser looks into, are held back.
        let is_plain = bytes.get(if v6 { 6 } else { 9 }) == Some(&6);
        if let (Ok(segment), true) = (parse_frame(LinkType::ETHERNET, &frame), is_plain) {
            prop_assert_eq!(run(&headers(LinkType::ETHERNET), &frame), LIVE_SNAP_SIZE);
            prop_assert_eq!(run(&flags(LinkType::ETHERNET), &frame) > 0, segment.flags & 0x07 != 0);
        }
    }
}
