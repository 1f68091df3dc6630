//! What is published of each list.

/// How much of something is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// What is taken.
    pub used: u64,
    /// What there is.
    pub limit: u64,
}

impl Load {
    /// The part that is taken, 0 to 1 (more when the limit is exceeded); 0 when there is nothing to take.
    #[must_use]
    pub fn ratio(self) -> f64 {
        if self.limit == 0 { 0.0 } else { self.used as f64 / self.limit as f64 }
    }
}

/// What a list says of itself, and what the list thread counted up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListFigures {
    /// Whether everything known is listed.
    pub complete: bool,
    /// About how many connections are wrongly listed or wrongly not.
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
    /// Deltas that did not empty by themselves, since the start; this and what follows as in `flow_list::Outcome`.
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
