//! Connections that have been silent for some time, the next packet of each of which is to become a signal.
//!
//! The list puts in connections that may have timed out without FIN or RST, and the capture threads ask whether a
//! packet without a flag belongs to one of these. Only a sample of most packets becomes signals, and a connection that
//! is quiet but alive may send one an hour: without the watch it would be taken for dead.
//!
//! A set-associative array of 32-bit tags, sixteen to a cache line, with a byte for each set that says which eighths of
//! the tag values occur in it. For most packets only that byte is read, and not even that while nothing is under watch,
//! as in the first minutes of a capture. One thread puts tags in; any may take them out.

use flowpeel_iblt::hash::place_of;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize};

/// How full the sets of the watch may become on average, in percent: at this load hardly one of its sets is full.
const WATCH_LOAD_PERCENT: usize = 75;

/// Tags in a set: a cache line of them.
const WAY_COUNT: usize = 16;

#[derive(Default)]
#[repr(align(64))]
struct WatchSet([AtomicU32; WAY_COUNT]);

/// The connections under watch. The memory is fixed when it is made.
pub struct Watch {
    sets: Box<[WatchSet]>,
    /// For each set, which eighths of the tag values may occur in it, a bit each.
    kinds: Box<[AtomicU8]>,
    /// At least as many as there are tags.
    count: AtomicUsize,
}

impl Watch {
    /// A watch over about this many connections.
    #[must_use]
    pub fn new(connection_count: usize) -> Self {
        let set_count = Self::set_count(connection_count);
        Watch {
            sets: (0..set_count).map(|_| WatchSet::default()).collect(),
            kinds: (0..set_count).map(|_| AtomicU8::new(0)).collect(),
            count: AtomicUsize::new(0),
        }
    }

    fn set_count(connection_count: usize) -> usize {
        (connection_count.saturating_mul(100) / WATCH_LOAD_PERCENT).div_ceil(WAY_COUNT).max(1)
    }

    /// The memory of a watch for this many connections, in bytes.
    #[must_use]
    pub fn size(connection_count: usize) -> usize {
        Self::set_count(connection_count) * (size_of::<WatchSet>() + 1)
    }

    #[inline]
    fn set_index(&self, hash: u64) -> usize {
        place_of((hash >> u32::BITS) as u32, self.sets.len())
    }

    /// The tag of a hash. Never zero, which marks an empty place.
    #[inline]
    fn tag(hash: u64) -> u32 {
        (hash as u32).max(1)
    }

    #[inline]
    fn kind(tag: u32) -> u8 {
        1 << (tag >> 29)
    }

    /// Whether the connection with this hash may be under watch. False for most that are not.
    #[must_use]
    #[inline]
    pub fn may_hold(&self, hash: u64) -> bool {
        self.count.load(Relaxed) != 0
            && self.kinds[self.set_index(hash)].load(Relaxed) & Self::kind(Self::tag(hash)) != 0
    }

    /// Puts a connection under watch. False if there is no place for it.
    pub fn put(&self, hash: u64) -> bool {
        let (index, tag) = (self.set_index(hash), Self::tag(hash));
        let ways = &self.sets[index].0;
        let is_there = ways.iter().any(|way| way.load(SeqCst) == tag);
        if !is_there {
            // Before the tag is there, for it may be taken out at once.
            self.count.fetch_add(1, SeqCst);
        }
        let is_placed = is_there || ways.iter().any(|way| way.compare_exchange(0, tag, SeqCst, Relaxed).is_ok());
        if is_placed {
            self.kinds[index].fetch_or(Self::kind(tag), SeqCst);
        } else {
            self.count.fetch_sub(1, SeqCst);
        }
        is_placed
    }

    /// Ends the watch over a connection, and returns whether there was one. Connections with the same tag (one in 10^8)
    /// share their watch.
    pub fn take(&self, hash: u64) -> bool {
        let (index, tag) = (self.set_index(hash), Self::tag(hash));
        let ways = &self.sets[index].0;
        let is_taken =
            ways.iter().any(|way| way.load(Relaxed) == tag && way.compare_exchange(tag, 0, SeqCst, Relaxed).is_ok());
        if is_taken {
            self.count.fetch_sub(1, SeqCst);
            let kind = Self::kind(tag);
            // The bit is cleared before the other tags are read, so that a tag that is put in meanwhile is not lost:
            // either it is seen here, or its thread sets the bit afterwards.
            self.kinds[index].fetch_and(!kind, SeqCst);
            let is_left =
                |way: &AtomicU32| Some(way.load(SeqCst)).is_some_and(|tag| tag != 0 && Self::kind(tag) == kind);
            if ways.iter().any(is_left) {
                self.kinds[index].fetch_or(kind, SeqCst);
            }
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::mixed as hash;
    use std::collections::BTreeSet;

    #[test]
    fn it_is_a_set() {
        let watch = Watch::new(1_000);
        let mut model = BTreeSet::new();
        for step in 0..40_000u64 {
            let number = (hash(step + 7_777) >> 40) % 1_500;
            let is_in = model.contains(&number);
            assert!(!is_in || watch.may_hold(hash(number)));
            if step % 3 == 0 {
                assert_eq!(watch.take(hash(number)), model.remove(&number));
            } else if model.len() < 1_000 || is_in {
                if watch.put(hash(number)) {
                    model.insert(number);
                } else {
                    assert!(!is_in);
                }
            }
        }
        assert!(model.len() > 500, "{}", model.len());
        for number in 0..1_500 {
            assert_eq!(watch.take(hash(number)), model.contains(&number), "{number}");
        }
        assert!(watch.kinds.iter().all(|kinds| kinds.load(SeqCst) == 0), "what is empty says so");
        assert_eq!(watch.count.load(SeqCst), 0);
    }

    #[test]
    fn nearly_all_it_is_made_for_find_a_place_and_the_rest_is_reported() {
        let watch = Watch::new(100_000);
        let placed = (0..100_000).filter(|number| watch.put(hash(*number))).count();
        println!("{placed} of 100,000 placed");
        assert!(placed > 97_000);
        assert_eq!((0..100_000).filter(|number| watch.take(hash(*number))).count(), placed);
        let one = Watch::new(0);
        assert_eq!((0..100).filter(|number| one.put(hash(*number))).count(), WAY_COUNT);
        assert_eq!(one.count.load(SeqCst), WAY_COUNT);
    }

    #[test]
    fn threads_that_take_forget_nobody_elses() {
        let watch = Watch::new(64);
        let count = 2_000u64;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The taker's tags come and go beside one that stays.
                for number in 0..count {
                    watch.put(hash(number % 8));
                    assert!(watch.put(hash(100)));
                }
            });
            scope.spawn(|| (0..count).filter(|number| watch.take(hash(number % 8))).count());
        });
        assert!(watch.may_hold(hash(100)) && watch.take(hash(100)));
    }
}
