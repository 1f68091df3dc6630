//! Snapshots: every open connection of a router in a file of fixed size.

pub mod file;

pub use crate::handover::*;
pub use crate::queue::{Marker, Seen};
pub use file::{COMPRESSION_LEVEL, ROUTER_NAME_SIZE_MAX, SNAPSHOT_HALF_OPEN_SIZE, SNAPSHOT_SIZE_MAX};
