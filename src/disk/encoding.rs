//! Numbers and bytes <-> the bytes of a part.
//!
//! What enters: values, one after another. What leaves: the same values in the same order, or an error that they are
//! not there. All numbers are little-endian and of a fixed size. What is read may have come from anywhere: no length is
//! trusted before the bytes that it counts are there.

use crate::error::{Error, Result};

/// The highest count that is believed of a saved state: adding to it overflows in no run, and at a billion packets a
/// second it takes years to reach.
pub const STATE_COUNT_MAX: u64 = 1 << 56;

/// Encodes values one after another.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// An encoder with room for `size` bytes.
    #[must_use]
    pub fn with_capacity(size: usize) -> Self {
        Encoder { bytes: Vec::with_capacity(size) }
    }

    /// The encoded bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A flag, in one byte.
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

    /// The number of items that follow.
    pub fn length(&mut self, count: usize) {
        self.u64(count as u64);
    }

    /// Numbers of 64 bits whose count the reader knows.
    #[inline]
    pub fn words(&mut self, words: &[u64]) {
        // A cache line at a time, since filters are long.
        for line in words.chunks(8) {
            let mut bytes = [[0; 8]; 8];
            bytes.iter_mut().zip(line).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
            self.bytes.extend_from_slice(&bytes.as_flattened()[..size_of_val(line)]);
        }
    }

    /// Counts of which the reader knows how many there are.
    pub fn counts<const COUNT: usize>(&mut self, counts: [u64; COUNT]) {
        self.words(&counts);
    }

    /// Bytes whose number the reader knows.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes, preceded by their length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// A value that may be absent.
    pub fn option<T>(&mut self, value: Option<T>, encode: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            encode(self, value);
        }
    }
}

/// Decodes values one after another.
///
/// # Errors
///
/// Every method fails if its value is missing or out of range. All that was read must be discarded then.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

/// An error about a state whose checksum is right and whose contents are not.
fn unfit(what: &str) -> Error {
    Error::new(format!("the saved state cannot be read ({what}): name another directory with --state, or remove it"))
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

    /// A flag, in one byte.
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

    /// A number that goes on counting: at most [`STATE_COUNT_MAX`].
    pub fn count(&mut self) -> Result<u64> {
        self.u64()
            .and_then(|count| if count <= STATE_COUNT_MAX { Ok(count) } else { Err(unfit("a count out of range")) })
    }

    /// Several counts.
    pub fn counts<const COUNT: usize>(&mut self) -> Result<[u64; COUNT]> {
        let mut counts = [0; COUNT];
        for count in &mut counts {
            *count = self.count()?;
        }
        Ok(counts)
    }

    /// The number of items that follow, each of at least `item_size` bytes: no more than there are bytes for, and at
    /// most `most`.
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

    /// Bytes, as many as `bytes` has room for.
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(self.take(bytes.len())?);
        Ok(())
    }

    /// Bytes, preceded by their length.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let size = self.length(1, usize::MAX)?;
        self.take(size)
    }

    /// A value that may be absent.
    pub fn option<T>(&mut self, decode: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { decode(self).map(Some) } else { Ok(None) }
    }

    /// Checks a condition; `what` names the contradiction if it does not hold.
    pub fn expect(&self, is_right: bool, what: &str) -> Result<()> {
        if is_right { Ok(()) } else { Err(unfit(what)) }
    }

    /// Takes a value that has to be there; `what` names what is wrong if it is not.
    pub fn some<T>(&self, value: Option<T>, what: &str) -> Result<T> {
        value.ok_or_else(|| unfit(what))
    }

    /// Checks that nothing follows.
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
