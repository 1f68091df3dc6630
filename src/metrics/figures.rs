//! The figures that are published of each list.

use crate::list::{Header, Outcome};

/// How much of a limited thing is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The amount that is taken.
    pub used: u64,
    /// The amount that there is.
    pub limit: u64,
}

impl Load {
    /// The part that is taken, from 0 to 1, or more when the limit is exceeded; 0 when the limit is 0.
    #[must_use]
    pub fn ratio(self) -> f64 {
        if self.limit == 0 { 0.0 } else { self.used as f64 / self.limit as f64 }
    }
}

/// The figures of a list, and the totals of the list thread up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListFigures {
    /// What the list says of itself.
    pub header: Header,
    /// What decoding did, since the start.
    pub outcome: Outcome,
    /// The fullest delta since the list before: changes in it, and how many it plainly lists.
    pub delta: Load,
    /// Intervals merged into the next, since the start.
    pub merged_intervals: u64,
    /// How often the wall clock was set, since the start.
    pub clock_steps: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_a_part_of_its_limit() {
        assert_eq!(Load { used: 1, limit: 4 }.ratio(), 0.25);
        assert_eq!(Load { used: 5, limit: 0 }.ratio(), 0.0);
    }
}
