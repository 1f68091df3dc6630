//! A window of a long list in an order: the lines that a screen shows, without sorting the rest.
//!
//! Rows stay where they are. Their places are sorted, by 64 bits that nearly always decide, and only as far as the
//! window needs it: another window of the same arrangement costs a pass, and no filtering.

use crate::list::{ListCopy, Row};
use crate::select::groups::{Group, GroupBy};
use crate::select::{Selection, Sort};
use std::cmp::Ordering;
use std::ops::Range;

/// Rows that are found by their place, from 0 on.
pub trait Rows {
    /// How many there are, at most 2^32.
    fn count(&self) -> usize;

    /// The row at a place; `None` where there is none.
    fn row(&self, place: usize) -> Option<Row>;
}

impl Rows for ListCopy {
    fn count(&self) -> usize {
        self.len()
    }

    fn row(&self, place: usize) -> Option<Row> {
        ListCopy::row(self, place)
    }
}

impl Rows for [Row] {
    fn count(&self) -> usize {
        self.len()
    }

    fn row(&self, place: usize) -> Option<Row> {
        self.get(place).copied()
    }
}

/// A row by its place, with its rank in an order.
#[derive(Clone, Copy)]
struct Placed {
    rank: u64,
    place: u32,
}

/// The rows of a group: so many places from an index on. Groups begin in the order of what they have in common.
#[derive(Clone, Copy)]
struct Run {
    first: u32,
    count: u32,
}

/// The places of the rows that a selection selects, or of the groups that it asks for.
#[derive(Default)]
pub struct Arrangement {
    placed: Vec<Placed>,
    runs: Vec<Run>,
}

impl Arrangement {
    /// What a row takes while rows are arranged, in bytes: its place, and that of a group of its own.
    pub const ROW_SIZE: u64 = (size_of::<Placed>() + size_of::<Run>()) as u64;

    /// Arranges the rows that are selected, and their groups where groups are asked for. The limit of the selection
    /// counts for nothing.
    ///
    /// Complexity: a pass over the rows. For groups the rows are sorted.
    pub fn arrange(&mut self, selection: &Selection, rows: &(impl Rows + ?Sized)) {
        self.placed.clear();
        self.runs.clear();
        if self.placed.capacity() < rows.count() {
            self.placed = Vec::new();
            self.placed.reserve_exact(rows.count());
        }
        for place in 0..rows.count() {
            if let Some(row) = rows.row(place).filter(|row| selection.selects(row)) {
                let rank = match (selection.group_by, selection.sort) {
                    (Some(group_by), _) => group_by.rank(&row),
                    (None, sort) => order(sort).rank(&row),
                };
                self.placed.push(Placed { rank, place: place as u32 });
            }
        }
        if let Some(group_by) = selection.group_by {
            self.group(group_by, rows);
        }
    }

    /// How many rows are selected.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.placed.len()
    }

    /// How many groups they are in, where groups were asked for.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.runs.len()
    }

    /// The rows in this window of the order, which is that of the arrangement. `rows` are those that were arranged.
    ///
    /// Complexity: a pass over the places, and sorting the window.
    pub fn rows(&mut self, sort: Option<Sort>, window: Range<usize>, rows: &(impl Rows + ?Sized)) -> Vec<Row> {
        let sort = order(sort);
        let row_of = |placed: &Placed| rows.row(placed.place as usize);
        let compare = |one: &Placed, other: &Placed| {
            one.rank.cmp(&other.rank).then_with(|| match (row_of(one), row_of(other)) {
                (Some(one), Some(other)) => sort.compare(&one, &other),
                _ => Ordering::Equal,
            })
        };
        sorted(&mut self.placed, window, compare).iter().filter_map(row_of).collect()
    }

    /// The groups in this window, the largest first, and equal ones in the order of what they have in common. `rows`
    /// are those that were arranged.
    ///
    /// Complexity: a pass over the groups, sorting the window, and a pass over the rows of the groups in it.
    pub fn groups(&mut self, group_by: GroupBy, window: Range<usize>, rows: &(impl Rows + ?Sized)) -> Vec<Group> {
        let Self { placed, runs } = self;
        let by_count = |one: &Run, other: &Run| other.count.cmp(&one.count).then(one.first.cmp(&other.first));
        let group = |run: &Run| {
            let members = placed.iter().skip(run.first as usize).take(run.count as usize);
            let mut members = members.filter_map(|member| rows.row(member.place as usize)).peekable();
            let mut group = Group::empty(group_by.key(members.peek()?));
            members.for_each(|row| group.add(&row));
            Some(group)
        };
        sorted(runs, window, by_count).iter().filter_map(group).collect()
    }

    /// Sorts the places by what their rows have in common, and finds the groups.
    fn group(&mut self, group_by: GroupBy, rows: &(impl Rows + ?Sized)) {
        let key_of = |placed: &Placed| rows.row(placed.place as usize).map(|row| group_by.key(&row));
        self.placed.sort_unstable_by(|one, other| {
            // Only of IPv6 addresses a rank does not say all.
            let has_rest = one.rank == other.rank && one.rank >> 63 == 1;
            one.rank
                .cmp(&other.rank)
                .then_with(|| if has_rest { key_of(one).cmp(&key_of(other)) } else { Ordering::Equal })
        });
        let is_same = |one: &Placed, other: &Placed| {
            one.rank == other.rank && (one.rank >> 63 == 0 || key_of(one) == key_of(other))
        };
        let count = self.placed.chunk_by(is_same).count();
        if self.runs.capacity() < count {
            self.runs = Vec::new();
            self.runs.reserve_exact(count);
        }
        let mut first = 0;
        for members in self.placed.chunk_by(is_same) {
            self.runs.push(Run { first, count: members.len() as u32 });
            first += members.len() as u32;
        }
    }
}

/// The order of a list is that of its clients, and what it leaves equal.
fn order(sort: Option<Sort>) -> Sort {
    sort.unwrap_or(Sort::Client)
}

/// The items in this window of their order, sorted. The others are moved to either side of it.
fn sorted<T>(items: &mut [T], window: Range<usize>, compare: impl Fn(&T, &T) -> Ordering) -> &[T] {
    let end = window.end.min(items.len());
    let start = window.start.min(end);
    if start == end {
        return &[];
    }
    if end < items.len() {
        items.select_nth_unstable_by(end - 1, &compare);
    }
    let front = items.get_mut(..end).unwrap_or_default();
    if start > 0 {
        front.select_nth_unstable_by(start, &compare);
    }
    let window = front.get_mut(start..).unwrap_or_default();
    window.sort_unstable_by(compare);
    window
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::VlanTags;
    use crate::list::RowState;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv6Addr, SocketAddr};

    const SORTS: [Option<Sort>; 7] = [
        None,
        Some(Sort::Age),
        Some(Sort::Youngest),
        Some(Sort::Client),
        Some(Sort::Server),
        Some(Sort::Port),
        Some(Sort::State),
    ];

    const GROUPS: [GroupBy; 4] = [GroupBy::Client, GroupBy::Server, GroupBy::Port, GroupBy::State];

    fn address(number: u32) -> IpAddr {
        match number % 3 {
            0 => IpAddr::from([10, 0, 0, (number % 5) as u8]),
            // Their first 63 bits are the same.
            1 => IpAddr::from(Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(number % 5))),
            _ => IpAddr::from([200, (number % 2) as u8, 0, 1]),
        }
    }

    fn row(number: u32) -> Row {
        let client = SocketAddr::new(address(number), (number >> 8) as u16 % 4);
        let server = SocketAddr::new(address(number >> 16), 440 + (number >> 4) as u16 % 3);
        Row {
            vlan: if number & 64 == 0 { VlanTags::NONE } else { VlanTags::NONE.with(number as u16 % 3) },
            start_ns: i64::from(number),
            age_ns: i64::from(number % 7) * 100_000_000 + 7,
            state: [RowState::Established, RowState::SynSent, RowState::SynRecv][number as usize % 3],
            ..Row::between([client, server])
        }
    }

    /// Rows as a list has them, each once, and the same in another order.
    fn rows(numbers: Vec<u32>) -> (Vec<Row>, Vec<Row>) {
        let mut rows: Vec<Row> = numbers.into_iter().map(row).collect();
        let key = |row: &Row| (row.client, row.server, row.vlan);
        rows.sort_by_key(key);
        rows.dedup_by_key(|row| key(row));
        let mut mixed = rows.clone();
        mixed.sort_by_key(|row| (row.start_ns.wrapping_mul(0x9e37_79b9), row.age_ns));
        (rows, mixed)
    }

    proptest! {
        #[test]
        fn windows_are_those_of_the_whole_order(
            numbers in prop::collection::vec(any::<u32>(), 0..60),
            windows in prop::collection::vec((0usize..70, 0usize..20), 1..5),
        ) {
            let (listed, mixed) = rows(numbers);
            let mut arrangement = Arrangement::default();
            for sort in SORTS {
                let selection = Selection { sort, ..Selection::default() };
                let whole: Vec<Row> = selection.rows(listed.iter().copied()).collect();
                arrangement.arrange(&selection, &mixed[..]);
                prop_assert_eq!(arrangement.row_count(), whole.len());
                for (offset, count) in &windows {
                    let expected: Vec<Row> = whole.iter().copied().skip(*offset).take(*count).collect();
                    prop_assert_eq!(arrangement.rows(sort, *offset..offset + count, &mixed[..]), expected);
                }
            }
        }

        #[test]
        fn windows_of_groups_are_those_of_all_groups(
            numbers in prop::collection::vec(any::<u32>(), 0..60),
            windows in prop::collection::vec((0usize..70, 0usize..20), 1..5),
        ) {
            let (listed, mixed) = rows(numbers);
            let mut arrangement = Arrangement::default();
            for group_by in GROUPS {
                let filter = Some("not client host 10.0.0.1".parse().unwrap());
                let selection = Selection { group_by: Some(group_by), filter, ..Selection::default() };
                let (whole, count) = selection.groups(listed.iter().copied()).unwrap();
                arrangement.arrange(&selection, &mixed[..]);
                prop_assert_eq!(arrangement.group_count(), count);
                for (offset, count) in &windows {
                    let expected: Vec<Group> = whole.iter().copied().skip(*offset).take(*count).collect();
                    prop_assert_eq!(arrangement.groups(group_by, *offset..offset + count, &mixed[..]), expected);
                }
            }
        }
    }

    #[test]
    fn another_window_needs_no_new_arrangement() {
        let (listed, mixed) = rows((0..1_000).map(|number: u32| number.wrapping_mul(0x9e37_79b9)).collect());
        let selection = Selection { sort: Some(Sort::Port), ..Selection::default() };
        let whole: Vec<Row> = selection.rows(listed.iter().copied()).collect();
        assert!(whole.len() > 100);
        let mut arrangement = Arrangement::default();
        arrangement.arrange(&selection, &mixed[..]);
        for start in [70, 0, 50, 49, 0, whole.len()] {
            let start = start.min(whole.len());
            let end = (start + 40).min(whole.len());
            assert_eq!(arrangement.rows(Some(Sort::Port), start..start + 40, &mixed[..]), whole[start..end]);
        }
    }
}
