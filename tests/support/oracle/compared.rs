//! The oracle's lists beside those of flowpeel: rows as lines, and the lists of generated traffic.

use super::{Line, List, Oracle, Rules};
use flowpeel::list::{Header, Row};
use flowpeel_traffic::{Traffic, TrafficConfig};

/// A row of flowpeel's as the oracle writes it.
pub(crate) fn line(row: &Row) -> Line {
    let (start_us, state) = ((row.start_ns / 1_000) as u64, row.state.name());
    Line { client: row.client, server: row.server, state, start_us, midstream: row.midstream }
}

/// Asserts that the list with this header is complete, but for handshakes that a flood made it forget, and has the same
/// lines as the exact one, in any order.
pub(crate) fn assert_lines(header: &Header, mut lines: Vec<Line>, exact: &List) {
    assert_eq!(header.missing, header.figures.handshakes_lost, "{header:?}");
    assert_eq!(header.complete, header.missing == 0);
    lines.sort();
    // Lists are long: the first difference says more than both.
    if let Some(at) = (0..lines.len().max(exact.lines.len())).find(|&at| lines.get(at) != exact.lines.get(at)) {
        panic!("at {}: listed {:?}, exact {:?}", header.figures.end_ns, lines.get(at), exact.lines.get(at));
    }
}

/// All lists of generated traffic.
pub(crate) fn lists_of(traffic: TrafficConfig, rules: Rules) -> Vec<List> {
    lists_of_part(traffic, rules, |_| true)
}

/// All lists of those frames of generated traffic that `is_taken` says.
pub(crate) fn lists_of_part(traffic: TrafficConfig, rules: Rules, is_taken: impl Fn(&[u8]) -> bool) -> Vec<List> {
    let mut traffic = Traffic::new(traffic).unwrap();
    let mut oracle = Oracle::new(rules);
    let mut lists = Vec::new();
    while let Some(frame) = traffic.next_frame() {
        if is_taken(frame.bytes) {
            lists.extend(oracle.frame(frame.time_us, frame.bytes));
        }
    }
    lists.extend(oracle.finish());
    lists
}
