//! The orders in which connections can be shown.

use crate::flow::VlanTags;
use crate::list::{Row, RowState};
use crate::signal::TICK_NS;
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

/// What a sorted connection takes while it is held, in bytes.
pub(super) const SORTED_SIZE: u64 = size_of::<Sorted>() as u64;

/// An order of connections. What it leaves equal is in the order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// The oldest first.
    Age,
    /// The youngest first.
    Youngest,
    /// By the client's address and port.
    Client,
    /// By the server's address and port.
    Server,
    /// By the server's port.
    Port,
    /// By the state: established, syn_sent, syn_recv.
    State,
}

/// What two connections are compared by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Age(Reverse<i64>),
    Youngest(i64),
    End(SocketAddr),
    Port(u16),
    State(RowState),
}

impl Sort {
    fn key(self, row: &Row) -> Key {
        match self {
            Sort::Age => Key::Age(Reverse(row.age_ns)),
            Sort::Youngest => Key::Youngest(row.age_ns),
            Sort::Client => Key::End(row.client),
            Sort::Server => Key::End(row.server),
            Sort::Port => Key::Port(row.server.port()),
            Sort::State => Key::State(row.state),
        }
    }

    /// The first 64 bits of the order: rows with different ranks are in the order of their ranks, those with the same
    /// in that of [`Self::compare`]. The rows have to be of one list, whose ages differ by whole tenths of a second.
    pub(super) fn rank(self, row: &Row) -> u64 {
        match self {
            Sort::Age => (!tenths(row.age_ns) << 28) | (end_rank(row.client) >> 36),
            Sort::Youngest => (tenths(row.age_ns) << 28) | (end_rank(row.client) >> 36),
            Sort::Client => end_rank(row.client),
            Sort::Server => end_rank(row.server),
            Sort::Port => (u64::from(row.server.port()) << 48) | (end_rank(row.client) >> 16),
            Sort::State => ((row.state as u64) << 62) | (end_rank(row.client) >> 2),
        }
    }

    /// Compares two rows by this order, and where it leaves them equal by that of a list.
    #[must_use]
    pub fn compare(self, one: &Row, other: &Row) -> Ordering {
        self.key(one).cmp(&self.key(other)).then_with(|| in_list(one).cmp(&in_list(other)))
    }

    /// The first `limit` of these rows, in this order.
    ///
    /// Complexity: n log(limit) comparisons, memory for `limit` rows.
    #[must_use]
    pub fn first(self, rows: impl Iterator<Item = Row>, limit: usize) -> Vec<Row> {
        let mut heap: BinaryHeap<Sorted> = BinaryHeap::new();
        for (index, row) in rows.enumerate() {
            let sorted = Sorted { key: self.key(&row), index, row };
            if heap.len() < limit {
                heap.push(sorted);
            } else if let Some(mut last) = heap.peek_mut()
                && sorted < *last
            {
                *last = sorted;
            }
        }
        heap.into_sorted_vec().into_iter().map(|sorted| sorted.row).collect()
    }
}

/// What the rows of a list are ordered by.
fn in_list(row: &Row) -> (SocketAddr, SocketAddr, VlanTags) {
    (row.client, row.server, row.vlan)
}

/// An age in tenths of a second, in 36 bits: two centuries.
fn tenths(age_ns: i64) -> u64 {
    u64::try_from(age_ns / TICK_NS).unwrap_or(0).min((1 << 36) - 1)
}

/// The first 64 bits of the order of ends: IPv4 before IPv6, then the address, then, where there is room, the port.
pub(super) fn end_rank(end: SocketAddr) -> u64 {
    match end.ip() {
        IpAddr::V4(address) => ((u64::from(address.to_bits()) << 16) | u64::from(end.port())) << 15,
        IpAddr::V6(address) => (1 << 63) | (address.to_bits() >> 65) as u64,
    }
}

/// A row with what it is sorted by, and its place in the list.
struct Sorted {
    key: Key,
    index: usize,
    row: Row,
}

impl PartialEq for Sorted {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Sorted {}

impl PartialOrd for Sorted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sorted {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.key, self.index).cmp(&(&other.key, other.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(number: u16) -> Row {
        let client = SocketAddr::new([10, 0, 0, 1].into(), number);
        let server = SocketAddr::new([10, 0, (number % 3) as u8, 2].into(), 440 + number % 5);
        Row {
            age_ns: i64::from(number % 7),
            state: [RowState::Established, RowState::SynSent, RowState::SynRecv][usize::from(number % 3)],
            ..Row::between([client, server])
        }
    }

    proptest! {
        #[test]
        fn the_first_are_those_of_a_stable_sort(numbers in prop::collection::vec(any::<u16>(), 0..60), limit in 0usize..70) {
            let rows: Vec<Row> = numbers.into_iter().map(row).collect();
            for sort in [Sort::Age, Sort::Youngest, Sort::Client, Sort::Server, Sort::Port, Sort::State] {
                let mut expected = rows.clone();
                expected.sort_by_key(|row| sort.key(row));
                expected.truncate(limit);
                prop_assert_eq!(sort.first(rows.iter().copied(), limit), expected);
            }
        }
    }

    #[test]
    fn the_oldest_come_first_by_age() {
        let rows = [1, 6, 3].map(row);
        assert_eq!(Sort::Age.first(rows.into_iter(), 2), [row(6), row(3)]);
        assert_eq!(Sort::Youngest.first(rows.into_iter(), 1), [row(1)]);
    }
}
