//! The thresholds of the papers, from their formulas: the loads (keys a cell) at which listing begins to fail, as keys
//! become many. Least values are found by narrowing down where they lie; nothing is looked up.

/// Steps of each search: the rest is below what a double can tell apart.
const STEP_COUNT: u32 = 200;

/// The range of the mean number of keys in a cell that searches look at.
const MEAN_RANGE: (f64, f64) = (1e-3, 60.0);

/// The least value of a function that falls and then rises.
fn least(of: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = MEAN_RANGE;
    for _ in 0..STEP_COUNT {
        let third = (high - low) / 3.0;
        if of(low + third) < of(high - third) { high -= third } else { low += third }
    }
    of((low + high) / 2.0)
}

/// The load at which keys of `hash_count` cells begin to have a 2-core (Theorem II.1 of Ding and Rauen; the inverse of
/// `c_k` in section 2.4 of Goodrich and Mitzenmacher): the least `x / (h (1 - e^-x)^(h-1))`.
pub(super) fn two_core(hash_count: u32) -> f64 {
    least(|x| x / (f64::from(hash_count) * (1.0 - (-x).exp()).powi(hash_count as i32 - 1)))
}

/// The cells a key at which `hash_count` subtables begin to list: `c_k`.
pub(super) fn cells_per_key(hash_count: u32) -> f64 {
    1.0 / two_core(hash_count)
}

/// The load at which keys of `hash_count` cells begin to have a 3-core: the least `x / (h (1 - e^-x (1 + x))^(h-1))`.
pub(super) fn three_core(hash_count: u32) -> f64 {
    least(|x| x / (f64::from(hash_count) * (1.0 - (-x).exp() * (1.0 + x)).powi(hash_count as i32 - 1)))
}

/// The paper's threshold of even-odd counters (section IV-C): so many keys that, with a third one added wherever two of
/// one half share a cell, there begins to be a 3-core.
pub(super) fn even_odd_by_cores(hash_count: u32) -> f64 {
    let (h, limit) = (f64::from(hash_count), three_core(hash_count));
    let with_thirds = |load: f64| {
        let mean = h * load / 2.0;
        2.0 / h * (1.0 - (-mean).exp() * (1.0 + mean)) + load
    };
    let (mut low, mut high) = (0.0, limit);
    for _ in 0..STEP_COUNT {
        let middle = (low + high) / 2.0;
        if with_thirds(middle) < limit { low = middle } else { high = middle }
    }
    low
}

/// The threshold of even-odd counters by density evolution. A cell gives a key away when no other key of its half is
/// left in it, and one of the other half at most: with `y` keys left in a cell on average, with a chance of
/// `e^-y (1 + y/2)`. So the share of keys left is stationary at `x = (1 - e^-y (1 + y/2))^(h-1)` with `y = h a x`,
/// which happens for loads `a` above the least `y / (h x)`.
pub(super) fn even_odd(hash_count: u32) -> f64 {
    least(|y| y / (f64::from(hash_count) * (1.0 - (-y).exp() * (1.0 + y / 2.0)).powi(hash_count as i32 - 1)))
}

/// The paper's threshold of one-key counters (section V-C), where any number of kept keys may be taken out of a cell:
/// the keys that are kept nowhere have no 2-core. Of first keys, `m` cells keep `m (1 + 1/2 + ... + 1/h) / h` different
/// ones, which is the sum over `j` of `(-1)^(j-1) C(h, j) / (j h)`.
pub(super) fn one_key(hash_count: u32) -> f64 {
    let h = f64::from(hash_count);
    let (mut kept, mut choose) = (0.0, 1.0);
    for j in 1..=hash_count {
        choose *= f64::from(hash_count + 1 - j) / f64::from(j);
        kept += choose / (f64::from(j) * h) * if j % 2 == 1 { 1.0 } else { -1.0 };
    }
    two_core(hash_count) + kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_those_of_the_literature() {
        for (hash_count, known) in [(3, 1.2218), (4, 1.2949), (5, 1.4250), (6, 1.5697), (7, 1.7189)] {
            assert!((cells_per_key(hash_count) - known).abs() < 0.000_1, "{hash_count}: {}", cells_per_key(hash_count));
        }
        // The 3-core of a random graph appears at a mean degree of 3.3509.
        assert!((2.0 * three_core(2) - 3.350_9).abs() < 0.000_1, "{}", three_core(2));
    }

    #[test]
    fn half_as_many_neighbours_are_as_good_as_none() {
        // Splits lie between listing lone keys, and taking any cell of two keys.
        for hash_count in 3..8 {
            assert!(two_core(hash_count) < even_odd(hash_count) && even_odd(hash_count) < three_core(hash_count));
            let harmonic: f64 = (1..=hash_count).map(|j| 1.0 / f64::from(j)).sum();
            let kept = one_key(hash_count) - two_core(hash_count);
            assert!((kept - harmonic / f64::from(hash_count)).abs() < 1e-12);
        }
    }
}
