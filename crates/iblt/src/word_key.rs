//! Keys that are rows of 64-bit words: hashed two words a block, and summed word by word.

use super::sum::{Key, Sum};
use std::fmt::Debug;
use std::hash::Hash;

/// The most words of a key.
pub const KEY_WORD_COUNT_MAX: usize = 8;

/// A key that is a row of 64-bit words. [`KeyedHash`](crate::hash::KeyedHash) hashes such keys, in batches too, and
/// they are [`Key`]s of tables of every kind.
///
/// `[u64; N]` is such a key. For a type of your own, say which words it is made of:
///
/// ```
/// use flowpeel_iblt::WordKey;
///
/// #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
/// struct Account([u64; 2]);
///
/// impl WordKey for Account {
///     const WORD_COUNT: usize = 2;
///     const CIPHER_TAG: u8 = 1;
///
///     fn words(&self) -> &[u64] {
///         &self.0
///     }
///
///     fn from_words(words: &[u64]) -> Self {
///         Account(std::array::from_fn(|at| words.get(at).copied().unwrap_or(0)))
///     }
/// }
/// ```
pub trait WordKey: Copy + Eq + Ord + Hash + Debug + Send + Sync + 'static {
    /// The number of words of a key: at least one, at most [`KEY_WORD_COUNT_MAX`].
    const WORD_COUNT: usize;
    /// Each family of keys is hashed under a cipher key of its own, which is derived from the secret and this byte.
    /// Types whose keys have different numbers of words must have different tags, if they share a secret. The tags from
    /// 128 on are those of `[u64; N]`.
    const CIPHER_TAG: u8;

    /// The words, most significant first; there are [`Self::WORD_COUNT`] of them.
    fn words(&self) -> &[u64];
    /// The key made of these words. Words past [`Self::WORD_COUNT`] are not read; missing ones are zero.
    fn from_words(words: &[u64]) -> Self;
}

impl<const N: usize> WordKey for [u64; N] {
    const WORD_COUNT: usize = N;
    const CIPHER_TAG: u8 = 128 + N as u8;

    #[inline]
    fn words(&self) -> &[u64] {
        self
    }

    #[inline]
    fn from_words(words: &[u64]) -> Self {
        std::array::from_fn(|at| words.get(at).copied().unwrap_or(0))
    }
}

/// The key whose words are what `sum` makes of those of two keys.
#[inline]
fn zip<K: WordKey>(one: K, other: K, sum: impl Fn(u64, u64) -> u64) -> K {
    const { assert!(0 < K::WORD_COUNT && K::WORD_COUNT <= KEY_WORD_COUNT_MAX) };
    let mut words = [0; KEY_WORD_COUNT_MAX];
    for (word, (one, other)) in words.iter_mut().zip(one.words().iter().zip(other.words())) {
        *word = sum(*one, *other);
    }
    K::from_words(&words)
}

/// Every word wraps on its own.
impl<K: WordKey> Sum for K {
    const SIZE: usize = size_of::<u64>() * K::WORD_COUNT;
    const WORD_COUNT: u32 = <K as WordKey>::WORD_COUNT as u32;

    #[inline]
    fn zero() -> Self {
        Self::from_words(&[])
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        zip(self, other, u64::wrapping_add)
    }

    #[inline]
    fn minus(self, other: Self) -> Self {
        zip(self, other, u64::wrapping_sub)
    }

    #[inline]
    fn xor(self, other: Self) -> Self {
        zip(self, other, |one, other| one ^ other)
    }

    #[inline]
    fn times(self, count: i64) -> Self {
        zip(self, self, |word, _| word.wrapping_mul(count as u64))
    }

    fn quotient(self, count: i64, lost: u64) -> Option<Self> {
        let twos = count.trailing_zeros();
        let mut words = [0; KEY_WORD_COUNT_MAX];
        for (at, (word, &sum)) in words.iter_mut().zip(self.words()).enumerate() {
            let lost = lost.checked_shr(at as u32 * twos).unwrap_or(0);
            *word = sum.quotient(count, if twos < u64::BITS { lost & ((1 << twos) - 1) } else { 0 })?;
        }
        Some(Self::from_words(&words))
    }

    #[inline]
    fn write(&self, out: &mut [u8]) {
        assert_eq!(out.len(), Self::SIZE);
        out.chunks_mut(size_of::<u64>()).zip(self.words()).for_each(|(out, word)| word.write(out));
    }

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), Self::SIZE);
        let mut words = [0; KEY_WORD_COUNT_MAX];
        words.iter_mut().zip(bytes.chunks(size_of::<u64>())).for_each(|(word, bytes)| *word = u64::read(bytes));
        Self::from_words(&words)
    }
}

impl<K: WordKey> Key for K {
    #[inline]
    fn block(&self, at: usize) -> u128 {
        let word = |at: usize| u128::from(self.words().get(at).copied().unwrap_or(0));
        word(2 * at) << 64 | word(2 * at + 1)
    }
}

/// Keys of two and of five words, with types and tags of their own.
#[cfg(test)]
pub(crate) mod examples {
    use super::WordKey;

    macro_rules! example {
        ($name:ident, $word_count:literal, $tag:literal) => {
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub(crate) struct $name([u64; $word_count]);

            impl WordKey for $name {
                const WORD_COUNT: usize = $word_count;
                const CIPHER_TAG: u8 = $tag;

                fn words(&self) -> &[u64] {
                    &self.0
                }

                fn from_words(words: &[u64]) -> Self {
                    $name(WordKey::from_words(words))
                }
            }
        };
    }

    example!(TwoWords, 2, 4);
    example!(FiveWords, 5, 6);
}
