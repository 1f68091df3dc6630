//! What changed from one list to a later one.
//!
//! Half-open connections are left out: under a flood all of them are new every time, and a list of their changes would
//! be twice as long as the list.

use crate::error::Result;
use crate::flow::{ByFamily, KeyV4, KeyV6, saved_key};
use crate::handover::Ending;
use crate::list::ends::{EndedRow, ListEnds, UnlistedEnds};
use crate::list::row::{ListTimes, Listed, Row, RowState};
use crate::list::rows::List;
use crate::list::translations::{OtherKey, Translated, Translations};
use crate::signal::{TICK_NS, TimeBases};
use crate::state::{Decoder, Encoder};
use std::iter::Peekable;

/// The established connections of a list, kept to compare a later list with.
#[derive(Default)]
pub struct EarlierList {
    rows: ByFamily<Rows<KeyV4>, Rows<KeyV6>>,
    bases: TimeBases,
    within_tick_ns: i64,
    end_tick: u64,
}

/// The connections of one family.
struct Rows<K> {
    listed: Vec<Listed<K>>,
    /// The other names of those that are translated, in the same order.
    names: Vec<NameOf<K>>,
}

/// The other name of the connection at an index.
#[derive(Clone, Copy)]
struct NameOf<K> {
    index: u32,
    other: OtherKey<K>,
}

/// A connection of a list, and its other name if it is translated.
type NamedRow<'a, K> = (&'a Listed<K>, Option<OtherKey<K>>);

impl<K> Default for Rows<K> {
    fn default() -> Self {
        Rows { listed: Vec::new(), names: Vec::new() }
    }
}

impl<K: Translated> Rows<K> {
    /// Replaces what is kept by these rows, of which there are `count` at most, without those that are on the list
    /// under another name.
    fn replace(&mut self, count: usize, rows: impl Iterator<Item = Listed<K>>, names: Option<&Translations>) {
        self.listed.clear();
        self.listed.shrink_to(count);
        self.listed.reserve_exact(count);
        self.names.clear();
        for row in rows {
            if let Some(names) = names {
                if names.is_second_name(&row.key) {
                    continue;
                }
                let index = self.listed.len() as u32;
                self.names.extend(names.other_key(&row.key).map(|other| NameOf { index, other }));
            }
            self.listed.push(row);
        }
    }

    fn iter(&self) -> impl Iterator<Item = NamedRow<'_, K>> {
        let mut names = self.names.iter().peekable();
        self.listed.iter().enumerate().map(move |(index, row)| {
            let name = names.next_if(|name| name.index as usize == index);
            (row, name.map(|name| name.other))
        })
    }

    fn save(&self, encoder: &mut Encoder) {
        encoder.length(self.listed.len());
        for (row, other) in self.iter() {
            encoder.words(row.key.words());
            encoder.u64(row.start_tick());
            let flags = [
                row.is_midstream(),
                row.is_unsettled(),
                row.is_bound(),
                other.is_some(),
                other.is_some_and(|other| other.is_original),
            ];
            encoder.u8(flags.iter().rev().fold(0, |bits, is_set| bits << 1 | u8::from(*is_set)));
            other.iter().for_each(|other| encoder.words(other.key.words()));
        }
    }

    fn saved(decoder: &mut Decoder) -> Result<Self> {
        let count = decoder.length((K::WORD_COUNT + 1) * size_of::<u64>(), u32::MAX as usize)?;
        let mut rows = Rows { listed: Vec::with_capacity(count), names: Vec::new() };
        for index in 0..count as u32 {
            let (connection, start_tick, flags) = (saved_key(decoder)?, decoder.count()?, decoder.u8()?);
            let [midstream, unsettled, bound, has_name, is_original] = [1, 2, 4, 8, 16].map(|bit| flags & bit != 0);
            let row = Listed::new(connection, RowState::Established, start_tick);
            rows.listed.push(row.midstream(midstream).unsettled(unsettled).bound(bound));
            if has_name {
                rows.names.push(NameOf { index, other: OtherKey { key: saved_key(decoder)?, is_original } });
            }
        }
        Ok(rows)
    }
}

/// A difference between two lists. Applied in their order, differences turn the one into the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The connection opened: it is listed now and was not before, or it opened and closed in between, and its age is
    /// then that at its end.
    Opened(Row),
    /// The connection closed. With an end, the row's age is that at the end. Without one, the connection was listed as
    /// in this row and is no longer: its end is not known, or what was known of it has changed and it opens again.
    Closed(Row, Option<End>),
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// When it ended, in ns since 1970, to 100 ms.
    pub end_ns: i64,
    /// How it ended.
    pub ending: Ending,
}

impl EarlierList {
    /// What one IPv6 connection takes, in bytes; an IPv4 connection takes half.
    pub const ENTRY_SIZE: usize = size_of::<Listed<KeyV6>>();

    /// What the other name of a translated IPv4 connection takes, in bytes; that of an IPv6 connection takes twice as
    /// much.
    pub const NAME_SIZE: usize = size_of::<NameOf<KeyV4>>();

    /// Replaces the list that was kept with this one, in no more memory than its connections take. What a much longer
    /// list took is given back.
    ///
    /// Complexity: linear in the list.
    pub fn replace(&mut self, list: &List) {
        let (count, names) = (list.established_count(), list.names());
        self.rows.v4.replace(count.v4, list.established_v4(), names);
        self.rows.v6.replace(count.v6, list.established_v6(), names);
        self.bases.clone_from(list.times.bases);
        (self.within_tick_ns, self.end_tick) = (list.times.within_tick_ns, list.times.end_tick);
    }

    /// The changes that turn this list into a later one, in the order of lists, and those of equal keys in the order of
    /// time. What opened and closed in between is among them. `ends` are of what ended since this list, and `names`
    /// those by which the later list was made, if any were known.
    ///
    /// Complexity: linear in both lists and the ends.
    pub fn changes_to<'a>(
        &'a self,
        later: &'a EarlierList,
        ends: &'a ListEnds,
        names: Option<&'a Translations>,
    ) -> impl Iterator<Item = Change> {
        let (before, now) = (self.times(), later.times());
        let v4 = Merge::new((&before, self.rows.v4.iter()), (&now, later.rows.v4.iter()), ends.v4(), names);
        let v6 = Merge::new((&before, self.rows.v6.iter()), (&now, later.rows.v6.iter()), ends.v6(), names);
        v4.chain(v6)
    }

    /// Keeps of these ends those of connections that this list still shows, which a later one may not.
    ///
    /// Complexity: linear in the list, if there are ends.
    pub fn keep_unlisted(&self, ends: &ListEnds, kept: &mut UnlistedEnds) {
        kept.keep(ends, self.rows.v4.listed.iter(), self.rows.v6.listed.iter());
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
        self.rows.v4.save(encoder);
        self.rows.v6.save(encoder);
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
        let rows = ByFamily { v4: Rows::saved(decoder)?, v6: Rows::saved(decoder)? };
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

/// Two lists side by side, and the ends in between, all in the order of keys.
struct Merge<'a, K, R: Iterator> {
    before: Peekable<R>,
    now: Peekable<R>,
    ends: Peekable<std::slice::Iter<'a, EndedRow<K>>>,
    times_before: ListTimes<'a>,
    times_now: ListTimes<'a>,
    /// Only a forgotten time base gives the same tick another time, so times are compared only if there is one.
    are_bases_equal: bool,
    /// The key whose changes come next, and the row that it has in the later list if that is new.
    key: Option<K>,
    opened: Option<NamedRow<'a, K>>,
    names: Option<&'a Translations>,
    /// The closing of what has opened and closed in between, which comes next.
    closing: Option<Change>,
}

impl<'a, K: Translated, R: Iterator<Item = NamedRow<'a, K>>> Merge<'a, K, R> {
    fn new(
        (times_before, before): (&ListTimes<'a>, R),
        (times_now, now): (&ListTimes<'a>, R),
        ends: &'a [EndedRow<K>],
        names: Option<&'a Translations>,
    ) -> Self {
        Merge {
            before: before.peekable(),
            now: now.peekable(),
            ends: ends.iter().peekable(),
            times_before: *times_before,
            times_now: *times_now,
            are_bases_equal: *times_before.bases == *times_now.bases,
            key: None,
            opened: None,
            names,
            closing: None,
        }
    }

    /// Advances to the next key. Returns its first change, if that is the closing of what was listed before; `None`
    /// without another key.
    fn next_key(&mut self) -> Option<Option<Change>> {
        let keys = [
            self.before.peek().map(|(row, _)| row.key),
            self.now.peek().map(|(row, _)| row.key),
            self.ends.peek().map(|ended| ended.key),
        ];
        let key = keys.into_iter().flatten().min()?;
        let before = self.before.next_if(|(row, _)| row.key == key);
        let now = self.now.next_if(|(row, _)| row.key == key);
        if before
            .zip(now)
            .is_some_and(|((before, name), (now, name_now))| name == name_now && self.is_same(before, now))
        {
            // It is listed as before. If an end says otherwise, the list does not know it yet.
            while self.ends.next_if(|ended| ended.key == key).is_some() {}
            return Some(None);
        }
        (self.key, self.opened) = (Some(key), now);
        Some(before.map(|before| self.closed(before)))
    }

    fn is_same(&self, before: &Listed<K>, now: &Listed<K>) -> bool {
        let tick = now.start_tick();
        let is_same_time = || self.times_before.bases.wall_ns(tick) == self.times_now.bases.wall_ns(tick);
        before == now && (self.are_bases_equal || is_same_time())
    }

    /// The closing of a connection that was listed before, with its end where the first of its key's ends is that.
    fn closed(&mut self, (before, other): NamedRow<K>) -> Change {
        let row = Row { nat: other.map(|other| other.nat()), ..self.times_before.row(before) };
        let is_listed = self.opened.is_some_and(|(now, _)| now.start_tick() == before.start_tick());
        let ended =
            self.ends.next_if(|ended| !is_listed && ended.key == before.key && ended.started_at(before.start_tick()));
        let Some(ended) = ended else { return Change::Closed(row, None) };
        let age_ns = self.times_now.span_ns(before.start_tick(), ended.tick);
        Change::Closed(Row { age_ns, ..row }, Some(self.end(ended)))
    }

    /// What opened and closed in between, unless the later list still shows it, or it is there under another name.
    fn passed(&mut self, ended: &EndedRow<K>) -> Option<Change> {
        if self.opened.is_some_and(|(now, _)| ended.started_at(now.start_tick()))
            || self.names.is_some_and(|names| names.is_second_end(&ended.key))
        {
            return None;
        }
        let nat = self.names.and_then(|names| names.nat_of(&ended.key));
        let start_tick = ended.start_tick();
        let listed = Listed::new(ended.key, RowState::Established, start_tick).midstream(ended.is_midstream());
        let age_ns = self.times_now.span_ns(start_tick, ended.tick);
        let row = Row { age_ns, nat, ..self.times_now.row(&listed) };
        self.closing = Some(Change::Closed(row, Some(self.end(ended))));
        Some(Change::Opened(row))
    }

    fn end(&self, ended: &EndedRow<K>) -> End {
        End { end_ns: self.times_now.bases.wall_ns(ended.tick), ending: ended.ending }
    }
}

impl<'a, K: Translated, R: Iterator<Item = NamedRow<'a, K>>> Iterator for Merge<'a, K, R> {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        if let Some(closing) = self.closing.take() {
            return Some(closing);
        }
        loop {
            let Some(key) = self.key else {
                match self.next_key()? {
                    Some(closed) => return Some(closed),
                    None => continue,
                }
            };
            while let Some(ended) = self.ends.next_if(|ended| ended.key == key) {
                if let Some(opened) = self.passed(ended) {
                    return Some(opened);
                }
            }
            self.key = None;
            if let Some((opened, other)) = self.opened.take() {
                let nat = other.map(|other| other.nat());
                return Some(Change::Opened(Row { nat, ..self.times_now.row(opened) }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{AnyKey, VlanTags};
    use crate::handover::{Ended, Ends};
    use crate::signal::TimeBase;

    fn key(number: u32) -> KeyV4 {
        KeyV4::new((number, 40_000), (7, 443), VlanTags::NONE)
    }

    /// A list at this tick of connections, each with its number and the tick of its start.
    fn list(end_tick: u64, connections: &[(u32, u64)]) -> EarlierList {
        let row = |&(number, start): &(u32, u64)| Listed::new(key(number), RowState::Established, start);
        let mut bases = TimeBases::new();
        bases.learn(TimeBase { first_tick: 0, offset_ns: 0 });
        let listed = connections.iter().map(row).collect();
        let rows = ByFamily { v4: Rows { listed, names: Vec::new() }, v6: Rows::default() };
        EarlierList { rows, bases, within_tick_ns: 0, end_tick }
    }

    fn ends(ended: &[(u32, u32, u64, Ending)]) -> [Ends; 1] {
        let mut ends = Ends::new(100);
        for &(number, payload, tick, ending) in ended {
            ends.push(Ended { key: AnyKey::V4(key(number)), payload, tick, ending });
        }
        [ends]
    }

    /// The changes in short: the number of the connection, its start in ticks, and the tick of its end where there is
    /// one; 0 where it closed and no end is known.
    fn short(before: &EarlierList, now: &EarlierList, ends: &ListEnds) -> Vec<(u32, i64, Option<i64>)> {
        let number = |row: &Row| match row.client.ip() {
            std::net::IpAddr::V4(address) => address.to_bits(),
            std::net::IpAddr::V6(_) => 0,
        };
        let changes = before.changes_to(now, ends, None).map(|change| match change {
            Change::Opened(row) => (number(&row), row.start_ns / TICK_NS, None),
            Change::Closed(row, end) => {
                assert!(end.is_none_or(|end| end.end_ns - row.start_ns == row.age_ns), "the age is that at the end");
                (number(&row), row.start_ns / TICK_NS, Some(end.map_or(0, |end| end.end_ns / TICK_NS)))
            }
        });
        changes.collect()
    }

    #[test]
    fn all_that_ended_between_two_lists_is_in_its_place_in_time() {
        let before = list(10, &[(1, 1), (2, 2), (3, 3)]);
        let now = list(50, &[(2, 2), (3, 41), (4, 30)]);
        let mut gathered = ListEnds::default();
        let fin = Ending::Fin;
        gathered.gather(
            &UnlistedEnds::default(),
            &ends(&[
                (3, 3, 12, Ending::Replaced),
                (3, 12, 15, fin),
                (1, 1, 20, Ending::Rst),
                (5, 21, 22, fin),
                (2, 2, 25, Ending::Rst),
                (2, 2, 26, Ending::Reopened),
                (3, 30, 40, fin),
            ]),
        );
        assert_eq!(
            short(&before, &now, &gathered),
            [
                (1, 1, Some(20)),
                (3, 3, Some(12)),
                (3, 12, None),
                (3, 12, Some(15)),
                (3, 30, None),
                (3, 30, Some(40)),
                (3, 41, None),
                (4, 30, None),
                (5, 21, None),
                (5, 21, Some(22)),
            ]
        );
    }

    #[test]
    fn an_end_that_a_list_does_not_know_yet_waits_for_the_list_that_does() {
        let (before, behind, now) = (list(10, &[(1, 1), (2, 2)]), list(20, &[(1, 1), (3, 12)]), list(30, &[]));
        let (mut gathered, mut unlisted) = (ListEnds::default(), UnlistedEnds::default());
        gathered.gather(&unlisted, &ends(&[(1, 1, 15, Ending::Fin), (3, 12, 18, Ending::Rst)]));
        assert_eq!(short(&before, &behind, &gathered), [(2, 2, Some(0)), (3, 12, None)]);
        behind.keep_unlisted(&gathered, &mut unlisted);
        let mut encoder = Encoder::default();
        unlisted.save(&mut encoder);
        let bytes = encoder.into_bytes();
        let unlisted = UnlistedEnds::saved(&mut Decoder::new(&bytes)).unwrap();
        gathered.gather(&unlisted, &[]);
        assert_eq!(short(&behind, &now, &gathered), [(1, 1, Some(15)), (3, 12, Some(18))]);
    }
}
