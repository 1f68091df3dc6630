//! The bytes of a capture, decompressed if need be.
//!
//! What enters: any reader. What leaves: the plain bytes, as a stream. Compression is recognised by the content, never
//! by the name, and only once: a compressed file inside a compressed file is not a capture. Nothing is ever
//! decompressed as a whole, so a file that expands a millionfold costs only time.

use std::io::{self, BufReader, Chain, Cursor, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::config::{COMPRESSED_READ_SIZE, ZSTD_WINDOW_LOG_MAX};
use crate::error::Error;

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

/// A stream of plain bytes.
pub(super) struct Plain(Decoder);

enum Decoder {
    None(Looked),
    Gzip(Box<MultiGzDecoder<BufReader<Looked>>>),
    Zstd(ZstdDecoder<'static, BufReader<Looked>>),
}

impl Plain {
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
            return Ok(Plain(Decoder::None(looked)));
        }
        let buffered = BufReader::with_capacity(COMPRESSED_READ_SIZE, looked);
        if is_gzip {
            return Ok(Plain(Decoder::Gzip(Box::new(MultiGzDecoder::new(buffered)))));
        }
        let mut decoder = ZstdDecoder::with_buffer(buffered)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        Ok(Plain(Decoder::Zstd(decoder)))
    }

    /// How many of the stored bytes were read.
    pub(super) fn read_size(&self) -> u64 {
        let looked = match &self.0 {
            Decoder::None(looked) => looked,
            Decoder::Gzip(decoder) => decoder.get_ref().get_ref(),
            Decoder::Zstd(decoder) => decoder.get_ref().get_ref(),
        };
        looked.get_ref().1.read_size
    }

    /// The error that tells the user what a failed read means.
    pub(super) fn explain(&self, error: io::Error) -> Error {
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
            _ => Error::new("can not read on").because(error),
        }
    }
}

impl Read for Plain {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Decoder::None(looked) => looked.read(buffer),
            Decoder::Gzip(decoder) => decoder.read(buffer),
            Decoder::Zstd(decoder) => decoder.read(buffer),
        }
    }
}
