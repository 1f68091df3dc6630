//! The kernel's connection tracking (conntrack), as ctnetlink shows it: its table, and what changes in it.

use crate::error::{Error, Result};
use crate::flow::{AnyKey, VlanTags};
use crate::kernel::netlink::NetlinkSocket;
use crate::signal::SidesEnded;
use netlink_packet_core::NetlinkHeader;
use netlink_packet_netfilter::conntrack::{
    ConntrackAttribute, ConntrackMessage, IPTuple, ProtoInfo, ProtoInfoTCP, ProtoTuple, Protocol, Status, Tuple,
};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::protocols::NETLINK_NETFILTER;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// The groups of changes and of ends. What is new is in neither: it is answered before it counts, and an answer is a
/// change, so that a flood without answers costs nothing.
const GROUP_UPDATE: u32 = 2;
const GROUP_DESTROY: u32 = 3;

/// What the kernel keeps for us while we do not read, in bytes: some ten thousand changes.
const EVENTS_SIZE: usize = 8 << 20;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The handshake is not complete.
    HalfOpen,
    /// It is, and not both sides have ended.
    Open,
    /// Both sides have ended, or one has reset it.
    Ended,
}

/// A TCP connection as the kernel tracks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// Its name as the client has it, client first.
    pub original: AnyKey,
    /// Its name as the server has it, client first: another one if it is translated.
    pub translated: AnyKey,
    /// How far it has come; `None` where a change says nothing of it.
    pub stage: Option<Stage>,
    /// The sides that have sent a FIN, of one that is open.
    pub ended: SidesEnded,
    /// Whether packets of both directions were seen.
    pub is_answered: bool,
}

impl Tracked {
    /// Whether it has two names.
    #[must_use]
    pub fn is_translated(&self) -> bool {
        self.original != self.translated
    }

    /// Whether it is open, with packets of both directions.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.stage == Some(Stage::Open) && self.is_answered
    }

    /// What a message says, if it is about a TCP connection.
    fn of(attributes: &[ConntrackAttribute]) -> Option<Self> {
        let (mut original, mut reply, mut stage) = (None, None, None);
        let (mut ended, mut is_answered) = (SidesEnded::default(), false);
        for attribute in attributes {
            match attribute {
                ConntrackAttribute::CtaTupleOrig(tuple) => original = ends(tuple),
                ConntrackAttribute::CtaTupleReply(tuple) => reply = ends(tuple),
                ConntrackAttribute::CtaStatus(status) => is_answered = status.contains(Status::SeenReply),
                ConntrackAttribute::CtaProtoInfo(infos) => {
                    for info in infos {
                        if let ProtoInfo::TCP(info) = info {
                            (stage, ended) = progress(info);
                        }
                    }
                }
                _ => {}
            }
        }
        let ((client, server), (replies_from, replies_to)) = (original?, reply?);
        let original = AnyKey::of_ends(client, server, VlanTags::NONE)?;
        let translated = AnyKey::of_ends(replies_to, replies_from, VlanTags::NONE)?;
        Some(Tracked { original, translated, stage, ended, is_answered })
    }
}

/// The source and the destination of a tuple, if it is of TCP.
fn ends(tuple: &[Tuple]) -> Option<(SocketAddr, SocketAddr)> {
    let (mut addresses, mut ports): ([Option<IpAddr>; 2], [Option<u16>; 2]) = Default::default();
    let mut is_tcp = false;
    for part in tuple {
        match part {
            Tuple::Ip(parts) => {
                for part in parts {
                    match part {
                        IPTuple::SourceAddress(address) => addresses[0] = Some(*address),
                        IPTuple::DestinationAddress(address) => addresses[1] = Some(*address),
                        _ => {}
                    }
                }
            }
            Tuple::Proto(parts) => {
                for part in parts {
                    match part {
                        ProtoTuple::Protocol(protocol) => is_tcp = *protocol == Protocol::Tcp,
                        ProtoTuple::SourcePort(port) => ports[0] = Some(*port),
                        ProtoTuple::DestinationPort(port) => ports[1] = Some(*port),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let end = |at: usize| Some(SocketAddr::new(addresses[at]?, ports[at]?));
    if is_tcp { Some((end(0)?, end(1)?)) } else { None }
}

/// How far a connection has come, and which sides have ended.
fn progress(info: &[ProtoInfoTCP]) -> (Option<Stage>, SidesEnded) {
    /// Set for the side that has sent the first FIN.
    const CLOSE_INIT: u8 = 4;
    let (mut stage, mut is_half_closed) = (None, false);
    let mut first = SidesEnded::default();
    for info in info {
        match info {
            // As the kernel numbers them: none, SYN sent, SYN received, established, a FIN, its acknowledgement, both
            // FINs, their acknowledgement, reset, and SYNs of both sides.
            ProtoInfoTCP::State(state) => {
                is_half_closed = matches!(state, 4 | 5);
                stage = match state {
                    1 | 2 | 9 => Some(Stage::HalfOpen),
                    3..=5 => Some(Stage::Open),
                    6..=8 => Some(Stage::Ended),
                    _ => None,
                };
            }
            ProtoInfoTCP::OriginalFlags(flags) => first.client = flags.flags & CLOSE_INIT != 0,
            ProtoInfoTCP::ReplyFlags(flags) => first.server = flags.flags & CLOSE_INIT != 0,
            _ => {}
        }
    }
    // The flag of a side stays from a connection before between the same ends.
    let is_one = first.client != first.server;
    (stage, if is_half_closed && is_one { first } else { SidesEnded::default() })
}

/// A change of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something of this connection is new.
    Updated(Tracked),
    /// It is in the table no longer.
    Removed(Tracked),
}

fn message(message: NetfilterMessage) -> Option<Change> {
    let NetfilterMessageInner::Conntrack(message) = message.inner else { return None };
    match message {
        ConntrackMessage::New(attributes) => Tracked::of(&attributes).map(Change::Updated),
        ConntrackMessage::Delete(attributes) => Tracked::of(&attributes).map(Change::Removed),
        _ => None,
    }
}

/// Access to the table.
pub struct Table {
    socket: NetlinkSocket,
}

impl Table {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// The system has no netlink socket to spare.
    pub fn open() -> Result<Self> {
        let socket = NetlinkSocket::open(NETLINK_NETFILTER).map_err(|error| cannot("open", error))?;
        Ok(Table { socket })
    }

    /// Calls `each` with every TCP connection of the table.
    ///
    /// # Errors
    ///
    /// The privilege is missing, or the kernel has no connection tracking.
    pub fn read(&mut self, mut each: impl FnMut(Tracked)) -> Result<()> {
        let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, 0);
        let request = NetfilterMessage::new(header, ConntrackMessage::Get(Vec::new()));
        let each = |_: &NetlinkHeader, answer| {
            if let Some(Change::Updated(tracked)) = message(answer) {
                each(tracked);
            }
        };
        self.socket.dump(request, each).map_err(|error| cannot("read", error))
    }
}

/// The changes of the table.
pub struct Changes {
    socket: NetlinkSocket,
}

/// Whether all changes were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// They were.
    All,
    /// Some were lost: the table has to be read again.
    NotAll,
}

impl Changes {
    /// Subscribes to them.
    ///
    /// # Errors
    ///
    /// The privilege is missing, or the kernel has no connection tracking.
    pub fn subscribe() -> Result<Self> {
        let mut socket = NetlinkSocket::open(NETLINK_NETFILTER).map_err(|error| cannot("open", error))?;
        let subscribed = socket.subscribe(&[GROUP_UPDATE, GROUP_DESTROY], EVENTS_SIZE);
        subscribed.map_err(|error| cannot("follow", error))?;
        Ok(Changes { socket })
    }

    /// Calls `each` with every change that has come.
    ///
    /// # Errors
    ///
    /// The socket has failed for good.
    pub fn receive(&mut self, mut each: impl FnMut(Change)) -> Result<Received> {
        let each = |_: &NetlinkHeader, sent| message(sent).into_iter().for_each(&mut each);
        match self.socket.receive(each) {
            Ok(()) => Ok(Received::All),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(Received::NotAll),
            Err(error) => Err(cannot("follow", error)),
        }
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn cannot(what: &str, error: io::Error) -> Error {
    let what = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => format!(
            "cannot {what} the kernel's table of connections without CAP_NET_ADMIN: run it as root, or give the program \
             that capability as well: sudo setcap cap_net_raw,cap_net_admin+ep"
        ),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT) => {
            format!("cannot {what} the kernel's table of connections: is nf_conntrack_netlink loaded?")
        }
        _ => format!("cannot {what} the kernel's table of connections"),
    };
    Error::new(what).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(source: &str, destination: &str, protocol: Protocol) -> Vec<Tuple> {
        let (source, destination): (SocketAddr, SocketAddr) = (source.parse().unwrap(), destination.parse().unwrap());
        vec![
            Tuple::Ip(vec![IPTuple::SourceAddress(source.ip()), IPTuple::DestinationAddress(destination.ip())]),
            Tuple::Proto(vec![
                ProtoTuple::Protocol(protocol),
                ProtoTuple::SourcePort(source.port()),
                ProtoTuple::DestinationPort(destination.port()),
            ]),
        ]
    }

    fn attributes(protocol: Protocol, state: u8) -> Vec<ConntrackAttribute> {
        vec![
            ConntrackAttribute::CtaTupleOrig(tuple("10.0.0.1:5", "192.0.2.1:443", protocol)),
            ConntrackAttribute::CtaTupleReply(tuple("192.0.2.1:443", "198.51.100.1:6", protocol)),
            ConntrackAttribute::CtaStatus(Status::SeenReply | Status::SrcNat),
            ConntrackAttribute::CtaProtoInfo(vec![ProtoInfo::TCP(vec![ProtoInfoTCP::State(state)])]),
        ]
    }

    #[test]
    fn both_names_have_the_client_first() {
        let tracked = Tracked::of(&attributes(Protocol::Tcp, 3)).unwrap();
        let key = |client: &str| {
            AnyKey::of_ends(client.parse().unwrap(), "192.0.2.1:443".parse().unwrap(), VlanTags::NONE).unwrap()
        };
        assert_eq!((tracked.original, tracked.translated), (key("10.0.0.1:5"), key("198.51.100.1:6")));
        assert!(tracked.is_translated() && tracked.is_open());
        assert_eq!(Tracked::of(&attributes(Protocol::Udp, 3)), None);
        assert_eq!(Tracked::of(&attributes(Protocol::Tcp, 3)[..1]), None, "one name is not enough");
    }

    #[test]
    fn a_connection_is_open_until_both_sides_have_ended() {
        let stages: Vec<_> =
            (0..=10).map(|state| Tracked::of(&attributes(Protocol::Tcp, state)).unwrap().stage).collect();
        let (half_open, open, ended) = (Some(Stage::HalfOpen), Some(Stage::Open), Some(Stage::Ended));
        assert_eq!(stages, [None, half_open, half_open, open, open, open, ended, ended, ended, half_open, None]);
    }
}
