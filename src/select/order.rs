//! The orders in which connections can be shown.

use crate::list::{Row, RowState};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::SocketAddr;

/// What a sorted connection takes while it is held, in bytes.
pub(super) const SORTED_SIZE: u64 = size_of::<Sorted>() as u64;

/// An order of connections. What it leaves equal is in the order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    use crate::flow::VlanTags;
    use proptest::prelude::*;

    fn row(number: u16) -> Row {
        Row {
            client: SocketAddr::new([10, 0, 0, 1].into(), number),
            server: SocketAddr::new([10, 0, (number % 3) as u8, 2].into(), 440 + number % 5),
            vlan: VlanTags::NONE,
            start_ns: 0,
            age_ns: i64::from(number % 7),
            state: [RowState::Established, RowState::SynSent, RowState::SynRecv][usize::from(number % 3)],
            midstream: false,
            unsettled: false,
            nat: None,
            start_is_bound: false,
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
