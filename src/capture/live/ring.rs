//! The reader of a ring of blocks that the kernel fills with packets (TPACKET_V3).
//!
//! Packets are read directly from the memory that the kernel wrote them to, without a system call. A block goes back to
//! the kernel when its last packet has been read. What the kernel wrote is still read like a file: a number out of
//! bounds is an error, never a read out of bounds.

use super::ring_memory::RingMemory;
use super::socket::PacketSocket;
use super::socket_options::{self as options, RingRequest};
use crate::capture::live::RING_BLOCK_SIZE;
use crate::capture::{ClockName, Packet};
use crate::error::{Error, Result};
use crate::parse::LinkType;
use std::io;
use std::ops::Range;

/// How long the kernel waits before it hands over a block that is not full, in milliseconds: packets are seen within
/// that time.
const RING_RETIRE_MS: u32 = 10;

/// The kernel asks for a frame size, but packs frames one after the other. It has to divide the block size.
const FRAME_SIZE: u32 = 2048;

const _: () = assert!(RING_BLOCK_SIZE.is_multiple_of(FRAME_SIZE));

/// A socket's ring, and the position of its reader.
pub(super) struct Ring {
    memory: RingMemory,
    link: LinkType,
    /// The block that is read, or waited for.
    block_index: usize,
    /// The position of the next packet in it, if reading it has begun.
    next: Option<RingPosition>,
}

#[derive(Clone, Copy)]
struct RingPosition {
    offset: usize,
    /// Packets of the block that have not been read, this one included.
    count: u32,
}

impl Ring {
    /// Gives this socket a ring of this many blocks.
    pub(super) fn new(socket: &PacketSocket, block_count: u32, link: LinkType) -> io::Result<Self> {
        options::use_version_3(socket.fd())?;
        let request =
            RingRequest { block_size: RING_BLOCK_SIZE, block_count, frame_size: FRAME_SIZE, retire_ms: RING_RETIRE_MS };
        options::make_ring(socket.fd(), request)?;
        let memory = RingMemory::map(socket.fd(), RING_BLOCK_SIZE as usize, block_count as usize)?;
        Ok(Ring { memory, link, block_index: 0, next: None })
    }

    /// Whether there is a packet now.
    pub(super) fn has_packet(&self) -> bool {
        self.next.is_some_and(|next| next.count > 0) || self.memory.block(self.following()).is_some()
    }

    /// Whether half of the blocks wait to be read.
    pub(super) fn is_filling(&self) -> bool {
        let half = self.memory.block_count() / 2;
        self.memory.block((self.block_index + half) % self.memory.block_count()).is_some()
    }

    /// The block to be read after the current one.
    fn following(&self) -> usize {
        match self.next {
            Some(_) => (self.block_index + 1) % self.memory.block_count(),
            None => self.block_index,
        }
    }

    /// The next packet, if there is one now.
    ///
    /// # Errors
    /// The ring's memory is inconsistent, which no working kernel causes.
    #[inline]
    pub(super) fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        if self.next.is_none_or(|next| next.count == 0) && !self.begin_block()? {
            return Ok(None);
        }
        let (Some(next), Some(block)) = (self.next.as_mut(), self.memory.block(self.block_index)) else {
            return Err(inconsistent());
        };
        let frame = frame(block, next.offset).ok_or_else(inconsistent)?;
        *next = RingPosition { offset: frame.next_offset, count: next.count.saturating_sub(1) };
        let bytes = block.get(frame.range).ok_or_else(inconsistent)?;
        Ok(Some(Packet {
            time_ns: frame.time_ns,
            // The kernel stamps the packets of all interfaces by the wall clock.
            clock: ClockName::FIRST,
            link: self.link,
            bytes,
            wire_size: frame.wire_size,
            vlan: frame.vlan,
        }))
    }

    /// Gives back the block that has been read and moves to the next one that holds packets; false if there is none
    /// yet.
    fn begin_block(&mut self) -> Result<bool> {
        // Blocks can be empty, so several may be passed, but never more than the ring has.
        for _ in 0..=self.memory.block_count() {
            if self.next.take().is_some() {
                self.memory.release(self.block_index);
                self.block_index = (self.block_index + 1) % self.memory.block_count();
            }
            let Some(block) = self.memory.block(self.block_index) else {
                return Ok(false);
            };
            let header = block_header(block).ok_or_else(inconsistent)?;
            self.next = Some(RingPosition { offset: header.first_offset, count: header.packet_count });
            if header.packet_count > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cold]
fn inconsistent() -> Error {
    Error::new("the kernel's packet ring makes no sense: --backend pnet does without it")
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingBlockHeader {
    /// How many packets the block holds.
    packet_count: u32,
    /// Where the first packet begins.
    first_offset: usize,
}

/// One packet of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RingFrame {
    /// When the kernel received the packet, in nanoseconds since 1970.
    time_ns: i64,
    /// The range of its bytes in the block.
    range: Range<usize>,
    /// The bytes that the packet had when the kernel received it.
    wire_size: usize,
    /// The tag control information of the VLAN tag that the kernel took out of the frame.
    vlan: Option<u16>,
    /// Where the next packet begins, if there is one.
    next_offset: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Reads the header of a block; `None` if it is not one that the kernel filled.
fn block_header(block: &[u8]) -> Option<RingBlockHeader> {
    const PACKET_COUNT_OFFSET: usize = 12;
    const FIRST_OFFSET_OFFSET: usize = 16;
    let packet_count = u32_at(block, PACKET_COUNT_OFFSET)?;
    let first_offset = u32_at(block, FIRST_OFFSET_OFFSET)? as usize;
    (first_offset < block.len()).then_some(RingBlockHeader { packet_count, first_offset })
}

/// Reads the packet that begins at this offset; `None` if it does not lie inside the block.
fn frame(block: &[u8], offset: usize) -> Option<RingFrame> {
    /// The kernel's header of a packet.
    const HEADER_SIZE: usize = 48;
    let header: &[u8; HEADER_SIZE] = block.get(offset..)?.first_chunk()?;
    let word = |at: usize| u32_at(header, at);
    let (next, seconds, nanoseconds, captured_size) = (word(0)?, word(4)?, word(8)?, word(12)?);
    let (wire_size, status) = (word(16)? as usize, word(20)?);
    let data_offset = u16::from_ne_bytes([header[24], header[25]]);
    let tag_control = word(32)?;
    let start = offset.checked_add(usize::from(data_offset))?;
    let end = start.checked_add(captured_size as usize)?;
    // The last packet of a block has a zero here.
    let next_offset = if next == 0 { block.len() } else { offset.checked_add(next as usize)? };
    if usize::from(data_offset) < HEADER_SIZE || end > block.len() {
        return None;
    }
    Some(RingFrame {
        // At most 2^32 seconds: it does not overflow.
        time_ns: i64::from(seconds) * 1_000_000_000 + i64::from(nanoseconds),
        range: start..end,
        wire_size,
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
        assert_eq!(block_header(&block), Some(RingBlockHeader { packet_count: 1, first_offset: 48 }));
        let frame = frame(&block, 48).unwrap();
        assert_eq!(frame.wire_size, 1500);
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
