//! The layout of a ring's block: how many packets it holds, and where each begins.
//!
//! What enters: the bytes of one block. What leaves: the positions of its packets, checked to lie inside it. The kernel
//! wrote all of this, and it is still read like a file: a number out of bounds is an error, never a read out of bounds.

use std::ops::Range;

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// How many packets the block holds.
    pub(super) packet_count: u32,
    /// Where the first packet begins.
    pub(super) first_offset: usize,
}

/// One packet of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// When the kernel received the packet, in nanoseconds since 1970.
    pub(super) time_ns: i64,
    /// The range of its bytes in the block.
    pub(super) range: Range<usize>,
    /// The tag control information of the VLAN tag that the kernel took out of the frame.
    pub(super) vlan: Option<u16>,
    /// Where the next packet begins, if there is one.
    pub(super) next_offset: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Reads the header of a block; `None` if it is not one that the kernel filled.
pub(super) fn block_header(block: &[u8]) -> Option<BlockHeader> {
    const PACKET_COUNT_OFFSET: usize = 12;
    const FIRST_OFFSET_OFFSET: usize = 16;
    let packet_count = u32_at(block, PACKET_COUNT_OFFSET)?;
    let first_offset = u32_at(block, FIRST_OFFSET_OFFSET)? as usize;
    (first_offset < block.len()).then_some(BlockHeader { packet_count, first_offset })
}

/// Reads the packet that begins at this offset; `None` if it does not lie inside the block.
pub(super) fn frame(block: &[u8], offset: usize) -> Option<Frame> {
    /// The kernel's header of a packet.
    const HEADER_SIZE: usize = 48;
    let header: &[u8; HEADER_SIZE] = block.get(offset..)?.first_chunk()?;
    let word = |at: usize| u32_at(header, at);
    let (next, seconds, nanoseconds, captured_size) = (word(0)?, word(4)?, word(8)?, word(12)?);
    let status = word(20)?;
    let data_offset = u16::from_ne_bytes([header[24], header[25]]);
    let tag_control = word(32)?;
    let start = offset.checked_add(usize::from(data_offset))?;
    let end = start.checked_add(captured_size as usize)?;
    // The last packet of a block has a zero here.
    let next_offset = if next == 0 { block.len() } else { offset.checked_add(next as usize)? };
    if usize::from(data_offset) < HEADER_SIZE || end > block.len() {
        return None;
    }
    Some(Frame {
        // At most 2^32 seconds: it does not overflow.
        time_ns: i64::from(seconds) * 1_000_000_000 + i64::from(nanoseconds),
        range: start..end,
        vlan: (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(tag_control as u16),
        next_offset,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block with one packet of these bytes at 48, whose data begin 64 bytes further on.
    fn block(bytes: &[u8], next: u32, status: u32) -> Vec<u8> {
        let mut block = vec![0; 48];
        block[12..16].copy_from_slice(&1_u32.to_ne_bytes());
        block[16..20].copy_from_slice(&48_u32.to_ne_bytes());
        for word in [next, 7, 9, bytes.len() as u32, 1500, status] {
            block.extend(word.to_ne_bytes());
        }
        block.extend(64_u16.to_ne_bytes());
        block.extend([0; 6]);
        block.extend(0x6005_u32.to_ne_bytes());
        block.resize(48 + 64, 0);
        block.extend(bytes);
        block
    }

    #[test]
    fn a_packet_is_found_with_its_time_and_tag() {
        let block = block(b"packet", 0, libc::TP_STATUS_VLAN_VALID);
        assert_eq!(block_header(&block), Some(BlockHeader { packet_count: 1, first_offset: 48 }));
        let frame = frame(&block, 48).unwrap();
        assert_eq!((frame.time_ns, frame.vlan, &block[frame.range]), (7_000_000_009, Some(0x6005), &b"packet"[..]));
        assert_eq!(frame.next_offset, block.len());
    }

    #[test]
    fn without_a_valid_tag_there_is_none() {
        assert_eq!(frame(&block(b"packet", 0, 0), 48).unwrap().vlan, None);
    }

    #[test]
    fn what_lies_outside_is_no_packet() {
        let whole = block(b"packet", 0, 0);
        for size in 0..whole.len() {
            assert_eq!(frame(&whole[..size], 48), None, "{size}");
        }
        assert_eq!(frame(&whole, usize::MAX), None);
        let mut inside_of_its_header = whole;
        inside_of_its_header[48 + 24] = 47;
        assert_eq!(frame(&inside_of_its_header, 48), None);
    }

    proptest! {
        #[test]
        fn any_bytes_give_places_inside_of_them(bytes in prop::collection::vec(any::<u8>(), 0..200), offset in 0_usize..250) {
            if let Some(header) = block_header(&bytes) {
                prop_assert!(header.first_offset < bytes.len());
            }
            if let Some(frame) = frame(&bytes, offset) {
                prop_assert!(frame.range.start >= offset + 48 && bytes.get(frame.range).is_some());
            }
        }
    }
}
