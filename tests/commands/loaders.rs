//! DuckDB over what flowpeel writes: every format is the same rows, filters of lists and questions to an archive select
//! what the same question in SQL does, and columns are found whatever comes first. ClickHouse, where chDB is installed,
//! counts the same rows in each of them.

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

/// What `find` answers to a question, in a file, and what it says of the segments that it read: those, and all.
fn found(place: &TempDir, archive: &Path, question: &[&str]) -> (String, [u64; 2]) {
    let words = ["find", archive.to_str().unwrap(), "--format", "ndjson", "--explain"];
    let ended = flowpeel(words.iter().chain(question));
    assert!(matches!(ended.status.code(), Some(0 | 3)), "{}", ended.stderr);
    let path = place.path().join("found.ndjson");
    fs::write(&path, ended.stdout).unwrap();
    let said = ended.stderr.split_once("read ").unwrap().1.split_once(" segments").unwrap().0;
    let numbers = said.split_once(" of ").unwrap();
    (path.to_str().unwrap().to_owned(), [numbers.0, numbers.1].map(|number| number.replace(',', "").parse().unwrap()))
}

#[test]
fn questions_to_an_archive_are_answered_as_by_sql_over_all_of_it_and_read_what_they_need() {
    if !has_duckdb() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (path, archive) = (capture(&place), place.path().join("archive"));
    let record = ["--every", "5s", "--segment-size", "16KiB", "--archive", archive.to_str().unwrap()];
    // What is open at the end of the first run is carried over by the second.
    for options in [&["--vlan-key"][..], &[]] {
        listed(&place, &path, "list.ndjson", &[&record, options].concat());
    }
    let (whole, [_, segments]) = found(&place, &archive, &["--since", "1970-01-01"]);
    assert!(segments > 10, "{segments} segments");
    let all = place.path().join("all.ndjson");
    fs::rename(whole, &all).unwrap();
    let all = all.to_str().unwrap();
    // Not every answer has every column.
    let table = |file: &str| {
        let flow = "struct(start timestamptz, \"end\" timestamptz, age double, state varchar, reason varchar)";
        let ends = "src_ip: 'varchar', src_port: 'int', dest_ip: 'varchar', dest_port: 'int'";
        format!("read_ndjson('{file}', columns = {{timestamp: 'timestamptz', {ends}, flow: '{flow}'}})")
    };
    let columns =
        "src_ip, src_port, dest_ip, dest_port, flow.start::varchar, flow.\"end\"::varchar, flow.age, flow.reason";
    let rows =
        |file: &str, sql: &str| rows_of(&format!("select {columns} from {} where {sql} order by all", table(file)));
    let one =
        rows_of(&format!("select src_ip, dest_ip from {} where flow.reason = 'rst' order by all limit 1", table(all)));
    let [client, server] = [0, 1].map(|at| one[0][at].as_str().unwrap());
    let (ends, host) = (format!("{client} and {server}"), format!("host {client} and reason rst"));
    let is_end = |address: &str| format!("(src_ip = '{address}' or dest_ip = '{address}')");
    let (from, to) = ("2026-01-01T00:01:00Z", "2026-01-01T00:01:10Z");
    for (question, sql, share_max) in [
        (
            &["--filter", "net 10.0.0.0/8 and reason rst"][..],
            "(src_ip like '10.%' or dest_ip like '10.%') and flow.reason = 'rst'".to_owned(),
            1.0,
        ),
        (&["--filter", "server port 443 and age > 20s"], "dest_port = 443 and flow.age > 20".to_owned(), 1.0),
        (&["--filter", "established"], "flow.state = 'established'".to_owned(), 1.0),
        (&["--filter", "established and age < 20s"], "flow.state = 'established' and flow.age < 20".to_owned(), 1.0),
        (&["--filter", &ends], format!("{} and {}", is_end(client), is_end(server)), 0.9),
        (&["--filter", &host], format!("{} and flow.reason = 'rst'", is_end(client)), 1.0),
        (&[client, "--filter", "closed"], format!("{} and flow.state = 'closed'", is_end(client)), 1.0),
        (&["--filter", "end < 2026-01-01T00:00:10Z"], "flow.\"end\" < '2026-01-01T00:00:10Z'".to_owned(), 0.5),
        (&["--filter", "start >= 2026-01-01T00:01:00Z"], "flow.start >= '2026-01-01T00:01:00Z'".to_owned(), 0.9),
        (
            &["--since", from, "--until", to, "--filter", "ip6"],
            format!("coalesce(flow.\"end\", timestamp) >= '{from}' and flow.start < '{to}' and src_ip like '%:%'"),
            0.9,
        ),
        (&["--filter", "reason timeout"], "flow.reason = 'timeout'".to_owned(), 1.0),
    ] {
        let (file, [read, _]) = found(&place, &archive, question);
        let expected = rows(all, &sql);
        if fs::metadata(&file).unwrap().len() == 0 {
            assert!(expected.is_empty(), "{question:?}");
        } else {
            assert!(rows(&file, "true") == expected, "{question:?}");
        }
        assert!(read as f64 <= share_max * segments as f64, "{question:?}: {read} of {segments} segments");
    }
    let (file, [read, _]) = found(&place, &archive, &["--filter", "port 443", "--limit", "7"]);
    assert_eq!((rows(&file, "true").len(), read < segments), (7, true));
}

/// The files of Parquet in a directory, below its directories of hours, in order.
#[cfg(feature = "parquet")]
fn parquet_files(directory: &Path) -> Vec<PathBuf> {
    let below = |directory: PathBuf, prefix: &'static str| {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(move |path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
    };
    let hours = below(directory.to_path_buf(), "date=").flat_map(|date| below(date, "hour="));
    let mut files: Vec<PathBuf> = hours.flat_map(|hour| below(hour, "")).collect();
    files.sort();
    files
}

#[test]
#[cfg(feature = "parquet")]
fn parquet_has_the_rows_of_csv_in_files_by_the_hour_and_an_empty_list_says_so() {
    if !has_duckdb() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place);
    let lists = ["one", "two"].map(|name| place.path().join(name));
    for directory in &lists {
        listed(&place, &path, "none", &["--every", "30s", "--format", "parquet", "--out", directory.to_str().unwrap()]);
    }
    let [files, again] = [&lists[0], &lists[1]].map(|directory| parquet_files(directory));
    assert!(files.len() > 3 && files[0].starts_with(lists[0].join("date=2026-01-01/hour=00")), "{files:?}");
    let bytes = |files: &[PathBuf]| files.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>();
    assert!(bytes(&files) == bytes(&again), "equal input gives equal bytes");
    let csv = listed(&place, &path, "list.csv", &["--every", "30s", "--format", "csv"]);
    let columns = "epoch_us(list_end::timestamptz), complete, src_ip, src_port, dest_ip, dest_port, vlan, community_id, \
        epoch_us(start::timestamptz), age, state, midstream, unsettled, start_is_bound, sides";
    let rows = |from: &str| rows_of(&format!("select {columns} from {from} where src_ip is not null order by all"));
    let all = format!("read_parquet('{}/*/*/*.parquet', hive_partitioning = true)", lists[0].display());
    let expected = rows(&format!("'{csv}'"));
    assert!(expected.len() > 1_000 && rows(&all) == expected);
    let types = rows_of(&format!("select distinct typeof(list_end), typeof(src_port), typeof(age) from {all}"));
    assert_eq!(types, [serde_json::json!(["TIMESTAMP WITH TIME ZONE", "USMALLINT", "DOUBLE"])]);
    let parts = rows_of(&format!("select distinct date::varchar, hour::int from {all}"));
    assert_eq!(parts, [serde_json::json!(["2026-01-01", "0"])]);

    // Nothing is selected: the file has no rows, and says of which list it is.
    let empty = place.path().join("empty");
    let nothing = ["--format", "parquet", "--filter", "port 1 and port 2", "--out", empty.to_str().unwrap()];
    listed(&place, &path, "none", &nothing);
    let file = parquet_files(&empty)[0].display().to_string();
    assert_eq!(rows_of(&format!("select count(*) from '{file}'"))[0][0], "0");
    let said = rows_of(&format!("select key::varchar, value::varchar from parquet_kv_metadata('{file}')"));
    let value = |key: &str| said.iter().find(|row| row[0] == key).unwrap()[1].as_str().unwrap();
    assert!(value("list_end").starts_with("2026-01-01T") && value("complete") == "true", "{said:?}");
    assert!(value("flow_list").contains("interval") && value("filter") == "port 1 and port 2", "{said:?}");
}

/// The rows of a list that is read back, until it is refused.
#[cfg(feature = "parquet")]
fn read_back(path: &Path) -> flowpeel::error::Result<(flowpeel::export::ListFacts, Vec<flowpeel::list::Row>)> {
    let mut file = flowpeel::export::ListFile::open(path)?;
    let mut rows = Vec::new();
    while let Some(listed) = file.next_row()? {
        rows.push(listed.row);
    }
    Ok((file.facts, rows))
}

#[test]
#[cfg(feature = "parquet")]
fn parquet_is_read_back_as_ndjson_is() {
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place);
    let [lines, columns] = ["ndjson", "parquet"].map(|format| {
        let directory = place.path().join(format);
        let out = directory.to_str().unwrap();
        listed(&place, &path, "none", &["--every", "30s", "--one-way", "--format", format, "--out", out]);
        let names = flowpeel::export::ListName::all_in(&directory).unwrap();
        names.iter().map(|name| directory.join(name.path())).collect::<Vec<_>>()
    });
    assert!(lines.len() > 3 && lines.len() == columns.len());
    for (lines, columns) in lines.iter().zip(&columns) {
        let [(facts, rows), (found_facts, found)] = [lines, columns].map(|path| read_back(path).unwrap());
        assert!(facts == found_facts && rows == found && !rows.is_empty(), "{columns:?}");
        let key =
            |row: &flowpeel::list::Row| flowpeel::flow::AnyKey::of_ends(row.client, row.server, row.vlan).unwrap();
        for row in [&rows[0], &rows[rows.len() / 2], &rows[rows.len() - 1]] {
            let found = flowpeel::export::ListFile::open(columns).unwrap().row_of(&key(row)).unwrap();
            assert_eq!(found.map(|listed| listed.row), Some(*row));
        }
    }
    let selection = place.path().join("selection");
    let some = ["--format", "parquet", "--limit", "3", "--out", selection.to_str().unwrap()];
    listed(&place, &path, "none", &some);
    let refused = read_back(&parquet_files(&selection)[0]).unwrap_err().to_string();
    assert!(refused.contains("a selection from a list"), "{refused}");

    // Whatever was done to a file: it is refused, or what it says is a list.
    let whole = fs::read(&columns[0]).unwrap();
    let damaged = place.path().join("damaged.parquet");
    let mut refused = 0;
    for at in 0..400 {
        let mut bytes = whole.clone();
        // Half of the damage is in the end of the file, where it says what is where.
        let place = if at % 2 == 0 { bytes.len() - 1 - 7 * at } else { (at * 2_654_435_761) % bytes.len() };
        match at % 5 {
            0 => bytes.truncate(place),
            _ => bytes[place] ^= 1 << (at % 8),
        }
        fs::write(&damaged, bytes).unwrap();
        refused += u32::from(read_back(&damaged).is_err());
    }
    assert!(refused > 100, "{refused}");
}

#[test]
#[cfg(feature = "parquet")]
fn an_archive_is_exported_as_parquet_with_the_rows_that_find_prints() {
    if !has_duckdb() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (path, archive, out) = (capture(&place), place.path().join("archive"), place.path().join("out"));
    listed(&place, &path, "list.ndjson", &["--every", "5s", "--archive", archive.to_str().unwrap()]);
    let whole = ["find", archive.to_str().unwrap(), "--since", "1970-01-01", "--format"];
    let exported = flowpeel(whole.iter().chain(&["parquet", "--out", out.to_str().unwrap()]));
    assert!(exported.status.success() && exported.stdout.is_empty(), "{}", exported.stderr);
    let csv = place.path().join("archive.csv");
    fs::write(&csv, flowpeel(whole.iter().chain(&["csv"])).stdout).unwrap();
    let columns = "src_ip, src_port, dest_ip, dest_port, vlan, community_id, epoch_us(start::timestamptz), \
        epoch_us(\"end\"::timestamptz), \
        age, state, reason, midstream, start_is_bound";
    let rows = |from: &str| rows_of(&format!("select {columns} from {from} order by all"));
    let expected = rows(&format!("'{}'", csv.display()));
    assert!(expected.len() > 5_000);
    assert!(rows(&format!("'{}/*/*/*.parquet'", out.display())) == expected);
    for (format, read) in [("ndjson", "read_json"), ("csv", "read_csv"), ("parquet", "read_parquet")] {
        let out = place.path().join(format!("exported-{format}"));
        let all = ["archive", "export", archive.to_str().unwrap(), "--format", format, "--out", out.to_str().unwrap()];
        let exported = flowpeel(all);
        assert!(exported.stderr.contains("exported"), "{}", exported.stderr);
        let from = format!("{read}('{}/*/*/connections-*.{format}', hive_partitioning = true)", out.display());
        let count = rows_of(&format!("select count(*), count(distinct community_id || src_port) from {from}"));
        let counted =
            rows_of(&format!("select count(*), count(distinct community_id || src_port) from '{}'", csv.display()));
        assert_eq!(count, counted, "{format}");
        let hours = rows_of(&format!("select distinct date::varchar, hour::int from {from}"));
        assert_eq!(hours, [serde_json::json!(["2026-01-01", "0"])], "{format}");
    }
    let part = place.path().join("part");
    let words = ["archive", "export", archive.to_str().unwrap(), "--format", "eve", "--out", part.to_str().unwrap()];
    let exported = flowpeel(words.iter().chain(&["--filter", "reason rst", "--until", "2026-01-01T00:01:00Z"]));
    assert!(exported.status.success(), "{}", exported.stderr);
    let file = part.join("date=2026-01-01/hour=00/connections-0001.ndjson");
    let found = flowpeel(
        ["find", archive.to_str().unwrap(), "--filter", "reason rst", "--until", "2026-01-01T00:01:00Z"]
            .iter()
            .chain(&["--format", "eve"]),
    );
    assert!(fs::read(file).unwrap() == found.stdout && found.stdout.len() > 1_000);
    let again = flowpeel(whole.iter().chain(&["parquet", "--out", out.to_str().unwrap()]));
    assert!(again.status.code() == Some(1) && again.stderr.contains("something in this directory"), "{}", again.stderr);
    let unplaced = flowpeel(whole.iter().chain(&["parquet"]));
    assert!(unplaced.status.code() == Some(2) && unplaced.stderr.contains("--out DIR"), "{}", unplaced.stderr);
}

#[test]
#[cfg(feature = "parquet")]
fn events_are_the_same_rows_as_parquet_in_files_by_the_hour() {
    if !has_duckdb() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place);
    let directories = ["one", "two"].map(|name| place.path().join(name));
    // Each log in a place of its own, with what is rotated away.
    let logs = directories.each_ref().map(|directory| directory.with_extension("log").join("events.ndjson"));
    for (directory, log) in directories.iter().zip(&logs) {
        fs::create_dir(log.parent().unwrap()).unwrap();
        let to_columns = format!("parquet:{}", directory.display());
        let to_both = ["--events-open", "--events", log.to_str().unwrap(), "--events", &to_columns];
        listed(&place, &path, "list", &[&["--every", "5s", "--events-rotate", "1m"], &to_both[..]].concat());
    }
    let [files, again] = [&directories[0], &directories[1]].map(|directory| parquet_files(directory));
    let bytes = |files: &[PathBuf]| files.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>();
    assert!(files.len() >= 2 && bytes(&files) == bytes(&again), "equal input gives equal bytes: {files:?}");
    assert!(files[0].starts_with(directories[0].join("date=2026-01-01/hour=00")), "{files:?}");
    let lines = rows_of(&format!(
        "select epoch_us(timestamp::timestamptz), change, seq, flow_id, src_ip, src_port, dest_ip, dest_port, \
         community_id, epoch_us(flow.start::timestamptz), epoch_us(flow.\"end\"::timestamptz), flow.age, flow.state, \
         flow.reason, flow.seen from read_json('{}', union_by_name = true) order by seq",
        logs[0].with_file_name("events*.ndjson").display()
    ));
    let columns = rows_of(&format!(
        "select epoch_us(timestamp), change, seq, flow_id, src_ip, src_port, dest_ip, dest_port, community_id, \
         epoch_us(start), epoch_us(\"end\"), age, state, reason, seen from '{}/*/*/*.parquet' order by seq",
        directories[0].display()
    ));
    assert!(lines.len() > 20_000 && lines == columns);
    let lost = rows_of(&format!("select value::varchar from parquet_kv_metadata('{}')", files[0].display()));
    assert_eq!(lost, [serde_json::json!(["0"])]);
    let state = place.path().join("state");
    let to_columns = format!("parquet:{}", place.path().join("three").display());
    let words = ["-q", path.to_str().unwrap(), "--every", "5s", "--state", state.to_str().unwrap()];
    let refused = replay(words.iter().chain(&["--events", &to_columns]));
    assert!(!refused.status.success() && refused.stderr.contains("cannot be continued"), "{}", refused.stderr);
}

#[test]
#[cfg(not(feature = "parquet"))]
fn a_build_without_parquet_says_how_to_get_it() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out").to_str().unwrap().to_owned();
    let to_columns = format!("parquet:{out}");
    for words in [
        &["replay", "pcaps/web.pcap", "--format", "parquet", "--out", &out][..],
        &["replay", "pcaps/web.pcap", "--events", &to_columns],
        &["archive", "export", "archive", "--format", "parquet", "--out", &out],
        &["find", "archive", "10.0.0.1", "--format", "parquet", "--out", &out],
    ] {
        let refused = flowpeel(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("--features parquet"), "{words:?}: {}", refused.stderr);
    }
    assert!(!Path::new(&out).exists());
}

#[test]
#[cfg(feature = "parquet")]
fn old_files_of_parquet_go_with_the_hours_that_they_leave_empty() {
    let place = tempfile::tempdir().unwrap();
    let [.., stray] = opening(50_000);
    // A packet every 20 minutes, over five hours.
    let timed: Vec<_> = (0..15).map(|at| (START_S + at * 1_200, stray.clone())).collect();
    let (path, lists) = (place.path().join("long.pcap"), place.path().join("lists"));
    fs::write(&path, pcap_at(&timed)).unwrap();
    let options = ["--every", "10m", "--format", "parquet", "--keep", "90m", "--out", lists.to_str().unwrap()];
    listed(&place, &path, "none", &options);
    let files = parquet_files(&lists);
    let hours = fs::read_dir(&lists).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(hours, 1, "one day");
    let ends: Vec<String> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert!((4..=6).contains(&files.len()), "{ends:?}");
    let left = fs::read_dir(lists.join(files[0].strip_prefix(&lists).unwrap().iter().next().unwrap())).unwrap().count();
    assert!(left <= 3, "{left} hours");
    for refused in [&["--compress"][..], &["--group-by", "port"], &["--changes"]] {
        let out = place.path().join("refused");
        let all = ["-q", path.to_str().unwrap(), "--format", "parquet", "--out", out.to_str().unwrap()];
        assert_eq!(replay(all.iter().chain(refused)).status.code(), Some(2), "{refused:?}");
    }
    let unplaced = replay(["-q", path.to_str().unwrap(), "--format", "parquet"]);
    assert!(unplaced.status.code() == Some(2) && unplaced.stderr.contains("--out"), "{}", unplaced.stderr);
}

#[test]
fn clickhouse_has_the_same_rows_from_every_format() {
    if !run(&mut command("python3", ["-c", "import chdb"])).status.success() {
        return skipped("python3 has no chdb");
    }
    let place = tempfile::tempdir().unwrap();
    let path = capture(&place);
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    listed(&place, &path, "none", &["--every", "30s", "--out", &at("lists")]);
    listed(&place, &path, "none", &["--every", "30s", "--compress", "--out", &at("packed")]);
    let csv = listed(&place, &path, "list.csv", &["--every", "30s", "--format", "csv"]);
    let mut sources = vec![
        (format!("file('{}/*.ndjson', JSONEachRow) where event_type = 'flow'", at("lists")), "flow.age"),
        (format!("file('{}/*.ndjson.zst', JSONEachRow) where event_type = 'flow'", at("packed")), "flow.age"),
        (format!("file('{csv}', CSVWithNames) where src_ip != ''"), "age"),
    ];
    if cfg!(feature = "parquet") {
        listed(&place, &path, "none", &["--every", "30s", "--format", "parquet", "--out", &at("columns")]);
        sources.push((format!("file('{}/*/*/*.parquet', Parquet)", at("columns")), "age"));
    }
    let script = "import chdb, sys\nprint(chdb.query(sys.argv[1], 'CSV'))";
    let counted = |(from, age): &(String, &str)| {
        let key = "concat(src_ip, ' ', toString(src_port), ' ', dest_ip, ' ', toString(dest_port))";
        // Each connection is in several lists: a sum, in which equal keys do not cancel.
        let query = format!("select count(), sum(cityHash64({key})), round(sum({age}), 3) from {from}");
        let ended = run(&mut command("python3", ["-c", script, &query]));
        assert!(ended.status.success(), "{query}: {}", ended.stderr);
        String::from_utf8(ended.stdout).unwrap()
    };
    let all: Vec<String> = sources.iter().map(counted).collect();
    assert!(all[0].split(',').next().unwrap().parse::<u64>().unwrap() > 10_000, "{all:?}");
    assert!(all.iter().all(|of_one| *of_one == all[0]), "{all:?}");
}
