//! What a snapshot file only claims takes no memory: every allocation is counted while files are read that an attacker
//! with the secret made. It is the only test of its program, since the allocations of others would be counted too.

use crate::allocator::{ALLOCATED_SIZE, IS_COUNTING};
use crate::process::alone;
use flowpeel::snapshot::{HASH_ID, KeyId, SNAPSHOT_SIZE_MAX, SnapshotFile, VERSION};
use flowpeel_iblt::hash::Secret;
use hmac::Mac;
use std::io::Write;
use std::sync::atomic::Ordering::SeqCst;

/// What reading takes beside what it reads: buffers for some cells, the window of zstd's caller, an error's words. A
/// vector that grows has been allocated twice over.
const READING_SIZE_MAX: usize = 1 << 20;

/// A section, packed, and the size that it claims unpacked.
type Section = (u64, Vec<u8>);

/// A file with this head, and these sections of eight partitions.
fn file(packing: u8, head: &[u8], sections: &[Section]) -> Vec<u8> {
    let mut file = b"\x89FPSNAP\n".to_vec();
    file.extend(VERSION.to_le_bytes().into_iter().chain(HASH_ID.to_le_bytes()));
    file.extend([1, packing, 0, 0]);
    file.extend(KeyId::of(&Secret::REPLAY).0);
    let mut of_head = Secret::REPLAY.authentication(b"flowpeel snapshot head");
    of_head.update(&file);
    of_head.update(head);
    let of_head = of_head.finalize().into_bytes();
    file.extend((head.len() as u32).to_le_bytes().into_iter().chain((sections.len() as u32).to_le_bytes()));
    file.extend(sections.iter().map(|(_, packed)| packed.len() as u64).sum::<u64>().to_le_bytes());
    file.extend(head);
    for (index, (size, packed)) in (0u8..).zip(sections) {
        let mut code = Secret::REPLAY.authentication(b"flowpeel snapshot section");
        code.update(&of_head);
        let subtable = index.wrapping_sub(8);
        let name = if index < 8 { [0, 0, index, 0] } else { [1 + subtable % 2, subtable / 16, subtable % 16 / 2, 0] };
        code.update(&name);
        code.update(packed);
        file.extend((*size as u32).to_le_bytes().into_iter().chain((packed.len() as u32).to_le_bytes()));
        file.extend(code.finalize().into_bytes());
    }
    let mut code = Secret::REPLAY.authentication(b"flowpeel snapshot file");
    code.update(&file);
    file.extend(code.finalize().into_bytes());
    file.extend(sections.iter().flat_map(|(_, packed)| packed));
    file
}

fn packed(plain: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(plain, 1).unwrap()
}

/// The sections of tables with this many cells in the subtables, none of which are there, and of half-open connections
/// that are, in the first partition.
fn sections(cells: [u32; 2], half_open: Section) -> Vec<Section> {
    let subtable = |family: usize| (u64::from(cells[family]) * [32, 56][family], packed(&[]));
    let empty = std::iter::repeat_n((0, packed(&[])), 7);
    std::iter::once(half_open).chain(empty).chain((0..64).map(|at| subtable(at % 2))).collect()
}

/// The beginning of a head, with this many cells in the subtables and this many routers.
fn header(cells: [u32; 2], routers: u32) -> Vec<u8> {
    let mut head = vec![0, 8, 0];
    head.extend(cells.iter().chain(&cells).flat_map(|count| count.to_le_bytes()));
    head.extend(routers.to_le_bytes());
    head
}

/// A router without a name, with this many time bases, which do not follow, and half-open connections in the first
/// partition.
fn router(bases: u32, half_open: u32) -> Vec<u8> {
    let fields_size = 1 + 3 * 8 + 1 + 17 * 8 + 23 * 8 + 2 * 8 + 8 * 8;
    let mut router = vec![0; fields_size];
    router.extend(bases.to_le_bytes());
    router.extend(half_open.to_le_bytes());
    router.extend([0; 7 * 4]);
    router
}

#[test]
fn what_is_only_claimed_takes_no_memory() {
    alone("snapshots::what_is_only_claimed_takes_no_memory", assert_claims_take_no_memory);
}

fn assert_claims_take_no_memory() {
    // Tables of about as many bytes as are read at most, none of which is there.
    let cells = [(SNAPSHOT_SIZE_MAX / (8 * 4 * 32)) as u32 - 3_000, 1];
    let vast = [header(cells, 1), router(0, 0)].concat();
    let nothing = (0, packed(&[]));
    let of = |head: &[u8], sections: &[Section]| file(1, head, sections);
    let small = |head: &[u8], half_open: &Section| of(head, &sections([1, 1], half_open.clone()));
    let with = |at: usize, bytes: Vec<u8>| {
        let mut sections = sections(cells, nothing.clone());
        sections[at].1 = bytes;
        sections
    };
    // A mebibyte of zeros, packed: the cells of a subtable that is not half there.
    let zeros = vec![0; 1 << 20];
    let mut window = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    window.window_log(27).unwrap();
    window.write_all(&zeros).unwrap();
    // Half-open connections that are all there, of two routers, where there is room beside the tables for those of one.
    let crowd = [header(cells, 2), router(0, 60_000), router(0, 60_000)].concat();
    let mut cut = small(&header([1, 1], 1), &nothing);
    cut[32..36].copy_from_slice(&(2u32 << 20).to_le_bytes());
    cut[40..48].copy_from_slice(&SNAPSHOT_SIZE_MAX.to_le_bytes());
    let mut beyond = cut.clone();
    beyond[32..36].fill(0xff);
    let mut far_beyond = cut.clone();
    far_beyond[40..48].fill(0xff);
    let claims = |half_open: u32| [header([1, 1], 1), router(0, half_open)].concat();
    for (name, bytes, part, more) in [
        ("a preamble that claims all it may", cut, "bytes are missing", 0),
        ("one that claims more of a head", beyond, "are the most", 0),
        ("one that claims more of sections", far_beyond, "more than is read", 0),
        ("1,024 routers", small(&header([1, 1], 1_024), &nothing), "are left", 0),
        ("more routers", small(&header([1, 1], u32::MAX), &nothing), "are the most", 0),
        ("time bases", small(&[header([1, 1], 1), router(64, 0)].concat(), &nothing), "are left", 0),
        ("half-open", small(&claims(1 << 18), &nothing), "half-open connections, and 0 bytes are left", 0),
        ("half-open in less", small(&claims(10_000), &(4_096, packed(&zeros))), "and 4096 bytes are left", 0),
        ("half-open that are none", small(&claims(10_000), &(310_000, packed(&[0; 1_000]))), "another partition", 0),
        ("more half-open", small(&claims(u32::MAX), &nothing), "are the most", 0),
        ("half-open beside vast tables", of(&crowd, &sections(cells, nothing.clone())), "are the most", 0),
        ("vast subtables", small(&header([u32::MAX; 2], 1), &nothing), "in each subtable", 0),
        ("tables that are not there", of(&vast, &with(8, packed(&[]))), "before its last field", 0),
        ("tables of another size", small(&vast, &nothing), "not the size that the header says", 0),
        // What is there may take its own size, some times over as a vector grows.
        ("tables that end early", of(&vast, &with(8, packed(&zeros))), "before its last field", 4 << 20),
        ("a vast window", of(&vast, &with(8, window.finish().unwrap())), "cannot be unpacked", 0),
    ] {
        ALLOCATED_SIZE.store(0, SeqCst);
        IS_COUNTING.store(true, SeqCst);
        let read = SnapshotFile::read(bytes.as_slice(), &Secret::REPLAY);
        IS_COUNTING.store(false, SeqCst);
        let size = ALLOCATED_SIZE.load(SeqCst);
        let refused = read.unwrap_err().to_string();
        assert!(refused.contains(part), "{name}: {refused}");
        assert!(size <= READING_SIZE_MAX + 2 * bytes.len() + more, "{name}: {size} bytes");
    }
}
