//! Listing of an [`Iblt`] (LISTENTRIES, section 2.4 of the paper, with the checks of section 3): take out a key that is
//! alone in a cell, subtract it from its other cells, and continue with those.
//!
//! The invariant: what was taken out plus what is in the table is what was in the table, for any content. A cell is
//! taken for that of a lone key only when the key's check agrees and the key maps to that cell. A key added or removed
//! several times with different values is taken out as one sum, where the paper (sections 3 and 6) gives such keys up.
//!
//! Work is bounded: at most as many keys are taken out as there are cells, which is as many as an honest table gives;
//! and the number of keys that are tried for counts that lose bits is limited for each cell.

use super::iblt::AHEAD_COUNT;
use crate::hash::{HASH_BATCH_COUNT, HASH_GROUP_COUNT, HashBatch, KeyedHash};
use crate::word_key::KEY_WORD_COUNT_MAX;
use crate::{Change, HASH_COUNT, Iblt, PackedCell, TableCell, TableKey};
use flowpeel_lines::prefetch;

/// The largest count in a cell that is taken for one key that was added several times. Errors make twos and rarely
/// more, and every factor of two in a count multiplies the keys that have to be tried.
const AGGREGATE_COUNT_MAX: u32 = 3;

/// The most bits lost in dividing a key sum by an even count. Each lost bit doubles the keys that are tried; with this
/// many that takes some milliseconds. It is enough for a key of two words that is in any of a thousand tables, and for
/// one of five words that is in 31.
pub const AGGREGATE_LOST_BITS_MAX: u32 = 20;

/// Keys that are tried for even counts for each cell of a table, on average: enough where each of a thousand tables
/// holds keys of its own.
const AGGREGATE_TRIES_PER_CELL: u64 = 1 << 12;

/// Keys that are tried for even counts in any table, however small: some seconds, enough for five hundred keys of
/// five words that are in 16 tables.
const AGGREGATE_TRIES_MIN: u64 = 1 << 28;

/// The part of the remaining tries that one division may take, as one in this many: divisions that take few tries are
/// made even where those that take many were made for nothing.
const AGGREGATE_TRIES_SHARE: u64 = 16;

const _: () = assert!(AGGREGATE_TRIES_MIN / AGGREGATE_TRIES_SHARE >= 1 << AGGREGATE_LOST_BITS_MAX);

/// How many candidate cells are processed together: as many as are hashed at once.
const BATCH_COUNT: usize = HASH_BATCH_COUNT;

/// How many cells of a pass are scanned before checking whether the batch is full.
const SCAN_COUNT: usize = 16;

/// The size of a cache line on most machines.
const LINE_SIZE: usize = 64;

/// How far ahead of a pass cells are prefetched. The accesses in between are spread over all memory, so no hardware
/// prefetcher recognises that the pass reads in order.
const SCAN_AHEAD_COUNT: usize = 8 * SCAN_COUNT;

/// Takes what is peeled, and knows which values are genuine.
pub trait Recipient<K> {
    /// Whether `value` is one that the key with this placement hash can have.
    fn belongs(&self, placement: u128, value: u64) -> bool;

    /// Checks up to [`HASH_BATCH_COUNT`] keys and values as [`Self::belongs`] does, which may be faster together.
    fn belong(&self, placements: &[u128], values: &[u64], verdicts: &mut [bool]) {
        let pairs = placements.iter().zip(values);
        verdicts.iter_mut().zip(pairs).for_each(|(verdict, (hash, value))| *verdict = self.belongs(*hash, *value));
    }

    /// What a key's contribution to the value sum must be, if that is known; called where each of the key's cells has
    /// other values in it.
    fn expected(&self, _key: &K, _placement: u128, _count: i32) -> Option<u64> {
        None
    }

    /// Takes what was peeled, which is no longer in the table.
    fn take(&mut self, peeled: Peeled<K>);
}

/// One key that was peeled out of a table, as the change that is no longer in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeled<K> {
    /// The key with its count. Its value is what was subtracted from the value sums: the signed value when
    /// `value_known`. Otherwise it is zero, and the value is still in the sums.
    pub change: Change<K>,
    /// Whether a value was found that belongs to the key.
    pub value_known: bool,
}

/// Candidate cells that are processed together, with what is known of each.
struct Candidates<K: TableKey> {
    count: usize,
    places: [u32; BATCH_COUNT],
    cells: [PackedCell<K>; BATCH_COUNT],
    keys: [K; BATCH_COUNT],
    hashes: [u128; BATCH_COUNT],
    /// The cells of each key.
    all_places: [[u32; HASH_COUNT]; BATCH_COUNT],
    /// Whether the cell holds one key alone, once, that maps to it.
    are_lone: [bool; BATCH_COUNT],
    /// Whether the value beside it is genuine.
    are_genuine: [bool; BATCH_COUNT],
}

impl<K: TableKey> Candidates<K> {
    fn new() -> Self {
        Candidates {
            count: 0,
            places: [0; BATCH_COUNT],
            cells: [PackedCell::zero(); BATCH_COUNT],
            keys: [K::from_words(&[]); BATCH_COUNT],
            hashes: [0; BATCH_COUNT],
            all_places: [[0; HASH_COUNT]; BATCH_COUNT],
            are_lone: [false; BATCH_COUNT],
            are_genuine: [false; BATCH_COUNT],
        }
    }

    /// Prefetches the cells of this candidate's key, if it is a lone key.
    #[inline]
    fn prefetch(&self, table: &Iblt<K>, at: usize) {
        if at < self.count && self.are_lone[at] {
            table.prefetch(&self.all_places[at]);
        }
    }
}

/// Peels tables of one size. It owns the work list, so that peeling allocates nothing.
pub struct Peeler<K: TableKey> {
    hash: KeyedHash<K>,
    /// The first `work_count` of these are the places on the work list. There is always room for the cells of one more
    /// key.
    work: Vec<u32>,
    work_count: usize,
    overflowed: bool,
    candidates: Box<Candidates<K>>,
    /// The largest count that is taken for one key.
    aggregate_max: u32,
    /// How many more keys may be tried for such counts in the table that is being peeled.
    tries: u64,
}

impl<K: TableKey> Peeler<K> {
    /// A peeler for tables with up to `cell_count` cells, in which keys are placed by `hash`.
    #[must_use]
    pub fn new(hash: KeyedHash<K>, cell_count: usize) -> Self {
        Peeler {
            hash,
            work: vec![0; cell_count / 2 + BATCH_COUNT * HASH_COUNT],
            work_count: 0,
            overflowed: false,
            candidates: Box::new(Candidates::new()),
            aggregate_max: AGGREGATE_COUNT_MAX,
            tries: 0,
        }
    }

    /// Makes the peeler one for sums of `table_count` tables, in each of which a key may be: the count of a key is then
    /// at most their number.
    ///
    /// Complexity: for a count with t factors of two and keys of w words, 2^(tw) keys are tried. Counts for which tw is
    /// above [`AGGREGATE_LOST_BITS_MAX`] are left in the table; so are the costliest counts once more keys were tried
    /// than honest tables need.
    #[must_use]
    pub fn for_sum_of(mut self, table_count: u32) -> Self {
        self.aggregate_max = table_count.max(AGGREGATE_COUNT_MAX);
        self
    }

    /// The function by which keys are placed.
    #[must_use]
    pub fn hash(&self) -> &KeyedHash<K> {
        &self.hash
    }

    /// Takes every key that can be listed out of `table` and gives it to `recipient`. What could not be listed stays in
    /// the table. Returns the number of keys taken out.
    ///
    /// Complexity: a pass over the cells, then `k` random accesses a key.
    pub fn peel(&mut self, table: &mut Iblt<K>, recipient: &mut impl Recipient<K>) -> usize {
        let mut budget = table.geometry().cell_count();
        let whole = budget;
        self.tries = AGGREGATE_TRIES_MIN + AGGREGATE_TRIES_PER_CELL * whole as u64;
        loop {
            let before = budget;
            self.scan(table, recipient, 1, &mut budget);
            if !self.overflowed {
                // Only a stuck table is searched for keys that are in it several times.
                let stuck = !table.is_key_free();
                if stuck {
                    self.scan(table, recipient, self.aggregate_max, &mut budget);
                }
                if !stuck || budget == before {
                    return whole - budget;
                }
            }
            if budget == 0 {
                return whole;
            }
        }
    }

    /// One pass over the cells in order, following each key that is taken out to its other cells before continuing.
    fn scan(&mut self, table: &mut Iblt<K>, recipient: &mut impl Recipient<K>, count_max: u32, budget: &mut usize) {
        self.work_count = 0;
        self.overflowed = false;
        let mut next = 0;
        loop {
            self.collect(table, &mut next, count_max);
            if self.candidates.count == 0 || *budget == 0 {
                return;
            }
            self.verify(table, recipient);
            for at in 0..self.candidates.count {
                self.candidates.prefetch(table, at + AHEAD_COUNT);
                self.take_out(table, recipient, at, count_max, budget);
            }
        }
    }

    /// Fills the batch of candidates: first from the work list, then with cells from `next` on.
    #[inline]
    fn collect(&mut self, table: &Iblt<K>, next: &mut usize, count_max: u32) {
        let Candidates { places, count, .. } = &mut *self.candidates;
        let rest = self.work_count.saturating_sub(BATCH_COUNT);
        let last = &self.work[rest..self.work_count];
        for (place, &worked) in places.iter_mut().zip(last.iter().rev()) {
            prefetch(&table.cells()[worked as usize]);
            *place = worked;
        }
        (*count, self.work_count) = (last.len(), rest);
        while *count + SCAN_COUNT <= BATCH_COUNT && *next < table.cells().len() {
            let cells = &table.cells()[*next..];
            let ahead = cells.iter().skip(SCAN_AHEAD_COUNT).take(SCAN_COUNT);
            ahead.step_by(LINE_SIZE / size_of::<PackedCell<K>>()).for_each(prefetch);
            for (cell, place) in cells.iter().take(SCAN_COUNT).zip(*next as u32..) {
                places[*count] = place;
                *count += usize::from(is_candidate(cell.count(), count_max));
            }
            *next += SCAN_COUNT;
        }
    }

    /// Finds out which candidates are lone keys, prefetches the cells of those, and finds out which of their values are
    /// genuine.
    #[inline]
    fn verify(&mut self, table: &Iblt<K>, recipient: &impl Recipient<K>) {
        let tried = &mut *self.candidates;
        let count = tried.count;
        for at in 0..count {
            tried.cells[at] = table.cells()[tried.places[at] as usize];
            tried.keys[at] = tried.cells[at].lone_key();
        }
        let mut hashes = HashBatch::default();
        self.hash.of_batch(&tried.keys[..count], &mut hashes);
        let mut values = [0; BATCH_COUNT];
        for (at, value) in values[..count].iter_mut().enumerate() {
            let (cell, hash) = (&tried.cells[at], hashes.get(at));
            let places = table.places(hash);
            tried.hashes[at] = hash;
            tried.all_places[at] = places;
            let is_once = cell.count().unsigned_abs() == 1;
            tried.are_lone[at] = is_once && cell.is_lone(hash) && places.contains(&tried.places[at]);
            if at < AHEAD_COUNT {
                tried.prefetch(table, at);
            }
            *value = cell.value().wrapping_mul(cell.count() as u64);
        }
        recipient.belong(&tried.hashes[..count], &values[..count], &mut tried.are_genuine[..count]);
    }

    /// Takes the key of a candidate out of the table, if there is one.
    #[inline]
    fn take_out(
        &mut self,
        table: &mut Iblt<K>,
        recipient: &mut impl Recipient<K>,
        at: usize,
        count_max: u32,
        budget: &mut usize,
    ) {
        let tried = &*self.candidates;
        let place = tried.places[at];
        // An earlier key of this batch may have left the cell, so the cell is read again.
        let cell = table.cells()[place as usize];
        let is_lone = tried.are_lone[at] && cell == tried.cells[at];
        let is_genuine = is_lone && tried.are_genuine[at];
        let (key, hash, places) = if is_lone {
            (tried.keys[at], tried.hashes[at], tried.all_places[at])
        } else {
            let Some((key, hash)) = self.aggregate(&cell) else { return };
            (key, hash, table.places(hash))
        };
        if *budget == 0 || !places.contains(&place) {
            return;
        }
        *budget -= 1;
        let known =
            is_genuine.then_some(cell.value()).or_else(|| Self::value_of(table, recipient, (&key, hash), place));
        let mut taken = cell;
        taken.set_value(known.unwrap_or(0));
        for (at, place) in places.into_iter().enumerate() {
            // Lost cells stay zero, so they never seem to hold a key.
            if table.is_lost(at) {
                continue;
            }
            let left = table.subtract_at(place, &taken);
            self.work[self.work_count] = place;
            self.work_count += usize::from(is_candidate(left, count_max));
        }
        if self.work_count + HASH_COUNT > self.work.len() {
            self.overflowed = true;
            self.work_count = self.work.len() - HASH_COUNT;
        }
        let change = Change { key, hash, count: cell.count() as i32, value: known.unwrap_or(0) };
        recipient.take(Peeled { change, value_known: known.is_some() });
    }

    /// The key that is alone in this cell but several times, if there is one.
    fn aggregate(&mut self, cell: &PackedCell<K>) -> Option<(K, u128)> {
        let count = cell.count();
        if !(2..=u64::from(self.aggregate_max)).contains(&count.unsigned_abs()) {
            return None;
        }
        let twos = count.trailing_zeros();
        let lost_bits = twos * K::WORD_COUNT as u32;
        // Counts that take many tries must leave enough of them for counts that take few.
        if lost_bits > AGGREGATE_LOST_BITS_MAX || self.tries / AGGREGATE_TRIES_SHARE < 1 << lost_bits {
            return None;
        }
        let known = cell.candidate(count, 0)?;
        // A word times an even count has lost its top bits: all values of these are tried.
        for first in (0..1u64 << lost_bits).step_by(HASH_GROUP_COUNT) {
            let mut keys = [K::from_words(&[]); HASH_GROUP_COUNT];
            let mut hashes = [0; HASH_GROUP_COUNT];
            for (key, lost) in keys.iter_mut().zip(first..1 << lost_bits) {
                *key = Self::with_lost(&known, twos, lost);
            }
            let count = HASH_GROUP_COUNT.min((1 << lost_bits) - first as usize);
            self.tries = self.tries.saturating_sub(count as u64);
            self.hash.of_group(&keys[..count], &mut hashes);
            let mut tried = keys.into_iter().zip(hashes).take(count);
            if let Some(found) = tried.find(|(_, hash)| cell.is_lone(*hash)) {
                return Some(found);
            }
        }
        None
    }

    /// The key with `lost` in place of the top `twos` bits of its words, which were lost.
    fn with_lost(known: &K, twos: u32, lost: u64) -> K {
        let mut words = [0; KEY_WORD_COUNT_MAX];
        for (at, (word, &low)) in words.iter_mut().zip(known.words()).enumerate() {
            let top = lost >> (at as u32 * twos) & ((1 << twos) - 1);
            *word = low | top.rotate_right(twos);
        }
        K::from_words(&words)
    }

    /// The value sum of the key that is alone at `place`, if any of its cells has it.
    fn value_of(table: &Iblt<K>, recipient: &impl Recipient<K>, (key, hash): (&K, u128), place: u32) -> Option<u64> {
        let places = table.places(hash);
        let cell = table.cells()[place as usize];
        let count = cell.count();
        // Another key's noise may be added to the value here and not elsewhere, so all cells that hold this key alone
        // are tried.
        let lone = std::iter::once(place).chain(places).map(|at| table.cells()[at as usize]);
        let lone = lone.filter(|at| at.has_keys_of(&cell));
        let known = lone.map(|at| at.value()).find(|&value| match count {
            1 => recipient.belongs(hash, value),
            -1 => recipient.belongs(hash, value.wrapping_neg()),
            _ => false,
        });
        known.or_else(|| recipient.expected(key, hash, count as i32))
    }
}

/// Whether there may be a lone key in a cell with this count.
#[inline]
fn is_candidate(count: i64, count_max: u32) -> bool {
    count.unsigned_abs().wrapping_sub(1) < u64::from(count_max)
}
