//! Connections that have something in common, counted.

use crate::list::{Row, RowState};
use crate::select::order::end_rank;
use ahash::AHashMap;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// What a group takes at most while groups are counted, in bytes: its place in a map that is half empty, and in the
/// sorted groups.
pub(super) const GROUP_SIZE: u64 = 3 * size_of::<Group>() as u64;

/// What the connections of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// The client's address.
    Client,
    /// The server's address.
    Server,
    /// The server's port.
    Port,
    /// The state.
    State,
}

impl GroupBy {
    /// Its name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            GroupBy::Client => "client",
            GroupBy::Server => "server",
            GroupBy::Port => "port",
            GroupBy::State => "state",
        }
    }

    pub(super) fn key(self, row: &Row) -> GroupKey {
        match self {
            GroupBy::Client => GroupKey::Address(row.client.ip()),
            GroupBy::Server => GroupKey::Address(row.server.ip()),
            GroupBy::Port => GroupKey::Port(row.server.port()),
            GroupBy::State => GroupKey::State(row.state),
        }
    }

    /// The first 64 bits of the order of keys.
    pub(super) fn rank(self, row: &Row) -> u64 {
        match self.key(row) {
            GroupKey::Address(address) => end_rank(SocketAddr::new(address, 0)),
            GroupKey::Port(port) => u64::from(port),
            GroupKey::State(state) => state as u64,
        }
    }

    /// The groups of these rows, the largest first, and equal ones in the order of what they have in common.
    #[must_use]
    pub fn of(self, rows: impl Iterator<Item = Row>) -> Vec<Group> {
        let mut groups: AHashMap<GroupKey, Group> = AHashMap::new();
        for row in rows {
            let key = self.key(&row);
            groups.entry(key).or_insert(Group::empty(key)).add(&row);
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_unstable_by(|one, other| other.count().cmp(&one.count()).then(one.key.cmp(&other.key)));
        groups
    }
}

/// What the connections of one group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKey {
    /// An address.
    Address(IpAddr),
    /// A port.
    Port(u16),
    /// A state.
    State(RowState),
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupKey::Address(address) => address.fmt(f),
            GroupKey::Port(port) => port.fmt(f),
            GroupKey::State(state) => f.write_str(state.name()),
        }
    }
}

/// The connections that have something in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they have in common.
    pub key: GroupKey,
    /// How many are established.
    pub flows: u64,
    /// How many are half-open.
    pub half_open: u64,
    /// The age of the oldest, in ns.
    pub oldest_ns: i64,
}

impl Group {
    /// A group without connections.
    pub(super) fn empty(key: GroupKey) -> Self {
        Group { key, flows: 0, half_open: 0, oldest_ns: 0 }
    }

    /// Adds a connection to it.
    pub(super) fn add(&mut self, row: &Row) {
        *(if row.state == RowState::Established { &mut self.flows } else { &mut self.half_open }) += 1;
        self.oldest_ns = self.oldest_ns.max(row.age_ns);
    }

    /// How many connections it has.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.flows + self.half_open
    }
}
