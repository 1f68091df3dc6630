//! The connection filter: entries without keys, in buckets of one cache line, each connection in one of two buckets.

use crate::error::Result;
use crate::signal::{ConnectionHash, FINGERPRINT_BITS};
use crate::state::{Decoder, Encoder};
use crate::track::entry::{
    SLOT_COUNT, SlotSet, in_state, is_free, recorded_at, removed, state_of, unused_and_closed, with_fingerprint,
};
use crate::track::{ConnectionState, FilterEntry};
use flowpeel_iblt::hash::{GOLDEN_32, place_of};
use flowpeel_lines::{Line, Lines, prefetch};

/// The lowest bit of the eighth word's last byte: set once an entry of this bucket went to its other bucket instead, so
/// that look-ups continue there.
const OVERFLOWED: u64 = 1 << 56;

/// The shift of that byte's other seven bits. Each says of a slot whether its established connection was seen since
/// the last [`Filter::take_seen`], or of a connection in SYN_SENT whether its client has answered the SYN-ACK already.
const SEEN_SHIFT: usize = 57;

const _: () = assert!(SEEN_SHIFT + SLOT_COUNT == u64::BITS as usize);

/// The index of the word with the extension bytes.
const EXTENSIONS: usize = SLOT_COUNT;

const SLOT_AND_EXTENSION_COUNT: usize = EXTENSIONS + 1;

const _: () = assert!(size_of::<Line>() == SLOT_AND_EXTENSION_COUNT * size_of::<u64>());

/// Entries that are tried for a chain of two moves to place a half-open connection: each takes seven look-ups, with
/// which no flood is to keep a shard busy.
const HALF_OPEN_MOVES_TRIED_MAX: usize = 3;

/// How many entries ahead the other bucket of one is prefetched while one is looked for that can move there: each is
/// another cache line, and one of the first few nearly always has room.
const MOVES_AHEAD_COUNT: usize = 4;

/// The place of an entry: its bucket, and in the lowest bits the index of its word there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterSlot(u32);

impl FilterSlot {
    #[inline]
    fn new(bucket: usize, index: u32) -> Self {
        FilterSlot((bucket * SLOT_AND_EXTENSION_COUNT) as u32 | index)
    }

    /// The slot as a number, from which [`Self::from_bits`] makes the slot again.
    #[inline]
    pub(super) fn to_bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) fn from_bits(bits: u32) -> Self {
        FilterSlot(bits)
    }

    #[inline]
    fn bucket(self) -> usize {
        self.0 as usize / SLOT_AND_EXTENSION_COUNT
    }

    #[inline]
    fn index(self) -> usize {
        self.0 as usize % SLOT_AND_EXTENSION_COUNT
    }

    /// The shift of the entry's extension byte.
    #[inline]
    fn extension_shift(self) -> usize {
        8 * self.index()
    }

    /// The bit that says whether the entry's connection was seen.
    #[inline]
    fn seen(self) -> u64 {
        1 << (SEEN_SHIFT + self.index())
    }
}

/// How an entry found its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// There was a free place.
    Free,
    /// Other entries had to move.
    Moved(Moved),
    /// This entry was evicted.
    Evicted(FilterEntry),
}

/// What was moved to make room for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The new places of what was moved: of one entry, and sometimes of a second that made room for the first.
    pub to: [Option<FilterSlot>; 2],
    /// Whether a closed entry was evicted for that.
    pub has_forgotten: bool,
}

/// A place that an entry can be moved to.
#[derive(Clone, Copy)]
struct FreePlace {
    slot: FilterSlot,
    /// Whether a closed entry that would still linger has to be evicted for it.
    is_closed: bool,
}

/// The slots of established connections in a bucket, a bit each.
fn established_in(bucket: &Line) -> u64 {
    let is_established = |index: &usize| state_of(bucket.0[*index]).is_established();
    (0..SLOT_COUNT).filter(is_established).fold(0, |bits, index| bits | 1 << index)
}

/// Those of these established connections that were seen. Of a connection that is not established the bit says
/// something else.
fn seen_of(established: u64, bucket: &Line) -> u64 {
    bucket.0[EXTENSIONS] >> SEEN_SHIFT & established
}

/// The shape of a [`Filter`].
#[derive(Clone, Copy, Debug)]
pub struct FilterConfig {
    /// The fewest places.
    pub place_count: usize,
    /// How long a closed entry lingers, in ticks.
    pub linger_ticks: u32,
    /// The width of fingerprints: [`FINGERPRINT_BITS`], or less to see what too few do.
    pub fingerprint_bits: u32,
}

/// The entries of one partition. The memory is fixed when it is made.
///
/// A look-up is answered wrongly if it meets another connection's fingerprint. With 30 bits and two buckets of seven
/// this happens about once in 10^8 look-ups of connections that are not there.
pub struct Filter {
    buckets: Lines,
    /// For each bucket, which of its connections were seen before time leaped, and not asked about since: a bit each.
    seen_before: Vec<u8>,
    /// How many of these bits are set. Where it is none, as nearly always, their memory need not be read.
    seen_before_count: u64,
    fingerprint_mask: u32,
    linger_ticks: u32,
}

impl Filter {
    /// An empty filter.
    #[must_use]
    pub fn new(config: FilterConfig) -> Self {
        Filter {
            buckets: Lines::new(Self::bucket_count(config.place_count)),
            seen_before: vec![0; Self::bucket_count(config.place_count)],
            seen_before_count: 0,
            fingerprint_mask: (1 << config.fingerprint_bits.min(FINGERPRINT_BITS)) - 1,
            linger_ticks: config.linger_ticks,
        }
    }

    /// The memory of a filter with this many places, in bytes.
    #[must_use]
    pub fn size(place_count: usize) -> usize {
        Self::bucket_count(place_count) * (size_of::<Line>() + size_of::<u8>())
    }

    fn bucket_count(place_count: usize) -> usize {
        place_count.div_ceil(SLOT_COUNT).max(1)
    }

    /// The first and the second bucket of a connection.
    #[inline]
    fn bucket_indices(&self, hash: ConnectionHash) -> [usize; 2] {
        let first = hash.bucket(self.buckets.len());
        [first, self.other_bucket(first, self.fingerprint(hash))]
    }

    /// The other of an entry's two buckets. The sum of both is a function of the fingerprint, so each follows from the
    /// other, and an entry can be moved without its key.
    #[inline]
    fn other_bucket(&self, bucket: usize, fingerprint: u32) -> usize {
        let count = self.buckets.len();
        let sum = place_of(fingerprint.wrapping_mul(GOLDEN_32), count);
        if sum >= bucket { sum - bucket } else { sum + count - bucket }
    }

    /// The fingerprint that the filter keeps of the connection with this hash.
    #[must_use]
    #[inline]
    pub fn fingerprint(&self, hash: ConnectionHash) -> u32 {
        hash.fingerprint() & self.fingerprint_mask
    }

    /// The first bucket of a connection, to prefetch it.
    #[inline]
    pub(super) fn first_bucket(&self, hash: ConnectionHash) -> &Line {
        &self.buckets[hash.bucket(self.buckets.len())]
    }

    /// Prefetches the second bucket if the first, which should have arrived by now, says that it will be read. Only so
    /// many cache misses can be under way at once, and most of these would be for nothing.
    #[inline]
    pub fn prefetch_second(&self, hash: ConnectionHash) {
        let first = hash.bucket(self.buckets.len());
        if self.buckets[first].0[EXTENSIONS] & OVERFLOWED != 0 {
            prefetch(&self.buckets[self.other_bucket(first, self.fingerprint(hash))]);
        }
    }

    /// Prefetches the bucket of a slot.
    #[inline]
    pub(super) fn prefetch_slot(&self, slot: FilterSlot) {
        prefetch(&self.buckets[slot.bucket()]);
    }

    /// The entry of a connection, with its slot. Entries that have been closed for longer than they linger are not
    /// found.
    #[must_use]
    #[inline(always)]
    pub fn find(&self, hash: ConnectionHash, now: u64) -> Option<(FilterSlot, FilterEntry)> {
        let fingerprint = self.fingerprint(hash);
        let first = hash.bucket(self.buckets.len());
        let slot = self.find_in(first, fingerprint, now).or_else(|| {
            if self.buckets[first].0[EXTENSIONS] & OVERFLOWED == 0 {
                return None;
            }
            self.find_in_other(first, fingerprint, now)
        })?;
        Some((slot, self.get(slot)))
    }

    #[inline(always)]
    fn find_in(&self, bucket: usize, fingerprint: u32, now: u64) -> Option<FilterSlot> {
        let line = &self.buckets[bucket];
        let mut slots = with_fingerprint(line, fingerprint);
        while slots != 0 {
            let slot = FilterSlot::new(bucket, slots.trailing_zeros());
            if !self.is_free(line.0[slot.index()], now) {
                return Some(slot);
            }
            slots &= slots - 1;
        }
        None
    }

    #[inline(never)]
    fn find_in_other(&self, bucket: usize, fingerprint: u32, now: u64) -> Option<FilterSlot> {
        self.find_in(self.other_bucket(bucket, fingerprint), fingerprint, now)
    }

    /// Whether this word's place is free.
    #[inline]
    fn is_free(&self, word: u64, now: u64) -> bool {
        is_free(word, now, self.linger_ticks)
    }

    /// The free places of a bucket.
    #[inline(always)]
    fn free_places(&self, bucket: usize, now: u64) -> SlotSet {
        let line = &self.buckets[bucket];
        let (mut free, mut closed) = unused_and_closed(line);
        while !closed.is_empty() {
            let index = closed.first();
            free = free.with(index, self.is_free(line.0[index as usize], now));
            closed = closed.without_first();
        }
        free
    }

    /// The first free slot of a bucket.
    #[inline(always)]
    fn free_slot(&self, bucket: usize, now: u64) -> Option<FilterSlot> {
        let places = self.free_places(bucket, now);
        (!places.is_empty()).then(|| FilterSlot::new(bucket, places.first()))
    }

    /// The entry in a slot.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: FilterSlot) -> FilterEntry {
        let bucket = &self.buckets[slot.bucket()].0;
        FilterEntry::unpack(bucket[slot.index()], (bucket[EXTENSIONS] >> slot.extension_shift()) as u8)
    }

    /// The entry in a slot that may be out of range.
    pub(super) fn get_checked(&self, slot: FilterSlot) -> Option<FilterEntry> {
        (slot.bucket() < self.buckets.len() && slot.index() < SLOT_COUNT).then(|| self.get(slot))
    }

    /// Overwrites the entry in a slot.
    #[inline]
    pub fn set(&mut self, slot: FilterSlot, entry: &FilterEntry) {
        self.write(slot, entry, 0);
    }

    /// Overwrites the entry in a slot, as that of a connection that was not seen.
    #[inline]
    pub fn set_unseen(&mut self, slot: FilterSlot, entry: &FilterEntry) {
        self.write(slot, entry, slot.seen());
    }

    /// Writes an entry into a slot, and clears these other bits of the eighth word.
    #[inline]
    fn write(&mut self, slot: FilterSlot, entry: &FilterEntry, cleared: u64) {
        let (word, extension) = entry.pack();
        let bucket = &mut self.buckets[slot.bucket()].0;
        bucket[slot.index()] = word;
        let shift = slot.extension_shift();
        bucket[EXTENSIONS] = bucket[EXTENSIONS] & !(0xff << shift | cleared) | u64::from(extension) << shift;
    }

    #[inline]
    fn word_mut(&mut self, slot: FilterSlot) -> &mut u64 {
        &mut self.buckets[slot.bucket()].0[slot.index()]
    }

    /// Changes the state of the entry in a slot, and nothing else.
    #[inline]
    pub fn set_state(&mut self, slot: FilterSlot, state: ConnectionState) {
        let word = self.word_mut(slot);
        *word = in_state(*word, state);
    }

    /// Changes the place of the record of the connection in a slot.
    #[inline]
    pub(super) fn set_record(&mut self, slot: FilterSlot, place: u32) {
        let word = self.word_mut(slot);
        *word = recorded_at(*word, place);
    }

    /// Marks the connection in this slot as seen.
    #[inline]
    pub fn mark_seen(&mut self, slot: FilterSlot) {
        let seen = slot.seen();
        let extensions = &mut self.buckets[slot.bucket()].0[EXTENSIONS];
        // Most are marked already, and a line that is not written need not be written back.
        if *extensions & seen == 0 {
            *extensions |= seen;
        }
    }

    /// Whether the connection in this slot was seen since the last [`Self::take_seen`].
    #[must_use]
    pub fn is_seen(&self, slot: FilterSlot) -> bool {
        self.buckets[slot.bucket()].0[EXTENSIONS] & slot.seen() != 0
    }

    /// Returns whether the connection in this slot was seen since the last call, and forgets it.
    pub fn take_seen(&mut self, slot: FilterSlot) -> bool {
        let seen = slot.seen();
        let extensions = &mut self.buckets[slot.bucket()].0[EXTENSIONS];
        let was_seen = *extensions & seen != 0;
        *extensions &= !seen;
        was_seen
    }

    /// Keeps what was seen so far apart from what is seen from now on, because time leaps, and returns whether it did.
    /// There is room for one leap: where no less is kept from an earlier one than was seen since, that stays, and what
    /// was seen since counts as seen behind this one.
    ///
    /// Complexity: two passes over the memory.
    pub fn keep_seen(&mut self) -> bool {
        let (mut kept_count, mut seen_count) = (0u64, 0u64);
        for (bucket, seen_before) in self.buckets.iter().zip(&self.seen_before) {
            let established = established_in(bucket);
            let seen = seen_of(established, bucket);
            let kept = u64::from(*seen_before) & established & !seen;
            kept_count += u64::from(kept.count_ones());
            seen_count += u64::from(seen.count_ones());
        }
        if kept_count >= seen_count.max(1) {
            return false;
        }
        self.seen_before_count = kept_count + seen_count;
        for (bucket, seen_before) in self.buckets.iter_mut().zip(&mut self.seen_before) {
            let established = established_in(bucket);
            let seen = seen_of(established, bucket);
            *seen_before = (u64::from(*seen_before) & established | seen) as u8;
            bucket.0[EXTENSIONS] &= !(seen << SEEN_SHIFT);
        }
        true
    }

    /// Returns whether the connection in this slot was seen before time leaped and was not asked about since, and
    /// forgets it.
    pub fn take_seen_before(&mut self, slot: FilterSlot) -> bool {
        if self.seen_before_count == 0 {
            return false;
        }
        let (seen, bit) = (&mut self.seen_before[slot.bucket()], 1 << slot.index());
        let was_seen = *seen & bit != 0;
        *seen &= !bit;
        self.seen_before_count -= u64::from(was_seen);
        was_seen
    }

    /// Removes the entry in a slot.
    #[inline]
    pub fn remove(&mut self, slot: FilterSlot) {
        let word = self.word_mut(slot);
        *word = removed(*word);
    }

    /// SlotSet the entry of a connection that has none. Returns its slot and what that took, or `None` when both its
    /// buckets, and those that their entries could move to, are full of established connections. Tried in this order:
    ///
    /// 1. a free slot of the first bucket, then of the second;
    /// 2. the slot of the oldest closed entry;
    /// 3. a move of one entry to its other bucket, to a free slot or else a closed entry's;
    /// 4. the slot of the oldest candidate, then of the oldest in SYN_SENT, then of the oldest that was answered;
    /// 5. two moves, of which few are tried for a half-open connection.
    ///
    /// `age` gives the age of an entry.
    #[inline]
    pub fn insert(
        &mut self,
        hash: ConnectionHash,
        entry: &FilterEntry,
        now: u64,
        age: impl Fn(&FilterEntry) -> u32,
    ) -> Option<(FilterSlot, Placed)> {
        let first = hash.bucket(self.buckets.len());
        // Where the first bucket has room the second is not even read, now and in look-ups. What closed and lingers no
        // more is room too, so that no entry of a connection is ever found before a later one of the same.
        match self.free_slot(first, now) {
            Some(slot) => {
                self.write(slot, entry, slot.seen());
                Some((slot, Placed::Free))
            }
            None => self.insert_beside(hash, entry, now, age),
        }
    }

    /// How many entries have a record in a ring.
    ///
    /// Complexity: a pass over the buckets.
    pub(super) fn recorded_count(&self) -> usize {
        self.states().filter(|state| state.is_recorded()).count()
    }

    fn states(&self) -> impl Iterator<Item = ConnectionState> {
        self.buckets.iter().flat_map(|bucket| &bucket.0[..SLOT_COUNT]).map(|word| state_of(*word))
    }

    /// [`Filter::insert`] for a connection whose first bucket is full.
    #[inline(never)]
    fn insert_beside(
        &mut self,
        hash: ConnectionHash,
        entry: &FilterEntry,
        now: u64,
        age: impl Fn(&FilterEntry) -> u32,
    ) -> Option<(FilterSlot, Placed)> {
        self.insert_or(hash, entry, now, |filter, buckets| filter.make_room(buckets, entry, now, age))
    }

    /// SlotSet an entry that is worth little. If both buckets are full, a candidate evicts the oldest candidate;
    /// nothing else evicts anything.
    pub fn insert_weak(
        &mut self,
        hash: ConnectionHash,
        entry: &FilterEntry,
        now: u64,
        age: impl Fn(&FilterEntry) -> u32,
    ) -> Option<(FilterSlot, Placed)> {
        self.insert_or(hash, entry, now, |filter, buckets| {
            let entries = Self::slots(buckets).map(|slot| (slot, filter.get(slot)));
            let candidates = entries.filter(|(_, held)| held.state == ConnectionState::Candidate);
            let (slot, oldest) = candidates.max_by_key(|(_, held)| age(held))?;
            (entry.state == ConnectionState::Candidate).then_some((slot, Placed::Evicted(oldest)))
        })
    }

    /// SlotSet an entry where there is a free place in one of its buckets, or else where `room` is made.
    #[inline(always)]
    fn insert_or(
        &mut self,
        hash: ConnectionHash,
        entry: &FilterEntry,
        now: u64,
        room: impl FnOnce(&mut Self, [usize; 2]) -> Option<(FilterSlot, Placed)>,
    ) -> Option<(FilterSlot, Placed)> {
        let buckets = self.bucket_indices(hash);
        let free = buckets.into_iter().find_map(|bucket| self.free_slot(bucket, now));
        let (slot, placed) = free.map(|slot| (slot, Placed::Free)).or_else(|| room(self, buckets))?;
        if slot.bucket() != buckets[0] {
            self.buckets[buckets[0]].0[EXTENSIONS] |= OVERFLOWED;
        }
        self.write(slot, entry, slot.seen());
        Some((slot, placed))
    }

    /// A free place in a bucket.
    fn free(&self, bucket: usize, now: u64) -> Option<FreePlace> {
        self.free_slot(bucket, now).map(|slot| FreePlace { slot, is_closed: false })
    }

    /// A place in a bucket that has a closed entry.
    fn closed(&self, bucket: usize) -> Option<FreePlace> {
        let (_, places) = unused_and_closed(&self.buckets[bucket]);
        (!places.is_empty()).then(|| FreePlace { slot: FilterSlot::new(bucket, places.first()), is_closed: true })
    }

    /// Makes room for an entry in its two buckets, which are both full, and returns how.
    #[cold]
    fn make_room(
        &mut self,
        buckets: [usize; 2],
        entry: &FilterEntry,
        now: u64,
        age: impl Fn(&FilterEntry) -> u32,
    ) -> Option<(FilterSlot, Placed)> {
        let weakest = self.weakest(buckets, age).map(|(slot, entry)| (slot, Placed::Evicted(entry)));
        if let Some((_, Placed::Evicted(FilterEntry { state: ConnectionState::Closed, .. }))) = weakest {
            return weakest;
        }
        let moved = self.move_one(buckets, |filter, bucket| filter.free(bucket, now));
        let moved = moved.or_else(|| self.move_one(buckets, Self::closed));
        // A chain of two moves takes many look-ups, with which no flood is to keep a shard busy.
        let tried_count = if entry.state.is_established() { 2 * SLOT_COUNT } else { HALF_OPEN_MOVES_TRIED_MAX };
        moved.or(weakest).or_else(|| self.move_two(buckets, tried_count, now))
    }

    fn slots(buckets: [usize; 2]) -> impl Iterator<Item = FilterSlot> {
        buckets.into_iter().flat_map(Self::slots_of)
    }

    fn slots_of(bucket: usize) -> impl Iterator<Item = FilterSlot> {
        (0..SLOT_COUNT as u32).map(move |index| FilterSlot::new(bucket, index))
    }

    /// Moves one entry of two full buckets to its other bucket, if `place` finds a place there.
    fn move_one(
        &mut self,
        buckets: [usize; 2],
        place: impl Fn(&Self, usize) -> Option<FreePlace>,
    ) -> Option<(FilterSlot, Placed)> {
        let prefetch_other = |from| prefetch(&self.buckets[self.other_of(from)]);
        let mut ahead = Self::slots(buckets);
        ahead.by_ref().take(MOVES_AHEAD_COUNT).for_each(prefetch_other);
        let (from, to) = Self::slots(buckets).find_map(|from| {
            ahead.next().into_iter().for_each(prefetch_other);
            Some((from, place(self, self.other_of(from))?))
        })?;
        self.relocate(from, to.slot);
        Some((from, Placed::Moved(Moved { to: [Some(to.slot), None], has_forgotten: to.is_closed })))
    }

    /// Moves one of the first `tried_count` entries of two full buckets to its other bucket, which is full too, and for
    /// that an entry of the other bucket to its own other bucket.
    fn move_two(&mut self, buckets: [usize; 2], tried_count: usize, now: u64) -> Option<(FilterSlot, Placed)> {
        let (from, via, to) = Self::slots(buckets).take(tried_count).find_map(|from| {
            let mut others = Self::slots_of(self.other_of(from)).map(|via| (via, self.other_of(via)));
            others.find_map(|(via, last)| Some((from, via, self.free(last, now).or_else(|| self.closed(last))?)))
        })?;
        self.relocate(via, to.slot);
        self.relocate(from, via);
        Some((from, Placed::Moved(Moved { to: [Some(via), Some(to.slot)], has_forgotten: to.is_closed })))
    }

    /// The other bucket of the entry at a place.
    fn other_of(&self, slot: FilterSlot) -> usize {
        self.other_bucket(slot.bucket(), self.get(slot).fingerprint)
    }

    /// Moves an entry from one slot to another, which is in its other bucket.
    fn relocate(&mut self, from: FilterSlot, to: FilterSlot) {
        self.set(to, &self.get(from));
        // The bit that says whether the connection was seen moves too.
        if self.take_seen(from) {
            self.mark_seen(to);
        } else {
            self.take_seen(to);
        }
        self.take_seen_before(to);
        if self.take_seen_before(from) {
            self.seen_before[to.bucket()] |= 1 << to.index();
            self.seen_before_count += 1;
        }
        self.buckets[from.bucket()].0[EXTENSIONS] |= OVERFLOWED;
    }

    /// The entry to evict for a new connection: by state first, then by age.
    fn weakest(&self, buckets: [usize; 2], age: impl Fn(&FilterEntry) -> u32) -> Option<(FilterSlot, FilterEntry)> {
        let weakness = |entry: &FilterEntry| match entry.state {
            ConnectionState::Closed => 4,
            ConnectionState::Candidate => 3,
            ConnectionState::SynSent => 2,
            state if state.is_answered() => 1,
            _ => 0,
        };
        let entries = Self::slots(buckets).map(|slot| (slot, self.get(slot))).filter(|(_, entry)| weakness(entry) > 0);
        entries.max_by_key(|(_, entry)| (weakness(entry), age(entry)))
    }

    /// Writes the filter into a saved state: about as many bytes as its memory.
    ///
    /// Complexity: a pass over the buckets.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.length(self.buckets.len());
        self.buckets.iter().for_each(|bucket| encoder.words(&bucket.0));
        encoder.bytes(&self.seen_before);
    }

    /// Fills the filter from a saved state. After an error it is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a filter of this size.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let count = decoder.length(size_of::<Line>(), self.buckets.len())?;
        decoder.expect(count == self.buckets.len(), "a filter of another size")?;
        self.buckets.iter_mut().try_for_each(|bucket| decoder.words(&mut bucket.0))?;
        let seen_before = decoder.bytes()?;
        decoder.expect(seen_before.len() == self.seen_before.len(), "a filter of another size")?;
        self.seen_before.copy_from_slice(seen_before);
        self.seen_before_count = seen_before.iter().map(|seen| u64::from(seen.count_ones())).sum();
        Ok(())
    }

    /// How many connections are established, and how many of these are seen from one side only.
    ///
    /// Complexity: a pass over the buckets.
    #[must_use]
    pub fn established(&self) -> (u64, u64) {
        let established = self.states().filter(|state| state.is_established()).count() as u64;
        (established, self.states().filter(|state| state.is_one_way()).count() as u64)
    }

    /// Forgets which connections were seen.
    pub fn forget_seen(&mut self) {
        const SEEN: u64 = ((1 << SLOT_COUNT) - 1) << SEEN_SHIFT;
        self.buckets.iter_mut().for_each(|bucket| bucket.0[EXTENSIONS] &= !SEEN);
        self.seen_before.fill(0);
        self.seen_before_count = 0;
    }
}
