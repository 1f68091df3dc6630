//! Real captures through the command itself: the small ones of pcaps/ against their expected lists and, where they are
//! available, captures recorded by others against their truth.

mod events;
#[path = "../support/mod.rs"]
mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::command::{Ended, FLOWPEEL, Running, command, replay, run, text};
use support::say::say;

/// Where captures with truth may be, beside the project. They may not be copied into it.
const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared");

/// Captures of [`SHARED`] that must be refused, each with the link type that the error names.
const REFUSED: [(&str, &str, u32); 9] = [
    ("arkime__80211http.pcap", "IEEE802_11_RADIO", 127),
    ("arkime__nflog.pcap", "NFLOG", 239),
    ("libpcap__arcnet-rfc1201-arp-icmp-http.pcap", "ARCNET_LINUX", 129),
    ("libpcap__brcm-tag-stp.pcap", "DSA_TAG_BRCM", 281),
    ("libpcap__http_PPI.pcap", "PPI", 192),
    ("scapy__bad_rsn_parsing_overrides_ssid.pcap", "IEEE802_11_RADIO", 127),
    ("tcpdump__bgp-aigp.pcap", "JUNIPER_ETHER", 178),
    ("tcpdump__ipoib.pcap", "IPOIB", 242),
    ("zeek__dns-inverse-query.pcap", "FDDI", 10),
];

/// A connection as in the expected lists: client, server, state, tags.
type Connection = (SocketAddr, SocketAddr, String, Vec<u64>);

/// The output of a successful replay.
fn printed(capture: &Path, options: &[&str]) -> Vec<u8> {
    let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    arguments.push(capture.as_os_str());
    let output = replay(arguments);
    assert!(output.status.success(), "{}: {}", capture.display(), output.stderr);
    output.stdout
}

/// The files of a directory whose names end with one of these.
fn files(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let has_ending = |path: &PathBuf| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending));
    support::files::files(directory).into_iter().filter(has_ending).collect()
}

const CAPTURES: [&str; 6] = [".pcap", ".pcapng", ".pcap.gz", ".pcap.zst", ".pcapng.gz", ".pcapng.zst"];

/// The captures of pcaps/, each with its expected list.
fn own_captures() -> Vec<(PathBuf, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps");
    let expected = files(&directory, &[".expected.json"]).into_iter().map(|path| {
        let expected: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        (directory.join(expected["capture"].as_str().unwrap()), expected)
    });
    expected.collect()
}

fn has_tags(expected: &Value) -> bool {
    expected["connections"].as_array().unwrap().iter().any(|connection| connection.get("vlan").is_some())
}

fn tags(value: Option<&Value>) -> Vec<u64> {
    value.map_or(Vec::new(), |tags| tags.as_array().unwrap().iter().map(|tag| tag.as_u64().unwrap()).collect())
}

fn expected_connections(expected: &Value) -> Vec<Connection> {
    let text = |connection: &Value, name: &str| connection[name].as_str().unwrap().to_owned();
    let connections = expected["connections"].as_array().unwrap().iter().map(|connection| {
        let end = |name| text(connection, name).parse().unwrap();
        (end("client"), end("server"), text(connection, "state"), tags(connection.get("vlan")))
    });
    connections.collect()
}

fn listed_connection(row: &Value) -> Connection {
    let end = |address: &str, port: &str| {
        let port = u16::try_from(row[port].as_u64().unwrap()).unwrap();
        SocketAddr::new(row[address].as_str().unwrap().parse().unwrap(), port)
    };
    assert_eq!((&row["event_type"], &row["proto"]), (&"flow".into(), &"TCP".into()), "{row}");
    let state = row["flow"]["state"].as_str().unwrap().to_owned();
    (end("src_ip", "src_port"), end("dest_ip", "dest_port"), state, tags(row.get("vlan")))
}

#[test]
fn every_capture_has_an_expected_list_and_the_reverse() {
    let expected: BTreeSet<PathBuf> = own_captures().into_iter().map(|(capture, _)| capture).collect();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps");
    assert_eq!(expected, files(&directory, &CAPTURES).into_iter().collect());
    assert!(expected.len() >= 9, "{expected:?}");
}

#[test]
fn the_captures_of_this_project_are_listed_exactly() {
    for (capture, expected) in own_captures() {
        let options: &[&str] = if has_tags(&expected) { &["--vlan-key"] } else { &[] };
        let text = String::from_utf8(printed(&capture, options)).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let header = lines.next().unwrap();
        let mut listed: Vec<Connection> = lines.map(|row| listed_connection(&row)).collect();
        let count = |is_established| listed.iter().filter(|row| (row.2 == "established") == is_established).count();
        assert_eq!(header["event_type"], "flow_list");
        assert_eq!(header["flow_list"]["flows"], count(true), "{header}");
        assert_eq!(header["flow_list"]["half_open"], count(false), "{header}");
        assert_eq!(header["flow_list"]["complete"], true, "{header}");
        assert_eq!(header["flow_list"]["missing"], 0, "{header}");
        let mut expected = expected_connections(&expected);
        expected.sort();
        listed.sort();
        assert_eq!(listed, expected, "{}", capture.display());
    }
}

#[test]
fn neither_shards_nor_another_run_change_a_byte() {
    for (capture, expected) in own_captures() {
        let mut options = if has_tags(&expected) { vec!["--vlan-key"] } else { Vec::new() };
        for every in [None, Some("1s")] {
            options.extend(every.iter().flat_map(|every| ["--every", *every]));
            let first = printed(&capture, &options);
            let line_count = first.iter().filter(|byte| **byte == b'\n').count();
            assert!(line_count > expected["connections"].as_array().unwrap().len(), "a header and every connection");
            for shards in ["1", "2", "3", "8", "8"] {
                let again = printed(&capture, &[&options[..], &["--shards", shards]].concat());
                assert!(again == first, "{} with {shards} shards, every {every:?}", capture.display());
            }
        }
    }
}

/// A pcap file of one empty packet of this link type.
fn capture_of(link: u32) -> Vec<u8> {
    let header: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link];
    let packet: [u32; 5] = [1, 0, 4, 4, 0];
    header.iter().chain(&packet).flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn link_types_that_are_not_read_are_refused_by_name_and_number() {
    let others = [("", "ARCNET", 7), ("", "IEEE802_11", 105)];
    for (_, name, number) in REFUSED.into_iter().chain(others) {
        let mut replay = command(FLOWPEEL, ["replay", "-"]);
        let mut running = Running::start(replay.stdin(Stdio::piped()));
        running.child.stdin.take().unwrap().write_all(&capture_of(number)).unwrap();
        assert_refused(&running.wait(), name, number);
    }
}

fn assert_refused(output: &Ended, name: &str, number: u32) {
    let said = &output.stderr;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty(), "what cannot be read has no list");
    assert!(said.contains(&format!("{name} ({number})")), "{said}");
}

/// The directory of shared captures, unless it or what the scorer needs is absent.
fn shared_captures(test: &str) -> Option<PathBuf> {
    let directory = Path::new(SHARED).join("pcaps");
    let has_python = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    let reason = if !directory.is_dir() {
        "there is no ../shared/pcaps beside the project"
    } else if !has_python {
        "python3 is not installed"
    } else {
        return Some(directory);
    };
    say(&format!("captures: {test} is skipped: {reason}"));
    None
}

/// Compares every shared capture, listed every `every`, with its truth.
fn assert_scores(every: Option<&str>) {
    let Some(directory) = shared_captures(&format!("scoring with --every {}", every.unwrap_or("none"))) else { return };
    let captures = files(&directory, &CAPTURES);
    assert!(!captures.is_empty(), "{}", directory.display());
    let mut failures = Vec::new();
    for capture in &captures {
        let mut score = command("python3", [Path::new(SHARED).join("tools/score.py").as_path(), capture]);
        score.args(every.iter().flat_map(|every| ["--every", *every])).args(["--flowpeel", &format!("'{FLOWPEEL}'")]);
        let scored = run(&mut score);
        if !scored.status.success() {
            failures.push(text(&scored.stdout) + &scored.stderr);
        }
    }
    assert!(failures.is_empty(), "{} of {} captures:\n{}", failures.len(), captures.len(), failures.concat());
}

#[test]
fn shared_captures_are_listed_as_their_truth_says() {
    assert_scores(None);
}

#[test]
fn shared_captures_are_listed_as_their_truth_says_every_second() {
    assert_scores(Some("1"));
}

#[test]
fn shared_captures_are_listed_as_their_truth_says_every_five_seconds() {
    assert_scores(Some("5"));
}

#[test]
fn shared_captures_are_listed_as_their_truth_says_every_ten_seconds() {
    assert_scores(Some("10"));
}

#[test]
fn shared_captures_of_other_link_types_are_refused_and_no_others() {
    let Some(directory) = shared_captures("the refusal of other link types") else { return };
    let captures = files(&directory, &CAPTURES);
    for capture in &captures {
        let output = replay([capture]);
        let name = capture.file_name().unwrap().to_str().unwrap();
        match REFUSED.iter().find(|(refused, ..)| *refused == name) {
            Some((_, name, number)) => assert_refused(&output, name, *number),
            None => assert!(!output.stdout.is_empty(), "{name}: {}", output.stderr),
        }
    }
    let is_there = |name: &str| captures.iter().any(|capture| capture.ends_with(name));
    assert!(REFUSED.iter().all(|(name, ..)| is_there(name)));
}
