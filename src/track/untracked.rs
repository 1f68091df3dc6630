//! An estimate of the open connections that cannot be tracked because there are too many.
//!
//! Connections that are refused add to it, and sides of unknown connections that end take off. Everything is counted in
//! sides: a FIN ends one, a RST both.
//!
//! A connection whose handshake was seen is refused once. One that is older than the start is refused again whenever
//! its trace has stopped lingering. So of these only those count that were refused within one lingering time: they are
//! all different.
//!
//! Whether an end was that of a refused connection cannot be known: a connection may be older than the start, or
//! retransmit its FIN. So the number is an estimate, and the last connection counts until every list would have evicted
//! it for being idle or old.

use crate::error::Result;
use crate::state::{Decoder, Encoder};

/// The sides that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Untracked {
    sides: u64,
    /// The sides of connections found midstream since [`Self::since`].
    found: u64,
    /// The tick at which the present lingering time began.
    since: u64,
    /// The tick at which one was refused last.
    refused: Option<u64>,
}

impl Untracked {
    /// About how many connections have a side that has not ended. At least one for as long as one may: the ends that
    /// were counted may have been those of other connections.
    pub(super) fn connections(&self) -> u64 {
        self.sides.div_ceil(2).max(u64::from(self.refused.is_some()))
    }

    /// Moves time on: what was refused more than this many ticks ago, and nothing since, is counted no longer.
    pub(super) fn advance(&mut self, now: u64, kept_ticks: u64) {
        if self.refused.is_some_and(|refused| now.saturating_sub(refused) > kept_ticks) {
            *self = Untracked { since: self.since, ..Untracked::default() };
        }
    }

    /// Adds a connection whose handshake was seen.
    pub(super) fn refuse(&mut self, sides: u64, now: u64) {
        self.sides += sides;
        self.refused = Some(now);
    }

    /// Adds a connection that was found midstream, and whose trace lingers for `linger_ticks`.
    pub(super) fn refuse_found(&mut self, sides: u64, now: u64, linger_ticks: u64) {
        if now.saturating_sub(self.since) > linger_ticks {
            (self.found, self.since) = (0, now);
        }
        self.found += sides;
        self.refused = Some(now);
        // Connections that were refused by their handshakes are found midstream too.
        self.sides = self.sides.max(self.found);
    }

    /// Takes off the sides of an unknown connection that have ended: it may well have been one of these.
    pub(super) fn end(&mut self, sides: u64) {
        self.sides = self.sides.saturating_sub(sides);
        self.found = self.found.saturating_sub(sides);
    }

    /// Writes the estimate into a saved state.
    pub(super) fn save(&self, encoder: &mut Encoder) {
        [self.sides, self.found, self.since].into_iter().for_each(|number| encoder.u64(number));
        encoder.option(self.refused, Encoder::u64);
    }

    /// Reads an estimate from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode an estimate.
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
    fn no_number_of_ends_means_that_all_have_ended() {
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
