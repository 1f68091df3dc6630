//! What a directory holds.

use flowpeel::state::LOCK_FILE;
use std::path::{Path, PathBuf};

/// The files of a directory, by name, without that of its lock.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| name(path) != LOCK_FILE);
    files.sort();
    files
}

/// A file's name.
pub(crate) fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// The names in a directory, in order.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    files(directory).iter().map(|path| name(path).to_owned()).collect()
}
