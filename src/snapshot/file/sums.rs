//! The tables of a snapshot: the sum of all changes, partition by partition.
//!
//! What enters: deltas. What leaves: tables that hold what is open, and their cells in a file. The place of a key does
//! not depend on the partition, so the tables of several partitions, or of several routers, can be added up into one.

use super::fields::{FieldReader, FieldWriter};
use crate::error::Result;
use crate::flow::{FlowKey, KeyV4, KeyV6};
use crate::sketch::{Geometry, Iblt, TableCell, TableKey};
use crate::snapshot::{Delta, DeltaGeometry};
use std::io::{self, Read, Write};

/// Cells that are read or written at once: some tens of kilobytes, which stay in the cache.
const SNAPSHOT_CELLS_AT_ONCE: usize = 1 << 10;

/// The sums of one partition, or of all of them together.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    /// IPv4 connections.
    pub v4: Iblt<KeyV4>,
    /// IPv6 connections.
    pub v6: Iblt<KeyV6>,
}

/// The size of a cell in a file, in bytes.
fn cell_size<K: TableKey<Cell: TableCell>>() -> u64 {
    <K::Cell as TableCell>::SIZE as u64
}

impl Sums {
    /// Empty sums.
    #[must_use]
    pub fn new(geometry: DeltaGeometry) -> Self {
        Sums { v4: Iblt::new(geometry.v4), v6: Iblt::new(geometry.v6) }
    }

    /// The shapes of the tables.
    #[must_use]
    pub fn geometry(&self) -> DeltaGeometry {
        DeltaGeometry { v4: self.v4.geometry(), v6: self.v6.geometry() }
    }

    /// Adds a delta. A family in which nothing changed is skipped.
    ///
    /// # Panics
    ///
    /// The delta does not have the shape of the sums: its changes would be lost.
    pub fn add(&mut self, delta: &Delta) {
        let is_added = (delta.v4.is_untouched() || self.v4.merge(&delta.v4.table).is_ok())
            && (delta.v6.is_untouched() || self.v6.merge(&delta.v6.table).is_ok());
        assert!(is_added, "all deltas have the shape of their sum");
    }

    /// The number of open connections by these sums.
    #[must_use]
    pub fn surplus(&self) -> i64 {
        self.v4.surplus() + self.v6.surplus()
    }

    /// The size of tables of this shape in a file, in bytes.
    #[must_use]
    pub fn file_size(geometry: DeltaGeometry) -> u64 {
        geometry.v4.cell_count() as u64 * cell_size::<KeyV4>() + geometry.v6.cell_count() as u64 * cell_size::<KeyV6>()
    }

    pub(super) fn write(&self, out: &mut FieldWriter<impl Write>) -> io::Result<()> {
        write_cells(&self.v4, out)?;
        write_cells(&self.v6, out)
    }

    pub(super) fn read(geometry: DeltaGeometry, from: &mut FieldReader<impl Read>) -> Result<Self> {
        Ok(Sums { v4: read_cells(geometry.v4, from)?, v6: read_cells(geometry.v6, from)? })
    }
}

fn write_cells<K>(table: &Iblt<K>, out: &mut FieldWriter<impl Write>) -> io::Result<()>
where
    K: TableKey<Cell: TableCell>,
{
    let size = cell_size::<K>() as usize;
    let mut bytes = vec![0; SNAPSHOT_CELLS_AT_ONCE * size];
    for cells in table.cells().chunks(SNAPSHOT_CELLS_AT_ONCE) {
        cells.iter().zip(bytes.chunks_mut(size)).for_each(|(cell, bytes)| cell.write(bytes));
        out.put(&bytes[..cells.len() * size])?;
    }
    Ok(())
}

/// Reads the cells of a table. The vector grows with what is really there.
fn read_cells<K>(geometry: Geometry, from: &mut FieldReader<impl Read>) -> Result<Iblt<K>>
where
    K: TableKey<Cell: TableCell> + FlowKey,
{
    let size = cell_size::<K>() as usize;
    let mut bytes = vec![0; SNAPSHOT_CELLS_AT_ONCE * size];
    let mut cells: Vec<K::Cell> = Vec::new();
    while cells.len() < geometry.cell_count() {
        let count = SNAPSHOT_CELLS_AT_ONCE.min(geometry.cell_count() - cells.len());
        from.fill(&mut bytes[..count * size])?;
        cells.extend(bytes[..count * size].chunks(size).map(<K::Cell as TableCell>::read));
    }
    cells.shrink_to_fit();
    Iblt::from_cells(geometry, &cells).ok_or_else(|| from.refuse("a table is not whole"))
}
