//! The table for keys of a few words, where speed matters: [`Iblt`].
//!
//! It differs from a [`Table`](crate::Table) in what a packet path needs: cells aligned to the cache line, four
//! subtables fixed at compile time, hashes computed by the caller (in groups), values that may carry a check of their
//! own, and a recipient that takes what is peeled, so that no list is built.
//!
//! - [`Geometry`]: the shape of a table, and where in it a hash points.
//! - [`Iblt`]: the cells, and single updates ([`Change`]).
//! - [`Batch`]: updates hashed 64 together, with their cells prefetched.
//! - [`Peeler`]: lists what is in a table and gives it to a [`Recipient`].
//! - [`ValueCode`]: 24-bit payloads as values that carry a check.
//!
//! Laws, which the tests hold: updates commute; inserting and removing a pair leaves nothing; `a` merged with `b` holds
//! what both hold together; peeling takes out only what is in the table, and what it takes out plus what it leaves is
//! the table.

mod batch;
mod geometry;
mod iblt;
mod peeler;
mod value_code;

pub use batch::{BATCH_COUNT, Batch, Latest, Updates};
pub use geometry::{Geometry, HASH_COUNT};
pub use iblt::{Change, Iblt};
pub use peeler::{AGGREGATE_LOST_BITS_MAX, Peeled, Peeler, Recipient};
pub use value_code::{PAYLOAD_BITS, ValueCode};

#[cfg(test)]
mod tests;
