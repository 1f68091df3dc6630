//! What a directory holds.

use std::path::{Path, PathBuf};

/// The files of a directory, by name.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
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
