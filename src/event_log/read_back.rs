//! A log as an earlier run left it: its last line, what is left of a line that was cut, and the connections that ended
//! behind a place in it.
//!
//! A log is the file that is appended to and those that it was continued under: the names that rotation gives, and
//! those that begin with the file's own (`events.ndjson.1`), as other programs give them.

use crate::export::{Logged, LoggedLine};
use crate::record::Remembered;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The longest line that is taken for one of ours, many times as long as any is: more of a file is not read at once.
const LINE_SIZE_MAX: u64 = 64 << 10;

/// The end of a file.
#[derive(Default)]
pub(super) struct Tail {
    /// The last line of an event, and what it says.
    pub(super) last: Option<(Vec<u8>, LoggedLine)>,
    /// What follows the last line end: a line that was cut.
    pub(super) fragment: Vec<u8>,
}

impl Tail {
    /// The end of this file; nothing where there is none.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Tail::default()),
            opened => opened?,
        };
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(LINE_SIZE_MAX)))?;
        let mut bytes = Vec::new();
        file.take(LINE_SIZE_MAX).read_to_end(&mut bytes)?;
        let whole_size = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let fragment = bytes.split_off(whole_size);
        let mut lines = bytes.split(|byte| *byte == b'\n').rev();
        let last = lines.find_map(|line| Some((line.to_vec(), LoggedLine::read(line)?)));
        Ok(Tail { last, fragment })
    }
}

/// The last line of the log at this path: that of the file itself or, where it has none, of the newest of those that it
/// was continued under.
pub(super) fn last_line(path: &Path) -> io::Result<Option<(Vec<u8>, LoggedLine)>> {
    if let Some(last) = Tail::of(path)?.last {
        return Ok(Some(last));
    }
    let mut newest = None;
    for (path, metadata) in continued(path)? {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        // Only the end of a file that may be the newest is read. Two can be of one tick of the file system's clock.
        if newest.as_ref().is_some_and(|(newest, _)| *newest > modified) {
            continue;
        }
        let Some(last) = Tail::of(&path)?.last else { continue };
        let order = |line: &LoggedLine| (line.sequence(), line.timestamp.clone());
        let is_newer =
            newest.as_ref().is_none_or(|(before, (_, line))| (*before, order(line)) <= (modified, order(&last.1)));
        if is_newer {
            newest = Some((modified, last));
        }
    }
    Ok(newest.map(|(_, last)| last))
}

/// The files that the one at this path was continued under.
fn continued(path: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let text =
        |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
    let (name, stem) = (text(path.file_name()), text(path.file_stem()) + "-");
    let extension = path.extension().map_or_else(String::new, |extension| format!(".{}", extension.to_string_lossy()));
    let is_ours = |other: &str| {
        let time = other.strip_prefix(&stem).and_then(|rest| rest.strip_suffix(&extension));
        let is_rotated = time.is_some_and(|time| time.starts_with(|first: char| first.is_ascii_digit()));
        other != name && (other.starts_with(&name) || is_rotated)
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(crate::disk::whole_file::directory_of(path))? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_ours) {
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                files.push((entry.path(), metadata));
            }
        }
    }
    Ok(files)
}

/// A place in a log: up to here it was written when the state was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePlace {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// The size of the file, in bytes.
    pub(super) size: u64,
    /// When it was last written to, in s and ns since 1970.
    pub(super) modified: (i64, i64),
}

impl FilePlace {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        FilePlace { device: metadata.dev(), inode: metadata.ino(), size: metadata.len(), modified }
    }

    fn is_in(&self, metadata: &Metadata) -> bool {
        (self.device, self.inode) == (metadata.dev(), metadata.ino()) && metadata.len() >= self.size
    }
}

/// What a log holds behind a place.
pub(super) struct Behind {
    /// The connections that ended.
    pub(super) ended: Remembered,
    /// The number of the last event, where lines have numbers.
    pub(super) sequence: u64,
    /// Whether the file of the place is still there.
    pub(super) is_whole: bool,
}

impl Behind {
    /// Reads the log at this path behind a place. `ended` is remembered already.
    pub(super) fn read(path: &Path, place: &FilePlace, ended: Remembered) -> io::Result<Self> {
        let mut behind = Behind { ended, sequence: 0, is_whole: false };
        let mut files = continued(path)?;
        // Those that were last written to before the place was are older than it.
        files.retain(|(_, metadata)| (metadata.mtime(), metadata.mtime_nsec()) >= place.modified);
        files.sort_by_key(|(path, metadata)| (metadata.mtime(), metadata.mtime_nsec(), path.clone()));
        if let Ok(metadata) = fs::metadata(path) {
            files.push((path.to_owned(), metadata));
        }
        for (path, metadata) in files {
            let is_there = place.is_in(&metadata);
            behind.is_whole |= is_there;
            behind.read_file(&path, if is_there { place.size } else { 0 })?;
        }
        behind.ended.sort();
        Ok(behind)
    }

    fn read_file(&mut self, path: &Path, offset: u64) -> io::Result<()> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut lines = BufReader::with_capacity(LINE_SIZE_MAX as usize, file);
        let mut line = Vec::new();
        // What is longer than a line can be is read as several, none of which is one.
        while (&mut lines).take(LINE_SIZE_MAX).read_until(b'\n', &mut line)? > 0 {
            if let Some(read) = LoggedLine::read(&line) {
                self.line(read);
            }
            line.clear();
        }
        Ok(())
    }

    fn line(&mut self, line: LoggedLine) {
        if let Logged::Flow { flow_id, is_closed, is_taken_back, .. } = line.about {
            if is_closed {
                self.ended.remember(flow_id);
            } else if is_taken_back {
                self.ended.take_back(flow_id);
            }
        }
        self.sequence = self.sequence.max(line.sequence().unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line as a log has it.
    fn line(flow_id: u64, seq: u64, change: &str) -> String {
        let state = if change == "closed" { "closed" } else { "established" };
        let (time, flow) = (format!("2026-01-01T00:00:{seq:02}.000000Z"), format!("{{\"state\":\"{state}\"}}"));
        format!(
            "{{\"timestamp\":\"{time}\",\"event_type\":\"flow\",\"change\":\"{change}\",\"seq\":{seq},\"flow_id\":{flow_id},\"flow\":{flow}}}\n"
        )
    }

    #[test]
    fn the_end_of_a_file_is_its_last_line_and_what_was_cut() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("events.ndjson");
        assert!(Tail::of(&path).unwrap().last.is_none());
        let cut = "{\"timestamp\":\"2026";
        for (text, last, fragment) in [
            (String::new(), None, ""),
            (cut.to_owned(), None, cut),
            (line(7, 1, "closed") + &line(8, 2, "closed"), Some(2), ""),
            (line(7, 1, "closed") + cut, Some(1), cut),
            (line(7, 1, "closed") + "of another program\n\n" + cut, Some(1), cut),
            ("x".repeat(100_000) + "\n" + &line(7, 1, "closed"), Some(1), ""),
        ] {
            fs::write(&path, &text).unwrap();
            let tail = Tail::of(&path).unwrap();
            assert_eq!(tail.last.and_then(|(_, line)| line.sequence()), last, "{text:.80}");
            assert_eq!(tail.fragment, fragment.as_bytes());
        }
    }

    #[test]
    fn the_last_line_is_in_the_newest_file_that_has_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("events.ndjson");
        let number = || last_line(&path).unwrap().and_then(|(_, line)| line.sequence());
        assert_eq!(number(), None);
        fs::write(place.path().join("events-open.ndjson"), line(1, 90, "closed")).unwrap();
        assert_eq!(number(), None, "another log");
        fs::write(place.path().join("events-20260101T000010Z.ndjson"), line(1, 3, "closed")).unwrap();
        fs::write(place.path().join("events-20260101T000010Z-2.ndjson"), line(1, 4, "closed")).unwrap();
        assert_eq!(number(), Some(4));
        fs::write(place.path().join("events.ndjson.1"), line(1, 5, "closed")).unwrap();
        assert_eq!(number(), Some(5));
        fs::write(&path, "{\"cut").unwrap();
        assert_eq!(number(), Some(5));
        fs::write(&path, line(1, 6, "closed") + "{\"cut").unwrap();
        assert_eq!(number(), Some(6));
    }

    #[test]
    fn what_ended_behind_a_place_is_remembered_through_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.ndjson");
        fs::write(&path, line(1, 1, "closed")).unwrap();
        let place = FilePlace::of(&fs::metadata(&path).unwrap());
        let unmet = |place: &FilePlace| {
            let behind = Behind::read(&path, place, Remembered::default()).unwrap();
            (behind.ended.unmet().collect::<Vec<_>>(), behind.sequence, behind.is_whole)
        };
        assert_eq!(unmet(&place), (vec![], 0, true));
        fs::write(&path, [line(1, 1, "closed"), line(2, 2, "closed"), line(3, 3, "closed")].concat()).unwrap();
        fs::rename(&path, directory.path().join("events-20260101T000010Z.ndjson")).unwrap();
        fs::write(&path, line(3, 4, "reopened") + &line(4, 5, "opened") + &line(5, 6, "closed") + "{\"cut").unwrap();
        assert_eq!(unmet(&place), (vec![2, 5], 6, true));
        fs::remove_file(directory.path().join("events-20260101T000010Z.ndjson")).unwrap();
        assert_eq!(unmet(&place), (vec![5], 6, false), "the file of the place is gone");
    }
}
