//! The tables of connections: the cells, the placement and the peeling of the crate, tuned for flow keys.
//!
//! What enters: flow keys with their hashes, values, and counts. What leaves: the same, peeled out of a table again,
//! and the residue that could not be. These tables differ from the general ones in what the packet path needs: cells
//! aligned to the cache line, four subtables fixed at compile time, hashes given by the caller (who has them in
//! groups), values that carry their own check, and a recipient that takes what is peeled, so that no list is built.
//!
//! Laws, which the tests hold: updates commute; `insert` then `remove` leaves nothing; `a + b` holds what `a` and `b`
//! hold together; peeling takes out only what is in the table, and what it takes out plus what it leaves is the table.

mod batch;
mod geometry;
mod iblt;
mod peeler;
mod value_code;

pub use batch::{BATCH_COUNT, Batch, Latest, Updates};
pub use geometry::{Geometry, HASH_COUNT, check_of};
pub use iblt::{Change, Iblt};
pub use peeler::{AGGREGATE_LOST_BITS_MAX, Peeled, Peeler, Recipient};
pub use value_code::{PAYLOAD_BITS, ValueCode};

#[cfg(test)]
mod tests;
