//! What the headers of lists say of their intervals, for as long as the lists are kept: how many connections were
//! open, opened and closed, and what was lost.
//!
//! Headers are read from the directories in which lists are written, each once, and forgotten with their lists.
//! Nothing else is kept. What several routers see counts once for each: lists say how many, not which.

use crate::newest::{self, Place};
use flowpeel::error::Result;
use flowpeel::export::{ListFacts, ListFile, ListName};
use flowpeel::signal::PartitionSet;
use std::collections::{BTreeMap, BTreeSet};

/// The most headers that are kept, of all routers together: a day of ten routers in steps of ten seconds, in some ten
/// MiB.
pub const HEADER_COUNT_MAX: usize = 1 << 17;

/// The most points of one answer.
pub const POINT_COUNT_MAX: usize = 1_000;

/// What a list says of its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    start_ns: i64,
    end_ns: i64,
    open: u64,
    half_open: u64,
    opened: u64,
    closed: u64,
    missing: u64,
    dropped: u64,
    is_complete: bool,
    partitions: PartitionSet,
}

impl From<&ListFacts> for Interval {
    fn from(list: &ListFacts) -> Self {
        Interval {
            start_ns: list.end_ns.saturating_sub(list.interval_ns()),
            end_ns: list.end_ns,
            open: list.flows,
            half_open: list.half_open,
            opened: list.opened,
            closed: list.closed,
            missing: list.missing,
            dropped: list.dropped,
            is_complete: list.is_complete,
            partitions: list.part.unwrap_or(PartitionSet::ALL),
        }
    }
}

/// The headers of one directory; `None` stands for a file that is no list of one router.
type Headers = BTreeMap<ListName, Option<Interval>>;

/// The headers of the lists of all routers.
#[derive(Default)]
pub struct History(BTreeMap<Place, Headers>);

/// Headers that were read, and those whose lists are gone.
pub struct News {
    place: Place,
    read: Headers,
    first_kept: Option<ListName>,
    gone: BTreeSet<ListName>,
}

/// Which part of the history is asked for.
#[derive(Clone, Debug)]
pub struct Span {
    /// The router; all together without one.
    pub router: Option<String>,
    /// What ended later, in ns since 1970; all that is kept without it.
    pub since_ns: Option<i64>,
    /// What did not end later, in ns since 1970.
    pub until_ns: Option<i64>,
    /// The most points, at least 1.
    pub point_count: usize,
}

/// What is known of a step of time, of all routers in it together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The end of the step in ns since 1970.
    pub end_ns: i64,
    /// Connections that were established, by the last list of each router in it.
    pub open: u64,
    /// Connections that were half-open, by the same lists.
    pub half_open: u64,
    /// Connections that were established in it.
    pub opened: u64,
    /// Established connections that ended in it.
    pub closed: u64,
    /// About how many connections were missing, by the same lists.
    pub missing: u64,
    /// Packets that were lost in it.
    pub dropped: u64,
    /// Whether all of its lists are complete.
    pub is_complete: bool,
    /// How many routers have a list in it.
    pub routers: u64,
}

/// An answer: points of equal distance, those without a list left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// The length of a step in ns.
    pub step_ns: i64,
    /// When the first interval begins of which there is a header; `None` where there is none at all.
    pub kept_since_ns: Option<i64>,
    /// How many routers have lists in it.
    pub routers: u64,
    /// The points, by time.
    pub points: Vec<Point>,
}

impl History {
    /// Reads the headers that are not known yet, the newest first, in directories that share what may be kept equally.
    /// What can't be read is passed over: the view reports a list that is damaged.
    ///
    /// Complexity: a file is opened for each list that is new.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn look(&self, place: &Place, place_count: usize) -> Result<News> {
        let names = newest::names(&place.directory)?;
        let share = HEADER_COUNT_MAX / place_count.max(1);
        let kept = names.get(names.len().saturating_sub(share)..).unwrap_or_default();
        let nothing = Headers::new();
        let known = self.0.get(place).unwrap_or(&nothing);
        let new = kept.iter().filter(|name| !known.contains_key(name));
        let read = new.map(|name| {
            let file = ListFile::open(&place.directory.join(name.path())).ok();
            (*name, file.filter(|file| !file.is_merged).map(|file| Interval::from(&file.facts)))
        });
        let read = read.collect();
        let there: BTreeSet<&ListName> = kept.iter().collect();
        let gone = known.keys().filter(|name| !there.contains(name)).copied().collect();
        Ok(News { place: place.clone(), read, first_kept: kept.first().copied(), gone })
    }

    /// Takes over what was found.
    pub fn take(&mut self, news: News) {
        let News { place, read, first_kept, gone } = news;
        let headers = self.0.entry(place).or_default();
        headers.retain(|name, _| !gone.contains(name));
        headers.extend(read);
        if let Some(first) = first_kept {
            headers.retain(|name, _| *name >= first);
        }
    }

    /// Forgets directories that are not among these.
    pub fn keep(&mut self, places: &[Place]) {
        self.0.retain(|place, _| places.binary_search(place).is_ok());
    }

    /// The part that is asked for.
    ///
    /// Complexity: a pass over the headers.
    #[must_use]
    pub fn course(&self, span: &Span) -> Course {
        let is_asked = |place: &Place| span.router.as_ref().is_none_or(|router| place.router == *router);
        let is_in_time = |interval: &Interval| {
            span.since_ns.is_none_or(|since_ns| interval.end_ns > since_ns)
                && span.until_ns.is_none_or(|until_ns| interval.end_ns <= until_ns)
        };
        let mut asked: Vec<(&Place, Vec<&Interval>)> = self
            .0
            .iter()
            .filter(|(place, _)| is_asked(place))
            .map(|(place, all)| (place, all.values().flatten().collect()))
            .collect();
        let kept_since_ns = asked.iter().flat_map(|(_, all)| all).map(|interval| interval.start_ns).min();
        asked.iter_mut().for_each(|(_, intervals)| intervals.retain(|interval| is_in_time(interval)));
        asked.retain(|(_, intervals)| !intervals.is_empty());
        let step_ns = step_ns(&asked, span.point_count);
        let mut steps: BTreeMap<i64, Point> = BTreeMap::new();
        for parts in asked.chunk_by(|(one, _), (other, _)| one.router == other.router) {
            for (step, point) in router_steps(parts, step_ns) {
                steps.entry(step).and_modify(|sum| sum.add(&point)).or_insert(point);
            }
        }
        // While the lists of an interval come one after another, the last step would show a dip that is none.
        let mut last = steps.values().rev().map(|point| point.routers);
        if let (Some(newest), Some(before)) = (last.next(), last.next())
            && newest < before
        {
            steps.pop_last();
        }
        let routers = asked.iter().map(|(place, _)| &place.router).collect::<BTreeSet<_>>().len() as u64;
        Course { step_ns, kept_since_ns, routers, points: steps.into_values().collect() }
    }
}

/// The length of a step: so many intervals of the router with the longest that all fits.
fn step_ns(asked: &[(&Place, Vec<&Interval>)], point_count: usize) -> i64 {
    let usual_ns = |intervals: &[&Interval]| {
        let mut lengths: Vec<i64> = intervals.iter().map(|one| one.end_ns.saturating_sub(one.start_ns)).collect();
        let middle = lengths.len() / 2;
        // The first interval of a run and the last are shorter.
        (middle < lengths.len()).then(|| *lengths.select_nth_unstable(middle).1)
    };
    let interval_ns = asked.iter().filter_map(|(_, intervals)| usual_ns(intervals)).max().unwrap_or(1).max(1);
    let ends = || asked.iter().flat_map(|(_, intervals)| intervals).map(|interval| interval.end_ns);
    let (Some(first_ns), Some(last_ns)) = (ends().min(), ends().max()) else { return interval_ns };
    let intervals = (i128::from(last_ns) - i128::from(first_ns)) / i128::from(interval_ns) + 1;
    // One less, since steps begin where the clock says and not where the lists do.
    let steps = (point_count as i128 - 1).max(1);
    let factor = (intervals + steps - 1) / steps;
    i64::try_from(i128::from(interval_ns) * factor).unwrap_or(i64::MAX)
}

/// The steps of a router whose lists are in one place, or in parts. One in which partitions are missing is not
/// complete.
fn router_steps(parts: &[(&Place, Vec<&Interval>)], step_ns: i64) -> BTreeMap<i64, Point> {
    let mut steps: BTreeMap<i64, (Point, PartitionSet)> = BTreeMap::new();
    for (_, intervals) in parts {
        for (step, (part, partitions)) in part_steps(intervals, step_ns) {
            let add = |(whole, there): &mut (Point, PartitionSet)| {
                whole.add_part(&part);
                *there = there.or(partitions);
            };
            steps.entry(step).and_modify(add).or_insert((part, partitions));
        }
    }
    let whole = |(mut point, partitions): (Point, PartitionSet)| {
        point.is_complete &= partitions == PartitionSet::ALL;
        point
    };
    steps.into_iter().map(|(step, parts)| (step, whole(parts))).collect()
}

/// The steps of one place, each with the partitions that its last list has.
fn part_steps(intervals: &[&Interval], step_ns: i64) -> BTreeMap<i64, (Point, PartitionSet)> {
    let mut steps: BTreeMap<i64, (Point, PartitionSet)> = BTreeMap::new();
    for interval in intervals {
        // A list that ends with a step is the last in it.
        let step = (interval.end_ns.saturating_sub(1)).div_euclid(step_ns);
        let begun = || (Point { is_complete: true, routers: 1, ..Point::default() }, PartitionSet::NONE);
        let (point, partitions) = steps.entry(step).or_insert_with(begun);
        point.end_ns = step.saturating_add(1).saturating_mul(step_ns);
        (point.open, point.half_open, point.missing) = (interval.open, interval.half_open, interval.missing);
        point.opened = point.opened.saturating_add(interval.opened);
        point.closed = point.closed.saturating_add(interval.closed);
        point.dropped = point.dropped.saturating_add(interval.dropped);
        point.is_complete &= interval.is_complete;
        *partitions = interval.partitions;
    }
    steps
}

impl Point {
    /// Adds the same step of another part of the router's lists: what it has of the partitions is its own, the rest is
    /// of the whole router in all of them.
    fn add_part(&mut self, part: &Point) {
        let whole = (self.opened.max(part.opened), self.closed.max(part.closed), self.dropped.max(part.dropped));
        self.add(&Point { routers: 0, ..*part });
        (self.opened, self.closed, self.dropped) = whole;
    }

    /// Adds the same step of another router.
    fn add(&mut self, other: &Point) {
        self.open = self.open.saturating_add(other.open);
        self.half_open = self.half_open.saturating_add(other.half_open);
        self.missing = self.missing.saturating_add(other.missing);
        self.opened = self.opened.saturating_add(other.opened);
        self.closed = self.closed.saturating_add(other.closed);
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.is_complete &= other.is_complete;
        self.routers = self.routers.saturating_add(other.routers);
    }
}

#[cfg(test)]
mod tests;
