//! Assigning values to keys in a table where removed keys left values behind.
//!
//! What enters: a listing, and a table in which noise is left: the values of keys that were inserted and removed with
//! different values, which no key accounts for (section 3 of the paper: "even worse"). What leaves: the listing, with
//! no value mixed with such noise. The law: values that cannot be told apart from noise are unknown and stay in the
//! table.
//!
//! A key's part was read from a cell where it was alone. If noise lay there, taking the part out left that noise in the
//! key's other cells. So the values of such keys are put back, and are believed only from a cell where they pass a
//! check, or from two cells that agree.

use super::cell::{TableCell, Values};
use super::key_hash::KeyHash;
use super::list::{Entry, Listing, Residue};
use super::sum::Sum;
use super::table::Table;

/// The most passes over known or listed pairs to separate tangled keys: each pass helps the next, and few are needed.
pub(super) const TABLE_PASSES_MAX: usize = 64;

/// A listing under way, with the entries whose values may have to be corrected.
pub(super) struct Draft<C: TableCell> {
    pub(super) listing: Listing<C::Key, C::Value>,
    /// Listed keys whose values passed no check, where cells check values.
    pub(super) suspects: Vec<Suspect<C>>,
}

impl<C: TableCell> Draft<C> {
    pub(super) fn new() -> Self {
        let listing = Listing { inserted: Vec::new(), deleted: Vec::new(), residue: Residue::default() };
        Draft { listing, suspects: Vec::new() }
    }

    /// Adds an entry to the listing; `part` is what was taken out of the table for it.
    pub(super) fn push(&mut self, entry: Entry<C::Key, C::Value>, hash: u128, part: &C) {
        let is_deleted = entry.count < 0;
        let entries = if is_deleted { &mut self.listing.deleted } else { &mut self.listing.inserted };
        if C::IS_VALUE_CHECKED && matches!(entry.values, Values::Sum(_) | Values::Unknown) {
            self.suspects.push(Suspect { is_deleted, index: entries.len(), hash, values: part.without_keys() });
        }
        entries.push(entry);
    }
}

/// A listed key whose values passed no check.
pub(super) struct Suspect<C> {
    is_deleted: bool,
    index: usize,
    hash: u128,
    /// What was taken out of the value sums for this key.
    values: C,
}

impl<C: TableCell> Suspect<C> {
    fn entry<'a>(&self, listing: &'a mut Listing<C::Key, C::Value>) -> &'a mut Entry<C::Key, C::Value> {
        if self.is_deleted { &mut listing.deleted[self.index] } else { &mut listing.inserted[self.index] }
    }
}

impl<C: TableCell, H: KeyHash<C::Key>> Table<C, H> {
    /// Corrects values that may be mixed with noise. Where cells do not check values, all entries are suspect.
    pub(super) fn correct_values(&mut self, draft: &mut Draft<C>) {
        let Draft { listing, suspects } = draft;
        if !C::IS_VALUE_CHECKED {
            suspects.clear();
            for (is_deleted, entries) in [(false, &listing.inserted), (true, &listing.deleted)] {
                suspects
                    .extend(entries.iter().enumerate().map(|(index, entry)| self.suspect(is_deleted, index, entry)));
            }
        }
        for suspect in suspects.iter_mut() {
            if self.noise(suspect.hash).any(|cell| !cell.is_zero()) {
                self.add_at(suspect.hash, &suspect.values);
                suspect.values = C::zero();
                suspect.entry(listing).values = Values::Unknown;
            }
        }
        for _ in 0..TABLE_PASSES_MAX {
            let mut is_told = false;
            for suspect in suspects.iter_mut() {
                let entry = suspect.entry(listing);
                if entry.values == Values::Unknown
                    && let Some((part, values)) = self.told(suspect.hash, entry.count)
                {
                    self.subtract_at(suspect.hash, &part);
                    (suspect.values, entry.values) = (part, values);
                    is_told = true;
                }
            }
            if !is_told {
                break;
            }
        }
        listing.residue = self.residue();
    }

    fn suspect(&self, is_deleted: bool, index: usize, entry: &Entry<C::Key, C::Value>) -> Suspect<C> {
        let hash = self.hash().of(&entry.key);
        let part = match entry.values {
            Values::One(value) => C::of(&entry.key, value, hash, entry.count),
            Values::Sum(sum) => C::of(&entry.key, sum, hash, 1),
            Values::Two(_) | Values::Unknown => C::of(&entry.key, C::Value::zero(), hash, 1),
        };
        Suspect { is_deleted, index, hash, values: part.without_keys() }
    }

    /// The key's cells that hold no key.
    pub(super) fn noise(&self, hash: u128) -> impl Iterator<Item = C> {
        let places = self.places(hash);
        (0..places.len()).map(move |at| *self.cell(places[at])).filter(C::is_key_free)
    }

    /// The values of a key of which only values are left: from a cell where they pass a check, or from two cells that
    /// agree.
    fn told(&self, hash: u128, count: i64) -> Option<(C, Values<C::Value>)> {
        let is_known = |values: &Values<_>| matches!(values, Values::One(_) | Values::Two(_));
        let mut checked = self.noise(hash).map(|cell| (cell, cell.values(hash, count)));
        if let Some(told) = checked.find(|(_, values)| C::IS_VALUE_CHECKED && is_known(values)) {
            return Some(told);
        }
        // A single value would have passed the check.
        if C::IS_VALUE_CHECKED && count.unsigned_abs() == 1 {
            return None;
        }
        let agreed = self.agreed(hash, |_| true)?;
        Some((agreed, agreed.values(hash, count)))
    }

    /// The contents that at least two of the key's cells without keys share, if more cells hold them than any other
    /// contents. Only contents that `is_fit` accepts are considered.
    pub(super) fn agreed(&self, hash: u128, is_fit: impl Fn(&C) -> bool) -> Option<C> {
        let votes = |cell: &C| self.noise(hash).filter(|other| other == cell).count();
        let agreed = self.noise(hash).filter(is_fit).max_by_key(votes)?;
        let others = self.noise(hash).filter(|cell| *cell != agreed).map(|cell| votes(&cell)).max();
        (votes(&agreed) >= 2.max(others.unwrap_or(0) + 1)).then_some(agreed)
    }

    pub(super) fn subtract_at(&mut self, hash: u128, part: &C) {
        for &place in self.places(hash).iter() {
            self.cells_mut()[place as usize].subtract(part);
        }
    }
}
