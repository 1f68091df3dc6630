//! Lists of a spike that are made of snapshots: of each alone, and by an agent, of all and of those around the spike.

use super::{CONNECTIONS_MAX, TIMES, assert_complete_but_in_the_spike, config, is_of_calm, spike};
use crate::support::feed::{Frames, Kept, frames_into};
use crate::support::files::{files, name};
use flowpeel::agent::{Agent, AgentConfig, AgentCounts, AgentEvent, AgentObserver};
use flowpeel::engine::{Config, Snapshots};
use flowpeel::error::Result;
use flowpeel::export::{Directory, Exporter, Format, Keep, Output, SnapshotDirectory};
use flowpeel::list::{Header, SnapshotList};
use flowpeel::snapshot::SnapshotFile;
use flowpeel_iblt::hash::Secret;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A router that writes lists and snapshots, and keeps the lists.
struct Router {
    lists: Directory,
    snapshots: SnapshotDirectory,
    kept: Vec<Kept>,
}

impl Exporter for Router {
    fn write(&mut self, output: Output) -> Result<()> {
        match output {
            Output::List(list) => {
                self.kept.push(Kept { header: list.header, rows: list.rows().collect() });
                self.lists.write(output)
            }
            Output::Snapshot(snapshot) => self.snapshots.write(snapshot),
            Output::Sources(_) => Ok(()),
        }
    }
}

/// Runs a router over a spike. Its lists; their files and those of snapshots are in these directories.
fn routed(frames: Frames, lists: &Path, snapshots: &Path) -> Vec<Kept> {
    let mut router = Router {
        lists: Directory::new(lists, false, Format::default(), Keep::default()).unwrap(),
        snapshots: SnapshotDirectory::new(snapshots, Secret::REPLAY, Keep::default()).unwrap(),
        kept: Vec::new(),
    };
    let of_router = Snapshots { router: "edge".to_owned(), run: 3, replace_lists: false };
    frames_into(frames, &Config { snapshots: Some(of_router), ..config(2) }, &mut router);
    router.kept
}

/// The list of a snapshot by itself.
fn peeled(path: &Path) -> Kept {
    let snapshot = SnapshotFile::read(File::open(path).unwrap(), &Secret::REPLAY).unwrap();
    let mut list = SnapshotList::new(&snapshot.header, &Secret::REPLAY).unwrap();
    list.apply(snapshot).unwrap();
    list.list(|list| Kept { header: list.header, rows: list.rows().collect() })
}

/// An agent has nothing to complain about.
struct Contented;

impl AgentObserver for Contented {
    fn report(&mut self, event: AgentEvent) {
        if let AgentEvent::Refused(error) | AgentEvent::Warning(error) = event {
            panic!("{error}");
        }
    }
}

/// Has an agent list these snapshots, and holds its files against the router's.
fn assert_collected(snapshots: &[&PathBuf], router: &Path, place: &Path) {
    let (incoming, lists) = (place.join("incoming"), place.join("agent"));
    fs::create_dir(&incoming).unwrap();
    for snapshot in snapshots {
        fs::copy(snapshot, incoming.join(name(snapshot))).unwrap();
    }
    let (secret, format, keep) = (Secret::REPLAY, Format::default(), Keep::default());
    let mut agent = Agent::new(&AgentConfig {
        snapshots: incoming,
        lists: lists.clone(),
        secret,
        format,
        keep,
        part: None,
        base: None,
    })
    .unwrap();
    agent.once(&mut Contented).unwrap();
    let AgentCounts { lists: list_count, .. } = agent.counts();
    assert_eq!(list_count, snapshots.len() as u64);
    let listed = files(&lists);
    let listed: Vec<_> = listed.iter().filter(|path| name(path).contains(".ndjson")).collect();
    assert_eq!(listed.len(), snapshots.len());
    for path in listed {
        assert!(fs::read(path).unwrap() == fs::read(router.join(name(path))).unwrap(), "{}", path.display());
    }
}

#[test]
fn what_is_listed_elsewhere_of_a_spike_is_what_the_router_lists() {
    for times in TIMES {
        let place = tempfile::tempdir().unwrap();
        let (router, snapshots) = (place.path().join("lists"), place.path().join("snapshots"));
        let lists = routed(spike(times * CONNECTIONS_MAX), &router, &snapshots);
        assert_complete_but_in_the_spike(lists.iter().map(|list| &list.header));
        let snapshots = files(&snapshots);
        assert_eq!(snapshots.len(), lists.len());
        for (path, list) in snapshots.iter().zip(&lists) {
            // A snapshot by itself does not say that it is the last of its run.
            let Kept { header, rows } = peeled(path);
            assert_eq!(Header { is_last: list.header.is_last, ..header }, list.header, "{times} times");
            assert!(rows == list.rows, "{times} times: {header:?}");
        }
        let all = place.path().join("all");
        fs::create_dir(&all).unwrap();
        assert_collected(&snapshots.iter().collect::<Vec<_>>(), &router, &all);
        // The snapshots of the spike are lost on the way.
        let calm = snapshots.iter().zip(&lists).filter(|(_, list)| is_of_calm(&list.header)).map(|(path, _)| path);
        assert_collected(&calm.collect::<Vec<_>>(), &router, place.path());
    }
}
