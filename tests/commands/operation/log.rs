//! Log lines: one for each message, and nothing from outside that could pass for another.

use super::{capture, flowpeel};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The log of a replay of a good capture and of one with a hostile name.
fn said(format: &str) -> String {
    let place = tempfile::tempdir().unwrap();
    let good = capture(place.path(), "good.pcap", 10);
    let hostile = place.path().join("a\x1b[2J\nERROR b\r\u{7}\u{9b}31m.pcap");
    fs::write(&hostile, "no capture").unwrap();
    let output = flowpeel([Path::new("replay"), Path::new("--log-format"), Path::new(format), &good, &hostile]);
    assert_eq!(output.status.code(), Some(1));
    let said = output.stderr;
    assert!(said.chars().all(|letter| letter == '\n' || !letter.is_control()), "{said:?}");
    said
}

#[test]
fn text_has_a_time_and_a_level_on_every_line() {
    let said = said("text");
    for line in said.lines() {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.len() == 27 && time.ends_with('Z') && &time[10..11] == "T", "{line}");
        let level = rest.trim_start().split(' ').next().unwrap();
        assert!(["INFO", "WARN", "ERROR"].contains(&level), "{line}");
    }
    let escaped = "/a\\u{1b}[2J\\nERROR b\\r\\u{7}\\u{9b}31m.pcap: at byte 0: it is not a capture";
    assert_eq!(said.lines().filter(|line| line.contains(" ERROR ") && line.contains(escaped)).count(), 1, "{said}");
    assert!(said.lines().any(|line| line.contains(" ended packets=")), "{said}");
}

#[test]
fn json_is_an_object_a_line_with_its_numbers() {
    let said = said("json");
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["message"].is_string()), "{said}");
    let ended = lines.iter().find(|line| line["message"] == "ended").unwrap();
    assert_eq!((&ended["level"], &ended["lists"]), (&"INFO".into(), &1.into()));
    assert!(ended["packets"].as_u64().unwrap() > 30 && ended["opened"].as_u64().unwrap() > 3, "{ended}");
    for count in ["closed", "evicted", "refused", "expired", "recycled", "untracked", "lost_packets"] {
        assert!(ended[count].is_u64(), "{count} in {ended}");
    }
    let error = lines.iter().find(|line| line["level"] == "ERROR").unwrap();
    assert!(error["message"].as_str().unwrap().contains("\\u{1b}[2J\\nERROR b"), "{error}");
}
