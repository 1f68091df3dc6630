//! Durations: histograms of the recent past, totals of the whole run.
//!
//! Quantiles are of the last minutes: those of a whole run would hide that it became slow an hour ago.

use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// The longest latency that is recorded as such, in nanoseconds: an hour.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// The window of latency quantiles, which cover between one and two windows: long enough for some scrapes, short enough
/// that present trouble shows.
const LATENCY_WINDOW: Duration = Duration::from_secs(300);

/// The quantiles that are served.
pub(super) const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Durations that one thread recorded, about 40 KB: to two digits, up to an hour.
///
/// # Examples
///
/// ```
/// use flowpeel::metrics::{Durations, Latency, Metrics, Setup};
/// use std::time::Duration;
///
/// let metrics = Metrics::new(Setup::default());
/// let mut own = Durations::new();
/// own.record(Duration::from_millis(3));
/// metrics.merge(Latency::Peel, &mut own);
/// assert_eq!(own.count(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Durations {
    histogram: Histogram<u64>,
    sum_ns: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self::new()
    }
}

impl Durations {
    /// An empty record of durations.
    #[must_use]
    pub fn new() -> Self {
        match Histogram::new_with_bounds(1, LATENCY_MAX_NS, 2) {
            Ok(histogram) => Durations { histogram, sum_ns: 0 },
            Err(error) => unreachable!("the bounds are constants that fit: {error}"),
        }
    }

    /// Records a duration; one of more than an hour counts as an hour.
    pub fn record(&mut self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).min(LATENCY_MAX_NS);
        self.histogram.saturating_record(took_ns);
        self.sum_ns = self.sum_ns.saturating_add(took_ns);
    }

    /// The number of durations that were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The duration that this part of all, from 0 to 1, does not exceed; `None` when none was recorded.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        (self.count() > 0).then(|| Duration::from_nanos(self.histogram.value_at_quantile(quantile)))
    }

    fn add(&mut self, other: &Self) {
        if let Err(error) = self.histogram.add(&other.histogram) {
            unreachable!("all have the same bounds: {error}");
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    fn clear(&mut self) {
        self.histogram.clear();
        self.sum_ns = 0;
    }
}

/// The reading of one kind of duration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LatencyReading {
    /// How many there were since the start.
    pub(super) count: u64,
    /// The sum of all since the start, in seconds.
    pub(super) sum_s: f64,
    /// The [`QUANTILES`] of the last minutes, in seconds; not a number when there were none.
    pub(super) quantiles_s: [f64; QUANTILES.len()],
}

/// The durations of one window of time and of the one before, so that quantiles cover one to two windows.
#[derive(Debug)]
pub(super) struct Window {
    present: Durations,
    past: Durations,
    began: Instant,
    count: u64,
    sum_ns: u64,
}

impl Window {
    pub(super) fn new(now: Instant) -> Self {
        Window { present: Durations::new(), past: Durations::new(), began: now, count: 0, sum_ns: 0 }
    }

    pub(super) fn record(&mut self, took: Duration, now: Instant) {
        self.advance(now);
        let before_ns = self.present.sum_ns;
        self.present.record(took);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(self.present.sum_ns - before_ns);
    }

    /// Takes over `durations` and leaves them empty.
    pub(super) fn merge(&mut self, durations: &mut Durations, now: Instant) {
        self.advance(now);
        self.present.add(durations);
        self.count = self.count.saturating_add(durations.count());
        self.sum_ns = self.sum_ns.saturating_add(durations.sum_ns);
        durations.clear();
    }

    pub(super) fn read(&mut self, now: Instant) -> LatencyReading {
        self.advance(now);
        let mut recent = self.present.clone();
        recent.add(&self.past);
        let quantile_s = |quantile| recent.quantile(quantile).map_or(f64::NAN, |took| took.as_secs_f64());
        LatencyReading { count: self.count, sum_s: self.sum_ns as f64 / 1e9, quantiles_s: QUANTILES.map(quantile_s) }
    }

    fn advance(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.began);
        if elapsed < LATENCY_WINDOW {
            return;
        }
        std::mem::swap(&mut self.present, &mut self.past);
        self.present.clear();
        if elapsed >= 2 * LATENCY_WINDOW {
            self.past.clear();
        }
        self.began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn median_ms(window: &mut Window, now: Instant) -> Option<f64> {
        let median_s = window.read(now).quantiles_s[0];
        (!median_s.is_nan()).then(|| (median_s * 1e3).round())
    }

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut durations = Durations::new();
        assert_eq!(durations.quantile(0.5), None);
        for ms in 1..=100 {
            durations.record(ms * MS);
        }
        for (quantile, ms) in [(0.5, 50.0), (0.9, 90.0), (1.0, 100.0)] {
            let found_ms = durations.quantile(quantile).unwrap().as_secs_f64() * 1e3;
            assert!((found_ms - ms).abs() <= ms / 100.0, "{quantile}: {found_ms} ms");
        }
    }

    #[test]
    fn the_longest_counts_as_an_hour_and_the_shortest_as_nothing() {
        let mut durations = Durations::new();
        durations.record(Duration::ZERO);
        durations.record(Duration::MAX);
        assert_eq!((durations.count(), durations.sum_ns), (2, LATENCY_MAX_NS));
        assert_eq!(durations.quantile(0.5), Some(Duration::ZERO));
    }

    #[test]
    fn quantiles_forget_and_totals_do_not() {
        let start = Instant::now();
        let mut window = Window::new(start);
        window.record(2 * MS, start);
        assert_eq!(median_ms(&mut window, start + LATENCY_WINDOW), Some(2.0));
        for _ in 0..3 {
            window.record(8 * MS, start + LATENCY_WINDOW);
        }
        assert_eq!(median_ms(&mut window, start + LATENCY_WINDOW), Some(8.0));
        assert_eq!(median_ms(&mut window, start + 2 * LATENCY_WINDOW), Some(8.0));
        let reading = window.read(start + 4 * LATENCY_WINDOW);
        assert!(reading.quantiles_s.iter().all(|quantile| quantile.is_nan()));
        assert_eq!((reading.count, reading.sum_s), (4, 0.026));
    }

    #[test]
    fn many_at_once_are_as_many_one_by_one() {
        let now = Instant::now();
        let (mut one_by_one, mut at_once, mut own) = (Window::new(now), Window::new(now), Durations::new());
        for ms in 1..50 {
            one_by_one.record(ms * MS, now);
            own.record(ms * MS);
        }
        at_once.merge(&mut own, now);
        assert_eq!(at_once.read(now), one_by_one.read(now));
        at_once.merge(&mut own, now);
        assert_eq!(at_once.read(now), one_by_one.read(now));
    }
}
