//! Connections that vanish without a FIN or RST: which are taken off the list and when, and which are not.

use crate::support::feed::{Frames, Kept, lists_of};
use crate::support::frames::plain_frame;
use flowpeel::capture::Stamp;
use flowpeel::engine::{Config, Lockstep, LockstepConfig};
use flowpeel::handover::DeltaGeometry;
use flowpeel::list::{EvictionTimes, Row};
use flowpeel::parse::{LinkType, parse_frame};
use flowpeel::queue::Marker;
use flowpeel::signal::{Clock, FINGERPRINT_BITS, HandshakeCache, RecentEnds, Signaller, SignallerConfig, Watch};
use flowpeel::track::{PartitionConfig, RefusedCounts, TrackerConfig};
use flowpeel_iblt::Geometry;
use flowpeel_iblt::hash::Secret;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const SECOND_US: u64 = 1_000_000;

const SYN: u8 = 2;
const ACK: u8 = 16;

/// A packet of a numbered connection, of the client or of the server.
fn packet(number: u16, from_client: bool, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let (client, server) = ((1u8, 10_000 + number), (2u8, 443u16));
    let (src, dst) = if from_client { (client, server) } else { (server, client) };
    plain_frame(src, dst, flags, (seq, ack))
}

fn opening(number: u16, time_us: u64) -> Frames {
    vec![
        (time_us, packet(number, true, SYN, 99, 0)),
        (time_us + 1, packet(number, false, SYN | ACK, 499, 100)),
        (time_us + 2, packet(number, true, ACK, 100, 500)),
    ]
}

/// A connection that sends all the time, to keep the clock going.
const BUSY: u16 = 0;
/// Connections that never send anything more, or only late.
const SILENT: std::ops::Range<u16> = 100..400;
/// Connections of which one side sends a packet every half of the timeout.
const KEPT: std::ops::Range<u16> = 500..800;
const IDLE_S: u64 = 160;
/// When the silent connections with even numbers send again.
const AGAIN_S: u64 = 400;
const END_S: u64 = 800;

fn vanishing() -> Frames {
    let mut frames = opening(BUSY, SECOND_US);
    for number in SILENT.chain(KEPT) {
        frames.extend(opening(number, SECOND_US + u64::from(number) * 1_000));
    }
    for tenth in 20..END_S * 10 {
        frames.push((tenth * SECOND_US / 10, packet(BUSY, tenth % 3 == 0, ACK, 1_000, 1_000)));
    }
    for number in KEPT {
        for time_s in (2 + IDLE_S / 2..END_S).step_by(IDLE_S as usize / 2) {
            frames.push((time_s * SECOND_US + u64::from(number), packet(number, number % 2 == 0, ACK, 99, 500)));
        }
    }
    for number in SILENT.filter(|number| number % 2 == 0) {
        for time in 0..500u64 {
            let time_us = AGAIN_S * SECOND_US + time * 1_000 + u64::from(number);
            frames.push((time_us, packet(number, time % 2 == 0, ACK, 100, 500)));
        }
    }
    frames.sort();
    frames
}

#[test]
fn what_falls_silent_is_evicted_and_what_is_kept_alive_is_not() {
    let every = Duration::from_secs(10);
    let idle_timeout = Some(Duration::from_secs(IDLE_S));
    let config = Config { every: Some(every), idle_timeout, pickup: 16, ..Config::default() };
    let (listed, summary) = lists_of(vanishing(), &config);
    let evicted = assert_evicted(&listed);
    assert_eq!(summary.counts.evicted_idle, evicted);
    assert_eq!(summary.counts.picked_up, SILENT.len() as u64 / 2);
    assert_eq!(summary.signals.watched, 0, "a replay looks at every packet instead");
    for shards in [1, 3, 8] {
        assert!(lists_of(vanishing(), &Config { shards, ..config.clone() }).0 == listed, "with {shards} shards");
    }
}

/// Asserts that the lists have what is kept alive, and silent connections for as long as they should. Returns how many
/// were evicted.
fn assert_evicted(listed: &[Kept]) -> u64 {
    let clients = |rows: &[Row]| rows.iter().map(|row| row.client.port() - 10_000).collect::<BTreeSet<_>>();
    let mut evicted = 0;
    for Kept { header, rows } in listed {
        let (at_s, clients) = (header.figures.end_ns as u64 / 1_000_000_000, clients(rows));
        let there = |range: std::ops::Range<u16>| range.filter(|number| clients.contains(number)).count();
        assert!(header.complete, "{header:?}");
        assert!(clients.contains(&BUSY) && there(KEPT) == KEPT.len(), "at {at_s} s {} are kept", there(KEPT));
        evicted += header.figures.evicted;
        if at_s <= 1 + IDLE_S {
            assert_eq!((there(SILENT), evicted), (SILENT.len(), 0), "at {at_s} s");
        } else if (IDLE_S * 3 / 2..=AGAIN_S).contains(&at_s) {
            assert_eq!((there(SILENT), evicted), (0, SILENT.len() as u64), "at {at_s} s");
        } else if (AGAIN_S + 10..=AGAIN_S + IDLE_S).contains(&at_s) {
            assert_eq!(there(SILENT), SILENT.len() / 2, "at {at_s} s");
            let back = rows.iter().filter(|row| row.midstream);
            assert!(back.clone().all(|row| row.start_ns as u64 / 1_000_000_000 == AGAIN_S));
            assert_eq!(back.count(), SILENT.len() / 2);
        }
    }
    let last = listed.last().unwrap();
    assert_eq!((last.header.flows, evicted), (1 + KEPT.len() as u64, SILENT.len() as u64 * 3 / 2));
    evicted
}

#[test]
fn without_a_timeout_nothing_is_evicted_and_lists_are_the_same() {
    let config = Config { every: Some(Duration::from_secs(10)), ..Config::default() };
    let (listed, summary) = lists_of(vanishing(), &config);
    assert_eq!((summary.counts.evicted(), summary.signals.watched, summary.signals.sampled), (0, 0, 0));
    assert_eq!(listed.last().unwrap().header.flows, 1 + (SILENT.len() + KEPT.len()) as u64);
    // A timeout that nothing reaches changes no list.
    let far = Config { idle_timeout: Some(Duration::from_secs(100 * IDLE_S)), ..config.clone() };
    assert!(lists_of(vanishing(), &far).0 == listed);
}

#[test]
fn what_is_too_old_is_evicted_whatever_is_seen() {
    let max_age = Some(Duration::from_secs(320));
    let config = Config { every: Some(Duration::from_secs(10)), max_age, ..Config::default() };
    let (listed, summary) = lists_of(vanishing(), &config);
    let all = 1 + (SILENT.len() + KEPT.len()) as u64;
    for Kept { header, rows } in &listed {
        let at_s = header.figures.end_ns as u64 / 1_000_000_000;
        assert!(header.complete, "{header:?}");
        if at_s <= 320 {
            assert_eq!(header.flows, all, "at {at_s} s");
        } else if at_s >= 370 {
            assert!(rows.is_empty(), "at {at_s} s {rows:?}");
        }
    }
    assert_eq!((summary.counts.evicted_aged, summary.counts.evicted_idle), (all, 0));
}

/// The path of a live capture without its threads, so that none runs ahead of another: the list has asked, and put
/// under watch what it suspects, before the next packet comes.
struct Live {
    signaller: Signaller,
    engine: Lockstep,
    lists: Vec<Kept>,
}

impl Live {
    fn new(pickup: u32) -> Self {
        let secret = Secret::REPLAY;
        let geometry = DeltaGeometry { v4: Geometry::for_items(1_000), v6: Geometry::for_items(100) };
        let tracker = TrackerConfig {
            secret: secret.clone(),
            place_count: 7_000,
            half_open_count: 1_000,
            connections_max: 10_000,
            syn_timeout_ticks: 600,
            linger_ticks: 100,
            one_way_max: 0,
            presumed_ticks: 0,
            ended_count: 256,
            refused: RefusedCounts { records: 256, listed: 256 },
            candidate_count: 1_000,
            candidate_timeout_ticks: 6_000,
            untracked_ticks: None,
            answer_opens: false,
            fingerprint_bits: FINGERPRINT_BITS,
        };
        let partition = PartitionConfig { tracker, geometry, idle_ticks: None };
        let timeout_ns = 60_000_000_000;
        let watch = Arc::new(Watch::new(1_000));
        let signaller = SignallerConfig {
            secret: secret.clone(),
            vlan_key: false,
            one_way: false,
            syn_timeout_ns: timeout_ns,
            pickup,
            answer_opens: false,
            seen_syn_count: 0,
        };
        let engine = LockstepConfig {
            partition,
            partition_connections_max: 10_000,
            eviction: EvictionTimes { idle_ticks: Some(IDLE_S * 10), ..EvictionTimes::default() },
            asks: true,
        };
        let cache = Arc::new(HandshakeCache::new(1_000, timeout_ns));
        Live {
            signaller: Signaller::new(signaller, cache, Arc::new(RecentEnds::new(1_024)), Some(Arc::clone(&watch))),
            engine: Lockstep::new(&engine, Some(&watch)),
            lists: Vec::new(),
        }
    }

    fn run(&mut self, frames: &Frames) {
        let mut clock = Clock::new(Stamp::unnamed(frames[0].0 as i64 * 1_000));
        self.engine.start_base(clock.time_base());
        let mut end_us = 10 * SECOND_US;
        for (time_us, bytes) in frames {
            while *time_us >= end_us {
                self.end_interval(end_us, clock.time_base().tick(end_us as i64 * 1_000));
                end_us += 10 * SECOND_US;
            }
            clock.advance(*time_us as i64 * 1_000);
            let segment = parse_frame(LinkType::ETHERNET, bytes).unwrap();
            let mut signals = Vec::new();
            self.signaller.push(&segment, || (clock.tick(), clock.elapsed_ns()), |signal| signals.push(*signal));
            self.engine.handle(&signals);
        }
        self.end_interval(end_us, clock.tick());
    }

    fn end_interval(&mut self, end_us: u64, end_tick: u64) {
        let mut signals = Vec::new();
        self.signaller.flush(|signal| signals.push(*signal));
        self.engine.handle(&signals);
        let end_ns = end_us as i64 * 1_000;
        let marker = Marker { end_ns, end_tick, ..Marker::default() };
        let lists = &mut self.lists;
        self.engine.end_interval(&marker, |list| lists.push(Kept { header: list.header, rows: list.rows().collect() }));
    }
}

#[test]
fn a_watch_finds_the_rare_packets_that_a_sample_misses() {
    let mut watched = Live::new(16);
    watched.run(&vanishing());
    let evicted = assert_evicted(&watched.lists);
    let counts = watched.signaller.counts();
    println!("{evicted} evicted, {} sampled, {} found by the watch", counts.sampled, counts.watched);
    assert!(counts.watched > 4 * KEPT.len() as u64 && counts.watched < counts.sampled, "{counts:?}");
}
