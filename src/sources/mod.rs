//! Who is opening connections: attempts per source address, in a memory that is fixed whatever traffic comes.
//!
//! What enters: the signals of shards. What leaves: at the end of an interval every source with its attempts, how many of them
//! were answered and refused; or, where there were more sources than the counters list, those that stand out, with bounds, and
//! about how many are not named.
//!
//! - An attempt is a packet with SYN and without ACK and RST; every one counts, so a SYN that is sent again is another.
//! - An answer is a packet with SYN and ACK that comes back to the source; every one counts too.
//! - A refusal is an RST of the other side while nothing but the SYN of a connection was seen: one at most for each start.
//!   What the connection filter had to forget of a flood can not be refused any more.
//! - Unanswered is the rest of the attempts.
//!
//! Counters are invertible Bloom counters whose multiplicity is the number of all three kinds of events, with the answers and
//! refusals as values beside it: then no event goes without a trace in count, key and check, and what a lone key has beside it
//! is its own. They are linear, so those of several shards are added up. Beside them stand, for each partition, the sources
//! seen of late that came more than once (`recent`), since a counter that is overloaded can be asked but not listed; and the
//! number of different sources (`distinct`). None of it depends on how partitions are shared out to threads.

mod address;
mod delta;
mod distinct;
mod ledger;
mod recent;
mod tally;

pub use delta::{SourceDelta, SourceGeometry};
pub use ledger::{Period, Report, Source, SourceLedger};
pub use tally::{SourceEvent, SourceTally, event_of};
