//! The list as exporters see it: a header and sorted rows.
//!
//! What enters: the lists of all partitions, and the connections that are half-open. What leaves: a [`List`], whose rows come in the
//! one order that makes equal lists equal bytes.

use crate::config::TICK_NS;
use crate::connection::HalfOpen;
use crate::flow::{FlowKey, KeyV4, KeyV6, VlanTags};
use crate::flow_list::PartitionList;
use crate::flow_list::in_order::InOrder;
use crate::flow_list::start::Start;
use crate::signal::{AnyKey, TimeBases};
use crate::snapshot::Marker;
use std::net::SocketAddr;

/// What a list says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The number of the list, from 1.
    pub interval: u64,
    /// When the interval began, in ns since 1970.
    pub start_ns: i64,
    /// When it ended: the list is what was open then.
    pub end_ns: i64,
    /// Whether every connection that is known to be open is listed, and none that has closed.
    pub complete: bool,
    /// Established connections listed.
    pub flows: u64,
    /// About how many differences between the list and the truth are known to exist; 0 exactly when complete.
    pub missing: u64,
    /// Connections established in the interval.
    pub opened: u64,
    /// Connections that ended in the interval.
    pub closed: u64,
    /// Half-open connections listed.
    pub half_open: u64,
    /// Connections that could not be tracked, in the interval.
    pub untracked: u64,
    /// Half-open connections that made room for newer ones, in the interval.
    pub recycled: u64,
    /// Connections taken off the list without having been seen to end, in the interval: idle for too long, or too old.
    pub evicted: u64,
    /// Packets that the capture lost in the interval.
    pub dropped: u64,
    /// Packets in the interval that should have been TCP and could not be read as such.
    pub unusable: u64,
    /// Listed connections that may have closed while nobody looked: see [`Row::unsettled`].
    pub unsettled: u64,
    /// Openings or closings that contradict the list and wait for their opposite.
    pub extraneous: u64,
    /// Intervals beside its own that this one covers, because the list of each could not be made in time.
    pub merged: u64,
    /// Connections that ended in the interval and did not get into the archive, because it did not keep up.
    pub unarchived: u64,
    /// Whether no list comes after this one.
    pub is_last: bool,
}

/// How far a listed connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowState {
    /// The handshake is complete and not both sides have closed.
    Established,
    /// The client's SYN was seen.
    SynSent,
    /// The server's answer was seen.
    SynRecv,
}

impl RowState {
    /// The name that lists use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RowState::Established => "established",
            RowState::SynSent => "syn_sent",
            RowState::SynRecv => "syn_recv",
        }
    }
}

/// One listed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The server's address and port.
    pub server: SocketAddr,
    /// The VLAN tags, where they are part of the key.
    pub vlan: VlanTags,
    /// When it started, in ns since 1970, to 100 ms.
    pub start_ns: i64,
    /// How long ago that was at the list's end, in ns, by the clock that never steps back.
    pub age_ns: i64,
    /// How far it has come.
    pub state: RowState,
    /// Whether it is older than the first packet seen of it: then `start_ns` is when that was, and the client is whoever has the
    /// higher port.
    pub midstream: bool,
    /// Whether it may have closed while nobody looked, because the process was down, and nothing was seen of it since.
    pub unsettled: bool,
}

/// A row before it is told in words: there may be a million of them, so all but the key is one word, whose order is that of its
/// parts: two bits for the state, the tick of the start, a bit that tells whether that was not seen, and one whether it is unsettled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed<K> {
    pub(super) key: K,
    rest: u64,
}

impl<K> Listed<K> {
    const STATE_SHIFT: u32 = u64::BITS - 2;
    const TICK_SHIFT: u32 = 2;
    const TICK_MASK: u64 = (1 << (Self::STATE_SHIFT - Self::TICK_SHIFT)) - 1;

    pub(super) fn new(key: K, state: RowState, start_tick: u64) -> Self {
        let rest = (state as u64) << Self::STATE_SHIFT | (start_tick & Self::TICK_MASK) << Self::TICK_SHIFT;
        Listed { key, rest }
    }

    /// An established connection.
    #[inline]
    pub(super) fn established(key: K, start: Start) -> Self {
        let listed = Listed::new(key, RowState::Established, start.tick());
        listed.midstream(start.is_midstream()).unsettled(start.is_unsettled())
    }

    /// The same, midstream or not.
    pub(super) fn midstream(self, is_midstream: bool) -> Self {
        Listed { rest: self.rest | u64::from(is_midstream) << 1, ..self }
    }

    /// The same, unsettled or not.
    pub(super) fn unsettled(self, is_unsettled: bool) -> Self {
        Listed { rest: self.rest | u64::from(is_unsettled), ..self }
    }

    pub(super) fn state(&self) -> RowState {
        match self.rest >> Self::STATE_SHIFT {
            0 => RowState::Established,
            1 => RowState::SynSent,
            _ => RowState::SynRecv,
        }
    }

    pub(super) fn start_tick(&self) -> u64 {
        self.rest >> Self::TICK_SHIFT & Self::TICK_MASK
    }

    pub(super) fn is_midstream(&self) -> bool {
        self.rest & 2 != 0
    }

    pub(super) fn is_unsettled(&self) -> bool {
        self.rest & 1 != 0
    }
}

const _: () = assert!(RowState::Established as u64 == 0 && RowState::SynSent as u64 == 1);
const _: () = assert!(size_of::<Listed<KeyV4>>() == 24 && size_of::<Listed<KeyV6>>() == 48);

/// The half-open connections of one list after another, in memory that is kept from one to the next.
#[derive(Default)]
pub(super) struct Rows {
    v4: Vec<Listed<KeyV4>>,
    v6: Vec<Listed<KeyV6>>,
}

impl Rows {
    /// Gathers and sorts what is half-open, each with the index of its partition. A connection that is listed twice (it may be,
    /// half-open, within one tick) counts once, established before half-open.
    pub(super) fn collect<H: Iterator<Item = (usize, HalfOpen)>>(
        &mut self,
        partitions: &[PartitionList],
        half_open: impl Fn() -> H,
        resumed_tick: Option<u64>,
    ) {
        self.v4.clear();
        self.v6.clear();
        let is_v4 = |half_open: HalfOpen| matches!(half_open.key, AnyKey::V4(_));
        let counts = half_open().fold(
            [0; 2],
            |[v6, v4], (_, half_open)| {
                if is_v4(half_open) { [v6, v4 + 1] } else { [v6 + 1, v4] }
            },
        );
        self.v6.reserve_exact(counts[0]);
        self.v4.reserve_exact(counts[1]);
        for (partition, half_open) in half_open() {
            let HalfOpen { key, start_tick, since_tick, answered, .. } = half_open;
            let Some(PartitionList { v4, v6, .. }) = partitions.get(partition) else { continue };
            let unsettled = resumed_tick.is_some_and(|resumed| since_tick < resumed);
            let state = if answered { RowState::SynRecv } else { RowState::SynSent };
            match key {
                AnyKey::V4(key) if !v4.listed().contains(&key) => {
                    self.v4.push(Listed::new(key, state, start_tick).unsettled(unsettled));
                }
                AnyKey::V6(key) if !v6.listed().contains(&key) => {
                    self.v6.push(Listed::new(key, state, start_tick).unsettled(unsettled));
                }
                AnyKey::V4(_) | AnyKey::V6(_) => {}
            }
        }
        sort(&mut self.v4);
        sort(&mut self.v6);
    }

    /// The list of these, and of what is established in these partitions.
    pub(super) fn list<'a>(
        &'a self,
        partitions: &'a [PartitionList],
        mut header: Header,
        marker: &Marker,
        bases: &'a TimeBases,
    ) -> List<'a> {
        let unsettled = self.v4.iter().map(Listed::is_unsettled).chain(self.v6.iter().map(Listed::is_unsettled));
        header.unsettled = unsettled.filter(|unsettled| *unsettled).count() as u64;
        header.half_open = (self.v4.len() + self.v6.len()) as u64;
        for PartitionList { v4, v6, .. } in partitions {
            header.flows += (v4.listed().len() + v6.listed().len()) as u64;
            header.unsettled += v4.unsettled_count() + v6.unsettled_count();
        }
        let times = ListTimes { bases, within_tick_ns: marker.within_tick_ns, end_tick: marker.end_tick };
        List { header, partitions, half_open: self, times }
    }
}

fn sort<K: FlowKey>(rows: &mut Vec<Listed<K>>) {
    rows.sort_unstable();
    rows.dedup_by_key(|row| row.key);
}

/// A finished list, for an exporter to write.
pub struct List<'a> {
    /// What the list says of itself.
    pub header: Header,
    partitions: &'a [PartitionList],
    half_open: &'a Rows,
    pub(super) times: ListTimes<'a>,
}

/// What turns the ticks of a list into its times.
#[derive(Clone, Copy)]
pub(super) struct ListTimes<'a> {
    pub(super) bases: &'a TimeBases,
    pub(super) within_tick_ns: i64,
    pub(super) end_tick: u64,
}

impl<'a> List<'a> {
    /// The connections by client address, client port, server address, server port, VLAN; IPv4 before IPv6.
    ///
    /// Complexity: that of sorting, in the memory of a sixteenth of the list, and some passes over all of it; each time.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let v4 = merged(self.established_v4(), self.half_open.v4.iter().copied());
        let v6 = merged(self.established_v6(), self.half_open.v6.iter().copied());
        v4.map(|listed| self.times.row(&listed)).chain(v6.map(|listed| self.times.row(&listed)))
    }

    /// The established connections, in no order.
    pub fn established(&self) -> impl Iterator<Item = Row> {
        let v4 = self.partitions.iter().flat_map(|partition| partition.v4.listed().iter());
        let v6 = self.partitions.iter().flat_map(|partition| partition.v6.listed().iter());
        let v4 = v4.map(|(key, start)| self.times.row(&Listed::established(key, start)));
        v4.chain(v6.map(|(key, start)| self.times.row(&Listed::established(key, start))))
    }

    /// How many connections are established: of IPv4,
    pub(super) fn established_count_v4(&self) -> usize {
        self.partitions.iter().map(|partition| partition.v4.listed().len()).sum()
    }

    /// and of IPv6.
    pub(super) fn established_count_v6(&self) -> usize {
        self.partitions.iter().map(|partition| partition.v6.listed().len()).sum()
    }

    pub(super) fn established_v4(&self) -> impl Iterator<Item = Listed<KeyV4>> + use<'a> {
        InOrder::new(self.partitions.iter().map(|partition| partition.v4.listed()))
    }

    pub(super) fn established_v6(&self) -> impl Iterator<Item = Listed<KeyV6>> + use<'a> {
        InOrder::new(self.partitions.iter().map(|partition| partition.v6.listed()))
    }
}

/// Both in the order of their keys, of which no two are the same.
fn merged<K: FlowKey>(
    established: impl Iterator<Item = Listed<K>>,
    half_open: impl Iterator<Item = Listed<K>>,
) -> impl Iterator<Item = Listed<K>> {
    let (mut established, mut half_open) = (established.peekable(), half_open.peekable());
    std::iter::from_fn(move || match (established.peek(), half_open.peek()) {
        (Some(one), Some(other)) if one.key > other.key => half_open.next(),
        (Some(_), _) => established.next(),
        (None, _) => half_open.next(),
    })
}

impl ListTimes<'_> {
    pub(super) fn row<K: FlowKey>(&self, listed: &Listed<K>) -> Row {
        // The end lies within its tick, so the age has the end's full resolution.
        let ticks = self.end_tick.saturating_sub(listed.start_tick());
        let age_ns =
            i64::try_from(ticks).unwrap_or(i64::MAX).saturating_mul(TICK_NS).saturating_add(self.within_tick_ns);
        Row {
            client: listed.key.first(),
            server: listed.key.second(),
            vlan: listed.key.vlan(),
            start_ns: self.bases.wall_ns(listed.start_tick()),
            age_ns,
            state: listed.state(),
            midstream: listed.is_midstream(),
            unsettled: listed.is_unsettled(),
        }
    }
}
