//! Oblivious sorting of what is kept elsewhere: which slots are read and written follows from their number alone.
//!
//! Blocks are sorted one by one. Then they pass through a sorting network (Batcher's, as merge exchange: Knuth, volume
//! 3, algorithm 5.2.2 M) in which a comparison of two blocks merges them and splits them again: the lower half first.
//! Any network that sorts numbers sorts sorted blocks that way.

use super::extract::{Outsourced, Slot};
use crate::cell::TableCell;
use std::ops::Range;

/// Sorts the slots of a range by a key. The length of the range is a multiple of `block_size`.
///
/// Complexity: O(b log² b) comparisons of blocks, of b blocks; memory for two of them.
pub(super) fn sort<C: TableCell>(
    store: &mut impl Outsourced<C>,
    range: Range<usize>,
    block_size: usize,
    key: impl Fn(&Slot<C>) -> u64,
) {
    let mut slots: Vec<Slot<C>> = Vec::with_capacity(2 * block_size);
    let mut in_order = |starts: &[usize]| {
        slots.clear();
        for start in starts {
            slots.extend((*start..start + block_size).map(|at| store.read(at)));
        }
        slots.sort_by_key(&key);
        for (start, block) in starts.iter().zip(slots.chunks(block_size)) {
            (*start..).zip(block).for_each(|(at, slot)| store.write(at, slot));
        }
    };
    let start_of = |block: usize| range.start + block * block_size;
    let block_count = range.len() / block_size;
    (0..block_count).for_each(|block| in_order(&[start_of(block)]));
    exchanges(block_count, |low, high| in_order(&[start_of(low), start_of(high)]));
}

/// Calls `exchange` for the pairs of places that a network for so many numbers compares, in order.
fn exchanges(count: usize, mut exchange: impl FnMut(usize, usize)) {
    let top = count.next_power_of_two() / 2;
    let mut stride = top;
    while stride > 0 {
        let (mut rest, mut distance, mut half) = (0, stride, top);
        loop {
            for low in (0..count.saturating_sub(distance)).filter(|low| low & stride == rest) {
                exchange(low, low + distance);
            }
            if half == stride {
                break;
            }
            (distance, rest) = (half - stride, stride);
            half /= 2;
        }
        stride /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network sorts everything if it sorts all zeros and ones.
    #[test]
    fn the_network_sorts_every_row_of_zeros_and_ones() {
        for count in 0..=13usize {
            for mut bits in 0u32..1 << count {
                let ones = bits.count_ones();
                exchanges(count, |low, high| {
                    assert!(low < high && high < count);
                    if bits >> low & 1 > bits >> high & 1 {
                        bits ^= 1 << low | 1 << high;
                    }
                });
                assert_eq!(bits, ((1u32 << ones) - 1) << (count as u32 - ones), "{count} bits");
            }
        }
    }

    #[test]
    fn comparisons_grow_as_the_square_of_a_logarithm() {
        for count in [2usize, 10, 100, 1_000] {
            let mut comparisons = 0;
            exchanges(count, |_, _| comparisons += 1);
            let log = (count as f64).log2().ceil();
            assert!(f64::from(comparisons) <= count as f64 * log * (log + 1.0) / 4.0, "{comparisons} for {count}");
        }
    }
}
