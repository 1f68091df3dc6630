//! SIGINT, SIGTERM, SIGHUP (unless it was ignored at the start) and Ctrl-C: the first ends a run in order, the second
//! at once.

#[cfg(target_os = "linux")]
use crate::cli::ignored_signals;
use crate::cli::report;
use crate::cli::top::terminal;
use crate::error::{Error, Result};
use crossbeam::channel::bounded;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time within which a second signal to end counts as the same one: `timeout` signals its child and then the
/// process group, and a service manager may do the same. A person who has seen that a run does not end takes longer.
const SAME_SIGNAL_MAX: Duration = Duration::from_millis(500);

/// How long after Ctrl-C a run that has not stopped says what it waits for.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// How long a process that was signalled twice waits for its last message: standard error may be a pipe that nobody
/// reads.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(100);

/// The exit status of a process that was signalled twice.
const INTERRUPTED: i32 = 130;

/// The state that a run shares with its signal handler.
pub(super) struct Interrupts(Arc<State>);

#[derive(Default)]
struct State {
    is_stopped: AtomicBool,
    has_bar: AtomicBool,
    is_finished: AtomicBool,
}

impl Interrupts {
    /// Catches signals from now on. `patience` is the warning of a run that takes its time to stop.
    ///
    /// # Errors
    ///
    /// Signals cannot be caught.
    pub(super) fn catch(patience: &'static str) -> Result<Self> {
        let state = Arc::new(State::default());
        let interrupts = Interrupts(Arc::clone(&state));
        let mut first: Option<Instant> = None;
        let interrupted = move || {
            if let Some(first) = first {
                if first.elapsed() > SAME_SIGNAL_MAX {
                    end_at_once();
                }
                return;
            }
            first = Some(Instant::now());
            state.is_stopped.store(true, Ordering::Relaxed);
            // A bar is drawn over what the terminal shows for Ctrl-C.
            let has_bar = state.has_bar.load(Ordering::Relaxed);
            // A thread of its own, because this one has the second signal to wait for, and nobody may read what is
            // said.
            let state = Arc::clone(&state);
            let patiently = move || {
                if !has_bar {
                    report::leave_line();
                }
                std::thread::sleep(STOP_PATIENCE);
                if !state.is_finished.load(Ordering::Relaxed) {
                    if has_bar {
                        report::leave_line();
                    }
                    report::warning(patience);
                }
            };
            // Without a thread there is no message. A panic would end the thread that waits for the second signal.
            drop(std::thread::Builder::new().spawn(patiently));
        };
        #[cfg(target_os = "linux")]
        let ignores_hangup = ignored_signals::hangup_is_ignored();
        let caught = ctrlc::set_handler(interrupted);
        caught.map_err(|error| Error::new("cannot catch Ctrl-C").because(error))?;
        #[cfg(target_os = "linux")]
        if ignores_hangup {
            ignored_signals::ignore_hangup();
        }
        Ok(interrupts)
    }

    /// Whether a signal asked the run to end.
    pub(super) fn is_interrupted(&self) -> bool {
        self.0.is_stopped.load(Ordering::Relaxed)
    }

    /// Sets whether a progress bar is on the terminal.
    pub(super) fn set_bar(&self, has_bar: bool) {
        self.0.has_bar.store(has_bar, Ordering::Relaxed);
    }

    /// Notes that the run has ended.
    pub(super) fn finish(&self) {
        self.0.is_finished.store(true, Ordering::Relaxed);
    }
}

/// Ends the process at once, with a message; what it has not written yet is lost.
fn end_at_once() -> ! {
    terminal::leave();
    let (says, said) = bounded::<()>(0);
    let last_words = move || {
        report::leave_line();
        report::error(&Error::new("ended at once by a second signal"), "; what was not written yet is lost");
        drop(says);
    };
    // Without a thread there is no message, and the channel is closed at once.
    drop(std::thread::Builder::new().spawn(last_words));
    let _ = said.recv_timeout(LAST_WORDS_PATIENCE);
    std::process::exit(INTERRUPTED)
}
