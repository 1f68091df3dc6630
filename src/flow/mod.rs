//! The names of connections: two endpoints, oriented from client to server, and the VLAN tags where they count.
//!
//! A key has a fixed size, and can be summed, compared and printed. Nothing here knows how packets are parsed or where
//! keys are kept.

mod by_family;
mod key;
mod quick_hash;
mod saved;

pub use by_family::ByFamily;
pub use flowpeel_iblt::WordKey;
pub use key::{AnyKey, Family, FlowKey, KeyV4, KeyV6, Side, VlanTags};
pub use quick_hash::QuickHash;
pub use saved::saved_key;
