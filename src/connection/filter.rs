//! The connection filter: entries without keys, in buckets of one cache line, each connection in one of two buckets.

use crate::config::FINGERPRINT_BITS;
use crate::connection::entry::{fingerprint_of, state_of};
use crate::connection::{Entry, State};
use crate::hash::place_of;
use crate::prefetch::prefetch;
use crate::signal::ConnectionHash;

/// Entries in a bucket. Seven words of 64 bits, and an eighth that holds a byte more for each of them.
pub const SLOT_COUNT: usize = 7;

/// A bucket with this many places taken sends the next connection to the other of its two buckets when that is emptier.
/// Below it the second bucket need not be read at all; at it, buckets fill almost as evenly as if both were always compared.
const CROWDED_COUNT: usize = 4;

/// The byte of the eighth word that is no entry's extension. Its lowest bit is set once a connection went to its second bucket
/// because of this one;
const OVERFLOWED: u64 = 1 << 56;

/// the other seven belong to a slot each: whether its established connection was seen since somebody last asked.
const SEEN_SHIFT: usize = 57;

const _: () = assert!(SEEN_SHIFT + SLOT_COUNT == u64::BITS as usize);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    words: [u64; SLOT_COUNT],
    extensions: u64,
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    bucket: usize,
    index: usize,
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
    buckets: Box<[Bucket]>,
    fingerprint_mask: u32,
    linger_ticks: u32,
}

impl Filter {
    /// A filter with at least this many places, in which closed entries linger for so many ticks.
    ///
    /// `fingerprint_bits` is [`FINGERPRINT_BITS`], or less to see what too few do.
    #[must_use]
    pub fn new(place_count: usize, linger_ticks: u32, fingerprint_bits: u32) -> Self {
        let bucket = Bucket { words: [0; SLOT_COUNT], extensions: 0 };
        Filter {
            buckets: vec![bucket; place_count.div_ceil(SLOT_COUNT).max(1)].into_boxed_slice(),
            fingerprint_mask: (1 << fingerprint_bits.min(FINGERPRINT_BITS)) - 1,
            linger_ticks,
        }
    }

    /// The memory of a filter with this many places, in bytes.
    #[must_use]
    pub fn size(place_count: usize) -> usize {
        place_count.div_ceil(SLOT_COUNT).max(1) * size_of::<Bucket>()
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

    /// Asks for both buckets of a connection.
    #[inline]
    pub fn prefetch(&self, hash: ConnectionHash) {
        for bucket in self.bucket_indices(hash) {
            prefetch(&self.buckets[bucket]);
        }
    }

    /// The entry of a connection, with its place. What has been closed for longer than it lingers is no entry.
    #[must_use]
    #[inline]
    pub fn find(&self, hash: ConnectionHash, now: u64) -> Option<(Slot, Entry)> {
        let fingerprint = self.fingerprint(hash);
        let [first, second] = self.bucket_indices(hash);
        self.find_in(first, fingerprint, now).or_else(|| {
            if self.buckets[first].extensions & OVERFLOWED == 0 {
                return None;
            }
            self.find_in(second, fingerprint, now)
        })
    }

    #[inline]
    fn find_in(&self, bucket: usize, fingerprint: u32, now: u64) -> Option<(Slot, Entry)> {
        for (index, &word) in self.buckets[bucket].words.iter().enumerate() {
            if fingerprint_of(word) == fingerprint && !self.is_free(word, now) {
                let slot = Slot { bucket, index };
                return Some((slot, self.get(slot)));
            }
        }
        None
    }

    /// Whether this word's place can be used again without losing anything.
    #[inline]
    fn is_free(&self, word: u64, now: u64) -> bool {
        match state_of(word) {
            State::Empty | State::Removed => true,
            State::Closed => Entry::unpack(word, 0).age(now) > self.linger_ticks,
            _ => false,
        }
    }

    /// The entry at a place.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: Slot) -> Entry {
        let bucket = &self.buckets[slot.bucket];
        Entry::unpack(bucket.words[slot.index], (bucket.extensions >> (8 * slot.index)) as u8)
    }

    /// Puts an entry in the place of another.
    #[inline]
    pub fn set(&mut self, slot: Slot, entry: &Entry) {
        let (word, extension) = entry.pack();
        let bucket = &mut self.buckets[slot.bucket];
        bucket.words[slot.index] = word;
        let shift = 8 * slot.index;
        bucket.extensions = bucket.extensions & !(0xff << shift) | u64::from(extension) << shift;
    }

    /// Notes that a packet of the established connection at this place was seen.
    #[inline]
    pub fn mark_seen(&mut self, slot: Slot) {
        let seen = 1 << (SEEN_SHIFT + slot.index);
        let extensions = &mut self.buckets[slot.bucket].extensions;
        // Most are marked already, and what is not written need not be written back.
        if *extensions & seen == 0 {
            *extensions |= seen;
        }
    }

    /// Whether the connection at this place was seen since this was last asked.
    pub fn take_seen(&mut self, slot: Slot) -> bool {
        let seen = 1 << (SEEN_SHIFT + slot.index);
        let extensions = &mut self.buckets[slot.bucket].extensions;
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
        let in_first = self.crowd(first, now);
        let bucket = if in_first >= CROWDED_COUNT && self.crowd(second, now) < in_first { second } else { first };
        self.free(bucket, now)
    }

    /// Writes the entry of a connection that had none.
    #[inline]
    fn write_new(&mut self, [first, _]: [usize; 2], slot: Slot, entry: &Entry) {
        if slot.bucket != first {
            self.buckets[first].extensions |= OVERFLOWED;
        }
        self.take_seen(slot);
        self.set(slot, entry);
    }

    /// How many places of a bucket are taken.
    #[inline]
    fn crowd(&self, bucket: usize, now: u64) -> usize {
        self.buckets[bucket].words.iter().filter(|&&word| !self.is_free(word, now)).count()
    }

    /// A free place of a bucket.
    #[inline]
    fn free(&self, bucket: usize, now: u64) -> Option<Slot> {
        let index = self.buckets[bucket].words.iter().position(|&word| self.is_free(word, now))?;
        Some(Slot { bucket, index })
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
        buckets.into_iter().flat_map(|bucket| (0..SLOT_COUNT).map(move |index| Slot { bucket, index }))
    }

    /// Moves one entry of two full buckets to its other bucket; the place that it leaves.
    fn move_one(&mut self, buckets: [usize; 2], now: u64) -> Option<Slot> {
        let (from, to) = Self::slots(buckets).find_map(|from| {
            let other = self.other_bucket(from.bucket, self.get(from).fingerprint);
            Some((from, self.free(other, now)?))
        })?;
        self.set(to, &self.get(from));
        // What was seen there was seen here.
        if self.take_seen(from) {
            self.mark_seen(to);
        } else {
            self.take_seen(to);
        }
        self.buckets[from.bucket].extensions |= OVERFLOWED;
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
