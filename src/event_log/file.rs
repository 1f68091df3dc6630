//! A file that grows, is continued under another name when it is large or old, and is opened anew when somebody moves
//! it.
//!
//! What stands in it is never changed or cut: somebody may be reading along.

use crate::error::{Error, Result};
use crate::export::rfc3339;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often it is checked whether the file is still where it was.
const MOVED_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// When a file is continued under another name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// When it has this size, in bytes.
    pub size: Option<u64>,
    /// When the time of events reaches a multiple of this.
    pub age: Option<Duration>,
}

/// A file of events.
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
    rotation: Rotation,
    size: u64,
    /// The period of [`Rotation::age`] that the file is of, since its first event.
    period: Option<i64>,
    checked: Instant,
}

impl EventFile {
    /// Opens the file to be appended to, and makes it if there is none. What an earlier run left of a line becomes a
    /// line of its own.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub(super) fn open(path: &Path, rotation: Rotation) -> Result<Self> {
        let cannot = |error| Error::new("cannot open the file of events").in_file(path).because(error);
        let (file, size) = open(path).map_err(cannot)?;
        Ok(EventFile { path: path.to_owned(), file, rotation, size, period: None, checked: Instant::now() })
    }

    /// Writes as much as the system takes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.checked.elapsed() >= MOVED_CHECK_INTERVAL && self.is_moved() {
            self.reopen()?;
        }
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    /// Whether the next event, of this time, belongs to another file.
    pub(super) fn is_due(&mut self, time_ns: i64) -> bool {
        let period = self.rotation.age.map(|age| time_ns.div_euclid(age.as_nanos().max(1) as i64));
        let is_old = self.period.is_some() && self.period != period;
        self.period = period;
        is_old || self.rotation.size.is_some_and(|size| self.size >= size)
    }

    /// Gives what was written another name, with the time of the event before which it ends, and begins a new file.
    pub(super) fn rotate(&mut self, time_ns: i64) -> io::Result<()> {
        if self.size > 0 {
            std::fs::rename(&self.path, self.free_name(time_ns))?;
        }
        self.reopen()
    }

    /// `events.ndjson` becomes `events-20260101T000010Z.ndjson`, or `events-20260101T000010Z-2.ndjson` if that is
    /// taken.
    fn free_name(&self, time_ns: i64) -> PathBuf {
        let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let stem = text(self.path.file_stem()).unwrap_or_default();
        let extension = text(self.path.extension()).map_or_else(String::new, |extension| format!(".{extension}"));
        let time: String = rfc3339(time_ns).chars().take(19).filter(char::is_ascii_alphanumeric).collect();
        let name = |number: u64| match number {
            1 => self.path.with_file_name(format!("{stem}-{time}Z{extension}")),
            number => self.path.with_file_name(format!("{stem}-{time}Z-{number}{extension}")),
        };
        (1..).map(name).find(|name| !name.exists()).unwrap_or_else(|| self.path.clone())
    }

    /// Opens the file under its name again: what was open has been moved or removed.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.size) = open(&self.path)?;
        Ok(())
    }

    fn is_moved(&mut self) -> bool {
        self.checked = Instant::now();
        let Ok(open) = self.file.metadata() else { return false };
        // Only a file that has a name can have been given another one.
        let is_file = open.is_file();
        let named = std::fs::metadata(&self.path);
        is_file && named.map_or(true, |named| (named.dev(), named.ino()) != (open.dev(), open.ino()))
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.len() > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    let size = if metadata.is_file() { file.metadata()?.len() } else { 0 };
    Ok((file, size))
}
