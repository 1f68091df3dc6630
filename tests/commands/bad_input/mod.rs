//! Bad input: never a panic or a hang, one clear line for each failure, and what could be read is listed.

mod cuts;
mod interrupts;
mod limits;
mod links;
mod output;
mod snap_length;
mod times;

use crate::support::captures;
use crate::support::captures::{
    START_S, block, frames, gzip, packet_body, pcap, pcap_header, pcapng, pcapng_header, record_header, zstd,
};
use crate::support::command;
use crate::support::command::{FLOWPEEL, Running, command, flowpeel, replay};
use crate::support::say::skipped;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory that everybody may enter, and a file in it.
fn file(name: &str, bytes: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    (directory, path)
}

/// Runs the command as a user who owns nothing; `None`, after saying so, where that is not possible.
fn unprivileged(arguments: &[&Path]) -> Option<command::Ended> {
    // The built command may be in a place that this user cannot enter.
    let (_directory, program) = file("flowpeel", &fs::read(FLOWPEEL).unwrap());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let switch = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let is_possible = command("setpriv", switch).arg("true").status().is_ok_and(|status| status.success());
    if !is_possible {
        skipped("setpriv cannot switch to another user here");
        return None;
    }
    let mut command = command("setpriv", switch);
    command.arg(program).arg("replay").args(arguments);
    Some(Running::start(&mut command).wait())
}

#[test]
fn what_is_no_capture_is_named_and_nothing_is_listed() {
    let good = pcap(&frames());
    let cases: [(&str, &[u8], &[&str]); 8] = [
        ("empty.pcap", b"", &["it is empty"]),
        ("text.pcap", b"hello, I am no capture\n", &["at byte 0", "it is not a capture: pcap and pcapng are read"]),
        ("one.pcap", &good[..1], &["at byte 0", "it is not a capture"]),
        ("header.pcap", &good[..20], &["at byte 0", "cut short inside the pcap file header (20 of 24 bytes"]),
        ("packed.xz", b"\xfd7zXZ\0 and so on", &["at byte 0", "compressed with xz: decompress it first"]),
        ("empty.gz", &gzip(b""), &["it is empty"]),
        ("text.zst", &zstd(b"no capture either"), &["at byte 0", "it is not a capture"]),
        ("twice.gz", &gzip(&gzip(&good)), &["at byte 0", "it is not a capture"]),
    ];
    for (name, bytes, parts) in cases {
        let (_directory, path) = file(name, bytes);
        let ended = replay([&path]);
        ended.assert_failed(parts);
        ended.assert_failed(&[path.to_str().unwrap(), "; nothing of it is listed"]);
        ended.assert_nothing();
    }
}

#[test]
fn what_can_not_be_opened_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let ended = replay([directory.path()]);
    ended.assert_failed(&[directory.path().to_str().unwrap(), "it is a directory", "nothing of it is listed"]);
    ended.assert_nothing();
    let missing = directory.path().join("missing.pcap");
    let ended = replay([&missing]);
    ended.assert_failed(&[missing.to_str().unwrap(), "cannot open it: No such file", "nothing of it is listed"]);
    ended.assert_nothing();
}

#[test]
fn a_file_without_permission_is_named() {
    let (_directory, path) = file("secret.pcap", &pcap(&frames()));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    if let Some(ended) = unprivileged(&[&path]) {
        ended.assert_failed(&[path.to_str().unwrap(), "cannot open it: Permission denied", "nothing of it is listed"]);
        ended.assert_nothing();
    }
}

#[test]
fn a_directory_without_permission_is_named() {
    let (directory, path) = file("good.pcap", &pcap(&frames()));
    let lists = directory.path().join("lists");
    if let Some(ended) = unprivileged(&[Path::new("--out"), &lists, &path]) {
        ended.assert_failed(&[lists.to_str().unwrap(), "cannot write lists here: Permission denied"]);
        ended.assert_nothing();
        assert!(!lists.exists());
    }
}

#[test]
fn wrong_lengths_end_the_file_where_they_stand() {
    let good = pcap(&frames());
    let good_ng = pcapng(&frames());
    let at = good.len();
    let at_ng = good_ng.len();
    let frame = &frames()[0];
    let with_size = |size: u32| {
        let mut bytes = block(6, &packet_body(0, 0, frame));
        bytes[4..8].copy_from_slice(&size.to_le_bytes());
        bytes
    };
    let mut other_trailer = block(6, &packet_body(0, 0, frame));
    other_trailer.iter_mut().rev().take(4).for_each(|byte| *byte = 7);
    let mut longer_packet = packet_body(0, 0, frame);
    longer_packet[12..16].copy_from_slice(&1_000_u32.to_le_bytes());
    let cases = [
        (&good, record_header(START_S, u32::MAX), "a packet of 4294967295 bytes, where 262144 is the longest"),
        (&good, record_header(START_S, 262_145), "a packet of 262145 bytes"),
        (&good, record_header(START_S, 262_144), "cut short inside a packet record (16 of 262160 bytes are there)"),
        (&good_ng, with_size(0), "a block of 0 bytes"),
        (&good_ng, with_size(13), "a block of 13 bytes"),
        (&good_ng, with_size(u32::MAX - 3), "a block of type 6 with 4294967292 bytes"),
        (&good_ng, with_size(1_000), "cut short inside a block"),
        (&good_ng, other_trailer, "gives its length as 88 and as 117901063 bytes"),
        (&good_ng, block(6, &longer_packet), "a packet of 1000 bytes is longer than its block"),
        (&good_ng, block(6, &packet_body(1, 0, frame)), "interface 1 is not declared"),
        (&good_ng, block(6, b"short"), "a block of type 6 with only 20 bytes"),
        (&good_ng, block(1, b""), "an interface description without a link type"),
    ];
    for (before, bad, what) in cases {
        let offset = before.len();
        assert!(offset == at || offset == at_ng);
        let (_directory, path) = file("bad", &[before.as_slice(), &bad].concat());
        let ended = replay([&path]);
        ended.assert_failed(&[path.to_str().unwrap(), &format!("at byte {offset}: "), what]);
        ended.assert_failed(&["; the 12 packets before it are listed"]);
        let lists = ended.lists();
        assert_eq!(lists.len(), 1);
        assert_eq!((lists[0].count("flows"), lists[0].count("half_open")), (2, 1));
    }
}

#[test]
fn a_long_block_of_an_unknown_kind_that_is_not_there_ends_at_once() {
    let mut bad = 0x0bad_u32.to_le_bytes().to_vec();
    bad.extend(0xffff_fffc_u32.to_le_bytes());
    bad.extend([0; 8]);
    let (_directory, path) = file("long.pcapng", &[pcapng_header(&[]), bad].concat());
    let ended = replay([&path]);
    ended.assert_failed(&[
        "at byte 48: ",
        "cut short inside a block (16 of 4294967292 bytes",
        "nothing of it is listed",
    ]);
    ended.assert_nothing();
}

#[test]
fn an_absurd_snapshot_length_is_of_no_account() {
    for size in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        let records = pcap(&frames()).split_off(captures::PCAP_HEADER_SIZE);
        let (_directory, path) = file("snaplen.pcap", &[pcap_header(size), records].concat());
        let ended = replay(["-q".as_ref(), path.as_os_str()]);
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""), "snapshot length {size}");
        assert_eq!(ended.lists()[0].count("flows"), 2);
    }
}

#[test]
fn a_bad_file_between_good_ones_takes_nothing_from_them() {
    let frames = frames();
    let (_first, first) = file("first.pcap", &pcap(&frames[..6]));
    let (_text, text) = file("text.pcap", b"hello, I am no capture\n");
    let (_second, second) = file("second.pcap", &pcap(&frames[6..]));
    let ended = replay([&first, &text, &second]);
    ended.assert_failed(&[text.to_str().unwrap(), "it is not a capture", "; nothing of it is listed"]);
    let lists = ended.lists();
    assert_eq!((lists[0].count("flows"), lists[0].count("half_open"), lists[0].count("opened")), (2, 1, 3));
    assert!(ended.stderr.lines().any(|line| line.starts_with("packets") && line.ends_with(" 12")), "{}", ended.stderr);
    let ended = replay([&text, &first, &text]);
    assert_eq!((ended.status.code(), ended.errors().len(), ended.lists().len()), (Some(1), 2, 1));
}

#[test]
fn standard_input_is_called_so() {
    for (bytes, part) in [(&b"hello, I am no capture\n"[..], "at byte 0: it is not a capture"), (b"", "it is empty")] {
        let (_directory, path) = file("stdin", bytes);
        let mut command = command(FLOWPEEL, ["replay", "-"]);
        command.stdin(File::open(path).unwrap());
        let ended = Running::start(&mut command).wait();
        ended.assert_failed(&["error: standard input: ", part]);
        ended.assert_nothing();
    }
}

#[test]
fn a_terminal_is_no_capture() {
    // The script command makes a terminal of its own.
    let line = format!("'{FLOWPEEL}' replay -");
    let mut terminal = command("script", ["-qec", &line, "/dev/null"]);
    if command("script", ["--version"]).output().is_err() {
        skipped("there is no script command to make a terminal");
        return;
    }
    let ended = Running::start(&mut terminal).wait();
    assert_eq!(ended.status.code(), Some(1));
    let shown = String::from_utf8(ended.stdout).unwrap();
    assert!(shown.contains("standard input: it is a terminal: name a capture file, or pipe one in"), "{shown}");
    assert_eq!(shown.lines().count(), 1, "{shown}");
}

#[test]
fn a_hostile_name_is_escaped_in_every_message() {
    let name = "a\x1b[2J\nb\r\u{7}.pcap";
    let escaped = "a\\u{1b}[2J\\nb\\r\\u{7}.pcap";
    let (directory, path) = file(name, b"hello, I am no capture\n");
    replay([&path]).assert_failed(&[escaped, "it is not a capture"]);
    let ended = replay([&path, &path.join("below")]);
    assert_eq!(ended.errors().len(), 2);
    assert!(ended.errors().iter().all(|line| line.contains(escaped)), "{}", ended.stderr);
    fs::write(&path, &pcap(&frames())[..100]).unwrap();
    replay([&path]).assert_failed(&[escaped, "at byte 94", "; the packet before it is listed"]);
    replay(["--out".as_ref(), path.as_os_str(), path.as_os_str()]).assert_failed(&[escaped, "it is not a directory"]);
    let secret = directory.path().join(name);
    let ended = replay(["--secret-file".as_ref(), secret.as_os_str(), path.as_os_str()]);
    assert_eq!((ended.status.code(), ended.errors().len()), (Some(2), 1));
    assert!(ended.errors()[0].contains(escaped), "{}", ended.stderr);
    let mut stray = command(FLOWPEEL, ["generate"]);
    stray.arg(name);
    let ended = Running::start(&mut stray).wait();
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains(escaped) && !ended.stderr.contains('\x1b'), "{:?}", ended.stderr);
}

#[test]
fn wrong_usage_says_what_is_right() {
    for (words, part) in [
        ("", "Usage: flowpeel"),
        ("repaly x", "unrecognized subcommand 'repaly'"),
        ("replay", "<FILE>..."),
        ("replay --evry 10s x", "'--every'"),
        ("replay --every 10 x", "10s, 500ms, 1m"),
        ("replay --every 0s x", "above 0"),
        ("replay --every 1ms x", "from 100ms to 366 days"),
        ("peel x", "a similar subcommand exists: 'snapshot peel'"),
        ("replay --shards 0 x", "from 1 to 8"),
        ("replay --shards many x", "from 1 to 8"),
        ("replay --connections 1 x", "from 1000 to 100000000"),
        ("replay --connections ten x", "a whole number"),
        ("replay --churn 99G x", "at most 100000000"),
        ("replay --memory 1MiB x", "raise --memory, or lower --connections, by which"),
        ("replay --memory lots x", "256MiB"),
        ("replay --archive a --segment-size 64MiB x", "raise --memory, or lower --segment-size, by which"),
        ("replay --archive a --segment-size 15KiB x", "--segment-size must be from 16KiB to 64MiB"),
        ("replay --archive a --segment-size 1 x", "--segment-size must be from 16KiB to 64MiB"),
        ("replay --archive a --segment-size some x", "1MiB, 512KiB"),
        ("live -i lo --ring-size 300MiB", "raise --memory, or lower --ring-size, by which"),
        ("live -i lo --ring-size 511KiB", "from 512KiB to 1024MiB"),
        ("live -i lo --ring-size 2GiB", "from 512KiB to 1024MiB"),
        ("live -i lo --ring-size 512KiB --memory 2MiB", "raise --memory, or lower --connections, by which"),
        ("replay --syn-timeout 1h x", "from 100ms to 600s"),
        ("replay --secret-file /nonexistent x", "/nonexistent: cannot read the secret"),
        ("generate --seed x", "a whole number from 0 to 18446744073709551615"),
        ("generate --ipv6 2", "from 0 to 1"),
        ("generate --data-packets 5-1", "from the lesser to the greater"),
        ("generate --flood tcp", "unanswered, answered, acks"),
        ("generate --flood-rate 5", "--flood <KIND>"),
    ] {
        let ended = flowpeel(words.split_whitespace());
        assert_eq!(ended.status.code(), Some(2), "{words}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{words}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{words}");
    }
    for words in ["--help", "-h", "--version", "replay --help", "replay -h", "generate --help", "help replay"] {
        let ended = flowpeel(words.split_whitespace());
        assert_eq!(
            (ended.status.code(), ended.stderr.as_str(), ended.stdout.is_empty()),
            (Some(0), "", false),
            "{words}"
        );
    }
}

#[test]
fn what_there_was_no_room_for_is_reported_in_times() {
    let frames: Vec<_> = (1..=9_000).flat_map(captures::opening).collect();
    let (_directory, path) = file("many.pcap", &pcap(&frames));
    let ended = replay(["--connections".as_ref(), "1000".as_ref(), path.as_os_str()]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    // One that is found mid-stream is refused time and again, so these are no connections.
    let [before, after] =
        ["warning: connections were established, or found mid-stream, ", " times when no more could be tracked"];
    assert!(ended.stderr.contains(before) && ended.stderr.contains(after), "{}", ended.stderr);
}
