//! The engine as a library: its lists, records and files against exact accounts of generated traffic.
//!
//! - `exact`, `floods`, `one_way`, `pickup`, `vanish`: the lists, against an oracle that shares no code with flowpeel
//! - `deceived`: clocks that lie, forged ends, answered floods
//! - `clocks`: random worlds of clocks, against the same packets with true stamps
//! - `fingerprints`: errors of short fingerprints are as frequent as predicted
//! - `archive`: the answers of `find`, whatever happens to the files in between
//! - `snapshot_vectors`: committed files of the snapshot format
//! - `generate`: what the generator promises
//! - `oracle_rules`: the oracle itself

mod archive;
mod clocks;
mod deceived;
mod exact;
mod fingerprints;
mod floods;
mod generate;
mod one_way;
mod oracle_rules;
mod pickup;
mod snapshot_vectors;
#[path = "../support/mod.rs"]
mod support;
mod vanish;
