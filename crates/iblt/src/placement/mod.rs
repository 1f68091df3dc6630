//! Placement of keys: which cells a key is summed into, and what each way to choose them is good for.
//!
//! The law that all placements keep: a key's places are distinct, depend on its hash alone, and come from independent
//! parts of it. (Places that are multiples of one another, `h1 + i * h2`, make pairs of keys share all their cells, and
//! those never list.)

mod layout;
mod measured;
mod plan;
mod simulate;

pub use layout::{Layout, Places, TABLE_CELLS_MAX};
pub use plan::{PLAN_FAILURE_MAX, PLAN_FAILURE_MIN, Plan, plan};
pub use simulate::{Outcome, Simulation};

#[cfg(test)]
mod tests;

/// The most cells that one key is summed into: what the best irregular tables use, and some more.
pub const TABLE_DEGREE_MAX: usize = 24;

/// The most segments of a spatially coupled table: ten times as many as the largest measured tables gain from.
pub const TABLE_SEGMENTS_MAX: u32 = 4_096;

/// A way to choose the cells of a key.
///
/// Thresholds are given in cells a key, in the limit of many keys. Below them only a few keys list; a little above them
/// all do. What a table of a given size needs is measured: see [`plan()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One cell in each of `hash_count` subtables (section 2.2 of the paper). Thresholds for 3 to 7: 1.2218, 1.2949,
    /// 1.4250, 1.5697, 1.7189. The best choice where a subtable may get lost (section 3), where parts of a table are
    /// kept apart, and where tables are to be folded.
    Subtables {
        /// The paper's `k`, 2 to [`TABLE_DEGREE_MAX`](crate::placement::TABLE_DEGREE_MAX).
        hash_count: u32,
    },
    /// `hash_count` distinct cells anywhere (the alternative in section 2.2). The thresholds are those of subtables.
    /// The best choice for up to some hundreds of keys, because two keys share all their cells less often: one in a
    /// thousand tables of 100 keys fails at 1.57 cells a key, where four subtables take 1.86.
    Distinct {
        /// The paper's `k`, 2 to [`TABLE_DEGREE_MAX`](crate::placement::TABLE_DEGREE_MAX).
        hash_count: u32,
    },
    /// One cell in each of `hash_count` neighbouring segments out of `segment_count`: spatially coupled tables. Listing
    /// starts at the ends, where cells are least loaded, and runs inwards. The threshold with many keys is 1.0238 for
    /// four hashes and 1.0076 for five, times `segment_count / (segment_count - hash_count + 1)`; fewer keys need
    /// larger segments to carry the wave. The best choice for hundreds of thousands of keys, and kind to caches.
    Coupled {
        /// The cells of a key, 2 to [`TABLE_DEGREE_MAX`](crate::placement::TABLE_DEGREE_MAX). With fewer than 4, two
        /// keys on the same cells are too common.
        hash_count: u32,
        /// The number of segments: at least the number of hashes, at most
        /// [`TABLE_SEGMENTS_MAX`](crate::placement::TABLE_SEGMENTS_MAX).
        segment_count: u32,
        /// Whether the first and the last segment have half as many cells as the others: better for up to ten thousand
        /// keys.
        half_ends: bool,
    },
    /// Distinct cells anywhere, as many as the key's own hash determines: irregular tables (the paper's footnote 5). A
    /// few keys in many cells let all others list with fewer cells. The best choice for a thousand to a hundred
    /// thousand keys. An update costs the mean of the degrees, about 5.
    Irregular(Degrees),
    /// Distinct cells anywhere, as many as the caller chose for the key: see
    /// [`ChosenDegrees`](crate::ChosenDegrees). A look-up fails only where each of a key's cells holds another key too,
    /// so a key with more cells is looked up more reliably, and all others a little less (the other use in the paper's
    /// footnote 5). The degrees and shares are those expected: the largest bounds what is chosen, and the mean is what
    /// the number of keys in a table is estimated by.
    Chosen(Degrees),
}

/// The bits of a hash that hold the degree of a key, where the caller chooses it: the lowest ones.
pub(crate) const CHOSEN_DEGREE_BITS: u32 = 5;

const _: () = assert!(TABLE_DEGREE_MAX < 1 << CHOSEN_DEGREE_BITS);

/// The degrees of an irregular table: how many of its keys have how many cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Degrees {
    /// Each degree with its share of the keys, in units of `total`.
    rows: [(u8, u16); 3],
    total: u32,
}

impl Degrees {
    /// Seven of ten keys in 3 cells, two in 4 and one in 21: for about a thousand keys.
    pub const FEW: Self = Degrees { rows: [(3, 700), (4, 200), (21, 100)], total: 1_000 };
    /// All but a ninth of the keys in 3 cells, the others in 21: for tens of thousands of keys. Threshold: 1.09.
    pub const MANY: Self = Degrees { rows: [(3, 8_866), (21, 1_134), (0, 0)], total: 10_000 };

    /// Up to three degrees, each from 1 to [`TABLE_DEGREE_MAX`], with their shares. `None` for anything else, and where
    /// all shares are zero.
    #[must_use]
    pub fn new(shares: &[(u8, u16)]) -> Option<Self> {
        let mut rows = [(0, 0); 3];
        rows.get_mut(..shares.len())?.copy_from_slice(shares);
        let total = shares.iter().map(|&(_, share)| u32::from(share)).sum();
        let is_valid = shares.iter().all(|&(degree, _)| (1..=TABLE_DEGREE_MAX as u8).contains(&degree));
        (is_valid && total > 0).then_some(Degrees { rows, total })
    }

    /// The degree that this part of a hash chooses.
    #[inline]
    fn choose(&self, part: u32) -> usize {
        let mut at = (u64::from(part) * u64::from(self.total)) >> u32::BITS;
        for (degree, share) in self.rows {
            match at.checked_sub(u64::from(share)) {
                None => return usize::from(degree),
                Some(rest) => at = rest,
            }
        }
        usize::from(self.rows[0].0)
    }

    /// The largest degree.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.rows.iter().map(|row| usize::from(row.0)).max().unwrap_or(0)
    }

    /// The degree that most keys have, and the share of the keys that have it.
    #[must_use]
    pub fn most_common(&self) -> CommonDegree {
        let (degree, share) = self.rows.into_iter().max_by_key(|row| row.1).unwrap_or_default();
        CommonDegree { degree: degree.into(), share: f64::from(share) / f64::from(self.total) }
    }

    /// The mean degree, which is what an update costs.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.rows.iter().map(|row| f64::from(row.0) * f64::from(row.1)).sum::<f64>() / f64::from(self.total)
    }
}

/// The number of cells that most keys of a table have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommonDegree {
    /// The number of cells.
    pub degree: u32,
    /// The share of the keys that have this many: 1 except in irregular tables.
    pub share: f64,
}

impl Placement {
    /// Every placement that was measured, so that [`Plan::with`] can plan it.
    pub fn measured() -> impl Iterator<Item = Self> {
        measured::CURVES.iter().map(|curve| curve.placement)
    }

    /// The largest number of cells a key can have.
    #[must_use]
    pub fn degree_max(&self) -> usize {
        match self {
            Placement::Subtables { hash_count }
            | Placement::Distinct { hash_count }
            | Placement::Coupled { hash_count, .. } => (*hash_count as usize).min(TABLE_DEGREE_MAX),
            Placement::Irregular(degrees) | Placement::Chosen(degrees) => degrees.largest(),
        }
    }

    /// The number of cells that most keys have.
    #[must_use]
    pub fn common_degree(&self) -> CommonDegree {
        match self {
            Placement::Irregular(degrees) | Placement::Chosen(degrees) => degrees.most_common(),
            _ => CommonDegree { degree: self.degree_max() as u32, share: 1.0 },
        }
    }

    /// The mean number of cells of a key, which is what an update costs.
    #[must_use]
    pub fn degree_mean(&self) -> f64 {
        match self {
            Placement::Irregular(degrees) | Placement::Chosen(degrees) => degrees.mean(),
            _ => self.degree_max() as f64,
        }
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Placement::Subtables { hash_count } => write!(f, "{hash_count} subtables"),
            Placement::Distinct { hash_count } => write!(f, "{hash_count} distinct cells"),
            Placement::Coupled { hash_count, segment_count, .. } => {
                write!(f, "{hash_count} neighbouring ones of {segment_count} segments")
            }
            Placement::Irregular(degrees) => write!(f, "irregular, {:.2} cells on average", degrees.mean()),
            Placement::Chosen(degrees) => write!(f, "chosen by the key, {:.2} cells on average", degrees.mean()),
        }
    }
}
