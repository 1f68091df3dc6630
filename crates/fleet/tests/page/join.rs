//! `flowpeel-fleet join` against the union of the lists, made another way.

use crate::network::{Network, fleet};
use crate::union::{assert_union, has_duckdb};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

const ROUTERS: [&str; 3] = ["east", "north", "west"];

fn joined(network: &Network) -> (Value, Vec<Value>) {
    let out = network.lists().join("../joined.ndjson");
    let ended = fleet("join").arg("--from").arg(network.lists()).arg("--out").arg(&out).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = fs::read_to_string(out).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.collect())
}

#[test]
fn it_is_the_union_of_the_lists() {
    let network = Network::of(&ROUTERS, 20_000);
    let mut union: BTreeMap<String, (Value, Vec<&str>)> = BTreeMap::new();
    for router in ROUTERS {
        for line in network.list_of(router).2 {
            let line: Value = serde_json::from_str(&line).unwrap();
            union.entry(line["community_id"].to_string()).or_insert_with(|| (line, Vec::new())).1.push(router);
        }
    }
    let (header, lines) = joined(&network);
    assert!(lines.len() > 1_000, "{}", lines.len());
    assert_eq!(lines.len(), union.len());
    for line in &lines {
        let (listed, routers) = &union[&line["community_id"].to_string()];
        let mut expected = listed.clone();
        expected["routers"] = routers.clone().into();
        assert_eq!(*line, expected);
    }
    let fields = &header["flow_list"];
    assert_eq!((fields["flows"].as_u64().unwrap() + fields["half_open"].as_u64().unwrap()) as usize, lines.len());
    assert_eq!(fields["complete"], true);
    let names: Vec<_> =
        fields["routers"].as_array().unwrap().iter().map(|router| router["name"].as_str().unwrap()).collect();
    assert_eq!(names, ROUTERS);
}

#[test]
fn duckdb_makes_the_same_union() {
    if !has_duckdb() {
        return;
    }
    let network = Network::of(&ROUTERS, 20_000);
    joined(&network);
    assert!(assert_union(&network.lists(), &network.lists().join("../joined.ndjson")) > 1_000);
}

#[test]
fn what_cannot_be_read_is_named_and_costs_the_others_nothing() {
    let network = Network::of(&["east", "west"], 2_000);
    let (path, _, lines) = network.list_of("west");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n").unwrap();
    let out = network.lists().join("../joined.ndjson");
    let ended = fleet("join").arg("--from").arg(network.lists()).arg("--out").arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("west") && said.contains("cut short"), "{said}");
    let header: Value = serde_json::from_str(fs::read_to_string(&out).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(header["flow_list"]["complete"], false);
    assert_eq!(header["flow_list"]["routers"][1]["health"], "unreadable");
    assert!(!lines.is_empty() && header["flow_list"]["routers"][0]["in_view"] == true);
    let nothing = tempfile::tempdir().unwrap();
    let ended = fleet("join").arg("--from").arg(nothing.path()).output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
}
