//! The newest list of each router, read from the directories in which lists are written.
//!
//! A directory is that of one router (`flowpeel live --out`), or has a folder for each (`flowpeel-fleet collect`). A
//! router is named by its folder. Where lists are written as changes the last one in full is read, with the changes
//! since; these have no half-open connections. Where collectors share the partitions there is a directory for each
//! share, with parts of the router's lists.

use crate::subject;
use flowpeel::error::{Error, Result};
use flowpeel::export::{ListFacts, ListFile, ListName};
use flowpeel::flow::AnyKey;
use flowpeel::list::{Row, RowState};
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fs;
use std::io;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What changes a directory within this time of another change may leave it with the same time stamp.
const STAMP_RESOLUTION: Duration = Duration::from_secs(2);

/// Where the lists of a router are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its name.
    pub router: String,
    /// The directory of its lists.
    pub directory: PathBuf,
}

fn cannot_look(directory: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::new("cannot look for lists here").in_file(directory).because(error)
}

/// The routers whose lists are in these directories, by name. One whose lists are in parts is there once for each.
///
/// # Errors
///
/// A directory cannot be read.
pub fn places(directories: &[PathBuf]) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for directory in directories {
        let cannot = cannot_look(directory);
        let directory = directory.canonicalize().map_err(&cannot)?;
        if !names(&directory)?.is_empty() {
            places.push(place(directory));
            continue;
        }
        for entry in fs::read_dir(&directory).map_err(&cannot)? {
            let entry = entry.map_err(&cannot)?;
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !is_hidden && entry.path().is_dir() {
                places.push(place(entry.path()));
            }
        }
    }
    places.sort_unstable();
    Ok(places)
}

fn place(directory: PathBuf) -> Place {
    let folder = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Place { router: subject::router_of_folder(&folder).unwrap_or(folder), directory }
}

/// The names of the lists in a directory, in order.
pub(crate) fn names(directory: &Path) -> Result<Vec<ListName>> {
    ListName::all_in(directory).map_err(cannot_look(directory))
}

/// What is known of the newest list of a router before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestFacts {
    /// What it says of itself.
    pub list: ListFacts,
    /// Whether the list before it in the directory has no lower number: the router began anew.
    pub is_restarted: bool,
    /// When the file was written.
    pub written: SystemTime,
}

/// The newest list of a router, to be read.
pub struct NewestList {
    /// What is known of it.
    pub facts: NewestFacts,
    full: ListFile,
    /// What became of connections since the list in full; `None` where the newest is in full.
    changed: Option<BTreeMap<AnyKey, Option<Row>>>,
}

/// What tells whether a newer list has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// When the directory of the newest list had changed, and those above it: a new directory of an hour changes one of
    /// these.
    directories_changed: Vec<SystemTime>,
    newest: Option<(ListName, SystemTime)>,
}

impl Mark {
    /// Whether another list is the newest than at that mark.
    #[must_use]
    pub fn is_other(&self, before: &Mark) -> bool {
        self.newest != before.newest
    }
}

impl Place {
    /// The mark of what is there now. The directory is read only if it has changed since `before`, or shortly before.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn mark(&self, before: &Mark) -> Result<Mark> {
        let cannot = cannot_look(&self.directory);
        let folder = |newest: Option<ListName>| newest.and_then(|name| name.path().parent().map(Path::to_path_buf));
        let known = folder(before.newest.map(|(name, _)| name)).unwrap_or_default();
        let changed = |place: &Path| fs::metadata(self.directory.join(place)).and_then(|data| data.modified());
        // The directory of an hour goes with its last list.
        let mut now = known.ancestors().map(changed).collect::<io::Result<Vec<_>>>().unwrap_or_default();
        let is_settled = now.iter().all(|changed| changed.elapsed().is_ok_and(|age| age > STAMP_RESOLUTION));
        if is_settled && !now.is_empty() && before.directories_changed == now {
            return Ok(before.clone());
        }
        let newest = names(&self.directory)?.last().copied();
        if folder(newest).unwrap_or_default() != known {
            // It was not looked at before the names were read: the next look reads them again.
            now.clear();
        }
        let written = |name: ListName| {
            let file = fs::metadata(self.directory.join(name.path()));
            file.and_then(|data| data.modified()).map(|written| (name, written))
        };
        Ok(Mark { directories_changed: now, newest: newest.map(written).transpose().map_err(&cannot)? })
    }

    /// Opens the newest list; `None` where there is none yet.
    ///
    /// # Errors
    ///
    /// It cannot be read, it is none, or it consists of changes and what they build on is not there.
    pub fn newest(&self) -> Result<Option<NewestList>> {
        let names = names(&self.directory)?;
        let Some(last_full) = names.iter().rposition(|name| !name.is_changes()) else {
            let Some(name) = names.last() else { return Ok(None) };
            let what = "these are changes, and the list in full that they build on is gone";
            return Err(Error::new(what).in_file(self.directory.join(name.path())));
        };
        let path = |name: &ListName| self.directory.join(name.path());
        let (before, since) = names.split_at(last_full);
        let Some((first, changes)) = since.split_first() else { return Ok(None) };
        let full = whole_list(&path(first))?;
        let (mut list, mut newest) = (full.facts.clone(), first);
        let before = before.last().map(|name| ListFile::open(&path(name))).transpose()?;
        let mut earlier = before.map(|file| file.facts.id.interval);
        let mut changed = None;
        for name in changes {
            let mut file = ListFile::open(&path(name))?;
            if file.base.as_ref().is_none_or(|(base, _)| *base != list.id) {
                let what = "these changes do not build on the list before them";
                return Err(Error::new(what).in_file(path(name)));
            }
            earlier = Some(list.id.interval);
            (list, newest) = (file.facts.clone(), name);
            apply(&mut file, changed.get_or_insert_default())?;
        }
        let is_restarted = earlier.is_some_and(|earlier| earlier >= list.id.interval);
        let facts = NewestFacts { list, is_restarted, written: written(&path(newest))? };
        Ok(Some(NewestList { facts, full, changed }))
    }
}

/// Opens a list of one router that is no list of changes.
fn whole_list(path: &Path) -> Result<ListFile> {
    let file = ListFile::open(path)?;
    if file.is_merged || file.base.is_some() {
        return Err(Error::new("this is not the list of one router").in_file(path));
    }
    Ok(file)
}

fn written(path: &Path) -> Result<SystemTime> {
    let written = fs::metadata(path).and_then(|data| data.modified());
    written.map_err(|error| Error::new("cannot read the list").in_file(path).because(error))
}

/// Adds the changes of a file to those before it.
fn apply(file: &mut ListFile, changed: &mut BTreeMap<AnyKey, Option<Row>>) -> Result<()> {
    while let Some(line) = file.next_row()? {
        if let Some(key) = AnyKey::of_ends(line.row.client, line.row.server, line.row.vlan) {
            changed.insert(key, (!line.is_delisted).then_some(line.row));
        }
    }
    Ok(())
}

impl NewestList {
    /// The connections, in the order of a list.
    pub fn rows(self) -> impl Iterator<Item = Result<Row>> {
        let NewestList { mut full, changed, .. } = self;
        let is_changed = changed.is_some();
        let rows = std::iter::from_fn(move || full.next_row().map(|line| line.map(|line| line.row)).transpose());
        // A list of changes knows nothing of the half-open ones.
        let is_kept =
            move |row: &Result<Row>| !is_changed || row.as_ref().map_or(true, |row| row.state == RowState::Established);
        let changed = changed.unwrap_or_default().into_iter().peekable();
        WithChanges { rows: rows.filter(is_kept).peekable(), changed }
    }
}

/// The rows of a list with what became of them later.
struct WithChanges<I: Iterator<Item = Result<Row>>> {
    rows: Peekable<I>,
    changed: Peekable<btree_map::IntoIter<AnyKey, Option<Row>>>,
}

impl<I: Iterator<Item = Result<Row>>> Iterator for WithChanges<I> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let key =
                |row: &Result<Row>| row.as_ref().ok().and_then(|row| AnyKey::of_ends(row.client, row.server, row.vlan));
            let row_key = match self.rows.peek() {
                Some(row @ Ok(_)) => key(row),
                Some(Err(_)) => return self.rows.next(),
                None => None,
            };
            let change = self.changed.next_if(|(changed, _)| row_key.is_none_or(|key| *changed <= key));
            let Some((changed, now)) = change else { return self.rows.next() };
            if row_key == Some(changed) {
                self.rows.next();
            }
            if let Some(row) = now {
                return Some(Ok(row));
            }
        }
    }
}

/// The rows of the parts of a list, in the order of a list.
pub struct InParts<I: Iterator<Item = Result<Row>>>(Vec<Peekable<I>>);

impl<I: Iterator<Item = Result<Row>>> InParts<I> {
    /// The rows of these parts, none of which has a connection of another.
    pub fn new(parts: impl IntoIterator<Item = I>) -> Self {
        InParts(parts.into_iter().map(Iterator::peekable).collect())
    }
}

impl<I: Iterator<Item = Result<Row>>> Iterator for InParts<I> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        if let [only] = self.0.as_mut_slice() {
            return only.next();
        }
        let key = |row: &Result<Row>| {
            let row = row.as_ref().ok()?;
            AnyKey::of_ends(row.client, row.server, row.vlan)
        };
        // What has no key is refused by whoever reads it, so it comes first.
        let heads = self.0.iter_mut().enumerate().filter_map(|(part, rows)| Some((key(rows.peek()?), part)));
        let (_, part) = heads.min()?;
        self.0.get_mut(part)?.next()
    }
}

#[cfg(test)]
mod tests;
