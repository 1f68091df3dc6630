//! Taps that see one direction only: without `one_way` nothing is established, with it the packets of one side are
//! enough.

use crate::support::feed::{Frames, lists_of};
use crate::support::oracle::segment;
use flowpeel::engine::{Config, Summary};
use flowpeel::list::RowState;
use flowpeel_traffic::{Traffic, TrafficConfig, is_client};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// Traffic in which every connection has ports of its own, seen from one side.
fn frames(from_clients: bool, lifetime_us: RangeInclusive<u64>) -> Frames {
    let mut config = TrafficConfig::mixed(21, 3_000);
    (config.reuse.closed, config.reuse.open) = (0.0, 0.0);
    (config.repeats.late_fin, config.repeats.late_reset) = (0.0, 0.0);
    config.repeats.duplicate_delay_us_max = 1;
    config.lifetime_us = lifetime_us;
    let mut traffic = Traffic::new(config).unwrap();
    let mut frames = Frames::new();
    while let Some(frame) = traffic.next_frame() {
        if segment(frame.bytes).is_some_and(|segment| is_client(segment.src.ip()) == from_clients) {
            frames.push((frame.time_us, frame.bytes.to_vec()));
        }
    }
    frames
}

/// Of what is not sampled a server's first packet is looked for until `--syn-timeout` has passed.
const WITHIN_TIMEOUT: RangeInclusive<u64> = 2_000..=40_000_000;

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
        let frames = frames(from_clients, WITHIN_TIMEOUT);
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
        let (listed, summary) = established(frames(from_clients, WITHIN_TIMEOUT), false);
        assert!(listed.is_empty());
        assert!(summary.counts.one_sided > 300, "{:?}", summary.counts);
    }
}

/// The connections of which servers alone were seen that have shown a SYN-ACK and said nothing since: those of which
/// it is known at the end that they were answered, and those that may be.
fn silent(frames: &Frames) -> [BTreeSet<Ends>; 2] {
    const TIMEOUT_US: u64 = 60_000_000;
    let mut shown: BTreeMap<Ends, Vec<u64>> = BTreeMap::new();
    let mut others = BTreeSet::new();
    for (time_us, bytes) in frames {
        let Some(segment) = segment(bytes) else { continue };
        let ends = (segment.dst, segment.src);
        if segment.syn && segment.ack_flag {
            shown.entry(ends).or_default().push(*time_us);
        } else {
            others.insert(ends);
        }
    }
    shown.retain(|ends, _| !others.contains(ends));
    let end = frames.last().map_or(0, |(time_us, _)| *time_us);
    let is_late = |times: &[u64]| end - times[times.len() - 1] > TIMEOUT_US;
    let is_repeated = |times: &[u64]| times[times.len() - 1] - times[0] > 2_000_000;
    let of = |is_wanted: &dyn Fn(&[u64]) -> bool| {
        shown.iter().filter(|(_, times)| is_wanted(times)).map(|(ends, _)| *ends).collect()
    };
    [of(&|times| is_late(times) && !is_repeated(times)), of(&|times| !is_late(times))]
}

#[test]
fn a_server_that_says_nothing_stays_half_open_unless_it_goes_on_to_repeat_its_syn_ack() {
    let frames = frames(false, 2_000..=200_000_000);
    let [answered, recent] = silent(&frames);
    let open = open(&frames, false);
    let (lists, summary) = lists_of(frames, &Config { one_way: true, pickup: 1, ..Config::default() });
    let [list] = lists.try_into().expect("one list, at the end");
    let of = |state| -> BTreeSet<Ends> {
        list.rows.iter().filter(|row| row.state == state).map(|row| (row.client, row.server)).collect()
    };
    assert!(answered.len() > 20 && recent.len() > 20, "{} and {}", answered.len(), recent.len());
    assert_eq!(of(RowState::SynRecv), answered.union(&recent).copied().collect());
    assert_eq!(of(RowState::Established), open, "those that said something after a minute are open");
    assert!(list.header.complete && summary.counts.expired > 5, "{:?}", summary.counts);
}
