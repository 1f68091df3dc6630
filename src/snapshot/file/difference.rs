//! The difference between two routers, or between one router at two times.
//!
//! What enters: two snapshots, merges or digests, and the secret. What leaves: the connections that are open on one
//! side only, or on more of its routers. What both saw cancels, so any number of open connections can be compared, as
//! long as the differences fit the smaller of the two. Half-open connections are not compared: they last only a moment,
//! and digests do not hold them.

use super::{KeyCounts, Misfit, SnapshotFile};
use crate::hash::Secret;

/// What is added to an estimate of differences when a digest for them is asked for, in percent: twice the error of the
/// smallest digests' estimates, and something for the next try.
const DIGEST_MARGIN_PERCENT: u64 = 25;

/// What is open on one side and not on the other, or on more routers of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The connections that differ. The count is positive if more routers of the first side saw the connection, and
    /// negative if more of the second did.
    pub keys: KeyCounts,
    /// For how many differences a digest has to be made to decode all of them. `None` if all were decoded, and also if
    /// the tables are too small for such a digest, so that the whole files are needed.
    pub differences_needed: Option<u64>,
}

impl Difference {
    /// Whether all differences were decoded.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.keys.left() == 0
    }

    /// Whether there is no difference.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.is_complete() && self.keys.told() == 0
    }

    /// How many of the decoded connections more routers of the first side saw, and how many more of the second.
    #[must_use]
    pub fn only(&self) -> (u64, u64) {
        let counts = self.keys.v4.iter().map(|(_, count)| count).chain(self.keys.v6.iter().map(|(_, count)| count));
        let first = counts.filter(|count| **count > 0).count() as u64;
        (first, self.keys.told() - first)
    }

    /// About how many connections differ, decoded or not.
    #[must_use]
    pub fn estimate(&self) -> u64 {
        self.keys.told().saturating_add(self.keys.left())
    }
}

impl SnapshotFile {
    /// The difference between this snapshot, as the first side, and another. The larger of the two is folded to the
    /// smaller.
    ///
    /// Complexity: a pass over the tables of both, and the decoding of what differs.
    ///
    /// # Errors
    ///
    /// The first field that differs and must not: the secret, VLAN tags in keys, or numbers of cells of which neither
    /// divides the other.
    pub fn difference(&self, other: &Self, secret: &Secret) -> Result<Difference, Misfit> {
        let (mut here, there) = self.folded_alike(other)?;
        for (sums, others) in here.sums.iter_mut().zip(&there.sums) {
            let is_subtracted = sums.v4.subtract(&others.v4).is_ok() && sums.v6.subtract(&others.v6).is_ok();
            debug_assert!(is_subtracted, "what was folded alike has one shape");
        }
        let router_count = self.header.router_count().max(other.header.router_count());
        let keys = KeyCounts::taken_from(&mut here.sums, secret, router_count);
        let with_margin = |told: usize, left: u64| {
            let estimate = (told as u64).saturating_add(left);
            estimate.saturating_add(estimate.saturating_mul(DIGEST_MARGIN_PERCENT) / 100)
        };
        let differences_needed = match keys.left() {
            0 => None,
            _ => self.digest_for(with_margin(keys.v4.len(), keys.left_v4), with_margin(keys.v6.len(), keys.left_v6)),
        };
        Ok(Difference { keys, differences_needed })
    }
}
