//! What people who look at a running engine see: the latest list, a window of its rows in the order they ask for, and
//! the numbers of the lists before it.
//!
//! ```text
//! list thread -> Feed ==> Board <== ControlServer <-- requests -- ViewClient (flowpeel top)
//! ```
//!
//! The list thread copies rows to the [`Board`] at most about once a second, and waits for nobody: where the board is
//! in use it leaves the copy out. A thread of its own filters, sorts and groups them for clients, which ask through a
//! socket, and get the rows of their window and no others. docs/operations/top.md has the [protocol].

mod answer;
mod board;
#[cfg(unix)]
mod client;
pub mod protocol;
#[cfg(unix)]
mod server;

pub use board::{Board, Feed, SAMPLES_MAX};
#[cfg(unix)]
pub use client::ViewClient;
#[cfg(unix)]
pub use server::{CONTROL_CLIENTS_MAX, ControlServer};

use crate::list::ListCopy;
use crate::select::Arrangement;
use protocol::{ANSWER_SIZE_MAX, REQUEST_SIZE_MAX};

/// The most clients for which there is memory.
const CLIENTS_MAX: u64 = 8;

/// The memory in bytes that looking at a run takes at most, with so many rows in its largest list: the copy, the places
/// of its rows, and the buffers of clients.
#[must_use]
pub fn memory_size(rows_max: u64) -> u64 {
    let clients_size = CLIENTS_MAX * (REQUEST_SIZE_MAX + ANSWER_SIZE_MAX) as u64;
    rows_max.saturating_mul(ListCopy::ROW_SIZE + Arrangement::ROW_SIZE).saturating_add(clients_size)
}
