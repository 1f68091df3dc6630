//! What every family of files on the disk shares: saved states, snapshots, archives and lists.
//!
//! Values are encoded and decoded in one way, files are whole or not there, and a directory belongs to one process at
//! a time.

mod check;
mod encoding;
mod lock;
mod secret_file;
pub mod whole_file;

pub use check::{Check, Checked, Crc32};
pub use encoding::{Decoder, Encoder, Items, STATE_COUNT_MAX};
pub use lock::{LOCK_FILE, lock};
pub use secret_file::{read_private_text, read_secret, write_new_secret};
