//! Waiting for a directory to change.
//!
//! A wait ends when a file in the directory was closed after writing or was
//! renamed into it, and after some time in any case, since not every file system reports what other machines did to it.

use std::path::Path;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::inotify::{self, CreateFlags, WatchFlags},
};

/// The longest that the agent waits for a change before it looks whether it is to stop.
const AGENT_WAIT_MAX: Duration = Duration::from_millis(100);

/// Waits for changes in a directory.
pub(super) struct Wake {
    /// `None` where the system cannot report changes: waits then take their full time.
    #[cfg(target_os = "linux")]
    changes: Option<OwnedFd>,
}

impl Wake {
    /// Waits for changes in this directory from now on.
    pub(super) fn new(directory: &Path) -> Self {
        #[cfg(target_os = "linux")]
        {
            let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok().filter(|changes| {
                inotify::add_watch(changes, directory, WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO).is_ok()
            });
            Wake { changes }
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = directory;
            Wake {}
        }
    }

    /// Waits until something has changed, `longest` has passed, or `is_stopped` says so.
    pub(super) fn wait(&mut self, longest: Duration, is_stopped: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_stopped() && began.elapsed() < longest && !self.is_changed(AGENT_WAIT_MAX) {}
    }

    /// Whether something changed within this time.
    #[cfg(target_os = "linux")]
    fn is_changed(&mut self, longest: Duration) -> bool {
        let Some(changes) = &self.changes else {
            std::thread::sleep(longest);
            return false;
        };
        let timeout = Timespec::try_from(longest).ok();
        let mut descriptors = [PollFd::new(changes, PollFlags::IN)];
        let Ok(ready_count) = poll(&mut descriptors, timeout.as_ref()) else {
            // A signal came, whose handler may not be done yet.
            std::thread::sleep(Duration::from_millis(1));
            return false;
        };
        let is_changed = ready_count > 0;
        // Reads the events, so that they do not end the next wait.
        let mut events = [0; 4_096];
        while is_changed && rustix::io::read(changes, &mut events).is_ok_and(|size| size > 0) {}
        is_changed
    }

    /// Whether something changed within this time.
    #[cfg(not(target_os = "linux"))]
    fn is_changed(&mut self, longest: Duration) -> bool {
        std::thread::sleep(longest);
        false
    }
}
