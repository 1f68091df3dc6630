//! Crashes of every kind: what is read is whole, and older rather than wrong.

use super::*;
use crate::state::LOCK_FILE;
use std::os::unix::fs::PermissionsExt;

const SIZE_MAX: u64 = 1 << 20;

fn identity() -> Identity {
    Identity(vec![("--connections", 1_000)])
}

fn open(path: &Path) -> Result<Opened> {
    StateDirectory::open(path, identity(), SIZE_MAX)
}

/// The only part of the saved generation.
fn part(opened: &Opened) -> Option<Vec<u8>> {
    opened.saved.as_ref().map(|saved| saved.parts().next().unwrap().to_vec())
}

/// A directory in which these parts were saved in turn.
fn saved(parts: &[&[u8]]) -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state");
    let mut directory = open(&path).unwrap().directory;
    for part in parts {
        directory.save(&[part.to_vec()]).unwrap();
    }
    (place, path)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != LOCK_FILE);
    names.sort();
    names
}

#[test]
fn the_newest_is_there_and_the_one_before() {
    let (_place, path) = saved(&[b"one", b"two", b"three"]);
    assert_eq!(names(&path), ["state-0000000000000002", "state-0000000000000003"]);
    let mut opened = open(&path).unwrap();
    assert_eq!(part(&opened).unwrap(), b"three");
    opened.directory.save(&[b"four".to_vec()]).unwrap();
    assert_eq!(names(&path), ["state-0000000000000003", "state-0000000000000004"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join("state-0000000000000004"))), (0o700, 0o600));
}

#[test]
fn whatever_happens_to_the_newest_the_one_before_is_taken_and_named() {
    let (_place, path) = saved(&[b"one", b"two"]);
    let newest = path.join("state-0000000000000002");
    let whole = fs::read(&newest).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        for bytes in [&damaged, &whole[..at]] {
            fs::write(&newest, bytes).unwrap();
            let opened = open(&path).unwrap();
            assert_eq!(part(&opened).unwrap(), b"one", "byte {at}");
            let warning = opened.warnings[0].to_string();
            assert!(warning.contains("state-0000000000000002: this state is damaged"), "{warning}");
        }
    }
    let mut opened = open(&path).unwrap();
    opened.directory.save(&[b"three".to_vec()]).unwrap();
    drop(opened);
    assert_eq!(part(&open(&path).unwrap()).unwrap(), b"three");
    fs::remove_file(path.join("state-0000000000000003")).unwrap();
    assert_eq!(part(&open(&path).unwrap()).unwrap(), b"one", "what is sound is not removed for what is not");
}

#[test]
fn with_nothing_sound_left_it_does_not_begin_anew_by_itself() {
    let (_place, path) = saved(&[b"one", b"two"]);
    for name in names(&path) {
        fs::write(path.join(name), "damaged").unwrap();
    }
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("no state in here is sound"), "{error}");
    let (_place, empty) = saved(&[]);
    assert!(open(&empty).unwrap().saved.is_none());
}

#[test]
fn a_state_of_another_run_is_refused_and_left_as_it_is() {
    let (_place, path) = saved(&[b"one", b"two"]);
    fs::write(path.join(".state-abcdef.tmp"), "half").unwrap();
    let before = names(&path);
    let other = Identity(vec![("--connections", 2_000)]);
    let error = StateDirectory::open(&path, other, SIZE_MAX).unwrap_err().to_string();
    assert!(error.contains("state-0000000000000002: this state was saved with another --connections"), "{error}");
    let error = StateDirectory::open(&path, identity(), 10).unwrap_err().to_string();
    assert!(error.contains("--memory"), "{error}");
    assert_eq!(names(&path), before);
    open(&path).unwrap();
    assert_eq!(names(&path).len(), 2, "what was half written goes once the rest is taken");
}

#[test]
fn the_number_of_the_run_lasts_as_long_as_the_directory() {
    let (_place, path) = saved(&[]);
    let number = open(&path).unwrap().directory.run_number().unwrap();
    assert_eq!(open(&path).unwrap().directory.run_number().unwrap(), number, "nothing was saved yet");
    let (_place, other) = saved(&[]);
    assert_ne!(open(&other).unwrap().directory.run_number().unwrap(), number);
    for damaged in ["", "0000000000000000\n", "12\n", "00000000000000011\n", "+000000000000001\n"] {
        fs::write(path.join(RUN), damaged).unwrap();
        let error = open(&path).unwrap().directory.run_number().map(|number| number.get());
        // from_str_radix takes a sign, which is harmless.
        assert!(error.is_err() || damaged.starts_with('+'), "{damaged:?}");
    }
}

#[test]
fn it_is_private_and_for_one_process() {
    let (place, path) = saved(&[b"one"]);
    let first = open(&path).unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("another process keeps its state here"), "{error}");
    drop(first);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("chmod 700"), "{error}");
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(open(&file).unwrap_err().to_string().contains("it is not a directory"));
}
