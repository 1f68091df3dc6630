//! The protocol of the control socket: a request and an answer, each a line of JSON.
//!
//! A client sends a [`Request`] and reads an [`Answer`] before it sends the next. Fields that are added later are
//! ignored by who does not know them; where a meaning changes, so does [`PROTOCOL_VERSION`].

use crate::flow::{AnyKey, VlanTags};
use crate::list::{Header, Nat, Row, RowState};
use crate::select::{FILTER_SIZE_MAX, Group, GroupBy, GroupKey, Sort};
use crate::view::SAMPLES_MAX;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// The version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;

/// The longest request in bytes, with its line end: the longest filter, each byte of it written as six, and the rest.
pub const REQUEST_SIZE_MAX: usize = 32 << 10;

/// The most rows or groups of one answer: some screens full.
pub const WINDOW_COUNT_MAX: u64 = 1_000;

/// The longest answer in bytes, with its line end.
pub const ANSWER_SIZE_MAX: usize = 512 << 10;

/// What a row takes in an answer at most, in bytes, by the names and the longest values of its fields.
const ROW_TEXT_SIZE_MAX: usize = 320;

/// What a sample takes in an answer at most, in bytes.
const SAMPLE_TEXT_SIZE_MAX: usize = 240;

const _: () = assert!(6 * FILTER_SIZE_MAX + (4 << 10) < REQUEST_SIZE_MAX);
const _: () = assert!(
    WINDOW_COUNT_MAX as usize * ROW_TEXT_SIZE_MAX + SAMPLES_MAX * SAMPLE_TEXT_SIZE_MAX + (4 << 10) < ANSWER_SIZE_MAX
);

/// What a client asks for: a window of what a filter selects, in an order or in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// [`PROTOCOL_VERSION`].
    pub version: u32,
    /// A filter; empty for all.
    pub filter: String,
    /// The order of rows; that of a list without it.
    pub sort: Option<Sort>,
    /// Asks for groups in the place of rows.
    pub group_by: Option<GroupBy>,
    /// The first row or group, from 0.
    pub offset: u64,
    /// How many, up to [`WINDOW_COUNT_MAX`].
    pub count: u64,
    /// The latest list whose sample the client has: the answer has those after it.
    pub known_list: u64,
    /// The list of which the client has the rows that it asks for: the answer has rows only of another list.
    pub known_rows: u64,
    /// A connection that the client asks for beside them.
    pub connection: Option<Ends>,
}

/// A connection by its ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ends {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The server's address and port.
    pub server: SocketAddr,
    /// The VLAN tags, outermost first, where they are part of a key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlan: Vec<u16>,
}

impl Ends {
    /// The ends of a row.
    #[must_use]
    pub fn of(row: &Row) -> Self {
        Ends { client: row.client, server: row.server, vlan: row.vlan.iter().collect() }
    }

    /// The key without VLAN tags, client first; `None` where the two are not of one family.
    pub(super) fn key(&self) -> Option<AnyKey> {
        AnyKey::of_ends(self.client, self.server, VlanTags::NONE)
    }

    fn tags(&self) -> VlanTags {
        self.vlan.iter().copied().fold(VlanTags::NONE, VlanTags::with)
    }
}

/// What a client gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// [`PROTOCOL_VERSION`].
    pub version: u32,
    /// Why there is nothing else in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RequestError>,
    /// The latest list; `None` before the first.
    pub overview: Option<Overview>,
    /// The numbers of lists after [`Request::known_list`], oldest first.
    pub samples: Vec<Sample>,
    /// The list whose rows were copied last; 0 before the first.
    pub rows_of: u64,
    /// The window; `None` where the client has it.
    pub page: Option<Page>,
    /// The connection that was asked for.
    pub connection: Option<Connection>,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestError {
    /// The reason.
    pub reason: String,
    /// The byte of the filter that it is about, if it is about the filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
}

/// A list without its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overview {
    /// The number of the list, from 1.
    pub list: u64,
    /// Its end, in ns since 1970.
    pub end_ns: i64,
    /// Established connections.
    pub established: u64,
    /// Half-open connections.
    pub half_open: u64,
    /// Whether all that is known to be open is listed, and nothing else.
    pub complete: bool,
    /// About how many connections are missing or wrong; 0 exactly when complete.
    pub missing: u64,
    /// How many may have closed while the process was down.
    pub unsettled: u64,
    /// How many were taken off in the interval without having been seen to end.
    pub evicted: u64,
    /// How many ended in the interval, and went on after all.
    pub reopened: u64,
    /// From when on it is known what opened, in ns since 1970; `None` of a replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<i64>,
    /// Whether connections older than that are still being found.
    #[serde(skip_serializing_if = "is_false")]
    pub warming_up: bool,
    /// Whether no list comes after it.
    pub is_last: bool,
    /// What was lost in the interval.
    pub losses: Losses,
    /// What was lost since the start.
    pub losses_in_all: Losses,
}

/// What was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Packets that the kernel lost, and signals that a full queue lost.
    pub dropped: u64,
    /// Packets that could not be read.
    pub unusable: u64,
    /// Connections and handshakes for which there was no room.
    pub untracked: u64,
    /// Half-open connections that made room for newer ones.
    pub recycled: u64,
    /// Intervals whose lists could not be made in time.
    pub merged: u64,
}

impl Losses {
    pub(super) fn of(header: &Header) -> Self {
        let figures = &header.figures;
        Losses {
            dropped: figures.dropped,
            unusable: figures.unusable,
            untracked: figures.untracked,
            recycled: figures.recycled,
            merged: figures.merged,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        let Losses { dropped, unusable, untracked, recycled, merged } = other;
        let sums = [
            (&mut self.dropped, dropped),
            (&mut self.unusable, unusable),
            (&mut self.untracked, untracked),
            (&mut self.recycled, recycled),
            (&mut self.merged, merged),
        ];
        for (sum, count) in sums {
            *sum = sum.saturating_add(count);
        }
    }

    /// Whether nothing was lost.
    #[must_use]
    pub fn are_none(&self) -> bool {
        *self == Losses::default()
    }
}

/// The numbers of one list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// The number of the list.
    pub list: u64,
    /// Its end, in ns since 1970.
    pub end_ns: i64,
    /// The length of its interval in ns.
    pub length_ns: i64,
    /// Connections established in it.
    pub opened: u64,
    /// Connections that ended in it.
    pub closed: u64,
    /// Established connections at its end.
    pub established: u64,
    /// Half-open connections at its end.
    pub half_open: u64,
}

/// A window of rows or groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Page {
    /// How many connections the copied list has.
    pub listed: u64,
    /// How many of them the filter selects.
    pub selected: u64,
    /// How many groups those are in, where groups were asked for.
    pub group_count: u64,
    /// The first row or group.
    pub offset: u64,
    /// The end of the list that they are of, in ns since 1970.
    pub end_ns: i64,
    /// The rows, in their order.
    pub rows: Vec<RowObject>,
    /// The groups, the largest first.
    pub groups: Vec<GroupObject>,
}

/// A connection of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowObject {
    /// Its ends.
    #[serde(flatten)]
    pub ends: Ends,
    /// Its state.
    pub state: RowState,
    /// When it started, in ns since 1970.
    pub start_ns: i64,
    /// How old it was at the list's end, in ns.
    pub age_ns: i64,
    /// Whether its handshake was not seen.
    #[serde(default, skip_serializing_if = "is_false")]
    pub midstream: bool,
    /// Whether it may have closed while the process was down.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unsettled: bool,
    /// Whether it may have started earlier.
    #[serde(default, skip_serializing_if = "is_false")]
    pub start_is_bound: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl From<&Row> for RowObject {
    fn from(row: &Row) -> Self {
        let Row { start_ns, age_ns, state, midstream, unsettled, start_is_bound, .. } = *row;
        RowObject { ends: Ends::of(row), state, start_ns, age_ns, midstream, unsettled, start_is_bound }
    }
}

impl From<&RowObject> for Row {
    fn from(object: &RowObject) -> Self {
        let RowObject { ref ends, state, start_ns, age_ns, midstream, unsettled, start_is_bound } = *object;
        let between = Row::between([ends.client, ends.server]);
        Row { vlan: ends.tags(), start_ns, age_ns, state, midstream, unsettled, start_is_bound, ..between }
    }
}

/// The connections that have something in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupObject {
    /// What they have in common.
    pub key: GroupName,
    /// How many are established.
    pub established: u64,
    /// How many are half-open.
    pub half_open: u64,
    /// The age of the oldest, in ns.
    pub oldest_ns: i64,
}

/// What connections have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupName {
    /// An address.
    Address(IpAddr),
    /// A port.
    Port(u16),
    /// A state.
    State(RowState),
}

impl From<&Group> for GroupObject {
    fn from(group: &Group) -> Self {
        let key = match group.key {
            GroupKey::Address(address) => GroupName::Address(address),
            GroupKey::Port(port) => GroupName::Port(port),
            GroupKey::State(state) => GroupName::State(state),
        };
        GroupObject { key, established: group.flows, half_open: group.half_open, oldest_ns: group.oldest_ns }
    }
}

/// A connection that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Its ends.
    pub ends: Ends,
    /// Its row in the copied list; `None` where it is not listed.
    pub row: Option<RowObject>,
    /// Its other name, where it is translated and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat: Option<Nat>,
    /// How many connections its client has.
    pub of_client: u64,
    /// How many its server has, at all ports.
    pub of_server: u64,
    /// How many its client has to the same port of its server.
    pub of_both: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_texts_are_no_longer_than_there_is_room_for() {
        let end: SocketAddr = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap();
        let row = RowObject {
            ends: Ends { client: end, server: end, vlan: vec![4095; 2] },
            state: RowState::Established,
            start_ns: i64::MIN,
            age_ns: i64::MIN,
            midstream: true,
            unsettled: true,
            start_is_bound: true,
        };
        let size = serde_json::to_string(&row).unwrap().len() + 1;
        assert!(size <= ROW_TEXT_SIZE_MAX, "{size}");
        let most = u64::MAX;
        let sample = Sample {
            list: most,
            end_ns: i64::MIN,
            length_ns: i64::MIN,
            opened: most,
            closed: most,
            established: most,
            half_open: most,
        };
        let size = serde_json::to_string(&sample).unwrap().len() + 1;
        assert!(size <= SAMPLE_TEXT_SIZE_MAX, "{size}");
        assert_eq!(Row::from(&row).vlan.iter().collect::<Vec<_>>(), [4095, 4095]);
        assert_eq!(RowObject::from(&Row::from(&row)), row);
    }

    #[test]
    fn a_request_needs_nothing_but_its_version() {
        let request: Request = serde_json::from_str("{\"version\":1}").unwrap();
        assert_eq!(request, Request { version: 1, ..Request::default() });
        let text = "{\"version\":1,\"sort\":\"age\",\"group_by\":\"port\",\"of_a_later_version\":[1]}";
        let request: Request = serde_json::from_str(text).unwrap();
        assert_eq!((request.sort, request.group_by), (Some(Sort::Age), Some(GroupBy::Port)));
        for text in ["", "1", "{\"version\":-1}", "{\"sort\":\"size\"}", "{\"connection\":{\"client\":\"x\"}}"] {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
    }
}
