//! The recent sources that came more than once: those that an overloaded counter is asked about.
//!
//! The events of one partition and family come in order, each with the hash of its source. A source's counts begin when
//! it is admitted, so they are all of its events or fewer. The laws: memory and work per event are bounded, and a
//! source that keeps coming stays, however many others come once.
//!
//! Sources are in buckets of eight. A source is admitted at the front of its bucket, and evicts the one with the least
//! credit, or of several the one that came first. Credit is how often a source came. It wears off, down to one, while
//! other sources come to the bucket and are not found. So random addresses evict each other, and sources that came
//! twice do not stay for good.

use crate::sources::SourceEvent;
use flowpeel_iblt::Key;
use flowpeel_iblt::hash::place_of;

/// Recent sources in a bucket: in one that random addresses fill, a source that comes every eighth time is noticed.
const RECENT_SOURCE_WAYS: usize = 8;

/// Sources that a bucket of recent ones turns away, or takes in for others, before those in it lose a credit: a source
/// that comes more often than once in this many stays.
const RECENT_SOURCE_MISSES: u8 = 64;

/// A source and what was counted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecentSource<K> {
    pub(super) key: K,
    pub(super) attempts: u32,
    pub(super) answered: u32,
    pub(super) refused: u32,
    /// The credit of the source; zero in an empty slot.
    credit: u32,
}

/// The sources of one partition and family.
pub(super) struct Recent<K> {
    places: Box<[RecentSource<K>]>,
    /// For each bucket, how many sources came without finding an empty slot since credits last wore off.
    misses: Box<[u8]>,
}

impl<K: Key> Recent<K> {
    /// Room for `source_count` sources, or a few more.
    pub(super) fn new(source_count: usize) -> Self {
        let none = RecentSource { key: K::zero(), attempts: 0, answered: 0, refused: 0, credit: 0 };
        let place_count = Self::place_count(source_count);
        Recent { places: vec![none; place_count].into(), misses: vec![0; place_count / RECENT_SOURCE_WAYS].into() }
    }

    /// The memory in bytes with room for `source_count` sources.
    pub(super) fn size(source_count: usize) -> usize {
        let place_count = Self::place_count(source_count);
        place_count * size_of::<RecentSource<K>>() + place_count / RECENT_SOURCE_WAYS
    }

    /// The number of slots with room for `source_count` sources.
    pub(super) fn place_count(source_count: usize) -> usize {
        source_count.max(1).next_multiple_of(RECENT_SOURCE_WAYS)
    }

    #[inline]
    pub(super) fn count(&mut self, key: &K, hash: u64, event: SourceEvent) {
        let at = place_of(hash as u32, self.misses.len());
        let bucket = &mut self.places[at * RECENT_SOURCE_WAYS..(at + 1) * RECENT_SOURCE_WAYS];
        let found = bucket.iter_mut().find(|seen| seen.credit > 0 && seen.key == *key);
        match (found, event) {
            (Some(seen), SourceEvent::Attempt) => {
                seen.attempts = seen.attempts.saturating_add(1);
                seen.credit = seen.credit.saturating_add(1);
            }
            (Some(seen), SourceEvent::Answer) => seen.answered = seen.answered.saturating_add(1),
            (Some(seen), SourceEvent::Refusal) => seen.refused = seen.refused.saturating_add(1),
            (None, SourceEvent::Attempt) => Self::admit(bucket, &mut self.misses[at], key),
            (None, _) => {}
        }
    }

    fn admit(bucket: &mut [RecentSource<K>], misses: &mut u8, key: &K) {
        // If several have the least credit, the last is the oldest.
        let Some(least) = (0..bucket.len()).rev().min_by_key(|&at| bucket[at].credit) else { return };
        *misses += u8::from(bucket[least].credit > 0);
        if *misses == RECENT_SOURCE_MISSES {
            *misses = 0;
            bucket.iter_mut().for_each(|seen| seen.credit = seen.credit.saturating_sub(1).max(1));
        }
        if bucket[least].credit > 1 {
            return;
        }
        bucket[..=least].rotate_right(1);
        bucket[0] = RecentSource { key: *key, attempts: 1, answered: 0, refused: 0, credit: 1 };
    }

    /// The sources, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RecentSource<K>> {
        self.places.iter().filter(|seen| seen.credit > 0)
    }

    pub(super) fn clear(&mut self) {
        self.places.iter_mut().for_each(|seen| seen.credit = 0);
        self.misses.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A hash that spreads keys over four buckets.
    fn hash(key: u64) -> u64 {
        key << 30 & 0xffff_ffff
    }

    #[test]
    fn who_comes_again_stays_whatever_comes_once() {
        let mut recent = Recent::<u64>::new(8);
        for number in 0..10_000u64 {
            recent.count(&(1_000 + number), 0, SourceEvent::Attempt);
            if number % 4 == 0 {
                recent.count(&7, 0, SourceEvent::Attempt);
                recent.count(&7, 0, SourceEvent::Answer);
            }
        }
        let heavy = recent.iter().find(|seen| seen.key == 7).unwrap();
        assert_eq!((heavy.attempts, heavy.answered, heavy.refused), (2_500, 2_500, 0));
        assert_eq!(recent.iter().count(), 8);
    }

    #[test]
    fn what_came_twice_wears_off() {
        let mut recent = Recent::<u64>::new(8);
        (0..8u64).flat_map(|key| [key, key]).for_each(|key| recent.count(&key, 0, SourceEvent::Attempt));
        for _ in 0..100 {
            (100..104u64).for_each(|key| recent.count(&key, 0, SourceEvent::Attempt));
        }
        assert!((100..104).all(|key| recent.iter().any(|seen| seen.key == key && seen.attempts > 50)));
    }

    proptest! {
        #[test]
        fn nothing_is_counted_that_was_not(events in prop::collection::vec((0u64..40, 0usize..3), 0..400)) {
            let mut recent = Recent::<u64>::new(32);
            let mut exact: BTreeMap<u64, [u32; 3]> = BTreeMap::new();
            for &(key, kind) in &events {
                let event = [SourceEvent::Attempt, SourceEvent::Answer, SourceEvent::Refusal][kind];
                recent.count(&key, hash(key), event);
                exact.entry(key).or_default()[kind] += 1;
            }
            let mut keys: Vec<u64> = recent.iter().map(|seen| seen.key).collect();
            for seen in recent.iter() {
                let [attempts, answered, refused] = exact[&seen.key];
                prop_assert!(seen.attempts >= 1 && seen.attempts <= attempts);
                prop_assert!(seen.answered <= answered && seen.refused <= refused);
            }
            let count = keys.len();
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), count, "each once");
            recent.clear();
            prop_assert_eq!(recent.iter().count(), 0);
        }
    }
}
