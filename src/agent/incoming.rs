//! The directory of snapshots -> the files that are still to be read.
//!
//! It takes a directory into which snapshots are written or copied, and gives at each look the new names, in order, and
//! those of files that could not be read before and have changed since. Only names that flowpeel gives to snapshots are
//! looked at.

use super::position::Run;
use crate::error::{Error, Result};
use crate::export::SnapshotName;
use crate::snapshot::SnapshotFile;
use flowpeel_iblt::hash::Secret;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What shows whether a file was written to since it was last checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Stamp { size: metadata.len(), modified: metadata.modified().ok() }
    }
}

/// What became of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The file was applied, or another covers it.
    Done,
    /// The file could not be read, and may still be arriving.
    Doubtful(Stamp),
    /// The file could not be read, and has not changed since.
    Refused(Stamp),
}

/// What came of reading a file of [`Incoming`].
pub enum Settled<T> {
    /// This was read.
    Read(T),
    /// Another file covers it.
    Covered,
    /// It could not be read, and is given up.
    Refused(Error),
    /// It could not be read, and may still be arriving.
    Doubtful,
}

/// A directory of snapshots.
pub struct Incoming {
    path: PathBuf,
    /// The files that were there at the last look, and what became of each.
    known: BTreeMap<SnapshotName, Fate>,
}

impl Incoming {
    /// A directory. Of the files that are there, those that end no later than the first part of `done` count as read,
    /// unless they were written after the second part: then the clock of the router was set back.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn new(path: PathBuf, done: Option<(SnapshotName, SystemTime)>) -> Result<Self> {
        let mut incoming = Incoming { path, known: BTreeMap::new() };
        let names = incoming.names()?;
        if let Some((last, since)) = done {
            for name in names.into_iter().filter(|name| *name <= last) {
                let modified = incoming.metadata(name).and_then(|metadata| metadata.modified().ok());
                if modified.is_none_or(|modified| modified <= since) {
                    incoming.known.insert(name, Fate::Done);
                }
            }
        }
        Ok(incoming)
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    #[must_use]
    pub fn file(&self, name: SnapshotName) -> PathBuf {
        self.path.join(name.to_string())
    }

    fn metadata(&self, name: SnapshotName) -> Option<Metadata> {
        fs::metadata(self.file(name)).ok()
    }

    fn names(&self) -> Result<Vec<SnapshotName>> {
        let cannot = |error: io::Error| Error::new("cannot look for snapshots here").in_file(&self.path).because(error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(cannot)? {
            names.extend(entry.map_err(cannot)?.file_name().to_str().and_then(SnapshotName::parse));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The files to read, in the order of names.
    ///
    /// Complexity: a look at every name in the directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn look(&mut self) -> Result<Vec<SnapshotName>> {
        let names = self.names()?;
        let mut known = BTreeMap::new();
        let mut due = Vec::new();
        for name in names {
            match self.known.get(&name) {
                Some(Fate::Done) => drop(known.insert(name, Fate::Done)),
                Some(Fate::Refused(stamp)) if self.stamp(name) == Some(*stamp) => {
                    known.insert(name, Fate::Refused(*stamp));
                }
                Some(doubtful @ Fate::Doubtful(_)) => {
                    known.insert(name, *doubtful);
                    due.push(name);
                }
                _ => due.push(name),
            }
        }
        self.known = known;
        Ok(due)
    }

    fn stamp(&self, name: SnapshotName) -> Option<Stamp> {
        self.metadata(name).map(|metadata| Stamp::of(&metadata))
    }

    /// These files in the order in which they were made. That is the order of their names, unless a clock stepped
    /// back: then some names have numbers, and the files are read to find out.
    #[must_use]
    pub fn ordered(&self, names: Vec<SnapshotName>, secret: &Secret) -> Vec<SnapshotName> {
        if names.len() < 2 || names.iter().all(|name| name.number() == 1) {
            return names;
        }
        let mut runs: Vec<Run> = Vec::new();
        let mut ordered: Vec<(usize, (u64, i64), SnapshotName)> = Vec::new();
        for name in names {
            // A file that cannot be read is reported when its turn comes.
            let snapshot = SnapshotFile::open(&self.file(name), secret).ok();
            let source = snapshot.and_then(|snapshot| snapshot.header.sources.into_iter().next()).unwrap_or_default();
            let run = Run::of(&source);
            let at = runs.iter().position(|known| known.is_same(&run)).unwrap_or_else(|| {
                runs.push(run.clone());
                runs.len() - 1
            });
            ordered.push((at, run.end(), name));
        }
        ordered.sort_unstable();
        ordered.into_iter().map(|(.., name)| name).collect()
    }

    /// The files that could not be read at the last look and may still be arriving.
    #[must_use]
    pub fn doubtful(&self) -> Vec<SnapshotName> {
        let doubtful = self.known.iter().filter(|(_, fate)| matches!(fate, Fate::Doubtful(_)));
        doubtful.map(|(name, _)| *name).collect()
    }

    /// Notes that a file was read, or is covered.
    pub fn done(&mut self, name: SnapshotName) {
        self.known.insert(name, Fate::Done);
    }

    /// Notes what came of reading a file: something, nothing since another covers it, or an error. What was read is
    /// [`Self::done`] once it is dealt with.
    pub fn settle<T>(&mut self, name: SnapshotName, read: Result<Option<T>>, is_last_look: bool) -> Settled<T> {
        match read {
            Ok(Some(read)) => Settled::Read(read),
            Ok(None) => {
                self.done(name);
                Settled::Covered
            }
            Err(error) if self.give_up(name, is_last_look) => Settled::Refused(error),
            Err(_) => Settled::Doubtful,
        }
    }

    /// Gives up a file that could not be read, if this is the last look or nothing has been written to it since it
    /// could not be read before; otherwise it stays doubtful. Returns whether it was given up. A file that has gone
    /// away is forgotten.
    fn give_up(&mut self, name: SnapshotName, is_last_look: bool) -> bool {
        let Some(stamp) = self.stamp(name) else {
            self.known.remove(&name);
            return false;
        };
        let is_given_up = is_last_look || self.known.get(&name) == Some(&Fate::Doubtful(stamp));
        self.known.insert(name, if is_given_up { Fate::Refused(stamp) } else { Fate::Doubtful(stamp) });
        is_given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_file_on_its_way_is_waited_for_and_one_that_does_not_get_better_is_given_up() {
        let place = tempfile::tempdir().unwrap();
        let name = SnapshotName::parse("snapshot-20260101T000010Z.flowpeel").unwrap();
        let mut incoming = Incoming::new(place.path().to_path_buf(), None).unwrap();
        fs::write(place.path().join("notes.txt"), "x").unwrap();
        assert!(incoming.look().unwrap().is_empty());
        for text in ["a", "ab"] {
            fs::write(incoming.file(name), text).unwrap();
            assert_eq!(incoming.look().unwrap(), [name]);
            assert!(!incoming.give_up(name, false), "it may get longer");
            assert_eq!(incoming.doubtful(), [name]);
        }
        assert_eq!(incoming.look().unwrap(), [name], "it is looked at once more");
        assert!(incoming.give_up(name, false));
        assert!(incoming.look().unwrap().is_empty() && incoming.doubtful().is_empty());
        fs::write(incoming.file(name), "abc").unwrap();
        assert_eq!(incoming.look().unwrap(), [name], "somebody has written to it");
        incoming.done(name);
        fs::write(incoming.file(name), "abcd").unwrap();
        assert!(incoming.look().unwrap().is_empty());
        fs::remove_file(incoming.file(name)).unwrap();
        assert!(incoming.look().unwrap().is_empty() && !incoming.give_up(name, true), "what is gone is nothing");
    }

    #[test]
    fn what_was_dealt_with_before_is_left_alone_unless_it_is_newer() {
        let place = tempfile::tempdir().unwrap();
        let names: Vec<_> =
            (1..=4).map(|at| SnapshotName::parse(&format!("snapshot-20260101T0000{at}0Z.flowpeel")).unwrap()).collect();
        names.iter().for_each(|name| fs::write(place.path().join(name.to_string()), "x").unwrap());
        let since = SystemTime::now() + Duration::from_secs(60);
        let later = fs::File::options().write(true).open(place.path().join(names[0].to_string())).unwrap();
        later.set_modified(since + Duration::from_secs(1)).unwrap();
        let mut incoming = Incoming::new(place.path().to_path_buf(), Some((names[2], since))).unwrap();
        assert_eq!(incoming.look().unwrap(), [names[0], names[3]]);
        assert!(Incoming::new(place.path().join("none"), None).is_err());
    }
}
