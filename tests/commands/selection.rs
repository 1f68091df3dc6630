//! What is shown of a list, held against the whole list: filters, orders, limits, groups; and tables and csv.

use crate::support::command::{flowpeel, replay};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Whether a line of a connection is meant.
type Meant = fn(&Value) -> bool;

/// A generated capture that ends in the middle of its connections.
fn capture(place: &TempDir) -> PathBuf {
    let made = flowpeel(["generate", "--seed", "2411", "--connections", "3k", "--ipv6", "0.3", "--duration", "10s"]);
    assert!(made.status.success(), "{}", made.stderr);
    let (mut at, whole) = (24, made.stdout);
    while at < whole.len() / 2 {
        let size = u32::from_le_bytes(whole[at + 8..at + 12].try_into().unwrap());
        at += 16 + size as usize;
    }
    let path = place.path().join("half.pcap");
    std::fs::write(&path, &whole[..at]).unwrap();
    path
}

/// The header and the lines that follow it, of a list with these options.
fn listed(path: &Path, options: &[&str]) -> (Value, Vec<Value>) {
    let path = path.to_str().unwrap();
    let ended = replay(["-q", path].iter().chain(options));
    assert!(ended.status.success(), "{}", ended.stderr);
    let text = String::from_utf8(ended.stdout).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.collect())
}

fn address(line: &Value, name: &str) -> IpAddr {
    line[name].as_str().unwrap().parse().unwrap()
}

fn age(line: &Value) -> f64 {
    line["flow"]["age"].as_f64().unwrap()
}

fn octets(line: &Value, name: &str) -> Option<[u8; 4]> {
    match address(line, name) {
        IpAddr::V4(address) => Some(address.octets()),
        IpAddr::V6(_) => None,
    }
}

#[test]
fn a_filter_selects_the_lines_that_it_means() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place);
    let (header, all) = listed(&path, &[]);
    assert!(all.len() > 500, "{header}");
    let filters: [(&str, Meant); 9] = [
        ("ip", |line| address(line, "src_ip").is_ipv4()),
        ("not ip6", |line| address(line, "src_ip").is_ipv4()),
        ("client net 10.0.0.0/9", |line| {
            octets(line, "src_ip").is_some_and(|octets| octets[0] == 10 && octets[1] < 128)
        }),
        ("server port 443 or server port 80", |line| line["dest_port"] == 443 || line["dest_port"] == 80),
        ("portrange 0-1023", |line| line["dest_port"].as_u64() < Some(1024) || line["src_port"].as_u64() < Some(1024)),
        ("age > 1s and established", |line| age(line) > 1.0 && line["flow"]["state"] == "established"),
        ("half_open", |line| line["flow"]["state"] != "established"),
        ("syn_sent or age <= 500ms", |line| line["flow"]["state"] == "syn_sent" || age(line) <= 0.5),
        ("start < 2000-01-01", |_| false),
    ];
    let mut selected_sizes = Vec::new();
    for (filter, meant) in filters {
        let expected: Vec<&Value> = all.iter().filter(|line| meant(line)).collect();
        let (selection, lines) = listed(&path, &["--filter", filter]);
        assert_eq!(lines.iter().collect::<Vec<_>>(), expected, "{filter}");
        // Of all connections the header says what it always does.
        assert_eq!(selection["flow_list"], header["flow_list"]);
        let size = expected.len();
        assert_eq!(
            selection["selection"],
            serde_json::json!({ "filter": filter, "selected": size, "lines": size }),
            "{filter}"
        );
        selected_sizes.push(size);
    }
    let useful = selected_sizes.iter().filter(|size| **size > 0 && **size < all.len()).count();
    assert!(useful >= 6, "filters that select all or nothing show little: {selected_sizes:?} of {}", all.len());
}

#[test]
fn orders_limits_and_groups_are_those_of_the_whole_list() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place);
    let (_, mut all) = listed(&path, &[]);
    let (_, limited) = listed(&path, &["--limit", "10"]);
    assert_eq!(limited, all[..10]);

    let mut counts = BTreeMap::<&str, u64>::new();
    for line in &all {
        *counts.entry(line["dest_ip"].as_str().unwrap()).or_default() += 1;
    }
    let (header, groups) = listed(&path, &["--group-by", "server"]);
    assert_eq!(header["selection"]["lines"], counts.len());
    assert_eq!(groups.len(), counts.len());
    let mut last = u64::MAX;
    for group in groups {
        let group = &group["flow_group"];
        let count = group["flows"].as_u64().unwrap() + group["half_open"].as_u64().unwrap();
        assert_eq!(counts[group["value"].as_str().unwrap()], count);
        assert!(count <= last, "the largest comes first");
        last = count;
    }

    all.sort_by(|one, other| age(other).total_cmp(&age(one)));
    let (_, oldest) = listed(&path, &["--sort", "age", "--limit", "25"]);
    assert_eq!(oldest, all[..25]);
}

#[test]
fn csv_has_the_same_rows_and_keeps_whether_they_are_all() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place);
    let (header, all) = listed(&path, &[]);
    let lists = place.path().join("lists");
    let ended = replay(["-q", path.to_str().unwrap(), "--format", "csv", "--out", lists.to_str().unwrap()]);
    assert!(ended.status.success(), "{}", ended.stderr);
    let names: Vec<_> = std::fs::read_dir(&lists).unwrap().map(|entry| entry.unwrap().path()).collect();
    let file = names.iter().find(|name| name.extension().is_some_and(|end| end == "csv")).unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    let mut rows = text.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let columns = rows.next().unwrap();
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), all.len());
    let column = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    for (row, line) in rows.iter().zip(&all) {
        assert_eq!(row.len(), columns.len());
        assert_eq!(row[column("list_end")], header["flow_list"]["end"]);
        assert_eq!(row[column("complete")], header["flow_list"]["complete"].to_string());
        for name in ["src_ip", "dest_ip", "community_id"] {
            assert_eq!(row[column(name)], line[name]);
        }
        for name in ["src_port", "dest_port"] {
            assert_eq!(row[column(name)], line[name].to_string());
        }
        assert_eq!(row[column("state")], line["flow"]["state"]);
        assert_eq!(row[column("start")], line["flow"]["start"]);
        assert_eq!(row[column("age")].parse::<f64>().unwrap(), age(line));
    }
    let ended = replay(["-q", path.to_str().unwrap(), "--format", "csv", "--filter", "start < 2000-01-01"]);
    let text = String::from_utf8(ended.stdout).unwrap();
    let rows: Vec<_> = text.lines().collect();
    assert_eq!(rows.len(), 2, "an empty list says that it is one: {text}");
    assert_eq!(rows[1].split(',').count(), columns.len());
    assert_eq!(rows[1].trim_end_matches(',').split(',').count(), 2, "{text}");
}

#[test]
fn a_table_through_a_pipe_is_not_coloured_and_not_cut() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place);
    let (_, all) = listed(&path, &[]);
    let ended = replay(["-q", path.to_str().unwrap(), "--format", "table"]);
    let text = String::from_utf8(ended.stdout).unwrap();
    assert!(!text.contains('\u{1b}') && !text.contains('\u{2026}'), "{}", &text[..400]);
    assert!(text.starts_with("CLIENT") && text.trim_end().ends_with("; complete"), "{text}");
    assert_eq!(text.lines().count(), all.len() + 2);
    for line in &all {
        assert!(text.contains(line["src_ip"].as_str().unwrap()));
    }
}

#[test]
fn what_cannot_be_shown_so_is_refused_before_anything_is_read() {
    let refused = |options: &[&str], parts: &[&str]| {
        let ended = replay(["nowhere.pcap"].iter().chain(options));
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        parts.iter().for_each(|part| assert!(ended.stderr.contains(part), "{part:?}: {}", ended.stderr));
    };
    refused(
        &["--filter", "net 10.0.0.0/8 and client prot 443"],
        &["is expected here", "\n                            ^"],
    );
    refused(&["--filter", "ip", "--changes"], &["--changes builds on whole lists"]);
    refused(&["--format", "csv", "--changes"], &["--changes builds on whole lists"]);
    refused(&["--format", "table", "--out", "lists"], &["a table is for people"]);
    refused(&["--group-by", "client", "--sort", "age"], &["cannot be used with"]);
}
