//! The bytes of a capture, decompressed if need be.
//!
//! What enters: any reader. What leaves: the plain bytes, as a stream. Compression is recognised by the content, never
//! by the name, and only once: a compressed file inside a compressed file is not a capture. Nothing is ever
//! decompressed as a whole, so a file that expands a millionfold costs only time.

use std::io::{self, BufRead, BufReader, Chain, Cursor, ErrorKind, Read};

use flate2::bufread::GzDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::error::Error;

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
pub(super) struct Plain(Decoder);

enum Decoder {
    None(Looked),
    Gzip(Box<Members>),
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
            return Ok(Plain(Decoder::Gzip(Box::new(Members(GzDecoder::new(buffered))))));
        }
        let mut decoder = ZstdDecoder::with_buffer(buffered)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        Ok(Plain(Decoder::Zstd(decoder)))
    }

    /// How many of the stored bytes were read.
    pub(super) fn read_size(&self) -> u64 {
        let looked = match &self.0 {
            Decoder::None(looked) => looked,
            Decoder::Gzip(members) => members.0.get_ref().get_ref(),
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
            _ => Error::new("cannot read on").because(error),
        }
    }
}

impl Read for Plain {
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
        let mut plain = Plain::new(Box::new(Cursor::new(stored.to_vec()))).unwrap();
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
            let told = plain(&[&members, stray].concat()).unwrap_err();
            assert!(told.starts_with("the gzip data is "), "{told}");
        }
        assert!(plain(&members[..members.len() - 1]).unwrap_err().contains("cut short"));
    }
}
