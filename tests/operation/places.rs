//! Where files are put: in the place of files alone, and no two kinds of them in one directory.

use crate::{capture, files, flowpeel, name, replayed, stderr};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A snapshot that a replay wrote.
fn snapshot(place: &Path) -> PathBuf {
    let capture = capture(place, "mixed.pcap", 50);
    let snapshots = place.join("snapshots");
    replayed(&format!("-q --no-list --snapshots {}", snapshots.display()), &[&capture]);
    files(&snapshots).remove(0)
}

#[test]
fn what_is_no_file_is_not_replaced_by_one() {
    let place = tempfile::tempdir().unwrap();
    let snapshot = snapshot(place.path());
    let (target, link) = (place.path().join("target"), place.path().join("link"));
    fs::write(&target, "kept").unwrap();
    symlink("target", &link).unwrap();
    for (out, part) in [(&link, "or a link to one"), (&PathBuf::from("-"), "standard output can not be: name a file")] {
        let from = snapshot.as_os_str();
        let digest =
            flowpeel(["digest".as_ref(), from, "--differences".as_ref(), "5".as_ref(), "-o".as_ref(), out.as_os_str()]);
        assert_eq!(digest.status.code(), Some(1));
        assert!(stderr(&digest).contains(part), "{}", stderr(&digest));
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&target).unwrap(), b"kept");
    assert!(!Path::new("-").exists());
    let names: Vec<_> = files(place.path()).iter().map(|path| name(path).to_owned()).collect();
    assert_eq!(names, ["link", "mixed.pcap", "snapshots", "target"]);
}
