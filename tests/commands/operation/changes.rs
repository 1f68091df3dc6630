//! Lists rebuilt from their changes, and compared byte for byte with the lists themselves; and what they say closed
//! against events.

use super::{capture, files, name, replayed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// The key that orders connections within a list.
type Key = (SocketAddr, SocketAddr, Vec<u64>);

/// A reader, which holds the established connections of the last list, line by line.
#[derive(Default)]
struct Reader {
    interval: u64,
    end: String,
    flows: BTreeMap<Key, String>,
}

fn key(line: &str) -> Key {
    let value: Value = serde_json::from_str(line).unwrap();
    let end = |address: &str, port: &str| {
        let port = u16::try_from(value[port].as_u64().unwrap()).unwrap();
        SocketAddr::new(value[address].as_str().unwrap().parse().unwrap(), port)
    };
    let tags = value
        .get("vlan")
        .map_or(Vec::new(), |tags| tags.as_array().unwrap().iter().map(|tag| tag.as_u64().unwrap()).collect());
    (end("src_ip", "src_port"), end("dest_ip", "dest_port"), tags)
}

/// The text between two others.
fn between<'a>(line: &'a str, before: &str, after: &str) -> &'a str {
    line.split_once(before).unwrap().1.split_once(after).unwrap().0
}

/// A line as it stands in a list that ends later.
fn aged(line: &str, end: &str, elapsed_us: i64) -> String {
    let age = between(line, "\"age\":", ",");
    let age_us = (age.parse::<f64>().unwrap() * 1e6).round() as i64 + elapsed_us;
    let mut fraction = format!("{:06}", age_us % 1_000_000);
    while fraction.len() > 1 && fraction.ends_with('0') {
        fraction.pop();
    }
    let aged = line.replace(&format!("\"age\":{age},"), &format!("\"age\":{}.{fraction},", age_us / 1_000_000));
    aged.replacen(between(line, "\"timestamp\":\"", "\""), end, 1)
}

impl Reader {
    /// Reads a list or its changes. Returns the header and the established connections of the list.
    fn read(&mut self, text: &str) -> String {
        let mut lines = text.lines();
        let header = lines.next().unwrap();
        let value: Value = serde_json::from_str(header).unwrap();
        let is_full = value["event_type"] == "flow_list";
        let fields = if is_full { &value["flow_list"] } else { &value["flow_changes"] };
        let end = fields["end"].as_str().unwrap();
        let header = if is_full {
            self.flows.clear();
            let (mut closings, is_first) = (0, self.end.is_empty());
            for line in lines {
                closings += u64::from(line.contains("\"change\":\"closed\""));
                if line.contains("\"established\"") {
                    assert!(closings == 0, "closed connections come behind the list");
                    assert!(self.flows.insert(key(line), line.to_owned()).is_none());
                }
            }
            assert_eq!(value["closings"], serde_json::json!({ "lines": closings }));
            assert!(!is_first || closings == 0, "the first list builds on none");
            plain(&header.replace(&format!(",\"closings\":{{\"lines\":{closings}}}"), ""))
        } else {
            assert_eq!(fields["base"]["interval"], self.interval, "it builds on the list before");
            assert_eq!(fields["base"]["end"], self.end.as_str());
            let elapsed_us = (fields["elapsed"].as_f64().unwrap() * 1e6).round() as i64;
            self.flows.values_mut().for_each(|line| *line = aged(line, end, elapsed_us));
            self.apply(lines, fields);
            let list = header.split_once(",\"base\":").unwrap().0.replace("flow_changes", "flow_list");
            let columns = header.split_once("\"change\":\"\",").unwrap().1;
            plain(&format!("{list}}},{columns}"))
        };
        (self.interval, self.end) = (fields["interval"].as_u64().unwrap(), end.to_owned());
        assert_eq!(fields["flows"], self.flows.len());
        self.flows.values().fold(header + "\n", |text, line| text + line + "\n")
    }

    fn apply<'a>(&mut self, lines: impl Iterator<Item = &'a str>, fields: &Value) {
        let (mut listed, mut delisted) = (0, 0);
        let mut last = None;
        for line in lines {
            let value: Value = serde_json::from_str(line).unwrap();
            let key = key(line);
            let is_opened = value["change"] == "opened";
            // Those of one connection are in the order of time, so applying them one by one holds them to each other.
            assert!(last <= Some(key.clone()), "sorted");
            last = Some(key.clone());
            if is_opened {
                listed += 1;
                assert!(self.flows.insert(key, line.replace("\"change\":\"opened\",", "")).is_none());
            } else {
                delisted += 1;
                assert_eq!((&value["change"], &value["flow"]["state"]), (&"closed".into(), &"closed".into()));
                let known = self.flows.remove(&key).unwrap();
                assert_eq!(between(&known, "\"start\":\"", "\""), value["flow"]["start"].as_str().unwrap());
            }
        }
        assert_eq!((&fields["listed"], &fields["delisted"]), (&listed.into(), &delisted.into()));
    }
}

/// The header of a list without the columns of changes.
fn plain(header: &str) -> String {
    let start = between(header, "\"flow\":{\"start\":\"", "\"");
    let header = header.replace("\"change\":\"\",", "").replace(",\"reason\":\"\"", "");
    header.replacen(&format!(",\"end\":\"{start}\",\"age\":0.0"), ",\"age\":0.0", 1)
}

/// A list without its half-open connections.
fn established(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("\"syn_sent\"") && !line.contains("\"syn_recv\""));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The lists of a run: one text each, in the order in which they were written.
fn split(stream: &str) -> Vec<String> {
    let mut lists: Vec<String> = Vec::new();
    for line in stream.lines() {
        if !line.contains("\"event_type\":\"flow\"") {
            lists.push(String::new());
        }
        *lists.last_mut().unwrap() += &format!("{line}\n");
    }
    lists
}

/// Replays with and without changes, and holds what can be put together from the changes against the lists.
fn assert_rebuilt(options: &str, full_every: usize, inputs: &[&Path]) -> usize {
    let stream = |options: &str| split(&String::from_utf8(replayed(options, inputs).stdout).unwrap());
    let lists = stream(options);
    let changes = stream(&format!("{options} --changes={full_every}"));
    assert_eq!(lists.len(), changes.len());
    let mut reader = Reader::default();
    let mut changed_count = 0;
    for (index, (list, change)) in lists.iter().zip(&changes).enumerate() {
        assert_eq!(change.contains("\"event_type\":\"flow_list\""), index % full_every == 0, "list {index}");
        assert_eq!(reader.read(change), established(list), "list {index}");
        changed_count += change.matches("\"change\":").count();
    }
    changed_count
}

#[test]
fn every_list_can_be_put_together_from_what_changed() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 6_000);
    for (options, full_every) in [("-q --every 1s", 7), ("-q --every 700ms --vlan-key", 1_000)] {
        let changed_count = assert_rebuilt(options, full_every, &[&capture]);
        assert!(changed_count > 4_000, "{changed_count} opened or closed");
    }
    assert_rebuilt("-q --every 5s", 1, &[&capture]);
}

#[test]
fn a_clock_that_steps_back_changes_nothing_in_that() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 2_000);
    let inputs: Vec<&Path> = vec![&capture; 70];
    // More time bases than are remembered: starts of open connections are given anew.
    assert_rebuilt("-q --every 60s", 1_000, &inputs);
}

#[test]
fn files_name_what_they_build_on_when_the_clock_stepped_back() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 3_000);
    let (plain, changes) = (place.path().join("plain"), place.path().join("changes"));
    // The clock steps back, twice: lists in the midst of others are in full.
    let inputs: [&Path; 3] = [&capture; 3];
    let out = |directory: &Path| format!("-q --every 9s --out {}", directory.display());
    replayed(&out(&plain), &inputs);
    replayed(&format!("{} --changes=5", out(&changes)), &inputs);
    let (plain, changes) = (files(&plain), files(&changes));
    assert_eq!(plain.len(), changes.len());
    assert!(changes.iter().filter(|path| name(path).starts_with("changes-")).count() >= 8, "{changes:?}");
    let stem = |path: &Path| name(path).split_once('-').unwrap().1.to_owned();
    let interval =
        |path: &Path| -> u64 { between(&fs::read_to_string(path).unwrap(), "\"interval\":", ",").parse().unwrap() };
    let mut ordered = changes.clone();
    ordered.sort_by_key(|path| interval(path));
    let mut reader = Reader::default();
    for path in ordered {
        let list = plain.iter().find(|list| stem(list) == stem(&path)).unwrap();
        assert_eq!(reader.read(&fs::read_to_string(&path).unwrap()), established(&fs::read_to_string(list).unwrap()));
    }
}

/// What a line says of a connection that has closed.
fn closed(line: &str) -> Option<String> {
    let value: Value = serde_json::from_str(line).unwrap();
    let is_closed = value["change"] == "closed" && value["flow"]["end"].is_string();
    is_closed.then(|| {
        let flow = &value["flow"];
        format!("{:?} {} {} {} {}", key(line), flow["start"], flow["end"], flow["age"], flow["reason"])
    })
}

/// The connections that the lines of a text say have closed, in no order.
fn all_closed(text: &str) -> Vec<String> {
    let mut all: Vec<String> = text.lines().filter_map(closed).collect();
    all.sort();
    all
}

#[test]
fn what_closed_is_in_the_changes_once_with_its_end_and_reason_as_in_the_events() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 6_000);
    let events = place.path().join("events.ndjson");
    for (options, full_every) in
        [("--every 700ms", 5), ("--every 3s --shards 2 --idle-timeout 20s", 1), ("--every 5s", 1_000)]
    {
        let options = format!("-q {options} --changes={full_every} --events {}", events.display());
        let changes = String::from_utf8(replayed(&options, &[&capture]).stdout).unwrap();
        let (listed, logged) = (all_closed(&changes), all_closed(&fs::read_to_string(&events).unwrap()));
        assert!(logged.len() > 2_000, "{} closed", logged.len());
        // What closes before the first list is in none.
        let first_end = between(&changes, "\"end\":\"", "\"").to_owned();
        let later = |line: &&String| line.split('"').nth(3).unwrap() >= first_end.as_str();
        let (listed, logged): (Vec<_>, Vec<_>) = (listed.iter().collect(), logged.iter().filter(later).collect());
        assert_eq!(listed.len(), logged.len(), "{options}");
        assert!(listed == logged, "{options}");
        fs::remove_file(&events).unwrap();
    }
}
