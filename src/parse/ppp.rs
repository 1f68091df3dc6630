//! PPP, its framings on serial lines and over Ethernet, and Cisco's HDLC.

use super::Unusable;
use super::ethernet::EtherType;
use super::unread::Unread;
use super::walk::Layer;

/// The first byte of Cisco HDLC: unicast and broadcast. No PPP protocol number begins with either.
const CISCO_UNICAST: u8 = 0x0f;
const CISCO_BROADCAST: u8 = 0x8f;

/// The address and control bytes that begin a PPP frame unless both ends have agreed to leave them out.
pub(crate) const ADDRESS: u8 = 0xff;
pub(crate) const CONTROL: u8 = 0x03;

/// The protocol numbers of PPP that are read.
pub(crate) const IPV4: u16 = 0x0021;
pub(crate) const IPV6: u16 = 0x0057;
pub(crate) const MPLS: u16 = 0x0281;
pub(crate) const MPLS_MULTICAST: u16 = 0x0283;

/// A frame of a serial line: Cisco HDLC, or PPP.
pub(super) fn hdlc_framing(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
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
pub(super) fn session(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
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
pub(super) fn protocol(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let mut first = unread.take::<1>(Unusable::MalformedLink)?[0];
    if first == ADDRESS {
        if *unread.take::<1>(Unusable::MalformedLink)? != [CONTROL] {
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
        IPV4 => Ok(Layer::Ipv4),
        IPV6 => Ok(Layer::Ipv6),
        MPLS | MPLS_MULTICAST => Ok(Layer::MplsLabel),
        _ => Err(Unusable::NotIp),
    }
}
