//! Signals of one family -> their hashes, a stage of them at a time.
//!
//! What enters: the signals of a stage, and which of them are of this family. What leaves: the same signals with the
//! hashes of their connections.

use super::stage::{STAGE_COUNT, places};
use crate::flow::FlowKey;
use crate::hash::{HashBatch, KeyedHash, Purpose, Secret};
use crate::signal::{ConnectionHash, Signal};

/// Hashes the connections of signals of one family together, in memory that need not be cleared each time.
pub(super) struct FamilyHash<K: FlowKey> {
    hash: KeyedHash<K>,
    keys: [K; STAGE_COUNT],
    hashes: HashBatch,
}

impl<K: FlowKey> FamilyHash<K> {
    pub(super) fn new(secret: &Secret) -> Self {
        let hash = KeyedHash::new(secret, Purpose::Connection);
        FamilyHash { hash, keys: [K::from_words(&[]); STAGE_COUNT], hashes: HashBatch::default() }
    }

    /// Gives the signals at these places, which are all of this family, their hashes.
    pub(super) fn set(&mut self, signals: &mut [Signal; STAGE_COUNT], set: u64) {
        let count = set.count_ones() as usize;
        self.keys.iter_mut().zip(places(set)).for_each(|(key, at)| *key = signals[at].key_words());
        self.hash.of_batch(&self.keys[..count], &mut self.hashes);
        for (number, at) in places(set).enumerate() {
            signals[at].set_hash(ConnectionHash::new(self.hashes.get(number)));
        }
    }
}
