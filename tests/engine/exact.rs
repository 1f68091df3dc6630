//! The lists of large mixed traffic against an exact oracle: same connections, same states, same starts, at every
//! interval.

use crate::support::feed;
use crate::support::feed::Kept;
use crate::support::oracle::{List, Rules, assert_lines, line, lists_of};
use flowpeel::engine::Config;
use flowpeel_traffic::TrafficConfig;
use std::time::Duration;

fn assert_exact(listed: &[Kept], exact: &[List]) {
    assert_eq!(listed.len(), exact.len());
    for (listed, exact) in listed.iter().zip(exact) {
        let header = &listed.header;
        assert_eq!(header.figures.end_ns, exact.end_us as i64 * 1_000);
        assert_lines(header, listed.rows.iter().map(line).collect(), exact);
        assert_eq!((header.missing, header.figures.untracked, header.extraneous), (0, 0, 0));
        assert_eq!((header.figures.opened, header.figures.closed), (exact.opened, exact.closed));
        let established = exact.lines.iter().filter(|line| line.state == "established").count() as u64;
        assert_eq!((header.flows, header.half_open), (established, exact.lines.len() as u64 - established));
        for row in &listed.rows {
            assert_eq!(row.age_ns, header.figures.end_ns - row.start_ns);
        }
    }
}

#[test]
fn four_hundred_thousand_connections_are_listed_exactly_at_every_interval() {
    // Fewer packets between handshake and end than the default: they change no list, and the oracle parses every one.
    let traffic = TrafficConfig { data_packets: 0..=4, ..TrafficConfig::mixed(2026, 400_000) };
    let config = Config { every: Some(Duration::from_secs(10)), ..Config::default() };
    let (listed, summary) = feed::lists(traffic.clone(), &config);
    let exact = lists_of(traffic, Rules { every_us: Some(10_000_000), ..Rules::default() });
    assert_eq!(listed.len(), 12);
    assert_exact(&listed, &exact);
    assert!(summary.outcome.restarted > 0, "some connections closed and opened again within a delta");
}

#[test]
fn small_tables_are_handed_over_in_parts_and_lists_stay_exact() {
    let traffic = TrafficConfig::mixed(7, 40_000);
    let config = Config { every: Some(Duration::from_secs(30)), churn: Some(1_000), ..Config::default() };
    let (listed, summary) = feed::lists(traffic.clone(), &config);
    assert!(summary.latencies.peel.count() > 4 * 8, "deltas were handed over between markers");
    assert_exact(&listed, &lists_of(traffic, Rules { every_us: Some(30_000_000), ..Rules::default() }));
}

#[test]
fn shards_change_nothing() {
    let traffic = TrafficConfig::mixed(11, 20_000);
    let config =
        |shards| Config { every: Some(Duration::from_secs(5)), shards, churn: Some(1_000), ..Config::default() };
    let (one, _) = feed::lists(traffic.clone(), &config(1));
    assert!(one.len() > 20);
    for shards in [1, 2, 3, 8] {
        assert!(feed::lists(traffic.clone(), &config(shards)).0 == one, "with {shards} shards");
    }
}
