//! About how many connections are open that can not be tracked, because there are as many as may be.
//!
//! What enters: connections that were refused, and sides of unknown connections that ended. What leaves: how many of the refused
//! are open still. All is counted in sides: a FIN ends one, an RST both.
//!
//! A connection whose handshake was seen is refused once. One that is older than the start is refused again whenever what lingers of
//! the time before has gone, so of those only as many count as were refused within one such time: these are different ones.
//!
//! Whether an end was that of a refused connection cannot be known: a connection may be older than the start, or repeat its FIN. So
//! the number is an estimate, and the last one counts until it would be off every list for being idle or old.

use crate::error::Result;
use crate::state::{Decoder, Encoder};

/// The sides that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Untracked {
    sides: u64,
    /// Those of connections found in their midst since [`Self::since`].
    found: u64,
    /// The tick at which the present time of lingering began.
    since: u64,
    /// The tick at which one was refused last.
    refused: Option<u64>,
}

impl Untracked {
    /// About how many connections have a side that has not ended. At least one for as long as one may: the ends that were
    /// counted may have been those of other connections.
    pub(super) fn connections(&self) -> u64 {
        self.sides.div_ceil(2).max(u64::from(self.refused.is_some()))
    }

    /// Moves time on: what was refused more than this many ticks ago, and nothing since, is counted no longer.
    pub(super) fn advance(&mut self, now: u64, kept_ticks: u64) {
        if self.refused.is_some_and(|refused| now.saturating_sub(refused) > kept_ticks) {
            *self = Untracked { since: self.since, ..Untracked::default() };
        }
    }

    /// A connection whose handshake was seen was refused.
    pub(super) fn refuse(&mut self, sides: u64, now: u64) {
        self.sides += sides;
        self.refused = Some(now);
    }

    /// A connection that was found in its midst was refused; what it leaves behind lingers for so many ticks.
    pub(super) fn refuse_found(&mut self, sides: u64, now: u64, linger_ticks: u64) {
        if now.saturating_sub(self.since) > linger_ticks {
            (self.found, self.since) = (0, now);
        }
        self.found += sides;
        self.refused = Some(now);
        // Those that were refused by their handshakes are found again too.
        self.sides = self.sides.max(self.found);
    }

    /// So many sides of connections that are not known have ended. They may well have been among these.
    pub(super) fn end(&mut self, sides: u64) {
        self.sides = self.sides.saturating_sub(sides);
        self.found = self.found.saturating_sub(sides);
    }

    /// Its bytes in a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        [self.sides, self.found, self.since].into_iter().for_each(|number| encoder.u64(number));
        encoder.option(self.refused, Encoder::u64);
    }

    /// What was saved.
    ///
    /// # Errors
    ///
    /// The bytes are not those of such numbers.
    pub(super) fn saved(decoder: &mut Decoder) -> Result<Self> {
        let [sides, found, since] = decoder.counts()?;
        Ok(Untracked { sides, found, since, refused: decoder.option(Decoder::count)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_time_and_again_counts_once() {
        let mut untracked = Untracked::default();
        for time in 0..5 {
            // Three connections, each refused once in a time of lingering.
            (0..3).for_each(|number| untracked.refuse_found(2, 100 + time * 11 + number, 10));
            assert_eq!(untracked.connections(), 3);
        }
        untracked.end(3);
        assert_eq!(untracked.connections(), 2);
        untracked.end(3);
        assert_eq!(untracked.sides, 0);
        untracked.end(3);
        untracked.refuse_found(1, 155, 10);
        assert_eq!(untracked.connections(), 1);
    }

    #[test]
    fn no_number_of_ends_tells_that_all_have_ended() {
        let mut untracked = Untracked::default();
        assert_eq!(untracked.connections(), 0);
        untracked.refuse(2, 100);
        untracked.refuse(2, 101);
        untracked.end(20);
        assert_eq!(untracked.connections(), 1);
        untracked.advance(151, 50);
        assert_eq!(untracked.connections(), 1);
        untracked.advance(152, 50);
        assert_eq!(untracked.connections(), 0);
    }

    #[test]
    fn who_was_refused_by_its_handshake_is_not_counted_again_when_found() {
        let mut untracked = Untracked::default();
        (0..4).for_each(|_| untracked.refuse(2, 1));
        (0..3).for_each(|_| untracked.refuse_found(2, 1, 10));
        assert_eq!(untracked.connections(), 4);
        (0..3).for_each(|_| untracked.refuse_found(2, 2, 10));
        assert_eq!(untracked.connections(), 6);
    }
}
