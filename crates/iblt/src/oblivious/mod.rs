//! Oblivious selection (section 1.3 of the paper): Alice keeps her records, encrypted, with Bob, and selects some of
//! them into a table that he keeps too. He sees which cells are read and written, and must not learn from it what she
//! selects.
//!
//! - [`select`]: the records pass by one after another; each makes the same accesses, selected or not.
//! - [`extract`]: the table is listed by an Alice who has room for a few cells only, far fewer than were selected. Her
//!   accesses are the same for all tables of one layout.
//!
//! With *n* records and a table for *t* of them that makes O(n + t log² t) accesses.

mod extract;
mod select;
mod sort;

pub use extract::{Outsourced, Slot, extract, extraction_slot_count};
pub use select::select;
