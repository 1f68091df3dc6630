//! The part of one router in a snapshot: its name, its interval, and the wall time of its ticks.
//!
//! It takes what a router knows beside its tables and gives the same in a file, so that whoever peels the tables can
//! write exactly the list that the router would have written.

use crate::disk::{Decoder, Encoder, Items};
use crate::error::{Error, Result};
use crate::flow::{AnyKey, KeyV4, KeyV6, WordKey};
use crate::handover::{Counts, HalfOpen, ISN_BITS};
use crate::signal::{Clock, PARTITION_COUNT, Partitions, TIME_BASES_MAX, TimeBase};
use crate::snapshot::SNAPSHOT_HALF_OPEN_SIZE;
use crate::track::HALF_OPEN_MAX;
use std::io::{Read, Write};

/// The longest name of a router, in bytes: what a host name may have.
pub const ROUTER_NAME_SIZE_MAX: usize = 64;

/// What was counted in an interval, which no table holds: a part of a list's header and of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The number of the list, from 1: the sequence number of the snapshots of one run.
    pub interval: u64,
    /// When the interval began, in ns since 1970.
    pub start_ns: i64,
    /// When the interval ended: the list and the tables hold what was open then.
    pub end_ns: i64,
    /// Connections established in the interval.
    pub opened: u64,
    /// Connections that ended in the interval.
    pub closed: u64,
    /// Connections that could not be tracked, and handshakes that could not be waited for, in the interval.
    pub untracked: u64,
    /// Half-open connections that made room for newer ones, in the interval.
    pub recycled: u64,
    /// Connections taken off the list without having been seen to end, in the interval: idle for too long, or too old.
    pub evicted: u64,
    /// Packets that the kernel lost and signals that a full queue lost, in the interval.
    pub dropped: u64,
    /// Packets in the interval that should have been TCP and could not be read as such.
    pub unusable: u64,
    /// Those of them that the capture cut before their TCP flags, or before it could be known whether they are TCP.
    pub cut: u64,
    /// Packets in the interval of tunnels that are known and not opened.
    pub unopened: u64,
    /// Intervals beside its own that the list covers, because their lists could not be made in time.
    pub merged: u64,
    /// About how many differences to the truth are known that are in no table: connections that were not tracked, and
    /// what lost and cut packets held. A list's `missing` is this and what could not be decoded.
    pub missing_elsewhere: u64,
    /// Connections that ended, and went on after all, in the interval.
    pub reopened: u64,
    /// About how many handshakes were forgotten before they could complete, and not found since: at the interval's end.
    pub handshakes_lost: u64,
    /// Whether the time of the interval's end is in doubt.
    pub time_uncertain: bool,
}

impl Figures {
    const COUNT: usize = 17;

    /// The figures of two routers together: the counters added up, from the earlier start to the later end. The
    /// interval is the later of the two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Figures {
            interval: self.interval.max(other.interval),
            start_ns: self.start_ns.min(other.start_ns),
            end_ns: self.end_ns.max(other.end_ns),
            opened: self.opened.saturating_add(other.opened),
            closed: self.closed.saturating_add(other.closed),
            untracked: self.untracked.saturating_add(other.untracked),
            recycled: self.recycled.saturating_add(other.recycled),
            evicted: self.evicted.saturating_add(other.evicted),
            dropped: self.dropped.saturating_add(other.dropped),
            unusable: self.unusable.saturating_add(other.unusable),
            cut: self.cut.saturating_add(other.cut),
            unopened: self.unopened.saturating_add(other.unopened),
            merged: self.merged.saturating_add(other.merged),
            missing_elsewhere: self.missing_elsewhere.saturating_add(other.missing_elsewhere),
            reopened: self.reopened.saturating_add(other.reopened),
            handshakes_lost: self.handshakes_lost.saturating_add(other.handshakes_lost),
            time_uncertain: self.time_uncertain || other.time_uncertain,
        }
    }

    pub(super) fn words(&self) -> [u64; Self::COUNT] {
        [
            self.interval,
            self.start_ns as u64,
            self.end_ns as u64,
            self.opened,
            self.closed,
            self.untracked,
            self.recycled,
            self.evicted,
            self.dropped,
            self.unusable,
            self.cut,
            self.unopened,
            self.merged,
            self.missing_elsewhere,
            self.reopened,
            self.handshakes_lost,
            u64::from(self.time_uncertain),
        ]
    }

    fn of_words(words: [u64; Self::COUNT]) -> Self {
        let [interval, start, end, opened, closed, untracked, recycled, evicted, dropped, unusable, rest @ ..] = words;
        let [cut, unopened, merged, missing, reopened, handshakes_lost, time_uncertain] = rest;
        Figures {
            interval,
            start_ns: start as i64,
            end_ns: end as i64,
            opened,
            closed,
            untracked,
            recycled,
            evicted,
            dropped,
            unusable,
            cut,
            unopened,
            merged,
            missing_elsewhere: missing,
            reopened,
            handshakes_lost,
            time_uncertain: time_uncertain != 0,
        }
    }
}

/// One router's part in a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterPart {
    /// The router's name, at most [`ROUTER_NAME_SIZE_MAX`] bytes without control characters; empty if it has none.
    pub router: String,
    /// The number of its run: its tables begin empty with each. Zero for replays.
    pub run: u64,
    /// The length of its intervals in ns; 0 if it has none.
    pub every_ns: u64,
    /// The most connections that it lists in one partition.
    pub partition_connections_max: u64,
    /// Whether this is the last snapshot of its run.
    pub is_last: bool,
    /// What the router counted in the interval.
    pub figures: Figures,
    /// What the router counted since its start.
    pub totals: Counts,
    /// The tick of the interval's end.
    pub end_tick: u64,
    /// The time from the beginning of that tick to the end, in ns.
    pub within_tick_ns: i64,
    /// The tick of each partition's last hand-over: no start in its tables is later.
    pub cut_ticks: [u64; PARTITION_COUNT],
    /// The wall time of ticks, oldest first, at most [`TIME_BASES_MAX`].
    pub bases: Vec<TimeBase>,
    /// The half-open connections, partition by partition, the oldest of each first.
    pub half_open: Vec<HalfOpen>,
    /// What only some routers have to report of the interval.
    pub shortfall: Shortfall,
    /// From when on it knows what is open; `None` of a replay, which takes a capture for all there is.
    pub since: Option<Since>,
}

/// From when on a router that captures knows what is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// When the capture began, in ns since 1970: what opened since then is known, and of older connections those that
    /// have sent something since.
    pub since_ns: i64,
    /// Whether connections that are older are still being found, so that others may be missing.
    pub is_warming_up: bool,
    /// Whether that goes by a sample of packets already, because packets would have been lost otherwise.
    pub is_sampled_early: bool,
}

impl Since {
    /// From when on two routers together know what is open: the later time, and what holds of either.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Since {
            since_ns: self.since_ns.max(other.since_ns),
            is_warming_up: self.is_warming_up || other.is_warming_up,
            is_sampled_early: self.is_sampled_early || other.is_sampled_early,
        }
    }
}

/// What a router reports of an interval that follows a restart, or whose connections are archived. In a file it stands
/// only where it is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// Connections on its list that may have closed unseen while it was down. A router that keeps no list knows this of
    /// half-open ones only.
    pub unsettled: u64,
    /// Connections that ended in the interval and did not get into its archive.
    pub unarchived: u64,
}

/// The least size of a router's part in a file, in bytes: one without a name and time bases, with all partitions in
/// one.
pub(super) const SIZE_MIN: usize =
    1 + 8 * (3 + Figures::COUNT + Counts::FIGURE_COUNT + 2 + PARTITION_COUNT) + 1 + 4 + 4;

/// The size of a time base in a file, in bytes.
const BASE_SIZE: usize = 8 + 16;

/// The most bytes of a router's part in a file.
pub(super) const SIZE_MAX: usize =
    SIZE_MIN + ROUTER_NAME_SIZE_MAX + 4 * (PARTITION_COUNT - 1) + TIME_BASES_MAX * BASE_SIZE + 3 * 8;

/// The least size of a half-open connection in a file, in bytes: one of IPv4, which has the shorter key.
const HALF_OPEN_SIZE_MIN: usize = 1 + 2 + 4 + 8 + 8 * KeyV4::WORD_COUNT;

const _: () = assert!(size_of::<HalfOpen>() as u64 <= SNAPSHOT_HALF_OPEN_SIZE);

const IS_LAST: u8 = 1;
const HAS_SHORTFALL: u8 = 2;
const HAS_SINCE: u8 = 4;
const IS_WARMING_UP: u8 = 8;
const IS_SAMPLED_EARLY: u8 = 16;
const IS_V6: u8 = 1;
const IS_ANSWERED: u8 = 2;

impl RouterPart {
    /// When its run began, in ns since 1970 by the wall clock, if that is still known: replays of different captures
    /// have nothing else that differs.
    #[must_use]
    pub fn origin_ns(&self) -> Option<i64> {
        let first = self.bases.first().filter(|base| base.first_tick == Clock::FIRST_TICK);
        first.map(|base| base.wall_ns(Clock::FIRST_TICK))
    }

    /// Checks that it can be written.
    pub(super) fn check(&self) -> Result<()> {
        if !is_name(&self.router) {
            let what = format!("a router's name has at most {ROUTER_NAME_SIZE_MAX} bytes and no control characters");
            return Err(Error::new(what));
        }
        if self.bases.len() > TIME_BASES_MAX || self.half_open.len() > HALF_OPEN_MAX as usize {
            return Err(Error::new("a snapshot has no room for so many time bases or half-open connections"));
        }
        Ok(())
    }

    /// Writes all but its half-open connections, of which there are so many in each partition.
    pub(super) fn write(&self, half_open_counts: &[u32], out: &mut Encoder<impl Write>) {
        out.u8(self.router.len() as u8);
        out.put(self.router.as_bytes());
        out.u64(self.run);
        out.u64(self.every_ns);
        out.u64(self.partition_connections_max);
        out.u8(self.flags());
        out.words(&self.figures.words());
        out.words(&self.totals.figures());
        out.u64(self.end_tick);
        out.i64(self.within_tick_ns);
        out.words(&self.cut_ticks);
        out.u32(self.bases.len() as u32);
        for base in &self.bases {
            out.u64(base.first_tick);
            out.i128(base.offset_ns);
        }
        half_open_counts.iter().for_each(|count| out.u32(*count));
        if self.shortfall != Shortfall::default() {
            out.words(&[self.shortfall.unsettled, self.shortfall.unarchived]);
        }
        if let Some(since) = self.since {
            out.i64(since.since_ns);
        }
    }

    /// What it says in one bit each, and which of its last fields are there.
    fn flags(&self) -> u8 {
        let is = |flag: u8, holds: bool| if holds { flag } else { 0 };
        is(IS_LAST, self.is_last)
            | is(HAS_SHORTFALL, self.shortfall != Shortfall::default())
            | is(HAS_SINCE, self.since.is_some())
            | is(IS_WARMING_UP, self.since.is_some_and(|since| since.is_warming_up))
            | is(IS_SAMPLED_EARLY, self.since.is_some_and(|since| since.is_sampled_early))
    }

    /// Reads the part of a router with at most `half_open_max` half-open connections, which are not in it. Returns how
    /// many there are in each partition.
    pub(super) fn read(
        from: &mut Decoder<impl Read>,
        partition_count: usize,
        half_open_max: usize,
    ) -> Result<(Self, Vec<u32>)> {
        let mut name = [0; ROUTER_NAME_SIZE_MAX];
        let name_size = usize::from(from.u8()?);
        let Some(name) = name.get_mut(..name_size) else {
            return Err(from.refuse(format!("a router's name has at most {ROUTER_NAME_SIZE_MAX} bytes")));
        };
        from.fill(name)?;
        let router = std::str::from_utf8(name).ok().filter(|name| is_name(name)).map(str::to_owned);
        let router = router.ok_or_else(|| from.refuse("the router's name is no text"))?;
        let (run, every_ns, partition_connections_max) = (from.u64()?, from.u64()?, from.u64()?);
        let flags = from.flags(IS_LAST | HAS_SHORTFALL | HAS_SINCE | IS_WARMING_UP | IS_SAMPLED_EARLY)?;
        let part = RouterPart {
            router,
            run,
            every_ns,
            partition_connections_max,
            is_last: flags & IS_LAST != 0,
            figures: Figures::of_words(words(from)?),
            totals: Counts::of_figures(words(from)?),
            end_tick: from.u64()?,
            within_tick_ns: from.i64()?,
            cut_ticks: words(from)?,
            bases: read_bases(from)?,
            ..RouterPart::default()
        };
        let counts = read_half_open_counts(from, partition_count, half_open_max)?;
        let has_shortfall = flags & HAS_SHORTFALL != 0;
        let shortfall = if has_shortfall { read_shortfall(from)? } else { Shortfall::default() };
        let since = read_since(from, flags)?;
        Ok((RouterPart { shortfall, since, ..part }, counts))
    }

    /// Its half-open connections, partition by partition.
    pub(super) fn half_open_by_partition(&self, partitions: &Partitions, count: usize) -> Vec<Vec<&HalfOpen>> {
        let mut parts = vec![Vec::new(); count];
        for half_open in &self.half_open {
            // All partitions may have been added into one.
            let at = if count == 1 { 0 } else { partitions.of(&half_open.key) };
            parts[at].push(half_open);
        }
        parts
    }
}

/// Whether this is a valid name of a router.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() <= ROUTER_NAME_SIZE_MAX && !name.chars().any(char::is_control)
}

fn words<const N: usize>(from: &mut Decoder<impl Read>) -> Result<[u64; N]> {
    let mut words = [0; N];
    from.words(&mut words)?;
    Ok(words)
}

/// Reads what stands only where it is not zero: one content has one form.
fn read_shortfall(from: &mut Decoder<impl Read>) -> Result<Shortfall> {
    let shortfall = Shortfall { unsettled: from.u64()?, unarchived: from.u64()? };
    if shortfall == Shortfall::default() {
        return Err(from.refuse("counts that are said to be there and are zero"));
    }
    Ok(shortfall)
}

/// Reads from when on a router knows what is open, if the flags say that it stands there.
fn read_since(from: &mut Decoder<impl Read>, flags: u8) -> Result<Option<Since>> {
    let (is_warming_up, is_sampled_early) = (flags & IS_WARMING_UP != 0, flags & IS_SAMPLED_EARLY != 0);
    if flags & HAS_SINCE != 0 {
        return Ok(Some(Since { since_ns: from.i64()?, is_warming_up, is_sampled_early }));
    }
    if is_warming_up || is_sampled_early {
        return Err(from.refuse("older connections are being found, and since when it captures is not said"));
    }
    Ok(None)
}

fn read_bases(from: &mut Decoder<impl Read>) -> Result<Vec<TimeBase>> {
    let mut bases: Vec<TimeBase> = Vec::new();
    let items = Items { name: "time bases", most: TIME_BASES_MAX, item_size: BASE_SIZE };
    for _ in 0..from.items(items)? {
        let base = TimeBase { first_tick: from.u64()?, offset_ns: from.i128()? };
        if bases.last().is_some_and(|last| last.first_tick >= base.first_tick) {
            return Err(from.refuse("the time bases are not in order"));
        }
        bases.push(base);
    }
    Ok(bases)
}

pub(super) fn write_half_open(half_open: &HalfOpen, out: &mut Encoder<impl Write>) {
    let (words, family) = match &half_open.key {
        AnyKey::V4(key) => (key.words(), 0),
        AnyKey::V6(key) => (key.words(), IS_V6),
    };
    out.u8(family | if half_open.answered { IS_ANSWERED } else { 0 });
    out.u16(u16::try_from(half_open.since_tick.wrapping_sub(half_open.start_tick)).unwrap_or(u16::MAX));
    out.u32(half_open.short_isn);
    out.u64(half_open.start_tick);
    out.words(words);
}

fn read_half_open_counts(from: &mut Decoder<impl Read>, partition_count: usize, most: usize) -> Result<Vec<u32>> {
    let most = most.min(HALF_OPEN_MAX as usize);
    let mut counts = Vec::new();
    let mut all = 0;
    for _ in 0..partition_count {
        let count = from.u32()?;
        all += count as usize;
        if all > most {
            return Err(from.refuse(format!("it claims {all} half-open connections, and {most} are the most")));
        }
        counts.push(count);
    }
    Ok(counts)
}

/// Reads the half-open connections of a router in one partition, which are so many.
pub(super) fn read_half_open_of(
    from: &mut Decoder<impl Read>,
    count: u32,
    is_in_partition: impl Fn(&AnyKey) -> bool,
) -> Result<Vec<HalfOpen>> {
    if u64::from(count) * HALF_OPEN_SIZE_MIN as u64 > from.left() {
        return Err(from.refuse(format!("it claims {count} half-open connections, and {} bytes are left", from.left())));
    }
    // The vector grows with what is really there.
    let mut all = Vec::new();
    for _ in 0..count {
        let half_open = read_half_open(from)?;
        if !is_in_partition(&half_open.key) {
            return Err(from.refuse("a half-open connection of another partition"));
        }
        all.push(half_open);
    }
    Ok(all)
}

fn read_half_open(from: &mut Decoder<impl Read>) -> Result<HalfOpen> {
    let flags = from.flags(IS_V6 | IS_ANSWERED)?;
    let (delay, short_isn, start_tick) = (from.u16()?, from.u32()?, from.u64()?);
    let key = if flags & IS_V6 == 0 {
        AnyKey::V4(KeyV4::from_words(&words::<{ KeyV4::WORD_COUNT }>(from)?))
    } else {
        AnyKey::V6(KeyV6::from_words(&words::<{ KeyV6::WORD_COUNT }>(from)?))
    };
    // A ring could not hold it: more bits would run into its neighbours.
    if short_isn >> ISN_BITS != 0 {
        return Err(from.refuse("a half-open connection that no router has"));
    }
    let since_tick = start_tick.wrapping_add(u64::from(delay));
    Ok(HalfOpen { key, start_tick, since_tick, answered: flags & IS_ANSWERED != 0, short_isn })
}
