//! Listing (LISTENTRIES, section 2.4 of the paper, with the checks of section 3): a key that is alone in a cell is
//! taken out of the table, which may leave other keys alone in the other cells that it was in.
//!
//! The invariant: what is listed plus what is left is what was in the table, for any content. A cell is taken
//! for that of a lone key only when the check agrees and the key maps to that cell.
//!
//! Work is bounded: at most as many keys are taken out as there are cells, and divisions for keys are limited to a
//! number for each cell. (For the value of a key that does come out, up to 2^16 divisions are tried, where its count
//! has enough factors of two; only with the secret can many such keys be made.)
//!
//! Three stages follow each other:
//!
//! 1. Peeling takes out lone keys, with the values beside them.
//! 2. Where keys were inserted and removed with different values, these leave noise: values without a key (section 3 of
//!    the paper: "even worse"). A key's part that was read from a cell with noise left that noise in the key's other
//!    cells. So the values of such keys are put back, and are believed only from a cell where they pass a check, or
//!    from two cells that agree. Values that cannot be separated from noise are unknown and stay in the table.
//! 3. [`Table::list_knowing`] adds pairs that may have been removed back to stuck cells, one at a time. If that leaves
//!    one other key alone, the pair has been removed: the check would not agree by chance. The paper's section 3 does
//!    the same to find what differs at a mirror.

use crate::cell::{TableCell, Values};
use crate::hash::HASH_GROUP_COUNT;
use crate::key_hash::KeyHash;
use crate::placement::Places;
use crate::sum::{Sum, TABLE_LOST_BITS_MAX, quotients};
use crate::table::{BATCH_COUNT, Table};
use flowpeel_lines::prefetch;

/// Divisions that are tried for each cell of a table, on average: honest keys need one or two.
const TABLE_DIVISIONS_PER_CELL: u64 = 64;

/// Divisions that are tried in any table, however small: enough for some counts with the most factors of two.
const TABLE_DIVISIONS_MIN: u64 = 1 << 19;

const _: () = assert!(TABLE_DIVISIONS_MIN > 1 << TABLE_LOST_BITS_MAX);

/// The most passes over known or listed pairs to separate tangled keys: each pass helps the next, and few are needed.
pub(crate) const TABLE_PASSES_MAX: usize = 64;

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

    /// Lists what is in the table and leaves the table unchanged.
    pub fn listing(&self, rule: Rule) -> Listing<C::Key, C::Value> {
        self.clone().list(rule)
    }

    /// Takes out all that can be listed, and gives each entry to `take` instead of making lists. Returns the number of
    /// entries. Values that passed no check are right if the table is empty afterwards.
    pub fn peel(&mut self, rule: Rule, mut take: impl FnMut(Entry<C::Key, C::Value>)) -> usize {
        self.peel_parts(rule, |entry, _, _| take(entry))
    }

    /// Whether no key is in it. Value sums do not count.
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

    /// Lists a difference and takes it out of the table, with the help of pairs that may have been removed: those of
    /// the previous list. Pairs that were not removed do no harm.
    ///
    /// Complexity: that of [`Table::list`]; where it gets stuck, a few passes over `known`, each of `k` random accesses
    /// a pair.
    pub fn list_knowing(&mut self, known: &[(C::Key, C::Value)], rule: Rule) -> Listing<C::Key, C::Value> {
        let mut draft = Draft::new();
        self.list_knowing_into(known, rule, &mut draft);
        draft.listing
    }

    /// Continues a listing.
    pub(crate) fn list_into(&mut self, rule: Rule, draft: &mut Draft<C>) {
        self.peel_parts(rule, |entry, hash, part| draft.push(entry, hash, part));
        draft.listing.residue = self.residue();
        if draft.listing.residue.noise_cell_count > 0 {
            self.correct_values(draft);
        }
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

    /// The key that is alone in `cell`, the cell at `place`, with its hash and count; `None` if there is no such key.
    pub(crate) fn lone(&self, cell: &C, place: u32, divisions: &mut u64) -> Option<Lone<C::Key>> {
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
    pub(crate) fn part_of(&self, cell: &C, lone: &Lone<C::Key>) -> (C, Values<C::Value>) {
        self.part_at(cell, lone, &self.places(lone.hash))
    }

    /// As [`Self::part_of`], of a key whose places are known.
    fn part_at(&self, cell: &C, lone: &Lone<C::Key>, places: &[u32]) -> (C, Values<C::Value>) {
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

    /// Corrects values that may be mixed with noise. Where cells do not check values, all entries are suspect; if their
    /// sum is all there is of them, what was taken out for an entry follows from it.
    pub(crate) fn correct_values(&mut self, draft: &mut Draft<C>) {
        let Draft { listing, suspects } = draft;
        if !C::HAS_VALUE_FIELD {
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
            let mut is_found = false;
            for suspect in suspects.iter_mut() {
                let entry = suspect.entry(listing);
                if entry.values == Values::Unknown
                    && let Some((part, values)) = self.values_left(suspect.hash, entry.count)
                {
                    self.subtract_at(suspect.hash, &part);
                    (suspect.values, entry.values) = (part, values);
                    is_found = true;
                }
            }
            if !is_found {
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
    pub(crate) fn noise(&self, hash: u128) -> impl Iterator<Item = C> {
        let places = self.places(hash);
        (0..places.len()).map(move |at| *self.cell(places[at])).filter(C::is_key_free)
    }

    /// The values of a key of which only values are left: from a cell where they pass a check, or from two cells that
    /// agree.
    fn values_left(&self, hash: u128, count: i64) -> Option<(C, Values<C::Value>)> {
        let is_known = |values: &Values<_>| matches!(values, Values::One(_) | Values::Two(_));
        let mut checked = self.noise(hash).map(|cell| (cell, cell.values(hash, count)));
        if let Some(known) = checked.find(|(_, values)| C::IS_VALUE_CHECKED && is_known(values)) {
            return Some(known);
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
    pub(crate) fn agreed(&self, hash: u128, is_fit: impl Fn(&C) -> bool) -> Option<C> {
        let votes = |cell: &C| self.noise(hash).filter(|other| other == cell).count();
        let agreed = self.noise(hash).filter(is_fit).max_by_key(votes)?;
        let others = self.noise(hash).filter(|cell| *cell != agreed).map(|cell| votes(&cell)).max();
        (votes(&agreed) >= 2.max(others.unwrap_or(0) + 1)).then_some(agreed)
    }

    pub(crate) fn subtract_at(&mut self, hash: u128, part: &C) {
        for &place in self.places(hash).iter() {
            self.cells_mut()[place as usize].subtract(part);
        }
    }

    /// Continues a listing, with the help of the known pairs.
    pub(crate) fn list_knowing_into(&mut self, known: &[(C::Key, C::Value)], rule: Rule, draft: &mut Draft<C>) {
        self.list_into(rule, draft);
        let mut is_gone = vec![false; known.len()];
        let mut budget = self.cells().len();
        for _ in 0..TABLE_PASSES_MAX {
            if !C::IS_CHECKED || self.is_key_free() {
                break;
            }
            let before = draft.listing.deleted.len();
            self.unstick(known, &mut is_gone, &mut budget, &mut draft.listing.deleted);
            if draft.listing.deleted.len() == before {
                break;
            }
            self.list_into(rule, draft);
        }
    }

    /// One pass over the known pairs: those whose removal leaves another key alone in a cell are taken out as removed.
    fn unstick(
        &mut self,
        known: &[(C::Key, C::Value)],
        is_gone: &mut [bool],
        budget: &mut usize,
        deleted: &mut Vec<Entry<C::Key, C::Value>>,
    ) {
        for (pairs, is_gone) in known.chunks(BATCH_COUNT).zip(is_gone.chunks_mut(BATCH_COUNT)) {
            let mut keys = [pairs[0].0; BATCH_COUNT];
            let mut hashes = [0; BATCH_COUNT];
            keys.iter_mut().zip(pairs).for_each(|(key, pair)| *key = pair.0);
            self.hash().of_group(&keys[..pairs.len()], &mut hashes);
            hashes[..pairs.len()].iter().for_each(|&hash| self.prefetch(hash));
            for ((&(key, value), &hash), is_gone) in pairs.iter().zip(&hashes).zip(is_gone) {
                let part = C::of(&key, value, hash, 1);
                if !*is_gone && *budget > 0 && self.places(hash).iter().any(|&place| self.frees(&part, hash, place)) {
                    *is_gone = true;
                    *budget -= 1;
                    self.add_at(hash, &part);
                    let count = if C::IS_COUNTED { -1 } else { 1 };
                    deleted.push(Entry { key, count, values: Values::One(value) });
                }
            }
        }
    }

    /// Whether this part, added back to the cell at `place`, leaves one other key alone in it.
    fn frees(&self, part: &C, hash: u128, place: u32) -> bool {
        let mut cell = *self.cell(place);
        if cell.is_key_free() {
            return false;
        }
        cell.add(part);
        cell.count().unsigned_abs() == 1 && self.lone(&cell, place, &mut 1).is_some_and(|other| other.hash != hash)
    }
}

/// A listing under way, with the entries whose values may have to be corrected.
pub(crate) struct Draft<C: TableCell> {
    pub(crate) listing: Listing<C::Key, C::Value>,
    /// Listed keys whose values passed no check, where cells have more of values than their sum.
    pub(crate) suspects: Vec<Suspect<C>>,
}

impl<C: TableCell> Draft<C> {
    pub(crate) fn new() -> Self {
        let listing = Listing { inserted: Vec::new(), deleted: Vec::new(), residue: Residue::default() };
        Draft { listing, suspects: Vec::new() }
    }

    /// Adds an entry to the listing; `part` is what was taken out of the table for it.
    pub(crate) fn push(&mut self, entry: Entry<C::Key, C::Value>, hash: u128, part: &C) {
        let is_deleted = entry.count < 0;
        let entries = if is_deleted { &mut self.listing.deleted } else { &mut self.listing.inserted };
        let is_checked = C::IS_VALUE_CHECKED && matches!(entry.values, Values::One(_) | Values::Two(_));
        if C::HAS_VALUE_FIELD && !is_checked {
            self.suspects.push(Suspect { is_deleted, index: entries.len(), hash, values: part.without_keys() });
        }
        entries.push(entry);
    }
}

/// A listed key whose values passed no check.
pub(crate) struct Suspect<C> {
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

/// A key that is alone in some cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lone<K> {
    pub(crate) key: K,
    pub(crate) hash: u128,
    pub(crate) count: i64,
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
            // Placing a key costs as much as all that follows, so it is done once.
            let mut places = [Places::default(); HASH_GROUP_COUNT];
            for (places, &hash) in places.iter_mut().zip(&hashes[..group.len()]) {
                *places = table.places(hash);
                places.iter().for_each(|&place| prefetch(table.cell(place)));
            }
            for (((&place, &key), &hash), places) in group.iter().zip(&keys).zip(&hashes).zip(&places) {
                let cell = *table.cell(place);
                match Self::sole(&cell) {
                    Some(sole) => {
                        let count = cell.count();
                        if sole == key && cell.agrees(hash, count) && places.contains(&place) {
                            self.remove(table, take, &cell, &Lone { key, hash, count }, places);
                        }
                    }
                    None if self.with_aggregates => {
                        if let Some(lone) = table.lone(&cell, place, &mut self.divisions) {
                            self.remove(table, take, &cell, &lone, &table.places(lone.hash));
                        }
                    }
                    None => {}
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
        places: &[u32],
    ) {
        if self.budget == 0 {
            return;
        }
        let (part, values) = table.part_at(cell, lone, places);
        if self.rule == Rule::SingleValued && !matches!(values, Values::One(_)) {
            return;
        }
        self.budget -= 1;
        for &place in places {
            let cell = &mut table.cells_mut()[place as usize];
            cell.subtract(&part);
            if self.is_candidate(cell) {
                self.work.push(place);
            }
        }
        take(Entry { key: lone.key, count: lone.count, values }, lone.hash, &part);
    }
}
