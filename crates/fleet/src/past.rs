//! Connections of archives, a page at a time: those of an address, or between two ends, the latest start first.
//!
//! An archive is that of one router (`--archive` of `replay` and `live`), named by its folder. Pages follow each other
//! by the last connection of the page before, as those of a [`query`](crate::query) do.

use crate::query::{BadQuery, bad, tags, tags_text};
use flowpeel::archive::{self, Endpoint, Entry, Question};
use flowpeel::error::{Error, Result};
use flowpeel::flow::AnyKey;
use flowpeel::signal::TICK_NS;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The archive of a router.
#[derive(Clone, Debug)]
pub struct RouterArchive {
    /// The name of its folder.
    pub router: String,
    /// The folder.
    pub directory: PathBuf,
}

impl RouterArchive {
    /// The archive in this folder.
    ///
    /// # Errors
    ///
    /// There is no such folder.
    pub fn new(directory: &Path) -> Result<Self> {
        let cannot = |error| Error::new("cannot read this archive").in_file(directory).because(error);
        let directory = directory.canonicalize().map_err(cannot)?;
        let router = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(RouterArchive { router, directory })
    }
}

/// A place in the order of answers: the latest start first. A connection that an archive has twice, since its capture
/// was replayed twice, has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    start: Reverse<i64>,
    end: Reverse<i64>,
    key: AnyKey,
    reason: String,
    router: String,
}

impl Rank {
    fn of(entry: &Entry, router: &str) -> Self {
        let reason = entry.fate.reason().unwrap_or_default().to_owned();
        Rank { start: Reverse(entry.start), end: Reverse(entry.end), key: entry.key, reason, router: router.to_owned() }
    }

    /// The text from which [`Rank::parse`] makes it again.
    fn cursor(entry: &Entry, router: &str) -> String {
        let (client, server, vlan) = (entry.client(), entry.server(), tags_text(entry.vlan()));
        let reason = entry.fate.reason().unwrap_or_default();
        format!("{}~{}~{client}~{server}~{vlan}~{reason}~{router}", entry.start, entry.end)
    }

    fn parse(text: &str) -> Option<Self> {
        // A name may have any character.
        let mut parts = text.splitn(7, '~');
        let mut next = || parts.next();
        let (start, end) = (Reverse(next()?.parse().ok()?), Reverse(next()?.parse().ok()?));
        let (client, server) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let key = AnyKey::of_ends(client, server, tags(next()?)?)?;
        Some(Rank { start, end, key, reason: next()?.to_owned(), router: next()?.to_owned() })
    }
}

/// A question about the past.
#[derive(Clone, Debug)]
pub struct PastQuery {
    /// What connections are asked for.
    pub question: Question,
    /// How many at most.
    pub limit: usize,
    after: Option<Rank>,
}

impl PastQuery {
    /// A question for connections of these ends, and in this time in ns since 1970.
    ///
    /// # Errors
    ///
    /// The cursor is none.
    pub fn new(question: Question, limit: usize, after: Option<&str>) -> std::result::Result<Self, BadQuery> {
        let bad_cursor = || bad("after", "after is what the page before has as next");
        let after = after.map(|text| Rank::parse(text).ok_or_else(bad_cursor)).transpose()?;
        Ok(PastQuery { question, limit, after })
    }

    /// The end of a connection that a parameter names.
    ///
    /// # Errors
    ///
    /// It names none.
    pub fn endpoint(parameter: &'static str, text: &str) -> std::result::Result<Endpoint, BadQuery> {
        text.parse().map_err(|error: Error| bad(parameter, error.to_string()))
    }
}

/// A page of connections of the past.
#[derive(Debug, Default)]
pub struct PastPage {
    /// Those of this page, each with its router.
    pub entries: Vec<(Entry, String)>,
    /// What the next page follows; `None` after the last.
    pub next: Option<String>,
    /// Whether all was searched that may have an answer.
    pub is_whole: bool,
    /// What is damaged or missing in archives, or cannot be read.
    pub problems: Vec<String>,
}

/// Searches these archives, for as long as it may go on.
///
/// Complexity: what can hold an answer is read, all of it for each page. Memory for the page, and for what was open at
/// ends of runs.
#[must_use]
pub fn past(archives: &[RouterArchive], query: &PastQuery, may_go_on: impl Fn() -> bool) -> PastPage {
    let mut page = PastPage { is_whole: true, ..PastPage::default() };
    let mut question = query.question.clone();
    if let Some(after) = &query.after {
        // Nothing that started later than the last page ended is on this one.
        let until_ns = after.start.0.saturating_add(1).saturating_mul(TICK_NS);
        question.until_ns = Some(question.until_ns.map_or(until_ns, |asked_ns| asked_ns.min(until_ns)));
    }
    let mut first: BTreeMap<Rank, Entry> = BTreeMap::new();
    for archive in archives {
        let searched = archive::search(&archive.directory, &question, |entry| {
            let rank = Rank::of(entry, &archive.router);
            if query.after.as_ref().is_none_or(|after| rank > *after) {
                first.insert(rank, *entry);
                if first.len() > query.limit + 1 {
                    first.pop_last();
                }
            }
            page.is_whole &= may_go_on();
            Ok(page.is_whole)
        });
        match searched {
            Ok(findings) => page.problems.extend(findings.damages.iter().map(Error::to_string)),
            Err(error) => page.problems.push(error.to_string()),
        }
    }
    page.is_whole &= page.problems.is_empty();
    let has_more = first.len() > query.limit;
    page.entries = first.into_iter().take(query.limit).map(|(rank, entry)| (entry, rank.router)).collect();
    let last = page.entries.last().filter(|_| has_more);
    page.next = last.map(|(entry, router)| Rank::cursor(entry, router));
    page
}

#[cfg(test)]
mod tests;
