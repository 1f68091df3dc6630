//! The union of the lists of routers, as DuckDB makes it.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// For each connection the routers, the first start, the most advanced state.
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

/// Whether Python with DuckDB is installed. Says that the test is skipped where it is not.
pub(crate) fn has_duckdb() -> bool {
    let ended = Command::new("python3").args(["-c", "import duckdb"]).output();
    let has_duckdb = ended.is_ok_and(|ended| ended.status.success());
    if !has_duckdb {
        eprintln!("skipped: Python with DuckDB is not installed");
    }
    has_duckdb
}

/// Asserts that a joined view is the union of the lists in a directory, which has a folder with one list for each
/// router, and returns how many connections that has.
pub(crate) fn assert_union(lists: &Path, joined: &Path) -> u64 {
    let ended = Command::new("python3").args(["-c", UNION]).args([lists, joined]).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let result: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(result["differing"], 0, "{result}");
    result["count"].as_u64().unwrap()
}
