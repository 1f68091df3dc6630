//! Connections that open and end -> a line or record for each, in files that grow and on sockets.
//!
//! It takes records from the shards and, for those that outlive a wrap of the ticks and for the end of the input,
//! lists; and gives lines. The laws: every event has a number, and of each destination they come in order; the events
//! of a connection come in their order; by packets' own time equal input gives equal bytes. What does not come is
//! counted, and a line says how many are missing as soon as one can be written. Nothing here makes a shard wait in a
//! live capture, and memory is bounded: what the queue or a destination has no room for is lost and counted.

mod destination;
mod file;
mod output;
mod pending;
mod sink;

pub use destination::{Destination, EventFormat, Place};
pub use file::Rotation;

use crate::archive::{ARCHIVE_BLOCK_ENTRIES_MAX, Ages, Entry, Order, in_parts};
use crate::error::{Error, Result};
use crate::export::{ArchivedFlow, Change, FlowEvent};
use crate::list::List;
use crate::metrics::EventCounts;
use crate::queue::WhenFull;
use crate::record::{self, Ending, Inlet, Message, Outlet, Record};
use crossbeam::channel::{Receiver, Sender, after, bounded, never, select};
use output::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How often a destination that could not be written to is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How long the end of a run, and in a replay an event, waits for a destination that takes nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// Parts of the list of what is open at the end that wait.
const OPEN_PARTS_MAX: usize = 2;

/// How events are written.
pub struct EventLogConfig {
    /// Where to, at least one.
    pub destinations: Vec<Destination>,
    /// Whether openings are events too.
    pub openings: bool,
    /// When files are continued under another name.
    pub rotation: Rotation,
    /// Whether the run is live: then nothing waits for a destination, and what is open at its end has not ended.
    pub is_live: bool,
    /// Set when files are to be opened anew, because somebody has moved them.
    pub reopens: Arc<AtomicBool>,
    /// Where it is counted what was written and lost.
    pub counts: Arc<EventCounts>,
    /// Called when a destination cannot be written to, once until it can be again.
    pub warn: Box<dyn FnMut(&Error) + Send>,
}

/// A command of the list thread.
enum Command {
    /// The old connections at the end of a list.
    Ages(Ages),
    /// Some of what is open at the end of the input.
    Open(Vec<Entry>),
    /// The run has ended.
    Finish,
}

/// A running log. When it is dropped, all that has come in is written.
pub struct EventLog {
    inlet: Inlet,
    commands: Sender<Command>,
    counts: Arc<EventCounts>,
    is_live: bool,
    thread: Option<JoinHandle<()>>,
}

impl EventLog {
    /// Opens the destinations and starts the thread that writes.
    ///
    /// # Errors
    ///
    /// A file or socket cannot be opened, or the thread not started.
    pub fn start(config: EventLogConfig) -> Result<Self> {
        let EventLogConfig { destinations, openings, rotation, is_live, reopens, counts, warn } = config;
        let open = |destination| Output::open(destination, rotation, is_live, Arc::clone(&counts));
        let outputs = destinations.into_iter().map(open).collect::<Result<Vec<_>>>()?;
        let (inlet, outlet) = record::queue(if is_live { WhenFull::Drop } else { WhenFull::Wait });
        let inlet = inlet.of_events(openings);
        let (commands, received) = bounded(OPEN_PARTS_MAX);
        let dropped = inlet.dropped();
        let events = EventWriter {
            ages: Ages::default(),
            outputs,
            dropped,
            dropped_before: 0,
            counts: Arc::clone(&counts),
            is_live,
            reopens,
            warn,
        };
        let worker = Worker { outlet, commands: received, order: Order::new(!is_live), events };
        let thread = Builder::new().name("events".to_owned()).spawn(|| worker.run());
        let thread = thread.map_err(|error| Error::new("cannot start a thread").because(error))?;
        Ok(EventLog { inlet, commands, counts, is_live, thread: Some(thread) })
    }

    /// The memory that a log with so many destinations takes, in bytes.
    #[must_use]
    pub fn memory_size(destination_count: usize) -> u64 {
        let open_size = OPEN_PARTS_MAX * ARCHIVE_BLOCK_ENTRIES_MAX * size_of::<Entry>();
        (record::size() + open_size + destination_count * pending::PENDING_SIZE_MAX) as u64
    }

    /// The inlet for records.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        self.inlet.clone()
    }

    /// Takes from a list what events need: the starts of old connections, and at the end of a replay what is open.
    pub fn list(&self, list: &List) {
        self.send(Command::Ages(Ages::of(list)));
        if list.header.is_last && !self.is_live {
            in_parts(list, |entries| self.send(Command::Open(entries)));
        }
    }

    fn send(&self, command: Command) {
        // The thread receives everything until the command to finish.
        drop(self.commands.send(command));
    }

    /// Writes all that has come in, and ends the thread. Everything that sends records must have ended before. Returns
    /// what was written and lost.
    #[must_use]
    pub fn finish(mut self) -> Arc<EventCounts> {
        self.end();
        Arc::clone(&self.counts)
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.send(Command::Finish);
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

struct Worker {
    outlet: Outlet,
    commands: Receiver<Command>,
    order: Order,
    events: EventWriter,
}

impl Worker {
    fn run(mut self) {
        loop {
            let messages = self.outlet.messages().clone();
            let commands = self.commands.clone();
            let retry = if self.events.outputs.iter().any(Output::waits) { after(RETRY_INTERVAL) } else { never() };
            select! {
                recv(messages) -> message => {
                    message.into_iter().for_each(|message| self.message(message));
                    messages.try_iter().take(messages.len()).for_each(|message| self.message(message));
                }
                recv(commands) -> command => {
                    // What was recorded before the command was sent comes before it.
                    messages.try_iter().take(messages.len()).for_each(|message| self.message(message));
                    match command {
                        Ok(Command::Ages(ages)) => self.events.ages = ages,
                        Ok(Command::Open(entries)) => {
                            self.drain();
                            entries.iter().for_each(|entry| self.events.unfinished(entry));
                        }
                        Ok(Command::Finish) | Err(_) => break,
                    }
                }
                recv(retry) -> _ => {}
            }
            self.events.flush();
        }
        self.drain();
        self.events.finish();
    }

    fn message(&mut self, message: Message) {
        self.order.take(message, &self.outlet);
        self.order.ready().for_each(|record| self.events.record(&record));
    }

    fn drain(&mut self) {
        self.order.drain();
        self.order.ready().for_each(|record| self.events.record(&record));
    }
}

/// Makes events of records, and writes them to all destinations.
struct EventWriter {
    ages: Ages,
    outputs: Vec<Output>,
    /// How many records the queue had no room for, and how many of them are counted.
    dropped: Arc<AtomicU64>,
    dropped_before: u64,
    counts: Arc<EventCounts>,
    is_live: bool,
    reopens: Arc<AtomicBool>,
    warn: Box<dyn FnMut(&Error) + Send>,
}

impl EventWriter {
    fn record(&mut self, record: &Record) {
        let entry = self.ages.with_known_start(Entry::from(record));
        let change = match record.ending {
            None => Change::Opened,
            Some(Ending::Reopened) => Change::Reopened,
            Some(_) => Change::Closed,
        };
        let flow = ArchivedFlow::from(&entry);
        let reason = flow.reason.filter(|_| change == Change::Closed);
        self.event(change, ArchivedFlow { reason, ..flow });
    }

    /// Writes that a connection is open at the end of the input.
    fn unfinished(&mut self, entry: &Entry) {
        self.event(Change::Unfinished, ArchivedFlow { reason: Some("end_of_input"), ..ArchivedFlow::from(entry) });
    }

    fn event(&mut self, change: Change, flow: ArchivedFlow) {
        let newly_dropped = self.newly_dropped();
        for output in &mut self.outputs {
            output.skip(newly_dropped);
            output.put(&FlowEvent { change, flow, sequence: 0 });
            if !self.is_live && output.is_nearly_full() {
                output.wait(PATIENCE, &mut *self.warn);
            }
        }
    }

    /// How many records the queue had no room for since this was asked before.
    fn newly_dropped(&mut self) -> u64 {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let newly_dropped = dropped - std::mem::replace(&mut self.dropped_before, dropped);
        self.counts.lost.fetch_add(newly_dropped * self.outputs.len() as u64, Ordering::Relaxed);
        newly_dropped
    }

    /// Writes what destinations take at once.
    fn flush(&mut self) {
        let reopens = self.reopens.swap(false, Ordering::Relaxed);
        for output in &mut self.outputs {
            if reopens {
                output.reopen(&mut *self.warn);
            }
            output.flush(&mut *self.warn);
        }
    }

    /// Writes what is left.
    fn finish(&mut self) {
        self.newly_dropped();
        self.outputs.iter_mut().for_each(|output| output.wait(PATIENCE, &mut *self.warn));
    }
}
