//! Confidence intervals of counts and means.
//!
//! It takes counts, or a mean with its error, and gives an interval. Shares get Wilson's interval, which also holds
//! near 0 and near 1, where the shares of these experiments lie; the difference of two shares gets Newcombe's, made of
//! the two.

/// The number of standard deviations within which 95 of 100 normal values lie.
pub const NINETY_FIVE: f64 = 1.959_964;

/// An interval that includes both its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Wilson's interval for the share of which `count` of `trial_count` is a sample, `deviations` wide on either side;
    /// the whole range from 0 to 1 without trials.
    #[must_use]
    pub fn of_share(count: u64, trial_count: u64, deviations: f64) -> Self {
        if trial_count == 0 {
            return Interval { low: 0.0, high: 1.0 };
        }
        let (trials, share) = (trial_count as f64, count as f64 / trial_count as f64);
        let square = deviations * deviations;
        let center = (share + square / (2.0 * trials)) / (1.0 + square / trials);
        let spread = share * (1.0 - share) / trials + square / (4.0 * trials * trials);
        let half = deviations * spread.sqrt() / (1.0 + square / trials);
        // At the ends only rounding could exclude the share itself.
        let low = if count == 0 { 0.0 } else { (center - half).max(0.0) };
        let high = if count >= trial_count { 1.0 } else { (center + half).min(1.0) };
        Interval { low, high }
    }

    /// The interval around a mean whose standard error is known.
    #[must_use]
    pub fn of_mean(mean: f64, error: f64, deviations: f64) -> Self {
        Interval { low: mean - deviations * error, high: mean + deviations * error }
    }

    /// Whether a value lies in the interval, or outside by no more than `tolerance`.
    #[must_use]
    pub fn holds(&self, value: f64, tolerance: f64) -> bool {
        self.low - tolerance <= value && value <= self.high + tolerance
    }
}

/// Whether two shares, each (count, trials), may be equal: zero lies in Newcombe's interval of their difference.
#[must_use]
pub fn may_be_equal(one: (u64, u64), other: (u64, u64), deviations: f64) -> bool {
    let share = |(count, trial_count): (u64, u64)| count as f64 / trial_count.max(1) as f64;
    let interval = |(count, trial_count)| Interval::of_share(count, trial_count, deviations);
    let (larger, lesser) = if share(one) >= share(other) { (one, other) } else { (other, one) };
    let below = share(larger) - interval(larger).low;
    let above = interval(lesser).high - share(lesser);
    share(larger) - share(lesser) <= below.hypot(above)
}

/// The mean of some values, and its standard error, which is 0 for fewer than two values.
#[must_use]
pub fn mean_of(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0) / count.max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilsons_interval_is_the_textbooks() {
        let Interval { low, high } = Interval::of_share(8, 10, 1.96);
        assert!((low - 0.4902).abs() < 1e-4 && (high - 0.9433).abs() < 1e-4, "{low} {high}");
        let none = Interval::of_share(0, 20_000, 1.96);
        assert!(none.low == 0.0 && none.high > 1.5e-4 && none.high < 2.5e-4);
        let all = Interval::of_share(20_000, 20_000, 1.96);
        assert!(all.high == 1.0 && all.holds(1.0, 0.0) && !all.holds(0.999, 0.0));
        assert_eq!(Interval::of_share(0, 0, 1.96), Interval { low: 0.0, high: 1.0 });
    }

    #[test]
    fn shares_differ_when_chance_does_not_explain_it() {
        assert!(may_be_equal((19_872, 20_000), (19_856, 20_000), 1.96));
        assert!(!may_be_equal((19_872, 20_000), (19_800, 20_000), 1.96));
        assert!(may_be_equal((20_000, 20_000), (100, 100), 1.96));
        assert!(!may_be_equal((0, 20_000), (20_000, 20_000), 1.96));
    }

    #[test]
    fn means_have_errors() {
        assert_eq!(mean_of(&[]), (0.0, 0.0));
        assert_eq!(mean_of(&[3.0]), (3.0, 0.0));
        let (mean, error) = mean_of(&[1.0, 2.0, 3.0]);
        assert_eq!(mean, 2.0);
        assert!((error - (1.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
