//! Questions: which connections of an archive have these ends, are selected by this filter, were there at this time.
//!
//! It takes an archive, which may be written to meanwhile, and a question, and gives every connection that is asked
//! for. The index and the filters of segments show which of them can hold an address that every answer must have, and
//! their trailers which can hold its times; those are read, block by block. A false positive costs a segment that is
//! read without a match, and where the filters are damaged the segments are read. Every result was read with its
//! checksum and checked against the question.

use crate::archive::entry::Hasher;
use crate::archive::names::{FileName, Inventory, OPEN_LIST};
use crate::archive::newest;
use crate::archive::scan::scan_file;
use crate::archive::segment::Segment;
use crate::archive::{Entry, Fate, index};
use crate::error::{Error, Result};
use crate::flow::{AnyKey, VlanTags};
use crate::list::RowState;
use crate::select::{Facts, Filter};
use crate::signal::TICK_NS;
use ahash::AHashMap;
use flowpeel_bfield::Found;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One end of a connection, with a port or with any port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port; `None` stands for any.
    pub port: Option<u16>,
}

impl FromStr for Endpoint {
    type Err = Error;

    /// Reads an address with or without a port: `10.0.0.1`, `10.0.0.1:443`, `::1`, `[::1]:443`.
    fn from_str(text: &str) -> Result<Self> {
        if let Ok(end) = text.parse::<SocketAddr>() {
            return Ok(Endpoint { address: end.ip(), port: Some(end.port()) });
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let what = "an end is an address, or an address and a port: 10.0.0.1, 10.0.0.1:443, ::1, [::1]:443";
        let address = bare.parse().map_err(|_| Error::new(what))?;
        Ok(Endpoint { address, port: None })
    }
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

/// A question to an archive: all that is named must hold.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The ends that connections have.
    pub ends: Option<Query>,
    /// What selects connections.
    pub filter: Option<Filter>,
    /// Connections that were open then or later, in ns since 1970.
    pub since_ns: Option<i64>,
    /// Connections that were open before, in ns since 1970.
    pub until_ns: Option<i64>,
}

impl From<&Query> for Question {
    fn from(query: &Query) -> Self {
        Question { ends: Some(*query), ..Question::default() }
    }
}

impl Question {
    /// Whether an entry is asked for. What is open now was not open until [`Entry::end`] alone.
    fn selects(&self, entry: &Entry, is_open_now: bool) -> bool {
        let is_recent = |since_ns: i64| is_open_now || entry.end_ns() >= since_ns;
        self.ends.is_none_or(|ends| ends.holds(entry))
            && self.since_ns.is_none_or(is_recent)
            && self.until_ns.is_none_or(|until_ns| entry.start_ns() < until_ns)
            && self.filter.as_ref().is_none_or(|filter| filter.selects(&Facts::from(entry)))
    }
}

impl From<&Entry> for Facts {
    fn from(entry: &Entry) -> Self {
        let reason = entry.fate.reason();
        Facts {
            client: entry.client(),
            server: entry.server(),
            vlan: entry.vlan(),
            state: reason.is_none().then_some(RowState::Established),
            start_ns: entry.start_ns(),
            age_ns: entry.age_ns(),
            end_ns: reason.map(|_| entry.end_ns()),
            reason,
            midstream: entry.midstream,
            unsettled: false,
        }
    }
}

/// How an answer was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Connections that were found.
    pub found: u64,
    /// Segments in the archive, including the one that is being filled.
    pub segments: u64,
    /// Segments that were not read because nothing in them is of the time in question.
    pub out_of_time: u64,
    /// Segments that were read.
    pub read: u64,
    /// Segments that were read without a match.
    pub read_in_vain: u64,
    /// B-fields that were queried.
    pub indexes_asked: u64,
    /// Filters that were queried.
    pub filters_asked: u64,
}

/// What was found out beside the connections.
#[derive(Debug, Default)]
pub struct Findings {
    /// What is damaged or missing in the archive. If this is not empty there may be more connections.
    pub damages: Vec<Error>,
    /// How the answer was found.
    pub explanation: Explanation,
}

/// The answer to a question.
#[derive(Debug, Default)]
pub struct Answer {
    /// Every connection, by start and then by end.
    pub entries: Vec<Entry>,
    /// What is damaged or missing in the archive. If this is not empty there may be more connections.
    pub damages: Vec<Error>,
    /// How the answer was found.
    pub explanation: Explanation,
}

/// Finds every connection in an archive that is asked for, and returns them in the order of their starts. One that is
/// still open is returned once, as it was when that was last written.
///
/// Complexity: memory for what is found, see [`search`].
///
/// # Errors
///
/// There is no archive, or it cannot be read at all. Damage is not an error: it is part of the answer.
pub fn find(directory: &Path, question: impl Into<Question>) -> Result<Answer> {
    let mut entries = Vec::new();
    let Findings { damages, explanation } = search(directory, &question.into(), |entry| {
        entries.push(*entry);
        Ok(true)
    })?;
    entries.sort_unstable_by_key(|entry| (entry.start, entry.end, entry.key));
    Ok(Answer { entries, damages, explanation })
}

/// Passes every connection in an archive that is asked for to `visit`, until that returns `false`: those that have
/// ended in the order of the archive, which is about that of their ends, and then those that are open, by start.
///
/// Complexity: what can hold an answer is read block by block. Memory for a block, and for the selected connections
/// that were open at the end of a run; for all of those where a filter asks for the age.
///
/// # Errors
///
/// There is no archive, or it cannot be read at all; or `visit` failed. Damage is not an error: it is part of what is
/// returned.
pub fn search(directory: &Path, question: &Question, visit: impl FnMut(&Entry) -> Result<bool>) -> Result<Findings> {
    let mut finder = Finder::new(directory, question, visit);
    // The open connections come first: one that closes after this is in a segment or log that is read later.
    finder.open_list();
    let inventory = finder.inventory()?;
    finder.note_loss()?;
    finder.findings.explanation.segments = (inventory.segments.len() + inventory.logs.len()) as u64;
    finder.note_gaps(&inventory);
    let candidates = finder.candidates(&inventory);
    for (number, _) in candidates.iter().filter(|(_, candidate)| candidate.may_have_open) {
        finder.sealed(*number, true)?;
    }
    for (number, _) in candidates.iter().filter(|(_, candidate)| !candidate.is_all_open) {
        finder.sealed(*number, false)?;
    }
    for number in &inventory.logs {
        finder.open_log(*number)?;
    }
    finder.finish()
}

/// A segment that may hold a match.
#[derive(Clone, Copy)]
struct Candidate {
    /// Whether some of its entries may be of connections that were open, and whether all are.
    may_have_open: bool,
    is_all_open: bool,
}

/// What a segment whose trailer cannot be read is taken for.
const UNKNOWN: Candidate = Candidate { may_have_open: true, is_all_open: false };

struct Finder<'a, V> {
    directory: &'a Path,
    question: &'a Question,
    visit: V,
    /// The hash of the connection, if the question is for exactly one.
    connection: Option<u128>,
    /// Of each group, one address must be that of an end.
    addresses: Vec<Vec<u128>>,
    /// The earliest end, the latest end, and the latest start that an answer can have, in ticks.
    end_min: i64,
    end_max: i64,
    start_max: i64,
    /// The selected connections that were open, each as of the latest time and with whether it is selected then; where
    /// that depends on the age, all of them.
    open: AHashMap<(AnyKey, i64), (Entry, bool)>,
    asks_age: bool,
    /// The segments that were read, and those with a match.
    read: BTreeSet<u32>,
    matching: BTreeSet<u32>,
    match_count: u64,
    /// Whether segments are read for connections that were open, or for those that have ended.
    is_for_open: bool,
    /// Whether no more is wanted.
    is_done: bool,
    failed: Result<()>,
    findings: Findings,
}

impl<'a, V: FnMut(&Entry) -> Result<bool>> Finder<'a, V> {
    fn new(directory: &'a Path, question: &'a Question, visit: V) -> Self {
        let hasher = Hasher::new();
        let exact = |end: Endpoint| Some(SocketAddr::new(end.address, end.port?));
        let ends = question.ends.and_then(|ends| Some((exact(ends.one)?, exact(ends.other?)?)));
        let key = ends.and_then(|(one, other)| AnyKey::of_ends(one, other, VlanTags::NONE));
        let needs = question.filter.as_ref().map(Filter::needs).unwrap_or_default();
        let named = question.ends.iter().flat_map(|ends| [Some(ends.one), ends.other]).flatten();
        let groups = named.map(|end| vec![end.address]).chain(needs.addresses);
        let since_ns = question.since_ns.unwrap_or(i64::MIN);
        let until_ns = question.until_ns.unwrap_or(i64::MAX);
        let ticks = |time_ns: i64| time_ns.div_euclid(TICK_NS);
        Finder {
            directory,
            question,
            visit,
            connection: key.map(|key| hasher.connection(&key)),
            addresses: groups.map(|group| group.into_iter().map(|address| hasher.address(address)).collect()).collect(),
            // Nothing ends before it starts.
            end_min: ticks(needs.end_ns.0.max(needs.start_ns.0).max(since_ns)),
            end_max: ticks(needs.end_ns.1),
            start_max: ticks(needs.start_ns.1.min(until_ns)),
            open: AHashMap::new(),
            asks_age: needs.asks_age,
            read: BTreeSet::new(),
            matching: BTreeSet::new(),
            match_count: 0,
            is_for_open: false,
            is_done: false,
            failed: Ok(()),
            findings: Findings::default(),
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
                self.findings.damages.push(newest::gap(self.directory, missing, number - missing));
            }
            expected = number.checked_add(1);
        }
    }

    /// Notes what is missing of the newest part of the archive.
    fn note_loss(&mut self) -> Result<()> {
        let loss = newest::loss(self.directory);
        let (missing, is_archive) = loss.map_err(|error| self.cannot_read(error))?;
        self.findings.damages.extend(missing);
        if is_archive { Ok(()) } else { Err(Error::new("there is no archive here").in_file(self.directory)) }
    }

    /// The segments that may hold a match.
    fn candidates(&mut self, inventory: &Inventory) -> BTreeMap<u32, Candidate> {
        let settled = self.settled(inventory);
        let mut candidates = BTreeMap::new();
        for number in inventory.segments.keys() {
            let wanted = match settled.get(number) {
                Some(false) => Ok(None),
                Some(true) => self.of_time(*number),
                None => self.may_hold(*number),
            };
            match wanted {
                Ok(None) => {}
                Ok(Some(candidate)) => drop(candidates.insert(*number, candidate)),
                // Reading the segment shows whether it is damaged or gone.
                Err(error) => {
                    let path = self.path(FileName::Segment(*number));
                    path.exists().then(|| self.note(error));
                    candidates.insert(*number, UNKNOWN);
                }
            }
        }
        candidates
    }

    /// The segments for which an index has the answer, each with whether it may hold the connection.
    fn settled(&mut self, inventory: &Inventory) -> AHashMap<u32, bool> {
        let mut settled = AHashMap::new();
        let Some(hash) = self.connection else { return settled };
        for (first, last) in inventory.indexes.keys() {
            self.findings.explanation.indexes_asked += 1;
            let path = self.path(FileName::Index(*first, *last));
            match index::look_up(&path, hash) {
                Ok(Found::Absent) => settled.extend((*first..=*last).map(|number| (number, false))),
                Ok(Found::Value(value)) => {
                    let holds = |number: u32| Some(number) == first.checked_add(value);
                    settled.extend((*first..=*last).map(|number| (number, holds(number))));
                }
                Ok(Found::Indeterminate) => {}
                // Its segments may all have expired since.
                Err(error) if path.exists() => self.note(error),
                Err(_) => {}
            }
        }
        settled
    }

    /// Notes damage once, however often it is met.
    fn note(&mut self, error: Error) {
        let is_known = self.findings.damages.iter().any(|known| known.to_string() == error.to_string());
        if !is_known {
            self.findings.damages.push(error);
        }
    }

    /// What a segment is read for, if anything in it is of the time in question.
    fn of_time(&mut self, number: u32) -> Result<Option<Candidate>> {
        let segment = Segment::open(&self.path(FileName::Segment(number)), number)?;
        let trailer = segment.trailer();
        let is_of_time =
            trailer.end_max >= self.end_min && trailer.end_min <= self.end_max && trailer.start_min() <= self.start_max;
        self.findings.explanation.out_of_time += u64::from(!is_of_time);
        let (may_have_open, is_all_open) = (!trailer.has_no_open(), trailer.is_all_open());
        Ok(is_of_time.then_some(Candidate { may_have_open, is_all_open }))
    }

    /// What a segment is read for, if it may hold a match by its times and filters.
    fn may_hold(&mut self, number: u32) -> Result<Option<Candidate>> {
        let Some(candidate) = self.of_time(number)? else { return Ok(None) };
        if self.connection.is_none() && self.addresses.is_empty() {
            return Ok(Some(candidate));
        }
        self.findings.explanation.filters_asked += 1;
        let mut segment = Segment::open(&self.path(FileName::Segment(number)), number)?;
        if let Some(hash) = self.connection {
            return Ok(segment.may_hold_connection(hash)?.then_some(candidate));
        }
        for group in &self.addresses {
            let mut is_any = false;
            for hash in group {
                is_any = is_any || segment.may_hold_address(*hash)?;
            }
            if !is_any {
                return Ok(None);
            }
        }
        Ok(Some(candidate))
    }

    /// Reads a sealed segment, unless it has been removed since because it was too old.
    fn sealed(&mut self, number: u32, is_for_open: bool) -> Result<()> {
        self.is_for_open = is_for_open;
        if self.is_done {
            return Ok(());
        }
        if let Err(error) = self.segment(number) {
            let first = self.inventory()?.segments.keys().next().copied().unwrap_or(u32::MAX);
            if number >= first {
                self.note(error);
            }
        }
        std::mem::replace(&mut self.failed, Ok(()))
    }

    /// Reads the log of a segment that is being filled. It may have been sealed since, or was empty and is gone.
    fn open_log(&mut self, number: u32) -> Result<()> {
        for is_for_open in [true, false] {
            self.is_for_open = is_for_open;
            if !self.is_done
                && let Err(error) = self.log(number)
            {
                let is_there = |name: FileName| name.path_in(self.directory).exists();
                let (log, segment) = (FileName::Log(number), FileName::Segment(number));
                if self.segment(number).is_err() && (is_there(log) || is_there(segment)) {
                    self.note(error);
                }
            }
        }
        std::mem::replace(&mut self.failed, Ok(()))
    }

    fn segment(&mut self, number: u32) -> Result<()> {
        let before = self.match_count;
        let damage = self.read_file(&self.path(FileName::Segment(number)), number)?;
        self.has_read(number, before);
        damage.into_iter().for_each(|damage| self.note(damage));
        Ok(())
    }

    /// Reads the entries of a segment or of the list of open connections, all that are left if its end is damaged.
    /// Returns the first damage, if any.
    fn read_file(&mut self, path: &Path, number: u32) -> Result<Option<Error>> {
        let take = |block: Vec<Entry>| self.take(&block);
        match Segment::open(path, number) {
            Ok(segment) => segment.entries(take),
            Err(error) => scan_file(path, number, None, take).map(|_| Some(error)),
        }
    }

    /// What follows the last whole block of a log is being written, or was when a process was killed: the next writer
    /// reports it.
    fn log(&mut self, number: u32) -> Result<()> {
        let path = self.path(FileName::Log(number));
        let before = self.match_count;
        let scan = scan_file(&path, number, None, |block| self.take(&block))?;
        self.has_read(number, before);
        let damage = scan.damage.map(|at| Error::new("the log is damaged here").in_file(&path).at(at));
        damage.into_iter().for_each(|damage| self.note(damage));
        Ok(())
    }

    fn has_read(&mut self, number: u32, matches_before: u64) {
        self.read.insert(number);
        if self.match_count > matches_before {
            self.matching.insert(number);
        }
    }

    /// Takes the entries of a block.
    fn take(&mut self, block: &[Entry]) {
        for entry in block {
            if self.is_done {
                return;
            }
            match (entry.fate, self.is_for_open) {
                (Fate::Open, true) => self.take_open(entry, false),
                (Fate::Ended(_), false) => self.take_ended(entry),
                _ => {}
            }
        }
    }

    fn take_open(&mut self, entry: &Entry, is_open_now: bool) {
        let is_selected = self.question.selects(entry, is_open_now);
        if is_selected || self.asks_age {
            let word = (*entry, is_selected);
            let known = self.open.entry((entry.key, entry.start)).or_insert(word);
            *known = (*known).max(word);
            self.match_count += u64::from(is_selected);
        }
    }

    fn take_ended(&mut self, entry: &Entry) {
        // One that began in the same tick and was open later is another.
        let key = (entry.key, entry.start);
        if !self.open.is_empty() && self.open.get(&key).is_some_and(|(open, _)| open.end <= entry.end) {
            self.open.remove(&key);
        }
        if self.question.selects(entry, false) {
            self.match_count += 1;
            self.give(entry);
        }
    }

    fn give(&mut self, entry: &Entry) {
        self.findings.explanation.found += 1;
        match (self.visit)(entry) {
            Ok(goes_on) => self.is_done = !goes_on,
            Err(error) => (self.is_done, self.failed) = (true, Err(error)),
        }
    }

    /// Reads the list of open connections, if there is one.
    fn open_list(&mut self) {
        let path = self.directory.join(OPEN_LIST);
        if !path.exists() {
            return;
        }
        let mut earliest = i64::MAX;
        let mut take = |block: Vec<Entry>| {
            for entry in &block {
                earliest = earliest.min(entry.end);
                self.take_open(entry, true);
            }
        };
        let read = match Segment::open(&path, 0) {
            Ok(segment) => segment.entries(&mut take),
            Err(error) => scan_file(&path, 0, None, &mut take).map(|_| Some(error)),
        };
        // If it is gone, a run has begun meanwhile and has moved its connections to a segment.
        self.findings.damages.extend(read.unwrap_or_else(|error| path.exists().then_some(error)));
        // What closed since then is in a segment that ends no earlier.
        if !self.open.is_empty() {
            self.end_min = self.end_min.min(earliest);
        }
    }

    fn finish(mut self) -> Result<Findings> {
        let selected = self.open.drain().filter(|(_, (_, is_selected))| *is_selected);
        let mut open: Vec<Entry> = selected.map(|(_, (entry, _))| entry).collect();
        open.sort_unstable_by_key(|entry| (entry.start, entry.end, entry.key));
        for entry in &open {
            if !self.is_done {
                self.give(entry);
            }
        }
        self.findings.explanation.read = self.read.len() as u64;
        self.findings.explanation.read_in_vain = self.read.difference(&self.matching).count() as u64;
        self.failed.map(|()| self.findings)
    }
}

#[cfg(test)]
mod tests;
