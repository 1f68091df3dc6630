//! Invertible Bloom lookup tables, which are a crate of their own, and B-fields.

pub use flowpeel_bfield as bfield;

pub use crate::flow::FlowKey as TableKey;
pub use flowpeel_iblt::*;
