//! MPLS: labels down to the bottom of the stack, then what no field names and has to be told by its first bits.

use super::Unusable;
use super::unread::Unread;
use super::walk::Layer;

/// One label: 20 bits of label, 3 of class, the bottom-of-stack bit, time to live.
pub(super) fn label(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    let [_, _, low, _ttl] = *unread.take::<4>(Unusable::MalformedLink)?;
    if low & 1 == 0 { Ok(Layer::MplsLabel) } else { Ok(Layer::MplsPayload) }
}

/// What the labels carry: IP by its version, or an Ethernet pseudowire, whose control word begins with 16 zero bits.
/// Without a control word an Ethernet address stands there; one that begins with four zero bits is taken for that.
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
