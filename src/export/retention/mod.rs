//! The removal of old list files, so that a disk holds what it is meant to hold for as long as flowpeel runs.
//!
//! It takes the names and sizes of the files in a directory and of those written to it, and gives the names of the
//! files to remove. Only files with exactly the names that flowpeel gives are counted or removed. A list in full and
//! the changes that build on it are a group, and are removed together, since changes without it mean nothing.

use crate::error::Error;
use crate::export::file_name::{FileName, hour_directories};
use crate::export::output_directory::Replaced;
use crate::export::series::{CHANGES_FULL_LISTS_MAX, Kind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// The most list files, oldest first, that are remembered until they are due for removal: about two megabytes. More are
/// looked up in the directory when these are gone.
pub const KEPT_FILES_MAX: usize = 1 << 15;

/// Lists after which a directory is looked through again: somebody else may have removed files, and then too many would
/// be removed.
pub const KEPT_FILES_CHECK_LISTS: u64 = 360;

/// With each list or segment that is written, one in so many of the older ones may be removed for its age. The ends of
/// a day's lists say how old they are, and a clock that leaps ahead makes them all old at once: while it is wrong for a
/// few lists, most stay. A limit that was lowered is kept from the start, when all that is too old goes.
pub const KEPT_AGED_SHARE: usize = 32;

/// But at least so many may: more than comes in, so that what has to go does.
pub const KEPT_AGED_MIN: usize = 2;

/// How much of what was written is kept. What exceeds either limit is removed, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The longest time by which a list may have ended before the newest one. `None` turns this off. With each file
    /// that is written only a part of the older ones is removed ([`KEPT_AGED_SHARE`]), so that a clock that leaps ahead
    /// for a moment does not cost everything.
    pub age: Option<Duration>,
    /// The most bytes that all files together may have. `None` turns this off.
    pub size: Option<u64>,
}

impl Keep {
    fn is_limited(&self) -> bool {
        self.age.is_some() || self.size.is_some()
    }
}

/// The number of files in the largest group that flowpeel writes: its lists, and the sources beside each.
const KEPT_GROUP_MAX: u64 = 2 * CHANGES_FULL_LISTS_MAX;
const _: () = assert!(KEPT_GROUP_MAX < KEPT_FILES_MAX as u64, "what has to be removed together is remembered together");

/// A file that could not be removed.
#[derive(Debug)]
struct Failure {
    path: PathBuf,
    cause: io::Error,
}

/// Reports failures to remove files: the first, and then less and less often.
#[derive(Default)]
struct Seldom {
    failure_count: u64,
}

impl Seldom {
    /// The warning for this failure, if it is reported.
    fn warning(&mut self, failure: Failure) -> Option<Error> {
        self.failure_count += 1;
        let what = format!("cannot remove what is not to be kept (failures so far: {})", self.failure_count);
        let error = Error::new(what).in_file(failure.path).because(failure.cause);
        self.failure_count.is_power_of_two().then_some(error)
    }
}

/// The files in a directory, that have to be known to decide what to remove.
pub(super) struct Retention {
    directory: PathBuf,
    /// Whether snapshots are removed, or lists. Files of the other kind are ignored.
    is_of_snapshots: bool,
    keep: Keep,
    /// The oldest files and their sizes, at most [`KEPT_FILES_MAX`].
    oldest: BTreeMap<FileName, u64>,
    /// Whether there are newer files that are not in `oldest`.
    has_more: bool,
    total_size: u64,
    lists_since_look: u64,
    failures: Seldom,
}

/// What is removed at once.
#[derive(Clone, Copy)]
struct Surplus {
    /// The newest file, which stays, with what it builds on; none where all that there is ended in the future.
    newest: Option<FileName>,
    /// One in so many of the files that are remembered may go for its age.
    share: usize,
}

impl Retention {
    pub(super) fn new(directory: &Path, keep: Keep) -> Self {
        Retention {
            directory: directory.to_path_buf(),
            is_of_snapshots: false,
            keep,
            oldest: BTreeMap::new(),
            has_more: true,
            total_size: 0,
            lists_since_look: KEPT_FILES_CHECK_LISTS,
            failures: Seldom::default(),
        }
    }

    /// The retention of snapshots.
    pub(super) fn of_snapshots(directory: &Path, keep: Keep) -> Self {
        Retention { is_of_snapshots: true, ..Retention::new(directory, keep) }
    }

    /// Removes what is too much before anything is written, as a full disk may call for. Files that ended after `now_s`
    /// (seconds since 1970) were named by a wrong clock and make no other old. Returns the warning that one of the
    /// files could not be removed, if any.
    ///
    /// Complexity: O(n log n) in the files of the directory.
    pub(super) fn opened(&mut self, now_s: i64) -> Option<Error> {
        if !self.keep.is_limited() {
            return None;
        }
        let mut failure = None;
        loop {
            let (newest, unread) = self.look(now_s);
            let before = self.oldest.len();
            let unremoved = self.remove_surplus(Surplus { newest, share: 1 });
            // Another look would find again, for ever, what cannot be removed.
            let is_stuck = unremoved.is_some() || self.oldest.len() == before;
            failure = unremoved.or(unread).or(failure);
            // The remembered files may be used up before enough was removed.
            if is_stuck || !self.has_more || self.oldest_group(newest).is_some() {
                return failure.and_then(|failure| self.failures.warning(failure));
            }
        }
    }

    /// Notes a file that was written, and removes what is now too much. Returns the warning that one of the files could
    /// not be removed, if that is reported; these are left alone until the directory is looked through again.
    ///
    /// Complexity: O(log n) for each file that is removed; once in [`KEPT_FILES_CHECK_LISTS`] lists, a look at every
    /// name in the directory.
    pub(super) fn written(&mut self, name: FileName, sizes: Replaced) -> Option<Error> {
        if !self.keep.is_limited() {
            return None;
        }
        self.total_size = self.total_size.saturating_sub(sizes.before).saturating_add(sizes.size);
        self.remember(name, sizes.size);
        self.lists_since_look += 1;
        let mut failure = None;
        if self.lists_since_look > KEPT_FILES_CHECK_LISTS {
            (_, failure) = self.look(i64::MAX);
        }
        let surplus = Surplus { newest: Some(name), share: KEPT_AGED_SHARE };
        failure = self.remove_surplus(surplus).or(failure);
        // The remembered files may be used up before enough was removed.
        if self.has_more && self.oldest_group(surplus.newest).is_none() {
            let (_, unread) = self.look(i64::MAX);
            failure = self.remove_surplus(surplus).or(unread).or(failure);
        }
        failure.and_then(|failure| self.failures.warning(failure))
    }

    fn remember(&mut self, name: FileName, size: u64) {
        let is_beyond = self.oldest.last_key_value().is_none_or(|(last, _)| name > *last);
        if self.has_more && is_beyond {
            return;
        }
        self.oldest.insert(name, size);
        if self.oldest.len() > KEPT_FILES_MAX {
            self.oldest.pop_last();
            self.has_more = true;
        }
    }

    /// Looks through the directory, and returns the newest file that had ended at `until_s`. If the directory cannot be
    /// read to its end, what was found until then counts, and the failure is returned too.
    fn look(&mut self, until_s: i64) -> (Option<FileName>, Option<Failure>) {
        self.lists_since_look = 0;
        self.oldest.clear();
        self.has_more = false;
        self.total_size = 0;
        let mut newest = None;
        let read = self.look_through(until_s, &mut newest);
        (newest, read.err().map(|cause| Failure { path: self.directory.clone(), cause }))
    }

    fn look_through(&mut self, until_s: i64, newest: &mut Option<FileName>) -> io::Result<()> {
        let hours = if self.is_of_snapshots { Vec::new() } else { hour_directories(&self.directory)? };
        for directory in [self.directory.clone()].iter().chain(&hours) {
            self.look_into(directory, until_s, newest)?;
        }
        Ok(())
    }

    fn look_into(&mut self, directory: &Path, until_s: i64, newest: &mut Option<FileName>) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().and_then(FileName::parse) else { continue };
            // One that stands elsewhere than it belongs was put there by somebody.
            let path = self.directory.join(name.path());
            if (name.kind == Kind::Snapshot) != self.is_of_snapshots || path.parent() != Some(directory) {
                continue;
            }
            // A file that has gone away meanwhile does not count, nor does a directory or a link of such a name.
            let Some(metadata) = entry.metadata().ok().filter(|metadata| metadata.is_file()) else { continue };
            self.total_size = self.total_size.saturating_add(metadata.len());
            self.remember(name, metadata.len());
            *newest = (*newest).max(Some(name).filter(|name| name.end_s <= until_s));
        }
        Ok(())
    }

    fn remove_surplus(&mut self, Surplus { newest, share }: Surplus) -> Option<Failure> {
        let age_s = self.keep.age.map(|age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
        let oldest_s = age_s.zip(newest).map_or(i64::MIN, |(age_s, newest)| newest.end_s.saturating_sub(age_s));
        let aged_max = (self.oldest.len() / share).max(KEPT_AGED_MIN);
        let mut aged_count = 0;
        let mut failure = None;
        while let Some(group) = self.oldest_group(newest) {
            let is_old = aged_count < aged_max && group.last().is_some_and(|last| last.end_s < oldest_s);
            let is_surplus = self.keep.size.is_some_and(|size| self.total_size > size);
            if !is_old && !is_surplus {
                break;
            }
            aged_count += group.len();
            // Changes are removed before what they build on, so that no reader finds changes without it.
            for name in group.into_iter().rev() {
                let size = self.oldest.remove(&name).unwrap_or(0);
                self.total_size = self.total_size.saturating_sub(size);
                let path = self.directory.join(name.path());
                let removed = fs::remove_file(&path);
                self.remove_emptied(&path);
                match removed {
                    // A file that is not there was removed by somebody else.
                    Err(cause) if cause.kind() != io::ErrorKind::NotFound => failure = Some(Failure { path, cause }),
                    _ => {}
                }
            }
        }
        failure
    }

    /// Removes the directories of the hour and the day that this file was in, if they are empty now.
    fn remove_emptied(&self, path: &Path) {
        let above = path.ancestors().skip(1).take_while(|directory| *directory != self.directory);
        // What is not empty stays.
        above.take(2).for_each(|directory| drop(fs::remove_dir(directory)));
    }

    /// The oldest list in full and what builds on it, unless that is the newest group or holds the newest list.
    fn oldest_group(&self, newest: Option<FileName>) -> Option<Vec<FileName>> {
        let is_to_stay = |group: &[FileName]| newest.is_some_and(|newest| group.contains(&newest));
        let mut group = Vec::new();
        for name in self.oldest.keys() {
            // Sources stand beside a list, and changes build on one: neither begins a group.
            let is_first = matches!(name.kind, Kind::Full | Kind::Snapshot);
            if is_first && !group.is_empty() {
                if !is_to_stay(&group) {
                    return Some(group);
                }
                group.clear();
            }
            group.push(*name);
        }
        // The last group may continue beyond what is remembered. If it is longer than any that flowpeel writes, it is
        // what somebody else left of several groups.
        (self.has_more && group.len() as u64 > KEPT_GROUP_MAX && !is_to_stay(&group)).then_some(group)
    }
}

#[cfg(test)]
mod tests;
