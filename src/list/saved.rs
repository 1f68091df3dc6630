//! Keys and tables as the bytes of a saved state.

use crate::error::Result;
use crate::flow::FlowKey;
use crate::sketch::{Cell, Geometry, Iblt, TableKey};
use crate::state::{Decoder, Encoder};

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
