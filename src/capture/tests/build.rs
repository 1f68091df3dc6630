//! Capture files built by hand, and what a replay of them yields.

use std::io::{self, Cursor, ErrorKind, Read, Write};
use std::path::Path;

use crate::capture::byte_order::ByteOrder;
use crate::capture::{Packet, PacketSource, Replay};
use crate::error::Error;

/// The number of a link type that flowpeel will never read: it is the user's own.
pub(crate) const USER_LINK: u32 = 147;
pub(super) const ETHERNET_LINK: u32 = 1;
pub(super) const RAW_LINK: u32 = 101;

/// A packet as a test compares it: time, link type, bytes.
pub(super) type Seen = (i64, u32, Vec<u8>);

fn u16_bytes(order: ByteOrder, number: u16) -> [u8; 2] {
    if order == ByteOrder::Little { number.to_le_bytes() } else { number.to_be_bytes() }
}

pub(super) fn u32_bytes(order: ByteOrder, number: u32) -> [u8; 4] {
    if order == ByteOrder::Little { number.to_le_bytes() } else { number.to_be_bytes() }
}

fn push_words(bytes: &mut Vec<u8>, order: ByteOrder, words: &[u32]) {
    for &word in words {
        bytes.extend(u32_bytes(order, word));
    }
}

fn size_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a test packet is short")
}

/// A pcap file in the making.
pub(super) struct Pcap {
    pub(super) order: ByteOrder,
    pub(super) magic: u32,
    pub(super) bytes: Vec<u8>,
}

impl Pcap {
    pub(super) fn new(order: ByteOrder, magic: u32, network: u32) -> Self {
        Pcap::with_version(order, magic, network, [2, 4])
    }

    pub(super) fn with_version(order: ByteOrder, magic: u32, network: u32, [major, minor]: [u16; 2]) -> Self {
        let mut bytes = u32_bytes(order, magic).to_vec();
        bytes.extend(u16_bytes(order, major));
        bytes.extend(u16_bytes(order, minor));
        push_words(&mut bytes, order, &[0, 0, 65_535, network]);
        Pcap { order, magic, bytes }
    }

    pub(super) fn header(mut self, seconds: u32, fraction: u32, lengths: [u32; 2]) -> Self {
        push_words(&mut self.bytes, self.order, &[seconds, fraction, lengths[0], lengths[1]]);
        if self.magic == 0xa1b2_cd34 {
            push_words(&mut self.bytes, self.order, &[3, 0x0800_0001]);
        }
        self
    }

    pub(super) fn packet(self, seconds: u32, fraction: u32, packet: &[u8]) -> Self {
        let mut pcap = self.header(seconds, fraction, [size_of(packet), size_of(packet) + 7]);
        pcap.bytes.extend(packet);
        pcap
    }
}

/// A pcapng file in the making.
pub(crate) struct Pcapng {
    pub(super) order: ByteOrder,
    pub(crate) bytes: Vec<u8>,
}

impl Pcapng {
    pub(crate) fn little() -> Self {
        Pcapng::new(ByteOrder::Little)
    }

    pub(super) fn new(order: ByteOrder) -> Self {
        Pcapng { order, bytes: Vec::new() }.section(order)
    }

    pub(super) fn block(mut self, kind: u32, body: &[u8]) -> Self {
        let size = size_of(body).next_multiple_of(4) + 12;
        push_words(&mut self.bytes, self.order, &[kind, size]);
        self.bytes.extend(body);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0xee);
        push_words(&mut self.bytes, self.order, &[size]);
        self
    }

    pub(super) fn section(mut self, order: ByteOrder) -> Self {
        self.order = order;
        let mut body = u32_bytes(order, 0x1a2b_3c4d).to_vec();
        body.extend(u16_bytes(order, 1));
        body.extend([0; 2]);
        body.extend([0xff; 8]);
        self.block(0x0a0d_0d0a, &body)
    }

    pub(crate) fn interface(self, link: u32, snapshot_size: u32, options: &[(u16, &[u8])]) -> Self {
        let link = u16::try_from(link).expect("pcapng has 16 bits for it");
        let mut body = u16_bytes(self.order, link).to_vec();
        body.extend([0; 2]);
        body.extend(u32_bytes(self.order, snapshot_size));
        for (code, value) in options {
            body.extend(u16_bytes(self.order, *code));
            body.extend(u16_bytes(self.order, u16::try_from(value.len()).expect("a test option is short")));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    pub(crate) fn ethernet(self) -> Self {
        self.interface(ETHERNET_LINK, 65_535, &[])
    }

    fn timed(self, kind: u32, interface: [u8; 4], ticks: u64, packet: &[u8]) -> Self {
        let mut body = interface.to_vec();
        let [high, low] = [(ticks >> 32) as u32, ticks as u32];
        push_words(&mut body, self.order, &[high, low, size_of(packet), size_of(packet) + 7]);
        body.extend(packet);
        self.block(kind, &body)
    }

    pub(crate) fn enhanced(self, interface: u32, ticks: u64, packet: &[u8]) -> Self {
        let interface = u32_bytes(self.order, interface);
        self.timed(6, interface, ticks, packet)
    }

    pub(super) fn obsolete(self, interface: u16, ticks: u64, packet: &[u8]) -> Self {
        let [a, b] = u16_bytes(self.order, interface);
        self.timed(2, [a, b, 0xff, 0xff], ticks, packet)
    }

    pub(super) fn simple(self, wire_size: u32, packet: &[u8]) -> Self {
        let mut body = u32_bytes(self.order, wire_size).to_vec();
        body.extend(packet);
        self.block(3, &body)
    }
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes all")
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory takes all")
}

/// A reader like a slow pipe: it gives some bytes at a time and is interrupted now and then.
pub(super) struct Dribble {
    bytes: Cursor<Vec<u8>>,
    read_count: usize,
}

impl Dribble {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Dribble { bytes: Cursor::new(bytes.to_vec()), read_count: 0 }
    }
}

impl Read for Dribble {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_count += 1;
        if self.read_count.is_multiple_of(5) {
            return Err(io::Error::from(ErrorKind::Interrupted));
        }
        let size = buffer.len().min(1 + self.read_count % 7);
        self.bytes.read(&mut buffer[..size])
    }
}

/// Every packet of a capture, and the failure that ended it.
///
/// # Panics
///
/// If the source continues after its end, or yields more packets than `packets_max`.
pub(super) fn replay(reader: impl Read + Send + 'static, packets_max: usize) -> (Vec<Seen>, Option<Error>) {
    let mut seen = Vec::new();
    let mut replay = match Replay::from_reader(reader, Path::new("test")) {
        Ok(replay) => replay,
        Err(error) => return (seen, Some(error)),
    };
    let failure = loop {
        match replay.next_packet() {
            Ok(Some(packet)) => seen.push((packet.time_ns, packet.link.0, packet.bytes.to_vec())),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
        assert!(seen.len() <= packets_max, "more packets than the input has bytes");
    };
    assert!(replay.is_finished());
    assert!(matches!(replay.next_packet(), Ok(None)), "a source that has ended stays so");
    assert_eq!(replay.packet_count(), seen.len() as u64);
    (seen, failure)
}

/// As [`replay`], from memory.
pub(super) fn replay_bytes(bytes: &[u8]) -> (Vec<Seen>, Option<Error>) {
    replay(Cursor::new(bytes.to_vec()), bytes.len())
}

/// The packets of a good capture.
pub(super) fn packets(bytes: &[u8]) -> Vec<Seen> {
    let (seen, failure) = replay_bytes(bytes);
    assert!(failure.is_none(), "{failure:?}");
    seen
}

/// How many bytes each packet of a good capture had on the wire, read one by one and many at a time.
pub(super) fn wire_sizes(bytes: &[u8]) -> Vec<usize> {
    let open = || Replay::from_reader(Cursor::new(bytes.to_vec()), Path::new("test")).expect("a good capture");
    let (mut one_by_one, mut together) = (Vec::new(), Vec::new());
    let mut replay = open();
    while let Some(packet) = replay.next_packet().expect("a good capture") {
        one_by_one.push(packet.wire_size);
    }
    let mut sink = |packet: &Packet<'_>| together.push(packet.wire_size);
    open().each_packet(u64::MAX, &mut sink).expect("a good capture");
    assert_eq!(one_by_one, together);
    one_by_one
}

/// The line that says why a capture cannot be read any further.
pub(super) fn failure(bytes: &[u8]) -> String {
    replay_bytes(bytes).1.expect("it cannot be read").to_string()
}
