//! The framing of pcapng: type, length, body, and the length once more.
//!
//! What enters: an [`Input`] at the beginning of a block. What leaves: the block's type and, if it is wanted and not
//! too long, its body. A block that is not wanted may have any length, because it is skipped as it is read.

use std::ops::Range;

use crate::capture::PACKET_SIZE_MAX;
use crate::capture::byte_order::ByteOrder;
use crate::capture::input::{Input, Result, cut_short};
use crate::error::Error;

/// The longest pcapng block that is held whole, in bytes: the longest packet and two options of the longest kind. Only
/// blocks of packets and of interface descriptions are held; others may have any length, because they are skipped as
/// they come.
pub const BLOCK_SIZE_MAX: usize = 400 << 10;

/// The longest option of a pcapng block, in bytes: option lengths are 16-bit numbers.
const BLOCK_OPTION_SIZE_MAX: usize = (1 << 16) + 4;

const _: () = assert!(BLOCK_SIZE_MAX >= PACKET_SIZE_MAX + 2 * BLOCK_OPTION_SIZE_MAX);

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
pub(super) const OBSOLETE_PACKET: u32 = 2;
pub(super) const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;

/// The number after the length of a section header, which tells the byte order.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// The size of what precedes the body: type and length.
pub(super) const HEADER_SIZE: usize = 8;
/// The size of what follows the body: the length once more.
const TRAILER_SIZE: usize = 4;
const BLOCK_SIZE_MIN: usize = HEADER_SIZE + TRAILER_SIZE;
/// A section header holds a byte-order magic, a version and a section length too.
const SECTION_HEADER_SIZE_MIN: usize = BLOCK_SIZE_MIN + 16;

/// Whether a file that begins with these bytes is pcapng; there are twelve of them, or fewer if the file is shorter.
pub(in crate::capture) fn is_section_header(unread: &[u8]) -> bool {
    match unread.as_chunks::<4>().0 {
        [kind, _size, magic, ..] => {
            u32::from_le_bytes(*kind) == SECTION_HEADER && ByteOrder::recognise(*magic, BYTE_ORDER_MAGIC).is_some()
        }
        [kind, ..] => u32::from_le_bytes(*kind) == SECTION_HEADER,
        [] => false,
    }
}

/// A block that begins at the input's next byte.
#[derive(Debug)]
pub(super) struct Block {
    /// The type.
    pub(super) kind: u32,
    /// The section's byte order.
    pub(super) order: ByteOrder,
    /// The offset in the stream at which the block begins.
    pub(super) offset: u64,
    /// The size in bytes, header and trailer included: at least the minimum for its type.
    size: usize,
}

impl Block {
    /// The block at the input's next byte, or `None` where the input ends; `order` is the section's.
    ///
    /// # Errors
    ///
    /// The input cannot be read or is cut short, or the length is impossible.
    #[inline]
    pub(super) fn next(input: &mut Input, mut order: ByteOrder) -> Result<Option<Block>> {
        // The shortest block has twelve bytes, and the third word of a section header tells its byte order.
        let unread = input.peek(BLOCK_SIZE_MIN)?;
        let ([kind, size, third, ..], _) = unread.as_chunks::<4>() else {
            return end_of_file(input);
        };
        let mut size_min = BLOCK_SIZE_MIN;
        if u32::from_le_bytes(*kind) == SECTION_HEADER {
            size_min = SECTION_HEADER_SIZE_MIN;
            order = match ByteOrder::recognise(*third, BYTE_ORDER_MAGIC) {
                Some(order) => order,
                None => {
                    let what = "the file is damaged: a section header without its byte-order magic";
                    return Err(Error::new(what).at(input.offset()).into());
                }
            };
        }
        let kind = order.u32(*kind);
        let size = order.u32(*size) as usize;
        let offset = input.offset();
        if size < size_min || !size.is_multiple_of(4) {
            return Err(impossible_size(size, size_min, offset));
        }
        Ok(Some(Block { kind, order, offset, size }))
    }

    /// The bytes between header and trailer. The whole block is read into the buffer, and its two lengths agree.
    ///
    /// # Errors
    ///
    /// The input cannot be read or is cut short, the lengths differ, or the block is too long for the buffer.
    #[inline]
    pub(super) fn body<'a>(&self, input: &'a mut Input) -> Result<&'a [u8]> {
        if self.size > BLOCK_SIZE_MAX {
            return Err(self.too_long());
        }
        let unread = input.peek(self.size)?;
        let Some((rest, trailer)) = unread.get(..self.size).and_then(|block| block.split_last_chunk()) else {
            return Err(self.cut_short(unread.len()));
        };
        self.check_trailer(*trailer)?;
        rest.get(HEADER_SIZE..).ok_or_else(|| self.too_short())
    }

    /// Passes over a block whose body was read. Returns its range of the buffer.
    #[inline]
    pub(super) fn consume(&self, input: &mut Input) -> Range<usize> {
        input.consume(self.size)
    }

    /// Passes over the block, however long it is.
    ///
    /// # Errors
    ///
    /// The input cannot be read or is cut short, or the two lengths differ.
    pub(super) fn skip(&self, input: &mut Input) -> Result<()> {
        let is_whole = input.skip((self.size - TRAILER_SIZE) as u64)?;
        let trailer = input.peek(TRAILER_SIZE)?;
        match trailer.first_chunk() {
            Some(trailer) if is_whole => self.check_trailer(*trailer)?,
            _ => {
                let trailer_size = trailer.len() as u64;
                let present_size = input.offset() + trailer_size - self.offset;
                return Err(self.cut_short(usize::try_from(present_size).unwrap_or(self.size)));
            }
        }
        input.consume(TRAILER_SIZE);
        Ok(())
    }

    /// Checks that the section is of a version that this reader knows.
    ///
    /// # Errors
    ///
    /// The version is not 1.x, or the input cannot be read or is cut short.
    pub(super) fn check_section_version(&self, input: &mut Input) -> Result<()> {
        let unread = input.peek(SECTION_HEADER_SIZE_MIN)?;
        let ([_kind, _size, _magic, version, ..], _) = unread.as_chunks::<4>() else {
            return Err(self.cut_short(unread.len()));
        };
        match self.order.u16_pair(*version) {
            (1, _) => Ok(()),
            (major, minor) => {
                let what = format!("pcapng version {major}.{minor} is not known (1.0 is)");
                Err(Error::new(what).at(self.offset).into())
            }
        }
    }

    /// The error for a block that is too short for its type.
    #[cold]
    pub(super) fn too_short(&self) -> Box<Error> {
        let what = format!("the file is damaged: a block of type {} with only {} bytes", self.kind, self.size);
        Box::new(Error::new(what).at(self.offset))
    }

    #[cold]
    fn too_long(&self) -> Box<Error> {
        let Block { kind, size, .. } = self;
        let what = format!("a block of type {kind} with {size} bytes, where {BLOCK_SIZE_MAX} is the most that is read");
        Box::new(Error::new(what).at(self.offset))
    }

    #[cold]
    fn cut_short(&self, present_size: usize) -> Box<Error> {
        cut_short("a block", self.offset, present_size, self.size)
    }

    #[inline]
    fn check_trailer(&self, trailer: [u8; TRAILER_SIZE]) -> Result<()> {
        match self.order.u32(trailer) as usize {
            size if size == self.size => Ok(()),
            size => Err(self.lengths_differ(size)),
        }
    }

    #[cold]
    fn lengths_differ(&self, trailer: usize) -> Box<Error> {
        let what = format!("the file is damaged: a block gives its length as {} and as {trailer} bytes", self.size);
        Box::new(Error::new(what).at(self.offset))
    }
}

#[cold]
fn end_of_file(input: &mut Input) -> Result<Option<Block>> {
    let offset = input.offset();
    match input.peek(0)?.len() {
        0 => Ok(None),
        present_size => Err(cut_short("the head of a block", offset, present_size, BLOCK_SIZE_MIN)),
    }
}

#[cold]
fn impossible_size(size: usize, size_min: usize, offset: u64) -> Box<Error> {
    let what = format!(
        "the file is damaged: a block of {size} bytes, where at least {size_min} and a multiple of 4 are possible"
    );
    Box::new(Error::new(what).at(offset))
}
