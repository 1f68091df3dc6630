//! What a live capture says, on a thread of its own: standard error may be a terminal that is stopped, or a pipe that
//! nobody reads.
//!
//! What enters: messages, from any thread, and what the status line is made of. What leaves: the same on standard
//! error, in order, for as long as it takes them. Nobody waits for it: what finds no room is lost and counted, and that
//! is told.

use super::status::{DRAW_INTERVAL, StatusLine};
use crate::cli::report::{self, grouped};
use crate::error::{Error, Result};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

/// Messages of a live capture that wait to be shown, at most: minutes of intervals of a second, as long as a terminal
/// is stopped by somebody who reads it.
const UNSAID_MAX: usize = 1 << 8;

/// How long the end of a live capture waits until what is left to be said is shown: standard error may be a pipe that
/// nobody reads, and a service manager waits longer.
const LAST_MESSAGE_PATIENCE: Duration = Duration::from_secs(3);

/// Something that is said.
type Message = Box<dyn FnOnce() + Send>;

/// Speaks for all other threads.
pub(super) struct Speaker {
    messages: Sender<Message>,
    lost: Arc<AtomicU64>,
    /// Closed once everything is said.
    said: Receiver<()>,
}

impl Speaker {
    /// A speaker that draws this line beside what it is told to say.
    ///
    /// # Errors
    ///
    /// There is no thread for it.
    pub(super) fn start(line: StatusLine) -> Result<Self> {
        let (messages, received) = bounded(UNSAID_MAX);
        let (says, said) = bounded(0);
        let lost = Arc::new(AtomicU64::new(0));
        let thread = Thread { messages: received, lost: Arc::clone(&lost), line, _says: says };
        let started = Builder::new().name("messages".to_owned()).spawn(move || thread.run());
        started.map_err(|error| Error::new("cannot start a thread").because(error))?;
        Ok(Speaker { messages, lost, said })
    }

    /// Says something above the status line, if there is one, as soon as what came before it is said.
    pub(super) fn say(&self, message: impl FnOnce() + Send + 'static) {
        if self.messages.try_send(Box::new(message)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the status line off the terminal and says the last; what is not said before patience ends is given up.
    pub(super) fn finish(self, message: impl FnOnce() + Send + 'static) {
        let Speaker { messages, said, .. } = self;
        let is_sent = messages.send_timeout(Box::new(message), LAST_MESSAGE_PATIENCE).is_ok();
        drop(messages);
        if is_sent {
            // Nothing is ever sent: it ends when the thread does, or with patience.
            let _ = said.recv_timeout(LAST_MESSAGE_PATIENCE);
        }
    }
}

/// The thread that may have to wait.
struct Thread {
    messages: Receiver<Message>,
    lost: Arc<AtomicU64>,
    line: StatusLine,
    _says: Sender<()>,
}

impl Thread {
    fn run(mut self) {
        loop {
            match self.messages.recv_timeout(DRAW_INTERVAL) {
                Ok(message) => self.line.above(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let what = format!("{} messages were not shown, because nobody read standard error", grouped(lost));
                self.line.above(|| report::warning(&what));
            }
            self.line.draw();
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Metrics, Setup};

    fn speaker() -> Speaker {
        Speaker::start(StatusLine::new(false, 1, Metrics::new(Setup::default()))).unwrap()
    }

    #[test]
    fn nobody_waits_for_what_can_not_be_said_and_what_is_lost_is_counted() {
        let speaker = speaker();
        let lost = Arc::clone(&speaker.lost);
        let (began, begins) = bounded(0);
        let (release, released) = bounded::<()>(0);
        speaker.say(move || {
            began.send(()).unwrap();
            let _ = released.recv();
        });
        begins.recv().unwrap();
        let said = Arc::new(AtomicU64::new(0));
        for _ in 0..UNSAID_MAX + 7 {
            let said = Arc::clone(&said);
            speaker.say(move || {
                said.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(lost.load(Ordering::Relaxed), 7);
        drop(release);
        let last = Arc::clone(&said);
        speaker.finish(move || assert_eq!(last.fetch_add(1, Ordering::Relaxed), UNSAID_MAX as u64));
        assert_eq!(said.load(Ordering::Relaxed), UNSAID_MAX as u64 + 1);
    }

    #[test]
    fn the_end_does_not_wait_for_ever() {
        let speaker = speaker();
        let (release, released) = bounded::<()>(0);
        speaker.say(move || {
            let _ = released.recv();
        });
        let (never, said) = bounded(1);
        speaker.finish(move || {
            let _ = never.send(());
        });
        assert!(said.try_recv().is_err());
        drop(release);
    }
}
