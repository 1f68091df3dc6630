//! The time after the start of a live capture in which every packet is inspected, because any may be of a connection
//! that is older than the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether every packet is still inspected, and when that has to end: shared by the ports, the list and whoever is to
/// be informed.
///
/// It ends when the list says so ([`Self::end`]), or before when a port is about to lose packets ([`Self::cut_short`]).
/// Ports look at it with one load for each full stage, and only until it has ended.
#[derive(Debug, Default)]
pub struct WarmUp {
    has_ended: AtomicBool,
    was_cut_short: AtomicBool,
}

impl WarmUp {
    /// One that begins now.
    #[must_use]
    pub fn begin() -> Arc<Self> {
        Arc::default()
    }

    /// Ends it: nothing more is found that is older than the start.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Ends it because packets would be lost otherwise.
    pub fn cut_short(&self) {
        if !self.has_ended.swap(true, Ordering::Relaxed) {
            self.was_cut_short.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it has ended.
    #[must_use]
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Whether it ended because packets would have been lost.
    #[must_use]
    pub fn was_cut_short(&self) -> bool {
        self.was_cut_short.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_cut_short_only_before_its_end() {
        let (ended, cut) = (WarmUp::begin(), WarmUp::begin());
        ended.end();
        ended.cut_short();
        cut.cut_short();
        cut.end();
        assert_eq!((ended.has_ended(), ended.was_cut_short()), (true, false));
        assert_eq!((cut.has_ended(), cut.was_cut_short()), (true, true));
    }
}
