//! Messages of a live capture: a status line on a terminal, a line for each list elsewhere, and warnings.

use super::Prepared;
use crate::capture::Condition;
use crate::cli::interrupts::Interrupts;
use crate::cli::log;
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

/// The warning of a run that takes its time to stop.
const PATIENCE: &str = "stopping; Ctrl-C ends it now, without the last list";

/// How often the status line is drawn: nobody reads faster.
const DRAW_INTERVAL: Duration = Duration::from_millis(500);

/// The figures of the status line.
struct Figures {
    /// The last list.
    last: Option<Header>,
    /// When the line was last drawn.
    drawn: Instant,
    /// How many packets there had been then.
    packets: u64,
}

/// The observer of a live capture.
pub(super) struct LiveWatch {
    voice: Voice,
    interfaces: Vec<String>,
    connections_max: u64,
    metrics: Arc<Metrics>,
    bar: ProgressBar,
    figures: Mutex<Figures>,
    interrupts: Interrupts,
}

impl LiveWatch {
    /// An observer of a capture that publishes in `metrics`.
    ///
    /// # Errors
    ///
    /// Signals cannot be caught.
    pub(super) fn new(voice: Voice, prepared: &Prepared, metrics: Arc<Metrics>) -> Result<Self> {
        let draws = voice > Voice::Quiet && !log::is_on();
        let target = if draws { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        let interrupts = Interrupts::catch(PATIENCE)?;
        interrupts.set_bar(!bar.is_hidden());
        Ok(LiveWatch {
            voice,
            interfaces: prepared.interfaces(),
            connections_max: prepared.plan.config().connections_max,
            metrics,
            bar,
            figures: Mutex::new(Figures { last: None, drawn: Instant::now(), packets: 0 }),
            interrupts,
        })
    }

    /// Takes the status line off the terminal.
    pub(super) fn finish(&self) {
        self.interrupts.finish();
        self.bar.finish_and_clear();
    }

    /// Prints with `say` above the status line, if there is one.
    pub(super) fn say(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }

    /// Warns of what an operator may have to look into.
    pub(super) fn warn(&self, text: &str) {
        if self.voice > Voice::Quiet {
            self.say(|| report::warning(text));
        }
    }

    fn status(&self, last: Option<&Header>, packets_per_s: f64) -> String {
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

/// The time of day in UTC, to the second.
fn time_of_day(time_ns: i64) -> String {
    let timestamp = Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or_default();
    timestamp.strftime("%H:%M:%SZ").to_string()
}

impl LiveObserver for LiveWatch {
    fn listed(&self, header: &Header) {
        self.figures.lock().last = Some(*header);
        if header.figures.dropped > 0 || header.figures.unusable > 0 {
            self.warn(&format!(
                "in the interval to {}, {} packets or signals were lost and {} packets could not be read",
                time_of_day(header.figures.end_ns),
                grouped(header.figures.dropped),
                grouped(header.figures.unusable),
            ));
        }
        if header.figures.merged > 0 {
            let (interval, covered) = (grouped(header.figures.interval), grouped(header.figures.merged + 1));
            self.warn(&format!("lists are made too slowly: list {interval} covers {covered} intervals"));
        }
        if self.voice > Voice::Quiet && self.bar.is_hidden() {
            report::line(format_args!(
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
            Condition::Up => self.say(|| report::line(format_args!("{name} is up"))),
            Condition::Down => self.warn(&format!("{name} is down: waiting for it")),
            Condition::Gone => self.warn(&format!("{name} is gone: waiting for one of that name")),
        }
    }

    fn saved(&self, written: Written) {
        if let Err(error) = written {
            self.warn(&error.to_string());
        }
    }

    fn look(&self) {
        let mut figures = self.figures.lock();
        let passed = figures.drawn.elapsed();
        if self.bar.is_hidden() || passed < DRAW_INTERVAL {
            return;
        }
        let packets = self.metrics.packets();
        let packets_per_s = packets.saturating_sub(figures.packets) as f64 / passed.as_secs_f64();
        (figures.drawn, figures.packets) = (Instant::now(), packets);
        self.bar.set_message(self.status(figures.last.as_ref(), packets_per_s));
        self.bar.tick();
    }

    fn is_stopped(&self) -> bool {
        self.interrupts.is_interrupted()
    }
}
