//! The life of one connection, as the lists have it that are kept: which router had it in which state, from when to
//! when.
//!
//! A connection is looked up in each list, from the newest back. In a list in full that takes some twenty lines of
//! millions; a compressed list is read up to the connection, and what may be read for an answer is limited.

use crate::newest::{self, Place};
use flowpeel::error::{Error, Result};
use flowpeel::export::{ListFile, ListName};
use flowpeel::flow::AnyKey;
use flowpeel::list::RowState;

/// The most lists that are looked into for one answer, of all routers together: an hour of fifty routers in steps of
/// ten seconds, in some two seconds.
const LIST_COUNT_MAX: usize = 20_000;

/// The most text that is read for one answer, in bytes: some two seconds.
const READ_SIZE_MAX: u64 = 512 << 20;

/// What it costs beside the lines to look into a list, in bytes that could be read meanwhile.
const LOOK_SIZE: u64 = 16 << 10;

/// The most lists that cannot be read and are named.
const PROBLEM_COUNT_MAX: usize = 10;

/// A time for which a connection was in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The state.
    pub state: RowState,
    /// When the connection started, as these lists have it, in ns since 1970.
    pub start_ns: i64,
    /// The end of the first list that has it so, in ns since 1970.
    pub since_ns: i64,
    /// The end of the last list that has it so.
    pub until_ns: i64,
    /// In how many lists.
    pub lists: u64,
}

/// What the lists of one router have of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnRouter {
    /// The router.
    pub router: String,
    /// By time.
    pub stages: Vec<Stage>,
}

/// The life of a connection.
#[derive(Debug, Default)]
pub struct Life {
    /// The routers that have lists, by name.
    pub routers: Vec<OnRouter>,
    /// The end of the earliest list that was looked into.
    pub searched_since_ns: Option<i64>,
    /// Whether all lists were looked into that may have it.
    pub is_whole: bool,
    /// How many lists were looked into.
    pub lists: u64,
    /// Lists that could not be read, and why; of many the first.
    pub problems: Vec<String>,
}

impl Life {
    fn problem(&mut self, error: &Error) {
        self.is_whole = false;
        if self.problems.len() < PROBLEM_COUNT_MAX {
            self.problems.push(error.to_string());
        }
    }
}

/// What a list says of the connection.
enum Word {
    /// It is in it.
    Open { state: RowState, start_ns: i64 },
    /// It is not, or no longer.
    Gone,
    /// Nothing has changed.
    Unchanged,
}

/// Looks a connection up in the lists of these places. What cannot be read is a part of the answer.
#[must_use]
pub fn life(places: &[Place], key: &AnyKey) -> Life {
    let mut life = Life { is_whole: true, ..Life::default() };
    let parts = places.len().max(1);
    for place in places {
        let stages = stages(place, key, (LIST_COUNT_MAX / parts, READ_SIZE_MAX / parts as u64), &mut life);
        match life.routers.last_mut().filter(|last| last.router == place.router) {
            // A connection is in one partition, so in one part of a router's lists.
            Some(last) => last.stages.extend(stages),
            None => life.routers.push(OnRouter { router: place.router.clone(), stages }),
        }
    }
    life
}

fn stages(place: &Place, key: &AnyKey, limits: (usize, u64), life: &mut Life) -> Vec<Stage> {
    let names = newest::names(&place.directory).unwrap_or_else(|error| {
        life.problem(&error);
        Vec::new()
    });
    let (mut words, mut read_size) = (Vec::new(), 0);
    for name in names.iter().rev() {
        if words.len() >= limits.0 || read_size >= limits.1 {
            life.is_whole = false;
            break;
        }
        let (end_ns, word, size) = match look_up(place, *name, key) {
            Ok(found) => found,
            Err(error) => {
                life.problem(&error);
                continue;
            }
        };
        read_size += size + LOOK_SIZE;
        life.lists += 1;
        life.searched_since_ns = Some(life.searched_since_ns.map_or(end_ns, |since_ns| since_ns.min(end_ns)));
        words.push((end_ns, word));
    }
    course(words.into_iter().rev())
}

/// When a list ends, what it says, and how much of it was read.
fn look_up(place: &Place, name: ListName, key: &AnyKey) -> Result<(i64, Word, u64)> {
    let mut file = ListFile::open(&place.directory.join(name.path()))?;
    let found = file.row_of(key)?;
    let word = match found {
        Some(listed) if !listed.is_delisted => Word::Open { state: listed.row.state, start_ns: listed.row.start_ns },
        None if name.is_changes() => Word::Unchanged,
        Some(_) | None => Word::Gone,
    };
    Ok((file.facts.end_ns, word, file.read_size()))
}

/// The stages that lists say of, in the order in which they came.
fn course(words: impl Iterator<Item = (i64, Word)>) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    let mut is_open = false;
    for (end_ns, word) in words {
        let last = stages.last_mut().filter(|_| is_open);
        match (word, last) {
            (Word::Open { state, start_ns }, Some(last)) if last.state == state && last.start_ns == start_ns => {
                last.goes_on(end_ns);
            }
            (Word::Open { state, start_ns }, _) => {
                stages.push(Stage { state, start_ns, since_ns: end_ns, until_ns: end_ns, lists: 1 });
                is_open = true;
            }
            (Word::Unchanged, Some(last)) => last.goes_on(end_ns),
            (Word::Unchanged, None) => {}
            (Word::Gone, _) => is_open = false,
        }
    }
    stages
}

impl Stage {
    fn goes_on(&mut self, until_ns: i64) {
        self.until_ns = self.until_ns.max(until_ns);
        self.lists += 1;
    }
}

#[cfg(test)]
mod tests;
