//! The records of all partitions in one order: of one connection as they were sent, and where there are cuts an order
//! that does not depend on threads.

use crate::archive::sorter::Sorter;
use crate::record::{Message, Outlet, Record};
use crate::signal::PARTITION_COUNT;
use std::cmp::Ordering;

/// A record with what it is sorted by.
#[derive(Clone, Copy)]
struct Placed {
    /// The tick, then the partition, then the order in which the partition sent them.
    place: (i64, usize, u64),
    record: Record,
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Placed {}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place.cmp(&other.place)
    }
}

/// Brings records into order.
pub(crate) struct Order {
    /// What sorts records between two cuts, where there are cuts.
    sorter: Option<Sorter<Placed>>,
    /// The number of records that each partition has sent.
    sent: [u64; PARTITION_COUNT],
    ready: Vec<Record>,
}

impl Order {
    /// The order of the records of a replay, which are sorted between two cuts; or of a live capture, which are taken
    /// as they come.
    pub(crate) fn new(sorts: bool) -> Self {
        Order { sorter: sorts.then(Sorter::new), sent: [0; PARTITION_COUNT], ready: Vec::new() }
    }

    /// Takes what came out of the queue, and gives its block back. Returns whether what is ready now is all up to a cut
    /// at which the state of the run is saved.
    pub(crate) fn take(&mut self, message: Message, outlet: &Outlet) -> bool {
        match (message, &mut self.sorter) {
            (Message::Records(block), Some(sorter)) => {
                let partition = block.partition();
                let sent = &mut self.sent[partition % PARTITION_COUNT];
                let placed = block.records().iter().map(|record| {
                    *sent += 1;
                    Placed { place: (record.end, partition, *sent), record: *record }
                });
                sorter.add(partition, placed);
                outlet.recycle(block);
                false
            }
            (Message::Records(block), None) => {
                self.ready.extend_from_slice(block.records());
                outlet.recycle(block);
                false
            }
            (Message::Cut { partition, saves }, Some(sorter)) => {
                let Some((sorted, saves)) = sorter.cut(partition, saves) else { return false };
                self.ready.extend(sorted.iter().map(|placed| placed.record));
                saves
            }
            (Message::Cut { .. }, None) => false,
        }
    }

    /// Makes all that was taken ready: no partition has more to send before its next cut.
    pub(crate) fn drain(&mut self) {
        if let Some(sorter) = &mut self.sorter {
            self.ready.extend(sorter.drain().iter().map(|placed| placed.record));
        }
    }

    /// Takes out the records whose place is known, in order.
    pub(crate) fn ready(&mut self) -> impl Iterator<Item = Record> {
        self.ready.drain(..)
    }
}
