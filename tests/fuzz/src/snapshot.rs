//! Files of any bytes as snapshots: as they are, and as what somebody with the secret would have written.
//!
//! What enters: a file, or a kind, a packing and a body. What leaves: nothing; what is read is written again to the
//! same, and lists, questions and figures come to an end, whatever is in the tables.

use flowpeel::flow::{AnyKey, VlanTags};
use flowpeel::list::SnapshotList;
use flowpeel::snapshot::{HASH_ID, KeyId, Packing, SnapshotFile, VERSION};
use flowpeel_iblt::hash::{SECRET_SIZE, Secret};
use hmac::Mac;

/// Where a file names its kind, and behind it its packing.
pub const KIND_AT: usize = 12;

/// Where the packed body of a file begins.
pub const BODY_BEGIN: usize = 48;

/// What stands behind it.
pub const TAG_SIZE: usize = 32;

/// Bodies that say that they are longer than this unpacked are not looked into: a few compressed bytes stand for any
/// number.
const BODY_SIZE_MAX: usize = 1 << 20;

/// The secret of the project's own snapshots, which are the seeds.
fn secret() -> Secret {
    Secret::new(std::array::from_fn::<u8, SECRET_SIZE, _>(|at| at as u8))
}

/// Runs one file, and the same bytes as a kind, a packing and a body.
pub fn run(bytes: &[u8]) {
    let secret = secret();
    if let Ok(snapshot) = SnapshotFile::read(bytes, &secret) {
        assert_laws(snapshot, &secret);
    }
    let Some(([kind, packing], body)) = bytes.split_first_chunk::<2>() else { return };
    // The size unpacked has to be known to be right, or nothing else would be looked at.
    let size = if *packing == Packing::Zstd as u8 {
        let Some(size) = unpacked_size(body) else { return };
        size
    } else {
        body.len()
    };
    if let Ok(snapshot) = SnapshotFile::read(genuine(*kind, *packing, body, size, &secret).as_slice(), &secret) {
        assert_laws(snapshot, &secret);
    }
}

/// The size of a zstd frame unpacked, unless that is vast.
fn unpacked_size(body: &[u8]) -> Option<usize> {
    zstd::bulk::decompress(body, BODY_SIZE_MAX).ok().map(|unpacked| unpacked.len())
}

/// The file that somebody with the secret would have made of a body.
fn genuine(kind: u8, packing: u8, body: &[u8], size: usize, secret: &Secret) -> Vec<u8> {
    let mut file = b"\x89FPSNAP\n".to_vec();
    file.extend(VERSION.to_le_bytes().into_iter().chain(HASH_ID.to_le_bytes()));
    file.extend([kind, packing, 0, 0]);
    file.extend(KeyId::of(secret).0);
    file.extend((size as u64).to_le_bytes().into_iter().chain((body.len() as u64).to_le_bytes()));
    assert_eq!(file.len(), BODY_BEGIN);
    file.extend(body);
    let mut code = secret.authentication(b"flowpeel snapshot file");
    code.update(&file);
    file.extend(code.finalize().into_bytes());
    file
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
    let Ok(mut list) = SnapshotList::new(&snapshot, secret) else { return };
    list.apply(snapshot.clone()).expect("it is of its own run");
    let reported = list.list(|list| (list.header, list.rows().count() as u64));
    assert_eq!(reported.1, reported.0.flows + reported.0.half_open);
    // Once more is no change.
    let left = list.left();
    list.apply(snapshot).expect("it is of its own run");
    assert_eq!((list.list(|list| list.header), list.left()), (reported.0, left));
}
