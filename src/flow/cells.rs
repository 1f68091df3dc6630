//! The cells of the tables of connections.

use super::{KeyV4, KeyV6};
use flowpeel_iblt::{PackedCell, TableKey};
use flowpeel_lines::{HalfLine, Line};

/// The cell of IPv4 keys: 32 bytes, two to a cache line.
pub type CellV4 = PackedCell<KeyV4, HalfLine>;

/// The cell of IPv6 keys: 56 bytes of sums in a cache line of their own.
pub type CellV6 = PackedCell<KeyV6, Line>;

impl TableKey for KeyV4 {
    type Cell = CellV4;
}

impl TableKey for KeyV6 {
    type Cell = CellV6;
}
