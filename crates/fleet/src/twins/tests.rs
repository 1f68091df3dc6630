//! What is a difference, and what is only late.

use super::*;
use serde_json::Value;
use std::net::SocketAddr;

const INTERVAL_NS: i64 = 10_000_000_000;

/// The end of the list with this number.
fn end_ns(number: i64) -> i64 {
    1_767_225_600_000_000_000 + number * INTERVAL_NS
}

/// A connection that was established in the interval of the first list.
fn row(port: u16) -> Row {
    let end = |host: u8, port: u16| SocketAddr::from(([10, 0, 0, host], port));
    Row {
        start_ns: end_ns(0) + 1_000_000,
        age_ns: 0,
        state: RowState::Established,
        ..Row::between([end(1, port), end(2, 443)])
    }
}

/// The view of the list with this number, in which each of the twins sees these.
fn view(number: i64, east: &[u16], west: &[u16]) -> Network {
    let rows = |ports: &[u16]| ports.iter().map(|port| row(*port)).collect();
    let mut network = Network::of_rows(end_ns(number), &[("east", rows(east)), ("west", rows(west))]);
    network.routers.iter_mut().for_each(|router| router.interval = Some(10.0));
    network
}

fn twins() -> Twins {
    Twins::new(TwinNames::parse("east,west").unwrap(), 2)
}

/// The lines of a view.
fn lines(twins: &mut Twins, network: &Network, is_only: bool) -> Vec<Value> {
    let mut lines = Vec::new();
    twins.compare(network, &network.routers, is_only, &mut lines).unwrap();
    lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// The changes in these lines: of which connection, and what.
fn changes(lines: &[Value]) -> Vec<(u64, String)> {
    let differences = lines.iter().filter(|line| line["event_type"] == "flow");
    differences
        .map(|line| (line["src_port"].as_u64().unwrap(), line["difference"]["change"].as_str().unwrap().to_owned()))
        .collect()
}

#[test]
fn only_what_lasts_is_a_difference() {
    let mut twins = twins();
    assert_eq!(changes(&lines(&mut twins, &view(1, &[1, 2], &[1, 2]), false)), []);
    // West is behind: it hears of 3 in the next interval, and never of 4.
    assert_eq!(changes(&lines(&mut twins, &view(2, &[1, 2, 3, 4], &[1, 2]), false)), []);
    assert_eq!(changes(&lines(&mut twins, &view(3, &[1, 2, 3, 4], &[1, 2, 3]), false)), []);
    let found = lines(&mut twins, &view(4, &[1, 2, 3, 4], &[1, 2, 3]), false);
    assert_eq!(changes(&found), [(4, "stands".to_owned())]);
    assert_eq!(found[0]["routers"], serde_json::json!(["east"]));
    let difference = &found[0]["difference"];
    assert_eq!((&difference["missing_from"], &difference["since_is_bound"]), (&"west".into(), &false.into()));
    assert_eq!((&difference["since"], &difference["certain"]), (&rfc3339(end_ns(2)).into(), &true.into()));
    assert_eq!(twins.count(), 1);
    assert!(lines(&mut twins, &view(5, &[1, 2, 3, 4], &[1, 2, 3]), false).is_empty(), "it is printed once");
    assert_eq!(changes(&lines(&mut twins, &view(6, &[1, 4], &[1, 4]), false)), [(4, "seen".to_owned())]);
    assert_eq!(twins.count(), 0);
}

#[test]
fn what_ends_is_printed_if_it_was_a_difference() {
    let mut twins = twins();
    for number in 1..=3 {
        lines(&mut twins, &view(number, &[], &[7]), false);
    }
    assert_eq!(twins.count(), 1);
    let found = lines(&mut twins, &view(4, &[8], &[]), false);
    assert_eq!(changes(&found), [(7, "closed".to_owned())]);
    assert_eq!(found[0]["difference"]["since_is_bound"], true, "it was so in the first view");
    assert!(lines(&mut twins, &view(5, &[], &[]), false).is_empty(), "8 did not last");
}

#[test]
fn while_one_is_late_or_incomplete_it_is_said_and_nothing_is_certain() {
    let mut twins = twins();
    let first = lines(&mut twins, &view(1, &[1], &[]), false);
    assert_eq!((&first[0]["twins"]["comparable"], &first[0]["twins"]["complete"]), (&true.into(), &true.into()));
    let mut late = view(9, &[1, 2], &[]);
    late.routers[1].health = Health::Late;
    let found = lines(&mut twins, &late, false);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["twins"]["comparable"], false);
    assert_eq!(found[0]["twins"]["routers"][1]["health"], "late");
    let mut incomplete = view(10, &[1, 2], &[]);
    incomplete.routers[1].complete = false;
    let found = lines(&mut twins, &incomplete, false);
    assert_eq!(changes(&found), [(1, "stands".to_owned())], "2 may be only late");
    assert_eq!((&found[0]["twins"]["complete"], &found[1]["difference"]["certain"]), (&false.into(), &false.into()));
}

#[test]
fn one_view_alone_shows_what_is_older_than_the_grace() {
    let mut network = view(2, &[1, 2], &[2]);
    assert_eq!(changes(&lines(&mut twins(), &network, true)), [], "it is younger than two intervals");
    network = view(3, &[1, 2], &[2]);
    let found = lines(&mut twins(), &network, true);
    assert_eq!(changes(&found), [(1, "stands".to_owned())]);
    assert_eq!(found[1]["difference"]["certain"], true);
    network.routers[1].end = Some("another".to_owned());
    assert_eq!(lines(&mut twins(), &network, true)[1]["difference"]["certain"], false);
}

#[test]
fn half_open_connections_are_not_compared() {
    let half_open = Row { state: RowState::SynSent, ..row(1) };
    let network = Network::of_rows(end_ns(9), &[("east", vec![half_open]), ("west", Vec::new())]);
    assert_eq!(changes(&lines(&mut twins(), &network, true)), []);
    for names in ["east", "east,east", ",west", ""] {
        assert!(TwinNames::parse(names).is_err(), "{names}");
    }
    assert!(
        Twins::new(TwinNames::parse("east,north").unwrap(), 2)
            .look(&network, &network.routers, &mut Vec::new())
            .is_err()
    );
}
