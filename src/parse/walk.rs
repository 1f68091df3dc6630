//! The walk from header to header: the general path, for every frame that is not plain.
//!
//! What enters: a frame and its link type. What leaves: the innermost TCP header. Each turn of one loop takes one layer
//! and learns which one follows, so nesting costs turns and no stack, and the turns are limited.

use super::ethernet::EtherType;
use super::ip::Protocol;
use super::unread::Unread;
use super::{Addresses, LinkType, TcpSegment, Unusable, ethernet, ip, link, mpls, ppp, tcp, tunnel};
use crate::flow::VlanTags;

/// The most steps from layer to layer that the parser follows in one frame. A step reads a header, a tag, a label or an
/// extension header, or decides by one of their fields what comes next.
///
/// Plain TCP takes 5 steps, a mirrored frame that holds a VXLAN tunnel 16, and a tagged pseudowire around the same
/// about 24. Only frames made to waste time reach twice that.
pub(super) const LAYER_COUNT_MAX: usize = 48;

/// The header that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// Destination, source, and a length or an EtherType.
    Ethernet,
    /// The layer that this EtherType names.
    EtherType(EtherType),
    /// IEEE 802.2 logical link control.
    Llc,
    /// An MPLS label.
    MplsLabel,
    /// The payload below the last MPLS label.
    MplsPayload,
    /// PPPoE of a session.
    Pppoe,
    /// A PPP protocol number.
    Ppp,
    /// IPv4 or IPv6 by the first four bits.
    RawIp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// The layer that this IP protocol number names, between these addresses.
    Protocol(Protocol, Addresses),
    /// GRE.
    Gre,
    /// The encapsulated remote SPAN header, types II and III.
    Erspan(tunnel::Erspan),
    /// UDP, which may be a tunnel.
    Udp,
    /// A GTP-U extension header of this type, or the tunnelled packet when it is 0.
    GtpExtension(u8),
    /// TCP between these addresses.
    Tcp(Addresses),
}

/// Reads the frame header by header.
pub(super) fn walk(link: LinkType, frame: &[u8]) -> Result<TcpSegment, Unusable> {
    let mut unread = Unread::new(frame);
    let mut vlan = VlanTags::NONE;
    let mut layer = link::first_layer(link, &mut unread)?;
    for _ in 0..LAYER_COUNT_MAX {
        layer = match layer {
            Layer::Ethernet => ethernet::addresses(&mut unread)?,
            Layer::EtherType(ether_type) => ethernet::payload(ether_type, &mut unread, &mut vlan)?,
            Layer::Llc => ethernet::llc(&mut unread)?,
            Layer::MplsLabel => mpls::label(&mut unread)?,
            Layer::MplsPayload => mpls::payload(&mut unread)?,
            Layer::Pppoe => ppp::session(&mut unread)?,
            Layer::Ppp => ppp::protocol(&mut unread)?,
            Layer::RawIp => ip::version(&unread, Unusable::NotIp)?,
            Layer::Ipv4 => ip::v4(&mut unread)?,
            Layer::Ipv6 => ip::v6(&mut unread)?,
            Layer::Protocol(protocol, addresses) => ip::payload(protocol, addresses, &mut unread)?,
            Layer::Gre => tunnel::gre(&mut unread)?,
            Layer::Erspan(kind) => tunnel::erspan(kind, &mut unread)?,
            Layer::Udp => tunnel::udp(&mut unread)?,
            Layer::GtpExtension(kind) => tunnel::gtp_extension(kind, &mut unread)?,
            Layer::Tcp(addresses) => return tcp::segment(addresses, vlan, &mut unread),
        };
    }
    Err(Unusable::NestedTooDeep)
}
