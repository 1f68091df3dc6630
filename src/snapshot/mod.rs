//! Snapshot files: every open connection of a router, in a fixed size, for another machine to peel.
//!
//! A snapshot is the sum of all deltas since the start, and what a list's header needs beside it. Its file is
//! compressed, and authenticated under the site's secret. Whoever has the secret can list the connections; the secret
//! itself is not in the file. `docs/snapshots.md` describes the format byte by byte.
//!
//! The laws: what is written reads back equal; a file in which any bit was changed is refused, or read only so far as
//! it is genuine ([`SnapshotFile::salvage`]); two files whose headers fit add and subtract cell by cell, in any order.
//!
//! There is no size estimator beside the tables, because the tables are one: the squares of a table's counts add up to
//! the number of keys in it at any load ([`Iblt::estimated_count`](flowpeel_iblt::Iblt::estimated_count)), folded or
//! not, to within a factor of 1 ± the square root of 2 / cells. So a digest that was made too small still shows by how
//! much. A [`flowpeel_iblt::Estimator`] would have to be given every key, which a router without a
//! list does not have, and would count a connection that two routers saw at different times as a difference.

mod contents;
mod difference;
mod envelope;
mod file_format;
mod header;
mod merge;
mod partition_changes;
mod partition_image;
mod router_part;
mod salvage;
mod sums;

pub(crate) use contents::summed;
pub use contents::{KeyCounts, Load, Presence};
pub use difference::Difference;
pub use envelope::{HASH_ID, Packing, Section, VERSION};
pub use file_format::{COMPRESSION_LEVEL, SNAPSHOT_HALF_OPEN_SIZE, SNAPSHOT_SIZE_MAX, SnapshotFile};
pub use header::{Header, KeyId, Kind, Misfit};
pub use partition_image::PartitionImage;
pub use router_part::{Figures, ROUTER_NAME_SIZE_MAX, RouterPart, Shortfall, Since, is_name};
pub use salvage::Salvaged;
pub use sums::Sums;

pub use crate::handover::*;
pub use crate::queue::{Marker, Seen};
/// The files under their former name.
pub use crate::snapshot as file;

#[cfg(test)]
mod tests;
