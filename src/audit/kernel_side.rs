//! What the kernel has open, and how what it has no longer has ended.

use crate::audit::comparison::{KernelSays, KernelTable};
use crate::capture::live::wall_ns;
use crate::error::{Error, Result};
use crate::flow::{AnyKey, VlanTags};
use crate::kernel::{Change, Changes, Received, Routes, Stage, Table, Tracked, sockets};
use std::collections::HashMap;
use std::fs;

/// For how many lists it is remembered how a connection ended.
const ENDS_LISTS: u64 = 4;

/// What lists are held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The table of connections that a router tracks.
    Conntrack,
    /// The sockets of the host.
    Sockets,
}

impl Against {
    /// What suits this host: the table of one that forwards packets, the sockets of another.
    #[must_use]
    pub fn of_host() -> Self {
        let forwards = |path: &str| fs::read_to_string(path).is_ok_and(|value| value.trim() != "0");
        let is_router = forwards("/proc/sys/net/ipv4/ip_forward") || forwards("/proc/sys/net/ipv6/conf/all/forwarding");
        if is_router { Against::Conntrack } else { Against::Sockets }
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Against::Conntrack => "conntrack",
            Against::Sockets => "sockets",
        }
    }
}

/// How a connection ended, and in the time of which list.
struct End {
    says: KernelSays,
    list: u64,
}

/// The kernel, as it is asked for each list.
pub(super) struct KernelSide {
    source: Source,
    routes: Routes,
    /// How connections ended, under each of their names.
    ends: HashMap<AnyKey, End>,
    list: u64,
    has_lost_changes: bool,
}

enum Source {
    Conntrack { table: Table, changes: Changes },
    Sockets,
}

impl KernelSide {
    /// Begins to follow how connections through these interfaces end.
    pub(super) fn open(against: Against, interfaces: &[String]) -> Result<Self> {
        let cannot = |error| Error::new("cannot ask the kernel for routes").because(error);
        let routes = Routes::through(interfaces, false).map_err(cannot)?;
        let source = match against {
            Against::Conntrack => Source::Conntrack { table: Table::open()?, changes: Changes::subscribe()? },
            Against::Sockets => Source::Sockets,
        };
        Ok(KernelSide { source, routes, ends: HashMap::new(), list: 0, has_lost_changes: false })
    }

    /// Takes in how connections have ended; to be called often, since the time of the call counts as that of the end.
    pub(super) fn follow(&mut self) -> Result<()> {
        let KernelSide { source, ends, list, has_lost_changes, .. } = self;
        let Source::Conntrack { changes, .. } = source else { return Ok(()) };
        let now_ns = wall_ns();
        let received = changes.receive(|change| {
            let (tracked, says) = match change {
                Change::Updated(tracked) if tracked.stage == Some(Stage::Ended) => (tracked, KernelSays::Ended(now_ns)),
                Change::Removed(tracked) if tracked.stage == Some(Stage::Open) => (tracked, KernelSays::GivenUp),
                _ => return,
            };
            for name in [tracked.original, tracked.translated] {
                ends.insert(name.canonical(), End { says, list: *list });
            }
        })?;
        *has_lost_changes |= received == Received::NotAll;
        Ok(())
    }

    /// Whether lists begin with what the kernel had open at the start.
    pub(super) fn knows_older(&self) -> bool {
        matches!(self.source, Source::Conntrack { .. })
    }

    /// What is open now through the interfaces.
    pub(super) fn read(&mut self) -> Result<KernelTable> {
        self.follow()?;
        self.list += 1;
        let (list, mut kernel) = (self.list, KernelTable::default());
        self.ends.retain(|_, end| list.saturating_sub(end.list) <= ENDS_LISTS);
        let now_ns = wall_ns();
        let KernelSide { source, routes, ends, .. } = self;
        match source {
            Source::Conntrack { table, .. } => table.read(|tracked| {
                if !goes_through(routes, &tracked) {
                    return;
                }
                record_end(ends, &tracked, now_ns, list);
                if tracked.is_open() {
                    kernel.put(tracked.original, tracked.translated);
                } else if tracked.stage == Some(Stage::HalfOpen) {
                    ends.insert(tracked.original.canonical(), End { says: KernelSays::HalfOpen, list });
                }
            })?,
            Source::Sockets => sockets(|socket| {
                let Some(key) = AnyKey::of_ends(socket.local, socket.remote, VlanTags::NONE) else { return };
                let is_inside = routes.is_here(socket.remote.ip());
                let is_captured =
                    if is_inside { routes.is_loopback_captured() } else { routes.is_captured(socket.remote.ip()) };
                // Of a connection inside the host both ends are sockets: it is open while both are.
                if is_captured && socket.stage == Stage::Open && !kernel.has(&key) {
                    kernel.put(key, key);
                }
                if socket.is_waiting && socket.stage == Stage::Open {
                    // Such a socket is given up when the other side stays silent.
                    ends.insert(key.canonical(), End { says: KernelSays::GivenUp, list });
                } else if socket.stage == Stage::Open {
                    ends.insert(key.canonical(), End { says: KernelSays::Ended(wall_ns()), list });
                }
            })?,
        }
        self.follow()?;
        kernel.has_lost_changes = std::mem::take(&mut self.has_lost_changes);
        kernel.read_ns = wall_ns();
        Ok(kernel)
    }

    /// Records which connections have ended, of those that were there before anybody followed: the kernel may not say
    /// when these end, since it prepares to say so only while somebody listens. For some seconds they are in the table
    /// as ended.
    pub(super) fn record_ends(&mut self) -> Result<()> {
        let KernelSide { source, ends, list, .. } = self;
        let Source::Conntrack { table, .. } = source else { return Ok(()) };
        let (now_ns, list) = (wall_ns(), *list);
        table.read(|tracked| record_end(ends, &tracked, now_ns, list))
    }

    /// What the kernel says of a connection that it does not have open.
    pub(super) fn says(&self, canonical: &AnyKey) -> KernelSays {
        self.ends.get(canonical).map_or(KernelSays::Nothing, |end| end.says)
    }
}

/// Records that a connection is in the table as ended, unless it is known when it did.
fn record_end(ends: &mut HashMap<AnyKey, End>, tracked: &Tracked, now_ns: i64, list: u64) {
    if tracked.stage == Some(Stage::Ended) {
        for name in [tracked.original, tracked.translated] {
            ends.entry(name.canonical()).or_insert(End { says: KernelSays::Ended(now_ns), list });
        }
    }
}

/// Whether a connection goes through a captured interface.
fn goes_through(routes: &mut Routes, tracked: &Tracked) -> bool {
    let (client, server) = (tracked.original.client().ip(), tracked.translated.server().ip());
    routes.is_captured(client)
        || routes.is_captured(server)
        || routes.is_here(client) && routes.is_here(server) && routes.is_loopback_captured()
}
