//! Frame -> TCP header.
//!
//! [`parse_captured`] reads one captured frame of any link type that is supported, and returns the innermost TCP
//! header's addresses, ports, VLAN tags, flags and numbers, or the [`Unusable`] reason under which the frame is
//! counted. [`parse_frame`] does so for a frame that is whole. Parsing is total: it reads no byte that it has not
//! checked and cannot panic on any frame.
//!
//! Nearly every frame is TCP directly in IP directly in Ethernet. Who needs only the ends and the flags of these reads
//! a [`PlainFrame`].

mod fast;
mod header;
pub(crate) mod ip;
pub(crate) mod link;
mod tcp;
#[cfg(test)]
pub(crate) mod tests;
mod tunnel;
mod unread;
mod unusable;
mod wlan;

pub use fast::{PlainFrame, PlainIpv4, PlainIpv6};
pub use header::{PacketHeader, ReadHeader};
pub use link::LinkType;
pub use unusable::Unusable;

use crate::flow::VlanTags;
use ip::Protocol;
use link::EtherType;
use unread::Unread;

/// The addresses of the IP header that directly carries TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4, in host order.
    V4 {
        /// The sender.
        src: u32,
        /// The receiver.
        dst: u32,
    },
    /// IPv6, the 16 bytes read big-endian.
    V6 {
        /// The sender.
        src: u128,
        /// The receiver.
        dst: u128,
    },
}

/// The fields that flowpeel reads of a TCP header and of the headers around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment {
    /// The addresses of the innermost IP header.
    pub addresses: Addresses,
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// The first two VLAN tags on the way to the TCP header.
    pub vlan: VlanTags,
    /// The flag byte of the TCP header (CWR ECE URG ACK PSH RST SYN FIN).
    pub flags: u8,
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement number; meaningless without the ACK flag.
    pub ack: u32,
    /// The bytes of data behind the header, captured or not, if the IP header says how many.
    pub payload_size: Option<u32>,
}

impl TcpSegment {
    /// This segment with the VLAN tag that the kernel took out of the frame, given as tag control information, as its
    /// outermost. Identifier 0 stands for no VLAN.
    #[must_use]
    #[inline]
    pub fn behind_tag(self, tag_control: u16) -> Self {
        match tag_control & 0x0fff {
            0 => self,
            tag => TcpSegment { vlan: self.vlan.outside(tag), ..self },
        }
    }
}

/// Reads one whole frame down to its innermost TCP header.
///
/// # Errors
/// The frame has no TCP header that could be read, for this reason, which is never [`Unusable::CutShort`].
#[inline]
pub fn parse_frame(link: LinkType, frame: &[u8]) -> Result<TcpSegment, Unusable> {
    parse_captured(link, frame, frame.len())
}

/// Reads what was captured of a frame that had `wire_size` bytes on the wire, down to its innermost TCP header. A size
/// below that of the captured bytes stands for theirs.
///
/// # Errors
/// The frame has no TCP header that could be read, for this reason. A frame cut short gives what the whole frame would
/// give, or [`Unusable::CutShort`], and nothing else.
#[inline]
pub fn parse_captured(link: LinkType, captured: &[u8], wire_size: usize) -> Result<TcpSegment, Unusable> {
    if link == LinkType::ETHERNET
        && let Some(segment) = fast::plain_ethernet(captured)
    {
        return Ok(segment);
    }
    walk(link, captured, wire_size)
}

/// The most steps from layer to layer that the parser follows in one frame. A step reads a header, a tag, a label or an
/// extension header, or decides by one of their fields what comes next.
///
/// Plain TCP takes 5 steps, a mirrored frame that holds a VXLAN tunnel 16, and a tagged pseudowire around the same
/// about 24. Only frames made to waste time reach twice that.
const LAYER_COUNT_MAX: usize = 48;

/// The header that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
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
    /// An 802.11 frame.
    Wlan,
    /// A GTP-U extension header of this type, or the tunnelled packet when it is 0.
    GtpExtension(u8),
    /// TCP between these addresses.
    Tcp(Addresses),
}

/// Reads a frame as [`parse_captured`] does, header by header: the general path, for a frame that is known not to be
/// [plain](PlainFrame). Each turn of one loop takes one layer and learns which one follows, so nesting costs turns and
/// no stack, and the turns are limited.
///
/// # Errors
///
/// As [`parse_captured`].
pub(crate) fn walk(link: LinkType, captured: &[u8], wire_size: usize) -> Result<TcpSegment, Unusable> {
    let mut unread = Unread::new(captured, wire_size);
    let mut vlan = VlanTags::NONE;
    let mut layer = link::first_layer(link, &mut unread)?;
    for _ in 0..LAYER_COUNT_MAX {
        layer = match layer {
            Layer::Ethernet => link::ethernet(&mut unread)?,
            Layer::EtherType(ether_type) => link::ether_payload(ether_type, &mut unread, &mut vlan)?,
            Layer::Llc => link::llc(&mut unread)?,
            Layer::MplsLabel => link::mpls_label(&mut unread)?,
            Layer::MplsPayload => link::mpls_payload(&mut unread)?,
            Layer::Pppoe => link::pppoe_session(&mut unread)?,
            Layer::Ppp => link::ppp_protocol(&mut unread)?,
            Layer::RawIp => ip::version(&unread, Unusable::NotIp)?,
            Layer::Ipv4 => ip::v4(&mut unread)?,
            Layer::Ipv6 => ip::v6(&mut unread)?,
            Layer::Protocol(protocol, addresses) => ip::payload(protocol, addresses, &mut unread)?,
            Layer::Gre => tunnel::gre(&mut unread)?,
            Layer::Erspan(kind) => tunnel::erspan(kind, &mut unread)?,
            Layer::Udp => tunnel::udp(&mut unread)?,
            Layer::Wlan => wlan::frame(&mut unread)?,
            Layer::GtpExtension(kind) => tunnel::gtp_extension(kind, &mut unread)?,
            Layer::Tcp(addresses) => return tcp::segment(addresses, vlan, &mut unread),
        };
    }
    Err(Unusable::NestedTooDeep)
}
