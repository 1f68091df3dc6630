//! The half-open connections of a tracker in its two rings, and the candidates in theirs: who moves on, who is recycled, who times out.
//!
//! What enters: the passing of time, and newer connections that need room. What leaves: the entries of connections that
//! are not to be tracked any longer, and the half-open ones for a list. A record stands in a ring until it is the
//! oldest, so each is held against the filter's entry before anything is done about it.

use crate::connection::half_open::{Cursor, Record};
use crate::connection::{Counts, Entry, HalfOpenRing, Slot, State, Tracker};
use crate::flow::FlowKey;
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

/// Which records of a batch are what the filter says still, and their entries.
type Current = [Option<(Slot, Entry)>; BATCH_COUNT_MAX];

/// Records that are looked up together, and the place behind the last.
pub(super) struct Batch {
    records: [Record; BATCH_COUNT_MAX],
    count: usize,
    pub(super) end: Cursor,
}

impl Batch {
    /// The records of a ring from this place on, as many as are looked up together, up to one that is not wanted.
    #[inline]
    pub(super) fn new(ring: &HalfOpenRing, start: Cursor, is_wanted: impl Fn(Record) -> bool) -> Self {
        let count_max = (ring.connection_count() / BATCHES_IN_RING).clamp(HASH_GROUP_COUNT, BATCH_COUNT_MAX);
        let mut batch = Batch { records: [Record::default(); BATCH_COUNT_MAX], count: 0, end: start };
        while batch.count < count_max
            && let Some((record, end)) = ring.after(batch.end).filter(|(record, _)| is_wanted(*record))
        {
            batch.records[batch.count] = record;
            batch.count += 1;
            batch.end = end;
        }
        batch
    }

    fn records(&self) -> &[Record] {
        &self.records[..self.count]
    }

    /// The records that are current, each with its entry.
    fn with(&self, current: &Current) -> impl Iterator<Item = (Record, Entry)> {
        let both = self.records().iter().zip(current);
        both.filter_map(|(record, current)| current.map(|(_, entry)| (*record, entry)))
    }
}

/// The oldest records of a ring.
#[inline]
pub(super) fn oldest(ring: &HalfOpenRing) -> Batch {
    Batch::new(ring, ring.start(), |_| true)
}

impl Tracker {
    /// Takes off what has been half-open, or a candidate, for too long.
    pub(super) fn expire(&mut self) {
        // Everything in the old ring is older than everything in the young one.
        let timeout = self.config.syn_timeout_ticks;
        while let Some(batch) = self.expired(&self.old, timeout) {
            let current = self.current_of(&self.old, &batch);
            self.old.skip_to(batch.end);
            self.take_off(&current, |counts| &mut counts.expired);
        }
        while self.old.is_empty()
            && let Some(batch) = self.expired(&self.young, timeout)
        {
            let current = self.current_of(&self.young, &batch);
            self.young.skip_to(batch.end);
            self.take_off(&current, |counts| &mut counts.expired);
        }
        while let Some(batch) = self.expired(&self.candidates, self.config.candidate_timeout_ticks) {
            let current = self.current_of(&self.candidates, &batch);
            self.candidates.skip_to(batch.end);
            self.take_off(&current, |counts| &mut counts.candidates_expired);
        }
    }

    /// The oldest of a ring's records that have stood there for longer than `timeout` ticks, if there are any.
    #[inline]
    fn expired(&self, ring: &HalfOpenRing, timeout: u64) -> Option<Batch> {
        let is_due = |record: Record| self.now.saturating_sub(record.since_tick(self.now)) > timeout;
        ring.after(ring.start()).filter(|(record, _)| is_due(*record))?;
        Some(Batch::new(ring, ring.start(), is_due))
    }

    /// Makes room in the young ring: what is half-open still moves over to the old one, where it pushes out the oldest. Where all
    /// but a few were (a flood), the next batches move over as they are: a look at each would cost more than it finds.
    pub(super) fn move_over(&mut self) {
        let leaving = oldest(&self.young);
        if self.unlooked_batches > 0 {
            self.unlooked_batches -= 1;
            leaving.records().iter().for_each(|record| self.move_one_over(*record, record.answered()));
        } else {
            let current = self.current_of(&self.young, &leaving);
            let mut count = 0;
            for (record, entry) in leaving.with(&current) {
                self.move_one_over(record, entry.state.is_answered());
                count += 1;
            }
            if count * FEW >= leaving.count * (FEW - 1) {
                self.unlooked_batches = UNLOOKED_BATCHES;
            }
        }
        self.young.skip_to(leaving.end);
    }

    fn move_one_over(&mut self, record: Record, answered: bool) {
        while !self.old.has_room() {
            let oldest = oldest(&self.old);
            let pushed_out = self.current_of(&self.old, &oldest);
            self.old.skip_to(oldest.end);
            self.take_off(&pushed_out, |counts| &mut counts.recycled);
        }
        self.old.push_from(&self.young, record, answered);
    }

    /// Takes connections out of the filter.
    pub(super) fn take_off(&mut self, current: &Current, count: impl Fn(&mut Counts) -> &mut u64) {
        for (slot, _) in current.iter().flatten() {
            // A connection that was written twice within a tick is there only once.
            if self.filter.get(*slot).state != State::Removed {
                self.filter.remove(*slot);
                *count(&mut self.counts) += 1;
            }
        }
    }

    /// Which of these records are what the filter says still, and their entries. The entries of all are asked for before the
    /// first is read.
    pub(super) fn current_of(&self, ring: &HalfOpenRing, batch: &Batch) -> Current {
        let mut hashes = [ConnectionHash::new(0); BATCH_COUNT_MAX];
        for (records, hashes) in batch.records().chunks(HASH_GROUP_COUNT).zip(hashes.chunks_mut(HASH_GROUP_COUNT)) {
            hash_family(&self.hash_v4, ring, records, hashes);
            hash_family(&self.hash_v6, ring, records, hashes);
            hashes[..records.len()].iter().for_each(|hash| self.filter.prefetch(*hash));
        }
        hashes[..batch.count].iter().for_each(|hash| self.filter.prefetch_second(*hash));
        let mut current = [None; BATCH_COUNT_MAX];
        for ((current, hash), record) in current.iter_mut().zip(hashes).zip(batch.records()) {
            let found = self.filter.find(hash, self.now);
            *current = found.filter(|(_, entry)| ring.is_current(*record, entry, self.now));
        }
        current
    }

    /// Writes the half-open connections into an empty ring with room for as many, oldest first; one that was written twice in a
    /// tick may be there twice.
    pub fn copy_half_open(&self, copy: &mut HalfOpenRing) {
        for ring in [&self.old, &self.young] {
            let mut batch = oldest(ring);
            while batch.count > 0 {
                for (record, entry) in batch.with(&self.current_of(ring, &batch)) {
                    copy.push_from(ring, record, entry.state.is_answered());
                }
                batch = Batch::new(ring, batch.end, |_| true);
            }
        }
    }
}

/// Hashes the connections of those records that are of one family, together.
#[inline]
fn hash_family<K: FlowKey>(
    hash: &KeyedHash<K>,
    ring: &HalfOpenRing,
    records: &[Record],
    hashes: &mut [ConnectionHash],
) {
    let mut keys = [K::from_words(&[]); HASH_GROUP_COUNT];
    let mut owners = [0; HASH_GROUP_COUNT];
    let mut count = 0;
    for (at, record) in records.iter().enumerate().filter(|(_, record)| record.family() == K::FAMILY) {
        keys[count] = ring.key::<K>(*record).canonical().0;
        owners[count] = at;
        count += 1;
    }
    let mut images = [0; HASH_GROUP_COUNT];
    hash.of_group(&keys[..count], &mut images);
    for (owner, image) in owners[..count].iter().zip(images) {
        hashes[*owner] = ConnectionHash::new(image);
    }
}
