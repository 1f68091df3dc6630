//! Every event ends in exactly one delta, whether there are empty ones or not.

mod bases;
mod evictions;

use super::*;
use crate::flow::FlowKey as TableKey;
use crate::flow::{AnyKey, KeyV4, KeyV6, Side, VlanTags};
use crate::handover::{DeltaGeometry, Eviction, LatestSums};
use crate::signal::{ConnectionHash, FINGERPRINT_BITS, SignalKind, SignalParts};
use crate::track::partition::{DELTA_LOAD_PERCENT, DELTA_SPAN_MAX_TICKS};
use crate::track::{Event, FilterEntry, PartitionConfig, RefusedCounts, Tracker, TrackerConfig};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{BATCH_COUNT, Change, Geometry, Iblt, ValueCode};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// 96 and 128 changes can plainly be listed: nine tenths of it are three batches.
fn geometry() -> DeltaGeometry {
    DeltaGeometry { v4: Geometry::for_items(112), v6: Geometry::for_items(160) }
}

/// An exchange that has spares, or has none, and keeps what it is given.
#[derive(Default)]
struct Desk {
    is_closed: bool,
    handed: Vec<HandOver>,
    inquiry: Option<Inquiry>,
}

impl Exchange for Desk {
    fn spare(&mut self, _partition: usize) -> Option<Box<Delta>> {
        (!self.is_closed).then(|| Box::new(Delta::new(geometry())))
    }

    fn spare_half_open(&mut self, _partition: usize) -> Option<Box<HalfOpenList>> {
        (!self.is_closed).then(|| Box::new(HalfOpenList::new(HALF_OPEN_COUNT)))
    }

    fn inquiry(&mut self, _: usize) -> Option<Inquiry> {
        self.inquiry.take()
    }

    fn hand_over(&mut self, mut hand_over: HandOver) {
        hand_over.delta.iter_mut().for_each(|delta| LatestSums::new(&Secret::REPLAY).sum_into(delta));
        self.handed.push(hand_over);
    }
}

impl Desk {
    /// The sum of all deltas that were handed over.
    fn sum(&self) -> Delta {
        let mut sum = Delta::new(geometry());
        for delta in self.handed.iter().filter_map(|handed| handed.delta.as_ref()) {
            assert!(sum.v4.table.merge(&delta.v4.table).is_ok() && sum.v6.table.merge(&delta.v6.table).is_ok());
            assert!(!delta.is_untouched());
            sum.v4.updates += delta.v4.updates;
            sum.v6.updates += delta.v6.updates;
        }
        sum
    }

    fn deltas(&self) -> impl Iterator<Item = &Delta> {
        self.handed.iter().filter_map(|handed| handed.delta.as_deref())
    }
}

/// Ends an interval of one partition.
fn end_interval(partition: &mut Partition, marker: &Marker, desk: &mut Desk) {
    let handed = partition.end_interval(marker, desk);
    desk.hand_over(handed);
}

const HALF_OPEN_COUNT: usize = 256;

fn config() -> PartitionConfig {
    let tracker = TrackerConfig {
        secret: Secret::REPLAY,
        place_count: 7 * 512,
        half_open_count: HALF_OPEN_COUNT,
        connections_max: 1 << 20,
        syn_timeout_ticks: 600,
        linger_ticks: 100,
        one_way_max: 0,
        presumed_ticks: 0,
        ended_count: 256,
        refused: RefusedCounts { records: 256, listed: 256 },
        candidate_count: 0,
        candidate_timeout_ticks: 50,
        untracked_ticks: None,
        answer_opens: false,
        fingerprint_bits: FINGERPRINT_BITS,
    };
    PartitionConfig { tracker, geometry: geometry(), idle_ticks: None }
}

fn shard() -> Shard {
    Shard::new((0..PARTITION_COUNT).map(|index| Partition::new(index, &config())).collect())
}

const FIRST_TICK: u64 = 1 << 20;

/// What the client (true) or the server of a numbered connection sends; every fourth number is of IPv6.
fn signal(number: u32, from_client: bool, kind: SignalKind, tick: u64) -> Signal {
    let parts = |client: Side| {
        let sender = if from_client { client } else { client.other() };
        SignalParts { tick, kind, sender, isn: 7 }
    };
    if number.is_multiple_of(4) {
        let key = KeyV6::new((u128::from(number), 1_000), (1 << 90, 443), VlanTags::NONE);
        let hash = KeyedHash::new(&Secret::REPLAY, Purpose::Connection).of(&key.canonical().0);
        Signal::new(&key.canonical().0, ConnectionHash::new(hash), parts(key.canonical().1))
    } else {
        let key = KeyV4::new((0x0a00_0000 + number, 1_000), (0x0a80_0000, 443), VlanTags::NONE);
        let hash = KeyedHash::new(&Secret::REPLAY, Purpose::Connection).of(&key.canonical().0);
        Signal::new(&key.canonical().0, ConnectionHash::new(hash), parts(key.canonical().1))
    }
}

/// The key of a numbered connection, client first.
fn key_of(number: u32) -> AnyKey {
    match signal(number, true, SignalKind::Syn, 0).key() {
        AnyKey::V4(_) => AnyKey::V4(KeyV4::new((0x0a00_0000 + number, 1_000), (0x0a80_0000, 443), VlanTags::NONE)),
        AnyKey::V6(_) => AnyKey::V6(KeyV6::new((u128::from(number), 1_000), (1 << 90, 443), VlanTags::NONE)),
    }
}

/// The handshake of a connection, in one tick.
fn opening(number: u32, tick: u64) -> [Signal; 3] {
    let packets = [(true, SignalKind::Syn), (false, SignalKind::SynAck), (true, SignalKind::Ack)];
    packets.map(|(from_client, kind)| signal(number, from_client, kind, tick))
}

fn closing(number: u32, tick: u64) -> Signal {
    signal(number, true, SignalKind::Rst, tick)
}

fn marker(end_tick: u64) -> Marker {
    Marker { end_tick, ..Marker::default() }
}

/// Sums an event straight into a table.
fn note<K: TableKey>(table: &mut Iblt<K>, key: K, payload: u32, is_open: bool) {
    let hash = KeyedHash::new(&Secret::REPLAY, Purpose::Placement).of(&key);
    let value = ValueCode::new(KeyedHash::<K>::new(&Secret::REPLAY, Purpose::Value)).encode(hash, payload);
    table.apply_one(&if is_open { Change::insert(key, hash, value) } else { Change::remove(key, hash, value) });
}

/// What trackers of their own make of the signals, as one delta.
fn direct(signals: &[Signal]) -> Delta {
    let mut trackers: Vec<Tracker> = (0..PARTITION_COUNT).map(|_| Tracker::new(config().tracker)).collect();
    let mut sum = Delta::new(geometry());
    for signal in signals {
        let event = trackers[signal.hash().partition()].handle(signal);
        let (key, payload, is_open) = match event {
            None | Some(Event::Pass(..)) => continue,
            Some(Event::Open(key, payload) | Event::Reopen(key, payload)) => (key, payload, true),
            Some(Event::Close(key, payload)) => (key, payload, false),
            Some(Event::Replace(..) | Event::Turn(..) | Event::CloseAndPass(..)) => {
                unreachable!("of these signals none does two things")
            }
        };
        match key {
            AnyKey::V4(key) => {
                note(&mut sum.v4.table, key, payload, is_open);
                sum.v4.updates += 1;
            }
            AnyKey::V6(key) => {
                note(&mut sum.v6.table, key, payload, is_open);
                sum.v6.updates += 1;
            }
        }
    }
    sum
}

fn assert_same(left: &Delta, right: &Delta) {
    assert_eq!((left.v4.updates, left.v6.updates), (right.v4.updates, right.v6.updates));
    assert!(left.v4.table == right.v4.table && left.v6.table == right.v6.table);
}

/// Connections that open, and half of which close again a while later.
fn traffic(count: u32) -> Vec<Signal> {
    let mut signals = Vec::new();
    for number in 0..count {
        let tick = FIRST_TICK + u64::from(number / 50);
        signals.extend(opening(number, tick));
        signals.extend((number >= 100 && number.is_multiple_of(2)).then(|| closing(number - 100, tick)));
    }
    signals
}

#[test]
fn a_delta_is_handed_over_before_it_holds_too_much() {
    let signals = traffic(20_000);
    let (mut shard, mut desk) = (shard(), Desk::default());
    signals.chunks(64).for_each(|block| shard.handle(block, &mut desk));
    let parts = desk.handed.len();
    assert!(parts > 100, "{parts} parts");
    assert!(desk.handed.iter().all(|handed| handed.end.is_none() && handed.delta.is_some() && !handed.is_held_back));
    shard.end_interval(&marker(FIRST_TICK + 400), &mut desk);
    assert_eq!(desk.handed.len(), parts + PARTITION_COUNT);
    let (v4_max, v6_max) =
        (geometry().v4.item_count() * DELTA_LOAD_PERCENT / 100, geometry().v6.item_count() * DELTA_LOAD_PERCENT / 100);
    assert!(desk.deltas().all(|delta| delta.v4.items <= v4_max && delta.v6.items <= v6_max));
    assert!(desk.deltas().any(|delta| delta.v4.items + BATCH_COUNT as u64 > v4_max), "not before it has to be");
    // What closes in the delta that it opened in is not counted; everything else is.
    assert!(desk.deltas().any(|delta| delta.v4.updates > v4_max), "what cancels takes no room");
    let estimates = desk.deltas().map(|delta| (delta.v4.table.estimated_count(), delta.v4.items));
    assert!(estimates.into_iter().all(|(estimate, items)| estimate <= items + items / 4 + 4));
    assert_same(&desk.sum(), &direct(&signals));
}

#[test]
fn each_partition_ends_the_interval_once_and_reports_its_half_open() {
    let (mut shard, mut desk) = (shard(), Desk::default());
    shard.end_interval(&marker(FIRST_TICK), &mut desk);
    let partitions: BTreeSet<usize> = desk.handed.iter().map(|handed| handed.partition).collect();
    assert_eq!(partitions, (0..PARTITION_COUNT).collect());
    assert_eq!(desk.handed.len(), PARTITION_COUNT);
    assert!(desk.handed.iter().all(|handed| handed.delta.is_none() && !handed.is_held_back));

    desk.handed.clear();
    let syns: Vec<Signal> = (0..100).map(|number| signal(number, true, SignalKind::Syn, FIRST_TICK)).collect();
    shard.handle(&syns, &mut desk);
    shard.end_interval(&marker(FIRST_TICK + 600), &mut desk);
    let half_open = |desk: &Desk| {
        let ends = desk.handed.iter().filter_map(|handed| handed.end.as_ref());
        let lists = ends.map(|end| end.half_open.as_ref().expect("there was a spare list"));
        lists.map(|list| list.iter(FIRST_TICK + 600).count()).sum::<usize>()
    };
    assert_eq!(half_open(&desk), 100);
    desk.handed.clear();
    shard.end_interval(&marker(FIRST_TICK + 601), &mut desk);
    assert_eq!(half_open(&desk), 0, "time goes on without signals");
    let expired: u64 = desk.handed.iter().filter_map(|handed| handed.end.as_ref()).map(|end| end.counts.expired).sum();
    assert_eq!(expired, 100);
}

#[test]
fn without_a_spare_the_delta_stays_and_that_is_reported() {
    let signals = traffic(6_000);
    let (before, after) = signals.split_at(signals.len() / 2);
    let (mut shard, mut desk) = (shard(), Desk { is_closed: true, ..Desk::default() });
    before.chunks(64).for_each(|block| shard.handle(block, &mut desk));
    assert!(desk.handed.is_empty(), "there is nothing to hand over with");
    shard.end_interval(&marker(FIRST_TICK + 60), &mut desk);
    assert_eq!(desk.handed.len(), PARTITION_COUNT);
    for handed in &desk.handed {
        assert!(handed.is_held_back && handed.delta.is_none());
        assert!(handed.end.as_ref().is_some_and(|end| end.half_open.is_none()));
    }
    desk.is_closed = false;
    after.chunks(64).for_each(|block| shard.handle(block, &mut desk));
    shard.end_interval(&marker(FIRST_TICK + 400), &mut desk);
    assert!(desk.handed[PARTITION_COUNT..].iter().all(|handed| !handed.is_held_back));
    assert_same(&desk.sum(), &direct(&signals));
}

#[test]
fn no_delta_spans_more_than_a_value_can_hold() {
    for pause in [1, DELTA_SPAN_MAX_TICKS / 3, DELTA_SPAN_MAX_TICKS, DELTA_SPAN_MAX_TICKS + 1, 5 * DELTA_SPAN_MAX_TICKS]
    {
        let mut partition = Partition::new(0, &config());
        let mut desk = Desk::default();
        let of_partition = (0..).filter(|number| signal(*number, true, SignalKind::Syn, 0).hash().partition() == 0);
        let mut signals = Vec::new();
        let mut tick = FIRST_TICK;
        for number in of_partition.take(40) {
            signals.extend(opening(number, tick));
            tick += pause;
        }
        signals.iter().for_each(|signal| partition.handle(signal, &mut desk));
        end_interval(&mut partition, &marker(tick - pause), &mut desk);
        let mut first = FIRST_TICK;
        for handed in desk.handed.iter().filter(|handed| handed.delta.is_some()) {
            assert!(handed.tick - first <= DELTA_SPAN_MAX_TICKS, "pause {pause}: {first}..{}", handed.tick);
            // The next delta begins with the next opening.
            first = (handed.tick + pause - FIRST_TICK).div_ceil(pause) * pause + FIRST_TICK;
        }
        assert_same(&desk.sum(), &direct(&signals));
    }
}

#[test]
fn signals_of_other_partitions_change_nothing() {
    let mut shard = Shard::new(vec![Partition::new(3, &config())]);
    let mut desk = Desk::default();
    let signals: Vec<Signal> = (0..400).flat_map(|number| opening(number, FIRST_TICK)).collect();
    shard.handle(&signals, &mut desk);
    shard.end_interval(&marker(FIRST_TICK), &mut desk);
    let own: Vec<Signal> = signals.into_iter().filter(|signal| signal.hash().partition() == 3).collect();
    assert!(!own.is_empty());
    assert_same(&desk.sum(), &direct(&own));
    assert_eq!(
        shard.counts().map(|(index, counts)| (index, counts.opened)).collect::<Vec<_>>(),
        [(3, own.len() as u64 / 3)]
    );
}

/// A step of a random run: a packet, the end of an interval, a new base, or the exchange runs out or recovers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Packet(u32, bool, SignalKind),
    Pass(u64),
    End,
    Base,
    Toggle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kinds = prop::sample::select(vec![
        SignalKind::Syn,
        SignalKind::SynAck,
        SignalKind::Ack,
        SignalKind::Ack,
        SignalKind::Fin,
        SignalKind::Rst,
    ]);
    let step = prop_oneof![
        200 => (0u32..12, any::<bool>(), kinds).prop_map(|(number, client, kind)| Step::Packet(number, client, kind)),
        20 => prop_oneof![1u64..200, 1..3 * DELTA_SPAN_MAX_TICKS].prop_map(Step::Pass),
        4 => Just(Step::End),
        2 => Just(Step::Base),
        2 => Just(Step::Toggle),
    ];
    prop::collection::vec(step, 1..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_event_is_in_exactly_one_delta(steps in steps()) {
        let (mut shard, mut desk) = (shard(), Desk::default());
        let mut tick = FIRST_TICK;
        let mut signals = Vec::new();
        for step in steps {
            match step {
                Step::Packet(number, from_client, kind) => {
                    let signal = signal(number, from_client, kind, tick);
                    shard.handle(&[signal], &mut desk);
                    signals.push(signal);
                }
                Step::Pass(ticks) => tick += ticks,
                Step::End => {
                    let before = desk.handed.len();
                    shard.end_interval(&marker(tick), &mut desk);
                    prop_assert_eq!(desk.handed[before..].iter().filter(|handed| handed.end.is_some()).count(), 8);
                }
                Step::Base => shard.start_base(TimeBase { first_tick: tick, offset_ns: 0 }, &mut desk),
                Step::Toggle => desk.is_closed = !desk.is_closed,
            }
        }
        desk.is_closed = false;
        shard.end_interval(&marker(tick), &mut desk);
        assert_same(&desk.sum(), &direct(&signals));
    }
}

#[test]
fn an_interval_that_ends_long_after_the_last_change_leaves_its_delta_before() {
    let (mut shard, mut desk) = (shard(), Desk::default());
    let signals: Vec<Signal> = (0..40).flat_map(|number| opening(number, FIRST_TICK)).collect();
    shard.handle(&signals, &mut desk);
    shard.end_interval(&marker(FIRST_TICK + 3 * DELTA_SPAN_MAX_TICKS), &mut desk);
    let with_delta = desk.handed.iter().filter(|handed| handed.delta.is_some());
    assert!(with_delta.map(|handed| handed.tick - FIRST_TICK).all(|span| span <= DELTA_SPAN_MAX_TICKS));
    assert_same(&desk.sum(), &direct(&signals));
}

#[test]
fn a_busy_family_does_not_make_the_other_wait() {
    let mut partition = Partition::new(0, &config());
    let mut desk = Desk::default();
    let numbers = |is_v6: bool| {
        let own = |number: &u32| signal(*number, true, SignalKind::Syn, 0).hash().partition() == 0;
        (0u32..).filter(move |number| number.is_multiple_of(4) == is_v6).filter(own)
    };
    let mut signals: Vec<Signal> = numbers(true).take(1).flat_map(|number| opening(number, FIRST_TICK)).collect();
    let mut tick = FIRST_TICK;
    for number in numbers(false).take(1_000) {
        signals.extend(opening(number, tick));
        tick += DELTA_SPAN_MAX_TICKS / 200;
    }
    signals.iter().for_each(|signal| partition.handle(signal, &mut desk));
    end_interval(&mut partition, &marker(tick), &mut desk);
    let with_v6 = |handed: &&HandOver| handed.delta.as_ref().is_some_and(|delta| delta.v6.updates > 0);
    let ticks: Vec<u64> = desk.handed.iter().filter(with_v6).map(|handed| handed.tick - FIRST_TICK).collect();
    assert!(ticks.len() == 1 && ticks[0] <= DELTA_SPAN_MAX_TICKS, "{ticks:?}");
    assert_same(&desk.sum(), &direct(&signals));
}
