//! A process killed at any moment: what was flushed is there, the rest is reported as lost, and the next run goes on.

use super::{ended, exact, files, found};
use crate::support::command::{self, FLOWPEEL, Running, command};
use flowpeel::archive::{Endpoint, Query};
use flowpeel::generate::{Traffic, TrafficConfig, write_pcap};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;

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
        assert!(said.contains("did not end as it should"), "{said}");
        recovered_count += u32::from(!said.contains(": 0 connections of its last segment"));
        assert_eq!(everything(place.path(), &servers), before, "nothing that could be found is lost");
        let after = files(place.path());
        assert!(!after.keys().any(|name| name.ends_with(".log") || name.starts_with('.')), "{:?}", after.keys());
        let again = fed(place.path(), &capture[..24], false);
        assert!(!again.stderr.contains("did not end as it should"));
    }
    assert!(recovered_count > 2, "{recovered_count} of the runs were killed in the midst of a segment");
}

#[test]
fn an_index_that_is_missing_is_made_again() {
    let traffic = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(124, 150_000) };
    let place = tempfile::tempdir().unwrap();
    super::archive(place.path(), traffic.clone(), &flowpeel::pipeline::Config::default());
    let indexes = |files: BTreeMap<String, Vec<u8>>| {
        files.into_iter().filter(|(name, _)| name.starts_with("index-")).collect::<Vec<_>>()
    };
    let before = indexes(files(place.path()));
    assert!(!before.is_empty());
    for (name, _) in &before {
        fs::remove_file(place.path().join(name)).unwrap();
    }
    super::archive(place.path(), TrafficConfig::mixed(1, 10), &flowpeel::pipeline::Config::default());
    let after = indexes(files(place.path()));
    assert!(before.iter().all(|index| after.contains(index)));
}
