//! An archived connection, and its hashes in the index.
//!
//! It takes records, and rows of lists, and gives entries, which have one order, and hashes of connections and
//! addresses. The hashes are keyed with a constant, so that an archive can be read years later, on another machine,
//! without a secret.

use crate::export::ArchivedFlow;
use crate::flow::{AnyKey, FlowKey, KeyV4, KeyV6, VlanTags, WordKey};
use crate::record::{Ending, Record};
use crate::signal::TICK_NS;
use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
use std::net::{IpAddr, SocketAddr};

/// What became of an archived connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// The connection ended in this way.
    Ended(Ending),
    /// The connection was still open at [`Entry::end`]. What came later is not known.
    Open,
}

impl Fate {
    /// The name of the way it ended in output; `None` if it is open.
    #[must_use]
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Fate::Ended(ending) => Some(ending.name()),
            Fate::Open => None,
        }
    }

    pub(super) fn code(self) -> u8 {
        match self {
            Fate::Open => 0,
            Fate::Ended(Ending::Fin) => 1,
            Fate::Ended(Ending::Rst) => 2,
            Fate::Ended(Ending::Timeout) => 3,
            Fate::Ended(Ending::Evicted) => 4,
            Fate::Ended(Ending::Replaced) => 5,
            Fate::Ended(Ending::Reopened) => 6,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Fate::Open,
            1 => Fate::Ended(Ending::Fin),
            2 => Fate::Ended(Ending::Rst),
            3 => Fate::Ended(Ending::Timeout),
            4 => Fate::Ended(Ending::Evicted),
            5 => Fate::Ended(Ending::Replaced),
            6 => Fate::Ended(Ending::Reopened),
            _ => return None,
        })
    }
}

/// One connection in an archive. Times are in ticks of wall time since 1970, 100 ms each.
///
/// Entries order by end, then by key and start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// When the connection ended, or until when it is known to have been open.
    pub end: i64,
    /// The key of the connection, client first.
    pub key: AnyKey,
    /// When the connection started.
    pub start: i64,
    /// By how much the wall clock was set between start and end: the connection lasted `end - start - clock_set`.
    pub clock_set: i64,
    /// What became of the connection.
    pub fate: Fate,
    /// Whether its start was not seen: then `start` is when it was first seen.
    pub midstream: bool,
    /// Whether `start` is the latest that it can have been.
    pub may_be_older: bool,
}

impl Entry {
    /// The client's address and port.
    #[must_use]
    pub fn client(&self) -> SocketAddr {
        match &self.key {
            AnyKey::V4(key) => key.first(),
            AnyKey::V6(key) => key.first(),
        }
    }

    /// The server's address and port.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        match &self.key {
            AnyKey::V4(key) => key.second(),
            AnyKey::V6(key) => key.second(),
        }
    }

    /// The VLAN tags, where they are part of the key.
    #[must_use]
    pub fn vlan(&self) -> VlanTags {
        match &self.key {
            AnyKey::V4(key) => key.vlan(),
            AnyKey::V6(key) => key.vlan(),
        }
    }

    /// When the connection started, in ns since 1970, to 100 ms.
    #[must_use]
    pub fn start_ns(&self) -> i64 {
        self.start.saturating_mul(TICK_NS)
    }

    /// When the connection ended, or until when it is known to have been open, in ns since 1970, to 100 ms.
    #[must_use]
    pub fn end_ns(&self) -> i64 {
        self.end.saturating_mul(TICK_NS)
    }

    /// How long the connection lasted, or is known to have, in ns, to 100 ms: by a clock that nobody sets.
    #[must_use]
    pub fn age_ns(&self) -> i64 {
        let ticks = self.end.saturating_sub(self.start).saturating_sub(self.clock_set);
        ticks.max(0).saturating_mul(TICK_NS)
    }
}

impl From<&Record> for Entry {
    fn from(record: &Record) -> Self {
        Entry {
            end: record.end,
            key: record.key,
            start: record.start,
            clock_set: record.clock_set,
            fate: record.ending.map_or(Fate::Open, Fate::Ended),
            midstream: record.midstream,
            may_be_older: record.may_be_older,
        }
    }
}

impl From<&Entry> for ArchivedFlow {
    fn from(entry: &Entry) -> Self {
        ArchivedFlow {
            client: entry.client(),
            server: entry.server(),
            vlan: entry.vlan(),
            start_ns: entry.start_ns(),
            end_ns: entry.end_ns(),
            age_ns: entry.age_ns(),
            reason: entry.fate.reason(),
            midstream: entry.midstream,
            start_is_bound: entry.may_be_older,
        }
    }
}

/// Hashes connections and addresses for the index.
#[derive(Clone)]
pub(super) struct Hasher {
    v4: KeyedHash<KeyV4>,
    v6: KeyedHash<KeyV6>,
}

impl Hasher {
    pub(super) fn new() -> Self {
        let secret = Secret::new(*b"flowpeel archive");
        Hasher { v4: KeyedHash::new(&secret, Purpose::Connection), v6: KeyedHash::new(&secret, Purpose::Connection) }
    }

    /// The hash of a connection: the same for both directions, and for all VLANs, since queries name no VLAN.
    pub(super) fn connection(&self, key: &AnyKey) -> u128 {
        match key {
            AnyKey::V4(key) => self.v4.of(&untagged(key).canonical().0),
            AnyKey::V6(key) => self.v6.of(&untagged(key).canonical().0),
        }
    }

    /// The hash of an address. No connection has port 0 at both ends, so it differs from the hashes of connections.
    pub(super) fn address(&self, address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(address) => self.v4.of(&KeyV4::new((address.to_bits(), 0), (0, 0), VlanTags::NONE)),
            IpAddr::V6(address) => self.v6.of(&KeyV6::new((address.to_bits(), 0), (0, 0), VlanTags::NONE)),
        }
    }
}

fn untagged<K: FlowKey>(key: &K) -> K {
    let mut words = [0; KeyV6::WORD_COUNT];
    words[..K::WORD_COUNT].copy_from_slice(key.words());
    // The tags are the last four bytes of a key.
    words[K::WORD_COUNT - 1] &= !u64::from(u32::MAX);
    K::from_words(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(first: &str, second: &str, vlan: VlanTags) -> AnyKey {
        AnyKey::of_ends(first.parse().unwrap(), second.parse().unwrap(), vlan).unwrap()
    }

    #[test]
    fn both_directions_and_all_vlans_have_one_hash() {
        let hasher = Hasher::new();
        for (one, other) in [("10.0.0.1:40000", "93.184.216.34:443"), ("[::1]:443", "[2001:db8::7]:50000")] {
            let hash = hasher.connection(&key(one, other, VlanTags::NONE));
            assert_eq!(hash, hasher.connection(&key(other, one, VlanTags::NONE)));
            assert_eq!(hash, hasher.connection(&key(other, one, VlanTags::NONE.with(10).with(7))));
        }
        let near = |port: u16| key("10.0.0.1:40000", &format!("93.184.216.34:{port}"), VlanTags::NONE);
        assert_ne!(hasher.connection(&near(443)), hasher.connection(&near(444)));
        assert_ne!(hasher.address("10.0.0.1".parse().unwrap()), hasher.address("10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn codes_come_back() {
        for code in 0..=u8::MAX {
            assert!(Fate::of_code(code).is_none_or(|fate| fate.code() == code));
        }
        assert_eq!((0..=u8::MAX).filter_map(Fate::of_code).count(), 7);
    }
}
