//! The list of several routers together.
//!
//! It has every connection once, with how many of the routers saw it. It has no starts: the routers' ticks began at
//! different times, so starts that are added up mean nothing.
//!
//! On its own a merge decodes while it holds no more connections than its tables list. Beyond that, known lists are
//! subtracted first, key by key, and only what has changed since has to fit. What is wrong in a list comes out of the
//! tables as a difference.

use crate::flow::FlowKey as TableKey;
use crate::flow::{AnyKey, ByFamily, FlowKey, KeyV4, KeyV6, VlanTags};
use crate::handover::HalfOpen;
use crate::list::row::RowState;
use crate::list::rows::Header;
use crate::signal::ConnectionHash;
use crate::snapshot::{Figures, RouterPart, Salvaged, Since, SnapshotFile, Sums, summed};
use flowpeel_iblt::hash::{HASH_GROUP_COUNT, KeyedHash, Purpose, Secret};
use flowpeel_iblt::{Change, Iblt};
use std::net::SocketAddr;

/// One connection of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedRow {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The server's address and port.
    pub server: SocketAddr,
    /// The VLAN tags, where they are part of the key.
    pub vlan: VlanTags,
    /// The most advanced state of the connection on any router.
    pub state: RowState,
    /// How many routers list it as established, or as half-open if none lists it as established.
    pub routers: u32,
}

#[derive(Clone, Copy)]
struct SeenBy<K> {
    key: K,
    state: RowState,
    routers: u32,
}

/// The connections that are open on the routers of a merge.
pub struct MergedList {
    /// What the list says of itself, with the figures of its routers together: see [`Figures::plus`].
    pub header: Header,
    /// Whether VLAN tags are part of keys.
    pub vlan_key: bool,
    /// How many routers there are.
    pub router_count: u64,
    seen: ByFamily<Vec<SeenBy<KeyV4>>, Vec<SeenBy<KeyV6>>>,
    left: u64,
}

impl MergedList {
    /// The list of a merge, or of any other snapshot, with the help of connections known to have been established
    /// before, each with the number of routers that listed it. The counts of a connection that comes several times are
    /// added up.
    ///
    /// Complexity: the decoding, and sorting what is listed.
    #[must_use]
    pub fn new(snapshot: &SnapshotFile, secret: &Secret, known: impl IntoIterator<Item = (AnyKey, u32)>) -> Self {
        let count = |routers: u32| i32::try_from(routers).unwrap_or(i32::MAX);
        let known: ByFamily<Vec<_>, Vec<_>> = known.into_iter().map(|(key, routers)| (key, count(routers))).collect();
        let mut rest = snapshot.clone();
        subtract(&mut rest.sums, &known.v4, secret, |sums| &mut sums.v4);
        subtract(&mut rest.sums, &known.v6, secret, |sums| &mut sums.v6);
        let changed = rest.take_counts(secret);
        let left = changed.left();
        let sources = &snapshot.header.sources;
        let figures = sources.iter().map(|source| source.figures).reduce(Figures::plus).unwrap_or_default();
        let since = sources.iter().filter_map(|source| source.since).reduce(Since::plus);
        let missing = figures.missing_elsewhere.saturating_add(left);
        let mut header = Header { figures, missing, since, ..Header::default() };
        let seen = ByFamily {
            v4: rows(known.v4, changed.v4, &mut header.extraneous),
            v6: rows(known.v6, changed.v6, &mut header.extraneous),
        };
        let mut list = MergedList {
            header,
            vlan_key: snapshot.header.vlan_key,
            router_count: snapshot.header.sources.len() as u64,
            seen,
            left,
        };
        list.add_half_open(&snapshot.header.sources);
        list.count();
        list
    }

    /// The list of what is left of a merge that was damaged, with the same help.
    ///
    /// Complexity: as for [`Self::new`].
    #[must_use]
    pub fn of_salvaged(salvaged: &Salvaged, secret: &Secret, known: impl IntoIterator<Item = (AnyKey, u32)>) -> Self {
        let mut list = MergedList::new(salvaged.file(), secret, known);
        list.header.damaged_sections = Some(salvaged.damaged().len() as u64);
        list
    }

    /// About how many differences between the list and the tables could not be decoded; 0 only when there are none.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The rows, ordered by client address, client port, server address, server port and VLAN; IPv4 before IPv6.
    pub fn rows(&self) -> impl Iterator<Item = MergedRow> {
        self.seen.v4.iter().map(row).chain(self.seen.v6.iter().map(row))
    }

    fn add_half_open(&mut self, sources: &[RouterPart]) {
        for source in sources {
            let state = |half_open: &HalfOpen| RowState::of_half_open(half_open.answered);
            let half_open = source.half_open.iter().map(|half_open| (half_open.key, state(half_open)));
            let half_open: ByFamily<Vec<_>, Vec<_>> = half_open.collect();
            add_each(&mut self.seen.v4, half_open.v4);
            add_each(&mut self.seen.v6, half_open.v6);
        }
        unite(&mut self.seen.v4);
        unite(&mut self.seen.v6);
    }

    fn count(&mut self) {
        let ByFamily { v4, v6 } = &self.seen;
        let states = v4.iter().map(|seen| seen.state).chain(v6.iter().map(|seen| seen.state));
        for state in states {
            *(if state == RowState::Established { &mut self.header.flows } else { &mut self.header.half_open }) += 1;
        }
        self.header.complete = self.header.missing == 0;
    }
}

fn row<K: FlowKey>(seen: &SeenBy<K>) -> MergedRow {
    MergedRow {
        client: seen.key.first(),
        server: seen.key.second(),
        vlan: seen.key.vlan(),
        state: seen.state,
        routers: seen.routers,
    }
}

type Known<K> = Vec<(K, i32)>;

/// Subtracts the known connections from the tables of their partitions.
fn subtract<K: TableKey>(
    sums: &mut [Sums],
    known: &[(K, i32)],
    secret: &Secret,
    table: impl Fn(&mut Sums) -> &mut Iblt<K>,
) {
    let (placement, connection) =
        (KeyedHash::new(secret, Purpose::Placement), KeyedHash::new(secret, Purpose::Connection));
    let is_one = sums.len() == 1;
    for group in known.chunks(HASH_GROUP_COUNT) {
        let mut keys = [group[0].0; HASH_GROUP_COUNT];
        keys.iter_mut().zip(group).for_each(|(key, known)| *key = known.0);
        let canonical = keys.map(|key| key.canonical().0);
        let (mut places, mut partitions) = ([0; HASH_GROUP_COUNT], [0; HASH_GROUP_COUNT]);
        placement.of_group(&keys[..group.len()], &mut places);
        connection.of_group(&canonical[..group.len()], &mut partitions);
        for ((&(key, count), &hash), &partition) in group.iter().zip(&places).zip(&partitions) {
            let partition = if is_one { 0 } else { ConnectionHash::new(partition).partition() };
            let Some(sums) = sums.get_mut(partition) else { continue };
            table(sums).apply_one(&Change { key, hash, count: count.wrapping_neg(), value: 0 });
        }
    }
}

/// The established connections: those known, and what has changed. Connections with a negative count are counted in
/// `extraneous`.
fn rows<K: FlowKey>(mut counts: Known<K>, changed: Known<K>, extraneous: &mut u64) -> Vec<SeenBy<K>> {
    counts.extend(changed);
    let mut rows = Vec::new();
    for (key, count) in summed(counts) {
        match u32::try_from(count) {
            Ok(routers) => rows.push(SeenBy { key, state: RowState::Established, routers }),
            Err(_) => *extraneous += 1,
        }
    }
    rows
}

/// Adds the half-open connections of one router, each once: a ring may hold one twice, and the router then lists the
/// first.
fn add_each<K: FlowKey>(seen: &mut Vec<SeenBy<K>>, mut once: Vec<(K, RowState)>) {
    once.sort_unstable();
    once.dedup_by_key(|(key, _)| *key);
    seen.extend(once.into_iter().map(|(key, state)| SeenBy { key, state, routers: 1 }));
}

/// Leaves every connection once: as established if any router lists it so, otherwise as half-open with the number of
/// routers that do.
fn unite<K: FlowKey>(seen: &mut Vec<SeenBy<K>>) {
    seen.sort_by_key(|seen| (seen.key, seen.state));
    seen.dedup_by(|later, first| {
        let is_same = later.key == first.key;
        if is_same && first.state != RowState::Established {
            first.routers = first.routers.saturating_add(later.routers);
            first.state = first.state.max(later.state);
        }
        is_same
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::DeltaGeometry;
    use flowpeel_iblt::Geometry;

    fn key(port: u16) -> KeyV4 {
        KeyV4::new((0x0a00_0001, port), (0x0a00_0002, 443), VlanTags::NONE)
    }

    fn half_open(port: u16, answered: bool) -> HalfOpen {
        HalfOpen { key: AnyKey::V4(key(port)), start_tick: 1 << 20, since_tick: 1 << 20, answered, short_isn: 0 }
    }

    #[test]
    fn a_connection_is_listed_once_in_its_most_advanced_state() {
        let geometry = DeltaGeometry { v4: Geometry::new(60), v6: Geometry::new(60) };
        let source =
            |router: &str, half_open| RouterPart { router: router.to_owned(), half_open, ..RouterPart::default() };
        let east =
            source("east", vec![half_open(1, false), half_open(1, false), half_open(2, false), half_open(3, true)]);
        let west = source("west", vec![half_open(1, true), half_open(2, false)]);
        let mut merge = SnapshotFile::new(geometry, false, &Secret::REPLAY, east);
        let mut known = vec![(AnyKey::V4(key(3)), 1)];
        subtract(&mut merge.sums, &[(key(3), -1)], &Secret::REPLAY, |sums| &mut sums.v4);
        merge.add(&SnapshotFile::new(geometry, false, &Secret::REPLAY, west)).unwrap();
        for _ in 0..2 {
            let list = MergedList::new(&merge, &Secret::REPLAY, known.clone());
            let rows: Vec<_> = list.rows().map(|row| (row.client.port(), row.state, row.routers)).collect();
            let expected = [(1, RowState::SynRecv, 2), (2, RowState::SynSent, 2), (3, RowState::Established, 1)];
            assert_eq!(rows, expected);
            assert!(list.header.complete);
            assert_eq!((list.header.flows, list.header.half_open, list.router_count), (1, 2, 2));
            known.clear();
        }
        // A list that has too much is put right, and what was never opened is counted and not listed.
        let list = MergedList::new(&merge, &Secret::REPLAY, [(AnyKey::V4(key(4)), 2), (AnyKey::V4(key(3)), 2)]);
        assert_eq!((list.header.flows, list.header.extraneous, list.left()), (1, 0, 0));
        subtract(&mut merge.sums, &[(key(5), 1)], &Secret::REPLAY, |sums| &mut sums.v4);
        let list = MergedList::new(&merge, &Secret::REPLAY, []);
        assert_eq!((list.header.flows, list.header.extraneous), (1, 1));
    }
}
