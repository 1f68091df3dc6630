//! Selection: records are selected into cells that somebody else keeps, who sees the same accesses whether a record is
//! selected or not.
//!
//! Think of a server that keeps a client's records encrypted. The client reads them all, one after another, and keeps
//! those that match a secret query; there is no room for them on the client, so they are inserted into a table on the
//! server. Its cells are as many as a few more than the matches need. The server learns how many records there are, and
//! how large the table is.

use crate::cell::TableCell;
use crate::key_hash::KeyHash;
use crate::placement::Layout;

/// Inserts a record into cells that are kept elsewhere, or only seems to: `update` is called for the same places in the
/// same order, whether the record is selected or not, and nothing here branches on `is_selected`.
///
/// `update` gets a place and a part. It has to read the cell at this place, add the part to it, and write it back, even
/// where the part is zero. The selection is hidden if the cells are encrypted anew in every write, so that the one who
/// keeps them does not see which contents changed.
///
/// Use the index of a record as its key, and a layout for as many records as can be selected. What was selected is
/// listed from [`Table::from_cells`](crate::Table::from_cells) by a client that has room for the table, and by
/// [`extract`](crate::extract) where there is none.
///
/// ```
/// use flowpeel_iblt::hash::Secret;
/// use flowpeel_iblt::{Rule, SecretHash, Sums, Table, TableCell, plan, select};
///
/// let (layout, hash) = (plan(10, 1e-6).layout(), SecretHash::new(&Secret::REPLAY));
/// // In plain memory here; a store that hides its cells decrypts and encrypts them where they are read and written.
/// let mut store: Vec<Sums<u64, u64>> = vec![Sums::zero(); layout.cell_count()];
/// for index in 0..1_000 {
///     let is_selected = index % 100 == 0;
///     select(&layout, &hash, (&index, 3 * index), is_selected, |place, part| store[place as usize].add(part));
/// }
/// let listing = Table::from_cells(layout, hash, store)?.list(Rule::Aggregates);
/// assert!(listing.is_complete() && listing.inserted.len() == 10);
/// # Ok::<(), flowpeel_iblt::Refused>(())
/// ```
pub fn select<C: TableCell>(
    layout: &Layout,
    hash: &impl KeyHash<C::Key>,
    (key, value): (&C::Key, C::Value),
    is_selected: bool,
    mut update: impl FnMut(u32, &C),
) {
    let placement = hash.of(key);
    let part = C::of(key, value, placement, i64::from(is_selected));
    layout.places(placement).iter().for_each(|&place| update(place, &part));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{Secret, mixed};
    use crate::placement::Placement;
    use crate::{Rule, SecretHash, Sums, Table};
    use proptest::prelude::*;

    type Record = Sums<u64, u64>;

    /// Cells in the hands of a curious holder: every field is summed with a one-time pad that only the owner can
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

        fn add(&mut self, place: u32, part: &Record) {
            let mut cell = self.read(place);
            cell.add(part);
            self.write(place, cell);
        }
    }

    #[test]
    fn a_selection_out_of_many_encrypted_records_lists() {
        let layout = Layout::new(Placement::Subtables { hash_count: 4 }, 240);
        let hash = SecretHash::new(&Secret::REPLAY);
        let mut store = Padded::new(&layout, 99);
        for index in 0..5_000u64 {
            select(&layout, &hash, (&index, index * 3), index % 50 == 7, |place, part| store.add(place, part));
        }
        let cells: Vec<Record> = (0..240).map(|place| store.read(place)).collect();
        let listing = Table::from_cells(layout, hash, cells).unwrap().list(Rule::Aggregates);
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
                    select(&layout, &hash, (&index, 1), is_selected, |place, part| store.add(place, part));
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
