//! The rings with the half-open connections and their keys, oldest first.
//!
//! The filter has no keys, so a connection needs a record here until its handshake is complete: a list may have to show
//! it, or a timeout to remove it. Candidates (connections older than the start, of which one side was seen) have a ring
//! of their own, and so have handshakes that are presumed to be answered: those of which a SYN-ACK was seen, which was
//! repeated once at most, and nothing else until the timeout. A record is written when the SYN is seen, and again when
//! the SYN-ACK is seen in a later tick, because the timeout then counts from there. A flood overwrites the oldest
//! records.
//!
//! Each record has a place, which the filter's entry of its connection names while the record is in use, and each
//! record names the slot of that entry. So neither has to be looked up by key. A mark for each record says whether it
//! is still in use: most records are of connections that complete long before their record reaches the end of the ring.

use crate::error::Result;
use crate::flow::{Family, FlowKey, KeyV4, KeyV6, WordKey};
use crate::handover::HalfOpenList;
use crate::handover::half_open::{HalfOpenHeader, UNIT_WORD_COUNT, half_open_word_count};
use crate::signal::TICK_BITS;
use crate::state::{Decoder, Encoder};
use crate::track::{ConnectionState, Filter, FilterEntry, FilterSlot};
use flowpeel_lines::{Line, prefetch};

/// The most half-open connections that are kept: at a million attempts a second the oldest is then a quarter of a
/// second old when it has to go, longer than most round trips.
pub const HALF_OPEN_MAX: u64 = 1 << 18;

/// The bits at the end of a key that hold its VLAN tags. Few keys have tags, so a record has here the slot of the
/// connection's entry in the filter, and the tags, if any, in a word of their own.
const TAGS: u64 = (1 << u32::BITS) - 1;

/// The position of a record in its ring, valid until the record is removed or moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingRecord {
    index: usize,
    header: HalfOpenHeader,
}

impl RingRecord {
    /// The unit of the ring at which the record begins.
    #[inline]
    fn unit(self) -> usize {
        self.index / UNIT_WORD_COUNT
    }

    /// The size of the record, in words.
    #[inline]
    pub(super) fn size(self) -> usize {
        self.header.word_count()
    }

    /// The tick of the packet by which the record was written, seen at the tick `now`.
    #[inline]
    pub(super) fn since_tick(self, now: u64) -> u64 {
        self.header.since_tick(now)
    }

    /// The ticks from the start of the connection to that packet.
    #[inline]
    pub(super) fn delay(self) -> u64 {
        self.header.delay()
    }
}

/// A record that is to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordDraft<K> {
    header: HalfOpenHeader,
    mark: RecordMark,
    key: K,
}

impl<K: FlowKey> RecordDraft<K> {
    /// The record of the connection with this key, client first, and this entry, at the tick `now`.
    #[inline]
    pub(super) fn new(key: K, entry: &FilterEntry, now: u64) -> Self {
        let header =
            HalfOpenHeader::new(&key, now, u64::from(entry.age(now)), entry.short_isn, entry.state.is_answered());
        RecordDraft { header, mark: RecordMark::of(entry.state), key }
    }

    /// The size of the record, in words.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.header.word_count()
    }
}

/// A position between two records of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingCursor {
    index: usize,
    /// Words of records from here on.
    left: usize,
}

/// A ring of records: 24 bytes for an IPv4 connection, 48 for an IPv6 one, and 24 more with VLAN tags.
struct HalfOpenRing {
    words: Box<[u64]>,
    /// Where the oldest record begins, and how many words of records follow from there, wrapping around the end.
    head: usize,
    used: usize,
}

impl HalfOpenRing {
    /// A ring for this many IPv4 connections (half as many IPv6 ones).
    fn new(connection_count: usize) -> Self {
        HalfOpenRing { words: vec![0; half_open_word_count(connection_count)].into_boxed_slice(), head: 0, used: 0 }
    }

    /// The memory of such a ring, in bytes.
    fn size(connection_count: usize) -> usize {
        half_open_word_count(connection_count) * size_of::<u64>()
    }

    /// How many IPv4 connections it has room for.
    #[inline]
    fn connection_count(&self) -> usize {
        self.words.len() / UNIT_WORD_COUNT
    }

    /// The word `distance` behind `index`, wrapping around the end. Both are less than the length of the ring.
    #[inline]
    fn behind(&self, index: usize, distance: usize) -> usize {
        let sum = index + distance;
        if sum < self.words.len() { sum } else { sum - self.words.len() }
    }

    /// The word at which the next record begins.
    #[inline]
    fn end(&self) -> usize {
        self.behind(self.head, self.used)
    }

    /// Writes a record at the end, for the connection with its entry in `slot`. There must be room.
    #[inline]
    fn write<K: FlowKey>(&mut self, draft: &RecordDraft<K>, at: usize, slot: FilterSlot) {
        let (header, words) = (draft.header, draft.key.words());
        let last = words.len() - 1;
        let closing = words[last] & !TAGS | u64::from(slot.to_bits());
        let tags = u64::from(draft.key.vlan().number());
        // One check for all words, that for the tags too, which is not written where there are none.
        if let Some(place) = self.words.get_mut(at..at + 2 + words.len()) {
            place[0] = header.0;
            place[1..=last].copy_from_slice(&words[..last]);
            place[1 + last] = closing;
            if header.0 & HalfOpenHeader::TAGGED != 0 {
                place[2 + last] = tags;
            }
        } else {
            self.write_in_parts(at, header, &words[..last], [closing, tags]);
        }
        self.used += header.word_count();
    }

    /// Writes a record that ends at the end of the memory, or wraps around it.
    #[inline(never)]
    fn write_in_parts(&mut self, at: usize, header: HalfOpenHeader, words: &[u64], closing: [u64; 2]) {
        let all = std::iter::once(&header.0).chain(words).chain(&closing);
        for (distance, word) in all.take(header.word_count()).enumerate() {
            let place = self.behind(at, distance);
            self.words[place] = *word;
        }
    }

    /// Copies the record with this header from one place to another. A unit has no part beyond the end.
    #[inline]
    fn copy(&mut self, from: usize, to: usize, header: HalfOpenHeader) {
        for distance in (0..header.word_count()).step_by(UNIT_WORD_COUNT) {
            let (from, to) = (self.behind(from, distance), self.behind(to, distance));
            self.words.copy_within(from..from + UNIT_WORD_COUNT, to);
        }
    }

    /// The position before the oldest record.
    #[inline]
    fn start(&self) -> RingCursor {
        RingCursor { index: self.head, left: self.used }
    }

    /// The record behind a position, and the position behind that record.
    #[inline]
    fn after(&self, RingCursor { index, left }: RingCursor) -> Option<(RingRecord, RingCursor)> {
        if left == 0 {
            return None;
        }
        let record = self.record(index);
        Some((record, RingCursor { index: self.behind(index, record.size()), left: left - record.size() }))
    }

    /// The record that begins at this word.
    #[inline]
    fn record(&self, index: usize) -> RingRecord {
        RingRecord { index, header: HalfOpenHeader(self.words[index]) }
    }

    /// Removes all records before this position.
    #[inline]
    fn skip_to(&mut self, RingCursor { index, left }: RingCursor) {
        (self.head, self.used) = (index, left);
    }

    /// The index of the word with the end of a record's key and the slot of its entry.
    #[inline]
    fn closing(&self, record: RingRecord) -> usize {
        self.behind(record.index, record.header.key_word_count())
    }

    /// The slot of the entry of a record's connection.
    #[inline]
    fn slot(&self, record: RingRecord) -> FilterSlot {
        FilterSlot::from_bits(self.words[self.closing(record)] as u32)
    }

    /// The key of a record, which must be of family `K`.
    fn key<K: FlowKey>(&self, record: RingRecord) -> K {
        let mut words: [u64; KeyV6::WORD_COUNT] =
            std::array::from_fn(|at| self.words[self.behind(record.index, (1 + at).min(K::WORD_COUNT))]);
        let tags = if record.header.0 & HalfOpenHeader::TAGGED == 0 {
            0
        } else {
            self.words[self.behind(record.index, 1 + K::WORD_COUNT)]
        };
        words[K::WORD_COUNT - 1] = words[K::WORD_COUNT - 1] & !TAGS | tags & TAGS;
        K::from_words(&words)
    }

    /// Writes the ring into a saved state.
    fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.head as u64);
        encoder.length(self.used);
        (0..self.used).for_each(|distance| encoder.u64(self.words[self.behind(self.head, distance)]));
    }

    /// Fills the ring from a saved state, with all records at their old places. After an error it is unusable.
    fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.head = decoder.count()? as usize;
        let is_place = self.head < self.words.len() && self.head.is_multiple_of(UNIT_WORD_COUNT);
        decoder.expect(is_place, "a ring that begins nowhere")?;
        self.used = decoder.length(size_of::<u64>(), self.words.len())?;
        for distance in 0..self.used {
            let place = self.behind(self.head, distance);
            self.words[place] = decoder.u64()?;
        }
        // Reading a record relies on all of its words being there.
        let mut left = self.used;
        while left > 0 {
            let header =
                crate::handover::half_open::HalfOpenHeader(self.words[self.behind(self.head, self.used - left)]);
            decoder.expect(header.word_count() <= left, "a ring with half a record")?;
            left -= header.word_count();
        }
        Ok(())
    }
}

/// A half-open ring is compacted when it holds this many times what was in use at the last compaction: the memory that
/// it goes through again and again then stays small enough for the caches.
const HALF_OPEN_FILL_FACTOR: usize = 4;

/// A half-open ring is not compacted before it holds this many units of 24 bytes: 12 KiB, which the first-level cache
/// holds anyway.
const HALF_OPEN_FILL_UNITS_MIN: usize = 1 << 9;

/// A full half-open ring is compacted if at least one in this many of its units is of no more use, so that each record
/// is moved a few times at most; otherwise its oldest records are evicted.
const HALF_OPEN_OVER_DIVISOR: usize = 4;

const _: () = assert!(RecordMark::Over as u8 == 0);

/// The mark of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RecordMark {
    /// The connection is no longer half-open, or has another record. (Also the mark of a unit within a record.)
    #[default]
    Over,
    /// The SYN is not answered. Also the mark of a candidate.
    SynSent,
    /// The SYN was answered.
    Answered,
}

impl RecordMark {
    /// The mark for a connection in this state.
    #[inline]
    fn of(state: ConnectionState) -> Self {
        match state {
            state if !state.is_recorded() => RecordMark::Over,
            state if state.is_answered() => RecordMark::Answered,
            _ => RecordMark::SynSent,
        }
    }
}

/// The need of a [`MarkedRing`] before another record can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingRoom {
    /// There is room.
    Enough,
    /// Records that are over have to be compacted away.
    Compact,
    /// The oldest records have to be removed.
    Full,
}

/// The position of the next record.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSpot {
    index: usize,
    /// The place of the record.
    pub(super) place: u32,
}

/// A ring with marks.
pub(super) struct MarkedRing {
    ring: HalfOpenRing,
    /// A mark for each unit.
    marks: Box<[RecordMark]>,
    /// The place of the first unit: the places of a second ring follow those of the first.
    first_place: u32,
    /// Words of records that are in use.
    useful: usize,
    /// Words of records from which on the ring is compacted.
    fill_max: usize,
}

impl MarkedRing {
    /// A ring for this many IPv4 connections, with places from `first_place` on.
    fn new(connection_count: usize, first_place: u32) -> Self {
        let ring = HalfOpenRing::new(connection_count);
        let marks = vec![RecordMark::Over; ring.connection_count()].into_boxed_slice();
        MarkedRing { ring, marks, first_place, useful: 0, fill_max: 0 }
    }

    /// The memory of such a ring, in bytes.
    fn size(connection_count: usize) -> usize {
        let ring_size = HalfOpenRing::size(connection_count);
        ring_size + ring_size / (UNIT_WORD_COUNT * size_of::<u64>()) * size_of::<RecordMark>()
    }

    /// The place behind the last one.
    fn places_end(&self) -> u32 {
        self.first_place + self.marks.len() as u32
    }

    /// How many IPv4 connections the ring has room for.
    pub(super) fn connection_count(&self) -> usize {
        self.ring.connection_count()
    }

    /// Whether any of its records is in use.
    pub(super) fn is_used(&self) -> bool {
        self.useful > 0
    }

    #[inline]
    fn place_of(&self, record: RingRecord) -> u32 {
        self.first_place + record.unit() as u32
    }

    /// The record at a place.
    #[inline]
    fn record(&self, place: u32) -> RingRecord {
        self.ring.record((place - self.first_place) as usize * UNIT_WORD_COUNT)
    }

    /// The mark of a record.
    #[inline]
    pub(super) fn mark(&self, record: RingRecord) -> RecordMark {
        self.marks[record.unit()]
    }

    /// Marks the connection with its record at this place as answered.
    #[inline]
    fn answer(&mut self, place: u32) {
        self.marks[(place - self.first_place) as usize] = RecordMark::Answered;
    }

    /// Marks the record at this place as over.
    #[inline]
    fn end(&mut self, place: u32) {
        self.useful -= self.record(place).header.word_count();
        self.marks[(place - self.first_place) as usize] = RecordMark::Over;
    }

    /// The slot of the entry of a record's connection.
    #[inline]
    pub(super) fn slot(&self, record: RingRecord) -> FilterSlot {
        self.ring.slot(record)
    }

    /// Records that the entry of the connection with its record at this place has moved to `slot`.
    fn set_slot(&mut self, place: u32, slot: FilterSlot) {
        let word = &mut self.ring.words[self.ring.closing(self.record(place))];
        *word = *word & !TAGS | u64::from(slot.to_bits());
    }

    /// What the ring needs before a record of this size can be written.
    #[inline]
    pub(super) fn room(&self, size: usize) -> RingRoom {
        if self.ring.used + size <= self.fill_max { RingRoom::Enough } else { self.room_beyond() }
    }

    fn room_beyond(&self) -> RingRoom {
        let word_count = self.ring.words.len();
        let is_full =
            self.fill_max == word_count && (self.ring.used - self.useful) * HALF_OPEN_OVER_DIVISOR < word_count;
        if is_full { RingRoom::Full } else { RingRoom::Compact }
    }

    /// Removes the records that are over, in place, and calls `moved` with the slot and the new place of each record
    /// that moves.
    ///
    /// Complexity: a pass over the records. The ring is compacted only when many or most are over, so each record is
    /// moved a few times at most.
    pub(super) fn compact(&mut self, mut moved: impl FnMut(FilterSlot, u32)) {
        let (mut end, mut cursor) = (self.ring.head, self.start());
        while let Some((record, behind)) = self.after(cursor) {
            cursor = behind;
            let mark = self.mark(record);
            if mark == RecordMark::Over {
                continue;
            }
            let RingRecord { index, header } = record;
            if end != index {
                self.ring.copy(index, end, header);
                self.mark_at(end, header, mark);
                let record = RingRecord { index: end, header };
                moved(self.slot(record), self.place_of(record));
            }
            end = self.ring.behind(end, header.word_count());
        }
        self.ring.used = self.useful;
        let word_count = self.ring.words.len();
        self.fill_max =
            (self.useful * HALF_OPEN_FILL_FACTOR).max(HALF_OPEN_FILL_UNITS_MIN * UNIT_WORD_COUNT).min(word_count);
    }

    /// The position before the oldest record.
    #[inline]
    pub(super) fn start(&self) -> RingCursor {
        self.ring.start()
    }

    /// The record behind a position, and the position behind that record.
    #[inline]
    pub(super) fn after(&self, cursor: RingCursor) -> Option<(RingRecord, RingCursor)> {
        self.ring.after(cursor)
    }

    /// Prefetches the next `unit_count` units behind a position, up to the end of the memory.
    #[inline]
    pub(super) fn prefetch_behind(&self, cursor: RingCursor, unit_count: usize) {
        const WORD_COUNT_IN_LINE: usize = size_of::<Line>() / size_of::<u64>();
        let words = &self.ring.words[cursor.index..];
        words.iter().take(unit_count * UNIT_WORD_COUNT).step_by(WORD_COUNT_IN_LINE).for_each(prefetch);
    }

    /// Removes all records before this position, `useful` words of which were in use.
    #[inline]
    pub(super) fn skip_to(&mut self, cursor: RingCursor, useful: usize) {
        self.ring.skip_to(cursor);
        self.useful -= useful;
    }

    /// The position of the next record.
    #[inline]
    pub(super) fn next_spot(&self) -> RingSpot {
        let index = self.ring.end();
        RingSpot { index, place: self.first_place + (index / UNIT_WORD_COUNT) as u32 }
    }

    /// Writes a record at [`Self::next_spot`], for the connection with its entry in `slot`, which names the spot's
    /// place. There must be room.
    #[inline(always)]
    pub(super) fn push<K: FlowKey>(&mut self, draft: &RecordDraft<K>, spot: RingSpot, slot: FilterSlot) {
        self.mark_at(spot.index, draft.header, draft.mark);
        self.ring.write(draft, spot.index, slot);
        self.useful += draft.size();
    }

    /// Writes a copy of a record of another ring at the end, and returns its place. There must be room.
    fn push_copy(&mut self, from: &MarkedRing, record: RingRecord) -> u32 {
        let (spot, size) = (self.next_spot(), record.size());
        for distance in 0..size {
            let place = self.ring.behind(spot.index, distance);
            self.ring.words[place] = from.ring.words[from.ring.behind(record.index, distance)];
        }
        self.mark_at(spot.index, record.header, from.mark(record));
        self.ring.used += size;
        self.useful += size;
        spot.place
    }

    /// Marks the record that begins at this word.
    #[inline]
    fn mark_at(&mut self, index: usize, header: HalfOpenHeader, mark: RecordMark) {
        self.marks[index / UNIT_WORD_COUNT] = mark;
        if !header.is_small() {
            for distance in (0..header.word_count()).step_by(UNIT_WORD_COUNT).skip(1) {
                let within = self.ring.behind(index, distance);
                self.marks[within / UNIT_WORD_COUNT] = RecordMark::Over;
            }
        }
    }

    /// Adds all connections whose records are in use to a list, in no order.
    ///
    /// Complexity: a look at every eight marks, and at each of these records.
    pub(super) fn copy_to(&self, list: &mut HalfOpenList) {
        let unit_count = self.marks.len();
        let first = self.ring.head / UNIT_WORD_COUNT;
        let end = first + self.ring.used / UNIT_WORD_COUNT;
        // First up to the end of the ring, then from its start.
        for units in [first..end.min(unit_count), 0..end.saturating_sub(unit_count)] {
            let (eights, rest) = self.marks[units.clone()].as_chunks::<8>();
            let rest = std::array::from_fn(|at| rest.get(at).copied().unwrap_or(RecordMark::Over));
            for (marks, at) in eights.iter().chain([&rest]).zip(units.step_by(8)) {
                // A byte for each mark, zero for records that are over.
                let mut left = u64::from_le_bytes(marks.map(|mark| mark as u8));
                while left != 0 {
                    let place = left.trailing_zeros() / u8::BITS;
                    left &= !(u64::from(u8::MAX) << (place * u8::BITS));
                    let record = self.ring.record((at + place as usize) * UNIT_WORD_COUNT);
                    self.copy_one(record, marks[place as usize] == RecordMark::Answered, list);
                }
            }
        }
    }

    /// Adds a connection to a list, answered or not as is known by now.
    #[inline]
    pub(super) fn copy_one(&self, record: RingRecord, answered: bool, list: &mut HalfOpenList) {
        let header = record.header.with_answered(answered);
        match header.family() {
            Family::V4 => list.add(&self.ring.key::<KeyV4>(record), header),
            Family::V6 => list.add(&self.ring.key::<KeyV6>(record), header),
        }
    }

    /// Writes the ring into a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.fill_max as u64);
        self.ring.save(encoder);
    }

    /// Fills the ring from a saved state, and returns how many of its records are named by an entry of the filter.
    /// After an error the ring is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a ring that fits into this one.
    pub(super) fn restore(&mut self, decoder: &mut Decoder, filter: &Filter) -> Result<usize> {
        self.fill_max = decoder.count()? as usize;
        decoder.expect(self.fill_max <= self.ring.words.len(), "a ring that is filled beyond its end")?;
        self.ring.restore(decoder)?;
        self.marks.fill(RecordMark::Over);
        self.useful = 0;
        let (mut cursor, mut named_count) = (self.start(), 0);
        while let Some((record, behind)) = self.after(cursor) {
            let place = self.place_of(record);
            let entry = filter.get_checked(self.slot(record));
            if let Some(entry) = entry.filter(|entry| entry.state.is_recorded() && entry.tick == place) {
                self.marks[record.unit()] = RecordMark::of(entry.state);
                self.useful += record.size();
                named_count += 1;
            }
            cursor = behind;
        }
        Ok(named_count)
    }
}

#[cfg(test)]
impl MarkedRing {
    /// Calls `show` with each record, its place and its key.
    pub(super) fn each_record(&self, mut show: impl FnMut(RingRecord, u32, crate::flow::AnyKey)) {
        let mut cursor = self.start();
        while let Some((record, behind)) = self.after(cursor) {
            let key = match record.header.family() {
                Family::V4 => crate::flow::AnyKey::V4(self.ring.key(record)),
                Family::V6 => crate::flow::AnyKey::V6(self.ring.key(record)),
            };
            show(record, self.place_of(record), key);
            cursor = behind;
        }
    }
}

/// How many IPv4 connections each ring has room for (half as many of IPv6).
#[derive(Clone, Copy, Debug)]
pub(super) struct RingCounts {
    pub(super) half_open: usize,
    pub(super) candidates: usize,
    pub(super) presumed: usize,
}

/// The rings of a partition.
pub(super) struct Rings {
    /// The half-open connections.
    pub(super) half_open: MarkedRing,
    /// Connections that may be older than the start.
    pub(super) candidates: MarkedRing,
    /// Half-open connections that are presumed to be answered. With the others they are no more than there is room for
    /// in the ring of those.
    pub(super) presumed: MarkedRing,
}

impl Rings {
    /// Empty rings for this many connections.
    ///
    /// # Panics
    ///
    /// The rings have more places together than an entry can name.
    pub(super) fn new(counts: RingCounts) -> Self {
        let half_open = MarkedRing::new(counts.half_open, 0);
        let candidates = MarkedRing::new(counts.candidates, half_open.places_end());
        let presumed = MarkedRing::new(counts.presumed, candidates.places_end());
        assert!(presumed.places_end() <= 1 << TICK_BITS, "an entry has no number for so many places");
        Rings { half_open, candidates, presumed }
    }

    /// The memory of such rings, in bytes.
    pub(super) fn size(counts: RingCounts) -> usize {
        [counts.half_open, counts.candidates, counts.presumed].into_iter().map(MarkedRing::size).sum()
    }

    /// All rings.
    pub(super) fn all(&self) -> [&MarkedRing; 3] {
        [&self.half_open, &self.candidates, &self.presumed]
    }

    /// All rings, to restore them.
    pub(super) fn all_mut(&mut self) -> [&mut MarkedRing; 3] {
        [&mut self.half_open, &mut self.candidates, &mut self.presumed]
    }

    #[inline]
    fn of(&self, place: u32) -> &MarkedRing {
        if place < self.candidates.first_place {
            &self.half_open
        } else if place < self.presumed.first_place {
            &self.candidates
        } else {
            &self.presumed
        }
    }

    #[inline]
    fn of_mut(&mut self, place: u32) -> &mut MarkedRing {
        if place < self.candidates.first_place {
            &mut self.half_open
        } else if place < self.presumed.first_place {
            &mut self.candidates
        } else {
            &mut self.presumed
        }
    }

    /// Whether the connection with its record at this place is presumed to be answered.
    #[inline]
    pub(super) fn is_presumed(&self, place: u32) -> bool {
        place >= self.presumed.first_place
    }

    /// Whether the half-open connections, one more of this size among them, are more than there is room for in a list.
    #[inline]
    pub(super) fn are_too_many(&self, size: usize) -> bool {
        self.half_open.useful + self.presumed.useful + size > self.half_open.ring.words.len()
    }

    /// Moves a half-open connection to those that are presumed to be answered, where there must be room. Returns the
    /// slot of its entry, and the place that it is to name.
    pub(super) fn presume(&mut self, record: RingRecord) -> (FilterSlot, u32) {
        let place = self.presumed.push_copy(&self.half_open, record);
        self.half_open.end(self.half_open.place_of(record));
        (self.half_open.slot(record), place)
    }

    /// An entry of the filter with the tick at which its connection started, from the record if there is one.
    #[inline]
    pub(super) fn with_tick(&self, entry: FilterEntry) -> FilterEntry {
        if entry.state.is_recorded() { FilterEntry { tick: self.start_tick(entry.tick), ..entry } } else { entry }
    }

    /// The low bits of the start tick of the connection with its record at this place.
    #[inline]
    fn start_tick(&self, place: u32) -> u32 {
        let header = self.of(place).record(place).header;
        FilterEntry::tick_of(u64::from(header.since_low()).wrapping_sub(header.delay()))
    }

    /// Marks the record of this entry, if it has one, as over: its connection is no longer half-open, or
    /// gets another.
    #[inline]
    pub(super) fn end(&mut self, entry: &FilterEntry) {
        if entry.state.is_recorded() {
            self.of_mut(entry.tick).end(entry.tick);
        }
    }

    /// Marks the connection with its record at this place as answered in the tick in which it began.
    #[inline]
    pub(super) fn answer(&mut self, place: u32) {
        self.of_mut(place).answer(place);
    }

    /// Records that an entry of the filter has moved to `slot`.
    pub(super) fn entry_moved(&mut self, entry: &FilterEntry, slot: FilterSlot) {
        if entry.state.is_recorded() {
            self.of_mut(entry.tick).set_slot(entry.tick, slot);
        }
    }
}
