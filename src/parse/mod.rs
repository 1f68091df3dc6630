//! Frame -> TCP header.
//!
//! What enters: the bytes of one captured frame and its link type. What leaves: the innermost TCP header's addresses,
//! ports, VLAN tags, flags and numbers, or the [`Unusable`] reason under which the frame is counted. Parsing is total:
//! it reads no byte that it has not checked and cannot panic, whatever the frame holds.

pub(crate) mod ethernet;
mod fast;
pub(crate) mod ip;
mod link;
mod mpls;
pub(crate) mod ppp;
mod tcp;
#[cfg(test)]
pub(crate) mod tests;
mod tunnel;
mod unread;
mod unusable;
mod walk;

pub use fast::{PlainFrame, PlainIpv4, PlainIpv6};
pub use link::LinkType;
pub use unusable::Unusable;

use crate::flow::VlanTags;

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

/// Reads one captured frame down to its innermost TCP header.
///
/// # Errors
/// The frame has no TCP header that could be read, for this reason. A frame cut short gives what the whole frame would
/// give, or [`Unusable::CutShort`], and nothing else.
#[inline]
pub fn parse_frame(link: LinkType, frame: &[u8]) -> Result<TcpSegment, Unusable> {
    if link == LinkType::ETHERNET
        && let Some(segment) = fast::plain_ethernet(frame)
    {
        return Ok(segment);
    }
    walk::walk(link, frame)
}

/// Reads a frame as [`parse_frame`] does, by the general path alone: for a frame that is known not to be
/// [plain](PlainFrame).
///
/// # Errors
/// As [`parse_frame`].
#[inline]
pub fn walk_frame(link: LinkType, frame: &[u8]) -> Result<TcpSegment, Unusable> {
    walk::walk(link, frame)
}
