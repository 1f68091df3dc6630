//! What partitions and the flow list give each other: the changes of an interval, or of a part of one, as tables; the
//! half-open connections and the counts at its end; and the list's questions with their answers.
//!
//! A delta is swapped for an empty one as a whole: nothing is copied. Deltas are linear: those of an interval's parts
//! add up to the interval's, and those of all intervals to what is open.

mod counts;
mod ends;
pub(crate) mod half_open;
mod saved;
mod sides_seen;

pub use counts::{CountInfo, CountMetric, Counts, PartsMetric};
pub use ends::{Ended, Ending, Ends};
pub use half_open::{HalfOpen, HalfOpenList, ISN_BITS, PRESUMED_MAX_TICKS};
pub(crate) use saved::{save_cells, saved_cells};
pub use sides_seen::SidesSeen;

use crate::flow::FlowKey as TableKey;
use crate::flow::{AnyKey, KeyV4, KeyV6};
use crate::queue::Marker;
use crate::signal::{TICK_BITS, TimeBase};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Batch, Geometry, Iblt, Latest};
use std::time::Duration;

/// The flag in a payload that marks a connection whose start was not seen.
pub const MIDSTREAM: u32 = 1 << TICK_BITS;

/// How many ticks before the tick `now` the connection with this payload started, up to the wrap.
#[must_use]
#[inline]
pub fn ticks_since(payload: u32, now: u64) -> u32 {
    (now as u32).wrapping_sub(payload) & ((1 << TICK_BITS) - 1)
}

/// The most listed connections of each family that a partition is asked about at the end of one interval: some
/// milliseconds of its time, and with the answers 60 MB of memory for all partitions.
pub const INQUIRY_MAX: usize = 1 << 15;

/// The most open connections that a partition announces at the end of one interval.
pub const ANNOUNCEMENTS_MAX: usize = 1 << 15;

/// The shapes of a delta's two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaGeometry {
    /// The shape of the IPv4 table.
    pub v4: Geometry,
    /// The shape of the IPv6 table.
    pub v6: Geometry,
}

impl DeltaGeometry {
    /// The size of the tables in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        Iblt::<KeyV4>::size(self.v4) + Iblt::<KeyV6>::size(self.v6)
    }
}

/// The openings and closings of one family.
pub struct Changes<K: TableKey> {
    /// The sum of the changes.
    pub table: Iblt<K>,
    /// The number of changes.
    pub updates: u64,
    /// The most openings and closings that the table can hold: those of one connection cancel.
    pub items: u64,
    /// The latest of the changes, which are not in the table yet.
    pub latest: Latest<K>,
}

impl<K: TableKey> Changes<K> {
    /// The changes in this table, none of which is counted yet.
    #[must_use]
    pub fn of(table: Iblt<K>) -> Self {
        Changes { table, updates: 0, items: 0, latest: Latest::none() }
    }

    /// Clears the tables and the counts. The latest changes must have been summed before.
    fn clear(&mut self) {
        if !self.is_untouched() {
            self.table.clear();
        }
        self.begin_again();
    }

    /// Resets the counts after the table was emptied.
    fn begin_again(&mut self) {
        debug_assert!(self.table.is_zero());
        (self.updates, self.items) = (0, 0);
    }

    /// Whether no change was made.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.updates == 0
    }
}

/// What opened and closed in one partition since the last hand-over.
pub struct Delta {
    /// IPv4 connections.
    pub v4: Changes<KeyV4>,
    /// IPv6 connections.
    pub v6: Changes<KeyV6>,
}

impl Delta {
    /// An empty delta.
    #[must_use]
    pub fn new(geometry: DeltaGeometry) -> Self {
        Delta { v4: Changes::of(Iblt::new(geometry.v4)), v6: Changes::of(Iblt::new(geometry.v6)) }
    }

    /// Clears the tables and the counts. The latest changes must have been summed before.
    pub fn clear(&mut self) {
        self.v4.clear();
        self.v6.clear();
    }

    /// Resets the counts after the tables were emptied.
    pub fn begin_again(&mut self) {
        self.v4.begin_again();
        self.v6.begin_again();
    }

    /// Whether no change was made.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.v4.is_untouched() && self.v6.is_untouched()
    }
}

/// Sums the latest changes of deltas into their tables. This has to be done before anything is read from a delta.
pub struct LatestSums {
    v4: Batch<KeyV4>,
    v6: Batch<KeyV6>,
}

impl LatestSums {
    /// A `LatestSums` for deltas that were filled under this secret.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        LatestSums { v4: Batch::new(secret), v6: Batch::new(secret) }
    }

    /// Sums the latest changes of a delta into its tables.
    pub fn sum_into(&mut self, delta: &mut Delta) {
        self.v4.sum(&mut delta.v4.latest, &mut delta.v4.table);
        self.v6.sum(&mut delta.v6.latest, &mut delta.v6.table);
    }
}

/// What one partition hands over.
pub struct HandOver {
    /// The index of the partition.
    pub partition: usize,
    /// The changes since the last hand-over. `None` if nothing changed, or if there was no empty delta to swap in.
    pub delta: Option<Box<Delta>>,
    /// Whether there was no empty delta to swap in, so that the changes are still in the shard.
    pub is_held_back: bool,
    /// The tick of the hand-over.
    pub tick: u64,
    /// The wall time of the ticks.
    pub base: TimeBase,
    /// The interval that ends with this hand-over, if one does.
    pub end: Option<IntervalEnd>,
    /// The answer to an inquiry, as of this hand-over.
    pub findings: Option<Findings>,
}

/// Why a connection is to be taken off without having been seen to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The connection was not seen for too long. It stays if it was seen since it was last asked about.
    Idle,
    /// The connection is too old.
    Aged,
}

/// The list's questions to a partition: what it needs when it cannot decode its residue, and whether listed connections
/// are still alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inquiry {
    /// Listed connections, each with the payload that it opened with.
    pub listed: Vec<(AnyKey, u32)>,
    /// The most connections that the partition is to announce, of those that packets show to be open.
    pub announcements_max: usize,
    /// Listed connections to close, each with the payload that it opened with. If none is open under this key and
    /// payload, the question is out of date and closes nothing.
    pub evict: Vec<(AnyKey, u32, Eviction)>,
}

impl Inquiry {
    /// The size of a question, and of its answer, in bytes.
    pub const QUESTION_SIZE: usize = size_of::<(AnyKey, u32, Eviction)>();
}

/// The partition's answer to an [`Inquiry`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The listed connections that are not open.
    pub gone: Vec<(AnyKey, u32)>,
    /// Connections that are open, each with the payload that it opened with.
    pub open: Vec<(AnyKey, u32)>,
    /// The listed connections, and those to be evicted, that were seen since they were last asked about.
    pub seen: Vec<(AnyKey, u32)>,
    /// Those of them of which only packets before a leap of time were seen: the last, or one before it.
    pub seen_before: Vec<(AnyKey, u32)>,
    /// Those of `seen` and `seen_before` of which one side has ended.
    pub half_closed: Vec<(AnyKey, u32)>,
    /// The tick before that leap.
    pub leap_tick: u64,
}

/// A saved partition.
pub struct SavedPartition {
    /// The partition's part of the state.
    pub bytes: Vec<u8>,
    /// How long the partition took to encode it, and did nothing else.
    pub took: Duration,
}

/// What a partition hands over at the end of an interval beside its changes.
pub struct IntervalEnd {
    /// The interval.
    pub marker: Marker,
    /// The half-open connections.
    pub half_open: Option<Box<HalfOpenList>>,
    /// The counts since the start.
    pub counts: Counts,
    /// What ended in the interval, if that is wanted.
    pub ends: Ends,
    /// The saved partition, if that was asked for and no changes are held back.
    pub saved: Option<SavedPartition>,
}
