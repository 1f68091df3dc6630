//! Large arrays of cache lines in huge pages, and prefetching.
//!
//! A table that is larger than the caches and is accessed at random waits for memory in every access. Three things
//! shorten that:
//!
//! - **Alignment.** An entry that is a [`Line`] or a [`HalfLine`] is in one cache line, so an access misses once.
//! - **Huge pages.** An access to a large table misses not only the caches but also the TLB, and with pages of 4 KiB
//!   that costs as much again as the line. [`Lines`] puts large arrays into huge pages (2 MiB on most machines), next
//!   to each other, because each by itself may be smaller than one.
//! - **Prefetching.** Where the addresses of the next accesses are known, [`prefetch`] loads their lines while others
//!   are worked on, and several misses pass in the time of one.
//!
//! ```
//! use flowpeel_lines::{HalfLine, Lines, prefetch};
//!
//! let mut counters: Lines<HalfLine> = Lines::new(1 << 16);
//! let places: Vec<usize> = (0..1_000).map(|number| number * 40_503 % counters.len()).collect();
//! for (at, &place) in places.iter().enumerate() {
//!     if let Some(&ahead) = places.get(at + 8) {
//!         prefetch(&counters[ahead]);
//!     }
//!     counters[place].0[at % 4] += 1;
//! }
//! assert_eq!(counters.iter().flat_map(|line| line.0).sum::<u64>(), 1_000);
//! ```
//!
//! The unsafe code that such tables need is in this crate: an anonymous mapping that several arrays share, its huge
//! pages, and the prefetch instruction. A type of your own can be an element if you declare it to be made of [`Words`].

mod lines;
mod prefetch;
mod row;

pub use lines::{Lines, are_addresses_left, mapped_unused_max};
pub use prefetch::prefetch;
pub use row::{HalfLine, Line, Row, SharedLine, Words};
