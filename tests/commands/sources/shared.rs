//! Captures recorded by others against the counts of tshark.

use super::{Exact, read_back, replayed};
use crate::support::say::skipped;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Where captures with truth may be, beside the project.
const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/pcaps");

/// Attempts and answers in a truth: what tshark counted, conversation by conversation.
fn exact(truth: &Value) -> Exact {
    let mut exact = BTreeMap::new();
    // What is in an L2TP tunnel is not read.
    let is_read = |conversation: &&Value| !conversation["protocols_first_frame"].as_str().unwrap().contains(":l2tp:");
    for conversation in truth["conversations"].as_array().unwrap().iter().filter(is_read) {
        let end = |name: &str| -> IpAddr { conversation[name][0].as_str().unwrap().parse().unwrap() };
        let (client, server) = (end("client"), end("server"));
        for event in conversation["events"].as_array().unwrap() {
            let flags = event[3].as_str().unwrap();
            let (from, to) = if event[2] == "c2s" { (client, server) } else { (server, client) };
            let (source, at) = match (flags.contains('R'), flags.contains('S'), flags.contains('A')) {
                (false, true, false) => (from, 0),
                (false, true, true) => (to, 1),
                _ => continue,
            };
            exact.entry(source).or_insert([0; 3])[at] += 1;
        }
    }
    exact
}

#[test]
fn shared_captures_are_counted_as_tshark_counts_them() {
    if !Path::new(SHARED).is_dir() {
        return skipped("there is no ../shared/pcaps beside the project");
    }
    let mut compared = 0;
    for entry in std::fs::read_dir(SHARED).unwrap() {
        let path = entry.unwrap().path();
        let Some(capture) = path.to_str().unwrap().strip_suffix(".truth.json").map(PathBuf::from) else { continue };
        let truth: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let exact = exact(&truth);
        if exact.is_empty() {
            continue;
        }
        // What a damaged capture holds before the damage is counted.
        let (output, files) = replayed(&capture, &["--sources"]);
        if files.is_empty() {
            let said = output.stderr;
            assert!(said.contains("link type"), "{}: {said}", capture.display());
            continue;
        }
        let (header, mut counts) = read_back(&files[0]);
        assert_eq!((files.len(), &header["source_list"]["complete"]), (1, &true.into()), "{}", capture.display());
        // Refusals follow from the state of a connection; the oracle has that, tshark has not.
        counts.values_mut().for_each(|counts| counts[2] = 0);
        counts.retain(|_, counts| *counts != [0; 3]);
        assert_eq!(counts, exact, "{}", capture.display());
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}
