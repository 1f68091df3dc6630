//! Packets of link types that cannot be read, among others: counted in their interval, whatever happens to the file.

use super::cuts::listed;
use super::file;
use crate::support::captures::{START_S, block, frames, packet_body, pcapng_header};
use crate::support::command::replay;
use std::time::Duration;

/// The interface of 802.11, which is declared behind that of Ethernet.
const RADIO: u32 = 1;
const ETHERNET: u32 = 0;

/// A pcapng file with a packet of this interface in each of these seconds.
fn capture(packets: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = [pcapng_header(&[]), block(1, &[105, 0, 0, 0, 0, 0, 4, 0])].concat();
    for ((interface, second), frame) in packets.iter().zip(frames().iter().cycle()) {
        let ticks = u64::from(START_S + second) * 1_000_000;
        bytes.extend(block(6, &packet_body(*interface, ticks, frame)));
    }
    bytes
}

fn seconds(interface: u32, seconds: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
    seconds.into_iter().map(|second| (interface, second)).collect()
}

#[test]
fn they_are_counted_in_the_interval_of_their_time() {
    let packets = [
        seconds(RADIO, [0, 3]),
        seconds(ETHERNET, [4]),
        seconds(RADIO, [5, 11, 12]),
        seconds(ETHERNET, [13]),
        // A clock of its own does not end an interval, and what it shows last is in the last list.
        seconds(RADIO, [14, 1, 700, 15]),
        seconds(ETHERNET, [31]),
        seconds(RADIO, [32, 47]),
    ];
    let (lists, summary) = listed(&capture(&packets.concat()), Some(Duration::from_secs(10)));
    let ends: Vec<_> =
        lists.iter().map(|(header, _)| header.figures.end_ns / 1_000_000_000 - i64::from(START_S)).collect();
    let unusable: Vec<_> = lists.iter().map(|(header, _)| header.figures.unusable).collect();
    assert_eq!((&ends[..], &unusable[..]), (&[10, 20, 31][..], &[3, 5, 3][..]));
    assert_eq!((summary.packets, summary.errors.len()), (14, 0));
}

#[test]
fn they_are_counted_and_reported_where_the_file_breaks_off() {
    let packets = [seconds(ETHERNET, 0..3), seconds(RADIO, 3..8)].concat();
    let whole = capture(&packets);
    for (stray, status) in [(&[][..], 0), (&[6, 0, 0, 0][..], 1)] {
        let (_directory, path) = file("radio.pcapng", &[&whole, stray].concat());
        let ended = replay([&path]);
        assert_eq!(ended.status.code(), Some(status), "{}", ended.stderr);
        assert_eq!(ended.lists()[0].count("unusable"), 5);
        assert!(ended.stderr.contains("5 packets of link type IEEE802_11 (105) cannot be read"), "{}", ended.stderr);
        assert_eq!(ended.stderr.contains("; the 3 packets before it are listed"), status == 1, "{}", ended.stderr);
    }
}

#[test]
fn of_a_file_without_others_nothing_is_listed() {
    let whole = capture(&seconds(RADIO, 0..30));
    let (_directory, path) = file("radio.pcapng", &whole);
    let ended = replay([std::ffi::OsStr::new("--every"), "10s".as_ref(), path.as_ref()]);
    ended.assert_failed(&["link type IEEE802_11 (105) cannot be read, and it has no other packets"]);
    ended.assert_failed(&["; nothing of it is listed"]);
    ended.assert_nothing();
    assert!(!ended.stderr.contains("30 packets of link type"), "it is reported once: {}", ended.stderr);
}
