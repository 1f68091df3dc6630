//! Captures cut at every byte: what precedes the cut is listed, and the error names the place of the cut.

use super::file;
use crate::support::captures::{PCAP_HEADER_SIZE, RECORD_HEADER_SIZE, frames, gzip, pcap, pcapng, pcapng_header, zstd};
use crate::support::command::{TIME_MAX, replay};
use flowpeel::capture::Replay;
use flowpeel::engine::{Config, Plan, Summary};
use flowpeel::list::{Header, List, Row};
use flowpeel::run::run;
use std::io::Cursor;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// A list that was exported.
pub(crate) type Kept = (Header, Vec<Row>);

/// The lists of a capture in memory, the summary and the error.
pub(crate) fn listed(bytes: &[u8], every: Option<Duration>) -> (Vec<Kept>, Summary) {
    let config = Config { every, connections_max: 1_000, churn: Some(1_000), shards: 1, ..Config::default() };
    let mut lists = Vec::new();
    let mut exporter = |list: &List| {
        lists.push((list.header, list.rows().collect()));
        Ok(())
    };
    let inputs = std::iter::once(Replay::from_reader(Cursor::new(bytes.to_vec()), Path::new("cut")));
    let summary = run(&Plan::new(&config).unwrap(), inputs, &mut exporter, &mut (), None).unwrap();
    (lists, summary)
}

/// Runs something that must end in time.
pub(crate) fn in_time(work: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        work();
        ended.send(()).unwrap();
    });
    // A panic ends it too, and is passed on below.
    assert_ne!(end.recv_timeout(2 * TIME_MAX), Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Cuts a capture at every byte. `whole` makes one of the first packets, and `ends` are the places between records
/// at which `first_packet` of them come before any packet.
fn cut_everywhere(whole: fn(&[Vec<u8>]) -> Vec<u8>, ends: &[usize], first_packet: usize) {
    let frames = frames();
    let bytes = whole(&frames);
    assert_eq!((ends.last(), ends.len()), (Some(&bytes.len()), frames.len() + first_packet));
    let expected: Vec<_> = (0..=frames.len()).map(|count| listed(&whole(&frames[..count]), None).0).collect();
    for cut in 0..=bytes.len() {
        let (lists, summary) = listed(&bytes[..cut], None);
        let passed = ends.iter().filter(|end| **end <= cut).count();
        let packets = passed.saturating_sub(first_packet);
        assert_eq!(summary.packets, packets as u64, "cut at {cut}");
        let is_whole = ends.contains(&cut);
        assert_eq!(summary.errors.len(), usize::from(!is_whole), "cut at {cut}: {:?}", summary.errors);
        if let [error] = &summary.errors[..] {
            let start = ends.iter().rev().find(|end| **end < cut).copied().unwrap_or(0);
            assert!(cut == 0 || error.offset() == Some(start as u64), "cut at {cut}: {error}");
        }
        if packets == 0 && !is_whole {
            assert!(lists.is_empty(), "cut at {cut}");
        } else {
            assert_eq!(lists, expected[packets], "cut at {cut}");
        }
    }
}

#[test]
fn a_pcap_file_cut_at_every_byte() {
    in_time(|| {
        let mut ends = vec![PCAP_HEADER_SIZE];
        ends.extend(frames().iter().scan(PCAP_HEADER_SIZE, |end, frame| {
            *end += RECORD_HEADER_SIZE + frame.len();
            Some(*end)
        }));
        cut_everywhere(pcap, &ends, 1);
    });
}

#[test]
fn a_pcapng_file_cut_at_every_byte() {
    in_time(|| {
        let header_size = pcapng_header(&[]).len();
        let mut ends = vec![28, header_size];
        ends.extend(frames().iter().scan(header_size, |end, frame| {
            *end += 32 + frame.len().next_multiple_of(4);
            Some(*end)
        }));
        cut_everywhere(pcapng, &ends, 2);
    });
}

#[test]
fn a_compressed_file_cut_at_every_byte() {
    in_time(|| {
        let frames = frames();
        let expected: Vec<_> = (0..=frames.len()).map(|count| listed(&pcap(&frames[..count]), None).0).collect();
        for stored in [gzip(&pcap(&frames)), zstd(&pcap(&frames))] {
            for cut in 0..stored.len() {
                let (lists, summary) = listed(&stored[..cut], None);
                assert_eq!(summary.errors.len(), 1, "cut at {cut}");
                match summary.packets as usize {
                    0 => assert!(lists.is_empty(), "cut at {cut}"),
                    packets => assert_eq!(lists, expected[packets], "cut at {cut}"),
                }
            }
            assert_eq!(listed(&stored, None).0, expected[frames.len()]);
        }
    });
}

#[test]
fn the_command_reports_a_cut_and_lists_what_precedes_it() {
    let bytes = pcap(&frames());
    // Records are 70 bytes long and begin at byte 24.
    for (cut, offset, aftermath) in [
        (24 + 1, 24, "; nothing of it is listed"),
        (24 + 70 + 15, 94, "; the packet before it is listed"),
        (24 + 2 * 70 + 16, 164, "; the 2 packets before it are listed"),
        (24 + 12 * 70 - 1, 24 + 11 * 70, "; the 11 packets before it are listed"),
    ] {
        let (_directory, path) = file("cut.pcap", &bytes[..cut]);
        let ended = replay([&path]);
        ended.assert_failed(&[path.to_str().unwrap(), &format!(": at byte {offset}: "), aftermath]);
        ended.assert_failed(&["the file is cut short inside a packet record"]);
        if offset == 24 {
            ended.assert_nothing();
            continue;
        }
        let (_directory, path) = file("whole.pcap", &bytes[..offset]);
        let whole = replay([&path]);
        assert_eq!(whole.status.code(), Some(0));
        assert_eq!(ended.lists(), whole.lists());
        assert_eq!(ended.lists().len(), 1);
    }
}

#[test]
fn the_command_reports_compressed_files_that_are_cut_or_damaged() {
    // Enough packets for a part of them to be decompressed.
    let frames: Vec<_> = (1..20_000).flat_map(crate::support::captures::opening).collect();
    for (stored, name) in [(gzip(&pcap(&frames)), "gzip"), (zstd(&pcap(&frames)), "zstd")] {
        let (_directory, path) = file("cut", &stored[..stored.len() / 2]);
        let ended = replay([&path]);
        ended.assert_failed(&[": at byte ", &format!("the {name} data is cut short"), " packets before it are listed"]);
        assert!(ended.lists()[0].count("flows") > 1_000);
        let mut damaged = stored.clone();
        let middle = stored.len() / 2;
        damaged[middle..middle + 64].fill(0xff);
        let (_directory, path) = file("damaged", &damaged);
        let ended = replay([&path]);
        ended.assert_failed(&[": at byte "]);
        assert!(ended.lists().len() <= 1);
    }
}
