//! What a change costs on the wire: the frames of snapshots with many open connections, of which some change.

use flowpeel::engine::{Config, Snapshots};
use flowpeel::export::{Exporter, Output, SnapshotName};
use flowpeel::flow::{AnyKey, FlowKey, KeyV4, KeyV6, VlanTags};
use flowpeel::run::replay;
use flowpeel::signal::Partitions;
use flowpeel::snapshot::SnapshotFile;
use flowpeel_fleet::frame::{Hashed, Keys, Place, RunId, seal};
use flowpeel_fleet::key::RouterKey;
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Iblt, ValueCode};
use std::path::Path;

/// The most bytes of frames for each connection that opened or closed.
const CHANGE_SIZE_MAX: u64 = 40;

/// A pseudo-random number for each number.
fn scattered(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Keeps the first snapshot.
struct First(Option<SnapshotFile>);

impl Exporter for First {
    fn write(&mut self, output: Output) -> flowpeel::error::Result<()> {
        if let (Output::Snapshot(snapshot), None) = (output, &self.0) {
            self.0 = Some(snapshot.clone());
        }
        Ok(())
    }
}

/// A router's snapshot, in the shape that it has with this many connections, to be filled.
#[derive(Clone)]
pub(crate) struct Router {
    pub(crate) snapshot: SnapshotFile,
    partitions: Partitions,
}

impl Router {
    pub(crate) fn new(connections_max: u64) -> Self {
        let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pcaps/ssh.pcap");
        let config = Config {
            connections_max,
            memory_size_max: 8 << 30,
            snapshots: Some(Snapshots { router: "edge".to_owned(), run: 1, replace_lists: true }),
            ..Config::default()
        };
        let mut first = First(None);
        replay(&[capture], &config, &mut first, &mut ()).unwrap();
        Router { snapshot: first.0.unwrap(), partitions: Partitions::new(&Secret::REPLAY) }
    }

    /// Opens or closes the connections with these numbers: addresses, ports and starts at random, one in five of IPv6.
    pub(crate) fn flip(&mut self, numbers: std::ops::Range<u64>, opens: bool) {
        for number in numbers {
            let (client, server, start) = (scattered(number), scattered(number ^ 1 << 40), scattered(number ^ 1 << 41));
            let ports = (1_024 + (client >> 40) as u16 % 60_000, if server.is_multiple_of(3) { 80 } else { 443 });
            if number.is_multiple_of(5) {
                let address = |low: u64| 0x2001_0db8 << 96 | u128::from(low);
                let key = KeyV6::new((address(client), ports.0), (address(server), ports.1), VlanTags::NONE);
                let at = self.partitions.of(&AnyKey::V6(key));
                apply(&mut self.snapshot.sums[at].v6, key, start, opens);
            } else {
                let key = KeyV4::new((client as u32, ports.0), (server as u32, ports.1), VlanTags::NONE);
                let at = self.partitions.of(&AnyKey::V4(key));
                apply(&mut self.snapshot.sums[at].v4, key, start, opens);
            }
        }
    }

    pub(crate) fn images(&self) -> Vec<Hashed> {
        self.snapshot.partition_images(&Secret::REPLAY).unwrap().into_iter().map(Hashed::new).collect()
    }

    /// The name of the snapshot's file.
    pub(crate) fn name(&self) -> SnapshotName {
        let end_s = self.snapshot.header.end_ns().div_euclid(1_000_000_000);
        let (hours, minutes, seconds) = (end_s / 3_600 % 24, end_s / 60 % 60, end_s % 60);
        SnapshotName::parse(&format!("snapshot-19700101T{hours:02}{minutes:02}{seconds:02}Z.flowpeel")).unwrap()
    }

    /// The frames of all partitions from the one to the other, signed with this key.
    pub(crate) fn frames(&self, images: &[Hashed], bases: Option<&[Hashed]>, key: &RouterKey) -> Vec<Vec<u8>> {
        let source = &self.snapshot.header.sources[0];
        let frame = |partition: usize| {
            let place = Place {
                router: source.router.clone(),
                key_id: self.snapshot.header.key_id,
                run: RunId { run: source.run, origin_ns: source.origin_ns() },
                interval: source.figures.interval,
                end: (source.end_tick, source.within_tick_ns),
                name: self.name(),
                partition,
            };
            let keys = Keys { secret: &Secret::REPLAY, router: key };
            seal(&place, &images[partition], bases.map(|bases| &bases[partition]), keys).unwrap()
        };
        (0..images.len()).map(frame).collect()
    }

    /// The size of all frames from the one to the other.
    fn frames_size(&self, images: &[Hashed], bases: Option<&[Hashed]>) -> u64 {
        let key = RouterKey::new(Secret::new([7; 16]));
        self.frames(images, bases, &key).iter().map(|frame| frame.len() as u64).sum()
    }
}

fn apply<K: FlowKey>(table: &mut Iblt<K>, key: K, start: u64, opens: bool) {
    let placement = KeyedHash::new(&Secret::REPLAY, Purpose::Placement).of(&key);
    let code = ValueCode::<K>::new(KeyedHash::new(&Secret::REPLAY, Purpose::Value));
    let value = code.encode(placement, start as u32 & 0xf_ffff);
    table.apply_one(&if opens { Change::insert(key, placement, value) } else { Change::remove(key, placement, value) });
}

/// The size of the tables XORed with those before and compressed: what frames would take without listed changes.
fn xor_size(now: &Hashed, before: &Hashed) -> usize {
    let pairs = now.image.tables.iter().zip(&before.image.tables);
    let difference: Vec<u8> = pairs.map(|(now, before)| now ^ before).collect();
    zstd::bulk::compress(&difference, 3).unwrap().len()
}

/// Prints what it costs to go on from `open_count` open connections when so many open and as many close.
fn measure(open_count: u64, connections_max: u64, flip_counts: &[u64]) {
    let mut router = Router::new(connections_max);
    router.flip(0..open_count, true);
    let before = router.images();
    let whole_size = router.frames_size(&before, None);
    let mut file = Vec::new();
    router.snapshot.write(&mut file, &Secret::REPLAY).unwrap();
    println!("{open_count} open: snapshot {} bytes, whole frames {whole_size}", file.len());
    let (mut closed, mut opened) = (0, open_count);
    let mut bases = before;
    for count in flip_counts {
        router.flip(closed..closed + count, false);
        router.flip(opened..opened + count, true);
        (closed, opened) = (closed + count, opened + count);
        let images = router.images();
        let size = router.frames_size(&images, Some(&bases));
        let xor: usize = images.iter().zip(&bases).map(|(now, before)| xor_size(now, before)).sum();
        bases = images;
        let a_change = size as f64 / (2 * count) as f64;
        let ratio = file.len() as f64 / size as f64;
        println!("  {} changes: {size} bytes, {a_change:.1} a change, 1 to {ratio:.1}; XOR alone {xor}", 2 * count);
        // Of few changes most is what each frame begins with.
        let start_size = 8 * 300;
        assert!(size <= start_size + 2 * count * CHANGE_SIZE_MAX, "{size} bytes for {} changes", 2 * count);
    }
}

#[test]
fn a_change_takes_few_bytes() {
    measure(30_000, 60_000, &[100, 1_000, 5_000]);
}

#[test]
#[ignore = "a million open connections"]
fn a_change_takes_few_bytes_among_a_million() {
    measure(1_000_000, 2_000_000, &[1_000, 10_000, 100_000]);
}
