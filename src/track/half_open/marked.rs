//! A ring with a mark for each record that says whether it is still of use.
//!
//! What enters: connections as they begin, and notice of those that complete, end or are answered. What leaves: the
//! records of those that are still half-open, found by the marks alone. Most records are of connections that complete
//! long before they reach the end of the ring.
//!
//! Each record has a place, which the filter's entry of its connection names for as long as the record is of use, and
//! each record names the slot of that entry. So neither has to be looked up by key.

use super::{Cursor, Draft, HalfOpenRing, Record};
use crate::flow::{Family, FlowKey, KeyV4, KeyV6};
use crate::handover::HalfOpenList;
use crate::handover::half_open::{HalfOpenHeader, UNIT_WORD_COUNT};
use crate::lines::Line;
use crate::prefetch::prefetch;
use crate::track::{Slot, State};

/// A half-open ring is compacted when it holds this many times what was of use at the last compaction: the memory that
/// it goes through again and again then stays small enough for the caches.
const HALF_OPEN_FILL_FACTOR: usize = 4;

/// A half-open ring is not compacted before it holds this many units of 24 bytes: 12 KiB, which the first-level cache
/// holds anyway.
const HALF_OPEN_FILL_UNITS_MIN: usize = 1 << 9;

/// A full half-open ring is compacted if at least one in this many of its units is of no more use, so that each record
/// is moved a few times at most; otherwise its oldest records are evicted.
const HALF_OPEN_OVER_DIVISOR: usize = 4;

const _: () = assert!(Mark::Over as u8 == 0);

/// The mark of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::track) enum Mark {
    /// The connection is no longer half-open, or has another record. (Also the mark of a unit within a record.)
    #[default]
    Over,
    /// The SYN is not answered. Also the mark of a candidate.
    SynSent,
    /// The SYN was answered.
    Answered,
}

impl Mark {
    /// The mark for a connection in this state.
    #[inline]
    pub(super) fn of(state: State) -> Self {
        match state {
            state if !state.is_recorded() => Mark::Over,
            state if state.is_answered() => Mark::Answered,
            _ => Mark::SynSent,
        }
    }
}

/// The need of a [`MarkedRing`] before another record can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::track) enum Room {
    /// There is room.
    Enough,
    /// Records that are over have to be compacted away.
    Compact,
    /// The oldest records have to be removed.
    Full,
}

/// The position of the next record.
#[derive(Clone, Copy, Debug)]
pub(in crate::track) struct Spot {
    index: usize,
    /// The place of the record.
    pub(in crate::track) place: u32,
}

/// A ring with marks.
pub(in crate::track) struct MarkedRing {
    pub(super) ring: HalfOpenRing,
    /// A mark for each unit.
    pub(super) marks: Box<[Mark]>,
    /// The place of the first unit: the places of a second ring follow those of the first.
    pub(super) first_place: u32,
    /// Words of records that are of use.
    pub(super) useful: usize,
    /// Words of records from which on the ring is compacted.
    pub(super) fill_max: usize,
}

impl MarkedRing {
    /// A ring for this many IPv4 connections, with places from `first_place` on.
    pub(super) fn new(connection_count: usize, first_place: u32) -> Self {
        let ring = HalfOpenRing::new(connection_count);
        let marks = vec![Mark::Over; ring.connection_count()].into_boxed_slice();
        MarkedRing { ring, marks, first_place, useful: 0, fill_max: 0 }
    }

    /// The memory of such a ring, in bytes.
    pub(super) fn size(connection_count: usize) -> usize {
        let ring_size = HalfOpenRing::size(connection_count);
        ring_size + ring_size / (UNIT_WORD_COUNT * size_of::<u64>()) * size_of::<Mark>()
    }

    /// The place behind the last one.
    pub(super) fn places_end(&self) -> u32 {
        self.first_place + self.marks.len() as u32
    }

    /// How many IPv4 connections the ring has room for.
    pub(in crate::track) fn connection_count(&self) -> usize {
        self.ring.connection_count()
    }

    /// Whether any of its records is of use.
    pub(in crate::track) fn is_used(&self) -> bool {
        self.useful > 0
    }

    #[inline]
    pub(super) fn place_of(&self, record: Record) -> u32 {
        self.first_place + record.unit() as u32
    }

    /// The record at a place.
    #[inline]
    pub(super) fn record(&self, place: u32) -> Record {
        self.ring.record((place - self.first_place) as usize * UNIT_WORD_COUNT)
    }

    /// The mark of a record.
    #[inline]
    pub(in crate::track) fn mark(&self, record: Record) -> Mark {
        self.marks[record.unit()]
    }

    /// Notes that the connection with its record at this place was answered.
    #[inline]
    pub(super) fn answer(&mut self, place: u32) {
        self.marks[(place - self.first_place) as usize] = Mark::Answered;
    }

    /// Notes that the record at this place is of no more use.
    #[inline]
    pub(super) fn end(&mut self, place: u32) {
        self.useful -= self.record(place).header.word_count();
        self.marks[(place - self.first_place) as usize] = Mark::Over;
    }

    /// The slot of the entry of a record's connection.
    #[inline]
    pub(in crate::track) fn slot(&self, record: Record) -> Slot {
        self.ring.slot(record)
    }

    /// Notes that the entry of the connection with its record at this place has moved to `slot`.
    pub(super) fn set_slot(&mut self, place: u32, slot: Slot) {
        let word = &mut self.ring.words[self.ring.closing(self.record(place))];
        *word = *word & !super::TAGS | u64::from(slot.to_bits());
    }

    /// What the ring needs before a record of this size can be written.
    #[inline]
    pub(in crate::track) fn room(&self, size: usize) -> Room {
        if self.ring.used + size <= self.fill_max { Room::Enough } else { self.room_beyond() }
    }

    fn room_beyond(&self) -> Room {
        let word_count = self.ring.words.len();
        let is_full =
            self.fill_max == word_count && (self.ring.used - self.useful) * HALF_OPEN_OVER_DIVISOR < word_count;
        if is_full { Room::Full } else { Room::Compact }
    }

    /// Removes the records that are over, in place, and calls `moved` with the slot and the new place of each record
    /// that moves.
    ///
    /// Complexity: a pass over the records. The ring is compacted only when many or most are over, so each record is
    /// moved a few times at most.
    pub(in crate::track) fn compact(&mut self, mut moved: impl FnMut(Slot, u32)) {
        let (mut end, mut cursor) = (self.ring.head, self.start());
        while let Some((record, behind)) = self.after(cursor) {
            cursor = behind;
            let mark = self.mark(record);
            if mark == Mark::Over {
                continue;
            }
            let Record { index, header } = record;
            if end != index {
                for distance in 0..header.word_count() {
                    let (from, to) = (self.ring.behind(index, distance), self.ring.behind(end, distance));
                    self.ring.words[to] = self.ring.words[from];
                }
                self.mark_at(end, header, mark);
                let record = Record { index: end, header };
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
    pub(in crate::track) fn start(&self) -> Cursor {
        self.ring.start()
    }

    /// The record behind a position, and the position behind that record.
    #[inline]
    pub(in crate::track) fn after(&self, cursor: Cursor) -> Option<(Record, Cursor)> {
        self.ring.after(cursor)
    }

    /// Prefetches the next `unit_count` units behind a position, up to the end of the memory.
    #[inline]
    pub(in crate::track) fn prefetch_behind(&self, cursor: Cursor, unit_count: usize) {
        const WORD_COUNT_IN_LINE: usize = size_of::<Line>() / size_of::<u64>();
        let words = &self.ring.words[cursor.index..];
        words.iter().take(unit_count * UNIT_WORD_COUNT).step_by(WORD_COUNT_IN_LINE).for_each(prefetch);
    }

    /// Removes all records before this position, `useful` words of which were of use.
    #[inline]
    pub(in crate::track) fn skip_to(&mut self, cursor: Cursor, useful: usize) {
        self.ring.skip_to(cursor);
        self.useful -= useful;
    }

    /// The position of the next record.
    #[inline]
    pub(in crate::track) fn next_spot(&self) -> Spot {
        let index = self.ring.end();
        Spot { index, place: self.first_place + (index / UNIT_WORD_COUNT) as u32 }
    }

    /// Writes a record at [`Self::next_spot`], for the connection with its entry in `slot`, which names the spot's
    /// place. There must be room.
    #[inline(always)]
    pub(in crate::track) fn push<K: FlowKey>(&mut self, draft: &Draft<K>, spot: Spot, slot: Slot) {
        self.mark_at(spot.index, draft.header, draft.mark);
        self.ring.write(draft, spot.index, slot);
        self.useful += draft.size();
    }

    /// Marks the record that begins at this word.
    #[inline]
    fn mark_at(&mut self, index: usize, header: HalfOpenHeader, mark: Mark) {
        self.marks[index / UNIT_WORD_COUNT] = mark;
        if !header.is_small() {
            for distance in (0..header.word_count()).step_by(UNIT_WORD_COUNT).skip(1) {
                let within = self.ring.behind(index, distance);
                self.marks[within / UNIT_WORD_COUNT] = Mark::Over;
            }
        }
    }

    /// Adds all connections whose records are of use to a list, in no order.
    ///
    /// Complexity: a look at every eight marks, and at each of these records.
    pub(in crate::track) fn copy_to(&self, list: &mut HalfOpenList) {
        let unit_count = self.marks.len();
        let first = self.ring.head / UNIT_WORD_COUNT;
        let end = first + self.ring.used / UNIT_WORD_COUNT;
        // First up to the end of the ring, then from its start.
        for units in [first..end.min(unit_count), 0..end.saturating_sub(unit_count)] {
            let (eights, rest) = self.marks[units.clone()].as_chunks::<8>();
            let rest = std::array::from_fn(|at| rest.get(at).copied().unwrap_or(Mark::Over));
            for (marks, at) in eights.iter().chain([&rest]).zip(units.step_by(8)) {
                // A byte for each mark, zero for records that are over.
                let mut left = u64::from_le_bytes(marks.map(|mark| mark as u8));
                while left != 0 {
                    let place = left.trailing_zeros() / u8::BITS;
                    left &= !(u64::from(u8::MAX) << (place * u8::BITS));
                    let record = self.ring.record((at + place as usize) * UNIT_WORD_COUNT);
                    self.copy_one(record, marks[place as usize] == Mark::Answered, list);
                }
            }
        }
    }

    /// Adds a connection to a list, answered or not as is known by now.
    #[inline]
    pub(in crate::track) fn copy_one(&self, record: Record, answered: bool, list: &mut HalfOpenList) {
        let header = record.header.with_answered(answered);
        match header.family() {
            Family::V4 => list.add(&self.ring.key::<KeyV4>(record), header),
            Family::V6 => list.add(&self.ring.key::<KeyV6>(record), header),
        }
    }
}

#[cfg(test)]
impl MarkedRing {
    /// Calls `show` with each record, its place and its key.
    pub(in crate::track) fn each_record(&self, mut show: impl FnMut(Record, u32, crate::signal::AnyKey)) {
        let mut cursor = self.start();
        while let Some((record, behind)) = self.after(cursor) {
            let key = match record.header.family() {
                Family::V4 => crate::signal::AnyKey::V4(self.ring.key(record)),
                Family::V6 => crate::signal::AnyKey::V6(self.ring.key(record)),
            };
            show(record, self.place_of(record), key);
            cursor = behind;
        }
    }
}
