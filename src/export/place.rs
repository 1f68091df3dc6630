//! A directory whose files are whole or not there.
//!
//! What enters: what to write and under which name. What leaves: files that no program which watches the directory ever sees by
//! half, not even after a crash: each has a temporary name until it is whole and on the disk.

use crate::error::{Error, Result};
use crate::state::lock;
use crate::whole_file::{NewFile, Temporary};
use jiff::Timestamp;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Who may read what is written: it tells who talks to whom.
pub(super) const TEMPORARY: Temporary = Temporary { prefix: ".flows-", suffix: ".tmp", mode: 0o640 };

/// A directory that belongs to this process.
pub(super) struct Place {
    path: PathBuf,
    /// What is written there.
    what: &'static str,
    /// Held for as long as this is there; the system gives it back however the process ends.
    _lock: Option<File>,
}

impl Place {
    /// The directory, which is made if it is not there; and what could not be removed of what a process that was killed left
    /// half written.
    ///
    /// # Errors
    ///
    /// It can not be made or written to, or another process writes to it.
    pub(super) fn open(path: PathBuf, what: &'static str) -> Result<(Self, Option<Error>)> {
        if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_dir()) {
            let what = format!("it is not a directory: {what}s are written to files in one");
            return Err(Error::new(what).in_file(&path));
        }
        let cannot = |error: io::Error| Error::new(format!("can not write {what}s here")).in_file(&path).because(error);
        fs::create_dir_all(&path).map_err(cannot)?;
        // Without a lock two processes do each other no harm, since no two take the same temporary name, but none knows what the
        // other has left.
        let lock = lock(&path, &format!("another process writes {what}s here: give each a directory of its own"))?;
        // Trying now tells the user at the start, not after the first interval.
        NewFile::begin(&path.join(what), &TEMPORARY).map_err(cannot)?;
        let left = if lock.is_some() { TEMPORARY.remove_leftovers(&path) } else { Ok(()) };
        let failed = "can not remove what a run that was killed left half written";
        let warning = left.err().map(|error| Error::new(failed).in_file(&path).because(error));
        Ok((Place { path, what, _lock: lock }, warning))
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file; its size, and that of the one that it took the place of.
    pub(super) fn write(&self, name: &str, write: impl FnOnce(&mut &File) -> Result<()>) -> Result<(u64, u64)> {
        write_whole(&self.path, name, self.what, write)
    }
}

/// What the clock of this machine says, in seconds since 1970.
pub(super) fn now_s() -> i64 {
    Timestamp::now().as_second()
}

/// Writes a file that holds `what`, whole or not at all; its size, and that of the one that it took the place of.
pub(super) fn write_whole(
    directory: &Path,
    name: impl AsRef<Path>,
    what: &str,
    write: impl FnOnce(&mut &File) -> Result<()>,
) -> Result<(u64, u64)> {
    let path = directory.join(name);
    let cannot = |error: io::Error| Error::new(format!("can not write the {what}")).in_file(&path).because(error);
    let replaced_size = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    let file = NewFile::begin(&path, &TEMPORARY).map_err(cannot)?;
    write(&mut file.file()).map_err(|error| error.in_file(&path))?;
    let size = file.finish().map_err(cannot)?;
    Ok((size, replaced_size))
}
