//! A file that grows, is continued under another name when it is large or old, and is opened anew when somebody moves
//! it.
//!
//! What stands in it is never changed or cut: somebody may be reading along.

use crate::error::{Error, Result};
use crate::event_log::read_back::FilePlace;
use crate::export::events_stem;
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
    /// Whether what is left behind has to be on the disk, because a state that is saved later takes it to be there.
    syncs: bool,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) cut: CutLine,
    /// Whether the state of the run is saved.
    pub(super) syncs: bool,
}

impl EventFile {
    /// Opens the file to be appended to, and makes it if there is none.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub(super) fn open(path: &Path, rotation: Rotation, opening: Opening) -> Result<Self> {
        let cannot = |error| Error::new("cannot open the file of events").in_file(path).because(error);
        let (file, size) = open(path, opening.cut).map_err(cannot)?;
        let (path, syncs) = (path.to_owned(), opening.syncs);
        Ok(EventFile { path, file, rotation, size, period: None, checked: Instant::now(), syncs })
    }

    /// The path that the file has while it is appended to.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How far the file is written, once that is on the disk.
    pub(super) fn synced(&mut self) -> io::Result<FilePlace> {
        self.file.sync_data()?;
        Ok(FilePlace::of(&self.file.metadata()?))
    }

    /// How far the file is written.
    pub(super) fn place(&self) -> io::Result<FilePlace> {
        Ok(FilePlace::of(&self.file.metadata()?))
    }

    /// The period of [`Rotation::age`] that the file is of.
    pub(super) fn period(&self) -> Option<i64> {
        self.period
    }

    /// Continues in this period.
    pub(super) fn set_period(&mut self, period: Option<i64>) {
        self.period = period;
    }

    /// Writes as much as the system takes. A file that was moved is left behind a whole record only.
    pub(super) fn write(&mut self, bytes: &[u8], is_at_record: bool) -> io::Result<usize> {
        if is_at_record && self.checked.elapsed() >= MOVED_CHECK_INTERVAL && self.is_moved() {
            self.reopen()?;
        }
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    /// Whether the next event, of this time, belongs to another file. So many bytes are to be written before it.
    pub(super) fn is_due(&mut self, time_ns: i64, waiting_size: usize) -> bool {
        let period = self.rotation.age.map(|age| time_ns.div_euclid(age.as_nanos().max(1) as i64));
        let is_old = self.period.is_some() && self.period != period;
        self.period = period;
        is_old || self.rotation.size.is_some_and(|size| self.size + waiting_size as u64 >= size)
    }

    /// Gives what was written another name, with the time of the event before which it ends, and begins a new file.
    pub(super) fn rotate(&mut self, time_ns: i64) -> io::Result<()> {
        if self.size > 0 {
            if self.syncs {
                self.file.sync_data()?;
            }
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
        let name = |number| self.path.with_file_name(events_stem(&stem, time_ns, number) + &extension);
        (1..).map(name).find(|name| !name.exists()).unwrap_or_else(|| self.path.clone())
    }

    /// Opens the file under its name again: what was open has been moved or removed.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.size) = open(&self.path, CutLine::Ended)?;
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

/// What becomes of a line at the end of a file that an earlier run left cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutLine {
    /// It is ended, and so becomes a line of its own.
    Ended,
    /// It stays as it is: who writes makes it whole.
    Kept,
}

fn open(path: &Path, cut: CutLine) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.len() > 0 && cut == CutLine::Ended {
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
