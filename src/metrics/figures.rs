//! The figures that are published of each list.

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
    /// Whether everything known is listed.
    pub complete: bool,
    /// About how many connections are wrongly listed or wrongly missing.
    pub missing: u64,
    /// Established connections listed.
    pub connections: u64,
    /// Half-open connections listed.
    pub half_open: u64,
    /// Openings and closings at odds with the list, set aside.
    pub extraneous: u64,
    /// Packets that the kernel lost and signals that a full queue lost, in the interval.
    pub dropped: u64,
    /// The end of the interval, in ns since 1970.
    pub end_ns: i64,
    /// The fullest delta since the list before: changes in it, and how many it plainly lists.
    pub delta: Load,
    /// Intervals merged into the next, since the start.
    pub merged_intervals: u64,
    /// How often the wall clock was set, since the start.
    pub clock_steps: u64,
    /// Deltas that did not empty by themselves, since the start. This and the counts below are those of
    /// `flow_list::Outcome`.
    pub deltas_left: u64,
    /// Closings found with the help of the list.
    pub closings_found: u64,
    /// Starts corrected after a close and an opening in one delta.
    pub starts_corrected: u64,
    /// Decodings after which starts were given up.
    pub starts_lost: u64,
    /// Openings and closings set aside.
    pub set_aside: u64,
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
