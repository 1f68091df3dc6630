//! The threads behind the ports: one for each shard, one for the lists, and where they are needed the clock, the writer
//! of states, and the one that reports events.

use super::events::EventThread;
use super::list_thread::{ListThread, ListTotals, Lists, OnList};
use super::port::{Port, Totals};
use super::publish::{self, OnCounters, ShardTiming};
use super::saving::{self, ResumedClock, Saving, SavingCounts, Start, Written};
use super::shard_thread::{self, Pool, ShardThread};
use super::wall_clock::{Clocks, Schedule, WallClock};
use super::{PENDING_INTERVALS_MAX, PacketTime, Plan, Summary, WallTime};
use crate::error::{Error, Result};
use crate::handover::HandOver;
use crate::list::{FlowList, Header, TranslationSource};
use crate::metrics::{CaptureCounts, Latency, Metrics};
use crate::queue::{self, ClockWriter, Inbox, Writer};
use crate::signal::{HandshakeCache, PARTITION_COUNT, RecentEnds, Signaller, SignallerConfig, TwoNames, Watch};
use crossbeam::channel::{Receiver, Sender};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// What is called on the threads of an engine.
pub(crate) struct Outputs<'a> {
    /// Where lists go.
    pub(crate) lists: Lists<'a>,
    /// Called when an interval was listed.
    pub(crate) listed: Box<dyn FnMut(&Header) + Send + 'a>,
    /// Called when the state was saved, or could not be.
    pub(crate) saved: Box<dyn Fn(Written) + Send + 'a>,
    /// Where the names of translated connections come from.
    pub(crate) translations: Option<Arc<dyn TranslationSource>>,
    /// Whether the first interval lasts until [`Schedule::begin`] is called.
    pub(crate) is_held: bool,
    /// Called with all counters at the end of each interval.
    pub(crate) counters: Option<OnCounters>,
    /// What reports events.
    pub(crate) events: Option<EventThread>,
}

impl<'a> Outputs<'a> {
    /// Lists alone.
    pub(crate) fn of_lists(lists: Lists<'a>) -> Self {
        Outputs {
            lists,
            listed: Box::new(|_| ()),
            saved: Box::new(|_| ()),
            translations: None,
            is_held: false,
            counters: None,
            events: None,
        }
    }
}

/// The queues between the ports of a live engine and its shards.
struct TimedQueues {
    /// For each port, one to each shard.
    writers: Vec<Vec<Writer>>,
    /// One to each shard, for the clock.
    clock_writers: Vec<ClockWriter>,
    /// One for each shard.
    inboxes: Vec<Inbox>,
}

impl TimedQueues {
    fn new(plan: &Plan) -> Self {
        let mut writers: Vec<Vec<Writer>> = (0..plan.port_count).map(|_| Vec::new()).collect();
        let (mut clock_writers, mut inboxes) = (Vec::new(), Vec::new());
        for _ in 0..plan.shard_count() {
            let (shard_writers, clock_writer, inbox) = queue::timed_queues(plan.port_count, plan.port_when_full());
            writers.iter_mut().zip(shard_writers).for_each(|(port, writer)| port.push(writer));
            clock_writers.push(clock_writer);
            inboxes.push(inbox);
        }
        TimedQueues { writers, clock_writers, inboxes }
    }
}

/// Publishes each list of a live engine.
fn publishing<'a>(
    schedule: Arc<Schedule>,
    metrics: Arc<Metrics>,
    mut listed: Box<dyn FnMut(&Header) + Send + 'a>,
    mut counters: Option<OnCounters>,
) -> OnList<'a> {
    Box::new(move |header: Option<&Header>, list: &FlowList, list_totals: &mut ListTotals| {
        schedule.listed();
        metrics.merge(Latency::Peel, &mut list_totals.recent.peel);
        metrics.merge(Latency::List, &mut list_totals.recent.list);
        metrics.merge(Latency::Pause, &mut list_totals.recent.pause);
        publish::list(&metrics, header, list, list_totals, schedule.clock_steps());
        header.iter().for_each(|header| listed(header));
        counters.iter_mut().for_each(|counters| counters.report(&metrics, list));
    })
}

/// All that is behind the ports, before it has threads.
pub(crate) struct Threads<'a> {
    shards: Vec<ShardThread>,
    list_thread: ListThread<'a>,
    hand_overs: Receiver<HandOver>,
    writer: Option<saving::Writer<'a>>,
    clock: Option<WallClock>,
    events: Option<EventThread>,
    /// The clocks by which it is measured how long shards take, if it is.
    clocks: Option<Clocks>,
    metrics: Option<Arc<Metrics>>,
    has_failed: Arc<AtomicBool>,
    totals: Arc<Totals>,
}

impl<'a> Threads<'a> {
    /// An engine with one port, which goes by its packets' time.
    ///
    /// # Errors
    ///
    /// The saved state does not fit after all.
    pub(crate) fn replay(
        plan: &Plan,
        outputs: Outputs<'a>,
        metrics: Option<&Arc<Metrics>>,
        saving: Option<Saving>,
    ) -> Result<(Self, Port<PacketTime>, Start)> {
        let Outputs { lists, mut counters, events, .. } = outputs;
        let (pool, returns) = shard_thread::pool(plan);
        let (writers, inboxes) = (0..plan.shard_count()).map(|_| queue::queue(plan.when_full())).unzip();
        let watch = plan.watch();
        let totals = Totals::new(1);
        let time = PacketTime::new(plan.every_ns);
        let mut port = Port::new(writers, signallers(plan, watch.as_ref())(), time).publishing(0, metrics, &totals);
        if !plan.records().is_empty() {
            port.set_cuts();
        }
        let published = metrics.cloned();
        let on_list = move |_: Option<&Header>, list: &FlowList, _: &mut ListTotals| {
            if let (Some(counters), Some(metrics)) = (&mut counters, &published) {
                counters.report(metrics, list);
            }
        };
        let mut list_thread = ListThread::new(plan, watch.as_ref(), lists, returns, Box::new(on_list));
        let (sender, hand_overs) = hand_overs(plan);
        let mut shards = shards(plan, inboxes, &pool, sender);
        let began = saving.map(|saving| saving.begin_replay(&mut port, &mut shards, &mut list_thread)).transpose()?;
        let (start, writer) = began.unzip();
        let threads = Threads {
            shards,
            list_thread,
            hand_overs,
            writer,
            clock: None,
            events,
            clocks: None,
            metrics: metrics.cloned(),
            has_failed: Arc::default(),
            totals,
        };
        Ok((threads, port, start.unwrap_or_default()))
    }

    /// An engine whose ports go by the wall clock, as many as were planned, and its schedule.
    ///
    /// # Errors
    ///
    /// The saved state does not fit after all.
    pub(crate) fn live(
        plan: &Plan,
        outputs: Outputs<'a>,
        metrics: &Arc<Metrics>,
        saving: Option<Saving>,
    ) -> Result<(Self, Vec<Port>, Arc<Schedule>)> {
        let Outputs { lists, listed, saved, translations, is_held, counters, events } = outputs;
        let (pool, returns) = shard_thread::pool(plan);
        let TimedQueues { writers, clock_writers, inboxes } = TimedQueues::new(plan);
        let watch = plan.watch();
        let clocks = Clocks::start(saving.as_ref().map(Saving::instants).transpose()?.flatten());
        let schedule = Arc::new(Schedule::new(clocks));
        let saver = saving.as_ref().map(Saving::saver);
        let clock = WallClock::new(Arc::clone(&schedule), plan.every_ns.unwrap_or(i64::MAX), saver, clock_writers);
        let clock = if is_held { clock.holding() } else { clock };
        let totals = Totals::new(plan.port_count);
        let signallers = signallers(plan, watch.as_ref());
        let warm_up = plan.warm_up();
        let signaller = || match &warm_up {
            Some(warm_up) => signallers().warming_up(Arc::clone(warm_up)),
            None => signallers(),
        };
        let two_names = plan.finds_two_names().then(|| TwoNames::of_interfaces(&metrics.interface_indices()));
        let (samplers, two_names) = two_names.unzip();
        let mut samplers = samplers.unwrap_or_default().into_iter();
        let port = |(index, writers)| {
            let time = WallTime::new(Arc::clone(&schedule));
            let port = Port::new(writers, signaller(), time).publishing(index, Some(metrics), &totals);
            port.sampling_syns(samplers.next())
        };
        let ports = writers.into_iter().enumerate().map(port).collect();
        let on_list = publishing(Arc::clone(&schedule), Arc::clone(metrics), listed, counters);
        let mut list_thread = ListThread::new(plan, watch.as_ref(), lists, returns, on_list);
        if let Some(translations) = translations {
            list_thread.set_translations(translations);
        }
        if let Some(two_names) = two_names {
            list_thread.set_two_names(two_names);
        }
        if plan.config().warms_up {
            list_thread.set_since(clocks.origin_wall_ns(), warm_up);
        }
        let (sender, hand_overs) = hand_overs(plan);
        let mut shards = shards(plan, inboxes, &pool, sender);
        let published = Arc::clone(metrics);
        let on_written = move |written: Written| {
            publish::state(&published, written);
            saved(written);
        };
        let resumed = ResumedClock { first_tick: clocks.first_tick(), every_ns: plan.every_ns };
        let begin = |saving: Saving| saving.begin_live(&mut shards, &mut list_thread, resumed, Box::new(on_written));
        let writer = saving.map(begin).transpose()?;
        let threads = Threads {
            shards,
            list_thread,
            hand_overs,
            writer,
            clock: Some(clock),
            events,
            clocks: Some(clocks),
            metrics: Some(Arc::clone(metrics)),
            has_failed: Arc::default(),
            totals,
        };
        Ok((threads, ports, schedule))
    }

    /// What ports have counted.
    pub(crate) fn totals(&self) -> Arc<Totals> {
        Arc::clone(&self.totals)
    }

    /// Set when a list could not be written.
    pub(crate) fn has_failed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_failed)
    }

    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// A thread could not be started. Those that were end when the ports have been dropped.
    pub(crate) fn start<'scope>(self, scope: &'scope Scope<'scope, 'a>) -> Result<Running<'scope>> {
        let Threads { shards, list_thread, hand_overs, writer, clock, events, clocks, metrics, has_failed, totals } =
            self;
        let timing = clocks.zip(metrics.clone());
        let shard = |(index, shard): (usize, ShardThread)| {
            let timing = timing.clone();
            spawn(scope, format!("shard-{index}"), move || match timing {
                Some((clocks, metrics)) => shard.run(ShardTiming::new(clocks, metrics)),
                None => shard.run(()),
            })
        };
        let shards = shards.into_iter().enumerate().map(shard).collect::<Result<_>>()?;
        let failed = Arc::clone(&has_failed);
        Ok(Running {
            shards,
            lists: spawn(scope, "lists".to_owned(), move || list_thread.run(hand_overs, &failed))?,
            writer: writer.map(|writer| spawn(scope, "state".to_owned(), || writer.run())).transpose()?,
            clock: clock.map(|clock| spawn(scope, "clock".to_owned(), || clock.run())).transpose()?,
            events: events.map(|events| spawn(scope, "events".to_owned(), || events.run())).transpose()?,
            metrics,
            totals,
        })
    }
}

/// The running threads.
pub(crate) struct Running<'scope> {
    shards: Vec<ScopedJoinHandle<'scope, ()>>,
    lists: ScopedJoinHandle<'scope, Result<ListTotals>>,
    writer: Option<ScopedJoinHandle<'scope, SavingCounts>>,
    clock: Option<ScopedJoinHandle<'scope, ()>>,
    events: Option<ScopedJoinHandle<'scope, u64>>,
    metrics: Option<Arc<Metrics>>,
    totals: Arc<Totals>,
}

impl Running<'_> {
    /// Whether a thread has ended that only ends with the run.
    pub(crate) fn has_ended(&self) -> bool {
        self.lists.is_finished() || self.shards.iter().any(ScopedJoinHandle::is_finished)
    }

    /// Waits for the end and sums up. The run ends with its port where it goes by packets' time, otherwise when the
    /// schedule says so.
    ///
    /// # Errors
    ///
    /// A list could not be written.
    pub(crate) fn join(self, errors: Vec<Error>) -> Result<Summary> {
        let list_totals = join(self.lists);
        let written = self.writer.map(join);
        self.clock.map(join);
        self.shards.into_iter().for_each(join);
        let events_dropped = self.events.map_or(0, join);
        let published =
            |index| self.metrics.as_ref().map_or(CaptureCounts::default(), |metrics| metrics.capture(index).counts());
        let counts = self.totals.sum(published);
        Ok(Summary { events_dropped, ..Summary::new(counts, list_totals?, errors).with_saving(written) })
    }
}

/// RecentEnds the last interval when it is dropped, however the thread that waits for the end of a run continues.
pub(crate) struct FinishAtEnd<'a>(pub(crate) &'a Schedule);

impl Drop for FinishAtEnd<'_> {
    fn drop(&mut self) {
        self.0.finish();
    }
}

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

/// A factory of signallers, one for each port. They share one handshake cache, and the watch if there is one.
pub(crate) fn signallers<'a>(plan: &Plan, watch: Option<&'a Arc<Watch>>) -> impl Fn() -> Signaller + 'a {
    let config = plan.config();
    // The plan has checked that it is minutes at most.
    let syn_timeout_ns = config.syn_timeout.as_nanos() as i64;
    let cache = HandshakeCache::new(plan.handshake_count, syn_timeout_ns);
    let cache = Arc::new(if plan.port_count == 1 { cache.for_one_thread() } else { cache });
    let ends = Arc::new(RecentEnds::new(plan.end_count));
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
    move || Signaller::new(config.clone(), Arc::clone(&cache), Arc::clone(&ends), watch.cloned())
}

/// The channel from the shards to the list. It has room for all deltas that can be under way, and for the ends of all
/// intervals that can be pending, so a shard of a live capture never waits here.
pub(crate) fn hand_overs(plan: &Plan) -> (Sender<HandOver>, Receiver<HandOver>) {
    crossbeam::channel::bounded((PENDING_INTERVALS_MAX + 2 + plan.spare_count) * PARTITION_COUNT)
}

/// Starts a thread whose name shows an operator what it is busy with.
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
