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

/// A file with this packed body, which claims this size unpacked.
fn file(packing: u8, body: &[u8], size: u64) -> Vec<u8> {
    let mut file = b"\x89FPSNAP\n".to_vec();
    file.extend(VERSION.to_le_bytes().into_iter().chain(HASH_ID.to_le_bytes()));
    file.extend([1, packing, 0, 0]);
    file.extend(KeyId::of(&Secret::REPLAY).0);
    file.extend(size.to_le_bytes().into_iter().chain((body.len() as u64).to_le_bytes()));
    file.extend(body);
    let mut code = Secret::REPLAY.authentication(b"flowpeel snapshot file");
    code.update(&file);
    file.extend(code.finalize().into_bytes());
    file
}

/// The beginning of a body, with this many cells in the subtables and this many routers.
fn header(cells: [u32; 2], routers: u32) -> Vec<u8> {
    let mut body = vec![0, 8, 0];
    body.extend(cells.iter().chain(&cells).flat_map(|count| count.to_le_bytes()));
    body.extend(routers.to_le_bytes());
    body
}

/// A router without a name, with this many time bases and half-open connections, which do not follow.
fn router(bases: u32, half_open: u32) -> Vec<u8> {
    let fields_size = 1 + 3 * 8 + 1 + 17 * 8 + 23 * 8 + 2 * 8 + 8 * 8;
    let mut router = vec![0; fields_size];
    router.extend(bases.to_le_bytes());
    if bases == 0 {
        router.extend(half_open.to_le_bytes());
    }
    router
}

#[test]
fn what_is_only_claimed_takes_no_memory() {
    alone("snapshots::what_is_only_claimed_takes_no_memory", assert_claims_take_no_memory);
}

fn assert_claims_take_no_memory() {
    // Tables of about as many bytes as are read at most, none of which is there.
    let cells = [(SNAPSHOT_SIZE_MAX / (8 * 4 * 32)) as u32 - 1_000, 1];
    let tables_size = 8 * 4 * (u64::from(cells[0]) * 32 + u64::from(cells[1]) * 56);
    let vast = [header(cells, 1), router(0, 0)].concat();
    let vast_size = vast.len() as u64 + tables_size;
    let pack = |body: &[u8]| zstd::bulk::compress(body, 1).unwrap();
    // A mebibyte of zeros, packed: the cells of tables that are not half there.
    let zeros = [vast.clone(), vec![0; 1 << 20]].concat();
    // Half-open connections that are all there, of two routers, where there is room beside the tables for those of one.
    let crowd = [router(0, 10_000), vec![0; 10_000 * 31]].concat();
    let crowded = [header(cells, 2), crowd.clone(), crowd].concat();
    let mut window = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    window.window_log(27).unwrap();
    window.write_all(&zeros).unwrap();
    let mut cut = file(0, &[0; 64], 64);
    cut[32..40].copy_from_slice(&SNAPSHOT_SIZE_MAX.to_le_bytes());
    cut[40..48].copy_from_slice(&SNAPSHOT_SIZE_MAX.to_le_bytes());
    let mut beyond = cut.clone();
    beyond[32..48].fill(0xff);
    for (name, bytes, part, more) in [
        ("a preamble that claims all it may", cut, "bytes are missing", 0),
        ("one that claims more", beyond, "more than is read", 0),
        ("1,024 routers", file(1, &pack(&header([1, 1], 1_024)), 4_096), "are left", 0),
        ("1,024 that are not there", file(1, &pack(&header([1, 1], 1_024)), vast_size), "before its last field", 0),
        ("more routers", file(1, &pack(&header([1, 1], u32::MAX)), 4_096), "are the most", 0),
        ("time bases", file(1, &pack(&[header([1, 1], 1), router(64, 0)].concat()), 4_096), "before its last field", 0),
        (
            "half-open",
            file(1, &pack(&[header([1, 1], 1), router(0, 1 << 18)].concat()), vast_size),
            "before its last field",
            0,
        ),
        ("half-open in a body that has less", file(1, &pack(&crowded), 4_096), "bytes, and 3639 are left", 0),
        ("half-open beside vast tables", file(1, &pack(&crowded), vast_size), "and 4197 are the most", 4 << 20),
        (
            "more half-open",
            file(1, &pack(&[header([1, 1], 1), router(0, u32::MAX)].concat()), 4_096),
            "are the most",
            0,
        ),
        ("vast subtables", file(1, &pack(&header([u32::MAX; 2], 1)), 4_096), "in each subtable", 0),
        ("tables that are not there", file(1, &pack(&vast), vast_size), "before its last field", 0),
        ("tables of another size", file(1, &pack(&vast), 4_096), "not the size that the header says", 0),
        // What is there may take its own size, some times over as a vector grows.
        ("tables that end early", file(1, &pack(&zeros), vast_size), "before its last field", 4 << 20),
        ("a vast window", file(1, &window.finish().unwrap(), vast_size), "cannot be unpacked", 0),
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
