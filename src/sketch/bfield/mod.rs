//! B-fields (N. B. Greenfield, "A space-efficient, probabilistic data structure and storage and retrieval method for
//! key-value information", 2014; "the paper" in this module): the value of a key in some bytes, whatever the size of
//! the key.
//!
//! What enters: what is wanted ([`Goal`]), and pairs of a key's hash and a value. What leaves: for any key, that it was
//! never inserted, or its value, or that it can not be told. Pure algorithm: files, a log and a thread are in
//! [`bfield_store`](crate::bfield_store).
//!
//! - [`Plan::new`] works out the code, the number of hash functions and the arrays.
//! - [`Field::build`] makes a field of pairs that are all known; [`Builder`] the same where reading them may fail.
//! - [`Field::insert`] and [`Settling`] are what a field that grows is made of.
//! - [`look_up()`] reads a field wherever it is; [`Field::look_up_all`] one in memory, many keys at a time.
//!
//! Keys are given by their hashes, so that keys of several kinds can be in one field:
//! [`SecretHash`](crate::sketch::SecretHash) for any [`Key`](crate::sketch::Key), or a
//! [`KeyHash`](crate::sketch::KeyHash) of one's own.
//!
//! # What is other than in the paper
//!
//! - Its false positive rate takes neighbouring bits for independent and is several times too low; here it is summed
//!   over the bit strings with the chances that they really have, and the number of hash functions follows from that.
//! - Values are whitened: a number that depends on the key is added to them, so that a field with one value in it is as
//!   good as one with all.
//! - Windows do not follow each other in equal steps ([`Steps::Scattered`]): with those, small arrays have more false
//!   positives from pairs of keys whose windows nearly all coincide than from chance.
//! - Each array uses hashes of its own, so that keys that met in one array do not meet again in the next.
//! - A field that still grows answers `Indeterminate`, and not `Absent`, for a key that one array can not tell and the
//!   next does not have. A key that could not be told in time may hit a later array by chance, and then shows a wrong
//!   value (beta times alpha).

mod array;
mod build;
mod code;
mod field;
mod look_up;
mod places;
mod plan;
mod rates;

pub use build::{Builder, Built, Pass, Settling};
pub use code::{Code, CodeShape};
pub use field::{Contents, Field, Pair, Settled, ValueTooLarge};
pub use look_up::{Found, ReadWindows, look_up};
pub use plan::{ArrayPlan, Goal, Plan, Steps, Unplannable};

#[cfg(test)]
mod tests;
