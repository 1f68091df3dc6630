//! The state that a run needs to go on where it was killed: bytes on the disk that are whole or not there.
//!
//! What enters: the parts of a state, each encoded by the type that it belongs to. What leaves: files, one for each
//! generation, and the parts of the newest sound one. Nothing here knows what a part holds.

mod directory;
mod encoding;
mod generation;
mod lock;

pub use directory::{Opened, Saved, StateDirectory};
pub use encoding::{Decoder, Encoder, STATE_COUNT_MAX};
pub use generation::{Identity, STATE_VERSION};
pub use lock::lock;
