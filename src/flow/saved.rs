//! Keys in files: one encoding for saved states and archives.

use super::AnyKey;
use super::{FlowKey, KeyV4, KeyV6, WordKey};
use crate::disk::{Decoder, Encoder};
use crate::error::Result;

/// Decodes a key of one family, which was encoded as its words. Every value is a valid key.
///
/// # Errors
///
/// There are too few bytes.
pub fn saved_key<K: FlowKey>(decoder: &mut Decoder) -> Result<K> {
    let mut words = [0; KeyV6::WORD_COUNT];
    decoder.words(&mut words[..K::WORD_COUNT])?;
    Ok(K::from_words(&words))
}

impl AnyKey {
    /// Encodes the key: one byte for its family, then its words.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.bool(matches!(self, AnyKey::V6(_)));
        match self {
            AnyKey::V4(key) => encoder.words(key.words()),
            AnyKey::V6(key) => encoder.words(key.words()),
        }
    }

    /// Decodes what [`Self::save`] encoded.
    ///
    /// # Errors
    ///
    /// There are too few bytes, or the family is none.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        Ok(if decoder.bool()? {
            AnyKey::V6(saved_key::<KeyV6>(decoder)?)
        } else {
            AnyKey::V4(saved_key::<KeyV4>(decoder)?)
        })
    }
}
