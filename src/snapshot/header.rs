//! What a snapshot says of itself before its tables.
//!
//! It takes the shape of its tables and where they come from, and gives the same in a file, where every number is
//! checked against its limit before it is used; and whether two snapshots fit.

use super::router_part::{self, RouterPart};
use super::sums::Sums;
use crate::disk::{Decoder, Encoder, Items};
use crate::error::{Error, Result};
use crate::handover::DeltaGeometry;
use crate::signal::PARTITION_COUNT;
use crate::snapshot::file_format::{SNAPSHOT_HALF_OPEN_SIZE, SNAPSHOT_SIZE_MAX, SNAPSHOT_SOURCES_MAX};
use flowpeel_iblt::Geometry;
use flowpeel_iblt::hash::Secret;
use std::fmt;
use std::io::{Read, Write};

/// What a snapshot is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A snapshot of one router, in full.
    Snapshot = 1,
    /// A sum of several routers.
    Merge = 2,
    /// A snapshot or a merge that was folded to what a few differences need.
    Digest = 3,
}

impl Kind {
    pub(super) fn of_byte(byte: u8) -> Option<Self> {
        [Kind::Snapshot, Kind::Merge, Kind::Digest].into_iter().find(|kind| *kind as u8 == byte)
    }

    /// The name of the kind in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Snapshot => "snapshot",
            Kind::Merge => "merge",
            Kind::Digest => "digest",
        }
    }
}

/// The identity of the secret under which tables were filled. Anybody with the secret can compute it; the secret cannot
/// be computed from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyId(pub [u8; 16]);

impl KeyId {
    /// The identity of a secret.
    #[must_use]
    pub fn of(secret: &Secret) -> Self {
        let mut id = [0; 16];
        id.iter_mut().zip(secret.derived(b"flowpeel key id")).for_each(|(byte, derived)| *byte = derived);
        KeyId(id)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// All of a snapshot but its tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// What the snapshot is of.
    pub kind: Kind,
    /// The identity of the secret under which its tables were filled.
    pub key_id: KeyId,
    /// Whether VLAN tags are part of keys.
    pub vlan_key: bool,
    /// The shapes of its tables.
    pub geometry: DeltaGeometry,
    /// The shapes of the tables that its routers keep. Their number of cells in a subtable is a multiple of that in
    /// `geometry`: that many neighbours were added up into one cell.
    pub unfolded: DeltaGeometry,
    /// The number of pairs of tables: one for each of [`PARTITION_COUNT`] partitions, or one for all together.
    pub partition_count: usize,
    /// The routers: at least one, and in a snapshot exactly one.
    pub sources: Vec<RouterPart>,
}

const HAS_VLAN_KEY: u8 = 1;

/// The most bytes of a head in a file: a header with as many routers as there can be.
pub(super) const HEAD_SIZE_MAX: usize = 1 + 2 + 4 * 4 + 4 + SNAPSHOT_SOURCES_MAX * router_part::SIZE_MAX;

impl Header {
    /// The size of the tables in a file, in bytes.
    #[must_use]
    pub(super) fn tables_size(&self) -> u64 {
        self.partition_count as u64 * Sums::file_size(self.geometry)
    }

    /// The number of routers. No key is in the tables more often, unless the filter of one of them was wrong.
    #[must_use]
    pub fn router_count(&self) -> u32 {
        u32::try_from(self.sources.len()).unwrap_or(u32::MAX)
    }

    /// The end of the latest interval of its routers, in ns since 1970.
    #[must_use]
    pub fn end_ns(&self) -> i64 {
        self.sources.iter().map(|source| source.figures.end_ns).max().unwrap_or(0)
    }

    /// How many neighbouring cells of the routers' tables were added up into each cell: IPv4, then IPv6.
    #[must_use]
    pub fn runs(&self) -> (u32, u32) {
        let run = |unfolded: Geometry, folded: Geometry| unfolded.subtable_cell_count() / folded.subtable_cell_count();
        (run(self.unfolded.v4, self.geometry.v4), run(self.unfolded.v6, self.geometry.v6))
    }

    /// Whether the tables are as routers keep them: of all partitions, and not folded.
    pub(super) fn is_whole(&self) -> bool {
        self.geometry == self.unfolded && self.partition_count == PARTITION_COUNT
    }

    /// The most half-open connections that a file with these tables may hold.
    fn half_open_max(&self) -> usize {
        (SNAPSHOT_SIZE_MAX.saturating_sub(self.tables_size()) / SNAPSHOT_HALF_OPEN_SIZE) as usize
    }

    /// Checks that tables of this number and shape are possible.
    fn check_tables(&self) -> Result<()> {
        let divides = |unfolded: Geometry, folded: Geometry| {
            unfolded.subtable_cell_count().is_multiple_of(folded.subtable_cell_count())
        };
        let objection = if !matches!(self.partition_count, 1 | PARTITION_COUNT) {
            format!("tables for {} partitions: there are 1 or {PARTITION_COUNT}", self.partition_count)
        } else if !divides(self.unfolded.v4, self.geometry.v4) || !divides(self.unfolded.v6, self.geometry.v6) {
            "folded tables that were not folded evenly".to_owned()
        } else if self.tables_size() > SNAPSHOT_SIZE_MAX {
            let (size, most) = (self.tables_size() >> 20, SNAPSHOT_SIZE_MAX >> 20);
            format!("tables of {size} MiB: {most} are the most, so lower --churn")
        } else {
            return Ok(());
        };
        Err(Error::new(objection))
    }

    /// Checks that its parts fit together.
    pub(super) fn check(&self) -> Result<()> {
        self.check_tables()?;
        let half_open_count: usize = self.sources.iter().map(|source| source.half_open.len()).sum();
        let objection = if self.sources.is_empty() || self.sources.len() > SNAPSHOT_SOURCES_MAX {
            format!("{} routers: there are 1 to {SNAPSHOT_SOURCES_MAX}", self.sources.len())
        } else if self.kind == Kind::Snapshot && (self.sources.len() != 1 || !self.is_whole()) {
            "a snapshot is of one router, with all partitions, and not folded".to_owned()
        } else if half_open_count > self.half_open_max() {
            let most = self.half_open_max();
            format!("{half_open_count} half-open connections: beside its tables {most} are the most")
        } else {
            return self.sources.iter().try_for_each(RouterPart::check);
        };
        Err(Error::new(objection))
    }

    /// Writes it. Of each router there are so many half-open connections in each partition.
    pub(super) fn write(&self, half_open_counts: &[Vec<u32>], out: &mut Encoder<impl Write>) {
        out.u8(if self.vlan_key { HAS_VLAN_KEY } else { 0 });
        out.u16(self.partition_count as u16);
        for geometry in [self.geometry.v4, self.geometry.v6, self.unfolded.v4, self.unfolded.v6] {
            out.u32(geometry.subtable_cell_count());
        }
        out.u32(self.sources.len() as u32);
        self.sources.iter().zip(half_open_counts).for_each(|(source, counts)| source.write(counts, out));
    }

    /// Reads it, without its half-open connections. Returns how many of them each router has in each partition.
    pub(super) fn read(kind: Kind, key_id: KeyId, from: &mut Decoder<impl Read>) -> Result<(Self, Vec<Vec<u32>>)> {
        let vlan_key = from.flags(HAS_VLAN_KEY)? == HAS_VLAN_KEY;
        let partition_count = usize::from(from.u16()?);
        let geometry = DeltaGeometry { v4: shape(from)?, v6: shape(from)? };
        let unfolded = DeltaGeometry { v4: shape(from)?, v6: shape(from)? };
        let mut header = Header { kind, key_id, vlan_key, geometry, unfolded, partition_count, sources: Vec::new() };
        let contradicts = |from: &Decoder<_>, error| from.refuse("the header contradicts itself").because(error);
        header.check_tables().map_err(|error| contradicts(from, error))?;
        let mut half_open_counts = Vec::new();
        let mut half_open_max = header.half_open_max();
        let routers = Items { name: "routers", most: SNAPSHOT_SOURCES_MAX, item_size: router_part::SIZE_MIN };
        for _ in 0..from.items(routers)? {
            let (source, counts) = RouterPart::read(from, partition_count, half_open_max)?;
            half_open_max -= counts.iter().sum::<u32>() as usize;
            header.sources.push(source);
            half_open_counts.push(counts);
        }
        header.check().map_err(|error| contradicts(from, error))?;
        from.end()?;
        Ok((header, half_open_counts))
    }

    /// Checks that the tables of both can be added and subtracted.
    ///
    /// # Errors
    ///
    /// The first field that differs and must not.
    pub fn check_fits(&self, other: &Self) -> std::result::Result<(), Misfit> {
        let cells =
            |header: &Self| (header.geometry.v4.subtable_cell_count(), header.geometry.v6.subtable_cell_count());
        let ((v4, v6), (other_v4, other_v6)) = (cells(self), cells(other));
        let partitions = (self.partition_count as u32, other.partition_count as u32);
        if self.key_id != other.key_id {
            Err(Misfit::KeyId(self.key_id, other.key_id))
        } else if self.vlan_key != other.vlan_key {
            Err(Misfit::VlanKey(self.vlan_key, other.vlan_key))
        } else if partitions.0 != partitions.1 {
            Err(Misfit::Partitions(partitions.0, partitions.1))
        } else if v4 != other_v4 {
            Err(Misfit::CellsV4(v4, other_v4))
        } else if v6 != other_v6 {
            Err(Misfit::CellsV6(v6, other_v6))
        } else {
            Ok(())
        }
    }
}

fn shape(from: &mut Decoder<impl Read>) -> Result<Geometry> {
    let count = from.u32()?;
    let geometry = Geometry::new(count);
    // A number out of range would be replaced by the nearest in range.
    if geometry.subtable_cell_count() == count {
        Ok(geometry)
    } else {
        Err(from.refuse(format!("a table with {count} cells in each subtable: there is none")))
    }
}

/// The field in which two snapshots differ so that they do not fit, with its value in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The identities of the secrets.
    KeyId(KeyId, KeyId),
    /// Whether VLAN tags are part of keys.
    VlanKey(bool, bool),
    /// The numbers of partitions: one of the two may be a digest.
    Partitions(u32, u32),
    /// The cells of an IPv4 subtable.
    CellsV4(u32, u32),
    /// The cells of an IPv6 subtable.
    CellsV6(u32, u32),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("they do not go together: ")?;
        match self {
            Misfit::KeyId(one, other) => write!(f, "key id {one} and {other}: their secrets differ"),
            Misfit::VlanKey(one, other) => write!(f, "VLAN tags in keys {one} and {other}: see --vlan-key"),
            Misfit::Partitions(one, other) => write!(f, "{one} and {other} partitions"),
            Misfit::CellsV4(one, other) => write!(f, "{one} and {other} cells in an IPv4 subtable: see --churn"),
            Misfit::CellsV6(one, other) => write!(f, "{one} and {other} cells in an IPv6 subtable: see --churn"),
        }
    }
}

impl std::error::Error for Misfit {}
