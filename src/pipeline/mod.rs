//! The whole path on its threads: capture and parse on the caller's, one thread a shard, one for the lists.
//!
//! What enters: a configuration, captures and an exporter. What leaves: the lists, through the exporter, and a summary.
//! Threads pass their work on through queues. In a replay a full queue makes the thread before it wait, so nothing is
//! lost. Beside the queues they share little: capture threads the handshake cache, capture threads and the list thread
//! the watch, and all threads what is known of saving the state.

mod feeder;
mod intervals;
mod list_thread;
mod live;
mod memory;
mod plan;
mod saving;
mod shard_thread;
mod sizing;
mod source_exchange;
mod summary;

pub use feeder::{CaptureCounts, RECORD_CUT_PACKETS};
pub use live::{LiveObserver, live};
pub use memory::{Memory, STATE_ENTRY_SIZE};
pub use plan::{
    AGE_MAX_LIVE_S, CONNECTIONS_MIN, FILTER_ESTABLISHED_PERCENT, HALF_OPEN_MIN, IDLE_TIMEOUT_LIVE_S, LiveInput,
    PARTITION_DEVIATIONS, PICKUP_LIVE, PICKUP_MAX, Plan,
};
pub use saving::{Position, Saving, SavingCounts, Written};
pub use sizing::{PLAN_SIMULATED_ITEMS_MAX, Sizing, TableSizing};
pub use summary::{Latencies, Summary};

use crate::capture::{PacketSource, Progress, Replay, SkippedPackets};
use crate::error::{Error, Result};
use crate::export::{Exporter, Format};
use crate::hash::Secret;
use crate::pipeline::plan::{CHURN_DEFAULT, CONNECTIONS_DEFAULT, MEMORY_SIZE_DEFAULT, SYN_TIMEOUT_DEFAULT_S};
use crate::queue::{self, Inbox, QUEUE_MARKS_MAX, Writer};
use crate::signal::{FINGERPRINT_BITS, HandshakeCache, PARTITION_COUNT, Signaller, SignallerConfig, Watch};
use crate::snapshot::HandOver;
use crossbeam::channel::{Receiver, Sender};
use feeder::{Feeder, Timekeeper};
use intervals::Intervals;
use list_thread::ListThread;
use saving::Start;
use shard_thread::{Pool, ShardThread};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

/// The most shards: there are no more partitions to work on.
pub const SHARDS_MAX: usize = PARTITION_COUNT;

/// The most intervals that have ended and whose list is not written yet. Beyond this the next end is passed over, and
/// its interval becomes part of the one after it.
pub(crate) const PENDING_INTERVALS_MAX: usize = 4;

/// Packets between two checks whether to stop: even a slow pipe delivers this many in a moment.
pub const STOP_INTERVAL_PACKETS: u64 = 1 << 6;

/// Packets between two reports of progress: some milliseconds.
pub(crate) const OBSERVE_INTERVAL_PACKETS: u64 = 1 << 14;

const _: () = assert!(QUEUE_MARKS_MAX >= 2 * (PENDING_INTERVALS_MAX + 1));

const _: () = assert!(OBSERVE_INTERVAL_PACKETS.is_multiple_of(STOP_INTERVAL_PACKETS));

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The length of an interval, from 100 ms to 366 days. `None` makes a single list at the end.
    pub every: Option<Duration>,
    /// The threads that track connections, from 1 to [`SHARDS_MAX`]. Lists do not depend on it.
    pub shards: usize,
    /// The connections that can be open at once, from [`CONNECTIONS_MIN`] to
    /// [`CONNECTIONS_MAX`](crate::connection::CONNECTIONS_MAX).
    pub connections_max: u64,
    /// The half-open connections of IPv4 that are kept (half as many of IPv6). `None` keeps half as many as
    /// connections, from [`HALF_OPEN_MIN`] to
    /// [`HALF_OPEN_MAX`](crate::connection::HALF_OPEN_MAX).
    pub half_open_max: Option<u64>,
    /// The openings and closings of an interval that can be decoded at once. More are handed over in parts.
    pub churn: u64,
    /// The memory that may be taken, in bytes; see [`Memory`] for what is counted.
    pub memory_size_max: u64,
    /// How long a half-open connection is kept: from 100 ms to ten minutes, in steps of 100 ms.
    pub syn_timeout: Duration,
    /// Whether connections of which only one side is seen are listed.
    pub one_way: bool,
    /// The sampling interval of packets that carry no flag and that no handshake waits for: one in this many is looked
    /// at, to find connections that are older than the start. 0 turns this off.
    pub pickup: u32,
    /// After how long a connection of which nothing is seen is taken off the list. `None` turns this off.
    pub idle_timeout: Option<Duration>,
    /// Whether the capture threads watch for the next packet of a connection that fell silent, as is right for live
    /// capture. Otherwise, with an idle timeout, every packet is looked at, so that lists do not depend on the pace of
    /// threads.
    pub watches: bool,
    /// The age at which a connection is taken off the list. `None` turns this off.
    pub max_age: Option<Duration>,
    /// Whether a SYN-ACK is enough to open a connection, because packets without a flag are not captured. Then nothing
    /// is picked up, and nothing is idle.
    pub answer_opens: bool,
    /// Whether VLAN tags are part of a connection's key.
    pub vlan_key: bool,
    /// How the exporter writes lists; its buffers are part of the memory.
    pub format: Format,
    /// How snapshots are made that the exporter gets at the end of every interval. `None` turns this off.
    pub snapshots: Option<Snapshots>,
    /// The sources of connection attempts that are listed exactly in an interval. `None` turns counting off.
    pub sources_max: Option<u64>,
    /// The memory that an archive takes, in bytes; see [`Plan::recording`].
    pub archive_size: u64,
    /// The secret under which tables are filled.
    pub secret: Secret,
    /// Whether the state is saved; its copies are part of the memory.
    pub saves_state: bool,
    /// The width of the filter's fingerprints in bits: the full 30, or fewer to study collisions.
    pub fingerprint_bits: u32,
}

/// How snapshots are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// The router's name in them; may be empty.
    pub router: String,
    /// The number that tells runs of this router apart. Equal replays have equal numbers.
    pub run: u64,
    /// Whether there is no list beside the snapshots. Then nothing is taken off for being idle or old, because only a
    /// list knows the keys.
    pub replace_lists: bool,
}

impl Config {
    /// Whether a list is kept: always, but where snapshots replace it.
    #[must_use]
    pub fn keeps_list(&self) -> bool {
        self.snapshots.as_ref().is_none_or(|snapshots| !snapshots.replace_lists)
    }
}

impl Default for Config {
    fn default() -> Self {
        // The capture needs a core of its own; more shards than cores would only wait for each other.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            every: None,
            shards: cores.saturating_sub(1).clamp(1, SHARDS_MAX),
            connections_max: CONNECTIONS_DEFAULT,
            half_open_max: None,
            churn: CHURN_DEFAULT,
            memory_size_max: MEMORY_SIZE_DEFAULT,
            syn_timeout: Duration::from_secs(SYN_TIMEOUT_DEFAULT_S),
            one_way: false,
            pickup: 0,
            idle_timeout: None,
            watches: false,
            max_age: None,
            answer_opens: false,
            vlan_key: false,
            format: Format::default(),
            snapshots: None,
            sources_max: None,
            archive_size: 0,
            secret: Secret::REPLAY,
            saves_state: false,
            fingerprint_bits: FINGERPRINT_BITS,
        }
    }
}

/// Watches a run: progress and troubles as they come, and a way to stop it.
pub trait Observer {
    /// Called now and then with how far the present input has been read, and the packets of all inputs so far.
    fn progress(&mut self, _progress: Progress, _packets: u64) {}

    /// Called when an input could not be read, or not to its end. The packets it gave before count, and the next input
    /// follows.
    fn failed(&mut self, _error: &Error, _packets: u64) {}

    /// Called when an input held packets of link types that cannot be read. They are counted as unusable, each in its
    /// interval.
    fn skipped(&mut self, _packets: &SkippedPackets) {}

    /// Whether to stop here; the last list is then of what was read so far.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// An observer that does nothing.
impl Observer for () {}

/// Replays captures in turn, as one stream, and gives the lists to `exporter`. A path of `-` is standard input.
///
/// An input that cannot be read is told to `observer` and in the summary. When nothing could be read at all, there is
/// no list.
///
/// # Errors
///
/// The configuration is invalid, a list could not be written, or a thread not started.
pub fn replay<P: AsRef<Path>>(
    paths: &[P],
    config: &Config,
    exporter: &mut dyn Exporter,
    observer: &mut impl Observer,
) -> Result<Summary> {
    let plan = Plan::new(config)?;
    let inputs = paths.iter().map(|path| Replay::open(path.as_ref()));
    run(&plan, inputs, exporter, observer, None)
}

/// Replays the captures that `inputs` gives, each opened when the one before has been read. See [`replay`].
///
/// With `saving` the state is saved on the way, and the run goes on from what was saved: then `inputs` begin with the
/// [first that is not done with](Saving::first_input), and the lists are the rest of those that a run without the break
/// would have written.
///
/// # Errors
///
/// A list could not be written, or a thread not started. Or the saved state does not fit after all; then nothing was
/// written.
pub fn run<S: PacketSource>(
    plan: &Plan,
    mut inputs: impl Iterator<Item = Result<S>>,
    exporter: &mut dyn Exporter,
    observer: &mut impl Observer,
    saving: Option<Saving>,
) -> Result<Summary> {
    let (pool, returns) = shard_thread::pool(plan);
    let (mut writers, inboxes) = queues(plan);
    let watch = plan.watch();
    let signaller = signallers(plan, watch.as_ref())();
    let mut feeder = Feeder::new(writers.remove(0), signaller, Intervals::new(plan.every_ns));
    if plan.records.is_some() {
        feeder.set_cuts();
    }
    let mut list_thread = ListThread::new(plan, watch.as_ref(), exporter, returns, &|_, _, _| ());
    let has_failed = AtomicBool::new(false);
    let (hand_overs, lists) = hand_overs(plan);
    let mut shards = shards(plan, inboxes, &pool, hand_overs);
    let began = saving.map(|saving| saving.begin_replay(&mut feeder, &mut shards, &mut list_thread)).transpose()?;
    let (start, writer) = began.unzip();
    let Start { input, packets: mut skipped, mut errors } = start.unwrap_or_default();
    let first = inputs.by_ref().take(usize::from(skipped > 0)).next();
    let first = first.map(|source| skip(source?, skipped, observer)).transpose()?;
    std::thread::scope(|scope| {
        for (index, shard) in shards.into_iter().enumerate() {
            spawn(scope, format!("shard-{index}"), move || shard.run(()))?;
        }
        let failed = &has_failed;
        let lists = spawn(scope, "lists".to_owned(), move || list_thread.run(lists, failed))?;
        let writer = writer.map(|writer| spawn(scope, "state".to_owned(), || writer.run())).transpose()?;
        for (input, index) in first.into_iter().map(Ok).chain(inputs).zip(input..) {
            let packets_before = feeder.packets();
            feeder.begin_input(index, std::mem::take(&mut skipped), &errors);
            let read = input.and_then(|mut source| feed(&mut feeder, &mut source, observer, &has_failed));
            if let Err(error) = read {
                observer.failed(&error, feeder.packets() - packets_before);
                errors.push(error);
            }
            if has_failed.load(Ordering::Relaxed) || observer.is_stopped() {
                break;
            }
        }
        let counts = feeder.finish(errors.is_empty());
        let told = join(lists);
        let written = writer.map(join);
        Ok(Summary::new(counts, told?, errors).with_saving(written))
    })
}

/// Waits for a thread and returns its result; its panic becomes this thread's.
fn join<T>(thread: ScopedJoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The shards with their inboxes, not on their threads yet. They own all senders to the list, so the list ends when
/// they have.
fn shards(plan: &Plan, inboxes: Vec<Inbox>, pool: &Pool, hand_overs: Sender<HandOver>) -> Vec<ShardThread> {
    let shard = |(index, inbox)| ShardThread::new(plan, index, inbox, pool.clone(), hand_overs.clone());
    inboxes.into_iter().enumerate().map(shard).collect()
}

/// The shard that owns a partition.
fn shard_of(partition: usize, shard_count: usize) -> usize {
    partition % shard_count
}

/// The partitions of the shard at `index`, in order.
fn partitions_of(index: usize, shard_count: usize) -> impl Iterator<Item = usize> {
    (0..PARTITION_COUNT).filter(move |partition| shard_of(*partition, shard_count) == index)
}

/// The queues from every capture thread to every shard: the writers of each capture thread, and the inbox of each
/// shard.
fn queues(plan: &Plan) -> (Vec<Vec<Writer>>, Vec<Inbox>) {
    let mut captures: Vec<Vec<Writer>> = (0..plan.capture_count).map(|_| Vec::new()).collect();
    let inboxes = (0..plan.shard_count()).map(|_| {
        let (writers, inbox) = queue::queues(plan.capture_count, plan.when_full());
        captures.iter_mut().zip(writers).for_each(|(capture, writer)| capture.push(writer));
        inbox
    });
    let inboxes = inboxes.collect();
    (captures, inboxes)
}

/// A factory of signallers, one for each capture thread. They share one handshake cache, and the watch if there is one.
fn signallers<'a>(plan: &Plan, watch: Option<&'a Arc<Watch>>) -> impl Fn() -> Signaller + 'a {
    let config = plan.config();
    // The plan has checked that it is minutes at most.
    let syn_timeout_ns = config.syn_timeout.as_nanos() as i64;
    let cache = HandshakeCache::new(plan.handshake_count, syn_timeout_ns);
    let cache = Arc::new(if plan.capture_count == 1 { cache.for_one_thread() } else { cache });
    let config = SignallerConfig {
        secret: config.secret.clone(),
        vlan_key: config.vlan_key,
        // Where a SYN-ACK opens a connection, no packet of either side is waited for.
        one_way: config.one_way && !config.answer_opens,
        syn_timeout_ns,
        pickup: plan.sampled,
        answer_opens: config.answer_opens,
        seen_syn_count: plan.seen_syn_count,
    };
    move || Signaller::new(config.clone(), Arc::clone(&cache), watch.cloned())
}

/// The channel from the shards to the list. It has room for all deltas that can be under way, and for the ends of all
/// intervals that can be pending, so a shard of a live capture never waits here.
fn hand_overs(plan: &Plan) -> (Sender<HandOver>, Receiver<HandOver>) {
    crossbeam::channel::bounded((PENDING_INTERVALS_MAX + 2 + plan.spare_count) * PARTITION_COUNT)
}

/// Starts a thread whose name tells an operator what it is busy with.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new()
        .name(name)
        .spawn_scoped(scope, work)
        .map_err(|error| Error::new("cannot start a thread").because(error))
}

/// Passes over the packets of a source that another run has been fed.
///
/// # Errors
///
/// The source has fewer packets.
fn skip<S: PacketSource>(mut source: S, packets: u64, observer: &impl Observer) -> Result<S> {
    for count in 0..packets {
        if source.next_packet()?.is_none() {
            let what =
                format!("the state was saved behind its packet {packets}, and it has {count}: it has changed since");
            return Err(Error::new(what));
        }
        if count.is_multiple_of(STOP_INTERVAL_PACKETS) && observer.is_stopped() {
            break;
        }
    }
    Ok(source)
}

/// Feeds a source to its end, or to where it breaks off.
fn feed(
    feeder: &mut Feeder<Intervals>,
    source: &mut impl PacketSource,
    observer: &mut impl Observer,
    has_failed: &AtomicBool,
) -> Result<()> {
    let mut read = Ok(true);
    let mut fed = 0;
    while let Ok(true) = read
        && !observer.is_stopped()
        && !has_failed.load(Ordering::Relaxed)
    {
        read = feed_some(feeder, source).map(|count| count == STOP_INTERVAL_PACKETS);
        feeder.cut_if_due();
        fed += STOP_INTERVAL_PACKETS;
        if fed.is_multiple_of(OBSERVE_INTERVAL_PACKETS) {
            observer.progress(source.progress(), feeder.packets());
        }
    }
    if let Some(skipped) = source.skipped() {
        observer.skipped(skipped);
    }
    read.map(|_| ())
}

/// Feeds up to [`STOP_INTERVAL_PACKETS`], as far as the source has more for now, and returns how many.
#[inline(always)]
fn feed_some<T: Timekeeper>(feeder: &mut Feeder<T>, source: &mut impl PacketSource) -> Result<u64> {
    source.each_packet(STOP_INTERVAL_PACKETS, |packet| feeder.packet(packet))
}
