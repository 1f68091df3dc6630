//! Queries: the occurrences of a connection or an address in an archive.
//!
//! It takes an archive, which may be written to meanwhile, and one or two ends of connections, and gives every
//! occurrence, ordered by time. The index and the filters show which segments to read. A false positive costs a segment
//! that is read without a match, and where they are damaged the segments are read. Every result was read with its
//! checksum and checked against the query.

use crate::archive::entry::Hasher;
use crate::archive::names::{FileName, Inventory, OPEN_LIST};
use crate::archive::newest;
use crate::archive::scan::scan_file;
use crate::archive::segment::Segment;
use crate::archive::{Entry, Fate, index};
use crate::error::{Error, Result};
use crate::flow::{AnyKey, VlanTags};
use ahash::AHashMap;
use flowpeel_bfield::Found;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// One end of a connection, with a port or with any port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port; `None` stands for any.
    pub port: Option<u16>,
}

impl Endpoint {
    fn is(&self, end: SocketAddr) -> bool {
        self.address == end.ip() && self.port.is_none_or(|port| port == end.port())
    }
}

/// A query for the connections that have these ends, whichever of them is the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// One end.
    pub one: Endpoint,
    /// The other end; `None` stands for any.
    pub other: Option<Endpoint>,
}

impl Query {
    fn holds(&self, entry: &Entry) -> bool {
        let (client, server) = (entry.client(), entry.server());
        let is_other = |end| self.other.is_none_or(|other| other.is(end));
        self.one.is(client) && is_other(server) || self.one.is(server) && is_other(client)
    }
}

/// How an answer was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Segments in the archive, including the one that is being filled.
    pub segments: u64,
    /// Segments that were read.
    pub read: u64,
    /// Segments that were read without a match.
    pub read_in_vain: u64,
    /// B-fields that were queried.
    pub indexes_asked: u64,
    /// Filters that were queried.
    pub filters_asked: u64,
}

/// The answer to a query.
#[derive(Debug, Default)]
pub struct Answer {
    /// Every occurrence, by start and then by end.
    pub entries: Vec<Entry>,
    /// What is damaged or missing in the archive. If this is not empty there may be more occurrences.
    pub damages: Vec<Error>,
    /// How the answer was found.
    pub explanation: Explanation,
}

/// Finds every occurrence in an archive that matches a query. A connection that is still open is returned once, as it
/// was when that was last written.
///
/// # Errors
///
/// There is no archive, or it cannot be read at all. Damage is not an error: it is part of the answer.
pub fn find(directory: &Path, query: &Query) -> Result<Answer> {
    let mut finder = Finder::new(directory, query);
    // The open connections come first: one that closes after this is in a segment or log that is read later.
    finder.open_list();
    let mut inventory = finder.inventory()?;
    finder.note_loss()?;
    finder.answer.explanation.segments = (inventory.segments.len() + inventory.logs.len()) as u64;
    finder.note_gaps(&inventory);
    for number in finder.candidates(&inventory) {
        if let Err(error) = finder.segment(number) {
            // The segment may have been removed since because it was too old.
            inventory = finder.inventory()?;
            let first = inventory.segments.keys().next().copied().unwrap_or(u32::MAX);
            if number >= first {
                finder.answer.damages.push(error);
            }
        }
    }
    for number in inventory.logs.clone() {
        if let Err(error) = finder.log(number) {
            // The log may have been sealed since, or was empty and is gone.
            let is_there = |name: FileName| name.path_in(directory).exists();
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
    /// The hash of the connection, if the query is for exactly one.
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
        name.path_in(self.directory)
    }

    fn inventory(&self) -> Result<Inventory> {
        Inventory::of(self.directory).map_err(|error| self.cannot_read(error))
    }

    fn cannot_read(&self, error: io::Error) -> Error {
        Error::new("cannot read this archive").in_file(self.directory).because(error)
    }

    /// Notes gaps in the numbers. They are given one after another, and the oldest segments are removed first, so a gap
    /// is a segment that somebody took away.
    fn note_gaps(&mut self, inventory: &Inventory) {
        let mut expected = None;
        for number in inventory.segments.keys().chain(&inventory.logs).copied().collect::<BTreeSet<_>>() {
            if let Some(missing) = expected.filter(|expected| *expected < number) {
                self.answer.damages.push(newest::gap(self.directory, missing, number - missing));
            }
            expected = number.checked_add(1);
        }
    }

    /// Notes what is missing of the newest part of the archive.
    fn note_loss(&mut self) -> Result<()> {
        let loss = newest::loss(self.directory);
        let (missing, is_archive) = loss.map_err(|error| self.cannot_read(error))?;
        self.answer.damages.extend(missing);
        if is_archive { Ok(()) } else { Err(Error::new("there is no archive here").in_file(self.directory)) }
    }

    /// The segments that may hold a match.
    fn candidates(&mut self, inventory: &Inventory) -> BTreeSet<u32> {
        let mut candidates = BTreeSet::new();
        // The segments for which an index has the answer.
        let mut settled = BTreeSet::new();
        if let Some(hash) = self.connection {
            for (first, last) in inventory.indexes.keys() {
                self.answer.explanation.indexes_asked += 1;
                let path = self.path(FileName::Index(*first, *last));
                match index::look_up(&path, hash) {
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
                // Reading the segment shows whether it is damaged or gone.
                Err(error) => {
                    let path = self.path(FileName::Segment(*number));
                    path.exists().then(|| self.note(error));
                    candidates.insert(*number);
                }
            }
        }
        // An index outlives some of its segments.
        candidates.retain(|number| inventory.segments.contains_key(number));
        candidates
    }

    /// Notes damage once, however often it is met.
    fn note(&mut self, error: Error) {
        let is_known = self.answer.damages.iter().any(|known| known.to_string() == error.to_string());
        if !is_known {
            self.answer.damages.push(error);
        }
    }

    /// Whether a segment may hold a match, by its filters.
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
        let before = self.answer.entries.len();
        let damage = self.read_file(&self.path(FileName::Segment(number)), number)?;
        self.read(before);
        damage.into_iter().for_each(|damage| self.note(damage));
        Ok(())
    }

    /// Reads the entries of a segment or of the list of open connections, all that are left if its end is damaged.
    /// Returns the first damage, if any.
    fn read_file(&mut self, path: &Path, number: u32) -> Result<Option<Error>> {
        let (query, entries) = (self.query, &mut self.answer.entries);
        let visit = |block: Vec<Entry>| entries.extend(block.into_iter().filter(|entry| query.holds(entry)));
        match Segment::open(path, number) {
            Ok(segment) => segment.entries(visit),
            Err(error) => scan_file(path, number, None, visit).map(|_| Some(error)),
        }
    }

    /// Reads the log of a segment that is being filled. What follows the last whole block is being written, or was when
    /// a process was killed: the next writer reports it.
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

    /// Reads the list of open connections, if there is one.
    fn open_list(&mut self) {
        let path = self.directory.join(OPEN_LIST);
        if path.exists() {
            let read = self.read_file(&path, 0);
            // If it is gone, a run has begun meanwhile and has moved its connections to a segment.
            self.answer.damages.extend(read.unwrap_or_else(|error| path.exists().then_some(error)));
        }
    }

    fn finish(mut self) -> Answer {
        let entries = &mut self.answer.entries;
        retain_latest(entries);
        entries.sort_unstable_by_key(|entry| (entry.start, entry.end, entry.key));
        self.answer
    }
}

/// Removes the entries of open connections of which there is a later entry, open or ended.
fn retain_latest(entries: &mut Vec<Entry>) {
    let mut latest: AHashMap<_, (i64, bool)> = AHashMap::new();
    for entry in entries.iter() {
        let word = (entry.end, entry.fate != Fate::Open);
        let known = latest.entry((entry.key, entry.start)).or_insert(word);
        *known = (*known).max(word);
    }
    let mut listed = AHashMap::new();
    entries.retain(|entry| {
        let is_latest = latest.get(&(entry.key, entry.start)) == Some(&(entry.end, false));
        // One list may have been carried over twice.
        entry.fate != Fate::Open || is_latest && listed.insert((entry.key, entry.start), ()).is_none()
    });
}

#[cfg(test)]
mod tests;
