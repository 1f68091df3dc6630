//! Keys and tables as the bytes of a saved state.

use crate::error::Result;
use crate::flow::FlowKey as TableKey;
pub(in crate::list) use crate::flow::saved_key as key;
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::{Geometry, Iblt};
use std::convert::Infallible;

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
