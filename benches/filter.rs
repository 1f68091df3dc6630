//! The connection filter: what a signal costs with the prefetches of a shard.
//!
//! The limit touches one random cache line for each signal, in as much memory as the filter has.

use crate::clock::thread_ns_each;
use crate::memory::Lines;
use crate::row::{Case, Pair, Scale, Suite};
use crate::traffic::{BETWEEN_COUNT, Connections, SIGNALS_EACH, TRACKER};
use flowpeel::engine::FILTER_ESTABLISHED_PERCENT;
use flowpeel::signal::Signal;
use flowpeel::track::{BUCKET_AHEAD, Filter, LINGER_TICKS, SECOND_AHEAD, SIGNAL_AHEAD, Tracker, TrackerConfig};
use flowpeel_lines::prefetch;

/// Connections that begin in one round.
const BEGIN_COUNT: usize = 200_000;
const BEGIN_COUNT_QUICK: usize = 20_000;

/// The room for half-open connections: more than there ever are.
const HALF_OPEN_COUNT: usize = 1 << 14;

/// Live connections: few enough for a filter in the second-level cache, and too many for any cache.
const LIVE_COUNT_IN_CACHE: usize = 20_000;
const LIVE_COUNT_OUT_OF_CACHE: usize = 5_000_000;
const LIVE_COUNT_OUT_OF_CACHE_QUICK: usize = 500_000;

pub(crate) fn run(suite: &mut Suite) {
    let case = |name, work| Case { name, work, limit: "one random line a signal", unit: "ns a signal", at_most: None };
    suite.compare(case("filter/in-cache", "filter, 20k live connections"), |scale| {
        Signals::new(LIVE_COUNT_IN_CACHE, scale)
    });
    suite.compare(case("filter/out-of-cache", "filter, 5M live connections"), |scale| {
        Signals::new(scale.of(LIVE_COUNT_OUT_OF_CACHE, LIVE_COUNT_OUT_OF_CACHE_QUICK), scale)
    });
}

struct Signals {
    tracker: Tracker,
    connections: Connections,
    signals: Vec<Signal>,
    lines: Lines,
    begin_count: usize,
}

impl Signals {
    fn new(live_count: usize, scale: Scale) -> Result<Self, String> {
        // So that a tenth as many linger as live.
        let per_tick = live_count / 10 / LINGER_TICKS as usize;
        let present_count = live_count + live_count / 10 + BETWEEN_COUNT * 3;
        let place_count = present_count * 100 / FILTER_ESTABLISHED_PERCENT as usize;
        let config = TrackerConfig {
            place_count,
            half_open_count: HALF_OPEN_COUNT,
            connections_max: live_count as u64 * 2,
            ..TRACKER
        };
        let begin_count = scale.of(BEGIN_COUNT, BEGIN_COUNT_QUICK);
        let mut signals = Signals {
            tracker: Tracker::new(config),
            connections: Connections::new(live_count as u64, per_tick as u64),
            signals: Vec::with_capacity(begin_count * SIGNALS_EACH),
            lines: Lines::new(Filter::size(place_count)),
            begin_count,
        };
        // Runs until as many connections close as open, and the filter is as full as it gets.
        for _ in 0..present_count.div_ceil(begin_count) {
            signals.work();
        }
        let counts = signals.tracker.counts();
        let lost = counts.unplaced + counts.refused_open + counts.recycled;
        if lost * 1_000 > counts.opened {
            return Err(format!("{lost} of {} connections were lost: the filter is too small", counts.opened));
        }
        Ok(signals)
    }
}

impl Pair for Signals {
    fn work(&mut self) -> f64 {
        self.connections.fill(&mut self.signals, self.begin_count);
        let opened_before = self.tracker.counts().opened;
        let cost = thread_ns_each(self.signals.len(), || {
            for (at, signal) in self.signals.iter().enumerate() {
                if let Some(ahead) = self.signals.get(at + SIGNAL_AHEAD) {
                    prefetch(ahead);
                }
                if let Some(ahead) = self.signals.get(at + BUCKET_AHEAD) {
                    self.tracker.prefetch(ahead);
                }
                if let Some(ahead) = self.signals.get(at + SECOND_AHEAD) {
                    self.tracker.prefetch_second(ahead);
                }
                std::hint::black_box(self.tracker.handle(signal));
            }
        });
        assert!(self.tracker.counts().opened > opened_before);
        cost
    }

    fn limit(&mut self) -> f64 {
        let count = self.begin_count * SIGNALS_EACH;
        thread_ns_each(count, || self.lines.touch(count))
    }
}
