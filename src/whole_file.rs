//! Files that are whole or not there.
//!
//! What enters: a path, and bytes. What leaves: a file that appears under its name when all of it is on the disk, in the place of the
//! one before; whenever the process ends, the name stands for a whole file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// Letters and digits that tell files apart which are being written.
const TEMPORARY_LETTER_COUNT: usize = 6;

/// How a file is called while it is being written (this, some letters and digits, and that), and who may read it.
#[derive(Clone, Copy, Debug)]
pub struct Temporary {
    /// The beginning of its name.
    pub prefix: &'static str,
    /// The end of its name.
    pub suffix: &'static str,
    /// Its mode, less what the umask takes away.
    pub mode: u32,
}

impl Temporary {
    /// Removes from a directory what a process that was killed was writing.
    ///
    /// # Errors
    ///
    /// The directory can not be read, or such a file not be removed.
    pub fn remove_leftovers(&self, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|name| self.is_name(name)) && entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Whether a file of this name is one that was being written so: what is called otherwise is somebody else's.
    fn is_name(&self, name: &str) -> bool {
        let letters = name.strip_prefix(self.prefix).and_then(|name| name.strip_suffix(self.suffix));
        letters.is_some_and(|letters| {
            letters.len() == TEMPORARY_LETTER_COUNT && letters.bytes().all(|letter| letter.is_ascii_alphanumeric())
        })
    }
}

/// A file that is being written. It is removed when it is dropped unless it was finished.
pub struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl NewFile {
    /// Begins a file that is to be at this path.
    ///
    /// # Errors
    ///
    /// Its directory can not be written to.
    pub fn begin(path: &Path, temporary: &Temporary) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, temporary.mode);
        let mut builder = Builder::new();
        builder.prefix(temporary.prefix).suffix(temporary.suffix).rand_bytes(TEMPORARY_LETTER_COUNT);
        let file = builder.make_in(directory_of(path), |path| options.open(path))?;
        Ok(NewFile { file, path: path.to_path_buf() })
    }

    /// The file, to write to.
    #[must_use]
    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Puts it in its place; its size.
    ///
    /// # Errors
    ///
    /// It can not be forced to the disk or named; a file that was there stays as it was.
    pub fn finish(self) -> io::Result<u64> {
        self.file().sync_all()?;
        let size = self.file().metadata()?.len();
        self.file.persist(&self.path).map_err(|error| error.error)?;
        sync_directory_of(&self.path)?;
        Ok(size)
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes sure that the name of a file is on the disk, or that it is gone: a name is there only when its directory is.
///
/// # Errors
///
/// Its directory can not be forced to the disk.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(directory_of(path))?.sync_all()?;
    Ok(())
}
