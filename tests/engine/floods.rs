//! Floods over legitimate connections: memory stays as planned, and no legitimate connection is pushed out.

use crate::support::feed;
use crate::support::oracle::{Line, List, Rules, assert_lines, line, lists_of_part, segment};
use flowpeel::engine::{Config, Summary};
use flowpeel::list::Header;
use flowpeel_traffic::{Flood, FloodConfig, TrafficConfig, is_client};
use std::time::Duration;

/// What the oracle says of the legitimate connections alone: a flood must not change it.
fn exact(traffic: TrafficConfig) -> Vec<List> {
    let rules = Rules { every_us: Some(1_000_000), ..Rules::default() };
    lists_of_part(traffic, rules, |frame| {
        segment(frame).is_some_and(|segment| is_client(segment.src.ip()) || is_client(segment.dst.ip()))
    })
}

/// Floods at the default sizes, and compares the legitimate part of every list with the oracle's.
fn assert_unharmed(flood: FloodConfig) -> (Vec<Header>, Summary) {
    let traffic = TrafficConfig::flooded(5, flood);
    let config = Config { every: Some(Duration::from_secs(1)), ..Config::default() };
    let mut lists: Vec<(Header, Vec<Line>)> = Vec::new();
    let summary = feed::visit(traffic.clone(), &config, |list| {
        let legitimate = list.rows().filter(|row| is_client(row.client.ip()));
        lists.push((list.header, legitimate.map(|row| line(&row)).collect()));
    });
    let exact = exact(traffic);
    assert_eq!(lists.len(), exact.len());
    let mut headers = Vec::new();
    for ((header, lines), exact) in lists.into_iter().zip(&exact) {
        assert_lines(&header, lines, exact);
        assert!(exact.lines.len() > 900, "a thousand clients are connected all the while");
        headers.push(header);
    }
    (headers, summary)
}

#[test]
fn a_flood_that_nobody_answers() {
    let (headers, summary) = assert_unharmed(FloodConfig::new(Flood::Unanswered));
    assert_attempts_are_accounted_for(&headers, &summary, 5_000_000);
}

#[test]
fn a_flood_that_the_server_answers() {
    let (headers, summary) = assert_unharmed(FloodConfig::new(Flood::Answered));
    assert_attempts_are_accounted_for(&headers, &summary, 5_000_000);
}

#[test]
fn a_flood_of_acknowledgements() {
    let (headers, summary) = assert_unharmed(FloodConfig::new(Flood::Acks));
    assert_eq!(summary.counts.untracked(), 0);
    assert!(headers.iter().all(|header| header.half_open < 1_000));
}

#[test]
fn a_flood_over_ipv6_from_as_many_sources() {
    let flood = FloodConfig { ipv6_share: 1.0, packet_count: 1_000_000, ..FloodConfig::new(Flood::Answered) };
    let (headers, summary) = assert_unharmed(flood);
    assert_attempts_are_accounted_for(&headers, &summary, 1_000_000);
}

/// Every attempt of the flood is listed at the end, timed out, or counted in a header as recycled.
fn assert_attempts_are_accounted_for(headers: &[Header], summary: &Summary, attempts: u64) {
    let counts = &summary.counts;
    let in_headers: u64 = headers.iter().map(|header| header.figures.untracked).sum();
    let listed = summary.last.unwrap().half_open;
    assert!(in_headers > attempts / 2);
    assert_eq!(in_headers, counts.untracked());
    // The legitimate half-open ones that are listed at the end are not of the flood.
    let accounted = counts.recycled + counts.unplaced + counts.expired + listed;
    assert!((attempts..attempts + 1_000).contains(&accounted), "{accounted} of {attempts}");
}
