//! What several test programs need: traffic and its exact lists, the built command, frames and captures byte by byte.
//!
//! - [`frames`], [`captures`]: packets and capture files that say exactly what a test needs
//! - [`feed`], [`taps`]: traffic through the engine, without a file between; several routers on one traffic
//! - [`oracle`]: the exact list of open connections of any traffic, by an implementation of its own
//! - [`command`]: the built command, run under a time limit, and its lists read back
//! - [`files`]: what it left in a directory
//! - [`progress`]: where a long form is, for the run after one that was cut off
//! - [`terminal`]: programs on a terminal of their own
//! - [`say`]: messages past the test harness, such as why a test is skipped

// Each test program compiles these modules for itself and uses a part of them.
#![allow(dead_code, unused_imports)]

pub(crate) mod captures;
pub(crate) mod command;
pub(crate) mod feed;
pub(crate) mod files;
pub(crate) mod frames;
pub(crate) mod oracle;
pub(crate) mod progress;
pub(crate) mod say;
pub(crate) mod taps;
pub(crate) mod terminal;
