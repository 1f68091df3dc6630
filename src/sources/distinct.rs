//! How many different keys there were (HyperLogLog: Flajolet, Fusy, Gandouet and Meunier, 2007).
//!
//! The estimate is right to 2 %, from 4 KiB. The laws: the order and the number of
//! times that hashes come make no difference, and two sketches can be joined.

/// Bits of a hash that choose a register. The standard error is 1.04 over the square root of the number of registers:
/// 1.6 %.
const REGISTER_BITS: u32 = 12;
const REGISTER_COUNT: usize = 1 << REGISTER_BITS;

/// The registers: each has the longest run of leading zeros among its hashes, plus one.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Distinct {
    registers: Box<[u8]>,
}

impl Distinct {
    /// The memory that a sketch takes, in bytes.
    pub(super) const SIZE: usize = REGISTER_COUNT;

    pub(super) fn new() -> Self {
        Distinct { registers: vec![0; REGISTER_COUNT].into() }
    }

    #[inline]
    pub(super) fn insert(&mut self, hash: u64) {
        let register = (hash >> (u64::BITS - REGISTER_BITS)) as usize;
        let run = (hash << REGISTER_BITS).leading_zeros().min(u64::BITS - REGISTER_BITS) as u8 + 1;
        self.registers[register] = self.registers[register].max(run);
    }

    /// Adds the hashes of another sketch.
    pub(super) fn join(&mut self, other: &Self) {
        self.registers.iter_mut().zip(&other.registers).for_each(|(one, other)| *one = (*one).max(*other));
    }

    pub(super) fn clear(&mut self) {
        self.registers.fill(0);
    }

    /// About how many different hashes there were.
    pub(super) fn count(&self) -> u64 {
        let registers = REGISTER_COUNT as f64;
        let sum: f64 = self.registers.iter().map(|&run| (-f64::from(run)).exp2()).sum();
        let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        let empty = self.registers.iter().filter(|&&run| run == 0).count();
        // While many registers are empty, their number is more exact.
        let count = if raw <= 2.5 * registers && empty > 0 { registers * (registers / empty as f64).ln() } else { raw };
        count.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowpeel_iblt::hash::GOLDEN_64;

    fn scattered(number: u64) -> u64 {
        let product = u128::from(number ^ GOLDEN_64) * 0xd1b5_4a32_d192_ed03;
        let word = (product >> 64) as u64 ^ product as u64;
        word.wrapping_mul(0x94d0_49bb_1331_11eb) ^ word >> 29
    }

    #[test]
    fn counts_are_right_to_a_few_percent() {
        let mut distinct = Distinct::new();
        assert_eq!(distinct.count(), 0);
        let mut inserted = 0;
        for truth in [1u64, 100, 5_000, 10_000, 20_000, 300_000, 2_000_000] {
            (inserted..truth).for_each(|number| distinct.insert(scattered(number)));
            (0..truth.min(100)).for_each(|number| distinct.insert(scattered(number)));
            inserted = truth;
            let off = (distinct.count() as f64 / truth as f64 - 1.0).abs();
            assert!(off < 0.06, "{} for {truth}", distinct.count());
        }
    }

    #[test]
    fn joined_is_what_both_saw() {
        let (mut one, mut other, mut both) = (Distinct::new(), Distinct::new(), Distinct::new());
        (0..5_000).for_each(|number| one.insert(scattered(number)));
        (4_000..9_000).for_each(|number| other.insert(scattered(number)));
        (0..9_000).for_each(|number| both.insert(scattered(number)));
        one.join(&other);
        assert!(one == both);
        one.clear();
        assert_eq!(one.count(), 0);
    }
}
