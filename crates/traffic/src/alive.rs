//! The queue of everything that will send a packet later, connections and delayed copies of packets, in the order in
//! which it is due.
//!
//! Slots are reused, so the memory is that of the most entries that were ever alive at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::connection::Connection;
use crate::packet::Packet;
use crate::random::Random;

/// An entry that waits for its time.
#[derive(Clone, Debug)]
pub(super) enum Waiting {
    /// A connection, for its next packet.
    Connection(Connection),
    /// A packet that is captured a second time.
    Copy(Packet),
}

/// When an entry is due, and where it is. Entries that are due at the same time come in the order in which they were
/// inserted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    time_us: u64,
    order: u64,
    place: usize,
}

// The documentation of the parent module promises this size for each entry.
const _: () = assert!(size_of::<Option<Waiting>>() + size_of::<Reverse<Due>>() + size_of::<usize>() <= 200);

/// All entries that are alive.
#[derive(Default)]
pub(super) struct Alive {
    due: BinaryHeap<Reverse<Due>>,
    places: Vec<Option<Waiting>>,
    free: Vec<usize>,
    order: u64,
}

impl Alive {
    /// When the first entry is due.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.due.peek().map(|Reverse(due)| due.time_us)
    }

    /// How many entries are alive.
    pub(super) fn count(&self) -> usize {
        self.due.len()
    }

    /// Inserts an entry that is due at `time_us`.
    pub(super) fn insert(&mut self, waiting: Waiting, time_us: u64) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(waiting);
        self.push(place, time_us);
    }

    /// The entry that is due first: its time and its place. It must be put back by [`push`](Self::push) or taken out by
    /// [`remove`](Self::remove).
    pub(super) fn pop(&mut self) -> Option<(u64, usize)> {
        self.due.pop().map(|Reverse(due)| (due.time_us, due.place))
    }

    /// The entry at `place`.
    pub(super) fn at(&mut self, place: usize) -> Option<&mut Waiting> {
        self.places.get_mut(place)?.as_mut()
    }

    /// Makes the entry at `place` due again.
    pub(super) fn push(&mut self, place: usize, time_us: u64) {
        self.due.push(Reverse(Due { time_us, order: self.order, place }));
        self.order += 1;
    }

    /// Takes out the entry at `place`.
    pub(super) fn remove(&mut self, place: usize) -> Option<Waiting> {
        self.free.push(place);
        self.places.get_mut(place)?.take()
    }

    /// A connection for which `wanted` holds, if one of `try_count` random draws hits one.
    pub(super) fn draw(
        &mut self,
        try_count: usize,
        random: &mut Random,
        wanted: impl Fn(&Connection) -> bool,
    ) -> Option<&mut Connection> {
        let place = (0..try_count).find_map(|_| {
            let place = random.below(self.places.len() as u64) as usize;
            match self.places.get(place) {
                Some(Some(Waiting::Connection(connection))) if wanted(connection) => Some(place),
                _ => None,
            }
        })?;
        match self.at(place) {
            Some(Waiting::Connection(connection)) => Some(connection),
            _ => None,
        }
    }
}
