//! The packets of a file that flowpeel cannot read, counted by link type.
//!
//! What enters: the link type of each such packet. What leaves: how many there were of each, to report to the user. A
//! file may name 2^16 link types, so only the first few are counted apart.

use crate::parse::LinkType;
use std::fmt;

/// Unreadable link types of one capture whose packets are counted separately; any more are counted together.
const SKIPPED_LINK_TYPE_COUNT_MAX: usize = 16;

/// Packets that are skipped because their interface has a link type that flowpeel cannot read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedPackets {
    /// The link types in order of their first packet, each with how many packets it had.
    by_link: Vec<(LinkType, u64)>,
    /// Packets of further link types, beyond the limit of those counted apart.
    other_count: u64,
}

impl SkippedPackets {
    /// All packets that were skipped.
    pub fn total_count(&self) -> u64 {
        self.by_link.iter().map(|&(_, count)| count).sum::<u64>() + self.other_count
    }

    pub(super) fn add(&mut self, link: LinkType) {
        if let Some((_, count)) = self.by_link.iter_mut().find(|(seen, _)| *seen == link) {
            *count += 1;
        } else if self.by_link.len() < SKIPPED_LINK_TYPE_COUNT_MAX {
            self.by_link.push((link, 1));
        } else {
            self.other_count += 1;
        }
    }
}

/// The link types by name and number.
impl fmt::Display for SkippedPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (link, _)) in self.by_link.iter().enumerate() {
            write!(f, "{}{link}", if at > 0 { ", " } else { "" })?;
        }
        f.write_str(if self.other_count > 0 { " and others" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_a_bounded_number_of_link_types_apart() {
        let mut skipped = SkippedPackets::default();
        for number in (0..20).chain(0..20) {
            skipped.add(LinkType(number));
        }
        assert_eq!(skipped.by_link.len(), SKIPPED_LINK_TYPE_COUNT_MAX);
        assert!(skipped.by_link.iter().all(|&(_, count)| count == 2));
        assert_eq!(skipped.other_count, 8);
        assert_eq!(skipped.total_count(), 40);
        assert!(skipped.to_string().ends_with(" and others"));
    }
}
