//! B-fields (N. B. Greenfield, "A space-efficient, probabilistic data structure and storage and retrieval method for
//! key-value information", 2014; "the paper" in this crate): the value of a key in a few bytes, for keys of any size.
//!
//! A field answers for any key: it was never inserted; it was, with this value; or (rarely) the field cannot decide.
//! Each value is a code word with a few ones among many bits. A key's hashes choose some windows of a bit array, and
//! inserting the key sets the value's ones in each. A look-up takes the windows and keeps the ones that all of them
//! share: none that make a word, and the key was never inserted; one word, and that is the value; several, and a later,
//! smaller array decides.
//!
//! ```
//! use flowpeel_bfield::{Field, Found, Goal, Pair, Plan};
//! use flowpeel_iblt::hash::Secret;
//! use flowpeel_iblt::{KeyHash, SecretHash};
//!
//! let hash = SecretHash::new(&Secret::REPLAY);
//! let plan = Plan::new(&Goal { false_positive_rate: 1e-6, key_count: 10_000, value_count: 500 })?;
//! let pairs = || (0..10_000u64).map(|key| Pair { hash: hash.of(&key), value: (key % 500) as u32 });
//! let field = Field::build(&plan, pairs)?.field;
//! assert_eq!(field.look_up(hash.of(&1_234u64)), Found::Value(234));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Plan::new`] computes the code, the number of hash functions and the arrays.
//! - [`Field::build`] makes a field from pairs that are all known; [`Builder`] does so where reading them may fail.
//! - [`Field::insert`] and [`Settling`] are the parts of a field that grows.
//! - [`look_up()`] reads a field wherever it is kept; [`Field::look_up_all`] looks up many keys at a time in memory.
//! - [`save`] puts a field into a file, [`load`] reads it back, and [`FieldFile`] looks keys up in the file, reading no
//!   more than their windows. Files hold hashes under a secret and no keys: a reader must hash under the same secret,
//!   or every key is absent, so keep a check of the secret beside them.
//! - [`Growing`] is a field that several threads can add to and look up in. Its log is replayed after a crash, and a
//!   thread inserts again what has become indeterminate.
//!
//! Keys are given by their hashes, so that keys of several kinds can be in one field:
//! [`SecretHash`](flowpeel_iblt::SecretHash) for any [`Key`](flowpeel_iblt::Key), or your own
//! [`KeyHash`](flowpeel_iblt::KeyHash).
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
//! - A field that still grows answers `Indeterminate`, not `Absent`, for a key that one array leaves undecided and the
//!   next does not have. A key that is not settled yet may hit a later array by chance, and then shows a wrong value
//!   (beta times alpha).

mod array;
mod build;
mod code;
mod error;
mod field;
mod file;
mod growing;
mod header;
mod log;
mod look_up;
mod places;
mod plan;
mod rates;

pub use build::{Builder, Built, Pass, Settling};
pub use code::{Code, CodeShape};
pub use error::{Cause, FileError, FileErrorParts, Result};
pub use field::{Contents, Field, Pair, Settled, ValueTooLarge};
pub use file::{FieldFile, load, save, write};
pub use growing::Growing;
pub use log::Recovered;
pub use look_up::{Found, ReadWindows, look_up};
pub use plan::{ArrayPlan, BFIELD_ARRAY_COUNT_MAX, Goal, Plan, Steps, Unplannable};

#[cfg(test)]
mod tests;
