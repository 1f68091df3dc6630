//! The state that a run needs to continue where it was killed: bytes on the disk that are whole or not there.
//!
//! Each part of a state is encoded by the type that it belongs to; nothing here knows what a part holds. Every save is
//! a file of its own, a generation, and a run reads the newest sound one.

mod directory;
mod generation;

pub use crate::disk::{Decoder, Encoder, LOCK_FILE, STATE_COUNT_MAX, lock};
pub use directory::{Opened, Saved, StateDirectory};
pub use generation::{Identity, STATE_VERSION};
