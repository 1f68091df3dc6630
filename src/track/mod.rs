//! Signals -> exactly one opening and one closing for each connection, summed into deltas.
//!
//! A [`Shard`] owns [`Partition`]s and shares them with no other thread. In each, a [`Tracker`] turns the signals into
//! events. It is an approximate concurrent state machine (Bonomi et al., "Beyond Bloom Filters") in fixed memory: a
//! filter of 9-byte entries without keys, rings with the keys of the connections that are not established yet, and sums
//! of those that find no room. The partition sums the events into a delta, which it hands over at the end of an
//! interval or when the delta holds half of what it can list.

mod ended;
mod entry;
mod filter;
mod half_open;
mod hashed_words;
mod partition;
mod refused;
mod rivals;
mod shard;
mod side_sums;
mod tracker;

pub use entry::{ConnectionState, FilterEntry, ISN_UNKNOWN, SLOT_COUNT};
pub use filter::{Filter, FilterConfig, FilterSlot, Moved, Placed};
pub use half_open::HALF_OPEN_MAX;
pub use partition::{DELTA_LOAD_PERCENT, DELTA_SPAN_MAX_TICKS, Partition, PartitionConfig};
pub use refused::{LeftConnection, RefusedCounts};
pub use shard::{BUCKET_AHEAD, Exchange, SECOND_AHEAD, SIGNAL_AHEAD, Shard};
pub use tracker::{CANDIDATE_TIMEOUT_TICKS, CONNECTIONS_MAX, Event, LINGER_TICKS, Sighting, Tracker, TrackerConfig};

#[cfg(test)]
mod tests;
