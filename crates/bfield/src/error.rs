//! The failure of a field's file or log.

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of everything that reads or writes files.
pub type Result<T> = std::result::Result<T, FileError>;

/// The cause of a failure.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// What failed, in which file, at which byte, and why. `Display` prints one line: `FILE: at byte N: what: cause`.
#[derive(Debug)]
pub struct FileError {
    what: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    cause: Option<Cause>,
}

/// A [`FileError`] taken apart.
#[derive(Debug)]
pub struct FileErrorParts {
    /// What failed, and what to do where that helps.
    pub what: String,
    /// The file in which it failed.
    pub path: Option<PathBuf>,
    /// The byte of the file at which it failed.
    pub offset: Option<u64>,
    /// The cause.
    pub cause: Option<Cause>,
}

impl FileError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        FileError { what: what.into(), path: None, offset: None, cause: None }
    }

    pub(crate) fn in_file(self, path: &Path) -> Self {
        FileError { path: Some(path.to_path_buf()), ..self }
    }

    pub(crate) fn at(self, offset: u64) -> Self {
        FileError { offset: Some(offset), ..self }
    }

    pub(crate) fn because(self, cause: impl Into<Cause>) -> Self {
        FileError { cause: Some(cause.into()), ..self }
    }

    /// The parts of the failure, for an error type of the caller's.
    #[must_use]
    pub fn into_parts(self) -> FileErrorParts {
        let FileError { what, path, offset, cause } = self;
        FileErrorParts { what, path, offset, cause }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            // A name may hold control characters, which must not reach a terminal.
            write!(f, "{}: ", path.display().to_string().escape_debug())?;
        }
        if let Some(offset) = self.offset {
            write!(f, "at byte {offset}: ")?;
        }
        f.write_str(&self.what)?;
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as &(dyn std::error::Error + 'static))
    }
}
