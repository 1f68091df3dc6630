//! What a run has to know to go on where it was killed: bytes on the disk that are whole or not there.
//!
//! What enters: the parts of a state, each encoded by the type that it belongs to. What leaves: files, one a generation, and
//! the parts of the newest that is sound. Nothing here knows what is in a part.

mod directory;
mod encoding;
mod generation;
mod lock;

pub use directory::{Opened, Saved, StateDirectory};
pub use encoding::{Decoder, Encoder};
pub use generation::Identity;
pub use lock::lock;
