//! Ten million connections in 500 segments: how many of them a question reads, and what the index takes.

use super::between;
use flowpeel::archive::{ArchiveConfig, Entry, Fate, SEGMENT_SIZE_MAX, Writer, find, index_missing, measure};
use flowpeel::flow::{AnyKey, VlanTags};
use flowpeel::record::Ending;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const SEGMENT_COUNT: u64 = 500;
const SEGMENT_ENTRIES: u64 = 20_000;

fn mixed(number: u64) -> u64 {
    let word = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^ word >> 32
}

/// A connection of 300,000 clients with 20,000 servers. One in twenty has the ends of one some thousands before it.
pub(super) fn entry(number: u64) -> Entry {
    let of = if mixed(number ^ 5 << 50).is_multiple_of(20) {
        number.saturating_sub(mixed(number) % 100_000)
    } else {
        number
    };
    let (one, other) = (mixed(of), mixed(of ^ 1 << 60));
    let (client, server) = ((one % 300_000) as u32, (other % 20_000) as u32);
    let client = SocketAddr::from(((0x0a00_0000 + client).to_be_bytes(), 1_024 + (one >> 40) as u16 % 60_000));
    let server = SocketAddr::from(((0x5db8_0000 + server).to_be_bytes(), [443, 80, 22][(other >> 50) as usize % 3]));
    let end = 17_000_000_000 + number as i64 / 100;
    let key = AnyKey::of_ends(client, server, VlanTags::NONE).unwrap();
    Entry {
        end,
        key,
        start: end - (one >> 56) as i64,
        fate: Fate::Ended(Ending::Fin),
        midstream: false,
        clock_set: 0,
        may_be_older: false,
    }
}

#[test]
#[ignore = "takes some minutes and half a gigabyte of disk"]
fn ten_million_connections_in_five_hundred_segments() {
    let place = tempfile::tempdir().unwrap();
    let segment_age = Duration::from_secs(1 << 30);
    let config = ArchiveConfig { segment_size: SEGMENT_SIZE_MAX, segment_age, ..ArchiveConfig::default() };
    let (mut writer, _) = Writer::open(place.path(), config).unwrap();
    let began = Instant::now();
    for segment in 0..SEGMENT_COUNT {
        let numbers = segment * SEGMENT_ENTRIES..(segment + 1) * SEGMENT_ENTRIES;
        writer.add(&numbers.map(entry).collect::<Vec<_>>()).unwrap();
        writer.seal().unwrap();
    }
    println!("written in {:?}", began.elapsed());
    let began = Instant::now();
    println!("{} indexes made in {:?}", index_missing(place.path()).unwrap(), began.elapsed());
    let size = measure(place.path()).unwrap();
    assert_eq!((size.entries, size.segments), (SEGMENT_COUNT * SEGMENT_ENTRIES, SEGMENT_COUNT));
    let a_connection = |bytes: u64| bytes as f64 / size.entries as f64;
    let index = a_connection(size.indexes_size + size.filters_size);
    let fields = a_connection(size.indexes_size);
    println!(
        "{size:?}: {:.2} bytes a connection, index {index:.2} (B-fields {fields:.2})",
        a_connection(size.blocks_size)
    );
    assert!(index <= 9.0, "{index}");

    let count = 6_000;
    let (mut read, mut within_two, mut beyond, mut vain) = (0, 0, 0, 0);
    let began = Instant::now();
    for asked in 0..count {
        let wanted = entry(mixed(asked ^ 7 << 40) % size.entries);
        let answer = find(place.path(), &between(wanted.client(), wanted.server())).unwrap();
        assert!(answer.damages.is_empty());
        assert!(answer.entries.contains(&wanted), "missed {wanted:?}");
        let explanation = answer.explanation;
        read += explanation.read;
        vain += explanation.read_in_vain;
        within_two += u64::from(explanation.read <= 2);
        // A connection in three segments cannot be read from two.
        beyond += u64::from(explanation.read > 2 && explanation.read - explanation.read_in_vain > 2);
    }
    println!(
        "{count} asked in {:?}: {read} segments read, {vain} in vain; {within_two} with at most 2, {beyond} that are in more than 2",
        began.elapsed()
    );
    assert!(within_two * 100 >= count * 99, "{within_two} of {count}");
}
