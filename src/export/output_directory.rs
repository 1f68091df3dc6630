//! A directory for output, whose files are whole or not there.
//!
//! It takes what to write, and under which name, and gives files that no program that watches the directory ever sees
//! half written, not even after a crash: each has a temporary name until it is whole and on the disk.

use crate::disk::whole_file::{NewFile, Temporary, directory_of, sync_directory_of};
use crate::error::{Error, Result};
use crate::export::file_name::hour_directories;
use crate::state::lock;
use jiff::Timestamp;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The mode keeps others from reading, since files show who talks to whom.
pub(super) const TEMPORARY: Temporary = Temporary { prefix: ".flows-", suffix: ".tmp", mode: 0o640 };

/// The size of a file that was written, and that of the file whose place it took: 0 where there was none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replaced {
    pub(super) size: u64,
    pub(super) before: u64,
}

/// A directory that belongs to this process.
pub(super) struct OutputDirectory {
    path: PathBuf,
    /// The kind of files that are written there.
    what: &'static str,
    /// The lock of the directory, which the system releases however the process ends.
    _lock: Option<File>,
}

impl OutputDirectory {
    /// Opens a directory, which is created if it does not exist. Returns it with a warning if what a killed process
    /// left half written could not be removed.
    ///
    /// # Errors
    ///
    /// The directory cannot be created or written to, or another process writes to it.
    pub(super) fn open(path: PathBuf, what: &'static str) -> Result<(Self, Option<Error>)> {
        if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_dir()) {
            let what = format!("it is not a directory: {what}s are written to files in one");
            return Err(Error::new(what).in_file(&path));
        }
        let cannot = |error: io::Error| Error::new(format!("cannot write {what}s here")).in_file(&path).because(error);
        fs::create_dir_all(&path).map_err(cannot)?;
        // Without a lock two processes do not harm each other, since no two use the same temporary name, but neither
        // knows what the other has left.
        let lock = lock(&path, &format!("another process writes {what}s here: give each a directory of its own"))?;
        // A trial fails at the start, not after the first interval.
        NewFile::begin(&path.join(what), &TEMPORARY).map_err(cannot)?;
        let left = if lock.is_some() { remove_leftovers(&path) } else { Ok(()) };
        let failed = "cannot remove what a run that was killed left half written";
        let warning = left.err().map(|error| Error::new(failed).in_file(&path).because(error));
        Ok((OutputDirectory { path, what, _lock: lock }, warning))
    }

    /// The path of the directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a file that is written bit by bit.
    pub(super) fn begin(&self, name: &Path) -> Result<NewFile> {
        let path = self.path.join(name);
        let begun = make_directories(directory_of(&path)).and_then(|()| NewFile::begin(&path, &TEMPORARY));
        begun.map_err(|error| self.cannot_write(error))
    }

    pub(super) fn cannot_write(&self, cause: io::Error) -> Error {
        Error::new(format!("cannot write {}s here", self.what)).in_file(&self.path).because(cause)
    }

    /// Writes a file whole or not at all.
    pub(super) fn write(&self, name: &Path, write: impl FnOnce(&mut &File) -> Result<()>) -> Result<Replaced> {
        write_whole(&self.path, name, self.what, write)
    }
}

/// The time by the clock of this machine, in seconds since 1970.
pub(super) fn now_s() -> i64 {
    Timestamp::now().as_second()
}

/// Makes the directories of a day and an hour, if they are not there, and has their names on the disk.
pub(super) fn make_directories(hour: &Path) -> io::Result<()> {
    if hour.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(hour)?;
    sync_directory_of(hour)?;
    sync_directory_of(directory_of(hour))
}

/// Removes what killed processes left half written.
fn remove_leftovers(directory: &Path) -> io::Result<()> {
    TEMPORARY.remove_leftovers(directory)?;
    hour_directories(directory)?.iter().try_for_each(|hour| TEMPORARY.remove_leftovers(hour))
}

/// Writes a file that holds `what`, whole or not at all, and makes the directories below `directory` that it is in.
pub(super) fn write_whole(
    directory: &Path,
    name: impl AsRef<Path>,
    what: &str,
    write: impl FnOnce(&mut &File) -> Result<()>,
) -> Result<Replaced> {
    let path = directory.join(name);
    let cannot = |error: io::Error| Error::new(format!("cannot write the {what}")).in_file(&path).because(error);
    make_directories(directory_of(&path)).map_err(cannot)?;
    let before = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    let file = NewFile::begin(&path, &TEMPORARY).map_err(cannot)?;
    write(&mut file.file()).map_err(|error| error.in_file(&path))?;
    let size = file.finish().map_err(cannot)?;
    Ok(Replaced { size, before })
}
