//! DuckDB over what flowpeel writes: every format is the same rows, filters select what the same question in SQL does,
//! and columns are found whatever comes first.

use crate::support::captures::{START_S, opening, pcap_at};
use crate::support::command::{command, flowpeel, replay, run};
use crate::support::say::skipped;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Whether python3 has DuckDB; if not, says that the test is skipped.
fn has_duckdb() -> bool {
    let has = run(&mut command("python3", ["-c", "import duckdb"])).status.success();
    if !has {
        skipped("python3 has no duckdb");
    }
    has
}

/// The rows of a query, as JSON.
fn rows_of(query: &str) -> Vec<Value> {
    let script = "import duckdb, json, sys\n\
        duckdb.sql(\"set timezone = 'UTC'\")\n\
        rows = duckdb.sql(sys.argv[1]).fetchall()\n\
        print(json.dumps([list(map(str, row)) for row in rows]))";
    let ended = run(&mut command("python3", ["-c", script, query]));
    assert!(ended.status.success(), "{query}: {}", ended.stderr);
    let Value::Array(rows) = serde_json::from_slice(&ended.stdout).unwrap() else { panic!("no rows") };
    rows
}

/// A generated capture of which some connections are open at the end.
fn capture(place: &TempDir) -> PathBuf {
    let path = place.path().join("traffic.pcap");
    let words = ["generate", "--seed", "2507", "--connections", "20k", "--ipv6", "0.3", "--out"];
    let made = flowpeel(words.iter().map(|word| word.as_ref()).chain([path.as_os_str()]));
    assert!(made.status.success(), "{}", made.stderr);
    path
}

/// The list at the end of a capture, with these options, in a file.
fn listed(place: &TempDir, capture: &Path, name: &str, options: &[&str]) -> String {
    let ended = replay(["-q", capture.to_str().unwrap()].iter().chain(options));
    assert!(ended.status.success(), "{}", ended.stderr);
    let path = place.path().join(name);
    fs::write(&path, ended.stdout).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn columns_are_found_behind_sixty_quiet_lists_and_before_their_first_value() {
    if !has_duckdb() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    // A packet a second of a connection that nothing is known of, and then a handshake.
    let [.., stray] = opening(50_000);
    let mut timed: Vec<_> = (START_S..START_S + 60).map(|second| (second, stray.clone())).collect();
    timed.extend(opening(40_000).map(|frame| (START_S + 61, frame)));
    let (path, lists) = (place.path().join("quiet.pcap"), place.path().join("lists"));
    fs::write(&path, pcap_at(&timed)).unwrap();
    let (path, lists) = (path.to_str().unwrap(), lists.to_str().unwrap());
    let ended = replay(["-q", path, "--every", "1s", "--out", lists]);
    assert!(ended.status.success(), "{}", ended.stderr);
    let all = format!("'{lists}/*.ndjson'");
    let count = rows_of(&format!("select count(*) from {all} where event_type = 'flow_list'"));
    assert_eq!(count[0][0], "61");
    let found = rows_of(&format!("select src_ip, src_port, flow.state from {all} where event_type = 'flow'"));
    assert_eq!(found, [serde_json::json!(["10.0.0.1", "40000", "established"])]);
    let marked = rows_of(&format!("select count(*) from {all} where flow.midstream or flow.unsettled"));
    assert_eq!(marked[0][0], "0");
    let old = rows_of(&format!("select count(*) from {all} where flow.start < '2030-01-01' and flow.age < 10"));
    assert_eq!(old[0][0], "62", "times and numbers have their types");
}

#[test]
fn csv_and_eve_are_the_rows_of_ndjson() {
    if !has_duckdb() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place);
    let lines = listed(&place, &path, "list.ndjson", &[]);
    let eve = listed(&place, &path, "eve.ndjson", &["--format", "eve"]);
    let csv = listed(&place, &path, "list.csv", &["--format", "csv"]);
    let keys = "count(*), bit_xor(hash(src_ip || ' ' || src_port || ' ' || dest_ip || ' ' || dest_port))";
    let of_lines = rows_of(&format!("select {keys} from '{lines}' where event_type = 'flow'"));
    assert_ne!(of_lines[0][0], "0");
    assert_eq!(rows_of(&format!("select {keys} from '{eve}' where event_type = 'flow'")), of_lines);
    assert_eq!(rows_of(&format!("select {keys} from '{csv}'")), of_lines);
}

#[test]
fn filters_select_what_the_same_question_in_sql_does() {
    if !has_duckdb() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place);
    let all = listed(&place, &path, "all.ndjson", &[]);
    let half_open = "flow.state in ('syn_sent', 'syn_recv')";
    for (filter, sql) in [
        ("host 203.0.113.7", "src_ip = '203.0.113.7' or dest_ip = '203.0.113.7'"),
        ("203.0.113.7", "src_ip = '203.0.113.7' or dest_ip = '203.0.113.7'"),
        ("net 10.0.0.0/8", "src_ip like '10.%' or dest_ip like '10.%'"),
        ("port 443", "src_port = 443 or dest_port = 443"),
        ("portrange 1024-65535", "src_port >= 1024 or dest_port >= 1024"),
        ("client net 10.0.0.0/8", "src_ip like '10.%'"),
        ("server port 443", "dest_port = 443"),
        ("age > 10s", "flow.age > 10"),
        ("age <= 90s", "flow.age <= 90"),
        ("start > 2026-01-01T00:01:00Z", "flow.start > '2026-01-01T00:01:00Z'"),
        ("established", "flow.state = 'established'"),
        ("half_open", half_open),
        ("ip", "src_ip not like '%:%'"),
        ("ip6", "src_ip like '%:%'"),
        (
            "net 10.0.0.0/8 and server port 443 and age > 10s",
            "src_ip like '10.%' and dest_port = 443 and flow.age > 10",
        ),
        ("not half_open", "flow.state = 'established'"),
        ("ip6 or server port 22 and age > 1m", "src_ip like '%:%' or dest_port = 22 and flow.age > 60"),
        ("(ip6 or server port 22) and age > 1m", "(src_ip like '%:%' or dest_port = 22) and flow.age > 60"),
    ] {
        let selected = listed(&place, &path, "selected.ndjson", &["--filter", filter]);
        let rows = |file: &str, sql: &str| {
            let columns = "src_ip, src_port, dest_ip, dest_port, flow.start::varchar, flow.age, flow.state";
            rows_of(&format!("select {columns} from '{file}' where event_type = 'flow' and ({sql}) order by all"))
        };
        assert!(rows(&selected, "true") == rows(&all, sql), "{filter}");
    }
}
