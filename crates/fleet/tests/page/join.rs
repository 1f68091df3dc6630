//! `flowpeel-fleet join` against the union of the lists, made another way.

use crate::duckdb::has_duckdb;
use crate::network::{Network, fleet};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

const ROUTERS: [&str; 3] = ["east", "north", "west"];

/// The union of the lists by DuckDB: for each connection the routers, the first start, the most advanced state.
const UNION: &str = r#"
import duckdb, json, sys
lists, joined = sys.argv[1], sys.argv[2]
columns = "src_ip, src_port, dest_ip, dest_port"
expected = duckdb.sql(f"""
    select {columns}, list(router order by router) routers, min(start) as start, min(rank) rank from (
        select {columns}, regexp_extract(filename, '.*/([^/]*)/[^/]*$', 1) router, flow.start::varchar as start,
            case flow.state when 'established' then 0 when 'syn_recv' then 1 else 2 end rank
        from read_json('{lists}/*/flows-*.ndjson', format = 'newline_delimited', filename = true, union_by_name = true)
        where event_type = 'flow')
    group by all""")
found = duckdb.sql(f"""
    select {columns}, routers, flow.start::varchar as start,
        case flow.state when 'established' then 0 when 'syn_recv' then 1 else 2 end rank
    from read_json('{joined}', format = 'newline_delimited') where event_type = 'flow'""")
count = duckdb.sql("select count(*) from expected").fetchall()[0][0]
more = duckdb.sql("(from expected except all from found) union all (from found except all from expected)").fetchall()
print(json.dumps({"count": count, "differing": len(more), "some": [str(row) for row in more[:3]]}))
"#;

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
    let mut python = Command::new("python3");
    let ended =
        python.args(["-c", UNION]).arg(network.lists()).arg(network.lists().join("../joined.ndjson")).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let result: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert!(result["count"].as_u64().unwrap() > 1_000 && result["differing"] == 0, "{result}");
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
