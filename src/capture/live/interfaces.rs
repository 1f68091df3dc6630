//! The interfaces of this machine, with what matters for capturing them.
//!
//! What enters: nothing. What leaves: name, index, state, link type and addresses of every interface. Names can hold
//! anything but a slash and white space: escape them before they are printed.

use std::net::IpAddr;

use crate::error::Result;
use crate::parse::LinkType;

/// The link type of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceLink {
    /// A link type that can be captured.
    Supported(LinkType),
    /// Hardware that cannot be captured: its name, and its number among Linux's ARPHRD_ values.
    Unsupported(&'static str, u16),
    /// Unknown until the interface is opened.
    Unknown,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name, to be escaped before it is printed.
    pub name: String,
    /// The index.
    pub index: u32,
    /// Whether the interface is up.
    pub is_up: bool,
    /// The link type.
    pub link: InterfaceLink,
    /// The hardware address, if it has six bytes that are not all zero.
    pub mac: Option<[u8; 6]>,
    /// The IP addresses, each with the length of its prefix in bits.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The largest packet that the interface carries, in bytes.
    pub mtu: Option<u32>,
}

/// Lists the interfaces, by index.
///
/// # Errors
///
/// The system does not list its interfaces.
pub fn interfaces() -> Result<Vec<Interface>> {
    let mut interfaces = system::list()?;
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

#[cfg(target_os = "linux")]
mod system {
    use std::collections::BTreeMap;
    use std::io;
    use std::net::IpAddr;
    use std::os::fd::{AsFd, BorrowedFd};

    use nix::ifaddrs::{InterfaceAddress, getifaddrs};

    use super::super::device::{Device, Kind, asker, hardware_name};
    use super::{Interface, InterfaceLink};
    use crate::error::{Error, Result};

    pub(super) fn list() -> Result<Vec<Interface>> {
        let cannot = |error: io::Error| Error::new("cannot list the interfaces").because(error);
        let asker = asker().map_err(cannot)?;
        let mut interfaces: BTreeMap<String, Interface> = BTreeMap::new();
        for entry in getifaddrs().map_err(|errno| cannot(errno.into()))? {
            // An address may be on an alias, which shares the interface's queue of packets.
            let name = entry.interface_name.split(':').next().unwrap_or_default();
            if !interfaces.contains_key(name) {
                let Some(interface) = describe(asker.as_fd(), name).map_err(cannot)? else {
                    continue;
                };
                interfaces.insert(name.to_owned(), interface);
            }
            if let Some(interface) = interfaces.get_mut(name) {
                add(interface, &entry);
            }
        }
        Ok(interfaces.into_values().collect())
    }

    /// An interface without its addresses; `None` if it has vanished meanwhile.
    fn describe(asker: BorrowedFd<'_>, name: &str) -> io::Result<Option<Interface>> {
        let Some(device) = Device::find(asker, name)? else {
            return Ok(None);
        };
        let hardware = device.hardware;
        let unsupported = InterfaceLink::Unsupported(hardware_name(hardware), hardware);
        Ok(Some(Interface {
            name: name.to_owned(),
            index: device.index as u32,
            is_up: device.is_up,
            link: Kind::of_hardware(hardware).map_or(unsupported, |kind| InterfaceLink::Supported(kind.link())),
            mac: None,
            addresses: Vec::new(),
            mtu: Device::mtu(asker, name).ok(),
        }))
    }

    fn add(interface: &mut Interface, entry: &InterfaceAddress) {
        let Some(address) = &entry.address else {
            return;
        };
        if let Some(link) = address.as_link_addr() {
            interface.mac = link.addr().filter(|mac| link.halen() == 6 && mac.iter().any(|byte| *byte != 0));
        }
        let v4 = |storage: &nix::sys::socket::SockaddrStorage| storage.as_sockaddr_in().map(|address| address.ip());
        let v6 = |storage: &nix::sys::socket::SockaddrStorage| storage.as_sockaddr_in6().map(|address| address.ip());
        if let Some(ip) = v4(address) {
            let prefix = entry.netmask.as_ref().and_then(v4).map_or(32, |mask| mask.to_bits().leading_ones());
            interface.addresses.push((IpAddr::V4(ip), prefix as u8));
        } else if let Some(ip) = v6(address) {
            let prefix = entry.netmask.as_ref().and_then(v6).map_or(128, |mask| mask.to_bits().leading_ones());
            interface.addresses.push((IpAddr::V6(ip), prefix as u8));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{Interface, InterfaceLink};
    use crate::error::Result;

    pub(super) fn list() -> Result<Vec<Interface>> {
        let describe = |interface: pnet_datalink::NetworkInterface| Interface {
            is_up: interface.is_up(),
            index: interface.index,
            link: InterfaceLink::Unknown,
            mac: interface.mac.map(|mac| mac.octets()).filter(|mac| mac.iter().any(|byte| *byte != 0)),
            addresses: interface.ips.iter().map(|network| (network.ip(), network.prefix())).collect(),
            mtu: None,
            name: interface.name,
        };
        Ok(pnet_datalink::interfaces().into_iter().map(describe).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn loopback_is_there_and_can_be_captured() {
        let interfaces = interfaces().unwrap();
        assert!(interfaces.is_sorted_by_key(|interface| interface.index));
        let loopback = interfaces.iter().find(|interface| interface.name == "lo").expect("every Linux has it");
        assert_eq!((loopback.index, loopback.mac), (1, None));
        assert_eq!(loopback.link, InterfaceLink::Supported(LinkType::ETHERNET));
        assert!(loopback.mtu.is_some_and(|mtu| mtu >= 576));
    }
}
