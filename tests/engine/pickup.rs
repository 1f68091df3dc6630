//! Connections that are older than the capture, against the oracle.

use crate::support::feed;
use crate::support::feed::{Frames, Kept, lists_of};
use crate::support::oracle::{Oracle, Rules, Segment, assert_lines, line, segment};
use flowpeel::engine::Config;
use flowpeel_traffic::{EndingShares, Flood, FloodConfig, Traffic, TrafficConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

const SECOND_US: u64 = 1_000_000;

/// The two ends, in an order that does not depend on which is the client.
type Ends = (SocketAddr, SocketAddr);

fn ends(one: SocketAddr, other: SocketAddr) -> Ends {
    (one.min(other), one.max(other))
}

fn generated(seed: u64) -> Frames {
    let config = TrafficConfig {
        data_packets: 0..=12,
        lifetime_us: SECOND_US..=60 * SECOND_US,
        endings: EndingShares { never_closed: 0.4, ..TrafficConfig::mixed(seed, 1).endings },
        ..TrafficConfig::mixed(seed, 20_000)
    };
    let mut traffic = Traffic::new(config).unwrap();
    let mut frames = Frames::new();
    while let Some(frame) = traffic.next_frame() {
        frames.push((frame.time_us, frame.bytes.to_vec()));
    }
    frames
}

#[test]
fn what_began_before_the_capture_is_listed_exactly() {
    let all = generated(5);
    let cut_us = all[0].0 + 40 * SECOND_US;
    let kept: Frames = all.iter().filter(|(time_us, _)| *time_us >= cut_us).cloned().collect();
    let rules = Rules { every_us: Some(10 * SECOND_US), pickup: true, ..Rules::default() };
    let exact = Oracle::lists(rules, kept.iter().map(|(time_us, bytes)| (*time_us, bytes.as_slice())));
    let config = Config { every: Some(Duration::from_secs(10)), pickup: 1, ..Config::default() };
    let (listed, summary) = lists_of(kept, &config);
    assert_eq!(listed.len(), exact.len());
    for (Kept { header, rows }, exact) in listed.iter().zip(&exact) {
        assert_lines(header, rows.iter().map(line).collect(), exact);
        let pairs: BTreeSet<_> = rows.iter().map(|row| ends(row.client, row.server)).collect();
        assert_eq!(pairs.len(), rows.len(), "none is listed twice");
        assert_eq!(
            (header.figures.opened, header.figures.closed, header.figures.untracked),
            (exact.opened, exact.closed, 0)
        );
    }
    let last = listed.last().unwrap();
    let midstream: BTreeSet<_> =
        last.rows.iter().filter(|row| row.midstream).map(|row| ends(row.client, row.server)).collect();
    println!("{} picked up, {} of them open at the end", summary.counts.picked_up, midstream.len());
    assert!(summary.counts.picked_up > 1_000 && midstream.len() > 300, "{:?}", summary.counts);
    let established = last.rows.iter().filter(|row| row.state.name() == "established");
    let listed = established.map(|row| ends(row.client, row.server)).collect();
    against_the_whole(&all, cut_us, &listed, &midstream);
}

/// Compares the connections that were picked up with those of the whole capture: they are in it, and those that are not
/// open any more ended in part before the cut.
fn against_the_whole(all: &Frames, cut_us: u64, listed: &BTreeSet<Ends>, midstream: &BTreeSet<Ends>) {
    let whole = Oracle::lists(Rules::default(), all.iter().map(|(time_us, bytes)| (*time_us, bytes.as_slice())));
    let open: BTreeMap<_, _> = whole[0]
        .lines
        .iter()
        .filter(|line| line.state == "established")
        .map(|line| (ends(line.client, line.server), line.start_us))
        .collect();
    let mut seen: BTreeMap<_, BTreeSet<SocketAddr>> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for (time_us, bytes) in all {
        let Some(Segment { src, dst, syn, fin, rst, .. }) = segment(bytes) else { continue };
        if *time_us >= cut_us && !syn && !fin && !rst {
            seen.entry(ends(src, dst)).or_default().insert(src);
        }
        if fin || rst {
            ended.insert(ends(src, dst));
        }
    }
    let both = seen.iter().filter(|(_, sides)| sides.len() == 2).map(|(pair, _)| pair);
    let expected = both.filter(|pair| open.get(pair).is_some_and(|start_us| *start_us < cut_us));
    let expected: Vec<_> = expected.filter(|pair| !ended.contains(pair)).collect();
    assert!(expected.len() > 300, "{}", expected.len());
    assert!(expected.iter().all(|pair| listed.contains(pair)), "who spoke on both sides is listed");
    let wrong: Vec<_> = midstream.iter().filter(|pair| !open.contains_key(pair)).collect();
    assert!(wrong.iter().all(|pair| ended.contains(pair)), "{wrong:?}");
    println!("{} listed after their end, of which the capture shows a half", wrong.len());
    assert!(wrong.len() * 20 < midstream.len());
}

/// Every packet is looked at, and every one of the flood makes a candidate.
#[test]
fn a_flood_of_forged_packets_changes_no_list() {
    let flood = FloodConfig { packet_count: 300_000, rate_per_s: 100_000, ..FloodConfig::new(Flood::Acks) };
    let config = Config { every: Some(Duration::from_secs(5)), pickup: 1, ..Config::default() };
    let flooded = TrafficConfig::flooded(3, flood);
    let (listed, summary) = feed::lists(flooded.clone(), &config);
    let (calm, _) = feed::lists(TrafficConfig { flood: None, ..flooded }, &config);
    assert!(
        summary.counts.candidates >= 300_000 && summary.counts.candidates_recycled > 100_000,
        "{:?}",
        summary.counts
    );
    assert_eq!(summary.counts.picked_up, 0);
    assert_eq!(listed.len(), calm.len());
    for (listed, calm) in listed.iter().zip(&calm) {
        assert!(listed.header.complete && listed.header.figures.untracked == 0, "{:?}", listed.header);
        assert_eq!(
            (listed.header.figures.opened, listed.header.flows),
            (calm.header.figures.opened, calm.header.flows)
        );
        assert!(listed.rows == calm.rows);
    }
}
