//! Where two taps do not agree: connections that one of them sees and its twin does not, since when.
//!
//! It takes one view of both after another, and gives lines of JSON: how the twins are whenever that changes, and each
//! difference when it has lasted for a grace, and when it has ended. What one of them only hears of later, because its
//! list is behind, is no difference: it does not last. While one of them is late, gone or cannot be read nothing can
//! be compared, and all stays as it was. Half-open connections are not compared, since answers may take another way.

use crate::network::{Health, Network, Router};
use flowpeel::error::{Error, Result};
use flowpeel::export::{TimeFormatter, append_joined, rfc3339};
use flowpeel::flow::AnyKey;
use flowpeel::list::{Row, RowState};
use serde::Serialize;
use std::collections::BTreeMap;

/// The names of two routers that are to see the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwinNames([String; 2]);

impl TwinNames {
    /// Two names, which are different.
    ///
    /// # Errors
    ///
    /// They are not, or are not two.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let names = text.split_once(',').filter(|(one, other)| one != other && !one.is_empty() && !other.is_empty());
        let (one, other) = names.ok_or_else(|| "twins are two names of routers: east-1,east-2".to_owned())?;
        Ok(TwinNames([one.to_owned(), other.to_owned()]))
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn has(&self, router: &str) -> bool {
        self.0.iter().any(|name| name == router)
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// A connection that one twin sees and the other does not.
#[derive(Clone, Copy, Debug)]
struct Standing {
    row: Row,
    /// The end of the first view in which it was so, and whether that was the first of all: it may have been so before.
    since_ns: i64,
    is_bound: bool,
    is_reported: bool,
    /// Whether it is so in the view that is compared.
    is_present: bool,
}

/// What happened to a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum DifferenceChange {
    /// It has lasted.
    Stands,
    /// The twin sees it, too.
    Seen,
    /// Neither sees it.
    Closed,
}

#[derive(Serialize)]
struct DifferenceFields<'a> {
    change: DifferenceChange,
    missing_from: &'a str,
    since: String,
    since_is_bound: bool,
    certain: bool,
}

/// How the twins are.
#[derive(Clone, PartialEq, Serialize)]
struct Status {
    comparable: bool,
    complete: bool,
    routers: Vec<Twin>,
}

/// How one of them is.
#[derive(Clone, PartialEq, Serialize)]
struct Twin {
    name: String,
    health: Health,
    complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Serialize)]
struct StatusLine<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    twins: StatusFields<'a>,
}

#[derive(Serialize)]
struct StatusFields<'a> {
    #[serde(flatten)]
    status: &'a Status,
    differences: usize,
}

/// Compares two routers.
pub struct Twins {
    names: TwinNames,
    /// For how many intervals a difference has to last.
    grace_intervals: u32,
    /// By the connection, and which of the twins sees it.
    standing: BTreeMap<(AnyKey, usize), Standing>,
    status: Option<Status>,
    is_begun: bool,
    times: TimeFormatter,
}

impl Twins {
    /// Two routers that were not compared yet.
    #[must_use]
    pub fn new(names: TwinNames, grace_intervals: u32) -> Self {
        let times = TimeFormatter::default();
        Twins { names, grace_intervals, standing: BTreeMap::new(), status: None, is_begun: false, times }
    }

    /// Whether the last view could be compared.
    #[must_use]
    pub fn is_comparable(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.comparable)
    }

    /// How many differences stand.
    #[must_use]
    pub fn count(&self) -> usize {
        self.standing.values().filter(|standing| standing.is_reported).count()
    }

    /// Appends a line if the twins are not as they were at the last look. `routers` are how those of the view are now.
    ///
    /// # Errors
    ///
    /// The view lacks one of them.
    pub fn look(&mut self, network: &Network, routers: &[Router], lines: &mut Vec<u8>) -> Result<()> {
        let status = self.status_of(self.twins_in(routers)?);
        if self.status.as_ref() != Some(&status) {
            let timestamp = rfc3339(network.joined.end_ns());
            let fields = StatusFields { status: &status, differences: self.count() };
            let line = StatusLine { timestamp: &timestamp, event_type: "twins", twins: fields };
            // All of it can be written as JSON.
            lines.extend(serde_json::to_vec(&line).unwrap_or_default());
            lines.push(b'\n');
            self.status = Some(status);
        }
        Ok(())
    }

    /// Compares a view, and appends the lines of what has changed. With `is_only`, no view follows: what is older than
    /// the grace is a difference then.
    ///
    /// Complexity: a pass over the view and the differences.
    ///
    /// # Errors
    ///
    /// The view lacks one of the twins.
    pub fn compare(&mut self, network: &Network, routers: &[Router], is_only: bool, lines: &mut Vec<u8>) -> Result<()> {
        let [one, other] = self.twins_in(routers)?;
        let mut differences = Vec::new();
        if self.status_of([one, other]).comparable {
            let interval_s = one.interval.unwrap_or(0.0).max(other.interval.unwrap_or(0.0));
            let grace_ns = (interval_s * 1e9) as i64 * i64::from(self.grace_intervals);
            // In lists of one end nothing is behind.
            let is_certain = |router: &Router| router.complete && (!is_only || one.end == other.end);
            self.note(network);
            self.settle(network, Patience { grace_ns, is_only }, [one, other].map(is_certain), &mut differences);
            self.is_begun = true;
        }
        self.look(network, routers, lines)?;
        lines.extend(differences);
        Ok(())
    }

    fn twins_in<'a>(&self, routers: &'a [Router]) -> Result<[&'a Router; 2]> {
        let mut found = self.names.iter().filter_map(|name| routers.iter().find(|router| router.name == name));
        found.next().zip(found.next()).map(Into::into).ok_or_else(|| Error::new("one of the twins has no lists here"))
    }

    fn status_of(&self, twins: [&Router; 2]) -> Status {
        let is_comparable = |router: &Router| router.in_view && router.health == Health::Reporting;
        Status {
            comparable: twins.into_iter().all(is_comparable),
            complete: twins.iter().all(|router| router.complete),
            routers: twins.map(twin).into(),
        }
    }

    /// Notes what one of them sees alone in this view.
    fn note(&mut self, network: &Network) {
        self.standing.values_mut().for_each(|standing| standing.is_present = false);
        let bits: Vec<Option<usize>> = self.names.iter().map(|name| network.bit_of(name)).collect();
        for (row, seen) in network.joined.iter() {
            if row.state != RowState::Established || seen.count() != 1 {
                continue;
            }
            let seer = bits.iter().position(|bit| bit.is_some_and(|bit| seen.has(bit)));
            let key = AnyKey::of_ends(row.client, row.server, row.vlan);
            let Some(key) = key.zip(seer) else { continue };
            let since_ns = network.joined.end_ns();
            let new = Standing { row, since_ns, is_bound: !self.is_begun, is_reported: false, is_present: true };
            let standing = self.standing.entry(key).or_insert(new);
            (standing.row, standing.is_present) = (row, true);
        }
    }

    /// Appends the lines of differences that have lasted, and of those that have ended.
    fn settle(&mut self, network: &Network, patience: Patience, is_certain: [bool; 2], lines: &mut Vec<u8>) {
        let end_ns = network.joined.end_ns();
        let end = rfc3339(end_ns);
        let Twins { names, standing, times, .. } = self;
        standing.retain(|(key, seer), standing| {
            let from_ns = if patience.is_only { standing.row.start_ns } else { standing.since_ns };
            let has_lasted = end_ns.saturating_sub(from_ns) >= patience.grace_ns;
            let change = match standing.is_present {
                true if standing.is_reported || !has_lasted => return true,
                true => DifferenceChange::Stands,
                false if !standing.is_reported => return false,
                false if is_seen(network, key) => DifferenceChange::Seen,
                false => DifferenceChange::Closed,
            };
            standing.is_reported = true;
            let fields = DifferenceFields {
                change,
                missing_from: names.0.get(1 - *seer).map_or("", String::as_str),
                since: rfc3339(standing.since_ns),
                since_is_bound: standing.is_bound,
                certain: is_certain.get(1 - *seer).copied().unwrap_or_default(),
            };
            // All of it can be written as JSON.
            let routers = serde_json::to_vec(&[names.0.get(*seer)]).unwrap_or_default();
            let fields = serde_json::to_vec(&fields).unwrap_or_default();
            append_joined(lines, times, &standing.row, &end, &[&routers, &b",\"difference\":"[..], &fields].concat());
            change == DifferenceChange::Stands
        });
    }
}

/// For how long a difference has to last, and whether no view follows.
#[derive(Clone, Copy)]
struct Patience {
    grace_ns: i64,
    is_only: bool,
}

/// Whether any of the routers sees this connection.
fn is_seen(network: &Network, key: &AnyKey) -> bool {
    let found = network.joined.get(network.joined.place_of(key));
    found.is_some_and(|(row, _)| AnyKey::of_ends(row.client, row.server, row.vlan).as_ref() == Some(key))
}

fn twin(router: &Router) -> Twin {
    let Router { name, health, complete, problem, .. } = router;
    Twin { name: name.clone(), health: *health, complete: *complete, problem: problem.clone() }
}

#[cfg(test)]
mod tests;
