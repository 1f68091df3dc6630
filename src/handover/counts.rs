//! Counts of what happened to connections.
//!
//! What enters: single occurrences. What leaves: the sums in list headers and summaries.

use crate::error::Result;
use crate::state::{Decoder, Encoder};

/// The counts of a tracker since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections established.
    pub opened: u64,
    /// Established connections that ended.
    pub closed: u64,
    /// Half-open connections that ended with a RST or a FIN.
    pub refused: u64,
    /// Half-open connections that timed out.
    pub expired: u64,
    /// Half-open connections that were evicted for newer ones, in the ring or in the filter.
    pub recycled: u64,
    /// Repeated SYNs and SYN-ACKs.
    pub repeats: u64,
    /// FINs and RSTs of connections that had closed a short while before.
    pub late: u64,
    /// FINs of unknown connections.
    pub unmatched_fins: u64,
    /// RSTs of unknown connections.
    pub unmatched_resets: u64,
    /// Closed connections that were evicted before the end of their lingering time.
    pub forgotten: u64,
    /// Established connections that could not be tracked because there were too many already.
    pub refused_open: u64,
    /// An estimate of the untracked connections that are still open: those of `refused_open`, and those found midstream
    /// and refused. Each unmatched RST takes one off, each unmatched FIN half a one.
    pub untracked_open: u64,
    /// Connections that found no place in the filter.
    pub unplaced: u64,
    /// Half-open connections that one side ended although the other was never seen.
    pub one_sided: u64,
    /// Candidates: connections older than the start of which one side was seen.
    pub candidates: u64,
    /// Candidates that became open connections when the other side was seen. They count as `opened` too.
    pub picked_up: u64,
    /// Candidates whose other side was not seen in time.
    pub candidates_expired: u64,
    /// Candidates that were evicted or found no place. Whether they were connections is unknown.
    pub candidates_recycled: u64,
    /// Times that the other side of a candidate was seen but no more connections could be tracked.
    pub refused_pickups: u64,
    /// Open connections that were evicted because nothing was seen of them for too long.
    pub evicted_idle: u64,
    /// Open connections that were evicted because of their age.
    pub evicted_aged: u64,
    /// Connections that ended but are missing in the archive, because it did not keep up.
    pub unarchived: u64,
}

/// Writes the conversions between [`Counts`] and an array, for all counts but `unarchived`. A count that is missing
/// here does not compile.
macro_rules! figures {
    ($($count:ident),+ $(,)?) => {
        /// How many counts [`Self::figures`] gives.
        pub const FIGURE_COUNT: usize = [$(stringify!($count)),+].len();

        /// The counts that go into a file, in the order of their declaration: all but [`Self::unarchived`], which
        /// concerns this machine only.
        #[must_use]
        pub fn figures(&self) -> [u64; Self::FIGURE_COUNT] {
            let Counts { $($count),+, unarchived: _ } = *self;
            [$($count),+]
        }

        /// The counts of [`Self::figures`], with [`Self::unarchived`] zero.
        #[must_use]
        pub fn of_figures(figures: [u64; Self::FIGURE_COUNT]) -> Self {
            let [$($count),+] = figures;
            Counts { $($count),+, unarchived: 0 }
        }
    };
}

impl Counts {
    // The order is that of the file format.
    figures![
        opened,
        closed,
        refused,
        expired,
        recycled,
        repeats,
        late,
        unmatched_fins,
        unmatched_resets,
        forgotten,
        refused_open,
        untracked_open,
        unplaced,
        one_sided,
        candidates,
        picked_up,
        candidates_expired,
        candidates_recycled,
        refused_pickups,
        evicted_idle,
        evicted_aged,
    ];

    /// The sum of two sets of counts.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sums = self.figures();
        sums.iter_mut().zip(other.figures()).for_each(|(sum, figure)| *sum += figure);
        Counts { unarchived: self.unarchived + other.unarchived, ..Counts::of_figures(sums) }
    }

    /// Connections that could not be tracked: established ones beyond the limit, those without a place, and evicted
    /// half-open ones.
    #[must_use]
    pub fn untracked(&self) -> u64 {
        self.refused_open + self.refused_pickups + self.unplaced + self.recycled
    }

    /// Open connections that were evicted without having been seen to end.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted_idle + self.evicted_aged
    }

    /// Writes the counts into a saved state, except [`Self::unarchived`], which starts anew.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.counts(self.figures());
    }

    /// Reads counts from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode counts.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        Ok(Counts::of_figures(decoder.counts()?))
    }
}
