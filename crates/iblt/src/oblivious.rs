//! Oblivious selection (section 1.3 of the paper): the holder of the cells sees the same accesses whether a record is
//! selected or not.
//!
//! What enters: cells that are read and written one by one, wherever they are kept, and records. What leaves: the
//! cells, with the selected records inserted. The law: which cells are read and written, and in which order, depends on
//! the keys alone, and every cell that is read is written again. The owner's store encrypts every write afresh, so that
//! not even the contents reveal the selection.

use super::cell::TableCell;
use super::key_hash::KeyHash;
use super::placement::Layout;
use super::table::Table;

/// Cells that are kept elsewhere, possibly by someone else.
pub trait CellStore<C> {
    /// The cell at `place`.
    fn read(&mut self, place: u32) -> C;
    /// Replaces the cell at `place`. A store that hides its contents encrypts with a new nonce every time.
    fn write(&mut self, place: u32, cell: C);
}

/// Inserts a record, or only seems to: the same cells are read and written in the same order, and nothing branches on
/// `is_selected`. Use the index of a record as its key, and a layout for as many records as can be selected.
///
/// ```
/// use flowpeel_iblt::hash::Secret;
/// use flowpeel_iblt::{CellStore, Rule, SecretHash, Sums, Table, TableCell, plan, select};
///
/// type Record = Sums<u64, u64>;
///
/// /// Cells in plain memory: a store that hides them encrypts here.
/// struct Plain(Vec<Record>);
///
/// impl CellStore<Record> for Plain {
///     fn read(&mut self, place: u32) -> Record {
///         self.0[place as usize]
///     }
///     fn write(&mut self, place: u32, cell: Record) {
///         self.0[place as usize] = cell;
///     }
/// }
///
/// let (layout, hash) = (plan(10, 1e-6).layout(), SecretHash::new(&Secret::REPLAY));
/// let mut store = Plain(vec![Record::zero(); layout.cell_count()]);
/// for index in 0..1_000 {
///     select(&mut store, &layout, &hash, (&index, 3 * index), index % 100 == 0);
/// }
/// let listing = Table::from_store(layout, hash, &mut store).list(Rule::Aggregates);
/// assert!(listing.is_complete() && listing.inserted.len() == 10);
/// ```
pub fn select<C: TableCell>(
    store: &mut impl CellStore<C>,
    layout: &Layout,
    hash: &impl KeyHash<C::Key>,
    record: (&C::Key, C::Value),
    is_selected: bool,
) {
    let (key, value) = record;
    let count = i64::from(is_selected);
    let placement = hash.of(key);
    let part = C::of(key, value, placement, count);
    for &place in layout.places(placement).iter() {
        let mut cell = store.read(place);
        cell.add(&part);
        store.write(place, cell);
    }
}

impl<C: TableCell, H: KeyHash<C::Key>> Table<C, H> {
    /// Reads the table that a store holds, cell by cell in order.
    #[must_use]
    pub fn from_store(layout: Layout, hash: H, store: &mut impl CellStore<C>) -> Self {
        let mut table = Table::new(layout, hash);
        (0..).zip(table.cells_mut()).for_each(|(place, cell)| *cell = store.read(place));
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Secret;
    use crate::hash::mixed;
    use crate::placement::Placement;
    use crate::{Rule, SecretHash, Sums};
    use proptest::prelude::*;

    type Record = Sums<u64, u64>;

    /// A store in the hands of a curious holder: every field is summed with a one-time pad that only the owner can
    /// compute, a new one for every write. The holder keeps a trace of all accesses.
    struct Padded {
        pads: u64,
        /// What the holder has: the padded cells as bytes.
        held: Vec<Vec<u8>>,
        versions: Vec<u64>,
        trace: Vec<(bool, u32)>,
    }

    impl Padded {
        fn new(layout: &Layout, pads: u64) -> Self {
            let count = layout.cell_count();
            let mut store = Padded { pads, held: vec![Vec::new(); count], versions: vec![0; count], trace: Vec::new() };
            (0..count as u32).for_each(|place| store.write(place, Record::zero()));
            store.trace.clear();
            store
        }

        /// A pad of the cell's size for each place and version.
        fn pad(&self, place: u32) -> Record {
            let seed = self.pads ^ u64::from(place) << 32 ^ self.versions[place as usize];
            let bytes: Vec<u8> = (0..Record::SIZE as u64).map(|at| mixed(seed ^ mixed(at)) as u8).collect();
            Record::read(&bytes)
        }
    }

    impl CellStore<Record> for Padded {
        fn read(&mut self, place: u32) -> Record {
            self.trace.push((false, place));
            let mut cell = Record::read(&self.held[place as usize]);
            cell.subtract(&self.pad(place));
            cell
        }

        fn write(&mut self, place: u32, cell: Record) {
            self.trace.push((true, place));
            self.versions[place as usize] += 1;
            let mut padded = cell;
            padded.add(&self.pad(place));
            self.held[place as usize] = vec![0; Record::SIZE];
            padded.write(&mut self.held[place as usize]);
        }
    }

    #[test]
    fn a_selection_out_of_many_encrypted_records_lists() {
        let layout = Layout::new(Placement::Subtables { hash_count: 4 }, 240);
        let hash = SecretHash::new(&Secret::REPLAY);
        let mut store = Padded::new(&layout, 99);
        for index in 0..5_000u64 {
            select(&mut store, &layout, &hash, (&index, index * 3), index % 50 == 7);
        }
        let listing = Table::from_store(layout, hash, &mut store).list(Rule::Aggregates);
        assert!(listing.is_complete() && listing.deleted.is_empty());
        let mut selected: Vec<_> = listing.inserted.iter().map(|entry| (entry.key, entry.value())).collect();
        selected.sort_unstable();
        let expected = (0..100).map(|at| at * 50 + 7).map(|index| (index, Some(index * 3)));
        assert_eq!(selected, expected.collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn what_is_selected_shows_neither_in_the_accesses_nor_in_which_contents_change(
            one in prop::collection::vec(any::<bool>(), 40),
            other in prop::collection::vec(any::<bool>(), 40),
        ) {
            let layout = Layout::new(Placement::Subtables { hash_count: 3 }, 30);
            let hash = SecretHash::new(&Secret::REPLAY);
            let traces = [one, other].map(|selection| {
                let mut store = Padded::new(&layout, 5);
                for (index, is_selected) in (0u64..).zip(selection) {
                    let before = store.held.clone();
                    select(&mut store, &layout, &hash, (&index, 1), is_selected);
                    for &place in layout.places(KeyHash::of(&hash, &index)).iter() {
                        assert_ne!(before[place as usize], store.held[place as usize]);
                    }
                }
                store.trace
            });
            prop_assert_eq!(&traces[0], &traces[1]);
            prop_assert_eq!(traces[0].len(), 2 * 3 * 40);
        }
    }
}
