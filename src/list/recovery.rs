//! How the list helps when the residue is stuck.
//!
//! What enters: the list, and a residue that does not peel. What leaves: closings and starts that peeling alone does
//! not find.
//!
//! A decoder that knows what may have been removed can decode more than plain peeling. If adding a listed connection
//! back to a stuck cell leaves one other key in it, that connection has closed. A connection that closed and opened
//! again within one delta leaves no key at all, only the difference of its two values in all its cells. It is the
//! listed connection whose old value plus that difference is a valid value for it.

use crate::list::FamilyList;
use crate::sketch::{Change, PackedCell, TableCell, TableKey, ValueCode};

/// The most passes over the list to recover one delta: differences that overlap take one pass each, and more than a few
/// never do.
pub(super) const RECOVERY_PASSES_MAX: usize = 16;

impl<K: TableKey> FamilyList<K> {
    /// Closes the listed connections that free a stuck cell when they are added back to it, one at a time. Returns how
    /// many.
    ///
    /// Complexity: a pass over the list.
    pub(super) fn unstick(&mut self) -> usize {
        let mut closed: Vec<(K, u128)> = Vec::new();
        let hash = self.peeler.hash();
        hash.for_each(self.ledger.listed.keys(), |key, placement| {
            let places = self.residue.geometry().places(placement);
            if places.iter().any(|&place| self.is_freed_by(&key, placement, place)) {
                closed.push((key, placement));
            }
        });
        closed.retain(|(key, placement)| {
            let Some(start) = self.ledger.unlist(key) else { return false };
            // The list loses it and the residue gains it, so their sum stays the same.
            self.residue.apply_one(&Change::insert(*key, *placement, start.value(&self.ledger.code, *placement)));
            true
        });
        self.ledger.outcome.unstuck += closed.len() as u64;
        closed.len()
    }

    /// Whether adding this key back to the cell at `place` leaves one other key alone in it.
    fn is_freed_by(&self, key: &K, placement: u128, place: usize) -> bool {
        let mut cell = self.residue.cells()[place];
        if !matches!(cell.count(), 0 | -2) || cell.is_key_free() {
            return false;
        }
        cell.add(&PackedCell::of(key, 0, placement, 1));
        let other = cell.lone_key();
        let other_placement = self.peeler.hash().of(&other);
        cell.is_lone(other_placement)
            && other != *key
            && self.residue.geometry().places(other_placement).contains(&place)
    }

    /// Finds the connections to which left-over value differences belong, and corrects their starts. Differences that
    /// belong to none are cleared once no key is left that they could belong to.
    pub(super) fn correct_starts(&mut self) {
        let is_noisy = |cell: &PackedCell<K>| cell.value() != 0 && cell.is_key_free();
        for _ in 0..RECOVERY_PASSES_MAX {
            if !self.residue.cells().iter().any(is_noisy) {
                break;
            }
            let mut corrected: Vec<(K, u128, u64)> = Vec::new();
            self.peeler.hash().for_each(self.ledger.listed.keys(), |key, placement| {
                let places = self.residue.geometry().places(placement);
                if places.iter().all(|&place| self.residue.cells()[place].value() != 0) {
                    corrected.extend(self.difference_of(&key, placement).map(|value| (key, placement, value)));
                }
            });
            for (key, placement, difference) in &corrected {
                self.residue.subtract_value(*placement, *difference);
                if let Some(start) = self.ledger.unlist(key) {
                    let value = start.value(&self.ledger.code, *placement).wrapping_add(*difference);
                    let start = self.ledger.start_of(ValueCode::<K>::payload(value));
                    self.ledger.listed.insert(*key, start);
                }
            }
            self.ledger.outcome.restarted += corrected.len() as u64;
            if corrected.is_empty() {
                break;
            }
        }
        if self.residue.is_key_free() {
            self.ledger.outcome.starts_lost += u64::from(self.residue.clear_values() > 0);
        }
    }

    /// The value difference in this listed connection's cells, if it belongs to the connection.
    fn difference_of(&self, key: &K, placement: u128) -> Option<u64> {
        let old = self.ledger.listed.get(key)?.value(&self.ledger.code, placement);
        let cells = self.residue.geometry().places(placement).map(|place| self.residue.cells()[place]);
        let differences = cells.iter().filter(|cell| cell.is_key_free()).map(|cell| cell.value());
        differences.into_iter().find(|difference| self.ledger.code.belongs(placement, old.wrapping_add(*difference)))
    }
}
