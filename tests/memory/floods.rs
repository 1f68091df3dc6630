//! The memory of a whole replay while it is flooded, as the kernel counts it: no more than was announced at the start,
//! and no more for a long flood than for a short one.
#![cfg(target_os = "linux")]

use crate::support::say;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What the process takes beside what it announces: code, stacks, output buffers; and under a flood the rows of
/// half-open connections and the few of the thousand clients.
const PROCESS_SIZE_MAX: u64 = 16 << 20;

/// The variation from run to run: which pages of a table are touched first, how full a list got, and how much of it was
/// written while the capture went on; up to 6 MiB where other work shared the cores.
const TOLERANCE_SIZE: u64 = 8 << 20;

/// The time between two looks. The peak is the kernel's own, so only the last look before the end matters.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A child that does not outlive a failing test.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // It has ended already unless a test has failed.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The memory of one replay, in bytes.
struct Measured {
    announced: u64,
    /// The part of it that is for open connections.
    list: u64,
    peak: u64,
    packets: u64,
}

/// The peak of the process's memory, in bytes; `None` when it has ended.
fn peak_of(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/status"))).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10)
}

/// The number of MiB that follows `before`, in bytes.
fn size_in(line: &str, before: &str) -> Option<u64> {
    let behind = line.split_once(before)?.1.split([' ', ')']).next()?;
    Some((behind.parse::<f64>().ok()? * f64::from(1 << 20)) as u64)
}

/// The packets of the summary.
fn packets_in(text: &str) -> Option<u64> {
    let count = text.lines().find_map(|line| line.strip_prefix("packets "))?;
    count.trim().replace(',', "").parse().ok()
}

/// Replays what these arguments generate, and watches it to its end.
fn watched(generated: &str, options: &[&str]) -> Measured {
    let flowpeel = || Command::new(env!("CARGO_BIN_EXE_flowpeel"));
    let arguments = ["generate", "--quiet"].into_iter().chain(generated.split(' '));
    let mut generator = Reaped(flowpeel().args(arguments).stdout(Stdio::piped()).spawn().unwrap());
    let capture = generator.0.stdout.take().unwrap();
    let mut replay = Reaped(
        flowpeel()
            .args(["replay", "--every", "1s", "-"])
            .args(options)
            .stdin(capture)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    // It says what it takes before it reads anything; the rest fits into the pipe until it has ended.
    let mut said = BufReader::new(replay.0.stderr.take().unwrap());
    let mut text = String::new();
    said.read_line(&mut text).unwrap();
    let mut peak = 0;
    let status = loop {
        peak = peak.max(peak_of(replay.0.id()).unwrap_or(0));
        if let Some(status) = replay.0.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(LOOK_INTERVAL);
    };
    said.read_to_string(&mut text).unwrap();
    assert!(status.success() && generator.0.wait().unwrap().success(), "{text}");
    let sizes = (size_in(&text, "an interval: "), size_in(&text, "list up to "), packets_in(&text));
    let (Some(announced), Some(list), Some(packets)) = sizes else { panic!("{sizes:?} in {text}") };
    let mib = |size: u64| size as f64 / f64::from(1 << 20);
    let announcement = format!("{:.1} MiB announced, {:.1} of them for the list", mib(announced), mib(list));
    say::say(&format!("memory: {generated}: {:.1} MiB at the peak, {announcement}", mib(peak)));
    assert!(peak > 1 << 20, "{peak} bytes: it was not watched");
    assert!(peak <= announced + PROCESS_SIZE_MAX);
    Measured { announced, list, peak, packets }
}

/// A flood of five million packets against one of a million, which fills everything already.
fn assert_bounded(kind: &str, options: &[&str]) {
    let flood = |packets| watched(&format!("--flood {kind} --flood-packets {packets}"), options);
    let (short, long) = (flood("1M"), flood("5M"));
    assert!(short.packets >= 1_000_000 && long.packets >= 5_000_000);
    assert_eq!(short.announced, long.announced);
    assert!(long.peak <= short.peak + TOLERANCE_SIZE, "{} bytes after {}", long.peak, short.peak);
    // Hardly anything is open, so the memory that was announced for the list is not taken.
    assert!(long.peak <= long.announced - long.list + PROCESS_SIZE_MAX, "{} bytes", long.peak);
}

#[test]
fn a_flood_that_nobody_answers_takes_what_was_announced() {
    assert_bounded("unanswered", &[]);
}

#[test]
fn a_flood_that_the_server_answers_takes_what_was_announced() {
    assert_bounded("answered", &[]);
}

#[test]
fn a_flood_of_acknowledgements_takes_what_was_announced() {
    assert_bounded("acks", &[]);
}

#[test]
fn a_flood_of_five_million_sources_that_are_counted_takes_what_was_announced() {
    let out = tempfile::tempdir().unwrap();
    assert_bounded("answered", &["--sources", "--out", out.path().to_str().unwrap()]);
}

#[test]
fn as_many_connections_as_were_asked_for_take_what_was_announced() {
    // IPv6 takes the most. The flood is of no account: with one, a fixed number of clients stays connected.
    let clients = "--connections 490k --data-packets 0 --duration 11s --ipv6 1 --flood acks --flood-packets 1k";
    let full = watched(clients, &[]);
    let without_list = full.announced - full.list;
    assert!(full.peak > without_list + full.list / 2, "{} bytes: the list was not full", full.peak);
}

#[test]
fn what_is_said_is_read_as_it_is_written() {
    let said =
        "room for 9 changes an interval: 175.5 MiB at most (filter 8.4, list up to 0.5)\npackets      5,000,001\n";
    assert_eq!(size_in(said, "an interval: "), Some(184_025_088));
    assert_eq!(size_in(said, "list up to "), Some(1 << 19));
    assert_eq!(size_in(said, "tables "), None);
    assert_eq!(packets_in(said), Some(5_000_001));
}
