//! Small captures built by hand: connections that open, some that close, as pcap and as pcapng.

use std::io::Write;

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;
const FIN_ACK: u8 = 0x11;

/// A second of 2026.
pub(crate) const START_S: u32 = 1_767_225_600;

/// What stands before the first record of a pcap file, and before the packet in a record.
pub(crate) const PCAP_HEADER_SIZE: usize = 24;
pub(crate) const RECORD_HEADER_SIZE: usize = 16;

/// An Ethernet frame with a TCP segment between 10.0.0.1 and 10.0.0.2, port 443.
fn frame(client_port: u16, is_from_client: bool, flags: u8, [sequence, acknowledged]: [u32; 2]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let [client, server] = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let (source, destination) = if is_from_client { (client, server) } else { (server, client) };
    bytes.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    bytes.extend(source);
    bytes.extend(destination);
    let ports = if is_from_client { [client_port, 443] } else { [443, client_port] };
    bytes.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    bytes.extend([sequence, acknowledged].iter().flat_map(|number| number.to_be_bytes()));
    bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes
}

/// A handshake.
pub(crate) fn opening(client_port: u16) -> [Vec<u8>; 3] {
    let [client, server] = [1_000, 9_000].map(|sequence| sequence + u32::from(client_port));
    [
        frame(client_port, true, SYN, [client, 0]),
        frame(client_port, false, SYN_ACK, [server, client + 1]),
        frame(client_port, true, ACK, [client + 1, server + 1]),
    ]
}

fn closing(client_port: u16) -> [Vec<u8>; 2] {
    let [client, server] = [1_001, 9_001].map(|sequence| sequence + u32::from(client_port));
    [frame(client_port, true, FIN_ACK, [client, server]), frame(client_port, false, FIN_ACK, [server, client + 1])]
}

/// Three connections, of which one closes, and one that is not answered.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = [40_000, 40_001, 40_002].into_iter().flat_map(opening).collect();
    frames.extend(closing(40_001));
    frames.push(frame(40_003, true, SYN, [77, 0]));
    frames
}

/// The header of a pcap file of Ethernet frames.
pub(crate) fn pcap_header(snapshot_size: u32) -> Vec<u8> {
    let mut bytes = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
    bytes.extend(snapshot_size.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes
}

/// The head of a record that says it has this many bytes.
pub(crate) fn record_header(seconds: u32, captured_size: u32) -> Vec<u8> {
    [seconds, 0, captured_size, captured_size].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A pcap file of frames, each with its second.
pub(crate) fn pcap_at(timed: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = pcap_header(65_535);
    for (seconds, frame) in timed {
        bytes.extend(record_header(*seconds, frame.len() as u32));
        bytes.extend(frame);
    }
    bytes
}

/// A pcap file of frames, a second apart.
pub(crate) fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let timed: Vec<_> = (START_S..).zip(frames.iter().cloned()).collect();
    pcap_at(&timed)
}

/// A pcapng block, with both lengths as they should be.
pub(crate) fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = (body.len().next_multiple_of(4) + 12) as u32;
    let mut bytes: Vec<u8> = [kind, size].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(body);
    bytes.resize(size as usize - 4, 0);
    bytes.extend(size.to_le_bytes());
    bytes
}

/// The body of an enhanced packet block.
pub(crate) fn packet_body(interface: u32, ticks: u64, frame: &[u8]) -> Vec<u8> {
    let size = frame.len() as u32;
    let words = [interface, (ticks >> 32) as u32, ticks as u32, size, size];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(frame);
    bytes
}

/// What a pcapng file begins with: a section, and an Ethernet interface with these options.
pub(crate) fn pcapng_header(options: &[u8]) -> Vec<u8> {
    let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    let mut interface = vec![1, 0, 0, 0, 0, 0, 4, 0];
    interface.extend(options);
    [block(0x0a0d_0d0a, &section), block(1, &interface)].concat()
}

/// A pcapng file of frames, each with its ticks of a microsecond, or of what the interface's options say.
pub(crate) fn pcapng_at(options: &[u8], timed: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = pcapng_header(options);
    for (ticks, frame) in timed {
        bytes.extend(block(6, &packet_body(0, *ticks, frame)));
    }
    bytes
}

/// A pcapng file of frames, a second apart.
pub(crate) fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    let timed: Vec<_> = (u64::from(START_S)..).map(|second| second * 1_000_000).zip(frames.iter().cloned()).collect();
    pcapng_at(&[], &timed)
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    // As the zstd command does; without it, damage can go unseen.
    encoder.include_checksum(true).unwrap();
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap()
}
