//! Metrics of a running flowpeel: what happens, how full things are, whether the list is complete and on time.
//!
//! Threads publish their totals at rest points, never per packet. [`Metrics`] makes of them a page in Prometheus' text
//! format, and one line that says what is wrong; [`http`] serves both. No address or port is ever among the metrics,
//! and labels take their values from fixed sets and from the names of the interfaces.

mod captures;
mod cell;
mod durations;
mod events;
mod exposition;
mod families;
mod figures;
mod health;
pub mod http;

pub use captures::{CaptureCell, CaptureCounts};
pub use durations::Durations;
pub use events::EventCounts;
pub use exposition::{Heading, Kind, Samples};
pub use figures::{ListFigures, Load};

use crate::handover::Counts;
use cell::Cell;
use durations::{LatencyReading, Window};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// The facts of a run that are known before the first packet.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The interface of each capture thread. Threads on the same interface are reported as one.
    pub interfaces: Vec<String>,
    /// The most connections that are tracked.
    pub connections_max: u64,
    /// The time from list to list. `None` when there is only one at the end.
    pub interval: Option<Duration>,
    /// The parts of the memory plan, in bytes.
    pub memory: Vec<(&'static str, u64)>,
}

/// The durations that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// The time from a packet's capture until its signal is in the table.
    Signal,
    /// The time to decode one hand-over of one partition.
    Peel,
    /// The time to sort and write one list.
    List,
    /// The time in which a partition did nothing but be copied into a saved state.
    Pause,
}

impl Latency {
    const COUNT: usize = Self::Pause as usize + 1;
}

/// What the list thread published last.
#[derive(Debug, Default)]
struct Lists {
    last: Option<(ListFigures, Instant)>,
    written: u64,
    incomplete: u64,
    failed: u64,
    /// Whether the last attempt to write one failed.
    has_failed: bool,
}

/// Counts of saving the state.
#[derive(Debug, Default)]
struct States {
    saved: AtomicU64,
    failed: AtomicU64,
    /// The size of the last state, in bytes.
    size: AtomicU64,
}

/// The metrics of one run, shared by the threads that publish and those that read.
///
/// # Examples
///
/// ```
/// use flowpeel::list::Header;
/// use flowpeel::metrics::{CaptureCounts, ListFigures, Metrics, Setup};
/// use std::time::Instant;
///
/// let metrics = Metrics::new(Setup { interfaces: vec!["eth0".to_owned()], ..Setup::default() });
/// metrics.capture(0).set_up(true);
/// metrics.capture(0).publish(&CaptureCounts { packets: 12, ..CaptureCounts::default() });
/// let header = Header { complete: true, ..Header::default() };
/// metrics.list(&ListFigures { header, ..ListFigures::default() }, Instant::now());
/// assert!(metrics.exposition(Instant::now()).contains("\nflowpeel_packets_total{interface=\"eth0\"} 12\n"));
/// assert_eq!(metrics.health(Instant::now()), None);
/// ```
#[derive(Debug)]
pub struct Metrics {
    setup: Setup,
    started: Instant,
    started_at: SystemTime,
    captures: Vec<CaptureCell>,
    connections: Cell<{ Counts::COUNT }>,
    filter: Cell<2>,
    lists: Mutex<Lists>,
    latencies: [Mutex<Window>; Latency::COUNT],
    states: States,
    events: Arc<EventCounts>,
    responses: AtomicU64,
    abandoned: AtomicU64,
    /// How often lists and the kernel differed, by the name of the reason; empty where nobody compares them.
    audited: Mutex<Vec<(&'static str, u64)>>,
}

/// The reading of one interface: the sum of its capture threads.
struct InterfaceReading<'a> {
    name: &'a str,
    counts: CaptureCounts,
    is_up: bool,
}

/// All metrics at one moment.
struct Reading<'a> {
    setup: &'a Setup,
    started_at: SystemTime,
    /// The interfaces, each name once, in the order given.
    interfaces: Vec<InterfaceReading<'a>>,
    /// The sum of all interfaces.
    capture: CaptureCounts,
    connections: Counts,
    filter: Load,
    list: Option<ListFigures>,
    /// The time since the last list, or since the start when there was none.
    list_age: Duration,
    lists_written: u64,
    lists_incomplete: u64,
    lists_failed: u64,
    has_failed: bool,
    latencies: [LatencyReading; Latency::COUNT],
    states_saved: u64,
    states_failed: u64,
    state_size: u64,
    events_written: u64,
    events_lost: u64,
    responses: u64,
    abandoned: u64,
    audited: Vec<(&'static str, u64)>,
}

impl Metrics {
    /// Metrics of a run that begins now.
    #[must_use]
    pub fn new(setup: Setup) -> Arc<Self> {
        let started = Instant::now();
        Arc::new(Metrics {
            started,
            started_at: SystemTime::now(),
            captures: setup.interfaces.iter().map(|_| CaptureCell::default()).collect(),
            connections: Cell::default(),
            filter: Cell::default(),
            lists: Mutex::new(Lists::default()),
            latencies: std::array::from_fn(|_| Mutex::new(Window::new(started))),
            states: States::default(),
            events: Arc::default(),
            responses: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            audited: Mutex::default(),
            setup,
        })
    }

    /// Where the capture thread of this index publishes; wait-free.
    ///
    /// # Panics
    ///
    /// [`Setup::interfaces`] has no such place.
    #[must_use]
    pub fn capture(&self, index: usize) -> &CaptureCell {
        &self.captures[index]
    }

    /// The number of the interface of each capture thread: threads on the same interface have the same.
    #[must_use]
    pub fn interface_indices(&self) -> Vec<usize> {
        let names = &self.setup.interfaces;
        names.iter().map(|name| names.iter().position(|first| first == name).unwrap_or_default()).collect()
    }

    /// Where it is counted what becomes of events.
    #[must_use]
    pub fn events(&self) -> &Arc<EventCounts> {
        &self.events
    }

    /// The number of packets that all capture threads have taken in.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.captures.iter().fold(0, |sum, capture| sum.saturating_add(capture.counts().packets))
    }

    /// Replaces the counts of what happened to connections, and how many places of the filters are taken; wait-free.
    pub fn connections(&self, counts: &Counts, filter: Load) {
        self.connections.publish(counts.values());
        self.filter.publish([filter.used, filter.limit]);
    }

    /// Counts a list that was written at `now`, with its figures.
    pub fn list(&self, figures: &ListFigures, now: Instant) {
        let mut lists = self.lists.lock();
        lists.last = Some((*figures, now));
        lists.written += 1;
        lists.incomplete += u64::from(!figures.header.complete && !figures.header.is_warming_up());
        lists.has_failed = false;
    }

    /// Counts a list that could not be written.
    pub fn list_failed(&self) {
        let mut lists = self.lists.lock();
        lists.failed += 1;
        lists.has_failed = true;
    }

    /// Counts a state that was saved in `size` bytes.
    pub fn state_saved(&self, size: u64) {
        self.states.saved.fetch_add(1, Ordering::Relaxed);
        self.states.size.store(size, Ordering::Relaxed);
    }

    /// Counts a state that could not be saved.
    pub fn state_failed(&self) {
        self.states.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a duration. This takes a lock, so on the packet path a thread keeps [`Durations`] of its own instead
    /// and [merges](Self::merge) them.
    pub fn latency(&self, latency: Latency, took: Duration) {
        self.latencies[latency as usize].lock().record(took, Instant::now());
    }

    /// Takes over the durations that a thread recorded for itself, and leaves them empty.
    pub fn merge(&self, latency: Latency, durations: &mut Durations) {
        self.latencies[latency as usize].lock().merge(durations, Instant::now());
    }

    /// Counts a request for these metrics that was answered, with any status.
    pub fn responded(&self) {
        self.responses.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets how often lists and the kernel differed since the start, by the name of the reason.
    pub fn audited(&self, counts: &[(&'static str, u64)]) {
        counts.clone_into(&mut self.audited.lock());
    }

    /// Counts a client that was not answered: it took too long, went away, or had to make room.
    pub fn abandoned(&self) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
    }

    /// All metrics in Prometheus' text format 0.0.4: some kilobytes, however much is tracked.
    #[must_use]
    pub fn exposition(&self, now: Instant) -> String {
        families::exposition(&self.read(now))
    }

    /// What is wrong with the lists, in one line; `None` when they are complete, on time and of all packets. The first
    /// may take its interval and a grace time to come.
    #[must_use]
    pub fn health(&self, now: Instant) -> Option<String> {
        health::problems(&self.read(now))
    }

    fn read(&self, now: Instant) -> Reading<'_> {
        let interfaces = self.interfaces();
        let latencies = std::array::from_fn(|index| self.latencies[index].lock().read(now));
        let [used, limit] = self.filter.load();
        let filter = Load { used, limit };
        let lists = self.lists.lock();
        let last_at = lists.last.map_or(self.started, |(_, at)| at);
        Reading {
            setup: &self.setup,
            started_at: self.started_at,
            capture: interfaces.iter().fold(CaptureCounts::default(), |sum, interface| sum.plus(&interface.counts)),
            interfaces,
            connections: Counts::of_values(self.connections.load()),
            filter,
            list: lists.last.map(|(figures, _)| figures),
            list_age: now.saturating_duration_since(last_at),
            lists_written: lists.written,
            lists_incomplete: lists.incomplete,
            lists_failed: lists.failed,
            has_failed: lists.has_failed,
            latencies,
            events_written: self.events.written.load(Ordering::Relaxed),
            events_lost: self.events.lost.load(Ordering::Relaxed),
            states_saved: self.states.saved.load(Ordering::Relaxed),
            states_failed: self.states.failed.load(Ordering::Relaxed),
            state_size: self.states.size.load(Ordering::Relaxed),
            responses: self.responses.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
            audited: self.audited.lock().clone(),
        }
    }

    /// Every interface once, since two samples under the same labels would make the whole page unreadable.
    fn interfaces(&self) -> Vec<InterfaceReading<'_>> {
        let mut interfaces: Vec<InterfaceReading> = Vec::with_capacity(self.captures.len());
        for (name, capture) in self.setup.interfaces.iter().zip(&self.captures) {
            let (counts, is_up) = (capture.counts(), capture.is_up());
            match interfaces.iter_mut().find(|interface| interface.name == name) {
                Some(interface) => {
                    interface.counts = interface.counts.plus(&counts);
                    interface.is_up |= is_up;
                }
                None => interfaces.push(InterfaceReading { name, counts, is_up }),
            }
        }
        interfaces
    }
}
