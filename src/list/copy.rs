//! A copy of a list's rows, for what looks at them after the list is gone: compact, and in no order, so that it costs
//! one pass.

use crate::flow::{FlowKey, KeyV4, KeyV6};
use crate::list::row::{ListTimes, Listed, Row};
use crate::list::rows::List;
use crate::signal::TimeBases;

/// One in this many rows is room that a copy has beyond the rows it was taken for, so that a list that grows slowly
/// takes no new memory every time.
const SPARE_DIVISOR: usize = 16;

/// A copy of the rows of a list.
#[derive(Default)]
pub struct ListCopy {
    v4: Vec<Listed<KeyV4>>,
    v6: Vec<Listed<KeyV6>>,
    bases: TimeBases,
    within_tick_ns: i64,
    end_tick: u64,
    resumed_tick: Option<u64>,
}

impl ListCopy {
    /// What a row takes at most, in bytes: that of an IPv6 connection, and its share of the spare room.
    pub const ROW_SIZE: u64 = (size_of::<Listed<KeyV6>>() + size_of::<Listed<KeyV6>>() / SPARE_DIVISOR) as u64;

    /// Replaces the rows by those of this list.
    ///
    /// Complexity: a pass over the list. It takes memory only when the list is longer than before.
    pub fn take(&mut self, list: &List) {
        let ListTimes { bases, within_tick_ns, end_tick, resumed_tick } = list.times;
        self.bases.replace(bases.all());
        (self.within_tick_ns, self.end_tick, self.resumed_tick) = (within_tick_ns, end_tick, resumed_tick);
        let counts = list.row_counts();
        self.v4.clear();
        self.v6.clear();
        if self.v4.capacity() < counts.v4 || self.v6.capacity() < counts.v6 {
            // Both anew, so that together they never have room for more than one list.
            (self.v4, self.v6) = (Vec::new(), Vec::new());
            self.v4.reserve_exact(counts.v4 + counts.v4 / SPARE_DIVISOR);
            self.v6.reserve_exact(counts.v6 + counts.v6 / SPARE_DIVISOR);
        }
        list.each_row(|listed| self.v4.push(listed), |listed| self.v6.push(listed));
    }

    /// When their list ended, in ns since 1970, to 100 ms.
    #[must_use]
    pub fn end_ns(&self) -> i64 {
        self.bases.wall_ns(self.end_tick)
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row at this place, from 0 to below [`Self::len`]; places are in no order. `None` elsewhere.
    #[must_use]
    pub fn row(&self, place: usize) -> Option<Row> {
        match self.v4.get(place) {
            Some(listed) => Some(self.row_of(listed)),
            None => self.v6.get(place.checked_sub(self.v4.len())?).map(|listed| self.row_of(listed)),
        }
    }

    /// All rows, in the order of their places.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let v4 = self.v4.iter().map(|listed| self.row_of(listed));
        v4.chain(self.v6.iter().map(|listed| self.row_of(listed)))
    }

    fn row_of<K: FlowKey>(&self, listed: &Listed<K>) -> Row {
        let Self { bases, within_tick_ns, end_tick, resumed_tick, .. } = self;
        let (within_tick_ns, end_tick, resumed_tick) = (*within_tick_ns, *end_tick, *resumed_tick);
        ListTimes { bases, within_tick_ns, end_tick, resumed_tick }.row(listed)
    }
}
