//! What holds whatever a table, a frame or a file contains.
//!
//! What enters: bytes that a fuzzer made up. What leaves: nothing; a law that does not hold is a panic, which the
//! fuzzer reports with the bytes that led to it. Each target is one call of this library, so that a finding can be run
//! again by anything that can read a file.

pub mod capture;
pub mod delta;
pub mod frame;
pub mod listing;
pub mod script;
pub mod snapshot;
pub mod table;
