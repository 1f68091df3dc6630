//! The whole path on its threads: capture and parse on the caller's, one thread a shard, one for the lists.
//!
//! What enters: a configuration, captures and an exporter. What leaves: the lists, through the exporter, and a summary.
//! Threads share nothing but the queues between them, and a full queue makes the one before it wait, so a replay loses
//! nothing.

mod feeder;
mod intervals;
mod list_thread;
mod plan;
mod shard_thread;
mod summary;

pub use plan::{Memory, Plan};
pub use summary::{Latencies, Summary};

use crate::capture::{PacketSource, Progress, Replay, SkippedPackets};
use crate::config::{
    CHURN_DEFAULT, CONNECTIONS_DEFAULT, FINGERPRINT_BITS, MEMORY_SIZE_DEFAULT, OBSERVE_INTERVAL_PACKETS,
    PARTITION_COUNT, SHARDS_MAX, STOP_INTERVAL_PACKETS, SYN_TIMEOUT_DEFAULT_S,
};
use crate::error::{Error, Result};
use crate::export::Exporter;
use crate::hash::Secret;
use crate::queue;
use crate::shard::{Partition, Shard};
use crate::signal::{HandshakeCache, Signaller, SignallerConfig};
use feeder::Feeder;
use list_thread::ListThread;
use shard_thread::Pool;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

/// How flowpeel is to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The length of an interval of capture time, from 100 ms to 366 days; without one there is a single list at the
    /// end.
    pub every: Option<Duration>,
    /// The threads that track connections, from 1 to [`SHARDS_MAX`]. Lists do not depend on it.
    pub shards: usize,
    /// The connections that can be open at once, from [`CONNECTIONS_MIN`](crate::config::CONNECTIONS_MIN) to
    /// [`CONNECTIONS_MAX`](crate::config::CONNECTIONS_MAX).
    pub connections_max: u64,
    /// The openings and closings of an interval that can be decoded at once. More are handed over in parts.
    pub churn: u64,
    /// The memory that may be taken, in bytes; see [`Memory`] for what is counted.
    pub memory_size_max: u64,
    /// How long a half-open connection is kept: from 100 ms to ten minutes, in steps of 100 ms.
    pub syn_timeout: Duration,
    /// Whether connections of which only one side is seen are to be listed.
    pub one_way: bool,
    /// Whether VLAN tags are part of a connection's key.
    pub vlan_key: bool,
    /// The secret under which tables are filled.
    pub secret: Secret,
    /// The width of the filter's fingerprints: the full 30 bits, or fewer to study what goes wrong then.
    pub fingerprint_bits: u32,
}

impl Default for Config {
    fn default() -> Self {
        // The capture needs a core of its own; more shards than cores would only wait for each other.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            every: None,
            shards: cores.saturating_sub(1).clamp(1, SHARDS_MAX),
            connections_max: CONNECTIONS_DEFAULT,
            churn: CHURN_DEFAULT,
            memory_size_max: MEMORY_SIZE_DEFAULT,
            syn_timeout: Duration::from_secs(SYN_TIMEOUT_DEFAULT_S),
            one_way: false,
            vlan_key: false,
            secret: Secret::REPLAY,
            fingerprint_bits: FINGERPRINT_BITS,
        }
    }
}

/// Watches a run: progress and troubles as they come, and a way to stop it.
pub trait Observer {
    /// Called every so often: how far the present input has been read, and the packets of all inputs so far.
    fn progress(&mut self, _progress: Progress, _packets: u64) {}

    /// An input could not be read, or not to its end. The packets it gave before count, and the next input follows.
    fn failed(&mut self, _error: &Error, _packets: u64) {}

    /// An input held packets of link types that can not be read, beside others that could. They are counted as unusable.
    fn skipped(&mut self, _packets: &SkippedPackets) {}

    /// Whether to stop here: the list of what was read is then the last.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Watches nothing.
impl Observer for () {}

/// Replays captures in turn, as one stream, and gives the lists to `exporter`. A path of `-` is standard input.
///
/// An input that can not be read is told to `observer` and in the summary; when nothing could be read at all, there is no
/// list.
///
/// # Errors
///
/// The configuration does not hold together, a list could not be written, or a thread not started.
pub fn replay<P: AsRef<Path>>(
    paths: &[P],
    config: &Config,
    exporter: &mut dyn Exporter,
    observer: &mut impl Observer,
) -> Result<Summary> {
    let plan = Plan::new(config)?;
    let inputs = paths.iter().map(|path| Replay::open(path.as_ref()));
    run(&plan, config, inputs, exporter, observer)
}

/// Replays the captures that `inputs` gives, each opened when the one before has been read. `config` is what `plan` was
/// made from. See [`replay`].
///
/// # Errors
///
/// A list could not be written, or a thread not started.
pub fn run<S: PacketSource>(
    plan: &Plan,
    config: &Config,
    inputs: impl Iterator<Item = Result<S>>,
    exporter: &mut dyn Exporter,
    observer: &mut impl Observer,
) -> Result<Summary> {
    let (pool, returns) = shard_thread::pool(plan);
    let (writers, readers): (Vec<_>, Vec<_>) = (0..plan.shard_count()).map(|_| queue::queue()).unzip();
    // The plan has checked that it is minutes at most.
    let syn_timeout_ns = config.syn_timeout.as_nanos() as i64;
    let signaller_config = SignallerConfig {
        secret: config.secret.clone(),
        vlan_key: config.vlan_key,
        one_way: config.one_way,
        syn_timeout_ns,
    };
    let cache = Arc::new(HandshakeCache::new(plan.handshake_count, syn_timeout_ns));
    let signaller = Signaller::new(signaller_config, cache);
    let mut feeder = Feeder::new(writers, signaller, plan.every_ns);
    let list_thread = ListThread::new(plan, exporter, returns);
    let has_failed = AtomicBool::new(false);
    let (hand_overs, lists) = crossbeam::channel::bounded(2 * PARTITION_COUNT);
    std::thread::scope(|scope| {
        for (index, reader) in readers.into_iter().enumerate() {
            let partitions = (index..PARTITION_COUNT).step_by(plan.shard_count());
            let shard = Shard::new(partitions.map(|index| Partition::new(index, &plan.partition)).collect());
            let pool: Pool = pool.clone();
            let hand_overs = hand_overs.clone();
            spawn(scope, format!("shard-{index}"), move || shard_thread::run(shard, reader, pool, hand_overs))?;
        }
        drop(hand_overs);
        let lists = spawn(scope, "lists".to_owned(), || list_thread.run(&lists, &has_failed))?;
        let mut errors = Vec::new();
        for input in inputs {
            let packets_before = feeder.packets();
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
        match lists.join() {
            Ok(told) => Ok(Summary::new(counts, told?, errors)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
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
        .map_err(|error| Error::new("can not start a thread").because(error))
}

/// Feeds a source to its end, or to where it breaks off.
fn feed(
    feeder: &mut Feeder,
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
        read = feed_some(feeder, source);
        fed += STOP_INTERVAL_PACKETS;
        if fed.is_multiple_of(OBSERVE_INTERVAL_PACKETS) {
            observer.progress(source.progress(), feeder.packets());
        }
    }
    if let Some(skipped) = source.skipped().filter(|_| read.is_ok()) {
        feeder.skip(skipped.total_count());
        observer.skipped(skipped);
    }
    read.map(|_| ())
}

/// Feeds a few packets; whether there are more.
#[inline]
fn feed_some(feeder: &mut Feeder, source: &mut impl PacketSource) -> Result<bool> {
    for _ in 0..STOP_INTERVAL_PACKETS {
        match source.next_packet()? {
            Some(packet) => feeder.packet(&packet),
            None => return Ok(false),
        }
    }
    Ok(true)
}
