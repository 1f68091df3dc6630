//! Extraction: the table is peeled by an Alice with room for two blocks of cells, who sorts what Bob keeps.
//!
//! Peeling as [`Table::list`](crate::Table::list) does it shows Bob which cells hold one key, and which cells go
//! together. Here it runs in rounds, in each of which every subtable has its turn, and nothing depends on what is
//! found:
//!
//! 1. Every cell of the subtable in turn makes an *update* for each other subtable: its key's place there, if it holds
//!    one key alone, and a dummy otherwise. No key is alone in two cells of one subtable, so none is taken out twice.
//! 2. Updates and cells of the other subtable are sorted together by place, so that an update stands before its cell.
//!    One pass subtracts it. A second sort brings the cells to the front again.
//! 3. Every cell of the subtable in its turn gives its key, or nothing, to the caller, and is cleared if it held one.
//!
//! A round empties about a quarter of the cells that are left, and the later ones nearly all. Empty cells are sorted to
//! the end and left out in the next round, as many as a fixed schedule says. So rounds become cheaper as a geometric
//! series does, and all together cost as much as some sorts of the whole table: O(t log² t) accesses for t keys. A
//! table that is too full for the schedule is not listed whole, and that is reported.

use super::sort::sort;
use crate::cell::TableCell;
use crate::key_hash::KeyHash;
use crate::listing::Entry;
use crate::placement::Layout;
use crate::refused::Refused;
use std::ops::Range;

/// The place of a slot that holds nothing.
const NOWHERE: u32 = u32::MAX;

/// A cell in somebody else's hands, with the place that it is of, or an update on its way to that place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot<C> {
    place: u32,
    is_cell: bool,
    cell: C,
}

impl<C: TableCell> Slot<C> {
    /// Bytes of the encoding.
    pub const SIZE: usize = 4 + 1 + C::SIZE;

    /// The slot of the cell at this place of the table.
    #[must_use]
    pub fn of(place: u32, cell: C) -> Self {
        Slot { place, is_cell: true, cell }
    }

    /// Nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Slot { place: NOWHERE, is_cell: false, cell: C::zero() }
    }

    /// The cell.
    #[must_use]
    pub fn cell(&self) -> &C {
        &self.cell
    }

    /// Adds to the cell.
    pub fn add(&mut self, part: &C) {
        self.cell.add(part);
    }

    /// Writes [`Self::SIZE`] bytes, little-endian: place, role and cell.
    pub fn write(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.place.to_le_bytes());
        out[4] = u8::from(self.is_cell);
        self.cell.write(&mut out[5..]);
    }

    /// Reads what [`Self::write`] wrote.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let place = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Slot { place, is_cell: bytes[4] != 0, cell: C::read(&bytes[5..]) }
    }

    /// Whether it can be left out: it holds no cell, or an empty one.
    fn is_spare(&self) -> bool {
        !self.is_cell || self.cell.is_zero()
    }
}

/// Slots that somebody else keeps. Whoever hides what is in them encrypts a slot anew in every write, so that nobody
/// sees whether it changed.
pub trait Outsourced<C> {
    /// Reads a slot.
    fn read(&mut self, at: usize) -> Slot<C>;
    /// Writes a slot.
    fn write(&mut self, at: usize, slot: &Slot<C>);
}

/// Slots kept in plain memory: nothing is hidden.
impl<C: TableCell> Outsourced<C> for Vec<Slot<C>> {
    fn read(&mut self, at: usize) -> Slot<C> {
        self[at]
    }

    fn write(&mut self, at: usize, slot: &Slot<C>) {
        self[at] = *slot;
    }
}

/// How many slots [`extract`] uses: one for each cell of the table, at the cell's place, and behind these room to sort.
#[must_use]
pub fn extraction_slot_count(layout: &Layout, block_size: usize) -> usize {
    let longest = (0..).map_while(|at| layout.subtable(at)).map(|cells| cells.len()).max().unwrap_or(0);
    layout.cell_count() + (2 * longest).next_multiple_of(block_size.max(1))
}

/// Lists a table that is kept elsewhere, in memory for two blocks of `block_size` slots (at least one), however many
/// keys come out. Gives what is found to `take`, mixed with nothing as often as it takes for the number of calls to be
/// always the same: whoever passes it on to Bob's memory writes a slot each time.
///
/// The first slots are the cells of the table ([`Slot::of`]), the others are overwritten:
/// [`extraction_slot_count`] says how many there are. Keys that are in the table more than once stay, and so does
/// what is tangled with them. Which slots are read and written, in which order, and how often `take` is called, depends
/// on `layout` and `block_size` alone.
///
/// Returns whether everything was listed. The schedule has room for any table of at least 1.5 cells a key in four
/// subtables or three; a fuller one may be listed in part, and then this is false.
///
/// Complexity: O(t log² t) accesses for a table of t cells; hashing.
///
/// # Errors
///
/// [`Refused::Layout`]: the layout has no subtables. [`Refused::Subtable`]: one of them is lost. Nothing was read then.
///
/// ```
/// use flowpeel_iblt::hash::Secret;
/// use flowpeel_iblt::{
///     Layout, Placement, SecretHash, Slot, Sums, TableCell, extract, extraction_slot_count, select,
/// };
///
/// let layout = Layout::new(Placement::Subtables { hash_count: 3 }, 300);
/// let hash = SecretHash::new(&Secret::REPLAY);
/// // In plain memory here: see the example `oblivious` for one that is encrypted.
/// let mut store: Vec<Slot<Sums<u64, u64>>> = vec![Slot::nothing(); extraction_slot_count(&layout, 4)];
/// (0..300).for_each(|place| store[place as usize] = Slot::of(place, Sums::zero()));
/// for index in 0..10_000 {
///     let is_selected = index % 100 == 0;
///     select(&layout, &hash, (&index, 3 * index), is_selected, |place, part| store[place as usize].add(part));
/// }
/// let mut count = 0;
/// let is_complete = extract(&layout, &hash, &mut store, 4, |entry| {
///     count += entry.map_or(0, |entry| u32::from(entry.value() == Some(3 * entry.key)));
/// })?;
/// assert!(is_complete && count == 100);
/// # Ok::<(), flowpeel_iblt::Refused>(())
/// ```
pub fn extract<C: TableCell, H: KeyHash<C::Key>>(
    layout: &Layout,
    hash: &H,
    store: &mut impl Outsourced<C>,
    block_size: usize,
    mut take: impl FnMut(Option<Entry<C::Key, C::Value>>),
) -> Result<bool, Refused> {
    if layout.lost().next().is_some() {
        return Err(Refused::Subtable);
    }
    let regions: Vec<_> = (0..).map_while(|at| layout.subtable(at)).collect();
    if regions.is_empty() {
        return Err(Refused::Layout);
    }
    let longest = regions.iter().map(|region| region.len()).max().unwrap_or(0);
    let work = layout.cell_count();
    let mut extraction = Extraction { layout, hash, store, block_size: block_size.max(1), work, is_whole: true };
    let mut sizes: Vec<usize> = regions.iter().map(|region| region.len()).collect();
    for round in 1..=round_count(longest) {
        for (turn, region) in regions.iter().enumerate() {
            for (other, target) in regions.iter().enumerate().filter(|(other, _)| *other != turn) {
                extraction.update(region.start..region.start + sizes[turn], target.start, sizes[other], other);
            }
            extraction.take_out(region.start..region.start + sizes[turn], &mut take);
        }
        for (region, size) in regions.iter().zip(&mut sizes) {
            let left = left_after(round, region.len()).min(*size);
            extraction.leave_out(region.start, *size, left);
            *size = left;
        }
    }
    let left = regions.iter().zip(&sizes).flat_map(|(region, size)| region.start..region.start + size);
    left.for_each(|at| extraction.discard(at));
    Ok(extraction.is_whole)
}

/// How many rounds empty subtables of this many cells, and some more: below the threshold their number grows as the
/// logarithm of a logarithm.
fn round_count(cell_count: usize) -> u32 {
    8 + cell_count.max(2).ilog2() / 2
}

/// How many cells of a subtable with this many are kept after a round: five sixths of those before, and a margin for
/// the scatter of small tables. At 1.5 cells a key in four subtables some 0.73, 0.56, 0.38 and 0.08 of them hold keys
/// after the first four rounds.
fn left_after(round: u32, cell_count: usize) -> usize {
    let share = (5.0f64 / 6.0).powi(round as i32);
    let cells = cell_count as f64;
    ((cells * share + 2.0 * cells.sqrt()).ceil() as usize).min(cell_count)
}

struct Extraction<'a, H, S> {
    layout: &'a Layout,
    hash: &'a H,
    store: &'a mut S,
    block_size: usize,
    /// Where the room to sort begins.
    work: usize,
    /// Whether nothing but empty cells was left out.
    is_whole: bool,
}

impl<H, S> Extraction<'_, H, S> {
    /// The key that is alone in this slot, and its hash.
    fn lone<C: TableCell>(&self, slot: &Slot<C>) -> Option<(C::Key, u128)>
    where
        H: KeyHash<C::Key>,
    {
        let count = slot.cell.count();
        if count.unsigned_abs() != 1 {
            return None;
        }
        let key = slot.cell.candidate(count, 0)?;
        let hash = self.hash.of(&key);
        let is_lone = slot.cell.agrees(hash, count) && self.layout.places(hash).contains(&slot.place);
        is_lone.then_some((key, hash))
    }

    /// Subtracts the keys that are alone in the cells of one subtable from those of another, `at` among all.
    fn update<C: TableCell>(&mut self, from: Range<usize>, target: usize, target_size: usize, at: usize)
    where
        H: KeyHash<C::Key>,
        S: Outsourced<C>,
    {
        let size = from.len() + target_size;
        for (index, from) in from.enumerate() {
            let slot = self.store.read(from);
            let lone = self.lone(&slot);
            let update = lone.map(|(_, hash)| {
                let places = self.layout.places(hash);
                Slot { place: places[at], is_cell: false, cell: slot.cell }
            });
            self.store.write(self.work + index, &update.unwrap_or(Slot::nothing()));
        }
        self.copy(target..target + target_size, self.work + size - target_size);
        // Updates of a place come before its cell.
        self.sort_work(size, |slot| u64::from(slot.place) << 1 | u64::from(slot.is_cell));
        let mut pending = Slot::<C>::nothing();
        for at in self.work..self.work + size {
            let mut slot = self.store.read(at);
            if slot.place != pending.place {
                // An update whose cell was left out.
                self.is_whole &= pending.cell.is_zero();
                pending = Slot { place: slot.place, ..Slot::nothing() };
            }
            if slot.is_cell {
                slot.cell.subtract(&pending.cell);
                pending.cell = C::zero();
            } else {
                pending.cell.add(&slot.cell);
                slot = Slot::nothing();
            }
            self.store.write(at, &slot);
        }
        self.is_whole &= pending.cell.is_zero();
        self.sort_work(size, |slot| u64::from(!slot.is_cell) << 32 | u64::from(slot.place));
        self.copy(self.work..self.work + target_size, target);
    }

    /// Gives the key of each of these cells to `take`, and clears the cells that held one.
    fn take_out<C: TableCell>(&mut self, cells: Range<usize>, take: &mut impl FnMut(Option<Entry<C::Key, C::Value>>))
    where
        H: KeyHash<C::Key>,
        S: Outsourced<C>,
    {
        for at in cells {
            let mut slot = self.store.read(at);
            let count = slot.cell.count();
            let entry = self.lone(&slot).map(|(key, hash)| Entry { key, count, values: slot.cell.values(hash, count) });
            if entry.is_some() {
                slot.cell = C::zero();
            }
            self.store.write(at, &slot);
            take(entry);
        }
    }

    /// Keeps `left` of a subtable's cells, at first those that hold something.
    fn leave_out<C: TableCell>(&mut self, start: usize, size: usize, left: usize)
    where
        S: Outsourced<C>,
    {
        self.copy(start..start + size, self.work);
        self.sort_work(size, |slot: &Slot<C>| u64::from(slot.is_spare()) << 32 | u64::from(slot.place));
        self.copy(self.work..self.work + left, start);
        (self.work + left..self.work + size).for_each(|at| self.discard(at));
    }

    /// Leaves a slot out, and notes whether it can be.
    fn discard<C: TableCell>(&mut self, at: usize)
    where
        S: Outsourced<C>,
    {
        self.is_whole &= self.store.read(at).is_spare();
        self.store.write(at, &Slot::nothing());
    }

    fn copy<C: TableCell>(&mut self, from: Range<usize>, to: usize)
    where
        S: Outsourced<C>,
    {
        for (from, to) in from.zip(to..) {
            let slot = self.store.read(from);
            self.store.write(to, &slot);
        }
    }

    /// Sorts the first slots of the room to sort, and nothing behind them to fill the last block.
    fn sort_work<C: TableCell>(&mut self, size: usize, key: impl Fn(&Slot<C>) -> u64)
    where
        S: Outsourced<C>,
    {
        let end = size.next_multiple_of(self.block_size);
        (size..end).for_each(|at| self.store.write(self.work + at, &Slot::nothing()));
        // Nothing sorts behind everything else: what fills the last block stays there.
        let last = |slot: &Slot<C>| if slot.place == NOWHERE { u64::MAX } else { key(slot) };
        sort(self.store, self.work..self.work + end, self.block_size, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Secret;
    use crate::{Placement, Rule, SecretHash, Sums, Table};
    use proptest::prelude::*;

    type Record = Sums<u64, u64>;

    /// Bob: he keeps slots, counts accesses, and notes the first of them.
    struct Bob {
        slots: Vec<Slot<Record>>,
        trace: Vec<(bool, usize)>,
        access_count: usize,
        /// Slots read and not yet written again, which is what Alice holds.
        held: usize,
        held_max: usize,
    }

    const TRACE_MAX: usize = 1 << 20;

    impl Bob {
        fn note(&mut self, access: (bool, usize)) {
            self.access_count += 1;
            if self.trace.len() < TRACE_MAX {
                self.trace.push(access);
            }
        }
    }

    impl Outsourced<Record> for Bob {
        fn read(&mut self, at: usize) -> Slot<Record> {
            self.note((false, at));
            self.held += 1;
            self.held_max = self.held_max.max(self.held);
            self.slots[at]
        }

        fn write(&mut self, at: usize, slot: &Slot<Record>) {
            self.note((true, at));
            self.held = self.held.saturating_sub(1);
            self.slots[at] = *slot;
        }
    }

    fn layout(hash_count: u32, cell_count: u32) -> Layout {
        Layout::new(Placement::Subtables { hash_count }, cell_count)
    }

    /// What comes out of the table of these pairs, whether it was all, and what Bob saw.
    fn extracted(layout: Layout, pairs: &[(u64, u64)], block_size: usize) -> (Vec<(u64, u64)>, bool, usize, Bob) {
        let hash = SecretHash::new(&Secret::REPLAY);
        let mut table: Table<Record> = Table::new(layout, hash.clone());
        table.insert_all(pairs);
        let mut slots = vec![Slot::nothing(); extraction_slot_count(&layout, block_size)];
        slots.iter_mut().zip(0..).zip(table.cells()).for_each(|((slot, place), cell)| *slot = Slot::of(place, *cell));
        let mut bob = Bob { slots, trace: Vec::new(), access_count: 0, held: 0, held_max: 0 };
        let (mut found, mut calls) = (Vec::new(), 0);
        let is_complete = extract(&layout, &hash, &mut bob, block_size, |entry| {
            calls += 1;
            found.extend(entry.map(|entry| (entry.key, entry.value().unwrap())));
        });
        found.sort_unstable();
        (found, is_complete.unwrap(), calls, bob)
    }

    fn pairs(count: u64, salt: u64) -> Vec<(u64, u64)> {
        (0..count).map(|index| (index * 1_000 + salt, index * index)).collect()
    }

    #[test]
    fn all_comes_out_through_a_memory_for_a_few_cells() {
        for (hash_count, cells_a_key) in [(3, 1.5), (4, 1.5), (3, 2.0), (4, 2.0)] {
            for (count, block_size) in [(0, 4), (1, 1), (30, 2), (100, 1), (400, 8)] {
                let cell_count = (cells_a_key * count as f64) as u32 + 12;
                let pairs = pairs(count, 7);
                let (found, is_complete, _, bob) = extracted(layout(hash_count, cell_count), &pairs, block_size);
                let mut whole: Table<Record> = Table::with_secret(layout(hash_count, cell_count), &Secret::REPLAY);
                whole.insert_all(&pairs);
                assert_eq!(is_complete, whole.list(Rule::Aggregates).is_complete(), "{hash_count}, {count}");
                assert!(!is_complete || found == pairs, "{hash_count} hashes, {count} keys");
                assert!(bob.held_max <= 2 * block_size, "Alice holds {} slots", bob.held_max);
            }
        }
    }

    #[test]
    fn accesses_grow_as_t_times_the_square_of_its_logarithm() {
        let accesses = |count: u64| {
            let (.., bob) = extracted(layout(3, 2 * count as u32), &pairs(count, 1), 8);
            let log = (count as f64).log2();
            bob.access_count as f64 / (count as f64 * log * log)
        };
        let (few, more, many) = (accesses(50), accesses(200), accesses(800));
        assert!(more < few && many < more, "{few}, {more}, {many} accesses for each t log² t");
    }

    #[test]
    fn what_is_too_full_is_said_to_be_incomplete_after_the_same_accesses() {
        let layout = layout(4, 240);
        let (found, is_complete, calls, bob) = extracted(layout, &pairs(1_000, 0), 4);
        assert!(!is_complete && found.len() < 240 && found.iter().all(|pair| pairs(1_000, 0).contains(pair)));
        let (found, is_complete, few_calls, few) = extracted(layout, &pairs(100, 3), 4);
        assert!(is_complete && found == pairs(100, 3));
        assert!((few.access_count, few_calls) == (bob.access_count, calls) && few.trace == bob.trace);
    }

    #[test]
    fn tables_without_subtables_and_damaged_ones_are_refused() {
        let hash = SecretHash::<u64>::new(&Secret::REPLAY);
        let mut nothing: Vec<Slot<Record>> = Vec::new();
        let distinct = Layout::new(Placement::Distinct { hash_count: 4 }, 100);
        assert_eq!(extract(&distinct, &hash, &mut nothing, 4, |_| ()), Err(Refused::Layout));
        let lost = layout(4, 100).without(1).unwrap();
        assert_eq!(extract(&lost, &hash, &mut nothing, 4, |_| ()), Err(Refused::Subtable));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Tables of one layout, empty, with room or overfull, with keys inserted and removed: Bob sees one sequence.
        #[test]
        fn accesses_do_not_depend_on_what_is_in_the_table(
            one in prop::collection::vec((any::<u64>(), any::<u64>()), 0..120),
            other in prop::collection::vec((any::<u64>(), any::<u64>()), 0..120),
            hash_count in 3u32..5,
            block_size in 1usize..9,
        ) {
            let layout = layout(hash_count, 90);
            let (_, _, calls, bob) = extracted(layout, &one, block_size);
            let (_, _, other_calls, other) = extracted(layout, &other, block_size);
            prop_assert!(bob.trace.len() < TRACE_MAX && bob.trace == other.trace && calls == other_calls);
        }
    }
}
