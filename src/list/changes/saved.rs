//! An earlier list as the bytes of a saved state.

use super::EarlierList;
use crate::error::Result;
use crate::flow::FlowKey;
use crate::list::rows::{Listed, RowState};
use crate::list::saved::key;
use crate::signal::TimeBases;
use crate::state::{Decoder, Encoder};

impl EarlierList {
    /// Encodes the list for a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        save_rows(encoder, &self.v4);
        save_rows(encoder, &self.v6);
        self.bases.save(encoder);
        encoder.i64(self.within_tick_ns);
        encoder.u64(self.end_tick);
    }

    /// Decodes a list that was saved.
    ///
    /// # Errors
    ///
    /// The bytes are not those of a list.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        let (v4, v6, bases) = (saved_rows(decoder)?, saved_rows(decoder)?, TimeBases::saved(decoder)?);
        let (within_tick_ns, end_tick) = (decoder.i64()?, decoder.count()?);
        decoder.expect((0..=crate::signal::TICK_NS).contains(&within_tick_ns), "a time beyond its tick")?;
        Ok(EarlierList { v4, v6, bases, within_tick_ns, end_tick })
    }
}

fn save_rows<K: FlowKey>(encoder: &mut Encoder, rows: &[Listed<K>]) {
    encoder.length(rows.len());
    for row in rows {
        encoder.words(row.key.words());
        encoder.u64(row.start_tick());
        encoder.u8(u8::from(row.is_midstream()) | u8::from(row.is_unsettled()) << 1);
    }
}

fn saved_rows<K: FlowKey>(decoder: &mut Decoder) -> Result<Vec<Listed<K>>> {
    let count = decoder.length((K::WORD_COUNT + 1) * size_of::<u64>(), usize::MAX)?;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let (key, start_tick, flags) = (key(decoder)?, decoder.count()?, decoder.u8()?);
        let (midstream, unsettled) = (flags & 1 != 0, flags & 2 != 0);
        let row = Listed::new(key, RowState::Established, start_tick);
        rows.push(row.midstream(midstream).unsettled(unsettled));
    }
    Ok(rows)
}
