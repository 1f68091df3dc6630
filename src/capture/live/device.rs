//! The current state of an interface: its index, whether it is up, and what its packets begin with.
//!
//! It is queried from the kernel by name, at each time anew.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::socket_options::{InterfaceQuery, query};
use crate::parse::LinkType;

/// The header that an interface's packets begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceKind {
    /// An Ethernet header.
    Ethernet,
    /// An IP header: tunnels and point-to-point links.
    Ip,
}

impl DeviceKind {
    /// The kind of this hardware type (ARPHRD_), if flowpeel can read it.
    pub(super) fn of_hardware(hardware: u16) -> Option<Self> {
        match hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(DeviceKind::Ethernet),
            libc::ARPHRD_NONE
            | ARPHRD_RAWIP
            | libc::ARPHRD_PPP
            | libc::ARPHRD_TUNNEL
            | libc::ARPHRD_TUNNEL6
            | libc::ARPHRD_SIT
            | libc::ARPHRD_IPGRE
            | ARPHRD_IP6GRE => Some(DeviceKind::Ip),
            _ => None,
        }
    }

    /// The link type of the packets.
    pub(super) fn link(self) -> LinkType {
        match self {
            DeviceKind::Ethernet => LinkType::ETHERNET,
            DeviceKind::Ip => LinkType::RAW,
        }
    }
}

const ARPHRD_RAWIP: u16 = 519;
const ARPHRD_IP6GRE: u16 = 823;

/// An interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// The index: a later interface of the same name has another.
    pub(super) index: i32,
    /// Whether the interface is up.
    pub(super) is_up: bool,
    /// The hardware type (ARPHRD_).
    pub(super) hardware: u16,
}

/// A socket that can query about interfaces. Any can; this one needs no privilege.
pub(super) fn query_socket() -> io::Result<OwnedFd> {
    let open = |family| socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    Ok(open(AddressFamily::INET).or_else(|_| open(AddressFamily::UNIX))?)
}

impl Device {
    /// The interface of this name, or `None` if there is none. Any socket will do for the question.
    pub(super) fn find(fd: BorrowedFd<'_>, name: &str) -> io::Result<Option<Self>> {
        let query = |question| match query(fd, name, question) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => Ok(None),
            Err(error) => Err(error),
        };
        let (Some(index), Some(flags), Some(hardware)) =
            (query(InterfaceQuery::Index)?, query(InterfaceQuery::Flags)?, query(InterfaceQuery::HardwareType)?)
        else {
            return Ok(None);
        };
        let is_up = flags & libc::IFF_UP as u32 != 0;
        Ok(Some(Device { index: index as i32, is_up, hardware: hardware as u16 }))
    }

    /// The largest packet that an interface carries, in bytes.
    pub(super) fn mtu(fd: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
        query(fd, name, InterfaceQuery::Mtu)
    }
}

/// Whether interfaces of this hardware type have addresses of six bytes, as Ethernet does.
pub(super) fn has_mac(hardware: u16) -> bool {
    matches!(
        hardware,
        libc::ARPHRD_ETHER
            | libc::ARPHRD_LOOPBACK
            | libc::ARPHRD_IEEE802
            | libc::ARPHRD_FDDI
            | libc::ARPHRD_IEEE80211
            | libc::ARPHRD_IEEE80211_PRISM
            | libc::ARPHRD_IEEE80211_RADIOTAP
    )
}

/// The names for people of hardware types that cannot be read.
pub(super) fn hardware_name(hardware: u16) -> &'static str {
    match hardware {
        libc::ARPHRD_AX25 => "AX.25",
        libc::ARPHRD_IEEE802 => "Token Ring",
        libc::ARPHRD_SLIP => "SLIP",
        280 => "CAN",
        libc::ARPHRD_INFINIBAND => "InfiniBand",
        libc::ARPHRD_IEEE80211 => "IEEE 802.11",
        libc::ARPHRD_IEEE80211_PRISM => "IEEE 802.11 with Prism header",
        libc::ARPHRD_IEEE80211_RADIOTAP => "IEEE 802.11 with radiotap header",
        libc::ARPHRD_FDDI => "FDDI",
        libc::ARPHRD_IEEE802154 => "IEEE 802.15.4",
        824 => "netlink",
        825 => "6LoWPAN",
        826 => "vsock monitor",
        libc::ARPHRD_HDLC => "Cisco HDLC",
        libc::ARPHRD_FRAD => "Frame Relay",
        _ => "unknown",
    }
}
