//! What a configuration takes: the size of every part, and of all together.
//!
//! What enters: a configuration as the user gave it. What leaves: the same, checked and turned into the sizes of all
//! parts, or what is wrong with it. All of it is worked out before anything is taken, so that what does not fit fails
//! at the start.

use crate::config::{
    CANDIDATE_TIMEOUT_TICKS, CANDIDATES_DIVISOR, CAPTURE_BUFFER_SIZE, CHURN_MIN, CONNECTIONS_MAX, CONNECTIONS_MIN,
    DELTA_LOAD_PERCENT, EVERY_MAX_DAYS, EVICTION_TIMEOUT_MAX_DAYS, EVICTION_TIMEOUT_MIN_S, FILTER_LOAD_PERCENT,
    HALF_OPEN_MAX, HALF_OPEN_MIN, LINGER_TICKS, LIST_ENTRY_SIZE, ONE_WAY_PLACES_DIVISOR, PARTITION_COUNT, PICKUP_MAX,
    ROUTER_NAME_SIZE_MAX, SHARDS_MAX, SNAPSHOT_SIZE_MAX, SOURCES_MAX, SOURCES_MIN, STATE_ENTRY_SIZE,
    SYN_TIMEOUT_MAX_TICKS, TICK_NS,
};
use crate::connection::{Filter, HalfOpen, HalfOpenRing, TrackerConfig};
use crate::error::{Error, Result};
use crate::export::Format;
use crate::flow_list::{EvictionTimes, FlowList, FlowListConfig, SnapshotConfig};
use crate::pipeline::{Config, Snapshots};
use crate::queue::{self, WhenFull};
use crate::record::Inlet;
use crate::shard::PartitionConfig;
use crate::signal::{HandshakeCache, Watch};
use crate::sketch::Geometry;
use crate::snapshot::DeltaGeometry;
use crate::snapshot::file::{Sums, is_name};
use crate::sources::SourceGeometry;
use std::sync::Arc;
use std::time::Duration;

/// The sizes that follow from a [`Config`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The connection filters.
    pub filter_size: u64,
    /// The half-open rings, with the copies of them that lists carry, the ring of candidates, the cache of waiting handshakes,
    /// and the watch over connections that may have vanished.
    pub rings_size: u64,
    /// The deltas, those in use and the empty ones, and the residues.
    pub tables_size: u64,
    /// The queues, and the capture buffer or the rings that the kernel fills.
    pub queues_size: u64,
    /// The list of open connections, and what the exporter keeps of the one before, at most: they grow to this only when
    /// so many are open.
    pub list_size_max: u64,
    /// The counters of sources, and what a report is made from; nothing where they are not counted.
    pub sources_size: u64,
    /// The copies of all this that a saved state is made of, while it is being written; 0 when it is not saved.
    pub state_size: u64,
    /// The archive: records on their way, those of the segment that is being filled, and what its index takes.
    pub archive_size: u64,
}

impl Memory {
    /// All together.
    #[must_use]
    pub fn total_size(&self) -> u64 {
        self.filter_size
            + self.rings_size
            + self.tables_size
            + self.queues_size
            + self.list_size_max
            + self.sources_size
            + self.state_size
            + self.archive_size
    }
}

/// The sources of a live capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveInput {
    /// How many there are; each gets a thread.
    pub capture_count: usize,
    /// The memory of their rings together, in bytes.
    pub rings_size: u64,
}

/// Everything that follows from a [`Config`], checked.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) partition: PartitionConfig,
    pub(super) list: FlowListConfig,
    /// What snapshots say of their origin, where they are wanted.
    pub(super) snapshots: Option<SnapshotConfig>,
    pub(super) handshake_count: usize,
    pub(super) shard_count: usize,
    pub(super) every_ns: Option<i64>,
    /// What capture threads and shards do when the way on is blocked.
    pub(super) when_full: WhenFull,
    pub(super) capture_count: usize,
    /// One in so many of the packets that carry no flag and that no handshake waits for is looked at; zero: none.
    pub(super) sampled: u32,
    /// The connections that may be under watch; none when nothing is idle for too long.
    pub(super) watch_count: Option<usize>,
    /// The shape of what counts sources, if anything does.
    pub(super) sources: Option<SourceGeometry>,
    /// Where records of what closes go, if they are wanted.
    pub(super) records: Option<Inlet>,
    memory: Memory,
}

impl Plan {
    /// The plan for a replay with this configuration: everything waits for everything, and nothing is lost.
    ///
    /// # Errors
    ///
    /// A value is out of its range, or all together take more than the configuration allows.
    pub fn new(config: &Config) -> Result<Self> {
        Plan::with(config, None)
    }

    /// The plan for a live capture: nothing waits, and what is lost is counted.
    ///
    /// # Errors
    ///
    /// As [`Plan::new`]; and a live capture needs an interval.
    pub fn live(config: &Config, input: LiveInput) -> Result<Self> {
        if config.every.is_none() {
            return Err(Error::new("a live capture needs the length of an interval: --every 10s"));
        }
        Plan::with(config, Some(input))
    }

    fn with(config: &Config, live: Option<LiveInput>) -> Result<Self> {
        check(config)?;
        let connections_max = share(config.connections_max);
        let half_open_count = (config.connections_max / 2).clamp(HALF_OPEN_MIN, HALF_OPEN_MAX);
        let half_open_share = half_open_count / PARTITION_COUNT as u64;
        let pickup = if config.answer_opens { 0 } else { config.pickup };
        let candidate_share = if pickup == 0 { 0 } else { half_open_share / CANDIDATES_DIVISOR };
        let churn = share(config.churn.max(CHURN_MIN));
        let place_count = (connections_max + half_open_share + candidate_share + churn) * 100 / FILTER_LOAD_PERCENT;
        // A table is handed over before it is full, so IPv6, mostly the lesser part, may do with half as many cells.
        let item_count = churn * 100 / DELTA_LOAD_PERCENT;
        let geometry = DeltaGeometry { v4: Geometry::for_items(item_count), v6: Geometry::for_items(item_count / 2) };
        // Snapshots are folded for comparisons, which takes a number of cells with many divisors.
        let geometry = match &config.snapshots {
            Some(_) => DeltaGeometry { v4: geometry.v4.foldable(), v6: geometry.v6.foldable() },
            None => geometry,
        };
        let keeps_list = config.snapshots.as_ref().is_none_or(|snapshots| !snapshots.replace_lists);
        let tracker = TrackerConfig {
            secret: config.secret.clone(),
            place_count: place_count as usize,
            half_open_count: half_open_share as usize,
            connections_max,
            syn_timeout_ticks: config.syn_timeout.as_nanos() as u64 / TICK_NS as u64,
            linger_ticks: LINGER_TICKS,
            one_way_max: if config.one_way { place_count / ONE_WAY_PLACES_DIVISOR } else { 0 },
            candidate_count: candidate_share as usize,
            candidate_timeout_ticks: CANDIDATE_TIMEOUT_TICKS,
            answer_opens: config.answer_opens,
            fingerprint_bits: config.fingerprint_bits,
        };
        let ticks = |time: Duration| (time.as_nanos() / TICK_NS as u128) as u64;
        let idle_timeout = config.idle_timeout.filter(|_| !config.answer_opens && keeps_list);
        let max_age = config.max_age.filter(|_| keeps_list);
        let eviction = EvictionTimes { idle_ticks: idle_timeout.map(ticks), age_max_ticks: max_age.map(ticks) };
        let watch_count = idle_timeout.filter(|_| config.watches).map(|_| config.connections_max as usize);
        let sampled = if idle_timeout.is_some() && !config.watches { 1 } else { pickup };
        let shard_count = config.shards.clamp(1, SHARDS_MAX);
        let (when_full, capture_count, buffers_size) = match live {
            None => (WhenFull::Wait, 1, CAPTURE_BUFFER_SIZE as u64),
            Some(live) => (WhenFull::Drop, live.capture_count.max(1), live.rings_size),
        };
        let sources = config.sources_max.map(SourceGeometry::for_sources);
        let partitions = PARTITION_COUNT as u64;
        let listed_max = connections_max * partitions;
        let partition = PartitionConfig { tracker, geometry };
        let memory = Memory {
            filter_size: partitions * Filter::size(place_count as usize) as u64,
            rings_size: partitions * 2 * HalfOpenRing::size(half_open_share as usize) as u64
                + partitions * HalfOpenRing::size(candidate_share as usize) as u64
                + HandshakeCache::size(half_open_count as usize) as u64
                + watch_count.map_or(0, Watch::size) as u64,
            tables_size: partitions * table_count(config) * geometry.size() as u64
                + config.snapshots.as_ref().map_or(0, |_| half_open_count * size_of::<HalfOpen>() as u64),
            queues_size: (capture_count * shard_count * queue::size()) as u64 + buffers_size,
            list_size_max: match keeps_list {
                true => (listed_max + half_open_count) * LIST_ENTRY_SIZE + config.format.memory_size(listed_max),
                false => half_open_count * LIST_ENTRY_SIZE,
            },
            sources_size: sources.map_or(0, |geometry| geometry.memory_size(shard_count)),
            archive_size: config.archive_size,
            state_size: if config.saves_state { state_size(&partition, config, listed_max) } else { 0 },
        };
        let plan = Plan {
            list: FlowListConfig {
                secret: config.secret.clone(),
                geometry,
                partition_connections_max: connections_max,
                eviction,
            },
            snapshots: config.snapshots.as_ref().map(|snapshots| SnapshotConfig {
                router: snapshots.router.clone(),
                run: snapshots.run,
                every_ns: config.every.map_or(0, |every| every.as_nanos() as u64),
                vlan_key: config.vlan_key,
                keeps_list,
            }),
            partition,
            handshake_count: half_open_count as usize,
            shard_count,
            every_ns: config.every.map(|every| every.as_nanos() as i64),
            when_full,
            capture_count,
            sampled,
            watch_count,
            sources,
            records: None,
            memory,
        };
        let snapshot_size = partitions * Sums::file_size(geometry);
        if config.snapshots.is_some() && snapshot_size > SNAPSHOT_SIZE_MAX {
            let (size, most) = (snapshot_size >> 20, SNAPSHOT_SIZE_MAX >> 20);
            return Err(Error::new(format!("snapshots of {size} MiB: {most} are the most, so lower --churn")));
        }
        if memory.total_size() > config.memory_size_max {
            let (needed, allowed) = (memory.total_size().div_ceil(1 << 20), config.memory_size_max >> 20);
            let what = format!(
                "{} connections and a churn of {}{} take {needed} MiB, and {allowed} MiB are allowed: \
                 raise --memory, or lower --connections{}",
                config.connections_max,
                config.churn,
                config.sources_max.map_or(String::new(), |count| format!(" and {count} sources")),
                if config.sources_max.is_some() { ", --churn or --sources" } else { " or --churn" }
            );
            return Err(Error::new(what));
        }
        Ok(plan)
    }

    /// The same, with a record sent here of every connection that ends. Its other end has to be read as long as the run goes on.
    #[must_use]
    pub fn recording(self, inlet: Inlet) -> Self {
        Plan { records: Some(inlet), ..self }
    }

    /// What it takes.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// The empty list, with the snapshots beside it or instead of it.
    pub(super) fn flow_list(&self, watch: Option<&Arc<Watch>>) -> FlowList {
        match &self.snapshots {
            Some(snapshots) => FlowList::with_snapshots(&self.list, watch, snapshots),
            None => FlowList::new(&self.list, watch),
        }
    }

    /// What the capture threads and the list watch together, if anything.
    pub(super) fn watch(&self) -> Option<Arc<Watch>> {
        self.watch_count.map(|count| Arc::new(Watch::new(count)))
    }

    /// The threads that work on partitions.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.shard_count
    }
}

/// How many tables there are of each: a delta, its spare and a residue; with snapshots the sum, and a file of about its size
/// that is written; and without a list no residue.
fn table_count(config: &Config) -> u64 {
    match &config.snapshots {
        None => 3,
        Some(Snapshots { replace_lists: false, .. }) => 5,
        Some(Snapshots { replace_lists: true, .. }) => 4,
    }
}

/// What the copies of a state take: filter, rings, residues and the sums of snapshots once each, and the list, of which a map's spare room is not copied.
fn state_size(partition: &PartitionConfig, config: &Config, listed_max: u64) -> u64 {
    let tracker = &partition.tracker;
    let rings_size = HalfOpenRing::size(tracker.half_open_count) + HalfOpenRing::size(tracker.candidate_count);
    let table_count = if config.snapshots.is_some() { 2 } else { 1 };
    let partition_size = Filter::size(tracker.place_count) + rings_size + table_count * partition.geometry.size();
    let earlier_size = Format { compress: false, ..config.format }.memory_size(listed_max);
    let list_size = listed_max.saturating_mul(STATE_ENTRY_SIZE).saturating_add(earlier_size);
    (PARTITION_COUNT as u64 * partition_size as u64).saturating_add(list_size)
}

/// What one partition gets of so many: they do not share evenly, and six standard deviations are more than chance brings.
pub(super) fn share(count: u64) -> u64 {
    count / PARTITION_COUNT as u64 + 6 * (count / PARTITION_COUNT as u64).isqrt() + 16
}

fn check(config: &Config) -> Result<()> {
    if !(CONNECTIONS_MIN..=CONNECTIONS_MAX).contains(&config.connections_max) {
        return Err(Error::new(format!("--connections must be from {CONNECTIONS_MIN} to {CONNECTIONS_MAX}")));
    }
    if config.churn > CONNECTIONS_MAX {
        return Err(Error::new(format!("--churn must be at most {CONNECTIONS_MAX}")));
    }
    if !(1..=SHARDS_MAX).contains(&config.shards) {
        return Err(Error::new(format!("--shards must be from 1 to {SHARDS_MAX}")));
    }
    let syn_timeout_ticks = config.syn_timeout.as_nanos() / TICK_NS as u128;
    if !(1..=u128::from(SYN_TIMEOUT_MAX_TICKS)).contains(&syn_timeout_ticks) {
        let most_s = SYN_TIMEOUT_MAX_TICKS * TICK_NS as u64 / 1_000_000_000;
        return Err(Error::new(format!("--syn-timeout must be from 100ms to {most_s}s")));
    }
    config.format.check()?;
    if config.snapshots.as_ref().is_some_and(|snapshots| !is_name(&snapshots.router)) {
        let what = format!("a router's name has at most {ROUTER_NAME_SIZE_MAX} bytes and no control characters");
        return Err(Error::new(what));
    }
    let every_hours_max = EVERY_MAX_DAYS * 24;
    let every = Duration::from_nanos(TICK_NS as u64)..=Duration::from_secs(every_hours_max * 3_600);
    if config.every.is_some_and(|length| !every.contains(&length)) {
        let what = format!("--every must be from 100ms to {EVERY_MAX_DAYS} days ({every_hours_max}h)");
        return Err(Error::new(what));
    }
    if config.pickup > PICKUP_MAX {
        return Err(Error::new(format!("--pickup must be at most {PICKUP_MAX}")));
    }
    if config.sources_max.is_some_and(|sources_max| !(SOURCES_MIN..=SOURCES_MAX).contains(&sources_max)) {
        return Err(Error::new(format!("--sources must be from {SOURCES_MIN} to {SOURCES_MAX}")));
    }
    let longest = Duration::from_secs(EVICTION_TIMEOUT_MAX_DAYS * 86_400);
    let eviction = Duration::from_secs(EVICTION_TIMEOUT_MIN_S)..=longest;
    for (time, name) in [(config.idle_timeout, "--idle-timeout"), (config.max_age, "--max-age")] {
        if time.is_some_and(|time| !eviction.contains(&time)) {
            let what = format!("{name} must be from {EVICTION_TIMEOUT_MIN_S}s to {EVICTION_TIMEOUT_MAX_DAYS} days");
            return Err(Error::new(what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CONNECTIONS_DEFAULT;

    #[test]
    fn the_defaults_fit_their_own_limit() {
        let plan = Plan::new(&Config::default()).unwrap();
        assert!(plan.memory().total_size() <= Config::default().memory_size_max);
        // Those of a live capture that saves its state, on one interface.
        let live = Config {
            every: Some(Duration::from_secs(10)),
            pickup: crate::config::PICKUP_LIVE,
            idle_timeout: Some(Duration::from_secs(crate::config::IDLE_TIMEOUT_LIVE_S)),
            watches: true,
            saves_state: true,
            ..Config::default()
        };
        let input = LiveInput { capture_count: 1, rings_size: crate::config::RING_SIZE_DEFAULT };
        assert!(Plan::live(&live, input).unwrap().memory().state_size > 0);
    }

    #[test]
    fn the_largest_configuration_has_tables_for_its_churn() {
        let config = Config {
            connections_max: CONNECTIONS_MAX,
            churn: CONNECTIONS_MAX,
            memory_size_max: u64::MAX,
            ..Config::default()
        };
        let plan = Plan::new(&config).unwrap();
        let share = CONNECTIONS_MAX / PARTITION_COUNT as u64;
        assert!(plan.partition.geometry.v4.item_count() * DELTA_LOAD_PERCENT / 100 >= share);
    }

    #[test]
    fn what_is_not_asked_for_takes_nothing() {
        let memory = |config: &Config| Plan::new(config).unwrap().memory();
        let plain = Config::default();
        let pickup = Config { pickup: 16, ..plain.clone() };
        let idle = Config { idle_timeout: Some(Duration::from_secs(14_400)), ..plain.clone() };
        let watches = Config { watches: true, ..idle.clone() };
        assert!(memory(&pickup).filter_size > memory(&plain).filter_size);
        assert!(memory(&pickup).rings_size > memory(&plain).rings_size);
        assert_eq!(memory(&idle), memory(&plain), "a replay needs no watch");
        let watch = memory(&watches).rings_size - memory(&plain).rings_size;
        assert_eq!(watch, Watch::size(CONNECTIONS_DEFAULT as usize) as u64);
        let flags = Config { answer_opens: true, pickup: 16, ..watches };
        let sources = Config { sources_max: Some(30_000), ..plain.clone() };
        let with_sources = memory(&sources);
        assert!(with_sources.sources_size > 4 << 20 && memory(&plain).sources_size == 0);
        assert_eq!(Memory { sources_size: 0, ..with_sources }, memory(&plain));
        assert_eq!(memory(&flags), memory(&plain), "where only flags are seen there is nothing to look at");
    }

    #[test]
    fn snapshots_take_their_tables_and_a_list_that_is_not_kept_takes_nothing() {
        let plan =
            |snapshots| Plan::new(&Config { snapshots, max_age: Some(Duration::from_secs(60)), ..Config::default() });
        let plain = plan(None).unwrap();
        let beside = plan(Some(Snapshots::default())).unwrap();
        let alone = plan(Some(Snapshots { replace_lists: true, ..Snapshots::default() })).unwrap();
        assert!(beside.memory().tables_size > plain.memory().tables_size * 5 / 3);
        assert!(alone.memory().tables_size < beside.memory().tables_size);
        assert!(alone.memory().list_size_max < plain.memory().list_size_max / 2);
        assert!(beside.list.eviction.age_max_ticks.is_some() && alone.list.eviction == EvictionTimes::default());
        assert!(beside.list.geometry.v4.folded(60).is_some());
        let nameless = plan(Some(Snapshots { router: "\n".to_owned(), ..Snapshots::default() }));
        assert!(nameless.unwrap_err().to_string().contains("no control characters"));
        let vast = Config { churn: CONNECTIONS_MAX, snapshots: Some(Snapshots::default()), ..Config::default() };
        assert!(Plan::new(&vast).unwrap_err().to_string().contains("are the most, so lower --churn"));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_figures() {
        let config = Config { connections_max: 100_000_000, ..Config::default() };
        let message = Plan::new(&config).unwrap_err().to_string();
        assert!(message.contains("256 MiB are allowed") && message.contains("--memory"), "{message}");
    }

    #[test]
    fn values_out_of_range_are_named() {
        for (config, name) in [
            (Config { shards: 0, ..Config::default() }, "--shards"),
            (Config { shards: 9, ..Config::default() }, "--shards"),
            (Config { connections_max: 1, ..Config::default() }, "--connections"),
            (Config { churn: u64::MAX, ..Config::default() }, "--churn"),
            (Config { syn_timeout: Duration::from_secs(601), ..Config::default() }, "--syn-timeout"),
            (Config { format: Format { changes: Some(0), ..Format::default() }, ..Config::default() }, "--changes"),
            (Config { every: Some(Duration::ZERO), ..Config::default() }, "--every"),
            (Config { every: Some(Duration::MAX), ..Config::default() }, "--every"),
            (Config { sources_max: Some(1), ..Config::default() }, "--sources"),
            (Config { pickup: u32::MAX, ..Config::default() }, "--pickup"),
            (Config { idle_timeout: Some(Duration::from_secs(9)), ..Config::default() }, "--idle-timeout"),
            (Config { max_age: Some(Duration::MAX), ..Config::default() }, "--max-age"),
        ] {
            assert!(Plan::new(&config).unwrap_err().to_string().contains(name));
        }
    }
}
