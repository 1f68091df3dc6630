//! A list that is kept from snapshots alone, on any machine that has the secret.
//!
//! The snapshots are those of one run of a router, in order; any of them may be missing. The lists are those that the
//! router would have made of the same intervals. A snapshot less the one applied before it is what opened and closed in
//! between: a delta like any other, decoded as the router decodes its own. The law is the same too: the snapshot
//! applied last = the list + the residue.

use crate::error::{Error, Result};
use crate::flow::FlowKey as TableKey;
use crate::flow::{AnyKey, KeyV4, KeyV6};
use crate::handover::{Changes, Delta, HalfOpenList, SidesSeen};
use crate::list::exact::ExactList;
use crate::list::row::ListTimes;
use crate::list::start::Start;
use crate::list::{EvictionTimes, FlowListConfig, Header, List};
use crate::signal::{Clock, PartitionSet, Partitions, TICK_NS, TimeBases};
use crate::snapshot::{Kind, RouterPart, Salvaged, SnapshotFile, Sums, file};
use flowpeel_iblt::Iblt;
use flowpeel_iblt::hash::Secret;

/// A moment by the clock that never steps back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TickMoment {
    /// The tick.
    pub tick: u64,
    /// The time since the beginning of the tick, in ns.
    pub within_tick_ns: i64,
}

impl TickMoment {
    /// The end of a snapshot's interval.
    #[must_use]
    pub fn end_of(source: &RouterPart) -> Self {
        TickMoment { tick: source.end_tick, within_tick_ns: source.within_tick_ns }
    }

    /// The moment of this wall time in the snapshot's run; `None` before its start. Where a clock that stepped back
    /// passed it twice, the later of the two.
    #[must_use]
    pub fn of_wall_ns(source: &RouterPart, wall_ns: i64) -> Option<Self> {
        let mut first_after = source.end_tick.saturating_add(1);
        for base in source.bases.iter().rev() {
            let tick = base.tick(wall_ns);
            if (base.first_tick..first_after).contains(&tick) {
                return Some(TickMoment { tick, within_tick_ns: wall_ns.saturating_sub(base.wall_ns(tick)) });
            }
            first_after = base.first_tick;
        }
        None
    }

    /// The moment this many ns earlier, or later if negative.
    #[must_use]
    pub fn before(self, ns: i64) -> Self {
        let within_ns = self.within_tick_ns.saturating_sub(ns);
        let tick = self.tick.saturating_add_signed(within_ns.div_euclid(TICK_NS));
        TickMoment { tick, within_tick_ns: within_ns.rem_euclid(TICK_NS) }
    }

    /// The tick this many ns earlier, to the nearest.
    fn tick_before(self, age_ns: i64) -> u64 {
        let ticks = age_ns.saturating_sub(self.within_tick_ns).saturating_add(TICK_NS / 2).div_euclid(TICK_NS);
        self.tick.saturating_sub(u64::try_from(ticks).unwrap_or(0))
    }
}

/// A connection of an earlier list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownConnection {
    /// The key of the connection.
    pub key: AnyKey,
    /// The age of the connection at the end of that list, in ns.
    pub age_ns: i64,
    /// Whether its start was not seen.
    pub midstream: bool,
    /// Whether it may be older.
    pub start_is_bound: bool,
    /// The sides of it that were seen.
    pub sides: SidesSeen,
}

/// The list of one run of a router, kept from its snapshots.
pub struct SnapshotList {
    list: ExactList,
    secret: Secret,
    partition_of: Partitions,
    /// The header and the sums of the snapshot that was applied last: what the list and its residue add up to.
    header: file::Header,
    applied: Vec<Sums>,
    /// The tick of each partition since which all has opened that is in its tables and not in `applied`.
    since: Vec<u64>,
    /// How many sections of the snapshot applied last were damaged, if it was.
    damaged_sections: Option<u64>,
    /// The partitions that its snapshots hold, if not all.
    part: Option<PartitionSet>,
}

impl SnapshotList {
    /// An empty list for the run of the snapshot with this header. The snapshot itself is not applied.
    ///
    /// # Errors
    ///
    /// The snapshot is a merge or a digest.
    pub fn new(header: &file::Header, secret: &Secret) -> Result<Self> {
        let Some(source) = header.sources.first().filter(|_| header.kind == Kind::Snapshot) else {
            let what = format!("this is a {}: only a snapshot of one router has a list", header.kind.name());
            return Err(Error::new(what));
        };
        let config = FlowListConfig {
            secret: secret.clone(),
            geometry: header.geometry,
            partition_connections_max: source.partition_connections_max,
            eviction: EvictionTimes::default(),
            inquiry_max: 0,
        };
        Ok(SnapshotList {
            list: ExactList::new(&config, None),
            secret: secret.clone(),
            partition_of: Partitions::new(secret),
            applied: vec![Sums::new(header.geometry); header.partition_count],
            since: vec![Clock::FIRST_TICK; header.partition_count],
            header: header.clone(),
            damaged_sections: None,
            part: None,
        })
    }

    /// This list as a part of a list: its snapshots hold these partitions alone.
    #[must_use]
    pub fn of_part(self, part: Option<PartitionSet>) -> Self {
        SnapshotList { part, ..self }
    }

    /// Lists a connection of an earlier list, which ended at `list_end`. Returns whether it is listed now and was not
    /// before: one of another part is not. The list need only be near enough: the next snapshot corrects what is wrong
    /// in it, if the differences fit the tables.
    ///
    /// Complexity: three hashes.
    pub fn relist(&mut self, known: &KnownConnection, list_end: TickMoment) -> bool {
        let start = Start::at(list_end.tick_before(known.age_ns), known.midstream).of_sides(known.sides);
        let start = if known.start_is_bound { start.bound() } else { start };
        let partition = self.partition_of.of(&known.key);
        if self.part.is_some_and(|part| !part.has(partition)) {
            return false;
        }
        let (Some(list), Some(sums)) = (self.list.partition_mut(partition), self.applied.get_mut(partition)) else {
            return false;
        };
        match known.key {
            AnyKey::V4(key) => list.v4.relist(key, start).map(|change| sums.v4.apply_one(&change)).is_some(),
            AnyKey::V6(key) => list.v6.relist(key, start).map(|change| sums.v6.apply_one(&change)).is_some(),
        }
    }

    /// Records that the connections of an earlier list, which are all listed now, are all that were open at this
    /// moment: what comes with the next snapshot has opened since.
    pub fn set_whole_at(&mut self, list_end: TickMoment) {
        self.since.fill(list_end.tick);
    }

    /// Takes off a connection that a later list does not have. Returns whether it was listed.
    pub fn delist(&mut self, key: &AnyKey) -> bool {
        let partition = self.partition_of.of(key);
        let (Some(list), Some(sums)) = (self.list.partition_mut(partition), self.applied.get_mut(partition)) else {
            return false;
        };
        match key {
            AnyKey::V4(key) => list.v4.delist(key).map(|change| sums.v4.apply_one(&change)).is_some(),
            AnyKey::V6(key) => list.v6.delist(key).map(|change| sums.v6.apply_one(&change)).is_some(),
        }
    }

    /// Whether a snapshot is of the list's run and its tables have the same shape.
    #[must_use]
    pub fn is_of_run(&self, snapshot: &SnapshotFile) -> bool {
        let run = |header: &file::Header| header.sources.first().map(|source| (source.router.clone(), source.run));
        snapshot.header.kind == Kind::Snapshot
            && run(&self.header) == run(&snapshot.header)
            && self.header.check_fits(&snapshot.header).is_ok()
    }

    /// Brings the list to the state of this snapshot. If too much has changed since the one before, but the snapshot
    /// decodes on its own, it is decoded on its own.
    ///
    /// Complexity: some passes over the tables, and the decoding.
    ///
    /// # Errors
    ///
    /// The snapshot is of another run, or the one before it was damaged: what is lost of that would never come back.
    /// Nothing has changed then.
    pub fn apply(&mut self, snapshot: SnapshotFile) -> Result<()> {
        if !self.is_of_run(&snapshot) {
            return Err(Error::new("the snapshot is of another run or another router than the list"));
        }
        if self.damaged_sections.is_some() {
            return Err(Error::new("the list was made of a damaged snapshot: begin another"));
        }
        let since = self.since.iter().enumerate();
        let since: Vec<u64> = since.map(|(partition, since)| self.list.unlisted_since(partition, *since)).collect();
        self.advance(&snapshot);
        if self.left() > 0 && fits_alone(&snapshot) {
            // What the list before has not is as new as it would be without this.
            let mut alone =
                SnapshotList { since, part: self.part, ..SnapshotList::new(&snapshot.header, &self.secret)? };
            alone.advance(&snapshot);
            alone.list.adopt_starts(&self.list);
            if alone.left() < self.left() {
                *self = alone;
            }
        }
        if let Some(source) = snapshot.header.sources.first() {
            self.since = source.cut_ticks.to_vec();
        }
        self.applied = snapshot.sums;
        self.header = snapshot.header;
        Ok(())
    }

    /// Brings the list to the state of a snapshot that was damaged, so far as what is left of it shows. It is the last
    /// that can be applied.
    ///
    /// # Errors
    ///
    /// As for [`Self::apply`].
    pub fn apply_salvaged(&mut self, salvaged: Salvaged) -> Result<()> {
        let damaged_sections = salvaged.damaged().len() as u64;
        self.apply(salvaged.into_file())?;
        self.damaged_sections = Some(damaged_sections);
        Ok(())
    }

    /// Applies the difference between this snapshot and the one applied last.
    fn advance(&mut self, snapshot: &SnapshotFile) {
        let Some(source) = snapshot.header.sources.first() else { return };
        let parts = snapshot.sums.iter().zip(&self.applied).zip(self.since.iter().zip(source.cut_ticks)).enumerate();
        for (partition, ((now, before), (since, tick))) in parts {
            let (v4, v6) = (less(&now.v4, &before.v4), less(&now.v6, &before.v6));
            self.list.apply(partition, &mut Delta { v4, v6 }, *since, tick);
        }
    }

    /// About how many openings and closings could not be decoded; 0 only when there are none.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.list.missing()
    }

    /// Passes the list of the interval whose snapshot was applied last to `write`.
    pub fn list<T>(&self, write: impl FnOnce(&List) -> T) -> T {
        let nothing = RouterPart::default();
        let source = self.header.sources.first().unwrap_or(&nothing);
        let mut bases = TimeBases::new();
        bases.replace(&source.bases);
        let established = self.list.partitions();
        let mut half_open = HalfOpenList::of(&source.half_open);
        half_open.sort();
        half_open
            .retain::<KeyV4>(|key| !established[self.partition_of.of(&AnyKey::V4(*key))].v4.listed().contains(key));
        half_open
            .retain::<KeyV6>(|key| !established[self.partition_of.of(&AnyKey::V6(*key))].v6.listed().contains(key));
        let missing = self.left().saturating_add(source.figures.missing_elsewhere);
        let header = Header {
            figures: source.figures,
            missing,
            complete: missing == 0,
            extraneous: self.list.extraneous(),
            unsettled: source.shortfall.unsettled,
            unarchived: source.shortfall.unarchived,
            since: source.since,
            damaged_sections: self.damaged_sections,
            part: self.part,
            ..Header::default()
        };
        let RouterPart { within_tick_ns, end_tick, .. } = *source;
        let times = ListTimes { bases: &bases, within_tick_ns, end_tick, resumed_tick: None };
        write(&List::new(established, &[Some(Box::new(half_open))], header, times))
    }
}

/// The difference of two tables of one shape.
fn less<K: TableKey>(now: &Iblt<K>, before: &Iblt<K>) -> Changes<K> {
    let mut table = now.clone();
    let is_subtracted = table.subtract(before).is_ok();
    debug_assert!(is_subtracted, "what is of one run has one shape");
    let updates = u64::from(!table.is_zero());
    Changes { updates, ..Changes::of(table) }
}

/// Whether the open connections are about few enough for the tables to be decoded on their own.
fn fits_alone(snapshot: &SnapshotFile) -> bool {
    let geometry = snapshot.header.geometry;
    snapshot.sums.iter().all(|sums| {
        sums.v4.estimated_count() <= geometry.v4.item_count() && sums.v6.estimated_count() <= geometry.v6.item_count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::VlanTags;
    use crate::handover::DeltaGeometry;
    use crate::signal::{PARTITION_COUNT, TICK_BITS, TimeBase};
    use flowpeel_iblt::hash::{KeyedHash, Purpose};
    use flowpeel_iblt::{Change, Geometry, ValueCode};
    use proptest::prelude::*;

    /// Connections of the first partition.
    fn keys() -> impl Iterator<Item = KeyV4> {
        let partitions = Partitions::new(&Secret::REPLAY);
        let keys = (0..).map(|client| KeyV4::new((client, 40_000), (0xcb00_7101, 443), VlanTags::NONE));
        keys.filter(move |key| partitions.of(&AnyKey::V4(*key)) == 0)
    }

    /// A snapshot of these connections, each with the tick of its start, at the tick `end`.
    fn snapshot_of(open: &[(KeyV4, u64)], end: u64) -> SnapshotFile {
        let secret = Secret::REPLAY;
        let source = RouterPart {
            partition_connections_max: 10_000,
            end_tick: end,
            cut_ticks: [end; PARTITION_COUNT],
            bases: vec![TimeBase { first_tick: 0, offset_ns: 0 }],
            ..RouterPart::default()
        };
        let geometry = DeltaGeometry { v4: Geometry::for_items(50), v6: Geometry::new(1) };
        let mut snapshot = SnapshotFile::new(geometry, false, &secret, source);
        let code = ValueCode::<KeyV4>::new(KeyedHash::new(&secret, Purpose::Value));
        let placement = KeyedHash::new(&secret, Purpose::Placement);
        for (key, start) in open {
            let hash = placement.of(key);
            let value = code.encode(hash, Start::at(*start, false).payload());
            snapshot.sums[0].v4.apply_one(&Change::insert(*key, hash, value));
        }
        snapshot
    }

    #[test]
    fn what_is_listed_anew_from_one_snapshot_keeps_the_starts_that_were_known() {
        let wrap = 1 << TICK_BITS;
        let (list_end, end) = (Clock::FIRST_TICK + 3 * wrap, Clock::FIRST_TICK + 5 * wrap);
        let before: Vec<_> = keys().take(400).zip((0..).map(|index| list_end - 7_000 * index - 1)).collect();
        let kept = before.iter().copied().step_by(20);
        let new = keys().skip(400).take(15).map(|key| (key, end - 7));
        let open: Vec<_> = kept.chain(new).collect();
        let snapshot = snapshot_of(&open, end);
        let mut list = SnapshotList::new(&snapshot.header, &Secret::REPLAY).unwrap();
        let moment = TickMoment { tick: list_end, within_tick_ns: 0 };
        for (key, start) in &before {
            let age_ns = (list_end - start) as i64 * TICK_NS;
            let known = KnownConnection {
                key: AnyKey::V4(*key),
                age_ns,
                midstream: false,
                start_is_bound: false,
                sides: SidesSeen::Both,
            };
            assert!(list.relist(&known, moment));
        }
        list.set_whole_at(moment);
        // Ten times as many have closed as the table lists, but what is open fits.
        list.apply(snapshot).unwrap();
        assert_eq!(list.left(), 0);
        let mut rows: Vec<_> = list.list(|list| list.rows().collect());
        rows.sort_by_key(|row| row.client);
        let mut expected: Vec<_> = open.iter().map(|(key, start)| (key.first(), *start, *start > list_end)).collect();
        expected.sort();
        let found = rows.iter().map(|row| (row.client, (row.start_ns / TICK_NS) as u64, row.start_is_bound));
        assert!(found.eq(expected));
    }

    /// A clock that stepped back by an hour at tick 2,000,000.
    fn source() -> RouterPart {
        let base =
            |first_tick: u64, offset_s: i64| TimeBase { first_tick, offset_ns: i128::from(offset_s) * 1_000_000_000 };
        let bases = vec![base(1 << 20, 1_700_000_000), base(2_000_000, 1_700_000_000 - 3_600)];
        RouterPart { bases, end_tick: 3_000_000, within_tick_ns: 7, ..RouterPart::default() }
    }

    proptest! {
        #[test]
        fn ages_give_the_exact_tick_of_a_start(end in 1u64 << 21..1 << 40, ago in 0u64..1 << 20, within in 0..TICK_NS) {
            let age_us = (ago as i64 * TICK_NS + within) / 1_000;
            let moment = TickMoment { tick: end, within_tick_ns: within };
            prop_assert_eq!(moment.tick_before(age_us * 1_000), end - ago);
            // Lists have microseconds.
            let read = TickMoment { within_tick_ns: within / 1_000 * 1_000, ..moment };
            prop_assert_eq!(read.tick_before(age_us * 1_000), end - ago);
        }

        #[test]
        fn moments_go_back_and_forth(tick in 1u64 << 21..1 << 40, within in 0..TICK_NS, ns in 0i64..1 << 47) {
            let moment = TickMoment { tick, within_tick_ns: within };
            let before = moment.before(ns);
            let elapsed = (tick - before.tick) as i64 * TICK_NS + within - before.within_tick_ns;
            prop_assert_eq!((elapsed, before.before(-ns)), (ns, moment));
        }

        #[test]
        fn wall_times_are_found_in_their_base(tick in 1u64 << 20..3_000_000, within in 0..TICK_NS) {
            let source = source();
            let base = source.bases[usize::from(tick >= 2_000_000)];
            let found = TickMoment::of_wall_ns(&source, base.wall_ns(tick) + within).unwrap();
            // Within an hour of the step a time is twice, and the later is taken.
            let is_twice = (2_000_000 - 36_000..2_000_000).contains(&tick);
            let expected = TickMoment { tick: if is_twice { tick + 36_000 } else { tick }, within_tick_ns: within };
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_time_is_too_strange(wall_ns: i64, tick: u64, within: i64, ns: i64) {
            let moment = TickMoment { tick, within_tick_ns: within };
            prop_assert!(moment.tick_before(ns) <= tick);
            let before = moment.before(ns);
            prop_assert!((0..TICK_NS).contains(&before.within_tick_ns));
            let source = RouterPart { end_tick: tick, ..source() };
            prop_assert!(TickMoment::of_wall_ns(&source, wall_ns).is_none_or(|moment| moment.tick <= tick));
        }
    }
}
