//! Tables as the bytes of a saved state.

use crate::error::Result;
use crate::flow::FlowKey as TableKey;
use crate::state::{Decoder, Encoder};
use flowpeel_iblt::{Geometry, Iblt};
use std::convert::Infallible;

/// Encodes a table's cells for a saved state.
pub(crate) fn save_cells<K: TableKey>(table: &Iblt<K>, encoder: &mut Encoder) {
    let Ok(()) = table.write(|bytes| {
        encoder.put(bytes);
        Ok::<(), Infallible>(())
    });
}

/// Decodes a table of this shape.
///
/// # Errors
///
/// The bytes end before the table does.
pub(crate) fn saved_cells<K: TableKey>(geometry: Geometry, decoder: &mut Decoder) -> Result<Iblt<K>> {
    Iblt::read(geometry, |bytes| decoder.fill(bytes))
}
