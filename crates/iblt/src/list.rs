//! Listing (LISTENTRIES, section 2.4 of the paper, with the checks of section 3): take out a key that stands alone in a
//! cell, subtract its part from its other cells, and continue with those.
//!
//! What enters: a table. What leaves: what was inserted, what was deleted without having been inserted, and what is
//! left in the table.
//!
//! The law: what is listed plus what is left is what there was, whatever the cells hold. A cell is taken for a lone key
//! only when the check agrees and the key maps to that cell. Work is bounded: at most as many keys are taken out as
//! there are cells, and divisions for keys are limited to a number for each cell. (For the value of a key that does
//! come out, up to 2^16 divisions are tried, where its count has enough factors of two; only with the secret can many
//! such keys be made.)

use super::cell::{TableCell, Values};
use super::draft::Draft;
use super::key_hash::KeyHash;
use super::sum::{Sum, quotients};
use super::table::{BATCH_COUNT, Table};
use crate::hash::HASH_GROUP_COUNT;
use flowpeel_lines::prefetch;

/// Divisions that are tried for each cell of a table, on average: honest keys need one or two.
const TABLE_DIVISIONS_PER_CELL: u64 = 64;

/// Divisions that are tried in any table, however small: enough for some counts with the most factors of two.
pub(super) const TABLE_DIVISIONS_MIN: u64 = 1 << 19;

const _: () = assert!(BATCH_COUNT.is_multiple_of(HASH_GROUP_COUNT));

/// Which keys are listed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All keys. A key with several values is listed as one entry with their sum. Its part is the same in all its
    /// cells, so it is subtracted whole and blocks no other key. (The paper leaves this open: section 6.)
    Aggregates,
    /// The paper's rule (section 3): only keys of which one value is known, any number of times. A key with several
    /// values stays, and so do the keys that only its cells would show. Telling them apart takes a cell with a value
    /// check.
    SingleValued,
}

/// A key that was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<K, V> {
    /// The key.
    pub key: K,
    /// How many times the key was inserted less how many times it was removed: never zero. Always 1 from cells that do
    /// not count.
    pub count: i64,
    /// What is known of its values.
    pub values: Values<V>,
}

impl<K, V> Entry<K, V> {
    /// The value of a key with a single value.
    pub fn value(self) -> Option<V> {
        if let Values::One(value) = self.values { Some(value) } else { None }
    }
}

/// What could not be listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residue {
    /// Cells with keys that could not be listed.
    pub key_cell_count: usize,
    /// Cells without keys, but with something in the value sums: either keys were inserted and removed with different
    /// values, or the values of listed keys are unknown.
    pub noise_cell_count: usize,
}

impl Residue {
    /// Whether all was listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Residue::default()
    }
}

/// All that was listed of a table, and how much was not.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a listing may be partial: look at its residue"]
pub struct Listing<K, V> {
    /// What was inserted; from cells that do not count, everything.
    pub inserted: Vec<Entry<K, V>>,
    /// What was deleted without having been inserted: extraneous deletions (section 3 of the paper). In a difference,
    /// what only the other side has.
    pub deleted: Vec<Entry<K, V>>,
    /// What could not be listed.
    pub residue: Residue,
}

impl<K, V> Listing<K, V> {
    /// Whether everything was listed.
    pub fn is_complete(&self) -> bool {
        self.residue.is_empty()
    }

    /// The entries of a complete listing: inserted and deleted ones.
    ///
    /// # Errors
    /// The listing itself when it is incomplete ("list-incomplete" in section 2.1 of the paper).
    #[expect(clippy::type_complexity, reason = "two lists are two lists")]
    pub fn complete(self) -> Result<(Vec<Entry<K, V>>, Vec<Entry<K, V>>), Self> {
        if self.is_complete() { Ok((self.inserted, self.deleted)) } else { Err(self) }
    }
}

impl<C: TableCell, H: KeyHash<C::Key>> Table<C, H> {
    /// Lists what is in the table and takes it out; what stays in the table is what could not be listed.
    ///
    /// Complexity: a pass or two over the cells, then one random access for each cell of a key.
    pub fn list(&mut self, rule: Rule) -> Listing<C::Key, C::Value> {
        let mut draft = Draft::new();
        self.list_into(rule, &mut draft);
        draft.listing
    }

    /// Continues a listing.
    pub(super) fn list_into(&mut self, rule: Rule, draft: &mut Draft<C>) {
        self.peel_parts(rule, |entry, hash, part| draft.push(entry, hash, part));
        draft.listing.residue = self.residue();
        if draft.listing.residue.noise_cell_count > 0 {
            self.correct_values(draft);
        }
    }

    /// Lists what is in the table and leaves the table unchanged.
    pub fn listing(&self, rule: Rule) -> Listing<C::Key, C::Value> {
        self.clone().list(rule)
    }

    /// Takes out all that can be listed, and gives each entry to `take` instead of making lists. Returns the number of
    /// entries. Values that passed no check are right if the table is empty afterwards.
    pub fn peel(&mut self, rule: Rule, mut take: impl FnMut(Entry<C::Key, C::Value>)) -> usize {
        self.peel_parts(rule, |entry, _, _| take(entry))
    }

    fn peel_parts(&mut self, rule: Rule, mut take: impl FnMut(Entry<C::Key, C::Value>, u128, &C)) -> usize {
        let whole = self.cells().len();
        let divisions = TABLE_DIVISIONS_MIN + TABLE_DIVISIONS_PER_CELL * whole as u64;
        let mut peel = Peel { rule, work: Vec::new(), budget: whole, divisions, with_aggregates: false };
        peel.pass(self, &mut take);
        // Only a stuck table is searched for keys that are in it several times.
        if C::IS_MULTISET && !self.is_key_free() {
            peel.with_aggregates = true;
            peel.pass(self, &mut take);
        }
        whole - peel.budget
    }

    /// Whether no key is in it, whatever the value sums.
    #[must_use]
    pub fn is_key_free(&self) -> bool {
        self.cells().iter().all(C::is_key_free)
    }

    /// What is left in the table, counted by cells.
    #[must_use]
    pub fn residue(&self) -> Residue {
        let mut residue = Residue::default();
        for cell in self.cells() {
            residue.key_cell_count += usize::from(!cell.is_key_free());
            residue.noise_cell_count += usize::from(cell.is_key_free() && !cell.is_zero());
        }
        residue
    }

    /// The key that is alone in `cell`, the cell at `place`, with its hash and count; `None` if there is no such key.
    pub(super) fn lone(&self, cell: &C, place: u32, divisions: &mut u64) -> Option<Lone<C::Key>> {
        let count = cell.count();
        if count == 0 || count.unsigned_abs() > 1 && !C::IS_MULTISET {
            return None;
        }
        for lost in 0..quotients::<C::Key>(count)?.min(*divisions) {
            let key = cell.candidate(count, lost)?;
            *divisions -= 1;
            let hash = self.hash().of(&key);
            if cell.agrees(hash, count) && self.places(hash).contains(&place) {
                return Some(Lone { key, hash, count });
            }
        }
        None
    }

    /// The part of a key that is alone in `cell`, and its values. All cells in which the key is alone are compared,
    /// since some may hold values of other keys besides. If they disagree and no check decides, the part is returned
    /// without values, and these are unknown.
    pub(super) fn part_of(&self, cell: &C, lone: &Lone<C::Key>) -> (C, Values<C::Value>) {
        let places = self.places(lone.hash);
        let mut found: Option<C> = None;
        let mut is_agreed = true;
        for cell in places.iter().map(|&place| self.cell(place)).filter(|at| at.has_keys_of(cell)) {
            if C::IS_VALUE_CHECKED
                && let known @ (Values::One(_) | Values::Two(_)) = cell.values(lone.hash, lone.count)
            {
                return (*cell, known);
            }
            is_agreed &= found.is_none_or(|found| found == *cell);
            found = Some(*cell);
        }
        let part = found.unwrap_or(*cell);
        if is_agreed {
            return (part, part.values(lone.hash, lone.count));
        }
        let mut keys = part;
        keys.subtract(&part.without_keys());
        (keys, Values::Unknown)
    }
}

/// A key that is alone in some cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lone<K> {
    pub(super) key: K,
    pub(super) hash: u128,
    pub(super) count: i64,
}

/// One listing under way.
struct Peel {
    rule: Rule,
    work: Vec<u32>,
    /// How many more keys may be taken out.
    budget: usize,
    /// How many more divisions may be tried.
    divisions: u64,
    /// Whether to look for keys that are in a cell several times.
    with_aggregates: bool,
}

impl Peel {
    /// One pass over the cells in order, following each key that is taken out to its other cells before continuing.
    fn pass<C: TableCell, H: KeyHash<C::Key>>(
        &mut self,
        table: &mut Table<C, H>,
        take: &mut impl FnMut(Entry<C::Key, C::Value>, u128, &C),
    ) {
        let mut next = 0;
        let mut batch = [0u32; BATCH_COUNT];
        while self.budget > 0 {
            let mut count = 0;
            while count < BATCH_COUNT {
                if let Some(place) = self.work.pop() {
                    prefetch(table.cell(place));
                    batch[count] = place;
                    count += 1;
                } else if let Some(cell) = table.cells().get(next) {
                    if self.is_candidate(cell) {
                        batch[count] = next as u32;
                        count += 1;
                    }
                    next += 1;
                } else {
                    break;
                }
            }
            if count == 0 {
                return;
            }
            self.batch(table, take, &batch[..count]);
        }
    }

    #[inline]
    fn is_candidate<C: TableCell>(&self, cell: &C) -> bool {
        let count = cell.count();
        count.unsigned_abs() == 1 || self.with_aggregates && count != 0
    }

    /// Processes some cells. One cell of the batch may change a later one, so each is read again in its turn.
    fn batch<C: TableCell, H: KeyHash<C::Key>>(
        &mut self,
        table: &mut Table<C, H>,
        take: &mut impl FnMut(Entry<C::Key, C::Value>, u128, &C),
        batch: &[u32],
    ) {
        for group in batch.chunks(HASH_GROUP_COUNT) {
            let mut keys = [C::Key::zero(); HASH_GROUP_COUNT];
            let mut hashes = [0; HASH_GROUP_COUNT];
            for (key, &place) in keys.iter_mut().zip(group) {
                *key = Self::sole(table.cell(place)).unwrap_or(*key);
            }
            table.hash().of_group(&keys[..group.len()], &mut hashes);
            hashes[..group.len()].iter().for_each(|&hash| table.prefetch(hash));
            for ((&place, &key), &hash) in group.iter().zip(&keys).zip(&hashes) {
                let cell = *table.cell(place);
                let lone = match Self::sole(&cell) {
                    Some(sole) => {
                        let count = cell.count();
                        let is_lone = sole == key && cell.agrees(hash, count) && table.places(hash).contains(&place);
                        is_lone.then_some(Lone { key, hash, count })
                    }
                    None if self.with_aggregates => table.lone(&cell, place, &mut self.divisions),
                    None => None,
                };
                if let Some(lone) = lone
                    && self.budget > 0
                {
                    self.remove(table, take, &cell, &lone);
                }
            }
        }
    }

    /// The key of a cell that holds one key once.
    #[inline]
    fn sole<C: TableCell>(cell: &C) -> Option<C::Key> {
        match cell.count() {
            count @ (1 | -1) => cell.candidate(count, 0),
            _ => None,
        }
    }

    fn remove<C: TableCell, H: KeyHash<C::Key>>(
        &mut self,
        table: &mut Table<C, H>,
        take: &mut impl FnMut(Entry<C::Key, C::Value>, u128, &C),
        cell: &C,
        lone: &Lone<C::Key>,
    ) {
        let (part, values) = table.part_of(cell, lone);
        if self.rule == Rule::SingleValued && !matches!(values, Values::One(_)) {
            return;
        }
        self.budget -= 1;
        for &place in table.places(lone.hash).iter() {
            let cell = &mut table.cells_mut()[place as usize];
            cell.subtract(&part);
            if self.is_candidate(cell) {
                self.work.push(place);
            }
        }
        take(Entry { key: lone.key, count: lone.count, values }, lone.hash, &part);
    }
}
