//! What the list asks about open connections: whether they are still there, and to take off those that have vanished.
//!
//! What enters: keys with the payloads that they opened with, from the list, which alone knows the keys. What leaves: what the
//! filter says of them. A question that is out of date, because the connection has closed or has closed and opened again,
//! finds another payload or none, and changes nothing.

use crate::connection::{Entry, Event, Slot, Tracker};
use crate::flow::{FlowKey, Side};
use crate::signal::{AnyKey, ConnectionHash, Signal};

/// What is known of a listed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// It is not open, or not the one that is listed.
    Gone,
    /// A packet of it was seen since it was last asked about.
    Seen,
    /// None was.
    Unseen,
}

impl Tracker {
    /// Whether the connection with this key, client first, is established and opened with this payload.
    #[must_use]
    pub fn is_open(&self, key: &AnyKey, payload: u32) -> bool {
        self.find_open(key, payload).is_some()
    }

    /// The same, and whether it was seen since this was last asked.
    pub fn look(&mut self, key: &AnyKey, payload: u32) -> Sighting {
        match self.find_open(key, payload) {
            None => Sighting::Gone,
            Some((slot, _)) if self.filter.take_seen(slot) => Sighting::Seen,
            Some(_) => Sighting::Unseen,
        }
    }

    /// Takes off a connection of which nothing was seen for too long, unless something was seen of it since the last look.
    pub fn evict_idle(&mut self, key: &AnyKey, payload: u32) -> (Sighting, Option<Event>) {
        let sighting = self.look(key, payload);
        let event = if sighting == Sighting::Unseen { self.evict(key, payload) } else { None };
        self.counts.evicted_idle += u64::from(event.is_some());
        (sighting, event)
    }

    /// Takes off a connection because of its age.
    pub fn evict_aged(&mut self, key: &AnyKey, payload: u32) -> Option<Event> {
        let event = self.evict(key, payload);
        self.counts.evicted_aged += u64::from(event.is_some());
        event
    }

    /// Nothing lingers: should it speak again it is to be found.
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

    /// The established connection that this signal belongs to, client first, with the payload it opened with.
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

/// Which end of its canonical form a key names first.
fn client_of(key: &AnyKey) -> Side {
    match key {
        AnyKey::V4(key) => key.canonical().1,
        AnyKey::V6(key) => key.canonical().1,
    }
}
