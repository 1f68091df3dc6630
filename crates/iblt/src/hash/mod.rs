//! The keyed pseudo-random functions that place keys and check them: 128 bits a key, the same on every machine, which
//! nobody without the secret can predict.
//!
//! AES-128 in CBC-MAC mode is a pseudo-random function on inputs of one length, so each use and each family of keys has
//! a cipher key of its own, derived from the secret. Several keys are hashed together, because the hardware works on
//! many blocks in the time of little more than one: batches of 64 wherever many keys come at once, groups of eight
//! elsewhere.

use crate::word_key::WordKey;
use aes::Aes128;
use aes::cipher::consts::U16;
use aes::cipher::typenum::Unsigned;
use aes::cipher::{
    Array, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit, ParBlocks,
};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::marker::PhantomData;

/// How many keys [`KeyedHash::of_group`] hashes together.
pub const HASH_GROUP_COUNT: usize = 8;

/// How many keys [`KeyedHash::of_batch`] hashes together: the widest cipher units work on this many blocks at once, and
/// on fewer one by one.
pub const HASH_BATCH_COUNT: usize = 64;

/// The size of a secret, in bytes.
pub const SECRET_SIZE: usize = 16;

/// The secret that all hashes depend on. A table can be listed only with the secret with which it was filled.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_SIZE]);

impl Secret {
    /// The secret of replays that name none, so that equal captures give equal bytes everywhere. It protects nothing.
    pub const REPLAY: Self = Secret(*b"flowpeel replay\0");

    /// The secret with these bytes.
    #[must_use]
    pub fn new(bytes: [u8; SECRET_SIZE]) -> Self {
        Secret(bytes)
    }

    /// The cipher key for this purpose and the keys with this tag: the block of both, encrypted under the secret.
    #[must_use]
    pub fn cipher_key(&self, purpose: Purpose, tag: u8) -> [u8; 16] {
        let mut block = Array::from([0u8; 16]);
        (block[0], block[1]) = (purpose as u8, tag);
        Aes128::new(&Array::from(self.0)).encrypt_block(&mut block);
        block.0
    }

    /// The key for the purpose that the label names: HMAC-SHA256 of the label under the secret. Neither the secret nor
    /// the key of another label follows from it.
    #[must_use]
    pub fn derived(&self, label: &[u8]) -> [u8; 32] {
        let mut code = code_under(&self.0);
        code.update(label);
        code.finalize().into_bytes().into()
    }

    /// An authentication code under the key that is derived for this label.
    #[must_use]
    pub fn authentication(&self, label: &[u8]) -> Hmac<Sha256> {
        code_under(&self.derived(label))
    }
}

/// HMAC-SHA256 under a key that is no longer than a block: the key is padded with zeros, as the definition says.
fn code_under(key: &[u8]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    block.iter_mut().zip(key).for_each(|(byte, of_key)| *byte = *of_key);
    Hmac::new(&block.into())
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The purpose of a hash. Hashes for different purposes are independent of each other. An IBLT uses two of them; the
/// others are for the tables of whoever fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Finding what is kept under a key: flowpeel's partitions and the filter of connections.
    Connection = 1,
    /// Placing a key in an IBLT, and checking it there.
    Placement = 2,
    /// Checking a value beside a key in an IBLT.
    Value = 3,
    /// Finding a handshake that waits for its answer: flowpeel's handshake cache.
    Handshake = 4,
}

/// A keyed function from the keys of one type to 128 bits.
///
/// ```
/// use flowpeel_iblt::hash::{KeyedHash, Purpose, Secret};
///
/// let hash = KeyedHash::<[u64; 2]>::new(&Secret::REPLAY, Purpose::Placement);
/// let (key, other) = ([0x0a00_0001, 40_000], [0x0a00_0002, 443]);
/// assert_eq!(hash.of(&key), hash.of(&key));
/// assert_ne!(hash.of(&key), hash.of(&other));
/// ```
#[derive(Clone)]
pub struct KeyedHash<K> {
    cipher: Aes128,
    family: PhantomData<fn(K)>,
}

impl<K: WordKey> KeyedHash<K> {
    /// The function for this purpose under this secret.
    #[must_use]
    pub fn new(secret: &Secret, purpose: Purpose) -> Self {
        let subkey = secret.cipher_key(purpose, K::CIPHER_TAG);
        KeyedHash { cipher: Aes128::new(&Array::from(subkey)), family: PhantomData }
    }

    /// The hash of one key.
    #[must_use]
    #[inline]
    pub fn of(&self, key: &K) -> u128 {
        let mut hashes = [0];
        self.of_group(std::slice::from_ref(key), &mut hashes);
        hashes[0]
    }

    /// The hashes of up to [`HASH_GROUP_COUNT`] keys. Keys beyond that, or beyond the length of `hashes`, are ignored.
    #[inline]
    pub fn of_group(&self, keys: &[K], hashes: &mut [u128]) {
        let count = keys.len().min(hashes.len()).min(HASH_GROUP_COUNT);
        let mut blocks = [Array::from([0u8; 16]); HASH_GROUP_COUNT];
        for at in (0..K::WORD_COUNT).step_by(2) {
            for (block, key) in blocks.iter_mut().zip(&keys[..count]) {
                let words = key.words();
                let low = words.get(at + 1).copied().unwrap_or(0);
                let mixed = u128::from_be_bytes(block.0) ^ (u128::from(words[at]) << 64 | u128::from(low));
                block.0 = mixed.to_be_bytes();
            }
            self.cipher.encrypt_blocks(&mut blocks[..count]);
        }
        for (hash, block) in hashes.iter_mut().zip(&blocks[..count]) {
            *hash = u128::from_be_bytes(block.0);
        }
    }

    /// Puts the hashes of up to [`HASH_BATCH_COUNT`] keys into `hashes`. Keys beyond that are ignored. With
    /// many keys, each takes a third of the time of [`Self::of_group`].
    #[inline]
    pub fn of_batch(&self, keys: &[K], hashes: &mut HashBatch) {
        let (count, round_count) = (keys.len().min(HASH_BATCH_COUNT), K::WORD_COUNT.div_ceil(2));
        let mix = |blocks: &mut Blocks, round: usize| {
            for (block, key) in blocks.iter_mut().zip(keys) {
                let words = key.words();
                let pair = [words[2 * round], words.get(2 * round + 1).copied().unwrap_or(0)];
                for (bytes, word) in block.0.as_chunks_mut::<8>().0.iter_mut().zip(pair) {
                    let before = if round == 0 { 0 } else { u64::from_be_bytes(*bytes) };
                    *bytes = (before ^ word).to_be_bytes();
                }
            }
        };
        self.cipher.encrypt_with_backend(Rounds { blocks: &mut hashes.blocks, count, round_count, mix });
    }

    /// Replaces each of the first `count` hashes by its image, as [`Self::of_block`] does.
    #[inline]
    pub fn of_hashes(&self, hashes: &mut HashBatch, count: usize) {
        let count = count.min(HASH_BATCH_COUNT);
        let mix = |_: &mut Blocks, _: usize| ();
        self.cipher.encrypt_with_backend(Rounds { blocks: &mut hashes.blocks, count, round_count: 1, mix });
    }

    /// Runs `visit` over `keys` in order, each with its hash, hashing them in groups.
    pub fn for_each(&self, keys: impl IntoIterator<Item = K>, mut visit: impl FnMut(K, u128)) {
        let mut keys = keys.into_iter().peekable();
        let mut hashes = [0; HASH_GROUP_COUNT];
        while let Some(&first) = keys.peek() {
            let mut group = [first; HASH_GROUP_COUNT];
            let mut count = 0;
            for (slot, key) in group.iter_mut().zip(keys.by_ref().take(HASH_GROUP_COUNT)) {
                *slot = key;
                count += 1;
            }
            self.of_group(&group[..count], &mut hashes);
            group[..count].iter().zip(&hashes).for_each(|(key, hash)| visit(*key, *hash));
        }
    }

    /// The pseudo-random image of a block that is already a hash, mixed with what else the image is to depend on. A
    /// function that is used for this must not hash keys as well: one could reveal the other.
    #[must_use]
    #[inline]
    pub fn of_block(&self, block: u128) -> u128 {
        let mut block = Array::from(block.to_be_bytes());
        self.cipher.encrypt_block(&mut block);
        u128::from_be_bytes(block.0)
    }
}

/// A block of the cipher: a hash, most significant byte first.
type Block = Array<u8, U16>;
/// The blocks of a batch.
type Blocks = [Block; HASH_BATCH_COUNT];

/// The hashes of up to [`HASH_BATCH_COUNT`] keys, as the cipher leaves them.
#[derive(Clone)]
pub struct HashBatch {
    blocks: Blocks,
}

impl HashBatch {
    /// The hash of the key at this position.
    #[must_use]
    #[inline]
    pub fn get(&self, at: usize) -> u128 {
        u128::from_be_bytes(self.blocks[at].0)
    }

    /// Sets the hash at this position.
    #[inline]
    pub fn set(&mut self, at: usize, hash: u128) {
        self.blocks[at].0 = hash.to_be_bytes();
    }
}

impl Default for HashBatch {
    fn default() -> Self {
        HashBatch { blocks: [Array([0; 16]); HASH_BATCH_COUNT] }
    }
}

/// Rounds that mix something into the blocks and then encrypt the first `count`, compiled as a whole for the cipher
/// units of this processor.
struct Rounds<'a, F> {
    blocks: &'a mut Blocks,
    count: usize,
    round_count: usize,
    mix: F,
}

impl<F> BlockSizeUser for Rounds<'_, F> {
    type BlockSize = U16;
}

impl<F: Fn(&mut Blocks, usize)> BlockCipherEncClosure for Rounds<'_, F> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let Rounds { blocks, count, round_count, mix } = self;
        for round in 0..round_count {
            mix(blocks, round);
            // Unused blocks are encrypted along where the cipher's widest step is faster than one block at a time.
            let padded = count.next_multiple_of(B::ParBlocksSize::USIZE);
            if padded <= HASH_BATCH_COUNT.min(3 * count) {
                let (groups, _) = ParBlocks::<B>::slice_as_chunks_mut(&mut blocks[..padded]);
                groups.iter_mut().for_each(|group| backend.encrypt_par_blocks(group.into()));
            } else {
                blocks[..count].iter_mut().for_each(|block| backend.encrypt_block(block.into()));
            }
        }
    }
}

/// 2^64 divided by the golden ratio and rounded down to an odd number, whose multiples differ in many bits and are
/// spread evenly.
pub const GOLDEN_64: u64 = 0x9e37_79b9_7f4a_7c15;

/// A prime close to 2^32 divided by the golden ratio, with the properties of [`GOLDEN_64`] in 32 bits.
pub const GOLDEN_32: u32 = 0x9e37_79b1;

/// The one of `count` places (at most 2^32) that 32 bits of a hash choose: neighbouring parts choose neighbouring
/// places.
#[must_use]
#[inline]
pub fn place_of(part: u32, count: usize) -> usize {
    ((u64::from(part) * count as u64) >> u32::BITS) as usize
}

/// The finaliser of SplitMix64: every bit of the result depends on all bits of the word.
#[must_use]
#[inline]
pub fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests;
