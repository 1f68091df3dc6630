//! The status line of a live capture on a terminal: its rate, what is open, and the last list.

use crate::cli::report::grouped;
use crate::list::Header;
use crate::metrics::Metrics;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the status line is drawn: more is not read.
pub(super) const DRAW_INTERVAL: Duration = Duration::from_millis(500);

/// The line on a terminal with the state of the capture.
pub(super) struct StatusLine {
    bar: ProgressBar,
    connections_max: u64,
    metrics: Arc<Metrics>,
    pub(super) last: LastList,
    /// When it was last drawn, and how many packets there had been.
    drawn: Instant,
    packets: u64,
}

/// The header of the list that was written last. It is held only to be copied.
pub(super) type LastList = Arc<Mutex<Option<Header>>>;

impl StatusLine {
    /// A line that is shown if it is to be and standard error is a terminal.
    pub(super) fn new(is_wanted: bool, connections_max: u64, metrics: Arc<Metrics>) -> Self {
        let target = if is_wanted { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        StatusLine { bar, connections_max, metrics, last: LastList::default(), drawn: Instant::now(), packets: 0 }
    }

    /// Whether it is on a terminal.
    pub(super) fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Prints something above it.
    pub(super) fn above(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Redraws it when it was drawn [`DRAW_INTERVAL`] ago.
    pub(super) fn draw(&mut self) {
        let passed = self.drawn.elapsed();
        if self.bar.is_hidden() || passed < DRAW_INTERVAL {
            return;
        }
        let packets = self.metrics.packets();
        let packets_per_s = packets.saturating_sub(self.packets) as f64 / passed.as_secs_f64();
        (self.drawn, self.packets) = (Instant::now(), packets);
        let last = *self.last.lock();
        self.bar.set_message(self.text(last.as_ref(), packets_per_s));
        self.bar.tick();
    }

    /// Removes it from the terminal.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn text(&self, last: Option<&Header>, packets_per_s: f64) -> String {
        let rate = grouped(packets_per_s as u64);
        let Some(last) = last else {
            return format!("{rate} packets/s, no list yet");
        };
        let load = last.flows as f64 * 100.0 / self.connections_max as f64;
        format!(
            "{rate} packets/s, {} open and {} half-open, {load:.0} % of --connections, list {} of {}{}",
            grouped(last.flows),
            grouped(last.half_open),
            grouped(last.figures.interval),
            time_of_day(last.figures.end_ns),
            incompleteness(last),
        )
    }
}

/// What keeps a list from being complete, in words that follow others.
pub(super) fn incompleteness(header: &Header) -> Cow<'static, str> {
    if header.complete {
        return "".into();
    }
    if header.is_warming_up() {
        return ", warming up".into();
    }
    format!(", about {} missing", grouped(header.missing)).into()
}

/// The time of day in UTC, to the second.
pub(super) fn time_of_day(time_ns: i64) -> String {
    let timestamp = Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or_default();
    timestamp.strftime("%H:%M:%SZ").to_string()
}
