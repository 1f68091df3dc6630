//! Sums and differences of snapshots -> the keys in them, each with its count.
//!
//! What enters: tables, and the secret. What leaves: every key that can be decoded, with additions less removals, and
//! about how many keys cannot. Values are not used: a connection starts at different ticks on two routers, whose clocks
//! began at different times, so the values of a connection that both saw do not cancel, and hide the others. Keys are
//! decoded without them.

use super::{SnapshotFile, Sums};
use crate::flow::{KeyV4, KeyV6};
use crate::hash::{KeyedHash, Purpose, Secret};
use crate::sketch::{Iblt, Peeled, Peeler, Recipient, TableKey};

/// The keys of both families, in order, each with its count, which is never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// IPv4 connections.
    pub v4: Vec<(KeyV4, i32)>,
    /// IPv6 connections.
    pub v6: Vec<(KeyV6, i32)>,
    /// About how many IPv4 keys could not be decoded; 0 only when all were.
    pub left_v4: u64,
    /// About how many IPv6 keys could not be decoded; 0 only when all were.
    pub left_v6: u64,
}

impl KeyCounts {
    /// The keys of these tables, which are the sum of the tables of `router_count` routers or a difference of such
    /// sums. They are taken out of the tables.
    ///
    /// Complexity: the decoding.
    pub(super) fn taken_from(tables: &mut [Sums], secret: &Secret, router_count: u32) -> Self {
        let (v4, left_v4) = take(tables.iter_mut().map(|sums| &mut sums.v4), secret, router_count);
        let (v6, left_v6) = take(tables.iter_mut().map(|sums| &mut sums.v6), secret, router_count);
        KeyCounts { v4, v6, left_v4, left_v6 }
    }

    /// About how many keys could not be decoded; 0 only when all were.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left_v4.saturating_add(self.left_v6)
    }

    /// How many keys were decoded.
    #[must_use]
    pub fn told(&self) -> u64 {
        (self.v4.len() + self.v6.len()) as u64
    }
}

impl SnapshotFile {
    /// Takes every key that can be decoded out of the tables, with the number of routers that have it.
    ///
    /// Complexity: the decoding.
    pub fn take_counts(&mut self, secret: &Secret) -> KeyCounts {
        KeyCounts::taken_from(&mut self.sums, secret, self.header.router_count())
    }
}

/// Gathers keys and their counts.
struct Gathered<K>(Vec<(K, i32)>);

impl<K: TableKey> Recipient<K> for Gathered<K> {
    fn belongs(&self, _placement: u128, _value: u64) -> bool {
        false
    }

    fn take(&mut self, peeled: Peeled<K>) {
        self.0.push((peeled.change.key, peeled.change.count));
    }
}

/// A peeler for this table, which is the sum of the tables of `router_count` routers.
pub(super) fn peeler_of<K: TableKey>(table: &Iblt<K>, secret: &Secret, router_count: u32) -> Peeler<K> {
    let hash = KeyedHash::new(secret, Purpose::Placement);
    Peeler::new(hash, table.geometry().cell_count()).for_sum_of(router_count)
}

fn take<'a, K: TableKey>(
    tables: impl Iterator<Item = &'a mut Iblt<K>>,
    secret: &Secret,
    router_count: u32,
) -> (Vec<(K, i32)>, u64) {
    let mut gathered = Gathered(Vec::new());
    let mut left = 0u64;
    for table in tables {
        peeler_of(table, secret, router_count).peel(table, &mut gathered);
        left = left.saturating_add(table.estimated_count());
    }
    (summed(gathered.0), left)
}

/// Sorts the keys, adds up the counts of equal ones, and drops those with a count of zero. (Cells that are no honest
/// sum may give a key twice.)
pub(crate) fn summed<K: Ord>(mut keys: Vec<(K, i32)>) -> Vec<(K, i32)> {
    keys.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    keys.dedup_by(|later, first| {
        let is_same = later.0 == first.0;
        if is_same {
            first.1 = first.1.saturating_add(later.1);
        }
        is_same
    });
    keys.retain(|(_, count)| *count != 0);
    keys
}
