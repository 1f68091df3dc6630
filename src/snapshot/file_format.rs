//! The file of a snapshot: an envelope that proves who wrote it, and a packed body.
//!
//! Nothing of the body is parsed before every byte is known to have been written by somebody with the secret, and no
//! more memory is taken than there are bytes, up to the limit.

use super::{Header, KeyId, Kind, Misfit, RouterPart, Sums};
use crate::disk::{Check, Checked, Decoder, Encoder};
use crate::error::{Error, Result};
use flowpeel_iblt::AGGREGATE_LOST_BITS_MAX;
use flowpeel_iblt::hash::Secret;
use hmac::Hmac;
use sha2::Sha256;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// The level at which lists are compressed: 6.5 to 1 at 670 MB a second. Level 3 takes 1.6 times as long for 1 % less,
/// and level 9 nine times as long for 9 %: what is left are addresses and hashes.
pub const COMPRESSION_LEVEL: i32 = 1;

/// The most bytes of a snapshot file, before compression: tables for a churn of ten million. A reader holds at most
/// about twice this, whatever the file claims.
pub const SNAPSHOT_SIZE_MAX: u64 = 1 << 30;

/// The memory that a half-open connection of a snapshot takes in a reader, in bytes. It is more than twice what it
/// takes in the file, so this is what has to fit beside the tables. The half-open connections of fifty routers under a
/// flood do.
pub const SNAPSHOT_HALF_OPEN_SIZE: u64 = 72;

/// The largest window that a snapshot's compression may ask for, as a power of two: 8 MiB, sixteen times what is
/// written.
const SNAPSHOT_WINDOW_LOG_MAX: u32 = 23;

/// The most routers whose snapshots can be merged into one: more than a site has.
pub(super) const SNAPSHOT_SOURCES_MAX: usize = 1_024;

const _: () = assert!(1 << AGGREGATE_LOST_BITS_MAX >= SNAPSHOT_SOURCES_MAX * SNAPSHOT_SOURCES_MAX);

/// A snapshot: the contents of a file.
///
/// ```
/// use flowpeel_iblt::hash::Secret;
/// use flowpeel_iblt::Geometry;
/// use flowpeel::handover::DeltaGeometry;
/// use flowpeel::snapshot::{SnapshotFile, RouterPart};
///
/// let geometry = DeltaGeometry { v4: Geometry::for_items(100), v6: Geometry::for_items(10) };
/// let snapshot = SnapshotFile::new(geometry, false, &Secret::REPLAY, RouterPart::default());
/// let mut bytes = Vec::new();
/// snapshot.write(&mut bytes, &Secret::REPLAY)?;
/// assert_eq!(SnapshotFile::read(bytes.as_slice(), &Secret::REPLAY)?, snapshot);
/// bytes[100] ^= 1;
/// assert!(SnapshotFile::read(bytes.as_slice(), &Secret::REPLAY).is_err());
/// # Ok::<(), flowpeel::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotFile {
    /// What the snapshot says of itself.
    pub header: Header,
    /// The tables, as many as [`Header::partition_count`] says, each of [`Header::geometry`].
    pub sums: Vec<Sums>,
}

impl SnapshotFile {
    /// The snapshot of a router at its start, when nothing is open.
    #[must_use]
    pub fn new(geometry: crate::handover::DeltaGeometry, vlan_key: bool, secret: &Secret, source: RouterPart) -> Self {
        let header = Header {
            kind: Kind::Snapshot,
            key_id: KeyId::of(secret),
            vlan_key,
            geometry,
            unfolded: geometry,
            partition_count: crate::signal::PARTITION_COUNT,
            sources: vec![source],
        };
        SnapshotFile { sums: vec![Sums::new(geometry); header.partition_count], header }
    }

    /// The number of open connections by its tables: additions less removals. In a merge each counts once for every
    /// router that has it.
    #[must_use]
    pub fn surplus(&self) -> i64 {
        self.sums.iter().map(Sums::surplus).sum()
    }

    /// Checks that the tables of both can be added and subtracted.
    ///
    /// # Errors
    ///
    /// The first field that differs and must not.
    pub fn check_fits(&self, other: &Self) -> std::result::Result<(), Misfit> {
        self.header.check_fits(&other.header)
    }

    /// Reads a file from the disk.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or is refused by [`Self::read`].
    pub fn open(path: &Path, secret: &Secret) -> Result<Self> {
        let cannot = |error: io::Error| Error::new("cannot read the snapshot").in_file(path).because(error);
        // Opening a pipe would wait for a writer.
        if !std::fs::metadata(path).map_err(cannot)?.is_file() {
            return Err(Error::new("this is no file").in_file(path));
        }
        SnapshotFile::read(File::open(path).map_err(cannot)?, secret).map_err(|error| error.in_file(path))
    }

    /// Reads a file to its end.
    ///
    /// Complexity: linear in the size of the input. At most about twice [`SNAPSHOT_SIZE_MAX`] and one table of memory
    /// is taken, and none for what is only claimed.
    ///
    /// # Errors
    ///
    /// The input is no snapshot, or one of another version or secret; it was damaged, cut short or forged; or it
    /// contradicts itself. Offsets in the preamble are those of the file, later ones those of the unpacked body.
    pub fn read(input: impl Read, secret: &Secret) -> Result<Self> {
        let (preamble, packed) = read_envelope(input, secret)?;
        match preamble.packing {
            Packing::Plain => SnapshotFile::parse(&preamble, packed.as_slice()),
            Packing::Zstd => {
                let cannot = |error: io::Error| Error::new("cannot unpack the snapshot").because(error);
                let mut body = zstd::stream::read::Decoder::with_buffer(packed.as_slice()).map_err(cannot)?;
                body.window_log_max(SNAPSHOT_WINDOW_LOG_MAX).map_err(cannot)?;
                SnapshotFile::parse(&preamble, body)
            }
        }
    }

    fn parse(preamble: &Preamble, body: impl Read) -> Result<Self> {
        let mut from = Decoder::of_file(body, preamble.body_size);
        let header = Header::read(preamble.kind, preamble.key_id, &mut from)?;
        if from.left() != header.tables_size() {
            return Err(from.refuse("the tables have not the size that the header says"));
        }
        let mut sums = Vec::new();
        for _ in 0..header.partition_count {
            sums.push(Sums::read(header.geometry, &mut from)?);
        }
        from.end()?;
        Ok(SnapshotFile { header, sums })
    }

    /// Writes the snapshot, compressed.
    ///
    /// Complexity: linear in the tables, and memory of the size of the compressed file.
    ///
    /// # Errors
    ///
    /// The snapshot cannot be written, its parts do not fit together, or the secret is not that of its key id.
    pub fn write(&self, out: &mut impl Write, secret: &Secret) -> Result<()> {
        self.write_packed(out, secret, Packing::Zstd)
    }

    /// Writes the snapshot, packed in this way.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub fn write_packed(&self, out: &mut impl Write, secret: &Secret, packing: Packing) -> Result<()> {
        self.check(secret)?;
        let cannot = |error: io::Error| Error::new("cannot write the snapshot").because(error);
        let (packed, body_size) = self.pack(packing).map_err(cannot)?;
        if body_size > SNAPSHOT_SIZE_MAX {
            return Err(Error::new("the snapshot is larger than any that would be read: merge fewer routers"));
        }
        let preamble = Preamble { kind: self.header.kind, packing, key_id: self.header.key_id, body_size };
        write_envelope(out, &preamble, &packed, secret).map_err(cannot)
    }

    fn check(&self, secret: &Secret) -> Result<()> {
        self.header.check()?;
        if self.header.key_id != KeyId::of(secret) {
            return Err(Error::new("the snapshot was filled under another secret"));
        }
        let are_whole = self.sums.iter().all(|sums| sums.geometry() == self.header.geometry);
        if self.sums.len() != self.header.partition_count || !are_whole {
            return Err(Error::new("the tables are not those that the header names"));
        }
        Ok(())
    }

    /// The packed body, and its size before it was packed.
    fn pack(&self, packing: Packing) -> io::Result<(Vec<u8>, u64)> {
        match packing {
            Packing::Plain => self.write_body(Vec::new()),
            Packing::Zstd => {
                let mut packer = zstd::stream::write::Encoder::new(Vec::new(), COMPRESSION_LEVEL)?;
                packer.include_checksum(true)?;
                let (packer, size) = self.write_body(packer)?;
                Ok((packer.finish()?, size))
            }
        }
    }

    pub(super) fn write_body<W: Write>(&self, out: W) -> io::Result<(W, u64)> {
        let mut out = Encoder::to(out);
        self.header.write(&mut out);
        self.sums.iter().for_each(|sums| sums.write(&mut out));
        out.finish()
    }
}

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
pub(super) fn write_envelope(
    out: &mut impl Write,
    preamble: &Preamble,
    packed: &[u8],
    secret: &Secret,
) -> std::io::Result<()> {
    let mut encoder = Encoder::to(Checked::new(out, code(secret)));
    encoder.put(&MAGIC);
    encoder.u16(VERSION);
    encoder.u16(HASH_ID);
    encoder.put(&[preamble.kind as u8, preamble.packing as u8, 0, 0]);
    encoder.put(&preamble.key_id.0);
    encoder.u64(preamble.body_size);
    encoder.bytes(packed);
    encoder.finish()?.0.finish().map(drop)
}

/// Reads a file to its end. Returns its preamble and its packed body.
fn read_envelope(mut input: impl Read, secret: &Secret) -> Result<(Preamble, Vec<u8>)> {
    let cannot = |error: std::io::Error| Error::new("cannot read the snapshot").because(error);
    let mut bytes = Vec::new();
    input.by_ref().take(PREAMBLE_SIZE as u64).read_to_end(&mut bytes).map_err(cannot)?;
    let mut code = code(secret);
    code.update(&bytes);
    let (preamble, packed_size) = parse_preamble(&bytes, secret)?;
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
    if !code.is(&tag) {
        return Err(Error::new("the snapshot was damaged or forged: its authentication code is wrong"));
    }
    Ok((preamble, packed))
}

/// Parses the preamble. Returns it with the size of the packed body.
fn parse_preamble(bytes: &[u8], secret: &Secret) -> Result<(Preamble, u64)> {
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
