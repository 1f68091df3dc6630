//! The directory in which the lists of peers are put. It goes with the server.
//!
//! A server that is killed leaves it behind, with lists in it, so the next one removes it: what is held by a process
//! stays, as does everything that is not of this user or has no lock.

use flowpeel::error::{Error, Result};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::{NamedTempFile, TempDir};

/// How the name of such a directory begins.
const PREFIX: &str = "flowpeel-peers-";

/// The file in it whose lock its server holds, which the system releases however that ends.
const LOCK_FILE: &str = ".lock";

/// A directory for the lists of peers, which is removed with this.
#[derive(Debug)]
pub(super) struct PeerPlace {
    directory: TempDir,
    _lock: Option<File>,
}

impl PeerPlace {
    /// Makes one, and removes those of servers that were killed.
    ///
    /// # Errors
    ///
    /// There is no room for it, or no right.
    pub(super) fn new() -> Result<Self> {
        PeerPlace::within(&std::env::temp_dir())
            .map_err(|error| Error::new("there is no place for the lists of peers").because(error))
    }

    fn within(parent: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let file = NamedTempFile::new_in(&directory)?;
        // It gets its name when it is locked, since a directory without a lock of that name is removed by nobody: so is
        // one on a file system that has no locks.
        let locked = file.as_file().try_lock().is_ok().then(|| file.persist(directory.path().join(LOCK_FILE)));
        let lock = locked.transpose().map_err(|error| error.error)?;
        remove_leftovers(parent, fs::metadata(directory.path())?.uid());
        Ok(PeerPlace { directory, _lock: lock })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the directories of this user's servers that are no more. What cannot be removed stays.
fn remove_leftovers(parent: &Path, user: u32) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let is_own = || entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user);
        if !is_named || !is_own() {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK_FILE)) else { continue };
        if lock.try_lock().is_ok() {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_a_killed_server_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let held = PeerPlace::within(parent.path()).unwrap();
        let path = |name: &str| parent.path().join(name);
        let killed = path("flowpeel-peers-killed");
        fs::create_dir_all(killed.join("0/3/edge")).unwrap();
        fs::write(killed.join("0/3/edge/flows.ndjson"), "x").unwrap();
        fs::write(killed.join(LOCK_FILE), "").unwrap();
        // No lock, another name, and a link to a directory.
        for name in ["flowpeel-peers-other", "other"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("other").join(LOCK_FILE), "").unwrap();
        symlink(path("other"), path("flowpeel-peers-link")).unwrap();
        let next = PeerPlace::within(parent.path()).unwrap();
        assert!(!killed.exists());
        for stays in
            [held.path(), next.path(), &path("flowpeel-peers-other"), &path("other"), &path("flowpeel-peers-link")]
        {
            assert!(stays.exists(), "{}", stays.display());
        }
        let before = held.path().to_owned();
        drop(held);
        assert!(!before.exists());
    }
}
