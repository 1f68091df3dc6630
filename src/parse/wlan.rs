//! 802.11 frames, as tunnels between access points and their controllers carry them.

use super::unread::Unread;
use super::{Layer, Unusable};

/// Bits of the first byte of the frame control.
const VERSION: u8 = 0x03;
const KIND: u8 = 0x0c;
const DATA: u8 = 0x08;
const WITHOUT_DATA: u8 = 0x40;
const QUALITY_OF_SERVICE: u8 = 0x80;

/// Bits of its second byte.
const DISTRIBUTION_SYSTEMS: u8 = 0x03;
const MORE_FRAGMENTS: u8 = 0x04;
const PROTECTED: u8 = 0x40;
const HIGH_THROUGHPUT_CONTROL: u8 = 0x80;

/// A frame: frame control, duration, three addresses, sequence control; a fourth address between two distribution
/// systems; quality of service, and with it the control of high throughput. Logical link control follows.
///
/// What is encrypted is not opened, and neither is an aggregate, which would hold several packets.
pub(super) fn frame(unread: &mut Unread<'_>) -> Result<Layer, Unusable> {
    const MALFORMED: Unusable = Unusable::MalformedLink;
    const AGGREGATE: u8 = 0x80;
    const FRAGMENT_NUMBER: u8 = 0x0f;
    let (kind, flags) = frame_control(*unread.peek::<2>(MALFORMED)?);
    if kind & (VERSION | KIND | WITHOUT_DATA) != DATA {
        return Err(Unusable::NotIp);
    }
    if flags & PROTECTED != 0 {
        return Err(Unusable::UnopenedTunnel);
    }
    let [.., sequence, _] = *unread.take::<24>(MALFORMED)?;
    if sequence & FRAGMENT_NUMBER != 0 {
        return Err(Unusable::LaterFragment);
    }
    if flags & DISTRIBUTION_SYSTEMS == DISTRIBUTION_SYSTEMS {
        unread.skip(6, MALFORMED)?;
    }
    if kind & QUALITY_OF_SERVICE != 0 {
        let [service, _] = *unread.take::<2>(MALFORMED)?;
        if service & AGGREGATE != 0 {
            return Err(Unusable::UnopenedTunnel);
        }
        if flags & HIGH_THROUGHPUT_CONTROL != 0 {
            unread.skip(4, MALFORMED)?;
        }
    }
    if flags & MORE_FRAGMENTS != 0 {
        unread.continues_elsewhere();
    }
    Ok(Layer::Llc)
}

/// The two bytes of the frame control, the one with version and kind first. Some access points swap them. The only
/// version that is read has the number 0, and a frame of an access point goes to or comes from a distribution system:
/// the two lowest bits of each byte show which is which.
fn frame_control([first, second]: [u8; 2]) -> (u8, u8) {
    if first & VERSION != 0 && second & VERSION == 0 { (second, first) } else { (first, second) }
}
