//! Questions of the list about open connections, and the eviction of those that have vanished.
//!
//! What enters: keys, which only the list knows, with the payloads of their openings. What leaves: what the filter
//! knows of them. A question is out of date if the connection has closed, and perhaps opened again; it then finds
//! another payload or none, and changes nothing.

use crate::connection::{Entry, Event, Slot, Tracker};
use crate::flow::{FlowKey, Side};
use crate::signal::{AnyKey, ConnectionHash, Signal};

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
        let sighting = self.look(key, payload);
        let event = if sighting == Sighting::Unseen { self.evict(key, payload) } else { None };
        self.counts.evicted_idle += u64::from(event.is_some());
        (sighting, event)
    }

    /// Evicts a connection because of its age.
    pub fn evict_aged(&mut self, key: &AnyKey, payload: u32) -> Option<Event> {
        let event = self.evict(key, payload);
        self.counts.evicted_aged += u64::from(event.is_some());
        event
    }

    /// Removes an open connection. Nothing lingers, so that a further packet finds it again.
    fn evict(&mut self, key: &AnyKey, payload: u32) -> Option<Event> {
        let (slot, entry) = self.find_open(key, payload)?;
        self.established -= 1;
        self.one_way -= u64::from(entry.state.is_one_way());
        self.filter.remove(slot);
        Some(Event::Close(*key, payload))
    }

    fn find_open(&self, key: &AnyKey, payload: u32) -> Option<(Slot, Entry)> {
        let client = client_of(key);
        let found = self.filter.find(self.hash_of(key), self.now);
        found.filter(|(_, entry)| entry.state.is_established() && entry.client == client && entry.payload() == payload)
    }

    /// The established connection of this signal, client first, with the payload of its opening.
    #[must_use]
    pub fn established(&self, signal: &Signal) -> Option<(AnyKey, u32)> {
        let (_, entry) = self.filter.find(signal.hash(), self.now)?;
        entry.state.is_established().then(|| (super::oriented(signal, entry.client), entry.payload()))
    }

    pub(super) fn hash_of(&self, key: &AnyKey) -> ConnectionHash {
        ConnectionHash::new(match key {
            AnyKey::V4(key) => self.hash_v4.of(&key.canonical().0),
            AnyKey::V6(key) => self.hash_v6.of(&key.canonical().0),
        })
    }
}

/// The end of the canonical key that is first in `key`, the client.
fn client_of(key: &AnyKey) -> Side {
    match key {
        AnyKey::V4(key) => key.canonical().1,
        AnyKey::V6(key) => key.canonical().1,
    }
}
