//! Files of any bytes as snapshots: as they are, and as what somebody with the secret would have written.
//!
//! What enters: a file. What leaves: nothing; what is read is written again to the same, and lists, questions and
//! figures come to an end, whatever is in the tables.

use flowpeel::flow::{AnyKey, VlanTags};
use flowpeel::list::SnapshotList;
use flowpeel::snapshot::{HASH_ID, KeyId, Packing, Salvaged, SnapshotFile, VERSION};
use flowpeel_iblt::hash::{SECRET_SIZE, Secret};
use hmac::Mac;

/// Where the head of a file begins.
const HEAD_BEGIN: usize = 48;

const TAG_SIZE: usize = 32;

/// The size of an entry of the directory: the size of a section, its size packed, and its tag.
const ENTRY_SIZE: usize = 8 + TAG_SIZE;

/// Sections that are said to be longer than this unpacked are not looked into: a few compressed bytes stand for any
/// number.
const SECTION_SIZE_MAX: u32 = 1 << 20;

/// The sections of a partition: its half-open connections, and the subtables of two tables.
const PARTITION_SECTION_COUNT: usize = 9;

/// The secret of the project's own snapshots, which are the seeds.
fn secret() -> Secret {
    Secret::new(std::array::from_fn::<_, SECRET_SIZE, _>(|at| at as u8))
}

/// Runs one file, and the file that somebody with the secret would have made of the same parts.
pub fn run(bytes: &[u8]) {
    let secret = secret();
    for bytes in [Some(bytes.to_vec()), sealed(bytes, &secret)].into_iter().flatten() {
        let salvaged = SnapshotFile::salvage(bytes.as_slice(), &secret);
        match SnapshotFile::read(bytes.as_slice(), &secret) {
            Ok(snapshot) => {
                assert!(salvaged.is_ok_and(|salvaged| salvaged.damaged().is_empty()), "a whole file is genuine");
                assert_laws(snapshot, &secret);
            }
            Err(_) => salvaged.into_iter().for_each(|salvaged| assert_salvaged_laws(salvaged, &secret)),
        }
    }
}

/// The file with all tags right, if its sizes are those of something.
fn sealed(bytes: &[u8], secret: &Secret) -> Option<Vec<u8>> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (head_size, count) = (u32_at(32)? as usize, u32_at(36)? as usize);
    let directory = HEAD_BEGIN + head_size;
    let begin = directory + count.checked_mul(ENTRY_SIZE)? + TAG_SIZE;
    let (mut file, mut sections) = (bytes.get(..begin)?.to_vec(), bytes.get(begin..)?);
    file[..8].copy_from_slice(b"\x89FPSNAP\n");
    file[8..10].copy_from_slice(&VERSION.to_le_bytes());
    file[10..12].copy_from_slice(&HASH_ID.to_le_bytes());
    file[16..32].copy_from_slice(&KeyId::of(secret).0);
    let mut code = secret.authentication(b"flowpeel snapshot head");
    code.update(&file[..32]);
    code.update(&file[HEAD_BEGIN..directory]);
    let of_head = code.finalize().into_bytes();
    let mut whole: Vec<u8> = Vec::new();
    for index in 0..count {
        let entry = directory + index * ENTRY_SIZE;
        let (size, packed_size) = (u32_at(entry)?, u32_at(entry + 4)?);
        let (packed, rest) = sections.split_at_checked(packed_size as usize).filter(|_| size <= SECTION_SIZE_MAX)?;
        let mut code = secret.authentication(b"flowpeel snapshot section");
        code.update(&of_head);
        code.update(&name_of(index, count / PARTITION_SECTION_COUNT));
        code.update(packed);
        file[entry + 8..entry + ENTRY_SIZE].copy_from_slice(&code.finalize().into_bytes());
        whole.extend(packed);
        sections = rest;
    }
    file[40..48].copy_from_slice(&(whole.len() as u64).to_le_bytes());
    let mut code = secret.authentication(b"flowpeel snapshot file");
    code.update(&file[..begin - TAG_SIZE]);
    file[begin - TAG_SIZE..].copy_from_slice(&code.finalize().into_bytes());
    file.extend(whole);
    Some(file)
}

/// What the tag of a section says that it is.
fn name_of(index: usize, partition_count: usize) -> [u8; 4] {
    let (holds, at, partition) = match index.checked_sub(partition_count).zip(Some(2 * partition_count)) {
        Some((subtable, a_row @ 1..)) => (1 + subtable % 2, subtable / a_row, subtable % a_row / 2),
        _ => (0, 0, index),
    };
    [holds as u8, at as u8, partition as u8, (partition >> 8) as u8]
}

/// What is left of a damaged file is listed to an end, and only as often as it is there.
fn assert_salvaged_laws(salvaged: Salvaged, secret: &Secret) {
    let damaged = salvaged.damaged().len() as u64;
    let Ok(mut list) = SnapshotList::new(salvaged.header(), secret) else { return };
    list.apply_salvaged(salvaged).expect("it is of its own run");
    let (header, rows) = list.list(|list| (list.header, list.rows().count() as u64));
    assert_eq!((header.damaged_sections, rows), (Some(damaged), header.flows + header.half_open));
}

fn assert_laws(snapshot: SnapshotFile, secret: &Secret) {
    let mut written = Vec::new();
    snapshot.write_packed(&mut written, secret, Packing::Plain).expect("what was read can be written");
    let again = SnapshotFile::read(written.as_slice(), secret).expect("and read again");
    assert!(again == snapshot, "it is not the same");
    assert!(snapshot.check_fits(&again).is_ok());
    let (v4, v6) = snapshot.loads(secret);
    assert!(v4.open + v6.open == snapshot.surplus());
    for key in [([10, 0, 0, 1], 40_000).into(), ([0, 0, 0, 0], 0).into()] {
        let server = ([192, 168, 0, 1], 443).into();
        let key = AnyKey::of_ends(key, server, VlanTags::NONE).expect("of one family");
        assert_eq!(snapshot.presence(&key, secret), again.presence(&key, secret), "equal tables answer alike");
    }
    let Ok(mut list) = SnapshotList::new(&snapshot.header, secret) else { return };
    list.apply(snapshot.clone()).expect("it is of its own run");
    let reported = list.list(|list| (list.header, list.rows().count() as u64));
    assert_eq!(reported.1, reported.0.flows + reported.0.half_open);
    // Once more is no change.
    let left = list.left();
    list.apply(snapshot).expect("it is of its own run");
    assert_eq!((list.list(|list| list.header), list.left()), (reported.0, left));
}
