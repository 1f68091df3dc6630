//! Tunnels: connections in those that are opened are listed, and the packets of others are counted.

use crate::support::captures::{START_S, opening, pcap_at};
use crate::support::command::{flowpeel, replay};
use std::ffi::OsStr;

/// IPv4 around a payload, in Ethernet.
fn in_ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let size = ((20 + payload.len()) as u16).to_be_bytes();
    let head = [0x45, 0, size[0], size[1], 0, 0, 0, 0, 64, protocol, 0, 0, 100, 1, 1, 1, 100, 1, 1, 2];
    [&[2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4, 8, 0][..], &head, payload].concat()
}

/// An Ethernet frame as an access point passes it to its controller: in CAPWAP, its payload in an 802.11 frame.
fn in_capwap(frame: &[u8]) -> Vec<u8> {
    let wlan = [&[0x08, 0x01, 0, 0][..], &[2; 18], &[0x10, 0, 0xaa, 0xaa, 3, 0, 0, 0], &frame[12..]].concat();
    let size = ((16 + wlan.len()) as u16).to_be_bytes();
    let udp = [0xc0, 0, 0x14, 0x7f, size[0], size[1], 0, 0];
    in_ipv4(17, &[&udp[..], &[0, 0x10, 3, 0, 0, 0, 0, 0], &wlan].concat())
}

#[test]
fn packets_of_tunnels_that_are_not_opened_are_counted_and_leave_the_list_complete() {
    let directory = tempfile::tempdir().unwrap();
    let [capture, snapshots] = ["tunnels.pcap", "snapshots"].map(|name| directory.path().join(name));
    let mut frames: Vec<_> = opening(40_000).iter().map(|frame| (START_S, in_capwap(frame))).collect();
    frames.extend([50, 50, 108, 115].map(|protocol| (START_S + 1, in_ipv4(protocol, &[7; 32]))));
    frames.extend(opening(40_001).map(|frame| (START_S + 12, frame)));
    std::fs::write(&capture, pcap_at(&frames)).unwrap();
    let options = ["--every".as_ref(), "10s".as_ref(), "--snapshots".as_ref(), snapshots.as_os_str()];
    let ended = replay(options.into_iter().chain([capture.as_os_str()]));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let lists = ended.lists();
    let [first, second] = &lists[..] else { panic!("{lists:?}") };
    assert_eq!((first.count("unopened"), first.count("unusable"), first.count("flows")), (4, 0, 1));
    assert_eq!(first.flows[0]["src_port"], 40_000);
    assert!(first.header["flow_list"]["complete"] == true && second.header["flow_list"]["complete"] == true);
    assert_eq!(second.header["flow_list"].get("unopened"), None, "the field is there only if there are any");
    let snapshot = snapshots.join("snapshot-20260101T000010Z.flowpeel");
    let peeled = flowpeel([OsStr::new("snapshot"), "peel".as_ref(), snapshot.as_ref()]);
    assert_eq!(&peeled.lists()[0], first, "{}", peeled.stderr);
}
