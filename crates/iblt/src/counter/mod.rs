//! Invertible Bloom counters (Ding and Rauen, "Improving Retrieval Performance for Invertible Bloom Counters"; "the
//! paper" in this module): multisets of keys in a fixed size, which bound how often a key is in them, and list all
//! keys with their multiplicities as long as there are few enough. There are three kinds, with one interface:
//!
//! | kind | a cell has beside count and check | lists up to, for 3, 4, 5 cells a key | can be added and subtracted |
//! |---|---|---|---|
//! | [`Standard`] (section III) | the sum of the keys | 0.80, 0.76, 0.69 keys a cell | yes |
//! | [`EvenOdd`] (section IV) | two sums, each of one half of all keys | 1.22, 1.10, 0.96 | yes |
//! | [`OneKey`] (section V) | the sum, and one of the keys | 1.42, 1.26, 1.10 (of keys drawn) | no |
//!
//! The even-odd and the one-key counter also split cells that hold two keys, by trying how the count may be divided
//! between them. That takes one try for every possible division, so it pays while multiplicities are small. With
//! [`Optimisations::EXTENDED`] the one-key counter splits cells of three keys as well, which takes the square of that.
//!
//! ```
//! use flowpeel_iblt::hash::Secret;
//! use flowpeel_iblt::{Counter, SecretHash, Standard, plan};
//!
//! let layout = plan(100, 0.001).layout();
//! let mut counter: Standard<u64> = Standard::new(layout, SecretHash::new(&Secret::REPLAY));
//! (0..100).for_each(|key| counter.add(&key, key + 1));
//! counter.remove(&7, 8);
//! assert!(counter.query(&20) >= 21);
//! let tally = counter.list();
//! assert!(tally.is_complete());
//! assert_eq!(tally.keys.len(), 99);
//! assert!(tally.keys.iter().all(|&(key, count)| count == key as i64 + 1));
//! ```
//!
//! Laws: a query never gives less than a key was added less what it was removed, as long as no key was removed more
//! often than added; what is listed plus what is left is what there was, for any contents of the cells; and work is
//! bounded by the number of cells.

mod even_odd;
mod one_key;
mod split;
mod standard;
mod wide;

pub use even_odd::{EvenOdd, EvenOddCell};
pub use one_key::{Keeping, OneKey, Optimisations};
pub use standard::{Standard, StandardCell};
pub use wide::Wide;

use super::cell::TableCell;
use super::key_hash::KeyHash;
use super::listing::{Entry, Residue};
use super::sum::Key;
use super::table::Table;

/// A multiset of keys in a fixed size.
pub trait Counter {
    /// The keys it counts.
    type Key: Key;

    /// Adds a key `count` times.
    fn add(&mut self, key: &Self::Key, count: u64);
    /// Removes a key `count` times. If it is removed more often than it was added, queries may give too little.
    fn remove(&mut self, key: &Self::Key, count: u64);
    /// An upper bound for how often a key is in the counter: the least count of its cells. It is exact where the key
    /// has a cell for itself.
    fn query(&self, key: &Self::Key) -> u64;
    /// Takes out all keys that can be listed, with their exact multiplicities.
    fn list(&mut self) -> Tally<Self::Key>;
}

/// What was listed, and how much was not.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a tally may be partial: look at its residue"]
pub struct Tally<K> {
    /// Keys with their multiplicities, in no order. A key with a negative multiplicity was removed more often than
    /// added.
    pub keys: Vec<(K, i64)>,
    /// What could not be listed.
    pub residue: Residue,
}

impl<K> Tally<K> {
    /// Whether everything was listed.
    pub fn is_complete(&self) -> bool {
        self.residue.is_empty()
    }
}

/// A count as cells sum it: what exceeds 63 bits wraps, as every sum does.
fn signed(count: u64) -> i64 {
    count as i64
}

/// The least count of a key's cells.
fn least_count<C: TableCell, H: KeyHash<C::Key>>(table: &Table<C, H>, key: &C::Key) -> u64 {
    table.least(key, |cell| cell.count().max(0).unsigned_abs())
}

/// A key and its count.
fn counted<K, V>(entry: Entry<K, V>) -> (K, i64) {
    (entry.key, entry.count)
}

#[cfg(test)]
mod tests;
