//! Counts of what happened to connections, each declared once: what it counts, its place in files, and its metric.

use crate::error::Result;
use crate::state::{Decoder, Encoder};

/// What is known of a count beside its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountInfo {
    /// Its name, that of the field.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// Its position among [`Counts::figures`]; `None` where it concerns this machine only.
    position: Option<usize>,
    /// Its metric, if it has one.
    pub metric: Option<CountMetric>,
}

/// The metric of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountMetric {
    /// A metric of its own, with this name.
    Total(&'static str),
    /// A part of a metric, with this value of its label.
    Part(&'static PartsMetric, &'static str),
}

/// A metric of which several counts are parts.
#[derive(Debug, PartialEq, Eq)]
pub struct PartsMetric {
    /// The name of the metric.
    pub name: &'static str,
    /// What its parts count together.
    pub help: &'static str,
    /// The label that distinguishes its parts.
    pub label: &'static str,
}

const EVICTED: &PartsMetric = &PartsMetric {
    name: "flowpeel_connections_evicted_total",
    help: "Established connections taken off without having been seen to end.",
    label: "reason",
};

const UNTRACKED: &PartsMetric = &PartsMetric {
    name: "flowpeel_connections_untracked_total",
    help: "Connections that could not be tracked.",
    label: "reason",
};

const UNMATCHED: &PartsMetric = &PartsMetric {
    name: "flowpeel_unmatched_closes_total",
    help: "FINs and RSTs of unknown connections.",
    label: "flag",
};

const fn total(name: &'static str) -> Option<CountMetric> {
    Some(CountMetric::Total(name))
}

const fn part(of: &'static PartsMetric, value: &'static str) -> Option<CountMetric> {
    Some(CountMetric::Part(of, value))
}

/// The position of a count that is in no file.
const LOCAL: Option<usize> = None;

/// The position of a count in files. It stays where it is when counts are declared in another order.
const fn at(position: usize) -> Option<usize> {
    Some(position)
}

macro_rules! counts {
    ($($count:ident $position:expr, $help:literal, $metric:expr;)+) => {
        /// The counts of a tracker since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $(#[doc = $help] pub $count: u64,)+
        }

        impl Counts {
            /// How many counts there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The counts in the order of their declaration, which is that of the metrics.
            pub const ALL: &[CountInfo] = &[
                $(CountInfo { name: stringify!($count), help: $help, position: $position, metric: $metric },)+
            ];

            /// The values in the order of [`Self::ALL`].
            #[must_use]
            pub fn values(&self) -> [u64; Self::COUNT] {
                let Counts { $($count),+ } = *self;
                [$($count),+]
            }

            /// The counts with these values, in the order of [`Self::ALL`].
            #[must_use]
            pub fn of_values(values: [u64; Self::COUNT]) -> Self {
                let [$($count),+] = values;
                Counts { $($count),+ }
            }
        }
    };
}

counts! {
    opened at(0), "Connections established.", total("flowpeel_connections_opened_total");
    reopened at(21), "Connections that went on after what seemed to be their end.", total("flowpeel_connections_reopened_total");
    closed at(1), "Established connections that ended.", total("flowpeel_connections_closed_total");
    evicted_idle at(19), "Open connections evicted because nothing was seen of them for too long.", part(EVICTED, "idle");
    evicted_aged at(20), "Open connections evicted because of their age.", part(EVICTED, "age");
    refused at(2), "Half-open connections that were reset or given up.", total("flowpeel_connections_refused_total");
    expired at(3), "Half-open connections that timed out.", total("flowpeel_connections_expired_total");
    // In the ring or in the filter.
    recycled at(4), "Half-open connections that made room for newer ones.", total("flowpeel_connections_recycled_total");
    refused_open at(10), "Connections established beyond the limit.", part(UNTRACKED, "limit");
    // A connection whose record was lost counts again here whenever it is found again.
    refused_pickups at(18), "Candidates whose other side was seen beyond the limit.", part(UNTRACKED, "limit_midstream");
    unplaced at(12), "Connections that found no place in the filter.", part(UNTRACKED, "no_place");
    forgotten at(9), "Closed connections that went before they had lingered.", total("flowpeel_connections_forgotten_total");
    found_answered at(22), "Answered connections of which a later packet than the expected one was the first to be seen.", None;
    one_sided at(13), "Half-open connections ended by one side, of which the other was never seen.", total("flowpeel_connections_one_sided_total");
    unarchived LOCAL, "Connections that ended and are not in the archive, because it did not keep up.", total("flowpeel_connections_unarchived_total");
    repeats at(5), "Repeated SYNs and SYN-ACKs.", total("flowpeel_repeats_total");
    late at(6), "FINs and RSTs of what had closed shortly before.", total("flowpeel_late_closes_total");
    unmatched_fins at(7), "FINs of unknown connections.", part(UNMATCHED, "fin");
    unmatched_resets at(8), "RSTs of unknown connections.", part(UNMATCHED, "rst");
    // Those of `refused_open`, `refused_pickups` and `unplaced` that have neither ended nor been tracked since.
    untracked_open at(11), "The untracked connections that are still open, or an estimate where they are too many.", None;
    candidates at(14), "Candidates: connections older than the start of which one side was seen.", None;
    picked_up at(15), "Candidates that became open when the other side was seen. They count as `opened` too.", None;
    known LOCAL, "Connections that the system knew when the capture began. They count as `opened` too.", total("flowpeel_connections_known_total");
    candidates_expired at(16), "Candidates whose other side was not seen in time.", None;
    candidates_recycled at(17), "Candidates that were evicted or found no place. Whether they were connections is unknown.", None;
}

const _: () = assert!(are_positions_whole(), "each position in files is used once");

/// Whether the positions in files are the numbers from 0, each once.
const fn are_positions_whole() -> bool {
    let (mut seen, mut index) = (0u64, 0);
    while index < Counts::ALL.len() {
        if let Some(position) = Counts::ALL[index].position {
            seen |= 1 << position;
        }
        index += 1;
    }
    seen == (1 << Counts::FIGURE_COUNT) - 1
}

impl Counts {
    /// How many counts go into a file.
    pub const FIGURE_COUNT: usize = {
        let (mut count, mut index) = (0, 0);
        while index < Self::ALL.len() {
            count += Self::ALL[index].position.is_some() as usize;
            index += 1;
        }
        count
    };

    /// The counts that go into a file, each at its position there: all but those that concern this machine only.
    #[must_use]
    pub fn figures(&self) -> [u64; Self::FIGURE_COUNT] {
        let mut figures = [0; Self::FIGURE_COUNT];
        for (info, value) in Self::ALL.iter().zip(self.values()) {
            if let Some(position) = info.position {
                figures[position] = value;
            }
        }
        figures
    }

    /// The counts of [`Self::figures`]; those that concern another machine only are 0.
    #[must_use]
    pub fn of_figures(figures: [u64; Self::FIGURE_COUNT]) -> Self {
        let value = |index: usize| Self::ALL[index].position.map_or(0, |position| figures[position]);
        Counts::of_values(std::array::from_fn(value))
    }

    /// The sum of two sets of counts.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sums = self.values();
        sums.iter_mut().zip(other.values()).for_each(|(sum, value)| *sum += value);
        Counts::of_values(sums)
    }

    /// Connections that could not be tracked: established ones beyond the limit, those without a place, and evicted
    /// half-open ones.
    #[must_use]
    pub fn untracked(&self) -> u64 {
        self.refused_open + self.refused_pickups + self.unplaced + self.recycled
    }

    /// Open connections that were evicted without having been seen to end.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted_idle + self.evicted_aged
    }

    /// Connections that are open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.opened + self.reopened - self.closed - self.evicted()
    }

    /// Writes the counts into a saved state, except those that concern this machine only, which start anew.
    pub fn save(&self, encoder: &mut Encoder) {
        encoder.counts(self.figures());
    }

    /// Reads counts from a saved state.
    ///
    /// # Errors
    ///
    /// The bytes do not encode counts.
    pub fn saved(decoder: &mut Decoder) -> Result<Self> {
        Ok(Counts::of_figures(decoder.counts()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_back_and_stand_where_files_have_them() {
        let counts = Counts::of_values(std::array::from_fn(|index| 1 + index as u64));
        assert_eq!(Counts::of_figures(counts.figures()), Counts { unarchived: 0, known: 0, ..counts });
        let figures = counts.figures();
        assert_eq!((figures[0], figures[11], figures[20]), (counts.opened, counts.untracked_open, counts.evicted_aged));
        assert_eq!(counts.plus(&counts).late, 2 * counts.late);
    }
}
