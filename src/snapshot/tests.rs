//! Files of every kind: whole, changed and made up.

use super::envelope::{PREAMBLE_SIZE, PackedSection, Preamble, TAG_SIZE, write_envelope};
use super::*;
use crate::error::Result;
use crate::flow::{AnyKey, Family, KeyV4, KeyV6, VlanTags, WordKey};
use crate::handover::{Counts, Delta, DeltaGeometry, HalfOpen};
use crate::signal::{PARTITION_COUNT, Partitions, TimeBase};
use crate::snapshot::file_format::SNAPSHOT_SOURCES_MAX;
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Geometry, HASH_COUNT, ValueCode};
use proptest::prelude::*;

const GEOMETRY: (u32, u32) = (60, 12);

fn geometry() -> DeltaGeometry {
    DeltaGeometry { v4: Geometry::new(GEOMETRY.0), v6: Geometry::new(GEOMETRY.1) }
}

fn key_v4(at: u32) -> KeyV4 {
    KeyV4::new((0x0a00_0000 + at, 40_000), (0xc0a8_0001, 443), VlanTags::NONE)
}

fn key_v6(at: u32) -> KeyV6 {
    KeyV6::new((0x2001_0db8 << 96 | u128::from(at), 40_000), (0x2001_0db8 << 96 | 1, 443), VlanTags::NONE.with(7))
}

/// A delta of one partition in which `count` connections of each family opened.
fn delta(partition: u32, count: u32) -> Delta {
    let secret = &Secret::REPLAY;
    let mut delta = Delta::new(geometry());
    let code_v4 = ValueCode::<KeyV4>::new(KeyedHash::new(secret, Purpose::Value));
    let code_v6 = ValueCode::<KeyV6>::new(KeyedHash::new(secret, Purpose::Value));
    for at in partition * 1_000..partition * 1_000 + count {
        let (v4, v6) = (key_v4(at), key_v6(at));
        let hash = KeyedHash::new(secret, Purpose::Placement).of(&v4);
        delta.v4.table.apply_one(&Change::insert(v4, hash, code_v4.encode(hash, at)));
        let hash = KeyedHash::new(secret, Purpose::Placement).of(&v6);
        delta.v6.table.apply_one(&Change::insert(v6, hash, code_v6.encode(hash, at)));
    }
    (delta.v4.updates, delta.v6.updates) = (u64::from(count), u64::from(count));
    delta
}

/// The same, partition by partition, as routers have them.
fn in_partitions(mut half_open: Vec<HalfOpen>) -> Vec<HalfOpen> {
    let partitions = Partitions::new(&Secret::REPLAY);
    half_open.sort_by_key(|half_open| partitions.of(&half_open.key));
    half_open
}

fn source() -> RouterPart {
    let half_open =
        |key, answered| HalfOpen { key, start_tick: 1 << 20, since_tick: (1 << 20) + 7, answered, short_isn: 99 };
    RouterPart {
        router: "edge-1".to_owned(),
        run: 0x0123_4567_89ab_cdef,
        every_ns: 10_000_000_000,
        partition_connections_max: 1_234,
        is_last: true,
        figures: Figures { interval: 3, start_ns: -1, end_ns: i64::MAX, missing_elsewhere: 17, ..Figures::default() },
        totals: Counts { opened: 40, evicted_aged: 5, ..Counts::default() },
        end_tick: (1 << 20) + 100,
        within_tick_ns: 99_999_999,
        cut_ticks: std::array::from_fn(|partition| partition as u64),
        bases: vec![TimeBase { first_tick: 5, offset_ns: i128::MIN }, TimeBase { first_tick: 6, offset_ns: 1 }],
        half_open: in_partitions(vec![half_open(AnyKey::V4(key_v4(1)), true), half_open(AnyKey::V6(key_v6(2)), false)]),
        shortfall: Shortfall { unsettled: 3, unarchived: 0 },
    }
}

fn snapshot() -> SnapshotFile {
    let mut snapshot = SnapshotFile::new(geometry(), true, &Secret::REPLAY, source());
    for (partition, sums) in (0..).zip(&mut snapshot.sums) {
        sums.add(&delta(partition, 2));
        sums.add(&delta(partition, 3));
    }
    snapshot
}

/// The smallest snapshot there is, to try every bit of.
fn small() -> SnapshotFile {
    let geometry = DeltaGeometry { v4: Geometry::new(1), v6: Geometry::new(1) };
    SnapshotFile::new(geometry, false, &Secret::REPLAY, source())
}

fn bytes(snapshot: &SnapshotFile, packing: Packing) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write_packed(&mut bytes, &Secret::REPLAY, packing).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<SnapshotFile> {
    SnapshotFile::read(bytes, &Secret::REPLAY)
}

fn refusal(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

#[test]
fn what_is_written_reads_back() {
    let snapshot = snapshot();
    for packing in [Packing::Plain, Packing::Zstd] {
        assert_eq!(read(&bytes(&snapshot, packing)).unwrap(), snapshot);
    }
    assert_eq!(snapshot.surplus(), 8 * 2 * 5);
}

#[test]
fn the_images_of_its_partitions_are_the_snapshot() {
    let (snapshot, secret) = (snapshot(), &Secret::REPLAY);
    let images = snapshot.partition_images(secret).unwrap();
    let of = |images: [Option<&PartitionImage>; PARTITION_COUNT]| {
        SnapshotFile::of_partition_images(&images, KeyId::of(secret), secret)
    };
    let all: [_; PARTITION_COUNT] = std::array::from_fn(|partition| Some(&images[partition]));
    assert_eq!(of(all).unwrap(), snapshot);
    let mut some = all;
    some[3] = None;
    let without = of(some).unwrap();
    assert_eq!((without.surplus(), without.sums[4].clone()), (snapshot.surplus() - 10, snapshot.sums[4].clone()));
    assert!(of([None; PARTITION_COUNT]).unwrap_err().to_string().contains("no image"));
    let mut next = snapshot.clone();
    next.header.sources[0].figures.interval += 1;
    let next = next.partition_images(secret).unwrap();
    some[3] = Some(&next[3]);
    assert!(of(some).unwrap_err().to_string().contains("different snapshots"));
    let merge = SnapshotFile { header: Header { kind: Kind::Merge, ..snapshot.header.clone() }, ..snapshot.clone() };
    assert!(merge.partition_images(secret).is_err());
}

/// A connection that opens, one that closes, and one that does both with another start, which does not peel.
#[test]
fn what_changed_between_two_images_is_listed_in_few_bytes() {
    let (before, secret) = (snapshot(), &Secret::REPLAY);
    let mut now = before.clone();
    for (partition, sums) in (0..).zip(&mut now.sums) {
        let closed = delta(partition, 1);
        assert!(sums.v4.subtract(&closed.v4.table).is_ok());
        sums.add(&delta(100 + partition, 3));
    }
    let images = [&before, &now].map(|snapshot| snapshot.partition_images(secret).unwrap());
    for (before, now) in images[0].iter().zip(&images[1]) {
        let changes = before.changes_to(now, secret);
        assert_eq!(before.tables_with(&changes, secret).unwrap(), now.tables);
        assert!(changes.len() < 250, "{} bytes for seven changes", changes.len());
        assert!(before.changes_to(before, secret).is_empty());
        assert_eq!(before.tables_with(&[], secret).unwrap(), before.tables);
        for size in 1..changes.len() {
            assert!(before.tables_with(&changes[..size], secret).is_err(), "{size} bytes");
        }
        let mut claim = changes.clone();
        claim[..4].copy_from_slice(&(2u32 << 30).to_le_bytes());
        assert!(before.tables_with(&claim, secret).unwrap_err().to_string().contains("it claims"));
    }
    // Nothing peels under another secret, and nothing is made up.
    let other = Secret::new([9; 16]);
    assert!(images[0][0].changes_to(&images[1][0], &other).is_empty());
}

#[test]
fn an_image_of_another_size_or_partition_is_refused() {
    let (snapshot, secret) = (snapshot(), &Secret::REPLAY);
    let images = snapshot.partition_images(secret).unwrap();
    let refusal = |change: &dyn Fn(&mut PartitionImage)| {
        let mut images = images.clone();
        change(&mut images[5]);
        let all = std::array::from_fn(|partition| Some(&images[partition]));
        let same_head = SnapshotFile::of_partition_images(&all, KeyId::of(secret), secret).is_err();
        let mut alone = [None; PARTITION_COUNT];
        alone[5] = Some(&images[5]);
        (same_head, SnapshotFile::of_partition_images(&alone, KeyId::of(secret), secret).is_err())
    };
    assert_eq!(refusal(&|_| ()), (false, false));
    assert_eq!(refusal(&|image| image.tables.truncate(1)), (true, true));
    assert_eq!(refusal(&|image| image.tables.push(0)), (true, true));
    assert_eq!(refusal(&|image| image.half_open.push(0)), (true, true));
    assert_eq!(refusal(&|image| image.head.truncate(1)), (true, true));
    let of_another = images.iter().find(|image| !image.half_open.is_empty()).unwrap().half_open.clone();
    assert_eq!(refusal(&|image| image.half_open.clone_from(&of_another)), (true, true));
}

/// Every bit of what is not repeated, and one of each byte of the tags and sections.
#[test]
fn a_changed_bit_is_refused() {
    let bytes = bytes(&small(), Packing::Zstd);
    let directory = PREAMBLE_SIZE + u32_at(&bytes, 32) as usize;
    for at in 0..bytes.len() {
        for bit in if at < directory { 0..8 } else { at % 8..at % 8 + 1 } {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert!(read(&changed).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn every_cut_and_every_addition_is_refused() {
    let mut bytes = bytes(&small(), Packing::Zstd);
    for size in 0..bytes.len() {
        let message = refusal(&bytes[..size]);
        assert!(message.contains("cut short") || size < 8 && message.contains("no snapshot"), "{size}: {message}");
    }
    bytes.push(0);
    assert!(refusal(&bytes).contains("something follows"));
}

#[test]
fn what_is_wrong_is_said() {
    let good = bytes(&snapshot(), Packing::Plain);
    for (at, byte, part) in [
        (0, b'f', "this is no snapshot"),
        (8, 1, "version 1 of the format is not known"),
        (10, 9, "hash id 9"),
        (12, 4, "of kind 4"),
        (13, 2, "packing 2"),
        (14, 1, "must be zero"),
        (16, 0, "another secret"),
        (35, 1, "a head of"),
        (36, 1, "a snapshot of 1 sections"),
        (47, 1, "more than is read"),
        (60, 0xff, "damaged or forged: the authentication code of its head"),
        (
            good.len() - 1,
            0xff,
            "damaged or forged: the authentication code of subtable 3 of the IPv6 table of partition 7",
        ),
    ] {
        let mut changed = good.clone();
        changed[at] = byte;
        let message = refusal(&changed);
        assert!(message.contains(part), "{message} instead of {part}");
    }
    let other = Secret::new([1; 16]);
    let message = SnapshotFile::read(good.as_slice(), &other).unwrap_err().to_string();
    assert!(message.contains("another secret") && message.contains(&KeyId::of(&other).to_string()), "{message}");
    // The key id of the right secret does not help whoever does not have it.
    let mut forged = snapshot();
    forged.header.key_id = KeyId::of(&other);
    assert!(forged.write(&mut Vec::new(), &Secret::REPLAY).is_err());
    let mut bytes = Vec::new();
    forged.write(&mut bytes, &other).unwrap();
    bytes[16..32].copy_from_slice(&KeyId::of(&Secret::REPLAY).0);
    assert!(refusal(&bytes).contains("damaged or forged"));
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

/// Where each section stands in a file, by its preamble and directory.
fn ranges(bytes: &[u8]) -> Vec<(Section, std::ops::Range<usize>)> {
    let (head_size, count) = (u32_at(bytes, 32) as usize, u32_at(bytes, 36) as usize);
    let directory = PREAMBLE_SIZE + head_size;
    let mut start = directory + count * (8 + TAG_SIZE) + TAG_SIZE;
    let partition_count = count / (1 + 2 * HASH_COUNT);
    let range = |(at, section)| {
        let size = u32_at(bytes, directory + at * (8 + TAG_SIZE) + 4) as usize;
        start += size;
        (section, start - size..start)
    };
    Section::all(partition_count).enumerate().map(range).collect()
}

/// The head and the sections of a snapshot of eight partitions, not packed.
fn parts(snapshot: &SnapshotFile) -> (Vec<u8>, Vec<Vec<u8>>) {
    let bytes = bytes(snapshot, Packing::Plain);
    let head = bytes[PREAMBLE_SIZE..PREAMBLE_SIZE + u32_at(&bytes, 32) as usize].to_vec();
    (head, ranges(&bytes).into_iter().map(|(_, range)| bytes[range].to_vec()).collect())
}

/// A file with genuine codes around any head and sections, one of which may claim another size unpacked.
fn forged(head: &[u8], sections: &[Vec<u8>], claim: Option<(usize, u64)>, packing: Packing) -> Vec<u8> {
    let preamble = Preamble { kind: Kind::Snapshot, packing, key_id: KeyId::of(&Secret::REPLAY) };
    let packed = |(at, (section, plain)): (usize, (Section, &Vec<u8>))| {
        let bytes = match packing {
            Packing::Plain => plain.clone(),
            Packing::Zstd => zstd::encode_all(plain.as_slice(), 1).unwrap(),
        };
        let size = claim.filter(|claim| claim.0 == at).map_or(plain.len() as u64, |claim| claim.1);
        (section, PackedSection { size, bytes })
    };
    let sections: Vec<_> = Section::all(PARTITION_COUNT).zip(sections).enumerate().map(packed).collect();
    let mut bytes = Vec::new();
    write_envelope(&mut bytes, &preamble, head, &sections, &Secret::REPLAY).unwrap();
    bytes
}

#[test]
fn a_header_that_claims_too_much_is_refused_before_anything_is_made_of_it() {
    let (head, sections) = parts(&snapshot());
    assert_eq!(read(&forged(&head, &sections, None, Packing::Plain)).unwrap(), snapshot());
    let refused = |at: usize, claim: &[u8]| {
        let mut changed = head.clone();
        changed[at..at + claim.len()].copy_from_slice(claim);
        refusal(&forged(&changed, &sections, None, Packing::Plain))
    };
    let huge = &u32::MAX.to_le_bytes()[..];
    for (at, claim, part) in [
        (0, &[2][..], "unknown flags"),
        (1, &[7, 0], "tables for 7 partitions"),
        (3, huge, "4294967295 cells in each subtable"),
        (3, &[0; 4], "0 cells in each subtable"),
        (7, &[0, 0, 0, 1], "not folded evenly"),
        (11, huge, "cells in each subtable"),
        (19, huge, "claims 4294967295 routers, and 1024"),
        (23, &[65], "at most 64 bytes"),
        (24, &[0xff], "is no text"),
        (24, b"\n", "is no text"),
        (head.len() - 16 - 4, huge, "claims 429496729"),
        (head.len() - 16, &[0; 16], "said to be there and are zero"),
    ] {
        let message = refused(at, claim);
        assert!(message.contains(part), "{message} instead of {part}");
    }
    // Tables of the largest shape, which the sections do not hold.
    let largest = 1u32 << 24;
    let claim = [largest.to_le_bytes(), 1u32.to_le_bytes()].concat().repeat(2);
    assert!(refused(3, &claim).contains("tables of 16384 MiB"));
    let half = (1u32 << 18).to_le_bytes().repeat(4);
    assert!(refused(3, &half).contains("not the size"));
    // All partitions in one table, with the sections of eight.
    let mut digest = snapshot();
    digest.sums.truncate(1);
    digest.header.partition_count = 1;
    digest.header.kind = Kind::Digest;
    let (head, sections) = (parts(&digest).0, sections);
    let mut file = forged(&head, &sections, None, Packing::Plain);
    assert!(refusal(&file).contains("all partitions"), "{}", refusal(&file));
    file[12] = Kind::Digest as u8;
    assert!(refusal(&file).contains("damaged or forged"));
}

#[test]
fn a_section_that_unpacks_without_end_is_left_at_its_first_wrong_field() {
    let (head, good) = parts(&snapshot());
    let size = good[PARTITION_COUNT].len() as u64;
    let with = |at: usize, section: Vec<u8>| {
        let mut sections = good.clone();
        sections[at] = section;
        sections
    };
    // The size of half-open connections follows from nothing but what they are. A partition has none.
    let none = good.iter().position(Vec::is_empty).unwrap();
    let vast = with(none, vec![0; 64 << 20]);
    let message = refusal(&forged(&head, &vast, Some((none, 0)), Packing::Zstd));
    assert!(message.contains("something follows the last field"), "{message}");
    assert!(refusal(&forged(&head, &vast, None, Packing::Plain)).contains("something follows the last field"));
    let (at, held) = (0..).zip(&good).find(|(_, section)| !section.is_empty()).unwrap();
    let cut = forged(&head, &with(at, held[..held.len() - 1].to_vec()), None, Packing::Zstd);
    let message = refusal(&cut);
    assert!(message.contains("bytes are left") || message.contains("before its last field"), "{message}");
    // One whose partition is another.
    let mut moved = good.clone();
    moved.swap(at, (at + 1) % PARTITION_COUNT);
    assert!(read(&forged(&head, &moved, None, Packing::Plain)).is_err());
    // The size of a subtable follows from the head.
    for other in [size - 1, size + 1] {
        let sections = with(PARTITION_COUNT, vec![0; other as usize]);
        assert!(refusal(&forged(&head, &sections, None, Packing::Zstd)).contains("not the size that the header says"));
    }
    assert!(refusal(&forged(&[], &good, None, Packing::Zstd)).contains("ends before its last field"));
    assert!(refusal(&forged(&[head, vec![0]].concat(), &good, None, Packing::Zstd)).contains("something follows"));
}

#[test]
fn headers_are_checked_when_they_are_written_too() {
    let refused = |change: &dyn Fn(&mut SnapshotFile)| {
        let mut snapshot = snapshot();
        change(&mut snapshot);
        snapshot.write(&mut Vec::new(), &Secret::REPLAY).unwrap_err().to_string()
    };
    assert!(refused(&|it| it.header.sources.clear()).contains("0 routers"));
    assert!(refused(&|it| it.header.sources.push(source())).contains("one router"));
    assert!(refused(&|it| it.header.sources[0].router = "a\x1b".to_owned()).contains("control characters"));
    assert!(refused(&|it| it.header.sources[0].router = "a".repeat(65)).contains("64 bytes"));
    assert!(refused(&|it| drop(it.sums.pop())).contains("tables are not those"));
    let many = |it: &mut SnapshotFile| {
        it.header.kind = Kind::Merge;
        it.header.sources = vec![source(); SNAPSHOT_SOURCES_MAX + 1];
    };
    assert!(refused(&many).contains("1025 routers"));
    // Tables that leave room for some half-open connections, but not for these.
    let crowded = |it: &mut SnapshotFile| {
        it.header.geometry = DeltaGeometry { v4: Geometry::new((1 << 20) - 100), v6: Geometry::new(1) };
        it.header.unfolded = it.header.geometry;
        let half_open = it.header.sources[0].half_open[0];
        it.header.sources[0].half_open = vec![half_open; 2_000];
    };
    assert!(refused(&crowded).contains("2000 half-open connections: beside its tables"));
}

/// All partitions in one table, with this many neighbours added up into each cell.
fn digest(of: &SnapshotFile, run_v4: u32, run_v6: u32) -> SnapshotFile {
    let mut sum = Sums::new(of.header.geometry);
    of.sums.iter().for_each(|sums| assert!(sum.v4.merge(&sums.v4).is_ok() && sum.v6.merge(&sums.v6).is_ok()));
    let sum = Sums { v4: sum.v4.folded(run_v4).unwrap(), v6: sum.v6.folded(run_v6).unwrap() };
    let header = Header { kind: Kind::Digest, geometry: sum.geometry(), partition_count: 1, ..of.header.clone() };
    SnapshotFile { header, sums: vec![sum] }
}

#[test]
fn a_digest_is_a_snapshot_of_fewer_cells() {
    let digest = digest(&snapshot(), 2, 1);
    let back = read(&bytes(&digest, Packing::Zstd)).unwrap();
    assert_eq!(back, digest);
    assert_eq!((back.header.runs(), back.surplus()), ((2, 1), snapshot().surplus()));
    // Every key is where a table of that shape has it: taking all of them out leaves nothing.
    let mut table = back.sums[0].v4.clone();
    let code = ValueCode::<KeyV4>::new(KeyedHash::new(&Secret::REPLAY, Purpose::Value));
    for (partition, count) in (0..PARTITION_COUNT as u32).flat_map(|partition| [(partition, 2), (partition, 3)]) {
        for at in partition * 1_000..partition * 1_000 + count {
            let hash = KeyedHash::new(&Secret::REPLAY, Purpose::Placement).of(&key_v4(at));
            table.apply_one(&Change::remove(key_v4(at), hash, code.encode(hash, at)));
        }
    }
    assert!(table.is_zero());
}

#[test]
fn a_merge_keeps_its_sources() {
    let mut merge = snapshot();
    merge.header.kind = Kind::Merge;
    merge.header.sources.push(RouterPart { router: "edge-2".to_owned(), ..source() });
    assert_eq!(read(&bytes(&merge, Packing::Zstd)).unwrap(), merge);
}

#[test]
fn a_misfit_names_the_field() {
    let one = snapshot();
    assert_eq!(one.check_fits(&snapshot()), Ok(()));
    let with = |change: &dyn Fn(&mut Header)| {
        let mut other = one.clone();
        change(&mut other.header);
        one.check_fits(&other).unwrap_err().to_string()
    };
    assert!(with(&|header| header.vlan_key = false).contains("--vlan-key"));
    assert!(with(&|header| header.partition_count = 1).contains("8 and 1 partitions"));
    assert!(with(&|header| header.geometry.v4 = Geometry::new(30)).contains("60 and 30 cells in an IPv4"));
    assert!(with(&|header| header.geometry.v6 = Geometry::new(30)).contains("12 and 30 cells in an IPv6"));
    assert!(with(&|header| header.key_id = KeyId([0; 16])).contains("secrets differ"));
}

#[test]
fn files_on_the_disk_are_named_in_errors() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.flowpeel");
    assert!(SnapshotFile::open(&path, &Secret::REPLAY).unwrap_err().to_string().contains("a.flowpeel: cannot read"));
    std::fs::write(&path, bytes(&snapshot(), Packing::Zstd)).unwrap();
    assert_eq!(SnapshotFile::open(&path, &Secret::REPLAY).unwrap(), snapshot());
    assert!(SnapshotFile::open(place.path(), &Secret::REPLAY).unwrap_err().to_string().contains("this is no file"));
}

/// Changes a section, which is in this range of a file.
type Damage = fn(&mut Vec<u8>, std::ops::Range<usize>);

/// What may happen to the bytes of a section.
const DAMAGES: [(&str, Damage); 5] = [
    ("zeroed", |bytes, range| bytes[range].fill(0)),
    ("flipped", |bytes, range| bytes[range.start + range.len() / 2] ^= 0x10),
    ("cut out", |bytes, range| drop(bytes.drain(range))),
    ("cut in part", |bytes, range| drop(bytes.drain(range.start + range.len() / 3..range.end))),
    ("filled with others", |bytes, range| bytes[range].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(7) ^ 0x55)),
];

fn salvage(bytes: &[u8]) -> Result<Salvaged> {
    SnapshotFile::salvage(bytes, &Secret::REPLAY)
}

/// The snapshot without what this section has in it.
fn without(mut snapshot: SnapshotFile, section: Section) -> SnapshotFile {
    match section {
        Section::HalfOpen { partition } => {
            let partitions = Partitions::new(&Secret::REPLAY);
            let source = &mut snapshot.header.sources[0];
            let all = source.half_open.len();
            source.half_open.retain(|half_open| partitions.of(&half_open.key) != partition);
            source.figures.missing_elsewhere += (all - source.half_open.len()) as u64;
        }
        Section::Subtable { at, family: Family::V4, partition } => {
            snapshot.sums[partition].v4.lose_subtable(at).unwrap()
        }
        Section::Subtable { at, family: Family::V6, partition } => {
            snapshot.sums[partition].v6.lose_subtable(at).unwrap()
        }
    }
    snapshot
}

#[test]
fn each_damaged_section_costs_itself_and_nothing_else() {
    for packing in [Packing::Plain, Packing::Zstd] {
        let whole = bytes(&snapshot(), packing);
        for (section, range) in ranges(&whole) {
            for (name, damage) in DAMAGES {
                let mut damaged = whole.clone();
                if range.is_empty() {
                    continue;
                }
                damage(&mut damaged, range.clone());
                let message = refusal(&damaged);
                assert!(message.contains("damaged or forged") || message.contains("cut short"), "{name}: {message}");
                let salvaged = salvage(&damaged).unwrap();
                if salvaged.damaged().is_empty() {
                    // What is missing equals what follows: nothing is lost.
                    assert!(name.starts_with("cut") && *salvaged.file() == snapshot(), "{section}, {name}");
                    continue;
                }
                assert_eq!(salvaged.damaged(), [section], "{name}");
                assert_eq!(salvaged.file(), &without(snapshot(), section), "{section}, {name}");
            }
        }
    }
}

#[test]
fn a_snapshot_without_its_last_quarter_has_three_subtables_of_every_table() {
    let whole = bytes(&snapshot(), Packing::Zstd);
    let (_, last) =
        ranges(&whole).into_iter().find(|(section, _)| matches!(section, Section::Subtable { at: 3, .. })).unwrap();
    let salvaged = salvage(&whole[..last.start]).unwrap();
    let expected = (0..PARTITION_COUNT).flat_map(|partition| [(Family::V4, partition), (Family::V6, partition)]);
    let expected = expected.map(|(family, partition)| Section::Subtable { at: 3, family, partition });
    assert!(salvaged.damaged().iter().copied().eq(expected.clone()));
    assert_eq!(*salvaged.file(), expected.fold(snapshot(), without));
}

#[test]
fn what_is_lost_whole_is_counted_as_missing() {
    let whole = bytes(&snapshot(), Packing::Plain);
    let missing = |is_lost: &dyn Fn(&Section) -> bool| {
        let mut damaged = whole.clone();
        ranges(&whole)
            .into_iter()
            .filter(|(section, _)| is_lost(section))
            .for_each(|(_, range)| damaged[range].fill(0x5a));
        let salvaged = salvage(&damaged).unwrap();
        assert!(salvaged.damaged().iter().all(is_lost));
        salvaged.header().sources[0].figures.missing_elsewhere - source().figures.missing_elsewhere
    };
    let of = |section: &Section| match *section {
        Section::HalfOpen { partition } => (None, partition),
        Section::Subtable { family, partition, .. } => (Some(family), partition),
    };
    // Each partition has five connections of each family.
    assert_eq!(missing(&|section| of(section) == (Some(Family::V4), 3)), 5);
    assert_eq!(missing(&|section| of(section).1 < 4 && of(section).0 == Some(Family::V6)), 20);
    assert_eq!(missing(&|section| of(section).0.is_none()), 2);
    // Of nothing that is left nothing is known but that something is missing.
    assert_eq!(missing(&|_| true), 2 + 16);
    // One subtable is enough to know how many there were.
    assert_eq!(missing(&|section| matches!(section, Section::Subtable { at: 1.., .. })), 0);
}

#[test]
fn only_what_the_head_vouches_for_is_salvaged() {
    let good = bytes(&snapshot(), Packing::Plain);
    let sections = ranges(&good);
    // The sections of another interval of the same router, and those of other partitions and subtables.
    let mut other = snapshot();
    other.header.sources[0].figures.interval += 1;
    other.sums[0].add(&delta(9, 3));
    let other = bytes(&other, Packing::Plain);
    assert_eq!(other.len(), good.len());
    for (section, range) in sections.iter().filter(|(section, _)| matches!(section, Section::Subtable { .. })) {
        let mut exchanged = good.clone();
        exchanged[range.clone()].copy_from_slice(&other[range.clone()]);
        let is_same = good[range.clone()] == other[range.clone()];
        assert_eq!(salvage(&exchanged).unwrap().damaged().is_empty(), is_same, "{section}");
        let (_, neighbour) = sections.iter().rfind(|(_, other)| other.len() == range.len() && other != range).unwrap();
        let mut moved = good.clone();
        moved.copy_within(neighbour.clone(), range.start);
        assert_eq!(salvage(&moved).unwrap().damaged().is_empty(), moved == good, "{section}");
    }
    // With its tag in the directory it is refused whole.
    let directory = PREAMBLE_SIZE + u32_at(&good, 32) as usize;
    let mut exchanged = other.clone();
    exchanged[..PREAMBLE_SIZE].copy_from_slice(&good[..PREAMBLE_SIZE]);
    exchanged[PREAMBLE_SIZE..directory].copy_from_slice(&good[PREAMBLE_SIZE..directory]);
    for forged in [&exchanged, &good[..PREAMBLE_SIZE + 9].to_vec(), &good[..directory + 50].to_vec()] {
        assert!(salvage(forged).is_err());
    }
    // And no bit before the sections can be changed.
    for at in 0..sections[0].1.start {
        let mut changed = good.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(salvage(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn what_follows_a_snapshot_damages_nothing() {
    let mut bytes = bytes(&snapshot(), Packing::Zstd);
    bytes.extend([0; 100]);
    assert!(refusal(&bytes).contains("something follows"));
    let salvaged = salvage(&bytes).unwrap();
    assert!(salvaged.damaged().is_empty() && *salvaged.file() == snapshot());
}

fn half_open() -> impl Strategy<Value = HalfOpen> {
    (any::<[u64; 5]>(), any::<bool>(), 0u64..1 << 40, any::<u16>(), any::<bool>(), 0u32..1 << 17).prop_map(
        |(words, is_v4, start_tick, delay, answered, short_isn)| {
            let key = if is_v4 { AnyKey::V4(KeyV4::from_words(&words)) } else { AnyKey::V6(KeyV6::from_words(&words)) };
            HalfOpen { key, start_tick, since_tick: start_tick + u64::from(delay), answered, short_isn }
        },
    )
}

proptest! {
    #[test]
    fn any_source_reads_back(
        router in "[^\\p{C}]{0,16}",
        words: [u64; 35],
        ticks: ([u64; PARTITION_COUNT], u64, i64, u64),
        mut bases in prop::collection::btree_map(any::<u64>(), any::<i128>(), 0..5),
        half_open in prop::collection::vec(half_open(), 0..20),
    ) {
        let bases = std::mem::take(&mut bases).into_iter().map(|(first_tick, offset_ns)| TimeBase { first_tick, offset_ns });
        let totals = Counts::of_figures(std::array::from_fn(|at| words[at]));
        let [interval, opened, closed, untracked, recycled, evicted, dropped, unusable, cut, unopened, merged, missing_elsewhere, start, end] =
            std::array::from_fn(|at| words[21 + at]);
        let [reopened, handshakes_lost] = [words[3] >> 7, words[3] >> 9];
        let source = RouterPart {
            router,
            run: words[0],
            every_ns: words[1],
            partition_connections_max: words[2],
            is_last: words[3] & 1 == 1,
            figures: Figures {
                interval, opened, closed, untracked, recycled, evicted, dropped, unusable, cut, unopened, merged, missing_elsewhere,
                start_ns: start as i64, end_ns: end as i64, reopened, handshakes_lost,
                time_uncertain: words[3] & 2 != 0,
            },
            totals,
            end_tick: ticks.1,
            within_tick_ns: ticks.2,
            cut_ticks: ticks.0,
            bases: bases.collect(),
            half_open: in_partitions(half_open),
            shortfall: Shortfall { unsettled: words[4] >> 32, unarchived: words[5] >> 63 },
        };
        let snapshot = SnapshotFile::new(geometry(), false, &Secret::REPLAY, source);
        prop_assert_eq!(read(&bytes(&snapshot, Packing::Zstd)).unwrap(), snapshot);
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn arbitrary_parts_do_no_harm(
        head in prop::collection::vec(any::<u8>(), 0..600),
        sections in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 72),
        size in 0u64..1 << 20,
    ) {
        let (good_head, good) = parts(&small());
        for (head, sections) in [(&head, &good), (&good_head, &sections), (&head, &sections)] {
            for packing in [Packing::Plain, Packing::Zstd] {
                let size = Some((size as usize % 72, size)).filter(|_| packing == Packing::Zstd);
                prop_assert!(read(&forged(head, sections, size, packing)).is_err());
            }
        }
    }
}
