//! The list as exporters see it: a header and sorted rows.
//!
//! What enters: the lists of all partitions, and the half-open connections. What leaves: a [`List`], whose rows have
//! one fixed order, so that equal lists are equal bytes.

use crate::connection::HalfOpen;
use crate::flow::{FlowKey, KeyV4, KeyV6, VlanTags};
use crate::list::PartitionList;
use crate::list::in_order::InOrder;
use crate::list::start::Start;
use crate::signal::{PARTITION_COUNT, TICK_NS, TimeBases};
use crate::snapshot::file::Figures;
use std::net::SocketAddr;

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
    /// Whether no list comes after this one.
    pub is_last: bool,
}

/// The state of a listed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowState {
    /// The handshake is complete and not both sides have closed.
    Established,
    /// The client's SYN was seen, and no answer to it.
    SynSent,
    /// The server's SYN-ACK was seen, and the handshake is not complete.
    SynRecv,
}

impl RowState {
    /// The state of a half-open connection, by whether the server's answer was seen.
    #[must_use]
    pub fn of_half_open(is_answered: bool) -> Self {
        if is_answered { RowState::SynRecv } else { RowState::SynSent }
    }

    /// The name of the state in lists.
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
    /// When the connection started, in ns since 1970, to 100 ms.
    pub start_ns: i64,
    /// The time from its start to the list's end in ns, by the clock that never steps back.
    pub age_ns: i64,
    /// The state of the connection.
    pub state: RowState,
    /// Whether its handshake was not seen. Then `start_ns` is the time of its first packet seen, and the client is the
    /// end with the higher port.
    pub midstream: bool,
    /// Whether it may have closed unseen while the process was down: no packet of it was seen since.
    pub unsettled: bool,
}

/// A row in compact form, since there may be a million of them. All but the key is one word, which orders as its parts
/// do: two bits for the state, the tick of the start, a bit for midstream and one for unsettled.
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

    /// A half-open connection. It is unsettled if it is older than the tick at which the run went on.
    #[inline]
    fn half_open(half_open: HalfOpen<K>, resumed_tick: Option<u64>) -> Self {
        let HalfOpen { key, start_tick, since_tick, answered, .. } = half_open;
        Listed::new(key, RowState::of_half_open(answered), start_tick)
            .unsettled(resumed_tick.is_some_and(|resumed| since_tick < resumed))
    }

    /// This row, marked as midstream or not.
    pub(super) fn midstream(self, is_midstream: bool) -> Self {
        Listed { rest: self.rest | u64::from(is_midstream) << 1, ..self }
    }

    /// This row, marked as unsettled or not.
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

/// A finished list, for an exporter to write.
pub struct List<'a> {
    /// What the list says of itself.
    pub header: Header,
    partitions: &'a [PartitionList],
    pub(super) times: ListTimes<'a>,
    /// The tick at which this run went on after one that had ended, if packets passed unseen in between.
    resumed_tick: Option<u64>,
}

/// What turns the ticks of a list into its times.
#[derive(Clone, Copy)]
pub(super) struct ListTimes<'a> {
    pub(super) bases: &'a TimeBases,
    pub(super) within_tick_ns: i64,
    pub(super) end_tick: u64,
}

impl<'a> List<'a> {
    /// The list of the established and half-open connections of these partitions. Their numbers are added to the
    /// header.
    pub(super) fn new(
        partitions: &'a [PartitionList],
        mut header: Header,
        times: ListTimes<'a>,
        resumed_tick: Option<u64>,
    ) -> Self {
        for PartitionList { v4, v6, half_open, .. } in partitions {
            header.flows += (v4.listed().len() + v6.listed().len()) as u64;
            header.half_open += half_open.as_ref().map_or(0, |list| list.len()) as u64;
            header.unsettled += v4.unsettled_count() + v6.unsettled_count();
        }
        let mut list = List { header, partitions, times, resumed_tick };
        if resumed_tick.is_some() {
            let unsettled_v4 = list.half_open::<KeyV4>().filter(Listed::is_unsettled).count();
            let unsettled_v6 = list.half_open::<KeyV6>().filter(Listed::is_unsettled).count();
            list.header.unsettled += (unsettled_v4 + unsettled_v6) as u64;
        }
        list
    }

    /// The rows, ordered by client address, client port, server address, server port and VLAN; IPv4 before IPv6.
    ///
    /// Complexity: each call sorts the list, in about a sixteenth of its memory and some passes over all of it.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let v4 = in_key_order(self.established_v4(), self.half_open());
        let v6 = in_key_order(self.established_v6(), self.half_open());
        v4.map(|listed| self.times.row(&listed)).chain(v6.map(|listed| self.times.row(&listed)))
    }

    /// The established connections, in no order.
    pub fn established(&self) -> impl Iterator<Item = Row> {
        let v4 = self.partitions.iter().flat_map(|partition| partition.v4.listed().iter());
        let v6 = self.partitions.iter().flat_map(|partition| partition.v6.listed().iter());
        let v4 = v4.map(|(key, start)| self.times.row(&Listed::established(key, start)));
        v4.chain(v6.map(|(key, start)| self.times.row(&Listed::established(key, start))))
    }

    /// The number of established IPv4 connections.
    pub(super) fn established_count_v4(&self) -> usize {
        self.partitions.iter().map(|partition| partition.v4.listed().len()).sum()
    }

    /// The number of established IPv6 connections.
    pub(super) fn established_count_v6(&self) -> usize {
        self.partitions.iter().map(|partition| partition.v6.listed().len()).sum()
    }

    pub(super) fn established_v4(&self) -> impl Iterator<Item = Listed<KeyV4>> + use<'a> {
        InOrder::new(self.partitions.iter().map(|partition| partition.v4.listed()))
    }

    pub(super) fn established_v6(&self) -> impl Iterator<Item = Listed<KeyV6>> + use<'a> {
        InOrder::new(self.partitions.iter().map(|partition| partition.v6.listed()))
    }

    /// The half-open connections of one family, in the order of their keys.
    fn half_open<K: FlowKey>(&self) -> impl Iterator<Item = Listed<K>> + use<'a, K> {
        let (partitions, end_tick, resumed_tick) = (self.partitions, self.times.end_tick, self.resumed_tick);
        let one = |index: usize| {
            let list = partitions.get(index).and_then(|partition| partition.half_open.as_deref());
            let all = list.into_iter().flat_map(move |list| list.of_family(end_tick));
            all.map(move |one| Listed::half_open(one, resumed_tick))
        };
        const _: () = assert!(PARTITION_COUNT == 8, "as many as are put in order here");
        let two = |index| in_key_order(one(index), one(index + 1));
        let four = |index| in_key_order(two(index), two(index + 2));
        in_key_order(four(0), four(4))
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

impl ListTimes<'_> {
    pub(super) fn row<K: FlowKey>(&self, listed: &Listed<K>) -> Row {
        // The end is known within its tick, so the age has the end's full resolution.
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
