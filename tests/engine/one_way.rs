//! Taps that see one direction only: without `one_way` nothing is established, with it the packets of one side are
//! enough.

use crate::support::feed::{Frames, lists_of};
use crate::support::oracle::segment;
use flowpeel::engine::{Config, Summary};
use flowpeel::list::RowState;
use flowpeel_traffic::{Traffic, TrafficConfig, is_client};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Traffic in which every connection has ports of its own, seen from one side.
fn frames(from_clients: bool) -> Frames {
    let mut config = TrafficConfig::mixed(21, 3_000);
    (config.reuse.closed, config.reuse.open) = (0.0, 0.0);
    (config.repeats.late_fin, config.repeats.late_reset) = (0.0, 0.0);
    config.repeats.duplicate_delay_us_max = 1;
    // A server that first sends after a minute has timed out: its side alone shows no handshake.
    config.lifetime_us = 2_000..=40_000_000;
    let mut traffic = Traffic::new(config).unwrap();
    let mut frames = Frames::new();
    while let Some(frame) = traffic.next_frame() {
        if segment(frame.bytes).is_some_and(|segment| is_client(segment.src.ip()) == from_clients) {
            frames.push((frame.time_us, frame.bytes.to_vec()));
        }
    }
    frames
}

type Ends = (SocketAddr, SocketAddr);

/// The connections that are open by the packets of one side: it sent a SYN or SYN-ACK, something more, and neither a
/// FIN nor a RST.
fn open(frames: &Frames, from_clients: bool) -> BTreeSet<Ends> {
    let mut states: BTreeMap<Ends, u8> = BTreeMap::new();
    for segment in frames.iter().filter_map(|(_, bytes)| segment(bytes)) {
        let ends = if from_clients { (segment.src, segment.dst) } else { (segment.dst, segment.src) };
        let state = states.entry(ends).or_insert(0);
        let begins = segment.syn && segment.ack_flag != from_clients;
        *state = match *state {
            _ if segment.fin || segment.rst => 3,
            0 if begins => 1,
            1 if !segment.syn => 2,
            state => state,
        };
    }
    states.into_iter().filter(|(_, state)| *state == 2).map(|(ends, _)| ends).collect()
}

fn established(frames: Frames, one_way: bool) -> (BTreeSet<Ends>, Summary) {
    let (lists, summary) = lists_of(frames, &Config { one_way, ..Config::default() });
    let [list] = lists.try_into().expect("one list, at the end");
    let rows = list.rows.iter().filter(|row| row.state == RowState::Established);
    (rows.map(|row| (row.client, row.server)).collect(), summary)
}

#[test]
fn one_side_is_enough_when_asked_for() {
    for from_clients in [true, false] {
        let frames = frames(from_clients);
        let expected = open(&frames, from_clients);
        assert!(expected.len() > 100, "{}", expected.len());
        let (listed, _) = established(frames, true);
        let missing: Vec<_> = expected.difference(&listed).take(3).collect();
        let wrong: Vec<_> = listed.difference(&expected).take(3).collect();
        assert!(missing.is_empty() && wrong.is_empty(), "clients: {from_clients}: {missing:?} {wrong:?}");
    }
}

#[test]
fn one_side_is_not_enough_otherwise_and_that_is_reported() {
    for from_clients in [true, false] {
        let (listed, summary) = established(frames(from_clients), false);
        assert!(listed.is_empty());
        assert!(summary.counts.one_sided > 300, "{:?}", summary.counts);
    }
}
