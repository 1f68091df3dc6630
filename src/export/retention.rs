//! Old list files -> gone, so that a disk holds what it is meant to hold for as long as flowpeel runs.
//!
//! What enters: the names and sizes of what is in a directory and of what is written to it. What leaves: the names of what
//! is to be removed. Only files with exactly the names that flowpeel gives are counted or removed. A list in full and the
//! changes that build on it are a group, and go together, because without it they say nothing.

use crate::config::{CHANGES_FULL_LISTS_MAX, KEPT_AGED_MIN, KEPT_AGED_SHARE, KEPT_FILES_CHECK_LISTS, KEPT_FILES_MAX};
use crate::error::Error;
use crate::export::file_name::FileName;
use crate::export::series::Kind;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much of what was written is kept. What either of the two does not allow is removed, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Lists that ended longer than this before the newest are removed; with each that is written only a part of what there is
    /// ([`KEPT_AGED_SHARE`]), because a clock that leaps ahead for a moment is not to cost everything.
    pub age: Option<Duration>,
    /// The oldest are removed while all together have more bytes than this.
    pub size: Option<u64>,
}

impl Keep {
    fn is_limited(&self) -> bool {
        self.age.is_some() || self.size.is_some()
    }
}

/// The files of the largest group that flowpeel writes: its lists, and the sources beside each.
const KEPT_GROUP_MAX: u64 = 2 * CHANGES_FULL_LISTS_MAX;
const _: () = assert!(KEPT_GROUP_MAX < KEPT_FILES_MAX as u64, "what has to be removed together is remembered together");

/// What could not be removed in one go.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) path: PathBuf,
    pub(super) cause: io::Error,
}

/// Tells of failures to remove something: of the first, and then ever more seldom.
#[derive(Default)]
pub(super) struct Seldom {
    failure_count: u64,
}

impl Seldom {
    /// What to say of this one, if anything.
    pub(super) fn told(&mut self, failure: Failure) -> Option<Error> {
        self.failure_count += 1;
        let what = format!("can not remove what is not to be kept (failures so far: {})", self.failure_count);
        let error = Error::new(what).in_file(failure.path).because(failure.cause);
        self.failure_count.is_power_of_two().then_some(error)
    }
}

/// What there is in a directory, as far as it has to be known to say what is to go.
pub(super) struct Retention {
    directory: PathBuf,
    /// Whether it is about snapshots; else about lists. Files of the other kind are nothing to it.
    is_of_snapshots: bool,
    keep: Keep,
    /// The oldest files and their sizes, at most [`KEPT_FILES_MAX`].
    oldest: BTreeMap<FileName, u64>,
    /// Whether there are newer ones that are not among them.
    has_more: bool,
    total_size: u64,
    lists_since_look: u64,
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
        }
    }

    /// The same for snapshots.
    pub(super) fn of_snapshots(directory: &Path, keep: Keep) -> Self {
        Retention { is_of_snapshots: true, ..Retention::new(directory, keep) }
    }

    /// Removes what is too much of what is there before anything is written, as a disk that is full may call for. Files that ended after
    /// `now_s` (seconds since 1970) were named by a clock that was wrong: they make nothing old. One case of what could not be
    /// removed.
    ///
    /// Complexity: O(n log n) in the files of the directory.
    pub(super) fn opened(&mut self, now_s: i64) -> Option<Failure> {
        if !self.keep.is_limited() {
            return None;
        }
        let mut failure = None;
        loop {
            let newest = self.look(now_s).unwrap_or_else(|(newest, cause)| {
                failure = Some(cause);
                newest
            });
            let surplus = Surplus { newest, share: 1 };
            let before = self.oldest.len();
            failure = self.remove_surplus(surplus).or(failure.take());
            // What was remembered may be gone before what is too much is.
            if !self.has_more || self.oldest.len() == before || self.oldest_group(newest).is_some() {
                return failure;
            }
        }
    }

    /// Takes note of a file that was written, and removes what is now too much. What could not be removed, one case of it,
    /// is left alone until the directory is looked through again.
    ///
    /// Complexity: O(log n) a file that is removed; once in [`KEPT_FILES_CHECK_LISTS`] lists, a look at every name in the
    /// directory.
    pub(super) fn written(&mut self, name: FileName, size: u64, replaced_size: u64) -> Option<Failure> {
        if !self.keep.is_limited() {
            return None;
        }
        self.total_size = self.total_size.saturating_sub(replaced_size).saturating_add(size);
        self.remember(name, size);
        self.lists_since_look += 1;
        let mut failure = None;
        if self.lists_since_look > KEPT_FILES_CHECK_LISTS {
            failure = self.look(i64::MAX).err().map(|(_, failure)| failure);
        }
        let surplus = Surplus { newest: Some(name), share: KEPT_AGED_SHARE };
        failure = self.remove_surplus(surplus).or(failure);
        if self.has_more && self.oldest_group(surplus.newest).is_none() {
            failure = self.look(i64::MAX).err().map(|(_, failure)| failure).or(failure);
            failure = self.remove_surplus(surplus).or(failure);
        }
        failure
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

    /// Looks through the directory; the newest file that ended by then. When it can not be read to its end, what was found counts.
    fn look(&mut self, until_s: i64) -> Result<Option<FileName>, (Option<FileName>, Failure)> {
        self.lists_since_look = 0;
        self.oldest.clear();
        self.has_more = false;
        self.total_size = 0;
        let mut newest = None;
        let failure = |cause, directory: &Path| Failure { path: directory.to_path_buf(), cause };
        for entry in fs::read_dir(&self.directory).map_err(|cause| (newest, failure(cause, &self.directory)))? {
            let entry = entry.map_err(|cause| (newest, failure(cause, &self.directory)))?;
            let Some(name) = entry.file_name().to_str().and_then(FileName::parse) else { continue };
            if (name.kind == Kind::Snapshot) != self.is_of_snapshots {
                continue;
            }
            // What went away in between is none, and neither is a directory or a link of such a name.
            let Some(metadata) = entry.metadata().ok().filter(|metadata| metadata.is_file()) else { continue };
            self.total_size = self.total_size.saturating_add(metadata.len());
            self.remember(name, metadata.len());
            newest = newest.max(Some(name).filter(|name| name.end_s <= until_s));
        }
        Ok(newest)
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
            // Changes go before what they build on: whoever reads meanwhile finds no changes without it.
            for name in group.into_iter().rev() {
                let size = self.oldest.remove(&name).unwrap_or(0);
                self.total_size = self.total_size.saturating_sub(size);
                let path = self.directory.join(name.to_string());
                match fs::remove_file(&path) {
                    // What is not there was removed by somebody else.
                    Err(cause) if cause.kind() != io::ErrorKind::NotFound => failure = Some(Failure { path, cause }),
                    _ => {}
                }
            }
        }
        failure
    }

    /// The oldest list in full and what builds on it, unless that is the newest group, or that of the newest list.
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
        // The last may go on beyond what is remembered. When it is longer than any that flowpeel writes, it is what
        // somebody else left of several.
        (self.has_more && group.len() as u64 > KEPT_GROUP_MAX && !is_to_stay(&group)).then_some(group)
    }
}

#[cfg(test)]
mod tests;
