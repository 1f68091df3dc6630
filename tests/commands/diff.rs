//! The difference between two taps on one traffic: exactly that between their exact lists, whatever their clocks say.

use crate::support::command::{flowpeel, text};
use crate::support::oracle::Line;
use crate::support::taps::{Tap, bytes, file};
use flowpeel::engine::Config;
use flowpeel::flow::FlowKey as TableKey;
use flowpeel::flow::{KeyV4, KeyV6, VlanTags};
use flowpeel::handover::DeltaGeometry;
use flowpeel::snapshot::{Difference, Kind, Misfit, RouterPart, SnapshotFile, Sums};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Geometry, Iblt};
use flowpeel_traffic::TrafficConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Range;

type Ends = (SocketAddr, SocketAddr);

fn established(lines: &[Line]) -> BTreeSet<Ends> {
    let lines = lines.iter().filter(|line| line.state == "established");
    lines.map(|line| (line.client, line.server)).collect()
}

/// What differs between two sets: 1 where only the first has it, -1 where only the second does.
fn differing(one: &BTreeSet<Ends>, other: &BTreeSet<Ends>) -> BTreeMap<Ends, i32> {
    let only_one = one.difference(other).map(|ends| (*ends, 1));
    only_one.chain(other.difference(one).map(|ends| (*ends, -1))).collect()
}

fn reported(difference: &Difference) -> BTreeMap<Ends, i32> {
    let v4 = difference.keys.v4.iter().map(|(key, count)| ((key.first(), key.second()), *count));
    let v6 = difference.keys.v6.iter().map(|(key, count)| ((key.first(), key.second()), *count));
    v4.chain(v6).collect()
}

fn difference(one: &SnapshotFile, other: &SnapshotFile) -> Difference {
    one.difference(other, &Secret::REPLAY).unwrap()
}

struct TwoTaps {
    a: SnapshotFile,
    b: SnapshotFile,
    open: usize,
    exact: BTreeMap<Ends, i32>,
}

/// Two taps on one traffic, the second of which misses one packet of `loss` and has a clock a second ahead.
fn two_taps(connection_count: u64, churn: u64, loss: u64) -> TwoTaps {
    let traffic = TrafficConfig { data_packets: 0..=2, ..TrafficConfig::mixed(21, connection_count) };
    let here = Tap::of(&traffic);
    let there = Tap { loss, ahead_us: 1_000_000, began_us: 3_700_000, ..here.clone() };
    let config = Config { churn: Some(churn), connections_max: connection_count.max(1_000), ..Config::default() };
    let (exact_a, exact_b) = (established(&here.exact()), established(&there.exact()));
    TwoTaps {
        a: here.recorded(&config, false).last(),
        b: there.recorded(&config, false).last(),
        open: exact_a.len(),
        exact: differing(&exact_a, &exact_b),
    }
}

/// Compares in all ways, with a churn too small for all open connections. Returns the size of the digest.
fn compare(taps: &TwoTaps) -> usize {
    let TwoTaps { a, b, exact, .. } = taps;
    assert!(exact.len() > 20 && exact.values().any(|count| *count == 1) && exact.values().any(|count| *count == -1));
    assert!(a.loads(&Secret::REPLAY).0.left > 0, "what is open does not fit the tables, only what differs");
    let whole = difference(a, b);
    assert!(whole.is_complete() && reported(&whole) == *exact);
    let turned: BTreeMap<Ends, i32> = exact.iter().map(|(ends, count)| (*ends, -count)).collect();
    assert!(reported(&difference(b, a)) == turned);
    let digest = a.digest(exact.len() as u64);
    assert_eq!((digest.header.kind, digest.header.partition_count), (Kind::Digest, 1));
    let digest = SnapshotFile::read(bytes(&digest).as_slice(), &Secret::REPLAY).unwrap();
    for difference in [difference(&digest, b), difference(&digest, &b.digest(exact.len() as u64))] {
        assert!(difference.is_complete() && reported(&difference) == *exact);
    }
    bytes(&digest).len()
}

#[test]
fn two_taps_differ_by_the_difference_of_their_exact_lists() {
    let taps = two_taps(30_000, 3_000, 1_000);
    compare(&taps);
}

#[test]
fn a_digest_that_is_too_small_says_for_how_many_it_has_to_be_made() {
    let taps = two_taps(30_000, 8_000, 100);
    let TwoTaps { a, b, exact, .. } = &taps;
    let asked = exact.len() as u64 / 8;
    let small = difference(&a.digest(asked), b);
    assert!(!small.is_complete() && !small.is_none());
    let estimate = small.estimate() as f64 / exact.len() as f64;
    assert!((0.6..1.6).contains(&estimate), "{} of {}", small.estimate(), exact.len());
    assert!(reported(&small).iter().all(|(ends, count)| exact[ends] == *count), "what is found is true");
    let needed = small.differences_needed.unwrap();
    let again = difference(&a.digest(needed), b);
    assert!(again.is_complete() && reported(&again) == *exact, "{needed} for {}", exact.len());
    assert_eq!(again.differences_needed, None);
}

#[test]
fn more_differences_than_the_tables_resolve_take_whole_files_or_larger_tables() {
    let TwoTaps { a, b, exact, .. } = two_taps(30_000, 1_000, 10);
    let whole = difference(&a, &b);
    let part = difference(&a.digest(100), &b);
    for difference in [&whole, &part] {
        assert!(!difference.is_complete());
        assert_eq!(difference.differences_needed, None);
        let estimate = difference.estimate() as f64 / exact.len() as f64;
        assert!((0.6..1.6).contains(&estimate), "{} of {}", difference.estimate(), exact.len());
        assert!(reported(difference).iter().all(|(ends, count)| exact[ends] == *count), "what is found is true");
    }
}

#[test]
#[ignore = "a minute: a hundred thousand open connections"]
fn two_taps_with_a_hundred_thousand_open_connections() {
    let taps = two_taps(560_000, 20_000, 1_000);
    assert!(taps.open >= 100_000, "{} are open", taps.open);
    let size = compare(&taps);
    let exact = taps.exact.len();
    println!("{} open, {exact} differences, a digest of {size} bytes", taps.open);
    println!("whole files of {} and {} bytes", bytes(&taps.a).len(), bytes(&taps.b).len());
}

/// Numbers that look random.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn add_all<K: TableKey>(tables: &mut [Sums], keys: impl Iterator<Item = K>, table: fn(&mut Sums) -> &mut Iblt<K>) {
    let hash = KeyedHash::<K>::new(&Secret::REPLAY, Purpose::Placement);
    hash.for_each(keys, |key, placement| {
        // Any partition will do, if it is the same on both routers; and any value.
        let partition = (placement >> 96) as usize % tables.len();
        table(&mut tables[partition]).apply_one(&Change::insert(key, placement, mixed(placement as u64)));
    });
}

/// A router on which connections with these numbers are open, `percent_v6` % of them over IPv6.
fn open(numbers: Range<u64>, percent_v6: u64) -> SnapshotFile {
    let shape = Geometry::for_items(12_500).foldable();
    let geometry = DeltaGeometry { v4: shape, v6: shape };
    let mut file = SnapshotFile::new(geometry, false, &Secret::REPLAY, RouterPart::default());
    let is_v6 = |number: &u64| number % 100 < percent_v6;
    let end = |number: u64| (number as u32, (number >> 32) as u16);
    let v4 = numbers.clone().filter(|number| !is_v6(number));
    let v4 = v4.map(|number| KeyV4::new(end(mixed(number)), end(mixed(!number)), VlanTags::NONE));
    add_all(&mut file.sums, v4, |sums| &mut sums.v4);
    let address = |number: u64| 0x2001_0db8 << 96 | u128::from(mixed(number));
    let end = |number: u64| (address(number), mixed(number) as u16);
    let v6 = numbers.filter(is_v6);
    let v6 = v6.map(|number| KeyV6::new(end(number), (address(!number), 443), VlanTags::NONE));
    add_all(&mut file.sums, v6, |sums| &mut sums.v6);
    file
}

#[test]
fn a_million_connections_and_five_hundred_differences_compare_by_64_kib() {
    for percent_v6 in [0, 20, 50, 75, 100] {
        let (here, there) = (open(0..1_000_000, percent_v6), open(250..1_000_250, percent_v6));
        let digest = bytes(&here.digest(500));
        println!("{percent_v6} % over IPv6: {} bytes", digest.len());
        assert!(digest.len() <= 64 << 10, "{} bytes with {percent_v6} % over IPv6", digest.len());
        let digest = SnapshotFile::read(digest.as_slice(), &Secret::REPLAY).unwrap();
        let difference = difference(&digest, &there);
        assert!(difference.is_complete());
        assert_eq!(difference.only(), (250, 250));
    }
}

fn empty(cells: (u32, u32), vlan_key: bool) -> SnapshotFile {
    let geometry = DeltaGeometry { v4: Geometry::new(cells.0), v6: Geometry::new(cells.1) };
    SnapshotFile::new(geometry, vlan_key, &Secret::REPLAY, RouterPart::default())
}

#[test]
fn snapshots_that_do_not_fit_are_refused_by_the_field_that_differs() {
    let one = empty((120, 60), false);
    let refused = |other: &SnapshotFile| one.difference(other, &Secret::REPLAY).unwrap_err();
    assert_eq!(refused(&empty((120, 60), true)), Misfit::VlanKey(false, true));
    assert_eq!(refused(&empty((90, 60), false)), Misfit::CellsV4(120, 90));
    assert_eq!(refused(&empty((120, 45), false)), Misfit::CellsV6(60, 45));
    let mut foreign = empty((120, 60), false);
    foreign.header.key_id.0[0] ^= 1;
    assert_eq!(refused(&foreign), Misfit::KeyId(one.header.key_id, foreign.header.key_id));
    // Tables of which one folds to the other go together.
    for fitting in [empty((40, 60), false), empty((240, 20), false), empty((60, 60), false).digest(3)] {
        assert!(difference(&one, &fitting).is_none());
    }
}

#[test]
fn the_command_lists_both_sides_and_its_status_is_the_answer() {
    let taps = two_taps(30_000, 8_000, 100);
    let place = tempfile::tempdir().unwrap();
    let (a, b) = (file(place.path(), "a", &taps.a), file(place.path(), "b", &taps.b));
    let same = flowpeel(["snapshot", "diff", &a, &a]);
    assert!(same.status.code() == Some(0) && same.stdout.is_empty(), "{}", same.stderr);

    let digest = place.path().join("digest").to_str().unwrap().to_owned();
    let count = taps.exact.len().to_string();
    assert!(flowpeel(["snapshot", "digest", &a, "--differences", &count, "-o", &digest]).status.success());
    for a in [&a, &digest] {
        let ended = flowpeel(["snapshot", "diff", a, &b]);
        assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
        let expected: BTreeSet<String> = taps
            .exact
            .iter()
            .map(|((client, server), count)| format!("{} {client} -> {server}", if *count > 0 { '<' } else { '>' }))
            .collect();
        assert!(text(&ended.stdout).lines().map(str::to_owned).collect::<BTreeSet<_>>() == expected);
        let ended = flowpeel(["snapshot", "diff", "--json", a, &b]);
        assert_eq!(ended.status.code(), Some(3));
        let lines: Vec<serde_json::Value> =
            text(&ended.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let header = &lines[0]["flow_difference"];
        let only_a = taps.exact.values().filter(|count| **count > 0).count();
        assert_eq!((&header["complete"], &header["a"]["only_here"]), (&true.into(), &only_a.into()));
        let reported = lines[1..].iter().map(|line| {
            let end = |ip: &str, port: &str| {
                let address = line[ip].as_str().unwrap().parse().unwrap();
                SocketAddr::new(address, line[port].as_u64().unwrap() as u16)
            };
            let count = if line["only_in"] == "a" { 1 } else { -1 };
            ((end("src_ip", "src_port"), end("dest_ip", "dest_port")), count)
        });
        assert!(reported.collect::<BTreeMap<_, _>>() == taps.exact);
    }

    let small = flowpeel(["snapshot", "digest", &a, "--differences", "10", "-o", &digest]);
    assert!(small.status.success());
    let ended = flowpeel(["snapshot", "diff", &digest, &b]);
    assert_eq!(ended.status.code(), Some(4));
    assert!(ended.stderr.contains("make the digest with --differences"), "{}", ended.stderr);
    let quiet = flowpeel(["snapshot", "diff", "-q", &digest, &b]);
    assert!(quiet.status.code() == Some(4) && quiet.stdout == ended.stdout && quiet.stderr.is_empty());
    let misfit = file(place.path(), "misfit", &empty((7, 7), true));
    let ended = flowpeel(["snapshot", "diff", &a, &misfit]);
    assert!(ended.status.code() == Some(1) && ended.stderr.contains("VLAN tags in keys false and true"));
    let ended = flowpeel(["snapshot", "diff", &a, "nowhere"]);
    assert_eq!(ended.status.code(), Some(1));
}
