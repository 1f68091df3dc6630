//! What a writer leaves behind, however it ends.

use super::*;
use crate::archive::names::NEWEST;
use crate::archive::{Endpoint, Query, find};
use crate::flow::{AnyKey, VlanTags};
use crate::record::Ending;
use std::net::{IpAddr, SocketAddr};

const SERVER: [u8; 4] = [192, 0, 2, 1];

fn entry(index: u32, fate: Fate) -> Entry {
    let client = SocketAddr::from(([10, (index >> 16) as u8, (index >> 8) as u8, index as u8], 40_000));
    let key = AnyKey::of_ends(client, (SERVER, 443).into(), VlanTags::NONE).unwrap();
    let end = 17_000_000_000 + i64::from(index);
    Entry { end, key, start: end - 7, clock_set: 0, fate, midstream: false, may_be_older: false }
}

fn closed(range: std::ops::Range<u32>) -> Vec<Entry> {
    range.map(|index| entry(index, Fate::Ended(Ending::Fin))).collect()
}

fn config() -> ArchiveConfig {
    ArchiveConfig { segment_size: SEGMENT_SIZE_MIN, segment_age: Duration::from_secs(3_600), keep: Keep::default() }
}

fn all(directory: &Path) -> Vec<Entry> {
    let server = Endpoint { address: IpAddr::from(SERVER), port: None };
    let answer = find(directory, &Query { one: server, other: None }).unwrap();
    assert!(answer.damages.is_empty(), "{:?}", answer.damages);
    answer.entries
}

fn segments(directory: &Path) -> Vec<u32> {
    Inventory::of(directory).unwrap().segments.into_keys().collect()
}

#[test]
fn segments_are_cut_by_size_and_age() {
    let place = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    writer.add(&closed(0..5_000)).unwrap();
    assert!(writer.written().segments >= 2, "a segment has {} entries at most", config().segment_entries_max());
    writer.seal().unwrap();
    let before = writer.written().segments;
    // A quarter of an hour apart: the fifth ends an hour after the first.
    for quarter in 0..6 {
        writer.add(&closed(1_000_000 + quarter * 9_000..1_000_001 + quarter * 9_000)).unwrap();
        writer.flush().unwrap();
        assert_eq!(writer.written().segments - before, u64::from(quarter >= 4));
    }
    drop(writer);
    assert_eq!(all(place.path()).len(), 5_006, "what is in the log is found as well");
}

#[test]
fn a_cut_log_loses_its_tail_and_says_so() {
    let place = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    let mut ends = vec![(24, 0)];
    for round in 0..4 {
        writer.add(&closed(round * 10..round * 10 + 10)).unwrap();
        writer.flush().unwrap();
        ends.push((
            fs::metadata(place.path().join("segment-0000000001.log")).unwrap().len(),
            (round + 1) as usize * 10,
        ));
    }
    drop(writer);
    let whole = fs::read(place.path().join("segment-0000000001.log")).unwrap();
    for cut in (0..=whole.len()).step_by(7).chain([whole.len()]) {
        let crashed = tempfile::tempdir().unwrap();
        fs::write(crashed.path().join("segment-0000000001.log"), &whole[..cut]).unwrap();
        fs::copy(place.path().join(NEWEST), crashed.path().join(NEWEST)).unwrap();
        let kept = ends.iter().filter(|(end, _)| *end <= cut as u64).map(|(_, count)| *count).max().unwrap_or(0);
        assert_eq!(all(crashed.path()).len(), kept, "the log is read before anybody mends it");
        let (mut writer, recovery) = Writer::open(crashed.path(), config()).unwrap();
        assert_eq!(recovery.logs.len(), 1);
        let log = &recovery.logs[0];
        let whole_size = ends.iter().map(|(end, _)| *end).filter(|end| *end <= cut as u64).max().unwrap_or(0);
        assert_eq!((log.entry_count, log.lost_size), (kept as u64, cut as u64 - whole_size), "cut at {cut}");
        writer.add(&closed(500..510)).unwrap();
        writer.finish().unwrap();
        drop(writer);
        assert_eq!(all(crashed.path()).len(), kept + 10);
        assert!(Writer::open(crashed.path(), config()).unwrap().1.logs.is_empty());
    }
}

#[test]
fn what_a_killed_process_left_is_mended() {
    let place = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    writer.add(&closed(0..10)).unwrap();
    writer.flush().unwrap();
    let log = fs::read(place.path().join("segment-0000000001.log")).unwrap();
    writer.finish().unwrap();
    drop(writer);
    // Killed after the segment was renamed and before its log was removed, while another file was being written.
    fs::write(place.path().join("segment-0000000001.log"), log).unwrap();
    fs::write(place.path().join(".archive-abcdef.tmp"), "x").unwrap();
    let others = [".tmpAbc123", ".archive-abcdefg.tmp", ".archive-abc_ef.tmp", "archive-abcdef.tmp"];
    let others = others.map(|name| place.path().join(name));
    others.iter().for_each(|path| fs::write(path, "somebody else's").unwrap());
    assert_eq!(all(place.path()), closed(0..10));
    let (_writer, recovery) = Writer::open(place.path(), config()).unwrap();
    assert!(recovery.logs.is_empty());
    assert_eq!(all(place.path()), closed(0..10));
    assert!(others.iter().all(|path| path.exists()), "what is called otherwise is not the archive's");
    let count = fs::read_dir(place.path()).unwrap().count() - others.len();
    assert_eq!(count, 4, "the segment, the log of the next, what names the newest, and the lock");
}

#[test]
fn a_process_that_was_killed_between_two_segments_is_reported_too() {
    let place = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    writer.add(&closed(0..10)).unwrap();
    writer.seal().unwrap();
    drop(writer);
    let (mut writer, recovery) = Writer::open(place.path(), config()).unwrap();
    let log = &recovery.logs[0];
    assert_eq!((recovery.logs.len(), log.entry_count, log.lost_size), (1, 0, 0));
    writer.add(&closed(10..20)).unwrap();
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(all(place.path()), closed(0..20), "and its empty log leaves no gap");
    assert!(Writer::open(place.path(), config()).unwrap().1.logs.is_empty());
}

#[test]
fn a_clock_that_was_ahead_does_not_keep_old_segments_for_ever() {
    let place = tempfile::tempdir().unwrap();
    let keep = Keep { age: Some(Duration::from_secs(1_000)), size: None };
    let (mut writer, _) = Writer::open(place.path(), ArchiveConfig { keep, ..config() }).unwrap();
    // The second is from far ahead, and makes the first old; from the third on the clock is right again.
    for at in [0, 900_000_000, 10, 9_000, 20_000, 30_000] {
        writer.add(&closed(at..at + 1)).unwrap();
        writer.seal().unwrap();
    }
    assert_eq!(segments(place.path()), [5, 6], "with the first that is old goes what is in front of it");
}

#[test]
fn a_clock_that_leaps_ahead_costs_a_part_of_the_archive() {
    let place = tempfile::tempdir().unwrap();
    let keep = Keep { age: Some(Duration::from_secs(1_000)), size: None };
    let (mut writer, _) = Writer::open(place.path(), ArchiveConfig { keep, ..config() }).unwrap();
    for at in (0..10).chain([900_000_000]) {
        writer.add(&closed(at..at + 1)).unwrap();
        writer.seal().unwrap();
    }
    assert_eq!(segments(place.path()), (3..=11).collect::<Vec<_>>());
}

#[test]
fn what_is_too_much_is_removed_before_anything_is_written() {
    let place = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    for at in [0, 10, 20_000, 20_010] {
        writer.add(&closed(at..at + 10)).unwrap();
        writer.seal().unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    let keep = Keep { age: Some(Duration::from_secs(1_000)), size: None };
    let (writer, _) = Writer::open(place.path(), ArchiveConfig { keep, ..config() }).unwrap();
    assert_eq!((segments(place.path()), writer.written().expired), (vec![3, 4], 2));
    drop(writer);
    let keep = Keep { age: None, size: Some(1) };
    let (writer, _) = Writer::open(place.path(), ArchiveConfig { keep, ..config() }).unwrap();
    assert_eq!((segments(place.path()), writer.written().expired), (vec![4], 1));
}

#[test]
fn the_size_that_is_kept_is_that_of_all_files() {
    let place = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    for at in 0..40 {
        writer.add(&closed(at * 10..at * 10 + 10)).unwrap();
        writer.seal().unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(crate::archive::index_missing(place.path()).unwrap(), 1);
    fs::write(place.path().join(OPEN_LIST), vec![0; 20_000]).unwrap();
    let inventory = Inventory::of(place.path()).unwrap();
    let segments_size: u64 = inventory.segments.values().sum();
    let newest_size = fs::metadata(place.path().join(NEWEST)).unwrap().len();
    let all_size = segments_size + inventory.indexes.values().sum::<u64>() + 20_000 + newest_size;
    for (size, expired) in [(all_size, 0), (all_size - 1, 1)] {
        let keep = Keep { age: None, size: Some(size) };
        let mut retention = Retention::new(place.path(), keep, &Inventory::of(place.path()).unwrap());
        assert_eq!(retention.opened(i64::MAX, &inventory.logs).unwrap(), expired);
    }
}

#[test]
fn old_segments_expire_and_the_newest_stays() {
    let place = tempfile::tempdir().unwrap();
    let keep = Keep { age: Some(Duration::from_secs(1_000)), size: None };
    let (mut writer, _) = Writer::open(place.path(), ArchiveConfig { keep, ..config() }).unwrap();
    for at in [0, 5_000, 10_000, 15_000] {
        writer.add(&closed(at..at + 10)).unwrap();
        writer.seal().unwrap();
    }
    // In tenths of a second: the newest ended at 15,009, so what ended before 5,009 is removed.
    assert_eq!((segments(place.path()), writer.written().expired), (vec![2, 3, 4], 1));
    drop(writer);
    assert_eq!(all(place.path()).len(), 30, "what has expired is no gap");
    let keep = Keep { age: None, size: Some(1) };
    let (mut writer, _) = Writer::open(place.path(), ArchiveConfig { keep, ..config() }).unwrap();
    writer.add(&closed(20_000..20_010)).unwrap();
    writer.seal().unwrap();
    assert_eq!(segments(place.path()), [5]);
}

#[test]
fn indexes_go_with_the_last_of_their_segments() {
    let place = tempfile::tempdir().unwrap();
    let fill = |writer: &mut Writer, count: u32, at: u32| {
        for segment in 0..count {
            writer.add(&closed(at + segment * 10..at + segment * 10 + 10)).unwrap();
            writer.seal().unwrap();
        }
    };
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    fill(&mut writer, 64, 0);
    drop(writer);
    assert_eq!(crate::archive::index_missing(place.path()).unwrap(), 2);
    assert_eq!(crate::archive::index_missing(place.path()).unwrap(), 0);
    let size = fs::metadata(place.path().join("segment-0000000001.fpa")).unwrap().len();
    let keep = Keep { age: None, size: Some(size * 30 + size / 2) };
    let (mut writer, _) = Writer::open(place.path(), ArchiveConfig { keep, ..config() }).unwrap();
    fill(&mut writer, 1, 10_000);
    let inventory = Inventory::of(place.path()).unwrap();
    assert_eq!(inventory.indexes.into_keys().collect::<Vec<_>>(), [(33, 64)]);
    let gone = find(
        place.path(),
        &Query { one: Endpoint { address: entry(5, Fate::Open).client().ip(), port: Some(40_000) }, other: None },
    );
    assert!(gone.unwrap().entries.is_empty());
    let there = entry(635, Fate::Open);
    let end = |end: SocketAddr| Endpoint { address: end.ip(), port: Some(end.port()) };
    let answer = find(place.path(), &Query { one: end(there.client()), other: Some(end(there.server())) }).unwrap();
    assert_eq!((answer.entries.len(), answer.explanation.indexes_asked, answer.damages.len()), (1, 1, 0));
}

#[cfg(unix)]
#[test]
fn whoever_may_read_a_segment_may_read_all_of_the_archive() {
    let place = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    for segment in 0..32 {
        writer.add(&closed(segment * 10..segment * 10 + 10)).unwrap();
        writer.seal().unwrap();
    }
    let mut list = writer.begin_open_list().unwrap();
    list.add(&[entry(0, Fate::Open)]).unwrap();
    writer.finish_open_list(list).unwrap();
    assert_eq!(crate::archive::index_missing(place.path()).unwrap(), 1);
    let mut modes = std::collections::BTreeMap::new();
    for entry in fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap()) {
        let mode = std::os::unix::fs::PermissionsExt::mode(&entry.metadata().unwrap().permissions()) & 0o777;
        modes.insert(entry.file_name().into_string().unwrap(), mode);
    }
    assert_eq!(modes.remove(crate::state::LOCK_FILE), Some(0o600));
    assert!(modes.contains_key("index-0000000001-0000000032.bfield") && modes.contains_key(OPEN_LIST), "{modes:?}");
    // The umask may take away of all the same.
    let mode = modes["segment-0000000001.fpa"];
    assert_eq!(mode & 0o600, 0o600);
    assert!(modes.values().all(|other| *other == mode), "{modes:?}");
}

#[test]
fn open_connections_are_carried_over_and_listed_once() {
    let place = tempfile::tempdir().unwrap();
    let open: Vec<Entry> = (0..20).map(|index| entry(index, Fate::Open)).collect();
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    let mut list = writer.begin_open_list().unwrap();
    list.add(&open).unwrap();
    writer.finish_open_list(list).unwrap();
    drop(writer);
    assert_eq!(all(place.path()), open);
    let (mut writer, recovery) = Writer::open(place.path(), config()).unwrap();
    assert_eq!((recovery.carried_over, recovery.logs.len()), (20, 1));
    assert_eq!(all(place.path()), open, "they are in a segment now");
    // One has ended since, and another is still open.
    let ended = Entry { end: open[3].end + 50, fate: Fate::Ended(Ending::Rst), ..open[3] };
    writer.add(&[ended]).unwrap();
    writer.flush().unwrap();
    let mut list = writer.begin_open_list().unwrap();
    let later = Entry { end: open[4].end + 90, ..open[4] };
    list.add(&[later]).unwrap();
    writer.finish_open_list(list).unwrap();
    let mut expected = open.clone();
    (expected[3], expected[4]) = (ended, later);
    assert_eq!(all(place.path()), expected);
}

#[test]
fn an_archive_belongs_to_one_at_a_time() {
    let place = tempfile::tempdir().unwrap();
    let first = Writer::open(place.path(), config()).unwrap();
    let error = Writer::open(place.path(), config()).err().unwrap().to_string();
    assert!(error.contains("another process writes here"), "{error}");
    drop(first);
    assert!(Writer::open(place.path(), config()).is_ok());
    let file = place.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(Writer::open(&file, config()).err().unwrap().to_string().contains("it is not a directory"));
    for (config, name) in [
        (ArchiveConfig { segment_size: 1, ..config() }, "--segment-size"),
        (ArchiveConfig { segment_age: Duration::ZERO, ..config() }, "--segment-age"),
    ] {
        assert!(Writer::open(place.path(), config).err().unwrap().to_string().contains(name));
    }
}

/// What find says is missing or damaged.
fn damages(directory: &Path) -> Vec<String> {
    let query = Query { one: Endpoint { address: IpAddr::from(SERVER), port: None }, other: None };
    find(directory, &query).unwrap().damages.iter().map(ToString::to_string).collect()
}

/// Three segments and a log, and a list of what is open.
fn archive() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    for round in 0..3 {
        writer.add(&closed(round * 10..round * 10 + 10)).unwrap();
        writer.seal().unwrap();
    }
    writer.add(&closed(30..35)).unwrap();
    writer.flush().unwrap();
    let mut list = writer.begin_open_list().unwrap();
    list.add(&[entry(50, Fate::Open)]).unwrap();
    writer.finish_open_list(list).unwrap();
    place
}

#[test]
fn each_file_that_is_taken_away_is_missed_and_stays_missed() {
    let whole = archive();
    let names = fs::read_dir(whole.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.filter(|name| *name != crate::state::LOCK_FILE).collect();
    assert_eq!(names.len(), 6);
    for name in names {
        let name = name.to_str().unwrap();
        let place = archive();
        assert!(damages(place.path()).is_empty());
        fs::remove_file(place.path().join(name)).unwrap();
        // The oldest is taken to have expired.
        if name == "segment-0000000001.fpa" {
            assert!(damages(place.path()).is_empty());
            continue;
        }
        let missing = damages(place.path());
        let stem = name.split('.').next().unwrap();
        assert!(missing.len() == 1 && missing[0].contains(stem), "{name}: {missing:?}");
        let (mut writer, recovery) = Writer::open(place.path(), config()).unwrap();
        let is_newest = !name.ends_with(".fpa") || name == OPEN_LIST;
        assert_eq!(recovery.missing.len(), usize::from(is_newest), "{name}: {:?}", recovery.missing);
        writer.add(&closed(60..70)).unwrap();
        writer.finish().unwrap();
        drop(writer);
        // The file that names the newest is there again, and the list is one of the moment.
        assert_eq!(damages(place.path()).is_empty(), name == NEWEST, "{name}");
    }
}

#[test]
fn the_last_segment_of_an_archive_that_ended_properly_is_missed() {
    let place = archive();
    let (mut writer, _) = Writer::open(place.path(), config()).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let last = *segments(place.path()).last().unwrap();
    for number in (1..=last).rev() {
        assert!(number == last || !damages(place.path()).is_empty());
        fs::remove_file(FileName::Segment(number).path_in(place.path())).unwrap();
    }
    assert!(damages(place.path())[0].contains("the newest segment is missing"));
    // A run that adds nothing does not hide it.
    let (mut writer, recovery) = Writer::open(place.path(), config()).unwrap();
    assert_eq!(recovery.missing.len(), 1);
    writer.finish().unwrap();
    drop(writer);
    assert!(damages(place.path())[0].contains("the newest segment is missing"));
}

#[test]
fn an_archive_to_which_nothing_was_added_misses_nothing() {
    let place = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let (mut writer, recovery) = Writer::open(place.path(), config()).unwrap();
        assert!(recovery.missing.is_empty());
        assert!(damages(place.path()).is_empty());
        writer.finish().unwrap();
        assert!(damages(place.path()).is_empty());
    }
    drop(Writer::open(place.path(), config()).unwrap());
    assert!(Writer::open(place.path(), config()).unwrap().1.missing.is_empty());
}
