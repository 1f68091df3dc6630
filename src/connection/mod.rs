//! Signals -> exactly one opening and one closing for each connection.
//!
//! What enters: the signals of one partition, in order. What leaves: events that open and close connections, the
//! half-open connections on request, and counts of everything else. This is an approximate concurrent state machine
//! (Bonomi et al., "Beyond Bloom Filters") in fixed memory: a filter of 9-byte entries without keys, and rings with the
//! keys of the connections that are not established yet.

mod counts;
mod entry;
mod filter;
mod half_open;
mod tracker;

pub use counts::{CountInfo, CountMetric, Counts, PartsMetric};
pub use entry::{Entry, ISN_BITS, ISN_UNKNOWN, MIDSTREAM, State, ticks_since};
pub use filter::{Filter, FilterConfig, Moved, Placed, SLOT_COUNT, Slot};
pub use half_open::{HALF_OPEN_MAX, HalfOpen, HalfOpenList};
pub use tracker::{CANDIDATE_TIMEOUT_TICKS, CONNECTIONS_MAX, Event, LINGER_TICKS, Sighting, Tracker, TrackerConfig};

#[cfg(test)]
mod tests;
