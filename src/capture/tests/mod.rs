//! Replay of capture files that are built here, good and bad.

pub(crate) mod build;
mod hostile;
mod pcapng;

use std::io::Cursor;
use std::path::Path;

use build::{
    Dribble, ETHERNET_LINK, Pcap, Pcapng, RAW_LINK, USER_LINK, failure, gzip, packets, replay, replay_bytes,
    wire_sizes, zstd,
};

use super::byte_order::ByteOrder::{self, Big, Little};
use super::{PacketSource, Progress, Replay};
use crate::capture::PACKET_SIZE_MAX;
use crate::capture::input::{CAPTURE_BUFFER_SIZE, CAPTURE_READ_SIZE};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const MODIFIED: u32 = 0xa1b2_cd34;

/// A pcap file of three packets, the second one empty.
fn small_pcap(order: ByteOrder, magic: u32) -> Vec<u8> {
    Pcap::new(order, magic, ETHERNET_LINK)
        .packet(1, 2, b"first")
        .packet(u32::MAX, 999_999, b"")
        .packet(0, 3, b"third!")
        .bytes
}

#[test]
fn every_kind_of_pcap_in_both_byte_orders() {
    for order in [Little, Big] {
        for (magic, fraction_ns) in [(MICROSECONDS, 1000), (NANOSECONDS, 1), (MODIFIED, 1000)] {
            let expected = [
                (1_000_000_000 + 2 * fraction_ns, ETHERNET_LINK, b"first".to_vec()),
                (4_294_967_295_000_000_000 + 999_999 * fraction_ns, ETHERNET_LINK, Vec::new()),
                (3 * fraction_ns, ETHERNET_LINK, b"third!".to_vec()),
            ];
            assert_eq!(packets(&small_pcap(order, magic)), expected, "{order:?} {magic:x}");
        }
    }
}

#[test]
fn a_packet_has_its_size_on_the_wire() {
    for order in [Little, Big] {
        for magic in [MICROSECONDS, NANOSECONDS, MODIFIED] {
            assert_eq!(wire_sizes(&small_pcap(order, magic)), [5 + 7, 7, 6 + 7], "{order:?} {magic:x}");
        }
    }
}

#[test]
fn a_fraction_beyond_the_second_ends_with_it() {
    for (magic, last_ns) in [(MICROSECONDS, 999_999_000), (NANOSECONDS, 999_999_999)] {
        let pcap = Pcap::new(Little, magic, 1)
            .packet(1, 1_000_000_000, b"")
            .packet(2, (-2_147_483_i32).cast_unsigned(), b"")
            .packet(u32::MAX, u32::MAX, b"");
        let times: Vec<i64> = packets(&pcap.bytes).iter().map(|seen| seen.0).collect();
        assert_eq!(times, [1, 2, 4_294_967_295].map(|second| second * 1_000_000_000 + last_ns), "{magic:x}");
    }
}

#[test]
fn the_upper_half_of_the_network_field_is_not_the_link_type() {
    let pcap = Pcap::new(Big, MICROSECONDS, 0xf7ff_0000 | RAW_LINK).packet(1, 0, b"x");
    assert_eq!(packets(&pcap.bytes)[0].1, RAW_LINK);
}

#[test]
fn old_versions_have_the_lengths_the_other_way_round() {
    for (version, lengths) in [([2, 2], [60, 4]), ([543, 0], [60, 4]), ([2, 3], [60, 4]), ([2, 3], [4, 60])] {
        let mut pcap = Pcap::with_version(Little, MICROSECONDS, 1, version).header(1, 0, lengths);
        pcap.bytes.extend(b"four");
        assert_eq!(packets(&pcap.bytes), [(1_000_000_000, 1, b"four".to_vec())], "{version:?}");
        assert_eq!(wire_sizes(&pcap.bytes), [60], "{version:?}");
    }
    let unknown = Pcap::with_version(Little, MICROSECONDS, 1, [3, 0]).bytes;
    assert_eq!(failure(&unknown), "test: at byte 0: pcap version 3.0 is not known (2.4 is)");
}

#[test]
fn an_unreadable_link_type_is_refused_at_the_header() {
    let error = failure(&Pcap::new(Little, MICROSECONDS, USER_LINK).bytes);
    assert!(error.starts_with("test: at byte 0: link type ") && error.contains("147"), "{error}");
}

#[test]
fn the_longest_packet_is_read_and_a_longer_one_refused() {
    let longest = vec![7; PACKET_SIZE_MAX];
    let pcap = Pcap::new(Little, MICROSECONDS, 1).packet(1, 0, &longest);
    let too_long = PACKET_SIZE_MAX as u32 + 1;
    let offset = pcap.bytes.len();
    for length in [too_long, u32::MAX] {
        let mut bytes = pcap.bytes.clone();
        bytes.extend(Pcap::new(Little, MICROSECONDS, 1).header(2, 0, [length, 60]).bytes.split_off(24));
        let (seen, error) = replay_bytes(&bytes);
        assert_eq!(seen, [(1_000_000_000, 1, longest.clone())]);
        let error = error.expect("the second packet is too long");
        assert_eq!(error.offset(), Some(offset as u64));
        assert!(error.to_string().contains(&format!("a packet of {length} bytes")), "{error}");
    }
}

#[test]
fn concatenated_captures_are_reported() {
    for order in [Little, Big] {
        let first = small_pcap(order, MICROSECONDS);
        let both = [first.clone(), small_pcap(order, MICROSECONDS)].concat();
        let (seen, error) = replay_bytes(&both);
        assert_eq!(seen.len(), 3);
        let error = error.expect("the second file header is no packet");
        assert_eq!(error.offset(), Some(first.len() as u64));
        assert!(error.to_string().contains("another capture begins here"), "{error}");
    }
}

#[test]
fn packets_across_the_end_of_a_read_are_whole() {
    let mut pcap = Pcap::new(Little, MICROSECONDS, 1);
    let sizes = (0_usize..).map(|index| (index * 7_919) % 66_000);
    let mut expected = Vec::new();
    for (size, second) in sizes.zip(0_u32..) {
        if pcap.bytes.len() > 6 * (CAPTURE_BUFFER_SIZE + CAPTURE_READ_SIZE) {
            break;
        }
        let packet: Vec<u8> = (0..size).map(|index| (index as u32 ^ second) as u8).collect();
        pcap = pcap.packet(second, 0, &packet);
        expected.push((i64::from(second) * 1_000_000_000, 1, packet));
    }
    assert!(expected.len() > 100);
    assert_eq!(packets(&pcap.bytes), expected);
    assert_eq!(packets(&gzip(&pcap.bytes)), expected);
    assert_eq!(packets(&zstd(&pcap.bytes)), expected);
}

#[test]
fn compression_is_recognized_by_content_and_may_come_in_parts() {
    for bytes in [small_pcap(Little, NANOSECONDS), Pcapng::new(Big).ethernet().enhanced(0, 5, b"abc").bytes] {
        let expected = packets(&bytes);
        assert!(!expected.is_empty());
        for cut in [0, 3, 30, bytes.len()] {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(packets(&[gzip(head), gzip(tail)].concat()), expected);
            assert_eq!(packets(&[zstd(head), zstd(tail)].concat()), expected);
        }
        let skippable_frame = b"\x5a\x2a\x4d\x18\x02\0\0\0hi";
        assert_eq!(packets(&[&skippable_frame[..], &zstd(&bytes)].concat()), expected);
    }
}

#[test]
fn a_slow_pipe_gives_the_same_as_a_file() {
    let bytes = small_pcap(Big, MODIFIED);
    let expected = packets(&bytes);
    for stored in [bytes.clone(), gzip(&bytes), zstd(&bytes)] {
        let (seen, error) = replay(Dribble::new(&stored), bytes.len());
        assert!(error.is_none(), "{error:?}");
        assert_eq!(seen, expected);
    }
}

#[test]
fn progress_counts_the_stored_bytes() {
    let bytes = gzip(&small_pcap(Little, MICROSECONDS));
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), &bytes).expect("a temporary file can be written");
    let mut replay = Replay::open(file.path()).expect("a good file");
    while replay.next_packet().expect("a good file").is_some() {}
    let size = bytes.len() as u64;
    assert_eq!(replay.progress(), Progress { read_size: size, input_size: Some(size) });
    assert!(replay.skipped().is_none());

    let piped = Replay::from_reader(Cursor::new(bytes), Path::new("pipe")).expect("a good file");
    assert_eq!(piped.progress().input_size, None);
}

#[test]
fn what_is_no_capture_is_refused_in_one_line() {
    assert_eq!(failure(b""), "test: it is empty: not a capture");
    assert_eq!(failure(&gzip(b"")), "test: it is empty: not a capture");
    let not_a_capture =
        "test: at byte 0: it is not a capture: pcap and pcapng are read, plain or compressed with gzip or zstd";
    for bytes in [b"a".to_vec(), b"plain text, long enough".to_vec(), vec![0; 100], b"\n\r\r\n\0\0\0\x1cnope".to_vec()]
    {
        assert_eq!(failure(&bytes), not_a_capture);
    }
    assert_eq!(failure(&gzip(&gzip(&small_pcap(Little, MICROSECONDS)))), not_a_capture);
    assert_eq!(failure(b"\xfd7zXZ\0rest"), "test: at byte 0: it is compressed with xz: decompress it first");
}

#[test]
fn what_can_not_be_opened_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let error = Replay::open(directory.path()).err().expect("a directory").to_string();
    assert!(error.ends_with(": it is a directory: name a capture file"), "{error}");
    let missing = directory.path().join("missing.pcap");
    let error = Replay::open(&missing).err().expect("no such file").to_string();
    assert!(error.contains("missing.pcap: cannot open it: No such file"), "{error}");
}

#[test]
fn damaged_compression_is_named() {
    let plain = Pcap::new(Little, MICROSECONDS, 1).packet(1, 0, &[1; 1000]).packet(2, 0, b"second").bytes;
    let mut gzipped = gzip(&plain);
    let checksum = gzipped.len() - 8;
    gzipped[checksum] ^= 1;
    let (seen, error) = replay_bytes(&gzipped);
    assert_eq!(seen, packets(&plain));
    let error = error.expect("its checksum is wrong");
    assert_eq!(error.offset(), Some(plain.len() as u64));
    assert!(error.to_string().contains(": the gzip data is damaged: "), "{error}");

    let mut zstd = zstd(&plain);
    // A block of the reserved type.
    zstd[6] |= 6;
    assert!(failure(&zstd).contains(": the zstd data is damaged: "), "{}", failure(&zstd));
    assert!(failure(&gzip(&plain)[..20]).contains(": the gzip data is cut short"));
}

#[test]
fn a_zstd_window_beyond_the_limit_is_refused() {
    // A frame header that asks for a window of 2 GiB, and an empty last block.
    let bytes = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00];
    assert!(failure(&bytes).contains("the zstd data is damaged: "), "{}", failure(&bytes));
}
