//! The half-open connections of a tracker, and the candidates, in their rings: who is recycled, who times out.
//!
//! What enters: the passing of time, and newer connections that need room. What leaves: the entries of connections that
//! are not to be tracked any longer, and the half-open ones for a list. A record stands in a ring until it is the
//! oldest, or is left out because it is of no use any more. Of those that are of use at the end the entries are asked for together,
//! before the first is read.

use crate::connection::half_open::{Cursor, Mark, MarkedRing, Record, Rings, Room};
use crate::connection::{HalfOpenList, Slot, Tracker};

/// The most records that are gone through together: as many as hide the memory's latency behind each other. Of a small ring it is
/// a small part, so that making room does not empty it.
const BATCH_COUNT_MAX: usize = 32;
const BATCH_COUNT_MIN: usize = 8;
const BATCHES_IN_RING: usize = 64;

/// The places in the filter of the oldest connections of a ring of which the records are of use still, and the place behind all records
/// that were gone through for them.
struct Leaving {
    slots: [Slot; BATCH_COUNT_MAX],
    count: usize,
    /// The words of these records.
    useful: usize,
    end: Cursor,
}

impl Leaving {
    /// Those of a ring, up to a record that is not wanted.
    #[inline]
    fn new(ring: &MarkedRing, is_wanted: impl Fn(Record) -> bool) -> Self {
        let count_max = (ring.connection_count() / BATCHES_IN_RING).clamp(BATCH_COUNT_MIN, BATCH_COUNT_MAX);
        let mut leaving = Leaving { slots: [Slot::default(); BATCH_COUNT_MAX], count: 0, useful: 0, end: ring.start() };
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
    /// Takes off what has been half-open, or a candidate, for too long. Not in line: its batches would make everything that is in
    /// line with it keep what it knows on the stack.
    #[inline(never)]
    pub(super) fn expire(&mut self) {
        if let Some(kept_ticks) = self.config.untracked_ticks {
            self.untracked.advance(self.now, kept_ticks);
        }
        self.counts.expired += self.take_off_due(|rings| &mut rings.half_open, self.config.syn_timeout_ticks);
        self.counts.candidates_expired +=
            self.take_off_due(|rings| &mut rings.candidates, self.config.candidate_timeout_ticks);
    }

    /// Takes off all that has stood in a ring for longer than `timeout` ticks; how many of it were of use.
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

    /// Makes room in a ring for a record of this size, and tells how many connections had to go for it: the oldest.
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

    /// Takes the oldest records out of a ring, up to one that is not wanted, and their connections out of the filter; how many there
    /// were of these.
    fn take_off(&mut self, ring: impl Fn(&mut Rings) -> &mut MarkedRing, is_wanted: impl Fn(Record) -> bool) -> u64 {
        let ring = ring(&mut self.rings);
        let leaving = Leaving::new(ring, is_wanted);
        leaving.slots().iter().for_each(|slot| self.filter.prefetch_slot(*slot));
        leaving.slots().iter().for_each(|slot| self.filter.remove(*slot));
        ring.skip_to(leaving.end, leaving.useful);
        ring.prefetch_behind(leaving.end, BATCH_COUNT_MAX);
        leaving.count as u64
    }

    /// Whether anything is half-open or a candidate.
    #[must_use]
    pub fn has_records(&self) -> bool {
        [&self.rings.half_open, &self.rings.candidates].into_iter().any(MarkedRing::is_used)
    }

    /// Writes the half-open connections into an empty list with room for as many, in no order.
    ///
    /// Complexity: a look at eight marks at a time, and at the records of those.
    pub fn list_half_open(&self, list: &mut HalfOpenList) {
        self.rings.half_open.copy_to(list);
    }
}

#[cfg(test)]
impl Tracker {
    /// What [`Self::list_half_open`] writes, found by a look at the filter for the key of every record.
    pub(in crate::connection) fn list_looked_up(&self, list: &mut HalfOpenList) {
        let ring = &self.rings.half_open;
        ring.each_record(|record, place, key| {
            let found = self.filter.find(self.hash_of(&key), self.now);
            if let Some((_, entry)) = found.filter(|(_, entry)| entry.state.is_half_open() && entry.tick == place) {
                ring.copy_one(record, entry.state.is_answered(), list);
            }
        });
    }

    /// Whoever is named names who names it.
    pub(in crate::connection) fn check_links(&self) {
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
