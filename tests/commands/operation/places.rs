//! Where files are put: in the place of files alone, and no two kinds of them in one directory.

use super::{capture, files, flowpeel, name, replayed};
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
    for (out, part) in [(&link, "or a link to one"), (&PathBuf::from("-"), "standard output cannot be: name a file")] {
        let from = snapshot.as_os_str();
        let digest = flowpeel([
            "snapshot".as_ref(),
            "digest".as_ref(),
            from,
            "--differences".as_ref(),
            "5".as_ref(),
            "-o".as_ref(),
            out.as_os_str(),
        ]);
        assert_eq!(digest.status.code(), Some(1));
        assert!(digest.stderr.contains(part), "{}", digest.stderr);
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&target).unwrap(), b"kept");
    assert!(!Path::new("-").exists());
    let names: Vec<_> = files(place.path()).iter().map(|path| name(path).to_owned()).collect();
    assert_eq!(names, ["link", "mixed.pcap", "snapshots", "target"]);
}

#[test]
fn no_directory_has_two_purposes() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 10);
    let x = place.path().join("x");
    let (x, dotted) = (x.to_str().unwrap(), place.path().join("./x/").to_str().unwrap().to_owned());
    for (options, part) in [
        (["--out", x, "--snapshots", x], "--out and --snapshots each need"),
        (["--out", x, "--archive", &dotted], "--out and --archive each need"),
        (["--snapshots", &dotted, "--archive", x], "--snapshots and --archive each need"),
        (["--state", x, "--snapshots", x], "--state and --snapshots each need"),
        (["--out", x, "--state", &dotted], "--state and --out each need"),
    ] {
        let output = flowpeel([&["replay", "--every", "1s"], &options[..], &[capture.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", output.stderr);
        assert!(output.stderr.contains(part), "{options:?}: {}", output.stderr);
        assert!(!Path::new(x).exists());
    }
    fs::create_dir(x).unwrap();
    let output = flowpeel(["snapshot", "collect", "--once", x, "--out", &dotted]);
    assert_eq!(output.status.code(), Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("DIR and --out each need a directory of their own"), "{}", output.stderr);
}

#[test]
fn directories_are_made_with_those_above_them() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path(), "mixed.pcap", 10);
    let below = |name: &str| place.path().join(name).join("a/b").to_str().unwrap().to_owned();
    let (state, out, snapshots) = (below("state"), below("out"), below("snapshots"));
    replayed(&format!("-q --every 1s --state {state} --out {out} --snapshots {snapshots}"), &[&capture]);
    assert!([state, out, snapshots].iter().all(|path| Path::new(path).is_dir()));
}

#[test]
fn a_secret_that_can_not_be_read_is_wrong_usage_everywhere() {
    let secret = ["--secret-file", "/nonexistent/secret"];
    for words in [
        &["replay", "a.pcap"][..],
        &["snapshot", "info", "a"],
        &["snapshot", "get", "a", "10.0.0.1:1", "10.0.0.2:2"],
        &["snapshot", "peel", "a"],
        &["snapshot", "merge", "a", "b", "-o", "c"],
        &["snapshot", "digest", "a", "--differences", "1", "-o", "c"],
        &["snapshot", "diff", "a", "b"],
        &["snapshot", "collect", "a", "--out", "b"],
    ] {
        let output = flowpeel([words, &secret].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", output.stderr);
        assert!(output.stderr.contains("/nonexistent/secret: cannot read the secret"), "{}", output.stderr);
    }
}

#[test]
fn what_a_killed_command_left_is_removed_by_the_next() {
    let place = tempfile::tempdir().unwrap();
    let snapshot = snapshot(place.path());
    let [generated, merged] = [".generate-abcdef.tmp", ".flows-abcdef.tmp"].map(|name| place.path().join(name));
    let (capture, digest) = (place.path().join("new.pcap"), place.path().join("new.digest"));
    fs::write(&generated, "left").unwrap();
    fs::write(&merged, "left").unwrap();
    let output = flowpeel(["generate", "--connections", "5", "--out", capture.to_str().unwrap()]);
    assert!(output.status.success() && !generated.exists() && merged.exists(), "{}", output.stderr);
    let words =
        ["snapshot", "digest", snapshot.to_str().unwrap(), "--differences", "5", "-o", digest.to_str().unwrap()];
    let output = flowpeel(words);
    assert!(output.status.success() && !merged.exists(), "{}", output.stderr);
}
