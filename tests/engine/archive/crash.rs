//! A process killed at any moment: what was flushed is there, the rest is reported as lost, and the next run goes on.

use super::{ended, exact, files, found};
use crate::support::command::{self, FLOWPEEL, Running, command};
use flowpeel::archive::{Endpoint, Query};
use flowpeel_traffic::{Traffic, TrafficConfig, write_pcap};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Feeds the first bytes of a capture and kills the process, or lets it come to its end.
fn fed(archive: &Path, capture: &[u8], kill: bool) -> command::Ended {
    let mut replay = command(FLOWPEEL, ["replay", "--segment-age", "30s", "--archive"]);
    let mut running = Running::start(replay.arg(archive).arg("-").stdin(Stdio::piped()).stdout(Stdio::null()));
    let mut input = running.child.stdin.take().unwrap();
    input.write_all(capture).unwrap();
    if kill {
        running.child.kill().unwrap();
    }
    drop(input);
    running.wait()
}

/// Everything in an archive, by the servers of the traffic.
fn everything(archive: &Path, servers: &BTreeSet<IpAddr>) -> BTreeSet<super::Ended> {
    let of = |address: &IpAddr| {
        found(archive, &Query { one: Endpoint { address: *address, port: None }, other: None }).entries
    };
    servers.iter().flat_map(of).map(|entry| ended(&entry)).collect()
}

#[test]
fn a_killed_run_loses_its_tail_and_nothing_else() {
    let traffic = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(123, 120_000) };
    let mut capture = Vec::new();
    write_pcap(&mut Traffic::new(traffic.clone()).unwrap(), &mut capture).unwrap();
    let exact: BTreeSet<_> = exact(traffic).into_iter().collect();
    let servers: BTreeSet<IpAddr> = exact.iter().map(|ended| ended.server.ip()).take(100).collect();
    let whole = tempfile::tempdir().unwrap();
    assert_eq!(fed(whole.path(), &capture, false).status.code(), Some(0));
    let segments = files(whole.path());
    assert!(segments.len() >= 4, "{:?}", segments.keys());
    let mut recovered_count = 0;
    for twelfth in 3..12 {
        let place = tempfile::tempdir().unwrap();
        fed(place.path(), &capture[..capture.len() * twelfth / 12 + twelfth], true);
        let left = files(place.path());
        if left.keys().all(|name| !name.starts_with("segment-")) {
            continue;
        }
        // What was sealed is what it would have been.
        for (name, bytes) in left.iter().filter(|(name, _)| name.ends_with(".fpa")) {
            assert!(segments[name] == *bytes, "{name}");
        }
        let before = everything(place.path(), &servers);
        assert!(before.iter().all(|ended| exact.contains(ended)), "nothing is invented");
        let output = fed(place.path(), &capture[..24], false);
        let said = output.stderr;
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("was cut short"), "{said}");
        recovered_count += u32::from(!said.contains(": 0 connections of its last segment"));
        assert_eq!(everything(place.path(), &servers), before, "nothing that could be found is lost");
        let after = files(place.path());
        assert!(!after.keys().any(|name| name.ends_with(".log") || name.starts_with('.')), "{:?}", after.keys());
        let again = fed(place.path(), &capture[..24], false);
        assert!(!again.stderr.contains("was cut short"));
    }
    assert!(recovered_count > 2, "{recovered_count} of the runs were killed in the midst of a segment");
}

#[test]
fn an_index_that_is_missing_is_made_again() {
    let traffic = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(124, 150_000) };
    let place = tempfile::tempdir().unwrap();
    super::archive(place.path(), traffic.clone(), &flowpeel::engine::Config::default());
    let indexes = |files: BTreeMap<String, Vec<u8>>| {
        files.into_iter().filter(|(name, _)| name.starts_with("index-")).collect::<Vec<_>>()
    };
    let before = indexes(files(place.path()));
    assert!(!before.is_empty());
    for (name, _) in &before {
        fs::remove_file(place.path().join(name)).unwrap();
    }
    super::archive(place.path(), TrafficConfig::mixed(1, 10), &flowpeel::engine::Config::default());
    let after = indexes(files(place.path()));
    assert!(before.iter().all(|index| after.contains(index)));
}

/// Every entry of an archive whose server is one of these, as often as it is there.
fn all_of(archive: &Path, servers: &BTreeSet<IpAddr>) -> Vec<super::Ended> {
    let of = |address: &IpAddr| {
        let query = Query { one: Endpoint { address: *address, port: None }, other: None };
        let mut entries = found(archive, &query).entries;
        entries.retain(|entry| entry.server().ip() == *address);
        entries
    };
    let mut all: Vec<_> = servers.iter().flat_map(of).map(|entry| ended(&entry)).collect();
    all.sort();
    all
}

/// The command that replays a capture with an archive and a state in a directory.
fn resumable(place: &Path, capture: &Path) -> std::process::Command {
    let mut command = command(FLOWPEEL, ["replay"]);
    command.args(["--every", "2s", "--connections", "20k", "--churn", "4k", "--shards", "2"]);
    command.args(["--segment-age", "20s", "--segment-size", "16KiB", "--state-every", "20ms"]);
    for (option, name) in [("--archive", "archive"), ("--state", "state")] {
        command.arg(option).arg(place.join(name));
    }
    command.arg(capture).stdout(Stdio::null());
    command
}

#[test]
fn a_run_that_is_killed_and_resumed_archives_every_connection_once() {
    let traffic = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(125, 80_000) };
    let place = tempfile::tempdir().unwrap();
    let capture = place.path().join("capture.pcap");
    write_pcap(&mut Traffic::new(traffic.clone()).unwrap(), &mut fs::File::create(&capture).unwrap()).unwrap();
    let servers: BTreeSet<IpAddr> = exact(traffic).into_iter().map(|ended| ended.server.ip()).take(2_000).collect();
    let whole = place.path().join("whole");
    let began = std::time::Instant::now();
    assert_eq!(command::run(&mut resumable(&whole, &capture)).status.code(), Some(0));
    let mut lasts_us = began.elapsed().as_micros() as u64;
    let expected = all_of(&whole.join("archive"), &servers);
    assert!(expected.len() > 5_000, "{}", expected.len());
    let mut random = 7_u64;
    let (mut kill_count, mut resumed_count, mut rewound_count) = (0, 0, 0);
    // Kills that come too late show nothing: on a machine that has become faster meanwhile it takes more rounds.
    for round in 0..12 {
        if round >= 3 && resumed_count > 6 && rewound_count > 0 {
            break;
        }
        let killed = place.path().join(format!("killed-{round}"));
        let archive = killed.join("archive");
        let mut run = |kill_after: Option<Duration>| {
            let before = archive.exists().then(|| files(&archive));
            let mut running = Running::start(&mut resumable(&killed, &capture));
            if let Some(kill_after) = kill_after {
                std::thread::sleep(kill_after);
                running.child.kill().unwrap();
            }
            let output = running.wait();
            resumed_count += u32::from(output.stderr.contains("continuing from state"));
            let is_gone = |name: &String| name.ends_with(".fpa") && !archive.join(name).exists();
            rewound_count += u32::from(before.is_some_and(|before| before.keys().any(is_gone)));
            kill_count += u32::from(output.status.code().is_none());
            output.status.code().inspect(|code| assert_eq!(*code, 0, "{}", output.stderr))
        };
        for _ in 0..6 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if run(Some(Duration::from_micros((random >> 33) % lasts_us))).is_some() {
                lasts_us = (lasts_us / 2).max(1_000);
                break;
            }
        }
        assert_eq!(run(None), Some(0));
        assert!(all_of(&archive, &servers) == expected, "round {round}: other connections are archived");
        // The same command once more has nothing to add.
        assert_eq!(run(None), Some(0));
        assert!(all_of(&archive, &servers) == expected, "round {round}: what was finished was archived again");
    }
    println!("{kill_count} kills, {resumed_count} resumed, {rewound_count} set the archive back");
    assert!(kill_count > 3 && resumed_count > 6 && rewound_count > 0, "{kill_count} {resumed_count} {rewound_count}");
}
