//! Ethernet, its tags, and what an EtherType names.
//!
//! EtherTypes also name what Linux cooked captures, Cisco HDLC, SNAP, GRE and Geneve carry, so all of these come here.

use super::Unusable;
use super::unread::Unread;
use super::walk::Layer;
use crate::flow::VlanTags;

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
pub(crate) const LENGTH_MAX: u16 = 1500;

/// The service access points of logical link control: SNAP, and IP by itself.
pub(crate) const LLC_SNAP: u8 = 0xaa;
pub(crate) const LLC_IP: u8 = 0x06;

/// Destination and source address, then a length or an EtherType.
pub(super) fn addresses(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    unread.skip(12, Unusable::MalformedLink)?;
    length_or_type(unread)
}

/// Reads the field behind the addresses and behind every tag: a length, with LLC after it, or an EtherType.
fn length_or_type(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let number = u16::from_be_bytes(*unread.take::<2>(Unusable::MalformedLink)?);
    if number <= LENGTH_MAX {
        unread.limit(usize::from(number));
        Ok(Layer::Llc)
    } else {
        Ok(Layer::EtherType(EtherType(number)))
    }
}

/// Reads the tag that `ether_type` names, or returns the layer that it names.
pub(super) fn payload(ether_type: EtherType, unread: &mut Unread<'_>, vlan: &mut VlanTags) -> Result<Layer, Unusable> {
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
