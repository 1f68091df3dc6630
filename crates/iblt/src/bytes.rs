//! Byte strings as sums: `[u8; N]` counts as one little-endian number of N bytes, so that a division by an even count
//! loses a few bits of the whole and not of every byte.

use super::sum::{Key, Sum, odd_inverse};

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
