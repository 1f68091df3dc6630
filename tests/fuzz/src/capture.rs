//! Files of any bytes as captures: pcap, pcapng, and both compressed.
//!
//! What enters: a file. What leaves: nothing; reading comes to an end and gives the same twice, and every packet of a
//! link type that is not read is reported.

use flowpeel::capture::{PACKET_SIZE_MAX, Packet, PacketSource, Replay};
use std::io::{Cursor, Read};
use std::path::Path;

/// Packets after which a capture is left alone: compressed bytes may stand for thousands each.
const PACKET_COUNT_MAX: usize = 1 << 12;

/// Runs one file, read at once and some bytes at a time.
pub fn run(bytes: &[u8]) {
    let whole = replay(Cursor::new(bytes.to_vec()));
    let dribbled = replay(Dribble(Cursor::new(bytes.to_vec())));
    let is_failed = whole.failure.is_some() && dribbled.failure.is_some();
    if is_failed && COMPRESSED.iter().any(|magic| bytes.get(1..3) == Some(magic)) {
        // How far a decoder comes in damaged data, and what it calls the damage, depends on how much it is given.
        let size = whole.packets.len().min(dribbled.packets.len());
        assert_eq!(whole.packets[..size], dribbled.packets[..size], "what came before the damage is not the same");
    } else {
        assert_eq!(whole, dribbled, "how it is read changes what is read");
    }
}

/// The second and third byte of compressed files: gzip, zstd, and a zstd frame that is passed over.
const COMPRESSED: [[u8; 2]; 3] = [[0x8b, 8], [0xb5, 0x2f], [0x2a, 0x4d]];

/// A reader that gives a few bytes at a time.
struct Dribble(Cursor<Vec<u8>>);

impl Read for Dribble {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let size = buffer.len().min(1 + self.0.position() as usize % 7);
        self.0.read(&mut buffer[..size])
    }
}

/// What a replay gave: a digest of every packet, and the failure at the end if there is one.
#[derive(Debug, PartialEq)]
struct Seen {
    packets: Vec<u64>,
    failure: Option<String>,
}

fn replay(reader: impl Read + Send + 'static) -> Seen {
    let (mut packets, mut unread_count) = (Vec::new(), 0);
    let mut replay = match Replay::from_reader(reader, Path::new("made up")) {
        Ok(replay) => replay,
        Err(error) => return Seen { packets, failure: Some(error.to_string()) },
    };
    let failure = loop {
        if packets.len() == PACKET_COUNT_MAX {
            break None;
        }
        match replay.next_packet() {
            Ok(Some(packet)) => {
                unread_count += u64::from(!packet.link.is_supported());
                packets.push(digest(&packet));
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    assert_eq!(replay.packet_count(), packets.len() as u64);
    if replay.is_finished() {
        assert!(matches!(replay.next_packet(), Ok(None)), "it goes on behind its end");
    }
    if let Some(skipped) = replay.skipped() {
        assert_eq!(skipped.total_count(), unread_count);
        assert!(unread_count > 0 && !skipped.to_string().is_empty());
    }
    if let Some(failure) = &failure {
        assert!(!failure.contains(['\n', '\x1b']), "a failure is one line of text");
    }
    Seen { packets, failure }
}

fn digest(packet: &Packet<'_>) -> u64 {
    assert!(packet.bytes.len() <= PACKET_SIZE_MAX && packet.vlan.is_none());
    let words = [packet.time_ns as u64, u64::from(packet.link.0), packet.bytes.len() as u64];
    let bytes = packet.bytes.iter().map(|&byte| u64::from(byte));
    words.into_iter().chain(bytes).fold(0, |digest, word| (digest ^ word).wrapping_mul(0x0000_0100_0000_01b3))
}
