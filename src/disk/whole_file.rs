//! Files that are whole or not there.
//!
//! It takes a path, and bytes, and gives a file that takes its name, and the place of an older file, when all of it is
//! on the disk. Whenever the process ends, the name stands for a whole file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// How many letters and digits distinguish files while they are being written.
const TEMPORARY_LETTER_COUNT: usize = 6;

/// The temporary name of a file while it is being written (prefix, some letters and digits, suffix), and its mode.
#[derive(Clone, Copy, Debug)]
pub struct Temporary {
    /// The beginning of the name.
    pub prefix: &'static str,
    /// The end of the name.
    pub suffix: &'static str,
    /// The mode of the file, less what the umask takes away.
    pub mode: u32,
}

impl Temporary {
    /// Removes from a directory the temporary files that killed processes left. Those of processes that live are
    /// locked.
    ///
    /// # Errors
    ///
    /// The directory cannot be read, or such a file cannot be removed.
    pub fn remove_leftovers(&self, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let is_ours = entry.file_name().to_str().is_some_and(|name| self.is_name(name));
            if is_ours && entry.file_type()?.is_file() && !is_locked(&entry.path()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Whether this is a temporary name of this kind: files of other names are not ours.
    fn is_name(&self, name: &str) -> bool {
        let letters = name.strip_prefix(self.prefix).and_then(|name| name.strip_suffix(self.suffix));
        letters.is_some_and(|letters| {
            letters.len() == TEMPORARY_LETTER_COUNT && letters.bytes().all(|letter| letter.is_ascii_alphanumeric())
        })
    }
}

/// Whether some process is writing this file, or may be: of one that cannot be opened, that is unknown.
fn is_locked(path: &Path) -> bool {
    File::open(path).map_or(true, |file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Whether a whole file can be put at this path: where there is a file, or nothing yet. Pipes and devices can only be
/// written into, and so can what a link leads to: where standard output is a file, /dev/stdout is a link to it.
#[must_use]
pub fn is_file_or_free(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.is_file(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// A file that is being written. It is removed on drop unless it was finished.
pub struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl NewFile {
    /// Begins a file that is to have this path.
    ///
    /// # Errors
    ///
    /// The directory of the file cannot be written to.
    pub fn begin(path: &Path, temporary: &Temporary) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, temporary.mode);
        let mut builder = Builder::new();
        builder.prefix(temporary.prefix).suffix(temporary.suffix).rand_bytes(TEMPORARY_LETTER_COUNT);
        let file = builder.make_in(directory_of(path), |path| options.open(path))?;
        // It shows others that this is no leftover; where the file system knows no locks there is nothing to do about
        // it.
        drop(file.as_file().try_lock());
        Ok(NewFile { file, path: path.to_path_buf() })
    }

    /// The file, to write to.
    #[must_use]
    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Gives the file its name. Returns its size in bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be synced or renamed: an older file of that name stays as it was. Or the directory cannot be
    /// synced: the file may lose its name in a crash.
    pub fn finish(self) -> io::Result<u64> {
        self.finish_by(|file, path| file.persist(path))
    }

    /// As [`Self::finish`], but an older file of that name makes no way.
    ///
    /// # Errors
    ///
    /// As there, and [`io::ErrorKind::AlreadyExists`] where the name is taken.
    pub fn finish_as_new(self) -> io::Result<u64> {
        self.finish_by(|file, path| file.persist_noclobber(path))
    }

    fn finish_by(
        self,
        persist: impl FnOnce(NamedTempFile, &Path) -> Result<File, tempfile::PersistError>,
    ) -> io::Result<u64> {
        self.file().sync_all()?;
        let size = self.file().metadata()?.len();
        persist(self.file, &self.path).map_err(|error| error.error)?;
        sync_directory_of(&self.path)?;
        Ok(size)
    }
}

/// The directory of a file.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs the directory of a file, so that the file's name, or its removal, is on the disk.
///
/// # Errors
///
/// The directory cannot be synced.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(directory_of(path))?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_being_written_is_no_leftover() {
        let place = tempfile::tempdir().unwrap();
        let temporary = Temporary { prefix: ".test-", suffix: ".tmp", mode: 0o600 };
        let file = NewFile::begin(&place.path().join("file"), &temporary).unwrap();
        fs::write(place.path().join(".test-abcdef.tmp"), "left").unwrap();
        temporary.remove_leftovers(place.path()).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        assert!(is_locked(&place.path().join("none")), "what cannot be opened may be in use");
        file.finish().unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().next().unwrap().unwrap().file_name(), "file");
    }

    #[test]
    fn what_is_to_be_new_takes_no_name_that_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let temporary = Temporary { prefix: ".test-", suffix: ".tmp", mode: 0o600 };
        let path = place.path().join("file");
        let finished = |text: &str| {
            let file = NewFile::begin(&path, &temporary).unwrap();
            assert!(fs::read_to_string(&path).is_ok_and(|before| before == "first") || !path.exists());
            file.file().write_all(text.as_bytes()).unwrap();
            file.finish_as_new()
        };
        assert_eq!(finished("first").unwrap(), 5);
        assert_eq!(finished("second").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    #[cfg(unix)]
    fn only_a_file_makes_way_for_a_whole_one() {
        let place = tempfile::tempdir().unwrap();
        let path = |name| place.path().join(name);
        fs::write(path("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
        let named = ["file", "free", "link", "dangling", "", "file/below"].map(|name| is_file_or_free(&path(name)));
        assert_eq!(named, [true, true, false, false, false, false]);
        assert!(!is_file_or_free(Path::new("/dev/null")));
    }
}
