//! What a snapshot holds, read from its tables: the keys with their counts, how full the tables are, and whether one
//! connection is open.
//!
//! Values are not used for counts: a connection starts at different ticks on two routers, whose clocks began at
//! different times, so the values of a connection that both saw do not cancel. Keys are decoded without them. How full
//! tables are is found by peeling them: near the threshold an estimate of what would come out is worth little. Whether
//! one connection is open (GET, section 2.3 of the paper) each of its cells may say by itself, if the cell is empty or
//! holds one connection alone; if none does, what can be peeled out of that one table is taken out first.

use super::{SnapshotFile, Sums};
use crate::flow::FlowKey as TableKey;
use crate::flow::{AnyKey, KeyV4, KeyV6};
use crate::signal::Partitions;
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Iblt, Peeled, Peeler, Recipient, TableCell, ValueCode};

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
    pub fn decoded(&self) -> u64 {
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

/// What a snapshot knows of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The connection is open.
    Open {
        /// On how many of the routers.
        count: u32,
        /// The payload that it opened with, if that can be read. Its bits are described in `docs/snapshots.md`.
        payload: Option<u32>,
    },
    /// The connection is not open.
    NotOpen,
    /// The tables hold too much to decide.
    Unknown,
}

impl SnapshotFile {
    /// What the tables know of a connection. Half-open ones are not in them.
    ///
    /// Complexity: four cells; if these do not decide, the peeling of one table.
    #[must_use]
    pub fn presence(&self, key: &AnyKey, secret: &Secret) -> Presence {
        match key {
            AnyKey::V4(of_v4) => self.ask((key, of_v4), secret, self.sums.iter().map(|sums| &sums.v4)),
            AnyKey::V6(of_v6) => self.ask((key, of_v6), secret, self.sums.iter().map(|sums| &sums.v6)),
        }
    }

    /// Asks the one of these tables that would hold this connection.
    fn ask<'a, K: TableKey>(
        &self,
        (any, key): (&AnyKey, &K),
        secret: &Secret,
        mut tables: impl Iterator<Item = &'a Iblt<K>>,
    ) -> Presence {
        // All partitions may have been added into one table.
        let partition = if self.sums.len() == 1 { 0 } else { Partitions::new(secret).of(any) };
        let table = tables.nth(partition);
        table.map_or(Presence::Unknown, |table| ask(table, key, secret, self.header.router_count()))
    }
}

/// A recipient that waits for one connection to be peeled.
struct Wanted<K: TableKey> {
    code: ValueCode<K>,
    key: K,
    found: Option<Presence>,
}

impl<K: TableKey> Recipient<K> for Wanted<K> {
    fn belongs(&self, placement: u128, value: u64) -> bool {
        self.code.belongs(placement, value)
    }

    fn take(&mut self, peeled: Peeled<K>) {
        if peeled.change.key == self.key {
            let payload = peeled.value_known.then(|| ValueCode::<K>::payload(peeled.change.value));
            self.found = Some(presence(peeled.change.count, payload));
        }
    }
}

/// The presence for a count. One below one is an error of a router's filter, and nothing is open.
fn presence(count: i32, payload: Option<u32>) -> Presence {
    match u32::try_from(count) {
        Ok(count) if count > 0 => Presence::Open { count, payload },
        _ => Presence::NotOpen,
    }
}

fn ask<K: TableKey>(table: &Iblt<K>, key: &K, secret: &Secret, router_count: u32) -> Presence {
    let hash = KeyedHash::new(secret, Purpose::Placement);
    let mut wanted = Wanted { code: ValueCode::new(KeyedHash::new(secret, Purpose::Value)), key: *key, found: None };
    let presence = own_cells(table, &hash, &wanted);
    if presence != Presence::Unknown {
        return presence;
    }
    let mut rest = table.clone();
    peeler_of(table, secret, router_count).peel(&mut rest, &mut wanted);
    wanted.found.unwrap_or_else(|| own_cells(&rest, &hash, &wanted))
}

/// What the connection's own cells decide.
fn own_cells<K: TableKey>(table: &Iblt<K>, hash: &KeyedHash<K>, wanted: &Wanted<K>) -> Presence {
    let placement = hash.of(&wanted.key);
    for cell in table.live_places(placement).map(|place| table.cells()[place]) {
        if cell.is_key_free() {
            return Presence::NotOpen;
        }
        if cell.count().unsigned_abs() != 1 {
            continue;
        }
        let other = cell.lone_key();
        if !cell.is_lone(hash.of(&other)) {
            continue;
        }
        if other != wanted.key {
            return Presence::NotOpen;
        }
        let known = wanted.code.belongs(placement, cell.value()) && cell.count() == 1;
        return presence(cell.count() as i32, known.then(|| ValueCode::<K>::payload(cell.value())));
    }
    Presence::Unknown
}
