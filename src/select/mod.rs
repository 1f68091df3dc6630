//! What of a list is shown: a filter, an order, a limit, groups. It never changes what is tracked or listed.
//!
//! The same language selects in lists, snapshots and archives.

mod filter;
mod groups;
mod needs;
mod order;
mod window;

pub use filter::{FILTER_SIZE_MAX, Filter, FilterError, duration, time_ns};
pub use groups::{Group, GroupBy, GroupKey};
pub use needs::Needs;
pub use order::Sort;
pub use window::{Arrangement, Rows};

use crate::flow::VlanTags;
use crate::list::{Row, RowState};
use std::net::SocketAddr;

/// What a filter is asked about: a connection of a list or of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The server's address and port.
    pub server: SocketAddr,
    /// The VLAN tags, where they are part of the key.
    pub vlan: VlanTags,
    /// The state; `None` when the connection has ended.
    pub state: Option<RowState>,
    /// When it started, in ns since 1970.
    pub start_ns: i64,
    /// How old it is, or was at its end, in ns.
    pub age_ns: i64,
    /// When it ended, in ns since 1970.
    pub end_ns: Option<i64>,
    /// Why it ended.
    pub reason: Option<&'static str>,
    /// Whether its handshake was not seen.
    pub midstream: bool,
    /// Whether it may have closed unseen.
    pub unsettled: bool,
}

impl From<&Row> for Facts {
    fn from(row: &Row) -> Self {
        let Row { client, server, vlan, start_ns, age_ns, state, midstream, unsettled, .. } = *row;
        Facts {
            client,
            server,
            vlan,
            state: Some(state),
            start_ns,
            age_ns,
            end_ns: None,
            reason: None,
            midstream,
            unsettled,
        }
    }
}

/// What of a list is shown, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Which connections; `None` for all.
    pub filter: Option<Filter>,
    /// In which order; `None` for that of a list.
    pub sort: Option<Sort>,
    /// How many lines at most; `None` for all.
    pub limit: Option<usize>,
    /// Counts of connections that have this in common, in the place of the connections.
    pub group_by: Option<GroupBy>,
}

impl Selection {
    /// Whether anything but all connections in the order of a list is asked for.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        *self != Selection::default()
    }

    /// Whether the filter selects this connection.
    #[must_use]
    pub fn selects(&self, row: &Row) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.selects(&Facts::from(row)))
    }

    /// The memory in bytes that selecting from `connections_max` connections takes at most.
    #[must_use]
    pub fn memory_size(&self, connections_max: u64) -> u64 {
        let kept = self.limit.map_or(connections_max, |limit| connections_max.min(limit as u64));
        match (self.group_by, self.sort) {
            (Some(_), _) => connections_max.saturating_mul(groups::GROUP_SIZE),
            (None, Some(_)) => kept.saturating_mul(order::SORTED_SIZE),
            (None, None) => 0,
        }
    }

    /// What is selected of these rows, counted, with what is shown of it where that is in another order than theirs.
    ///
    /// Complexity: a pass over the rows; memory for all groups or, with an order, for the rows that are shown.
    pub fn find(&self, rows: impl Iterator<Item = Row>) -> Found<'_> {
        let mut selected_count = 0;
        let selected = rows.filter(|row| self.selects(row)).inspect(|_| selected_count += 1);
        let (mut groups, mut sorted) = (None, None);
        match (self.group_by, self.sort) {
            (Some(group_by), _) => groups = Some(self.limited(group_by.of(selected))),
            (None, Some(sort)) => sorted = Some(sort.first(selected, self.limit.unwrap_or(usize::MAX))),
            (None, None) => selected.for_each(drop),
        }
        Found { selection: self, selected_count, groups, sorted }
    }

    /// The rows to show, in their order.
    ///
    /// Complexity: a pass over the rows; with an order, memory for those that are shown.
    pub fn rows<'a>(&'a self, rows: impl Iterator<Item = Row> + 'a) -> Box<dyn Iterator<Item = Row> + 'a> {
        let selected = rows.filter(|row| self.selects(row));
        let limit = self.limit.unwrap_or(usize::MAX);
        match self.sort {
            Some(sort) => Box::new(sort.first(selected, limit).into_iter()),
            None => Box::new(selected.take(limit)),
        }
    }

    /// The groups to show, the largest first, and how many there are in all; `None` where no groups are asked for.
    ///
    /// Complexity: a pass over the rows, memory for all groups.
    pub fn groups(&self, rows: impl Iterator<Item = Row>) -> Option<(Vec<Group>, usize)> {
        Some(self.limited(self.group_by?.of(rows.filter(|row| self.selects(row)))))
    }

    /// The groups to show of these, and how many there are in all.
    fn limited(&self, mut groups: Vec<Group>) -> (Vec<Group>, usize) {
        let count = groups.len();
        groups.truncate(self.limit.unwrap_or(usize::MAX));
        (groups, count)
    }
}

/// What a selection found in a list.
pub struct Found<'a> {
    /// What was selected by.
    pub selection: &'a Selection,
    /// How many connections are selected.
    pub selected_count: u64,
    /// The groups to show, the largest first, and how many there are in all; `None` where no groups are asked for.
    pub groups: Option<(Vec<Group>, usize)>,
    /// The rows to show, where an order is asked for.
    sorted: Option<Vec<Row>>,
}

impl Found<'_> {
    /// How many lines are shown: connections or groups.
    #[must_use]
    pub fn line_count(&self) -> u64 {
        match &self.groups {
            Some((groups, _)) => groups.len() as u64,
            None => self.selected_count.min(self.selection.limit.map_or(u64::MAX, |limit| limit as u64)),
        }
    }

    /// The connections to show, in their order. The rows have to be those in which they were found.
    ///
    /// Complexity: a pass over the rows, or none where an order is asked for.
    pub fn rows<'a>(&'a self, rows: impl Iterator<Item = Row> + 'a) -> Box<dyn Iterator<Item = Row> + 'a> {
        match &self.sorted {
            Some(sorted) => Box::new(sorted.iter().copied()),
            None => self.selection.rows(rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_counted_and_what_a_selection_shows() {
        let row = |number: u16| Row {
            age_ns: i64::from(number % 7),
            ..Row::between([40_000 + number, 440 + number % 5].map(|port| SocketAddr::new([10, 0, 0, 1].into(), port)))
        };
        let rows = || (0..100).map(row);
        for filter in [None, Some("server port 443")] {
            let selected_count = if filter.is_some() { 20 } else { 100 };
            for (sort, group_by) in [(None, None), (Some(Sort::Age), None), (None, Some(GroupBy::Port))] {
                for limit in [None, Some(0), Some(3), Some(1_000)] {
                    let filter = filter.map(|text| text.parse().unwrap());
                    let selection = Selection { filter, sort, limit, group_by };
                    let found = selection.find(rows());
                    assert_eq!((found.selected_count, &found.groups), (selected_count, &selection.groups(rows())));
                    assert!(found.rows(rows()).eq(selection.rows(rows())), "{selection:?}");
                    let groups = found.groups.as_ref().map(|(groups, _)| groups.len());
                    assert_eq!(found.line_count() as usize, groups.unwrap_or_else(|| found.rows(rows()).count()));
                }
            }
        }
    }
}
