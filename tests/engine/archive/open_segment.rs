//! What `find` takes to read the log of the segment that is being filled, beside what an index of it would take.

use super::between;
use super::large::entry;
use flowpeel::archive::{ArchiveConfig, SEGMENT_SIZE_MAX, Writer, find};
use flowpeel_bfield::{FieldFile, Found, Goal, Growing, Pair, Plan, save};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{KeyHash, SecretHash};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Entries of a block of a log, as they come.
const BLOCK_ENTRIES: u64 = 8_192;

/// Questions of each kind.
const QUESTIONS: u64 = 50;

fn size_of(directory: &Path, ending: &str) -> u64 {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let files = files.filter(|file| file.file_name().to_str().unwrap().ends_with(ending));
    files.map(|file| file.metadata().unwrap().len()).sum()
}

fn milliseconds(began: Instant, count: u64) -> f64 {
    began.elapsed().as_secs_f64() * 1e3 / count as f64
}

/// Fills a log to nearly this size, and asks for connections that are in it and for others.
fn of_log(directory: &Path, segment_size: u64) -> u64 {
    let segment_age = Duration::from_secs(1 << 30);
    let config = ArchiveConfig { segment_size, segment_age, ..ArchiveConfig::default() };
    let (mut writer, _) = Writer::open(directory, config).unwrap();
    let mut count = 0;
    while size_of(directory, ".log") < segment_size * 7 / 8 {
        writer.add(&(count..count + BLOCK_ENTRIES).map(entry).collect::<Vec<_>>()).unwrap();
        count += BLOCK_ENTRIES;
    }
    writer.flush().unwrap();
    let log_size = size_of(directory, ".log");
    println!("log: {count} connections in {log_size} bytes, {:.1} each", log_size as f64 / count as f64);
    for (what, first) in [("in it", 0), ("not in it", count)] {
        let began = Instant::now();
        for asked in 0..QUESTIONS {
            let wanted = entry(first + asked * (count / QUESTIONS));
            let answer = find(directory, &between(wanted.client(), wanted.server())).unwrap();
            assert!(answer.damages.is_empty() && (first > 0 || answer.entries.contains(&wanted)));
        }
        println!("find by reading the log, {what}: {:.2} ms", milliseconds(began, QUESTIONS));
    }
    count
}

/// Fills a field that grows with so many connections, each with its block, and asks the field's file.
fn of_field(directory: &Path, count: u64) {
    let hash = SecretHash::<u64>::new(&Secret::REPLAY);
    let value_count = count.div_ceil(BLOCK_ENTRIES);
    let plan = Plan::new(&Goal { false_positive_rate: 1.0 / 4_096.0, key_count: count, value_count }).unwrap();
    let (log, file) = (directory.join("pairs"), directory.join("field"));
    let pairs: Vec<Pair> =
        (0..count).map(|at| Pair { hash: hash.of(&at), value: (at / BLOCK_ENTRIES) as u32 }).collect();
    let began = Instant::now();
    let (growing, _) = Growing::open(&log, &plan).unwrap();
    pairs.chunks(BLOCK_ENTRIES as usize).for_each(|pairs| growing.insert(pairs).unwrap());
    growing.flush().unwrap();
    println!("field that grows: {:.0} ns a connection", milliseconds(began, count) * 1e6);
    let built = growing.finish().unwrap();
    let began = Instant::now();
    let size = save(&built.field, &file).unwrap();
    let log_size = fs::metadata(&log).unwrap().len();
    println!("its log: {log_size} bytes; its file: {size} bytes, written in {:.1} ms", milliseconds(began, 1));
    for (what, first) in [("in it", 0), ("not in it", count)] {
        let began = Instant::now();
        for asked in 0..QUESTIONS {
            let at = first + asked * (count / QUESTIONS);
            let found = FieldFile::open(&file).unwrap().look_up(hash.of(&at)).unwrap();
            assert!(first > 0 || found == Found::Value((at / BLOCK_ENTRIES) as u32), "{found:?}");
        }
        println!("look-up in the file, {what}: {:.2} ms", milliseconds(began, QUESTIONS));
    }
}

#[test]
#[ignore = "takes a minute: docs/archive.md has its figures"]
fn an_index_of_the_open_segment_beside_reading_it() {
    for segment_size in [ArchiveConfig::default().segment_size, SEGMENT_SIZE_MAX] {
        let place = tempfile::tempdir().unwrap();
        let archive = place.path().join("archive");
        let count = of_log(&archive, segment_size);
        of_field(place.path(), count);
    }
}
