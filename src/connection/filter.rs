//! The connection filter: entries without keys, in buckets of one cache line, each connection in one of two buckets.

mod saved;

use crate::config::FINGERPRINT_BITS;
use crate::connection::entry::{fingerprint_of, is_free};
use crate::connection::{Entry, State};
use crate::hash::place_of;
use crate::lines::{Line, Lines};
use crate::prefetch::prefetch;
use crate::signal::ConnectionHash;

/// Entries in a bucket. Seven words of 64 bits, and an eighth that holds a byte more for each of them.
pub const SLOT_COUNT: usize = 7;

/// A bucket with this many places taken sends the next connection to the other of its two buckets when that is emptier.
/// Below it the second bucket need not be read at all; at it, buckets fill almost as evenly as if both were always compared.
const CROWDED_COUNT: usize = 5;

/// The byte of the eighth word that is no entry's extension. Its lowest bit is set once a connection went to its second bucket
/// because of this one;
const OVERFLOWED: u64 = 1 << 56;

/// the other seven belong to a slot each: whether its established connection was seen since somebody last asked.
const SEEN_SHIFT: usize = 57;

const _: () = assert!(SEEN_SHIFT + SLOT_COUNT == u64::BITS as usize);

/// Where a bucket's extensions stand.
const EXTENSIONS: usize = SLOT_COUNT;

const _: () = assert!(size_of::<Line>() == (EXTENSIONS + 1) * size_of::<u64>());

/// The slots of a bucket whose words pass, a bit each. All are looked at, so that the processor has nothing to guess.
#[inline]
fn slots_where(bucket: &Line, passes: impl Fn(u64) -> bool) -> u32 {
    let words = bucket.0[..SLOT_COUNT].iter().enumerate();
    words.fold(0, |slots, (index, &word)| slots | u32::from(passes(word)) << index)
}

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    bucket: u32,
    index: u32,
}

impl Slot {
    #[inline]
    fn new(bucket: usize, index: u32) -> Self {
        Slot { bucket: bucket as u32, index }
    }
}

/// What it took to place an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// There was a free place.
    Free,
    /// An entry in this state had to go.
    Evicted(State),
    /// Both buckets are full of established connections: it was not placed.
    Full,
}

/// The entries of one partition. Memory is fixed when it is made.
///
/// A look-up that meets another connection's fingerprint is answered wrongly: with 30 bits and two buckets of seven this
/// happens about once in 10^8 look-ups of connections that are not there.
pub struct Filter {
    buckets: Lines,
    fingerprint_mask: u32,
    linger_ticks: u32,
}

impl Filter {
    /// A filter with at least this many places, in which closed entries linger for so many ticks.
    ///
    /// `fingerprint_bits` is [`FINGERPRINT_BITS`], or less to see what too few do.
    #[must_use]
    pub fn new(place_count: usize, linger_ticks: u32, fingerprint_bits: u32) -> Self {
        Filter {
            buckets: Lines::new(place_count.div_ceil(SLOT_COUNT).max(1)),
            fingerprint_mask: (1 << fingerprint_bits.min(FINGERPRINT_BITS)) - 1,
            linger_ticks,
        }
    }

    /// The memory of a filter with this many places, in bytes.
    #[must_use]
    pub fn size(place_count: usize) -> usize {
        place_count.div_ceil(SLOT_COUNT).max(1) * size_of::<Line>()
    }

    /// The first bucket of a connection, and the second.
    #[inline]
    fn bucket_indices(&self, hash: ConnectionHash) -> [usize; 2] {
        let first = hash.bucket(self.buckets.len());
        [first, self.other_bucket(first, self.fingerprint(hash))]
    }

    /// The other of an entry's two buckets. The two add up to a number that follows from the fingerprint, so each is found
    /// from the other, and an entry can be moved without its key.
    #[inline]
    fn other_bucket(&self, bucket: usize, fingerprint: u32) -> usize {
        let count = self.buckets.len();
        let sum = place_of(fingerprint.wrapping_mul(0x9e37_79b1), count);
        if sum >= bucket { sum - bucket } else { sum + count - bucket }
    }

    /// The fingerprint by which the connection with this hash is kept.
    #[must_use]
    #[inline]
    pub fn fingerprint(&self, hash: ConnectionHash) -> u32 {
        hash.fingerprint() & self.fingerprint_mask
    }

    /// Asks for the first bucket of a connection.
    #[inline]
    pub fn prefetch(&self, hash: ConnectionHash) {
        prefetch(&self.buckets[hash.bucket(self.buckets.len())]);
    }

    /// Asks for the second bucket, if the first, which should have come by now, says that it will be read. Memory answers only so
    /// many questions at a time, and most would be in vain.
    #[inline]
    pub fn prefetch_second(&self, hash: ConnectionHash) {
        let first = hash.bucket(self.buckets.len());
        if self.buckets[first].0[EXTENSIONS] & OVERFLOWED != 0 {
            prefetch(&self.buckets[self.other_bucket(first, self.fingerprint(hash))]);
        }
    }

    /// The entry of a connection, with its place. What has been closed for longer than it lingers is no entry.
    #[must_use]
    #[inline]
    pub fn find(&self, hash: ConnectionHash, now: u64) -> Option<(Slot, Entry)> {
        let fingerprint = self.fingerprint(hash);
        let [first, second] = self.bucket_indices(hash);
        self.find_in(first, fingerprint, now).or_else(|| {
            if self.buckets[first].0[EXTENSIONS] & OVERFLOWED == 0 {
                return None;
            }
            self.find_in(second, fingerprint, now)
        })
    }

    #[inline]
    fn find_in(&self, bucket: usize, fingerprint: u32, now: u64) -> Option<(Slot, Entry)> {
        let line = &self.buckets[bucket];
        let mut slots = slots_where(line, |word| fingerprint_of(word) == fingerprint);
        while slots != 0 {
            let slot = Slot::new(bucket, slots.trailing_zeros());
            if !self.is_free(line.0[slot.index as usize], now) {
                return Some((slot, self.get(slot)));
            }
            slots &= slots - 1;
        }
        None
    }

    /// Whether this word's place can be used again without losing anything.
    #[inline]
    fn is_free(&self, word: u64, now: u64) -> bool {
        is_free(word, now, self.linger_ticks)
    }

    /// The free slots of a bucket, a bit each.
    #[inline]
    fn free_slots(&self, bucket: usize, now: u64) -> u32 {
        slots_where(&self.buckets[bucket], |word| self.is_free(word, now))
    }

    /// The entry at a place.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: Slot) -> Entry {
        let bucket = &self.buckets[slot.bucket as usize].0;
        Entry::unpack(bucket[slot.index as usize], (bucket[EXTENSIONS] >> (8 * slot.index)) as u8)
    }

    /// Puts an entry in the place of another.
    #[inline]
    pub fn set(&mut self, slot: Slot, entry: &Entry) {
        let (word, extension) = entry.pack();
        let bucket = &mut self.buckets[slot.bucket as usize].0;
        bucket[slot.index as usize] = word;
        let shift = 8 * slot.index;
        bucket[EXTENSIONS] = bucket[EXTENSIONS] & !(0xff << shift) | u64::from(extension) << shift;
    }

    /// Notes that a packet of the established connection at this place was seen.
    #[inline]
    pub fn mark_seen(&mut self, slot: Slot) {
        let seen = 1 << (SEEN_SHIFT as u32 + slot.index);
        let extensions = &mut self.buckets[slot.bucket as usize].0[EXTENSIONS];
        // Most are marked already, and what is not written need not be written back.
        if *extensions & seen == 0 {
            *extensions |= seen;
        }
    }

    /// Whether the connection at this place was seen since this was last asked.
    pub fn take_seen(&mut self, slot: Slot) -> bool {
        let seen = 1 << (SEEN_SHIFT as u32 + slot.index);
        let extensions = &mut self.buckets[slot.bucket as usize].0[EXTENSIONS];
        let was_seen = *extensions & seen != 0;
        *extensions &= !seen;
        was_seen
    }

    /// Leaves nothing at a place.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        let entry = Entry { fingerprint: 0, state: State::Removed, ..self.get(slot) };
        self.set(slot, &entry);
    }

    /// Places the entry of a connection that has none. When both its buckets are full the oldest closed entry goes; else an
    /// entry moves to its other bucket, if there is room; else the oldest candidate goes, then the oldest that was only asked
    /// for, then the oldest that was answered. Established ones stay.
    pub fn insert(&mut self, hash: ConnectionHash, entry: &Entry, now: u64) -> Placed {
        let buckets = self.bucket_indices(hash);
        let free = self.free_of(buckets, now).map(|slot| (slot, Placed::Free));
        let Some((slot, placed)) = free.or_else(|| self.make_room(buckets, now)) else { return Placed::Full };
        self.write_new(buckets, slot, entry);
        placed
    }

    /// Places an entry of little worth: for a candidate the oldest candidate goes where both buckets are full, and
    /// nothing else goes for any.
    pub fn insert_weak(&mut self, hash: ConnectionHash, entry: &Entry, now: u64) -> Placed {
        let buckets = self.bucket_indices(hash);
        let free = self.free_of(buckets, now).map(|slot| (slot, Placed::Free));
        let oldest = || {
            let candidates = Self::slots(buckets).filter(|slot| self.get(*slot).state == State::Candidate);
            let oldest = candidates.max_by_key(|slot| self.get(*slot).age(now))?;
            (entry.state == State::Candidate).then_some((oldest, Placed::Evicted(State::Candidate)))
        };
        let Some((slot, placed)) = free.or_else(oldest) else { return Placed::Full };
        self.write_new(buckets, slot, entry);
        placed
    }

    /// A free place in the emptier of two buckets.
    #[inline]
    fn free_of(&self, [first, second]: [usize; 2], now: u64) -> Option<Slot> {
        let mut slots = (first, self.free_slots(first, now));
        if slots.1.count_ones() as usize <= SLOT_COUNT - CROWDED_COUNT {
            let others = self.free_slots(second, now);
            if others.count_ones() > slots.1.count_ones() {
                slots = (second, others);
            }
        }
        (slots.1 != 0).then(|| Slot::new(slots.0, slots.1.trailing_zeros()))
    }

    /// Writes the entry of a connection that had none.
    #[inline]
    fn write_new(&mut self, [first, _]: [usize; 2], slot: Slot, entry: &Entry) {
        if slot.bucket as usize != first {
            self.buckets[first].0[EXTENSIONS] |= OVERFLOWED;
        }
        self.take_seen(slot);
        self.set(slot, entry);
    }

    /// A free place of a bucket.
    #[inline]
    fn free(&self, bucket: usize, now: u64) -> Option<Slot> {
        let slots = self.free_slots(bucket, now);
        (slots != 0).then(|| Slot::new(bucket, slots.trailing_zeros()))
    }

    /// Makes room in one of two full buckets, and tells what it took.
    fn make_room(&mut self, buckets: [usize; 2], now: u64) -> Option<(Slot, Placed)> {
        let weakest = self.weakest(buckets, now);
        if let Some((slot, State::Closed)) = weakest {
            return Some((slot, Placed::Evicted(State::Closed)));
        }
        let moved = self.move_one(buckets, now).map(|slot| (slot, Placed::Free));
        moved.or(weakest.map(|(slot, state)| (slot, Placed::Evicted(state))))
    }

    fn slots(buckets: [usize; 2]) -> impl Iterator<Item = Slot> {
        buckets.into_iter().flat_map(|bucket| (0..SLOT_COUNT as u32).map(move |index| Slot::new(bucket, index)))
    }

    /// Moves one entry of two full buckets to its other bucket; the place that it leaves.
    fn move_one(&mut self, buckets: [usize; 2], now: u64) -> Option<Slot> {
        let (from, to) = Self::slots(buckets).find_map(|from| {
            let other = self.other_bucket(from.bucket as usize, self.get(from).fingerprint);
            Some((from, self.free(other, now)?))
        })?;
        self.set(to, &self.get(from));
        // What was seen there was seen here.
        if self.take_seen(from) {
            self.mark_seen(to);
        } else {
            self.take_seen(to);
        }
        self.buckets[from.bucket as usize].0[EXTENSIONS] |= OVERFLOWED;
        Some(from)
    }

    /// The entry that a new connection may push out: by state first, then by age.
    fn weakest(&self, buckets: [usize; 2], now: u64) -> Option<(Slot, State)> {
        let weakness = |entry: &Entry| match entry.state {
            State::Closed => 4,
            State::Candidate => 3,
            State::SynSent => 2,
            state if state.is_answered() => 1,
            _ => 0,
        };
        let entries = Self::slots(buckets).map(|slot| (slot, self.get(slot))).filter(|(_, entry)| weakness(entry) > 0);
        let weakest = entries.max_by_key(|(_, entry)| (weakness(entry), entry.age(now)));
        weakest.map(|(slot, entry)| (slot, entry.state))
    }
}
