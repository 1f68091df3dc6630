//! Messages of a live capture: a status line on a terminal, a line for each list elsewhere, and warnings.
//!
//! What enters: what the capture's threads tell. What leaves: the same in words, to the one thread that writes them: no
//! other waits for standard error, above all not the one that looks whether to stop.

use super::Prepared;
use super::speaker::Speaker;
use crate::capture::Condition;
use crate::cli::interrupts::Interrupts;
use crate::cli::report::{self, Voice, grouped};
use crate::error::Result;
use crate::flow_list::Header;
use crate::metrics::Metrics;
use crate::pipeline::{LiveObserver, Written};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a run says that takes its time to stop.
const PATIENCE: &str = "stopping; Ctrl-C ends it now, without the last list";

/// How often the status line is drawn: more is not read.
pub(super) const DRAW_INTERVAL: Duration = Duration::from_millis(500);

/// The line on a terminal that tells how the capture is.
pub(super) struct StatusLine {
    bar: ProgressBar,
    connections_max: u64,
    metrics: Arc<Metrics>,
    last: LastList,
    /// When it was last drawn, and how many packets there had been.
    drawn: Instant,
    packets: u64,
}

/// The header of the list that was written last. It is held only to be copied.
type LastList = Arc<Mutex<Option<Header>>>;

impl StatusLine {
    /// A line that is shown if it is to be and standard error is a terminal.
    pub(super) fn new(is_wanted: bool, connections_max: u64, metrics: Arc<Metrics>) -> Self {
        let target = if is_wanted { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        StatusLine { bar, connections_max, metrics, last: LastList::default(), drawn: Instant::now(), packets: 0 }
    }

    /// Says something above it.
    pub(super) fn above(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }

    /// Draws it anew when it was drawn [`DRAW_INTERVAL`] ago.
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

    /// Takes it off the terminal.
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
            if last.complete { "" } else { ", not complete" },
        )
    }
}

/// Watches a live capture.
pub(super) struct LiveWatch {
    voice: Voice,
    interfaces: Vec<String>,
    last: LastList,
    has_line: bool,
    speaker: Speaker,
    interrupts: Interrupts,
}

impl LiveWatch {
    /// A watch over a capture that publishes in `metrics`.
    ///
    /// # Errors
    ///
    /// Signals cannot be caught, or a thread not started.
    pub(super) fn new(voice: Voice, prepared: &Prepared, metrics: Arc<Metrics>) -> Result<Self> {
        let line = StatusLine::new(voice.draws(), prepared.plan.config().connections_max, metrics);
        let (last, has_line) = (Arc::clone(&line.last), !line.bar.is_hidden());
        let interrupts = Interrupts::catch(PATIENCE)?;
        interrupts.set_bar(has_line);
        let speaker = Speaker::start(line)?;
        Ok(LiveWatch { voice, interfaces: prepared.interfaces(), last, has_line, speaker, interrupts })
    }

    /// Takes the status line off the terminal and says the last, as far as anybody reads it.
    pub(super) fn finish(self, last_words: impl FnOnce() + Send + 'static) {
        self.interrupts.finish();
        self.speaker.finish(last_words);
    }

    /// Says what an operator may have to look into.
    fn warn(&self, text: String) {
        if self.voice > Voice::Quiet {
            self.speaker.say(move || report::warning(&text));
        }
    }

    /// Says what goes as it should.
    fn line(&self, text: String) {
        if self.voice > Voice::Quiet {
            self.speaker.say(move || report::line(format_args!("{text}")));
        }
    }
}

/// The time of day in UTC, to the second.
fn time_of_day(time_ns: i64) -> String {
    let timestamp = Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or_default();
    timestamp.strftime("%H:%M:%SZ").to_string()
}

impl LiveObserver for LiveWatch {
    fn listed(&self, header: &Header) {
        *self.last.lock() = Some(*header);
        if header.figures.dropped > 0 || header.figures.unusable > 0 {
            self.warn(format!(
                "in the interval to {}, {} packets or signals were lost and {} packets could not be read",
                time_of_day(header.figures.end_ns),
                grouped(header.figures.dropped),
                grouped(header.figures.unusable),
            ));
        }
        if header.figures.merged > 0 {
            let (interval, covered) = (grouped(header.figures.interval), grouped(header.figures.merged + 1));
            self.warn(format!("lists take longer than an interval: list {interval} covers {covered} intervals"));
        }
        if !self.has_line {
            self.line(format!(
                "list {} of {}: {} open, {} half-open, {} opened, {} closed{}",
                grouped(header.figures.interval),
                time_of_day(header.figures.end_ns),
                grouped(header.flows),
                grouped(header.half_open),
                grouped(header.figures.opened),
                grouped(header.figures.closed),
                if header.complete { String::new() } else { format!(", about {} missing", grouped(header.missing)) },
            ));
        }
    }

    fn changed(&self, index: usize, condition: Condition) {
        let name = self.interfaces.get(index).map_or("", String::as_str).escape_debug();
        match condition {
            Condition::Up => self.line(format!("{name} is up")),
            Condition::Down => self.warn(format!("{name} is down: waiting for it")),
            Condition::Gone => self.warn(format!("{name} is gone: waiting for one of that name")),
        }
    }

    fn saved(&self, written: Written) {
        if let Err(error) = written {
            self.warn(error.to_string());
        }
    }

    fn is_stopped(&self) -> bool {
        self.interrupts.is_interrupted()
    }
}
