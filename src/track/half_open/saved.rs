//! A ring in a saved state: its records, at their places.

use super::{HalfOpenRing, Mark, MarkedRing, UNIT_WORD_COUNT};
use crate::error::Result;
use crate::state::{Decoder, Encoder};
use crate::track::Filter;

impl HalfOpenRing {
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

impl MarkedRing {
    /// Writes the ring into a saved state.
    pub(in crate::track) fn save(&self, encoder: &mut Encoder) {
        encoder.u64(self.fill_max as u64);
        self.ring.save(encoder);
    }

    /// Fills the ring from a saved state, and returns how many of its records are named by an entry of the filter.
    /// After an error the ring is unusable.
    ///
    /// # Errors
    ///
    /// The bytes do not encode a ring that fits into this one.
    pub(in crate::track) fn restore(&mut self, decoder: &mut Decoder, filter: &Filter) -> Result<usize> {
        self.fill_max = decoder.count()? as usize;
        decoder.expect(self.fill_max <= self.ring.words.len(), "a ring that is filled beyond its end")?;
        self.ring.restore(decoder)?;
        self.marks.fill(Mark::Over);
        self.useful = 0;
        let (mut cursor, mut named_count) = (self.start(), 0);
        while let Some((record, behind)) = self.after(cursor) {
            let place = self.place_of(record);
            let entry = filter.get_checked(self.slot(record));
            if let Some(entry) = entry.filter(|entry| entry.state.is_recorded() && entry.tick == place) {
                self.marks[record.unit()] = Mark::of(entry.state);
                self.useful += record.size();
                named_count += 1;
            }
            cursor = behind;
        }
        Ok(named_count)
    }
}
