//! Numbers and bytes <-> the bytes of a part.
//!
//! What enters: values, one behind the other. What leaves: the same, in the same order, or word that they are not there. All
//! numbers are little-endian and of a fixed size. What is read may have come from anywhere: no length is believed before the
//! bytes behind it are there.

use crate::config::STATE_COUNT_MAX;
use crate::error::{Error, Result};

/// Puts values together.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// An encoder of about so many bytes.
    #[must_use]
    pub fn with_capacity(size: usize) -> Self {
        Encoder { bytes: Vec::with_capacity(size) }
    }

    /// What was put together.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A yes or no.
    pub fn bool(&mut self, value: bool) {
        self.bytes.push(u8::from(value));
    }

    /// A byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// A number of 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A number of 64 bits.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A number of 64 bits with a sign.
    pub fn i64(&mut self, value: i64) {
        self.u64(value as u64);
    }

    /// How many items follow.
    pub fn length(&mut self, count: usize) {
        self.u64(count as u64);
    }

    /// Numbers of 64 bits whose count the reader knows.
    #[inline]
    pub fn words(&mut self, words: &[u64]) {
        // A cache line at a time: filters are long.
        for line in words.chunks(8) {
            let mut bytes = [[0; 8]; 8];
            bytes.iter_mut().zip(line).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
            self.bytes.extend_from_slice(&bytes.as_flattened()[..size_of_val(line)]);
        }
    }

    /// Counts whose number the reader knows.
    pub fn counts<const COUNT: usize>(&mut self, counts: [u64; COUNT]) {
        self.words(&counts);
    }

    /// Bytes, with their length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// What may be missing.
    pub fn option<T>(&mut self, value: Option<T>, encode: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            encode(self, value);
        }
    }
}

/// Takes values apart again.
///
/// # Errors
///
/// Every method fails when its value is not there, or out of its range; what is read is then to be given up as a whole.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

/// A state that is not what it should be, though its checksum says that nobody changed it since.
fn unfit(what: &str) -> Error {
    Error::new(format!("the saved state can not be read ({what}): name another directory with --state, or remove it"))
}

impl<'a> Decoder<'a> {
    /// A decoder of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes }
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(size).ok_or_else(|| unfit("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const SIZE: usize>(&mut self) -> Result<[u8; SIZE]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| unfit("it ends too early"))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A yes or no.
    pub fn bool(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(unfit("neither yes nor no")),
        }
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// A number of 32 bits.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of 64 bits.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of 64 bits with a sign.
    pub fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// A number that counts something, and goes on counting: it is at most [`STATE_COUNT_MAX`].
    pub fn count(&mut self) -> Result<u64> {
        self.u64()
            .and_then(|count| if count <= STATE_COUNT_MAX { Ok(count) } else { Err(unfit("a count out of range")) })
    }

    /// Several of them.
    pub fn counts<const COUNT: usize>(&mut self) -> Result<[u64; COUNT]> {
        let mut counts = [0; COUNT];
        for count in &mut counts {
            *count = self.count()?;
        }
        Ok(counts)
    }

    /// How many items follow, each of which takes at least `item_size` bytes: no more than there are, and at most `most`.
    pub fn length(&mut self, item_size: usize, most: usize) -> Result<usize> {
        let count = usize::try_from(self.u64()?).unwrap_or(usize::MAX);
        if count > most || count > self.rest.len() / item_size.max(1) {
            return Err(unfit("more items than there can be"));
        }
        Ok(count)
    }

    /// Numbers of 64 bits, as many as `words` has room for.
    #[inline]
    pub fn words(&mut self, words: &mut [u64]) -> Result<()> {
        let taken = self.take(size_of_val(words))?;
        for (word, bytes) in words.iter_mut().zip(taken.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(())
    }

    /// Bytes, with their length.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let size = self.length(1, usize::MAX)?;
        self.take(size)
    }

    /// What may be missing.
    pub fn option<T>(&mut self, decode: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { decode(self).map(Some) } else { Ok(None) }
    }

    /// Something that is there, but can not be.
    pub fn expect(&self, is_right: bool, what: &str) -> Result<()> {
        if is_right { Ok(()) } else { Err(unfit(what)) }
    }

    /// What has to be there.
    pub fn some<T>(&self, value: Option<T>, what: &str) -> Result<T> {
        value.ok_or_else(|| unfit(what))
    }

    /// There is nothing more.
    pub fn end(&self) -> Result<()> {
        self.expect(self.rest.is_empty(), "there is more than there should be")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_come_back(flag: bool, byte: u8, short: u32, number: i64, words: [u64; 5], bytes: Vec<u8>, count in 0..=STATE_COUNT_MAX) {
            let mut encoder = Encoder::default();
            encoder.bool(flag);
            encoder.u8(byte);
            encoder.u32(short);
            encoder.i64(number);
            encoder.words(&words);
            encoder.counts([count]);
            encoder.bytes(&bytes);
            encoder.option(flag.then_some(number), Encoder::i64);
            let encoded = encoder.into_bytes();
            let mut decoder = Decoder::new(&encoded);
            prop_assert_eq!(decoder.bool().unwrap(), flag);
            prop_assert_eq!(decoder.u8().unwrap(), byte);
            prop_assert_eq!(decoder.u32().unwrap(), short);
            prop_assert_eq!(decoder.i64().unwrap(), number);
            let mut read = [0; 5];
            decoder.words(&mut read).unwrap();
            prop_assert_eq!(read, words);
            prop_assert_eq!(decoder.counts().unwrap(), [count]);
            prop_assert_eq!(decoder.bytes().unwrap(), &bytes[..]);
            prop_assert_eq!(decoder.option(Decoder::i64).unwrap(), flag.then_some(number));
            prop_assert!(decoder.end().is_ok());
        }
    }

    #[test]
    fn no_length_is_believed() {
        let mut encoder = Encoder::default();
        encoder.u64(u64::MAX);
        encoder.u64(1);
        let bytes = encoder.into_bytes();
        assert!(Decoder::new(&bytes).bytes().is_err());
        assert!(Decoder::new(&bytes).length(8, usize::MAX).is_err());
        assert!(Decoder::new(&bytes).count().is_err());
        assert!(Decoder::new(&bytes[8..]).length(1, 1).is_err(), "there is no byte behind it");
        assert!(Decoder::new(&bytes[4..]).bool().is_err());
        assert!(Decoder::new(&bytes).end().is_err());
        assert!(Decoder::new(&bytes[..7]).u64().is_err());
    }
}
