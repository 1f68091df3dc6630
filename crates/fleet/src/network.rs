//! What is known of a network at one time: the joined view of its routers, and how each of them is.

use crate::joined::{BadList, Joined, ROUTER_COUNT_MAX};
use crate::newest::{InParts, NewestFacts, NewestList, Place};
use flowpeel::error::{Error, Result};
use flowpeel::export::rfc3339;
use flowpeel::signal::PartitionSet;
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// A router whose newest list is this many intervals old is late.
const LATE_INTERVALS: u64 = 2;

/// A router that is this many intervals old is gone.
const GONE_INTERVALS: u64 = 10;

/// However short intervals are, a router is not gone before it was silent for this long.
const GONE_AFTER: Duration = Duration::from_secs(30);

/// How a router is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Its lists come.
    Reporting,
    /// Its newest list is two intervals old or older.
    Late,
    /// Its newest list is ten intervals old or older.
    Gone,
    /// There is no list of it yet.
    Waiting,
    /// Its newest list cannot be read.
    Unreadable,
}

impl Health {
    /// Its name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Health::Reporting => "reporting",
            Health::Late => "late",
            Health::Gone => "gone",
            Health::Waiting => "waiting",
            Health::Unreadable => "unreadable",
        }
    }
}

/// A router of a network.
#[derive(Clone, Debug, Serialize)]
pub struct Router {
    /// Its name.
    pub name: String,
    /// How it is.
    pub health: Health,
    /// Whether its newest list is in the view.
    pub in_view: bool,
    /// When that list ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The length of its interval in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<f64>,
    /// By how many of its intervals it is behind the router whose list ends last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// For how many seconds no list has come; absent where the time is not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<f64>,
    /// The end of the last list before which it began anew, if that was noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarted: Option<String>,
    /// Whether everything that it knew to be open is in its list.
    pub complete: bool,
    /// About how many connections are wrongly not in its list, or wrongly still in it.
    pub missing: u64,
    /// How many connections were established in its interval.
    pub opened: u64,
    /// How many established ones ended in its interval.
    pub closed: u64,
    /// How many connections it sees, of those in the view.
    pub connections: u64,
    /// How many of them no other router sees.
    pub only_here: u64,
    /// The partitions that are not in the view, or whose part is late, where collectors share the work.
    #[serde(skip_serializing_if = "is_none")]
    pub partitions_missing: PartitionSet,
    /// Why its list cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    #[serde(skip)]
    facts: Option<NewestFacts>,
}

impl Router {
    fn new(name: String) -> Self {
        Router {
            name,
            health: Health::Waiting,
            in_view: false,
            end: None,
            interval: None,
            behind: None,
            silent: None,
            restarted: None,
            complete: false,
            missing: 0,
            opened: 0,
            closed: 0,
            connections: 0,
            only_here: 0,
            partitions_missing: PartitionSet::NONE,
            problem: None,
            facts: None,
        }
    }

    fn unreadable(&mut self, error: &Error) {
        self.health = Health::Unreadable;
        self.facts = None;
        self.in_view = false;
        self.problem = Some(error.to_string());
    }

    /// Notes what its newest list says, beside one that ends last of all.
    fn note(&mut self, Gathered { facts, missing, .. }: &Gathered, newest_ns: i64) {
        let facts = facts.clone();
        self.partitions_missing = *missing;
        let list = &facts.list;
        self.in_view = health(newest_ns.saturating_sub(list.end_ns), list.interval_ns()) != Health::Gone;
        self.restarted = facts.is_restarted.then(|| rfc3339(list.end_ns));
        self.end = Some(rfc3339(list.end_ns));
        self.interval = Some(list.interval_ns() as f64 / 1e9);
        self.complete = list.is_complete && self.partitions_missing == PartitionSet::NONE;
        (self.missing, self.opened, self.closed) = (list.missing, list.opened, list.closed);
        self.facts = Some(facts);
        self.judge(newest_ns, None);
    }

    /// Judges how it is, beside a list that ends last of all, and by the time if it is given.
    fn judge(&mut self, newest_ns: i64, now: Option<SystemTime>) {
        let Some(NewestFacts { list, written, .. }) = &self.facts else { return };
        let behind_ns = newest_ns.saturating_sub(list.end_ns).max(0);
        let silence = now.map(|now| now.duration_since(*written).unwrap_or_default());
        let silence_ns = silence.map_or(0, |silence| i64::try_from(silence.as_nanos()).unwrap_or(i64::MAX));
        self.health = health(behind_ns.max(silence_ns), list.interval_ns());
        self.behind = Some(behind_ns.unsigned_abs() / list.interval_ns().unsigned_abs());
        self.silent = silence.map(|silence| (silence.as_secs_f64() * 10.0).round() / 10.0);
    }
}

/// How a router is whose newest list is so old.
fn health(age_ns: i64, interval_ns: i64) -> Health {
    let intervals = age_ns.max(0) as u64 / interval_ns.max(1) as u64;
    if intervals >= GONE_INTERVALS && age_ns.max(0) as u128 >= GONE_AFTER.as_nanos() {
        Health::Gone
    } else if intervals >= LATE_INTERVALS {
        Health::Late
    } else {
        Health::Reporting
    }
}

/// A network at one time.
pub struct Network {
    /// All routers, by name, as they are beside the list that ends last of all.
    pub routers: Vec<Router>,
    /// The connections of those that are in the view.
    pub joined: Joined,
    /// The places in `routers` of those that were joined, in the order of their bits.
    members: Vec<usize>,
}

impl Network {
    /// Joins the newest lists of these routers. One that is gone, by the list that ends last of all, is not in the
    /// view.
    ///
    /// A list that cannot be read makes its router [`Health::Unreadable`], and the view incomplete.
    ///
    /// Complexity: the lists are read once, and again without each one that turns out to be damaged.
    ///
    /// # Errors
    ///
    /// There are more routers than [`ROUTER_COUNT_MAX`].
    pub fn read(places: &[Place]) -> Result<Self> {
        if places.len() > ROUTER_COUNT_MAX {
            return Err(Error::new(format!("a view has at most {ROUTER_COUNT_MAX} routers")));
        }
        let places: Vec<&[Place]> = places.chunk_by(|one, other| one.router == other.router).collect();
        let names = places.iter().filter_map(|parts| parts.first());
        let mut routers: Vec<Router> = names.map(|place| Router::new(place.router.clone())).collect();
        loop {
            let gathered = gather(&places, &mut routers);
            let end_ns = gathered.iter().map(|(_, list)| list.facts.list.end_ns).max().unwrap_or(0);
            let (mut members, mut lists) = (Vec::new(), Vec::new());
            for (at, list) in gathered {
                let Some(router) = routers.get_mut(at) else { continue };
                router.note(&list, end_ns);
                if router.in_view {
                    members.push(at);
                    lists.push(InParts::new(list.parts.into_iter().map(NewestList::rows)));
                }
            }
            match Joined::new(end_ns, lists) {
                Ok(joined) => {
                    let mut network = Network { routers, joined, members };
                    network.count();
                    return Ok(network);
                }
                Err(BadList { router, error }) => {
                    let bad = members.get(router).and_then(|at| routers.get_mut(*at));
                    bad.ok_or_else(|| Error::new("a list that nobody has"))?.unreadable(&error);
                }
            }
        }
    }

    /// A network of routers that report, of which each sees these connections, in the order of a list.
    #[cfg(test)]
    pub(crate) fn of_rows(end_ns: i64, lists: &[(&str, Vec<flowpeel::list::Row>)]) -> Self {
        let rows = lists.iter().map(|(_, rows)| rows.iter().map(|row| Ok(*row))).collect();
        let joined = Joined::new(end_ns, rows).expect("lists in order");
        let router = |(name, _): &(&str, _)| Router {
            health: Health::Reporting,
            in_view: true,
            complete: true,
            ..Router::new((*name).to_owned())
        };
        let mut network =
            Network { routers: lists.iter().map(router).collect(), joined, members: (0..lists.len()).collect() };
        network.count();
        network
    }

    /// Counts what each router sees, and sees alone.
    fn count(&mut self) {
        let mut counts = vec![(0, 0); self.members.len()];
        for (_, seen) in self.joined.iter() {
            let is_only = seen.count() == 1;
            for member in seen.iter() {
                if let Some((connections, only)) = counts.get_mut(member) {
                    *connections += 1;
                    *only += u64::from(is_only);
                }
            }
        }
        for (at, (connections, only_here)) in self.members.iter().zip(counts) {
            if let Some(router) = self.routers.get_mut(*at) {
                (router.connections, router.only_here) = (connections, only_here);
            }
        }
    }

    /// The name of the router with this bit.
    #[must_use]
    pub fn member(&self, bit: usize) -> &str {
        self.members.get(bit).and_then(|at| self.routers.get(*at)).map_or("", |router| &router.name)
    }

    /// The bit of the router of this name, if it is in the view.
    #[must_use]
    pub fn bit_of(&self, name: &str) -> Option<usize> {
        (0..self.members.len()).find(|bit| self.member(*bit) == name)
    }

    /// How many routers are in the view.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// All routers, by name, as they are now: one of which no list has come for long is late or gone, though it stays
    /// in the view while no other is ahead of it.
    #[must_use]
    pub fn routers_at(&self, now: SystemTime) -> Vec<Router> {
        let mut routers = self.routers.clone();
        routers.iter_mut().for_each(|router| router.judge(self.joined.end_ns(), Some(now)));
        routers
    }
}

/// Whether everything known to be open is in the view: all routers report, and their lists are complete.
#[must_use]
pub fn is_complete(routers: &[Router]) -> bool {
    let is_whole = |router: &Router| router.in_view && router.health == Health::Reporting && router.complete;
    !routers.is_empty() && routers.iter().all(is_whole)
}

/// About how many connections are missing in the lists of the routers, together.
#[must_use]
pub fn missing(routers: &[Router]) -> u64 {
    routers.iter().fold(0, |sum, router| sum.saturating_add(router.missing))
}

fn is_none(partitions: &PartitionSet) -> bool {
    *partitions == PartitionSet::NONE
}

/// The newest list of a router, in one piece or in parts.
struct Gathered {
    /// What is known of the part that ends last, and of all together.
    facts: NewestFacts,
    /// The parts that are in the view.
    parts: Vec<NewestList>,
    /// The partitions that are in none of them, or in one that is late.
    missing: PartitionSet,
}

impl Gathered {
    /// Puts together what the directories of a router have; `None` if there is nothing yet.
    fn new(mut parts: Vec<NewestList>) -> Result<Option<Self>> {
        let of = |part: &NewestList| part.facts.list.part.unwrap_or(PartitionSet::ALL);
        let mut there = PartitionSet::NONE;
        for part in &parts {
            if there.and(of(part)) != PartitionSet::NONE {
                return Err(Error::new(
                    "another directory has the same connections of a router of this name: a router is named by its folder",
                ));
            }
            there = there.or(of(part));
        }
        let Some(newest) = parts.iter().max_by_key(|part| part.facts.list.end_ns) else { return Ok(None) };
        let mut facts = newest.facts.clone();
        let (end_ns, interval_ns) = (facts.list.end_ns, facts.list.interval_ns());
        let health = |part: &NewestList| health(end_ns.saturating_sub(part.facts.list.end_ns), interval_ns);
        parts.retain(|part| health(part) != Health::Gone);
        let in_time = parts.iter().filter(|part| health(part) == Health::Reporting);
        let missing = in_time.map(of).fold(PartitionSet::NONE, PartitionSet::or).others();
        facts.list.is_complete = parts.iter().all(|part| part.facts.list.is_complete);
        facts.list.missing = parts.iter().fold(0, |sum, part| part.facts.list.missing.saturating_add(sum));
        facts.is_restarted = parts.iter().any(|part| part.facts.is_restarted);
        Ok(Some(Gathered { facts, parts, missing }))
    }
}

/// The newest lists of all routers that are not known to be unreadable.
fn gather(places: &[&[Place]], routers: &mut [Router]) -> Vec<(usize, Gathered)> {
    let mut gathered = Vec::new();
    for (at, (places, router)) in places.iter().zip(routers).enumerate() {
        if router.health == Health::Unreadable {
            continue;
        }
        let parts = places.iter().filter_map(|place| place.newest().transpose()).collect::<Result<Vec<_>>>();
        match parts.and_then(Gathered::new) {
            Ok(list) => gathered.extend(list.map(|list| (at, list))),
            Err(error) => router.unreadable(&error),
        }
    }
    gathered
}

#[cfg(test)]
mod tests;
