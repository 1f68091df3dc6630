//! The places of a small set that is kept as the bits of a number.

/// The places of a set, in order. `COUNT`, a power of two, is how many places there are: an index below it needs no
/// check.
#[inline(always)]
pub(super) fn ones<const COUNT: usize>(mut set: u64) -> impl Iterator<Item = usize> {
    const { assert!(COUNT.is_power_of_two() && COUNT <= u64::BITS as usize) }
    std::iter::from_fn(move || {
        let at = set.trailing_zeros() as usize % COUNT;
        let is_there = set != 0;
        set &= set.wrapping_sub(1);
        is_there.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_comes_once_and_in_order() {
        assert_eq!(ones::<64>(1 << 63 | 0b1001).collect::<Vec<_>>(), [0, 3, 63]);
        assert_eq!(ones::<4>(0b0110).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(ones::<8>(0).count(), 0);
    }
}
