//! MPLS: labels down to the bottom of the stack, then a payload that no field names and that is recognised by its first
//! bits.

use super::Unusable;
use super::unread::Unread;
use super::walk::Layer;

/// One label: 20 bits of label, 3 of class, the bottom-of-stack bit, time to live.
pub(super) fn label(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let [_, _, low, _ttl] = *unread.take::<4>(Unusable::MalformedLink)?;
    if low & 1 == 0 { Ok(Layer::MplsLabel) } else { Ok(Layer::MplsPayload) }
}

/// The payload of the labels: IP by its version, or an Ethernet pseudowire, whose control word begins with 16 zero
/// bits. A payload that begins with four zero bits and not with 16 is taken for an Ethernet header without a control
/// word.
pub(super) fn payload(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
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
