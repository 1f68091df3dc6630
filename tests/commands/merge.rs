//! Merges of routers: every connection once, with how many of them saw it, in whatever order and grouping they were
//! merged.

use crate::support::command::{flowpeel, text};
use crate::support::taps::{Recorded, Tap, bytes, file};
use flowpeel::engine::Config;
use flowpeel::flow::FlowKey as TableKey;
use flowpeel::flow::{AnyKey, KeyV4, KeyV6, VlanTags};
use flowpeel::handover::DeltaGeometry;
use flowpeel::list::{MergedList, Row, RowState};
use flowpeel::signal::ConnectionHash;
use flowpeel::snapshot::{Kind, Presence, RouterPart, SnapshotFile};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Geometry, Iblt};
use flowpeel_traffic::TrafficConfig;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

type Ends = (SocketAddr, SocketAddr);

/// What a merged list says of a connection: its state, and how many routers see it.
type Union = BTreeMap<Ends, (RowState, u32)>;

fn union<'a>(lists: impl Iterator<Item = &'a [Row]>) -> Union {
    let mut union = Union::new();
    for row in lists.flatten() {
        let seen = union.entry((row.client, row.server)).or_insert((row.state, 0));
        let is_established = |state| state == RowState::Established;
        if is_established(row.state) && !is_established(seen.0) {
            *seen = (row.state, 1);
        } else if is_established(row.state) == is_established(seen.0) {
            *seen = (seen.0.max(row.state), seen.1 + 1);
        }
    }
    union
}

fn listed(list: &MergedList) -> Union {
    list.rows().map(|row| ((row.client, row.server), (row.state, row.routers))).collect()
}

/// Eight routers that each see a part of one traffic, with clocks of their own.
fn routers(connection_count: u64, config: &Config) -> Vec<Recorded> {
    let traffic = TrafficConfig { data_packets: 0..=1, ..TrafficConfig::mixed(5, connection_count) };
    let tap = |router| Tap {
        router: Some(router),
        ahead_us: 1_000_000 * (router % 3),
        began_us: 130_000 * router,
        ..Tap::of(&traffic)
    };
    (0..8).map(|router| tap(router).recorded(config, true)).collect()
}

fn config(connection_count: u64, churn: u64) -> Config {
    Config {
        churn: Some(churn),
        connections_max: connection_count,
        every: Some(Duration::from_secs(2)),
        ..Config::default()
    }
}

fn merged<'a>(files: impl IntoIterator<Item = &'a SnapshotFile>) -> SnapshotFile {
    let mut files = files.into_iter();
    let mut sum = files.next().unwrap().clone();
    files.for_each(|file| sum.add(file).unwrap());
    sum
}

fn last(routers: &[Recorded]) -> Vec<&SnapshotFile> {
    routers.iter().map(|router| router.snapshots.last().unwrap()).collect()
}

fn key(client: SocketAddr, server: SocketAddr) -> AnyKey {
    let ends = |end: SocketAddr| (end.ip(), end.port());
    match (ends(client), ends(server)) {
        ((IpAddr::V4(client), port), (IpAddr::V4(server), server_port)) => {
            AnyKey::V4(KeyV4::new((client.to_bits(), port), (server.to_bits(), server_port), VlanTags::NONE))
        }
        ((IpAddr::V6(client), port), (IpAddr::V6(server), server_port)) => {
            AnyKey::V6(KeyV6::new((client.to_bits(), port), (server.to_bits(), server_port), VlanTags::NONE))
        }
        _ => panic!("two families"),
    }
}

fn assert_is_the_union(routers: &[Recorded], list: &MergedList) {
    let expected = union(routers.iter().map(|router| router.lists.last().unwrap().as_slice()));
    assert!(list.header.complete && list.left() == 0 && list.header.extraneous == 0, "{:?}", list.header);
    let reported = listed(list);
    for ends in expected.keys().chain(reported.keys()) {
        assert_eq!(reported.get(ends), expected.get(ends), "{ends:?}");
    }
    let flows = expected.values().filter(|(state, _)| *state == RowState::Established).count();
    assert_eq!((list.header.flows, list.router_count), (flows as u64, 8));
    for count in 1..=8 {
        assert!(expected.values().any(|(_, routers)| *routers == count), "some connections are seen by {count}");
    }
}

/// The merge of eight routers is the union of their lists, alone while it fits.
fn alone(connection_count: u64) {
    let routers = routers(connection_count, &config(connection_count, connection_count));
    let merge = merged(last(&routers));
    assert_is_the_union(&routers, &MergedList::new(&merge, &Secret::REPLAY, []));
}

/// Beyond that it takes lists of an earlier time.
fn with_base_lists(connection_count: u64, churn: u64) {
    let routers = routers(connection_count, &config(connection_count, churn));
    let merge = merged(last(&routers));
    let stuck = MergedList::new(&merge, &Secret::REPLAY, []);
    assert!(stuck.left() > 0 && !stuck.header.complete && stuck.header.missing >= stuck.left());
    let earlier = |router: &Recorded| router.lists[router.lists.len() - 2].clone();
    let rows: Vec<Row> = routers.iter().flat_map(earlier).collect();
    let established = rows.iter().filter(|row| row.state == RowState::Established);
    let base: Vec<(AnyKey, u32)> = established.map(|row| (key(row.client, row.server), 1)).collect();
    assert_is_the_union(&routers, &MergedList::new(&merge, &Secret::REPLAY, base));
}

#[test]
fn the_merge_of_eight_routers_is_the_union_of_their_lists() {
    alone(8_000);
}

#[test]
fn beyond_what_fits_a_merge_lists_with_earlier_lists() {
    with_base_lists(40_000, 1_500);
}

#[test]
#[ignore = "a minute: eight routers with some hundred thousand connections"]
fn large_merges() {
    alone(300_000);
    with_base_lists(300_000, 20_000);
}

#[test]
fn any_order_and_grouping_gives_the_same() {
    let routers = routers(3_000, &Config { every: None, ..config(3_000, 3_000) });
    let files = last(&routers);
    let expected = bytes(&merged(files.iter().copied()));
    assert_eq!(bytes(&merged(files.iter().rev().copied())), expected);
    for split in 1..7 {
        let (left, right) = files.split_at(split);
        let (left, right) = (merged(left.iter().copied()), merged(right.iter().rev().copied()));
        assert_eq!(bytes(&merged([&right, &left])), expected);
    }
    let pairs: Vec<SnapshotFile> = files.chunks(2).map(|pair| merged(pair.iter().copied())).collect();
    let read = |file: &SnapshotFile| SnapshotFile::read(bytes(file).as_slice(), &Secret::REPLAY).unwrap();
    let pairs: Vec<SnapshotFile> = pairs.iter().map(read).collect();
    assert_eq!(bytes(&merged(pairs.iter().rev())), expected);
    // Digests of the parts add up to the digest of the whole.
    let (left, right) = files.split_at(3);
    let shape = merged(files.iter().copied()).digest(4_000);
    let digests = [left, right].map(|part| merged(part.iter().copied()).digest(4_000));
    if digests.iter().all(|digest| digest.check_fits(&shape).is_ok()) {
        assert!(merged(&digests) == shape);
    } else {
        panic!("digests for as many differences have one shape here");
    }
}

/// Adds a connection to a snapshot, started at this tick.
fn open<K: TableKey>(
    table: impl Fn(&mut SnapshotFile, usize) -> &mut Iblt<K>,
    file: &mut SnapshotFile,
    key: K,
    value: u64,
) {
    let partition = ConnectionHash::new(KeyedHash::new(&Secret::REPLAY, Purpose::Connection).of(&key.canonical().0));
    let hash = KeyedHash::new(&Secret::REPLAY, Purpose::Placement).of(&key);
    table(file, partition.partition()).apply_one(&Change::insert(key, hash, value));
}

#[test]
fn connections_that_many_routers_saw_are_listed_by_their_counts() {
    let shape = Geometry::for_items(40);
    let geometry = DeltaGeometry { v4: shape, v6: shape };
    let router = |number: u32| {
        let source = RouterPart { router: format!("router-{number}"), ..RouterPart::default() };
        let mut file = SnapshotFile::new(geometry, false, &Secret::REPLAY, source);
        for port in 0..256 {
            // Of the IPv4 connections each was seen by another number of routers.
            if number <= port {
                let key = KeyV4::new((0xc0a8_0001, port as u16), (0x0a00_0001 + port, 443), VlanTags::NONE);
                open(|file, at| &mut file.sums[at].v4, &mut file, key, u64::from(number) << 40 | u64::from(port));
            }
        }
        for port in 0..31 {
            if number <= port {
                let server = 0xfd00_1234_5678_9abc_def0_1234_5678_9abc;
                let key = KeyV6::new((0x2001_0db8 << 96 | u128::from(port) << 60, 9), (server, 443), VlanTags::NONE);
                open(|file, at| &mut file.sums[at].v6, &mut file, key, u64::from(number) * 77);
            }
        }
        file
    };
    let files: Vec<SnapshotFile> = (0..256).map(router).collect();
    let list = MergedList::new(&merged(&files), &Secret::REPLAY, []);
    assert!(list.header.complete, "{:?}", list.header);
    let mut counts: Vec<(bool, u32)> = list.rows().map(|row| (row.client.is_ipv6(), row.routers)).collect();
    counts.sort();
    let expected: Vec<_> = (1..=256).map(|count| (false, count)).chain((1..=31).map(|count| (true, count))).collect();
    assert_eq!(counts, expected);
}

#[test]
fn what_all_of_four_routers_see_is_listed_by_itself() {
    let geometry = DeltaGeometry { v4: Geometry::for_items(40), v6: Geometry::for_items(40) };
    let end = |port: u32| (0x0a00_0000 + port, 40_000);
    let files = (0..4).map(|number: u32| {
        let source = RouterPart { router: format!("router-{number}"), ..RouterPart::default() };
        let mut file = SnapshotFile::new(geometry, false, &Secret::REPLAY, source);
        for port in 0..100 {
            let v4 = KeyV4::new(end(port), (0xc0a8_0001, 443), VlanTags::NONE);
            open(|file, at| &mut file.sums[at].v4, &mut file, v4, u64::from(number) << 40);
            let client = 0x2001_0db8 << 96 | u128::from(port);
            let v6 = KeyV6::new((client, 40_000), (0x2001_0db8 << 96 | 1 << 64, 443), VlanTags::NONE);
            open(|file, at| &mut file.sums[at].v6, &mut file, v6, u64::from(number) << 40);
        }
        file
    });
    let merge = merged(&files.collect::<Vec<_>>());
    let (v4, v6) = merge.loads(&Secret::REPLAY);
    assert_eq!((v4.peeled, v4.left, v6.peeled, v6.left), (100, 0, 100, 0));
    let all = Presence::Open { count: 4, payload: None };
    for row in MergedList::new(&merge, &Secret::REPLAY, []).rows() {
        assert_eq!(merge.presence(&key(row.client, row.server), &Secret::REPLAY), all);
    }
    let place = tempfile::tempdir().unwrap();
    let path = file(place.path(), "merge", &merge);
    let reported = flowpeel(["snapshot", "get", &path, "10.0.0.7:40000", "192.168.0.1:443"]);
    assert_eq!(reported.status.code(), Some(0), "{}", text(&reported.stdout));
    let reported = text(&flowpeel(["snapshot", "info", &path]).stdout);
    assert!(reported.lines().any(|line| line.starts_with("lists by itself") && line.contains("yes")), "{reported}");
    assert!(reported.contains("  400 open, each router counting its own; "), "{reported}");
    let digest = file(place.path(), "digest", &merge.digest(20));
    let reported = text(&flowpeel(["snapshot", "info", &digest]).stdout);
    assert!(reported.contains("enough for 41 differences") && !reported.contains("% of it is held"), "{reported}");
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let routers = routers(1_000, &Config { every: None, ..config(1_000, 1_000) });
    let files = last(&routers);
    let mut sum = merged(files[..3].iter().copied());
    let before = sum.clone();
    let shape = Geometry::new(77);
    let other =
        SnapshotFile::new(DeltaGeometry { v4: shape, v6: shape }, false, &Secret::REPLAY, RouterPart::default());
    let vlan = SnapshotFile::new(files[0].header.geometry, true, &Secret::REPLAY, RouterPart::default());
    for (file, part) in [
        (&other, "cells in an IPv4 subtable"),
        (&vlan, "VLAN tags in keys false and true"),
        (files[1], "router \"router-1\", run 0000000000000000, is in both"),
        (&files[3].digest(10), "8 and 1 partitions"),
    ] {
        let refused = sum.add(file).unwrap_err().to_string();
        assert!(refused.contains(part), "{part} in {refused}");
        assert!(sum == before);
    }

    let place = tempfile::tempdir().unwrap();
    let paths: Vec<String> = (0..3).map(|at| file(place.path(), &at.to_string(), files[at])).collect();
    let out = place.path().join("sum").to_str().unwrap().to_owned();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let twice = flowpeel(["snapshot", "merge", paths[0], paths[1], paths[0], "-o", &out]);
    assert!(twice.status.code() == Some(1) && twice.stderr.contains("is in both"));
    assert!(!std::path::Path::new(&out).exists());
    let ended = flowpeel(["snapshot", "merge", paths[2], paths[1], paths[0], "-o", &out]);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(std::fs::read(&out).unwrap(), bytes(&before));
    assert_eq!(before.header.kind, Kind::Merge);
    let reported = text(&flowpeel(["snapshot", "info", &out]).stdout);
    assert!(reported.contains("merge, version 2") && reported.contains("router-2"), "{reported}");
    assert_eq!(flowpeel(["snapshot", "merge", paths[0], "-o", &out]).status.code(), Some(2));
}

#[test]
fn a_merge_is_written_as_a_list_with_the_number_of_routers() {
    let routers = routers(1_000, &Config { every: None, ..config(1_000, 1_000) });
    let list = MergedList::new(&merged(last(&routers)), &Secret::REPLAY, []);
    let mut out = Vec::new();
    flowpeel::export::write_merged(&mut out, &list).unwrap();
    let lines: Vec<serde_json::Value> = text(&out).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let header = &lines[0]["flow_list"];
    assert_eq!((&header["routers"], &header["complete"]), (&8.into(), &true.into()));
    let rows: Vec<_> = list.rows().collect();
    assert_eq!(header["flows"].as_u64().unwrap() + header["half_open"].as_u64().unwrap(), rows.len() as u64);
    assert_eq!(lines.len(), rows.len() + 1);
    for (line, row) in lines[1..].iter().zip(&rows) {
        assert_eq!(line["src_ip"], row.client.ip().to_string());
        assert_eq!(line["dest_port"], row.server.port());
        assert_eq!(line["routers"], row.routers);
        assert_eq!(line["flow"]["state"], row.state.name());
    }
}

#[test]
fn peel_lists_a_merge_alone_and_with_base_lists() {
    let config = config(1_000, 1_000);
    let place = tempfile::tempdir().unwrap();
    let routers = routers(1_000, &config);
    let merge = file(place.path(), "merge", &merged(last(&routers)));
    let alone = flowpeel(["snapshot", "peel", &merge]);
    assert!(alone.status.success(), "{}", alone.stderr);
    let mut expected = Vec::new();
    let list = MergedList::new(&merged(last(&routers)), &Secret::REPLAY, []);
    flowpeel::export::write_merged(&mut expected, &list).unwrap();
    assert!(alone.stdout == expected && text(&expected).contains("\"routers\":2,"));
    // An earlier merge is a base, whatever has changed since.
    let earlier = routers.iter().map(|router| &router.snapshots[router.snapshots.len() - 5]);
    let earlier = file(place.path(), "earlier", &merged(earlier));
    let base = place.path().join("base").to_str().unwrap().to_owned();
    std::fs::write(&base, flowpeel(["snapshot", "peel", &earlier]).stdout).unwrap();
    let based = flowpeel(["snapshot", "peel", &merge, "--base", &base]);
    assert!(based.status.success() && based.stdout == expected, "{}", based.stderr);
    let single = file(place.path(), "single", last(&routers)[0]);
    let refused = flowpeel(["snapshot", "peel", &single, "--base", &base]);
    assert!(refused.status.code() == Some(1) && refused.stderr.contains("the list of several routers"));
}
