//! Checksums, and the one code that only the owner of a secret can make.
//!
//! CRC-32 and SHA-1 detect what a disk or a crash did; somebody who can write to the file can make them. A code under a
//! secret proves who wrote the file.

use hmac::{Hmac, Mac};
use sha1::{Digest, Sha1};
use sha2::Sha256;
use std::io::{self, Write};

/// What is computed over bytes and stored with them.
pub trait Check: Sized {
    /// The stored form.
    type Sum: AsRef<[u8]>;
    /// The size of the stored form in bytes.
    const SIZE: usize;

    /// Adds bytes.
    fn update(&mut self, bytes: &[u8]);
    /// The check of all bytes that were added.
    fn sum(self) -> Self::Sum;

    /// Whether this is the check of all bytes that were added.
    fn is(self, sum: &[u8]) -> bool {
        self.sum().as_ref() == sum
    }

    /// The check of these parts, one behind the other.
    fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self::Sum
    where
        Self: Default,
    {
        let mut check = Self::default();
        parts.into_iter().for_each(|part| check.update(part));
        check.sum()
    }
}

/// CRC-32, in four bytes.
#[derive(Clone, Debug, Default)]
pub struct Crc32(crc32fast::Hasher);

impl Check for Crc32 {
    type Sum = [u8; 4];
    const SIZE: usize = 4;

    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn sum(self) -> [u8; 4] {
        self.0.finalize().to_le_bytes()
    }
}

impl Check for Sha1 {
    type Sum = [u8; 20];
    const SIZE: usize = 20;

    fn update(&mut self, bytes: &[u8]) {
        Digest::update(self, bytes);
    }

    fn sum(self) -> [u8; 20] {
        self.finalize().into()
    }
}

/// HMAC-SHA256 under a secret.
impl Check for Hmac<Sha256> {
    type Sum = [u8; 32];
    const SIZE: usize = 32;

    fn update(&mut self, bytes: &[u8]) {
        Mac::update(self, bytes);
    }

    fn sum(self) -> [u8; 32] {
        self.finalize().into_bytes().into()
    }

    /// The comparison takes the same time wherever the first difference is.
    fn is(self, sum: &[u8]) -> bool {
        self.verify_slice(sum).is_ok()
    }
}

/// A writer that puts the check of everything behind it.
#[derive(Debug)]
pub struct Checked<W, C> {
    out: W,
    check: C,
}

impl<W: Write, C: Check> Checked<W, C> {
    /// A writer to `out`.
    pub fn new(out: W, check: C) -> Self {
        Checked { out, check }
    }

    /// Writes the check, and flushes. Returns the writer.
    ///
    /// # Errors
    ///
    /// The errors of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(self.check.sum().as_ref())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write, C: Check> Write for Checked<W, C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = self.out.write(bytes)?;
        self.check.update(&bytes[..size]);
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Decoder, Encoder};

    #[test]
    fn sums_are_those_of_the_standards() {
        assert_eq!(Crc32::of([&b"1234"[..], b"56789"]), 0xcbf4_3926_u32.to_le_bytes());
        assert_eq!(Sha1::of([&b"abc"[..]])[..4], [0xa9, 0x99, 0x3e, 0x36]);
    }

    #[test]
    fn what_is_sealed_cannot_change_unnoticed() {
        let mut encoder = Encoder::default();
        encoder.u64(77);
        let bytes = encoder.sealed::<Crc32>();
        assert_eq!(Decoder::of_sealed::<Crc32>(&bytes).unwrap().u64().unwrap(), 77);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Decoder::of_sealed::<Crc32>(&damaged).is_none());
            assert!(Decoder::of_sealed::<Crc32>(&bytes[..at]).is_none());
        }
    }

    #[test]
    fn a_checked_writer_ends_with_its_check() {
        let mut out = Checked::new(Vec::new(), Sha1::default());
        out.write_all(b"ab").unwrap();
        out.write_all(b"c").unwrap();
        let bytes = out.finish().unwrap();
        assert_eq!(bytes[3..], Sha1::of([&b"abc"[..]]));
    }
}
