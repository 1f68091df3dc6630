//! One listed connection: as exporters see it, and in the compact form in which a list has a million of them.

use crate::flow::{FlowKey, KeyV4, KeyV6, VlanTags};
use crate::handover::{HalfOpen, SidesSeen};
use crate::list::start::Start;
use crate::list::translations::Nat;
use crate::signal::{TICK_NS, TimeBases};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The state of a listed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// The other name of a connection that is translated, if that is known.
    pub nat: Option<Nat>,
    /// Whether it may have started earlier: `start_ns` is then the latest that it can have been.
    pub start_is_bound: bool,
    /// The sides of an established connection that were seen.
    pub sides: SidesSeen,
}

impl Row {
    /// An established connection between this client and this server, of which nothing else is known.
    #[must_use]
    pub fn between([client, server]: [SocketAddr; 2]) -> Self {
        Row {
            client,
            server,
            vlan: VlanTags::NONE,
            start_ns: 0,
            age_ns: 0,
            state: RowState::Established,
            midstream: false,
            unsettled: false,
            nat: None,
            start_is_bound: false,
            sides: SidesSeen::Both,
        }
    }
}

/// A row in compact form, since there may be a million of them. All but the key is one word, which orders as its parts
/// do: two bits for the state, the tick of the start, two bits for the sides that were seen, a bit for a start that is
/// a bound, one for midstream and one for unsettled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed<K> {
    pub(super) key: K,
    rest: u64,
}

impl<K> Listed<K> {
    const STATE_SHIFT: u32 = u64::BITS - 2;
    const SIDES_SHIFT: u32 = 3;
    const TICK_SHIFT: u32 = Self::SIDES_SHIFT + 2;
    const TICK_MASK: u64 = (1 << (Self::STATE_SHIFT - Self::TICK_SHIFT)) - 1;

    pub(super) fn new(key: K, state: RowState, start_tick: u64) -> Self {
        let rest = (state as u64) << Self::STATE_SHIFT | (start_tick & Self::TICK_MASK) << Self::TICK_SHIFT;
        Listed { key, rest }
    }

    /// An established connection.
    #[inline]
    pub(super) fn established(key: K, start: Start) -> Self {
        let listed = Listed::new(key, RowState::Established, start.tick());
        let listed = listed.midstream(start.is_midstream()).unsettled(start.is_unsettled()).bound(start.is_bound());
        Listed { rest: listed.rest | (start.sides() as u64) << Self::SIDES_SHIFT, ..listed }
    }

    /// A half-open connection. It is unsettled if it is older than the tick at which the run was resumed.
    #[inline]
    pub(super) fn half_open(half_open: HalfOpen<K>, resumed_tick: Option<u64>) -> Self {
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

    /// This row, with its start marked as a bound or not.
    pub(super) fn bound(self, is_bound: bool) -> Self {
        Listed { rest: self.rest | u64::from(is_bound) << 2, ..self }
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

    pub(super) fn is_bound(&self) -> bool {
        self.rest & 4 != 0
    }

    pub(super) fn is_unsettled(&self) -> bool {
        self.rest & 1 != 0
    }

    pub(super) fn sides(&self) -> SidesSeen {
        SidesSeen::of_bits(self.rest >> Self::SIDES_SHIFT)
    }
}

const _: () = assert!(RowState::Established as u64 == 0 && RowState::SynSent as u64 == 1);
const _: () = assert!(size_of::<Listed<KeyV4>>() == 24 && size_of::<Listed<KeyV6>>() == 48);

/// The times of a list: what its ticks are by the clock, and where it ends.
#[derive(Clone, Copy)]
pub(super) struct ListTimes<'a> {
    pub(super) bases: &'a TimeBases,
    pub(super) within_tick_ns: i64,
    pub(super) end_tick: u64,
    /// The tick at which this run continued one that had ended, if packets passed unseen in between.
    pub(super) resumed_tick: Option<u64>,
}

impl ListTimes<'_> {
    pub(super) fn row<K: FlowKey>(&self, listed: &Listed<K>) -> Row {
        // The end is known within its tick, so the age has the end's full resolution.
        let age_ns = self.span_ns(listed.start_tick(), self.end_tick).saturating_add(self.within_tick_ns);
        Row {
            client: listed.key.first(),
            server: listed.key.second(),
            vlan: listed.key.vlan(),
            start_ns: self.bases.wall_ns(listed.start_tick()),
            age_ns,
            state: listed.state(),
            midstream: listed.is_midstream(),
            unsettled: listed.is_unsettled(),
            nat: None,
            start_is_bound: listed.is_bound(),
            sides: listed.sides(),
        }
    }

    /// The time between two ticks, by the clock that never steps back.
    pub(super) fn span_ns(&self, start_tick: u64, end_tick: u64) -> i64 {
        i64::try_from(end_tick.saturating_sub(start_tick)).unwrap_or(i64::MAX).saturating_mul(TICK_NS)
    }
}
