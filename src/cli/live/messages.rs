//! The messages of a live capture, printed by a thread of their own: standard error may be a terminal that is stopped,
//! or a pipe that nobody reads, and no other thread waits for it. Messages that find the queue full are dropped and
//! counted, and the count is printed.

use super::status_line::{DRAW_INTERVAL, StatusLine};
use crate::cli::report::{self, grouped};
use crate::error::{Error, Result};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

/// Messages of a live capture that wait to be shown, at most: minutes of intervals of a second, as long as a terminal
/// is stopped by somebody who reads it.
const WAITING_MAX: usize = 1 << 8;

/// How long the end of a live capture waits until the last messages are printed: standard error may be a pipe that
/// nobody reads, and a service manager waits longer.
const LAST_MESSAGE_PATIENCE: Duration = Duration::from_secs(3);

/// Prints something.
type Message = Box<dyn FnOnce() + Send>;

/// The queue of messages.
pub(super) struct Messages {
    queue: Sender<Message>,
    lost: Arc<AtomicU64>,
    /// Closed once everything is printed.
    printed: Receiver<()>,
}

impl Messages {
    /// Starts the thread, which draws this line below what it prints.
    ///
    /// # Errors
    ///
    /// There is no thread for it.
    pub(super) fn start(line: StatusLine) -> Result<Self> {
        let (queue, received) = bounded(WAITING_MAX);
        let (prints, printed) = bounded(0);
        let lost = Arc::new(AtomicU64::new(0));
        let thread = Thread { messages: received, lost: Arc::clone(&lost), line, _prints: prints };
        let started = Builder::new().name("messages".to_owned()).spawn(move || thread.run());
        started.map_err(|error| Error::new("cannot start a thread").because(error))?;
        Ok(Messages { queue, lost, printed })
    }

    /// Prints something above the status line, if there is one, after the messages before it.
    pub(super) fn print(&self, message: impl FnOnce() + Send + 'static) {
        if self.queue.try_send(Box::new(message)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes the status line and prints a last message; what is not printed in time is given up.
    pub(super) fn finish(self, message: impl FnOnce() + Send + 'static) {
        let Messages { queue, printed, .. } = self;
        let is_sent = queue.send_timeout(Box::new(message), LAST_MESSAGE_PATIENCE).is_ok();
        drop(queue);
        if is_sent {
            // Nothing is ever sent: it ends when the thread does, or with patience.
            let _ = printed.recv_timeout(LAST_MESSAGE_PATIENCE);
        }
    }
}

/// The thread that may have to wait.
struct Thread {
    messages: Receiver<Message>,
    lost: Arc<AtomicU64>,
    line: StatusLine,
    _prints: Sender<()>,
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

    fn messages() -> Messages {
        Messages::start(StatusLine::new(false, 1, Metrics::new(Setup::default()))).unwrap()
    }

    #[test]
    fn nobody_waits_for_messages_and_lost_ones_are_counted() {
        let messages = messages();
        let lost = Arc::clone(&messages.lost);
        let (began, begins) = bounded(0);
        let (release, released) = bounded::<()>(0);
        messages.print(move || {
            began.send(()).unwrap();
            let _ = released.recv();
        });
        begins.recv().unwrap();
        let said = Arc::new(AtomicU64::new(0));
        for _ in 0..WAITING_MAX + 7 {
            let said = Arc::clone(&said);
            messages.print(move || {
                said.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(lost.load(Ordering::Relaxed), 7);
        drop(release);
        let last = Arc::clone(&said);
        messages.finish(move || assert_eq!(last.fetch_add(1, Ordering::Relaxed), WAITING_MAX as u64));
        assert_eq!(said.load(Ordering::Relaxed), WAITING_MAX as u64 + 1);
    }

    #[test]
    fn the_end_does_not_wait_for_ever() {
        let messages = messages();
        let (release, released) = bounded::<()>(0);
        messages.print(move || {
            let _ = released.recv();
        });
        let (never, said) = bounded(1);
        messages.finish(move || {
            let _ = never.send(());
        });
        assert!(said.try_recv().is_err());
        drop(release);
    }
}
