//! The tables of a snapshot: the sum of all changes, partition by partition.
//!
//! It takes deltas and gives tables that hold what is open, and their cells in a file. The place of a key does not
//! depend on the partition, so the tables of several partitions, or of several routers, can be added up into one.

use crate::disk::Encoder;
use crate::flow::{Family, KeyV4, KeyV6};
use crate::handover::{Delta, DeltaGeometry};
use flowpeel_iblt::{HASH_COUNT, Iblt};
use std::convert::Infallible;
use std::io::Write;

/// The sums of one partition, or of all of them together.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    /// IPv4 connections.
    pub v4: Iblt<KeyV4>,
    /// IPv6 connections.
    pub v6: Iblt<KeyV6>,
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
        Iblt::<KeyV4>::byte_count(geometry.v4) + Iblt::<KeyV6>::byte_count(geometry.v6)
    }

    /// The tables as they stand in a file: the subtables of IPv4, then those of IPv6.
    pub(super) fn table_bytes(&self) -> Vec<u8> {
        let mut out = Encoder::with_capacity(Sums::file_size(self.geometry()) as usize);
        for family in [Family::V4, Family::V6] {
            (0..HASH_COUNT).for_each(|at| self.write_subtable(at, family, &mut out));
        }
        out.into_bytes()
    }

    /// Writes one subtable of the table of a family.
    pub(super) fn write_subtable(&self, at: usize, family: Family, out: &mut Encoder<impl Write>) {
        let mut put = |bytes: &[u8]| {
            out.put(bytes);
            Ok::<(), Infallible>(())
        };
        let Ok(()) = match family {
            Family::V4 => self.v4.write_subtable(at, &mut put),
            Family::V6 => self.v6.write_subtable(at, &mut put),
        };
    }
}
