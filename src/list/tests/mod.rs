//! A shard and a list without threads, so that tests decide when deltas are handed over.

use super::*;
use crate::engine::{Lockstep, LockstepConfig};
use crate::flow::{FlowKey, KeyV4, Side, VlanTags};
use crate::handover::{PRESUMED_MAX_TICKS, SidesSeen};
use crate::queue::Marker;
use crate::signal::{ConnectionHash, FINGERPRINT_BITS, Signal, SignalKind, SignalParts, TICK_BITS, TimeBase};
use crate::track::{LINGER_TICKS, PartitionConfig, RefusedCounts, TrackerConfig};
use flowpeel_iblt::Geometry;
use flowpeel_iblt::hash::{KeyedHash, Purpose};
use std::collections::BTreeMap;

mod restart;
use crate::list::family::RESIDUE_INTERVALS_MAX;

/// The openings and closings of an interval that one partition's table lists plainly.
const PARTITION_CHURN: u64 = 500;
const TICKS_AN_INTERVAL: u64 = 100;

/// Connections that open and close one by one, and the engine that lists them.
struct Rig {
    engine: Lockstep,
    hash: KeyedHash<KeyV4>,
    /// The open connections: the key, and the tick at which it opened.
    open: BTreeMap<KeyV4, u64>,
    next: u32,
    tick: u64,
}

impl Rig {
    fn new(asks: bool) -> Self {
        Rig::with_room(asks, 20_000)
    }

    /// With a list of at most this many connections of each partition.
    fn with_room(asks: bool, partition_connections_max: u64) -> Self {
        Rig::with(asks, partition_connections_max, EvictionTimes::default())
    }

    /// With such a list, from which connections are taken off at these times. Every packet is seen, without a watch.
    fn with(asks: bool, partition_connections_max: u64, eviction: EvictionTimes) -> Self {
        let secret = Secret::REPLAY;
        let geometry = DeltaGeometry { v4: Geometry::for_items(PARTITION_CHURN * 10 / 9), v6: Geometry::for_items(16) };
        let tracker = TrackerConfig {
            secret: secret.clone(),
            place_count: 20_000,
            half_open_count: 100,
            connections_max: 20_000,
            syn_timeout_ticks: 600,
            linger_ticks: LINGER_TICKS,
            one_way_max: 100,
            presumed_ticks: PRESUMED_MAX_TICKS,
            ended_count: 256,
            refused: RefusedCounts { records: 256, listed: 256 },
            candidate_count: 0,
            candidate_timeout_ticks: 50,
            untracked_ticks: None,
            answer_opens: false,
            fingerprint_bits: FINGERPRINT_BITS,
        };
        let partition = PartitionConfig { tracker, geometry, idle_ticks: eviction.idle_ticks };
        let config = LockstepConfig { partition, partition_connections_max, eviction, asks };
        let mut rig = Rig {
            engine: Lockstep::new(&config, None),
            hash: KeyedHash::new(&secret, Purpose::Connection),
            open: BTreeMap::new(),
            next: 0,
            tick: 1 << 20,
        };
        rig.engine.start_base(TimeBase { first_tick: 0, offset_ns: 0 });
        rig
    }

    fn signal(&mut self, key: &KeyV4, kind: SignalKind, from_client: bool) {
        let (canonical, client) = key.canonical();
        let sender: Side = if from_client { client } else { client.other() };
        let hash = ConnectionHash::new(self.hash.of(&canonical));
        let isn = self.tick as u32 ^ 77;
        let signal = Signal::new(&canonical, hash, SignalParts { tick: self.tick, kind, sender, isn });
        self.engine.handle(&[signal]);
    }

    fn open(&mut self, key: KeyV4) {
        self.signal(&key, SignalKind::Syn, true);
        self.signal(&key, SignalKind::SynAck, false);
        self.signal(&key, SignalKind::Ack, true);
        self.open.insert(key, self.tick);
    }

    fn open_new(&mut self) {
        self.next += 1;
        let key = KeyV4::new((0x0a00_0000 + self.next, 40_000), (0xcb00_7101, 443), VlanTags::NONE);
        self.open(key);
    }

    /// Closes one of the open connections, by a fixed rule that picks all over them.
    fn close_some(&mut self) {
        let from =
            KeyV4::new((0x0a00_0000 + self.next.wrapping_mul(0x9e37) % (self.next + 1), 0), (0, 0), VlanTags::NONE);
        let picked = self.open.range(from..).next().or_else(|| self.open.first_key_value());
        if let Some(key) = picked.map(|(key, _)| *key) {
            self.signal(&key, SignalKind::Rst, false);
            self.open.remove(&key);
        }
    }

    /// An interval in which this many connections open and close, in all partitions together.
    fn churn(&mut self, opened: u64, closed: u64) {
        for step in 0..opened.max(closed) {
            if step < opened {
                self.open_new();
            }
            if step < closed {
                self.close_some();
            }
            self.tick += u64::from(step % (opened.max(closed) / TICKS_AN_INTERVAL + 1) == 0);
        }
    }

    /// Every open connection sends a packet, as a sample of packets would show in time.
    fn everybody_talks(&mut self) {
        for key in self.open.keys().copied().collect::<Vec<_>>() {
            self.signal(&key, SignalKind::Ack, true);
        }
    }

    /// Ends the interval. Returns its list, unless it was merged into the next.
    fn end_interval(&mut self) -> Option<(Header, BTreeMap<KeyV4, u64>)> {
        let marker = Marker { end_tick: self.tick, ..Marker::default() };
        let header = self.engine.end_interval(&marker, |_| ())?;
        let listed = self
            .engine
            .list
            .kept
            .list()
            .unwrap()
            .partitions()
            .iter()
            .flat_map(|partition| partition.v4.listed().iter());
        let listed = listed.map(|(key, start)| (key, start.tick())).collect();
        Some((header, listed))
    }

    fn assert_exact(&mut self) {
        let (header, listed) = self.end_interval().unwrap();
        assert!(header.complete, "{header:?}");
        assert_eq!(header.missing, 0);
        assert!(listed == self.open, "{} listed, {} open", listed.len(), self.open.len());
    }
}

const CHURN: u64 = PARTITION_CHURN * PARTITION_COUNT as u64;

#[test]
fn every_interval_is_exact_while_deltas_are_handed_over() {
    let mut rig = Rig::new(true);
    rig.churn(2 * CHURN, 0);
    for _ in 0..10 {
        rig.churn(3 * CHURN / 2, 3 * CHURN / 2);
        rig.assert_exact();
    }
}

#[test]
fn what_a_full_list_has_no_room_for_is_missing_until_there_is_room() {
    let (partitions, room) = (PARTITION_COUNT as u64, 50);
    for asks in [false, true] {
        let mut rig = Rig::with_room(asks, room);
        rig.churn(2 * room * partitions, 0);
        // Even when the shards announce what is open.
        for _ in 0..2 * RESIDUE_INTERVALS_MAX {
            rig.everybody_talks();
            let (header, listed) = rig.end_interval().unwrap();
            let left = rig.open.len() as u64 - room * partitions;
            assert_eq!((listed.len() as u64, header.extraneous, header.complete), (room * partitions, 0, false));
            // What peels last finds the list full, so it lies close together in the first subtable and seems to be
            // more.
            assert!(header.missing.abs_diff(left) < left / 4, "{} of {left}", header.missing);
            assert!(listed.iter().all(|(key, tick)| rig.open.get(key) == Some(tick)));
            rig.churn(1, 1);
        }
        while rig.open.len() as u64 > room * partitions / 2 {
            rig.close_some();
        }
        rig.assert_exact();
    }
}

#[test]
fn a_connection_that_closes_and_opens_again_in_a_delta_has_its_new_start() {
    let mut rig = Rig::new(true);
    rig.churn(CHURN, 0);
    rig.assert_exact();
    rig.tick += 1_000;
    for key in rig.open.keys().copied().step_by(40).collect::<Vec<_>>() {
        rig.signal(&key, SignalKind::Rst, true);
        rig.tick += 2;
        rig.open(key);
    }
    rig.churn(CHURN / 4, CHURN / 4);
    rig.assert_exact();
    assert!(rig.engine.list.outcome().restarted > CHURN / 80, "most did so within one delta");
}

#[test]
fn a_server_that_speaks_hours_after_its_syn_ack_has_its_own_start() {
    const HOUR_TICKS: u64 = 36_000;
    for silent_ticks in [HOUR_TICKS / 2, HOUR_TICKS, PRESUMED_MAX_TICKS] {
        let mut rig = Rig::new(true);
        rig.tick += 1 << TICK_BITS;
        let (key, start_tick) = (KeyV4::new((1, 40_000), (2, 443), VlanTags::NONE), rig.tick);
        rig.signal(&key, SignalKind::SynAck, false);
        let end_tick = start_tick + silent_ticks;
        while rig.tick < end_tick {
            let (header, listed) = rig.end_interval().unwrap();
            assert!(header.complete && listed.is_empty());
            assert_eq!(header.half_open, 1, "{} ticks later", rig.tick - start_tick);
            rig.tick = end_tick.min(rig.tick + HOUR_TICKS / 10);
        }
        rig.signal(&key, SignalKind::Ack, false);
        rig.open.insert(key, start_tick);
        rig.assert_exact();
        let partitions = rig.engine.list.kept.list().unwrap().partitions();
        let start = partitions.iter().find_map(|partition| partition.v4.listed().get(&key)).unwrap();
        assert!(!start.is_midstream() && start.sides() == SidesSeen::Server, "{silent_ticks}");
        assert!(!start.is_bound(), "{silent_ticks}: it was within the time that a handshake is kept");
    }
}

#[test]
fn behind_a_gap_of_many_hours_the_start_of_a_silent_server_is_a_bound() {
    const SINCE: u64 = 1 << 21;
    const HOUR_TICKS: u64 = 36_000;
    for (gap_hours, is_server_bound) in [(16, false), (20, true)] {
        for sides in [SidesSeen::Server, SidesSeen::Client, SidesSeen::Both] {
            let cut = SINCE + gap_hours * HOUR_TICKS;
            let tick = (cut - HOUR_TICKS) as u32 & ((1 << TICK_BITS) - 1);
            let start = start::Start::of_payload(tick | sides.payload_bits(), cut, Default::default());
            let start = start.bound_since(family::earliest_start(SINCE, sides));
            assert_eq!((start.tick(), start.sides()), (cut - HOUR_TICKS, sides));
            assert_eq!(start.is_bound(), is_server_bound && sides == SidesSeen::Server, "{gap_hours} h, {sides:?}");
        }
    }
}

/// The exporter stalls for some intervals with three times the churn, while six times the churn is open.
fn overload(asks: bool, stalled_intervals: u64) -> Rig {
    let mut rig = Rig::new(asks);
    rig.churn(6 * CHURN, 0);
    rig.assert_exact();
    stalled(rig, stalled_intervals)
}

/// The exporter stalls for some intervals with three times the churn.
fn stalled(mut rig: Rig, stalled_intervals: u64) -> Rig {
    rig.engine.exchange.is_stalled = true;
    for _ in 0..stalled_intervals {
        rig.churn(3 * CHURN / 2, 3 * CHURN / 2);
        assert!(rig.end_interval().is_none(), "an interval whose changes are held back becomes part of the next");
    }
    assert_eq!(rig.engine.list.merged_intervals(), stalled_intervals);
    rig.engine.exchange.is_stalled = false;
    rig.churn(CHURN / 2, CHURN / 2);
    let (header, listed) = rig.end_interval().unwrap();
    let closed = listed.keys().filter(|key| !rig.open.contains_key(key)).count();
    let opened = rig.open.keys().filter(|key| !listed.contains_key(key)).count();
    let truth = (closed + opened) as u64;
    println!("after the stall {truth} differences are not listed, {} are said to be missing", header.missing);
    assert!(!header.complete);
    assert_eq!(header.figures.merged, stalled_intervals, "the list covers their intervals too");
    assert!(header.missing.abs_diff(truth) < truth / 10, "{} of {truth}", header.missing);
    rig
}

#[test]
fn a_start_of_days_ago_is_kept_through_an_overload_or_marked() {
    let wrap = 1 << TICK_BITS;
    let mut rig = Rig::new(true);
    rig.churn(6 * CHURN, 0);
    rig.assert_exact();
    rig.tick += wrap + 4_321;
    rig.assert_exact();
    let mut rig = stalled(rig, 3);
    let is_complete = (0..20).any(|_| {
        rig.churn(CHURN / 2, CHURN / 2);
        rig.everybody_talks();
        rig.end_interval().unwrap().0.complete
    });
    assert!(is_complete);
    let partitions = rig.engine.list.kept.list().unwrap().partitions();
    let listed: Vec<_> = partitions.iter().flat_map(|partition| partition.v4.listed().iter()).collect();
    assert_eq!(listed.len(), rig.open.len());
    let mut kept = 0;
    for (key, start) in listed {
        let (tick, opened) = (start.tick(), rig.open[&key]);
        assert!(tick == opened || start.is_bound() && (tick - opened).is_multiple_of(wrap), "{tick} {opened}");
        kept += u64::from(!start.is_bound() && tick + wrap < rig.tick);
    }
    assert!(kept > CHURN / 2, "{kept} of days ago are kept");
}

#[test]
fn after_an_overload_the_list_says_so_and_finds_its_way_back() {
    let mut rig = overload(true, 3);
    let mut intervals = 0;
    loop {
        intervals += 1;
        assert!(intervals < 20, "not in sync after {intervals} intervals");
        rig.churn(CHURN / 2, CHURN / 2);
        rig.everybody_talks();
        let (header, listed) = rig.end_interval().unwrap();
        println!("interval {intervals}: missing {}", header.missing);
        assert_eq!((header.complete, header.figures.merged), (header.missing == 0, 0));
        if header.complete {
            assert!(listed == rig.open, "a list that says it is complete is exact");
            break;
        }
    }
    for _ in 0..3 {
        rig.churn(CHURN, CHURN);
        rig.assert_exact();
    }
}

#[test]
fn after_a_long_overload_too() {
    let mut rig = overload(true, 6);
    let mut intervals = 0;
    while !rig.end_interval().unwrap().0.complete {
        intervals += 1;
        assert!(intervals < 20, "not in sync after {intervals} intervals");
        rig.churn(CHURN / 2, CHURN / 2);
        rig.everybody_talks();
    }
    println!("interval {}: in sync", intervals + 1);
    rig.assert_exact();
}

#[test]
fn without_asking_the_residue_of_an_overload_stays() {
    let mut rig = overload(false, 6);
    for _ in 0..20 {
        rig.churn(CHURN / 2, CHURN / 2);
        let (header, _) = rig.end_interval().unwrap();
        assert!(!header.complete);
    }
}

#[test]
fn a_light_overload_settles_by_itself() {
    let mut rig = Rig::new(false);
    rig.churn(CHURN, 0);
    rig.assert_exact();
    rig.engine.exchange.is_stalled = true;
    rig.churn(CHURN, CHURN);
    assert!(rig.end_interval().is_none());
    rig.engine.exchange.is_stalled = false;
    let mut settled = false;
    for _ in 0..10 {
        rig.churn(CHURN / 4, CHURN / 4);
        settled = rig.end_interval().unwrap().0.complete;
        if settled {
            break;
        }
    }
    assert!(settled);
    rig.churn(CHURN, CHURN);
    rig.assert_exact();
}
