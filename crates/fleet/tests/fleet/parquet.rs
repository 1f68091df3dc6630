//! The joined view as Parquet: the rows of NDJSON, by DuckDB.

use crate::asymmetric::run_pair;
use crate::site::{Site, done, fleet, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many rows there are, how many of them have sides that were seen alone, and how many are in one of the files
/// alone.
const COMPARE: &str = r#"
import duckdb, json, sys
lines, columns = sys.argv[1:]
duckdb.sql("set timezone = 'UTC'")
expected = duckdb.sql(f"""
    select src_ip, src_port, dest_ip, dest_port, community_id, routers, coalesce(directions, []) directions,
        epoch_us(flow.start::timestamptz) as start, flow.age, flow.state, coalesce(flow.midstream, false) midstream,
        coalesce(flow.unsettled, false) unsettled, coalesce(flow.start_is_bound, false) start_is_bound
    from read_json('{lines}', format = 'newline_delimited', union_by_name = true) where event_type = 'flow'""")
found = duckdb.sql(f"""
    select src_ip, src_port, dest_ip, dest_port, community_id, routers, directions,
        epoch_us(start), age, state, midstream, unsettled, start_is_bound from '{columns}'""")
one = lambda query: duckdb.sql(query).fetchall()[0][0]
fields = one(f"select decode(value) from parquet_kv_metadata('{columns}') where decode(key) = 'flow_list'")
ends = duckdb.sql(f"select distinct epoch_us(list_end), complete from '{columns}'").fetchall()
print(json.dumps({
    "count": one("select count(*) from found"),
    "one_sided": one("select count(*) from found where len(directions) > 0"),
    "differing": one("""select count(*) from
        ((from expected except all from found) union all (from found except all from expected))"""),
    "fields": json.loads(fields),
    "ends": len(ends),
}))
"#;

/// The only file below a directory.
fn file_in(directory: &Path) -> PathBuf {
    let path = fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    if path.is_dir() { file_in(&path) } else { path }
}

#[test]
fn a_view_as_parquet_has_the_rows_of_its_lines() {
    let site = Site::new();
    run_pair(&site, 3, ["both", "up, and \"so\"", "down"]);
    let (lines, directory) = (site.path("view.ndjson"), site.path("view"));
    let join = |options: &[&str]| {
        let mut join = fleet("join");
        join.arg("--from").arg(site.path("expected")).args(options);
        join
    };
    done(join(&[]).arg("--out").arg(&lines));
    let (status, said) = run(&mut join(&["--format", "parquet"]));
    assert!(status == Some(2) && said.contains("name one with --out DIR"), "{said}");
    let (status, said) = run(join(&["--format", "parquet"]).arg("--out").arg(&directory));
    if said.contains("built without Parquet") {
        assert!(status == Some(2) && !directory.exists(), "{said}");
        return eprintln!("skipped: this build has no Parquet");
    }
    assert_eq!(status, Some(0), "{said}");
    let file = file_in(&directory);
    assert!(said.contains(file.to_str().unwrap()) && file.to_str().unwrap().contains("/view/date="), "{said}");
    let mut python = Command::new("python3");
    if !python.args(["-c", "import duckdb"]).output().is_ok_and(|ended| ended.status.success()) {
        return eprintln!("skipped: Python with DuckDB is not installed");
    }
    let ended = Command::new("python3").args(["-c", COMPARE]).args([&lines, &file]).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let compared: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&compared["differing"], &compared["ends"]), (&0.into(), &1.into()), "{compared}");
    assert!(compared["count"].as_u64().unwrap() > 500 && compared["one_sided"].as_u64().unwrap() > 500, "{compared}");
    let header: serde_json::Value =
        serde_json::from_str(fs::read_to_string(&lines).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(compared["fields"], header["flow_list"]);
}
