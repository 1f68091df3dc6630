//! The rings of a tracker: which half-open connections and candidates are evicted, and which time out.
//!
//! What enters: the passing of time, and newer connections that need room. What leaves: the entries of connections that
//! are not to be tracked any longer, and the half-open connections for a list. A record stays in its ring until it is
//! the oldest, or until it is compacted away because it is of no more use. Records leave in batches: the entries of
//! those that are still of use are prefetched together.

use crate::handover::HalfOpenList;
use crate::track::half_open::{Cursor, Mark, MarkedRing, Record, Rings, Room};
use crate::track::{Slot, Tracker};

/// The most records that are taken off a half-open ring together: as many as hide the memory's latency behind each
/// other.
const HALF_OPEN_BATCH_MAX: usize = 32;

/// The fewest, in a small ring.
const HALF_OPEN_BATCH_MIN: usize = 8;

/// The part of a ring that is taken off together, as one in this many: making room in a small ring does not empty it.
const HALF_OPEN_BATCHES_IN_RING: usize = 64;

const _: () = assert!(HALF_OPEN_BATCH_MIN <= HALF_OPEN_BATCH_MAX);

/// A batch of the oldest records of a ring: the slots of those that are of use, and the position behind all of them.
struct Leaving {
    slots: [Slot; HALF_OPEN_BATCH_MAX],
    count: usize,
    /// Words of the records that are of use.
    useful: usize,
    end: Cursor,
}

impl Leaving {
    /// The oldest records of a ring, up to the first that is not wanted.
    #[inline]
    fn new(ring: &MarkedRing, is_wanted: impl Fn(Record) -> bool) -> Self {
        let count_max =
            (ring.connection_count() / HALF_OPEN_BATCHES_IN_RING).clamp(HALF_OPEN_BATCH_MIN, HALF_OPEN_BATCH_MAX);
        let mut leaving =
            Leaving { slots: [Slot::default(); HALF_OPEN_BATCH_MAX], count: 0, useful: 0, end: ring.start() };
        for _ in 0..count_max {
            let Some((record, end)) = ring.after(leaving.end).filter(|(record, _)| is_wanted(*record)) else { break };
            let is_useful = ring.mark(record) != Mark::Over;
            leaving.slots[leaving.count] = ring.slot(record);
            leaving.count += usize::from(is_useful);
            leaving.useful += if is_useful { record.size() } else { 0 };
            leaving.end = end;
        }
        leaving
    }

    #[inline]
    fn slots(&self) -> &[Slot] {
        &self.slots[..self.count]
    }
}

impl Tracker {
    /// Removes everything that has been half-open or a candidate for too long. Not inlined: the batches on its stack
    /// would make every function that it is inlined into spill its registers.
    #[inline(never)]
    pub(super) fn expire(&mut self) {
        if let Some(kept_ticks) = self.config.untracked_ticks {
            self.untracked.advance(self.now, kept_ticks);
        }
        self.counts.expired += self.take_off_due(|rings| &mut rings.half_open, self.config.syn_timeout_ticks);
        self.counts.candidates_expired +=
            self.take_off_due(|rings| &mut rings.candidates, self.config.candidate_timeout_ticks);
    }

    /// Removes all records older than `timeout` ticks from a ring, and returns how many were of use.
    fn take_off_due(&mut self, ring: impl Fn(&mut Rings) -> &mut MarkedRing, timeout: u64) -> u64 {
        let now = self.now;
        let is_due = |record: Record| now.saturating_sub(record.since_tick(now)) > timeout;
        let mut count = 0;
        loop {
            let due = ring(&mut self.rings);
            if !due.after(due.start()).is_some_and(|(oldest, _)| is_due(oldest)) {
                return count;
            }
            count += self.take_off(&ring, is_due);
        }
    }

    /// Makes room in a ring for a record of this size, and returns how many connections, the oldest, were evicted.
    #[inline]
    pub(super) fn make_room(&mut self, ring: impl Fn(&mut Rings) -> &mut MarkedRing, size: usize) -> u64 {
        match ring(&mut self.rings).room(size) {
            Room::Enough => 0,
            _ => self.make_more_room(ring, size),
        }
    }

    #[inline(never)]
    fn make_more_room(&mut self, ring: impl Fn(&mut Rings) -> &mut MarkedRing, size: usize) -> u64 {
        let mut count = 0;
        loop {
            match ring(&mut self.rings).room(size) {
                Room::Enough => return count,
                Room::Compact => ring(&mut self.rings).compact(|slot, place| self.filter.set_record(slot, place)),
                Room::Full => count += self.take_off(&ring, |_| true),
            }
        }
    }

    /// Removes a batch of the oldest records from a ring, up to the first that is not wanted, and their connections
    /// from the filter. Returns how many connections that were.
    fn take_off(&mut self, ring: impl Fn(&mut Rings) -> &mut MarkedRing, is_wanted: impl Fn(Record) -> bool) -> u64 {
        let ring = ring(&mut self.rings);
        let leaving = Leaving::new(ring, is_wanted);
        leaving.slots().iter().for_each(|slot| self.filter.prefetch_slot(*slot));
        leaving.slots().iter().for_each(|slot| self.filter.remove(*slot));
        ring.skip_to(leaving.end, leaving.useful);
        ring.prefetch_behind(leaving.end, HALF_OPEN_BATCH_MAX);
        leaving.count as u64
    }

    /// Whether anything is half-open or a candidate.
    #[must_use]
    pub fn has_records(&self) -> bool {
        [&self.rings.half_open, &self.rings.candidates].into_iter().any(MarkedRing::is_used)
    }

    /// Adds the half-open connections, in no order, to an empty list, which must have room for them.
    ///
    /// Complexity: a look at every eight marks, and at each of these records.
    pub fn list_half_open(&self, list: &mut HalfOpenList) {
        self.rings.half_open.copy_to(list);
    }
}

#[cfg(test)]
impl Tracker {
    /// The list of [`Self::list_half_open`], made by looking the key of every record up in the filter.
    pub(in crate::track) fn list_looked_up(&self, list: &mut HalfOpenList) {
        let ring = &self.rings.half_open;
        ring.each_record(|record, place, key| {
            let found = self.filter.find(self.hash_and_client(&key).0, self.now);
            if let Some((_, entry)) = found.filter(|(_, entry)| entry.state.is_half_open() && entry.tick == place) {
                ring.copy_one(record, entry.state.is_answered(), list);
            }
        });
    }

    /// Asserts that records and entries name each other.
    pub(in crate::track) fn check_links(&self) {
        let mut named_count = 0;
        for ring in [&self.rings.half_open, &self.rings.candidates] {
            ring.each_record(|record, place, key| {
                if ring.mark(record) != Mark::Over {
                    let entry = self.filter.get(ring.slot(record));
                    assert!(entry.state.is_recorded() && entry.tick == place, "{entry:?} of {key:?} at {place}");
                    assert_eq!(ring.mark(record) == Mark::Answered, entry.state.is_answered());
                    named_count += 1;
                }
            });
        }
        assert_eq!(named_count, self.filter.recorded_count());
    }
}
