//! One partition of a snapshot as bytes, which can be moved without the other partitions.
//!
//! It takes a snapshot of one router and gives for each partition what a file has of it, not packed: the head, the
//! subtables and the half-open connections; and from such images the snapshot again. Images of successive snapshots of
//! a run have tables of one size, in which what did not change stands at the same place.

use super::file_format::subtable_size;
use super::router_part::read_half_open_of;
use super::{Header, KeyId, Kind, SnapshotFile, Sums};
use crate::disk::Decoder;
use crate::error::{Error, Result};
use crate::flow::{AnyKey, FlowKey as TableKey, KeyV4, KeyV6};
use crate::handover::HalfOpen;
use crate::signal::{PARTITION_COUNT, Partitions};
use crate::snapshot::envelope::Section;
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Geometry, HASH_COUNT, Iblt};

/// What a snapshot holds of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionImage {
    /// The head of the snapshot, which is that of all its partitions.
    pub head: Vec<u8>,
    /// The IPv4 table and the IPv6 table, subtable by subtable.
    pub tables: Vec<u8>,
    /// The half-open connections.
    pub half_open: Vec<u8>,
}

impl SnapshotFile {
    /// The images of all partitions of a snapshot of one router.
    ///
    /// Complexity: a copy of the tables.
    ///
    /// # Errors
    ///
    /// This is a merge or a digest, or the secret is not that of its key id.
    pub fn partition_images(&self, secret: &Secret) -> Result<Vec<PartitionImage>> {
        if self.header.kind != Kind::Snapshot {
            return Err(Error::new("only a snapshot of one router is cut into its partitions"));
        }
        self.check(secret)?;
        let half_open = self.half_open_parts(secret);
        let cannot = |error: std::io::Error| Error::new("cannot cut the snapshot into partitions").because(error);
        let (head, _) = self.head(&half_open).map_err(cannot)?;
        let image = |partition: usize| {
            let tables = self.sums[partition].table_bytes();
            let (of_half_open, _) = self.write_section(Section::HalfOpen { partition }, &half_open, Vec::new())?;
            Ok(PartitionImage { head: head.clone(), tables, half_open: of_half_open })
        };
        (0..self.header.partition_count).map(image).collect::<std::io::Result<_>>().map_err(cannot)
    }

    /// The snapshot of these images, which are those of its partitions in their order. A partition without an image is
    /// empty.
    ///
    /// Complexity: a copy of the tables. No memory is taken for what is only claimed.
    ///
    /// # Errors
    ///
    /// There is no image, they are of different snapshots, or one contradicts itself.
    pub fn of_partition_images(
        images: &[Option<&PartitionImage>; PARTITION_COUNT],
        key_id: KeyId,
        secret: &Secret,
    ) -> Result<Self> {
        let mut heads = images.iter().flatten().map(|image| image.head.as_slice());
        let head = heads.next().ok_or_else(|| Error::new("there is no image of any partition"))?;
        if heads.any(|other| other != head) {
            return Err(Error::new("these are partitions of different snapshots"));
        }
        let (mut header, half_open_counts) =
            Header::read(Kind::Snapshot, key_id, &mut Decoder::of_file(head, head.len() as u64))?;
        let partitions = Partitions::new(secret);
        let mut sums = Vec::new();
        for (partition, image) in images.iter().enumerate() {
            let Some(image) = image else {
                sums.push(Sums::new(header.geometry));
                continue;
            };
            sums.push(read_tables(&header, &image.tables)?);
            let count = half_open_counts.iter().map(|counts| counts[partition]).sum();
            let half_open = read_half_open(&image.half_open, count, |key| partitions.of(key) == partition)?;
            header.sources.iter_mut().for_each(|source| source.half_open.extend_from_slice(&half_open));
        }
        let snapshot = SnapshotFile { header, sums };
        snapshot.check(secret)?;
        Ok(snapshot)
    }
}

pub(super) fn read_tables(header: &Header, tables: &[u8]) -> Result<Sums> {
    let mut from = Decoder::of_file(tables, tables.len() as u64);
    let table_size =
        HASH_COUNT as u64 * (subtable_size::<KeyV4>(header.geometry.v4) + subtable_size::<KeyV6>(header.geometry.v6));
    if from.left() != table_size {
        return Err(from.refuse("the tables have not the size that the header says"));
    }
    let sums = Sums { v4: read_table(header.geometry.v4, &mut from)?, v6: read_table(header.geometry.v6, &mut from)? };
    from.end()?;
    Ok(sums)
}

fn read_table<K: TableKey>(geometry: Geometry, from: &mut Decoder<&[u8]>) -> Result<Iblt<K>> {
    let mut subtables = std::array::from_fn::<_, HASH_COUNT, _>(|_| None);
    for subtable in &mut subtables {
        *subtable = Some(Iblt::<K>::read_subtable(geometry, |bytes| from.fill(bytes))?);
    }
    let refused = |refused| Error::new("the tables contradict the header").because(refused);
    Iblt::from_subtables(geometry, &subtables).map_err(refused)
}

fn read_half_open(bytes: &[u8], count: u32, is_own: impl Fn(&AnyKey) -> bool) -> Result<Vec<HalfOpen>> {
    let mut from = Decoder::of_file(bytes, bytes.len() as u64);
    let half_open = read_half_open_of(&mut from, count, is_own)?;
    from.end()?;
    Ok(half_open)
}
