//! How full the tables of a snapshot are, and what can be decoded from them without a list to start from.
//!
//! What enters: a snapshot and the secret. What leaves: figures for each family. The tables are peeled to find out:
//! near the threshold an estimate of what would come out is worth little.

use super::SnapshotFile;
use super::counts::peeler_of;
use crate::hash::{KeyedHash, Purpose, Secret};
use crate::sketch::{Iblt, Peeled, Recipient, TableKey, ValueCode};

/// How full the tables of one family are, all partitions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Open connections: additions less removals.
    pub open: i64,
    /// About how many keys the tables hold, estimated from the squares of their counts.
    pub held: u64,
    /// How many keys the tables can be relied on to list.
    pub item_count: u64,
    /// How many keys can be peeled without a list to start from.
    pub peeled: u64,
    /// About how many keys cannot be peeled; 0 only when all can.
    pub left: u64,
}

/// A recipient that keeps nothing. It only checks values.
struct Anyone<K>(ValueCode<K>);

impl<K: TableKey> Recipient<K> for Anyone<K> {
    fn belongs(&self, placement: u128, value: u64) -> bool {
        self.0.belongs(placement, value)
    }

    fn take(&mut self, _: Peeled<K>) {}
}

impl SnapshotFile {
    /// How full its tables are: IPv4, then IPv6.
    ///
    /// Complexity: the decoding; a copy of one table is held in memory.
    #[must_use]
    pub fn loads(&self, secret: &Secret) -> (Load, Load) {
        let router_count = self.header.router_count();
        let v4 = load(self.sums.iter().map(|sums| &sums.v4), secret, router_count);
        (v4, load(self.sums.iter().map(|sums| &sums.v6), secret, router_count))
    }
}

fn load<'a, K: TableKey>(tables: impl Iterator<Item = &'a Iblt<K>>, secret: &Secret, router_count: u32) -> Load {
    let mut anyone = Anyone(ValueCode::<K>::new(KeyedHash::new(secret, Purpose::Value)));
    let mut load = Load::default();
    for table in tables {
        load.open += table.surplus();
        load.held += table.estimated_count();
        load.item_count += table.geometry().item_count();
        let mut rest = table.clone();
        load.peeled += peeler_of(table, secret, router_count).peel(&mut rest, &mut anyone) as u64;
        load.left += rest.estimated_count();
    }
    load
}
