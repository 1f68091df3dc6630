//! Snapshots that were damaged: what is left of them lists, whole while it can, and never wrong.

use super::snapshots::{Recorder, config, recorded};
use crate::support::command::{Ended, flowpeel, text};
use crate::support::files::names;
use flowpeel::list::{Header, Row, RowState, SnapshotList};
use flowpeel::signal::PARTITION_COUNT;
use flowpeel::snapshot::{Section, SnapshotFile};
use flowpeel_iblt::HASH_COUNT;
use flowpeel_iblt::hash::Secret;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

/// Where each section stands in a file, as docs/snapshots.md has it.
fn ranges(bytes: &[u8]) -> Vec<Range<usize>> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (directory, count) = (48 + u32_at(32), u32_at(36));
    let mut start = directory + 40 * count + 32;
    let range = |section: usize| {
        let size = u32_at(directory + 40 * section + 4);
        start += size;
        start - size..start
    };
    (0..count).map(range).collect()
}

/// Changes a section, which is in this range of a file.
type Damage = fn(&mut Vec<u8>, Range<usize>);

/// Zeroed, flipped, cut out and cut in part.
const DAMAGES: [Damage; 4] = [
    |bytes, range| bytes[range].fill(0),
    |bytes, range| bytes[(range.start + range.end) / 2] ^= 1,
    |bytes, range| drop(bytes.drain(range)),
    |bytes, range| drop(bytes.drain(range.start + range.len() / 2..range.end)),
];

/// The list of what is left of a file, and which sections are not.
fn salvaged(bytes: &[u8]) -> (Header, Vec<Row>, Vec<Section>) {
    let salvaged = SnapshotFile::salvage(bytes, &Secret::REPLAY).unwrap();
    let damaged = salvaged.damaged().to_vec();
    let mut list = SnapshotList::new(salvaged.header(), &Secret::REPLAY).unwrap();
    list.apply_salvaged(salvaged).unwrap();
    let (header, rows) = list.list(|list| (list.header, list.rows().collect()));
    (header, rows, damaged)
}

#[test]
fn a_snapshot_lists_whole_without_any_one_of_its_subtables() {
    let Recorder { lists, snapshots } = recorded(&config(40_000, false));
    let ((header, rows), whole) = (&lists[lists.len() / 2], &snapshots[lists.len() / 2]);
    assert!(header.complete && header.half_open > 8 && header.flows > 1_000);
    let established = rows.iter().filter(|row| row.state == RowState::Established);
    let mut subtable_count = 0;
    for (at, range) in ranges(whole).into_iter().enumerate() {
        for damage in DAMAGES {
            let mut bytes = whole.clone();
            damage(&mut bytes, range.clone());
            assert!(SnapshotFile::read(bytes.as_slice(), &Secret::REPLAY).is_err());
            let (salvaged, listed, damaged) = salvaged(&bytes);
            assert_eq!((salvaged.damaged_sections, salvaged.figures.interval), (Some(1), header.figures.interval));
            match damaged[..] {
                [Section::Subtable { .. }] => {
                    subtable_count += 1;
                    assert!(salvaged.complete && salvaged.missing == 0 && listed == *rows, "{}", damaged[0]);
                }
                [Section::HalfOpen { .. }] => {
                    // Some of those that are missing may be established by now, and would not have been listed.
                    assert!(salvaged.missing + salvaged.half_open >= header.half_open);
                    assert!(
                        salvaged.complete == (salvaged.missing == 0) && listed.iter().all(|row| rows.contains(row))
                    );
                    let kept = listed.iter().filter(|row| row.state == RowState::Established);
                    assert!(kept.eq(established.clone()));
                }
                _ => panic!("section {at} was damaged, and {damaged:?} are said to be"),
            }
        }
    }
    // Each of both tables of all partitions, in each way.
    assert_eq!(subtable_count, PARTITION_COUNT * 2 * HASH_COUNT * DAMAGES.len());
}

/// Tables of which three quarters are too few, and tables of which nothing is left.
#[test]
fn what_cannot_be_listed_is_said_to_be_missing_and_nothing_is_listed_that_is_not_open() {
    let Recorder { lists, snapshots } = recorded(&config(5_000, false));
    let ends = |rows: &[Row]| -> BTreeSet<(SocketAddr, SocketAddr)> {
        rows.iter().map(|row| (row.client, row.server)).collect()
    };
    let mut overfull = 0;
    for ((header, rows), whole) in lists.iter().zip(&snapshots) {
        let (all, ranges) = (ends(rows), ranges(whole));
        // One subtable; one of each table; all of one table and its half-open connections; all but the last subtables.
        let one_of_each = |section: usize| section >= 8 && (section - 8) / 16 == (section - 8) % 4;
        let of_one_table = |section: usize| section == 3 || section >= 8 && (section - 8) % 16 == 6;
        let losses: [&dyn Fn(usize) -> bool; 4] =
            [&|section| section == 14, &one_of_each, &of_one_table, &|section| (8..56).contains(&section)];
        for is_lost in losses {
            let mut bytes = whole.clone();
            let lost: Vec<usize> = (0..ranges.len()).filter(|section| is_lost(*section)).collect();
            lost.iter().for_each(|section| bytes[ranges[*section].clone()].fill(0xa5));
            let (salvaged, listed, damaged) = salvaged(&bytes);
            assert_eq!(damaged.len(), lost.len());
            let listed = ends(&listed);
            assert!(listed.is_subset(&all), "what is listed is open");
            assert_eq!(salvaged.complete, salvaged.missing == 0);
            assert!(!salvaged.complete || listed == all, "what is called complete is");
            overfull += u64::from(!salvaged.complete && header.complete);
        }
    }
    assert!(overfull > 10, "{overfull} lists are not complete");
}

fn lines(ended: &Ended) -> (Value, Vec<String>) {
    let stdout = text(&ended.stdout);
    let mut lines = stdout.lines().map(str::to_owned);
    let header: Value = serde_json::from_str(&lines.next().unwrap_or_default()).unwrap_or_default();
    (header["flow_list"].clone(), lines.collect())
}

#[test]
fn a_damaged_file_is_refused_unless_it_is_to_be_salvaged() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (snapshots, lists) = (path("snapshots"), path("lists"));
    let made = ["replay", "-q", "--every", "5s", "--snapshots", &snapshots, "--out", &lists, "pcaps/web.pcap"];
    assert!(flowpeel(made).status.success());
    let whole = format!("{snapshots}/{}", names(Path::new(&snapshots)).last().unwrap());
    let peel = |arguments: &[&str]| flowpeel(["snapshot", "peel"].iter().chain(arguments));
    let plain = peel(&[&whole]);
    let as_asked = peel(&["--salvage", &whole]);
    assert!(plain.status.success() && as_asked.status.success() && plain.stdout == as_asked.stdout);
    let mut bytes = std::fs::read(&whole).unwrap();
    let range = ranges(&bytes)[8].clone();
    bytes.drain(range);
    let damaged = path("damaged");
    std::fs::write(&damaged, &bytes).unwrap();
    for command in [&["peel"][..], &["info"], &["digest", "--differences", "5", "-o", &path("digest")]] {
        let refused = flowpeel(["snapshot"].iter().chain(command).chain([&damaged.as_str()]));
        assert!(refused.status.code() == Some(1) && refused.stdout.is_empty(), "{command:?}");
        assert!(refused.stderr.contains("cut short"), "{}", refused.stderr);
    }
    let base = format!("{lists}/{}", names(Path::new(&lists)).first().unwrap());
    for arguments in [&["--salvage", &damaged][..], &["--salvage", "--base", &base, &damaged]] {
        let ended = peel(arguments);
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.stderr.contains("lost: subtable 0 of the IPv4 table of partition 0"), "{}", ended.stderr);
        let ((mut header, rows), expected) = (lines(&ended), lines(&plain));
        assert_eq!(header.as_object_mut().unwrap().remove("damaged_sections"), Some(1.into()));
        assert_eq!((header, rows), expected);
    }
    // A head that is damaged proves nothing.
    bytes[60] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let refused = peel(&["--salvage", &damaged]);
    assert!(refused.status.code() == Some(1) && refused.stdout.is_empty(), "{}", refused.stderr);
    assert!(refused.stderr.contains("damaged or forged"), "{}", refused.stderr);
}
