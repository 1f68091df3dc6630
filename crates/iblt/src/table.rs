//! The table for keys, cells and placements of any kind (section 2 of the paper): updates, sums of tables, and bytes.

use crate::cell::TableCell;
use crate::hash::Secret;
use crate::key_hash::{KeyHash, SecretHash};
use crate::placement::{Layout, Places};
use crate::refused::Refused;
use flowpeel_lines::prefetch;

/// How many keys are hashed and placed together before the first of their cells is touched.
pub(crate) const BATCH_COUNT: usize = 32;

/// An invertible Bloom lookup table.
///
/// An update costs one addition for each of a key's cells, however much is in the table. Memory is fixed when the table
/// is made. Tables that are added, subtracted or compared must have the same layout and the same hash.
///
/// Tables are plain data (`Send` and `Sync`). To peel a large set in parallel, split keys over several tables by part
/// of a hash of your own, and list each on a thread of its own. Every table then needs its own slack: see
/// [`plan()`](super::plan()).
#[derive(Clone)]
pub struct Table<C: TableCell, H = SecretHash<<C as TableCell>::Key>> {
    layout: Layout,
    cells: Vec<C>,
    hash: H,
}

impl<C: TableCell> Table<C> {
    /// An empty table whose places cannot be aimed at without the secret.
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

    /// An empty table with the layout and the hash of this one.
    #[must_use]
    pub fn empty(&self) -> Self {
        Table::new(self.layout, self.hash.clone())
    }

    /// The layout of the table.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The function by which keys are placed.
    #[must_use]
    pub fn hash(&self) -> &H {
        &self.hash
    }

    /// The cells of the table.
    #[must_use]
    pub fn cells(&self) -> &[C] {
        &self.cells
    }

    pub(crate) fn cells_mut(&mut self) -> &mut [C] {
        &mut self.cells
    }

    pub(crate) fn cell(&self, place: u32) -> &C {
        &self.cells[place as usize]
    }

    pub(crate) fn places(&self, hash: u128) -> Places {
        self.layout.places(hash)
    }

    /// Inserts a pair (INSERT, section 2.2).
    pub fn insert(&mut self, key: &C::Key, value: C::Value) {
        self.update(key, value, 1);
    }

    /// Removes a pair that was inserted or will be (DELETE, section 2.2). A pair that never is inserted stays in the
    /// table as an extraneous deletion (section 3), and is listed as such.
    pub fn remove(&mut self, key: &C::Key, value: C::Value) {
        self.update(key, value, -1);
    }

    /// Inserts a pair `count` times; a negative count removes.
    pub fn update(&mut self, key: &C::Key, value: C::Value, count: i64) {
        let hash = self.hash.of(key);
        let part = C::of(key, value, hash, count);
        self.add_at(hash, &part);
    }

    /// Inserts pairs in batches: the cells of a batch are prefetched together, which hides memory latency.
    pub fn insert_all(&mut self, pairs: &[(C::Key, C::Value)]) {
        self.update_all(pairs, 1);
    }

    /// Removes pairs in batches, like [`Self::insert_all`].
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
    pub(crate) fn prefetch(&self, hash: u128) {
        self.places(hash).iter().for_each(|&place| prefetch(self.cell(place)));
    }

    #[inline]
    pub(crate) fn add_at(&mut self, hash: u128, part: &C) {
        for &place in self.places(hash).iter() {
            self.cells[place as usize].add(part);
        }
    }

    /// Adds all that another table holds (the union of multisets).
    ///
    /// # Errors
    /// [`Refused::Layout`]: the tables have different layouts.
    pub fn merge(&mut self, other: &Self) -> Result<(), Refused> {
        self.combine(other, C::add)
    }

    /// Takes away all that another table holds. What is left is what differs; what only the other holds counts as
    /// removed.
    ///
    /// # Errors
    /// [`Refused::Layout`]: the tables have different layouts.
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
    /// used, and the table works on with the others.
    ///
    /// # Errors
    /// [`Refused::Subtable`]: there is no such subtable, or it is the last one left.
    pub fn lose_subtable(&mut self, at: u32) -> Result<(), Refused> {
        let layout = self.layout.without(at).ok_or(Refused::Subtable)?;
        let range = layout.subtable(at).ok_or(Refused::Subtable)?;
        self.cells[range].fill(C::zero());
        self.layout = layout;
        Ok(())
    }

    /// Sums each `run` neighbouring cells into one: the result is the table that a layout of that size would hold. So a
    /// small difference of two large tables can be sent in few bytes.
    ///
    /// # Errors
    /// [`Refused::Layout`]: the cells are not in subtables, or their number in each is not a multiple of `run`.
    pub fn folded(&self, run: u32) -> Result<Self, Refused> {
        let layout = self.layout.folded(run).ok_or(Refused::Layout)?;
        let mut table: Self = Table::new(layout, self.hash.clone());
        for (cell, cells) in table.cells.iter_mut().zip(self.cells.chunks(run as usize)) {
            cells.iter().for_each(|part| cell.add(part));
        }
        Ok(table)
    }

    /// The least value of `of` over a key's cells: an upper bound for what the key adds to each, where no key adds a
    /// negative amount.
    #[must_use]
    pub fn least(&self, key: &C::Key, of: impl Fn(&C) -> u64) -> u64 {
        let places = self.places(self.hash.of(key));
        places.iter().map(|&place| of(self.cell(place))).min().unwrap_or(0)
    }

    /// Empties the table.
    pub fn clear(&mut self) {
        self.cells.fill(C::zero());
    }

    /// Whether nothing is in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.iter().all(C::is_zero)
    }

    /// About how many keys are in the table, from the share of cells that hold none; `None` where no cell is free.
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

    /// A table of these cells, as many as the layout has. Any cells are a table.
    ///
    /// # Errors
    /// [`Refused::Length`]: there are more or fewer; the lengths are those of their encoding.
    pub fn from_cells(layout: Layout, hash: H, mut cells: Vec<C>) -> Result<Self, Refused> {
        if cells.len() != layout.cell_count() {
            let size = |count: usize| count.saturating_mul(C::SIZE);
            return Err(Refused::Length { expected: size(layout.cell_count()), found: size(cells.len()) });
        }
        layout.lost().for_each(|range| cells[range].fill(C::zero()));
        Ok(Table { layout, cells, hash })
    }

    /// The cells as bytes: [`TableCell::SIZE`] for each, little-endian, the same on every machine. Layout and hash are
    /// not included; both sides have to agree on them.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.cells.len() * C::SIZE];
        self.cells.iter().zip(bytes.chunks_mut(C::SIZE)).for_each(|(cell, bytes)| cell.write(bytes));
        bytes
    }

    /// Decodes a table from bytes. Any bytes of the right length are a table.
    ///
    /// # Errors
    /// [`Refused::Length`]: the bytes are not as many as the layout needs.
    pub fn from_bytes(layout: Layout, hash: H, bytes: &[u8]) -> Result<Self, Refused> {
        let expected = layout.cell_count().saturating_mul(C::SIZE);
        if bytes.len() != expected {
            return Err(Refused::Length { expected, found: bytes.len() });
        }
        Table::from_cells(layout, hash, bytes.chunks(C::SIZE).map(C::read).collect())
    }
}

/// Tables are equal when their layouts and cells are; hashes cannot be compared.
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
