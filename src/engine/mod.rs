//! The engine: connections tracked on its threads, from the packets that its ports are given.
//!
//! A [`Port`] parses packets on the caller's thread and sends signals to the shards through queues. Each shard runs on a thread of its
//! own, and so do the lists. With packets' own time a full queue makes the port wait, so nothing is lost and equal packets make equal
//! lists. Beside the queues threads share little: ports the handshake cache, ports and the list thread the watch, and all
//! threads what is known of saving the state.

mod config;
mod list_thread;
mod lockstep;
mod memory;
mod packet_time;
mod plan;
mod port;
mod saving;
mod shard_thread;
mod sizing;
mod source_exchange;
mod summary;
mod wall_clock;
mod wall_time;

pub use crate::metrics::CaptureCounts;
pub use config::{Config, Snapshots};
pub use lockstep::{LocalExchange, Lockstep, LockstepConfig};
pub use memory::{Memory, STATE_ENTRY_SIZE};
pub use plan::{
    AGE_MAX_LIVE_S, CONNECTIONS_MIN, FILTER_ESTABLISHED_PERCENT, HALF_OPEN_MIN, IDLE_TIMEOUT_LIVE_S, LiveInput,
    PARTITION_DEVIATIONS, PICKUP_LIVE, PICKUP_MAX, Plan,
};
pub use port::RECORD_CUT_PACKETS;
pub use saving::{Position, Saving, SavingCounts, Written};
pub use sizing::{PLAN_SIMULATED_ITEMS_MAX, Sizing, TableSizing};
pub use summary::{Latencies, Summary};

pub(crate) use list_thread::{ListThread, ListTotals};
pub(crate) use packet_time::PacketTime;
pub(crate) use port::{Marks, Port, Timekeeper};
pub(crate) use saving::{ResumedClock, Start};
pub(crate) use shard_thread::{Pool, ShardThread, Timing, pool};
pub(crate) use wall_clock::{Clocks, Pacer};
pub(crate) use wall_time::WallTime;

use crate::error::{Error, Result};
use crate::queue::{self, Inbox, QUEUE_MARKS_MAX, Writer};
use crate::signal::{HandshakeCache, PARTITION_COUNT, Signaller, SignallerConfig, Watch};
use crate::snapshot::HandOver;
use crossbeam::channel::{Receiver, Sender};
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// The most shards: there are no more partitions to work on.
pub const SHARDS_MAX: usize = PARTITION_COUNT;

/// The most intervals that have ended and whose list is not written yet. Beyond this the next end is passed over, and
/// its interval becomes part of the one after it.
pub(crate) const PENDING_INTERVALS_MAX: usize = 4;

const _: () = assert!(QUEUE_MARKS_MAX >= 2 * (PENDING_INTERVALS_MAX + 1));

/// Waits for a thread and returns its result; its panic becomes this thread's.
pub(crate) fn join<T>(thread: ScopedJoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The shards with their inboxes, not on their threads yet. They own all senders to the list, so the list ends when
/// they have.
pub(crate) fn shards(plan: &Plan, inboxes: Vec<Inbox>, pool: &Pool, hand_overs: Sender<HandOver>) -> Vec<ShardThread> {
    let shard = |(index, inbox)| ShardThread::new(plan, index, inbox, pool.clone(), hand_overs.clone());
    inboxes.into_iter().enumerate().map(shard).collect()
}

/// The shard that owns a partition.
pub(crate) fn shard_of(partition: usize, shard_count: usize) -> usize {
    partition % shard_count
}

/// The partitions of the shard at `index`, in order.
pub(crate) fn partitions_of(index: usize, shard_count: usize) -> impl Iterator<Item = usize> {
    (0..PARTITION_COUNT).filter(move |partition| shard_of(*partition, shard_count) == index)
}

/// The queues from every capture thread to every shard: the writers of each capture thread, and the inbox of each
/// shard.
pub(crate) fn queues(plan: &Plan) -> (Vec<Vec<Writer>>, Vec<Inbox>) {
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
pub(crate) fn signallers<'a>(plan: &Plan, watch: Option<&'a Arc<Watch>>) -> impl Fn() -> Signaller + 'a {
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
pub(crate) fn hand_overs(plan: &Plan) -> (Sender<HandOver>, Receiver<HandOver>) {
    crossbeam::channel::bounded((PENDING_INTERVALS_MAX + 2 + plan.spare_count) * PARTITION_COUNT)
}

/// Starts a thread whose name tells an operator what it is busy with.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new()
        .name(name)
        .spawn_scoped(scope, work)
        .map_err(|error| Error::new("cannot start a thread").because(error))
}
