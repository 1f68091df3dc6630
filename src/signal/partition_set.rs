//! Some of the partitions: what a collector takes that shares the work with others.

use super::PARTITION_COUNT;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionSet(u8);

const _: () = assert!(PARTITION_COUNT == u8::BITS as usize);

impl PartitionSet {
    /// No partition.
    pub const NONE: Self = PartitionSet(0);
    /// All partitions.
    pub const ALL: Self = PartitionSet(u8::MAX);

    /// Every `count`th partition from the one at `index` on: the shares of one count have each partition once.
    ///
    /// ```
    /// use flowpeel::signal::PartitionSet;
    /// assert_eq!(PartitionSet::share(1, 3).iter().collect::<Vec<_>>(), [1, 4, 7]);
    /// assert_eq!(PartitionSet::share(0, 1), PartitionSet::ALL);
    /// ```
    #[must_use]
    pub fn share(index: usize, count: usize) -> Self {
        (0..PARTITION_COUNT).skip(index).step_by(count.max(1)).collect()
    }

    /// Whether it has this partition.
    #[must_use]
    pub fn has(self, partition: usize) -> bool {
        partition < PARTITION_COUNT && self.0 >> partition & 1 != 0
    }

    /// Its partitions, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..PARTITION_COUNT).filter(move |partition| self.has(*partition))
    }

    /// How many partitions it has.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        PartitionSet(self.0 & other.0)
    }

    /// Those of either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        PartitionSet(self.0 | other.0)
    }

    /// Those that it does not have.
    #[must_use]
    pub fn others(self) -> Self {
        PartitionSet(!self.0)
    }
}

impl FromIterator<usize> for PartitionSet {
    /// The set of these partitions. What is none is left out.
    fn from_iter<I: IntoIterator<Item = usize>>(partitions: I) -> Self {
        let known = partitions.into_iter().filter(|partition| *partition < PARTITION_COUNT);
        PartitionSet(known.fold(0, |set, partition| set | 1 << partition))
    }
}

impl Serialize for PartitionSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for PartitionSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let partitions = Vec::<usize>::deserialize(deserializer)?;
        let set: Self = partitions.iter().copied().collect();
        let is_in_order = set.iter().eq(partitions);
        is_in_order.then_some(set).ok_or_else(|| serde::de::Error::custom("not partitions in ascending order"))
    }
}
