//! The TCP header of an Ethernet frame, looked for only where plain traffic has it.
//!
//! Addresses, ports and flags stay in the frame. Tags, tunnels and the extension headers
//! of IPv6 are not followed: that would make it slower, and the captures hold none.

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const ACK: u8 = 0x10;

/// The flags that can open or close a connection.
pub(super) const SIGNALS: u8 = FIN | SYN | RST;

/// The addresses of sender and receiver, one after the other.
pub(super) enum Addresses<'a> {
    V4(&'a [u8; 8]),
    V6(&'a [u8; 32]),
}

/// The fields of a TCP header that matter.
pub(super) struct Segment<'a> {
    pub(super) addresses: Addresses<'a>,
    /// The ports of sender and receiver.
    pub(super) ports: &'a [u8; 4],
    pub(super) flags: u8,
}

/// The segment that a frame holds, if it is one of TCP and captured up to the flags.
#[inline(always)]
pub(super) fn segment(frame: &[u8]) -> Option<Segment<'_>> {
    let (link, packet) = frame.split_first_chunk::<14>()?;
    match [link[12], link[13]] {
        IPV4 => {
            let header = packet.first_chunk::<20>()?;
            let is_later_fragment = [header[6] & 0x1f, header[7]] != [0, 0];
            if header[9] != TCP || is_later_fragment {
                return None;
            }
            let tcp = packet.get(usize::from(header[0] & 0x0f) * 4..)?.first_chunk::<14>()?;
            let addresses = Addresses::V4(packet[12..].first_chunk()?);
            Some(Segment { addresses, ports: tcp.first_chunk()?, flags: tcp[13] })
        }
        IPV6 => {
            let (header, tcp) = packet.split_first_chunk::<40>()?;
            let tcp = tcp.first_chunk::<14>()?;
            let addresses = Addresses::V6(header[8..].first_chunk()?);
            (header[6] == TCP).then_some(Segment { addresses, ports: tcp.first_chunk()?, flags: tcp[13] })
        }
        _ => None,
    }
}
