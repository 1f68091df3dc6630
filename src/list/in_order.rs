//! The rows of a list in the order of their keys, without a second copy of all of it.
//!
//! The list is scanned several times, and each time the next part of the keys is picked out and sorted: a scan costs
//! less than memory that is only needed while a list is written. A sample of the keys determines where parts begin.
//! Chosen addresses may mislead it; a part that becomes too large is then cut short, so memory is bounded for any keys.

use crate::flow::FlowKey as TableKey;
use crate::list::connections::Connections;
use crate::list::row::Listed;

/// Parts in which a list is sorted. Each part costs a scan of all connections, 2 ns a connection, and takes its share
/// of their memory.
const LIST_PARTS: usize = 16;

/// Connections in the smallest part of [`LIST_PARTS`]: saving less memory is not worth a scan.
const LIST_PART_COUNT_MIN: usize = 1 << 15;

/// Connections that are sampled to find where parts begin: no part is then a quarter longer than the others by chance.
const LIST_SAMPLE_COUNT: usize = 1 << 12;

/// The established connections of some lists, in the order of their keys.
pub(super) struct InOrder<I, K> {
    lists: I,
    /// The number of rows that a part is cut down to, and how many more it may have before that.
    part_count: usize,
    spare_count: usize,
    part: Vec<Listed<K>>,
    /// How many rows of the part have been returned.
    given_count: usize,
    /// The last keys of the parts to come, in descending order. One more part follows the last of them.
    ends: Vec<K>,
    /// The last key of the present part; `None` before the first and in the last.
    end: Option<K>,
    is_last: bool,
}

impl<'a, K: TableKey, I: Iterator<Item = &'a Connections<K>> + Clone> InOrder<I, K> {
    /// An iterator that has not read anything or taken memory yet.
    pub(super) fn new(lists: I) -> Self {
        let (part, ends, end) = (Vec::new(), Vec::new(), None);
        InOrder { lists, part_count: 0, spare_count: 0, part, given_count: 0, ends, end, is_last: false }
    }

    /// Determines where parts end, and reserves memory for one.
    fn plan(&mut self) {
        let count: usize = self.lists.clone().map(Connections::len).sum();
        self.part_count = count;
        if count > LIST_PART_COUNT_MIN {
            self.part_count = (count / LIST_PARTS).max(LIST_PART_COUNT_MIN);
            self.spare_count = self.part_count / 4;
            let distance = (count / LIST_SAMPLE_COUNT).max(1);
            let sampled = |list: &'a Connections<K>| (0..list.len()).step_by(distance).map(|at| list.key_at(at));
            let mut sample: Vec<K> = self.lists.clone().flat_map(sampled).collect();
            sample.sort_unstable();
            let parts = count.div_ceil(self.part_count);
            self.ends = (1..parts).rev().map(|part| sample[part * sample.len() / parts]).collect();
        }
        self.part.reserve_exact(self.part_count + self.spare_count);
    }

    /// Picks out and sorts the next part.
    fn pick(&mut self) {
        let planned_end = self.ends.last().copied();
        let (begin, mut end) = (self.end, planned_end);
        // The first word alone rules most keys out.
        let first_word = |key: K| key.words()[0];
        let (low, high) = (begin.map_or(0, first_word), end.map_or(u64::MAX, first_word));
        let Self { part, part_count, spare_count, .. } = self;
        part.clear();
        self.lists.clone().flat_map(|list| list.iter_within(low..=high)).for_each(|(key, start)| {
            if begin.is_some_and(|begin| key <= begin) || end.is_some_and(|end| key > end) {
                return;
            }
            if part.len() == *part_count + *spare_count {
                let (_, last, _) = part.select_nth_unstable_by_key(*part_count - 1, |row| row.key);
                let last = last.key;
                part.truncate(*part_count);
                end = Some(last);
                if key > last {
                    return;
                }
            }
            part.push(Listed::established(key, start));
        });
        part.sort_unstable_by_key(|row| row.key);
        self.given_count = 0;
        if end == planned_end {
            self.ends.pop();
        }
        self.is_last = end.is_none();
        self.end = end;
    }
}

impl<'a, K: TableKey, I: Iterator<Item = &'a Connections<K>> + Clone> Iterator for InOrder<I, K> {
    type Item = Listed<K>;

    fn next(&mut self) -> Option<Listed<K>> {
        if self.part_count == 0 {
            self.plan();
        }
        while self.given_count == self.part.len() && !self.is_last {
            self.pick();
        }
        let row = self.part.get(self.given_count).copied();
        self.given_count += usize::from(row.is_some());
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{KeyV4, KeyV6};
    use crate::list::start::Start;
    use flowpeel_iblt::hash::GOLDEN_64;
    use proptest::prelude::*;

    fn lists<K: TableKey>(numbers: impl Iterator<Item = u64>) -> Vec<Connections<K>> {
        let mut lists: Vec<_> = (0..3).map(|_| Connections::new()).collect();
        for (at, number) in numbers.enumerate() {
            let key = K::from_words(&[number >> 32, number, 1, 2, 3]);
            lists[number as usize % 3].insert(key, Start::at(at as u64, number.is_multiple_of(2)));
        }
        lists
    }

    /// The rows, and how much memory was taken for them.
    fn check<K: TableKey>(numbers: impl Iterator<Item = u64>) -> usize {
        let lists = lists::<K>(numbers);
        let mut expected: Vec<_> = lists.iter().flat_map(Connections::iter).collect();
        expected.sort_unstable_by_key(|(key, _)| *key);
        let mut rows = InOrder::new(lists.iter());
        for (key, start) in expected {
            assert!(rows.next() == Some(Listed::established(key, start)));
        }
        assert!(rows.next().is_none() && rows.next().is_none());
        rows.part.capacity()
    }

    proptest! {
        #[test]
        fn few_come_in_order(numbers in prop::collection::vec(any::<u64>(), 0..100)) {
            check::<KeyV4>(numbers.iter().copied());
            check::<KeyV6>(numbers.iter().copied());
        }
    }

    #[test]
    fn many_come_in_order_and_in_parts_from_any_order() {
        let count = 300_000u64;
        let mixed = |number: u64| number.wrapping_mul(GOLDEN_64);
        let rows_max = (count as usize / LIST_PARTS).max(LIST_PART_COUNT_MIN) * 5 / 4;
        assert!(rows_max < count as usize / 4);
        let odd = |number: u64| if number.is_multiple_of(count / LIST_SAMPLE_COUNT as u64) { 0 } else { 1 << 40 };
        for taken in [
            check::<KeyV4>((0..count).map(mixed)),
            check::<KeyV4>((0..count).rev()),
            check::<KeyV6>((0..count).map(mixed)),
            // A sample of these shows all but a few at the beginning.
            check::<KeyV4>((0..count).map(|number| odd(number / 3) + number)),
        ] {
            assert!(taken <= rows_max, "{taken} rows at once");
        }
    }
}
