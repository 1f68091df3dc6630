//! B-fields on disk: saved and looked up in their files, and growing beside a log that survives a crash.
//!
//! What enters: fields, or pairs one after another, and paths. What leaves: files that are written whole or not at all,
//! answers read out of them, and fields that grow. Nothing in a file is trusted before its checksum and its length have
//! been verified.
//!
//! - [`save`] writes a field, [`load`] reads it back, and [`FieldFile`] looks keys up, reading no more than their
//!   windows.
//! - [`Growing`] is a field that several threads can add to and look up in. Its log is replayed after a crash, and a
//!   thread inserts again what has become indeterminate.
//!
//! Files are read by position and not mapped: a file that is cut while it is mapped kills its readers, and the pages
//! are in the system's cache either way. Files hold hashes under a secret and no keys. A reader must hash under the
//! same secret, or every key is absent, so keep a check of the secret beside them.

mod file;
mod growing;
mod header;
mod log;

pub use file::{FieldFile, load, save};
pub use growing::Growing;
pub use log::Recovered;

#[cfg(test)]
mod tests;
