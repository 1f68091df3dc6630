//! Ticks -> wall time, for connections that may have started in an earlier time base.
//!
//! What enters: the time bases named in hand-overs. What leaves: the wall time of any tick. Ticks go on when the
//! capture's clock steps, so each is converted with the base that it lies in.

use crate::error::Result;
use crate::signal::TimeBase;
use crate::state::{Decoder, Encoder};

/// Time bases that are remembered. Each is a step of the capture's clock; a clock that steps more often than this
/// within the life of a connection does not tell the time anyway.
pub const TIME_BASES_MAX: usize = 64;

/// The latest time bases, oldest first. When there are too many the oldest is dropped, and ticks in it are converted
/// with the next one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TimeBases {
    bases: Vec<TimeBase>,
}

impl TimeBases {
    /// An empty collection.
    #[must_use]
    pub fn new() -> Self {
        TimeBases { bases: Vec::with_capacity(TIME_BASES_MAX) }
    }

    /// Replaces all bases with these, oldest first.
    pub fn replace(&mut self, bases: &[TimeBase]) {
        self.bases.clear();
        self.bases.extend_from_slice(bases);
    }

    /// Adds a base. Every partition tells of each, so most are known already.
    pub fn learn(&mut self, base: TimeBase) {
        let at = self.bases.partition_point(|known| known.first_tick < base.first_tick);
        if self.bases.get(at).is_some_and(|known| known.first_tick == base.first_tick) {
            return;
        }
        if self.bases.len() == TIME_BASES_MAX {
            if at == 0 {
                return;
            }
            self.bases.remove(0);
            self.bases.insert(at - 1, base);
        } else {
            self.bases.insert(at, base);
        }
    }

    /// All known bases, oldest first.
    pub fn all(&self) -> &[TimeBase] {
        &self.bases
    }

    /// Writes the bases into a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.length(self.bases.len());
        self.bases.iter().for_each(|base| base.save(encoder));
    }

    /// Reads bases from a saved state.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        let mut bases = TimeBases::new();
        for _ in 0..decoder.length(2 * size_of::<u64>(), TIME_BASES_MAX)? {
            bases.learn(TimeBase::saved(decoder)?);
        }
        Ok(bases)
    }

    /// The wall time, in ns since 1970, at which this tick began; zero if no base is known.
    #[must_use]
    pub fn wall_ns(&self, tick: u64) -> i64 {
        let after = self.bases.partition_point(|base| base.first_tick <= tick);
        self.bases.get(after.saturating_sub(1)).map_or(0, |base| base.wall_ns(tick))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::clock::TICK_NS;

    fn base(first_tick: u64) -> TimeBase {
        TimeBase { first_tick, offset_ns: i128::from(first_tick) * 1_000_000_000 }
    }

    #[test]
    fn a_tick_is_told_in_its_own_base() {
        let mut bases = TimeBases::new();
        for first in [100, 50, 100, 200] {
            bases.learn(base(first));
        }
        assert_eq!(bases.wall_ns(60), 60 * TICK_NS + 50_000_000_000);
        assert_eq!(bases.wall_ns(100), 100 * TICK_NS + 100_000_000_000);
        assert_eq!(bases.wall_ns(250), 250 * TICK_NS + 200_000_000_000);
        assert_eq!(bases.wall_ns(10), 10 * TICK_NS + 50_000_000_000);
    }

    #[test]
    fn there_are_never_too_many() {
        let mut bases = TimeBases::new();
        for first in 0..3 * TIME_BASES_MAX as u64 {
            bases.learn(base(first));
        }
        assert_eq!(bases.bases.len(), TIME_BASES_MAX);
        let last = 3 * TIME_BASES_MAX as u64 - 1;
        assert_eq!(bases.wall_ns(last), base(last).wall_ns(last));
    }
}
