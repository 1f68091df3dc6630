//! A ring that knows of each of its records whether it is of any use still.
//!
//! What enters: connections as they begin, and word of those that complete, end or are answered. What leaves: the records of
//! those that are half-open still, without a look at anything else. Most records are of connections that completed long before they
//! reach the end of the ring.
//!
//! A record has a place, which the filter's entry of its connection names for as long as the record is of use; and the record names
//! the place of that entry. So neither has to be looked for by its key.

use super::{Cursor, Draft, HalfOpenList, HalfOpenRing, Header, Record, UNIT_WORD_COUNT};
use crate::connection::{Slot, State};
use crate::flow::{Family, FlowKey, KeyV4, KeyV6};
use crate::lines::Line;
use crate::prefetch::prefetch;

const _: () = assert!(Mark::Over as u8 == 0);

/// What is known of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::connection) enum Mark {
    /// Its connection is half-open no longer, or has another record. (Also what stands at a unit within a record.)
    #[default]
    Over,
    /// Its SYN is not answered.
    Asked,
    /// Its SYN was answered.
    Answered,
}

impl Mark {
    /// That of the record of a connection in this state.
    #[inline]
    pub(super) fn of(state: State) -> Self {
        match state {
            state if !state.is_recorded() => Mark::Over,
            state if state.is_answered() => Mark::Answered,
            _ => Mark::Asked,
        }
    }
}

/// A ring is not filled beyond so many times what is of use in it, so that the memory that is gone through again and again is little
/// enough for the caches,
const FILL_FACTOR: usize = 4;

/// nor emptied of what is over before it holds so many units.
const FILL_UNIT_COUNT_MIN: usize = 1 << 9;

/// Where at least one in so many units is of no use a full ring is emptied of those, and else its oldest have to go.
const OVER_DIVISOR: usize = 4;

/// What a [`MarkedRing`] needs before another record can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Room {
    /// Nothing.
    Enough,
    /// What is over is to be left out.
    Compact,
    /// The oldest have to be taken off.
    Full,
}

/// Where a record is to stand.
#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct Spot {
    index: usize,
    /// Its place.
    pub(in crate::connection) place: u32,
}

/// Such a ring.
pub(in crate::connection) struct MarkedRing {
    pub(super) ring: HalfOpenRing,
    /// A mark for each unit.
    pub(super) marks: Box<[Mark]>,
    /// The place of the first unit: places count on from one ring to the next.
    pub(super) first_place: u32,
    /// The words of records that are of use.
    pub(super) useful: usize,
    /// How many words it is filled with before what is over is left out.
    pub(super) fill_max: usize,
}

impl MarkedRing {
    /// A ring for this many IPv4 connections, with places from this one on.
    pub(super) fn new(connection_count: usize, first_place: u32) -> Self {
        let ring = HalfOpenRing::new(connection_count);
        let marks = vec![Mark::Over; ring.connection_count()].into_boxed_slice();
        MarkedRing { ring, marks, first_place, useful: 0, fill_max: 0 }
    }

    /// The memory of such a ring in bytes.
    pub(super) fn size(connection_count: usize) -> usize {
        let ring_size = HalfOpenRing::size(connection_count);
        ring_size + ring_size / (UNIT_WORD_COUNT * size_of::<u64>()) * size_of::<Mark>()
    }

    /// The place behind the last.
    pub(super) fn places_end(&self) -> u32 {
        self.first_place + self.marks.len() as u32
    }

    /// How many IPv4 connections it has room for.
    pub(in crate::connection) fn connection_count(&self) -> usize {
        self.ring.connection_count()
    }

    /// Whether any of its records is of use.
    pub(in crate::connection) fn is_used(&self) -> bool {
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

    /// What is known of a record.
    #[inline]
    pub(in crate::connection) fn mark(&self, record: Record) -> Mark {
        self.marks[record.unit()]
    }

    /// The SYN of the connection of which this place has the record was answered.
    #[inline]
    pub(super) fn answer(&mut self, place: u32) {
        self.marks[(place - self.first_place) as usize] = Mark::Answered;
    }

    /// The record at this place is of no use any more.
    #[inline]
    pub(super) fn end(&mut self, place: u32) {
        self.useful -= self.record(place).header.word_count();
        self.marks[(place - self.first_place) as usize] = Mark::Over;
    }

    /// The place of the entry of a record's connection.
    #[inline]
    pub(in crate::connection) fn slot(&self, record: Record) -> Slot {
        self.ring.slot(record)
    }

    /// The entry of the connection of which this place has the record is there now.
    pub(super) fn set_slot(&mut self, place: u32, slot: Slot) {
        let word = &mut self.ring.words[self.ring.closing(self.record(place))];
        *word = *word & !super::TAGS | u64::from(slot.number());
    }

    /// What it needs before a record of this size can be written.
    #[inline]
    pub(in crate::connection) fn room(&self, size: usize) -> Room {
        if self.ring.used + size <= self.fill_max { Room::Enough } else { self.room_beyond() }
    }

    fn room_beyond(&self) -> Room {
        let word_count = self.ring.words.len();
        let is_full = self.fill_max == word_count && (self.ring.used - self.useful) * OVER_DIVISOR < word_count;
        if is_full { Room::Full } else { Room::Compact }
    }

    /// Leaves out what is over, in place; `moved` is told of each entry whose connection's record stands at another place now.
    ///
    /// Complexity: a pass over the records. It is asked for when most or many are over, so that each is moved a few times at most.
    pub(in crate::connection) fn compact(&mut self, mut moved: impl FnMut(Slot, u32)) {
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
        self.fill_max = (self.useful * FILL_FACTOR).max(FILL_UNIT_COUNT_MIN * UNIT_WORD_COUNT).min(word_count);
    }

    /// The place before the oldest record.
    #[inline]
    pub(in crate::connection) fn start(&self) -> Cursor {
        self.ring.start()
    }

    /// The record behind this place, and the place behind it.
    #[inline]
    pub(in crate::connection) fn after(&self, cursor: Cursor) -> Option<(Record, Cursor)> {
        self.ring.after(cursor)
    }

    /// Asks for so many of the smallest records behind this place, up to the end of the memory.
    #[inline]
    pub(in crate::connection) fn prefetch_behind(&self, cursor: Cursor, unit_count: usize) {
        const WORD_COUNT_IN_LINE: usize = size_of::<Line>() / size_of::<u64>();
        let words = &self.ring.words[cursor.index..];
        words.iter().take(unit_count * UNIT_WORD_COUNT).step_by(WORD_COUNT_IN_LINE).for_each(prefetch);
    }

    /// Takes off all records before this place, of which so many words were of use.
    #[inline]
    pub(in crate::connection) fn skip_to(&mut self, cursor: Cursor, useful: usize) {
        self.ring.skip_to(cursor);
        self.useful -= useful;
    }

    /// Where the next record is to stand.
    #[inline]
    pub(in crate::connection) fn next_spot(&self) -> Spot {
        let index = self.ring.end();
        Spot { index, place: self.first_place + (index / UNIT_WORD_COUNT) as u32 }
    }

    /// Writes a record at the [`Self::next_spot`], of the connection whose entry has this slot and names the spot's place. There must be
    /// room.
    #[inline(always)]
    pub(in crate::connection) fn push<K: FlowKey>(&mut self, draft: &Draft<K>, spot: Spot, slot: Slot) {
        self.mark_at(spot.index, draft.header, draft.mark);
        self.ring.write(draft, spot.index, slot);
        self.useful += draft.size();
    }

    /// Marks a record that begins with this word.
    #[inline]
    fn mark_at(&mut self, index: usize, header: Header, mark: Mark) {
        self.marks[index / UNIT_WORD_COUNT] = mark;
        if !header.is_small() {
            for distance in (0..header.word_count()).step_by(UNIT_WORD_COUNT).skip(1) {
                let within = self.ring.behind(index, distance);
                self.marks[within / UNIT_WORD_COUNT] = Mark::Over;
            }
        }
    }

    /// Writes all that are of use still into a list, in no order.
    ///
    /// Complexity: a look at eight marks at a time, and at each of these records.
    pub(in crate::connection) fn copy_to(&self, list: &mut HalfOpenList) {
        let unit_count = self.marks.len();
        let first = self.ring.head / UNIT_WORD_COUNT;
        let end = first + self.ring.used / UNIT_WORD_COUNT;
        // Up to the end of the ring, and then from its start.
        for units in [first..end.min(unit_count), 0..end.saturating_sub(unit_count)] {
            let (eights, rest) = self.marks[units.clone()].as_chunks::<8>();
            let rest = std::array::from_fn(|at| rest.get(at).copied().unwrap_or(Mark::Over));
            for (marks, at) in eights.iter().chain([&rest]).zip(units.step_by(8)) {
                // A byte each, and those of what is over are zero.
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

    /// Adds a connection to a list, of which it is known by now whether it was answered.
    #[inline]
    pub(in crate::connection) fn copy_one(&self, record: Record, answered: bool, list: &mut HalfOpenList) {
        let header = record.header.with_answered(answered);
        match header.family() {
            Family::V4 => list.add(&self.ring.key::<KeyV4>(record), header),
            Family::V6 => list.add(&self.ring.key::<KeyV6>(record), header),
        }
    }
}

#[cfg(test)]
impl MarkedRing {
    /// Shows all records, each with its place and its key.
    pub(in crate::connection) fn each_record(&self, mut show: impl FnMut(Record, u32, crate::signal::AnyKey)) {
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
