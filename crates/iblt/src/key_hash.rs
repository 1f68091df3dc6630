//! Hashes of keys to 128 bits, by which tables place and check. The lower half of a hash places the key, the upper half
//! checks it: the halves must be independent, and neither may be linear in the key.

use super::sum::Key;
use super::word_key::WordKey;
use crate::hash::{HASH_GROUP_COUNT, KeyedHash, Purpose, Secret};
use crate::placement::CHOSEN_DEGREE_BITS;
use std::marker::PhantomData;

/// A function from keys to 128 bits that look random. Implement it for a hash of your own. Tables that are added,
/// subtracted or compared need equal functions.
///
/// ```
/// use flowpeel_iblt::{KeyHash, Layout, Placement, Rule, Sums, Table};
///
/// /// For keys that nobody picks: two rounds of multiplication, and no secret.
/// #[derive(Clone)]
/// struct Quick;
///
/// impl KeyHash<u64> for Quick {
///     fn of(&self, key: &u64) -> u128 {
///         let factor = 0xda94_2042_e4dd_58b5_0fc9_4e21_7d5b_3a8b;
///         let product = (u128::from(*key) ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(factor);
///         (product ^ product >> 61).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).rotate_left(64)
///     }
/// }
///
/// let layout = Layout::new(Placement::Subtables { hash_count: 4 }, 200);
/// let mut table = Table::<Sums<u64, u64>, _>::new(layout, Quick);
/// (0..100).for_each(|key| table.insert(&key, key));
/// assert!(table.list(Rule::Aggregates).is_complete());
/// ```
pub trait KeyHash<K>: Clone {
    /// The hash of one key.
    fn of(&self, key: &K) -> u128;

    /// Hashes the keys into `hashes`, as many as both slices have.
    #[inline]
    fn of_group(&self, keys: &[K], hashes: &mut [u128]) {
        hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = self.of(key));
    }
}

/// A hash by which the caller chooses how many cells each key has, for tables placed by
/// [`Placement::Chosen`](crate::Placement::Chosen) (footnote 5 of the paper). A key in more cells is alone in one of
/// them more often, so [`Table::get`](crate::Table::get) answers for it more often; every other key loses a little.
///
/// The degree has to follow from the key, since a listing knows a key only when it has found it. It stands in the
/// lowest five bits of the hash.
///
/// ```
/// use flowpeel_iblt::hash::Secret;
/// use flowpeel_iblt::{ChosenDegrees, Degrees, Got, Layout, Placement, Rule, SecretHash, Sums, Table};
///
/// // One key in ten is asked for all the time, and has 9 cells. The others have 3.
/// let degrees = Degrees::new(&[(3, 9), (9, 1)]).expect("they are shares");
/// let degree_of = |key: &u64| if key % 10 == 0 { 9 } else { 3 };
/// let hash = ChosenDegrees::new(SecretHash::new(&Secret::REPLAY), degree_of);
/// let mut table = Table::<Sums<u64, u64>, _>::new(Layout::new(Placement::Chosen(degrees), 2_000), hash);
/// (0..1_000).for_each(|key| table.insert(&key, key));
/// let unknown = |keys: &mut dyn Iterator<Item = u64>| keys.filter(|key| table.get_plain(key) == Got::Unknown).count();
/// assert!(unknown(&mut (0..1_000).filter(|key| key % 10 == 0)) <= 35);
/// assert!(unknown(&mut (0..1_000).filter(|key| key % 10 != 0)) >= 400);
/// assert!(table.list(Rule::Aggregates).is_complete());
/// ```
#[derive(Clone)]
pub struct ChosenDegrees<H, F> {
    hash: H,
    degree_of: F,
}

impl<H, F> ChosenDegrees<H, F> {
    /// This hash, with as many cells for a key as `degree_of` returns: 1 to the largest degree of the placement, and
    /// clamped to that.
    #[must_use]
    pub fn new(hash: H, degree_of: F) -> Self {
        ChosenDegrees { hash, degree_of }
    }
}

impl<K, H: KeyHash<K>, F: Fn(&K) -> u32 + Clone> KeyHash<K> for ChosenDegrees<H, F> {
    #[inline]
    fn of(&self, key: &K) -> u128 {
        with_degree(self.hash.of(key), (self.degree_of)(key))
    }

    #[inline]
    fn of_group(&self, keys: &[K], hashes: &mut [u128]) {
        self.hash.of_group(keys, hashes);
        hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = with_degree(*hash, (self.degree_of)(key)));
    }
}

/// The hash with this degree in its lowest bits.
#[inline]
fn with_degree(hash: u128, degree: u32) -> u128 {
    let most = (1 << CHOSEN_DEGREE_BITS) - 1;
    hash & !u128::from(most) | u128::from(degree.min(most))
}

/// The default hash: AES-128 in CBC-MAC mode over the key's bytes, under a key derived from the secret and the size of
/// the keys. All keys of one type have one size, as CBC-MAC requires.
#[derive(Clone)]
pub struct SecretHash<K> {
    cipher: KeyedHash<Block>,
    keys: PhantomData<fn(K)>,
}

impl<K: Key> SecretHash<K> {
    /// The function under this secret.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        // An `Iblt` uses the secret's own function; this one is derived from it by a block that is no key there.
        let outer = KeyedHash::<Block>::new(secret, Purpose::Placement);
        let label = u128::from_be_bytes(*b"sketch key size\0") ^ K::SIZE as u128;
        let derived = Secret::new(outer.of_block(label).to_be_bytes());
        SecretHash { cipher: KeyedHash::new(&derived, Purpose::Placement), keys: PhantomData }
    }
}

impl<K: Key> KeyHash<K> for SecretHash<K> {
    #[inline]
    fn of(&self, key: &K) -> u128 {
        (0..block_count::<K>()).fold(0, |hash, at| self.cipher.of_block(hash ^ key.block(at)))
    }

    /// Eight keys pass through the cipher in little more time than one.
    #[inline]
    fn of_group(&self, keys: &[K], hashes: &mut [u128]) {
        for (keys, hashes) in keys.chunks(HASH_GROUP_COUNT).zip(hashes.chunks_mut(HASH_GROUP_COUNT)) {
            let count = keys.len().min(hashes.len());
            let mut chain = [0u128; HASH_GROUP_COUNT];
            let mut blocks = [Block([0; 2]); HASH_GROUP_COUNT];
            for at in 0..block_count::<K>() {
                for ((block, key), hash) in blocks.iter_mut().zip(&keys[..count]).zip(&chain) {
                    let word = hash ^ key.block(at);
                    *block = Block([(word >> 64) as u64, word as u64]);
                }
                self.cipher.of_group(&blocks[..count], &mut chain);
            }
            hashes[..count].copy_from_slice(&chain[..count]);
        }
    }
}

/// A block of the cipher as a key of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Block([u64; 2]);

impl WordKey for Block {
    const WORD_COUNT: usize = 2;
    /// That of other keys of two words that share the secret: flowpeel's, of IPv4 connections.
    const CIPHER_TAG: u8 = 4;

    #[inline]
    fn words(&self) -> &[u64] {
        &self.0
    }

    #[inline]
    fn from_words(words: &[u64]) -> Self {
        Block(WordKey::from_words(words))
    }
}

/// Blocks of a key: one even for keys without any bytes.
fn block_count<K: Key>() -> usize {
    K::SIZE.div_ceil(16).max(1)
}

/// Keys of words are placed as in an [`Iblt`](crate::Iblt).
impl<K: WordKey> KeyHash<K> for KeyedHash<K> {
    #[inline]
    fn of(&self, key: &K) -> u128 {
        KeyedHash::of(self, key)
    }

    #[inline]
    fn of_group(&self, keys: &[K], hashes: &mut [u128]) {
        for (keys, hashes) in keys.chunks(HASH_GROUP_COUNT).zip(hashes.chunks_mut(HASH_GROUP_COUNT)) {
            KeyedHash::of_group(self, keys, hashes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Degrees, Layout, Placement};

    #[test]
    fn short_keys_are_one_block_of_aes_under_a_derived_key() {
        let hash = SecretHash::<u64>::new(&Secret::REPLAY);
        let mut one = [0];
        hash.of_group(&[7], &mut one);
        assert_eq!(one[0], hash.of(&7));
        assert_ne!(hash.of(&7), SecretHash::<u64>::new(&Secret::new([1; 16])).of(&7));
        assert_ne!(hash.of(&7), SecretHash::<u32>::new(&Secret::REPLAY).of(&7));
        assert_ne!(hash.of(&7), SecretHash::<u128>::new(&Secret::REPLAY).of(&7));
    }

    #[test]
    fn a_key_has_the_cells_that_are_chosen_for_it() {
        let degrees = Degrees::new(&[(3, 1), (11, 1)]).unwrap();
        let layout = Layout::new(Placement::Chosen(degrees), 500);
        let hash = ChosenDegrees::new(SecretHash::<u64>::new(&Secret::REPLAY), |key: &u64| *key as u32);
        let keys: Vec<u64> = (0..40).collect();
        let mut hashes = vec![0; keys.len()];
        hash.of_group(&keys, &mut hashes);
        for (key, together) in keys.iter().zip(hashes) {
            assert_eq!(hash.of(key), together);
            assert_eq!(layout.places(together).len() as u64, (*key).clamp(1, 11));
        }
    }

    #[test]
    fn groups_of_any_length_hash_like_their_keys() {
        let hash = SecretHash::<[u8; 40]>::new(&Secret::REPLAY);
        let keys: Vec<[u8; 40]> = (0..19u8).map(|at| std::array::from_fn(|byte| at ^ byte as u8)).collect();
        let mut hashes = vec![0; keys.len()];
        hash.of_group(&keys, &mut hashes);
        for (key, together) in keys.iter().zip(hashes) {
            assert_eq!(hash.of(key), together);
        }
    }
}
