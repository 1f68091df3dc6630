//! One figure: the expected value, the measured value, and whether chance explains the difference.

use flowpeel_iblt::interval::{Interval, NINETY_FIVE, may_be_equal};

/// The origin of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A figure that the paper states.
    Paper,
    /// A formula of the paper.
    Formula,
    /// The measurement of an independent prototype, with other hashes.
    Prototype,
    /// The graph of the keys alone, without a table.
    Graph,
    /// A promise of flowpeel.
    Goal,
}

/// The expected value of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reference {
    /// A share that was counted, with an error of its own.
    Counted {
        /// The number of successes.
        count: u64,
        /// The number of trials.
        trial_count: u64,
    },
    /// A value, good to `tolerance` (its rounding, or what an approximation leaves out).
    Value {
        /// The value.
        value: f64,
        /// The largest deviation from it.
        tolerance: f64,
    },
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// Nothing is known: the row stands for itself.
    Unknown,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// A share of the trials.
    Share {
        /// The number of successes.
        count: u64,
        /// The number of trials.
        trial_count: u64,
    },
    /// A share of the trials, in a unit of its own.
    Scaled {
        /// The number of successes.
        count: u64,
        /// The number of trials.
        trial_count: u64,
        /// What the share is multiplied by.
        scale: f64,
    },
    /// The mean over trials.
    Mean {
        /// The mean.
        mean: f64,
        /// The standard error of the mean.
        error: f64,
        /// The number of trials.
        trial_count: u64,
    },
    /// A number without a random error.
    Exact(f64),
}

/// How a figure is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share, in percent.
    Percent,
    /// A share, in millionths.
    Millionths,
    /// A number with this many decimals.
    Number(usize),
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of the figure.
    pub what: String,
    /// The origin of the reference.
    pub source: Source,
    /// The expected value.
    pub reference: Reference,
    /// The measured value.
    pub ours: Measure,
    /// How the figure is printed.
    pub unit: Unit,
    /// Why the figure differs from the reference, where that is known; otherwise empty.
    pub note: &'static str,
}

/// How many standard errors around the mean of a few values hold the truth as often as `deviations` do around that of
/// many: the quantile of Student's distribution with so many degrees of freedom, from that of the normal one (the
/// Cornish-Fisher expansion; with three degrees it is a hundredth short, with more it is closer).
fn student(deviations: f64, freedom: u64) -> f64 {
    let (z, freedom) = (deviations, freedom.max(1) as f64);
    let terms = [
        z,
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| sum / freedom + term)
}

impl Measure {
    /// The mean over trials, in units of `whole`, from the sum of whole numbers and that of their squares.
    pub(super) fn mean_of_sums(trial_count: u64, sum: u64, squares: u64, whole: f64) -> Self {
        let (trials, sum, squares) = (u128::from(trial_count), u128::from(sum), u128::from(squares));
        // n times the sum of the squared deviations; whole numbers, so no digit is lost.
        let scatter = (trials * squares - sum * sum) as f64;
        let count = trial_count.max(1) as f64;
        let error = (scatter / count / (count - 1.0).max(1.0) / count).sqrt() / whole;
        Measure::Mean { mean: sum as f64 / count / whole, error, trial_count }
    }

    /// The best single estimate.
    #[must_use]
    pub fn center(&self) -> f64 {
        match *self {
            Measure::Share { count, trial_count } => count as f64 / trial_count.max(1) as f64,
            Measure::Scaled { count, trial_count, scale } => scale * count as f64 / trial_count.max(1) as f64,
            Measure::Mean { mean, .. } => mean,
            Measure::Exact(value) => value,
        }
    }

    /// The confidence interval, `deviations` standard deviations wide on either side.
    #[must_use]
    pub fn interval(&self, deviations: f64) -> Interval {
        match *self {
            Measure::Share { count, trial_count } => Interval::of_share(count, trial_count, deviations),
            Measure::Scaled { count, trial_count, scale } => {
                let Interval { low, high } = Interval::of_share(count, trial_count, deviations);
                Interval { low: scale * low, high: scale * high }
            }
            Measure::Mean { mean, error, trial_count } => {
                Interval::of_mean(mean, error, student(deviations, trial_count.saturating_sub(1)))
            }
            Measure::Exact(value) => Interval { low: value, high: value },
        }
    }
}

impl Row {
    /// A row about a share, in percent, compared with what the paper counted.
    pub(super) fn counted(what: impl Into<String>, paper: (u64, u64), ours: (u64, u64)) -> Self {
        let reference = Reference::Counted { count: paper.0, trial_count: paper.1 };
        Row::percent(what, Source::Paper, reference, Measure::Share { count: ours.0, trial_count: ours.1 })
    }

    /// A row in percent.
    pub(super) fn percent(what: impl Into<String>, source: Source, reference: Reference, ours: Measure) -> Self {
        Row { what: what.into(), source, reference, ours, unit: Unit::Percent, note: "" }
    }

    /// A row about what has to hold in every trial.
    pub(super) fn always(what: impl Into<String>, (count, trial_count): (u64, u64)) -> Self {
        let ours = Measure::Share { count, trial_count };
        Row::percent(what, Source::Goal, Reference::AtLeast(1.0), ours)
    }

    /// The row, with an explanation of why it differs from the reference.
    pub(super) fn because(self, note: &'static str) -> Self {
        Row { note, ..self }
    }

    /// Whether chance explains the difference, with intervals `deviations` standard deviations wide.
    #[must_use]
    pub fn is_inside(&self, deviations: f64) -> bool {
        let interval = self.ours.interval(deviations);
        match (self.reference, self.ours) {
            (Reference::Counted { count, trial_count }, Measure::Share { count: ours, trial_count: trials }) => {
                may_be_equal((count, trial_count), (ours, trials), deviations)
            }
            (Reference::Counted { count, trial_count }, _) => {
                interval.holds(count as f64 / trial_count.max(1) as f64, 0.0)
            }
            (Reference::Value { value, tolerance }, _) => interval.holds(value, tolerance),
            (Reference::AtMost(value), _) => interval.low <= value,
            // A promise about every trial is broken by a single one.
            (Reference::AtLeast(value), ours) if value >= 1.0 => ours.center() >= value,
            (Reference::AtLeast(value), _) => interval.high >= value,
            (Reference::Unknown, _) => true,
        }
    }

    /// Whether chance explains the difference in 95 of 100 cases.
    #[must_use]
    pub fn is_expected(&self) -> bool {
        self.is_inside(NINETY_FIVE)
    }

    /// The row's cells in the report: what, expected, ours, trials, interval, verdict.
    pub(super) fn texts(&self) -> [String; 6] {
        let interval = self.ours.interval(NINETY_FIVE);
        let (trials, range) = match self.ours {
            Measure::Exact(_) => (String::new(), String::new()),
            Measure::Share { trial_count, .. }
            | Measure::Scaled { trial_count, .. }
            | Measure::Mean { trial_count, .. } => {
                (grouped(trial_count), format!("{} to {}", self.bare(interval.low), self.text(interval.high)))
            }
        };
        let verdict = match (self.reference, self.is_expected(), self.note) {
            (Reference::Unknown, ..) => String::new(),
            (_, true, _) => "inside".to_owned(),
            (_, false, "") => "**outside**".to_owned(),
            (_, false, note) => format!("**outside**: {note}"),
        };
        [self.what.clone(), self.expected(), self.text(self.ours.center()), trials, range, verdict]
    }

    fn expected(&self) -> String {
        let text = match self.reference {
            Reference::Counted { count, trial_count } => {
                format!("{} of {}", self.text(count as f64 / trial_count.max(1) as f64), grouped(trial_count))
            }
            Reference::Value { value, .. } => self.text(value),
            Reference::AtMost(value) => format!("at most {}", self.text(value)),
            Reference::AtLeast(value) if value >= 1.0 && self.unit == Unit::Percent => "always".to_owned(),
            Reference::AtLeast(value) => format!("at least {}", self.text(value)),
            Reference::Unknown => return "–".to_owned(),
        };
        match self.source {
            Source::Paper | Source::Goal => text,
            Source::Formula => format!("{text} (formula)"),
            Source::Prototype => format!("{text} (prototype)"),
            Source::Graph => format!("{text} (graph)"),
        }
    }

    fn text(&self, value: f64) -> String {
        match self.unit {
            Unit::Percent => format!("{} %", self.bare(value)),
            Unit::Millionths => format!("{} in a million", self.bare(value)),
            Unit::Number(_) => self.bare(value),
        }
    }

    fn bare(&self, value: f64) -> String {
        match self.unit {
            Unit::Percent => format!("{:.3}", 100.0 * value),
            Unit::Millionths => format!("{:.4}", 1e6 * value),
            Unit::Number(decimals) => format!("{value:.decimals$}"),
        }
    }
}

/// A count with commas between groups of thousands.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowpeel_iblt::interval::mean_of;

    #[test]
    fn means_of_few_values_have_the_intervals_of_the_textbooks() {
        for (freedom, known) in [(3, 3.182), (4, 2.776), (7, 2.365), (9, 2.262), (49, 2.009_6), (999, 1.962_3)] {
            let found = student(NINETY_FIVE, freedom);
            assert!((found / known - 1.0).abs() < 0.01, "{freedom}: {found}");
        }
        let (mean, error) = mean_of(&[7.0, 9.0, 4.0, 4.0]);
        let Measure::Mean { mean: of_sums, error: error_of_sums, trial_count: 4 } =
            Measure::mean_of_sums(4, 24, 49 + 81 + 16 + 16, 1.0)
        else {
            panic!("a mean of four")
        };
        assert!((mean - of_sums).abs() < 1e-12 && (error - error_of_sums).abs() < 1e-12);
    }
}
