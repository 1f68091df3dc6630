//! A live capture: interfaces on their way into the ports of an engine, each on a thread of its own.
//!
//! No thread waits for one behind it: what a full queue or the kernel's ring cannot take is lost and counted. While a
//! list takes too long, the next interval is merged into the one after it.

use super::{OBSERVE_INTERVAL_PACKETS, STOP_INTERVAL_PACKETS, feed_some};
use crate::capture::live::wall_ns;
use crate::capture::{Condition, LiveSource};
use crate::engine::{FinishAtEnd, Lists, Outputs, Plan, Port, Saving, Summary, Threads, Written, join, spawn};
use crate::error::{Error, Result};
use crate::export::Exporter;
use crate::list::{Header, TranslationSource};
use crate::metrics::Metrics;
use crate::queue::MERGE_PATIENCE_NS;
use crate::signal::KnownOpen;
use crossbeam::channel::Receiver;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// How long a live capture waits for packets that came before the end of an interval and that the kernel has not shown
/// yet, in nanoseconds: as long as shards do.
const END_PATIENCE_NS: i64 = MERGE_PATIENCE_NS;

/// The longest that a capture thread with nothing to read sleeps, in milliseconds: it may take this long to stop.
const LIVE_WAIT_MAX_MS: u64 = 100;

/// How often the thread that started a live capture looks whether it is to stop and whether all other threads are
/// running: soon enough for somebody at a terminal.
const LIVE_LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What the system knows of connections, for a capture of its interfaces.
#[derive(Default)]
pub struct SystemView {
    /// What is open as the capture begins, in batches, until their sender is dropped. It is to be newer than the first
    /// packet that the sources have.
    pub known: Option<Receiver<Result<Vec<KnownOpen>>>>,
    /// The names of translated connections.
    pub translations: Option<Arc<dyn TranslationSource>>,
}

/// An observer of a live capture, whose methods are called from several threads.
pub trait LiveObserver: Sync {
    /// Called when a list was written, or could not be.
    fn listed(&self, _header: &Header) {}

    /// Called when the interface of this source went down, disappeared, or is back.
    fn changed(&self, _index: usize, _condition: Condition) {}

    /// Called when what the system knew to be open at the start, so many connections, has been taken in.
    fn known(&self, _count: u64) {}

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
/// What `system` knows to be open is listed from the start, and a translated connection stands on lists once.
///
/// With `saving` the state is saved on the way and at the end, and the capture continues with what was saved. What is
/// listed then may have closed while nobody looked, and is marked so until a packet of it is seen.
///
/// # Errors
///
/// A list could not be written, a thread not started, or what the system knows not be read. Or the saved state does not
/// fit after all; then nothing was captured. The failure of a source is in the summary.
///
/// # Panics
///
/// The plan is for another number of sources.
pub fn live<S: LiveSource + Send>(
    plan: &Plan,
    sources: Vec<S>,
    exporter: &mut dyn Exporter,
    metrics: &Arc<Metrics>,
    observer: &dyn LiveObserver,
    saving: Option<Saving>,
    system: SystemView,
) -> Result<Summary> {
    assert!(plan.port_count == sources.len(), "the plan is for as many sources");
    let outputs = Outputs {
        listed: Box::new(|header| observer.listed(header)),
        saved: Box::new(|written| observer.saved(written)),
        translations: system.translations,
        is_held: system.known.is_some(),
        ..Outputs::of_lists(Lists::Borrowed(exporter))
    };
    let (threads, mut ports, schedule) = Threads::live(plan, outputs, metrics, saving)?;
    let has_failed = threads.has_failed();
    std::thread::scope(|scope| {
        // However this ends, the threads end with it.
        let ending = FinishAtEnd(&schedule);
        let running = threads.start(scope)?;
        if let (Some(known), Some(port)) = (system.known, ports.first_mut()) {
            observer.known(take_known(known, port)?);
        }
        schedule.begin();
        let mut captures = Vec::new();
        for (index, (source, port)) in sources.into_iter().zip(ports).enumerate() {
            let capture = Capture { index, source, port, metrics, observer };
            captures.push(spawn(scope, format!("capture-{index}"), move || capture.run())?);
        }
        while !observer.is_stopped()
            && !has_failed.load(Ordering::Relaxed)
            && !captures.iter().any(ScopedJoinHandle::is_finished)
            && !running.has_ended()
        {
            observer.look();
            std::thread::park_timeout(LIVE_LOOK_INTERVAL);
        }
        schedule.stop();
        let errors = captures.into_iter().filter_map(join).collect();
        // What came before the stop is in the queues now.
        drop(ending);
        running.join(errors)
    })
}

/// Takes in what the system knows, before any packet is read: what is newer is in the packets. Returns how many
/// there are.
fn take_known(known: Receiver<Result<Vec<KnownOpen>>>, port: &mut Port) -> Result<u64> {
    let mut count = 0;
    for batch in known {
        let batch = batch?;
        count += batch.len() as u64;
        batch.iter().for_each(|known| port.known(wall_ns(), known));
    }
    port.flush();
    Ok(count)
}

/// One source on its thread.
struct Capture<'a, S> {
    index: usize,
    source: S,
    port: Port,
    metrics: &'a Metrics,
    observer: &'a dyn LiveObserver,
}

impl<S: LiveSource> Capture<'_, S> {
    /// Captures until the end. Returns what ended it early.
    fn run(mut self) -> Option<Error> {
        let error = self.capture().err();
        self.show();
        error
    }

    fn capture(&mut self) -> Result<()> {
        let mut fed = 0;
        while self.port.time().schedule().stopped_at_ns().is_none() {
            if self.port.time().is_end_near() {
                self.show();
            }
            let count = feed_some(&mut self.port, &mut self.source, STOP_INTERVAL_PACKETS)?;
            fed += count;
            if count == 0 {
                self.rest();
            } else if fed >= OBSERVE_INTERVAL_PACKETS {
                self.show();
                fed = 0;
                if self.source.is_filling() {
                    self.port.hurry();
                }
            }
        }
        // What came before the stop belongs to the last list.
        self.port.drop_no_more();
        while self.port.time().is_before_stop()
            && feed_some(&mut self.port, &mut self.source, STOP_INTERVAL_PACKETS)? > 0
        {}
        Ok(())
    }

    /// Called when there is nothing to read: says so to the engine, and waits.
    fn rest(&mut self) {
        self.show();
        // The thread may sleep for longer than signals are to wait.
        self.port.flush();
        // Packets of the interval that has just ended may not have been shown yet.
        self.port.idle(wall_ns().saturating_sub(END_PATIENCE_NS));
        let patience = Duration::from_nanos(END_PATIENCE_NS as u64);
        let timeout = (self.port.time().time_left() + patience).min(Duration::from_millis(LIVE_WAIT_MAX_MS));
        if let Some(condition) = self.source.wait(timeout) {
            self.observer.changed(self.index, condition);
        }
    }

    /// Reads what the source has lost, and publishes its counts.
    fn show(&mut self) {
        self.port.set_dropped(self.source.losses().dropped);
        self.metrics.capture(self.index).set_up(self.source.condition() == Condition::Up);
        self.port.publish();
    }
}

#[cfg(test)]
mod tests;
