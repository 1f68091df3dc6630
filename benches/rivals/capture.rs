//! The packets of a capture, by large reads and nothing else.
//!
//! It takes a pcap file in microseconds, little-endian, of Ethernet frames, and gives its packets, one by one, as they
//! lie in the read buffer.

use flowpeel::capture::CAPTURE_READ_SIZE;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The longest packet that is taken.
const PACKET_SIZE_MAX: usize = 256 << 10;

const FILE_HEADER_SIZE: usize = 24;
const RECORD_HEADER_SIZE: usize = 16;

/// Magic number (microseconds, little-endian), and link type (Ethernet) at byte 20.
const MAGIC: [u8; 4] = [0xd4, 0xc3, 0xb2, 0xa1];
const ETHERNET: [u8; 4] = [1, 0, 0, 0];

/// When a packet was captured.
#[derive(Clone, Copy)]
pub(super) struct Time {
    pub(super) seconds: u32,
    pub(super) microseconds: u32,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

/// Passes every packet to `visit`, and returns how many there were.
///
/// # Errors
///
/// The file cannot be read, is of another kind, holds a longer packet, or is cut short.
#[inline(always)]
pub(super) fn each_frame(path: &Path, mut visit: impl FnMut(Time, &[u8])) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut header = [0; FILE_HEADER_SIZE];
    file.read_exact(&mut header)?;
    if header[..4] != MAGIC || header[20..] != ETHERNET {
        return Err(bad("not a little-endian pcap file in microseconds of Ethernet frames"));
    }
    // As much at once as flowpeel asks for; 1 MiB and 4 MiB make no measurable difference to the bare loop.
    let mut buffer = vec![0; RECORD_HEADER_SIZE + PACKET_SIZE_MAX + CAPTURE_READ_SIZE];
    let (mut held, mut count) = (0, 0);
    loop {
        // The bytes held are fewer than one packet with its header.
        let read = file.read(&mut buffer[held..held + CAPTURE_READ_SIZE])?;
        if read == 0 {
            return if held == 0 { Ok(count) } else { Err(bad("the file is cut short")) };
        }
        let mut rest = &buffer[..held + read];
        while let Some((header, behind)) = rest.split_first_chunk::<RECORD_HEADER_SIZE>() {
            let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let captured_size = word(8) as usize;
            let Some((frame, next)) = behind.split_at_checked(captured_size) else {
                if captured_size > PACKET_SIZE_MAX {
                    return Err(bad("a packet is too long"));
                }
                break;
            };
            visit(Time { seconds: word(0), microseconds: word(4) }, frame);
            count += 1;
            rest = next;
        }
        let rest_size = rest.len();
        buffer.copy_within(held + read - rest_size..held + read, 0);
        held = rest_size;
    }
}
