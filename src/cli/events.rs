//! The options of events, the log that they ask for, and messages about it.

use crate::cli::heading;
use crate::cli::lists::{self, Lists};
use crate::cli::report::{self, Voice, grouped};
use crate::cli::values::{self, KeepLimit};
use crate::engine::Saving;
use crate::error::{Error, Result};
use crate::event_log::{Destination, EventLog, EventLogConfig, Place, Rotation, SavedLog};
use crate::export::{EventFiles, Keep};
use crate::metrics::EventCounts;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether and where events are written.
#[derive(Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(super) struct EventOptions {
    /// Log what ends here: a file, unix:PATH or -
    ///
    /// A line for each connection, with start, end, age and the reason, also of connections shorter than an interval.
    /// [ndjson:|eve:|syslog:] may stand before the destination: a file, which is appended to; - for standard output;
    /// unix:PATH and unixgram:PATH for Unix sockets of streams and datagrams; syslog:/dev/log; ipfix:udp:HOST:PORT and
    /// ipfix:tcp:HOST:PORT for flow collectors; parquet:DIR for files by the hour, if flowpeel was built with
    /// --features parquet. May be given several times. docs/events.md has the lines.
    #[arg(long, value_name = "DEST", hide_short_help = true)]
    events: Vec<Destination>,

    /// Log what opens, too
    #[arg(long, requires = "events", hide_short_help = true)]
    events_open: bool,

    /// Continue files of events under another name: by size (100MiB) or time (1d)
    ///
    /// events.ndjson becomes events-20260101T000000Z.ndjson. A file that somebody else has moved is begun anew within a
    /// second, and at SIGHUP. A file of Parquet covers so long a time, and an hour at most. May be given once for each.
    #[arg(long, value_name = "AGE|SIZE", value_parser = values::keep, requires = "events", hide_short_help = true)]
    events_rotate: Vec<KeepLimit>,
}

impl EventOptions {
    fn rotation(&self) -> Result<Rotation> {
        let Keep { age, size } = lists::keep_of(&self.events_rotate, "--events-rotate")?;
        Ok(Rotation { size, age })
    }

    /// Checks the options before anything is done.
    ///
    /// # Errors
    ///
    /// They contradict each other, or other options.
    pub(super) fn check(&self, lists: &Lists) -> Result<()> {
        self.rotation()?;
        if self.directories().next().is_some() {
            EventFiles::check()?;
        }
        for (index, destination) in self.events.iter().enumerate() {
            if self.events[..index].iter().any(|other| other.place == destination.place) {
                return Err(Error::new("two --events write to one place: give each a file or socket of its own"));
            }
        }
        if self.events.iter().any(|destination| destination.place == Place::Stdout) && lists.are_on_stdout() {
            return Err(Error::new(
                "lists and events cannot both be on standard output: give lists a directory with --out",
            ));
        }
        Ok(())
    }

    /// The directories that events are written to.
    pub(super) fn directories(&self) -> impl Iterator<Item = &PathBuf> {
        self.events.iter().filter_map(|destination| match &destination.place {
            Place::Directory(path) => Some(path),
            _ => None,
        })
    }

    /// The memory that events take, in bytes.
    pub(super) fn memory_size(&self, is_live: bool, saves: bool) -> u64 {
        if self.are_asked_for() { EventLog::memory_size(&self.events, is_live, saves) } else { 0 }
    }

    /// The memory that events take besides where names of translated connections are known, in bytes.
    pub(super) fn names_size(&self) -> u64 {
        if self.are_asked_for() { EventLog::NAMES_SIZE } else { 0 }
    }

    /// Whether there is a destination.
    pub(super) fn are_asked_for(&self) -> bool {
        !self.events.is_empty()
    }

    /// Starts the log, if there is to be one. If the run saves its state, every state holds the log's part from now on.
    /// SIGHUP has its files opened anew: call this before other threads are started and signals are caught.
    ///
    /// # Errors
    ///
    /// A destination cannot be opened, the log is not the one that belongs to the state, or a thread cannot be started.
    pub(super) fn start(&self, run: EventRun, saving: Option<&mut Saving>, voice: Voice) -> Result<Option<EventLog>> {
        if self.events.is_empty() {
            return Ok(None);
        }
        let reopens = Arc::<AtomicBool>::default();
        let is_file = |place: &Place| matches!(place, Place::File(_) | Place::Directory(_));
        if self.events.iter().any(|destination| is_file(&destination.place)) {
            hangups::announce(&reopens)?;
        }
        let warn = move |error: &Error| {
            if voice > Voice::Quiet {
                report::warning(&error.to_string());
            }
        };
        let EventRun { is_live, counts, is_stopped } = run;
        let saved = saving.as_ref().map(|saving| Ok(SavedLog { part: saving.part_of_events()?, is_stopped }));
        let log = EventLog::start(EventLogConfig {
            destinations: self.events.clone(),
            openings: self.events_open,
            rotation: self.rotation()?,
            is_live,
            saved: saved.transpose()?,
            reopens,
            counts,
            warn: Box::new(warn),
        })?;
        if let Some(saving) = saving {
            saving.set_events(log.save_handle(), log.beginning())?;
        }
        Ok(Some(log))
    }
}

/// The run that a log is of.
pub(super) struct EventRun {
    /// Whether it is live.
    pub(super) is_live: bool,
    /// Where it is counted what was written and lost.
    pub(super) counts: Arc<EventCounts>,
    /// Set when a replay stops before the end of its input.
    pub(super) is_stopped: Arc<AtomicBool>,
}

/// Prints how many events were lost, if any were, and returns whether none was.
pub(super) fn report_end(counts: &EventCounts, voice: Voice) -> bool {
    let lost = counts.lost.load(Ordering::Relaxed);
    if lost > 0 && voice > Voice::Quiet {
        let written = grouped(counts.written.load(Ordering::Relaxed));
        report::warning(&format!(
            "{} events were lost, {written} written: a destination did not keep up",
            grouped(lost)
        ));
    }
    lost == 0
}

#[cfg(target_os = "linux")]
mod hangups {
    //! SIGHUP, which otherwise ends a run in order.

    use crate::error::{Error, Result};
    use nix::sys::signal::{SigSet, Signal};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::Builder;

    /// Sets the flag at each SIGHUP from now on. Threads that are started later do not see the signal.
    pub(super) fn announce(reopens: &Arc<AtomicBool>) -> Result<()> {
        let hangup = SigSet::from(Signal::SIGHUP);
        hangup.thread_block().map_err(|error| Error::new("cannot wait for SIGHUP").because(error))?;
        let reopens = Arc::clone(reopens);
        let wait = move || {
            while hangup.wait().is_ok() {
                reopens.store(true, Ordering::Relaxed);
            }
        };
        let thread = Builder::new().name("hangups".to_owned()).spawn(wait);
        thread.map(drop).map_err(|error| Error::new("cannot start a thread").because(error))
    }
}

#[cfg(not(target_os = "linux"))]
mod hangups {
    //! Elsewhere a file that was moved is noticed without a signal.

    use crate::error::Result;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    pub(super) fn announce(_reopens: &Arc<AtomicBool>) -> Result<()> {
        Ok(())
    }
}
