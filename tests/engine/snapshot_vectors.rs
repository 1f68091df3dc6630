//! Files of the snapshot format, committed: they are read, and written again byte for byte, on every machine and by
//! every version.

use flowpeel::flow::FlowKey as TableKey;
use flowpeel::flow::{AnyKey, KeyV4, KeyV6, VlanTags};
use flowpeel::handover::{Counts, DeltaGeometry, HalfOpen};
use flowpeel::signal::TimeBase;
use flowpeel::snapshot::{Figures, Header, Kind, Packing, RouterPart, Shortfall, SnapshotFile, Sums};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Geometry, Iblt, ValueCode};
use std::path::PathBuf;

/// The secret of the vectors: 000102..0f.
fn secret() -> Secret {
    Secret::new(std::array::from_fn(|at| at as u8))
}

/// 10.0.0.1:40000 to 192.168.0.1:443.
fn key_v4() -> KeyV4 {
    KeyV4::new((0x0a00_0001, 40_000), (0xc0a8_0001, 443), VlanTags::NONE)
}

/// [2001:db8::1]:40001 to [2001:db8::2]:443, on VLAN 7.
fn key_v6() -> KeyV6 {
    KeyV6::new((0x2001_0db8 << 96 | 1, 40_001), (0x2001_0db8 << 96 | 2, 443), VlanTags::NONE.with(7))
}

fn open<K: TableKey>(table: &mut Iblt<K>, key: K, payload: u32) {
    let hash = KeyedHash::<K>::new(&secret(), Purpose::Placement).of(&key);
    let value = ValueCode::<K>::new(KeyedHash::new(&secret(), Purpose::Value)).encode(hash, payload);
    table.apply_one(&Change::insert(key, hash, value));
}

/// A router with one connection of each family in its first partition, and one that is half-open.
fn router() -> SnapshotFile {
    let geometry = DeltaGeometry { v4: Geometry::new(2), v6: Geometry::new(1) };
    let source = RouterPart {
        router: "edge".to_owned(),
        run: 0x1122_3344_5566_7788,
        every_ns: 10_000_000_000,
        partition_connections_max: 1_000,
        is_last: true,
        figures: Figures {
            interval: 2,
            start_ns: 1_767_225_600_000_000_000,
            end_ns: 1_767_225_610_000_000_000,
            opened: 2,
            closed: 1,
            untracked: 3,
            recycled: 4,
            evicted: 5,
            dropped: 6,
            unusable: 7,
            cut: 0,
            unopened: 0,
            merged: 8,
            missing_elsewhere: 9,
            reopened: 13,
            handshakes_lost: 14,
            time_uncertain: true,
        },
        totals: Counts { opened: 12, closed: 10, ..Counts::default() },
        end_tick: (1 << 20) + 200,
        within_tick_ns: 50_000_000,
        cut_ticks: [(1 << 20) + 200; 8],
        bases: vec![TimeBase { first_tick: 1 << 20, offset_ns: 1_767_120_732_350_000_000 }],
        half_open: vec![HalfOpen {
            key: AnyKey::V4(key_v4()),
            start_tick: (1 << 20) + 190,
            since_tick: (1 << 20) + 192,
            answered: true,
            short_isn: 0x1_2345,
        }],
        shortfall: Shortfall::default(),
        since: None,
    };
    let mut snapshot = SnapshotFile::new(geometry, true, &secret(), source);
    open(&mut snapshot.sums[0].v4, key_v4(), 100);
    open(&mut snapshot.sums[0].v6, key_v6(), 150);
    snapshot
}

/// The same with all partitions in one table, and both cells of each IPv4 subtable in one.
fn digest() -> SnapshotFile {
    let of = router();
    let mut sum = Sums::new(of.header.geometry);
    of.sums.iter().for_each(|sums| assert!(sum.v4.merge(&sums.v4).is_ok() && sum.v6.merge(&sums.v6).is_ok()));
    let sum = Sums { v4: sum.v4.folded(2).unwrap(), v6: sum.v6 };
    let header = Header { kind: Kind::Digest, geometry: sum.geometry(), partition_count: 1, ..of.header };
    SnapshotFile { header, sums: vec![sum] }
}

/// Two routers with the same connection.
fn merge() -> SnapshotFile {
    let (mut merge, other) = (router(), router());
    for (sums, other) in merge.sums.iter_mut().zip(&other.sums) {
        assert!(sums.v4.merge(&other.v4).is_ok() && sums.v6.merge(&other.v6).is_ok());
    }
    merge.header.kind = Kind::Merge;
    let second =
        RouterPart { router: "core".to_owned(), run: 1, half_open: Vec::new(), ..other.header.sources[0].clone() };
    merge.header.sources.push(second);
    merge
}

fn committed(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "snapshots", name].iter().collect();
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn vectors_are_read_and_written_byte_for_byte() {
    for (name, snapshot) in [("router.flowpeel", router()), ("digest.flowpeel", digest()), ("merge.flowpeel", merge())]
    {
        let bytes = committed(name);
        assert_eq!(SnapshotFile::read(bytes.as_slice(), &secret()).unwrap(), snapshot, "{name}");
        let mut written = Vec::new();
        snapshot.write_packed(&mut written, &secret(), Packing::Plain).unwrap();
        assert!(written == bytes, "{name} is written otherwise");
    }
}

/// How zstd compresses may change with its version, what it makes of a frame may not.
#[test]
fn the_compressed_vector_is_read() {
    let bytes = committed("router.zst.flowpeel");
    assert_eq!(SnapshotFile::read(bytes.as_slice(), &secret()).unwrap(), router());
    // Most of a file so small is the tags of its sections, which do not shrink.
    assert!(bytes.len() < committed("router.flowpeel").len() * 3 / 4);
}

/// The fields stand where docs/snapshots.md says, whatever the code that writes and reads them.
#[test]
fn fields_stand_where_the_documentation_says() {
    let bytes = committed("router.flowpeel");
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(&bytes[..16], b"\x89FPSNAP\n\x02\0\x01\0\x01\0\0\0");
    assert_eq!((u32_at(32), u32_at(36), u64_at(40)), (513, 72, bytes.len() as u64 - 3_473));
    assert_eq!(&bytes[48..51], [1, 8, 0]);
    assert_eq!([51, 55, 59, 63].map(u32_at), [2, 1, 2, 1]);
    assert_eq!((u32_at(67), &bytes[71..76]), (1, &b"\x04edge"[..]));
    assert_eq!([76, 84, 92].map(u64_at), [0x1122_3344_5566_7788, 10_000_000_000, 1_000]);
    assert_eq!((bytes[100], u64_at(101)), (1, 2));
    assert_eq!(u64_at(117), 1_767_225_610_000_000_000);
    assert_eq!((u64_at(237), u64_at(245)), (12, 10));
    assert_eq!((u64_at(421), u64_at(429)), ((1 << 20) + 200, 50_000_000));
    assert_eq!((u32_at(501), u64_at(505), u64_at(513)), (1, 1 << 20, 1_767_120_732_350_000_000));
    // One half-open connection, in whichever partition it is.
    let counts: Vec<u32> = (0..8).map(|partition| u32_at(529 + 4 * partition)).collect();
    let sizes: Vec<u32> = (0..72).map(|section| u32_at(561 + 40 * section)).collect();
    assert!(counts.iter().sum::<u32>() == 1 && counts.iter().zip(&sizes).all(|(count, size)| *size == 31 * count));
    assert!(sizes[8..].chunks(2).all(|table| table == [2 * 32, 56]));
    assert!((0..72).all(|section| u32_at(561 + 40 * section + 4) == sizes[section]));
    assert_eq!((bytes[3_473], &bytes[3_474..3_476], u32_at(3_476)), (2, &[2, 0][..], 0x1_2345));
    assert_eq!(
        (u64_at(3_480), u64_at(3_488), u64_at(3_496)),
        ((1 << 20) + 190, 0x0a00_0001_9c40_c0a8, 0x0001_01bb_0000_0000)
    );
    // The subtables of partition 0: one of two cells in each has the connection.
    for subtable in 0..4 {
        let cells = [0, 1].map(|cell| 3_504 + subtable * 8 * (2 * 32 + 56) + 32 * cell);
        let held: Vec<usize> = cells.into_iter().filter(|&at| u32_at(at) == 1).collect();
        let [at] = held[..] else { panic!("one in each subtable") };
        assert_eq!((u64_at(at + 4), u64_at(at + 12)), (0x0a00_0001_9c40_c0a8, 0x0001_01bb_0000_0000));
        assert_eq!(u64_at(at + 20) & 0xff_ffff, 100);
    }
    assert_eq!(bytes.len(), 3_504 + 4 * 8 * (2 * 32 + 56));
}
