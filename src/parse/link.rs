//! Link types, by the numbers of the pcap registry, and what stands between the link and IP: Ethernet and its tags,
//! logical link control, MPLS labels, PPP in its framings, Cisco's HDLC and Linux cooked captures.
//!
//! EtherTypes also name what Linux cooked captures, Cisco HDLC, SNAP, GRE and Geneve carry, so [`ether_payload`] serves
//! all of these.

use super::unread::Unread;
use super::{Layer, Unusable};
use crate::flow::VlanTags;
use std::fmt;

mod names;

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
        LinkType::PPP | LinkType::PPP_SERIAL => ppp_framing(unread),
        LinkType::PPP_ETHER => Ok(Layer::Pppoe),
        LinkType::C_HDLC => cisco_hdlc(unread),
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
        _ => Layer::EtherType(EtherType(protocol)),
    }
}

/// A number of the IEEE's EtherType registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EtherType(pub(crate) u16);

impl EtherType {
    pub(crate) const IPV4: Self = EtherType(0x0800);
    pub(crate) const IPV6: Self = EtherType(0x86dd);
    pub(crate) const MPLS: Self = EtherType(0x8847);
    pub(crate) const MPLS_MULTICAST: Self = EtherType(0x8848);
    pub(crate) const PPPOE_SESSION: Self = EtherType(0x8864);
    pub(crate) const VLAN: Self = EtherType(0x8100);
    pub(crate) const SERVICE_VLAN: Self = EtherType(0x88a8);
    pub(crate) const QINQ: Self = EtherType(0x9100);
    pub(crate) const BACKBONE_BRIDGE: Self = EtherType(0x88e7);
    pub(crate) const CISCO_METADATA: Self = EtherType(0x8909);
    pub(crate) const VN_TAG: Self = EtherType(0x8926);
    pub(crate) const TRANSPARENT_ETHERNET: Self = EtherType(0x6558);
}

/// The largest value of the length field of an IEEE 802.3 frame; a greater value is an EtherType.
pub(crate) const ETHERNET_LENGTH_MAX: u16 = 1500;

/// The service access points of logical link control: SNAP, and IP by itself.
pub(crate) const LLC_SNAP: u8 = 0xaa;
pub(crate) const LLC_IP: u8 = 0x06;

/// Destination and source address, then a length or an EtherType.
pub(super) fn ethernet(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    unread.skip(12, Unusable::MalformedLink)?;
    length_or_type(unread)
}

/// Reads the field behind the addresses and behind every tag: a length, with LLC after it, or an EtherType.
fn length_or_type(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let number = u16::from_be_bytes(*unread.take::<2>(Unusable::MalformedLink)?);
    if number <= ETHERNET_LENGTH_MAX {
        unread.limit(usize::from(number));
        Ok(Layer::Llc)
    } else {
        Ok(Layer::EtherType(EtherType(number)))
    }
}

/// Reads the tag that `ether_type` names, or returns the layer that it names.
pub(super) fn ether_payload(
    ether_type: EtherType,
    unread: &mut Unread<'_>,
    vlan: &mut VlanTags,
) -> Result<Layer, Unusable> {
    match ether_type {
        EtherType::IPV4 => Ok(Layer::Ipv4),
        EtherType::IPV6 => Ok(Layer::Ipv6),
        EtherType::MPLS | EtherType::MPLS_MULTICAST => Ok(Layer::MplsLabel),
        EtherType::PPPOE_SESSION => Ok(Layer::Pppoe),
        EtherType::TRANSPARENT_ETHERNET => Ok(Layer::Ethernet),
        EtherType::VLAN | EtherType::SERVICE_VLAN | EtherType::QINQ => vlan_tag(unread, vlan),
        EtherType::BACKBONE_BRIDGE => {
            // Flags and the service identifier; the customer's whole frame follows.
            unread.skip(4, Unusable::MalformedLink)?;
            Ok(Layer::Ethernet)
        }
        EtherType::CISCO_METADATA => cisco_metadata(unread),
        EtherType::VN_TAG => {
            unread.skip(4, Unusable::MalformedLink)?;
            length_or_type(unread)
        }
        _ => Err(Unusable::NotIp),
    }
}

fn vlan_tag(unread: &mut Unread<'_>, vlan: &mut VlanTags) -> Result<Layer, Unusable> {
    let tag = u16::from_be_bytes(*unread.take::<2>(Unusable::MalformedLink)?) & 0x0fff;
    // Identifier 0 marks a tag that carries a priority and no VLAN.
    if tag != 0 {
        *vlan = vlan.with(tag);
    }
    length_or_type(unread)
}

/// Version, the number of four-byte options, the options (a security group tag as a rule).
fn cisco_metadata(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let [_version, option_count] = *unread.take::<2>(Unusable::MalformedLink)?;
    unread.skip(usize::from(option_count) * 4, Unusable::MalformedLink)?;
    length_or_type(unread)
}

/// Logical link control: IP by its own service access point, or an EtherType in SNAP.
pub(super) fn llc(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const UNNUMBERED_INFORMATION: u8 = 0x03;
    match *unread.take::<3>(Unusable::NotIp)? {
        [LLC_SNAP, LLC_SNAP, UNNUMBERED_INFORMATION] => match *unread.take::<5>(Unusable::NotIp)? {
            // RFC 1042, and what IEEE 802.1H bridges write instead.
            [0, 0, 0 | 0xf8, high, low] => Ok(Layer::EtherType(EtherType(u16::from_be_bytes([high, low])))),
            _ => Err(Unusable::NotIp),
        },
        [LLC_IP, LLC_IP, UNNUMBERED_INFORMATION] => Ok(Layer::Ipv4),
        _ => Err(Unusable::NotIp),
    }
}

/// The first byte of Cisco HDLC: unicast and broadcast. No PPP protocol number begins with either.
const CISCO_UNICAST: u8 = 0x0f;
const CISCO_BROADCAST: u8 = 0x8f;

/// The address and control bytes that begin a PPP frame unless both ends have agreed to leave them out.
pub(crate) const PPP_ADDRESS: u8 = 0xff;
pub(crate) const PPP_CONTROL: u8 = 0x03;

/// The protocol numbers of PPP that are read.
pub(crate) const PPP_IPV4: u16 = 0x0021;
pub(crate) const PPP_IPV6: u16 = 0x0057;
pub(crate) const PPP_MPLS: u16 = 0x0281;
pub(crate) const PPP_MPLS_MULTICAST: u16 = 0x0283;

/// A frame of a serial line: Cisco HDLC, or PPP.
pub(super) fn ppp_framing(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    match *unread.peek::<1>(Unusable::MalformedLink)? {
        [CISCO_UNICAST | CISCO_BROADCAST] => cisco_hdlc(unread),
        _ => Ok(Layer::Ppp),
    }
}

/// Cisco HDLC: address, a control byte of zero, EtherType.
pub(super) fn cisco_hdlc(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let [_address, _control, high, low] = *unread.take::<4>(Unusable::MalformedLink)?;
    Ok(Layer::EtherType(EtherType(u16::from_be_bytes([high, low]))))
}

/// PPPoE of a session: version and type, code, session, length of what follows.
pub(super) fn pppoe_session(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const VERSION_AND_TYPE: u8 = 0x11;
    const SESSION_DATA: u8 = 0;
    let [version_and_type, code, _, _, high, low] = *unread.take::<6>(Unusable::MalformedLink)?;
    if version_and_type != VERSION_AND_TYPE {
        return Err(Unusable::MalformedLink);
    }
    if code != SESSION_DATA {
        return Err(Unusable::NotIp);
    }
    unread.limit(usize::from(u16::from_be_bytes([high, low])));
    Ok(Layer::Ppp)
}

/// PPP: address and control, which both ends may have agreed to leave out, then the protocol in two bytes, or in one
/// when the first is odd.
pub(super) fn ppp_protocol(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let mut first = unread.take::<1>(Unusable::MalformedLink)?[0];
    if first == PPP_ADDRESS {
        if *unread.take::<1>(Unusable::MalformedLink)? != [PPP_CONTROL] {
            return Err(Unusable::NotIp);
        }
        first = unread.take::<1>(Unusable::MalformedLink)?[0];
    }
    let number = if first & 1 == 1 {
        u16::from(first)
    } else {
        let [second] = *unread.take::<1>(Unusable::MalformedLink)?;
        u16::from_be_bytes([first, second])
    };
    match number {
        PPP_IPV4 => Ok(Layer::Ipv4),
        PPP_IPV6 => Ok(Layer::Ipv6),
        PPP_MPLS | PPP_MPLS_MULTICAST => Ok(Layer::MplsLabel),
        _ => Err(Unusable::NotIp),
    }
}

/// One label: 20 bits of label, 3 of class, the bottom-of-stack bit, time to live.
pub(super) fn mpls_label(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let [_, _, low, _ttl] = *unread.take::<4>(Unusable::MalformedLink)?;
    if low & 1 == 0 { Ok(Layer::MplsLabel) } else { Ok(Layer::MplsPayload) }
}

/// The payload of the labels: IP by its version, or an Ethernet pseudowire, whose control word begins with 16 zero
/// bits. A payload that begins with four zero bits and not with 16 is taken for an Ethernet header without a control
/// word.
pub(super) fn mpls_payload(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let [first] = *unread.peek::<1>(Unusable::MalformedLink)?;
    match first >> 4 {
        4 => Ok(Layer::Ipv4),
        6 => Ok(Layer::Ipv6),
        0 => {
            if *unread.peek::<2>(Unusable::MalformedLink)? == [0, 0] {
                unread.skip(4, Unusable::MalformedLink)?;
            }
            Ok(Layer::Ethernet)
        }
        _ => Err(Unusable::NotIp),
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
            let refused = first_layer(link, &mut Unread::new(&[], 0)) == Err(Unusable::UnsupportedLink);
            assert_eq!(link.is_supported(), !refused, "{link}");
            assert!(refused || link.name().is_some(), "{link}");
        }
    }
}
