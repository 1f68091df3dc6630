//! What changed from one list to a later one.
//!
//! What enters: a list, and the established connections of an earlier one. What leaves: the connections that only one
//! of the two has. Half-open connections are left out: under a flood all of them are new every time, and a list of
//! their changes would be twice as long as the list.

mod saved;

use crate::flow::{FlowKey, KeyV4, KeyV6};
use crate::list::rows::{List, ListTimes, Listed, Row};
use crate::signal::TimeBases;
use std::cmp::Ordering;
use std::iter::Peekable;

/// The established connections of a list, kept to compare a later list with.
#[derive(Default)]
pub struct EarlierList {
    v4: Vec<Listed<KeyV4>>,
    v6: Vec<Listed<KeyV6>>,
    bases: TimeBases,
    within_tick_ns: i64,
    end_tick: u64,
}

/// A difference between two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The connection is listed now and was not before. One whose start has changed counts as closed and opened.
    Opened(Row),
    /// The connection was listed as in this row, and is no longer.
    Closed(Row),
}

impl EarlierList {
    /// What one IPv6 connection takes, in bytes; an IPv4 connection takes half.
    pub const ENTRY_SIZE: usize = size_of::<Listed<KeyV6>>();

    /// Replaces the list that was kept with this one, in no more memory than its connections take. What a much longer
    /// list took is given back.
    ///
    /// Complexity: linear in the list.
    pub fn replace(&mut self, list: &List) {
        keep(&mut self.v4, list.established_count_v4(), list.established_v4());
        keep(&mut self.v6, list.established_count_v6(), list.established_v6());
        self.bases.clone_from(list.times.bases);
        (self.within_tick_ns, self.end_tick) = (list.times.within_tick_ns, list.times.end_tick);
    }

    /// The changes that turn this list into a later one, in the order of lists. Of equal keys, what closed comes first.
    ///
    /// Complexity: linear in both lists.
    pub fn changes_to<'a>(&'a self, later: &'a EarlierList) -> impl Iterator<Item = Change> {
        let (before, now) = (self.times(), later.times());
        // Only a forgotten time base gives the same tick another time, so times are compared only if there is one.
        let are_bases_equal = self.bases == *now.bases;
        let is_same_time = move |tick| are_bases_equal || before.bases.wall_ns(tick) == now.bases.wall_ns(tick);
        let v4 = Merge { before: self.v4.iter().peekable(), now: later.v4.iter().peekable(), is_same_time };
        let v6 = Merge { before: self.v6.iter().peekable(), now: later.v6.iter().peekable(), is_same_time };
        v4.map(move |side| side.change(&before, &now)).chain(v6.map(move |side| side.change(&before, &now)))
    }

    /// How much later another list ends, in microseconds, by the clock that never steps back: every age has grown by
    /// this, each rounded down to the microsecond.
    #[must_use]
    pub fn elapsed_us(&self, later: &EarlierList) -> i64 {
        let within_us = |within_tick_ns: i64| within_tick_ns / 1_000;
        let ticks = later.end_tick.saturating_sub(self.end_tick);
        let whole_us = i64::try_from(ticks).unwrap_or(i64::MAX).saturating_mul(crate::signal::TICK_NS / 1_000);
        whole_us.saturating_add(within_us(later.within_tick_ns) - within_us(self.within_tick_ns))
    }

    fn times(&self) -> ListTimes<'_> {
        ListTimes { bases: &self.bases, within_tick_ns: self.within_tick_ns, end_tick: self.end_tick }
    }
}

fn keep<K>(kept: &mut Vec<Listed<K>>, count: usize, rows: impl Iterator<Item = Listed<K>>) {
    kept.clear();
    kept.shrink_to(count);
    kept.reserve_exact(count);
    kept.extend(rows);
}

/// A connection that only one of the lists has.
enum Side<'a, K> {
    Before(&'a Listed<K>),
    Now(&'a Listed<K>),
}

impl<K: FlowKey> Side<'_, K> {
    fn change(self, before: &ListTimes, now: &ListTimes) -> Change {
        match self {
            Side::Before(listed) => Change::Closed(before.row(listed)),
            Side::Now(listed) => Change::Opened(now.row(listed)),
        }
    }
}

/// Two sorted lists side by side. Yields what only one of them has.
struct Merge<'a, K: 'a, B: Iterator<Item = &'a Listed<K>>, N: Iterator<Item = &'a Listed<K>>, T> {
    before: Peekable<B>,
    now: Peekable<N>,
    is_same_time: T,
}

impl<'a, K, B, N, T> Iterator for Merge<'a, K, B, N, T>
where
    K: FlowKey,
    B: Iterator<Item = &'a Listed<K>>,
    N: Iterator<Item = &'a Listed<K>>,
    T: Fn(u64) -> bool,
{
    type Item = Side<'a, K>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let order = match (self.before.peek(), self.now.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(before), Some(now)) if before == now && (self.is_same_time)(now.start_tick()) => Ordering::Equal,
                // If more than the key differs, the earlier one closed.
                (Some(before), Some(now)) if before.key <= now.key => Ordering::Less,
                (Some(_), Some(_)) => Ordering::Greater,
            };
            match order {
                Ordering::Less => return self.before.next().map(Side::Before),
                Ordering::Greater => return self.now.next().map(Side::Now),
                Ordering::Equal => {
                    self.before.next();
                    self.now.next();
                }
            }
        }
    }
}
