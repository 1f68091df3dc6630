//! The one buffer that packets are slices of.
//!
//! What enters: a stream of plain bytes. What leaves: its bytes in order, as many in a row as a reader asks for, and
//! their offset in the stream. What is left of a read without a whole record is moved in front of the next read;
//! nothing else is copied or allocated.

use std::io::Read;
use std::ops::Range;

use super::decompress::Plain;
use crate::capture::pcapng::BLOCK_SIZE_MAX;
use crate::error::Error;
use crate::parse::LinkType;

/// Bytes read from the input at once: large enough that the system call costs nothing beside the copy, small enough to
/// stay in the cache with everything else while the packets are parsed.
pub const CAPTURE_READ_SIZE: usize = 256 << 10;

/// The size of a page of memory on most machines, in bytes. Reads begin at the start of a page: the kernel copies page
/// by page, and some processors copy at a third of the speed to a place that is a few bytes further into its page than
/// the source.
const READ_PAGE_SIZE: usize = 4 << 10;

/// The size of the capture buffer, in bytes: the longest block fits, wherever in a page the block and the buffer begin.
pub const CAPTURE_BUFFER_SIZE: usize = BLOCK_SIZE_MAX + 2 * READ_PAGE_SIZE;

// A read behind the beginning of an IP packet, of 64 KiB at most, has its full size. Behind a longer block it is cut to
// the room left.
const _: () = assert!(CAPTURE_BUFFER_SIZE >= 2 * READ_PAGE_SIZE + (64 << 10) + CAPTURE_READ_SIZE);

/// A result on the packet path. The error is boxed, so that what is returned for every packet stays in registers.
pub(super) type Result<T> = std::result::Result<T, Box<Error>>;

/// The position of a packet in the buffer: it becomes a [`Packet`](super::Packet) when nothing can move it any more.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) time_ns: i64,
    pub(super) link: LinkType,
    pub(super) range: Range<usize>,
}

/// The buffer over a stream.
pub(super) struct Input {
    stream: Plain,
    buffer: Box<[u8]>,
    /// Where in the buffer a page of memory begins.
    first_page: usize,
    /// The bytes of the buffer that were read and not yet consumed: `start <= end <= buffer.len()`.
    start: usize,
    end: usize,
    /// The offset of the buffer's first byte in the stream; below zero (wrapped) while the first read lies behind
    /// unused bytes.
    buffer_offset: u64,
    stream_ended: bool,
}

impl Input {
    /// An empty buffer over this stream.
    pub(super) fn new(stream: Plain) -> Self {
        let buffer = vec![0; CAPTURE_BUFFER_SIZE].into_boxed_slice();
        let first_page = buffer.as_ptr().align_offset(READ_PAGE_SIZE).min(READ_PAGE_SIZE);
        Input { stream, buffer, first_page, start: 0, end: 0, buffer_offset: 0, stream_ended: false }
    }

    /// The offset of the next byte in the stream.
    pub(super) fn offset(&self) -> u64 {
        self.buffer_offset.wrapping_add(self.start as u64)
    }

    /// How many of the stored (compressed) bytes were read.
    pub(super) fn read_size(&self) -> u64 {
        self.stream.read_size()
    }

    /// The next bytes, as far as they are in the buffer already.
    #[inline]
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The next bytes: at least `size`, which is at most [`BLOCK_SIZE_MAX`], or fewer if the stream ends before.
    ///
    /// # Errors
    ///
    /// The stream cannot be read any further; the error says where.
    #[inline]
    pub(super) fn peek(&mut self, size: usize) -> Result<&[u8]> {
        if self.end - self.start < size {
            self.fill(size)?;
        }
        Ok(self.unread())
    }

    /// Passes over `size` bytes that were peeked. Returns where in the buffer they are until the next peek.
    #[inline]
    pub(super) fn consume(&mut self, size: usize) -> Range<usize> {
        let start = self.start;
        self.start = (start + size).min(self.end);
        start..self.start
    }

    /// The bytes of this range of the buffer.
    #[inline]
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Passes over `size` bytes, which need not fit into the buffer. Returns whether there were that many.
    ///
    /// # Errors
    ///
    /// As [`Input::peek`].
    pub(super) fn skip(&mut self, mut size: u64) -> Result<bool> {
        while size > 0 {
            let unread_size = self.peek(1)?.len();
            if unread_size == 0 {
                return Ok(false);
            }
            let step_size = usize::try_from(size).map_or(unread_size, |size| size.min(unread_size));
            self.consume(step_size);
            size -= step_size as u64;
        }
        Ok(true)
    }

    #[cold]
    #[inline(never)]
    fn fill(&mut self, size: usize) -> Result<()> {
        debug_assert!(size <= BLOCK_SIZE_MAX);
        // They are moved to the end of a page, so that the next read begins at a page's start.
        let unread_size = self.end - self.start;
        let page_end = self.first_page + unread_size.next_multiple_of(READ_PAGE_SIZE);
        let start = page_end - unread_size;
        self.buffer.copy_within(self.start..self.end, start);
        self.buffer_offset = self.offset().wrapping_sub(start as u64);
        (self.start, self.end) = (start, page_end);
        while self.end - self.start < size && !self.stream_ended {
            let room_end = (self.end + CAPTURE_READ_SIZE).min(self.buffer.len());
            match self.stream.read(&mut self.buffer[self.end..room_end]) {
                Ok(0) => self.stream_ended = true,
                Ok(read_size) => self.end += read_size,
                Err(error) => {
                    self.stream_ended = true;
                    let offset = self.buffer_offset.wrapping_add(self.end as u64);
                    return Err(Box::new(self.stream.explain(error).at(offset)));
                }
            }
        }
        Ok(())
    }
}

/// The error for an input that ends inside `what`, which begins at `offset`.
#[cold]
pub(super) fn cut_short(what: &str, offset: u64, present_size: usize, whole_size: usize) -> Box<Error> {
    let what = format!("the file is cut short inside {what} ({present_size} of {whole_size} bytes are there)");
    Box::new(Error::new(what).at(offset))
}
