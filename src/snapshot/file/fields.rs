//! Numbers in a file: little-endian, one after another.
//!
//! What enters: a stream, and numbers to write to it or to expect in it. What leaves: the bytes, or the numbers. A
//! stream that ends too early is an error with its offset.

use crate::error::{Error, Result};
use std::io::{ErrorKind, Read, Write};

/// Reads fields in order, and no more bytes than they are said to take.
pub(super) struct FieldReader<R> {
    reader: R,
    offset: u64,
    size: u64,
}

impl<R: Read> FieldReader<R> {
    /// A reader of fields that take `size` bytes together.
    pub(super) fn new(reader: R, size: u64) -> Self {
        FieldReader { reader, offset: 0, size }
    }

    /// How many bytes are left, if the stream is as long as was said.
    pub(super) fn left(&self) -> u64 {
        self.size.saturating_sub(self.offset)
    }

    /// An error about what was read last.
    pub(super) fn refuse(&self, what: impl Into<String>) -> Error {
        Error::new(what).at(self.offset)
    }

    /// Fills the buffer.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() as u64 > self.left() {
            return Err(self.refuse("the snapshot ends before its last field"));
        }
        self.reader.read_exact(buffer).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.refuse("the snapshot ends before its last field"),
            _ => self.refuse("cannot unpack the snapshot").because(error),
        })?;
        self.offset += buffer.len() as u64;
        Ok(())
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.bytes()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.bytes()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.bytes()?))
    }

    pub(super) fn i128(&mut self) -> Result<i128> {
        Ok(i128::from_le_bytes(self.bytes()?))
    }

    /// Reads the number of `things` that follow, at most `most`, of at least `size_min` bytes each.
    pub(super) fn count(&mut self, most: usize, size_min: usize, things: &str) -> Result<usize> {
        let count = self.u32()? as usize;
        if count > most {
            return Err(self.refuse(format!("the snapshot claims {count} {things}, and {most} are the most")));
        }
        let (size, left) = (count as u64 * size_min as u64, self.left());
        if size > left {
            let what = format!("the snapshot claims {count} {things}, which take {size} bytes, and {left} are left");
            return Err(self.refuse(what));
        }
        Ok(count)
    }

    /// Reads a byte of flags, in which no bit but the `known` ones may be set.
    pub(super) fn flags(&mut self, known: u8) -> Result<u8> {
        let flags = self.u8()?;
        if flags & !known == 0 { Ok(flags) } else { Err(self.refuse(format!("unknown flags {flags:#04x}"))) }
    }

    /// Checks that nothing follows.
    pub(super) fn end(mut self) -> Result<()> {
        let mut rest = [0; 1];
        match self.reader.read(&mut rest) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.refuse("something follows the last field of the snapshot")),
            Err(error) => Err(self.refuse("cannot unpack the snapshot").because(error)),
        }
    }
}

/// Writes fields in order, and counts their bytes.
pub(super) struct FieldWriter<W> {
    writer: W,
    size: u64,
}

impl<W: Write> FieldWriter<W> {
    pub(super) fn new(writer: W) -> Self {
        FieldWriter { writer, size: 0 }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.size += bytes.len() as u64;
        self.writer.write_all(bytes)
    }

    pub(super) fn u8(&mut self, value: u8) -> std::io::Result<()> {
        self.put(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> std::io::Result<()> {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> std::io::Result<()> {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> std::io::Result<()> {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn i64(&mut self, value: i64) -> std::io::Result<()> {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn i128(&mut self, value: i128) -> std::io::Result<()> {
        self.put(&value.to_le_bytes())
    }

    /// The writer, and how many bytes were written to it.
    pub(super) fn finish(self) -> (W, u64) {
        (self.writer, self.size)
    }
}
