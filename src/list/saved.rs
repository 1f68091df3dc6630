//! The list as the bytes of a saved state, taken after the list of an interval and the questions that go with it.
//!
//! What enters: a list, or its bytes. What leaves: the other of the two. The law, what the shards know = the list + the
//! residue, has to hold after a restart, so both are saved, and the partitions at the same packet.

use crate::connection::Counts;
use crate::error::Result;
use crate::flow::{KeyV4, KeyV6, WordKey};
use crate::list::FlowList;
use crate::signal::TimeBases;
pub(in crate::list) use crate::signal::saved_key as key;
use crate::sketch::{Cell, Geometry, Iblt, TableKey};
use crate::state::{Decoder, Encoder};

/// Encodes a table's cells for a saved state.
pub(super) fn save_cells<K: TableKey>(table: &Iblt<K>, encoder: &mut Encoder) {
    for cell in table.cells() {
        encoder.u32(cell.count() as u32);
        encoder.u32(cell.check());
        encoder.words(cell.key_words());
        encoder.u64(cell.value());
    }
}

/// Decodes a table of this shape.
pub(super) fn saved_cells<K: TableKey>(geometry: Geometry, decoder: &mut Decoder) -> Result<Iblt<K>> {
    let mut cells = Vec::with_capacity(geometry.cell_count());
    let mut words = vec![0; K::WORD_COUNT];
    for _ in 0..geometry.cell_count() {
        let (count, check) = (decoder.u32()? as i32, decoder.u32()?);
        decoder.words(&mut words)?;
        cells.push(K::Cell::of_sums(count, check, &words, decoder.u64()?));
    }
    decoder.some(Iblt::from_cells(geometry, &cells), "a table of another shape")
}

impl FlowList {
    /// About how many bytes [`Self::save`] writes while there is no residue.
    #[must_use]
    pub fn saved_size(&self) -> usize {
        let entry_size = |word_count: usize| (word_count + 1) * size_of::<u64>();
        let sizes = self.partitions.iter().map(|partition| {
            partition.v4.listed().len() * entry_size(KeyV4::WORD_COUNT)
                + partition.v6.listed().len() * entry_size(KeyV6::WORD_COUNT)
        });
        sizes.sum::<usize>() + (1 << 16)
    }

    /// Encodes the list for a saved state, right after an interval was listed.
    ///
    /// Complexity: linear in the list.
    pub fn save(&self, encoder: &mut Encoder) {
        debug_assert!(self.ending.is_none() && self.covered_intervals == 0);
        encoder.u64(self.interval);
        encoder.u64(self.merged_intervals);
        encoder.option(self.resumed_tick, Encoder::u64);
        self.bases.save(encoder);
        for partition in &self.partitions {
            partition.counts.save(encoder);
            partition.v4.save(encoder);
            partition.v6.save(encoder);
        }
        if let Some(snapshots) = &self.snapshots {
            snapshots.save(encoder);
        }
    }

    /// Fills an empty list with what one with the same configuration saved. If this fails the list must not be used.
    ///
    /// # Errors
    ///
    /// The bytes are not those of a list.
    pub fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        self.interval = decoder.count()?;
        self.merged_intervals = decoder.count()?;
        self.resumed_tick = decoder.option(Decoder::count)?;
        self.bases = TimeBases::saved(decoder)?;
        for partition in &mut self.partitions {
            partition.counts = Counts::saved(decoder)?;
            partition.listed_counts = partition.counts;
            partition.v4.restore(decoder)?;
            partition.v6.restore(decoder)?;
        }
        self.snapshots.as_mut().map_or(Ok(()), |snapshots| snapshots.restore(decoder))
    }

    /// Marks all listed connections as unsettled, after packets passed unseen up to the tick `resumed_tick`: each may
    /// have closed, until a packet of it is seen.
    pub fn unsettle(&mut self, resumed_tick: u64) {
        self.resumed_tick = Some(resumed_tick);
        for partition in &mut self.partitions {
            partition.v4.unsettle(resumed_tick);
            partition.v6.unsettle(resumed_tick);
        }
    }

    /// Leaves out the numbers of so many lists: another run may have used them.
    pub fn skip_intervals(&mut self, interval_count: u64) {
        self.interval = self.interval.saturating_add(interval_count);
    }
}
