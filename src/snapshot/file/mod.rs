//! Snapshot files: every open connection of a router, in a fixed size, for another machine to peel.
//!
//! What enters: the sum of all deltas since the start, and what a list's header needs beside it. What leaves: a file,
//! or the contents of one. A file is compressed, and authenticated under the site's secret. Whoever has the secret can
//! list the connections; the secret itself is not in the file. `docs/snapshots.md` describes the format byte by byte.
//!
//! The laws: what is written reads back equal; a file in which any bit was changed is refused; two files whose headers
//! fit add and subtract cell by cell, in any order.
//!
//! There is no size estimator beside the tables, because the tables are one: the squares of a table's counts add up to
//! the number of keys in it at any load ([`Iblt::estimated_count`](crate::sketch::Iblt::estimated_count)), folded or
//! not, to within a factor of 1 ± the square root of 2 / cells. So a digest that was made too small still tells by how
//! much. A [`sketch::Estimator`](crate::sketch::Estimator) would have to be given every key, which a router without a
//! list does not have, and would count a connection that two routers saw at different times as a difference.

mod counts;
mod difference;
mod envelope;
mod fields;
mod fold;
mod header;
mod load;
mod merge;
mod presence;
mod router_part;
mod sums;

pub use counts::KeyCounts;
pub(crate) use counts::summed;
pub use difference::Difference;
pub use envelope::{HASH_ID, Packing, VERSION};
pub use header::{Header, KeyId, Kind, Misfit};
pub use load::Load;
pub use presence::Presence;
pub use router_part::{Figures, ROUTER_NAME_SIZE_MAX, RouterPart, is_name};
pub use sums::Sums;

use crate::error::{Error, Result};
use crate::hash::Secret;
use crate::sketch::AGGREGATE_LOST_BITS_MAX;
use envelope::Preamble;
use fields::{FieldReader, FieldWriter};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use zstd::stream::{read::Decoder, write::Encoder};

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
/// use flowpeel::hash::Secret;
/// use flowpeel::sketch::Geometry;
/// use flowpeel::snapshot::DeltaGeometry;
/// use flowpeel::snapshot::file::{SnapshotFile, RouterPart};
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
    pub fn new(geometry: crate::snapshot::DeltaGeometry, vlan_key: bool, secret: &Secret, source: RouterPart) -> Self {
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
        let (preamble, packed) = envelope::read(input, secret)?;
        match preamble.packing {
            Packing::Plain => SnapshotFile::parse(&preamble, packed.as_slice()),
            Packing::Zstd => {
                let cannot = |error: io::Error| Error::new("cannot unpack the snapshot").because(error);
                let mut body = Decoder::with_buffer(packed.as_slice()).map_err(cannot)?;
                body.window_log_max(SNAPSHOT_WINDOW_LOG_MAX).map_err(cannot)?;
                SnapshotFile::parse(&preamble, body)
            }
        }
    }

    fn parse(preamble: &Preamble, body: impl Read) -> Result<Self> {
        let mut from = FieldReader::new(body, preamble.body_size);
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
        envelope::write(out, &preamble, &packed, secret).map_err(cannot)
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
                let mut encoder = Encoder::new(Vec::new(), COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                let (encoder, size) = self.write_body(encoder)?;
                Ok((encoder.finish()?, size))
            }
        }
    }

    fn write_body<W: Write>(&self, out: W) -> io::Result<(W, u64)> {
        let mut out = FieldWriter::new(out);
        self.header.write(&mut out)?;
        self.sums.iter().try_for_each(|sums| sums.write(&mut out))?;
        Ok(out.finish())
    }
}

#[cfg(test)]
mod tests;
