//! What an archive takes back, what it keeps, and what it refuses.

use super::*;
use crate::archive::writer::{OpenList, Origin};
use crate::archive::{ArchiveConfig, Endpoint, Query, SEGMENT_SIZE_MIN, Writer, find};
use crate::flow::{AnyKey, VlanTags};
use crate::record::Ending;
use std::net::{IpAddr, SocketAddr};

const SERVER: [u8; 4] = [192, 0, 2, 1];

fn run(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn entry(index: u32, fate: Fate) -> Entry {
    let client = SocketAddr::from(([10, (index >> 16) as u8, (index >> 8) as u8, index as u8], 40_000));
    let key = AnyKey::of_ends(client, (SERVER, 443).into(), VlanTags::NONE).unwrap();
    let end = 17_000_000_000 + i64::from(index);
    Entry { end, key, start: end - 7, clock_set: 0, fate, midstream: false, may_be_older: false }
}

fn closed(range: std::ops::Range<u32>) -> Vec<Entry> {
    range.map(|index| entry(index, Fate::Ended(Ending::Fin))).collect()
}

fn open(directory: &Path, origin: Option<(u64, Option<u32>)>) -> Result<Writer> {
    let config = ArchiveConfig { segment_size: SEGMENT_SIZE_MIN, ..ArchiveConfig::default() };
    let origin = origin.map(|(number, repeats_from)| Origin { run: run(number), repeats_from });
    Writer::open_for(directory, config, origin).map(|(writer, _)| writer)
}

fn all(directory: &Path) -> Vec<Entry> {
    let server = Endpoint { address: IpAddr::from(SERVER), port: None };
    let answer = find(directory, &Query { one: server, other: None }).unwrap();
    assert!(answer.damages.is_empty(), "{:?}", answer.damages);
    answer.entries
}

/// An archive in which run 7 wrote two segments, saved its state, and wrote four more and a log.
fn written() -> (tempfile::TempDir, u32) {
    let place = tempfile::tempdir().unwrap();
    let mut writer = open(place.path(), Some((7, Some(0)))).unwrap();
    let mut saved = 0;
    for round in 0..6 {
        if round == 2 {
            saved = writer.number();
        }
        writer.add(&closed(round * 10..round * 10 + 10)).unwrap();
        writer.seal().unwrap();
    }
    writer.add(&closed(60..65)).unwrap();
    writer.flush().unwrap();
    (place, saved)
}

#[test]
fn what_was_written_behind_the_save_point_is_taken_back() {
    let (place, saved) = written();
    assert_eq!((saved, all(place.path()).len()), (3, 65));
    let mut writer = open(place.path(), Some((7, Some(saved)))).unwrap();
    assert_eq!(all(place.path()), closed(0..20));
    assert_eq!(writer.number(), saved, "numbers continue where they were");
    writer.add(&closed(20..80)).unwrap();
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(all(place.path()), closed(0..80));
    // No state had been saved: all that the run wrote is taken back.
    drop(open(place.path(), Some((7, Some(0)))).unwrap());
    assert!(all(place.path()).is_empty());
}

#[test]
fn a_log_without_its_header_is_the_runs_own_behind_a_save_point_and_nobodys_before() {
    let (place, saved) = written();
    std::fs::write(place.path().join("segment-0000000007.log"), "").unwrap();
    drop(open(place.path(), Some((7, Some(saved)))).unwrap());
    assert_eq!(all(place.path()), closed(0..20));
    // Nothing is in one that has no room for a header.
    let (place, _) = written();
    for number in [6, 8, 9] {
        std::fs::write(place.path().join(format!("segment-000000000{number}.log")), "x").unwrap();
    }
    let mut writer = open(place.path(), Some((7, Some(0)))).unwrap();
    assert_eq!(writer.number(), 1, "all is taken back");
    writer.add(&closed(0..5)).unwrap();
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(all(place.path()), closed(0..5));
    let (place, _) = written();
    std::fs::write(place.path().join("segment-0000000008.log"), [7; 100]).unwrap();
    assert!(open(place.path(), Some((7, Some(0)))).is_err(), "it may be of another run");
}

#[test]
fn other_runs_lose_nothing() {
    let (place, saved) = written();
    let mut other = open(place.path(), None).unwrap();
    other.add(&closed(100..110)).unwrap();
    other.finish().unwrap();
    drop(other);
    let before = all(place.path());
    let error = open(place.path(), Some((7, Some(saved)))).err().unwrap().to_string();
    assert!(error.contains("another run has written to this archive"), "{error}");
    assert_eq!(all(place.path()), before);
    // A run that has written nothing behind its save point has nothing to take back.
    let mut eighth = open(place.path(), Some((8, Some(0)))).unwrap();
    let saved = eighth.number();
    drop(eighth.finish());
    drop(eighth);
    let mut other = open(place.path(), None).unwrap();
    other.add(&closed(200..210)).unwrap();
    other.finish().unwrap();
    drop(other);
    drop(open(place.path(), Some((8, Some(saved)))).unwrap());
    assert_eq!(all(place.path()).len(), before.len() + 10);
}

#[test]
fn an_archive_that_is_not_the_runs_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let error = open(place.path(), Some((7, Some(3)))).err().unwrap().to_string();
    assert!(error.contains("fewer segments than when the state was saved"), "{error}");
}

#[test]
fn an_index_over_what_is_taken_back_goes_with_it() {
    let place = tempfile::tempdir().unwrap();
    let mut writer = open(place.path(), Some((7, Some(0)))).unwrap();
    for round in 0..40 {
        writer.add(&closed(round * 10..round * 10 + 10)).unwrap();
        writer.seal().unwrap();
    }
    drop(writer);
    assert_eq!(crate::archive::index_missing(place.path()).unwrap(), 1);
    drop(open(place.path(), Some((7, Some(33)))).unwrap());
    assert_eq!(Inventory::of(place.path()).unwrap().indexes.len(), 1);
    drop(open(place.path(), Some((7, Some(32)))).unwrap());
    assert!(Inventory::of(place.path()).unwrap().indexes.is_empty());
    assert_eq!(all(place.path()), closed(0..310));
}

#[test]
fn the_open_connections_of_a_replay_are_its_own_to_replace_and_of_others_are_carried_over() {
    let list = |writer: &mut Writer, range: std::ops::Range<u32>| {
        let mut list: OpenList = writer.begin_open_list().unwrap();
        list.add(&range.map(|index| entry(index, Fate::Open)).collect::<Vec<_>>()).unwrap();
        writer.finish_open_list(list).unwrap();
    };
    let place = tempfile::tempdir().unwrap();
    let mut writer = open(place.path(), Some((7, Some(0)))).unwrap();
    list(&mut writer, 0..5);
    drop(writer);
    // The same run begins again: nothing is carried over, and the list stays until there is a newer one.
    let mut writer = open(place.path(), Some((7, Some(0)))).unwrap();
    assert_eq!(all(place.path()).len(), 5);
    list(&mut writer, 0..3);
    drop(writer);
    assert_eq!(all(place.path()).len(), 3);
    // Another run: they are carried over, and are not taken back with what that run writes.
    drop(open(place.path(), Some((8, Some(0)))).unwrap());
    drop(open(place.path(), Some((8, Some(0)))).unwrap());
    assert_eq!(all(place.path()).len(), 3);
    // Live they are carried over in any case: those that are not in the saved state are known from nowhere else.
    let mut writer = open(place.path(), Some((9, None))).unwrap();
    list(&mut writer, 10..14);
    drop(writer);
    drop(open(place.path(), Some((9, None))).unwrap());
    assert!(!Inventory::of(place.path()).unwrap().has_open_list);
    assert_eq!(all(place.path()).len(), 7);
}

#[test]
fn what_is_recorded_is_met_once() {
    let (place, saved) = written();
    drop(open(place.path(), Some((7, None))).unwrap());
    let point = SavePoint { segment: saved, ..SavePoint::default() };
    let mut recorded = Recorded::of(place.path(), &point).unwrap();
    assert_eq!(recorded.surplus_count(), 0);
    let known = entry(25, Fate::Ended(Ending::Timeout));
    assert!(recorded.meets(&known), "however it ended before");
    assert!(!recorded.meets(&known), "the next of these ends is another connection");
    assert!(!recorded.meets(&Entry { start: known.start + 1, ..known }));
    assert!(!recorded.meets(&entry(5, Fate::Ended(Ending::Fin))), "it ended before the save point");
}

#[test]
fn what_was_recorded_behind_an_earlier_state_is_still_known_behind_the_next() {
    let (place, saved) = written();
    let first = SavePoint { segment: saved, ..SavePoint::default() };
    let mut recorded = Recorded::of(place.path(), &first).unwrap();
    assert!(recorded.meets(&entry(25, Fate::Ended(Ending::Timeout))));
    // The next state is saved when all of these segments are before it.
    let second = SavePoint::decode(&SavePoint::encode(90, &Ages::default(), Some(&recorded))).unwrap();
    let mut recorded = Recorded::of(place.path(), &second).unwrap();
    assert!(!recorded.meets(&entry(25, Fate::Ended(Ending::Timeout))), "it has ended once more");
    assert!(recorded.meets(&entry(26, Fate::Ended(Ending::Timeout))));
}

#[test]
fn a_save_point_comes_back() {
    let point = SavePoint::decode(&SavePoint::encode(9, &Ages::default(), None)).unwrap();
    assert_eq!(point.segment, 9);
    assert!(SavePoint::decode(&[]).is_err());
}

#[test]
fn what_was_taken_away_behind_the_save_point_is_written_again() {
    let (place, saved) = written();
    for name in [FileName::Segment(5), FileName::Segment(6), FileName::Log(7)] {
        std::fs::remove_file(name.path_in(place.path())).unwrap();
    }
    let mut writer = open(place.path(), Some((7, Some(saved)))).unwrap();
    assert_eq!(writer.number(), saved);
    writer.add(&closed(20..65)).unwrap();
    writer.finish().unwrap();
    assert_eq!(all(place.path()), closed(0..65));
}

#[test]
fn a_run_whose_older_segments_have_expired_is_set_back_again_and_again() {
    let (place, saved) = written();
    for number in 1..saved {
        std::fs::remove_file(FileName::Segment(number).path_in(place.path())).unwrap();
    }
    for _ in 0..3 {
        rewind(place.path(), run(7), saved).unwrap();
        let query = Query { one: Endpoint { address: IpAddr::from(SERVER), port: None }, other: None };
        assert!(find(place.path(), &query).unwrap().damages.is_empty());
    }
    let mut writer = open(place.path(), Some((7, Some(saved)))).unwrap();
    assert_eq!(writer.number(), saved);
    writer.finish().unwrap();
    assert!(all(place.path()).is_empty());
}
