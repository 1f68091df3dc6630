//! Signals: the first ends a command in order, the second at once.

use flowpeel::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// The exit status of a process that was signalled twice.
const INTERRUPTED: i32 = 130;

/// Whether the command was asked to stop.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Catches SIGINT and SIGTERM from now on.
    ///
    /// # Errors
    ///
    /// Signals cannot be caught.
    pub(super) fn on_signals() -> Result<Self> {
        let stop = Stop::default();
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            let caught = signal(kind).map_err(|error| Error::new("cannot catch signals").because(error));
            let (mut signals, stop) = (caught?, stop.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    if stop.0.swap(true, Ordering::Relaxed) {
                        std::process::exit(INTERRUPTED);
                    }
                }
            });
        }
        Ok(stop)
    }

    /// Whether it was.
    pub(super) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
