//! Questions of the list about open connections, and the eviction of those that have vanished.
//!
//! What enters: keys, which only the list knows, with the payloads of their openings. What leaves: what the filter
//! knows of them. A question is out of date if the connection has closed, and perhaps opened again; it then finds
//! another payload or none, and changes nothing.

use crate::flow::{FlowKey, Side};
use crate::hash::KeyedHash;
use crate::signal::{AnyKey, ConnectionHash, Signal};
use crate::track::{Entry, Event, Slot, Tracker};

/// What the filter knows of a listed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// The connection is not open, or is another one than the list has.
    Gone,
    /// A packet was seen since the last question.
    Seen,
    /// No packet was seen since the last question.
    Unseen,
}

impl Tracker {
    /// Whether the connection with this key, client first, is established and opened with this payload.
    #[must_use]
    pub fn is_open(&self, key: &AnyKey, payload: u32) -> bool {
        self.find_open(key, payload).is_some()
    }

    /// Looks a listed connection up, and forgets whether it was seen.
    pub fn look(&mut self, key: &AnyKey, payload: u32) -> Sighting {
        match self.find_open(key, payload) {
            None => Sighting::Gone,
            Some((slot, _)) if self.filter.take_seen(slot) => Sighting::Seen,
            Some(_) => Sighting::Unseen,
        }
    }

    /// Evicts a connection of which nothing was seen for too long, unless something was seen since the last look.
    pub fn evict_idle(&mut self, key: &AnyKey, payload: u32) -> (Sighting, Option<Event>) {
        let Some((slot, entry)) = self.find_open(key, payload) else { return (Sighting::Gone, None) };
        if self.filter.take_seen(slot) {
            return (Sighting::Seen, None);
        }
        self.counts.evicted_idle += 1;
        (Sighting::Unseen, Some(self.evict(*key, slot, &entry)))
    }

    /// Evicts a connection because of its age.
    pub fn evict_aged(&mut self, key: &AnyKey, payload: u32) -> Option<Event> {
        let (slot, entry) = self.find_open(key, payload)?;
        self.counts.evicted_aged += 1;
        Some(self.evict(*key, slot, &entry))
    }

    /// Removes an open connection. Nothing lingers, so that a further packet finds it again.
    fn evict(&mut self, key: AnyKey, slot: Slot, entry: &Entry) -> Event {
        self.end_established(entry);
        self.filter.remove(slot);
        Event::Close(key, entry.payload())
    }

    fn find_open(&self, key: &AnyKey, payload: u32) -> Option<(Slot, Entry)> {
        let (hash, client) = self.hash_and_client(key);
        let found = self.filter.find(hash, self.now);
        found.filter(|(_, entry)| entry.state.is_established() && entry.client == client && entry.payload() == payload)
    }

    /// The established connection of this signal, client first, with the payload of its opening.
    #[must_use]
    pub fn established(&self, signal: &Signal) -> Option<(AnyKey, u32)> {
        let (_, entry) = self.filter.find(signal.hash(), self.now)?;
        entry.state.is_established().then(|| (super::oriented(signal, entry.client), entry.payload()))
    }

    /// The hash of a key, and which end of the canonical key comes first in it, the client.
    pub(super) fn hash_and_client(&self, key: &AnyKey) -> (ConnectionHash, Side) {
        match key {
            AnyKey::V4(key) => hashed(&self.hash_v4, key),
            AnyKey::V6(key) => hashed(&self.hash_v6, key),
        }
    }
}

fn hashed<K: FlowKey>(hash: &KeyedHash<K>, key: &K) -> (ConnectionHash, Side) {
    let (canonical, client) = key.canonical();
    (ConnectionHash::new(hash.of(&canonical)), client)
}
