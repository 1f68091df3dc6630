//! A live capture on its threads: one for each source of packets, one a shard, one for the lists; the caller's watches.
//!
//! What enters: a plan, open sources and an exporter. What leaves: a list for every interval, until it is stopped, and
//! a summary. No thread waits for one behind it: what a full queue or the kernel's ring cannot take is lost and
//! counted. While a list takes too long, the next interval is merged into the one after it.

mod publish;

use super::{OBSERVE_INTERVAL_PACKETS, feed_some};
use crate::capture::{Condition, LiveSource};
use crate::engine::{
    CaptureCounts, Clocks, ListThread, ListTotals, Marks, Pacer, Plan, Port, ResumedClock, Saving, Summary, WallTime,
    Written, hand_overs, join, pool, queues, shards, signallers, spawn,
};
use crate::error::{Error, Result};
use crate::export::Exporter;
use crate::flow_list::{FlowList, Header};
use crate::metrics::{Latency, Metrics};
use publish::ShardTiming;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// The longest that a capture thread with nothing to read sleeps, in milliseconds: it may take this long to stop.
const LIVE_WAIT_MAX_MS: u64 = 100;

/// How often the thread that started a live capture looks whether it is to stop and whether all other threads are
/// running: soon enough for somebody at a terminal.
const LIVE_LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// An observer of a live capture, whose methods are called from several threads.
pub trait LiveObserver: Sync {
    /// Called when a list was written, or could not be.
    fn listed(&self, _header: &Header) {}

    /// Called when the interface of this source went down, vanished, or is back.
    fn changed(&self, _index: usize, _condition: Condition) {}

    /// Called when the state was saved, or could not be.
    fn saved(&self, _written: Written) {}

    /// Called now and then, from the thread that runs the capture.
    fn look(&self) {}

    /// Whether to stop here; the last list is then of what was seen so far.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Captures from these sources until `observer` says stop, a source fails for good, or a list cannot be written, and
/// publishes in `metrics`, which have a place for each source. The plan is for as many sources.
///
/// With `saving` the state is saved on the way and at the end, and the capture goes on with what was saved. What is
/// listed then may have closed while nobody looked, and is marked so until a packet of it is seen.
///
/// # Errors
///
/// A list could not be written, or a thread not started. Or the saved state does not fit after all; then nothing was
/// captured. The failure of a source is in the summary.
///
/// # Panics
///
/// The plan is for another number of sources.
pub fn live<S: LiveSource + Send>(
    plan: &Plan,
    sources: Vec<S>,
    exporter: &mut dyn Exporter,
    metrics: &Metrics,
    observer: &dyn LiveObserver,
    saving: Option<Saving>,
) -> Result<Summary> {
    assert!(plan.capture_count == sources.len(), "the plan is for as many sources");
    let (pool, returns) = pool(plan);
    let (captures, inboxes) = queues(plan);
    let watch = plan.watch();
    let signallers = signallers(plan, watch.as_ref());
    let clocks = Clocks::start(saving.as_ref().map(Saving::instants).transpose()?.flatten());
    let pacer = Arc::new(Pacer::new(clocks, plan.every_ns.unwrap_or(i64::MAX), saving.as_ref().map(Saving::saver)));
    let on_list = |header: Option<&Header>, list: &FlowList, told: &mut ListTotals| {
        pacer.listed();
        metrics.merge(Latency::Peel, &mut told.recent.peel);
        metrics.merge(Latency::List, &mut told.recent.list);
        metrics.merge(Latency::Pause, &mut told.recent.pause);
        publish::list(metrics, header, list, told, pacer.clock_steps());
        header.iter().for_each(|header| observer.listed(header));
    };
    let mut list_thread = ListThread::new(plan, watch.as_ref(), exporter, returns, &on_list);
    let has_failed = AtomicBool::new(false);
    let (hand_overs, lists) = hand_overs(plan);
    let mut shards = shards(plan, inboxes, &pool, hand_overs);
    let on_written = |written: Written| {
        publish::state(metrics, written);
        observer.saved(written);
    };
    let resumed = ResumedClock { first_tick: clocks.first_tick(), every_ns: plan.every_ns };
    let begin = |saving: Saving| saving.begin_live(&mut shards, &mut list_thread, resumed, Box::new(on_written));
    let writer = saving.map(begin).transpose()?;
    std::thread::scope(|scope| {
        let ending = StopAtEnd(&pacer);
        let mut shard_threads = Vec::new();
        for (index, shard) in shards.into_iter().enumerate() {
            let timing = ShardTiming::new(clocks, metrics);
            shard_threads.push(spawn(scope, format!("shard-{index}"), move || shard.run(timing))?);
        }
        let failed = &has_failed;
        let lists = spawn(scope, "lists".to_owned(), move || list_thread.run(lists, failed))?;
        let writer = writer.map(|writer| spawn(scope, "state".to_owned(), || writer.run())).transpose()?;
        let mut threads = Vec::new();
        for (index, (source, writers)) in sources.into_iter().zip(captures).enumerate() {
            let port = Port::new(writers, signallers(), WallTime::new(Arc::clone(&pacer)));
            let capture = Capture { index, source, port, metrics, observer };
            threads.push(spawn(scope, format!("capture-{index}"), move || capture.run())?);
        }
        while !observer.is_stopped()
            && !has_failed.load(Ordering::Relaxed)
            && !threads.iter().any(ScopedJoinHandle::is_finished)
            && !shard_threads.iter().any(ScopedJoinHandle::is_finished)
            && !lists.is_finished()
        {
            observer.look();
            std::thread::park_timeout(LIVE_LOOK_INTERVAL);
        }
        drop(ending);
        let mut counts = CaptureCounts::default();
        let mut errors = Vec::new();
        for thread in threads {
            let (counted, error) = join(thread);
            counts = counts.plus(&counted);
            errors.extend(error);
        }
        let told = join(lists);
        let written = writer.map(join);
        Ok(Summary::new(counts, told?, errors).with_saving(written))
    })
}

/// Stops the capture when it is dropped, however the watching thread ends: that thread waits for the others, which
/// would otherwise go on.
struct StopAtEnd<'a>(&'a Pacer);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// One source on its thread.
struct Capture<'a, S> {
    index: usize,
    source: S,
    port: Port<WallTime>,
    metrics: &'a Metrics,
    observer: &'a dyn LiveObserver,
}

impl<S: LiveSource> Capture<'_, S> {
    /// Captures until the end, and sends all marks, the last included, whatever becomes of the source.
    fn run(mut self) -> (CaptureCounts, Option<Error>) {
        let error = self.capture().err();
        if error.is_some() {
            // The others end with this one, so that the failure is noticed.
            self.port.time().stop();
        }
        self.show();
        while let Some(marks) = self.port.time().finish() {
            self.port.mark(marks);
        }
        (self.port.counts(), error)
    }

    fn capture(&mut self) -> Result<()> {
        let mut fed = 0;
        while !self.port.time().is_stopped() {
            self.port.time().refresh();
            if self.port.time().is_end_near() {
                self.show();
            }
            let count = feed_some(&mut self.port, &mut self.source)?;
            fed += count;
            if count == 0 {
                self.rest();
            } else if fed >= OBSERVE_INTERVAL_PACKETS {
                self.show();
                fed = 0;
            }
        }
        // What came before the stop belongs to the last list.
        self.port.drop_no_more();
        while self.port.time().is_before_stop() && feed_some(&mut self.port, &mut self.source)? > 0 {}
        Ok(())
    }

    /// Called when there is nothing to read: sends the marks that are due, and waits.
    fn rest(&mut self) {
        self.port.flush();
        self.show();
        loop {
            let marks = self.port.time().rest();
            if marks == Marks::default() {
                break;
            }
            self.port.mark(marks);
        }
        let time_left = self.port.time().time_left();
        let timeout = time_left.min(Duration::from_millis(LIVE_WAIT_MAX_MS));
        if let Some(condition) = self.source.wait(timeout) {
            self.observer.changed(self.index, condition);
        }
    }

    fn show(&mut self) {
        let dropped = self.source.losses().dropped;
        self.port.time().refresh();
        let now = self.port.time().moment();
        self.port.set_lost(dropped, now);
        self.metrics.capture(self.index).set_up(self.source.condition() == Condition::Up);
        self.metrics.capture(self.index).publish(&self.port.counts());
    }
}

#[cfg(test)]
mod tests;
