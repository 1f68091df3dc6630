//! Invertible Bloom lookup tables, which are a crate of their own, and B-fields.

pub mod bfield;

pub use crate::flow::FlowKey as TableKey;
pub use bfield::BFIELD_ARRAY_COUNT_MAX;
pub use flowpeel_iblt::*;
