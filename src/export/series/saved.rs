//! A series of lists as the bytes of a saved state: what the next changes build on.

use super::{Changes, Series};
use crate::error::Result;
use crate::export::lines::ListId;
use crate::export::timestamp::Text;
use crate::flow_list::EarlierList;
use crate::state::{Decoder, Encoder};

impl Series {
    /// Encodes it for a saved state.
    pub(in crate::export) fn save(&self, encoder: &mut Encoder) {
        encoder.option(self.changes.as_ref(), |encoder, changes| {
            encoder.u64(changes.list_count);
            changes.earlier.save(encoder);
            encoder.option(changes.ids, |encoder, (id, full)| {
                save_id(encoder, id);
                save_id(encoder, full);
            });
        });
    }

    /// Restores what a series in the same format saved.
    pub(in crate::export) fn restore(&mut self, decoder: &mut Decoder) -> Result<()> {
        let has_changes = decoder.bool()?;
        decoder.expect(has_changes == self.changes.is_some(), "another --changes")?;
        if let Some(Changes { list_count, earlier, ids, .. }) = &mut self.changes {
            *list_count = decoder.count()?;
            *earlier = EarlierList::saved(decoder)?;
            *ids = decoder.option(|decoder| Ok((saved_id(decoder)?, saved_id(decoder)?)))?;
        }
        Ok(())
    }

    /// The next list builds on none before it: it is written in full.
    pub(in crate::export) fn build_anew(&mut self) {
        self.changes.iter_mut().for_each(|changes| changes.ids = None);
    }
}

fn save_id(encoder: &mut Encoder, id: ListId) {
    encoder.u64(id.interval);
    encoder.bytes(id.end.as_bytes());
}

fn saved_id(decoder: &mut Decoder) -> Result<ListId> {
    let (interval, end) = (decoder.count()?, Text::of_bytes(decoder.bytes()?));
    Ok(ListId { interval, end: decoder.some(end, "a time of another form")? })
}
