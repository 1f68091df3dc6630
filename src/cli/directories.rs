//! Directories for several purposes, which have to be several directories: each is locked, and its files are removed by
//! their names.
//!
//! Paths are compared with links and dots resolved.

use crate::error::{Error, Result};
use std::path::{Component, Path, PathBuf};

/// Makes sure that no two of these options name one directory.
///
/// # Errors
///
/// Two do.
pub(super) fn check(directories: &[(&str, Option<&PathBuf>)]) -> Result<()> {
    let mut known: Vec<(&str, PathBuf)> = Vec::new();
    for (option, path) in directories.iter().filter_map(|(option, path)| Some((*option, (*path)?))) {
        let place = resolved(path);
        if let Some((other, _)) = known.iter().find(|(_, known)| *known == place) {
            let what = format!("{other} and {option} each need a directory of their own");
            return Err(Error::new(what).in_file(path));
        }
        known.push((option, place));
    }
    Ok(())
}

/// Where a path leads: what is there of it without links, and the rest as it would be made.
fn resolved(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut place = PathBuf::new();
    for component in whole.components() {
        match component {
            Component::ParentDir => drop(place.pop()),
            Component::CurDir => {}
            other => place.push(other),
        }
        // The parent of what a link leads to is not that of the link.
        place = place.canonicalize().unwrap_or(place);
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn one_directory_is_one_by_whatever_name() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::create_dir_all(path("a/b")).unwrap();
        std::os::unix::fs::symlink("a/b", path("link")).unwrap();
        for (one, other) in
            [("a", "a/"), ("a", "./a/../a"), ("a/b", "link"), ("a/new/x", "link/../new/./x"), ("n/x", "n/y/../x")]
        {
            let (one, other) = (path(one), path(other));
            let error = check(&[("--out", Some(&one)), ("--state", None), ("--archive", Some(&other))]).unwrap_err();
            let error = error.to_string();
            assert!(error.ends_with(": --out and --archive each need a directory of their own"), "{error}");
        }
        let [one, other] = [path("a"), path("a/b")];
        assert!(check(&[("--out", Some(&one)), ("--state", Some(&other))]).is_ok(), "one may be in the other");
    }
}
