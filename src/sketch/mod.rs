//! Invertible Bloom lookup tables (Goodrich and Mitzenmacher, "Invertible Bloom Lookup Tables", arXiv:1101.2245; "the
//! paper" in this module): fixed-size sums of key-value pairs that can be added, subtracted and, while they hold few
//! enough, listed exactly.
//!
//! What enters: keys with their hashes, values, and how often. What leaves: the same, peeled out of a table again, and
//! the residue that could not be. Pure algorithm: nothing here knows a packet, a thread or a file.
//!
//! Laws, which the tests hold: updates commute; `insert` then `remove` leaves nothing; `a + b` holds what `a` and `b`
//! hold together; peeling takes out only what is in the table, and what it takes out plus what it leaves is the table.

mod cell;
mod geometry;
mod iblt;
mod peel;
mod value;

pub use cell::{Cell, TableKey};
pub use geometry::{Geometry, HASH_COUNT, check_of};
pub use iblt::{Change, Iblt};
pub use peel::{Peeled, Peeler, Recipient};
pub use value::{PAYLOAD_BITS, ValueCode};

#[cfg(test)]
mod tests;
