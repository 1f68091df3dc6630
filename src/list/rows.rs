//! The list as exporters see it: a header and rows in one fixed order, so that equal lists are equal bytes.

use crate::flow::{AnyKey, ByFamily, FlowKey, KeyV4, KeyV6};
use crate::handover::{Ends, HalfOpenList};
use crate::list::exact::PartitionList;
use crate::list::in_order::InOrder;
use crate::list::row::{ListTimes, Listed, Row};
use crate::list::translations::{Translated, Translations};
use crate::signal::{PARTITION_COUNT, PartitionSet};
use crate::snapshot::{Figures, Since};

/// What a list says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// What was counted in its interval.
    pub figures: Figures,
    /// Whether every connection that is known to be open is listed, and none that has closed.
    pub complete: bool,
    /// Established connections listed.
    pub flows: u64,
    /// About how many differences between the list and the truth are known to exist; 0 exactly when complete.
    pub missing: u64,
    /// Half-open connections listed.
    pub half_open: u64,
    /// Listed connections that may have closed unseen: see [`Row::unsettled`].
    pub unsettled: u64,
    /// Openings or closings that contradict the list and wait for their opposite.
    pub extraneous: u64,
    /// Connections that ended in the interval and did not get into the archive, because it did not keep up.
    pub unarchived: u64,
    /// Lines that have the other name of their connection, because its addresses are translated; `None` where nobody
    /// knows of translations.
    pub translated: Option<u64>,
    /// Translated connections for which there was no room among those whose names are known: each may be listed twice.
    pub untranslated: u64,
    /// Connections of the interval, at least, that came under two names at two interfaces, because their addresses are
    /// translated: each is listed twice. See [`TwoNames`](crate::signal::TwoNames).
    pub doubled: u64,
    /// From when on a live list knows what is open; `None` of a replay, which takes a capture for all there is.
    pub since: Option<Since>,
    /// How many sections were damaged of the snapshot that the list was made of, if it was: see
    /// [`SnapshotFile::salvage`](crate::snapshot::SnapshotFile::salvage). Otherwise none.
    pub damaged_sections: Option<u64>,
    /// The partitions that are listed, if it is a part of a list: what is said of it is said of these alone, but the
    /// figures of the interval are the whole router's.
    pub part: Option<PartitionSet>,
    /// Whether no list comes after this one.
    pub is_last: bool,
}

impl Header {
    /// Whether older connections than the capture are still being found.
    #[must_use]
    pub fn is_warming_up(&self) -> bool {
        self.since.is_some_and(|since| since.is_warming_up)
    }
}

/// A finished list, for an exporter to write.
pub struct List<'a> {
    /// What the list says of itself.
    pub header: Header,
    partitions: &'a [PartitionList],
    half_open: &'a [Option<Box<HalfOpenList>>],
    pub(super) times: ListTimes<'a>,
    /// The names of translated connections, with those of this list marked.
    names: Option<&'a Translations>,
    /// What ended in each partition since the list before.
    ends: &'a [Ends],
}

impl<'a> List<'a> {
    /// The list of the established connections of these partitions, and of these half-open ones, which are sorted and
    /// none of which is established. Their numbers are added to the header.
    pub(super) fn new(
        partitions: &'a [PartitionList],
        half_open: &'a [Option<Box<HalfOpenList>>],
        mut header: Header,
        times: ListTimes<'a>,
    ) -> Self {
        for PartitionList { v4, v6 } in partitions {
            header.flows += (v4.listed().len() + v6.listed().len()) as u64;
            header.unsettled += v4.unsettled_count() + v6.unsettled_count();
        }
        header.half_open += half_open.iter().flatten().map(|list| list.len() as u64).sum::<u64>();
        let resumed_tick = times.resumed_tick;
        let mut list = List { header, partitions, half_open, times, names: None, ends: &[] };
        if resumed_tick.is_some() {
            let unsettled_v4 = list.half_open::<KeyV4>().filter(Listed::is_unsettled).count();
            let unsettled_v6 = list.half_open::<KeyV6>().filter(Listed::is_unsettled).count();
            list.header.unsettled += (unsettled_v4 + unsettled_v6) as u64;
        }
        list
    }

    /// The list, with what ended in each partition since the one before.
    pub(super) fn with_ends(self, ends: &'a [Ends]) -> Self {
        List { ends, ..self }
    }

    /// What ended in each partition since the list before; empty where nobody asked for it, and of a list that was made
    /// of snapshots.
    #[must_use]
    pub fn ends(&self) -> &'a [Ends] {
        self.ends
    }

    /// The rows, ordered by client address, client port, server address, server port and VLAN; IPv4 before IPv6.
    ///
    /// Complexity: each call sorts the list, in about a sixteenth of its memory and some passes over all of it.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let v4 = in_key_order(self.established_v4(), self.half_open()).filter(|listed| self.has_row(listed));
        let v6 = in_key_order(self.established_v6(), self.half_open()).filter(|listed| self.has_row(listed));
        v4.map(|listed| self.row(&listed)).chain(v6.map(|listed| self.row(&listed)))
    }

    /// As [`Self::rows`], with a row for each name of a translated connection: what is tracked.
    pub fn tracked(&self) -> impl Iterator<Item = Row> {
        let v4 = in_key_order(self.established_v4(), self.half_open());
        let v6 = in_key_order(self.established_v6(), self.half_open());
        v4.map(|listed| self.times.row(&listed)).chain(v6.map(|listed| self.times.row(&listed)))
    }

    /// Whether a connection has a row: it does not stand on the list under the name before its translation already.
    #[inline]
    fn has_row<K: Translated>(&self, listed: &Listed<K>) -> bool {
        self.names.is_none_or(|names| !names.is_second_name(&listed.key))
    }

    /// The row of a connection.
    #[inline]
    fn row<K: Translated>(&self, listed: &Listed<K>) -> Row {
        let mut row = self.times.row(listed);
        if let Some(names) = self.names {
            row.nat = names.nat_of(&listed.key);
        }
        row
    }

    /// The list in which a translated connection has one row, by these names, and the header that says so.
    ///
    /// Complexity: two look-ups for each listed connection and one for each that ended, where there are translations.
    pub(super) fn with_names(self, names: &'a mut Translations) -> Self {
        let mut list = self;
        names.begin_list();
        if !names.is_empty() {
            for PartitionList { v4, v6 } in list.partitions {
                v4.listed().iter().for_each(|(key, _)| names.mark(&key));
                v6.listed().iter().for_each(|(key, _)| names.mark(&key));
            }
            list.half_open::<KeyV4>().for_each(|listed| names.mark(&listed.key));
            list.half_open::<KeyV6>().for_each(|listed| names.mark(&listed.key));
            for ended in list.ends.iter().flat_map(Ends::all) {
                match &ended.key {
                    AnyKey::V4(key) => names.mark_ended(key),
                    AnyKey::V6(key) => names.mark_ended(key),
                }
            }
        }
        let names = &*names;
        list.names = Some(names);
        let (mut rows, mut half_open) = (Named::default(), Named::default());
        if !names.is_empty() {
            for PartitionList { v4, v6 } in list.partitions {
                v4.listed().iter().for_each(|(key, start)| rows.count(names, &key, start.is_unsettled()));
                v6.listed().iter().for_each(|(key, start)| rows.count(names, &key, start.is_unsettled()));
            }
            list.half_open::<KeyV4>().for_each(|one| half_open.count(names, &one.key, one.is_unsettled()));
            list.half_open::<KeyV6>().for_each(|one| half_open.count(names, &one.key, one.is_unsettled()));
        }
        list.header.flows -= rows.second;
        list.header.half_open -= half_open.second;
        list.header.unsettled -= rows.second_unsettled + half_open.second_unsettled;
        list.header.translated = Some(rows.translated + half_open.translated);
        list.header.untranslated = names.beyond();
        // What has no room may be listed twice, and what was missed may be anything.
        list.header.missing += names.beyond().max(u64::from(names.is_stale()));
        list.header.complete = list.header.missing == 0;
        list
    }

    /// The names of translated connections, if somebody knows them, with those of this list marked.
    pub(crate) fn names(&self) -> Option<&'a Translations> {
        self.names
    }

    /// The established connections, in no order.
    pub fn established(&self) -> impl Iterator<Item = Row> {
        let v4 = self.partitions.iter().flat_map(|partition| partition.v4.listed().iter());
        let v6 = self.partitions.iter().flat_map(|partition| partition.v6.listed().iter());
        let v4 = v4.map(|(key, start)| self.times.row(&Listed::established(key, start)));
        v4.chain(v6.map(|(key, start)| self.times.row(&Listed::established(key, start))))
    }

    /// The number of rows of each family, or more: a translated connection counts once for each name.
    pub(super) fn row_counts(&self) -> ByFamily<usize> {
        let mut counts = self.established_count();
        for list in self.half_open.iter().flatten() {
            counts.v4 += list.of_family::<KeyV4>(self.times.end_tick).len();
            counts.v6 += list.of_family::<KeyV6>(self.times.end_tick).len();
        }
        counts
    }

    /// Passes every row on, in no order.
    pub(super) fn each_row(&self, mut v4: impl FnMut(Listed<KeyV4>), mut v6: impl FnMut(Listed<KeyV6>)) {
        let names = self.names.filter(|names| !names.is_empty());
        let mut v4 = |listed: Listed<KeyV4>| {
            if names.is_none_or(|names| !names.is_second_name(&listed.key)) {
                v4(listed);
            }
        };
        let mut v6 = |listed: Listed<KeyV6>| {
            if names.is_none_or(|names| !names.is_second_name(&listed.key)) {
                v6(listed);
            }
        };
        for partition in self.partitions {
            partition.v4.listed().iter().for_each(|(key, start)| v4(Listed::established(key, start)));
            partition.v6.listed().iter().for_each(|(key, start)| v6(Listed::established(key, start)));
        }
        let ListTimes { end_tick, resumed_tick, .. } = self.times;
        for list in self.half_open.iter().flatten() {
            list.of_family(end_tick).for_each(|one| v4(Listed::half_open(one, resumed_tick)));
            list.of_family(end_tick).for_each(|one| v6(Listed::half_open(one, resumed_tick)));
        }
    }

    /// The number of established connections of each family.
    pub(super) fn established_count(&self) -> ByFamily<usize> {
        let mut count = ByFamily::default();
        for PartitionList { v4, v6 } in self.partitions {
            count.v4 += v4.listed().len();
            count.v6 += v6.listed().len();
        }
        count
    }

    pub(super) fn established_v4(&self) -> impl Iterator<Item = Listed<KeyV4>> + use<'a> {
        InOrder::new(self.partitions.iter().map(|partition| partition.v4.listed()))
    }

    pub(super) fn established_v6(&self) -> impl Iterator<Item = Listed<KeyV6>> + use<'a> {
        InOrder::new(self.partitions.iter().map(|partition| partition.v6.listed()))
    }

    /// The half-open connections of one family, in the order of their keys.
    fn half_open<K: FlowKey>(&self) -> impl Iterator<Item = Listed<K>> + use<'a, K> {
        let (lists, ListTimes { end_tick, resumed_tick, .. }) = (self.half_open, self.times);
        let one = |index: usize| {
            let list = lists.get(index).and_then(Option::as_deref);
            let all = list.into_iter().flat_map(move |list| list.of_family(end_tick));
            all.map(move |one| Listed::half_open(one, resumed_tick))
        };
        const _: () = assert!(PARTITION_COUNT == 8, "as many as are put in order here");
        let two = |index| in_key_order(one(index), one(index + 1));
        let four = |index| in_key_order(two(index), two(index + 2));
        in_key_order(four(0), four(4))
    }
}

/// How many of some rows have names of translated connections.
#[derive(Default)]
struct Named {
    /// Those that are second names, which get no row, and of these the unsettled ones.
    second: u64,
    second_unsettled: u64,
    /// The others.
    translated: u64,
}

impl Named {
    fn count<K: Translated>(&mut self, names: &Translations, key: &K, is_unsettled: bool) {
        if names.is_second_name(key) {
            self.second += 1;
            self.second_unsettled += u64::from(is_unsettled);
        } else {
            self.translated += u64::from(names.nat_of(key).is_some());
        }
    }
}

/// Merges two iterators whose rows are in the order of keys. No key is in both.
fn in_key_order<K: FlowKey>(
    first: impl Iterator<Item = Listed<K>>,
    second: impl Iterator<Item = Listed<K>>,
) -> impl Iterator<Item = Listed<K>> {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    std::iter::from_fn(move || match (first.peek(), second.peek()) {
        (Some(one), Some(other)) if one.key > other.key => second.next(),
        (Some(_), _) => first.next(),
        (None, _) => second.next(),
    })
}
