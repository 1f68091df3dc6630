//! The position of a replay: which input, how many of its packets, and the capture thread's own state between two
//! packets.
//!
//! It takes the inputs of a run, and its capture thread, and gives bytes, and from these a capture thread that
//! continues with the next packet. An input is recognised by its size and its first bytes, so it may have been moved
//! meanwhile.

use crate::error::{Error, Result};
use crate::state::{Decoder, Encoder};
use sha1::{Digest, Sha1};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The first bytes of an input by which, together with its size, a replay recognises it.
const STATE_INPUT_HEAD_SIZE: u64 = 64 << 10;

const HASH_SIZE: usize = 20;

/// What an input is recognised by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InputId {
    path: PathBuf,
    /// The size of the input and the hash of its first bytes; `None` when it cannot be read.
    content: Option<(u64, [u8; HASH_SIZE])>,
}

impl InputId {
    /// The id of an input. One that cannot be read has an id too: its error is reported when it is replayed.
    ///
    /// # Errors
    ///
    /// The input is no file, so it could not be read again from its beginning.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let metadata = if path == Path::new("-") { None } else { Some(std::fs::metadata(path)) };
        let size = match metadata {
            Some(Ok(metadata)) if metadata.is_file() => metadata.len(),
            Some(Err(_)) => return Ok(InputId { path: path.to_path_buf(), content: None }),
            _ => {
                let what = "--state needs captures that can be read again: name files, no pipe and no standard input";
                return Err(Error::new(what).in_file(path));
            }
        };
        let head = File::open(path).and_then(|file| {
            let mut head = Vec::new();
            file.take(STATE_INPUT_HEAD_SIZE).read_to_end(&mut head).map(|_| head)
        });
        let content = head.ok().map(|head| (size, Sha1::digest(&head).into()));
        Ok(InputId { path: path.to_path_buf(), content })
    }

    fn save(&self, encoder: &mut Encoder) {
        encoder.option(self.content.as_ref(), |encoder, (size, hash)| {
            encoder.u64(*size);
            encoder.bytes(hash);
        });
    }

    fn saved_content(decoder: &mut Decoder) -> Result<Option<(u64, [u8; HASH_SIZE])>> {
        decoder.option(|decoder| {
            let (size, hash) = (decoder.u64()?, decoder.bytes()?.try_into().ok());
            Ok((size, decoder.some(hash, "a hash of another size")?))
        })
    }
}

/// Where a replay continues.
#[derive(Clone, Debug)]
pub struct Position {
    /// The index of the input that was being read.
    pub input: usize,
    /// The packets that were read of it.
    pub packets: u64,
    /// What was wrong with the inputs before it.
    pub errors: Vec<String>,
    /// What the inputs up to this one were recognised by.
    contents: Vec<Option<(u64, [u8; HASH_SIZE])>>,
    /// The capture thread's own state.
    pub(crate) port: Vec<u8>,
}

/// How far a replay has come in its inputs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) input: usize,
    /// The packets of all inputs before it that were fed.
    pub(crate) packets_before: u64,
    pub(crate) errors: Vec<String>,
}

impl super::Saver {
    /// Keeps the capture thread's part of the save that begins, at which `packets` of all inputs have been fed.
    pub(crate) fn put_position(&self, reading: &Reading, packets: u64, port: &[u8]) {
        let mut encoder = Encoder::with_capacity(port.len() + 1_024);
        let inputs = self.inputs.get(..=reading.input).unwrap_or(&self.inputs);
        encoder.length(inputs.len());
        inputs.iter().for_each(|input| input.save(&mut encoder));
        encoder.u64(packets.saturating_sub(reading.packets_before));
        encoder.length(reading.errors.len());
        reading.errors.iter().for_each(|error| encoder.bytes(error.as_bytes()));
        encoder.bytes(port);
        *self.position.lock() = encoder.into_bytes();
    }
}

impl Position {
    pub(super) fn saved(decoder: &mut Decoder) -> Result<Self> {
        let count = decoder.length(1, usize::MAX)?;
        let contents = (0..count).map(|_| InputId::saved_content(decoder)).collect::<Result<Vec<_>>>()?;
        let input = decoder.some(count.checked_sub(1), "no input")?;
        let packets = decoder.count()?;
        let count = decoder.length(size_of::<u64>(), usize::MAX)?;
        let errors = (0..count).map(|_| Ok(String::from_utf8_lossy(decoder.bytes()?).into_owned()));
        let errors = errors.collect::<Result<_>>()?;
        let port = decoder.bytes()?.to_vec();
        decoder.end()?;
        Ok(Position { input, packets, errors, contents, port })
    }

    /// Checks that these are the inputs of the position. Inputs behind it were not read yet and may be any.
    ///
    /// # Errors
    ///
    /// An input is a different one, or is missing.
    pub(super) fn check(&self, inputs: &[InputId]) -> Result<()> {
        for (index, content) in self.contents.iter().enumerate() {
            let what = match inputs.get(index) {
                Some(input) if input.content == *content => continue,
                Some(input) => {
                    format!("this state was saved while another capture was read than {}", input.path.display())
                }
                None => format!("this state was saved while {} captures were read, and there are fewer", index + 1),
            };
            let todo = "name the same captures again, or another directory with --state, or remove this one";
            return Err(Error::new(format!("{}: {todo}", what.escape_debug())));
        }
        Ok(())
    }
}
