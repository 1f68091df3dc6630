//! The half-open connections of a tracker in its two rings, and the candidates in theirs: who moves on, who is recycled, who times out.
//!
//! What enters: the passing of time, and newer connections that need room. What leaves: the entries of connections that
//! are not to be tracked any longer, and the half-open ones for a list. A record stands in a ring until it is the
//! oldest, so each is held against the filter's entry before anything is done about it.

use crate::connection::{Counts, HalfOpen, HalfOpenRing, Slot, State, Tracker};
use crate::flow::{FlowKey, KeyV4, KeyV6};
use crate::hash::HASH_GROUP_COUNT;
use crate::signal::{AnyKey, ConnectionHash};

/// Records that are looked up together.
type Group = [Option<HalfOpen>; HASH_GROUP_COUNT];

/// The next records, as many as there are.
pub(super) fn group(records: impl Iterator<Item = HalfOpen>) -> Group {
    let mut group = [None; HASH_GROUP_COUNT];
    group.iter_mut().zip(records).for_each(|(place, record)| *place = Some(record));
    group
}

impl Tracker {
    /// Takes off what has been half-open, or a candidate, for too long.
    pub(super) fn expire(&mut self) {
        // Everything in the old ring is older than everything in the young one.
        let timeout = self.config.syn_timeout_ticks;
        while let Some(group) = self.expired(&self.old, timeout) {
            self.old.skip(group.iter().flatten());
            self.take_off(&group, |counts| &mut counts.expired);
        }
        while self.old.is_empty()
            && let Some(group) = self.expired(&self.young, timeout)
        {
            self.young.skip(group.iter().flatten());
            self.take_off(&group, |counts| &mut counts.expired);
        }
        while let Some(group) = self.expired(&self.candidates, self.config.candidate_timeout_ticks) {
            self.candidates.skip(group.iter().flatten());
            self.take_off(&group, |counts| &mut counts.candidates_expired);
        }
    }

    /// The oldest of a ring's records that have stood there for longer than `timeout` ticks, if there are any.
    #[inline]
    fn expired(&self, ring: &HalfOpenRing, timeout: u64) -> Option<Group> {
        let is_due = |record: &HalfOpen| self.now.saturating_sub(record.since_tick) > timeout;
        ring.oldest(self.now).filter(is_due)?;
        Some(group(ring.iter(self.now).take_while(is_due)))
    }

    /// Makes room in the young ring: what is half-open still moves over to the old one, where it pushes out the oldest.
    pub(super) fn move_over(&mut self) {
        let leaving = group(self.young.iter(self.now));
        self.young.skip(leaving.iter().flatten());
        for record in self.current_of(&leaving).into_iter().flatten() {
            while !self.old.has_room() {
                let oldest = group(self.old.iter(self.now));
                self.old.skip(oldest.iter().flatten());
                self.take_off(&oldest, |counts| &mut counts.recycled);
            }
            self.old.push(&record.0);
        }
    }

    /// Takes the connections of these records out of the filter, as far as they are half-open, or candidates, still.
    pub(super) fn take_off(&mut self, records: &Group, count: impl Fn(&mut Counts) -> &mut u64) {
        for (_, slot) in self.current_of(records).into_iter().flatten() {
            // A connection that was written twice within a tick is there only once.
            if self.filter.get(slot).state != State::Removed {
                self.filter.remove(slot);
                *count(&mut self.counts) += 1;
            }
        }
    }

    /// Which of these records are what the filter says still, and where their entries are. The entries of all are asked for before the
    /// first is read.
    fn current_of(&self, records: &Group) -> [Option<(HalfOpen, Slot)>; HASH_GROUP_COUNT] {
        let hashes = self.hashes_of(records);
        for (_, hash) in records.iter().zip(&hashes).filter(|(record, _)| record.is_some()) {
            self.filter.prefetch(*hash);
        }
        std::array::from_fn(|at| {
            let record = records[at]?;
            let (slot, entry) = self.filter.find(hashes[at], self.now).filter(|(_, entry)| record.is_current(entry))?;
            Some((HalfOpen { answered: entry.state.is_answered(), ..record }, slot))
        })
    }

    /// The hashes of these records' connections, hashed together family by family.
    fn hashes_of(&self, records: &Group) -> [ConnectionHash; HASH_GROUP_COUNT] {
        let mut v4 = [KeyV4::default(); HASH_GROUP_COUNT];
        let mut v6 = [KeyV6::default(); HASH_GROUP_COUNT];
        let (mut is_v4, mut is_v6) = (false, false);
        for (at, record) in records.iter().enumerate() {
            match record.map(|record| record.key) {
                Some(AnyKey::V4(key)) => (v4[at], is_v4) = (key.canonical().0, true),
                Some(AnyKey::V6(key)) => (v6[at], is_v6) = (key.canonical().0, true),
                None => {}
            }
        }
        let (mut hashes_v4, mut hashes_v6) = ([0; HASH_GROUP_COUNT], [0; HASH_GROUP_COUNT]);
        if is_v4 {
            self.hash_v4.of_group(&v4, &mut hashes_v4);
        }
        if is_v6 {
            self.hash_v6.of_group(&v6, &mut hashes_v6);
        }
        std::array::from_fn(|at| {
            let is_v4 = records[at].is_some_and(|record| matches!(record.key, AnyKey::V4(_)));
            ConnectionHash::new(if is_v4 { hashes_v4[at] } else { hashes_v6[at] })
        })
    }

    /// The half-open connections, oldest first; one that was written twice in a tick may be given twice.
    pub fn half_open(&self) -> impl Iterator<Item = HalfOpen> {
        let mut records = self.old.iter(self.now).chain(self.young.iter(self.now));
        let groups = std::iter::from_fn(move || Some(group(&mut records)).filter(|group| group[0].is_some()));
        groups.flat_map(|group| self.current_of(&group)).flatten().map(|(record, _)| record)
    }

    /// Writes the half-open connections into an empty ring with room for as many.
    pub fn copy_half_open(&self, ring: &mut HalfOpenRing) {
        for record in self.half_open() {
            ring.push(&record);
        }
    }
}
