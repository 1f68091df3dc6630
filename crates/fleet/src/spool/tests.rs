//! Spools that are followed, interrupted, damaged, and cleared while the broker is away.

use super::*;
use crate::sample::{SECRET, fleet, name_of, snapshots};
use std::fs;
use tempfile::TempDir;

struct Site(TempDir);

impl Site {
    fn new() -> Self {
        let site = Site(tempfile::tempdir().unwrap());
        fs::create_dir(site.path("snapshots")).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, snapshot: &SnapshotFile) -> PathBuf {
        let path = self.path("snapshots").join(name_of(snapshot).to_string());
        snapshot.write(&mut File::create(&path).unwrap(), &SECRET).unwrap();
        path
    }

    fn spool(&self) -> Spool {
        let (directory, note) = (self.path("snapshots"), self.path("note"));
        Spool::new(SpoolConfig { directory, note, secret: SECRET, key: fleet().of_router("edge") }).unwrap()
    }
}

/// The next parcel of a spool in which all files can be used.
fn next(spool: &mut Spool) -> Option<Parcel> {
    spool.next(false, &mut |error| panic!("{error}")).unwrap()
}

#[test]
fn the_oldest_goes_first_and_each_once() {
    let (site, all) = (Site::new(), snapshots("edge", 7, 3));
    all.iter().rev().for_each(|snapshot| drop(site.put(snapshot)));
    let mut spool = site.spool();
    for (at, snapshot) in all.iter().enumerate() {
        let parcel = next(&mut spool).unwrap();
        assert_eq!((parcel.name, parcel.behind, parcel.frames.len()), (name_of(snapshot), 2 - at, PARTITION_COUNT));
        spool.done(parcel).unwrap();
    }
    assert!(next(&mut spool).is_none());
    let counts = spool.counts();
    assert_eq!((counts.sent, counts.whole, counts.removed), (3, PARTITION_COUNT as u64, 0));
    assert!(next(&mut site.spool()).is_none(), "the note says so");
}

#[test]
fn one_that_was_killed_sends_the_same_bytes_again() {
    let (site, all) = (Site::new(), snapshots("edge", 7, 3));
    all.iter().for_each(|snapshot| drop(site.put(snapshot)));
    let mut spool = site.spool();
    let first = next(&mut spool).unwrap();
    spool.done(first).unwrap();
    let second = next(&mut spool).unwrap();
    let again = next(&mut site.spool()).unwrap();
    assert_eq!((again.name, again.frames), (second.name, second.frames));
}

#[test]
fn a_frame_is_whole_at_the_start_of_a_run_and_often_enough() {
    let site = Site::new();
    let mut spool = site.spool();
    let mut whole = Vec::new();
    let all = [snapshots("edge", 7, 2), snapshots("edge", 8, u64::from(WHOLE_EVERY) + 2)].concat();
    for (at, snapshot) in all.iter().enumerate() {
        site.put(snapshot);
        let parcel = next(&mut spool).unwrap();
        whole.extend((parcel.since_whole == 0).then_some(at));
        spool.done(parcel).unwrap();
    }
    assert_eq!(whole, [0, 2, 2 + WHOLE_EVERY as usize]);
}

#[test]
fn what_was_removed_while_the_broker_was_away_is_counted() {
    let (site, all) = (Site::new(), snapshots("edge", 7, 6));
    let paths: Vec<PathBuf> = all.iter().map(|snapshot| site.put(snapshot)).collect();
    let mut spool = site.spool();
    let first = next(&mut spool).unwrap();
    spool.done(first).unwrap();
    paths[1..4].iter().for_each(|path| fs::remove_file(path).unwrap());
    let names: Vec<SnapshotName> = std::iter::from_fn(|| {
        let parcel = next(&mut spool)?;
        let name = parcel.name;
        spool.done(parcel).unwrap();
        Some(name)
    })
    .collect();
    assert_eq!(names, [name_of(&all[4]), name_of(&all[5])]);
    assert_eq!((spool.counts().removed, spool.counts().refused), (3, 0));
}

#[test]
fn what_cannot_be_sent_is_named_and_passed_over() {
    let (site, all) = (Site::new(), snapshots("edge", 7, 3));
    all.iter().for_each(|snapshot| drop(site.put(snapshot)));
    let nameless = &snapshots("", 9, 1)[0];
    site.put(nameless);
    fs::write(site.path("snapshots").join(name_of(&all[1]).to_string()), "damaged").unwrap();
    let mut spool = site.spool();
    let mut refused = Vec::new();
    let mut sent = 0;
    while let Some(parcel) = spool.next(true, &mut |error| refused.push(error.to_string())).unwrap() {
        spool.done(parcel).unwrap();
        sent += 1;
    }
    assert_eq!((sent, refused.len(), spool.counts().refused), (2, 2, 2));
    assert!(refused[0].contains("no snapshot of flowpeel") && refused[1].contains("--router"), "{refused:?}");
}
