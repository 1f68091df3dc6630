//! What became of the events of a run.

use std::sync::atomic::AtomicU64;

/// What was written and lost so far, of all destinations of events together.
#[derive(Debug, Default)]
pub struct EventCounts {
    /// Lines of events that a destination has taken, or that wait for it.
    pub written: AtomicU64,
    /// Events that found no room in the queue or at a destination, or that it never took.
    pub lost: AtomicU64,
}
