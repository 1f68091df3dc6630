//! Keys and tables as the bytes of a saved state.

use crate::error::Result;
use crate::flow::FlowKey;
use crate::sketch::{Geometry, Iblt, TableKey};
use crate::state::{Decoder, Encoder};
use std::convert::Infallible;

/// Decodes a key of a saved state. Every value is a valid key.
///
/// # Errors
///
/// There are too few bytes.
pub fn key<K: FlowKey>(decoder: &mut Decoder) -> Result<K> {
    let mut words = [0; 5];
    decoder.words(&mut words[..K::WORD_COUNT])?;
    Ok(K::from_words(&words))
}

/// Encodes a table's cells for a saved state.
pub(super) fn save_cells<K: TableKey>(table: &Iblt<K>, encoder: &mut Encoder) {
    let Ok(()) = table.write(|bytes| {
        encoder.put(bytes);
        Ok::<(), Infallible>(())
    });
}

/// Decodes a table of this shape.
pub(super) fn saved_cells<K: TableKey>(geometry: Geometry, decoder: &mut Decoder) -> Result<Iblt<K>> {
    Iblt::read(geometry, |bytes| decoder.fill(bytes))
}
