//! The built command, run to its end, and what it leaves.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

pub(crate) const FLOWPEEL: &str = env!("CARGO_BIN_EXE_flowpeel");

/// `flowpeel` with these arguments.
pub(crate) fn flowpeel<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    Command::new(FLOWPEEL).args(arguments).output().unwrap()
}

/// What was printed, which has to be text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The names in a directory, in order.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
