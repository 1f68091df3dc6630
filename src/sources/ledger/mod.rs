//! The deltas of all shards, added up until the end of an interval, and the report that they give.
//!
//! Deltas come in any order: the rows of the report depend only on what was counted.

use crate::sources::address::{AddressKey, SourceKeyV4, SourceKeyV6};
use crate::sources::delta::{FamilyDelta, FamilyGeometry, SourceValues};
use crate::sources::recent::RecentSource;
use crate::sources::{SourceDelta, SourceEvent, SourceGeometry};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Entry, Values as Listed};
use std::net::IpAddr;

/// The interval of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// The number of the list of the same interval.
    pub interval: u64,
    /// When the interval began, in ns since 1970.
    pub start_ns: i64,
    /// When the interval ended, in ns since 1970.
    pub end_ns: i64,
    /// Packets that the kernel lost and signals that a full queue lost, in it.
    pub dropped: u64,
    /// Packets that the capture cut before their TCP flags, in it.
    pub cut: u64,
    /// Intervals beside its own that the report covers.
    pub merged: u64,
}

/// A source in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address of the source.
    pub address: IpAddr,
    /// The SYNs of the source: exact where `attempts_max` is `None`, otherwise at least this many.
    pub attempts: u64,
    /// The SYN-ACKs that came back to it, exact where the attempts are.
    pub answered: u64,
    /// The RSTs that came back instead, exact where the attempts are.
    pub refused: u64,
    /// The most attempts there can have been, where the other figures are not exact.
    pub attempts_max: Option<u64>,
}

impl Source {
    /// Attempts that were neither answered nor refused.
    #[must_use]
    pub fn unanswered(&self) -> u64 {
        self.attempts.saturating_sub(self.answered.saturating_add(self.refused))
    }
}

/// The sources that opened connections in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The interval.
    pub period: Period,
    /// Whether every source is named with exact figures and no packet was lost.
    pub complete: bool,
    /// About how many sources are not named; 0 exactly when complete. Where packets were lost it is one more, since it
    /// cannot be known that they held no source.
    pub missing: u64,
    /// The number of all SYNs, whether their source is named or not.
    pub attempts: u64,
    /// The number of all SYN-ACKs.
    pub answered: u64,
    /// The number of all refusals.
    pub refused: u64,
    /// The sources, those with the most attempts first, then by address.
    pub sources: Vec<Source>,
}

/// The sums of one family.
struct FamilyLedger<K: flowpeel_iblt::Key> {
    sum: FamilyDelta<K>,
    /// The recent sources of all partitions, each once for every partition that has it.
    seen: Vec<RecentSource<K>>,
    seen_max: usize,
    row_count_max: u64,
}

impl<K: AddressKey> FamilyLedger<K> {
    fn new(geometry: FamilyGeometry, secret: &Secret) -> Self {
        FamilyLedger {
            sum: FamilyDelta::new(geometry, secret, 0),
            seen: Vec::with_capacity(geometry.named_max()),
            seen_max: geometry.named_max(),
            row_count_max: geometry.row_count_max() as u64,
        }
    }

    fn add(&mut self, delta: &FamilyDelta<K>) {
        assert!(self.sum.counter.merge(&delta.counter).is_ok(), "deltas have the shape of the ledger");
        self.sum.distinct.join(&delta.distinct);
        let recent = delta.recent.iter().flat_map(|recent| recent.iter()).copied();
        let room = self.seen_max.saturating_sub(self.seen.len());
        self.seen.extend(recent.filter(|seen| seen.attempts > 1).take(room));
    }

    /// Moves the sources to `report`, with about how many are not named. The report is incomplete unless all are named
    /// exactly.
    fn drain_into(&mut self, report: &mut Report) {
        let before = report.sources.len();
        let distinct_count = self.sum.distinct.count();
        // The estimate is right to a few percent, and no more rows can come than there is room for.
        let row_count = (distinct_count + distinct_count / 16 + 16).min(self.row_count_max);
        report.sources.reserve_exact(row_count as usize);
        let mut is_right = true;
        let is_empty = self.sum.counter.peel_values(|entry| match source_of(&entry) {
            Some(source) => report.sources.push(source),
            None => is_right = false,
        });
        if !is_empty || !is_right {
            report.complete = false;
            self.name(report, before);
            let named = (report.sources.len() - before) as u64;
            report.missing += distinct_count.saturating_sub(named).max(1);
        }
        self.sum.clear();
        self.seen.clear();
    }

    /// Adds the recent sources that were not listed, with what is known of them.
    fn name(&mut self, report: &mut Report, before: usize) {
        // Rows are put into their final order at the end.
        report.sources[before..].sort_unstable_by_key(|source| source.address);
        let listed_end = report.sources.len();
        self.seen.sort_unstable_by_key(|seen| seen.key);
        for same in self.seen.chunk_by(|one, other| one.key == other.key) {
            let key = same[0].key;
            let address = key.address();
            let listed = &report.sources[before..listed_end];
            if listed.binary_search_by_key(&address, |source| source.address).is_ok() {
                continue;
            }
            let sum = |of: fn(&RecentSource<K>) -> u32| same.iter().map(|seen| u64::from(of(seen))).sum::<u64>();
            let attempts = sum(|seen| seen.attempts);
            let attempts_max = self.sum.counter.table().least(&key, |cell| {
                let (answered, refused) = flowpeel_iblt::TableCell::value(cell);
                let events = flowpeel_iblt::TableCell::count(cell);
                events.max(0).unsigned_abs().saturating_sub(answered.saturating_add(refused))
            });
            report.sources.push(Source {
                address,
                attempts,
                answered: sum(|seen| seen.answered),
                refused: sum(|seen| seen.refused),
                attempts_max: Some(attempts_max.max(attempts)),
            });
        }
    }
}

/// The source of a listed entry, whose multiplicity is the number of the source's events.
fn source_of<K: AddressKey>(entry: &Entry<K, SourceValues>) -> Option<Source> {
    let (answered, refused) = match entry.values {
        Listed::One(values) | Listed::Sum(values) => values,
        Listed::Two(_) | Listed::Unknown => return None,
    };
    let attempts = u64::try_from(entry.count).ok()?.checked_sub(answered.checked_add(refused)?)?;
    Some(Source { address: entry.key.address(), attempts, answered, refused, attempts_max: None })
}

/// Adds up what shards counted, and makes reports from it.
pub struct SourceLedger {
    v4: FamilyLedger<SourceKeyV4>,
    v6: FamilyLedger<SourceKeyV6>,
    totals: [u64; SourceEvent::COUNT],
}

impl SourceLedger {
    /// An empty ledger for deltas of this shape that were counted under this secret.
    #[must_use]
    pub fn new(geometry: SourceGeometry, secret: &Secret) -> Self {
        SourceLedger {
            v4: FamilyLedger::new(geometry.v4, secret),
            v6: FamilyLedger::new(geometry.v6, secret),
            totals: [0; SourceEvent::COUNT],
        }
    }

    /// Adds a delta.
    ///
    /// # Panics
    ///
    /// The delta does not have the shape of the ledger.
    pub fn add(&mut self, delta: &SourceDelta) {
        self.v4.add(&delta.v4);
        self.v6.add(&delta.v6);
        self.totals.iter_mut().zip(delta.totals).for_each(|(total, count)| *total += count);
    }

    /// The report of everything that was added since the last one.
    ///
    /// Complexity: a few passes over the cells, and sorting the rows.
    pub fn report(&mut self, period: Period) -> Report {
        let [attempts, answered, refused] = std::mem::take(&mut self.totals);
        let sources = Vec::new();
        let mut report = Report { period, complete: true, missing: 0, attempts, answered, refused, sources };
        self.v4.drain_into(&mut report);
        self.v6.drain_into(&mut report);
        if period.dropped > 0 || period.cut > 0 {
            report.complete = false;
            report.missing += 1;
        }
        report.sources.sort_unstable_by_key(|source| (std::cmp::Reverse(source.attempts), source.address));
        report
    }
}

#[cfg(test)]
mod tests;
