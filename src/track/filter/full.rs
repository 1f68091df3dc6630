//! Insertion where the first bucket of a connection is full: which bucket it goes to, what moves for it, and what is
//! evicted.
//!
//! What enters: the entry of a connection that has none, and the ages of others. What leaves: its place, and what it
//! took.

use super::slots::unused_and_closed;
use super::{EXTENSIONS, Filter, Moved, OVERFLOWED, Placed, SLOT_COUNT, Slot};
use crate::signal::ConnectionHash;
use crate::track::{Entry, State};

/// Entries that are tried for a chain of two moves to place a half-open connection: each takes seven look-ups, with
/// which no flood is to keep a shard busy.
const HALF_OPEN_MOVES_TRIED_MAX: usize = 3;

/// A place that an entry can be moved to.
#[derive(Clone, Copy)]
struct Place {
    slot: Slot,
    /// Whether a closed entry that would still linger has to be evicted for it.
    is_closed: bool,
}

impl Filter {
    /// [`Filter::insert`] for a connection whose first bucket is full.
    #[inline(never)]
    pub(super) fn insert_beside(
        &mut self,
        hash: ConnectionHash,
        entry: &Entry,
        now: u64,
        age: impl Fn(&Entry) -> u32,
    ) -> Option<(Slot, Placed)> {
        self.insert_or(hash, entry, now, |filter, buckets| filter.make_room(buckets, entry, now, age))
    }

    /// Places an entry that is worth little. If both buckets are full, a candidate evicts the oldest candidate; nothing
    /// else evicts anything.
    pub fn insert_weak(
        &mut self,
        hash: ConnectionHash,
        entry: &Entry,
        now: u64,
        age: impl Fn(&Entry) -> u32,
    ) -> Option<(Slot, Placed)> {
        self.insert_or(hash, entry, now, |filter, buckets| {
            let entries = Self::slots(buckets).map(|slot| (slot, filter.get(slot)));
            let candidates = entries.filter(|(_, held)| held.state == State::Candidate);
            let (slot, oldest) = candidates.max_by_key(|(_, held)| age(held))?;
            (entry.state == State::Candidate).then_some((slot, Placed::Evicted(oldest)))
        })
    }

    /// Places an entry where there is a free place in one of its buckets, or else where `room` is made.
    #[inline(always)]
    fn insert_or(
        &mut self,
        hash: ConnectionHash,
        entry: &Entry,
        now: u64,
        room: impl FnOnce(&mut Self, [usize; 2]) -> Option<(Slot, Placed)>,
    ) -> Option<(Slot, Placed)> {
        let buckets = self.bucket_indices(hash);
        let free = buckets.into_iter().find_map(|bucket| self.free_slot(bucket, now));
        let (slot, placed) = free.map(|slot| (slot, Placed::Free)).or_else(|| room(self, buckets))?;
        if slot.bucket() != buckets[0] {
            self.buckets[buckets[0]].0[EXTENSIONS] |= OVERFLOWED;
        }
        self.write(slot, entry, slot.seen());
        Some((slot, placed))
    }

    /// A free place in a bucket.
    fn free(&self, bucket: usize, now: u64) -> Option<Place> {
        self.free_slot(bucket, now).map(|slot| Place { slot, is_closed: false })
    }

    /// A place in a bucket that has a closed entry.
    fn closed(&self, bucket: usize) -> Option<Place> {
        let (_, places) = unused_and_closed(&self.buckets[bucket]);
        (!places.is_empty()).then(|| Place { slot: Slot::new(bucket, places.first()), is_closed: true })
    }

    /// Makes room for an entry in its two buckets, which are both full, and tells how.
    #[cold]
    fn make_room(
        &mut self,
        buckets: [usize; 2],
        entry: &Entry,
        now: u64,
        age: impl Fn(&Entry) -> u32,
    ) -> Option<(Slot, Placed)> {
        let weakest = self.weakest(buckets, age).map(|(slot, entry)| (slot, Placed::Evicted(entry)));
        if let Some((_, Placed::Evicted(Entry { state: State::Closed, .. }))) = weakest {
            return weakest;
        }
        let moved = self.move_one(buckets, |filter, bucket| filter.free(bucket, now));
        let moved = moved.or_else(|| self.move_one(buckets, Self::closed));
        // A chain of two moves takes many look-ups, with which no flood is to keep a shard busy.
        let tried_count = if entry.state.is_established() { 2 * SLOT_COUNT } else { HALF_OPEN_MOVES_TRIED_MAX };
        moved.or(weakest).or_else(|| self.move_two(buckets, tried_count, now))
    }

    fn slots(buckets: [usize; 2]) -> impl Iterator<Item = Slot> {
        buckets.into_iter().flat_map(Self::slots_of)
    }

    fn slots_of(bucket: usize) -> impl Iterator<Item = Slot> {
        (0..SLOT_COUNT as u32).map(move |index| Slot::new(bucket, index))
    }

    /// Moves one entry of two full buckets to its other bucket, if `place` finds a place there.
    fn move_one(
        &mut self,
        buckets: [usize; 2],
        place: impl Fn(&Self, usize) -> Option<Place>,
    ) -> Option<(Slot, Placed)> {
        let (from, to) = Self::slots(buckets).find_map(|from| Some((from, place(self, self.other_of(from))?)))?;
        self.relocate(from, to.slot);
        Some((from, Placed::Moved(Moved { to: [Some(to.slot), None], has_forgotten: to.is_closed })))
    }

    /// Moves one of the first `tried_count` entries of two full buckets to its other bucket, which is full too, and for
    /// that an entry of the other bucket to its own other bucket.
    fn move_two(&mut self, buckets: [usize; 2], tried_count: usize, now: u64) -> Option<(Slot, Placed)> {
        let (from, via, to) = Self::slots(buckets).take(tried_count).find_map(|from| {
            let mut others = Self::slots_of(self.other_of(from)).map(|via| (via, self.other_of(via)));
            others.find_map(|(via, last)| Some((from, via, self.free(last, now).or_else(|| self.closed(last))?)))
        })?;
        self.relocate(via, to.slot);
        self.relocate(from, via);
        Some((from, Placed::Moved(Moved { to: [Some(via), Some(to.slot)], has_forgotten: to.is_closed })))
    }

    /// The other bucket of the entry at a place.
    fn other_of(&self, slot: Slot) -> usize {
        self.other_bucket(slot.bucket(), self.get(slot).fingerprint)
    }

    /// Moves an entry from one slot to another, which is in its other bucket.
    fn relocate(&mut self, from: Slot, to: Slot) {
        self.set(to, &self.get(from));
        // The bit that says whether the connection was seen moves too.
        if self.take_seen(from) {
            self.mark_seen(to);
        } else {
            self.take_seen(to);
        }
        self.buckets[from.bucket()].0[EXTENSIONS] |= OVERFLOWED;
    }

    /// The entry to evict for a new connection: by state first, then by age.
    fn weakest(&self, buckets: [usize; 2], age: impl Fn(&Entry) -> u32) -> Option<(Slot, Entry)> {
        let weakness = |entry: &Entry| match entry.state {
            State::Closed => 4,
            State::Candidate => 3,
            State::SynSent => 2,
            state if state.is_answered() => 1,
            _ => 0,
        };
        let entries = Self::slots(buckets).map(|slot| (slot, self.get(slot))).filter(|(_, entry)| weakness(entry) > 0);
        entries.max_by_key(|(_, entry)| (weakness(entry), age(entry)))
    }
}
