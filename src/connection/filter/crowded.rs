//! Where the first bucket of a connection is crowded: to which of its two it goes, what moves for it, and what has to go.
//!
//! What enters: the entry of a connection that has none, and how old others are. What leaves: its place, and what that took.

use super::{EXTENSIONS, FREE_WHEN_CROWDED, Filter, OVERFLOWED, Placed, SLOT_COUNT, Slot};
use crate::connection::{Entry, State};
use crate::signal::ConnectionHash;

impl Filter {
    /// [`Filter::insert`] where the first bucket is crowded.
    #[inline(never)]
    pub(super) fn insert_crowded(
        &mut self,
        hash: ConnectionHash,
        entry: &Entry,
        now: u64,
        age: impl Fn(&Entry) -> u32,
    ) -> Option<(Slot, Placed)> {
        self.insert_or(hash, entry, now, |filter, buckets| filter.make_room(buckets, now, age))
    }

    /// Places an entry of little worth: for a candidate the oldest candidate goes where both buckets are full, and
    /// nothing else goes for any.
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
        let free = self.free_of(buckets, now).map(|slot| (slot, Placed::Free));
        let (slot, placed) = free.or_else(|| room(self, buckets))?;
        self.write_new(buckets, slot, entry);
        Some((slot, placed))
    }

    /// A free place in the emptier of two buckets.
    #[inline]
    fn free_of(&self, [first, second]: [usize; 2], now: u64) -> Option<Slot> {
        let mut places = (first, self.free_places(first, now));
        if !places.1.is_more_than(FREE_WHEN_CROWDED) {
            let others = self.free_places(second, now);
            if others.count() > places.1.count() {
                places = (second, others);
            }
        }
        (!places.1.is_empty()).then(|| Slot::new(places.0, places.1.first()))
    }

    /// Writes the entry of a connection that had none.
    #[inline]
    fn write_new(&mut self, [first, _]: [usize; 2], slot: Slot, entry: &Entry) {
        if slot.bucket() != first {
            self.buckets[first].0[EXTENSIONS] |= OVERFLOWED;
        }
        self.write(slot, entry, slot.seen());
    }

    /// A free place of a bucket.
    #[inline]
    fn free(&self, bucket: usize, now: u64) -> Option<Slot> {
        let places = self.free_places(bucket, now);
        (!places.is_empty()).then(|| Slot::new(bucket, places.first()))
    }

    /// Makes room in one of two full buckets, and tells what it took.
    #[cold]
    fn make_room(&mut self, buckets: [usize; 2], now: u64, age: impl Fn(&Entry) -> u32) -> Option<(Slot, Placed)> {
        let weakest = self.weakest(buckets, age);
        if let Some((slot, entry)) = weakest.filter(|(_, entry)| entry.state == State::Closed) {
            return Some((slot, Placed::Evicted(entry)));
        }
        let moved = self.move_one(buckets, now).map(|(from, to)| (from, Placed::Moved(to)));
        moved.or(weakest.map(|(slot, entry)| (slot, Placed::Evicted(entry))))
    }

    fn slots(buckets: [usize; 2]) -> impl Iterator<Item = Slot> {
        buckets.into_iter().flat_map(|bucket| (0..SLOT_COUNT as u32).map(move |index| Slot::new(bucket, index)))
    }

    /// Moves one entry of two full buckets to its other bucket; the place that it leaves, and the one that it has now.
    fn move_one(&mut self, buckets: [usize; 2], now: u64) -> Option<(Slot, Slot)> {
        let (from, to) = Self::slots(buckets).find_map(|from| {
            let other = self.other_bucket(from.bucket(), self.get(from).fingerprint);
            Some((from, self.free(other, now)?))
        })?;
        self.set(to, &self.get(from));
        // What was seen there was seen here.
        if self.take_seen(from) {
            self.mark_seen(to);
        } else {
            self.take_seen(to);
        }
        self.buckets[from.bucket()].0[EXTENSIONS] |= OVERFLOWED;
        Some((from, to))
    }

    /// The entry that a new connection may push out: by state first, then by age.
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
