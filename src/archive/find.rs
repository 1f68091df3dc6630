//! Where was that connection? Reads only what can hold it.
//!
//! What enters: an archive, which may be written to meanwhile, and one or two ends of connections. What leaves: every occurrence,
//! ordered by time. Index and filters say which segments to read; wrong answers of theirs cost a segment read in vain, and where
//! they are damaged the segments are read. What is shown was read, with its checksum, and held against the question.

use crate::archive::entry::Hasher;
use crate::archive::names::{FileName, Inventory, OPEN_LIST};
use crate::archive::scan::scan_file;
use crate::archive::segment::Segment;
use crate::archive::{Entry, Fate};
use crate::bfield_store::FieldFile;
use crate::error::{Error, Result};
use crate::flow::VlanTags;
use crate::signal::AnyKey;
use crate::sketch::bfield::Found;
use ahash::AHashMap;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// One end of a connection, with its port or with any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port; none: any.
    pub port: Option<u16>,
}

impl Endpoint {
    fn is(&self, end: SocketAddr) -> bool {
        self.address == end.ip() && self.port.is_none_or(|port| port == end.port())
    }
}

/// Which connections are asked for: those that have these ends, whichever is the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// One end.
    pub one: Endpoint,
    /// The other; none: any.
    pub other: Option<Endpoint>,
}

impl Query {
    fn holds(&self, entry: &Entry) -> bool {
        let (client, server) = (entry.client(), entry.server());
        let is_other = |end| self.other.is_none_or(|other| other.is(end));
        self.one.is(client) && is_other(server) || self.one.is(server) && is_other(client)
    }
}

/// How an answer came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Segments in the archive, the one that is being filled among them.
    pub segments: u64,
    /// Those that were read.
    pub read: u64,
    /// Those of them in which nothing was found.
    pub read_in_vain: u64,
    /// B-fields that were asked.
    pub indexes_asked: u64,
    /// Filters that were asked.
    pub filters_asked: u64,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Answer {
    /// Every occurrence, by start and then by end.
    pub entries: Vec<Entry>,
    /// What is damaged or missing. Where it is not empty there may have been more.
    pub damages: Vec<Error>,
    /// How it came about.
    pub explanation: Explanation,
}

/// Finds every connection that an archive has of those that are asked for. A connection that is known to be open still is told once,
/// as it was when that was last written down.
///
/// # Errors
///
/// There is no archive, or it can not be read at all. What is damaged is no error: it is in the answer.
pub fn find(directory: &Path, query: &Query) -> Result<Answer> {
    let mut finder = Finder::new(directory, query);
    // First what is open: what closes after this is in a segment or log that is read later.
    let has_open_list = finder.open_list();
    let mut inventory = finder.inventory()?;
    if !has_open_list && inventory.last_number() == 0 {
        return Err(Error::new("there is no archive here").in_file(directory));
    }
    finder.answer.explanation.segments = (inventory.segments.len() + inventory.logs.len()) as u64;
    finder.note_gaps(&inventory);
    for number in finder.candidates(&inventory) {
        if let Err(error) = finder.segment(number) {
            // It may have been removed since, because it was too old.
            inventory = finder.inventory()?;
            let first = inventory.segments.keys().next().copied().unwrap_or(u32::MAX);
            if number >= first {
                finder.answer.damages.push(error);
            }
        }
    }
    for number in inventory.logs.clone() {
        if let Err(error) = finder.log(number) {
            // It may have been sealed since, or was empty and is gone.
            let is_there = |name: FileName| directory.join(name.to_string()).exists();
            if finder.segment(number).is_err()
                && (is_there(FileName::Log(number)) || is_there(FileName::Segment(number)))
            {
                finder.answer.damages.push(error);
            }
        }
    }
    Ok(finder.finish())
}

struct Finder<'a> {
    directory: &'a Path,
    query: &'a Query,
    /// The connection that is asked for, if it is just one.
    connection: Option<u128>,
    addresses: Vec<u128>,
    answer: Answer,
}

impl<'a> Finder<'a> {
    fn new(directory: &'a Path, query: &'a Query) -> Self {
        let hasher = Hasher::new();
        let exact = |end: Endpoint| Some(SocketAddr::new(end.address, end.port?));
        let ends = query.other.and_then(|other| Some((exact(query.one)?, exact(other)?)));
        let key = ends.and_then(|(one, other)| AnyKey::of_ends(one, other, VlanTags::NONE));
        Finder {
            directory,
            query,
            connection: key.map(|key| hasher.connection(&key)),
            addresses: [Some(query.one), query.other]
                .into_iter()
                .flatten()
                .map(|end| hasher.address(end.address))
                .collect(),
            answer: Answer::default(),
        }
    }

    fn path(&self, name: FileName) -> PathBuf {
        self.directory.join(name.to_string())
    }

    fn inventory(&self) -> Result<Inventory> {
        let inventory = Inventory::of(self.directory);
        inventory.map_err(|error| Error::new("can not read this archive").in_file(self.directory).because(error))
    }

    /// Numbers are given one after another, and the oldest go first: a gap is a segment that somebody took away.
    fn note_gaps(&mut self, inventory: &Inventory) {
        let mut expected = None;
        for number in inventory.segments.keys().chain(&inventory.logs).copied().collect::<BTreeSet<_>>() {
            if let Some(missing) = expected.filter(|expected| *expected < number) {
                let path = self.path(FileName::Segment(missing));
                let what = match number - missing {
                    1 => "this segment is missing".to_owned(),
                    count => format!("this segment is missing, and {} after it", count - 1),
                };
                self.answer.damages.push(Error::new(what).in_file(path));
            }
            expected = number.checked_add(1);
        }
    }

    /// The segments that may hold what is asked for.
    fn candidates(&mut self, inventory: &Inventory) -> BTreeSet<u32> {
        let mut candidates = BTreeSet::new();
        // Those of which an index speaks for all.
        let mut settled = BTreeSet::new();
        if let Some(hash) = self.connection {
            for (first, last) in inventory.indexes.keys() {
                self.answer.explanation.indexes_asked += 1;
                let path = self.path(FileName::Index(*first, *last));
                match FieldFile::open(&path).and_then(|mut field| field.look_up(hash)) {
                    Ok(Found::Absent) => settled.extend(*first..=*last),
                    Ok(Found::Value(value)) => {
                        settled.extend(*first..=*last);
                        candidates.extend(first.checked_add(value).filter(|number| number <= last));
                    }
                    Ok(Found::Indeterminate) => {}
                    // Its segments may all have expired since.
                    Err(error) if path.exists() => self.note(error),
                    Err(_) => {}
                }
            }
        }
        for number in inventory.segments.keys().filter(|number| !settled.contains(number)) {
            match self.may_hold(*number) {
                Ok(false) => {}
                Ok(true) => drop(candidates.insert(*number)),
                // Reading it tells whether it is damaged or gone.
                Err(error) => {
                    let path = self.path(FileName::Segment(*number));
                    path.exists().then(|| self.note(error));
                    candidates.insert(*number);
                }
            }
        }
        // An index outlives some of the segments that it knows.
        candidates.retain(|number| inventory.segments.contains_key(number));
        candidates
    }

    /// Takes note of damage, which may be met more than once.
    fn note(&mut self, error: Error) {
        let is_known = self.answer.damages.iter().any(|known| known.to_string() == error.to_string());
        if !is_known {
            self.answer.damages.push(error);
        }
    }

    /// What a segment's filters say.
    fn may_hold(&mut self, number: u32) -> Result<bool> {
        self.answer.explanation.filters_asked += 1;
        let mut segment = Segment::open(&self.path(FileName::Segment(number)), number)?;
        if let Some(hash) = self.connection {
            return segment.may_hold_connection(hash);
        }
        for hash in &self.addresses {
            if !segment.may_hold_address(*hash)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a sealed segment.
    fn segment(&mut self, number: u32) -> Result<()> {
        let path = self.path(FileName::Segment(number));
        let before = self.answer.entries.len();
        let (query, entries) = (self.query, &mut self.answer.entries);
        let visit = |block: Vec<Entry>| entries.extend(block.into_iter().filter(|entry| query.holds(entry)));
        let damage = match Segment::open(&path, number) {
            Ok(segment) => segment.entries(visit)?.1,
            Err(error) => {
                scan_file(&path, number, None, visit)?;
                Some(error)
            }
        };
        self.read(before);
        damage.into_iter().for_each(|damage| self.note(damage));
        Ok(())
    }

    /// Reads the log of a segment that is being filled. What follows the last whole block is being written, or was when a process
    /// was killed: the next one that writes to the archive will say so.
    fn log(&mut self, number: u32) -> Result<()> {
        let path = self.path(FileName::Log(number));
        let before = self.answer.entries.len();
        let (query, entries) = (self.query, &mut self.answer.entries);
        let scan = scan_file(&path, number, None, |block| {
            entries.extend(block.into_iter().filter(|entry| query.holds(entry)))
        })?;
        self.read(before);
        let damage = scan.damage.map(|at| Error::new("the log is damaged here").in_file(&path).at(at));
        self.answer.damages.extend(damage);
        Ok(())
    }

    fn read(&mut self, entries_before: usize) {
        self.answer.explanation.read += 1;
        self.answer.explanation.read_in_vain += u64::from(self.answer.entries.len() == entries_before);
    }

    /// Reads what was open when it was last written down; whether it ever was.
    fn open_list(&mut self) -> bool {
        let path = self.directory.join(OPEN_LIST);
        if !path.exists() {
            return false;
        }
        let (query, entries) = (self.query, &mut self.answer.entries);
        let visit = |block: Vec<Entry>| entries.extend(block.into_iter().filter(|entry| query.holds(entry)));
        let read = match Segment::open(&path, 0) {
            Ok(segment) => segment.entries(visit).map(|(_, damage)| damage),
            Err(error) => scan_file(&path, 0, None, visit).map(|_| Some(error)),
        };
        // When it is gone a run has begun meanwhile, and what was in it is in a segment.
        self.answer.damages.extend(read.unwrap_or_else(|error| path.exists().then_some(error)));
        true
    }

    fn finish(mut self) -> Answer {
        let entries = &mut self.answer.entries;
        retain_latest(entries);
        entries.sort_unstable_by_key(|entry| (entry.start, entry.end, entry.key));
        self.answer
    }
}

/// Strikes out what is told to be open where a later word of the same connection is there: that it was open, or that it ended.
fn retain_latest(entries: &mut Vec<Entry>) {
    let mut latest: AHashMap<_, (i64, bool)> = AHashMap::new();
    for entry in entries.iter() {
        let word = (entry.end, entry.fate != Fate::Open);
        let known = latest.entry((entry.key, entry.start)).or_insert(word);
        *known = (*known).max(word);
    }
    let mut told = AHashMap::new();
    entries.retain(|entry| {
        let is_latest = latest.get(&(entry.key, entry.start)) == Some(&(entry.end, false));
        // The same list may have been carried over twice.
        entry.fate != Fate::Open || is_latest && told.insert((entry.key, entry.start), ()).is_none()
    });
}

#[cfg(test)]
mod tests;
