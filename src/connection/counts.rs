//! What is counted of connections.
//!
//! What enters: one occurrence after another. What leaves: the sums that list headers and summaries are made of.

use crate::error::Result;
use crate::state::{Decoder, Encoder};

/// What happened to the connections of a tracker since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections established.
    pub opened: u64,
    /// Established connections that ended.
    pub closed: u64,
    /// Half-open connections that were reset or given up by a FIN.
    pub refused: u64,
    /// Half-open connections that timed out.
    pub expired: u64,
    /// Half-open connections that had to make room for newer ones, in the ring or in the filter.
    pub recycled: u64,
    /// Packets seen again: repeated SYNs and SYN-ACKs.
    pub repeats: u64,
    /// FINs and RSTs of connections that had closed a short while before.
    pub late: u64,
    /// FINs of connections that are not known.
    pub unmatched_fins: u64,
    /// RSTs of connections that are not known.
    pub unmatched_resets: u64,
    /// Closed connections that had to go before they had lingered.
    pub forgotten: u64,
    /// Connections that were established but could not be tracked: no place, or too many.
    pub refused_open: u64,
    /// About how many of those are open still, and of those that were found in their midst and refused: what ends without being known
    /// takes from it, half a connection a FIN.
    pub untracked_open: u64,
    /// Attempts that found no place at all.
    pub unplaced: u64,
    /// Half-open connections that one side ended without the other ever being seen.
    pub one_sided: u64,
    /// Candidates for connections that are older than the start: one side was seen.
    pub candidates: u64,
    /// Candidates that became open connections when the other side was seen; they count as opened too.
    pub picked_up: u64,
    /// Candidates whose other side was not seen in time.
    pub candidates_expired: u64,
    /// Candidates that had to make room, or found none. Nobody knows whether they were connections.
    pub candidates_recycled: u64,
    /// Times that a candidate proved to be a connection when no more could be tracked.
    pub refused_pickups: u64,
    /// Open connections that were taken off because nothing was seen of them for too long.
    pub evicted_idle: u64,
    /// Open connections that were taken off because of their age.
    pub evicted_aged: u64,
    /// Connections that ended and did not get into the archive, because it did not keep up.
    pub unarchived: u64,
}

/// Writes the conversions between [`Counts`] and an array, for all counts but `unarchived`. A count that is missing here does not
/// compile.
macro_rules! figures {
    ($($count:ident),+ $(,)?) => {
        /// How many counts [`Self::figures`] gives.
        pub const FIGURE_COUNT: usize = [$(stringify!($count)),+].len();

        /// The counts that go into a file, in the order of their declaration: all but [`Self::unarchived`], which says something
        /// about this machine only.
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
    // The order is that of the files.
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

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sums = self.figures();
        sums.iter_mut().zip(other.figures()).for_each(|(sum, figure)| *sum += figure);
        Counts { unarchived: self.unarchived + other.unarchived, ..Counts::of_figures(sums) }
    }

    /// Connections that could not be tracked: established ones beyond the limit, attempts without a place, and half-open
    /// ones that made room for others.
    #[must_use]
    pub fn untracked(&self) -> u64 {
        self.refused_open + self.refused_pickups + self.unplaced + self.recycled
    }

    /// Open connections that were taken off without having been seen to end.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted_idle + self.evicted_aged
    }

    /// Its bytes in a saved state, without what the archive lost: that is told anew.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.counts(self.figures());
    }

    /// The counts that were saved.
    ///
    /// # Errors
    ///
    /// The bytes are not those of counts.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        Ok(Counts::of_figures(decoder.counts()?))
    }
}
