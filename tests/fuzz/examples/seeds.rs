//! Seeds for the fuzzer, made from the project's captures and from small tables.
//!
//! What enters: the directory of captures and the directory to write to. What leaves: in one directory for each target
//! the files that it is to begin with.

use flowpeel::capture::{PacketSource, Replay};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{CheckedCell, Layout, Placement, Sums, Table, TableCell};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The most bytes of a capture that are worth mutating.
const CAPTURE_SIZE_MAX: usize = 4 << 10;

/// The most frames of one capture: those that differ in length, as frames of one length are much alike.
const FRAME_COUNT_MAX: usize = 24;

/// Listings as `tcpdump -ddd` prints them: `tcp`, and everything.
const LISTINGS: [&str; 2] = [
    "12\n40 0 0 12\n21 0 5 34525\n48 0 0 20\n21 6 0 6\n21 0 6 44\n48 0 0 54\n21 3 4 6\n21 0 3 2048\n48 0 0 23\n\
     21 0 1 6\n6 0 0 262144\n6 0 0 0\n",
    "1\n6 0 0 262144\n",
];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(captures), Some(seeds)) = (arguments.next(), arguments.next()) else {
        return Err("usage: seeds CAPTURES SEEDS".into());
    };
    for target in ["table", "delta", "frame", "capture", "listing", "snapshot"] {
        fs::create_dir_all(seeds.join(target))?;
    }
    for entry in fs::read_dir(captures)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.contains(".pcap") {
            seed_captures(&path, &seeds.join("capture").join(&name))?;
            seed_frames(&path, &seeds.join("frame").join(&name))?;
        }
    }
    for (at, text) in LISTINGS.iter().enumerate() {
        fs::write(seeds.join("listing").join(at.to_string()), text)?;
    }
    seed_snapshots(&seeds.join("snapshot"))?;
    seed_tables(&seeds.join("table"))?;
    seed_deltas(&seeds.join("delta"))
}

fn named(path: &Path, suffix: impl std::fmt::Display) -> PathBuf {
    PathBuf::from(format!("{}-{suffix}", path.display()))
}

/// The beginning of a capture as it is, and compressed in both ways.
fn seed_captures(path: &Path, seed: &Path) -> Result<()> {
    let mut bytes = fs::read(path)?;
    bytes.truncate(CAPTURE_SIZE_MAX);
    fs::write(seed, &bytes)?;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes)?;
    fs::write(named(seed, "gz"), gzip.finish()?)?;
    fs::write(named(seed, "zst"), zstd::bulk::compress(&bytes, 3)?)?;
    Ok(())
}

fn seed_frames(path: &Path, seed: &Path) -> Result<()> {
    let mut replay = Replay::open(path)?;
    let mut sizes = BTreeSet::new();
    while let Some(packet) = replay.next_packet()? {
        if sizes.len() < FRAME_COUNT_MAX && sizes.insert(packet.bytes.len()) {
            fs::write(named(seed, packet.bytes.len()), packet.bytes)?;
        }
    }
    Ok(())
}

/// The project's own snapshots.
fn seed_snapshots(seeds: &Path) -> Result<()> {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../snapshots"))? {
        let path = entry?.path();
        fs::copy(&path, seeds.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Scripts that lay an encoded table over an empty one.
fn seed_tables(seeds: &Path) -> Result<()> {
    for key_count in [0, 1, 8, 20, 60] {
        fs::write(seeds.join(format!("plain-{key_count}")), table::<Sums<u64, u64>>(0, key_count))?;
        fs::write(seeds.join(format!("checked-{key_count}")), table::<CheckedCell<u64>>(1, key_count))?;
    }
    for cells in 0..14 {
        // Two insertions and a removal with another value, for every kind of cells.
        let steps = [0, 2, 4, 0, 6, 8, 1, 2, 6, 2, 10, 12, 6, 3, 14, 2, 5, 0];
        fs::write(
            seeds.join(format!("steps-{cells}")),
            [&[cells, 0, 4, 0, 40, 255, 1, 2, 2, 4, 6, 8][..], &steps].concat(),
        )?;
    }
    Ok(())
}

/// Cells of this number, four subtables of ten, the first of which gets lost, no known pairs, then the encoding.
fn table<C: TableCell<Key = u64, Value = u64>>(cells: u8, key_count: u64) -> Vec<u8> {
    let layout = Layout::new(Placement::Subtables { hash_count: 4 }, 40);
    let mut table: Table<C> = Table::with_secret(layout, &Secret::REPLAY);
    (0..key_count).for_each(|key| table.insert(&key, key * key));
    [&[cells, 0, 4, 0, 40, 255, 0, 0, 6][..], &table.to_bytes()].concat()
}

/// Honest changes of few keys, then each with every lie.
fn seed_deltas(seeds: &Path) -> Result<()> {
    for family in 0..2 {
        let honest = (0..20).flat_map(|key| [0, key, 5, 1]);
        fs::write(
            seeds.join(format!("honest-{family}")),
            [family, 20, 9, 0].into_iter().chain(honest).collect::<Vec<u8>>(),
        )?;
        let lies = (1..5u8).flat_map(|lie| [lie << 1, lie].into_iter().chain([lie * 51; 16]).chain([5, 1]));
        fs::write(
            seeds.join(format!("lies-{family}")),
            [family, 20, 9, 0].into_iter().chain(lies).collect::<Vec<u8>>(),
        )?;
    }
    Ok(())
}
