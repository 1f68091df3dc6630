//! What changed from one list to a later one.
//!
//! Half-open connections are left out: under a flood all of them are new every time, and a list of their changes would
//! be twice as long as the list.

use crate::error::Result;
use crate::flow::saved_key as key;
use crate::flow::{ByFamily, FlowKey, KeyV4, KeyV6};
use crate::list::row::{ListTimes, Listed, Row, RowState};
use crate::list::rows::List;
use crate::signal::{TICK_NS, TimeBases};
use crate::state::{Decoder, Encoder};
use std::cmp::Ordering;
use std::iter::Peekable;

/// The established connections of a list, kept to compare a later list with.
#[derive(Default)]
pub struct EarlierList {
    rows: ByFamily<Vec<Listed<KeyV4>>, Vec<Listed<KeyV6>>>,
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
        let count = list.established_count();
        keep(&mut self.rows.v4, count.v4, list.established_v4());
        keep(&mut self.rows.v6, count.v6, list.established_v6());
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
        let v4 = Merge { before: self.rows.v4.iter().peekable(), now: later.rows.v4.iter().peekable(), is_same_time };
        let v6 = Merge { before: self.rows.v6.iter().peekable(), now: later.rows.v6.iter().peekable(), is_same_time };
        v4.map(move |side| side.change(&before, &now)).chain(v6.map(move |side| side.change(&before, &now)))
    }

    /// How much later another list ends, in microseconds, by the clock that never steps back: every age has grown by
    /// this, each rounded down to the microsecond.
    #[must_use]
    pub fn elapsed_us(&self, later: &EarlierList) -> i64 {
        let within_us = |within_tick_ns: i64| within_tick_ns / 1_000;
        let ticks = later.end_tick.saturating_sub(self.end_tick);
        let whole_us = i64::try_from(ticks).unwrap_or(i64::MAX).saturating_mul(TICK_NS / 1_000);
        whole_us.saturating_add(within_us(later.within_tick_ns) - within_us(self.within_tick_ns))
    }

    /// Encodes the list for a saved state.
    pub fn save(&self, encoder: &mut Encoder) {
        save_rows(encoder, &self.rows.v4);
        save_rows(encoder, &self.rows.v6);
        self.bases.save(encoder);
        encoder.i64(self.within_tick_ns);
        encoder.u64(self.end_tick);
    }

    /// Decodes a list that was saved.
    ///
    /// # Errors
    ///
    /// The bytes are not those of a list.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        let rows = ByFamily { v4: saved_rows(decoder)?, v6: saved_rows(decoder)? };
        let bases = TimeBases::saved(decoder)?;
        let (within_tick_ns, end_tick) = (decoder.i64()?, decoder.count()?);
        decoder.expect((0..=TICK_NS).contains(&within_tick_ns), "a time beyond its tick")?;
        Ok(EarlierList { rows, bases, within_tick_ns, end_tick })
    }

    fn times(&self) -> ListTimes<'_> {
        let EarlierList { within_tick_ns, end_tick, .. } = *self;
        ListTimes { bases: &self.bases, within_tick_ns, end_tick, resumed_tick: None }
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

fn save_rows<K: FlowKey>(encoder: &mut Encoder, rows: &[Listed<K>]) {
    encoder.length(rows.len());
    for row in rows {
        encoder.words(row.key.words());
        encoder.u64(row.start_tick());
        encoder.u8(u8::from(row.is_midstream()) | u8::from(row.is_unsettled()) << 1 | u8::from(row.is_bound()) << 2);
    }
}

fn saved_rows<K: FlowKey>(decoder: &mut Decoder) -> Result<Vec<Listed<K>>> {
    let count = decoder.length((K::WORD_COUNT + 1) * size_of::<u64>(), usize::MAX)?;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let (key, start_tick, flags) = (key(decoder)?, decoder.count()?, decoder.u8()?);
        let (midstream, unsettled, bound) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let row = Listed::new(key, RowState::Established, start_tick);
        rows.push(row.midstream(midstream).unsettled(unsettled).bound(bound));
    }
    Ok(rows)
}
