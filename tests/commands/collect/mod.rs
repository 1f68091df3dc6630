//! The offline agent: its lists are those of the router, byte for byte but for how connections ended, which snapshots
//! do not hold, whichever snapshots are missing, late, duplicated or damaged, and however often it was killed.
//!
//! - `steady`: packets of any number of open connections, of which few open and close in an interval
//! - `days`: more than a day between two snapshots, whose starts are right or marked
//! - `open`: more connections than any table lists; its long form has a million
//! - `restarts`: an agent that is killed goes on where it was
//! - `runs`: several runs of a router in one directory
//! - `single`: one snapshot at a time

mod days;
mod open;
mod restarts;
mod runs;
mod single;
mod steady;

use crate::support::command::{FLOWPEEL, command, flowpeel, run, text};
use crate::support::files::names;
use flowpeel::export::SnapshotName;
use flowpeel_traffic::{Traffic, TrafficConfig, write_pcap};
use serde_json::Value;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The names of lists and changes in a directory, in order.
fn list_names(directory: &Path) -> Vec<String> {
    names(directory).into_iter().filter(|name| name.contains(".ndjson")).collect()
}

/// A router's lists and snapshots, and room for those of agents.
struct Site(TempDir);

impl Site {
    /// The files of a replay, with these options, of a generated capture of `connection_count` connections over two
    /// minutes.
    fn replayed(connection_count: u64, options: &str) -> Self {
        let site = Site(tempfile::tempdir().unwrap());
        let capture = site.path("capture.pcap");
        let config =
            TrafficConfig { data_packets: 0..=1, ipv6_share: 0.4, ..TrafficConfig::mixed(17, connection_count) };
        write_pcap(&mut Traffic::new(config).unwrap(), &mut BufWriter::new(File::create(&capture).unwrap())).unwrap();
        site.replay(&[&capture], options);
        site
    }

    fn replay(&self, captures: &[&Path], options: &str) {
        let mut replay = command(FLOWPEEL, ["replay"]);
        replay.args(options.split_whitespace()).args(captures);
        replay.arg("--out").arg(self.path("lists")).arg("--snapshots").arg(self.path("snapshots"));
        let output = run(&mut replay);
        assert!(output.status.success(), "{}", output.stderr);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn snapshots(&self) -> Vec<String> {
        names(&self.path("snapshots"))
    }

    fn remove_snapshot(&self, name: &str) {
        fs::remove_file(self.path("snapshots").join(name)).unwrap();
    }

    /// `flowpeel snapshot collect --once` into this directory; what it said, and its exit status.
    fn collect(&self, into: &str, options: &str) -> (String, Option<i32>) {
        let mut collect = command(FLOWPEEL, ["snapshot", "collect", "--once"]);
        collect.args(options.split_whitespace());
        collect.arg("--out").arg(self.path(into)).arg(self.path("snapshots"));
        let output = run(&mut collect);
        assert!(output.stdout.is_empty());
        (output.stderr, output.status.code())
    }

    /// Compares an agent's lists with the router's: all are there but those of the snapshots `without`, and no others.
    fn assert_same(&self, agent: &str, without: &[String]) {
        let missing: Vec<String> = without.iter().map(|name| list_stem(name)).collect();
        let expected: Vec<String> = list_names(&self.path("lists"))
            .into_iter()
            .filter(|name| !missing.iter().any(|stem| name.split('.').next() == Some(stem)))
            .collect();
        assert_eq!(list_names(&self.path(agent)), expected);
        for name in expected {
            let [router, agent] = ["lists", agent].map(|directory| fs::read(self.path(directory).join(&name)).unwrap());
            assert!(router == agent || without_ends(&router) == without_ends(&agent), "{name} differs");
        }
    }
}

/// A list or its changes without what snapshots do not hold: how connections ended, and those that opened and closed
/// between two lists. The age of what closed is left out too: at the end, or in the list before.
fn without_ends(bytes: &[u8]) -> Vec<Value> {
    let plain = zstd::decode_all(bytes).unwrap_or_else(|_| bytes.to_vec());
    let mut lines: Vec<Value> = Vec::new();
    let mut passed = 0;
    for line in String::from_utf8(plain).unwrap().lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let is_full = lines.first().is_some_and(|header| header["event_type"] == "flow_list");
        if line["change"] == "closed" {
            let flow = line["flow"].as_object_mut().unwrap();
            flow.remove("age");
            let has_end = flow.remove("end").is_some() && flow.remove("reason").is_some();
            let is_passed = |opened: &Value| {
                let ends = ["src_ip", "src_port", "dest_ip", "dest_port"];
                opened["change"] == "opened"
                    && opened["flow"]["start"] == line["flow"]["start"]
                    && ends.iter().all(|end| opened[end] == line[end])
            };
            if has_end && lines.last().is_some_and(is_passed) {
                passed += 1;
                lines.pop();
                continue;
            }
            if is_full {
                continue;
            }
        }
        lines.push(line);
    }
    let header = lines[0].as_object_mut().unwrap();
    ["change", "closings"].iter().for_each(|name| drop(header.remove(*name)));
    let flow = header["flow"].as_object_mut().unwrap();
    ["end", "reason"].iter().for_each(|name| drop(flow.remove(*name)));
    if let Some(changes) = header.get_mut("flow_changes") {
        for count in ["listed", "delisted"] {
            changes[count] = (changes[count].as_u64().unwrap() - passed).into();
        }
    }
    lines
}

/// The name of the list that goes with a snapshot, as far as the first dot.
fn list_stem(snapshot: &str) -> String {
    assert!(SnapshotName::parse(snapshot).is_some());
    snapshot.replace("snapshot-", "flows-").replace(".flowpeel", "")
}

#[test]
fn every_list_is_the_routers_in_every_format() {
    for (options, agent_options) in [
        ("--every 10s --churn 10k", ""),
        ("--every 10s --churn 10k --changes=4 --compress", "--changes=4 --compress"),
        // Several end in one second, so that names have numbers.
        ("--every 400ms --churn 2k --changes=50", "--changes=50"),
        ("--every 30s --churn 20k --vlan-key", ""),
        ("--churn 20k", ""),
    ] {
        let site = Site::replayed(20_000, options);
        let (said, status) = site.collect("agent", agent_options);
        assert_eq!(status, Some(0), "{options}: {said}");
        site.assert_same("agent", &[]);
        let count = site.snapshots().len();
        assert!(said.contains(&format!("{count} lists")), "{said}");
        let (said, status) = site.collect("agent", agent_options);
        assert!(
            status == Some(0) && said.contains("0 lists"),
            "{options}: what was dealt with is not read again: {said}"
        );
    }
}

#[test]
fn what_is_missing_costs_its_own_list_and_no_other() {
    let site = Site::replayed(20_000, "--every 10s --churn 10k");
    let mut without: Vec<String> = site.snapshots().into_iter().skip(2).step_by(3).collect();
    // No later snapshot would make up for the last.
    without.retain(|name| Some(name) != site.snapshots().last());
    assert!(without.len() >= 3);
    without.iter().for_each(|name| site.remove_snapshot(name));
    let (said, status) = site.collect("agent", "");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains(&format!("{} intervals without a snapshot", without.len())), "{said}");
    site.assert_same("agent", &without);
}

#[test]
fn what_comes_late_or_twice_is_covered_and_counted() {
    let site = Site::replayed(5_000, "--every 10s --churn 10k");
    let all = site.snapshots();
    let (late, snapshots) = (site.path("late"), site.path("snapshots"));
    fs::rename(snapshots.join(&all[3]), &late).unwrap();
    assert_eq!(site.collect("agent", "").1, Some(0));
    fs::rename(&late, snapshots.join(&all[3])).unwrap();
    // It is older than the last list, so only an agent that ran then would have seen it: it is written again.
    fs::write(snapshots.join(&all[3]), fs::read(snapshots.join(&all[3])).unwrap()).unwrap();
    let (said, status) = site.collect("agent", "");
    assert!(status == Some(0) && said.contains("0 lists, 1 snapshots late or doubled"), "{said}");
    site.assert_same("agent", &all[3..4]);
}

#[test]
fn clocks_that_step_back_change_no_list_and_no_order() {
    let site = Site::replayed(3_000, "--every 10s --churn 10k --changes=5");
    let capture = site.path("capture.pcap");
    for directory in ["lists", "snapshots"] {
        fs::remove_dir_all(site.path(directory)).unwrap();
    }
    site.replay(&[&capture, &capture], "--every 10s --churn 10k --changes=5");
    assert!(site.snapshots().iter().any(|name| name.contains("_0")), "the second time has the same names");
    let (said, status) = site.collect("agent", "--changes=5");
    assert_eq!(status, Some(0), "{said}");
    site.assert_same("agent", &[]);
}

#[test]
fn what_is_damaged_or_strange_is_named_and_the_others_are_listed() {
    let site = Site::replayed(5_000, "--every 10s --churn 10k");
    let all = site.snapshots();
    let snapshots = site.path("snapshots");
    let mut bytes = fs::read(snapshots.join(&all[2])).unwrap();
    bytes[1_000] ^= 1;
    fs::write(snapshots.join(&all[2]), &bytes).unwrap();
    fs::write(snapshots.join(&all[4]), &bytes[..700]).unwrap();
    let renamed = "snapshot-20260101T235959Z.flowpeel";
    fs::copy(snapshots.join(&all[5]), snapshots.join(renamed)).unwrap();
    fs::copy("tests/snapshots/merge.flowpeel", snapshots.join("snapshot-20260101T235958Z.flowpeel")).unwrap();
    fs::write(snapshots.join("notes.txt"), "no snapshot").unwrap();
    let (said, status) = site.collect("agent", "");
    assert_eq!(status, Some(1), "{said}");
    for part in [
        &format!("{}: the snapshot was damaged or forged", all[2]),
        &format!("{}: at byte 700: the snapshot was cut short", all[4]),
        &format!("{renamed}: its name is not that of the end of its interval"),
        "snapshot-20260101T235958Z.flowpeel: at byte 16: it was written under another secret",
        "4 files refused",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("notes.txt"));
    site.assert_same("agent", &[all[2].clone(), all[4].clone()]);
}

#[test]
fn any_number_of_agents_follows_one_directory_and_one_writes_to_another() {
    let site = Site::replayed(3_000, "--every 10s --churn 10k");
    let before: Vec<_> =
        site.snapshots().iter().map(|name| fs::read(site.path("snapshots").join(name)).unwrap()).collect();
    let mut children: Vec<_> = ["one", "other"].into_iter().map(|into| restarts::follow(&site, into, &[])).collect();
    for into in ["one", "other"] {
        restarts::wait_for(&site.path(into), site.snapshots().len());
    }
    let (said, status) = site.collect("one", "");
    assert!(status == Some(1) && said.contains("another process writes lists here"), "{said}");
    children.iter_mut().for_each(restarts::stop);
    for into in ["one", "other"] {
        site.assert_same(into, &[]);
    }
    let after: Vec<_> =
        site.snapshots().iter().map(|name| fs::read(site.path("snapshots").join(name)).unwrap()).collect();
    assert!(before == after);
}

#[test]
fn what_makes_no_sense_is_refused_at_once() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (out, none) = (path("out"), path("none"));
    for (arguments, status, part) in [
        (&["snapshot", "collect", "--out", &out, &none][..], 1, "cannot look for snapshots here"),
        (&["snapshot", "collect", &none], 2, "--out"),
        (&["snapshot", "collect", "--changes=0", "--out", &out, &none], 2, "--changes must be from 1"),
        (&["snapshot", "collect", "--keep", "1d", "--keep", "2d", "--out", &out, &none], 2, "no two of a kind"),
        (&["snapshot", "get", &none, "10.0.0.1:1", "[::1]:2"], 2, "one address family"),
        (&["snapshot", "get", &none, "10.0.0.1", "10.0.0.2:2"], 2, "CLIENT:PORT"),
        (&["snapshot", "get", &none, "10.0.0.1:1", "10.0.0.2:2", "--vlan", "5000"], 2, "--vlan"),
        (&["snapshot", "peel", &none], 1, "cannot read the snapshot"),
    ] {
        let ended = flowpeel(arguments);
        let said = ended.stderr;
        assert!(ended.status.code() == Some(status) && said.contains(part), "{part} in {said}");
    }
    assert!(!Path::new(&out).exists(), "nothing is made");
}
