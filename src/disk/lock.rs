//! Directories that belong to one process at a time.
//!
//! It takes a directory and gives a lock that the system releases however the process ends. The lock is on a file of
//! its own in the directory, which nobody but its owner can open: whoever may read the directory could hold a lock on
//! the directory itself, and keep every process from starting.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;

/// The name of the file. It stays when the process ends: if it were removed, two processes could hold two of it.
pub const LOCK_FILE: &str = ".flowpeel.lock";

/// The mode of the file.
#[cfg(unix)]
const LOCK_FILE_MODE: u32 = 0o600;

/// Locks a directory for this process; `None` if the file system has no locks, or the directory cannot be written to.
///
/// # Errors
///
/// Another process holds the directory; then `what` is the message. Or the file of the lock cannot be opened or made.
pub fn lock(directory: &Path, what: &str) -> Result<Option<File>> {
    let path = directory.join(LOCK_FILE);
    let file = match open(&path) {
        Ok(file) => file,
        Err(error) if is_unwritable(&error) && path.symlink_metadata().is_err() => return Ok(None),
        Err(error) => {
            let what = "cannot open the lock of this directory: if no process that runs as another user writes here, \
                        remove it";
            return Err(Error::new(what).in_file(&path).because(error));
        }
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(Error::new(what).in_file(directory)),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Whether nothing can be written where this error came from: whoever goes on to write reports it.
fn is_unwritable(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotFound)
}

/// Opens the file, or makes it. One that others could open becomes the owner's alone.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, LOCK_FILE_MODE);
    // What a link leads to is no file of ours.
    #[cfg(target_os = "linux")]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW);
    let file = options.open(path)?;
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&file.metadata()?.permissions()) & 0o777 != LOCK_FILE_MODE {
        // Who may write to it and does not own it can lock it all the same.
        drop(file.set_permissions(<Permissions as std::os::unix::fs::PermissionsExt>::from_mode(LOCK_FILE_MODE)));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_is_held_by_one_at_a_time_and_its_file_stays() {
        let place = tempfile::tempdir().unwrap();
        let held = lock(place.path(), "another holds it").unwrap();
        assert!(held.is_some());
        assert!(lock(place.path(), "another holds it").unwrap_err().to_string().ends_with("another holds it"));
        drop(held);
        assert!(place.path().join(LOCK_FILE).exists());
        assert!(lock(place.path(), "").unwrap().is_some());
    }

    #[test]
    fn a_lock_on_the_directory_itself_keeps_nobody_out() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        directory.lock().unwrap();
        assert!(lock(place.path(), "").unwrap().is_some());
    }

    #[test]
    #[cfg(unix)]
    fn the_file_is_its_owners_alone() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(LOCK_FILE);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(lock(place.path(), "").unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_file(&path).unwrap();
        symlink("elsewhere", &path).unwrap();
        assert!(lock(place.path(), "").unwrap_err().to_string().contains("cannot open the lock of this directory"));
        assert!(!place.path().join("elsewhere").exists());
    }
}
