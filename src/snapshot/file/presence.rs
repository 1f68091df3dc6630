//! Whether one connection is open, without listing the others.
//!
//! What enters: a snapshot, the secret and a connection. What leaves: whether it is open, as far as the tables tell
//! (GET, section 2.3 of the paper). Each of the connection's cells may tell by itself, if it is empty or holds one
//! connection alone. If none does, what can be peeled out of that one table is taken out first.

use super::SnapshotFile;
use super::counts::peeler_of;
use crate::flow::FlowKey;
use crate::hash::{KeyedHash, Purpose, Secret};
use crate::signal::{AnyKey, ConnectionHash};
use crate::sketch::{Iblt, Peeled, Recipient, TableCell, TableKey, ValueCode};

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
    /// The tables hold too much to tell.
    Unknown,
}

impl SnapshotFile {
    /// What the tables know of a connection. Half-open ones are not in them.
    ///
    /// Complexity: four cells; if these do not tell, the peeling of one table.
    #[must_use]
    pub fn presence(&self, key: &AnyKey, secret: &Secret) -> Presence {
        match key {
            AnyKey::V4(key) => self.ask(key, secret, self.sums.iter().map(|sums| &sums.v4)),
            AnyKey::V6(key) => self.ask(key, secret, self.sums.iter().map(|sums| &sums.v6)),
        }
    }

    /// Asks the one of these tables that would hold this connection.
    fn ask<'a, K: TableKey + FlowKey>(
        &self,
        key: &K,
        secret: &Secret,
        mut tables: impl Iterator<Item = &'a Iblt<K>>,
    ) -> Presence {
        let hash = KeyedHash::new(secret, Purpose::Connection).of(&key.canonical().0);
        // All partitions may have been added into one table.
        let partition = if self.sums.len() == 1 { 0 } else { ConnectionHash::new(hash).partition() };
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
    let told = own_cells(table, &hash, &wanted);
    if told != Presence::Unknown {
        return told;
    }
    let mut rest = table.clone();
    peeler_of(table, secret, router_count).peel(&mut rest, &mut wanted);
    wanted.found.unwrap_or_else(|| own_cells(&rest, &hash, &wanted))
}

/// What the connection's own cells tell.
fn own_cells<K: TableKey>(table: &Iblt<K>, hash: &KeyedHash<K>, wanted: &Wanted<K>) -> Presence {
    let placement = hash.of(&wanted.key);
    let places = table.geometry().places(placement);
    for cell in places.map(|place| table.cells()[place]) {
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
