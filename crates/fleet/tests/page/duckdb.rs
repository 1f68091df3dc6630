//! The API against DuckDB over the same NDJSON: filters, sorts and groups of 100,000 connections of two routers.

use crate::network::Network;
use crate::rows::{END_S, keys_csv, line, rows};
use crate::union::has_duckdb;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const ROWS: usize = 100_000;

/// Rows of one question that are compared, in their order; how many there are is compared of all.
const COMPARED: usize = 3_000;

/// Filters, and what they are in SQL.
const FILTERS: [(&str, &str); 17] = [
    ("", "true"),
    ("established", "state = 0"),
    ("half_open", "state > 0"),
    ("syn_sent or syn_recv and ip6", "state = 1 or (state = 2 and client_key > '5')"),
    ("server port 443", "dest_port = 443"),
    ("port 22", "(src_port = 22 or dest_port = 22)"),
    ("portrange 1-1024 and not server port 80", "(src_port <= 1024 or dest_port <= 1024) and dest_port <> 80"),
    ("ip6", "client_key > '5'"),
    ("ip", "client_key < '5'"),
    ("client net 10.0.0.0/9", "client_key between '40a000000' and '40a7fffff'"),
    ("server net 192.0.2.0/24", "server_key between '4c0000200' and '4c00002ff'"),
    (
        "net 203.0.113.16/28",
        "(client_key between '4cb007110' and '4cb00711f' or server_key between '4cb007110' and '4cb00711f')",
    ),
    ("age > 1h", "age > 3600"),
    ("age <= 30m and established", "age <= 1800 and state = 0"),
    ("not established or age < 5m", "(state > 0 or age < 300)"),
    ("start > 2026-01-01T01:30:00Z", "start > '2026-01-01T01:30:00.000000Z'"),
    (
        "client net 10.0.0.0/8 and (server port 22 or server port 443) and age > 30m",
        "client_key between '40a000000' and '40affffff' and dest_port in (22, 443) and age > 1800",
    ),
];

const SORTS: [(&str, &str); 6] = [
    ("client", ""),
    ("server", "server_key, dest_port, "),
    ("port", "dest_port, "),
    ("state", "state, "),
    ("age", "age desc, "),
    ("youngest", "age, "),
];

const GROUPS: [(&str, &str, &str); 4] = [
    ("client", "src_ip", "client_key"),
    ("server", "dest_ip", "server_key"),
    ("port", "dest_port", "dest_port"),
    ("state", "state_name", "state"),
];

const SCRIPT: &str = r#"
import duckdb, json, sys
lists, keys, questions, compared = sys.argv[1], sys.argv[2], json.load(open(sys.argv[3])), int(sys.argv[4])
# A bar of progress would be among the answers.
duckdb.sql("set enable_progress_bar = false")
duckdb.sql(f"""create table rows as select l.*, k.client_key, k.server_key, k.east, k.west from (
    select distinct src_ip, src_port, dest_ip, dest_port, flow.start::varchar as start, flow.age as age, flow.state as state_name,
        case flow.state when 'established' then 0 when 'syn_sent' then 1 else 2 end as state
    from read_json('{lists}/*/flows-*.ndjson', format = 'newline_delimited', union_by_name = true,
        columns = {{event_type: 'varchar', src_ip: 'varchar', src_port: 'integer', dest_ip: 'varchar', dest_port: 'integer',
                    flow: 'struct(start varchar, age double, state varchar)'}})
    where event_type = 'flow') l
  join read_csv('{keys}', header = true, all_varchar = true) k
    on k.id = concat(l.src_ip, ' ', l.src_port, ' ', l.dest_ip, ' ', l.dest_port)""")
answers = []
for question in questions:
    where = question["where"]
    count = duckdb.sql(f"select count(*) from rows where {where}").fetchall()[0][0]
    if "group" in question:
        rows = duckdb.sql(f"""select {question['group']}::varchar, count(*) filter (state = 0) e, count(*) filter (state > 0) h
            from rows where {where} group by {question['group']}, {question['by']}
            order by e + h desc, {question['by']} limit {compared}""").fetchall()
        answers.append([count, [" ".join(map(str, row)) for row in rows]])
    else:
        rows = duckdb.sql(f"select concat(src_ip, ' ', src_port, ' ', dest_ip, ' ', dest_port) from rows where {where} order by {question['order']} limit {compared}")
        answers.append([count, [row[0] for row in rows.fetchall()]])
json.dump(answers, sys.stdout)
"#;

/// The parameters of a question, and what it is in SQL.
fn questions() -> Vec<(Vec<(&'static str, String)>, Value)> {
    let mut all = Vec::new();
    for (at, (filter, sql)) in FILTERS.iter().enumerate() {
        let (tap, tap_sql) =
            [(None, "true"), (Some(("router", "west")), "west = '1'"), (Some(("seen_by", "one")), "east <> west")]
                [at % 3];
        let asked = |more: &[(&'static str, &str)]| {
            let pairs = [("filter", *filter)].into_iter().chain(tap).chain(more.iter().copied());
            pairs.map(|(name, value)| (name, value.to_owned())).collect::<Vec<_>>()
        };
        let condition = format!("({sql}) and {tap_sql}");
        for step in 0..3 {
            let (sort, order) = SORTS[(at + step) % SORTS.len()];
            let order = format!("{order}client_key, src_port, server_key, dest_port");
            let is_reversed = (at + step) % 2 == 1;
            let flipped = |column: &str| match column.strip_suffix(" desc") {
                Some(column) => column.to_owned(),
                None => format!("{column} desc"),
            };
            let flipped = order.split(", ").map(flipped).collect::<Vec<_>>().join(", ");
            let (sort, order) = if is_reversed { (format!("-{sort}"), flipped) } else { (sort.to_owned(), order) };
            all.push((asked(&[("sort", &sort)]), json!({ "where": condition, "order": order })));
        }
        let (group, column, by) = GROUPS[at % GROUPS.len()];
        all.push((asked(&[("group", group)]), json!({ "where": condition, "group": column, "by": by })));
    }
    all
}

#[test]
fn duckdb_gives_the_same_rows_in_the_same_order() {
    if !has_duckdb() {
        return;
    }
    let network = Network::empty();
    let rows = rows(5, ROWS);
    for (router, left_out) in [("east", 0), ("west", 1)] {
        let seen = rows.iter().enumerate().filter(|(place, _)| place % 3 != left_out).map(|(_, row)| line(row));
        let header = json!({ "flow_list": { "interval": 1, "start": "2026-01-01T01:59:50.000000Z", "end": "2026-01-01T02:00:00.000000Z", "complete": true } });
        network.write(router, "flows-20260101T020000Z.ndjson", header, &seen.collect::<Vec<_>>());
    }
    assert_eq!(END_S, 7_200);
    let (keys, file) = (network.lists().join("../keys.csv"), network.lists().join("../questions.json"));
    fs::write(&keys, keys_csv(&rows, |place| [place % 3 != 0, place % 3 != 1])).unwrap();
    let questions = questions();
    assert!(questions.len() >= 50);
    let sql: Vec<&Value> = questions.iter().map(|(_, sql)| sql).collect();
    fs::write(&file, serde_json::to_string(&sql).unwrap()).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).arg(network.lists()).arg(&keys).arg(&file).arg(COMPARED.to_string());
    let ended = python.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let expected: Vec<(u64, Vec<String>)> = serde_json::from_slice(&ended.stdout).unwrap();
    let serving = network.serve();
    let mut compared = 0;
    for ((asked, sql), (count, lines)) in questions.iter().zip(&expected) {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        let mut parameters: Vec<(&str, &str)> = asked.iter().map(|(name, value)| (*name, value.as_str())).collect();
        parameters.push(("limit", "1000"));
        while found.len() < COMPARED {
            let next: Vec<_> =
                parameters.iter().copied().chain(after.as_deref().map(|after| ("after", after))).collect();
            let answer = serving.ask(&next).json();
            assert_eq!(answer["selected"], *count, "{asked:?} {sql}");
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let named = |value: &Value, names: &[&str]| {
                names.iter().map(|name| text(&value[name])).collect::<Vec<_>>().join(" ")
            };
            let groups = answer["groups"].as_array().into_iter().flatten();
            found.extend(groups.map(|group| named(group, &["value", "established", "half_open"])));
            let rows = answer["connections"].as_array().into_iter().flatten();
            found.extend(rows.map(|row| named(row, &["src_ip", "src_port", "dest_ip", "dest_port"])));
            match answer["next"].as_str() {
                Some(next) => after = Some(next.to_owned()),
                None => break,
            }
        }
        found.truncate(COMPARED);
        compared += found.len();
        assert_eq!(found.len(), lines.len(), "{asked:?}");
        let differing = found.iter().zip(lines).position(|(found, line)| found != line);
        assert_eq!(differing, None, "{asked:?} {sql}: {:?}", differing.map(|at| (&found[at], &lines[at])));
    }
    println!("{} questions, {compared} lines compared", questions.len());
    assert!(compared > 50_000);
}
