//! What one shard counted since it last handed over: counters, which are linear, and the recent sources of each of the
//! shard's partitions.

use crate::signal::PARTITION_COUNT;
use crate::sources::address::{SourceKeyV4, SourceKeyV6};
use crate::sources::copies::Copies;
use crate::sources::distinct::Distinct;
use crate::sources::recent::{Recent, RecentSource};
use crate::sources::{Source, SourceEvent};
use flowpeel_iblt::hash::Secret;
use flowpeel_iblt::{KeyHash, Layout, SecretHash, Standard, plan};

/// The sources that `--sources` lists exactly in an interval by default, and half as many of IPv6: more than the
/// clients and scanners behind one router. With eight shards and all other defaults it is what fits the memory.
pub const SOURCES_DEFAULT: u64 = 30_000;

/// The fewest sources that can be asked for: fewer would save nothing.
pub const SOURCES_MIN: u64 = 1_000;

/// The most sources that can be asked for: gigabytes of counters.
pub const SOURCES_MAX: u64 = 10_000_000;

/// The probability that counters fail to list as many sources as they are made for.
const SOURCE_FAILURE: f64 = 1e-4;

/// The ratio of sources that are listed exactly to recent sources that are remembered: those that stand out are few.
const RECENT_SOURCES_DIVISOR: u64 = 4;

const _: () = assert!(SOURCES_MIN <= SOURCES_DEFAULT && SOURCES_DEFAULT <= SOURCES_MAX);

/// The values of a source: answers and refusals.
pub(super) type SourceValues = (u64, u64);

/// The shape of what counts the sources of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FamilyGeometry {
    layout: Layout,
    /// How many recent sources are kept for each partition.
    recent_count: usize,
}

impl FamilyGeometry {
    fn for_sources(source_count: u64) -> Self {
        let recent_count = source_count / RECENT_SOURCES_DIVISOR / PARTITION_COUNT as u64;
        FamilyGeometry { layout: plan(source_count, SOURCE_FAILURE).layout(), recent_count: recent_count as usize }
    }

    fn memory_size<K: flowpeel_iblt::Key>(self, shard_count: usize) -> usize {
        let counter = Standard::<K, SourceValues>::size(self.layout) + Distinct::SIZE;
        let recent = Recent::<K>::size(self.recent_count) * PARTITION_COUNT;
        let report = self.named_max() * size_of::<RecentSource<K>>() + self.row_count_max() * size_of::<Source>();
        2 * (shard_count * counter + recent) + counter + report
    }

    /// The most sources in a report: no more can be listed than there are cells.
    pub(super) fn row_count_max(self) -> usize {
        self.layout.cell_count() + self.named_max()
    }

    /// The most recent sources that are kept until the report, where one may be kept once for every partition.
    pub(super) fn named_max(self) -> usize {
        Recent::<SourceKeyV4>::place_count(self.recent_count) * PARTITION_COUNT
    }
}

/// The shape of everything that counts sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceGeometry {
    pub(super) v4: FamilyGeometry,
    pub(super) v6: FamilyGeometry,
}

impl SourceGeometry {
    /// The shape that lists `source_count` IPv4 sources and half as many IPv6 ones exactly, in all but one of some
    /// thousand intervals. The count is brought into the range from [`SOURCES_MIN`] to [`SOURCES_MAX`].
    #[must_use]
    pub fn for_sources(source_count: u64) -> Self {
        let source_count = source_count.clamp(SOURCES_MIN, SOURCES_MAX);
        SourceGeometry {
            v4: FamilyGeometry::for_sources(source_count),
            v6: FamilyGeometry::for_sources(source_count / 2),
        }
    }

    /// The memory in bytes that counting takes with `shard_count` shards: two deltas each, the packets that may have
    /// copies, and the ledger with its report.
    #[must_use]
    pub fn memory_size(self, shard_count: usize) -> u64 {
        let families =
            self.v4.memory_size::<SourceKeyV4>(shard_count) + self.v6.memory_size::<SourceKeyV6>(shard_count);
        (families + PARTITION_COUNT * Copies::SIZE) as u64
    }
}

/// The counts of one family.
pub(super) struct FamilyDelta<K: flowpeel_iblt::Key> {
    pub(super) counter: Standard<K, SourceValues>,
    pub(super) distinct: Distinct,
    /// The recent sources of each of the shard's partitions.
    pub(super) recent: Vec<Recent<K>>,
}

impl<K: flowpeel_iblt::Key> FamilyDelta<K> {
    pub(super) fn new(geometry: FamilyGeometry, secret: &Secret, partition_count: usize) -> Self {
        FamilyDelta {
            counter: Standard::new(geometry.layout, SecretHash::new(secret)),
            distinct: Distinct::new(),
            recent: (0..partition_count).map(|_| Recent::new(geometry.recent_count)).collect(),
        }
    }

    /// Counts events. `pairs` has the source and the values of each, `events` the position of its partition and its
    /// kind.
    pub(super) fn count(&mut self, pairs: &[(K, SourceValues)], events: &[(usize, SourceEvent)]) {
        let mut hashes = [0; super::tally::BATCH_COUNT];
        let mut keys = [K::zero(); super::tally::BATCH_COUNT];
        keys.iter_mut().zip(pairs).for_each(|(key, pair)| *key = pair.0);
        let count = pairs.len().min(keys.len());
        self.counter.table().hash().of_group(&keys[..count], &mut hashes);
        for ((key, &hash), &(position, event)) in keys[..count].iter().zip(&hashes).zip(events) {
            let hash = (hash >> u64::BITS) as u64;
            self.distinct.insert(hash);
            if let Some(recent) = self.recent.get_mut(position) {
                recent.count(key, hash, event);
            }
        }
        self.counter.add_all(pairs);
    }

    pub(super) fn clear(&mut self) {
        self.counter.clear();
        self.distinct.clear();
        self.recent.iter_mut().for_each(Recent::clear);
    }
}

/// What one shard counted since it last handed over. All memory is allocated when it is made.
pub struct SourceDelta {
    pub(super) v4: FamilyDelta<SourceKeyV4>,
    pub(super) v6: FamilyDelta<SourceKeyV6>,
    pub(super) totals: [u64; SourceEvent::COUNT],
}

impl SourceDelta {
    /// An empty delta of a shard with `partition_count` partitions.
    #[must_use]
    pub fn new(geometry: SourceGeometry, secret: &Secret, partition_count: usize) -> Self {
        SourceDelta {
            v4: FamilyDelta::new(geometry.v4, secret, partition_count),
            v6: FamilyDelta::new(geometry.v6, secret, partition_count),
            totals: [0; SourceEvent::COUNT],
        }
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        // Memory in which nothing was counted is not written to: it may not be there yet.
        if self.totals != [0; SourceEvent::COUNT] {
            self.v4.clear();
            self.v6.clear();
            self.totals = [0; SourceEvent::COUNT];
        }
    }
}
