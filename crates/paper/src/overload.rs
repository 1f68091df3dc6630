//! How the list fares before, during and after an exporter stalls. All parts of the engine are real; only queues and
//! threads are left out.

use flowpeel::engine::{Lockstep, LockstepConfig};
use flowpeel::flow::{FlowKey, KeyV4, Side, VlanTags};
use flowpeel::handover::DeltaGeometry;
use flowpeel::list::{EvictionTimes, List};
use flowpeel::queue::Marker;
use flowpeel::signal::{ConnectionHash, FINGERPRINT_BITS, PARTITION_COUNT, Signal, SignalKind, SignalParts, TimeBase};
use flowpeel::track::{LINGER_TICKS, PartitionConfig, RefusedCounts, TrackerConfig};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Geometry, HASH_COUNT};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// An exporter that stalls for some intervals of three times the churn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overload {
    open_count: u64,
    /// Openings plus closings an interval, half of each.
    churn: u64,
    /// Cells of all partitions' tables together.
    cell_count: u64,
}

/// The course of an overload and the recovery from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// Exact lists and all lists, before the overload.
    pub(super) exact_before: (u64, u64),
    /// Connections listed wrongly or not at all, at the end of the overload.
    pub(super) missing_first: u64,
    /// Intervals until the list was exact again, or the number that were waited for.
    pub(super) intervals: u64,
    /// Connections listed wrongly or not at all, at the end of these intervals.
    pub(super) missing_last: u64,
    /// Exact lists and all lists, after that.
    pub(super) exact_after: (u64, u64),
}

impl Recovery {
    /// The numbers, in the order of the fields.
    pub(super) fn numbers(&self) -> [u64; 7] {
        let Recovery { exact_before, missing_first, intervals, missing_last, exact_after } = *self;
        [exact_before.0, exact_before.1, missing_first, intervals, missing_last, exact_after.0, exact_after.1]
    }

    /// The recovery of these numbers.
    pub(super) fn from_numbers(numbers: [u64; 7]) -> Self {
        let [exact_before, all_before, missing_first, intervals, missing_last, exact_after, all_after] = numbers;
        let (exact_before, exact_after) = ((exact_before, all_before), (exact_after, all_after));
        Recovery { exact_before, missing_first, intervals, missing_last, exact_after }
    }
}

/// The length of an interval, in ticks.
const TICKS_AN_INTERVAL: u64 = 100;

/// Half-open connections that a partition can keep: here every handshake completes at once.
const HALF_OPEN_COUNT: usize = 100;

impl Overload {
    /// A million connections, a tenth of which changes in each interval, with 0.8 cells a change.
    pub(super) const FULL: Self = Overload { open_count: 1_000_000, churn: 100_000, cell_count: 80_000 };

    /// A smaller overload, of 20,000 connections.
    pub(super) const QUICK: Self = Overload { open_count: 20_000, churn: 4_000, cell_count: 3_200 };

    /// Intervals that are waited for at most.
    pub(super) const INTERVALS_MAX: u64 = 20;

    /// Intervals before and after the overload that are compared with the truth.
    const CHECKED_INTERVALS: u64 = 5;

    /// Intervals for which the exporter stalls.
    const STALLED_INTERVALS: u64 = 3;

    /// Runs the overload; `asks` is whether the list may ask about connections.
    pub(super) fn run(&self, asks: bool) -> Recovery {
        let mut rig = Rig::new(self, asks);
        rig.churn(self.open_count, 0);
        rig.end_interval();
        let exact_before = rig.exact_intervals(self.churn, Self::CHECKED_INTERVALS);
        rig.engine.exchange.is_stalled = true;
        for _ in 0..Self::STALLED_INTERVALS {
            rig.churn(3 * self.churn / 2, 3 * self.churn / 2);
            rig.end_interval();
        }
        rig.engine.exchange.is_stalled = false;
        rig.churn(self.churn / 2, self.churn / 2);
        let missing_first = rig.end_interval();
        let (mut missing_last, mut intervals) = (missing_first, 0);
        while intervals < Self::INTERVALS_MAX && missing_last != Some(0) {
            rig.churn(self.churn / 2, self.churn / 2);
            rig.everybody_talks();
            missing_last = rig.end_interval();
            intervals += 1;
        }
        // Without a list, everything is missing.
        let number = |missing: Option<u64>| missing.unwrap_or(self.open_count);
        Recovery {
            exact_before,
            missing_first: number(missing_first),
            intervals,
            missing_last: number(missing_last),
            exact_after: rig.exact_intervals(self.churn, Self::CHECKED_INTERVALS),
        }
    }
}

/// Connections that open and close, and the engine that lists them.
struct Rig {
    engine: Lockstep,
    hash: KeyedHash<KeyV4>,
    /// The open connections, each with the number that its packets carry.
    open: BTreeMap<KeyV4, u32>,
    next: u32,
    tick: u64,
}

impl Rig {
    fn new(overload: &Overload, asks: bool) -> Self {
        let secret = Secret::REPLAY;
        let subtable_cell_count = overload.cell_count as usize / PARTITION_COUNT / HASH_COUNT;
        let geometry = DeltaGeometry { v4: Geometry::new(subtable_cell_count as u32), v6: Geometry::for_items(1) };
        // Room for twice what is open or has just closed: the filter is not what is tried here.
        let share = 2 * (overload.open_count + 3 * overload.churn) / PARTITION_COUNT as u64;
        let tracker = TrackerConfig {
            secret: secret.clone(),
            place_count: share as usize,
            half_open_count: HALF_OPEN_COUNT,
            connections_max: share,
            syn_timeout_ticks: 6 * TICKS_AN_INTERVAL,
            linger_ticks: LINGER_TICKS,
            one_way_max: 0,
            presumed_ticks: 0,
            ended_count: 0,
            refused: RefusedCounts { records: 0, listed: 0 },
            candidate_count: 0,
            candidate_timeout_ticks: TICKS_AN_INTERVAL,
            untracked_ticks: None,
            answer_opens: false,
            fingerprint_bits: FINGERPRINT_BITS,
        };
        let partition = PartitionConfig { tracker, geometry, idle_ticks: None };
        let eviction = EvictionTimes::default();
        let config = LockstepConfig { partition, partition_connections_max: share, eviction, asks };
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

    fn signal(&mut self, key: &KeyV4, kind: SignalKind, from_client: bool, isn: u32) {
        let (canonical, client) = key.canonical();
        let sender: Side = if from_client { client } else { client.other() };
        let hash = ConnectionHash::new(self.hash.of(&canonical));
        let signal = Signal::new(&canonical, hash, SignalParts { tick: self.tick, kind, sender, isn });
        self.engine.handle(&[signal]);
    }

    fn open_new(&mut self) {
        self.next += 1;
        let key = KeyV4::new((0x0a00_0000 + self.next, 40_000), (0xcb00_7101, 443), VlanTags::NONE);
        self.signal(&key, SignalKind::Syn, true, self.next);
        self.signal(&key, SignalKind::SynAck, false, self.next);
        self.signal(&key, SignalKind::Ack, true, self.next);
        self.open.insert(key, self.next);
    }

    /// Closes one of the open connections, chosen by a fixed rule that spreads over all of them.
    fn close_some(&mut self) {
        let address = 0x0a00_0000 + self.next.wrapping_mul(0x9e37_79b1) % (self.next + 1);
        let from = KeyV4::new((address, 0), (0, 0), VlanTags::NONE);
        let picked = self.open.range(from..).next().or_else(|| self.open.first_key_value());
        if let Some((key, number)) = picked.map(|(key, number)| (*key, *number)) {
            self.signal(&key, SignalKind::Rst, false, number);
            self.open.remove(&key);
        }
    }

    /// Runs an interval with these numbers of openings and closings.
    fn churn(&mut self, opened: u64, closed: u64) {
        let steps = opened.max(closed);
        for step in 0..steps {
            if step < opened {
                self.open_new();
            }
            if step < closed {
                self.close_some();
            }
            self.tick += u64::from(step % (steps / TICKS_AN_INTERVAL + 1) == 0);
        }
    }

    /// Lets every open connection send a packet, as a sample of packets shows in time.
    fn everybody_talks(&mut self) {
        if self.engine.asks {
            for (key, number) in self.open.clone() {
                self.signal(&key, SignalKind::Ack, true, number);
            }
        }
    }

    /// Runs intervals of this churn. Returns how many lists were exact, and how many there were.
    fn exact_intervals(&mut self, churn: u64, intervals: u64) -> (u64, u64) {
        let exact = (0..intervals).filter(|_| {
            self.churn(churn / 2, churn / 2);
            self.end_interval() == Some(0)
        });
        (exact.count() as u64, intervals)
    }

    /// Ends the interval. Returns how many connections its list has wrongly or not at all, if there is a list. A list
    /// that claims to be complete and is not counts as wholly wrong.
    fn end_interval(&mut self) -> Option<u64> {
        let marker = Marker { end_tick: self.tick, ..Marker::default() };
        let open = &self.open;
        let mut wrong = None;
        let write = |list: &List| {
            let missing = differences(list, open);
            wrong = Some(if list.header.complete == (missing == 0) { missing } else { open.len() as u64 });
        };
        self.engine.end_interval(&marker, write);
        wrong
    }
}

/// Connections that are either listed or open, but not both: a merge of the two, which are in one order.
fn differences(list: &List, open: &BTreeMap<KeyV4, u32>) -> u64 {
    let mut rows = list.rows().map(|row| (row.client, row.server)).peekable();
    let mut keys = open.keys().map(|key| (key.first(), key.second())).peekable();
    let mut count = 0;
    loop {
        let order = match (rows.peek(), keys.peek()) {
            (None, None) => return count,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(row), Some(key)) => row.cmp(key),
        };
        if order.is_le() {
            rows.next();
        }
        if order.is_ge() {
            keys.next();
        }
        count += u64::from(order.is_ne());
    }
}
