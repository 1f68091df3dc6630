//! Tunnels over IP: GRE and what it carries, and over UDP VXLAN, Geneve, GTP-U and CAPWAP.
//!
//! A UDP datagram is a tunnel if its port and its header say so; any other is not TCP. The packets of tunnels that are
//! known and not opened, encrypted ones for one, are counted as such.

use super::Layer;
use super::Unusable;
use super::ip;
use super::link::EtherType;
use super::unread::Unread;

/// The encapsulated remote SPAN header of a mirrored frame. Type I has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Erspan {
    /// Type II: 8 bytes.
    Two,
    /// Type III: 12 bytes, and 8 more when a bit says so.
    Three,
}

/// GRE: flags and version, the protocol of the payload, and the fields that the flags announce.
pub(super) fn gre(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACKNOWLEDGEMENT: u16 = 0x0080;
    const VERSION: u16 = 0x0007;
    const PPTP_PPP: u16 = 0x880b;
    const ERSPAN_TWO: u16 = 0x88be;
    const ERSPAN_THREE: u16 = 0x22eb;
    // Aruba's, for the 802.11 frames of its access points.
    const WLAN_FIRST: u16 = 0x8200;
    const WLAN_LAST: u16 = 0x8370;
    const WLAN_OTHER: u16 = 0x9000;
    let [f0, f1, p0, p1] = *unread.take::<4>(Unusable::MalformedTunnel)?;
    let flags = u16::from_be_bytes([f0, f1]);
    let protocol = u16::from_be_bytes([p0, p1]);
    let version = flags & VERSION;
    // Source routes went out of use with RFC 2784. Version 1 is PPTP's own, and without a sequence number it carries
    // nothing but an acknowledgement.
    if flags & ROUTING != 0 || version > 1 || (version == 1 && protocol != PPTP_PPP) {
        return Err(Unusable::UnopenedTunnel);
    }
    if version == 1 && flags & SEQUENCE == 0 {
        return Err(Unusable::NotTcp);
    }
    let announced = [CHECKSUM, KEY, SEQUENCE, if version == 1 { ACKNOWLEDGEMENT } else { 0 }];
    let field_count = announced.iter().filter(|&bit| flags & bit != 0).count();
    unread.skip(field_count * 4, Unusable::MalformedTunnel)?;
    match protocol {
        PPTP_PPP => Ok(Layer::Ppp),
        ERSPAN_TWO if flags & SEQUENCE == 0 => Ok(Layer::Ethernet),
        ERSPAN_TWO => Ok(Layer::Erspan(Erspan::Two)),
        ERSPAN_THREE => Ok(Layer::Erspan(Erspan::Three)),
        WLAN_FIRST..=WLAN_LAST if protocol & 0xf == 0 => Ok(Layer::Wlan),
        WLAN_OTHER => Ok(Layer::Wlan),
        _ => Ok(Layer::EtherType(EtherType(protocol))),
    }
}

/// The header of a mirrored frame.
pub(super) fn erspan(kind: Erspan, unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const FRAME_TYPE_ETHERNET: u8 = 0;
    const FRAME_TYPE_IP: u8 = 2;
    const PLATFORM_PART: u8 = 1;
    match kind {
        Erspan::Two => {
            unread.skip(8, Unusable::MalformedTunnel)?;
            Ok(Layer::Ethernet)
        }
        Erspan::Three => {
            let [.., frame_type, last] = *unread.take::<12>(Unusable::MalformedTunnel)?;
            if last & PLATFORM_PART != 0 {
                unread.skip(8, Unusable::MalformedTunnel)?;
            }
            match frame_type >> 2 & 0x1f {
                FRAME_TYPE_ETHERNET => Ok(Layer::Ethernet),
                FRAME_TYPE_IP => Ok(Layer::RawIp),
                _ => Err(Unusable::NotTcp),
            }
        }
    }
}

/// UDP, which may be a tunnel by its destination port. CAPWAP's data have one port at the controller alone, in either
/// direction.
pub(super) fn udp(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const VXLAN: u16 = 4789;
    const VXLAN_LINUX: u16 = 8472;
    const VXLAN_GENERIC: u16 = 4790;
    const GENEVE: u16 = 6081;
    const GTP_U: u16 = 2152;
    const CAPWAP_DATA: u16 = 5247;
    const NAT_TRAVERSAL: u16 = 4500;
    const L2TP: u16 = 1701;
    const TEREDO: u16 = 3544;
    const MPLS: u16 = 6635;
    const HEADER_SIZE: usize = 8;
    let [s0, s1, d0, d1] = *unread.take::<4>(Unusable::NotTcp)?;
    let source = u16::from_be_bytes([s0, s1]);
    let tunnel: fn(&mut Unread<'_>) -> Result<Layer, Unusable> = match u16::from_be_bytes([d0, d1]) {
        VXLAN | VXLAN_LINUX | VXLAN_GENERIC => vxlan,
        GENEVE => geneve,
        GTP_U => gtp_u,
        CAPWAP_DATA => capwap_data,
        NAT_TRAVERSAL => nat_traversal,
        L2TP | TEREDO | MPLS => return Err(Unusable::UnopenedTunnel),
        _ if source == CAPWAP_DATA => capwap_data,
        _ => return Err(Unusable::NotTcp),
    };
    let [l0, l1, _, _] = *unread.take::<4>(Unusable::NotTcp)?;
    match usize::from(u16::from_be_bytes([l0, l1])) {
        // A datagram that a network card has yet to segment, as in IP.
        0 => {}
        size => unread.limit(size.checked_sub(HEADER_SIZE).ok_or(Unusable::NotTcp)?),
    }
    tunnel(unread)
}

/// VXLAN: flags, of which one says that the network identifier is valid, another marks a group policy, and a third says
/// that the fourth byte names the payload (the generic extension); without it the payload is Ethernet.
fn vxlan(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const IDENTIFIER_VALID: u8 = 0x08;
    const NEXT_PROTOCOL: u8 = 0x04;
    const WITH_NEXT_PROTOCOL: u8 = IDENTIFIER_VALID | NEXT_PROTOCOL;
    const GROUP_POLICY: u8 = 0x80;
    let [flags, _, _, next, ..] = *unread.take::<8>(Unusable::NotTcp)?;
    match (flags & !GROUP_POLICY, next) {
        (IDENTIFIER_VALID, _) | (WITH_NEXT_PROTOCOL, 3) => Ok(Layer::Ethernet),
        (WITH_NEXT_PROTOCOL, 1) => Ok(Layer::Ipv4),
        (WITH_NEXT_PROTOCOL, 2) => Ok(Layer::Ipv6),
        (WITH_NEXT_PROTOCOL, 5) => Ok(Layer::MplsLabel),
        (WITH_NEXT_PROTOCOL, _) => Err(Unusable::UnopenedTunnel),
        _ => Err(Unusable::NotTcp),
    }
}

/// CAPWAP's data: a preamble, the header's length in words of four bytes, a radio, the kind of its frames, flags, and
/// where in the whole a fragment belongs. The length counts the radio's address and what else the flags announce.
fn capwap_data(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const CLEAR: u8 = 0;
    const ENCRYPTED: u8 = 1;
    const HEADER_SIZE_MIN: usize = 8;
    /// In the byte with the kind of frames: that they are in the radio's own form, not that of Ethernet.
    const NATIVE: u8 = 0x01;
    const WLAN: u8 = 1;
    const FRAGMENT: u8 = 0x80;
    const LAST_FRAGMENT: u8 = 0x40;
    const KEEP_ALIVE: u8 = 0x08;
    match *unread.peek::<1>(Unusable::NotTcp)? {
        [CLEAR] => {}
        [ENCRYPTED] => return Err(Unusable::UnopenedTunnel),
        _ => return Err(Unusable::NotTcp),
    }
    let [_, length, kind, flags, _, _, high, low] = *unread.peek::<HEADER_SIZE_MIN>(Unusable::NotTcp)?;
    let header_size = usize::from(length >> 3) * 4;
    if header_size < HEADER_SIZE_MIN || flags & KEEP_ALIVE != 0 {
        return Err(Unusable::NotTcp);
    }
    if flags & FRAGMENT != 0 && u16::from_be_bytes([high, low]) >> 3 != 0 {
        return Err(Unusable::LaterFragment);
    }
    unread.skip(header_size, Unusable::NotTcp)?;
    if flags & FRAGMENT != 0 && flags & LAST_FRAGMENT == 0 {
        unread.continues_elsewhere();
    }
    match (kind & NATIVE != 0, kind >> 1 & 0x1f) {
        (false, _) => Ok(Layer::Ethernet),
        (true, WLAN) => Ok(Layer::Wlan),
        (true, _) => Err(Unusable::UnopenedTunnel),
    }
}

/// The port on which IPsec passes address translation: packets for the key exchange begin with four zeros, and one byte
/// alone keeps the translation alive; the rest is encrypted.
fn nat_traversal(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    match *unread.peek::<4>(Unusable::NotTcp)? {
        [0, 0, 0, 0] => Err(Unusable::NotTcp),
        _ => Err(Unusable::UnopenedTunnel),
    }
}

/// Geneve: version and the length of the options in words of four bytes, flags, protocol, network identifier.
fn geneve(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const CONTROL: u8 = 0x80;
    let [version_and_length, flags, p0, p1, ..] = *unread.take::<8>(Unusable::NotTcp)?;
    if version_and_length >> 6 != 0 || flags & CONTROL != 0 {
        return Err(Unusable::NotTcp);
    }
    unread.skip(usize::from(version_and_length & 0x3f) * 4, Unusable::NotTcp)?;
    Ok(Layer::EtherType(EtherType(u16::from_be_bytes([p0, p1]))))
}

/// GTP-U, version 1: flags, message type, length of what follows the first 8 bytes, tunnel identifier. Any of three
/// flags adds four more bytes, the last of which is the type of the first extension header.
fn gtp_u(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const VERSION_AND_PROTOCOL: u8 = 0x30;
    const EXTENSION: u8 = 0x04;
    const OPTIONAL_FIELDS: u8 = 0x07;
    const TUNNELLED_PACKET: u8 = 0xff;
    let [flags, message, high, low, ..] = *unread.take::<8>(Unusable::NotTcp)?;
    if flags & !OPTIONAL_FIELDS != VERSION_AND_PROTOCOL || message != TUNNELLED_PACKET {
        return Err(Unusable::NotTcp);
    }
    unread.limit(usize::from(u16::from_be_bytes([high, low])));
    let mut next = 0;
    if flags & OPTIONAL_FIELDS != 0 {
        let [_, _, _, kind] = *unread.take::<4>(Unusable::NotTcp)?;
        if flags & EXTENSION != 0 {
            next = kind;
        }
    }
    Ok(Layer::GtpExtension(next))
}

/// A GTP-U extension header: its length in words of four bytes, contents, and in its last byte the type of the next.
pub(super) fn gtp_extension(kind: u8, unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    if kind == 0 {
        return ip::version(unread, Unusable::NotTcp);
    }
    let [word_count] = *unread.take::<1>(Unusable::NotTcp)?;
    let before_next_size = (usize::from(word_count) * 4).checked_sub(2).ok_or(Unusable::NotTcp)?;
    unread.skip(before_next_size, Unusable::NotTcp)?;
    let [next] = *unread.take::<1>(Unusable::NotTcp)?;
    Ok(Layer::GtpExtension(next))
}
