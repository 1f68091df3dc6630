//! The reader of a ring of blocks that the kernel fills with packets (TPACKET_V3).
//!
//! What enters: a packet socket. What leaves: its packets, directly from the memory that the kernel wrote them to,
//! without a system call. A block goes back to the kernel when its last packet has been read.

use std::io;

use super::ring_block::{block_header, frame};
use super::ring_memory::RingMemory;
use super::socket::PacketSocket;
use super::socket_options::{self as options, RingRequest};
use crate::capture::Packet;
use crate::capture::live::RING_BLOCK_SIZE;
use crate::error::{Error, Result};
use crate::parse::LinkType;

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
    next: Option<Next>,
}

#[derive(Clone, Copy)]
struct Next {
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
            return Err(senseless());
        };
        let frame = frame(block, next.offset).ok_or_else(senseless)?;
        *next = Next { offset: frame.next_offset, count: next.count.saturating_sub(1) };
        let bytes = block.get(frame.range).ok_or_else(senseless)?;
        Ok(Some(Packet { time_ns: frame.time_ns, link: self.link, bytes, vlan: frame.vlan }))
    }

    /// Gives back the block that has been read and goes on to the next one that holds packets; false if there is none
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
            let header = block_header(block).ok_or_else(senseless)?;
            self.next = Some(Next { offset: header.first_offset, count: header.packet_count });
            if header.packet_count > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cold]
fn senseless() -> Error {
    Error::new("the kernel's packet ring makes no sense: --backend pnet does without it")
}
