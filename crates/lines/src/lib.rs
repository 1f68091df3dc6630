//! Large arrays of cache lines in huge pages, and prefetching: what tables need that are larger than the caches and are
//! accessed at random.

mod lines;
mod prefetch;

pub use lines::{HalfLine, Line, Lines, Row, SharedLine, Words};
pub use prefetch::prefetch;
