//! ENCODE and DECODE: values as bit strings of constant weight (section "Implementation Details", 4a of the paper).
//!
//! The strings of `nu` bits with `kappa` ones are numbered in lexicographic order, which is also the order of the
//! numbers they spell: the combinatorial number system.

/// The most ones of a code word: with these every 32-bit value has a word of 64 bits.
const BFIELD_KAPPA_MAX: u32 = 8;

/// The longest code, in bits: a window of it is read from two words.
const NU_MAX: u32 = u64::BITS;

/// `nu` is kept "within an order of magnitude" of `kappa`, as the paper asks: longer codes make fewer errors a bit, but
/// need more hash functions to do so.
const NU_PER_KAPPA_MAX: u32 = 10;

/// `CHOOSE[n][k]` is the number of ways to choose `k` of `n` things.
const CHOOSE: [[u64; BFIELD_KAPPA_MAX as usize + 1]; NU_MAX as usize + 1] = choose_all();

const fn choose_all() -> [[u64; BFIELD_KAPPA_MAX as usize + 1]; NU_MAX as usize + 1] {
    let mut table = [[0; BFIELD_KAPPA_MAX as usize + 1]; NU_MAX as usize + 1];
    let mut n = 0;
    while n <= NU_MAX as usize {
        table[n][0] = 1;
        let mut k = 1;
        while n > 0 && k <= BFIELD_KAPPA_MAX as usize {
            table[n][k] = table[n - 1][k - 1] + table[n - 1][k];
            k += 1;
        }
        n += 1;
    }
    table
}

// Every 32-bit value has a code.
const _: () = assert!(CHOOSE[NU_MAX as usize][BFIELD_KAPPA_MAX as usize] >= 1 << u32::BITS);

/// The bit strings of `nu` bits with `kappa` ones, and their numbers.
///
/// ```
/// use flowpeel_bfield::{Code, CodeShape};
///
/// let code = Code::for_values(1_000).unwrap();
/// assert_eq!((code.nu(), code.kappa(), code.code_word_count()), (20, 3, 1_140));
/// let five = Code::new(CodeShape { bit_count: 5, one_count: 2 }).unwrap();
/// assert_eq!(five.encode(2), 0b00110);
/// assert_eq!(five.decode(0b00110), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    nu: u32,
    kappa: u32,
}

/// The size of the bit strings of a [`Code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeShape {
    /// Bits of each string: the paper's nu.
    pub bit_count: u32,
    /// Ones among them: the paper's kappa.
    pub one_count: u32,
}

impl Code {
    /// The code of this shape. `None` when there is no such code: strings have 1 to 64 bits, and from 1 to 8 of these
    /// are ones.
    #[must_use]
    pub fn new(shape: CodeShape) -> Option<Self> {
        let CodeShape { bit_count: nu, one_count: kappa } = shape;
        let is_possible = (1..=BFIELD_KAPPA_MAX.min(nu)).contains(&kappa) && nu <= NU_MAX;
        is_possible.then_some(Code { nu, kappa })
    }

    /// The code for `value_count` values: with the smallest `kappa` that keeps `nu` within an order of magnitude of it,
    /// then the smallest `nu` (1c and 1d of the section). `None` for no values, and for more than 2^32.
    #[must_use]
    pub fn for_values(value_count: u64) -> Option<Self> {
        if value_count == 0 || value_count > 1 << u32::BITS {
            return None;
        }
        (1..=BFIELD_KAPPA_MAX).find_map(|kappa| {
            let longest = NU_MAX.min(NU_PER_KAPPA_MAX * kappa);
            (kappa..=longest).map(|nu| Code { nu, kappa }).find(|code| code.code_word_count() >= value_count)
        })
    }

    /// The length of a bit string, in bits.
    #[must_use]
    #[inline]
    pub fn nu(&self) -> u32 {
        self.nu
    }

    /// The number of ones in a bit string.
    #[must_use]
    #[inline]
    pub fn kappa(&self) -> u32 {
        self.kappa
    }

    /// The number of bit strings: `nu` choose `kappa`.
    #[must_use]
    #[inline]
    pub fn code_word_count(&self) -> u64 {
        CHOOSE[self.nu as usize][self.kappa as usize]
    }

    /// The bits of a window, all set.
    #[must_use]
    #[inline]
    pub fn mask(&self) -> u64 {
        u64::MAX >> (u64::BITS - self.nu)
    }

    /// The bit string with this number, counted from zero (the paper counts from one). A number that is too large gives
    /// the last string.
    ///
    /// Complexity: `nu` steps.
    #[must_use]
    #[inline]
    pub fn encode(&self, number: u64) -> u64 {
        let mut rest = number.min(self.code_word_count() - 1);
        let (mut bits, mut position) = (0, self.nu as usize);
        for ones in (1..=self.kappa as usize).rev() {
            // The highest one stands at the position below which there are as many words as are left.
            position -= 1;
            while CHOOSE[position][ones] > rest {
                position -= 1;
            }
            rest -= CHOOSE[position][ones];
            bits |= 1 << position;
        }
        bits
    }

    /// The number of a bit string of `kappa` ones. Further ones are ignored; with fewer ones the number is meaningless.
    #[must_use]
    #[inline]
    pub fn decode(&self, bits: u64) -> u64 {
        let (mut rest, mut number, mut ones) = (bits & self.mask(), 0, 0);
        while rest != 0 && ones < self.kappa as usize {
            ones += 1;
            number += CHOOSE[rest.trailing_zeros() as usize][ones];
            rest &= rest - 1;
        }
        number
    }
}

/// `n` choose `k`; zero outside of the table.
pub(super) fn choose(n: u32, k: u32) -> f64 {
    CHOOSE.get(n as usize).and_then(|row| row.get(k as usize)).map_or(0.0, |&count| count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code_of(bit_count: u32, one_count: u32) -> Option<Code> {
        Code::new(CodeShape { bit_count, one_count })
    }

    #[test]
    fn figure_1_of_the_paper() {
        let words = ["00011", "00101", "00110", "01001", "01010", "01100", "10001", "10010", "10100", "11000"];
        let code = code_of(5, 2).unwrap();
        assert_eq!(code.code_word_count(), 10);
        for (number, word) in words.iter().enumerate() {
            assert_eq!(format!("{:05b}", code.encode(number as u64)), *word);
            assert_eq!(code.decode(u64::from_str_radix(word, 2).unwrap()), number as u64);
        }
    }

    #[test]
    fn codes_are_as_the_paper_asks() {
        for (value_count, nu, kappa) in [
            (1, 1, 1),
            (10, 10, 1),
            (11, 6, 2),
            (190, 20, 2),
            (500, 16, 3),
            (1_000, 20, 3),
            (1 << 20, 44, 5),
            (1 << 32, 64, 8),
        ] {
            assert_eq!(Code::for_values(value_count), code_of(nu, kappa), "{value_count} values");
        }
        assert_eq!(Code::for_values(0), None);
        assert_eq!(Code::for_values((1 << 32) + 1), None);
        assert_eq!((code_of(0, 0), code_of(3, 4), code_of(65, 2), code_of(20, 9)), (None, None, None, None));
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(nu in 1u32..=64, kappa in 1u32..=8, number: u64) {
            let code = code_of(nu, kappa.min(nu)).unwrap();
            let number = number % code.code_word_count();
            let bits = code.encode(number);
            prop_assert_eq!((bits.count_ones(), bits & !code.mask()), (code.kappa(), 0));
            prop_assert_eq!(code.decode(bits), number);
            prop_assert!(number == 0 || code.encode(number - 1) < bits);
        }

        #[test]
        fn any_bits_decode_to_something(nu in 1u32..=64, kappa in 1u32..=8, bits: u64) {
            let code = code_of(nu, kappa.min(nu)).unwrap();
            let number = code.decode(bits);
            prop_assert!((bits & code.mask()).count_ones() < code.kappa() || number < code.code_word_count());
        }
    }
}
