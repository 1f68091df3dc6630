//! The limit of any replay: reading the file, stepping from packet to packet, looking at the TCP flags of each.
//!
//! It counts which packets of a capture had which flag.

use super::capture::each_frame;
use super::frame::{FIN, RST, SYN, segment};
use std::io::{self, Write};
use std::path::Path;

/// Counts the flags of a capture.
pub(super) fn run(capture: &Path, out: &mut impl Write) -> io::Result<()> {
    let mut counts = [0u64; 3];
    let packet_count = each_frame(capture, |_, frame| {
        let flags = segment(frame).map_or(0, |segment| segment.flags);
        for (count, flag) in counts.iter_mut().zip([SYN, FIN, RST]) {
            *count += u64::from(flags & flag != 0);
        }
    })?;
    let [syn_count, fin_count, rst_count] = counts;
    writeln!(out, "{packet_count} packets, {syn_count} SYN, {fin_count} FIN, {rst_count} RST")
}
