//! The standard counter: count, sum of keys and sum of checks in every cell (section III of the paper), and beside them
//! the sum of values. It is a [`Table`] for keys that are in it many times.

use super::{Counter, Tally, counted, least_count, signed};
use crate::cell::Sums;
use crate::key_hash::{KeyHash, SecretHash};
use crate::listing::{Entry, Listing, Rule};
use crate::placement::Layout;
use crate::refused::Refused;
use crate::sum::{Key, Sum};
use crate::table::Table;

/// The standard invertible Bloom counter. Besides its multiplicity, a key may have a sum of values, which is listed
/// with it.
///
/// Complexity: an update adds to each of a key's cells; listing is a pass or two over the cells.
#[derive(Clone)]
pub struct Standard<K: Key, V: Sum = (), H = SecretHash<K>> {
    table: Table<StandardCell<K, V>, H>,
}

/// The cell of a [`Standard`] counter.
pub type StandardCell<K, V> = Sums<K, V, i64, u64>;

impl<K: Key, V: Sum, H: KeyHash<K>> Standard<K, V, H> {
    /// An empty counter.
    #[must_use]
    pub fn new(layout: Layout, hash: H) -> Self {
        Standard { table: Table::new(layout, hash) }
    }

    /// The size of a counter of this layout, in bytes.
    #[must_use]
    pub fn size(layout: Layout) -> usize {
        layout.cell_count() * size_of::<StandardCell<K, V>>()
    }

    /// The sums of the counter.
    #[must_use]
    pub fn table(&self) -> &Table<StandardCell<K, V>, H> {
        &self.table
    }

    /// Adds each key once, with its value. The cells of a batch of keys are prefetched together.
    pub fn add_all(&mut self, pairs: &[(K, V)]) {
        self.table.insert_all(pairs);
    }

    /// Adds all that another counter holds.
    ///
    /// # Errors
    /// [`Refused::Layout`]: the counters have different layouts.
    pub fn merge(&mut self, other: &Self) -> Result<(), Refused> {
        self.table.merge(&other.table)
    }

    /// Takes away all that another counter holds.
    ///
    /// # Errors
    /// [`Refused::Layout`]: the counters have different layouts.
    pub fn subtract(&mut self, other: &Self) -> Result<(), Refused> {
        self.table.subtract(&other.table)
    }

    /// Takes out all keys that can be listed, with the sums of their values.
    pub fn list_values(&mut self) -> Listing<K, V> {
        self.table.list(Rule::Aggregates)
    }

    /// Takes out all keys that can be listed and gives each to `take`, with the sum of its values. Returns whether
    /// nothing is left. A sum is right if no value was added without its key.
    pub fn peel_values(&mut self, take: impl FnMut(Entry<K, V>)) -> bool {
        self.table.peel(Rule::Aggregates, take);
        self.table.is_empty()
    }

    /// Empties the counter.
    pub fn clear(&mut self) {
        self.table.clear();
    }

    /// Decodes a counter from the bytes of its table. Any bytes of the right length are a counter.
    ///
    /// # Errors
    /// [`Refused::Length`]: the bytes are not as many as the layout needs.
    pub fn from_bytes(layout: Layout, hash: H, bytes: &[u8]) -> Result<Self, Refused> {
        Ok(Standard { table: Table::from_bytes(layout, hash, bytes)? })
    }
}

impl<K: Key, V: Sum, H: KeyHash<K>> Counter for Standard<K, V, H> {
    type Key = K;

    fn add(&mut self, key: &K, count: u64) {
        self.table.update(key, V::zero(), signed(count));
    }

    fn remove(&mut self, key: &K, count: u64) {
        self.table.update(key, V::zero(), signed(count).wrapping_neg());
    }

    fn query(&self, key: &K) -> u64 {
        least_count(&self.table, key)
    }

    fn list(&mut self) -> Tally<K> {
        let listing = self.list_values();
        let keys = listing.inserted.into_iter().chain(listing.deleted).map(counted).collect();
        Tally { keys, residue: listing.residue }
    }
}
