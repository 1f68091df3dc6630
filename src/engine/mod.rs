//! The engine: connections tracked on its threads, from the packets that its ports are given.
//!
//! A router makes an [`Engine`] from a [`Config`], gets a [`Port`] for each of its threads, and pushes packets into it:
//! frames, or TCP headers where it has parsed them already. What comes out goes to a [`Sink`], on threads of the
//! engine's: the list of open connections at the end of each interval, [events](Event) as connections open and close,
//! and [`Counters`].
//!
//! # Time
//!
//! There are two kinds of time.
//!
//! - **The wall clock** ([`Engine::live`]), for a router. Intervals end at multiples of their length by the engine's
//!   clock; a packet belongs to the interval of its time stamp. Nothing ever waits: what a full queue cannot take is
//!   dropped and counted, in the list's header too, which is then not complete. A port that has nothing to take in says
//!   so ([`Port::idle`]); one that says nothing holds up the end of an interval for a quarter of a second and no
//!   longer, and what it takes in afterwards counts in the next interval. Packets may lag behind the clock by up to a
//!   second. A port whose packets are stamped by another clock says so ([`Port::set_own_clock`]).
//! - **Packets' own time** ([`Engine::replay`]), for captures and tests. There is one port. It waits where a queue is
//!   full, and the same packets always make the same lists and events. A [packet](crate::capture::Packet) names the
//!   clock that stamped it, where there are several.
//!
//! # Examples
//!
//! The connections of a capture, pushed frame by frame. A router does the same with [`Engine::live`] and
//! [`Config::live`], one port for each of its threads.
//!
//! ```
//! use flowpeel::capture::{PacketSource, Replay};
//! use flowpeel::engine::{Config, Engine, EventKind, Events, Sink};
//! use flowpeel::list::List;
//! use std::sync::mpsc;
//!
//! let (listed, lists) = mpsc::channel();
//! let (happened, events) = mpsc::channel();
//! let sink = Sink::lists(move |list: &List| {
//!     let open: Vec<_> = list.rows().map(|row| (row.client, row.server, row.state.name())).collect();
//!     listed.send(open).map_err(|_| flowpeel::error::Error::new("nobody reads the lists"))
//! })
//! .events(move |batch: &Events| batch.events.iter().for_each(|event| drop(happened.send(event.kind))));
//!
//! let (engine, mut port) = Engine::replay(&Config::default(), sink)?;
//! let mut capture = Replay::open("pcaps/ssh.pcap".as_ref())?;
//! while let Some(packet) = capture.next_packet()? {
//!     port.frame(packet.time_ns, packet.link, packet.bytes);
//! }
//! drop(port);
//! let summary = engine.stop()?;
//!
//! let open = lists.recv().unwrap();
//! assert_eq!((open.len(), open[0].1.port(), open[0].2), (1, 2222, "established"));
//! assert_eq!(events.iter().filter(|kind| *kind == EventKind::Opened).count() as u64, summary.counts.opened);
//! # Ok::<(), flowpeel::error::Error>(())
//! ```
//!
//! # Threads
//!
//! A port parses packets on the caller's thread and sends signals to the shards through queues. Each shard has a
//! thread, and so have the lists, the clock and the events. Beside the queues threads share little: ports the handshake
//! cache, ports and the list thread the watch, and all threads what is known of saving the state.

mod config;
mod events;
mod list_thread;
mod lockstep;
mod memory;
mod packet_time;
mod plan;
mod port;
mod publish;
mod saving;
mod shard_thread;
mod sizing;
mod source_exchange;
mod summary;
mod threads;
mod wall_clock;
mod wall_time;

pub use crate::metrics::CaptureCounts;
pub use config::{Config, Setting, Snapshots};
pub use events::{Event, EventKind, Events};
pub use lockstep::{LocalExchange, Lockstep, LockstepConfig};
pub use memory::{Memory, STATE_ENTRY_SIZE};
pub use packet_time::PacketTime;
pub use plan::{
    AGE_MAX_LIVE_S, CONNECTIONS_MIN, FILTER_ESTABLISHED_PERCENT, HALF_OPEN_MIN, IDLE_TIMEOUT_LIVE_S, LiveInput,
    PARTITION_DEVIATIONS, PICKUP_LIVE, PICKUP_MAX, Plan,
};
pub use port::{Port, RECORD_CUT_PACKETS};
pub use publish::Counters;
pub use saving::{Position, Saving, SavingCounts, Written};
pub use sizing::{PLAN_SIMULATED_ITEMS_MAX, Sizing, TableSizing};
pub use summary::{Latencies, Summary};
pub use wall_time::WallTime;

pub(crate) use list_thread::Lists;
pub(crate) use port::Timekeeper;
pub(crate) use saving::Start;
pub(crate) use threads::{FinishAtEnd, Outputs, Threads, join, spawn};

use crate::error::{Error, Result};
use crate::export::Exporter;
use crate::metrics::Metrics;
use crate::queue::{QUEUE_MARKS_MAX, WhenFull};
use crate::record;
use crate::signal::PARTITION_COUNT;
use events::{EventThread, OnEvents};
use port::Totals;
use publish::OnCounters;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use wall_clock::Schedule;

/// The most shards: there are no more partitions to work on.
pub const SHARDS_MAX: usize = PARTITION_COUNT;

/// The most intervals that have ended and whose list is not written yet. Beyond this the next end is passed over, and
/// its interval becomes part of the one after it.
pub(crate) const PENDING_INTERVALS_MAX: usize = 4;

const _: () = assert!(QUEUE_MARKS_MAX >= 2 * (PENDING_INTERVALS_MAX + 1));

/// The shard that owns a partition.
pub(crate) fn shard_of(partition: usize, shard_count: usize) -> usize {
    partition % shard_count
}

/// The partitions of the shard at `index`, in order.
pub(crate) fn partitions_of(index: usize, shard_count: usize) -> impl Iterator<Item = usize> {
    (0..PARTITION_COUNT).filter(move |partition| shard_of(*partition, shard_count) == index)
}

/// What is called with the counters at the end of each interval.
pub(crate) type CountersCall = Box<dyn FnMut(&Counters) + Send>;

/// Where the output of an engine goes. Everything is called on threads of the engine's: lists and counters on one,
/// events on another. What takes long there costs no packet: lists that are late are merged, and events that find no
/// room are counted.
pub struct Sink {
    lists: Box<dyn Exporter>,
    events: Option<OnEvents>,
    counters: Option<CountersCall>,
}

impl Sink {
    /// A sink that takes the list at the end of each interval, as a function of a [`List`](crate::list::List) or
    /// any other exporter does.
    #[must_use]
    pub fn lists(exporter: impl Exporter + 'static) -> Self {
        Sink { lists: Box::new(exporter), events: None, counters: None }
    }

    /// The sink that also takes events, some at a time, in order. By packets' own time they come at places that depend
    /// on the packets alone; by the wall clock no more than about a second late.
    #[must_use]
    pub fn events(self, on_events: impl FnMut(&Events) + Send + 'static) -> Self {
        Sink { events: Some(Box::new(on_events)), ..self }
    }

    /// The sink that also takes all counters, behind each list.
    #[must_use]
    pub fn counters(self, on_counters: impl FnMut(&Counters) + Send + 'static) -> Self {
        Sink { counters: Some(Box::new(on_counters)), ..self }
    }

    /// The outputs of an engine with this plan, and the plan with what records events.
    fn outputs(self, plan: Plan) -> (Outputs<'static>, Plan) {
        let Sink { lists, events, counters } = self;
        let (inlet, outlet) = record::queue(plan.when_full());
        let inlet = inlet.of_events(true);
        let events_dropped = inlet.dropped();
        let on_counters =
            |call| OnCounters { call, port_count: plan.port_count, events_dropped: Arc::clone(&events_dropped) };
        let counters = counters.map(on_counters);
        let sorts = plan.when_full() == WhenFull::Wait;
        let thread = |on_events| EventThread::new(outlet, Arc::clone(&events_dropped), on_events, sorts);
        let (plan, events) = match events {
            Some(on_events) => (plan.recording(inlet), Some(thread(on_events))),
            None => (plan, None),
        };
        (Outputs { counters, events, ..Outputs::of_lists(Lists::Owned(lists)) }, plan)
    }
}

/// A running engine. When it is dropped it stops.
pub struct Engine {
    thread: Option<JoinHandle<Result<Summary>>>,
    /// The schedule of ports on the wall clock.
    schedule: Option<Arc<Schedule>>,
    has_failed: Arc<AtomicBool>,
    totals: Arc<Totals>,
    metrics: Arc<Metrics>,
}

impl Engine {
    /// Starts an engine with so many ports that go by the wall clock. The configuration needs the length of an
    /// interval; [`Config::live`] suits most.
    ///
    /// # Errors
    ///
    /// A value is out of its range, the memory does not suffice, or a thread could not be started.
    pub fn live(config: &Config, port_count: usize, sink: Sink) -> Result<(Self, Vec<Port>)> {
        let (outputs, plan) = sink.outputs(Plan::ports(config, port_count)?);
        plan.check_addresses()?;
        let metrics = publish::metrics(&plan, (0..plan.port_count).map(|index| format!("port{index}")).collect());
        let (threads, ports, schedule) = Threads::live(&plan, outputs, &metrics, None)?;
        (0..ports.len()).for_each(|index| metrics.capture(index).set_up(true));
        Ok((Engine::start(threads, Some(schedule), metrics)?, ports))
    }

    /// Starts an engine with one port that goes by its packets' time. The port has to be dropped before the engine is
    /// stopped.
    ///
    /// # Errors
    ///
    /// A value is out of its range, the memory does not suffice, or a thread could not be started.
    pub fn replay(config: &Config, sink: Sink) -> Result<(Self, Port<PacketTime>)> {
        let (outputs, plan) = sink.outputs(Plan::new(config)?);
        plan.check_addresses()?;
        let metrics = publish::metrics(&plan, vec!["port0".to_owned()]);
        let (threads, port, _) = Threads::replay(&plan, outputs, Some(&metrics), None)?;
        Ok((Engine::start(threads, None, metrics)?, port))
    }

    fn start(threads: Threads<'static>, schedule: Option<Arc<Schedule>>, metrics: Arc<Metrics>) -> Result<Self> {
        let (has_failed, totals) = (threads.has_failed(), threads.totals());
        let (started, is_started) = mpsc::channel();
        let work = move || {
            std::thread::scope(|scope| {
                let running = threads.start(scope);
                let _ = started.send(running.is_ok());
                running?.join(Vec::new())
            })
        };
        let thread = Builder::new().name("engine".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Error::new("cannot start a thread").because(error))?;
        let engine = Engine { thread: Some(thread), schedule, has_failed, totals, metrics };
        match is_started.recv() {
            Ok(true) => Ok(engine),
            // The others end when the ports are dropped, as they are behind this.
            _ => Err(Error::new("cannot start a thread")),
        }
    }

    /// Whether a list could not be written: nothing comes out any more, and [`Self::stop`] returns the reason.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// The metrics of the engine, which can be [served](crate::metrics::http) over HTTP.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Ends the last interval, waits for its list, and sums up. By the wall clock ports may still be there: what they
    /// take in from now on is of no list. By packets' own time the last interval ended when the port was dropped.
    ///
    /// # Errors
    ///
    /// A list could not be written. Or the port that goes by its packets' time has not been dropped; then the engine
    /// ends with the port, and its summary is lost.
    ///
    /// # Panics
    ///
    /// A function of the sink has panicked.
    pub fn stop(mut self) -> Result<Summary> {
        if self.schedule.is_none() && self.totals.has_open_ports() {
            return Err(Error::new("the port is still in use: drop it before the engine is stopped"));
        }
        self.end().unwrap_or_else(|| Err(Error::new("the engine has been stopped")))
    }

    fn end(&mut self) -> Option<Result<Summary>> {
        self.schedule.iter().for_each(|schedule| schedule.finish());
        let thread = self.thread.take()?;
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let can_end = self.schedule.is_some() || !self.totals.has_open_ports();
        if can_end && let Some(thread) = self.thread.take() {
            self.schedule.iter().for_each(|schedule| schedule.finish());
            // Whoever drops an engine does not want to know how it ended.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests;
