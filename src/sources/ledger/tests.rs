//! Reports against exact counts, below and far above what counters list.

use super::*;
use crate::flow::{FlowKey, KeyV4 as FlowV4, KeyV6 as FlowV6, VlanTags};
use crate::signal::{ConnectionHash, Signal, SignalKind, SignalParts};
use crate::sources::{SourceTally, event_of};
use std::collections::BTreeMap;

/// Feeds events, split over some shards by partition, and gives the ledger their deltas.
struct Bench {
    tallies: Vec<SourceTally>,
    ledger: SourceLedger,
    exact: BTreeMap<IpAddr, [u64; 3]>,
}

const PARTITIONS: usize = 8;

impl Bench {
    fn new(source_count: u64, shard_count: usize) -> Self {
        let geometry = SourceGeometry::for_sources(source_count);
        let secret = Secret::REPLAY;
        let delta = || Box::new(SourceDelta::new(geometry, &secret, PARTITIONS / shard_count));
        let tallies = (0..shard_count).map(|_| SourceTally::new(delta())).collect();
        Bench { tallies, ledger: SourceLedger::new(geometry, &secret), exact: BTreeMap::new() }
    }

    /// A packet of this kind from `first` to `second`.
    fn packet(&mut self, kind: SignalKind, key: AnyFlow, refuses: bool) {
        let (from, to, signal) = match key {
            AnyFlow::V4(key) => (key.first().ip(), key.second().ip(), signal(&key, kind)),
            AnyFlow::V6(key) => (key.first().ip(), key.second().ip(), signal(&key, kind)),
        };
        let (source, at) = match kind {
            SignalKind::Syn => (from, 0),
            SignalKind::SynAck => (to, 1),
            SignalKind::Rst if refuses => (to, 2),
            _ => return assert!(event_of(&signal, || refuses).is_none()),
        };
        self.exact.entry(source).or_default()[at] += 1;
        let partition = signal.hash().partition();
        let shard_count = self.tallies.len();
        let event = event_of(&signal, || refuses).unwrap();
        self.tallies[partition % shard_count].count(&signal, event, partition / shard_count);
    }

    fn report(mut self, period: Period) -> (Report, BTreeMap<IpAddr, [u64; 3]>) {
        for tally in self.tallies {
            let ledger = &mut self.ledger;
            tally.exchange(|mut delta| {
                ledger.add(&delta);
                delta.clear();
                delta
            });
        }
        let report = self.ledger.report(period);
        assert_eq!(self.ledger.report(period).sources, [], "what was reported is over");
        (report, self.exact)
    }
}

#[derive(Clone, Copy)]
enum AnyFlow {
    V4(FlowV4),
    V6(FlowV6),
}

fn signal<K: FlowKey>(key: &K, kind: SignalKind) -> Signal {
    let (canonical, sender) = key.canonical();
    // Any function of the key will do to distribute connections.
    let hash =
        canonical.words().iter().fold(7u128, |hash, &word| (hash ^ u128::from(word)).wrapping_mul(0x9e37_79b9_7f4b));
    Signal::new(&canonical, ConnectionHash::new(hash >> 24), SignalParts { tick: 1, kind, sender, isn: 0 })
}

fn flow(source: u32, port: u16) -> AnyFlow {
    AnyFlow::V4(FlowV4::new((source, port), (0xc0a8_0001, 443), VlanTags::NONE))
}

fn flow_v6(source: u128, port: u16) -> AnyFlow {
    AnyFlow::V6(FlowV6::new((source, port), (1 << 127, 443), VlanTags::NONE))
}

fn reversed(flow: AnyFlow) -> AnyFlow {
    match flow {
        AnyFlow::V4(key) => AnyFlow::V4(key.reversed()),
        AnyFlow::V6(key) => AnyFlow::V6(key.reversed()),
    }
}

/// Mixed traffic of this many sources.
fn mixed(bench: &mut Bench, source_count: u32) {
    for source in 0..source_count {
        for port in 0..(source % 7 + 1) as u16 {
            for flow in [flow(source * 77, port), flow_v6(u128::from(source) << 70 | 5, port)] {
                bench.packet(SignalKind::Syn, flow, false);
                bench.packet(SignalKind::SynAck, reversed(flow), false);
                bench.packet(SignalKind::Rst, reversed(flow), port == 3);
                bench.packet(SignalKind::Fin, flow, false);
            }
        }
        // An answer to what was asked before.
        bench.packet(SignalKind::SynAck, reversed(flow(1_000_000 + source, 1)), false);
    }
}

#[test]
fn reports_are_exact_counts_for_any_number_of_shards() {
    let reports = [1, 2, 8].map(|shard_count| {
        let mut bench = Bench::new(2_000, shard_count);
        mixed(&mut bench, 900);
        let (report, exact) = bench.report(Period::default());
        assert!(report.complete && report.missing == 0);
        assert_eq!(report.sources.len(), exact.len());
        for source in &report.sources {
            let counts = [source.attempts, source.answered, source.refused];
            assert_eq!((exact[&source.address], source.attempts_max), (counts, None));
        }
        let key = |source: &Source| (std::cmp::Reverse(source.attempts), source.address);
        assert!(report.sources.is_sorted_by_key(key));
        assert_eq!(report.attempts, exact.values().map(|counts| counts[0]).sum::<u64>());
        assert_eq!(report.answered, exact.values().map(|counts| counts[1]).sum::<u64>());
        assert_eq!(report.refused, exact.values().map(|counts| counts[2]).sum::<u64>());
        report
    });
    assert_eq!(reports[0], reports[1]);
    assert_eq!(reports[0], reports[2]);
}

#[test]
fn the_heavy_ones_of_a_flood_are_named_with_bounds_that_hold() {
    let reports = [1, 8].map(|shard_count| {
        let mut bench = Bench::new(2_000, shard_count);
        for number in 0..300_000u32 {
            bench.packet(SignalKind::Syn, flow(number.wrapping_mul(0x9e37_79b1), 1), false);
            if number % 100 == 0 {
                let heavy = flow(7 + number / 100 % 3, (number / 100) as u16);
                bench.packet(SignalKind::Syn, heavy, false);
                bench.packet(SignalKind::Rst, reversed(heavy), true);
            }
        }
        let (report, exact) = bench.report(Period::default());
        assert!(!report.complete && report.attempts == 303_000 && report.refused == 3_000);
        for source in &report.sources {
            let [attempts, answered, refused] = exact[&source.address];
            let most = source.attempts_max.unwrap();
            assert!((source.attempts..=most).contains(&attempts), "{source:?} {attempts}");
            assert!(source.answered <= answered && source.refused <= refused);
        }
        for heavy in &report.sources[..3] {
            assert!(heavy.attempts >= 800, "{heavy:?}");
        }
        let total = report.missing as usize + report.sources.len();
        assert!((270_000..330_000).contains(&total), "{total} of {}", exact.len());
        report
    });
    assert_eq!(reports[0], reports[1]);
}

#[test]
fn what_was_lost_or_cut_may_have_been_a_source() {
    for period in [Period { dropped: 9, ..Period::default() }, Period { cut: 9, ..Period::default() }] {
        let mut bench = Bench::new(2_000, 1);
        mixed(&mut bench, 10);
        let (report, _) = bench.report(period);
        assert_eq!((report.complete, report.missing), (false, 1));
        assert!(report.sources.iter().all(|source| source.attempts_max.is_none()));
    }
}

#[test]
fn memory_is_in_proportion_to_the_sources() {
    let size = |source_count| SourceGeometry::for_sources(source_count).memory_size(1);
    assert!(size(30_000) < 16 << 20, "{}", size(30_000));
    assert!(size(60_000) > size(30_000) * 3 / 2);
    assert_eq!(size(0), size(crate::sources::delta::SOURCES_MIN));
}
