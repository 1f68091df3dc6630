//! Signals -> exactly one opening and one closing a connection.
//!
//! What enters: signals of one partition, in order. What leaves: events that open and close connections, half-open
//! connections on request, and counts of everything that was ignored, refused or recycled. An approximate concurrent state
//! machine (Bonomi et al., "Beyond Bloom Filters") in a fixed memory: a filter of 9-byte entries without keys, and a ring
//! with the keys of the connections that are not established yet.

mod counts;
mod entry;
mod filter;
mod half_open;
mod tracker;

pub use counts::Counts;
pub use entry::{Entry, ISN_BITS, ISN_UNKNOWN, MIDSTREAM, State};
pub use filter::{Filter, FilterConfig, Moved, Placed, SLOT_COUNT, Slot};
pub use half_open::{HalfOpen, HalfOpenList};
pub use tracker::{Event, Sighting, Tracker, TrackerConfig};

#[cfg(test)]
mod tests;
