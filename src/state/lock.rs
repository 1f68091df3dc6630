//! A directory for one process at a time.
//!
//! What enters: a directory. What leaves: a lock that the system gives back however the process ends.

use crate::error::{Error, Result};
use std::fs::{File, TryLockError};
use std::path::Path;

/// Takes the directory for this process. None where the file system knows no locks.
///
/// # Errors
///
/// Another process has it: that is told as `what`.
pub fn lock(path: &Path, what: &str) -> Result<Option<File>> {
    let Ok(directory) = File::open(path) else { return Ok(None) };
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(TryLockError::WouldBlock) => Err(Error::new(what).in_file(path)),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}
