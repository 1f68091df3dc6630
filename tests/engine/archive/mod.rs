//! Archives: the answers of find against an exact account of generated traffic, whatever happens to the files in
//! between.

mod crash;
mod damage;
mod large;
mod open_segment;

use crate::support::feed::Generated;
use crate::support::oracle;
use crate::support::oracle::{Ended, Oracle, Rules};
use flowpeel::archive::{
    Ages, Answer, Archive, ArchiveConfig, Endpoint, Entry, Fate, ListFeed, Query, SEGMENT_SIZE_MIN, find,
};
use flowpeel::engine::{Config, Plan, Summary};
use flowpeel::list::List;
use flowpeel::queue::WhenFull;
use flowpeel::run::run;
use flowpeel::state::LOCK_FILE;
use flowpeel_traffic::{Traffic, TrafficConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// The smallest segments allowed, so that little traffic makes several groups of them.
fn small() -> ArchiveConfig {
    ArchiveConfig { segment_size: SEGMENT_SIZE_MIN, ..ArchiveConfig::default() }
}

/// Replays generated traffic into an archive.
fn archive(directory: &Path, traffic: TrafficConfig, config: &Config) -> Summary {
    let (archive, recovery) = Archive::start(directory, small(), WhenFull::Wait).unwrap();
    assert!(recovery.logs.is_empty(), "{recovery:?}");
    let plan = Plan::new(config).unwrap().recording(archive.inlet());
    let mut feed = ListFeed::new(&archive);
    let mut lists = |list: &List| feed.list(list, Arc::new(Ages::of(list)));
    let inputs = std::iter::once(Ok(Generated::new(traffic)));
    let summary = run(&plan, inputs, &mut lists, &mut (), None).unwrap();
    archive.finish().unwrap();
    summary
}

/// Every connection of the traffic that was established: those that ended, and those that are open at its end.
fn exact(traffic: TrafficConfig) -> Vec<Ended> {
    let mut traffic = Traffic::new(traffic).unwrap();
    let mut oracle = Oracle::new(Rules::default());
    let mut all = Vec::new();
    while let Some(frame) = traffic.next_frame() {
        oracle.frame(frame.time_us, frame.bytes);
    }
    all.extend(oracle.take_ended());
    let last = oracle.finish().unwrap();
    all.extend(last.lines.into_iter().filter(|line| line.state == "established").map(|line| Ended {
        client: line.client,
        server: line.server,
        start_us: line.start_us,
        end_us: last.end_us / oracle::TICK_US * oracle::TICK_US,
        reason: "open",
    }));
    all
}

fn ended(entry: &Entry) -> Ended {
    Ended {
        client: entry.client(),
        server: entry.server(),
        start_us: (entry.start_ns() / 1_000) as u64,
        end_us: (entry.end_ns() / 1_000) as u64,
        reason: entry.fate.reason().unwrap_or("open"),
    }
}

fn between(one: SocketAddr, other: SocketAddr) -> Query {
    let end = |end: SocketAddr| Endpoint { address: end.ip(), port: Some(end.port()) };
    Query { one: end(one), other: Some(end(other)) }
}

fn of_address(end: SocketAddr) -> Query {
    Query { one: Endpoint { address: end.ip(), port: None }, other: None }
}

fn found(directory: &Path, query: &Query) -> Answer {
    let answer = find(directory, query).unwrap();
    assert!(answer.damages.is_empty(), "{:?}", answer.damages);
    answer
}

fn sorted(entries: &[Entry]) -> Vec<Ended> {
    let mut all: Vec<Ended> = entries.iter().map(ended).collect();
    all.sort();
    all
}

/// The files of a directory, without that of its lock, each with its bytes.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let entries = entries.filter(|entry| entry.file_name() != LOCK_FILE);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn find_prints_every_occurrence_and_no_other() {
    let traffic = TrafficConfig { data_packets: 0..=2, ..TrafficConfig::mixed(31, 250_000) };
    let place = tempfile::tempdir().unwrap();
    let summary = archive(place.path(), traffic.clone(), &Config::default());
    let exact = exact(traffic);
    assert_eq!(exact.iter().filter(|ended| ended.reason != "open").count() as u64, summary.counts.closed);
    assert_eq!(summary.counts.unarchived, 0);
    let names = files(place.path()).into_keys().collect::<Vec<_>>();
    assert!(names.iter().any(|name| name.starts_with("index-")), "{names:?}");
    assert!(!names.iter().any(|name| name.ends_with(".log") || name.ends_with(".tmp")), "{names:?}");

    let mut by_ends: BTreeMap<_, Vec<Ended>> = BTreeMap::new();
    let mut by_address: BTreeMap<_, Vec<Ended>> = BTreeMap::new();
    for ended in &exact {
        let (one, other) = (ended.client.min(ended.server), ended.client.max(ended.server));
        by_ends.entry((one, other)).or_default().push(ended.clone());
        for address in BTreeSet::from([one.ip(), other.ip()]) {
            by_address.entry(address).or_default().push(ended.clone());
        }
    }
    by_ends.values_mut().chain(by_address.values_mut()).for_each(|all| all.sort());
    let reused = by_ends.iter().filter(|(_, all)| all.len() > 1).map(|(ends, _)| *ends).take(300);
    let others = by_ends.keys().step_by(by_ends.len() / 700).copied();
    let asked: Vec<_> = reused.chain(others).collect();
    assert!(asked.iter().filter(|ends| by_ends[ends].len() > 1).count() > 100);
    assert!(asked.iter().any(|ends| ends.0.is_ipv6()));
    let mut kinds = BTreeSet::new();
    for ends in asked {
        let answer = found(place.path(), &between(ends.1, ends.0));
        assert_eq!(sorted(&answer.entries), by_ends[&ends], "{ends:?}");
        assert!(answer.entries.is_sorted_by_key(|entry| (entry.start, entry.end)));
        kinds.extend(answer.entries.iter().filter_map(|entry| entry.fate.reason()));
    }
    assert_eq!(kinds, BTreeSet::from(["fin", "replaced", "rst"]));
    for (address, all) in by_address.iter().step_by(by_address.len() / 40) {
        let answer = found(place.path(), &of_address(SocketAddr::new(*address, 0)));
        assert_eq!(sorted(&answer.entries), *all, "{address}");
    }
}

#[test]
fn one_port_or_two_addresses_can_be_asked_for() {
    let traffic = TrafficConfig { data_packets: 0..=2, ..TrafficConfig::mixed(5, 20_000) };
    let place = tempfile::tempdir().unwrap();
    archive(place.path(), traffic.clone(), &Config::default());
    let exact = exact(traffic);
    for at in [0, exact.len() / 3, exact.len() - 1] {
        let (client, server) = (exact[at].client, exact[at].server);
        let expected = |is: &dyn Fn(&Ended) -> bool| {
            let mut all: Vec<Ended> = exact.iter().filter(|ended| is(ended)).cloned().collect();
            all.sort();
            all
        };
        let end = |end: SocketAddr, port| Endpoint { address: end.ip(), port };
        let query = Query { one: end(client, Some(client.port())), other: None };
        let all = expected(&|ended| ended.client == client || ended.server == client);
        assert_eq!(sorted(&found(place.path(), &query).entries), all);
        let query = Query { one: end(server, None), other: Some(end(client, None)) };
        let is_pair = |a: SocketAddr, b: SocketAddr| a.ip() == client.ip() && b.ip() == server.ip();
        let all = expected(&|ended| is_pair(ended.client, ended.server) || is_pair(ended.server, ended.client));
        assert_eq!(sorted(&found(place.path(), &query).entries), all);
    }
}

#[test]
fn shards_change_no_byte() {
    let traffic = TrafficConfig { data_packets: 0..=2, ..TrafficConfig::mixed(11, 250_000) };
    let of_shards = |shards| {
        let place = tempfile::tempdir().unwrap();
        archive(place.path(), traffic.clone(), &Config { shards, ..Config::default() });
        files(place.path())
    };
    let one = of_shards(1);
    assert!(one.len() > 33, "more than a group of segments: {}", one.len());
    for shards in [2, 8] {
        let several = of_shards(shards);
        assert_eq!(one.keys().collect::<Vec<_>>(), several.keys().collect::<Vec<_>>());
        assert!(one == several, "with {shards} shards");
    }
}

#[test]
fn what_was_open_is_printed_once_and_as_it_was_last_known() {
    let traffic = TrafficConfig { data_packets: 0..=2, ..TrafficConfig::mixed(3, 5_000) };
    let place = tempfile::tempdir().unwrap();
    archive(place.path(), traffic.clone(), &Config::default());
    let open: Vec<Ended> = exact(traffic).into_iter().filter(|ended| ended.reason == "open").collect();
    assert!(open.len() > 20);
    let ask = |ended: &Ended| found(place.path(), &between(ended.client, ended.server)).entries;
    let is_open = |entry: &&Entry| entry.fate == Fate::Open;
    for ended in open.iter().take(50) {
        assert_eq!(ask(ended).iter().filter(is_open).count(), 1);
    }
    // Another run carries them over; what it sees is another time, so they stay as they were.
    let before = ask(&open[0]);
    archive(
        place.path(),
        TrafficConfig { start_us: 3_000_000_000_000_000, ..TrafficConfig::mixed(4, 100) },
        &Config::default(),
    );
    assert_eq!(ask(&open[0]), before);
}
