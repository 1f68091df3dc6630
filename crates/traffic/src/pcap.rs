//! Traffic as a capture file: classic pcap, little-endian, in microseconds, of Ethernet frames.

use std::io::{self, Write};

use crate::traffic::{Traffic, TrafficCounts};

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const VERSION: [u16; 2] = [2, 4];
const LINKTYPE_ETHERNET: u32 = 1;

/// Writes a file header and all remaining frames of `traffic` to `out`, and returns the statistics of the traffic.
///
/// Writes are small: give `out` a buffer.
///
/// # Errors
///
/// Any error of `out`. The frame that was being written is lost.
pub fn write_pcap(traffic: &mut Traffic, out: &mut impl Write) -> io::Result<TrafficCounts> {
    let mut header = Vec::with_capacity(24);
    header.extend_from_slice(&MAGIC_MICROSECONDS.to_le_bytes());
    header.extend(VERSION.iter().flat_map(|part| part.to_le_bytes()));
    header.extend_from_slice(&[0; 8]);
    header.extend_from_slice(&(traffic.captured_size_max() as u32).to_le_bytes());
    header.extend_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
    out.write_all(&header)?;
    while let Some(frame) = traffic.next_frame() {
        let mut record = [0; 16];
        // The traffic ends before 32-bit seconds overflow, and no frame is longer than 64 KiB.
        record[..4].copy_from_slice(&((frame.time_us / 1_000_000) as u32).to_le_bytes());
        record[4..8].copy_from_slice(&((frame.time_us % 1_000_000) as u32).to_le_bytes());
        record[8..12].copy_from_slice(&(frame.bytes.len() as u32).to_le_bytes());
        record[12..].copy_from_slice(&(frame.wire_size as u32).to_le_bytes());
        out.write_all(&record)?;
        out.write_all(frame.bytes)?;
    }
    out.flush()?;
    Ok(traffic.counts())
}
