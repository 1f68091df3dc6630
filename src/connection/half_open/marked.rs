//! The ring of the youngest half-open connections, which knows of most of them what has become of them.
//!
//! What enters: connections as they begin, and word of those that complete, end or are answered. What leaves: the records of
//! those that are half-open still, without asking the filter, which would miss the caches for each. Most records are of
//! connections that completed long before they reach the end of the ring.
//!
//! Each unit of the ring has a mark, and the record of a connection is found by its fingerprint in an index of the latest. A
//! record that another pushed out of the index can not be told of any more: it is doubtful from then on, and whoever wants to know
//! has to ask the filter. So a mark is either right or says that it does not know.

use super::{Cursor, HalfOpenRing, Header, Record, UNIT_WORD_COUNT};
use crate::config::FINGERPRINT_BITS;
use crate::connection::Entry;
use crate::error::Result;
use crate::flow::{Family, FlowKey};
use crate::state::{Decoder, Encoder};

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
    /// The filter has to be asked.
    Doubtful,
}

/// The fingerprint's upper bits choose the second of a record's two places in the index.
const SECOND_SHIFT: u32 = FINGERPRINT_BITS - u16::BITS;

/// The most places of an index. Each is read at random, by the packets of every handshake, so all have to stay in the caches; and
/// outside a flood far fewer connections are half-open at a time.
const PLACE_COUNT_MAX: usize = 1 << 12;

/// Such a ring.
pub(in crate::connection) struct MarkedRing {
    ring: HalfOpenRing,
    /// A mark for each unit, and behind the last one for none, of which everything is over.
    marks: Box<[Mark]>,
    /// The unit of the latest record, by a part of the fingerprint. What was taken off since may be named still.
    index: Box<[u16]>,
    none: u16,
}

impl MarkedRing {
    /// A ring for this many IPv4 connections.
    pub(in crate::connection) fn new(connection_count: usize) -> Self {
        let ring = HalfOpenRing::new(connection_count);
        let (unit_count, place_count) = Self::counts(connection_count);
        let none = u16::try_from(unit_count).unwrap_or(u16::MAX);
        MarkedRing {
            ring,
            marks: vec![Mark::Over; unit_count + 1].into_boxed_slice(),
            index: vec![none; place_count].into_boxed_slice(),
            none,
        }
    }

    /// The units of such a ring, and the places of its index: as many as make it rare that a record pushes out another that is
    /// half-open still.
    fn counts(connection_count: usize) -> (usize, usize) {
        let unit_count = HalfOpenRing::word_count(connection_count) / UNIT_WORD_COUNT;
        (unit_count, (2 * unit_count).next_power_of_two().min(PLACE_COUNT_MAX))
    }

    /// The memory of such a ring in bytes.
    pub(in crate::connection) fn size(connection_count: usize) -> usize {
        let (unit_count, place_count) = Self::counts(connection_count);
        HalfOpenRing::size(connection_count) + (unit_count + 1) * size_of::<Mark>() + place_count * size_of::<u16>()
    }

    /// The records.
    #[inline]
    pub(in crate::connection) fn ring(&self) -> &HalfOpenRing {
        &self.ring
    }

    /// What is known of a record.
    #[inline]
    pub(in crate::connection) fn mark(&self, record: Record) -> Mark {
        self.marks[record.unit()]
    }

    #[inline]
    fn unit_count(&self) -> usize {
        self.marks.len() - 1
    }

    /// Whether another connection can be written without taking one off.
    #[inline]
    pub(in crate::connection) fn has_room(&self) -> bool {
        self.ring.has_room()
    }

    /// Takes off all records before this place.
    #[inline]
    pub(in crate::connection) fn skip_to(&mut self, cursor: Cursor) {
        self.ring.skip_to(cursor);
    }

    /// The two places of the index at which a record of this fingerprint may be.
    #[inline]
    fn places(&self, fingerprint: u32) -> [usize; 2] {
        let mask = self.index.len() - 1;
        [fingerprint as usize & mask, (fingerprint >> SECOND_SHIFT) as usize & mask]
    }

    /// Writes the half-open connection with this key, client first, as its entry says at the tick `now`. There must be room.
    #[inline]
    pub(in crate::connection) fn push<K: FlowKey>(&mut self, key: &K, entry: &Entry, now: u64) {
        let unit = self.ring.end() / UNIT_WORD_COUNT;
        let answered = entry.state.is_answered();
        let mut mark = if answered { Mark::Answered } else { Mark::Asked };
        match u16::try_from(unit) {
            Ok(unit) => {
                let [first, second] = self.places(entry.fingerprint);
                let is_taken = self.marks[usize::from(self.index[first])] != Mark::Over;
                let place = if is_taken { second } else { first };
                let before = std::mem::replace(&mut self.index[place], unit);
                self.doubt_at(usize::from(before));
            }
            // An index of wider numbers is not worth its memory: no ring of a router is as long.
            Err(_) => mark = Mark::Doubtful,
        }
        self.marks[unit] = mark;
        if K::FAMILY == Family::V6 {
            let next = if unit + 1 < self.unit_count() { unit + 1 } else { 0 };
            self.marks[next] = Mark::Over;
        }
        let header = Header::new::<K>(now, u64::from(entry.age(now)), entry.number, answered);
        self.ring.write(header, key.words());
    }

    #[inline]
    fn doubt_at(&mut self, unit: usize) {
        let mark = &mut self.marks[unit];
        if *mark != Mark::Over {
            *mark = Mark::Doubtful;
        }
    }

    /// The connection of this fingerprint may be half-open no longer.
    #[inline]
    pub(in crate::connection) fn doubt(&mut self, fingerprint: u32) {
        self.places(fingerprint).into_iter().for_each(|place| self.doubt_at(usize::from(self.index[place])));
    }

    /// The connection with this key, client first, which has this entry, is half-open no longer, or gets another record.
    #[inline]
    pub(in crate::connection) fn end<K: FlowKey>(&mut self, key: &K, entry: &Entry) {
        self.tell(key, entry, |_| Mark::Over);
    }

    /// The connection with this key, client first, which has this entry, was answered in the tick in which it began.
    #[inline]
    pub(in crate::connection) fn answer<K: FlowKey>(&mut self, key: &K, entry: &Entry) {
        self.tell(key, entry, |mark| if mark == Mark::Asked { Mark::Answered } else { mark });
    }

    #[inline]
    fn tell<K: FlowKey>(&mut self, key: &K, entry: &Entry, changed: impl Fn(Mark) -> Mark) {
        let mut is_known = false;
        // Both, because the first may name a record of the same connection that was taken off.
        for place in self.places(entry.fingerprint) {
            let unit = usize::from(self.index[place]);
            let mark = self.marks[unit];
            if mark == Mark::Over {
                continue;
            }
            let index = unit * UNIT_WORD_COUNT;
            let record = Record { index, header: Header(self.ring.words[index]) };
            if self.ring.is_of(record, key) {
                self.marks[unit] = changed(mark);
                if self.marks[unit] == Mark::Over {
                    self.index[place] = self.none;
                }
                is_known = true;
            }
        }
        if !is_known {
            self.doubt(entry.fingerprint);
        }
    }

    /// Shows all records that may be half-open, each with its mark.
    ///
    /// Complexity: a look at eight marks at a time, and at each of these records.
    #[inline]
    pub(in crate::connection) fn each(&self, mut show: impl FnMut(Record, Mark)) {
        let unit_count = self.unit_count();
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
                    let index = (at + place as usize) * UNIT_WORD_COUNT;
                    show(Record { index, header: Header(self.ring.words[index]) }, marks[place as usize]);
                }
            }
        }
    }

    /// Its bytes in a saved state: the records.
    pub(in crate::connection) fn save(&self, encoder: &mut Encoder) {
        self.ring.save(encoder);
    }

    /// Fills it with what was saved. It is then to be given up if this fails.
    ///
    /// # Errors
    ///
    /// The bytes are not those of a ring that fits into this one.
    pub(in crate::connection) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.ring.restore(decoder)?;
        self.marks.fill(Mark::Over);
        let mut cursor = self.ring.start();
        while let Some((record, behind)) = self.ring.after(cursor) {
            self.marks[record.unit()] = Mark::Doubtful;
            cursor = behind;
        }
        Ok(())
    }
}
