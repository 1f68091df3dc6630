//! What every family of files on the disk shares: saved states, snapshots, archives and lists.
//!
//! Values are encoded and decoded in one way, files are whole or not there, and a directory belongs to one process at
//! a time.

mod check;
mod encoding;
mod lock;
pub mod whole_file;

pub use check::{Check, Checked, Crc32};
pub use encoding::{Decoder, Encoder, Items, STATE_COUNT_MAX};
pub use lock::{LOCK_FILE, lock};
