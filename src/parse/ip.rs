//! IPv4 and IPv6: addresses, the length that ends the packet, fragments, extension headers, and what follows them.

use super::Layer;
use super::unread::Unread;
use super::{Addresses, Unusable};

/// A number of the IP protocol registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocol(pub(crate) u8);

impl Protocol {
    pub(crate) const HOP_BY_HOP: Self = Protocol(0);
    pub(crate) const IPV4: Self = Protocol(4);
    pub(crate) const TCP: Self = Protocol(6);
    pub(crate) const UDP: Self = Protocol(17);
    pub(crate) const IPV6: Self = Protocol(41);
    pub(crate) const ROUTING: Self = Protocol(43);
    pub(crate) const FRAGMENT: Self = Protocol(44);
    pub(crate) const GRE: Self = Protocol(47);
    pub(crate) const ENCRYPTED: Self = Protocol(50);
    pub(crate) const AUTHENTICATION: Self = Protocol(51);
    pub(crate) const DESTINATION_OPTIONS: Self = Protocol(60);
    pub(crate) const COMPRESSED: Self = Protocol(108);
    pub(crate) const L2TP: Self = Protocol(115);
    pub(crate) const MOBILITY: Self = Protocol(135);
    pub(crate) const HOST_IDENTITY: Self = Protocol(139);
    pub(crate) const SHIM6: Self = Protocol(140);
}

/// The more-fragments bit and the 13 bits of offset in an IPv4 header.
pub(super) const IPV4_MORE_FRAGMENTS: u16 = 0x2000;
pub(crate) const IPV4_FRAGMENT_OFFSET: u16 = 0x1fff;

/// The version of IP, by the first four bits; `otherwise` if these are of none.
pub(super) fn version(unread: &Unread<'_>, otherwise: Unusable) -> Result<Layer, Unusable> {
    let [first] = *unread.peek::<1>(otherwise)?;
    match first >> 4 {
        4 => Ok(Layer::Ipv4),
        6 => Ok(Layer::Ipv6),
        _ => Err(otherwise),
    }
}

/// An IPv4 header and its options.
pub(super) fn v4(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const MALFORMED: Unusable = Unusable::MalformedIpv4;
    let header = *unread.peek::<20>(MALFORMED)?;
    let header_size = usize::from(header[0] & 0x0f) * 4;
    let total_size = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4 || header_size < header.len() {
        return Err(MALFORMED);
    }
    // Senders that leave segmentation to the network card show packets of any size with a length of 0.
    if total_size != 0 {
        if total_size < header_size {
            return Err(MALFORMED);
        }
        unread.limit(total_size);
    }
    unread.skip(header_size, MALFORMED)?;
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if fragment & IPV4_FRAGMENT_OFFSET != 0 {
        return Err(Unusable::LaterFragment);
    }
    if fragment & IPV4_MORE_FRAGMENTS != 0 {
        unread.continues_elsewhere();
    }
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Ok(Layer::Protocol(Protocol(header[9]), Addresses::V4 { src: word(12), dst: word(16) }))
}

/// The fixed IPv6 header.
pub(super) fn v6(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const MALFORMED: Unusable = Unusable::MalformedIpv6;
    let [first, _, _, _, high, low, next, _hop_limit] = *unread.take::<8>(MALFORMED)?;
    if first >> 4 != 6 {
        return Err(MALFORMED);
    }
    let src = u128::from_be_bytes(*unread.take::<16>(MALFORMED)?);
    let dst = u128::from_be_bytes(*unread.take::<16>(MALFORMED)?);
    // Jumbograms, and packets that a network card has yet to segment, have a length of 0.
    let payload_size = usize::from(u16::from_be_bytes([high, low]));
    if payload_size != 0 {
        unread.limit(payload_size);
    }
    Ok(Layer::Protocol(Protocol(next), Addresses::V6 { src, dst }))
}

/// Reads the extension header that `protocol` names, or returns the layer that it names.
pub(super) fn payload(protocol: Protocol, addresses: Addresses, unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let is_v6 = matches!(addresses, Addresses::V6 { .. });
    let next = match protocol {
        Protocol::TCP => return Ok(Layer::Tcp(addresses)),
        Protocol::IPV4 => return Ok(Layer::Ipv4),
        Protocol::IPV6 => return Ok(Layer::Ipv6),
        Protocol::GRE => return Ok(Layer::Gre),
        Protocol::UDP => return Ok(Layer::Udp),
        Protocol::ENCRYPTED | Protocol::COMPRESSED | Protocol::L2TP => return Err(Unusable::UnopenedTunnel),
        Protocol::AUTHENTICATION => {
            authentication(if is_v6 { Unusable::MalformedIpv6 } else { Unusable::MalformedIpv4 }, unread)?
        }
        Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DESTINATION_OPTIONS if is_v6 => extension(unread)?,
        Protocol::MOBILITY | Protocol::HOST_IDENTITY | Protocol::SHIM6 if is_v6 => extension(unread)?,
        Protocol::FRAGMENT if is_v6 => fragment(unread)?,
        _ => return Err(Unusable::NotTcp),
    };
    Ok(Layer::Protocol(next, addresses))
}

/// The common form of extension headers: next header, length in words of eight bytes after the first.
fn extension(unread: &mut Unread<'_>) -> Result<Protocol, Unusable> {
    let [next, word_count] = *unread.peek::<2>(Unusable::MalformedIpv6)?;
    unread.skip((usize::from(word_count) + 1) * 8, Unusable::MalformedIpv6)?;
    Ok(Protocol(next))
}

/// The fragment header of IPv6; an atomic fragment is a whole packet.
fn fragment(unread: &mut Unread<'_>) -> Result<Protocol, Unusable> {
    let [next, _, high, low, ..] = *unread.take::<8>(Unusable::MalformedIpv6)?;
    let offset_and_flags = u16::from_be_bytes([high, low]);
    if offset_and_flags >> 3 != 0 {
        return Err(Unusable::LaterFragment);
    }
    if offset_and_flags & 1 != 0 {
        unread.continues_elsewhere();
    }
    Ok(Protocol(next))
}

/// The authentication header: next header, length in words of four bytes after the second.
fn authentication(malformed: Unusable, unread: &mut Unread<'_>) -> Result<Protocol, Unusable> {
    /// Next header, length, reserved, security parameters index, sequence number: three words.
    const WORD_COUNT_MIN: usize = 3;
    let [next, length] = *unread.peek::<2>(malformed)?;
    let word_count = usize::from(length) + 2;
    if word_count < WORD_COUNT_MIN {
        return Err(malformed);
    }
    unread.skip(word_count * 4, malformed)?;
    Ok(Protocol(next))
}
