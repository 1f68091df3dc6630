//! The sources that open connections: attempts for each source address, in a fixed amount of memory for any traffic.
//!
//! Shards count their signals; at the end of an interval the ledger reports every source with its attempts, and how
//! many of them were answered and refused. If there were more sources than the counters list, it reports those that
//! stand out, with bounds, and estimates how many are not named.
//!
//! - An attempt is a packet with SYN and without ACK and RST. Every one counts, so a retransmitted SYN is another.
//! - An answer is a packet with SYN and ACK that comes back to the source. Every one counts too.
//! - A refusal is an RST of the other side while only the SYN of a connection was seen: at most one for each start.
//!   What the connection filter had to forget in a flood can no longer be refused.
//! - The rest of the attempts are unanswered.
//!
//! A packet that several interfaces of one router show is one attempt or answer (`copies`).
//!
//! The counters are invertible Bloom counters. A key's multiplicity is the number of its events of all three kinds, and
//! its values are the answers and refusals. So every event changes count, key and check, and the values beside a lone
//! key are its own. Counters are linear, so those of several shards are added up. Beside them are, for each partition,
//! the recent sources that came more than once (`recent`), since an overloaded counter can be asked about a key but not
//! listed; and the number of different sources (`distinct`). None of it depends on how partitions are assigned to
//! threads.

mod address;
mod copies;
mod delta;
mod distinct;
mod ledger;
mod recent;
mod tally;

pub use delta::{SOURCES_DEFAULT, SOURCES_MAX, SOURCES_MIN, SourceDelta, SourceGeometry};
pub use ledger::{Period, Report, Source, SourceLedger};
pub use tally::{SourceEvent, SourceTally, event_of};
