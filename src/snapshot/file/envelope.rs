//! The envelope of a snapshot file: what it is, how long it is, and that it is genuine.
//!
//! What enters: a packed body and the secret, or a stream of unknown origin and the secret. What leaves: the file, or
//! the packed body, but only once every byte is known to have been written by somebody with the secret. Until then
//! nothing of the body is parsed, and no more memory is taken than there are bytes, up to the limit.

use super::header::{KeyId, Kind};
use crate::error::{Error, Result};
use crate::hash::Secret;
use crate::snapshot::file::SNAPSHOT_SIZE_MAX;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::io::{Read, Write};

/// The first bytes of a file. The first of them is not text, and a transfer that treats the file as text damages the
/// last.
const MAGIC: [u8; 8] = *b"\x89FPSNAP\n";

/// The version of the format.
pub const VERSION: u16 = 1;

/// How keys are placed and checked: full AES-128 as a CBC-MAC, 24 bits for each place, 32 for the check of a key and 40
/// for the check of a value.
pub const HASH_ID: u16 = 1;

pub(super) const PREAMBLE_SIZE: usize = 48;
pub(super) const TAG_SIZE: usize = 32;

/// What packing can add to a body that does not shrink: zstd adds 3 bytes to each 128 KiB, and a few at either end.
const PACKING_SIZE_MAX: u64 = SNAPSHOT_SIZE_MAX / 1_024 + 1_024;

/// How the body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Packing {
    /// The body is not packed.
    Plain = 0,
    /// The body is one zstd frame.
    Zstd = 1,
}

/// The fields before the body.
pub(super) struct Preamble {
    pub(super) kind: Kind,
    pub(super) packing: Packing,
    pub(super) key_id: KeyId,
    /// The size of the body before it was packed.
    pub(super) body_size: u64,
}

fn code(secret: &Secret) -> Hmac<Sha256> {
    secret.authentication(b"flowpeel snapshot file")
}

/// Writes a file with this packed body.
pub(super) fn write(out: &mut impl Write, preamble: &Preamble, packed: &[u8], secret: &Secret) -> std::io::Result<()> {
    let mut bytes = [0; PREAMBLE_SIZE];
    let mut rest = bytes.as_mut_slice();
    rest.write_all(&MAGIC)?;
    rest.write_all(&VERSION.to_le_bytes())?;
    rest.write_all(&HASH_ID.to_le_bytes())?;
    rest.write_all(&[preamble.kind as u8, preamble.packing as u8, 0, 0])?;
    rest.write_all(&preamble.key_id.0)?;
    rest.write_all(&preamble.body_size.to_le_bytes())?;
    rest.write_all(&(packed.len() as u64).to_le_bytes())?;
    let mut code = code(secret);
    code.update(&bytes);
    code.update(packed);
    out.write_all(&bytes)?;
    out.write_all(packed)?;
    out.write_all(&code.finalize().into_bytes())
}

/// Reads a file to its end. Returns its preamble and its packed body.
pub(super) fn read(mut input: impl Read, secret: &Secret) -> Result<(Preamble, Vec<u8>)> {
    let cannot = |error: std::io::Error| Error::new("cannot read the snapshot").because(error);
    let mut bytes = Vec::new();
    input.by_ref().take(PREAMBLE_SIZE as u64).read_to_end(&mut bytes).map_err(cannot)?;
    let mut code = code(secret);
    code.update(&bytes);
    let (preamble, packed_size) = parse(&bytes, secret)?;
    let mut packed = Vec::new();
    let expected_size = packed_size + TAG_SIZE as u64;
    // One byte more tells whether something follows.
    input.take(expected_size + 1).read_to_end(&mut packed).map_err(cannot)?;
    let found_size = packed.len() as u64;
    if found_size < expected_size {
        let what = format!("the snapshot was cut short: {} bytes are missing", expected_size - found_size);
        return Err(Error::new(what).at(PREAMBLE_SIZE as u64 + found_size));
    }
    if found_size > expected_size {
        return Err(Error::new("something follows the snapshot").at(PREAMBLE_SIZE as u64 + expected_size));
    }
    let tag = packed.split_off(packed_size as usize);
    code.update(&packed);
    // The comparison takes the same time wherever the first difference is.
    code.verify_slice(&tag)
        .map_err(|_| Error::new("the snapshot was damaged or forged: its authentication code is wrong"))?;
    Ok((preamble, packed))
}

/// Parses the preamble. Returns it with the size of the packed body.
fn parse(bytes: &[u8], secret: &Secret) -> Result<(Preamble, u64)> {
    let refuse = |at: usize, what: String| Err(Error::new(what).at(at as u64));
    if !bytes.starts_with(&MAGIC) {
        return refuse(0, "this is no snapshot of flowpeel".to_owned());
    }
    let Ok(bytes) = <&[u8; PREAMBLE_SIZE]>::try_from(bytes) else {
        return refuse(bytes.len(), "the snapshot was cut short in its first bytes".to_owned());
    };
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let (version, hash_id) = (u16_at(8), u16_at(10));
    if version != VERSION {
        return refuse(
            8,
            format!("version {version} of the format is not known: this flowpeel reads version {VERSION}"),
        );
    }
    if hash_id != HASH_ID {
        return refuse(10, format!("hash id {hash_id} is not known: this flowpeel places keys by hash id {HASH_ID}"));
    }
    let Some(kind) = Kind::of_byte(bytes[12]) else {
        return refuse(12, format!("a snapshot of kind {} is not known", bytes[12]));
    };
    let packing = match bytes[13] {
        0 => Packing::Plain,
        1 => Packing::Zstd,
        other => return refuse(13, format!("packing {other} is not known")),
    };
    if u16_at(14) != 0 {
        return refuse(14, "two bytes that must be zero are not".to_owned());
    }
    let (key_id, own) = (KeyId(std::array::from_fn(|at| bytes[16 + at])), KeyId::of(secret));
    if key_id != own {
        let what = format!("it was written under another secret (key id {key_id}, not {own}): name its --secret-file");
        return refuse(16, what);
    }
    let (body_size, packed_size) = (u64_at(32), u64_at(40));
    if body_size > SNAPSHOT_SIZE_MAX || packed_size > SNAPSHOT_SIZE_MAX + PACKING_SIZE_MAX {
        let what = format!("the snapshot claims {body_size} bytes, packed in {packed_size}: more than is read");
        return refuse(32, what);
    }
    if packing == Packing::Plain && body_size != packed_size {
        return refuse(40, "two sizes that must be equal are not".to_owned());
    }
    Ok((Preamble { kind, packing, key_id, body_size }, packed_size))
}
