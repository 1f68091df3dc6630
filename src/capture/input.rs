//! The bytes of a capture, decompressed if need be, in the one buffer that packets are slices of.
//!
//! Compression is recognised by the content, never by the name, and only once: a compressed file inside a compressed
//! file is not a capture. Nothing is ever decompressed as a whole, so a file that expands a millionfold costs only
//! time.
//!
//! [`Input`] gives as many bytes in a row as a reader asks for, and their offset in the stream. What is left of a read
//! without a whole record is moved in front of the next read; nothing else is copied or allocated.

use crate::capture::Stamp;
use crate::capture::pcapng::BLOCK_SIZE_MAX;
use crate::error::Error;
use crate::parse::LinkType;
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, Chain, Cursor, ErrorKind, Read};
use std::ops::Range;
use zstd::stream::read::Decoder as ZstdDecoder;

/// The most bytes read at once.
pub const CAPTURE_READ_SIZE: usize = 1 << 20;

/// Bytes decompressed at once: few enough to stay in the cache with everything else until they are parsed.
const DECOMPRESSED_SIZE: usize = 256 << 10;

/// Bytes read at once from an input that is not compressed, except on AMD's processors: with more, packets have left
/// the cache before they are parsed.
const CACHED_READ_SIZE: usize = 128 << 10;

/// How many bytes are best read at once from an input that is not compressed. From about three quarters of a megabyte
/// on AMD's processors copy half as fast again, because they no longer fetch the memory that they are about to
/// overwrite. Intel's do not.
fn plain_read_size() -> usize {
    // No processor of Intel's has SSE4a.
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4a") {
        return CAPTURE_READ_SIZE;
    }
    CACHED_READ_SIZE
}

/// The size of a page of memory on most machines, in bytes. Reads begin at the start of a page: the kernel copies page
/// by page, and some processors copy at a third of the speed to a place that is a few bytes further into its page than
/// the source.
const READ_PAGE_SIZE: usize = 4 << 10;

/// The size of the capture buffer, in bytes: a read behind the beginning of an IP packet, of 64 KiB at most, has its
/// full size, wherever in a page the packet and the buffer begin. Behind a longer block it is cut to the room left.
pub const CAPTURE_BUFFER_SIZE: usize = 2 * READ_PAGE_SIZE + (64 << 10) + CAPTURE_READ_SIZE;

const _: () = assert!(CAPTURE_BUFFER_SIZE >= 2 * READ_PAGE_SIZE + BLOCK_SIZE_MAX, "the longest block fits");

/// A result on the packet path. The error is boxed, so that what is returned for every packet stays in registers.
pub(super) type InputResult<T> = std::result::Result<T, Box<Error>>;

/// The position of a packet in the buffer: it becomes a [`Packet`](super::Packet) when nothing can move it any more.
#[derive(Debug)]
pub(super) struct InputRecord {
    pub(super) stamp: Stamp,
    pub(super) link: LinkType,
    pub(super) range: Range<usize>,
    /// The bytes that the frame had on the wire.
    pub(super) wire_size: usize,
}

/// The buffer over a stream.
pub(super) struct Input {
    stream: PlainStream,
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
    pub(super) fn new(stream: PlainStream) -> Self {
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

    /// Those of the next bytes that are in the buffer already.
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
    pub(super) fn peek(&mut self, size: usize) -> InputResult<&[u8]> {
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
    pub(super) fn skip(&mut self, mut size: u64) -> InputResult<bool> {
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
    fn fill(&mut self, size: usize) -> InputResult<()> {
        debug_assert!(size <= BLOCK_SIZE_MAX);
        // They are moved to the end of a page, so that the next read begins at a page's start.
        let unread_size = self.end - self.start;
        let page_end = self.first_page + unread_size.next_multiple_of(READ_PAGE_SIZE);
        let start = page_end - unread_size;
        self.buffer.copy_within(self.start..self.end, start);
        self.buffer_offset = self.offset().wrapping_sub(start as u64);
        (self.start, self.end) = (start, page_end);
        while self.end - self.start < size && !self.stream_ended {
            let room_end = (self.end + self.stream.step_size()).min(self.buffer.len());
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

/// Bytes of compressed input held at once: little, since a decoder that meets damage loses what it made of them.
const COMPRESSED_READ_SIZE: usize = 64 << 10;

/// The largest window that a zstd file may ask for, as a power of two: 128 MiB, which is what `zstd -d` accepts. The
/// window is allocated at the file's word, so this is the most that a hostile file gets.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A frame without data, in which tools keep notes; its lowest byte ends in any four bits.
const ZSTD_SKIPPABLE_MAGIC: [u8; 3] = [0x2a, 0x4d, 0x18];
const MAGIC_SIZE_MAX: usize = 4;

/// The reader of the stored bytes, with a count of them.
struct Stored {
    reader: Box<dyn Read + Send>,
    read_size: u64,
}

impl Read for Stored {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.reader.read(buffer) {
                Ok(size) => {
                    self.read_size += size as u64;
                    return Ok(size);
                }
                // Decoders would lose their position if a signal interrupted them.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The stored bytes, of which the first were read ahead to recognise the compression.
type Looked = Chain<Cursor<Vec<u8>>, Stored>;

/// A gzip file: members one behind the other, and zeros behind the last, with which tapes and disks are filled up.
struct Members(GzDecoder<BufReader<Looked>>);

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let size = self.0.read(buffer)?;
            if size > 0 || buffer.is_empty() || !has_member(self.0.get_mut())? {
                return Ok(size);
            }
            let nothing = Stored { reader: Box::new(io::empty()), read_size: 0 };
            let nothing = BufReader::with_capacity(0, Cursor::new(Vec::new()).chain(nothing));
            self.0 = GzDecoder::new(std::mem::replace(self.0.get_mut(), nothing));
        }
    }
}

/// Whether another member follows. What follows zeros is none.
fn has_member(stored: &mut impl BufRead) -> io::Result<bool> {
    let mut has_zeros = false;
    loop {
        let bytes = stored.fill_buf()?;
        let zero_count = bytes.iter().take_while(|byte| **byte == 0).count();
        if zero_count < bytes.len() {
            let what = "something follows the zeros behind its end";
            let is_beyond = has_zeros || zero_count > 0;
            return if is_beyond { Err(io::Error::new(ErrorKind::InvalidData, what)) } else { Ok(true) };
        }
        if zero_count == 0 {
            return Ok(false);
        }
        has_zeros = true;
        stored.consume(zero_count);
    }
}

/// A stream of plain bytes.
pub(super) struct PlainStream(Decoder);

enum Decoder {
    None(Looked),
    Gzip(Box<Members>),
    Zstd(ZstdDecoder<'static, BufReader<Looked>>),
}

impl PlainStream {
    /// A stream over this reader, with the decoder that its first bytes call for.
    ///
    /// # Errors
    ///
    /// The reader fails, or there is no memory for a decoder.
    pub(super) fn new(reader: Box<dyn Read + Send>) -> io::Result<Self> {
        let mut stored = Stored { reader, read_size: 0 };
        let mut head = vec![0; COMPRESSED_READ_SIZE];
        let mut head_size = 0;
        // A pipe may give fewer bytes at once than recognising takes.
        while head_size < MAGIC_SIZE_MAX {
            match stored.read(&mut head[head_size..])? {
                0 => break,
                size => head_size += size,
            }
        }
        head.truncate(head_size);
        let is_zstd = head.starts_with(&ZSTD_MAGIC)
            || matches!(head.as_slice(), [first, rest @ ..] if first >> 4 == 5 && rest.starts_with(&ZSTD_SKIPPABLE_MAGIC));
        let is_gzip = head.starts_with(&GZIP_MAGIC);
        let looked = Cursor::new(head).chain(stored);
        if !is_gzip && !is_zstd {
            return Ok(PlainStream(Decoder::None(looked)));
        }
        let buffered = BufReader::with_capacity(COMPRESSED_READ_SIZE, looked);
        if is_gzip {
            return Ok(PlainStream(Decoder::Gzip(Box::new(Members(GzDecoder::new(buffered))))));
        }
        let mut decoder = ZstdDecoder::with_buffer(buffered)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        Ok(PlainStream(Decoder::Zstd(decoder)))
    }

    /// How many bytes are best read at once.
    fn step_size(&self) -> usize {
        match &self.0 {
            Decoder::None(_) => plain_read_size(),
            Decoder::Gzip(_) | Decoder::Zstd(_) => DECOMPRESSED_SIZE,
        }
    }

    /// How many of the stored bytes were read.
    fn read_size(&self) -> u64 {
        let looked = match &self.0 {
            Decoder::None(looked) => looked,
            Decoder::Gzip(members) => members.0.get_ref().get_ref(),
            Decoder::Zstd(decoder) => decoder.get_ref().get_ref(),
        };
        looked.get_ref().1.read_size
    }

    /// The error that says what a failed read means.
    fn explain(&self, error: io::Error) -> Error {
        let compression = match &self.0 {
            Decoder::None(_) => None,
            Decoder::Gzip(_) => Some("gzip"),
            Decoder::Zstd(_) => Some("zstd"),
        };
        match compression {
            // The system's errors carry a number, the decoders' do not.
            Some(name) if error.raw_os_error().is_none() => match error.kind() {
                ErrorKind::UnexpectedEof => Error::new(format!("the {name} data is cut short")),
                _ => Error::new(format!("the {name} data is damaged")).because(error),
            },
            _ => Error::new("cannot read on").because(error),
        }
    }
}

impl Read for PlainStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Decoder::None(looked) => looked.read(buffer),
            Decoder::Gzip(members) => members.read(buffer),
            Decoder::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// What comes out of these bytes.
    fn plain(stored: &[u8]) -> std::result::Result<Vec<u8>, String> {
        let mut plain = PlainStream::new(Box::new(Cursor::new(stored.to_vec()))).unwrap();
        let mut bytes = Vec::new();
        let read = plain.read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(|error| plain.explain(error).to_string())
    }

    #[test]
    fn zeros_may_follow_the_last_member_of_a_gzip_file() {
        let member = |bytes: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap()
        };
        let members = [member(b"one "), member(&[]), member(b"two")].concat();
        for zero_count in [0, 1, 9, 10_240, 3 * COMPRESSED_READ_SIZE] {
            assert_eq!(plain(&[&members[..], &vec![0; zero_count]].concat()), Ok(b"one two".to_vec()));
        }
        for stray in [&b"x"[..], &[0, 0, 1], &[&[0][..], &members].concat()] {
            let error = plain(&[&members, stray].concat()).unwrap_err();
            assert!(error.starts_with("the gzip data is "), "{error}");
        }
        assert!(plain(&members[..members.len() - 1]).unwrap_err().contains("cut short"));
    }
}
