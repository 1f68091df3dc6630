//! The plan of a run: the size of every part, and of all together.
//!
//! It takes a configuration as the user gave it and gives the configuration, checked, with the sizes of all parts, or
//! what is wrong with it. All of it is worked out before any memory is taken, so that what does not fit fails at the
//! start.

use crate::capture::CAPTURE_BUFFER_SIZE;
use crate::engine::memory::{Memory, addresses_size, names_size, questions_size, state_size, table_count};
use crate::engine::{Config, SHARDS_MAX, Setting};
use crate::error::{Error, Result};
use crate::handover::{Delta, DeltaGeometry, HalfOpen, HalfOpenList, INQUIRY_MAX, PRESUMED_MAX_TICKS};
use crate::list::{EvictionTimes, FlowList, FlowListConfig, IDLE_EPOCHS, ListEnds, SnapshotConfig, Translations};
use crate::queue::{self, WhenFull};
use crate::record::Inlet;
use crate::signal::{
    FOLLOWS_MAX_NS, HANDSHAKES_DEFAULT, HandshakeCache, PARTITION_COUNT, RecentEnds, SAMPLE_INTERVAL_PACKETS,
    SYN_TIMEOUT_MAX_TICKS, TICK_BITS, TICK_NS, TwoNames, WarmUp, Watch,
};
use crate::snapshot::{ROUTER_NAME_SIZE_MAX, SNAPSHOT_HALF_OPEN_SIZE, SNAPSHOT_SIZE_MAX, Sums, is_name};
use crate::sources::{SOURCES_MAX, SOURCES_MIN, SourceGeometry};
use crate::track::{
    CANDIDATE_TIMEOUT_TICKS, CONNECTIONS_MAX, Filter, HALF_OPEN_MAX, LINGER_TICKS, Partition, PartitionConfig,
    RefusedCounts, TrackerConfig,
};
use crate::view;
use flowpeel_iblt::Geometry;
use std::sync::Arc;
use std::time::Duration;

/// Standard deviations that each partition has room for beside its even share of items: partitions do not share evenly,
/// and this is more than chance brings.
pub const PARTITION_DEVIATIONS: u64 = 6;

/// Items that each partition has room for besides, so that a share of almost none does too.
const PARTITION_ITEMS_MIN: u64 = 16;

/// How full the filter may become with all the connections that can be established, in percent. At 97 one in thirty
/// thousand of them finds no place, and one in fifty while it is half-open. At 93 all find one, half-open or not.
pub const FILTER_ESTABLISHED_PERCENT: u64 = 93;

/// How full the filter may become with everything it is made for, in percent, including what has just closed: closed
/// connections make room where there is no place, and then linger for a shorter time.
const FILTER_LOAD_PERCENT: u64 = 98;

/// The part of the half-open connections for which the filter has places of their own, as one in this many. Where more
/// connections close in an interval, it has places for those instead. Only a flood needs more, and it takes the places
/// of what has closed and its own.
const HALF_OPEN_PLACES_DIVISOR: u64 = 8;

/// The part of the filter's places that connections seen from one side only may take, as one in this many: a flood can
/// fake them, and must not fill it.
const ONE_WAY_PLACES_DIVISOR: u64 = 8;

/// How long a half-open connection is kept by default, in seconds: longer than a client waits.
pub(crate) const SYN_TIMEOUT_DEFAULT_S: u64 = 60;

/// The most connections that are tracked by default.
pub(crate) const CONNECTIONS_DEFAULT: u64 = 500_000;

/// The fewest connections that can be asked for: fewer would save nothing.
pub const CONNECTIONS_MIN: u64 = 1_000;

/// The fewest half-open connections that there is room for: a busy server's legitimate ones need as much. By default
/// there is room for half as many as there may be connections, within this and [`HALF_OPEN_MAX`].
pub const HALF_OPEN_MIN: u64 = 1 << 14;

/// The ratio of half-open connections that are kept by default to candidates. Candidates are connections of which one
/// side was seen and the start was not; the busy ones are found within a second of the start, and then there are few.
const CANDIDATES_DIVISOR: u64 = 2;

/// One in this many of the connections that may be open is how many that have ended are remembered as they were: those
/// of some seconds, in which a connection that did not end speaks again.
const ENDED_DIVISOR: u64 = 16;

/// The fewest of a partition, some kilobytes.
const ENDED_MIN: u64 = 64;

/// One in this many of the connections that may be open is how many records there are of those that were refused, by
/// which it is known exactly which of them are open. A larger spike is known by its sums.
const REFUSED_RECORDS_DIVISOR: u64 = 4;

/// The fewest of a partition: 256 KiB. Sets are full when a little more than half of them are used, so these are for
/// spikes of 65,000 connections.
const REFUSED_RECORDS_MIN: u64 = 1 << 14;

/// One in this many of the connections that may be open is how many that were refused can be listed when there is room
/// for them: eight bytes for each that may be open.
const REFUSED_LISTED_DIVISOR: u64 = 64;

/// The fewest of a partition, so that a small table can be full of them.
const REFUSED_LISTED_MIN: u64 = 1 << 10;

/// The default of `--pickup` in a live capture: the same sample that makes good lost handshakes.
pub const PICKUP_LIVE: u32 = SAMPLE_INTERVAL_PACKETS;

/// The largest `--pickup`, and so the rarest sample: with fewer packets hardly any connection shows both its sides in
/// time.
pub const PICKUP_MAX: u32 = 1 << 16;

/// The part of the connections for whose openings and closings in an interval tables are made by default, as one in
/// this many.
const CHURN_DIVISOR: u64 = 5;

/// The fewest openings and closings in an interval that tables are made for, unless fewer are asked for: short
/// connections come and go in numbers that those open at once say nothing of, and tables for so many take little.
const CHURN_DERIVED_MIN: u64 = 20_000;

/// The steps in which a churn that is not given is lowered to what memory allows.
const CHURN_STEP: u64 = 1_000;

/// The steps in which half-open connections, where their number is not given, are lowered to what memory allows.
const HALF_OPEN_STEP: u64 = 1 << 10;

/// The least churn that tables are made for: smaller tables fail by chance.
const CHURN_MIN: u64 = 1_000;

/// The parts of an interval's churn, for one of which tables are made: a full table is handed over before the interval
/// ends. That costs a scan of its cells, and saves memory, which a router can spare least.
const DELTA_PARTS: u64 = 4;

/// The fewest changes that tables are made for, unless a partition's whole churn is less. Two connections with the same
/// four cells are listed only once one of them has closed, and such pairs grow with the square of how small a table is.
const DELTA_ITEMS_MIN: u64 = 3_300;

/// How full the tables of snapshots are when as much has changed as they are made for, in percent of what they plainly
/// list.
const SNAPSHOT_LOAD_PERCENT: u64 = 90;

/// Empty deltas of each partition beside the one in use, where a shard waits for the list or deltas hold a whole
/// interval's churn.
const DELTA_SPARES_WHOLE: usize = 1;

/// Empty deltas of each partition beside the one in use, in a live capture without snapshots: these and the one that
/// continues filling hold most of an interval's churn while a list is written.
const DELTA_SPARES_LIVE: usize = 3;

/// The longest `--every`, in days: for anything longer there is the list at the end.
const EVERY_MAX_DAYS: u64 = 366;

/// What one listed connection takes at most, in bytes: 48 for the key and the start, 6 in an index that has just grown,
/// and 4 in the part of the list that is being sorted. The 48 are those of IPv6 where starts are years apart. Elsewhere
/// they are 46 with VLAN tags in keys, and 42 without; for IPv4 it is 24, 22 or 18.
const LIST_ENTRY_SIZE: u64 = 48 + 6 + 4;

/// Listed connections of each family that a partition is asked about for each second of the interval, of which at least
/// ten count: six million of a family are then asked about within an epoch of the default idle timeout. (PacketTime of
/// more than 40 s reach [`INQUIRY_MAX`], and it takes longer.)
const INQUIRY_A_SECOND: usize = 820;

/// The default of `--idle-timeout` in a live capture, in seconds: TCP's keepalives come every two hours, so a
/// connection that sends them is seen at least once after it came under watch.
pub const IDLE_TIMEOUT_LIVE_S: u64 = 4 * 3_600;

/// The default of `--max-age` in a live capture, in seconds: what is listed for longer is more likely an error than a
/// connection.
pub const AGE_MAX_LIVE_S: u64 = 5 * 86_400;

/// The shortest `--idle-timeout` and `--max-age`, in seconds: connections are asked about 16 times in one.
const EVICTION_TIMEOUT_MIN_S: u64 = 10;

/// The longest `--idle-timeout` and `--max-age`, in days: as for `--every`.
const EVICTION_TIMEOUT_MAX_DAYS: u64 = 366;

/// The memory that may be taken by default, in bytes: what a router can spare.
pub(crate) const MEMORY_SIZE_DEFAULT: u64 = 256 << 20;

const _: () = assert!(FILTER_ESTABLISHED_PERCENT <= FILTER_LOAD_PERCENT && FILTER_LOAD_PERCENT < 100);

const _: () = assert!(HALF_OPEN_MIN <= HALF_OPEN_MAX);

const _: () = assert!(
    (HALF_OPEN_MAX + HALF_OPEN_MAX / CANDIDATES_DIVISOR) / (PARTITION_COUNT as u64) < 1 << TICK_BITS,
    "where its record stands has to fit into an entry in place of its tick"
);

const _: () = assert!(SYN_TIMEOUT_DEFAULT_S * 10 <= SYN_TIMEOUT_MAX_TICKS);

// A stamp that is ahead by the most that it may be does not end the handshakes of the last ten seconds.
const _: () = assert!(FOLLOWS_MAX_NS + 10_000_000_000 <= SYN_TIMEOUT_DEFAULT_S as i64 * 1_000_000_000);

const _: () = assert!(EVICTION_TIMEOUT_MIN_S * 1_000_000_000 / TICK_NS as u64 >= IDLE_EPOCHS);

/// The sources of a live capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveInput {
    /// The number of sources; each gets a thread.
    pub capture_count: usize,
    /// The memory of their rings together, in bytes.
    pub rings_size: u64,
}

/// A checked [`Config`] with everything that follows from it.
#[derive(Clone, Debug)]
pub struct Plan {
    config: Config,
    pub(crate) partition: PartitionConfig,
    pub(crate) list: FlowListConfig,
    /// What snapshots say of their origin, where they are wanted.
    pub(crate) snapshots: Option<SnapshotConfig>,
    /// The handshakes that may wait for the client's answer; 0 where none does.
    pub(crate) handshake_count: usize,
    /// The connections whose ends are remembered; 0 where no other packets are seen.
    pub(crate) end_count: usize,
    /// The handshakes of which each of several capture threads remembers the SYN; 0 where there is only one thread, or
    /// no need.
    pub(crate) seen_syn_count: usize,
    pub(crate) every_ns: Option<i64>,
    is_live: bool,
    /// The ports, each of one thread.
    pub(crate) port_count: usize,
    /// Whether shards poll the queues of the ports.
    polls: bool,
    /// Empty deltas of each partition beside the one in use.
    pub(crate) spare_count: usize,
    /// The sampling interval of packets that carry no flag and that no handshake waits for; 0 turns sampling off.
    pub(crate) sampled: u32,
    /// The connections that may be under watch. `None` without an idle timeout.
    pub(crate) watch_count: Option<usize>,
    /// The shape of the counters of sources, if there are any.
    pub(crate) sources: Option<SourceGeometry>,
    /// Where records of connections go, if they are wanted.
    records: Vec<Inlet>,
    memory: Memory,
    /// The part of it that is for the buffers of captures, in bytes.
    buffers_size: u64,
    /// Whether the churn or the half-open connections are fewer than follow from the connections, for want of memory.
    is_lowered: bool,
}

impl Plan {
    /// The plan of a replay with this configuration: full queues make threads wait, and nothing is lost.
    ///
    /// # Errors
    ///
    /// A value is out of its range, or the parts together take more than the configuration allows.
    pub fn new(config: &Config) -> Result<Self> {
        Plan::with(config, None)
    }

    /// The plan of a live capture: nothing waits, and what is lost is counted.
    ///
    /// # Errors
    ///
    /// As [`Plan::new`]; and a live capture needs an interval.
    pub fn live(config: &Config, input: LiveInput) -> Result<Self> {
        if config.every.is_none() {
            let what = format!("live traffic needs the length of an interval: set {}", (config.names)(Setting::Every));
            return Err(Error::new(what));
        }
        Plan::with(config, Some(input))
    }

    /// The plan of an engine with so many ports on the wall clock: nothing waits, and what is lost is counted. A port
    /// makes no system call; shards poll for what it sends.
    ///
    /// # Errors
    ///
    /// As [`Plan::live`].
    pub fn ports(config: &Config, port_count: usize) -> Result<Self> {
        let plan = Plan::live(config, LiveInput { capture_count: port_count, rings_size: 0 })?;
        Ok(Plan { polls: true, ..plan })
    }

    /// The plan with the churn and the half-open connections that follow from the connections and the memory, where
    /// they are not given. Where memory is short the churn is lowered first: smaller tables are handed over more often,
    /// fewer half-open connections are recycled sooner in a flood.
    fn with(config: &Config, live: Option<LiveInput>) -> Result<Self> {
        check(config)?;
        let churn = churn(config);
        let half_open_count = half_open_count(config);
        let sized = |churn: u64, half_open_count: u64| {
            let (churn, half_open_max) = (Some(churn), Some(half_open_count));
            Plan::sized(&Config { churn, half_open_max, ..config.clone() }, live)
        };
        if let Ok(plan) = sized(churn, half_open_count) {
            return Ok(plan);
        }
        let churn_min = if config.churn.is_some() { churn } else { CHURN_DERIVED_MIN };
        if let Ok(plan) = sized(churn_min, half_open_count) {
            let fits = |churn| sized(churn, half_open_count);
            return Ok(most_that_fits(plan, (churn_min, churn), CHURN_STEP, fits));
        }
        let half_open_min = if config.half_open_max.is_some() { half_open_count } else { HALF_OPEN_MIN };
        let plan = sized(churn_min, half_open_min)?;
        let fits = |half_open_count| sized(churn_min, half_open_count);
        Ok(most_that_fits(plan, (half_open_min, half_open_count), HALF_OPEN_STEP, fits))
    }

    /// The plan for a checked configuration that says how large everything is.
    fn sized(config: &Config, live: Option<LiveInput>) -> Result<Self> {
        let geometry = geometry(share(churn(config).max(CHURN_MIN)), config.snapshots.is_some());
        let goes_on = live.is_some() && config.snapshots.is_none();
        let keeps_list = config.keeps_list();
        let idle_timeout = config.idle_timeout.filter(|_| !config.answer_opens && keeps_list);
        let max_age = config.max_age.filter(|_| keeps_list);
        let eviction = EvictionTimes {
            idle_ticks: idle_timeout.map(ticks),
            age_max_ticks: max_age.map(ticks),
            interval_ticks: config.every.map_or(0, ticks),
        };
        // A connection that could not be tracked is found when it speaks, or would be off the list by then.
        let idle_untracked = eviction.idle_ticks.filter(|_| pickup(config) > 0);
        let untracked_ticks = idle_untracked.into_iter().chain(eviction.age_max_ticks).min();
        let partition = PartitionConfig {
            tracker: TrackerConfig { untracked_ticks, ..tracker(config) },
            geometry,
            idle_ticks: eviction.idle_ticks,
        };
        let looks_at_all = idle_timeout.is_some() && !config.watches;
        let port_count = live.map_or(1, |live| live.capture_count.max(1));
        // A connection that opens with its SYN-ACK has nothing to wait for.
        let handshake_count = if config.answer_opens { 0 } else { HANDSHAKES_DEFAULT };
        let seen_syn_count = if port_count > 1 && !config.one_way { half_open_count(config) as usize } else { 0 };
        let end_count = if config.answer_opens { 0 } else { ended_count(config) * PARTITION_COUNT };
        let mut plan = Plan {
            config: config.clone(),
            list: FlowListConfig {
                secret: config.secret.clone(),
                geometry,
                partition_connections_max: partition.tracker.connections_max,
                eviction,
                inquiry_max: inquiry_max(config),
            },
            snapshots: config.snapshots.as_ref().map(|snapshots| SnapshotConfig {
                router: snapshots.router.clone(),
                run: snapshots.run,
                every_ns: config.every.map_or(0, |every| every.as_nanos() as u64),
                vlan_key: config.vlan_key,
            }),
            partition,
            handshake_count,
            end_count,
            seen_syn_count: if config.answer_opens { 0 } else { seen_syn_count },
            every_ns: config.every.map(|every| every.as_nanos() as i64),
            is_live: live.is_some(),
            port_count,
            polls: false,
            spare_count: if goes_on { DELTA_SPARES_LIVE } else { DELTA_SPARES_WHOLE },
            sampled: if looks_at_all { 1 } else { pickup(config) },
            watch_count: idle_timeout.filter(|_| config.watches).map(|_| config.connections_max as usize),
            sources: config.sources_max.map(SourceGeometry::for_sources),
            records: Vec::new(),
            memory: Memory::default(),
            buffers_size: live.map_or(CAPTURE_BUFFER_SIZE as u64, |live| live.rings_size),
            is_lowered: false,
        };
        plan.memory = plan.memory_of();
        plan.check_sizes()?;
        Ok(plan)
    }

    /// The memory of the run.
    fn memory_of(&self) -> Memory {
        let config = &self.config;
        let PartitionConfig { tracker, geometry, .. } = &self.partition;
        let partitions = PARTITION_COUNT as u64;
        let half_open_count = partitions * tracker.half_open_count as u64;
        let listed_max = partitions * tracker.connections_max;
        let seen_syns_size = match self.seen_syn_count {
            0 => 0,
            count => self.port_count * HandshakeCache::size(count),
        };
        let keeps_list = config.keeps_list();
        // A replay's shards hold nothing back, so its list asks only which connections are still alive.
        let is_asking = self.is_live || !self.list.eviction.are_none();
        let list_size =
            if keeps_list { listed_max * LIST_ENTRY_SIZE + config.format.memory_size(listed_max) } else { 0 };
        Memory {
            filter_size: partitions * Filter::size(tracker.place_count) as u64,
            refused_size: partitions * tracker.refused_size() as u64,
            rings_size: partitions * tracker.rings_size() as u64
                + HandshakeCache::size(self.handshake_count) as u64
                + RecentEnds::size(self.end_count) as u64
                + seen_syns_size as u64
                + self.watch_count.map_or(0, Watch::size) as u64,
            tables_size: partitions * (self.spare_count as u64 + table_count(config)) * geometry.size() as u64
                + partitions * ((self.spare_count + 1) * size_of::<Delta>() + size_of::<Partition>()) as u64
                + config.snapshots.as_ref().map_or(0, |_| half_open_count * size_of::<HalfOpen>() as u64),
            queues_size: (self.port_count * self.shard_count() * queue::size()) as u64
                + self.buffers_size
                + if self.finds_two_names() { (self.port_count * TwoNames::PORT_SIZE) as u64 } else { 0 },
            list_size_max: list_size
                + partitions * HalfOpenList::size(tracker.half_open_count) as u64
                + if keeps_list && is_asking { questions_size(&self.list) } else { 0 }
                + partitions * (self.ends_max() * ListEnds::ENTRY_SIZE) as u64,
            sources_size: self.sources.map_or(0, |geometry| geometry.memory_size(self.shard_count())),
            archive_size: config.archive_size,
            event_log_size: config.event_log_size,
            view_size: if config.has_view { view::memory_size(listed_max + half_open_count) } else { 0 },
            translations_size: config.translations_max.map_or(0, |count| Translations::size(count) as u64)
                + 2 * names_size(config, listed_max),
            state_size: if config.saves_state { state_size(&self.partition, config, listed_max) } else { 0 },
        }
    }

    /// Checks the sizes against the limits.
    fn check_sizes(&self) -> Result<()> {
        let config = &self.config;
        let partitions = PARTITION_COUNT as u64;
        let sums_size = partitions * Sums::file_size(self.partition.geometry);
        let half_open_count = partitions * self.partition.tracker.half_open_count as u64;
        // A flood may fill the ring at the end of any interval, and the snapshot has to be possible then too.
        let snapshot_size = sums_size + half_open_count * SNAPSHOT_HALF_OPEN_SIZE;
        if config.snapshots.is_some() && snapshot_size > SNAPSHOT_SIZE_MAX {
            let (size, most) = (snapshot_size.div_ceil(1 << 20), SNAPSHOT_SIZE_MAX >> 20);
            let (churn, half_open) = ((config.names)(Setting::Churn), (config.names)(Setting::HalfOpen));
            let which = if sums_size > SNAPSHOT_SIZE_MAX { churn } else { &format!("{churn} or {half_open}") };
            return Err(Error::new(format!("snapshots of {size} MiB: {most} are the most, so lower {which}")));
        }
        if self.memory.total_size() > config.memory_size_max {
            let (needed, allowed) = (self.memory.total_size().div_ceil(1 << 20), config.memory_size_max >> 20);
            let (largest, size) = self.memory.largest(self.buffers_size);
            let (memory, largest) = ((config.names)(Setting::Memory), (config.names)(largest));
            let what = format!(
                "{} connections and a churn of {}, with what else was asked for, take {needed} MiB, and {allowed} MiB are allowed: \
                 raise {memory}, or lower {largest}, by which {} MiB of it go",
                config.connections_max,
                churn(config),
                size.div_ceil(1 << 20)
            );
            return Err(Error::new(what));
        }
        Ok(())
    }

    /// Checks that the system has addresses for all that the run takes. To be called before anything is written: a run
    /// that finds out later cannot go on.
    ///
    /// # Errors
    ///
    /// The system has not so many addresses left, as where they are limited (`ulimit -v`).
    pub fn check_addresses(&self) -> Result<()> {
        let wanted = addresses_size(&self.memory, (self.shard_count() + self.port_count) as u64);
        if flowpeel_lines::are_addresses_left(wanted) {
            return Ok(());
        }
        let (largest, size) = self.memory.largest(self.buffers_size);
        let name = self.config.names;
        let others = [Setting::Connections, Setting::HalfOpen, Setting::Churn].into_iter();
        let others: Vec<_> = others.filter(|other| *other != largest).map(name).collect();
        let what = format!(
            "{} MiB of memory, and with stacks and mappings {} MiB of addresses, are more than the system gives: lower \
             {}, by which {} MiB of it go, or {}, or raise the limit (ulimit -v)",
            self.memory.total_size().div_ceil(1 << 20),
            wanted.div_ceil(1 << 20),
            name(largest),
            size.div_ceil(1 << 20),
            others.join(" or ")
        );
        Err(Error::new(what))
    }

    /// The plan with a record of every connection that ends, sent to `inlet`. Its other end has to be read as long as
    /// the run continues.
    #[must_use]
    pub fn recording(mut self, inlet: Inlet) -> Self {
        self.records.push(inlet);
        self
    }

    /// Where records of connections go.
    pub(crate) fn records(&self) -> &[Inlet] {
        &self.records
    }

    /// How many connections that end in an interval each partition reports to the list, which writes them as changes; 0
    /// where it does not. As many as the tables are made for.
    pub(crate) fn ends_max(&self) -> usize {
        let wanted = self.config.keeps_list() && self.config.format.changes.is_some();
        if wanted { share(churn(&self.config)) as usize } else { 0 }
    }

    /// The configuration that the plan was made from, with what follows from it: the churn and the half-open
    /// connections are never `None`.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the plan is for a live capture: nothing waits then, and what is lost is counted.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// What ports do when a queue is full.
    pub(crate) fn port_when_full(&self) -> WhenFull {
        if self.polls { WhenFull::DropAtOnce } else { self.when_full() }
    }

    /// What shards do when a queue is full, or where what they need is not there.
    pub(crate) fn when_full(&self) -> WhenFull {
        if self.is_live { WhenFull::Drop } else { WhenFull::Wait }
    }

    /// The memory that the run takes.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// The empty list, with snapshots beside it or instead of it.
    /// The parts of the memory with their names, without those for what was not asked for.
    pub(crate) fn memory_parts(&self) -> Vec<(&'static str, u64)> {
        let is_taken = |(part, _): &(&str, u64)| match *part {
            "sources" => self.config.sources_max.is_some(),
            "translations" => self.config.translations_max.is_some(),
            "events" => self.config.event_log_size > 0,
            "view" => self.config.has_view,
            _ => true,
        };
        self.memory.parts().into_iter().filter(is_taken).collect()
    }

    /// What ends the inspection of every packet at the start, if ports begin with it.
    pub(crate) fn warm_up(&self) -> Option<Arc<WarmUp>> {
        (self.config.warms_up && self.is_live && self.sampled > 0).then(WarmUp::begin)
    }

    /// Whether connections are looked for that come under two names, because both sides of a translation are captured
    /// and nobody says which names belong together.
    pub(crate) fn finds_two_names(&self) -> bool {
        self.is_live && self.port_count > 1 && self.config.translations_max.is_none()
    }

    pub(crate) fn flow_list(&self, watch: Option<&Arc<Watch>>) -> FlowList {
        match &self.snapshots {
            Some(snapshots) if self.config.keeps_list() => FlowList::with_snapshots(&self.list, watch, snapshots),
            Some(snapshots) => FlowList::of_snapshots(&self.list, snapshots),
            None => FlowList::new(&self.list, watch),
        }
    }

    /// The watch that the capture threads and the list share, if there is one.
    pub(crate) fn watch(&self) -> Option<Arc<Watch>> {
        self.watch_count.map(|count| Arc::new(Watch::new(count)))
    }

    /// The openings and closings of an interval that tables are made for.
    #[must_use]
    pub fn churn(&self) -> u64 {
        churn(&self.config)
    }

    /// Whether the churn or the half-open connections, which were not given, are fewer than they would be with more
    /// memory.
    #[must_use]
    pub fn is_lowered(&self) -> bool {
        self.is_lowered
    }

    /// The half-open connections of IPv4 that are kept.
    #[must_use]
    pub fn half_open_count(&self) -> u64 {
        half_open_count(&self.config)
    }

    /// The number of threads that work on partitions.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.config.shards
    }
}

/// What one partition has room for of this many items: its even share and [`PARTITION_DEVIATIONS`] standard deviations.
pub(crate) fn share(count: u64) -> u64 {
    let mean = count / PARTITION_COUNT as u64;
    mean + PARTITION_DEVIATIONS * mean.isqrt() + PARTITION_ITEMS_MIN
}

/// The whole ticks of a time.
fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / TICK_NS as u128).unwrap_or(u64::MAX)
}

/// The openings and closings in an interval that tables are made for, where memory is not short.
pub(super) fn churn(config: &Config) -> u64 {
    config.churn.unwrap_or_else(|| (config.connections_max / CHURN_DIVISOR).max(CHURN_DERIVED_MIN))
}

/// The plan with the largest value, in steps from the lowest to below the highest of `bounds`, that fits; `least` is
/// the plan with the lowest.
fn most_that_fits(least: Plan, bounds: (u64, u64), step: u64, fits: impl Fn(u64) -> Result<Plan>) -> Plan {
    let (lowest, highest) = bounds;
    let (mut plan, mut low, mut high) = (least, 0, highest.saturating_sub(lowest) / step);
    while high > low {
        let middle = low + (high - low).div_ceil(2);
        match fits(lowest + middle * step) {
            Ok(larger) => (plan, low) = (larger, middle),
            Err(_) => high = middle - 1,
        }
    }
    Plan { is_lowered: true, ..plan }
}

/// How many half-open connections there is room for, where memory is not short.
fn half_open_count(config: &Config) -> u64 {
    config.half_open_max.unwrap_or_else(|| half_open_count_default(config))
}

/// How many half-open connections there is room for by default.
fn half_open_count_default(config: &Config) -> u64 {
    (config.connections_max / 2).clamp(HALF_OPEN_MIN, HALF_OPEN_MAX)
}

/// The sampling interval of packets that may be of connections older than the start; 0 where only flags are seen.
fn pickup(config: &Config) -> u32 {
    if config.answer_opens { 0 } else { config.pickup }
}

/// The most connections of a family that a partition is asked about at the end of an interval.
fn inquiry_max(config: &Config) -> usize {
    let seconds = config.every.map_or(0, |every| every.as_secs()).clamp(10, INQUIRY_MAX as u64);
    INQUIRY_MAX.min(INQUIRY_A_SECOND * seconds as usize)
}

/// The configuration of a partition's tracker.
fn tracker(config: &Config) -> TrackerConfig {
    let connections_max = share(config.connections_max);
    let half_open_share = half_open_count(config) / PARTITION_COUNT as u64;
    let candidate_count = half_open_count_default(config) / CANDIDATES_DIVISOR;
    let candidate_share = if pickup(config) == 0 { 0 } else { candidate_count / PARTITION_COUNT as u64 };
    // Entries that are neither established nor new make room for others, closed ones first.
    let [half_open_places, candidate_places] =
        [half_open_share, candidate_share].map(|count| count / HALF_OPEN_PLACES_DIVISOR);
    // Half of the openings and closings are closings.
    let closed_places = share(churn(config).max(CHURN_MIN)) / 2;
    let all = connections_max + half_open_places.max(closed_places) + candidate_places;
    let place_count = (all * 100 / FILTER_LOAD_PERCENT).max(connections_max * 100 / FILTER_ESTABLISHED_PERCENT);
    TrackerConfig {
        secret: config.secret.clone(),
        place_count: place_count as usize,
        half_open_count: half_open_share as usize,
        connections_max,
        syn_timeout_ticks: ticks(config.syn_timeout),
        linger_ticks: LINGER_TICKS,
        one_way_max: if config.one_way { place_count / ONE_WAY_PLACES_DIVISOR } else { 0 },
        presumed_ticks: config.idle_timeout.map_or(PRESUMED_MAX_TICKS, ticks).min(PRESUMED_MAX_TICKS),
        ended_count: if config.answer_opens { 0 } else { ended_count(config) },
        refused: RefusedCounts {
            records: (connections_max / REFUSED_RECORDS_DIVISOR).max(REFUSED_RECORDS_MIN) as usize,
            listed: (connections_max / REFUSED_LISTED_DIVISOR).max(REFUSED_LISTED_MIN) as usize,
        },
        candidate_count: candidate_share as usize,
        candidate_timeout_ticks: CANDIDATE_TIMEOUT_TICKS,
        untracked_ticks: None,
        answer_opens: config.answer_opens,
        fingerprint_bits: config.fingerprint_bits,
    }
}

/// The connections of a partition that have ended and could be open again.
fn ended_count(config: &Config) -> usize {
    (share(config.connections_max) / ENDED_DIVISOR).max(ENDED_MIN) as usize
}

/// The shape of deltas for this churn of a partition.
fn geometry(churn: u64, for_snapshots: bool) -> DeltaGeometry {
    // The tables of snapshots are sums of deltas and have their shape: all changes of an interval have to fit them at
    // once.
    let whole = churn * 100 / SNAPSHOT_LOAD_PERCENT;
    let item_count = if for_snapshots { whole } else { (churn / DELTA_PARTS).max(whole.min(DELTA_ITEMS_MIN)) };
    // A table is handed over before it is full, so half as many cells do for IPv6, which is mostly the lesser part.
    let geometry = DeltaGeometry { v4: Geometry::for_items(item_count), v6: Geometry::for_items(item_count / 2) };
    if !for_snapshots {
        return geometry;
    }
    // Snapshots are folded for comparisons, for which the number of cells needs many divisors.
    DeltaGeometry { v4: geometry.v4.foldable(), v6: geometry.v6.foldable() }
}

fn check(config: &Config) -> Result<()> {
    let must = |setting, what: String| Err(Error::new(format!("{} must be {what}", (config.names)(setting))));
    if !(CONNECTIONS_MIN..=CONNECTIONS_MAX).contains(&config.connections_max) {
        return must(Setting::Connections, format!("from {CONNECTIONS_MIN} to {CONNECTIONS_MAX}"));
    }
    if config.churn.is_some_and(|churn| churn > CONNECTIONS_MAX) {
        return must(Setting::Churn, format!("at most {CONNECTIONS_MAX}"));
    }
    if !(1..=SHARDS_MAX).contains(&config.shards) {
        return must(Setting::Shards, format!("from 1 to {SHARDS_MAX}"));
    }
    if config.half_open_max.is_some_and(|count| !(HALF_OPEN_MIN..=HALF_OPEN_MAX).contains(&count)) {
        return must(Setting::HalfOpen, format!("from {HALF_OPEN_MIN} to {HALF_OPEN_MAX}"));
    }
    if !(1..=SYN_TIMEOUT_MAX_TICKS).contains(&ticks(config.syn_timeout)) {
        let most_s = SYN_TIMEOUT_MAX_TICKS * TICK_NS as u64 / 1_000_000_000;
        return must(Setting::SynTimeout, format!("from 100ms to {most_s}s"));
    }
    config.format.check()?;
    if config.snapshots.as_ref().is_some_and(|snapshots| !is_name(&snapshots.router)) {
        let what = format!("a router's name has at most {ROUTER_NAME_SIZE_MAX} bytes and no control characters");
        return Err(Error::new(what));
    }
    let every_hours_max = EVERY_MAX_DAYS * 24;
    let every = Duration::from_nanos(TICK_NS as u64)..=Duration::from_secs(every_hours_max * 3_600);
    if config.every.is_some_and(|length| !every.contains(&length)) {
        return must(Setting::Every, format!("from 100ms to {EVERY_MAX_DAYS} days ({every_hours_max}h)"));
    }
    if config.pickup > PICKUP_MAX {
        return must(Setting::Pickup, format!("at most {PICKUP_MAX}"));
    }
    if config.sources_max.is_some_and(|sources_max| !(SOURCES_MIN..=SOURCES_MAX).contains(&sources_max)) {
        return must(Setting::Sources, format!("from {SOURCES_MIN} to {SOURCES_MAX}"));
    }
    let longest = Duration::from_secs(EVICTION_TIMEOUT_MAX_DAYS * 86_400);
    let eviction = Duration::from_secs(EVICTION_TIMEOUT_MIN_S)..=longest;
    for (time, setting) in [(config.idle_timeout, Setting::IdleTimeout), (config.max_age, Setting::MaxAge)] {
        if time.is_some_and(|time| !eviction.contains(&time)) {
            return must(setting, format!("from {EVICTION_TIMEOUT_MIN_S}s to {EVICTION_TIMEOUT_MAX_DAYS} days"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
