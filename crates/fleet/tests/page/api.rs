//! The API against the lists: the same connections as a selection of the list, and answers as they are described.

use crate::network::{Network, Serving};
use crate::schema::objections;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};

const FILTERS: [&str; 10] = [
    "",
    "established",
    "half_open",
    "server port 443",
    "net 10.0.0.0/9 and age > 20s",
    "not established or age < 5s",
    "ip6",
    "portrange 1-1024 and not server port 80",
    "client net 10.0.0.0/8 port 40000",
    "start > 2020-01-01 and (syn_sent or syn_recv)",
];

/// All connections of a question, page by page.
fn all(serving: &Serving, parameters: &[(&str, &str)]) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut parameters = parameters.to_vec();
        parameters.extend(after.as_deref().map(|after| ("after", after)));
        let answer = serving.ask(&parameters).json();
        found.extend(answer["connections"].as_array().unwrap().iter().cloned());
        match answer["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => {
                assert_eq!(answer["selected"].as_u64().unwrap() as usize, found.len());
                return found;
            }
        }
    }
}

fn ids(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["community_id"].as_str().unwrap()).collect()
}

/// What a line of a list says to a filter, read by the language of the lists themselves.
fn selected<'a>(lines: &'a [Value], filter: &str) -> Vec<&'a Value> {
    use flowpeel::flow::VlanTags;
    use flowpeel::select::{Facts, Filter};
    let filter = (!filter.is_empty()).then(|| filter.parse::<Filter>().unwrap());
    let time = |text: &Value| flowpeel::select::time_ns(text.as_str().unwrap()).unwrap();
    let facts = |line: &Value| Facts {
        client: (
            line["src_ip"].as_str().unwrap().parse::<std::net::IpAddr>().unwrap(),
            line["src_port"].as_u64().unwrap() as u16,
        )
            .into(),
        server: (
            line["dest_ip"].as_str().unwrap().parse::<std::net::IpAddr>().unwrap(),
            line["dest_port"].as_u64().unwrap() as u16,
        )
            .into(),
        vlan: VlanTags::NONE,
        state: serde_json::from_value(line["flow"]["state"].clone()).ok(),
        start_ns: time(&line["flow"]["start"]),
        age_ns: (line["flow"]["age"].as_f64().unwrap() * 1e6).round() as i64 * 1_000,
        end_ns: None,
        reason: None,
        midstream: line["flow"]["midstream"] == true,
        unsettled: line["flow"]["unsettled"] == true,
    };
    lines.iter().filter(|line| filter.as_ref().is_none_or(|filter| filter.selects(&facts(line)))).collect()
}

#[test]
fn connections_are_those_of_the_list() {
    let network = Network::of(&["edge"], 10_000);
    let serving = network.serve();
    let lines: Vec<Value> = network.list_of("edge").2.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut differing = BTreeSet::new();
    for filter in FILTERS {
        let expected = selected(&lines, filter);
        differing.insert(expected.len());
        let mut found = all(&serving, &[("filter", filter), ("limit", "1000")]);
        for line in &mut found {
            assert_eq!(line.as_object_mut().unwrap().remove("routers").unwrap(), serde_json::json!(["edge"]));
        }
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter}");
        for sort in ["server", "port", "state", "age", "youngest", "client"] {
            let sorted = all(&serving, &[("filter", filter), ("sort", sort), ("limit", "700")]);
            let mut reversed = all(&serving, &[("filter", filter), ("sort", &format!("-{sort}")), ("limit", "900")]);
            reversed.reverse();
            assert_eq!(sorted, reversed, "{filter} by {sort}");
            let ages: Vec<f64> = sorted.iter().map(|line| line["flow"]["age"].as_f64().unwrap()).collect();
            assert!(sort != "age" || ages.is_sorted_by(|one, other| one >= other));
            let ports: Vec<u64> = sorted.iter().map(|line| line["dest_port"].as_u64().unwrap()).collect();
            assert!(sort != "port" || ports.is_sorted());
            let as_set = |lines: &[Value]| ids(lines).into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
            assert_eq!(as_set(&sorted), as_set(&found), "{filter} by {sort}");
        }
    }
    assert!(differing.len() > 4, "the filters tell connections apart: {differing:?}");
}

#[test]
fn who_sees_what_is_answered() {
    let network = Network::of(&["east", "north", "west"], 5_000);
    let serving = network.serve();
    let everything = all(&serving, &[("limit", "1000")]);
    let of = |router: &str| network.list_of(router).2.len();
    for router in ["east", "north", "west"] {
        assert_eq!(all(&serving, &[("router", router), ("limit", "1000")]).len(), of(router));
    }
    let seen = |line: &&Value, count: usize| line["routers"].as_array().unwrap().len() == count;
    assert!(everything.iter().any(|line| seen(&line, 3)) && everything.iter().any(|line| seen(&line, 2)));
    let groups = serving.ask(&[("group", "router")]).json();
    let count = |group: &Value| group["established"].as_u64().unwrap() + group["half_open"].as_u64().unwrap();
    let sum: u64 = groups["groups"].as_array().unwrap().iter().map(count).sum();
    assert_eq!(sum as usize, of("east") + of("north") + of("west"));
    assert_eq!(groups["selected"].as_u64().unwrap() as usize, everything.len());
    assert!(all(&serving, &[("seen_by", "one")]).is_empty());
}

#[test]
fn answers_are_as_they_are_described() {
    let network = Network::of(&["east", "west"], 3_000);
    let serving = network.serve();
    let api = serving.get("/openapi.json").json();
    let check = |path: &str, query: &str, status: u16| {
        let answer = serving.get(&format!("{path}{query}"));
        assert_eq!(answer.status, status, "{answer:?}");
        let schema =
            &api["paths"][path]["get"]["responses"][status.to_string()]["content"]["application/json"]["schema"];
        let objections = objections(&api, schema, &serde_json::from_str(&answer.body).unwrap(), path);
        assert!(objections.is_empty(), "{query}: {objections:?}");
    };
    let path = "/api/v1/connections";
    check("/api/v1/routers", "", 200);
    check(path, "", 200);
    for parameter in api["paths"][path]["get"]["parameters"].as_array().unwrap() {
        let name = parameter["name"].as_str().unwrap();
        for value in parameter["schema"]["enum"].as_array().into_iter().flatten() {
            check(path, &format!("?{name}={}", value.as_str().unwrap()), 200);
        }
        if !matches!(name, "filter" | "router") {
            check(path, &format!("?{name}=%22"), 400);
        }
    }
    check(path, "?filter=established&sort=-age&limit=3", 200);
    check(path, "?filter=client+prot+443", 400);
    check(path, "?unknown=1", 400);
    check(path, "?group=port&limit=1", 200);
    check(path, "?group=port&after=1~1", 410);
    let mut broken: Value = serde_json::from_str(&serving.get(path).body).unwrap();
    broken["connections"][0]["flow"]["state"] = "open".into();
    let schema = &api["components"]["schemas"]["Connections"];
    assert_eq!(objections(&api, schema, &broken, "").len(), 1, "a description that fits all says nothing");
}

#[test]
fn a_new_list_is_announced_and_shown() {
    let network = Network::of(&["east", "west"], 2_000);
    let serving = network.serve();
    let mut stream = serving.connect();
    stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = || loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str::<Value>(data).unwrap();
        }
    };
    let first = next();
    let (path, header, lines_before) = network.list_of("east");
    let name = path.file_name().unwrap().to_str().unwrap().replace(".ndjson", "_002.ndjson");
    network.write("east", &name, header, &lines_before[..10]);
    let second = next();
    assert!(second["view"].as_u64() > first["view"].as_u64(), "{first} {second}");
    let routers = serving.get("/api/v1/routers").json();
    assert_eq!((&routers["routers"][0]["name"], &routers["routers"][0]["connections"]), (&"east".into(), &10.into()));
    let metrics = serving.get("/metrics");
    assert!(metrics.body.contains("\nflowpeel_fleet_routers{health=\"reporting\"} "), "{}", metrics.body);
}

/// Writes the newest list of a router again, as one that ends later.
fn again(network: &Network, router: &str, end: &str, lines: &[String]) {
    let (_, mut header, _) = network.list_of(router);
    let date = header["flow_list"]["end"].as_str().unwrap()[..10].to_owned();
    header["flow_list"]["end"] = format!("{date}T{end}.000000Z").into();
    header["flow_list"]["start"] = header["flow_list"]["end"].clone();
    let name = format!("flows-{}T{}Z.ndjson", date.replace('-', ""), end.replace(':', ""));
    header["flow_list"]["start"] = format!("{date}T{}0.000000Z", &end[..7]).into();
    network.write(router, &name, header, lines);
}

#[test]
fn a_router_that_stops_is_late_and_then_gone() {
    let network = Network::of(&["east", "west"], 2_000);
    let serving = network.serve();
    let (_, _, east) = network.list_of("east");
    let west_only = all(&serving, &[("router", "west"), ("seen_by", "one"), ("limit", "1000")]).len();
    assert!(west_only > 100, "{west_only}");
    let mut healths = Vec::new();
    for end in ["12:00:05", "12:00:25", "12:05:05"] {
        if healths.is_empty() {
            again(&network, "west", end, &network.list_of("west").2);
        }
        again(&network, "east", end, &east);
        let reads = |end: &str| serving.get("/api/v1/routers").json()["view"]["end"].as_str().unwrap().contains(end);
        while !reads(end) {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let answer = serving.get("/api/v1/routers").json();
        let west = &answer["routers"][1];
        healths.push((
            west["health"].as_str().unwrap().to_owned(),
            west["in_view"] == true,
            answer["view"]["complete"] == true,
        ));
    }
    let expected = [("reporting", true, true), ("late", true, false), ("gone", false, false)];
    let expected: Vec<_> = expected.map(|(health, in_view, complete)| (health.to_owned(), in_view, complete)).into();
    assert_eq!(healths, expected);
    assert!(all(&serving, &[("router", "west")]).is_empty());
}

#[test]
fn what_one_tap_misses_is_in_its_view() {
    let network = Network::of(&["east", "west"], 3_000);
    let serving = network.serve();
    let of = |router: &str| {
        network
            .list_of(router)
            .2
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["community_id"].to_string())
            .collect::<BTreeSet<_>>()
    };
    let (east, west) = (of("east"), of("west"));
    let expected: BTreeSet<String> = east.symmetric_difference(&west).cloned().collect();
    let found = all(&serving, &[("seen_by", "one"), ("limit", "1000")]);
    assert!(found.len() > 300);
    assert_eq!(found.iter().map(|line| line["community_id"].to_string()).collect::<BTreeSet<_>>(), expected);
    for line in &found {
        let router = if east.contains(&line["community_id"].to_string()) { "east" } else { "west" };
        assert_eq!(line["routers"], serde_json::json!([router]));
    }
}
