//! Directories with files of every kind, and what is left of them.

use super::*;
use crate::export::file_name::Extension;
use std::path::Path;
use tempfile::TempDir;

const HOUR_S: i64 = 3_600;

fn full(end_s: i64) -> FileName {
    FileName { end_s, number: 1, kind: Kind::Full, extension: Extension::default() }
}

fn changes(end_s: i64) -> FileName {
    FileName { kind: Kind::Changes, ..full(end_s) }
}

fn sources(end_s: i64) -> FileName {
    FileName { kind: Kind::Sources, ..full(end_s) }
}

fn age(age_s: i64) -> Keep {
    Keep { age: Some(Duration::from_secs(age_s as u64)), size: None }
}

fn size(size: u64) -> Keep {
    Keep { age: None, size: Some(size) }
}

fn put(directory: &Path, name: FileName, size: usize) {
    fs::write(directory.join(name.to_string()), vec![b'x'; size]).unwrap();
}

/// A directory with these files of 100 bytes.
fn with(names: impl IntoIterator<Item = FileName>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    names.into_iter().for_each(|name| put(directory.path(), name, 100));
    directory
}

fn left(directory: &TempDir) -> Vec<FileName> {
    let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<FileName> = names.filter_map(|name| FileName::parse(name.to_str().unwrap())).collect();
    names.sort();
    names
}

/// Writes a file of 100 bytes and notes it.
fn write(retention: &mut Retention, directory: &TempDir, name: FileName) {
    put(directory.path(), name, 100);
    assert!(retention.written(name, Replaced { size: 100, before: 0 }).is_none());
}

#[test]
fn by_age_goes_what_ended_longer_ago_than_that() {
    let directory = with((0..10).map(|hour| full(hour * HOUR_S)));
    let mut retention = Retention::new(directory.path(), age(3 * HOUR_S));
    assert!(retention.opened(i64::MAX).is_none());
    assert_eq!(left(&directory), (6..10).map(|hour| full(hour * HOUR_S)).collect::<Vec<_>>());
    write(&mut retention, &directory, full(10 * HOUR_S));
    assert_eq!(left(&directory), (7..=10).map(|hour| full(hour * HOUR_S)).collect::<Vec<_>>());
    write(&mut retention, &directory, full(12 * HOUR_S));
    assert_eq!(left(&directory), [9, 10, 12].map(|hour| full(hour * HOUR_S)));
}

#[test]
fn by_size_the_oldest_go_and_never_the_newest() {
    let directory = with((0..10).map(full));
    let mut retention = Retention::new(directory.path(), size(350));
    write(&mut retention, &directory, full(10));
    assert_eq!(left(&directory), [8, 9, 10].map(full));
    put(directory.path(), full(11), 1_000);
    assert!(retention.written(full(11), Replaced { size: 1_000, before: 0 }).is_none());
    assert_eq!(left(&directory), [full(11)]);
    // A list that replaces another counts once.
    assert!(retention.written(full(11), Replaced { size: 100, before: 1_000 }).is_none());
    write(&mut retention, &directory, full(12));
    write(&mut retention, &directory, full(13));
    assert_eq!(left(&directory), [11, 12, 13].map(full));
}

#[test]
fn a_clock_that_leaps_ahead_costs_a_part_of_what_there_is() {
    let directory = with((0..320).map(full));
    let mut retention = Retention::new(directory.path(), age(1_000));
    for second in 320..330 {
        write(&mut retention, &directory, full(second));
    }
    assert_eq!(left(&directory).len(), 330);
    let leapt = full(1_000_000);
    write(&mut retention, &directory, leapt);
    assert_eq!(left(&directory), (10..330).map(full).chain([leapt]).collect::<Vec<_>>());
    // It is right again: nothing is old by what ends in the future, now or when the directory is opened the next time.
    write(&mut retention, &directory, full(331));
    let mut retention = Retention::new(directory.path(), age(1_000));
    assert!(retention.opened(400).is_none());
    assert_eq!(left(&directory), (10..330).chain([331]).map(full).chain([leapt]).collect::<Vec<_>>());
    assert!(retention.opened(i64::MAX).is_none());
    assert_eq!(left(&directory), [leapt], "it has caught up with the clock");
}

#[test]
fn what_is_too_much_goes_before_anything_is_written() {
    let directory = with((0..10).map(full));
    assert!(Retention::new(directory.path(), size(350)).opened(i64::MAX).is_none());
    assert_eq!(left(&directory), [7, 8, 9].map(full));
    assert!(Retention::new(directory.path(), Keep { size: Some(1), ..age(1) }).opened(8).is_none());
    assert_eq!(left(&directory), [8, 9].map(full), "the newest by the clock and the newest by its name stay");
    let changed = with([full(0), changes(1), full(10), changes(11), sources(11)]);
    assert!(Retention::new(changed.path(), size(1)).opened(i64::MAX).is_none());
    assert_eq!(left(&changed), [full(10), changes(11), sources(11)]);
    assert!(Retention::new(&directory.path().join("none"), size(1)).opened(0).is_some());
}

#[test]
fn both_limits_hold() {
    let directory = with((0..10).map(full));
    let mut retention = Retention::new(directory.path(), Keep { size: Some(1_000), ..age(3) });
    assert!(retention.opened(i64::MAX).is_none());
    write(&mut retention, &directory, full(10));
    assert_eq!(left(&directory), [7, 8, 9, 10].map(full));
    retention.keep.size = Some(200);
    write(&mut retention, &directory, full(11));
    assert_eq!(left(&directory), [10, 11].map(full));
}

#[test]
fn changes_go_with_the_list_that_they_build_on() {
    let group = |start: i64| [full(start), changes(start + 1), changes(start + 2)];
    let directory = with([0, 10, 20].into_iter().flat_map(group));
    let mut retention = Retention::new(directory.path(), age(11));
    // The first group's last list is just old enough to go, and the second's first is older and stays.
    write(&mut retention, &directory, changes(23));
    assert_eq!(left(&directory), [&group(10)[..], &group(20), &[changes(23)]].concat());
    retention.keep = size(1);
    write(&mut retention, &directory, changes(24));
    assert_eq!(left(&directory), [&group(20)[..], &[changes(23), changes(24)]].concat());
    write(&mut retention, &directory, full(30));
    assert_eq!(left(&directory), [full(30)]);
}

#[test]
fn sources_go_with_the_list_beside_which_they_stand() {
    let group = |start: i64| {
        [full(start), sources(start), changes(start + 1), sources(start + 1), changes(start + 2), sources(start + 2)]
    };
    let directory = with([0, 10].into_iter().flat_map(group));
    let mut retention = Retention::new(directory.path(), age(11));
    write(&mut retention, &directory, changes(13));
    write(&mut retention, &directory, sources(13));
    assert_eq!(left(&directory), [&group(0)[..], &group(10), &[changes(13), sources(13)]].concat());
    // The first group's last list is too old now. The second's first is as well, and later changes build on it.
    write(&mut retention, &directory, changes(23));
    write(&mut retention, &directory, sources(23));
    let second = [&group(10)[..], &[changes(13), sources(13), changes(23), sources(23)]].concat();
    assert_eq!(left(&directory), second);
    retention.keep = size(1);
    write(&mut retention, &directory, full(30));
    write(&mut retention, &directory, sources(30));
    assert_eq!(left(&directory), [full(30), sources(30)], "no sources without their list");
}

#[test]
fn what_is_not_ours_is_neither_removed_nor_counted() {
    let directory = with((0..4).map(full));
    let others = ["flows-19700101T000000Z.ndjson.bak", "notes.txt", "flows-.ndjson", ".flows-abcdef.tmp"];
    for name in others {
        fs::write(directory.path().join(name), [0; 10_000]).unwrap();
    }
    fs::create_dir(directory.path().join(full(100).to_string())).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("notes.txt", directory.path().join(full(101).to_string())).unwrap();
    let mut retention = Retention::new(directory.path(), size(200));
    write(&mut retention, &directory, full(4));
    let mut expected = vec![full(3), full(4), full(100)];
    expected.extend(cfg!(unix).then(|| full(101)));
    assert_eq!(left(&directory), expected);
    assert!(others.iter().all(|name| directory.path().join(name).exists()));
}

#[test]
fn what_somebody_else_removed_is_no_failure_and_found_out() {
    let directory = with((0..10).map(full));
    let mut retention = Retention::new(directory.path(), size(1_050));
    write(&mut retention, &directory, full(10));
    assert_eq!(left(&directory).len(), 10);
    (1..6).for_each(|end_s| fs::remove_file(directory.path().join(full(end_s).to_string())).unwrap());
    write(&mut retention, &directory, full(11));
    assert_eq!(left(&directory), [6, 7, 8, 9, 10, 11].map(full), "the first that it meant to remove was gone");
    retention.lists_since_look = KEPT_FILES_CHECK_LISTS;
    write(&mut retention, &directory, full(12));
    assert_eq!((retention.total_size, left(&directory).len()), (700, 7));
}

#[test]
fn a_clock_that_stepped_back_spares_the_list_that_was_just_written() {
    let directory = with((100..104).map(full));
    let mut retention = Retention::new(directory.path(), size(300));
    let stepped = FileName { number: 2, ..full(50) };
    write(&mut retention, &directory, stepped);
    assert_eq!(left(&directory), [stepped, full(102), full(103)]);
}

#[test]
fn of_a_directory_with_more_files_than_are_remembered_all_that_are_due_go() {
    let count = KEPT_FILES_MAX as i64 + 3_000;
    let directory = tempfile::tempdir().unwrap();
    (0..count).for_each(|end_s| put(directory.path(), full(end_s), 1));
    let mut retention = Retention::new(directory.path(), age(1_000));
    put(directory.path(), full(count), 1);
    assert!(retention.opened(i64::MAX).is_none());
    assert!(retention.oldest.len() <= KEPT_FILES_MAX);
    assert_eq!(left(&directory), (count - 1_000..=count).map(full).collect::<Vec<_>>());
}

#[test]
fn what_can_not_be_removed_is_reported_and_the_rest_is_removed() {
    let directory = with((0..4).map(full));
    let mut retention = Retention::new(directory.path(), size(100));
    // Remembered as a file, and then a directory that is not empty, which cannot be removed as a file.
    assert!(retention.look(i64::MAX).1.is_none());
    let stuck = directory.path().join(full(0).to_string());
    fs::remove_file(&stuck).unwrap();
    fs::create_dir_all(stuck.join("below")).unwrap();
    retention.lists_since_look = 0;
    put(directory.path(), full(4), 100);
    let warning = retention.written(full(4), Replaced { size: 100, before: 0 }).unwrap().to_string();
    assert!(warning.starts_with(&format!("{}: cannot remove", stuck.display())), "{warning}");
    assert_eq!(left(&directory), [full(0), full(4)]);
}

#[test]
fn repeated_failures_are_reported_seldom() {
    let mut failures = Seldom::default();
    let mut warned = Vec::new();
    for time in 1..=9 {
        let failure = Failure { path: "flows-old.ndjson".into(), cause: io::ErrorKind::PermissionDenied.into() };
        if let Some(warning) = failures.warning(failure) {
            let warning = warning.to_string();
            assert!(warning.starts_with("flows-old.ndjson: cannot remove what is not to be kept"), "{warning}");
            assert!(warning.contains(&format!("(failures so far: {time}): permission denied")), "{warning}");
            warned.push(time);
        }
    }
    assert_eq!(warned, [1, 2, 4, 8]);
}

#[test]
#[cfg(target_os = "linux")]
fn more_files_than_are_remembered_that_can_not_be_removed_do_not_hold_up_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let count = KEPT_FILES_MAX as i64 + 10;
    (0..count).for_each(|end_s| put(directory.path(), full(end_s), 1));
    // A path that is just short enough to be read: with the name of a file it is too long for the system.
    let mut long = directory.path().as_os_str().to_owned();
    while long.len() < libc::PATH_MAX as usize - 10 {
        long.push("/.");
    }
    let warning = Retention::new(Path::new(&long), age(1)).opened(i64::MAX).unwrap().to_string();
    assert!(warning.contains("cannot remove what is not to be kept"), "{warning}");
    assert_eq!(left(&directory).len() as i64, count);
}
