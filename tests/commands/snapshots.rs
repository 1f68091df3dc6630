//! The router's side of snapshots: their contents agree with the lists, for any number of shards, with lists or
//! without; and the command line around them.

use crate::support::command::{flowpeel, text};
use crate::support::feed::Generated;
use crate::support::files::names;
use flowpeel::engine::{Config, Plan, Snapshots};
use flowpeel::error::Result;
use flowpeel::export::{Exporter, Output};
use flowpeel::flow::FlowKey as TableKey;
use flowpeel::flow::{AnyKey, FlowKey, KeyV4, KeyV6};
use flowpeel::list::{Header, Row, RowState};
use flowpeel::run::run;
use flowpeel::signal::TimeBase;
use flowpeel::snapshot::{RouterPart, SnapshotFile};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Iblt, Peeled, Peeler, Recipient, ValueCode};
use flowpeel_traffic::TrafficConfig;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// An exporter that keeps lists and the bytes of snapshots.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) lists: Vec<(Header, Vec<Row>)>,
    pub(crate) snapshots: Vec<Vec<u8>>,
}

impl Exporter for Recorder {
    fn write(&mut self, output: Output) -> Result<()> {
        match output {
            Output::List(list) => self.lists.push((list.header, list.rows().collect())),
            Output::Snapshot(snapshot) => {
                let mut bytes = Vec::new();
                snapshot.write(&mut bytes, &Secret::REPLAY)?;
                self.snapshots.push(bytes);
            }
            Output::Sources(_) => {}
        }
        Ok(())
    }
}

fn traffic() -> TrafficConfig {
    TrafficConfig { data_packets: 0..=2, ..TrafficConfig::mixed(6, 60_000) }
}

pub(crate) fn config(churn: u64, replace_lists: bool) -> Config {
    let snapshots = Snapshots { router: "edge".to_owned(), run: 5, replace_lists };
    Config {
        every: Some(Duration::from_secs(10)),
        connections_max: 100_000,
        churn: Some(churn),
        snapshots: Some(snapshots),
        ..Config::default()
    }
}

pub(crate) fn recorded(config: &Config) -> Recorder {
    let mut recorder = Recorder::default();
    let plan = Plan::new(config).unwrap();
    run(&plan, std::iter::once(Ok(Generated::new(traffic()))), &mut recorder, &mut (), None).unwrap();
    recorder
}

fn read(bytes: &[u8]) -> SnapshotFile {
    SnapshotFile::read(bytes, &Secret::REPLAY).unwrap()
}

/// The contents of a table: each key with its count and, where it is known, its payload.
struct Out<K> {
    code: ValueCode<K>,
    keys: Vec<(K, i32, u32)>,
}

impl<K: TableKey> Recipient<K> for Out<K> {
    fn belongs(&self, placement: u128, value: u64) -> bool {
        self.code.belongs(placement, value)
    }

    fn take(&mut self, peeled: Peeled<K>) {
        self.keys.push((peeled.change.key, peeled.change.count, ValueCode::<K>::payload(peeled.change.value)));
    }
}

/// All that is in a table, and whether that was all.
fn peel<K: TableKey>(mut table: Iblt<K>) -> (Vec<(K, i32, u32)>, bool) {
    let mut peeler = Peeler::new(KeyedHash::new(&Secret::REPLAY, Purpose::Placement), table.geometry().cell_count());
    let mut out = Out { code: ValueCode::new(KeyedHash::new(&Secret::REPLAY, Purpose::Value)), keys: Vec::new() };
    peeler.peel(&mut table, &mut out);
    (out.keys, table.is_key_free())
}

/// A line of a list: its ends, its start in ns, its state.
type Line = (SocketAddr, SocketAddr, i64, RowState);

fn wall_ns(bases: &[TimeBase], tick: u64) -> i64 {
    bases.iter().rev().find(|base| base.first_tick <= tick).unwrap().wall_ns(tick)
}

/// The lines of the established connections that a table lists by itself.
fn lines<K: TableKey>(table: &Iblt<K>, source: &RouterPart, cut: u64) -> Vec<Line> {
    let (keys, is_all) = peel(table.clone());
    assert!(is_all);
    let line = |(key, count, payload): &(K, i32, u32)| {
        assert_eq!(*count, 1);
        let start = cut - ((cut as u32).wrapping_sub(*payload) & 0xf_ffff) as u64;
        (key.first(), key.second(), wall_ns(&source.bases, start), RowState::Established)
    };
    keys.iter().map(line).collect()
}

#[test]
fn a_snapshot_by_itself_is_the_list() {
    let Recorder { lists, snapshots } = recorded(&config(150_000, false));
    assert!(lists.len() == snapshots.len() && lists.len() > 5);
    for (at, ((header, rows), bytes)) in lists.iter().zip(&snapshots).enumerate() {
        assert!(header.complete);
        let snapshot = read(bytes);
        let [source] = snapshot.header.sources.as_slice() else { panic!("one router") };
        let mut reported: Vec<Line> = Vec::new();
        for (sums, cut) in snapshot.sums.iter().zip(source.cut_ticks) {
            reported.extend(lines(&sums.v4, source, cut));
            reported.extend(lines(&sums.v6, source, cut));
        }
        assert_eq!(reported.len() as u64, header.flows);
        let established: BTreeSet<_> = reported.iter().map(|line| (line.0, line.1)).collect();
        let mut half_open = BTreeSet::new();
        for record in &source.half_open {
            let (client, server) = match record.key {
                AnyKey::V4(key) => (key.first(), key.second()),
                AnyKey::V6(key) => (key.first(), key.second()),
            };
            let state = if record.answered { RowState::SynRecv } else { RowState::SynSent };
            if !established.contains(&(client, server)) {
                half_open.insert((client, server, wall_ns(&source.bases, record.start_tick), state));
            }
        }
        reported.extend(half_open);
        reported.sort();
        let mut listed: Vec<Line> = rows.iter().map(|row| (row.client, row.server, row.start_ns, row.state)).collect();
        listed.sort();
        assert!(reported == listed, "{} resolved, {} listed at {at}", reported.len(), listed.len());
        assert_eq!((source.router.as_str(), source.run, source.is_last), ("edge", 5, at + 1 == lists.len()));
        let figures = &source.figures;
        assert_eq!(
            (figures.interval, figures.start_ns, figures.end_ns),
            (header.figures.interval, header.figures.start_ns, header.figures.end_ns)
        );
        assert_eq!(
            (figures.opened, figures.closed, figures.missing_elsewhere),
            (header.figures.opened, header.figures.closed, 0)
        );
        for row in rows {
            let tick_ns = 100_000_000;
            let age_ns = (source.end_tick as i64 - (row.start_ns - source.bases[0].wall_ns(0)) / tick_ns) * tick_ns;
            assert_eq!(row.age_ns, age_ns + source.within_tick_ns);
        }
    }
}

#[test]
fn snapshots_depend_neither_on_shards_nor_on_lists() {
    let with_lists = recorded(&Config { shards: 1, ..config(30_000, false) });
    let without = recorded(&Config { shards: 3, max_age: Some(Duration::from_secs(10)), ..config(30_000, true) });
    assert!(with_lists.lists.len() > 5 && without.lists.is_empty());
    assert!(with_lists.snapshots == without.snapshots);
}

/// The keys of one family that opened (1) and closed (-1) between two snapshots.
fn changes<K: TableKey>(later: &Iblt<K>, earlier: &Iblt<K>) -> Vec<(K, i32)> {
    let mut table = later.clone();
    table.subtract(earlier).unwrap();
    let (keys, is_all) = peel(table);
    assert!(is_all, "the difference lists by itself");
    keys.into_iter().map(|(key, count, _)| (key, count)).collect()
}

fn apply<K: FlowKey>(open: &mut BTreeSet<K>, changes: Vec<(K, i32)>) {
    for (key, count) in changes {
        assert!(if count == 1 { open.insert(key) } else { count == -1 && open.remove(&key) });
    }
}

#[test]
fn whatever_snapshots_are_missing_the_next_one_makes_up_for_it() {
    // What opened and closed since the snapshot before the missing one fits, all that is open does not.
    let Recorder { lists, snapshots } = recorded(&config(5_000, false));
    let (mut v4, mut v6): (BTreeSet<KeyV4>, BTreeSet<KeyV6>) = Default::default();
    let mut applied =
        SnapshotFile::new(read(&snapshots[0]).header.geometry, false, &Secret::REPLAY, RouterPart::default());
    let mut overfull = 0;
    for (at, ((header, rows), bytes)) in lists.iter().zip(&snapshots).enumerate().filter(|(at, _)| at % 3 != 2) {
        let snapshot = read(bytes);
        for (now, before) in snapshot.sums.iter().zip(&applied.sums) {
            apply(&mut v4, changes(&now.v4, &before.v4));
            apply(&mut v6, changes(&now.v6, &before.v6));
        }
        let ends = v4.iter().map(|key| (key.first(), key.second()));
        let ends: BTreeSet<_> = ends.chain(v6.iter().map(|key| (key.first(), key.second()))).collect();
        let listed = rows.iter().filter(|row| row.state == RowState::Established).map(|row| (row.client, row.server));
        assert!(ends == listed.collect(), "list {at}");
        assert_eq!(snapshot.surplus() as u64, header.flows);
        overfull += u64::from(snapshot.loads(&Secret::REPLAY).0.left > 0);
        applied = snapshot;
    }
    assert!(overfull > 0, "some snapshots do not list by themselves");
}

#[test]
fn a_secret_is_made_snapshots_are_written_under_it_and_described() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (secret, snapshots) = (path("secret"), path("snapshots"));
    assert!(flowpeel(["keygen", &secret]).status.success());
    let again = flowpeel(["keygen", &secret]);
    assert!(again.status.code() == Some(1) && again.stderr.contains("never overwritten"));
    let ended = flowpeel([
        "replay",
        "--snapshots",
        &snapshots,
        "--no-list",
        "--router",
        "edge",
        "--secret-file",
        &secret,
        "pcaps/ssh.pcap",
    ]);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(ended.stdout.is_empty() && ended.stderr.contains("no list is kept"));
    let [name] = &names(Path::new(&snapshots))[..] else { panic!("one snapshot") };
    let file = format!("{snapshots}/{name}");
    let reported = text(&flowpeel(["snapshot", "info", "--secret-file", &secret, &file]).stdout);
    for part in ["snapshot, version 2", "edge, run 0000000000000000", "1, the last: ", "IPv4", "1 open", "yes, all 1"] {
        assert!(reported.contains(part), "{part} in\n{reported}");
    }
    let refused = flowpeel(["snapshot", "info", &file]);
    assert!(refused.status.code() == Some(1) && refused.stderr.contains("under another secret"));
    std::fs::write(&file, &std::fs::read(&file).unwrap()[..200]).unwrap();
    let refused = flowpeel(["snapshot", "info", "--secret-file", &secret, &file]);
    assert!(refused.status.code() == Some(1) && refused.stderr.contains("was cut short"));
}

#[test]
fn what_makes_no_sense_is_refused_at_once() {
    let place = tempfile::tempdir().unwrap();
    let [directory, archive] = ["snapshots", "archive"].map(|name| place.path().join(name));
    let [directory, archive] = [&directory, &archive].map(|path| path.to_str().unwrap());
    for (arguments, part) in [
        (&["live", "-i", "lo", "--snapshots", directory][..], "flowpeel keygen FILE"),
        (&["replay", "--no-list", "pcaps/ssh.pcap"], "--snapshots"),
        (&["replay", "--router", "edge", "pcaps/ssh.pcap"], "--snapshots"),
        (
            &["replay", "--snapshots", directory, "--no-list", "--every", "1s", "--max-age", "1h", "pcaps/ssh.pcap"],
            "--no-list keeps none",
        ),
        (&["replay", "--snapshots", directory, "--no-list", "--out", archive, "pcaps/ssh.pcap"], "add --sources"),
        (&["replay", "--snapshots", directory, "--no-list", "--changes", "pcaps/ssh.pcap"], "list to list"),
        (
            &["replay", "--snapshots", directory, "--no-list", "--archive", archive, "pcaps/ssh.pcap"],
            "--archive learns from the lists",
        ),
        (
            &["live", "-i", "lo", "--snapshots", directory, "--no-list", "--archive", archive],
            "--archive learns from the lists",
        ),
        (&["replay", "--snapshots", directory, "--router", "a\nb", "pcaps/ssh.pcap"], "no control characters"),
    ] {
        let ended = flowpeel(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        let said = ended.stderr;
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!Path::new(directory).exists());
}
