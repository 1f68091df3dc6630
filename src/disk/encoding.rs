//! Numbers and bytes in files: one encoder and one decoder for every family of files.
//!
//! All numbers are little-endian and of a fixed size, and nothing is aligned. What is read may have come from anywhere:
//! no count is believed before the bytes that it counts are there.

use crate::disk::check::Check;
use crate::error::{Error, Result};
use std::io::{self, ErrorKind, Read, Write};
use std::marker::PhantomData;

/// The highest count that is believed of a saved state: adding to it overflows in no run, and at a billion packets a
/// second it takes years to reach.
pub const STATE_COUNT_MAX: u64 = 1 << 56;

/// Words that are encoded or decoded at once.
const WORDS_AT_ONCE: usize = 64;

/// Encodes values one after another into a writer, most often a vector.
///
/// After an error of the writer nothing more is written, and [`Self::finish`] returns the error. A vector has none.
#[derive(Debug, Default)]
pub struct Encoder<W = Vec<u8>> {
    out: W,
    size: u64,
    error: Option<io::Error>,
}

impl Encoder {
    /// An encoder with room for `size` bytes.
    #[must_use]
    pub fn with_capacity(size: usize) -> Self {
        Encoder::to(Vec::with_capacity(size))
    }

    /// The encoded bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// The encoded bytes, and behind them their checksum.
    #[must_use]
    pub fn sealed<C: Check + Default>(mut self) -> Vec<u8> {
        let sum = C::of([self.out.as_slice()]);
        self.put(sum.as_ref());
        self.out
    }
}

impl<W: Write> Encoder<W> {
    /// An encoder to this writer.
    pub fn to(out: W) -> Self {
        Encoder { out, size: 0, error: None }
    }

    /// The writer, and how many bytes were written to it.
    ///
    /// # Errors
    ///
    /// The first error of the writer.
    pub fn finish(self) -> io::Result<(W, u64)> {
        self.error.map_or(Ok((self.out, self.size)), Err)
    }

    /// Bytes whose number the reader knows.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        if self.error.is_none() {
            self.error = self.out.write_all(bytes).err();
        }
    }

    /// A flag, in one byte.
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// A byte.
    pub fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    /// A number of 16 bits.
    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    /// A number of 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    /// A number of 64 bits.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// A number of 64 bits with a sign.
    pub fn i64(&mut self, value: i64) {
        self.put(&value.to_le_bytes());
    }

    /// A number of 128 bits with a sign.
    pub fn i128(&mut self, value: i128) {
        self.put(&value.to_le_bytes());
    }

    /// The number of items that follow.
    pub fn length(&mut self, count: usize) {
        self.u64(count as u64);
    }

    /// Numbers of 64 bits whose count the reader knows.
    #[inline]
    pub fn words(&mut self, words: &[u64]) {
        // Several at once, since filters are long.
        for some in words.chunks(WORDS_AT_ONCE) {
            let mut bytes = [[0; 8]; WORDS_AT_ONCE];
            bytes.iter_mut().zip(some).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
            self.put(&bytes.as_flattened()[..size_of_val(some)]);
        }
    }

    /// Counts of which the reader knows how many there are.
    pub fn counts<const COUNT: usize>(&mut self, counts: [u64; COUNT]) {
        self.words(&counts);
    }

    /// Bytes, preceded by their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.put(bytes);
    }

    /// A value that may be absent.
    pub fn option<T>(&mut self, value: Option<T>, encode: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            encode(self, value);
        }
    }
}

/// Items whose number a file claims.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a> {
    /// What they are, for errors.
    pub name: &'a str,
    /// The most that there can be.
    pub most: usize,
    /// The least size of each, in bytes.
    pub item_size: usize,
}

/// What is decoded, by which errors are worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// A part of a saved state, whose checksum was right.
    State,
    /// A file that may have come from another machine. Errors name the offset.
    File,
}

/// Decodes values one after another, from bytes or from a reader.
///
/// # Errors
///
/// Every method fails if its value is missing or out of range. All that was read must be discarded then.
#[derive(Debug)]
pub struct Decoder<'a, R = &'a [u8]> {
    from: R,
    content: Content,
    offset: u64,
    /// How many bytes may still be read.
    left: u64,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> Decoder<'a> {
    /// A decoder of a part of a saved state.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { content: Content::State, ..Decoder::of_file(bytes, bytes.len() as u64) }
    }

    /// A decoder of bytes that [`Encoder::sealed`] returned; `None` if the checksum behind them is wrong.
    #[must_use]
    pub fn of_sealed<C: Check + Default>(bytes: &'a [u8]) -> Option<Self> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(C::SIZE)?)?;
        (C::of([body]).as_ref() == sum).then(|| Decoder::of_file(body, body.len() as u64))
    }

    /// Bytes, preceded by their number.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let size = self.length(1, usize::MAX)?;
        self.skip(size as u64)?;
        let (taken, rest) = self.from.split_at(size);
        self.from = rest;
        Ok(taken)
    }
}

impl<R: Read> Decoder<'_, R> {
    /// A decoder of a file of which `size` bytes are left. More are never read.
    #[must_use]
    pub fn of_file(from: R, size: u64) -> Self {
        Decoder { from, content: Content::File, offset: 0, left: size, bytes: PhantomData }
    }

    /// How many bytes are left, if the file is as long as was said.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// An error about what was read last.
    #[must_use]
    pub fn refuse(&self, what: impl AsRef<str>) -> Error {
        let what = what.as_ref();
        match self.content {
            Content::State => Error::new(format!(
                "the saved state cannot be read ({what}): name another directory with --state, or remove it"
            )),
            Content::File => Error::new(what).at(self.offset),
        }
    }

    /// Counts bytes as read, if there are so many.
    fn skip(&mut self, size: u64) -> Result<()> {
        self.left = self.left.checked_sub(size).ok_or_else(|| self.refuse("it ends before its last field"))?;
        self.offset += size;
        Ok(())
    }

    /// Bytes, as many as the buffer has room for.
    #[inline]
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() as u64 > self.left {
            return Err(self.refuse("it ends before its last field"));
        }
        self.from.read_exact(buffer).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.refuse("it ends before its last field"),
            _ => self.refuse("it cannot be unpacked").because(error),
        })?;
        self.skip(buffer.len() as u64)
    }

    #[inline]
    fn array<const SIZE: usize>(&mut self) -> Result<[u8; SIZE]> {
        let mut array = [0; SIZE];
        self.fill(&mut array)?;
        Ok(array)
    }

    /// A flag, in one byte.
    pub fn bool(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.refuse("neither yes nor no")),
        }
    }

    /// A byte of flags, in which no bit but the `known` ones may be set.
    pub fn flags(&mut self, known: u8) -> Result<u8> {
        let flags = self.u8()?;
        if flags & !known == 0 { Ok(flags) } else { Err(self.refuse(format!("unknown flags {flags:#04x}"))) }
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// A number of 16 bits.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
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

    /// A number of 128 bits with a sign.
    pub fn i128(&mut self) -> Result<i128> {
        self.array().map(i128::from_le_bytes)
    }

    /// A number that is added to later: at most [`STATE_COUNT_MAX`].
    pub fn count(&mut self) -> Result<u64> {
        let count = self.u64()?;
        if count <= STATE_COUNT_MAX { Ok(count) } else { Err(self.refuse("a count out of range")) }
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
        if count > most || count as u64 > self.left / item_size.max(1) as u64 {
            return Err(self.refuse("more items than there can be"));
        }
        Ok(count)
    }

    /// The number of items that follow, in 32 bits.
    pub fn items(&mut self, Items { name, most, item_size }: Items) -> Result<usize> {
        let count = self.u32()? as usize;
        if count > most {
            return Err(self.refuse(format!("the file claims {count} {name}, and {most} are the most")));
        }
        let (size, left) = (count as u64 * item_size as u64, self.left);
        if size > left {
            let what = format!("the file claims {count} {name}, which take {size} bytes, and {left} are left");
            return Err(self.refuse(what));
        }
        Ok(count)
    }

    /// Numbers of 64 bits, as many as `words` has room for.
    #[inline]
    pub fn words(&mut self, words: &mut [u64]) -> Result<()> {
        for some in words.chunks_mut(WORDS_AT_ONCE) {
            let mut bytes = [[0; 8]; WORDS_AT_ONCE];
            self.fill(&mut bytes.as_flattened_mut()[..size_of_val(some)])?;
            some.iter_mut().zip(bytes).for_each(|(word, bytes)| *word = u64::from_le_bytes(bytes));
        }
        Ok(())
    }

    /// A value that may be absent.
    pub fn option<T>(&mut self, decode: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { decode(self).map(Some) } else { Ok(None) }
    }

    /// Checks a condition; `what` names the contradiction if it does not hold.
    pub fn expect(&self, is_right: bool, what: &str) -> Result<()> {
        if is_right { Ok(()) } else { Err(self.refuse(what)) }
    }

    /// Takes a value that has to be there; `what` names what is wrong if it is not.
    pub fn some<T>(&self, value: Option<T>, what: &str) -> Result<T> {
        value.ok_or_else(|| self.refuse(what))
    }

    /// Checks that nothing follows.
    pub fn end(&mut self) -> Result<()> {
        match self.from.read(&mut [0; 1]) {
            Ok(0) => self.expect(self.left == 0, "it ends before its last field"),
            Ok(_) => Err(self.refuse("something follows the last field")),
            Err(error) => Err(self.refuse("it cannot be unpacked").because(error)),
        }
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
