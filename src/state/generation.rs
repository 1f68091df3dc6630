//! One generation of a state as the bytes of a file.
//!
//! It takes the parts, and what a run must have in common with the one that saved them, and gives bytes that end with a
//! checksum; and, from bytes that may hold anything, the parts or why there are none.
//!
//! | bytes | meaning |
//! |---|---|
//! | 8 | `flowpeel` |
//! | 4 | the version of all that follows, [`STATE_VERSION`] |
//! | 8 | the number of the generation |
//! | 8, then each 8 + name + 8 | how many fields must agree; each its name, with the name's length, and its value |
//! | 8, then each 8 + part | how many parts; each with its length |
//! | 20 | SHA-1 of everything before |
//!
//! Numbers are little-endian. The checksum detects what a disk or a crash did. It is no protection from somebody who
//! can write to the directory.

use crate::disk::{Check, Checked, Decoder, Encoder};
use crate::error::{Error, Result};
use sha1::Sha1;
use std::io::{self, Write};

/// The version of the files that hold a state. Another version is refused, since their content is private to one
/// version.
pub const STATE_VERSION: u32 = 14;

const MAGIC: &[u8; 8] = b"flowpeel";

/// What two runs must have in common for one to continue where the other stopped: the names of options, or of what
/// follows from them, with values that are only compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(pub Vec<(&'static str, u64)>);

impl Identity {
    fn encode(&self, encoder: &mut Encoder<impl Write>) {
        encoder.length(self.0.len());
        for (name, value) in &self.0 {
            encoder.bytes(name.as_bytes());
            encoder.u64(*value);
        }
    }

    /// Checks that a saved state is of such a run.
    fn check(&self, decoder: &mut Decoder) -> Result<()> {
        let count = decoder.length(2 * size_of::<u64>(), usize::MAX)?;
        let mut saved = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            saved.push((decoder.bytes()?, decoder.u64()?));
        }
        let names = self.0.iter().map(|(name, _)| name.as_bytes());
        if !names.eq(saved.iter().map(|(name, _)| *name)) {
            return Err(unfit("by a command of another kind, or by another version of flowpeel"));
        }
        for ((name, value), (_, saved)) in self.0.iter().zip(&saved) {
            if value != saved {
                return Err(unfit(&format!("with another {name}")));
            }
        }
        Ok(())
    }
}

/// An error about a state that is sound, but of another run.
fn unfit(how: &str) -> Error {
    Error::new(format!("this state was saved {how}: name another directory with --state, or remove this one"))
}

/// Writes a generation. Returns its size in bytes.
///
/// # Errors
///
/// The errors of `out`.
pub(super) fn write(out: impl Write, number: u64, identity: &Identity, parts: &[Vec<u8>]) -> io::Result<u64> {
    let mut encoder = Encoder::to(Checked::new(out, Sha1::default()));
    encoder.put(MAGIC);
    encoder.u32(STATE_VERSION);
    encoder.u64(number);
    identity.encode(&mut encoder);
    encoder.length(parts.len());
    parts.iter().for_each(|part| encoder.bytes(part));
    let (out, size) = encoder.finish()?;
    out.finish()?;
    Ok(size + Sha1::SIZE as u64)
}

/// The parts of a generation as they lie in `bytes`; `None` if the file is damaged.
///
/// # Errors
///
/// The file is whole, but of another version or another run.
pub(super) fn read<'a>(bytes: &'a [u8], number: u64, identity: &Identity) -> Result<Option<Vec<&'a [u8]>>> {
    let Some(body) = bytes.len().checked_sub(Sha1::SIZE).map(|size| &bytes[..size]) else { return Ok(None) };
    if !bytes.ends_with(&Sha1::of([body])) {
        return Ok(None);
    }
    let Some(rest) = body.strip_prefix(MAGIC) else { return Ok(None) };
    let mut decoder = Decoder::new(rest);
    let version = decoder.u32()?;
    if version != STATE_VERSION {
        return Err(unfit(&format!("in version {version} of its format, and this is version {STATE_VERSION}")));
    }
    if decoder.u64()? != number {
        return Ok(None);
    }
    identity.check(&mut decoder)?;
    let count = decoder.length(size_of::<u64>(), usize::MAX)?;
    let parts = (0..count).map(|_| decoder.bytes()).collect::<Result<_>>()?;
    decoder.end()?;
    Ok(Some(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity(vec![("--connections", 1_000), ("secret", 77)])
    }

    fn written(parts: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert_eq!(write(&mut bytes, 3, &identity(), parts).unwrap(), bytes.len() as u64);
        bytes
    }

    #[test]
    fn parts_come_back() {
        let parts = [b"one".to_vec(), Vec::new(), vec![7; 1_000]];
        let bytes = written(&parts);
        assert_eq!(read(&bytes, 3, &identity()).unwrap().unwrap(), parts);
        assert!(read(&bytes, 4, &identity()).unwrap().is_none(), "it was renamed");
    }

    #[test]
    fn no_byte_can_change_unnoticed() {
        let bytes = written(&[b"one".to_vec(), vec![7; 100]]);
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                assert!(read(&damaged, 3, &identity()).unwrap().is_none(), "byte {at}");
            }
            assert!(read(&bytes[..at], 3, &identity()).unwrap().is_none(), "cut at {at}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let bytes = written(&[]);
        for (fields, said) in [
            (vec![("--connections", 1_001), ("secret", 77)], "with another --connections"),
            (vec![("--connections", 1_000), ("secret", 78)], "with another secret"),
            (vec![("--connections", 1_000)], "another version"),
            (vec![("--connections", 1_000), ("--churn", 77)], "another version"),
        ] {
            let error = read(&bytes, 3, &Identity(fields)).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("--state"), "{error}");
        }
        let mut other = bytes.clone();
        other[8] += 1;
        let body = other.len() - Sha1::SIZE;
        let sum = Sha1::of([&other[..body]]);
        other[body..].copy_from_slice(&sum);
        let error = read(&other, 3, &identity()).unwrap_err().to_string();
        assert!(error.contains("in version"), "{error}");
    }

    #[test]
    fn what_has_the_right_sum_may_still_be_anything() {
        let whole = written(&[b"one".to_vec()]);
        let body = &whole[..whole.len() - Sha1::SIZE];
        for end in MAGIC.len()..body.len() {
            let mut cut = body[..end].to_vec();
            cut.extend_from_slice(&Sha1::of([&body[..end]]));
            assert!(read(&cut, 3, &identity()).is_err(), "{end}");
        }
        for at in MAGIC.len()..body.len() {
            let mut changed = body.to_vec();
            changed[at] = 0xff;
            let sum = Sha1::of([changed.as_slice()]);
            changed.extend_from_slice(&sum);
            // Whatever it says, it is read without harm. A changed byte within a part is for the part's owner to
            // notice.
            let parts = read(&changed, 3, &identity()).unwrap_or_default().unwrap_or_default();
            assert!(parts.len() <= 1);
        }
    }
}
