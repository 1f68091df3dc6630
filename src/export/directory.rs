//! One file a list, written whole or not at all.
//!
//! What enters: lists. What leaves: files named by the lists' ends, for programs that watch a directory: none of them
//! may ever see half a list, not even after a crash.

use crate::error::{Error, Result};
use crate::export::file_name::FileName;
use crate::export::retention::{Failure, Keep, Retention};
use crate::export::series::{Kind, Series};
use crate::export::{Exporter, Format};
use crate::flow_list::List;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// Who may read lists: they tell who talks to whom.
const LIST_MODE: u32 = 0o640;

/// The name of a file that is being written: this, some letters and digits, and [`TEMPORARY_SUFFIX`].
const TEMPORARY_PREFIX: &str = ".flows-";
const TEMPORARY_SUFFIX: &str = ".tmp";
const TEMPORARY_LETTER_COUNT: usize = 6;

/// Writes each list to a file of its own, `flows-<end, UTC>.ndjson`, or what changed since the one before to
/// `changes-<end, UTC>.ndjson`. A list that is not there is under a temporary name until it is whole and on the disk.
///
/// A directory belongs to one process at a time.
pub struct Directory {
    path: PathBuf,
    series: Series,
    is_compressed: bool,
    retention: Retention,
    /// The latest end of a list, in seconds; the next one that does not end later needs a number in its name.
    latest_s: Option<i64>,
    /// Whether the list before ended earlier than one before that.
    was_behind: bool,
    number: u64,
    warning: Option<Error>,
    /// Lists after which something could not be removed.
    failure_count: u64,
    /// Held for as long as this is there; the system gives it back however the process ends.
    _lock: Option<File>,
}

impl Directory {
    /// An exporter to this directory, which is made if it is not there. With `vlan_key`, lines name the VLAN tags. What
    /// a process that was killed left half written is removed.
    ///
    /// # Errors
    ///
    /// The directory can not be made or written to, or another process writes lists to it.
    pub fn new(path: impl Into<PathBuf>, vlan_key: bool, format: Format, keep: Keep) -> Result<Self> {
        let path = path.into();
        if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(Error::new("it is not a directory: lists are written to files in one").in_file(&path));
        }
        let cannot = |error: io::Error| Error::new("can not write lists here").in_file(&path).because(error);
        fs::create_dir_all(&path).map_err(cannot)?;
        let lock = lock(&path)?;
        // Trying now tells the user at the start, not after the first interval.
        new_file(&path).map_err(cannot)?;
        let left = if lock.is_some() { remove_leftovers(&path) } else { Ok(()) };
        let what = "can not remove what a run that was killed left half written";
        let warning = left.err().map(|error| Error::new(what).in_file(&path).because(error));
        Ok(Directory {
            series: Series::new(vlan_key, format),
            is_compressed: format.compress,
            retention: Retention::new(&path, keep),
            latest_s: None,
            was_behind: false,
            number: 1,
            warning,
            failure_count: 0,
            _lock: lock,
            path,
        })
    }

    /// The name of the list that ends at this time, to the second. A run never takes a name twice, even when the clock
    /// stepped back; another run over the same packets takes the same names.
    fn name(&mut self, end_ns: i64) -> FileName {
        let end_s = end_ns.div_euclid(1_000_000_000);
        // Changes are applied in the order of names, and a clock that stepped back puts names between others.
        let is_behind = self.latest_s.is_some_and(|latest_s| end_s < latest_s);
        let kind = if is_behind || self.was_behind { Kind::Full } else { self.series.next_kind() };
        self.was_behind = is_behind;
        let number = if self.latest_s.is_none_or(|latest_s| end_s > latest_s) {
            self.latest_s = Some(end_s);
            1
        } else {
            self.number += 1;
            self.number
        };
        FileName { end_s, number, kind, is_compressed: self.is_compressed }
    }

    /// Writes the file of a list; its size.
    fn write_to(&mut self, path: &Path, list: &List, kind: Kind) -> Result<u64> {
        let cannot = |error: io::Error| Error::new("can not write the list").in_file(path).because(error);
        // It is removed when it is dropped, unless it was renamed before.
        let file = new_file(&self.path).map_err(cannot)?;
        self.series.write(&mut file.as_file(), list, kind).map_err(cannot)?;
        file.as_file().sync_all().map_err(cannot)?;
        let size = file.as_file().metadata().map_err(cannot)?.len();
        file.persist(path).map_err(|error| cannot(error.error))?;
        // The name is on the disk only when the directory is.
        #[cfg(unix)]
        File::open(&self.path).and_then(|directory| directory.sync_all()).map_err(cannot)?;
        Ok(size)
    }

    /// Takes note of what could not be removed: the first time, and then ever more seldom.
    fn failed(&mut self, failure: Failure) {
        self.failure_count += 1;
        if self.failure_count.is_power_of_two() {
            let what = format!("can not remove what is not to be kept (failures so far: {})", self.failure_count);
            self.warning = Some(Error::new(what).in_file(failure.path).because(failure.cause));
        }
    }
}

/// A new file in this directory under a name that no list has, for the owner and the group.
fn new_file(directory: &Path) -> io::Result<NamedTempFile> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, LIST_MODE);
    let mut builder = Builder::new();
    builder.prefix(TEMPORARY_PREFIX).suffix(TEMPORARY_SUFFIX).rand_bytes(TEMPORARY_LETTER_COUNT);
    builder.make_in(directory, |path| options.open(path))
}

/// Takes the directory for this process. None where the file system knows no locks: two processes in one directory do
/// each other no harm, since no two take the same temporary name, but then none knows what the other has left.
fn lock(path: &Path) -> Result<Option<File>> {
    let Ok(directory) = File::open(path) else { return Ok(None) };
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(TryLockError::WouldBlock) => {
            let what = "another process writes lists here: give each a directory of its own";
            Err(Error::new(what).in_file(path))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Removes what a process that was killed was writing.
fn remove_leftovers(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_temporary) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_temporary(name: &str) -> bool {
    let letters = name.strip_prefix(TEMPORARY_PREFIX).and_then(|name| name.strip_suffix(TEMPORARY_SUFFIX));
    letters.is_some_and(|letters| {
        letters.len() == TEMPORARY_LETTER_COUNT && letters.bytes().all(|letter| letter.is_ascii_alphanumeric())
    })
}

impl Exporter for Directory {
    fn write(&mut self, list: &List) -> Result<()> {
        let name = self.name(list.header.end_ns);
        let path = self.path.join(name.to_string());
        let replaced_size = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let size = self.write_to(&path, list, name.kind)?;
        self.series.written(list, name.kind);
        if let Some(failure) = self.retention.written(name, size, replaced_size) {
            self.failed(failure);
        }
        Ok(())
    }

    fn warning(&mut self) -> Option<Error> {
        self.warning.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &Path) -> Result<Directory> {
        Directory::new(path, false, Format::default(), Keep::default())
    }

    #[test]
    fn names_tell_the_end_and_never_repeat() {
        let place = tempfile::tempdir().unwrap();
        let mut lists = directory(place.path()).unwrap();
        for (end_ns, name) in [
            (1_767_225_610_000_000_000, "flows-20260101T000010Z.ndjson"),
            (1_767_225_610_400_000_000, "flows-20260101T000010Z_002.ndjson"),
            (1_767_225_611_000_000_000, "flows-20260101T000011Z.ndjson"),
            (1_767_225_610_000_000_000, "flows-20260101T000010Z_003.ndjson"),
        ] {
            assert_eq!(lists.name(end_ns).to_string(), name);
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = directory(file.path()).err().unwrap();
        assert!(error.to_string().contains("it is not a directory"), "{error}");
    }

    #[test]
    fn a_directory_belongs_to_one_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let first = directory(place.path()).unwrap();
        let error = directory(place.path()).err().unwrap();
        assert!(error.to_string().contains("another process writes lists here"), "{error}");
        drop(first);
        assert!(directory(place.path()).is_ok());
    }

    #[test]
    fn what_goes_on_failing_is_told_seldom() {
        let place = tempfile::tempdir().unwrap();
        let mut lists = directory(place.path()).unwrap();
        let mut told = Vec::new();
        for time in 1..=9 {
            lists.failed(Failure { path: "flows-old.ndjson".into(), cause: io::ErrorKind::PermissionDenied.into() });
            if let Some(warning) = lists.warning() {
                let warning = warning.to_string();
                assert!(warning.starts_with("flows-old.ndjson: can not remove what is not to be kept"), "{warning}");
                assert!(warning.contains(&format!("(failures so far: {time}): permission denied")), "{warning}");
                told.push(time);
            }
        }
        assert_eq!(told, [1, 2, 4, 8]);
    }

    #[test]
    fn leftovers_go_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let others = [".flows-a.tmp", ".flows-abc-ef.tmp", "flows-abcdef.tmp", ".flows-abcdef.tmp2", "notes.txt"];
        for name in others.iter().chain(&[".flows-abcdef.tmp", ".flows-A1b2C3.tmp"]) {
            fs::write(place.path().join(name), "x").unwrap();
        }
        fs::create_dir(place.path().join(".flows-direct.tmp")).unwrap();
        directory(place.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(place.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = [&others[..], &[".flows-direct.tmp"]].concat();
        expected.sort_unstable();
        assert_eq!(left, expected);
    }
}
