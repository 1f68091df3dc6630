//! The table: cells, a layout, and the function that places keys (section 2 of the paper).
//!
//! What enters: pairs of keys and values, added or removed, and other tables. What leaves: the cells, for getting and
//! listing, and their bytes. Laws: updates commute; insertion and removal of the same pair leave nothing; a merged
//! table holds what both hold together; a subtracted one what one holds and the other does not. All of it whatever the
//! cells hold: nothing here can fail, and nothing looks anything up.

use super::cell::TableCell;
use super::key_hash::{KeyHash, SecretHash};
use super::placement::{Layout, Places};
use super::refused::Refused;
use crate::hash::Secret;
use crate::prefetch::prefetch;

/// How many keys are hashed and placed together, before the first of their cells is touched.
pub(super) const BATCH_COUNT: usize = 32;

/// An invertible Bloom lookup table.
///
/// Updates cost one addition for each of a key's cells, whatever the table holds. Memory is fixed when it is made.
/// Tables that are added, subtracted or compared must have the same layout and the same hash.
///
/// Tables are plain data (`Send` and `Sync`): to peel a large set in parallel, split keys by a part of their hash of
/// your own over several tables and list each on a thread of its own. Every table then needs slack of its own: see
/// [`plan()`](super::plan()).
#[derive(Clone)]
pub struct Table<C: TableCell, H = SecretHash<<C as TableCell>::Key>> {
    layout: Layout,
    cells: Vec<C>,
    hash: H,
}

impl<C: TableCell> Table<C> {
    /// An empty table whose places nobody without the secret can aim at.
    #[must_use]
    pub fn with_secret(layout: Layout, secret: &Secret) -> Self {
        Table::new(layout, SecretHash::new(secret))
    }
}

impl<C: TableCell, H: KeyHash<C::Key>> Table<C, H> {
    /// An empty table.
    #[must_use]
    pub fn new(layout: Layout, hash: H) -> Self {
        Table { layout, cells: vec![C::zero(); layout.cell_count()], hash }
    }

    /// An empty table like this one.
    #[must_use]
    pub fn empty(&self) -> Self {
        Table::new(self.layout, self.hash.clone())
    }

    /// Its layout.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The function by which keys are placed.
    #[must_use]
    pub fn hash(&self) -> &H {
        &self.hash
    }

    /// Its cells.
    #[must_use]
    pub fn cells(&self) -> &[C] {
        &self.cells
    }

    pub(super) fn cells_mut(&mut self) -> &mut [C] {
        &mut self.cells
    }

    pub(super) fn cell(&self, place: u32) -> &C {
        &self.cells[place as usize]
    }

    pub(super) fn places(&self, hash: u128) -> Places {
        self.layout.places(hash)
    }

    /// Inserts a pair (INSERT, section 2.2).
    pub fn insert(&mut self, key: &C::Key, value: C::Value) {
        self.update(key, value, 1);
    }

    /// Removes a pair that was inserted or will be (DELETE, section 2.2). One that never is stays in the table as an
    /// extraneous deletion (section 3), and is listed as such.
    pub fn remove(&mut self, key: &C::Key, value: C::Value) {
        self.update(key, value, -1);
    }

    /// Inserts a pair `count` times; a negative count removes.
    pub fn update(&mut self, key: &C::Key, value: C::Value, count: i64) {
        let hash = self.hash.of(key);
        let part = C::of(key, value, hash, count);
        self.add_at(hash, &part);
    }

    /// Inserts pairs, as many cells of which are asked of the memory together as hides its latency.
    pub fn insert_all(&mut self, pairs: &[(C::Key, C::Value)]) {
        self.update_all(pairs, 1);
    }

    /// Removes pairs, like [`Self::insert_all`].
    pub fn remove_all(&mut self, pairs: &[(C::Key, C::Value)]) {
        self.update_all(pairs, -1);
    }

    fn update_all(&mut self, pairs: &[(C::Key, C::Value)], count: i64) {
        for pairs in pairs.chunks(BATCH_COUNT) {
            let mut keys = [pairs[0].0; BATCH_COUNT];
            let mut hashes = [0; BATCH_COUNT];
            keys.iter_mut().zip(pairs).for_each(|(key, pair)| *key = pair.0);
            self.hash.of_group(&keys[..pairs.len()], &mut hashes);
            let mut places = [Places::default(); BATCH_COUNT];
            for (places, &hash) in places.iter_mut().zip(&hashes[..pairs.len()]) {
                *places = self.places(hash);
                places.iter().for_each(|&place| prefetch(self.cell(place)));
            }
            for (((key, value), &hash), places) in pairs.iter().zip(&hashes).zip(&places) {
                let part = C::of(key, *value, hash, count);
                places.iter().for_each(|&place| self.cells[place as usize].add(&part));
            }
        }
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u128) {
        self.places(hash).iter().for_each(|&place| prefetch(self.cell(place)));
    }

    #[inline]
    pub(super) fn add_at(&mut self, hash: u128, part: &C) {
        for &place in self.places(hash).iter() {
            self.cells[place as usize].add(part);
        }
    }

    /// Adds all that another table holds (the union of multisets).
    ///
    /// # Errors
    /// [`Refused::Layout`].
    pub fn merge(&mut self, other: &Self) -> Result<(), Refused> {
        self.combine(other, C::add)
    }

    /// Takes away all that another table holds: what is left is what differs, with what only the other holds as
    /// removed.
    ///
    /// # Errors
    /// [`Refused::Layout`].
    pub fn subtract(&mut self, other: &Self) -> Result<(), Refused> {
        self.combine(other, C::subtract)
    }

    fn combine(&mut self, other: &Self, operation: impl Fn(&mut C, &C)) -> Result<(), Refused> {
        if self.layout != other.layout {
            return Err(Refused::Layout);
        }
        self.cells.iter_mut().zip(&other.cells).for_each(|(cell, other)| operation(cell, other));
        Ok(())
    }

    /// Gives up a subtable whose memory is lost or not to be trusted (section 3): its cells are cleared and no longer
    /// used, and everything goes on with the other ones.
    ///
    /// # Errors
    /// [`Refused::Subtable`].
    pub fn lose_subtable(&mut self, at: u32) -> Result<(), Refused> {
        let layout = self.layout.without(at).ok_or(Refused::Subtable)?;
        let range = layout.subtable(at).ok_or(Refused::Subtable)?;
        self.cells[range].fill(C::zero());
        self.layout = layout;
        Ok(())
    }

    /// The table with one cell for each `run` neighbouring ones: what a table of that size would hold. A small
    /// difference of two large tables can so be sent in few bytes.
    ///
    /// # Errors
    /// [`Refused::Layout`] where cells are not in subtables, or not a multiple of `run` in each.
    pub fn folded(&self, run: u32) -> Result<Self, Refused> {
        let layout = self.layout.folded(run).ok_or(Refused::Layout)?;
        let mut table: Self = Table::new(layout, self.hash.clone());
        for (cell, cells) in table.cells.iter_mut().zip(self.cells.chunks(run as usize)) {
            cells.iter().for_each(|part| cell.add(part));
        }
        Ok(table)
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.cells.fill(C::zero());
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.iter().all(C::is_zero)
    }

    /// About how many keys are in it, from the share of cells that hold none; `None` where no cell is free.
    ///
    /// Complexity: a pass over the cells.
    #[must_use]
    pub fn estimated_count(&self) -> Option<u64> {
        let lost = self.cells.len() - self.live_cell_count();
        let free = self.cells.iter().filter(|cell| cell.is_key_free()).count().saturating_sub(lost);
        let live = self.live_cell_count() as f64;
        let degree = self.layout.degree_mean();
        (free > 0).then(|| (live / degree * (live / free as f64).ln()).round() as u64)
    }

    /// Cells that keys are placed in.
    fn live_cell_count(&self) -> usize {
        self.cells.len() - self.layout.lost().map(|range| range.len()).sum::<usize>()
    }

    /// The cells as bytes: [`TableCell::SIZE`] for each, little-endian, the same on every machine. Layout and hash are
    /// for both sides to agree on.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.cells.len() * C::SIZE];
        self.cells.iter().zip(bytes.chunks_mut(C::SIZE)).for_each(|(cell, bytes)| cell.write(bytes));
        bytes
    }

    /// The table of such bytes. Any bytes of the right length are a table.
    ///
    /// # Errors
    /// [`Refused::Length`].
    pub fn from_bytes(layout: Layout, hash: H, bytes: &[u8]) -> Result<Self, Refused> {
        let expected = layout.cell_count().saturating_mul(C::SIZE);
        if bytes.len() != expected {
            return Err(Refused::Length { expected, found: bytes.len() });
        }
        let mut cells: Vec<C> = bytes.chunks(C::SIZE).map(C::read).collect();
        layout.lost().for_each(|range| cells[range].fill(C::zero()));
        Ok(Table { layout, cells, hash })
    }
}

/// Tables are equal when their layouts and cells are; hashes can not be compared.
impl<C: TableCell, H> PartialEq for Table<C, H> {
    fn eq(&self, other: &Self) -> bool {
        self.layout == other.layout && self.cells == other.cells
    }
}

impl<C: TableCell, H> std::fmt::Debug for Table<C, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("layout", &self.layout).field("cells", &self.cells.len()).finish_non_exhaustive()
    }
}
