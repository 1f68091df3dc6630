//! The file of a snapshot: a header and tables in, bytes out, and back.
//!
//! The tables are written subtable by subtable, each into a section of its own. The half-open connections of each
//! partition are one more. How sections are proven is the envelope's part.

use super::envelope::{Envelope, PackedSection, Packing, Preamble, Section, write_envelope};
use super::router_part::{read_half_open_of, write_half_open};
use super::salvage::Salvaged;
use super::{Header, KeyId, Kind, Misfit, RouterPart, Sums};
use crate::disk::{Decoder, Encoder};
use crate::error::{Error, Result};
use crate::flow::{Family, FlowKey as TableKey};
use crate::handover::HalfOpen;
use crate::signal::Partitions;
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{AGGREGATE_LOST_BITS_MAX, Geometry, HASH_COUNT, Iblt, Refused};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// The level at which lists are compressed: 6.5 to 1 at 670 MB a second. Level 3 takes 1.6 times as long for 1 % less,
/// and level 9 nine times as long for 9 %: what is left are addresses and hashes.
pub const COMPRESSION_LEVEL: i32 = 1;

/// The most bytes of a snapshot file, before compression: tables for a churn of ten million. A reader holds at most
/// about twice this, for any claims of the file.
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
        SnapshotFile::read(file(path)?, secret).map_err(|error| error.in_file(path))
    }

    /// Reads a file to its end.
    ///
    /// Complexity: linear in the size of the input. At most about twice [`SNAPSHOT_SIZE_MAX`] and one table of memory
    /// is taken, and none for what is only claimed.
    ///
    /// # Errors
    ///
    /// The input is no snapshot, or one of another version or secret; it was damaged, cut short or forged; or it
    /// contradicts itself. Offsets up to the head are those of the file, later ones those of the head or of a section
    /// unpacked.
    pub fn read(input: impl Read, secret: &Secret) -> Result<Self> {
        let envelope = Envelope::read(input, secret)?;
        envelope.check_size()?;
        let parts = Parts::of(&envelope)?;
        if let Some(section) = parts.damaged().next() {
            let at = envelope.offset(section.index(parts.header.partition_count));
            let what = format!("the snapshot was damaged or forged: the authentication code of {section} is wrong");
            return Err(Error::new(what).at(at));
        }
        parts.unpacked(secret).map(|salvaged| salvaged.file)
    }

    /// Reads what is genuine of a file that was damaged, from the disk.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or is refused by [`Self::salvage`].
    pub fn open_damaged(path: &Path, secret: &Secret) -> Result<Salvaged> {
        SnapshotFile::salvage(file(path)?, secret).map_err(|error| error.in_file(path))
    }

    /// Reads what is genuine of a file that was damaged or cut short: its sections stand by themselves, and a table
    /// that has lost subtables lists what the others list. Nothing is taken from a section whose code is wrong.
    ///
    /// Complexity: as [`Self::read`].
    ///
    /// # Errors
    ///
    /// As [`Self::read`], except that sections may be damaged or missing and something may follow. The head must be
    /// genuine.
    ///
    /// ```
    /// # use flowpeel_iblt::hash::Secret;
    /// # use flowpeel_iblt::Geometry;
    /// # use flowpeel::handover::DeltaGeometry;
    /// # use flowpeel::snapshot::{SnapshotFile, RouterPart};
    /// let geometry = DeltaGeometry { v4: Geometry::for_items(100), v6: Geometry::for_items(10) };
    /// let snapshot = SnapshotFile::new(geometry, false, &Secret::REPLAY, RouterPart::default());
    /// let mut bytes = Vec::new();
    /// snapshot.write(&mut bytes, &Secret::REPLAY)?;
    /// let last = bytes.len() - 1;
    /// bytes[last] ^= 1;
    /// assert!(SnapshotFile::read(bytes.as_slice(), &Secret::REPLAY).is_err());
    /// let salvaged = SnapshotFile::salvage(bytes.as_slice(), &Secret::REPLAY)?;
    /// assert_eq!(salvaged.damaged().len(), 1);
    /// # Ok::<(), flowpeel::error::Error>(())
    /// ```
    pub fn salvage(input: impl Read, secret: &Secret) -> Result<Salvaged> {
        Parts::of(&Envelope::read(input, secret)?)?.unpacked(secret)
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
        let partition_count = self.header.partition_count;
        let half_open = self.half_open_parts(secret);
        let (head, mut size) = self.head(&half_open).map_err(cannot)?;
        let mut sections = Vec::new();
        for section in Section::all(partition_count) {
            let packed = self.pack(section, &half_open, packing).map_err(cannot)?;
            size = size.saturating_add(packed.size);
            sections.push((section, packed));
        }
        if size > SNAPSHOT_SIZE_MAX {
            return Err(Error::new("the snapshot is larger than any that would be read: merge fewer routers"));
        }
        let preamble = Preamble { kind: self.header.kind, packing, key_id: self.header.key_id };
        write_envelope(out, &preamble, &head, &sections, secret).map_err(cannot)
    }

    /// The half-open connections of each router, partition by partition.
    pub(super) fn half_open_parts(&self, secret: &Secret) -> Vec<Vec<Vec<&HalfOpen>>> {
        let (partitions, count) = (Partitions::new(secret), self.header.partition_count);
        self.header.sources.iter().map(|source| source.half_open_by_partition(&partitions, count)).collect()
    }

    /// Checks that its parts fit together and that the secret is that of its key id.
    pub(super) fn check(&self, secret: &Secret) -> Result<()> {
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

    /// The head and its size, of routers with these half-open connections in each partition.
    pub(super) fn head(&self, half_open: &[Vec<Vec<&HalfOpen>>]) -> io::Result<(Vec<u8>, u64)> {
        let counts = |parts: &Vec<Vec<_>>| parts.iter().map(|part| part.len() as u32).collect();
        let counts: Vec<Vec<u32>> = half_open.iter().map(counts).collect();
        let mut out = Encoder::to(Vec::new());
        self.header.write(&counts, &mut out);
        out.finish()
    }

    fn pack(&self, section: Section, half_open: &[Vec<Vec<&HalfOpen>>], packing: Packing) -> io::Result<PackedSection> {
        let (bytes, size) = match packing {
            Packing::Plain => self.write_section(section, half_open, Vec::new())?,
            Packing::Zstd => {
                let mut packer = zstd::stream::write::Encoder::new(Vec::new(), COMPRESSION_LEVEL)?;
                packer.include_checksum(true)?;
                let (packer, size) = self.write_section(section, half_open, packer)?;
                (packer.finish()?, size)
            }
        };
        Ok(PackedSection { size, bytes })
    }

    pub(super) fn write_section<W: Write>(
        &self,
        section: Section,
        half_open: &[Vec<Vec<&HalfOpen>>],
        out: W,
    ) -> io::Result<(W, u64)> {
        let mut out = Encoder::to(out);
        match section {
            Section::HalfOpen { partition } => {
                let all = half_open.iter().flat_map(|parts| &parts[partition]);
                all.for_each(|half_open| write_half_open(half_open, &mut out));
            }
            Section::Subtable { at, family, partition } => self.sums[partition].write_subtable(at, family, &mut out),
        }
        out.finish()
    }
}

/// Opens a file to be read.
fn file(path: &Path) -> Result<File> {
    let cannot = |error: io::Error| Error::new("cannot read the snapshot").in_file(path).because(error);
    // Opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(Error::new("this is no file").in_file(path));
    }
    File::open(path).map_err(cannot)
}

/// What is genuine of a file: its head, and the packed bytes of its sections.
struct Parts<'a> {
    header: Header,
    /// How many half-open connections each router has in each partition.
    half_open_counts: Vec<Vec<u32>>,
    envelope: &'a Envelope,
    /// The sections; those that are damaged are `None`.
    sections: Vec<Option<&'a [u8]>>,
}

impl<'a> Parts<'a> {
    /// Parses the head, and finds out which sections are genuine.
    fn of(envelope: &'a Envelope) -> Result<Self> {
        let Preamble { kind, key_id, .. } = envelope.preamble;
        let mut from = Decoder::of_file(envelope.head.as_slice(), envelope.head.len() as u64);
        let (header, half_open_counts) = Header::read(kind, key_id, &mut from)?;
        let partition_count = header.partition_count;
        if envelope.section_count() != Section::count(partition_count) {
            return Err(from.refuse("the sections are not those of so many partitions"));
        }
        for (index, section) in Section::all(partition_count).enumerate() {
            let expected = match section {
                Section::Subtable { family: Family::V4, .. } => subtable_size::<crate::flow::KeyV4>(header.geometry.v4),
                Section::Subtable { family: Family::V6, .. } => subtable_size::<crate::flow::KeyV6>(header.geometry.v6),
                Section::HalfOpen { .. } => continue,
            };
            if envelope.size(index) != expected {
                return Err(from.refuse(format!("{section} has not the size that the header says")));
            }
        }
        let sections = Section::all(partition_count).enumerate();
        let sections = sections.map(|(index, section)| envelope.genuine(section, index)).collect();
        Ok(Parts { header, half_open_counts, envelope, sections })
    }

    /// The sections that are damaged.
    fn damaged(&self) -> impl Iterator<Item = Section> {
        let all = Section::all(self.header.partition_count).zip(&self.sections);
        all.filter(|(_, bytes)| bytes.is_none()).map(|(section, _)| section)
    }

    /// Unpacks the sections that are genuine.
    fn unpacked(mut self, secret: &Secret) -> Result<Salvaged> {
        let damaged: Vec<Section> = self.damaged().collect();
        let half_open_lost = self.read_half_open(&Partitions::new(secret))?;
        let mut sums = Vec::new();
        for partition in 0..self.header.partition_count {
            let v4 = self.table(self.header.geometry.v4, Family::V4, partition)?;
            sums.push(Sums { v4, v6: self.table(self.header.geometry.v6, Family::V6, partition)? });
        }
        Ok(Salvaged::new(SnapshotFile { header: self.header, sums }, damaged, half_open_lost))
    }

    /// Reads the half-open connections into the routers' parts. Returns how many are lost.
    fn read_half_open(&mut self, partitions: &Partitions) -> Result<u64> {
        let partition_count = self.header.partition_count;
        let mut lost = 0;
        for partition in 0..partition_count {
            let counts = self.half_open_counts.iter().map(|counts| counts[partition]);
            let section = Section::HalfOpen { partition };
            let Some(read) = self.read_section(section, |from| {
                let is_own = |key: &_| partition_count == 1 || partitions.of(key) == partition;
                counts.clone().map(|count| read_half_open_of(from, count, is_own)).collect::<Result<Vec<_>>>()
            })?
            else {
                lost += counts.map(u64::from).sum::<u64>();
                continue;
            };
            for (source, half_open) in self.header.sources.iter_mut().zip(read) {
                source.half_open.extend(half_open);
            }
        }
        self.header.sources.iter_mut().for_each(|source| source.half_open.shrink_to_fit());
        Ok(lost)
    }

    /// The table of a partition, without the subtables that are damaged. Where all are it is empty.
    fn table<K: TableKey>(&self, geometry: Geometry, family: Family, partition: usize) -> Result<Iblt<K>> {
        let mut subtables = std::array::from_fn::<_, HASH_COUNT, _>(|_| None);
        for (at, subtable) in subtables.iter_mut().enumerate() {
            let section = Section::Subtable { at, family, partition };
            *subtable =
                self.read_section(section, |from| Iblt::<K>::read_subtable(geometry, |bytes| from.fill(bytes)))?;
        }
        match Iblt::from_subtables(geometry, &subtables) {
            Ok(table) => Ok(table),
            Err(Refused::Subtable) => Ok(Iblt::new(geometry)),
            Err(refused) => Err(Error::new("the tables contradict the header").because(refused)),
        }
    }

    /// Unpacks a section to its end and decodes it; `None` if it is damaged.
    fn read_section<T>(
        &self,
        section: Section,
        decode: impl FnOnce(&mut Decoder<Box<dyn Read + '_>>) -> Result<T>,
    ) -> Result<Option<T>> {
        let index = section.index(self.header.partition_count);
        let Some(packed) = self.sections[index] else { return Ok(None) };
        let cannot = |error: io::Error| Error::new(format!("cannot unpack {section}")).because(error);
        let unpacked: Box<dyn Read> = match self.envelope.preamble.packing {
            Packing::Plain => Box::new(packed),
            Packing::Zstd => {
                let mut unpacked = zstd::stream::read::Decoder::with_buffer(packed).map_err(cannot)?;
                unpacked.window_log_max(SNAPSHOT_WINDOW_LOG_MAX).map_err(cannot)?;
                Box::new(unpacked)
            }
        };
        let mut from = Decoder::of_file(unpacked, self.envelope.size(index));
        let decoded = decode(&mut from)?;
        from.end()?;
        Ok(Some(decoded))
    }
}

/// The size of a subtable of a table of this shape in a file, in bytes.
pub(super) fn subtable_size<K: TableKey>(geometry: Geometry) -> u64 {
    Iblt::<K>::byte_count(geometry) / HASH_COUNT as u64
}
