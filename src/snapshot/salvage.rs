//! What is left of a snapshot that was damaged: the tables without the subtables that are lost (section 3 of the paper
//! on IBLTs), and what is known of the loss.
//!
//! It can only be listed. A type of its own keeps it from being merged, compared or written as if it were whole.

use super::{Header, Section, SnapshotFile, Sums};
use crate::flow::Family;
use flowpeel_iblt::HASH_COUNT;

/// What is genuine of a snapshot that was damaged or cut short.
#[derive(Clone, Debug)]
pub struct Salvaged {
    /// The snapshot. What of it is in no table any more is counted in `missing_elsewhere` of its first router.
    pub(super) file: SnapshotFile,
    damaged: Vec<Section>,
}

impl Salvaged {
    /// What is left of a snapshot in which these sections are damaged, and with them so many half-open connections.
    pub(super) fn new(mut file: SnapshotFile, damaged: Vec<Section>, half_open_lost: u64) -> Self {
        let is_lost = |family: Family, partition: usize| {
            let subtables = damaged.iter().filter(|section| {
                matches!(section, Section::Subtable { family: of, partition: at, .. } if (*of, *at) == (family, partition))
            });
            subtables.count() == HASH_COUNT
        };
        let mut lost = half_open_lost;
        for (family, surplus) in [(Family::V4, surplus_v4 as fn(&Sums) -> i64), (Family::V6, surplus_v6)] {
            let (gone, left): (Vec<_>, Vec<_>) =
                (0..file.sums.len()).partition(|partition| is_lost(family, *partition));
            let known: i64 = left.iter().map(|partition| surplus(&file.sums[*partition])).sum();
            lost = lost.saturating_add(gone.len() as u64 * mean(known, left.len()));
        }
        if let Some(source) = file.header.sources.first_mut() {
            source.figures.missing_elsewhere = source.figures.missing_elsewhere.saturating_add(lost);
        }
        Salvaged { file, damaged }
    }

    /// What the snapshot says of itself. `missing_elsewhere` of its first router has what is lost added to it.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.file.header
    }

    /// The sections that are damaged or missing; none where something was only added to the file.
    #[must_use]
    pub fn damaged(&self) -> &[Section] {
        &self.damaged
    }

    /// The snapshot, for those who list it.
    pub(crate) fn file(&self) -> &SnapshotFile {
        &self.file
    }

    /// As [`Self::file`], for the last of them.
    pub(crate) fn into_file(self) -> SnapshotFile {
        self.file
    }
}

/// About how many connections a lost table held: as many as each of the others, which hold equal shares, and one at
/// least, because nothing proves that it was empty.
fn mean(known: i64, table_count: usize) -> u64 {
    let known = u64::try_from(known).unwrap_or(0);
    (known / table_count.max(1) as u64).max(1)
}

fn surplus_v4(sums: &Sums) -> i64 {
    sums.v4.surplus()
}

fn surplus_v6(sums: &Sums) -> i64 {
    sums.v6.surplus()
}
