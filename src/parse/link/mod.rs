//! Link types, by the numbers of the pcap registry, and which of them flowpeel reads.
//!
//! What enters: a number from a capture file or from an interface, then the frame. What leaves: the number's name for
//! people and, for the link types that are read, the layer above the link header.

mod names;

use std::fmt;

use super::unread::Unread;
use super::walk::Layer;
use super::{Unusable, ethernet, ppp};

/// A link type by its number in the pcap registry (LINKTYPE_ values).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u32);

impl LinkType {
    /// BSD loopback: the address family in the byte order of the machine that wrote the file.
    pub const NULL: Self = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: Self = LinkType(1);
    /// PPP, with or without its address and control bytes.
    pub const PPP: Self = LinkType(9);
    /// Raw IP under the number that most systems use for it in memory; some files carry it.
    pub const RAW_BSD: Self = LinkType(12);
    /// Raw IP under OpenBSD's number.
    pub const RAW_OPENBSD: Self = LinkType(14);
    /// PPP in HDLC-like framing, or Cisco HDLC.
    pub const PPP_SERIAL: Self = LinkType(50);
    /// PPPoE without the Ethernet header.
    pub const PPP_ETHER: Self = LinkType(51);
    /// Raw IP: version 4 or 6 by the first four bits.
    pub const RAW: Self = LinkType(101);
    /// Cisco HDLC.
    pub const C_HDLC: Self = LinkType(104);
    /// OpenBSD loopback: the address family in network byte order.
    pub const LOOP: Self = LinkType(108);
    /// Linux cooked capture, version 1.
    pub const LINUX_SLL: Self = LinkType(113);
    /// Raw IPv4.
    pub const IPV4: Self = LinkType(228);
    /// Raw IPv6.
    pub const IPV6: Self = LinkType(229);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: Self = LinkType(276);

    /// Every link type that [`parse_frame`](super::parse_frame) reads.
    pub const SUPPORTED: [Self; 14] = [
        Self::NULL,
        Self::ETHERNET,
        Self::PPP,
        Self::RAW_BSD,
        Self::RAW_OPENBSD,
        Self::PPP_SERIAL,
        Self::PPP_ETHER,
        Self::RAW,
        Self::C_HDLC,
        Self::LOOP,
        Self::LINUX_SLL,
        Self::IPV4,
        Self::IPV6,
        Self::LINUX_SLL2,
    ];

    /// Whether frames of this link type are read; the others are all [`Unusable::UnsupportedLink`].
    #[must_use]
    pub fn is_supported(self) -> bool {
        Self::SUPPORTED.contains(&self)
    }

    /// The name, as tcpdump prints it; `None` for a number without one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let at = names::NAMES.binary_search_by_key(&self.0, |&(number, _)| number).ok()?;
        names::NAMES.get(at).map(|&(_, name)| name)
    }
}

impl fmt::Display for LinkType {
    /// Prints `IEEE802_11_RADIO (127)`, or the number alone where there is no name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Reads the link header of a frame and returns the layer that follows.
pub(super) fn first_layer(link: LinkType, unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    match link {
        LinkType::ETHERNET => Ok(Layer::Ethernet),
        LinkType::NULL | LinkType::LOOP => loopback(unread),
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => Ok(Layer::RawIp),
        LinkType::IPV4 => Ok(Layer::Ipv4),
        LinkType::IPV6 => Ok(Layer::Ipv6),
        LinkType::PPP | LinkType::PPP_SERIAL => ppp::hdlc_framing(unread),
        LinkType::PPP_ETHER => Ok(Layer::Pppoe),
        LinkType::C_HDLC => ppp::cisco_hdlc(unread),
        LinkType::LINUX_SLL => linux_cooked_v1(unread),
        LinkType::LINUX_SLL2 => linux_cooked_v2(unread),
        _ => Err(Unusable::UnsupportedLink),
    }
}

/// The loopback header, which is the address family alone. The writer's byte order is unknown, so both are accepted: no
/// family is above 255, so only one of the two readings can name one.
fn loopback(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const AF_INET: u32 = 2;
    // NetBSD and OpenBSD, Linux, FreeBSD, Darwin.
    const AF_INET6: [u32; 4] = [24, 10, 28, 30];
    let family = *unread.take::<4>(Unusable::MalformedLink)?;
    let families = [u32::from_be_bytes(family), u32::from_le_bytes(family)];
    if families.contains(&AF_INET) {
        Ok(Layer::Ipv4)
    } else if families.iter().any(|family| AF_INET6.contains(family)) {
        Ok(Layer::Ipv6)
    } else {
        Err(Unusable::NotIp)
    }
}

/// Linux cooked, version 1: packet type, hardware type, address length, 8 bytes of address, protocol.
fn linux_cooked_v1(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let [.., high, low] = *unread.take::<16>(Unusable::MalformedLink)?;
    Ok(cooked_protocol(u16::from_be_bytes([high, low])))
}

/// Linux cooked, version 2: protocol, reserved, interface index, hardware type, packet type, address length, 8 bytes of
/// address.
fn linux_cooked_v2(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let [high, low, ..] = *unread.take::<20>(Unusable::MalformedLink)?;
    Ok(cooked_protocol(u16::from_be_bytes([high, low])))
}

/// The layer of a cooked protocol: Linux writes an EtherType, or a small number of its own for frames without one.
fn cooked_protocol(protocol: u16) -> Layer {
    const ETH_P_802_2: u16 = 4;
    match protocol {
        ETH_P_802_2 => Layer::Llc,
        _ => Layer::EtherType(ethernet::EtherType(protocol)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        assert!(names::NAMES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn a_link_type_prints_its_name_and_number() {
        assert_eq!(LinkType(127).to_string(), "IEEE802_11_RADIO (127)");
        assert_eq!(LinkType(105).name(), Some("IEEE802_11"));
        assert_eq!(LinkType(192).name(), Some("PPI"));
        assert_eq!(LinkType(239).name(), Some("NFLOG"));
        assert_eq!(LinkType(242).name(), Some("IPOIB"));
        assert_eq!(LinkType(129).name(), Some("ARCNET_LINUX"));
        assert_eq!(LinkType(10).name(), Some("FDDI"));
        assert_eq!(LinkType(178).name(), Some("JUNIPER_ETHER"));
        assert_eq!(LinkType(281).name(), Some("DSA_TAG_BRCM"));
        assert_eq!(LinkType(u32::MAX).name(), None);
        assert_eq!(LinkType(u32::MAX).to_string(), "4294967295");
    }

    #[test]
    fn what_is_supported_is_what_is_read() {
        for number in (0..1000).chain([u32::MAX]) {
            let link = LinkType(number);
            let refused = first_layer(link, &mut Unread::new(&[])) == Err(Unusable::UnsupportedLink);
            assert_eq!(link.is_supported(), !refused, "{link}");
            assert!(refused || link.name().is_some(), "{link}");
        }
    }
}
