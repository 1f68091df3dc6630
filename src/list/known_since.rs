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
    /// How long the search lasts at most, in ticks: what has been silent for so long is not listed.
    silent_ticks_max: Option<u64>,
    /// The tick at which the first interval ended.
    first_end_tick: Option<u64>,
}

impl KnownSince {
    /// Of a capture that began at this time, in ns since 1970, and whose list has nothing that has been silent for so
    /// many ticks.
    pub(super) fn new(since_ns: i64, warm_up: Option<Arc<WarmUp>>, silent_ticks_max: Option<u64>) -> Self {
        KnownSince { since_ns, warm_up, quiet_intervals: 0, silent_ticks_max, first_end_tick: None }
    }

    /// Ends an interval at this tick in which so many older connections were found.
    pub(super) fn end_interval(&mut self, found: u64, end_tick: u64) -> Since {
        self.quiet_intervals = if found == 0 { self.quiet_intervals + 1 } else { 0 };
        let searched_ticks = end_tick.saturating_sub(*self.first_end_tick.get_or_insert(end_tick));
        // What has not been found by then is on no list, and what is still found, as a forger may have it, would keep
        // lists incomplete for ever.
        let is_over = self.silent_ticks_max.is_some_and(|ticks_max| searched_ticks >= ticks_max);
        if (self.quiet_intervals >= QUIET_INTERVALS || is_over)
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
        let mut known = KnownSince::new(7, Some(Arc::clone(&warm_up)), Some(1_000));
        let warming: Vec<bool> =
            [3, 0, 1, 0, 0, 5].into_iter().map(|found| known.end_interval(found, 100).is_warming_up).collect();
        assert_eq!(warming, [true, true, true, true, false, false]);
        assert!(warm_up.has_ended() && !warm_up.was_cut_short());
    }

    #[test]
    fn one_that_is_cut_short_says_so_until_nothing_is_found() {
        let warm_up = WarmUp::begin();
        let mut known = KnownSince::new(7, Some(Arc::clone(&warm_up)), None);
        assert!(!known.end_interval(1, 1).is_sampled_early);
        warm_up.cut_short();
        let since = Since { since_ns: 7, is_warming_up: true, is_sampled_early: true };
        assert_eq!((known.end_interval(1, 2), known.end_interval(0, 3)), (since, since));
        let since = Since { is_warming_up: false, is_sampled_early: false, ..since };
        assert_eq!(known.end_interval(0, 4), since);
        assert!(!KnownSince::new(7, None, None).end_interval(1, 1).is_warming_up);
    }

    #[test]
    fn what_is_found_for_ever_does_not_keep_it_up_for_ever() {
        let find = |silent_ticks_max| {
            let mut known = KnownSince::new(7, Some(WarmUp::begin()), silent_ticks_max);
            (0..500).filter(|interval| known.end_interval(1, 1_000 + 100 * interval).is_warming_up).count()
        };
        assert_eq!([find(Some(36_000)), find(None)], [360, 500]);
    }
}
