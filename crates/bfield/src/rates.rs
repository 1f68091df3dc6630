//! Error rates of a field: false positives (alpha) and indeterminate answers (beta), for a code, a number of hash
//! functions and the share of an array's bits that are set.
//!
//! The paper treats the bits of a window as independent. They are not, since a value sets several bits within a few
//! places, and the paper's alpha is several times too small. Here the probability that all of some bits of a window are
//! set is computed by inclusion and exclusion over the insertions that can have set them, and alpha is the sum over all
//! bit strings that a false positive can show.

use crate::Code;
use crate::code::choose;

/// The largest number of places whose probability of being set together is computed exactly. Those of more places are
/// composed from these.
const TOGETHER_MAX: usize = 4;

/// A safety factor for each further place, whose probability is taken given the three before it: earlier places raise
/// it too. Compared with sums over all sets, the factor needed was up to 1.25; more is on the safe side.
const CAUTION: f64 = 1.3;

/// What insertions of whitened values have left in the windows of one array: the probabilities that bits at several
/// places are set together.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    code: Code,
    /// By the number of places: the probability for each row of gaps between them, the first gap being the most
    /// significant digit.
    together: Vec<Vec<f64>>,
}

impl Windows {
    /// The windows of an array where, on average, `load` insertions of a window begin at each place: k n / (m kappa).
    ///
    /// Complexity: about `nu`^3 rows of gaps at most, each with all insertions that reach them.
    pub(super) fn new(code: Code, load: f64) -> Self {
        let nu = code.nu() as usize;
        let size_max = TOGETHER_MAX.min(code.kappa() as usize + 1).max(3);
        let mut together = vec![Vec::new(); size_max + 1];
        let mut row = vec![0];
        fill(&mut together, &mut row, nu, &|places| all_set(code, load, places));
        Windows { code, together }
    }

    /// The expected number of sets of `size` places whose bits are set in all the windows of a key that was never
    /// inserted.
    ///
    /// For more than four places, each bit's probability is taken to depend on the three before it, and the sum is
    /// slightly too large. Complexity: `nu`^3 steps, and `nu`^4 for each place after the fourth.
    pub(super) fn expected_sets(&self, size: u32, hash_count: u32) -> f64 {
        let (nu, power) = (self.code.nu() as usize, hash_count as i32);
        let size = size as usize;
        if size > nu {
            return 0.0;
        }
        let known = size.min(self.together.len() - 1);
        // By span, and by the last two gaps: the probability, over all sets, that their bits are set in all windows.
        let mut sums = vec![0.0; nu * nu * nu];
        let mut spans = vec![0.0; nu];
        for (index, chance) in self.together[known].iter().enumerate().filter(|(_, chance)| **chance > 0.0) {
            let span = digits(index, nu, known - 1).iter().sum::<usize>();
            spans[span] += chance.powi(power);
            sums[span * nu * nu + index % (nu * nu)] += chance.powi(power);
        }
        for _ in known..size {
            (sums, spans) = self.longer(&sums, power);
        }
        spans.iter().enumerate().map(|(span, sum)| (nu - span) as f64 * sum).sum()
    }

    /// The sums for sets with one more place.
    fn longer(&self, sums: &[f64], power: i32) -> (Vec<f64>, Vec<f64>) {
        let nu = self.code.nu() as usize;
        let (mut longer, mut spans) = (vec![0.0; sums.len()], vec![0.0; nu]);
        for (at, sum) in sums.iter().enumerate().filter(|(_, sum)| **sum > 0.0) {
            let (span, gaps) = (at / (nu * nu), at % (nu * nu));
            let before = self.together[TOGETHER_MAX - 1][gaps];
            for gap in 1..nu - span {
                let chance = CAUTION * sum * (self.together[TOGETHER_MAX][gaps * nu + gap] / before).powi(power);
                longer[(span + gap) * nu * nu + (gaps * nu + gap) % (nu * nu)] += chance;
                spans[span + gap] += chance;
            }
        }
        (longer, spans)
    }

    /// The probability that a key that was never inserted shows exactly `kappa` bits: alpha of one array, where it is
    /// small.
    pub(super) fn false_positive_rate(&self, hash_count: u32) -> f64 {
        let kappa = self.code.kappa();
        let (sets, more) = (self.expected_sets(kappa, hash_count), self.expected_sets(kappa + 1, hash_count));
        // Strings of more bits hold several sets of kappa bits, and are no false positives. Where the correction is too
        // large to be one, the sum over sets is still a bound.
        let exact = sets - f64::from(kappa + 1) * more;
        if exact > sets / 2.0 { exact } else { sets.min(1.0) }
    }

    /// The probability that a key that was inserted shows more than `kappa` bits: beta of one array.
    pub(super) fn indeterminate_rate(&self, hash_count: u32) -> f64 {
        let (nu, kappa) = (self.code.nu(), self.code.kappa());
        let others = nu - kappa;
        let terms = (1..=others.min(3)).map(|size| {
            // The code word of a whitened value may be any, so each set of places is equally likely to lie outside of
            // it.
            let outside = choose(others, size) / choose(nu, size);
            let term = outside * self.expected_sets(size, hash_count);
            if size % 2 == 1 { term } else { -term }
        });
        terms.sum::<f64>().clamp(0.0, 1.0)
    }
}

/// Computes the probabilities of all sets that begin with these places, ascending from zero.
fn fill(together: &mut [Vec<f64>], places: &mut Vec<usize>, nu: usize, chance: &dyn Fn(&[usize]) -> f64) {
    let size = places.len();
    let gaps = places.windows(2).fold(0, |gaps, pair| gaps * nu + pair[1] - pair[0]);
    together[size].resize(nu.pow(size as u32 - 1), 0.0);
    together[size][gaps] = chance(places);
    let last = places.last().map_or(0, |last| last + 1);
    if size + 1 < together.len() {
        for next in last..nu {
            places.push(next);
            fill(together, places, nu, chance);
            places.pop();
        }
    }
}

/// The last `count` digits of a number to the base `nu`: the gaps of a row.
fn digits(mut number: usize, nu: usize, count: usize) -> [usize; TOGETHER_MAX] {
    let mut digits = [0; TOGETHER_MAX];
    for digit in digits.iter_mut().take(count) {
        (*digit, number) = (number % nu, number / nu);
    }
    digits
}

/// The probability that all bits at these places of a window, ascending, are set.
fn all_set(code: Code, load: f64, places: &[usize]) -> f64 {
    let terms = (0..1u32 << places.len()).map(|subset| {
        let chosen = places.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1);
        let bits = chosen.fold(0u64, |bits, (_, place)| bits | 1 << place);
        let unset = (-load * cover(code, bits)).exp();
        if subset.count_ones() % 2 == 0 { unset } else { -unset }
    });
    terms.sum::<f64>().clamp(0.0, 1.0)
}

/// The sum, over all places where a window can begin, of the probabilities that a random value there sets one of these
/// bits.
fn cover(code: Code, bits: u64) -> f64 {
    let (nu, kappa) = (code.nu(), code.kappa());
    // By the number of these bits within a window: the probability that its value sets one of them.
    let hits = (0..=bits.count_ones()).map(|inside| 1.0 - choose(nu - inside, kappa) / choose(nu, kappa));
    let hits: Vec<f64> = hits.collect();
    // Windows that begin `before` places before the first bit, at it, or `after` places after it.
    let windows = (1..nu).map(|before| code.mask() >> before).chain((0..nu).map(|after| code.mask() << after));
    windows.map(|window| hits[(bits & window).count_ones() as usize]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CodeShape;
    use std::f64::consts::LN_2;

    fn code_of(bit_count: u32, one_count: u32) -> Code {
        Code::new(CodeShape { bit_count, one_count }).unwrap()
    }

    fn half_full(nu: u32, kappa: u32) -> Windows {
        Windows::new(code_of(nu, kappa), LN_2 / f64::from(kappa))
    }

    /// The sum over all sets of places, one by one.
    fn counted_sets(nu: u32, kappa: u32, size: u32, hash_count: u32) -> f64 {
        let code = code_of(nu, kappa);
        let words = (0u64..1 << nu).filter(|word| word.count_ones() == size);
        let places = |word: u64| (0..64).filter(|at| word >> at & 1 == 1).collect::<Vec<usize>>();
        words.map(|word| all_set(code, LN_2 / f64::from(kappa), &places(word)).powi(hash_count as i32)).sum()
    }

    #[test]
    fn half_of_the_bits_are_set() {
        let code = code_of(20, 3);
        assert!((all_set(code, LN_2 / 3.0, &[4]) - 0.5).abs() < 1e-12);
        assert!((all_set(code, LN_2 / 3.0, &[]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn sets_are_summed_as_if_one_by_one() {
        for (nu, kappa) in [(1, 1), (5, 2), (9, 3), (12, 3), (13, 4)] {
            let windows = half_full(nu, kappa);
            for size in 1..=kappa.min(4) {
                let (sum, counted) = (windows.expected_sets(size, 8), counted_sets(nu, kappa, size, 8));
                assert!((sum / counted - 1.0).abs() < 1e-9, "{nu} {kappa} {size}: {sum} {counted}");
            }
        }
    }

    #[test]
    fn longer_sets_are_summed_on_the_safe_side() {
        for (nu, kappa, size) in [(15, 4, 5), (16, 5, 5), (15, 6, 6)] {
            let ratio = half_full(nu, kappa).expected_sets(size, 10) / counted_sets(nu, kappa, size, 10);
            assert!((1.0..1.2).contains(&ratio), "{nu} {kappa} {size}: {ratio}");
        }
    }

    #[test]
    fn the_known_figures_come_out() {
        // An independent prototype's formula gave 4.03e-6 for the sum over strings; it summed with another rounding of
        // k.
        let windows = half_full(20, 3);
        let sum = windows.expected_sets(3, 10);
        assert!((sum / 4.03e-6 - 1.0).abs() < 0.02, "{sum}");
        // The paper's 7.1 GB correspond to fourteen hash functions at a bit error rate of 2^-14.1.
        let paper = Windows::new(code_of(20, 3), LN_2 / 3.0 * 14.0 / 14.1);
        assert!((paper.expected_sets(3, 14) / 1.4e-9 - 1.0).abs() < 0.05, "{}", paper.expected_sets(3, 14));
        assert!((paper.indeterminate_rate(14) / 9.7e-4 - 1.0).abs() < 0.03, "{}", paper.indeterminate_rate(14));
        assert!(windows.expected_sets(3, 15) < 2f64.powi(-31), "{}", windows.expected_sets(3, 15));
    }

    #[test]
    fn a_code_of_one_bit_is_a_bloom_filter() {
        let windows = half_full(1, 1);
        assert!((windows.false_positive_rate(20) / 2f64.powi(-20) - 1.0).abs() < 1e-9);
        assert_eq!(windows.indeterminate_rate(20), 0.0);
    }
}
