//! The group that is summed: keys, values and checks as elements that wrap. Numbers, byte strings and pairs are such
//! elements.
//!
//! Laws: `plus` commutes and associates, `minus` undoes it, `times` distributes over both, `quotient` undoes `times`,
//! and overflows change none of this (section 2 of the paper asks for just that). Encodings are little-endian, the same
//! on every machine.

use std::fmt::Debug;

/// The most bits lost in dividing a key sum by an even count: each doubles the keys that are tried.
pub(crate) const TABLE_LOST_BITS_MAX: u32 = 16;

/// An element of a wrapping group.
pub trait Sum: Copy + PartialEq + Debug + Send + Sync + 'static {
    /// Bytes of the encoding.
    const SIZE: usize;
    /// Words that wrap on their own. A division by an even count loses bits at the top of each.
    const WORD_COUNT: u32;

    /// The neutral element.
    #[must_use]
    fn zero() -> Self;
    /// The sum.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// The difference.
    #[must_use]
    fn minus(self, other: Self) -> Self;
    /// The bitwise exclusive or.
    #[must_use]
    fn xor(self, other: Self) -> Self;
    /// This element taken `count` times; negative counts subtract.
    #[must_use]
    fn times(self, count: i64) -> Self;
    /// One of the elements that give this one when taken `count` times, if there is one.
    ///
    /// A count of 2^t times an odd number loses the top t bits of every word; `lost` supplies these bits, and is below
    /// 2 to the power of t times [`Self::WORD_COUNT`]. `None` where nothing divides, for a count of zero, and for a
    /// count with too many factors of two.
    fn quotient(self, count: i64, lost: u64) -> Option<Self>;
    /// Writes [`Self::SIZE`] bytes.
    ///
    /// # Panics
    /// When `out` has another length.
    fn write(&self, out: &mut [u8]);
    /// Reads what [`Self::write`] wrote.
    ///
    /// # Panics
    /// When `bytes` has another length.
    fn read(bytes: &[u8]) -> Self;
}

/// How many elements may give the same sum when taken `count` times; `None` when there are too many to try.
#[must_use]
pub(crate) fn quotients<S: Sum>(count: i64) -> Option<u64> {
    if count == 0 {
        return None;
    }
    let bits = count.trailing_zeros() * S::WORD_COUNT;
    (bits <= TABLE_LOST_BITS_MAX).then(|| 1 << bits)
}

/// A key: a sum that can be compared, and hashed block by block.
pub trait Key: Sum + Ord + std::hash::Hash {
    /// Block `at` of the key, for hashing: different keys of one type differ in some block. Numbers and strings give 16
    /// bytes of their encoding as a big-endian number, zeros where the key has ended.
    fn block(&self, at: usize) -> u128;
}

macro_rules! number {
    ($($number:ty: $unsigned:ty),*) => {$(
        impl Sum for $number {
            const SIZE: usize = size_of::<$number>();
            const WORD_COUNT: u32 = 1;

            #[inline]
            fn zero() -> Self {
                0
            }

            #[inline]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            #[inline]
            fn times(self, count: i64) -> Self {
                self.wrapping_mul(count as $number)
            }

            fn quotient(self, count: i64, lost: u64) -> Option<Self> {
                let twos = count.trailing_zeros();
                let sum = (if count < 0 { self.wrapping_neg() } else { self }) as $unsigned;
                if count == 0 || twos >= <$unsigned>::BITS || sum & ((1 << twos) - 1) != 0 {
                    return None;
                }
                let known = (sum >> twos).wrapping_mul(odd_inverse(count.unsigned_abs() >> twos) as $unsigned);
                if twos == 0 {
                    return (lost == 0).then_some(known as $number);
                }
                Some((known << twos >> twos | (lost as $unsigned) << (<$unsigned>::BITS - twos)) as $number)
            }

            #[inline]
            fn write(&self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$number>()];
                array.copy_from_slice(bytes);
                <$number>::from_le_bytes(array)
            }
        }

        impl Key for $number {
            #[inline]
            fn block(&self, at: usize) -> u128 {
                let mut block = [0; 16];
                if at == 0 {
                    block[..size_of::<$number>()].copy_from_slice(&self.to_le_bytes());
                }
                u128::from_be_bytes(block)
            }
        }
    )*};
}

number!(u8: u8, u16: u16, u32: u32, u64: u64, u128: u128, i8: u8, i16: u16, i32: u32, i64: u64, i128: u128);

/// An absent field, which costs nothing and holds nothing.
impl Sum for () {
    const SIZE: usize = 0;
    const WORD_COUNT: u32 = 0;

    #[inline]
    fn zero() -> Self {}

    #[inline]
    fn plus(self, (): Self) -> Self {}

    #[inline]
    fn minus(self, (): Self) -> Self {}

    #[inline]
    fn xor(self, (): Self) -> Self {}

    #[inline]
    fn times(self, _count: i64) -> Self {}

    fn quotient(self, count: i64, lost: u64) -> Option<Self> {
        (count != 0 && lost == 0).then_some(())
    }

    fn write(&self, out: &mut [u8]) {
        assert!(out.is_empty());
    }

    fn read(bytes: &[u8]) -> Self {
        assert!(bytes.is_empty());
    }
}

/// Two sums side by side.
impl<A: Sum, B: Sum> Sum for (A, B) {
    const SIZE: usize = A::SIZE + B::SIZE;
    const WORD_COUNT: u32 = A::WORD_COUNT + B::WORD_COUNT;

    #[inline]
    fn zero() -> Self {
        (A::zero(), B::zero())
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        (self.0.plus(other.0), self.1.plus(other.1))
    }

    #[inline]
    fn minus(self, other: Self) -> Self {
        (self.0.minus(other.0), self.1.minus(other.1))
    }

    #[inline]
    fn xor(self, other: Self) -> Self {
        (self.0.xor(other.0), self.1.xor(other.1))
    }

    #[inline]
    fn times(self, count: i64) -> Self {
        (self.0.times(count), self.1.times(count))
    }

    fn quotient(self, count: i64, lost: u64) -> Option<Self> {
        let bits = count.trailing_zeros() * A::WORD_COUNT;
        let rest = lost.checked_shr(bits).unwrap_or(0);
        let first = if bits < u64::BITS { lost & ((1 << bits) - 1) } else { lost };
        Some((self.0.quotient(count, first)?, self.1.quotient(count, rest)?))
    }

    fn write(&self, out: &mut [u8]) {
        let (first, second) = out.split_at_mut(A::SIZE);
        self.0.write(first);
        self.1.write(second);
    }

    fn read(bytes: &[u8]) -> Self {
        let (first, second) = bytes.split_at(A::SIZE);
        (A::read(first), B::read(second))
    }
}

/// The inverse of an odd number modulo 2^128, by Newton's iteration: each step doubles the number of correct bits.
pub(crate) fn odd_inverse(odd: u64) -> u128 {
    let odd = u128::from(odd);
    let mut inverse = odd;
    for _ in 0..6 {
        inverse = inverse.wrapping_mul(2u128.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    inverse
}

/// Bytes that are processed at once.
const LIMB_SIZE: usize = 8;

fn limb(bytes: &[u8]) -> u64 {
    let mut limb = [0; LIMB_SIZE];
    limb[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(limb)
}

/// Sets every limb to what `next` makes of the old one.
fn map_limbs<const N: usize>(mut bytes: [u8; N], mut next: impl FnMut(u64, usize) -> u64) -> [u8; N] {
    for (at, chunk) in bytes.chunks_mut(LIMB_SIZE).enumerate() {
        let size = chunk.len();
        let limb = next(limb(chunk), at * LIMB_SIZE);
        chunk.copy_from_slice(&limb.to_le_bytes()[..size]);
    }
    bytes
}

fn limb_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    limb(&bytes[at.min(N)..(at + LIMB_SIZE).min(N)])
}

impl<const N: usize> Sum for [u8; N] {
    const SIZE: usize = N;
    const WORD_COUNT: u32 = 1;

    #[inline]
    fn zero() -> Self {
        [0; N]
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        let mut carry = false;
        map_limbs(self, |limb, at| {
            let (sum, one) = limb.overflowing_add(limb_at(&other, at));
            let (sum, two) = sum.overflowing_add(u64::from(carry));
            carry = one | two;
            sum
        })
    }

    #[inline]
    fn minus(self, other: Self) -> Self {
        let mut borrow = false;
        map_limbs(self, |limb, at| {
            let (rest, one) = limb.overflowing_sub(limb_at(&other, at));
            let (rest, two) = rest.overflowing_sub(u64::from(borrow));
            borrow = one | two;
            rest
        })
    }

    #[inline]
    fn xor(self, other: Self) -> Self {
        std::array::from_fn(|at| self[at] ^ other[at])
    }

    #[inline]
    fn times(self, count: i64) -> Self {
        if count == 1 {
            return self;
        }
        let mut carry = 0u128;
        let product = map_limbs(self, |limb, _| {
            carry += u128::from(limb) * u128::from(count.unsigned_abs());
            let low = carry as u64;
            carry >>= u64::BITS;
            low
        });
        if count < 0 { Self::zero().minus(product) } else { product }
    }

    fn quotient(self, count: i64, lost: u64) -> Option<Self> {
        let twos = count.trailing_zeros();
        let sum = if count < 0 { Self::zero().minus(self) } else { self };
        if count == 0 || twos as usize >= (8 * N).min(64) || limb_at(&sum, 0) & ((1 << twos) - 1) != 0 {
            return None;
        }
        let shifted = map_limbs(sum, |limb, at| match twos {
            0 => limb,
            _ => limb >> twos | limb_at(&sum, at + LIMB_SIZE) << (u64::BITS - twos),
        });
        // Division from the low end: each limb of the quotient is the one whose product ends in the limb that is left.
        let odd = count.unsigned_abs() >> twos;
        let inverse = odd_inverse(odd) as u64;
        let mut borrow = 0u64;
        let mut known = map_limbs(shifted, |limb, _| {
            let (rest, is_short) = limb.overflowing_sub(borrow);
            let quotient = rest.wrapping_mul(inverse);
            borrow = ((u128::from(quotient) * u128::from(odd)) >> u64::BITS) as u64 + u64::from(is_short);
            quotient
        });
        for bit in 0..twos as usize {
            let (byte, shift) = ((8 * N - twos as usize + bit) / 8, (8 * N - twos as usize + bit) % 8);
            known[byte] = known[byte] & !(1 << shift) | ((lost >> bit & 1) as u8) << shift;
        }
        (twos > 0 || lost == 0).then_some(known)
    }

    #[inline]
    fn write(&self, out: &mut [u8]) {
        out.copy_from_slice(self);
    }

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        array
    }
}

impl<const N: usize> Key for [u8; N] {
    #[inline]
    fn block(&self, at: usize) -> u128 {
        let mut block = [0; 16];
        let rest = self.get(16 * at..).unwrap_or(&[]);
        let size = rest.len().min(16);
        block[..size].copy_from_slice(&rest[..size]);
        u128::from_be_bytes(block)
    }
}

#[cfg(test)]
mod tests;
