//! Directories that belong to one process at a time.
//!
//! It takes a directory and gives a lock that the system releases however the process ends.

use crate::error::{Error, Result};
use std::fs::{File, TryLockError};
use std::path::Path;

/// Locks a directory for this process; `None` if the file system has no locks.
///
/// # Errors
///
/// Another process holds the directory. `what` is the message.
pub fn lock(path: &Path, what: &str) -> Result<Option<File>> {
    let Ok(directory) = File::open(path) else { return Ok(None) };
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(TryLockError::WouldBlock) => Err(Error::new(what).in_file(path)),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}
