//! The times at which new connections begin, in order. Each is drawn when its turn comes, so a million arrivals take no
//! more memory than one.

use crate::config::{Arrivals, TrafficConfig};
use crate::random::Random;

/// A population's first connections begin within this time: a thousand SYNs at one instant are no ordinary traffic.
const RAMP_US: u64 = 1_000_000;

/// The arrivals of a capture.
pub(super) struct ArrivalTimes {
    start_us: u64,
    over_us: u64,
    count: u64,
    next_index: u64,
    next_us: Option<u64>,
}

impl ArrivalTimes {
    pub(super) fn new(config: &TrafficConfig, random: &mut Random) -> Self {
        let (count, over_us) = match config.arrivals {
            Arrivals::Spread { connection_count } => (connection_count, config.duration_us),
            Arrivals::Population { client_count } => (client_count, RAMP_US.min(config.duration_us)),
        };
        let mut times = ArrivalTimes { start_us: config.start_us, over_us, count, next_index: 0, next_us: None };
        times.draw(random);
        times
    }

    /// When the next connection begins; `None` when all have begun.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.next_us
    }

    /// Notes that the next connection has begun.
    pub(super) fn advance(&mut self, random: &mut Random) {
        self.next_index += 1;
        self.draw(random);
    }

    /// Each arrival has its own part of the time and a random place in it, so the times are in order.
    fn draw(&mut self, random: &mut Random) {
        let part_at = |index: u64| (u128::from(index) * u128::from(self.over_us) / u128::from(self.count)) as u64;
        self.next_us = (self.next_index < self.count).then(|| {
            let (begin_us, end_us) = (part_at(self.next_index), part_at(self.next_index + 1));
            self.start_us + begin_us + random.below(end_us - begin_us)
        });
    }
}
