//! The half-open connections of a tracker in its two rings, and the candidates in theirs: who moves on, who is recycled, who times out.
//!
//! What enters: the passing of time, and newer connections that need room. What leaves: the entries of connections that
//! are not to be tracked any longer, and the half-open ones for a list. A record stands in a ring until it is the
//! oldest, so each is held against the filter's entry before anything is done about it.

use crate::connection::entry::state_of;
use crate::connection::half_open::{Cursor, Mark, Record};
use crate::connection::{Counts, HalfOpenRing, Slot, State, Tracker};
use crate::flow::{Family, FlowKey, Side};
use crate::hash::{HASH_GROUP_COUNT, KeyedHash};
use crate::signal::ConnectionHash;

/// The most records that are looked up together: as many as hide the memory's latency behind each other. Of a small ring it is
/// a small part, so that making room does not empty it.
const BATCH_COUNT_MAX: usize = 4 * HASH_GROUP_COUNT;
const BATCHES_IN_RING: usize = 64;

/// After a batch of which no more than one in so many was half-open no longer,
const FEW: usize = 8;

/// so many are taken for the same.
const UNLOOKED_BATCHES: u32 = 7;

/// What the filter says of the records of a batch.
pub(super) struct Current {
    slots: [Slot; BATCH_COUNT_MAX],
    /// Which of them are what it says still, a bit each, and which of those it has as answered.
    is: u32,
    is_answered: u32,
}

const _: () = assert!(BATCH_COUNT_MAX <= u32::BITS as usize);

impl Current {
    /// The records of the batch that are what the filter says still, each with whether it was answered.
    #[inline]
    fn records<'a>(&'a self, batch: &'a Batch) -> impl Iterator<Item = (Record, bool)> + 'a {
        let records = batch.records().iter().enumerate().filter(|(at, _)| self.is >> at & 1 != 0);
        records.map(|(at, record)| (*record, self.is_answered >> at & 1 != 0))
    }
}

/// Records that are looked at together, and the place behind the last.
pub(super) struct Batch {
    records: [Record; BATCH_COUNT_MAX],
    count: usize,
    pub(super) end: Cursor,
}

impl Batch {
    fn empty(start: Cursor) -> Self {
        Batch { records: [Record::default(); BATCH_COUNT_MAX], count: 0, end: start }
    }

    /// The records of a ring from its start on, as many as are looked at together, up to one that is not wanted.
    #[inline]
    fn new(ring: &HalfOpenRing, is_wanted: impl Fn(Record) -> bool) -> Self {
        Batch::behind(ring.start(), ring, batch_count(ring), is_wanted)
    }

    /// The records of a ring behind this place, no more than `count_max`, up to one that is not wanted.
    #[inline]
    fn behind(start: Cursor, ring: &HalfOpenRing, count_max: usize, is_wanted: impl Fn(Record) -> bool) -> Self {
        let mut batch = Batch::empty(start);
        while batch.count < count_max
            && let Some((record, end)) = ring.after(batch.end).filter(|(record, _)| is_wanted(*record))
        {
            batch.push(record);
            batch.end = end;
        }
        batch
    }

    /// Adds a record. There must be room.
    #[inline]
    fn push(&mut self, record: Record) {
        self.records[self.count] = record;
        self.count += 1;
    }

    #[inline]
    fn records(&self) -> &[Record] {
        &self.records[..self.count]
    }

    /// Keeps the records that pass.
    #[inline]
    fn retain(&mut self, passes: impl Fn(Record) -> bool) {
        let mut kept = 0;
        for at in 0..self.count {
            self.records[kept] = self.records[at];
            kept += usize::from(passes(self.records[at]));
        }
        self.count = kept;
    }
}

/// How many of a ring's records are looked at together.
#[inline]
fn batch_count(ring: &HalfOpenRing) -> usize {
    (ring.connection_count() / BATCHES_IN_RING).clamp(HASH_GROUP_COUNT, BATCH_COUNT_MAX)
}

/// The oldest records of a ring.
#[inline]
pub(super) fn oldest(ring: &HalfOpenRing) -> Batch {
    Batch::new(ring, |_| true)
}

impl Tracker {
    /// Takes off what has been half-open, or a candidate, for too long. Not in line: its batches would make everything that is in
    /// line with it keep what it knows on the stack.
    #[inline(never)]
    pub(super) fn expire(&mut self) {
        // Everything in the old ring is older than everything in the young one.
        let timeout = self.config.syn_timeout_ticks;
        while let Some(batch) = self.expired(&self.old, timeout) {
            let current = self.current_of(&self.old, &batch);
            self.old.skip_to(batch.end);
            self.take_off(&batch, &current, |counts| &mut counts.expired);
        }
        while self.old.is_empty()
            && let Some(mut batch) = self.expired(self.young.ring(), timeout)
        {
            batch.retain(|record| self.young.mark(record) != Mark::Over);
            let current = self.current_of(self.young.ring(), &batch);
            self.young.skip_to(batch.end);
            self.take_off(&batch, &current, |counts| &mut counts.expired);
        }
        while let Some(batch) = self.expired(&self.candidates, self.config.candidate_timeout_ticks) {
            let current = self.current_of(&self.candidates, &batch);
            self.candidates.skip_to(batch.end);
            self.take_off(&batch, &current, |counts| &mut counts.candidates_expired);
        }
    }

    /// The oldest of a ring's records that have stood there for longer than `timeout` ticks, if there are any.
    #[inline]
    fn expired(&self, ring: &HalfOpenRing, timeout: u64) -> Option<Batch> {
        let is_due = |record: Record| self.now.saturating_sub(record.since_tick(self.now)) > timeout;
        ring.after(ring.start()).filter(|(record, _)| is_due(*record))?;
        Some(Batch::new(ring, is_due))
    }

    /// Makes room in the young ring: what is half-open still moves over to the old one, where it pushes out the oldest. Where all
    /// but a few were (a flood), the next batches move over as they are: a look at each would cost more than it finds.
    #[inline(never)]
    pub(super) fn move_over(&mut self) {
        if self.unlooked_batches > 0 {
            self.unlooked_batches -= 1;
            return self.move_unlooked();
        }
        let mut leaving = oldest(self.young.ring());
        let count = leaving.count;
        leaving.retain(|record| self.young.mark(record) != Mark::Over);
        let current = self.current_of(self.young.ring(), &leaving);
        for (record, is_answered) in current.records(&leaving) {
            self.move_one_over(record, is_answered);
        }
        if current.is.count_ones() as usize * FEW >= count * (FEW - 1) {
            self.unlooked_batches = UNLOOKED_BATCHES;
        }
        self.young.skip_to(leaving.end);
    }

    /// Moves a batch over as it is.
    #[inline]
    fn move_unlooked(&mut self) {
        for _ in 0..batch_count(self.young.ring()) {
            let Some((record, end)) = self.young.ring().after(self.young.ring().start()) else { break };
            self.move_one_over(record, record.answered());
            self.young.skip_to(end);
        }
    }

    #[inline]
    fn move_one_over(&mut self, record: Record, answered: bool) {
        while !self.old.has_room() {
            self.recycle_oldest();
        }
        self.old.push_from(self.young.ring(), record, answered);
    }

    /// Takes the oldest half-open connections out of a full ring.
    #[inline(never)]
    fn recycle_oldest(&mut self) {
        let oldest = oldest(&self.old);
        let current = self.current_of(&self.old, &oldest);
        self.old.skip_to(oldest.end);
        self.take_off(&oldest, &current, |counts| &mut counts.recycled);
    }

    /// Takes connections out of the filter.
    #[inline]
    pub(super) fn take_off(&mut self, batch: &Batch, current: &Current, count: impl Fn(&mut Counts) -> &mut u64) {
        // A connection that was written twice has both records of one tick: of these the second may be in the young ring.
        let young = self.young.ring();
        let youngest = batch.records().last().map_or(0, |record| record.since_tick(self.now));
        let is_twice = young.after(young.start()).is_some_and(|(record, _)| record.since_tick(self.now) <= youngest);
        let mut left = current.is;
        while left != 0 {
            let slot = current.slots[left.trailing_zeros() as usize];
            left &= left - 1;
            let entry = self.filter.get(slot);
            // It is in the filter only once.
            if entry.state != State::Removed {
                self.filter.remove(slot);
                *count(&mut self.counts) += 1;
                if is_twice {
                    self.young.doubt(entry.fingerprint);
                }
            }
        }
    }

    /// Which of these records are what the filter says still, and where. The entries of all are asked for before the first is
    /// read.
    pub(super) fn current_of(&self, ring: &HalfOpenRing, batch: &Batch) -> Current {
        let mut current = Current { slots: [Slot::default(); BATCH_COUNT_MAX], is: 0, is_answered: 0 };
        let mut hashed = [Hashed::default(); BATCH_COUNT_MAX];
        let hashed = &mut hashed[..batch.count];
        for (records, hashed) in batch.records().chunks(HASH_GROUP_COUNT).zip(hashed.chunks_mut(HASH_GROUP_COUNT)) {
            let mut left = &mut *hashed;
            for run in records.chunk_by(|one, next| one.family() == next.family()) {
                let (run_hashed, behind) = left.split_at_mut(run.len());
                match run[0].family() {
                    Family::V4 => hash_run(&self.hash_v4, ring, run, run_hashed),
                    Family::V6 => hash_run(&self.hash_v6, ring, run, run_hashed),
                }
                left = behind;
            }
            hashed.iter().for_each(|hashed| self.filter.prefetch(hashed.hash));
        }
        hashed.iter().for_each(|hashed| self.filter.prefetch_second(hashed.hash));
        for (at, (hashed, record)) in hashed.iter().zip(batch.records()).enumerate() {
            let Some(slot) = self.filter.find_slot(hashed.hash, self.now) else { continue };
            let packed = self.filter.packed(slot);
            if ring.is_current(*record, hashed.client, packed) {
                current.slots[at] = slot;
                current.is |= 1 << at;
                current.is_answered |= u32::from(state_of(packed.0).is_answered()) << at;
            }
        }
        current
    }

    /// Writes the half-open connections into an empty ring with room for as many, in no order; one that was written twice in a tick
    /// may be there twice.
    ///
    /// Complexity: a look at each record of the old ring, of which only those stay that are half-open still, and at those few of the
    /// young one of which it is not known what has become of them.
    pub fn copy_half_open(&mut self, copy: &mut HalfOpenRing) {
        self.copy_old(copy);
        let ring = self.young.ring();
        let mut doubtful = Batch::empty(ring.start());
        self.young.each(|record, mark| {
            if mark != Mark::Doubtful {
                return copy.push_from(ring, record, mark == Mark::Answered);
            }
            doubtful.push(record);
            if doubtful.count == BATCH_COUNT_MAX {
                self.copy_current(copy, ring, &doubtful);
                doubtful.count = 0;
            }
        });
        self.copy_current(copy, ring, &doubtful);
    }

    /// Copies what is half-open of the old ring. The rest is taken off it: what is half-open no longer never is again, and is not to
    /// be looked at a second time.
    fn copy_old(&mut self, copy: &mut HalfOpenRing) {
        let (mut kept, mut start) = (self.old.none_kept(), self.old.start());
        loop {
            let batch = Batch::behind(start, &self.old, BATCH_COUNT_MAX, |_| true);
            if batch.count == 0 {
                return self.old.retain(kept);
            }
            let current = self.copy_current(copy, &self.old, &batch);
            current.records(&batch).for_each(|(record, _)| self.old.keep(&mut kept, record));
            start = batch.end;
        }
    }

    /// What [`Self::copy_half_open`] writes, found by a look at every record.
    #[cfg(test)]
    pub(in crate::connection) fn copy_looked_up(&self, copy: &mut HalfOpenRing) {
        for ring in [&self.old, self.young.ring()] {
            let mut batch = Batch::empty(ring.start());
            loop {
                batch = Batch::behind(batch.end, ring, BATCH_COUNT_MAX, |_| true);
                if batch.count == 0 {
                    break;
                }
                self.copy_current(copy, ring, &batch);
            }
        }
    }

    /// How many records of the old ring have to be looked up for a copy.
    #[cfg(test)]
    pub(in crate::connection) fn old_count(&self) -> usize {
        self.old.iter(self.now).count()
    }

    /// How many records of the young ring have to be looked up for a copy.
    #[cfg(test)]
    pub(in crate::connection) fn doubtful_count(&self) -> usize {
        let mut count = 0;
        self.young.each(|_, mark| count += usize::from(mark == Mark::Doubtful));
        count
    }

    /// Copies those of these records that are half-open, and tells which they are.
    fn copy_current(&self, copy: &mut HalfOpenRing, ring: &HalfOpenRing, batch: &Batch) -> Current {
        let current = self.current_of(ring, batch);
        current.records(batch).for_each(|(record, is_answered)| copy.push_from(ring, record, is_answered));
        current
    }
}

/// The hash of a record's connection, and the end of the canonical key that the record names first.
#[derive(Clone, Copy)]
struct Hashed {
    hash: ConnectionHash,
    client: Side,
}

impl Default for Hashed {
    fn default() -> Self {
        Hashed { hash: ConnectionHash::new(0), client: Side::First }
    }
}

/// Hashes the connections of up to [`HASH_GROUP_COUNT`] records, all of one family, together.
#[inline]
fn hash_run<K: FlowKey>(hash: &KeyedHash<K>, ring: &HalfOpenRing, records: &[Record], hashed: &mut [Hashed]) {
    let mut keys = [K::from_words(&[]); HASH_GROUP_COUNT];
    for ((key, hashed), record) in keys.iter_mut().zip(&mut *hashed).zip(records) {
        (*key, hashed.client) = ring.key::<K>(*record).canonical();
    }
    let mut images = [0; HASH_GROUP_COUNT];
    hash.of_group(&keys[..records.len().min(HASH_GROUP_COUNT)], &mut images);
    for (hashed, image) in hashed.iter_mut().zip(images) {
        hashed.hash = ConnectionHash::new(image);
    }
}
