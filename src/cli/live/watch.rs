//! The observer of a live capture: what its threads report becomes messages and the status line, on a thread that
//! writes to standard error for all of them.

use super::Prepared;
use super::kernel::NAT_REMEDY;
use super::messages::Messages;
use super::status_line::{LastList, StatusLine, incompleteness, time_of_day};
use crate::capture::Condition;
use crate::cli::interrupts::Interrupts;
use crate::cli::report::{self, Voice, grouped};
use crate::engine::Written;
use crate::error::Result;
use crate::list::Header;
use crate::metrics::Metrics;
use crate::run::LiveObserver;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The warning of a run that does not stop at once.
const PATIENCE: &str = "stopping; Ctrl-C ends it now, without the last list";

/// Watches a live capture.
pub(super) struct LiveWatch {
    voice: Voice,
    interfaces: Vec<String>,
    last: LastList,
    /// Whether something else on the terminal says what is listed.
    shows_lists: bool,
    messages: Messages,
    interrupts: Interrupts,
    /// Whether it was said that connections are listed twice.
    has_warned_of_nat: AtomicBool,
    /// When it ends by itself.
    until: Option<Instant>,
}

impl LiveWatch {
    /// A watch over a capture that publishes in `metrics`. Where lists are shown on the terminal, their footers take
    /// the place of the status line.
    ///
    /// # Errors
    ///
    /// Signals cannot be caught, or a thread not started.
    pub(super) fn new(
        voice: Voice,
        prepared: &Prepared,
        metrics: Arc<Metrics>,
        lists_on_terminal: bool,
    ) -> Result<Self> {
        let draws = voice.draws() && !lists_on_terminal;
        let line = StatusLine::new(draws, prepared.plan.config().connections_max, metrics);
        let (last, has_line) = (Arc::clone(&line.last), line.is_shown());
        let interrupts = Interrupts::catch(PATIENCE)?;
        interrupts.set_bar(has_line);
        let messages = Messages::start(line)?;
        let shows_lists = has_line || lists_on_terminal;
        let interfaces = prepared.interfaces();
        let has_warned_of_nat = AtomicBool::new(false);
        Ok(LiveWatch { voice, interfaces, last, shows_lists, messages, interrupts, has_warned_of_nat, until: None })
    }

    /// Stops the capture at this time, unless it is stopped before.
    pub(super) fn stop_at(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Removes the status line and prints the last message.
    pub(super) fn finish(self, last_words: impl FnOnce() + Send + 'static) {
        self.interrupts.finish();
        self.messages.finish(last_words);
    }

    /// Prints what an operator may have to look into.
    fn warn(&self, text: String) {
        if self.voice > Voice::Quiet {
            self.messages.print(move || report::warning(&text));
        }
    }

    /// Prints that the search for older connections is over, or has become a sample.
    fn warmed_up(&self, before: Option<&Header>, now: &Header) {
        let was_sampled = before.and_then(|before| before.since).is_some_and(|since| since.is_sampled_early);
        if now.since.is_some_and(|since| since.is_sampled_early) && !was_sampled {
            let what = "packets would have been lost if every one had been inspected for connections older than the \
                        start, so a sample of them is from now on: these may be listed later";
            self.warn(what.to_owned());
        }
        if before.is_some_and(Header::is_warming_up) && !now.is_warming_up() {
            self.line(
                "no more connections older than the start are found: a sample of packets is inspected".to_owned(),
            );
        }
    }

    /// Prints what goes as it should.
    fn line(&self, text: String) {
        if self.voice > Voice::Quiet {
            self.messages.print(move || report::line(format_args!("{text}")));
        }
    }
}

impl LiveObserver for LiveWatch {
    fn listed(&self, header: &Header) {
        let before = self.last.lock().replace(*header);
        self.warmed_up(before.as_ref(), header);
        if header.doubled > 0 && !self.has_warned_of_nat.swap(true, Ordering::Relaxed) {
            self.warn(format!(
                "connections come under two names, because addresses are translated (NAT) between the captured \
                 interfaces: {} at least in the interval to {}, and each is listed twice. {NAT_REMEDY}",
                grouped(header.doubled),
                time_of_day(header.figures.end_ns),
            ));
        }
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
        if !self.shows_lists {
            self.line(format!(
                "list {} of {}: {} open, {} half-open, {} opened, {} closed{}",
                grouped(header.figures.interval),
                time_of_day(header.figures.end_ns),
                grouped(header.flows),
                grouped(header.half_open),
                grouped(header.figures.opened),
                grouped(header.figures.closed),
                incompleteness(header),
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

    fn known(&self, count: u64) {
        self.line(format!("the kernel knows {} open connections through the captured interfaces", grouped(count)));
    }

    fn saved(&self, written: Written) {
        if let Err(error) = written {
            self.warn(error.to_string());
        }
    }

    fn is_stopped(&self) -> bool {
        self.interrupts.is_interrupted() || self.until.is_some_and(|until| Instant::now() >= until)
    }
}
