//! Invertible Bloom lookup tables (IBLTs): sums of key-value pairs, in a size that is fixed at the start, that can be
//! added, subtracted and, while they hold few enough pairs, listed exactly.
//!
//! After Goodrich and Mitzenmacher, "Invertible Bloom Lookup Tables", arXiv:1101.2245; "the paper" in this crate.
//!
//! # The idea
//!
//! A table is an array of *cells*. A cell is a row of sums over the keys that were placed in it: how many they are, the
//! sum of the keys, the sum of their values, and the sum of a hash of each key, which is the *check*. A hash of a key
//! chooses *k* cells, four for instance. **Inserting** a pair adds it to these cells, and **removing** it subtracts it
//! from them. Nothing is looked up: an update costs *k* additions, however many pairs are in the table, and a pair may
//! be removed before it is inserted.
//!
//! Since all fields are sums, tables can be added and subtracted cell by cell. The difference of the tables of two sets
//! is the table of their difference: what both have cancels.
//!
//! **Listing** is *peeling*. Take three keys *a*, *b* and *c* with two cells each:
//!
//! ```text
//! cell     0        1        2        3        4
//! count    1        2        2        0        1
//! keys     a      a + b    b + c      0        c
//! ```
//!
//! Cell 0 has a count of 1, so its sum of keys is a key, *a*, and its sum of values is the value of *a*. (The check
//! proves it: the cell's must be the hash of *a*. A count of 1 may also come from two insertions and a removal.) *a*
//! continues the list and is subtracted from its cells 0 and 1. Now *b* is alone in cell 1; when it is taken out of 1
//! and 2, *c* is alone in 2, and the table is empty.
//!
//! # Why it works
//!
//! **The invariant**: *what is on the list, plus what is in the table, is what was inserted less what was removed.* It
//! holds at the start, when the list is empty, and each step keeps it: a pair moves from the table to the list, whole.
//! So when the table is empty the list is what was in it, and when peeling stops early the list is right for what it
//! has, and the table holds exactly the rest. No step depends on the order. (A check of 32 bits agrees by chance in one
//! of 2^32 cells with several keys. Then something is listed that was not inserted, but the invariant still holds: its
//! opposite is in the table, which does not become empty by that.)
//!
//! Peeling stops early when every cell that is not empty holds two keys or more. With the keys as edges that join *k*
//! cells each, that is a *2-core* of the hypergraph: a set of keys in which no cell has a single one. In random
//! hypergraphs a 2-core appears at a sharp threshold: with four cells a key, a large table nearly always lists *n* keys
//! if it has more than 1.295 *n* cells, and nearly never with less. Three cells take 1.222 *n*, five 1.425 *n*. Small
//! tables need a little more: two keys that share all their cells are a 2-core already. [`plan()`] knows how many cells
//! to take; [`Geometry`] does for [`Iblt`].
//!
//! So a table for a thousand keys has about 1,300 cells, and a million keys may pass through it, as long as no more
//! than a thousand are in it when it is listed. If there are more, it says so (there is a [`Residue`]), and lists again
//! once enough have been removed.
//!
//! # Two tables
//!
//! | | [`Table<C, H>`](Table) | [`Iblt<K>`](Iblt) |
//! |---|---|---|
//! | keys | numbers, byte strings, rows of words, your own | rows of up to six words of 64 bits |
//! | values | any [`Sum`], or none | 64 bits |
//! | fields of a cell | chosen: [`Sums`] | count, key, value, check: [`PackedCell`] |
//! | placement of keys | chosen, planned: [`Placement`] | four subtables |
//! | listing | [`Table::list`] returns lists | a [`Peeler`] gives each key to a [`Recipient`] |
//! | single keys, lost subtables, reconciliation, counters | yes | no |
//! | for | everything else | millions of updates a second, tables larger than the caches |
//!
//! Begin with [`Table`]. Both have the same laws, and one trait of cells, [`TableCell`], with one encoding.
//!
//! # A table, and its list
//!
//! Choose how many keys have to list and how often that may fail; insert any number of keys, in any order; list.
//!
//! ```
//! use flowpeel_iblt::hash::Secret;
//! use flowpeel_iblt::{Rule, Sums, Table, plan};
//!
//! let layout = plan(1_000, 0.001).layout();
//! let mut table: Table<Sums<u64, u64>> = Table::with_secret(layout, &Secret::REPLAY);
//! for key in 0..1_000 {
//!     table.insert(&key, key * key);
//! }
//! table.remove(&7, 49);
//! table.remove(&5_000, 1); // Never inserted: an extraneous deletion, listed as one.
//!
//! let listing = table.list(Rule::Aggregates);
//! assert!(listing.is_complete());
//! assert_eq!(listing.inserted.len(), 999);
//! assert_eq!(listing.deleted[0].key, 5_000);
//! assert!(listing.inserted.iter().all(|entry| entry.value() == Some(entry.key * entry.key)));
//! ```
//!
//! # One key
//!
//! [`Table::get`] looks a key up without listing. With a few cells a key it nearly always succeeds; where it does not,
//! it returns [`Got::Unknown`].
//!
//! ```
//! # use flowpeel_iblt::hash::Secret;
//! # use flowpeel_iblt::{Layout, Placement, Sums, Table};
//! use flowpeel_iblt::{Got, Values};
//!
//! let layout = Layout::new(Placement::Subtables { hash_count: 4 }, 4_000);
//! let mut table: Table<Sums<[u8; 6], u64>> = Table::with_secret(layout, &Secret::REPLAY);
//! table.insert(b"orange", 3);
//! table.insert(b"orange", 4);
//! table.remove(b"citron", 5);
//! assert_eq!(table.get(b"orange"), Got::Found { count: 2, values: Values::Sum(7) });
//! assert_eq!(table.get(b"citron"), Got::Deleted { count: 1, values: Values::One(5) });
//! assert_eq!(table.get(b"pomelo"), Got::Absent);
//! ```
//!
//! # What differs between two sets
//!
//! The size of the table depends on the difference, not on the sets; an [`Estimator`] gives the size of the difference.
//! [`reconcile`] finds the keys that only one side has, and those whose values differ.
//!
//! ```
//! # use flowpeel_iblt::hash::Secret;
//! use flowpeel_iblt::{Changed, CheckedCell, Estimator, Table, plan, reconcile};
//!
//! let here: Vec<(u64, u64)> = (0..50_000).map(|key| (key, 1)).collect();
//! let there: Vec<(u64, u64)> = (40..50_040).map(|key| (key, if key < 50 { 2 } else { 1 })).collect();
//!
//! let secret = Secret::new(*b"both sides know!");
//! let mut sizes = [Estimator::new(&secret), Estimator::new(&secret)];
//! here.iter().for_each(|(key, value)| sizes[0].insert(key, value));
//! there.iter().for_each(|(key, value)| sizes[1].insert(key, value));
//! let differences = sizes[0].difference(&sizes[1]);
//!
//! let layout = plan(2 * differences + 50, 0.001).layout();
//! let mut table: Table<CheckedCell<u64>> = Table::with_secret(layout, &secret);
//! table.insert_all(&there);
//! let sent: Vec<u8> = table.to_bytes();
//!
//! let received = Table::from_bytes(layout, table.hash().clone(), &sent)?;
//! let difference = reconcile::<CheckedCell<u64>, _>(&received, &here);
//! assert!(difference.is_complete());
//! assert_eq!((difference.only_here.len(), difference.only_there.len()), (40, 40));
//! assert_eq!(difference.changed.len(), 10);
//! assert!(difference.changed.contains(&Changed { key: 45, here: 1, there: 2 }));
//! # Ok::<(), flowpeel_iblt::Refused>(())
//! ```
//!
//! # Overload, and recovery
//!
//! Any number of keys can be in a table. It lists again once enough of them have been removed.
//!
//! ```
//! # use flowpeel_iblt::hash::Secret;
//! # use flowpeel_iblt::{Rule, Sums, Table, plan};
//! let mut table: Table<Sums<u64, ()>> = Table::with_secret(plan(500, 0.001).layout(), &Secret::REPLAY);
//! (0..100_000).for_each(|key| table.insert(&key, ()));
//! let overloaded = table.listing(Rule::Aggregates);
//! assert!(!overloaded.is_complete() && overloaded.residue.key_cell_count > 0);
//!
//! (400..100_000).for_each(|key| table.remove(&key, ()));
//! let (inserted, deleted) = table.list(Rule::Aggregates).complete().expect("it holds 400 keys");
//! assert_eq!((inserted.len(), deleted.len()), (400, 0));
//! ```
//!
//! # What to choose
//!
//! - Fields: [`Sums`] lists what each costs and what it is for. Use a [`ValueCheck`] where keys may be inserted and
//!   removed with different values.
//! - Placement: [`plan()`] finds the best one; [`Placement`] lists what each is good for; [`Simulation`] tries it.
//! - Keys: numbers, `[u8; N]`, `[u64; N]`; other types implement [`WordKey`] or [`Key`]. The default [`SecretHash`] is
//!   AES under a secret, so that keys that do not list cannot be crafted without it. Your own [`KeyHash`] can replace
//!   it.
//! - Several values for one key: [`Rule::Aggregates`] lists the key with their sum; [`Squares`] give two
//!   values back one by one, and beside a [`ValueCheck`] with certainty.
//! - Differences from a list that is known: [`Table::list_knowing`] needs fewer cells than there are differences.
//! - Tables larger than a difference needs: [`Table::folded`] shrinks them before they are sent.
//! - Parts of a table may get lost: [`Table::lose_subtable`], [`Iblt::lose_subtable`].
//! - Hidden accesses: [`select`] fills a table that somebody else keeps, and [`extract`] lists it.
//! - Some keys matter more: [`Placement::Chosen`] and [`ChosenDegrees`] give them more cells, so that
//!   [`Table::get`] answers for them more often.
//! - Small keys in large tables: a [`QuotientTable`] stores what their places do not say.
//! - How often a key was inserted: a [`Counter`].
//! - Threads: tables are plain data. Split the keys over several tables and list each on a thread of its own, or let
//!   several threads fill tables and add them up with `merge`.
//!
//! # Laws, which the tests hold
//!
//! Updates commute; `insert` then `remove` leaves nothing; `a` merged with `b` holds what both hold together; listing
//! takes out only what is in the table, and what it takes out plus what it leaves is the table.

mod cell;
mod counter;
mod estimator;
mod get;
pub mod hash;
pub mod interval;
mod key_hash;
mod listing;
mod oblivious;
mod packed;
mod placement;
mod quotient;
mod reconcile;
mod refused;
mod sum;
mod table;
mod word_key;

pub use cell::{
    Adding, CheckField, CheckedCell, CountField, Mode, PackedCell, PlainCell, Squares, Sums, TableCell, TableKey,
    ValueCheck, ValueField, Values, XorCell, Xoring,
};
pub use counter::{Counter, EvenOdd, EvenOddCell, Keeping, OneKey, Optimisations, Standard, StandardCell, Tally, Wide};
pub use estimator::Estimator;
pub use get::Got;
pub use key_hash::{ChosenDegrees, KeyHash, SecretHash};
pub use listing::{Entry, Listing, Residue, Rule};
pub use oblivious::{Outsourced, Slot, extract, extraction_slot_count, select};
pub use packed::{
    AGGREGATE_LOST_BITS_MAX, BATCH_COUNT, Batch, Change, Geometry, HASH_COUNT, Iblt, Latest, PAYLOAD_BITS, Peeled,
    Peeler, Recipient, Updates, ValueCode,
};
pub use placement::{
    CommonDegree, Degrees, Layout, Outcome, PLAN_FAILURE_MAX, PLAN_FAILURE_MIN, Placement, Places, Plan, Simulation,
    TABLE_CELLS_MAX, TABLE_DEGREE_MAX, TABLE_SEGMENTS_MAX, plan,
};
pub use quotient::{QuotientListing, QuotientShape, QuotientTable};
pub use reconcile::{Changed, Difference, reconcile};
pub use refused::Refused;
pub use sum::{Key, Sum};
pub use table::Table;
pub use word_key::{KEY_WORD_COUNT_MAX, WordKey};

#[cfg(test)]
mod tests;
