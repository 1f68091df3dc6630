//! What all partitions send, in an order that does not depend on threads: what lies between two cuts is sorted once
//! every partition has reached the second. A live capture has no cuts: all that was gathered is taken when it is time.

use crate::signal::PARTITION_COUNT;
use std::collections::VecDeque;

/// Gathers the entries that are sorted together.
pub(crate) struct Sorter<T> {
    /// The entries that each partition sent up to each of its cuts; the last part holds those after the last cut.
    partitions: Vec<VecDeque<Part<T>>>,
    /// The sorted entries that were returned last.
    sorted: Vec<T>,
}

/// The entries of a partition between two of its cuts.
struct Part<T> {
    entries: Vec<T>,
    /// Whether the state of the run is saved at the cut behind them.
    saves: bool,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Part { entries: Vec::new(), saves: false }
    }
}

impl<T: Ord> Sorter<T> {
    pub(crate) fn new() -> Self {
        let partition = || VecDeque::from([Part::default()]);
        Sorter { partitions: (0..PARTITION_COUNT).map(|_| partition()).collect(), sorted: Vec::new() }
    }

    /// Adds entries of a partition, in their order.
    pub(crate) fn add(&mut self, partition: usize, entries: impl Iterator<Item = T>) {
        if let Some(present) = self.partitions.get_mut(partition).and_then(VecDeque::back_mut) {
            present.entries.extend(entries);
        }
    }

    /// Takes a cut of this partition, at which the state of the run is saved or not. Once every partition has reached
    /// it, returns the entries of all partitions up to it, and whether the state is saved there.
    pub(crate) fn cut(&mut self, partition: usize, saves: bool) -> Option<(&[T], bool)> {
        if let Some(partition) = self.partitions.get_mut(partition) {
            partition.back_mut().into_iter().for_each(|part| part.saves = saves);
            partition.push_back(Part::default());
        }
        self.sorted.clear();
        if self.partitions.iter().any(|partition| partition.len() < 2) {
            return None;
        }
        let saves = self.gather();
        Some((&self.sorted, saves))
    }

    /// Returns all entries, cut by cut. No partition has more to send before its next cut.
    pub(crate) fn drain(&mut self) -> &[T] {
        self.sorted.clear();
        while self.partitions.iter().any(|partition| partition.len() > 1) {
            self.gather();
        }
        self.gather();
        self.partitions.iter_mut().for_each(|partition| partition.push_back(Part::default()));
        &self.sorted
    }

    /// Appends the first part of every partition, sorted. Returns whether the state is saved at the cut behind them.
    fn gather(&mut self) -> bool {
        let before = self.sorted.len();
        let mut saves = false;
        for partition in &mut self.partitions {
            let part = partition.pop_front().unwrap_or_default();
            saves = part.saves;
            self.sorted.extend(part.entries);
        }
        self.sorted[before..].sort_unstable();
        saves
    }

    /// The number of entries that wait.
    pub(crate) fn len(&self) -> usize {
        self.partitions.iter().flatten().map(|part| part.entries.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Entry;
    use crate::archive::block::tests::some_entry;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_thread_has_a_part_in_the_order(
            sent in prop::collection::vec((0..PARTITION_COUNT, 0usize..3, some_entry()), 1..60),
            turns in prop::collection::vec(0..PARTITION_COUNT, 0..200),
        ) {
            // Each partition sends its entries of round 0, a cut, those of round 1, a cut, and the rest.
            let mut scripts: Vec<VecDeque<Option<Entry>>> = (0..PARTITION_COUNT)
                .map(|partition| {
                    let is_of = move |sent: &&(usize, usize, Entry), round| (sent.0, sent.1) == (partition, round);
                    let of_round = |round| sent.iter().filter(move |sent| is_of(sent, round)).map(|sent| Some(sent.2));
                    of_round(0).chain([None]).chain(of_round(1)).chain([None]).chain(of_round(2)).collect()
                })
                .collect();
            let mut expected = Vec::new();
            for round in 0..3 {
                let mut entries: Vec<Entry> = sent.iter().filter(|sent| sent.1 == round).map(|sent| sent.2).collect();
                entries.sort();
                expected.extend(entries);
            }
            let mut sorter = Sorter::new();
            let mut given = Vec::new();
            for partition in turns.into_iter().chain((0..PARTITION_COUNT).flat_map(|partition| vec![partition; 70])) {
                match scripts[partition].pop_front() {
                    Some(Some(entry)) => sorter.add(partition, [entry].into_iter()),
                    Some(None) => given.extend(sorter.cut(partition, false).into_iter().flat_map(|(entries, _)| entries)),
                    None => {}
                }
            }
            given.extend_from_slice(sorter.drain());
            prop_assert_eq!(given, expected);
            prop_assert_eq!(sorter.len(), 0);
        }
    }
}
