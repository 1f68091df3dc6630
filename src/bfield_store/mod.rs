//! B-fields on disk: saved and looked up in their files, and growing beside a log that survives a crash.
//!
//! What enters: fields, or pairs one after another, and paths. What leaves: files that are written whole or not at all,
//! answers read out of them, and fields that grow. Nothing in a file is believed before its check sum and its length
//! are seen to be right.
//!
//! - [`save`] writes a field, [`load`] reads it back, [`FieldFile`] looks keys up without reading more than their
//!   windows.
//! - [`Growing`] is a field that is added to while it is looked up in, by several threads: its log is replayed after a
//!   crash, and a thread inserts again what has become indeterminate.
//!
//! Files are read by position and not mapped: a file that is cut while it is mapped kills whoever reads it, and the
//! pages are in the system's cache either way. They hold hashes under a secret and no keys; whoever opens one must hash
//! under the same secret, or every key is absent, so keep a check of the secret beside them.

mod file;
mod growing;
mod header;
mod log;

pub use file::{FieldFile, load, save};
pub use growing::Growing;
pub use log::Recovered;

#[cfg(test)]
mod tests;
