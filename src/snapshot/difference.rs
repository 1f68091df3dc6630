//! The difference between two routers, or between one router at two times, and digests, which are no larger than some
//! differences need.
//!
//! What both sides saw cancels, so any number of open connections can be compared, as long as the differences fit the
//! smaller of the two. A digest has the partitions added into one table and neighbouring cells into one cell. It does
//! not hold when connections started, because the values of this many connections added up say nothing, and no
//! half-open connections, which last only a moment.

use super::{KeyCounts, Kind, Misfit, SnapshotFile, Sums};
use crate::flow::FlowKey as TableKey;
use crate::handover::DeltaGeometry;
use crate::track::CONNECTIONS_MAX;
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{Geometry, Iblt};

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
        self.is_complete() && self.keys.decoded() == 0
    }

    /// How many of the decoded connections more routers of the first side saw, and how many more of the second.
    #[must_use]
    pub fn only(&self) -> (u64, u64) {
        let counts = self.keys.v4.iter().map(|(_, count)| count).chain(self.keys.v6.iter().map(|(_, count)| count));
        let first = counts.filter(|count| **count > 0).count() as u64;
        (first, self.keys.decoded() - first)
    }

    /// About how many connections differ, decoded or not.
    #[must_use]
    pub fn estimate(&self) -> u64 {
        self.keys.decoded().saturating_add(self.keys.left())
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

/// The most differences that a digest can be asked to reconcile: for more of them a digest is no smaller than the
/// snapshot.
const DIGEST_DIFFERENCES_MAX: u64 = CONNECTIONS_MAX;

/// The part of a digest's differences for which either family has room however little of it is open, as one in this
/// many: the other side may have more.
const DIGEST_FAMILY_SHARE: u64 = 16;

/// How many standard deviations a family's part of the differences may lie above its part of the open connections, in a
/// digest: three are passed about once in a thousand digests.
const DIGEST_SHARE_DEVIATIONS: f64 = 3.0;

impl SnapshotFile {
    /// The smallest digest that decodes `differences` differences to another router in all but about one of a thousand
    /// tries, if they are spread over the families as the open connections are. If the tables are too small for that,
    /// it is as large as they are: see [`Self::item_counts`].
    ///
    /// A digest holds neither half-open connections nor the starts of any.
    ///
    /// Complexity: a pass over the tables.
    ///
    /// ```
    /// # use flowpeel_iblt::hash::Secret;
    /// # use flowpeel_iblt::Geometry;
    /// # use flowpeel::handover::DeltaGeometry;
    /// # use flowpeel::snapshot::{SnapshotFile, RouterPart};
    /// let shape = Geometry::for_items(100_000).foldable();
    /// let geometry = DeltaGeometry { v4: shape, v6: shape };
    /// let router = SnapshotFile::new(geometry, false, &Secret::REPLAY, RouterPart::default());
    /// let digest = router.digest(500);
    /// assert!(digest.item_counts().0 >= 250 && digest.item_counts().1 >= 250);
    /// let mut bytes = Vec::new();
    /// digest.write(&mut bytes, &Secret::REPLAY)?;
    /// assert!(bytes.len() < 64 << 10);
    /// # Ok::<(), flowpeel::error::Error>(())
    /// ```
    #[must_use]
    pub fn digest(&self, differences: u64) -> Self {
        let (items_v4, items_v6) = self.shares(differences);
        let DeltaGeometry { v4, v6 } = self.header.geometry;
        let geometry = DeltaGeometry { v4: least_fold(v4, items_v4), v6: least_fold(v6, items_v6) };
        // The factor was chosen to divide the cells of a subtable, so the fold succeeds.
        let mut digest = self.folded_to(1, geometry).unwrap_or_else(|| self.clone());
        digest.header.kind = Kind::Digest;
        for sums in &mut digest.sums {
            sums.v4.forget_values();
            sums.v6.forget_values();
        }
        digest.header.sources.iter_mut().for_each(|source| source.half_open.clear());
        digest
    }

    /// How many differences each of its tables can be relied on to decode: IPv4, then IPv6.
    #[must_use]
    pub fn item_counts(&self) -> (u64, u64) {
        (self.header.geometry.v4.item_count(), self.header.geometry.v6.item_count())
    }

    /// For how many differences of each family a digest for `differences` in all has room.
    pub(super) fn shares(&self, differences: u64) -> (u64, u64) {
        let differences = differences.min(DIGEST_DIFFERENCES_MAX);
        let open = |of: &dyn Fn(&Sums) -> i64| self.sums.iter().map(of).sum::<i64>().max(0) as f64;
        let (open_v4, open_v6) = (open(&|sums| sums.v4.surplus()), open(&|sums| sums.v6.surplus()));
        let all = open_v4 + open_v6;
        let part_v4 = if all > 0.0 { open_v4 / all } else { 0.5 };
        (share(differences, part_v4), share(differences, 1.0 - part_v4))
    }

    /// For how many differences a digest has to be made to have room for `v4` and `v6` of each family; `None` if the
    /// unfolded tables are too small for that.
    pub(super) fn digest_for(&self, v4: u64, v6: u64) -> Option<u64> {
        let mut differences = v4.saturating_add(v6).max(1);
        loop {
            let (room_v4, room_v6) = self.shares(differences);
            let DeltaGeometry { v4: most_v4, v6: most_v6 } = self.header.unfolded;
            if v4 > most_v4.item_count() || v6 > most_v6.item_count() || differences > DIGEST_DIFFERENCES_MAX {
                return None;
            }
            if room_v4 >= v4 && room_v6 >= v6 {
                return Some(differences);
            }
            differences += differences / 8 + 1;
        }
    }

    /// Both snapshots in tables of one shape, for each family that of the smaller; or the field in which they differ
    /// too much for that.
    pub(super) fn folded_alike(&self, other: &Self) -> Result<(Self, Self), Misfit> {
        if let Err(misfit @ (Misfit::KeyId(..) | Misfit::VlanKey(..))) = self.check_fits(other) {
            return Err(misfit);
        }
        let partitions = self.header.partition_count.min(other.header.partition_count);
        let (one, another) = (self.header.geometry, other.header.geometry);
        let geometry = DeltaGeometry { v4: one.v4.min(another.v4), v6: one.v6.min(another.v6) };
        let folded = |file: &Self| file.folded_to(partitions, geometry);
        folded(self).zip(folded(other)).ok_or_else(|| self.misfit_of_cells(other))
    }

    /// The family in which the number of cells of neither snapshot divides that of the other.
    fn misfit_of_cells(&self, other: &Self) -> Misfit {
        let cells = |geometry: DeltaGeometry| (geometry.v4.subtable_cell_count(), geometry.v6.subtable_cell_count());
        let ((v4, v6), (other_v4, other_v6)) = (cells(self.header.geometry), cells(other.header.geometry));
        if v4.max(other_v4).is_multiple_of(v4.min(other_v4)) {
            Misfit::CellsV6(v6, other_v6)
        } else {
            Misfit::CellsV4(v4, other_v4)
        }
    }

    /// These sums in fewer tables of this shape; `None` if they do not fold to it.
    fn folded_to(&self, partition_count: usize, geometry: DeltaGeometry) -> Option<Self> {
        let all = (partition_count < self.sums.len()).then(|| vec![self.sum_of_partitions()]);
        let parts = all.as_ref().unwrap_or(&self.sums).iter();
        let fold = |part: &Sums| Some(Sums { v4: folded(&part.v4, geometry.v4)?, v6: folded(&part.v6, geometry.v6)? });
        let sums = parts.map(fold).collect::<Option<Vec<_>>>()?;
        let mut header = self.header.clone();
        (header.geometry, header.partition_count) = (geometry, sums.len());
        Some(SnapshotFile { header, sums })
    }

    /// The tables of all partitions added up.
    fn sum_of_partitions(&self) -> Sums {
        let mut all = Sums::new(self.header.geometry);
        for part in &self.sums {
            let is_added = all.v4.merge(&part.v4).is_ok() && all.v6.merge(&part.v6).is_ok();
            debug_assert!(is_added, "the tables of a snapshot have one shape");
        }
        all
    }
}

/// For how many differences of a family there is room, if it has this part of the open connections.
fn share(differences: u64, part: f64) -> u64 {
    let mean = differences as f64 * part;
    let deviation = (mean * (1.0 - part)).max(0.0).sqrt();
    let share = (mean + DIGEST_SHARE_DEVIATIONS * deviation).ceil() as u64;
    share.max(differences.div_ceil(DIGEST_FAMILY_SHARE)).min(differences)
}

/// The smallest shape that this one folds to and that has room for `item_count` items.
fn least_fold(geometry: Geometry, item_count: u64) -> Geometry {
    let cells = geometry.subtable_cell_count();
    let wanted = Geometry::for_items(item_count).subtable_cell_count();
    let run = (1..=cells / wanted.min(cells)).rev().find(|run| cells.is_multiple_of(*run));
    run.and_then(|run| geometry.folded(run)).unwrap_or(geometry)
}

fn folded<K: TableKey>(table: &Iblt<K>, geometry: Geometry) -> Option<Iblt<K>> {
    let (from, to) = (table.geometry().subtable_cell_count(), geometry.subtable_cell_count());
    let folded = table.folded(from / to)?;
    (folded.geometry() == geometry).then_some(folded)
}
