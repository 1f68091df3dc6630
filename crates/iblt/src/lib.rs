//! Invertible Bloom lookup tables (Goodrich and Mitzenmacher, "Invertible Bloom Lookup Tables", arXiv:1101.2245; "the
//! paper" in this module): fixed-size sums of key-value pairs that can be added, subtracted and, while they hold few
//! enough, listed exactly.
//!
//! What enters: keys, values, and counts. What leaves: the same, listed out of a table again, and a residue that could
//! not be listed. Pure algorithm: nothing here knows a packet, a thread or a file. There are two families: [`Table`],
//! for any keys and assembled from parts, and [`Iblt`] with its [`Peeler`], tuned for connections on the packet path.
//!
//! # A table, and its list
//!
//! State how many keys have to list and how often that may fail; insert any number of keys, in any order; list.
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
//! [`Table::get`] looks a key up without listing. With a few cells a key it nearly always succeeds, and it says so when
//! it cannot tell.
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
//! - Fields: [`Sums`] says what each costs and what it is for. Use a [`ValueCheck`] where keys may be inserted and
//!   removed with different values.
//! - Placement: [`plan()`] finds the best one; [`Placement`] says what each is good for; [`Simulation`] tries it.
//! - Keys: numbers, `[u8; N]`, flow keys; other types implement [`Key`]. The default [`SecretHash`] is AES under a
//!   secret, so that keys that do not list cannot be crafted without it. Your own [`KeyHash`] can replace it.
//! - Several values for one key: [`Rule::Aggregates`] lists the key with their sum; [`Squares`] tells two of them
//!   apart.
//! - Differences from a list that is known: [`Table::list_knowing`] needs fewer cells than there are differences.
//! - Tables larger than a difference needs: [`Table::folded`] shrinks them before they are sent.
//! - Parts of a table may get lost: [`Table::lose_subtable`]. Hidden accesses: [`select`].
//! - Threads: tables are plain data. Split the keys over several tables and list each on a thread of its own, or let
//!   several threads fill tables and add them up with `merge`.
//!
//! # Laws, which the tests hold
//!
//! Updates commute; `insert` then `remove` leaves nothing; `a` merged with `b` holds what both hold together; listing
//! takes out only what is in the table, and what it takes out plus what it leaves is the table.

mod bytes;
mod cell;
mod counter;
mod draft;
mod estimate;
mod get;
pub mod hash;
pub mod interval;
mod key_hash;
mod known;
mod list;
mod oblivious;
mod packed;
mod placement;
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
pub use estimate::Estimator;
pub use get::Got;
pub use key_hash::{KeyHash, SecretHash};
pub use list::{Entry, Listing, Residue, Rule};
pub use oblivious::{CellStore, select};
pub use packed::{
    AGGREGATE_LOST_BITS_MAX, BATCH_COUNT, Batch, Change, Geometry, HASH_COUNT, Iblt, Latest, PAYLOAD_BITS, Peeled,
    Peeler, Recipient, Updates, ValueCode, check_of,
};
pub use placement::{
    CommonDegree, Degrees, Layout, Outcome, PLAN_FAILURE_MAX, PLAN_FAILURE_MIN, Placement, Places, Plan, Simulation,
    TABLE_CELLS_MAX, TABLE_DEGREE_MAX, TABLE_SEGMENTS_MAX, plan,
};
pub use reconcile::{Changed, Difference, reconcile};
pub use refused::Refused;
pub use sum::{Key, Sum};
pub use table::Table;
pub use word_key::{KEY_WORD_COUNT_MAX, WordKey};

#[cfg(test)]
mod tests;
