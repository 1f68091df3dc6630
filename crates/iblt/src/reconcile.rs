//! Reconciliation (sections 1.3 and 3 of the paper, the mirror): two sides find how their sets of pairs differ from one
//! table, the size of which depends on the difference alone.
//!
//! A key with different values on the two sides leaves no key in the difference, only its two values in all its cells;
//! adding one's own pair back (the paper's re-insertion) shows the other's. The law: when the difference is complete,
//! the other set is one's own without `only_here`, with `only_there`, and with the changed values.

use crate::cell::{TableCell, Values};
use crate::key_hash::KeyHash;
use crate::listing::{Draft, Entry, Residue, Rule, TABLE_PASSES_MAX};
use crate::table::Table;
use std::collections::BTreeSet;

/// A key whose values differ between the sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed<K, V> {
    /// The key.
    pub key: K,
    /// The value on this side.
    pub here: V,
    /// The value on the other side.
    pub there: V,
}

/// What differs between two sets.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a difference may be partial: look at its residue"]
pub struct Difference<K, V> {
    /// What only this side has; counts are positive.
    pub only_here: Vec<Entry<K, V>>,
    /// What only the other side has; counts are positive.
    pub only_there: Vec<Entry<K, V>>,
    /// Keys that both have, with different values.
    pub changed: Vec<Changed<K, V>>,
    /// What could not be found. If it is not empty, the table was too small.
    pub residue: Residue,
}

impl<K, V> Difference<K, V> {
    /// Whether all differences were found, with every value.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_known = |entry: &Entry<K, V>| !matches!(entry.values, Values::Sum(_) | Values::Unknown);
        self.residue.is_empty() && self.only_here.iter().chain(&self.only_there).all(is_known)
    }
}

/// Finds what differs between `theirs`, the table of all the other side's pairs, and `ours`, the pairs of this side.
/// Cells must count, to distinguish the sides. Values are certain from cells with a value check; without one
/// they are known when two cells agree.
///
/// Complexity: one update for each of `ours`, one listing, and a few passes over `ours` where values differ or listing
/// is stuck.
pub fn reconcile<C: TableCell, H: KeyHash<C::Key>>(
    theirs: &Table<C, H>,
    ours: &[(C::Key, C::Value)],
) -> Difference<C::Key, C::Value> {
    let mut table = theirs.clone();
    table.remove_all(ours);
    let mut draft = Draft::new();
    table.list_knowing_into(ours, Rule::Aggregates, &mut draft);
    let mut changed = Vec::new();
    let listed: BTreeSet<C::Key> = draft.listing.deleted.iter().map(|entry| entry.key).collect();
    for _ in 0..TABLE_PASSES_MAX {
        let before = changed.len();
        table.find_changed(ours, &listed, &mut changed);
        if changed.len() == before {
            break;
        }
        // With these values gone, the values of listed keys in the same cells may become known.
        table.list_into(Rule::Aggregates, &mut draft);
    }
    let mut listing = draft.listing;
    listing.deleted.iter_mut().for_each(|entry| entry.count = entry.count.saturating_neg());
    Difference { only_here: listing.deleted, only_there: listing.inserted, changed, residue: table.residue() }
}

impl<C: TableCell, H: KeyHash<C::Key>> Table<C, H> {
    /// Finds those of `ours` whose values differ on the other side, and takes their values out.
    fn find_changed(
        &mut self,
        ours: &[(C::Key, C::Value)],
        listed: &BTreeSet<C::Key>,
        changed: &mut Vec<Changed<C::Key, C::Value>>,
    ) {
        for &(key, here) in ours {
            let hash = self.hash().of(&key);
            let places = self.places(hash);
            // Most keys have at least one cell with nothing left in it.
            let is_clean = places.iter().any(|&place| self.cell(place).is_zero());
            if is_clean || changed.len() >= self.cells().len() || listed.contains(&key) {
                continue;
            }
            let there = |noise: &C| {
                let mut theirs = C::of(&key, here, hash, 1);
                theirs.add(noise);
                if let Values::One(there) = theirs.values(hash, 1) { Some((*noise, there)) } else { None }
            };
            let found = match C::IS_VALUE_CHECKED {
                true => self.noise(hash).find_map(|noise| there(&noise)),
                false => self.agreed(hash, |noise| !noise.is_zero()).and_then(|noise| there(&noise)),
            };
            if let Some((noise, there)) = found {
                self.subtract_at(hash, &noise);
                changed.push(Changed { key, here, there });
            }
        }
    }
}
