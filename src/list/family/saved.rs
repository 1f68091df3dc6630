//! A family's list as the bytes of a saved state: what is listed, what contradicts it, and what could not be decoded
//! yet.

use super::{FamilyList, Outcome};
use crate::error::Result;
use crate::list::family::EXTRANEOUS_MAX;
use crate::list::resync::Resync;
use crate::list::saved::{key, save_cells, saved_cells};
use crate::list::start::Start;
use crate::sketch::TableKey;
use crate::state::{Decoder, Encoder};

impl Outcome {
    fn save(self, encoder: &mut Encoder) {
        let Outcome { deltas_left, unstuck, restarted, starts_lost, set_aside } = self;
        encoder.counts([deltas_left, unstuck, restarted, starts_lost, set_aside]);
    }

    fn saved(decoder: &mut Decoder) -> Result<Self> {
        let [deltas_left, unstuck, restarted, starts_lost, set_aside] = decoder.counts()?;
        Ok(Outcome { deltas_left, unstuck, restarted, starts_lost, set_aside })
    }
}

impl<K: TableKey> FamilyList<K> {
    /// Encodes the list for a saved state, at the end of an interval: no change waits to be put back into a table then.
    ///
    /// Complexity: linear in the list; a pass over the residue unless it is empty.
    pub(in crate::list) fn save(&self, encoder: &mut Encoder) {
        let ledger = &self.ledger;
        debug_assert!(ledger.returned.is_empty());
        encoder.length(ledger.listed.len());
        for (key, start) in ledger.listed.iter() {
            encoder.words(key.words());
            encoder.u64(start.to_bits());
        }
        encoder.length(ledger.set_aside.len());
        for (key, count) in &ledger.set_aside {
            encoder.words(key.words());
            encoder.u32(*count as u32);
        }
        encoder.length(ledger.set_aside_order.len());
        ledger.set_aside_order.iter().for_each(|key| encoder.words(key.words()));
        encoder.u64(ledger.cut);
        ledger.outcome.save(encoder);
        ledger.liveness.save(encoder);
        self.resync.save(encoder);
        encoder.bool(self.residue_is_zero);
        if !self.residue_is_zero {
            save_cells(&self.residue, encoder);
        }
    }

    /// Fills an empty list with what one with the same configuration saved. If this fails the list must not be used.
    pub(in crate::list) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let ledger = &mut self.ledger;
        let key_size = K::WORD_COUNT * size_of::<u64>();
        let count = decoder.length(key_size + size_of::<u64>(), ledger.listed_max)?;
        for _ in 0..count {
            let is_new = ledger.listed.insert(key(decoder)?, Start::of_bits(decoder.u64()?));
            decoder.expect(is_new, "a connection twice")?;
        }
        for _ in 0..decoder.length(key_size + size_of::<u32>(), EXTRANEOUS_MAX)? {
            let (key, count) = (key(decoder)?, decoder.u32()? as i32);
            decoder.expect(count.unsigned_abs() < 1 << 30, "a connection set aside too often")?;
            ledger.set_aside.insert(key, count);
        }
        for _ in 0..decoder.length(key_size, EXTRANEOUS_MAX)? {
            ledger.set_aside_order.push_back(key(decoder)?);
        }
        ledger.cut = decoder.count()?;
        ledger.outcome = Outcome::saved(decoder)?;
        ledger.liveness.restore(decoder)?;
        self.resync = Resync::saved(decoder)?;
        self.residue_is_zero = decoder.bool()?;
        if !self.residue_is_zero {
            self.residue = saved_cells(self.residue.geometry(), decoder)?;
        }
        Ok(())
    }

    /// Marks all listed connections as unsettled: each may have closed unseen before the tick `resumed_tick`.
    pub(in crate::list) fn unsettle(&mut self, resumed_tick: u64) {
        let ledger = &mut self.ledger;
        ledger.listed.update_all(|key, start| ledger.liveness.unsettle(key, start, resumed_tick));
        ledger.liveness.set_unsettled(!ledger.listed.is_empty());
    }
}
