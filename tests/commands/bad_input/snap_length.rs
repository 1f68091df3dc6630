//! Captures whose snap length cuts packets before their TCP flags: no list from there on is complete, whatever the
//! packets hold that come later. What was too short on the wire is damage, and hides nothing.

use super::file;
use crate::support::captures::{START_S, opening, pcap_header};
use crate::support::command::{Ended, flowpeel, replay, text};
use std::ffi::OsStr;

/// Bytes of Ethernet, IPv4 and TCP up to the flags.
const FLAGS_SIZE: usize = 14 + 20 + 14;

/// A packet of a capture: its second, the bytes that are kept of it, its frame.
type Cut = (u32, usize, Vec<u8>);

/// A pcap file of these packets.
fn capture(packets: &[Cut]) -> Vec<u8> {
    let mut bytes = pcap_header(65_535);
    for (second, kept, frame) in packets {
        let captured = &frame[..*kept.min(&frame.len())];
        let words = [START_S + second, 0, captured.len() as u32, frame.len() as u32];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(captured);
    }
    bytes
}

/// A handshake in this second, with so many bytes kept of each packet.
fn cut_opening(second: u32, kept: usize, port: u16) -> Vec<Cut> {
    opening(port).into_iter().map(|frame| (second, kept, frame)).collect()
}

/// The frames of a handshake with IPv6 around their TCP header.
fn in_ipv6(second: u32, kept: usize, port: u16) -> Vec<Cut> {
    let frames = opening(port).into_iter().map(|frame| {
        let (addresses, tcp) = (frame[26..34].to_vec(), frame[34..].to_vec());
        let head = [&frame[..12], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, tcp.len() as u8, 6, 64]].concat();
        let address = |four: &[u8]| [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0], four].concat();
        (second, kept, [head, address(&addresses[..4]), address(&addresses[4..]), tcp].concat())
    });
    frames.collect()
}

fn replayed(packets: &[Cut], options: &[&str]) -> Ended {
    let (_directory, path) = file("cut.pcap", &capture(packets));
    replay(options.iter().map(OsStr::new).chain([path.as_ref()]))
}

/// The fields `complete`, `missing`, `cut`, `unusable` and `flows` of every list.
fn headers(ended: &Ended) -> Vec<(bool, u64, u64, u64, u64)> {
    let lists = ended.lists().into_iter().map(|list| {
        let cut = list.header["flow_list"].get("cut").map_or(0, |cut| cut.as_u64().unwrap());
        let is_complete = list.header["flow_list"]["complete"].as_bool().unwrap();
        (is_complete, list.count("missing"), cut, list.count("unusable"), list.count("flows"))
    });
    lists.collect()
}

#[test]
fn a_list_without_the_flags_of_a_packet_is_not_complete() {
    for (name, packets) in [
        ("IPv4 up to the flags", cut_opening(0, FLAGS_SIZE - 1, 40_000)),
        ("IPv4 up to the protocol", cut_opening(0, 14 + 9, 40_000)),
        ("Ethernet alone", cut_opening(0, 13, 40_000)),
        ("IPv6", in_ipv6(0, 54, 40_000)),
    ] {
        let ended = replayed(&packets, &[]);
        assert_eq!(ended.status.code(), Some(0), "{name}: {}", ended.stderr);
        assert_eq!(headers(&ended), [(false, 1, 3, 3, 0)], "{name}");
        assert!(ended.stderr.contains("3 packets were cut by the capture"), "{name}: {}", ended.stderr);
    }
    for packets in [cut_opening(0, FLAGS_SIZE, 40_000), in_ipv6(0, FLAGS_SIZE + 20, 40_000)] {
        let ended = replayed(&packets, &[]);
        assert_eq!(headers(&ended), [(true, 0, 0, 0, 1)], "the flags are there");
        assert!(!ended.stderr.contains("cut by the capture"), "{}", ended.stderr);
    }
}

#[test]
fn no_later_list_is_complete_and_earlier_ones_are() {
    let packets = [
        cut_opening(0, FLAGS_SIZE, 40_000),
        cut_opening(11, FLAGS_SIZE, 40_001),
        cut_opening(12, FLAGS_SIZE - 1, 40_002),
        cut_opening(21, FLAGS_SIZE, 40_003),
        cut_opening(31, FLAGS_SIZE, 40_004),
    ];
    let ended = replayed(&packets.concat(), &["--every", "10s"]);
    let expected = [(true, 0, 0, 0, 1), (false, 1, 3, 3, 2), (false, 1, 0, 0, 3), (false, 1, 0, 0, 4)];
    assert_eq!(headers(&ended), expected);
}

#[test]
fn what_was_short_on_the_wire_is_damage_and_leaves_the_list_complete() {
    let short = opening(40_001).map(|frame| (1, usize::MAX, frame[..FLAGS_SIZE - 1].to_vec()));
    let ended = replayed(&[&cut_opening(0, FLAGS_SIZE, 40_000)[..], &short].concat(), &[]);
    assert_eq!(headers(&ended), [(true, 0, 0, 3, 1)]);
    assert!(!text(&ended.stdout).contains("\"cut\""), "the field is there only if something was cut");
}

#[test]
fn lists_made_of_snapshots_and_lists_of_sources_say_it_too() {
    let packets = [cut_opening(0, FLAGS_SIZE - 1, 40_000), cut_opening(11, FLAGS_SIZE, 40_001)].concat();
    let (directory, path) = file("cut.pcap", &capture(&packets));
    let [out, snapshots] = ["out", "snapshots"].map(|name| directory.path().join(name));
    let words = ["--every", "10s", "--sources=1000", "--out"].map(OsStr::new);
    let options = [out.as_ref(), "--snapshots".as_ref(), snapshots.as_ref(), path.as_ref()];
    let ended = replay(words.into_iter().chain(options));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    for (end, cut, is_cut) in [("20260101T000010Z", "\"cut\":3,", true), ("20260101T000011Z", "\"missing\":1,", false)]
    {
        let peeled = flowpeel([
            OsStr::new("snapshot"),
            "peel".as_ref(),
            snapshots.join(format!("snapshot-{end}.flowpeel")).as_ref(),
        ]);
        let list = read(&format!("flows-{end}.ndjson"));
        assert_eq!(text(&peeled.stdout), list, "{}", peeled.stderr);
        assert!(list.contains(cut) && list.contains("\"complete\":false"), "{list}");
        let sources = read(&format!("sources-{end}.ndjson"));
        assert_eq!(sources.contains("\"cut\":3,"), is_cut, "{sources}");
        assert_eq!(sources.contains("\"complete\":false"), is_cut, "an attempt counts in its own interval: {sources}");
    }
}
