//! B-fields (N. B. Greenfield, "A space-efficient, probabilistic data structure and storage and retrieval method for
//! key-value information", 2014; "the paper" in this module): the value of a key in a few bytes, whatever the size of
//! the key.
//!
//! What enters: requirements ([`Goal`]), and pairs of a key's hash and a value. What leaves: for any key, that it was
//! never inserted, or its value, or that the field cannot tell. Pure algorithm: files, a log and a thread are in
//! [`bfield_store`](crate::bfield_store).
//!
//! - [`Plan::new`] computes the code, the number of hash functions and the arrays.
//! - [`Field::build`] makes a field from pairs that are all known; [`Builder`] does so where reading them may fail.
//! - [`Field::insert`] and [`Settling`] are the parts of a field that grows.
//! - [`look_up()`] reads a field wherever it is kept; [`Field::look_up_all`] looks up many keys at a time in memory.
//!
//! Keys are given by their hashes, so that keys of several kinds can be in one field:
//! [`SecretHash`](crate::sketch::SecretHash) for any [`Key`](crate::sketch::Key), or your own
//! [`KeyHash`](crate::sketch::KeyHash).
//!
//! # What is other than in the paper
//!
//! - The paper's false positive rate treats neighbouring bits as independent and is several times too low. Here it is
//!   summed over the bit strings with their actual probabilities, and the number of hash functions follows from that.
//! - Values are whitened: a number that depends on the key is added to them, so that a field with a single value in it
//!   works as well as one with all values.
//! - Windows do not follow each other in equal steps ([`Steps::Scattered`]). With equal steps, small arrays have more
//!   false positives from pairs of keys whose windows nearly all coincide than from chance.
//! - Each array uses its own hashes, so that keys that collide in one array do not collide again in the next.
//! - A field that still grows answers `Indeterminate`, not `Absent`, for a key that one array cannot tell and the next
//!   does not have. A key that could not be told in time may hit a later array by chance, and then shows a wrong value
//!   (beta times alpha).

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
pub use plan::{ArrayPlan, BFIELD_ARRAY_COUNT_MAX, Goal, Plan, Steps, Unplannable};

#[cfg(test)]
mod tests;
