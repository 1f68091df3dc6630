//! From when on a live list knows what is open, and until when it is still finding connections that are older.

use crate::signal::WarmUp;
use crate::snapshot::Since;
use std::sync::Arc;

/// Intervals in a row in which nothing older was found, behind which a list no longer looks for it with every packet.
const QUIET_INTERVALS: u32 = 2;

/// What a live list knows of the time before its first packet.
pub(super) struct KnownSince {
    since_ns: i64,
    /// The search for older connections; `None` where there is none, or it is over.
    warm_up: Option<Arc<WarmUp>>,
    quiet_intervals: u32,
}

impl KnownSince {
    /// Of a capture that began at this time, in ns since 1970.
    pub(super) fn new(since_ns: i64, warm_up: Option<Arc<WarmUp>>) -> Self {
        KnownSince { since_ns, warm_up, quiet_intervals: 0 }
    }

    /// Ends an interval in which so many older connections were found.
    pub(super) fn end_interval(&mut self, found: u64) -> Since {
        self.quiet_intervals = if found == 0 { self.quiet_intervals + 1 } else { 0 };
        if self.quiet_intervals >= QUIET_INTERVALS
            && let Some(warm_up) = self.warm_up.take()
        {
            warm_up.end();
        }
        Since {
            since_ns: self.since_ns,
            is_warming_up: self.warm_up.is_some(),
            is_sampled_early: self.warm_up.as_ref().is_some_and(|warm_up| warm_up.was_cut_short()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_intervals_in_a_row_without_a_find_end_it() {
        let warm_up = WarmUp::begin();
        let mut known = KnownSince::new(7, Some(Arc::clone(&warm_up)));
        let warming: Vec<bool> =
            [3, 0, 1, 0, 0, 5].into_iter().map(|found| known.end_interval(found).is_warming_up).collect();
        assert_eq!(warming, [true, true, true, true, false, false]);
        assert!(warm_up.has_ended() && !warm_up.was_cut_short());
    }

    #[test]
    fn one_that_is_cut_short_says_so_until_nothing_is_found() {
        let warm_up = WarmUp::begin();
        let mut known = KnownSince::new(7, Some(Arc::clone(&warm_up)));
        assert!(!known.end_interval(1).is_sampled_early);
        warm_up.cut_short();
        let since = Since { since_ns: 7, is_warming_up: true, is_sampled_early: true };
        assert_eq!((known.end_interval(1), known.end_interval(0)), (since, since));
        let since = Since { is_warming_up: false, is_sampled_early: false, ..since };
        assert_eq!(known.end_interval(0), since);
        assert!(!KnownSince::new(7, None).end_interval(1).is_warming_up);
    }
}
