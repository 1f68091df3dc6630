//! A plain frame: TCP without options or payload, in IPv4, in Ethernet.

/// A frame from one end to another, each the last byte of an address below 192.0.2.0 and a port.
pub(crate) fn plain_frame(src: (u8, u16), dst: (u8, u16), flags: u8, (seq, ack): (u32, u32)) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, src.0, 192, 0, 2, dst.0]);
    frame.extend([src.1, dst.1].iter().flat_map(|port| port.to_be_bytes()));
    frame.extend([seq, ack].iter().flat_map(|number| number.to_be_bytes()));
    frame.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
    frame
}
