//! pcapng: sections, interfaces, clocks and all kinds of blocks.

use super::build::{ETHERNET_LINK, Pcapng, RAW_LINK, USER_LINK, failure, packets, replay_bytes, u32_bytes, wire_sizes};
use crate::capture::byte_order::ByteOrder::{Big, Little};
use crate::capture::input::CAPTURE_BUFFER_SIZE;
use crate::capture::pcapng::{BLOCK_SIZE_MAX, CAPTURE_INTERFACE_COUNT_MAX};
use crate::capture::{CLOCK_NAMES_MAX, PACKET_SIZE_MAX, PacketSource, Replay};

const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;
const COMMENT: u16 = 1;

#[test]
fn every_packet_block_in_both_byte_orders() {
    for order in [Little, Big] {
        let file = Pcapng::new(order)
            .interface(RAW_LINK, 4, &[])
            .ethernet()
            .simple(2, b"no")
            .enhanced(1, 5_000_000_000, b"enhanced")
            .obsolete(1, 7, b"obsolete!")
            .simple(9, b"simp")
            .simple(3, b"sho");
        let expected = [
            (0, RAW_LINK, b"no".to_vec()),
            (5_000_000_000_000, ETHERNET_LINK, b"enhanced".to_vec()),
            (7_000, ETHERNET_LINK, b"obsolete!".to_vec()),
            (7_000, RAW_LINK, b"simp".to_vec()),
            (7_000, RAW_LINK, b"sho".to_vec()),
        ];
        assert_eq!(packets(&file.bytes), expected, "{order:?}");
        assert_eq!(wire_sizes(&file.bytes), [2, 8 + 7, 9 + 7, 9, 3], "{order:?}");
    }
}

#[test]
fn each_section_has_its_own_order_and_interfaces() {
    let file = Pcapng::new(Little)
        .ethernet()
        .enhanced(0, 1, b"a")
        .section(Big)
        .interface(RAW_LINK, 0, &[(TIME_RESOLUTION, &[9])])
        .enhanced(0, 1, b"b")
        .section(Big)
        .section(Little)
        .ethernet()
        .interface(RAW_LINK, 0, &[(TIME_RESOLUTION, &[0])])
        .enhanced(1, 1, b"c");
    let expected =
        [(1_000, ETHERNET_LINK, b"a".to_vec()), (1, RAW_LINK, b"b".to_vec()), (1_000_000_000, RAW_LINK, b"c".to_vec())];
    assert_eq!(packets(&file.bytes), expected);
    let undeclared = Pcapng::new(Little).ethernet().section(Little);
    let offset = undeclared.bytes.len();
    let error = failure(&undeclared.enhanced(0, 1, b"a").bytes);
    let what = "the file is damaged: interface 0 is not declared before its first packet";
    assert_eq!(error, format!("test: at byte {offset}: {what}"));
}

#[test]
fn each_interface_names_its_clock() {
    let mut file = Pcapng::new(Little);
    for _ in 0..20 {
        file = file.ethernet();
    }
    let file = file.enhanced(2, 1, b"a").enhanced(0, 1, b"b").simple(1, b"c").enhanced(19, 1, b"d");
    let file = file.enhanced(2, 1, b"e").simple(1, b"f").section(Big).ethernet().obsolete(0, 1, b"g");
    let mut replay = Replay::from_reader(std::io::Cursor::new(file.bytes), std::path::Path::new("test")).unwrap();
    let mut clocks = Vec::new();
    while let Some(packet) = replay.next_packet().unwrap() {
        clocks.push(packet.clock.index());
    }
    // Without a time a packet has the stamp of the one before; those beyond the names share the last.
    assert_eq!(clocks, [2, 0, 0, CLOCK_NAMES_MAX - 1, 2, 2, 0]);
}

#[test]
fn clocks_have_a_resolution_and_an_offset() {
    let file = Pcapng::new(Big)
        .interface(1, 0, &[(COMMENT, b"odd"), (TIME_RESOLUTION, &[0x80 | 1]), (TIME_OFFSET, &(-1_i64).to_be_bytes())])
        .interface(1, 0, &[(0, b""), (TIME_RESOLUTION, &[0])])
        .interface(1, 0, &[(TIME_RESOLUTION, &[0, 0]), (TIME_OFFSET, &[9])])
        .enhanced(0, 5, b"")
        .enhanced(1, 5, b"")
        .enhanced(2, 5, b"")
        .enhanced(2, u64::MAX, b"");
    let times: Vec<i64> = packets(&file.bytes).iter().map(|seen| seen.0).collect();
    assert_eq!(times, [1_500_000_000, 5_000, 5_000, i64::MAX]);
}

#[test]
fn unknown_blocks_of_any_length_are_passed_over() {
    let huge = vec![9; 2 * CAPTURE_BUFFER_SIZE + 5];
    let file = Pcapng::new(Little).block(0x0bad, &huge).ethernet().block(4, b"").enhanced(0, 1, b"x").block(10, &huge);
    assert_eq!(packets(&file.bytes), [(1_000, ETHERNET_LINK, b"x".to_vec())]);
    for cut in [1, 4, 5, 1000, huge.len()] {
        let (seen, error) = replay_bytes(&file.bytes[..file.bytes.len() - cut]);
        assert_eq!(seen.len(), 1);
        let offset = file.bytes.len() - (huge.len().next_multiple_of(4) + 12);
        assert_eq!(error.expect("it is cut").offset(), Some(offset as u64));
    }
}

#[test]
fn packets_of_unreadable_interfaces_are_counted() {
    let file = Pcapng::new(Little).ethernet().interface(USER_LINK, 0, &[]).enhanced(1, 1, b"x").obsolete(1, 2, b"y");
    let unreadable = [(1_000, USER_LINK, b"x".to_vec()), (2_000, USER_LINK, b"y".to_vec())];
    let (seen, error) = replay_bytes(&file.bytes);
    assert_eq!(seen, unreadable);
    let error = error.expect("there are no others").to_string();
    assert!(error.starts_with("test: link type ") && error.contains("147"), "{error}");

    let bytes = file.enhanced(0, 3, b"z").bytes;
    let [first, second] = unreadable;
    assert_eq!(packets(&bytes), [first, second, (3_000, ETHERNET_LINK, b"z".to_vec())]);
    let mut replay = Replay::from_reader(std::io::Cursor::new(bytes), "test".as_ref()).expect("a good file");
    while replay.next_packet().expect("the others do not matter").is_some() {}
    let skipped = replay.skipped().expect("pcapng");
    assert_eq!(skipped.total_count(), 2);
    assert_eq!(skipped.to_string(), crate::parse::LinkType(USER_LINK).to_string());
}

#[test]
fn a_file_without_packets_is_good() {
    assert_eq!(packets(&Pcapng::new(Big).bytes), []);
    assert_eq!(packets(&Pcapng::new(Big).interface(USER_LINK, 0, &[]).bytes), []);
}

#[test]
fn blocks_that_contradict_themselves_are_refused() {
    let head = Pcapng::new(Little).ethernet().bytes;
    let offset = head.len();
    let with = |block: Vec<u8>| failure(&[head.clone(), block].concat());
    let expect = |block: Vec<u8>, what: &str| assert_eq!(with(block), format!("test: at byte {offset}: {what}"));
    let block = |kind, body: &[u8]| Pcapng { order: Little, bytes: Vec::new() }.block(kind, body).bytes;
    let relabel = |size: u32| {
        let mut bytes = block(6, &[0; 24]);
        bytes[4..8].copy_from_slice(&u32_bytes(Little, size));
        bytes
    };
    let impossible = "where at least 12 and a multiple of 4 are possible";
    for size in [0, 1, 8, 11, 13, 38, u32::MAX] {
        expect(relabel(size), &format!("the file is damaged: a block of {size} bytes, {impossible}"));
    }
    let size = BLOCK_SIZE_MAX + 4;
    let most = format!("where {BLOCK_SIZE_MAX} is the most that is read");
    expect(relabel(size as u32), &format!("a block of type 6 with {size} bytes, {most}"));
    expect(relabel(40), "the file is cut short inside a block (36 of 40 bytes are there)");
    let mut trailer = block(0x0bad, b"");
    trailer[8] = 16;
    expect(trailer, "the file is damaged: a block gives its length as 12 and as 16 bytes");
    for (kind, body_size) in [(6, 16), (2, 16), (3, 0)] {
        let size = body_size + 12;
        let what = format!("the file is damaged: a block of type {kind} with only {size} bytes");
        expect(block(kind, &vec![0; body_size]), &what);
    }
    let mut long_packet = [0; 24];
    long_packet[12..16].copy_from_slice(&5_u32.to_le_bytes());
    expect(block(6, &long_packet), "the file is damaged: a packet of 5 bytes is longer than its block");
    long_packet[12..16].copy_from_slice(&(PACKET_SIZE_MAX as u32 + 1).to_le_bytes());
    assert!(with(block(6, &long_packet)).contains("where 262144 is the longest possible"));
    let option = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 9, 0, 1, 2, 3, 4];
    expect(block(1, &option), "the file is damaged: an option of an interface description is longer than its block");
    expect(block(1, b"link"), "the file is damaged: an interface description without a link type");
    expect(block(0x0a0d_0d0a, &[1; 16]), "the file is damaged: a section header without its byte-order magic");
}

#[test]
fn sections_of_another_version_are_refused() {
    let mut bytes = Pcapng::new(Big).bytes;
    bytes[13] = 2;
    assert_eq!(failure(&bytes), "test: at byte 0: pcapng version 2.0 is not known (1.0 is)");
}

#[test]
fn interfaces_are_bounded() {
    let mut file = Pcapng::new(Little);
    for _ in 0..CAPTURE_INTERFACE_COUNT_MAX {
        file = file.ethernet();
    }
    assert_eq!(packets(&file.bytes), []);
    let last = CAPTURE_INTERFACE_COUNT_MAX as u32 - 1;
    file = file.enhanced(last, 1, b"x");
    assert_eq!(packets(&file.bytes).len(), 1);
    assert!(failure(&file.ethernet().bytes).contains("more than 65536 interfaces"));
}

#[test]
fn the_longest_packet_with_options_is_read() {
    let packet = vec![5; PACKET_SIZE_MAX];
    let mut file = Pcapng::new(Little).interface(1, 0, &[]);
    for _ in 0..6 {
        let mut body = vec![0; 12];
        body.extend((PACKET_SIZE_MAX as u32).to_le_bytes());
        body.extend((PACKET_SIZE_MAX as u32).to_le_bytes());
        body.extend(&packet);
        body.resize(body.len() + 2 * 65_536, 1);
        file = file.block(6, &body);
    }
    let seen = packets(&file.bytes);
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|(_, _, bytes)| *bytes == packet));
}
