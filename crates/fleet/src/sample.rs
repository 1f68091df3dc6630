//! Snapshots of made-up routers, for tests.

use crate::key::FleetKey;
use flowpeel::export::SnapshotName;
use flowpeel::flow::{AnyKey, KeyV4, VlanTags};
use flowpeel::handover::DeltaGeometry;
use flowpeel::signal::{Partitions as PartitionOf, TimeBase};
use flowpeel::snapshot::{Figures, RouterPart, SnapshotFile};
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Geometry, ValueCode};

pub(crate) const SECRET: Secret = Secret::REPLAY;

pub(crate) fn fleet() -> FleetKey {
    FleetKey::new(Secret::new([7; 16]))
}

/// The snapshots of a router in one run, in which some connections open in each interval.
pub(crate) fn snapshots(router: &str, run: u64, count: u64) -> Vec<SnapshotFile> {
    let geometry = DeltaGeometry { v4: Geometry::for_items(100), v6: Geometry::new(1) };
    let part = |interval: u64| RouterPart {
        router: router.to_owned(),
        run,
        figures: Figures {
            interval,
            end_ns: (run * 1_000 + interval * 10) as i64 * 1_000_000_000,
            ..Figures::default()
        },
        end_tick: (1 << 20) + interval * 100,
        bases: vec![TimeBase { first_tick: 1 << 20, offset_ns: i128::from(run) }],
        ..RouterPart::default()
    };
    let mut present = SnapshotFile::new(geometry, false, &SECRET, part(0));
    let code = ValueCode::<KeyV4>::new(KeyedHash::new(&SECRET, Purpose::Value));
    let (placement, partition_of) = (KeyedHash::new(&SECRET, Purpose::Placement), PartitionOf::new(&SECRET));
    let next = |interval: u64| {
        for client in 0..20 {
            let key = KeyV4::new((interval as u32 * 1_000 + client, 40_000), (9, 443), VlanTags::NONE);
            let hash = placement.of(&key);
            let change = Change::insert(key, hash, code.encode(hash, interval as u32));
            present.sums[partition_of.of(&AnyKey::V4(key))].v4.apply_one(&change);
        }
        present.header.sources[0] = part(interval);
        present.clone()
    };
    (1..=count).map(next).collect()
}

/// The name of the file of a snapshot.
pub(crate) fn name_of(snapshot: &SnapshotFile) -> SnapshotName {
    let end_s = snapshot.header.end_ns() / 1_000_000_000;
    let (hours, minutes, seconds) = (end_s / 3_600, end_s / 60 % 60, end_s % 60);
    SnapshotName::parse(&format!("snapshot-19700101T{hours:02}{minutes:02}{seconds:02}Z.flowpeel")).unwrap()
}

/// Bytes that do not compress.
pub(crate) fn noise(size: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(size).collect()
}
