//! The interfaces of this machine, with what matters for capturing them.
//!
//! pnet lists them on every system; Linux adds the link type and the largest packet. Names can hold anything but a
//! slash and white space: escape them before they are printed.

#[cfg(target_os = "linux")]
use super::device::{Device, DeviceKind, hardware_name, has_mac, query_socket};
use super::pnet;
use crate::error::{Error, Result};
use crate::parse::LinkType;
use ::pnet::datalink::{MacAddr, NetworkInterface};
use std::collections::BTreeMap;
#[cfg(target_os = "linux")]
use std::io;
use std::net::IpAddr;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, OwnedFd};

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
    let system = System::new()?;
    let mut by_name: BTreeMap<String, Interface> = BTreeMap::new();
    for listed in pnet::interfaces() {
        // An address may be on an alias, which shares the interface's queue of packets.
        let name = listed.name.split(':').next().unwrap_or_default();
        if !by_name.contains_key(name) {
            let Some(interface) = system.describe(name, &listed)? else {
                continue;
            };
            by_name.insert(name.to_owned(), interface);
        }
        if let Some(interface) = by_name.get_mut(name) {
            interface.addresses.extend(listed.ips.iter().map(|network| (network.ip(), network.prefix())));
        }
    }
    if by_name.is_empty() {
        return Err(Error::new("cannot list the interfaces: the system names none"));
    }
    let mut interfaces: Vec<Interface> = by_name.into_values().collect();
    interfaces.iter_mut().for_each(|interface| interface.addresses.sort_by_key(|(address, _)| address.is_ipv6()));
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

/// A hardware address unless it is all zeros.
fn set_address(mac: Option<MacAddr>) -> Option<[u8; 6]> {
    mac.map(|mac| mac.octets()).filter(|mac| mac.iter().any(|byte| *byte != 0))
}

/// What the system says of an interface beyond what pnet lists.
#[cfg(target_os = "linux")]
struct System {
    socket: OwnedFd,
}

#[cfg(target_os = "linux")]
impl System {
    fn new() -> Result<Self> {
        Ok(System { socket: query_socket().map_err(cannot_list)? })
    }

    /// An interface without its addresses; `None` if it has gone meanwhile.
    fn describe(&self, name: &str, listed: &NetworkInterface) -> Result<Option<Interface>> {
        let Some(device) = Device::find(self.socket.as_fd(), name).map_err(cannot_list)? else {
            return Ok(None);
        };
        let hardware = device.hardware;
        let unsupported = InterfaceLink::Unsupported(hardware_name(hardware), hardware);
        Ok(Some(Interface {
            name: name.to_owned(),
            index: device.index as u32,
            is_up: device.is_up,
            link: DeviceKind::of_hardware(hardware).map_or(unsupported, |kind| InterfaceLink::Supported(kind.link())),
            // pnet gives the first six bytes of any hardware address; a tunnel has its IP address there.
            mac: set_address(listed.mac).filter(|_| has_mac(hardware)),
            addresses: Vec::new(),
            mtu: Device::mtu(self.socket.as_fd(), name).ok(),
        }))
    }
}

#[cfg(target_os = "linux")]
fn cannot_list(error: io::Error) -> Error {
    Error::new("cannot list the interfaces").because(error)
}

/// What the system says of an interface beyond what pnet lists: nothing.
#[cfg(not(target_os = "linux"))]
struct System;

#[cfg(not(target_os = "linux"))]
impl System {
    fn new() -> Result<Self> {
        Ok(System)
    }

    fn describe(&self, name: &str, listed: &NetworkInterface) -> Result<Option<Interface>> {
        Ok(Some(Interface {
            name: name.to_owned(),
            index: listed.index,
            is_up: listed.is_up(),
            link: InterfaceLink::Unknown,
            mac: set_address(listed.mac),
            addresses: Vec::new(),
            mtu: None,
        }))
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
