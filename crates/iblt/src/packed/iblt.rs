//! The cells of an [`Iblt`], updated without looking anything up (section 2.2 of the paper). A single key cannot be
//! looked up either (GET, section 2.3 of the paper): that takes several times the cells to succeed often.

use crate::{Geometry, HASH_COUNT, PackedCell, Refused, TableCell, TableKey};
use flowpeel_lines::Lines;
use flowpeel_lines::prefetch;
use std::ops::Range;

/// How many keys ahead cells are prefetched while those of earlier keys are changed. With four cells each, that keeps
/// as many cache lines in flight as a core can wait for. Prefetches beyond that are not only late: some processors drop
/// them.
pub(super) const AHEAD_COUNT: usize = 6;

/// Cells that are read or written at once: some tens of kilobytes, which stay in the cache.
const PIECE_CELL_COUNT: usize = 1 << 10;

/// One update: a key, its placement hash, how often it is added (negative: removed), and its whole contribution to the
/// value sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<K> {
    /// The key.
    pub key: K,
    /// The placement hash of the key.
    pub hash: u128,
    /// How many times the key is added; negative for a removal.
    pub count: i32,
    /// What is added to the value sum; for a removal the negated value.
    pub value: u64,
}

impl<K: TableKey> Change<K> {
    /// An insertion of the pair (INSERT, section 2.2 of the paper).
    #[must_use]
    pub fn insert(key: K, hash: u128, value: u64) -> Self {
        Change { key, hash, count: 1, value }
    }

    /// The removal of a pair that was or will be inserted with exactly this value (DELETE, section 2.2). The order does
    /// not matter.
    #[must_use]
    pub fn remove(key: K, hash: u128, value: u64) -> Self {
        Change { key, hash, count: -1, value: value.wrapping_neg() }
    }

    /// The change that undoes this one, unless its count is `i32::MIN`, which has no opposite. Tests and fuzzing need
    /// it; to remove a pair, use [`Self::remove`].
    #[must_use]
    pub fn undone(&self) -> Self {
        Change { count: self.count.wrapping_neg(), value: self.value.wrapping_neg(), ..*self }
    }

    #[inline]
    fn cell(&self) -> PackedCell<K> {
        let mut cell = PackedCell::of(&self.key, 0, self.hash, i64::from(self.count));
        cell.set_value(self.value);
        cell
    }
}

/// An invertible Bloom lookup table for keys of one type, made of few words, and values of 64 bits.
///
/// An update costs `k` additions at random places however much is in the table; nothing is looked up and nothing
/// branches. Memory is fixed when the table is made.
///
/// ```
/// use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
/// use flowpeel_iblt::{Change, Geometry, Iblt, Peeled, Peeler, Recipient};
///
/// /// Believes every value, and keeps what it is given.
/// struct List(Vec<([u64; 2], i32)>);
///
/// impl Recipient<[u64; 2]> for List {
///     fn belongs(&self, _placement: u128, _value: u64) -> bool {
///         true
///     }
///
///     fn take(&mut self, peeled: Peeled<[u64; 2]>) {
///         self.0.push((peeled.change.key, peeled.change.count));
///     }
/// }
///
/// let hash = KeyedHash::<[u64; 2]>::new(&Secret::REPLAY, Purpose::Placement);
/// let mut table = Iblt::new(Geometry::for_items(1_000));
/// for key in (0..100_000).map(|number| [number, !number]) {
///     table.apply_one(&Change::insert(key, hash.of(&key), 0));
/// }
/// // Far too many to list; but once most of them are removed, in any order, the rest can be.
/// for key in (0..99_000).map(|number| [number, !number]) {
///     table.apply_one(&Change::remove(key, hash.of(&key), 0));
/// }
/// let mut list = List(Vec::new());
/// Peeler::new(hash, table.geometry().cell_count()).peel(&mut table, &mut list);
/// assert!(table.is_zero() && list.0.len() == 1_000);
/// assert!(list.0.iter().all(|(key, count)| key[0] >= 99_000 && *count == 1));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Iblt<K: TableKey> {
    geometry: Geometry,
    cells: Lines<PackedCell<K>>,
    /// Bit `at` is set where subtable `at` is lost. The cells of lost subtables are zero, and no key is placed in them.
    lost: u8,
}

const _: () = assert!(HASH_COUNT <= u8::BITS as usize);

impl<K: TableKey> Iblt<K> {
    /// An empty table of this shape.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Iblt { geometry, cells: Lines::new(geometry.cell_count()), lost: 0 }
    }

    /// The table of these cells, subtable after subtable; `None` unless their number fits the shape.
    #[must_use]
    pub fn from_cells(geometry: Geometry, cells: &[PackedCell<K>]) -> Option<Self> {
        let mut table = (cells.len() == geometry.cell_count()).then(|| Iblt::new(geometry))?;
        table.cells.copy_from_slice(cells);
        Some(table)
    }

    /// The size of the bytes of a table of this shape.
    #[must_use]
    pub fn byte_count(geometry: Geometry) -> u64 {
        geometry.cell_count() as u64 * PackedCell::<K>::SIZE as u64
    }

    /// Gives the bytes of the table to `put`, piece by piece: those of the cells, as [`TableCell::write`] encodes them,
    /// subtable after subtable. The shape is not included, nor which subtables are lost.
    ///
    /// # Errors
    ///
    /// The first error of `put`.
    pub fn write<E>(&self, mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        (0..HASH_COUNT).try_for_each(|at| self.write_subtable(at, &mut put))
    }

    /// Gives the bytes of subtable `at` to `put`, as [`Self::write`] does with those of all.
    ///
    /// # Errors
    ///
    /// The first error of `put`.
    ///
    /// # Panics
    ///
    /// There is no such subtable: `at` is [`HASH_COUNT`] or more.
    pub fn write_subtable<E>(&self, at: usize, mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let size = PackedCell::<K>::SIZE;
        let cells = &self.cells[self.geometry.subtable(at)];
        let mut bytes = vec![0; PIECE_CELL_COUNT.min(cells.len()) * size];
        for cells in cells.chunks(PIECE_CELL_COUNT) {
            cells.iter().zip(bytes.chunks_mut(size)).for_each(|(cell, bytes)| cell.write(bytes));
            put(&bytes[..cells.len() * size])?;
        }
        Ok(())
    }

    /// The table of this shape whose bytes `fill` gives, piece by piece. Any bytes are a table. Memory is allocated for
    /// what `fill` has given, not for what the shape promises.
    ///
    /// # Errors
    ///
    /// The first error of `fill`.
    pub fn read<E>(geometry: Geometry, mut fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let cells = read_cells(geometry.cell_count(), &mut fill)?;
        let mut table = Iblt::new(geometry);
        table.cells.copy_from_slice(&cells);
        Ok(table)
    }

    /// The cells of one subtable of a table of this shape, whose bytes `fill` gives, as [`Self::read`] reads all.
    ///
    /// # Errors
    ///
    /// The first error of `fill`.
    pub fn read_subtable<E>(
        geometry: Geometry,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<Vec<PackedCell<K>>, E> {
        read_cells(geometry.subtable_cell_count() as usize, &mut fill)
    }

    /// The table of this shape with these subtables, of which those that are `None` are lost: see
    /// [`Self::lose_subtable`].
    ///
    /// # Errors
    ///
    /// [`Refused::Subtable`]: all are lost. [`Refused::Layout`]: one has not as many cells as the shape has.
    pub fn from_subtables(
        geometry: Geometry,
        subtables: &[Option<Vec<PackedCell<K>>>; HASH_COUNT],
    ) -> Result<Self, Refused> {
        let mut table = Iblt::new(geometry);
        for (at, cells) in subtables.iter().enumerate() {
            let Some(cells) = cells else {
                table.lose_subtable(at)?;
                continue;
            };
            let own = &mut table.cells[geometry.subtable(at)];
            if own.len() != cells.len() {
                return Err(Refused::Layout);
            }
            own.copy_from_slice(cells);
        }
        Ok(table)
    }

    /// Gives up a subtable whose memory is lost or not to be trusted (section 3 of the paper): its cells are cleared
    /// and no longer used, and the table lists what the others list. Three of four subtables take 1.222 cells a key,
    /// which is 1.63 cells a key of the whole table. Two take more than two cells a key, and hardly ever list quite
    /// all; one lists the keys that are alone in their cell.
    ///
    /// What is added to a table that has lost other subtables than this one has lost both.
    ///
    /// # Errors
    ///
    /// [`Refused::Subtable`]: there is no such subtable, or it is the last one left. Nothing has changed then.
    ///
    /// ```
    /// use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
    /// use flowpeel_iblt::{Change, Geometry, Iblt, Peeled, Peeler, Recipient};
    ///
    /// struct List(Vec<u64>);
    ///
    /// impl Recipient<[u64; 1]> for List {
    ///     fn belongs(&self, _placement: u128, _value: u64) -> bool {
    ///         true
    ///     }
    ///
    ///     fn take(&mut self, peeled: Peeled<[u64; 1]>) {
    ///         self.0.push(peeled.change.key[0]);
    ///     }
    /// }
    ///
    /// let hash = KeyedHash::<[u64; 1]>::new(&Secret::REPLAY, Purpose::Placement);
    /// let mut table = Iblt::new(Geometry::for_items(1_000));
    /// (0..500).for_each(|key| table.apply_one(&Change::insert([key], hash.of(&[key]), 0)));
    /// table.lose_subtable(2)?;
    /// let mut list = List(Vec::new());
    /// Peeler::new(hash, table.geometry().cell_count()).peel(&mut table, &mut list);
    /// assert!(table.is_zero() && list.0.len() == 500);
    /// # Ok::<(), flowpeel_iblt::Refused>(())
    /// ```
    pub fn lose_subtable(&mut self, at: usize) -> Result<(), Refused> {
        if at >= HASH_COUNT {
            return Err(Refused::Subtable);
        }
        self.lose(1 << at)
    }

    /// Loses these subtables too, unless none would be left.
    fn lose(&mut self, subtables: u8) -> Result<(), Refused> {
        let lost = self.lost | subtables;
        if lost == (1 << HASH_COUNT) - 1 {
            return Err(Refused::Subtable);
        }
        for at in (0..HASH_COUNT).filter(|at| (lost & !self.lost) >> at & 1 == 1) {
            self.cells[self.geometry.subtable(at)].fill(PackedCell::zero());
        }
        self.lost = lost;
        Ok(())
    }

    /// Whether subtable `at` is lost.
    #[must_use]
    #[inline]
    pub fn is_lost(&self, at: usize) -> bool {
        self.lost >> at & 1 == 1
    }

    /// The cells of the key with this placement hash that are not lost, by their indexes in [`Self::cells`].
    #[inline]
    pub fn live_places(&self, hash: u128) -> impl Iterator<Item = usize> + use<K> {
        let lost = self.lost;
        self.geometry
            .places(hash)
            .into_iter()
            .enumerate()
            .filter(move |(at, _)| lost >> at & 1 == 0)
            .map(|(_, place)| place)
    }
    /// Sums each `run` neighbouring cells into one: keys are placed in the result as in any table of that shape.
    /// `None` if `run` does not divide the subtables.
    ///
    /// Complexity: a pass over the cells.
    #[must_use]
    pub fn folded(&self, run: u32) -> Option<Self> {
        let mut folded = Iblt { lost: self.lost, ..Iblt::new(self.geometry.folded(run)?) };
        let runs = self.cells.chunks(run as usize);
        folded.cells.iter_mut().zip(runs).for_each(|(sum, run)| run.iter().for_each(|cell| sum.add(cell)));
        Some(folded)
    }

    /// How many more keys were added to the table than removed.
    #[must_use]
    pub fn surplus(&self) -> i64 {
        // Every key is once in each subtable.
        let known = (0..HASH_COUNT).find(|at| !self.is_lost(*at)).unwrap_or_default();
        self.cells[self.geometry.subtable(known)].iter().map(PackedCell::count).sum()
    }

    /// The shape of the table.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The size of the cells of a table of this shape, in bytes.
    #[must_use]
    pub fn size(geometry: Geometry) -> usize {
        geometry.cell_count() * size_of::<PackedCell<K>>()
    }

    /// The cells of the table, subtable after subtable.
    #[must_use]
    pub fn cells(&self) -> &[PackedCell<K>] {
        &self.cells
    }

    /// The places of the cells of the key with this placement hash.
    #[inline]
    pub(super) fn places(&self, hash: u128) -> [u32; HASH_COUNT] {
        self.geometry.places(hash).map(|place| place as u32)
    }

    /// Prefetches the cells at these places.
    #[inline]
    pub(super) fn prefetch(&self, places: &[u32; HASH_COUNT]) {
        places.iter().for_each(|place| prefetch(&self.cells[*place as usize]));
    }

    /// Adds the `sums` in the range to the cells at the places of the same index, and prefetches the cells of later
    /// keys.
    #[inline]
    pub(super) fn add_at(&mut self, places: &[[u32; HASH_COUNT]], sums: &[PackedCell<K>], range: Range<usize>) {
        if self.lost != 0 {
            return self.add_at_live(&places[range.clone()], &sums[range]);
        }
        let cells = &mut *self.cells;
        for at in range {
            if let Some(ahead) = places.get(at + AHEAD_COUNT) {
                ahead.iter().for_each(|place| prefetch(&cells[*place as usize]));
            }
            places[at].iter().for_each(|place| cells[*place as usize].add(&sums[at]));
        }
    }

    /// As [`Self::add_at`], in a table of which a subtable is lost.
    #[cold]
    fn add_at_live(&mut self, places: &[[u32; HASH_COUNT]], sums: &[PackedCell<K>]) {
        for (places, sum) in places.iter().zip(sums) {
            for (_, place) in places.iter().enumerate().filter(|(at, _)| self.lost >> at & 1 == 0) {
                self.cells[*place as usize].add(sum);
            }
        }
    }

    /// Makes the changes; the cells of each are prefetched while earlier changes are made.
    ///
    /// Complexity: `k` random accesses a change.
    pub fn apply(&mut self, changes: &[Change<K>]) {
        for (at, change) in changes.iter().enumerate() {
            if let Some(ahead) = changes.get(at + AHEAD_COUNT) {
                self.prefetch(&self.places(ahead.hash));
            }
            self.apply_one(change);
        }
    }

    /// Makes one change.
    #[inline]
    pub fn apply_one(&mut self, change: &Change<K>) {
        let cell = change.cell();
        for place in self.live_places(change.hash) {
            self.cells[place].add(&cell);
        }
    }

    /// Subtracts these sums from the cell at this place, which is not lost, and returns the count that is left there.
    #[inline]
    pub(super) fn subtract_at(&mut self, place: u32, sums: &PackedCell<K>) -> i64 {
        let cell = &mut self.cells[place as usize];
        cell.subtract(sums);
        cell.count()
    }

    /// Adds all that another table holds.
    ///
    /// Complexity: a pass over the cells.
    ///
    /// # Errors
    ///
    /// [`Refused::Layout`]: the tables have different shapes. [`Refused::Subtable`]: of no subtable both have the
    /// cells. Nothing has changed then.
    pub fn merge(&mut self, other: &Self) -> Result<(), Refused> {
        self.combine(other, PackedCell::add)
    }

    /// Takes away all that another table holds: what differs between the two is left.
    ///
    /// Complexity: a pass over the cells.
    ///
    /// # Errors
    ///
    /// [`Refused::Layout`]: the tables have different shapes. [`Refused::Subtable`]: of no subtable both have the
    /// cells. Nothing has changed then.
    pub fn subtract(&mut self, other: &Self) -> Result<(), Refused> {
        self.combine(other, PackedCell::subtract)
    }

    fn combine(&mut self, other: &Self, operation: impl Fn(&mut PackedCell<K>, &PackedCell<K>)) -> Result<(), Refused> {
        if self.geometry != other.geometry {
            return Err(Refused::Layout);
        }
        self.lose(other.lost)?;
        self.cells.iter_mut().zip(&*other.cells).for_each(|(cell, other)| operation(cell, other));
        // What only this one has lost came with the cells of the other.
        (0..HASH_COUNT).filter(|at| (self.lost & !other.lost) >> at & 1 == 1).for_each(|at| {
            self.cells[self.geometry.subtable(at)].fill(PackedCell::zero());
        });
        Ok(())
    }

    /// Takes `value` from the value sums of all cells of the key with this placement hash.
    pub fn subtract_value(&mut self, hash: u128, value: u64) {
        for place in self.live_places(hash) {
            let cell = &mut self.cells[place];
            cell.set_value(cell.value().wrapping_sub(value));
        }
    }

    /// Clears the value sums of cells that hold no key, and returns how many of those were not zero.
    pub fn clear_values(&mut self) -> usize {
        let noisy = self.cells.iter_mut().filter(|cell| cell.value() != 0 && cell.is_key_free());
        noisy.map(|cell| cell.set_value(0)).count()
    }

    /// Clears all value sums; keys stay.
    pub fn forget_values(&mut self) {
        self.cells.iter_mut().for_each(|cell| cell.set_value(0));
    }

    /// Populates the pages of a small table at once, because changes are about to come. A large table gets its pages as
    /// the changes come.
    pub fn populate(&mut self) {
        self.cells.populate();
    }

    /// Empties the table. What is lost stays lost.
    pub fn clear(&mut self) {
        self.cells.fill(PackedCell::zero());
    }

    /// Whether nothing is left in the table.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.cells.iter().all(PackedCell::is_zero)
    }

    /// Whether no key is left in the table. Value sums do not count.
    #[must_use]
    pub fn is_key_free(&self) -> bool {
        self.cells.iter().all(PackedCell::is_key_free)
    }

    /// About how many keys are in the table, added or removed; 0 only when there are none. A key that is in it several
    /// times counts as the square of its count.
    ///
    /// Keys fall on the cells of a subtable at random, so the squares of the counts add up to the number of keys plus
    /// what the surplus of additions over removals adds to every cell. That holds at any load, to within the square
    /// root of 2 / cells of a subtable. The share of free cells, the usual measure, is zero for all tables that are too
    /// full.
    #[must_use]
    pub fn estimated_count(&self) -> u64 {
        if self.is_key_free() {
            return 0;
        }
        let cells = self.cells.len() / HASH_COUNT;
        // Lost cells are zero and add nothing.
        let live_count = HASH_COUNT - self.lost.count_ones() as usize;
        let estimates = self.cells.chunks(cells).map(|subtable| {
            let counts = || subtable.iter().map(|cell| cell.count() as f64);
            let (sum, squares): (f64, f64) = (counts().sum(), counts().map(|count| count * count).sum());
            squares - sum * sum / cells as f64
        });
        // What a single cell's worth of surplus hides is added back by the last factor.
        let mean = estimates.sum::<f64>() / live_count as f64 * cells as f64 / (cells as f64 - 1.0).max(1.0);
        mean.round().max(1.0) as u64
    }
}

/// Reads this many cells whose bytes `fill` gives. The vector grows with what was given.
fn read_cells<K: TableKey, E>(
    count: usize,
    fill: &mut impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<Vec<PackedCell<K>>, E> {
    let size = PackedCell::<K>::SIZE;
    let mut bytes = vec![0; PIECE_CELL_COUNT.min(count) * size];
    let mut cells: Vec<PackedCell<K>> = Vec::new();
    while cells.len() < count {
        let bytes = &mut bytes[..PIECE_CELL_COUNT.min(count - cells.len()) * size];
        fill(bytes)?;
        cells.extend(bytes.chunks(size).map(PackedCell::<K>::read));
    }
    cells.shrink_to_fit();
    Ok(cells)
}
