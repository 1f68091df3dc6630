//! How far a long form has come, kept for the run after one that was cut off.
//!
//! `scripts/progress` says what the file holds, and who reads it.

use std::fs;
use std::path::PathBuf;

/// The file, by a name that scripts set.
const PROGRESS: &str = "FLOWPEEL_PROGRESS";

/// A number that outlives the process; without the file it is kept nowhere.
pub(crate) struct Progress {
    path: Option<PathBuf>,
    before: u64,
}

impl Progress {
    pub(crate) fn of_this_run() -> Self {
        let path = std::env::var_os(PROGRESS).map(PathBuf::from);
        let before = path.as_ref().and_then(|path| fs::read_to_string(path).ok());
        Progress { path, before: before.map_or(0, |count| count.trim().parse().unwrap()) }
    }

    /// What earlier runs have done.
    pub(crate) fn before(&self) -> u64 {
        self.before
    }

    /// Records that this run has done so much beyond [`Self::before`].
    pub(crate) fn record(&self, count: u64) {
        let Some(path) = &self.path else { return };
        let temporary = path.with_extension("next");
        fs::write(&temporary, format!("{}\n", self.before + count)).unwrap();
        fs::rename(temporary, path).unwrap();
    }
}
