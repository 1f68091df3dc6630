//! Connections that open and end -> a line or record for each, in files that grow and on sockets.
//!
//! It takes records from the shards and, for those that outlive a wrap of the ticks and for the end of the input,
//! lists; and gives lines. The laws: every event has a number, and of each destination they come in order; the events
//! of a connection come in their order; by packets' own time equal input gives equal bytes. What does not come is
//! counted, and a line says how many are missing as soon as one can be written. Nothing here makes a shard wait in a
//! live capture, and memory is bounded: what the queue or a destination has no room for is lost and counted.

mod columns;
mod destination;
mod file;
mod one_name;
mod output;
mod pending;
mod read_back;
mod resume;
mod sink;

pub use destination::{Destination, EventFormat, Place};
pub use file::Rotation;

use crate::archive::{ARCHIVE_BLOCK_ENTRIES_MAX, Ages, Entry, Order, in_parts};
use crate::disk::{Decoder, Encoder};
use crate::error::{Error, Result};
use crate::export::{ArchivedFlow, Change, EventFiles, FlowEvent};
use crate::list::{List, TranslationSource};
use crate::metrics::EventCounts;
use crate::queue::WhenFull;
use crate::record::{self, Ending, Inlet, Message, Outlet, Received, Record, Remembered, SaveCuts, SaveHandle};
use columns::ColumnOutput;
use crossbeam::channel::{Receiver, Sender, after, bounded, never};
use one_name::OneName;
use output::{Output, OutputConfig};
use resume::Shape;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often a destination that could not be written to is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How long the end of a run, and in a replay an event, waits for a destination that takes nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// Copies of what waits at a destination while the state is saved: one for each cut that is passed and not asked for
/// yet, and one that is written.
const SAVED_COPIES_MAX: usize = 2;

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
    /// Whether and from where the log continues with a run that saves its state.
    pub saved: Option<SavedLog>,
    /// Set when files are to be opened anew, because somebody has moved them.
    pub reopens: Arc<AtomicBool>,
    /// Where it is counted what was written and lost.
    pub counts: Arc<EventCounts>,
    /// Called when a destination cannot be written to, once until it can be again.
    pub warn: Box<dyn FnMut(&Error) + Send>,
}

/// A run that saves its state, as its log knows it.
#[derive(Clone, Debug, Default)]
pub struct SavedLog {
    /// What [`EventLog::save_handle`] gave for the state that the run continues from, or [`EventLog::beginning`] where
    /// no state was saved yet; `None` at the beginning of a run.
    pub part: Option<Vec<u8>>,
    /// Set when a replay stops before the end of its input. It continues later, so what is open then has not ended, and
    /// what came since the last cut comes again.
    pub is_stopped: Arc<AtomicBool>,
}

/// A command of the list thread.
enum Command {
    /// The old connections at the end of a list, and when that is, in ns since 1970.
    Ages(Arc<Ages>, i64),
    /// An interval without a list has ended then, in ns since 1970.
    Passed(i64),
    /// Some of what is open at the end of the input.
    Open(Vec<Entry>),
    /// The state of the run is saved at the cut of this number; the log's part of it is wanted.
    Save(u64, Sender<Vec<u8>>),
    /// Who knows the names of translated connections.
    Translations(Arc<dyn TranslationSource>),
    /// The run has ended.
    Finish,
}

/// A running log. When it is dropped, all that has come in is written.
pub struct EventLog {
    inlet: Inlet,
    commands: Sender<Command>,
    counts: Arc<EventCounts>,
    is_live: bool,
    beginning: Vec<u8>,
    thread: Option<JoinHandle<()>>,
}

impl EventLog {
    /// Opens the destinations and starts the thread that writes.
    ///
    /// # Errors
    ///
    /// A file or socket cannot be opened, the log is not the one that belongs to the state, or the thread cannot be
    /// started.
    pub fn start(config: EventLogConfig) -> Result<Self> {
        let EventLogConfig { destinations, openings, rotation, is_live, saved, reopens, counts, mut warn } = config;
        let is_columns = |destination: &Destination| matches!(destination.place, Place::Directory(_));
        if saved.is_some() && destinations.iter().any(is_columns) {
            let what = "files of Parquet cannot be continued: with --state name a file, a socket or - for --events, or \
                        write them from an --archive with flowpeel archive export";
            return Err(Error::new(what));
        }
        let shape = Shape { openings, destinations };
        let part = saved.as_ref().and_then(|saved| saved.part.as_deref());
        let continued = part.map(|part| shape.read_part(part)).transpose()?;
        let output_config = OutputConfig { rotation, is_live, saves: saved.is_some(), counts: Arc::clone(&counts) };
        let (mut outputs, mut columns) = (Vec::new(), Vec::new());
        for destination in &shape.destinations {
            match &destination.place {
                Place::Directory(path) => columns.push(ColumnOutput::open(path, rotation, Arc::clone(&counts))?),
                _ => outputs.push(Output::open(destination.clone(), &output_config)?),
            }
        }
        let ages = match continued {
            None => Ages::default(),
            Some((ages, bytes)) => {
                let mut decoder = Decoder::new(bytes);
                for output in &mut outputs {
                    output.restore(&mut decoder)?.iter().for_each(&mut warn);
                }
                decoder.end()?;
                ages
            }
        };
        let (inlet, outlet) = record::queue(if is_live { WhenFull::Drop } else { WhenFull::Wait });
        let inlet = inlet.of_events(openings);
        let (commands, received) = bounded(OPEN_PARTS_MAX);
        let dropped = inlet.dropped();
        let mut events = EventWriter {
            shape,
            ages: Arc::new(ages),
            one_name: None,
            outputs,
            columns,
            dropped,
            dropped_before: 0,
            counts: Arc::clone(&counts),
            is_live,
            passed_ns: output::now_ns(),
            reopens,
            warn,
        };
        let begins = saved.as_ref().is_some_and(|saved| saved.part.is_none());
        let beginning = if begins { events.save().map(|outputs| events.part(&outputs)) } else { None };
        let is_stopped = saved.map(|saved| saved.is_stopped).unwrap_or_default();
        let (order, save_points) = (Order::new(!is_live), SaveCuts::new());
        let worker = Worker { outlet, commands: received, order, events, save_points, is_stopped };
        let thread = Builder::new().name("events".to_owned()).spawn(|| worker.run());
        let thread = thread.map_err(|error| Error::new("cannot start a thread").because(error))?;
        let beginning = beginning.unwrap_or_default();
        Ok(EventLog { inlet, commands, counts, is_live, beginning, thread: Some(thread) })
    }

    /// The memory in bytes that a log with these destinations takes, of a run whose state is saved or not.
    #[must_use]
    pub fn memory_size(destinations: &[Destination], is_live: bool, saves: bool) -> u64 {
        let open_size = OPEN_PARTS_MAX * ARCHIVE_BLOCK_ENTRIES_MAX * size_of::<Entry>();
        let copies = if saves { SAVED_COPIES_MAX } else { 0 };
        let columns = destinations.iter().filter(|destination| matches!(destination.place, Place::Directory(_)));
        let column_count = columns.count();
        let waiting_size = (destinations.len() - column_count) * pending::PENDING_SIZE_MAX * (1 + copies);
        let file_count = destinations.iter().filter(|destination| matches!(destination.place, Place::File(_))).count();
        let remembered_size = if is_live && saves { file_count as u64 * Remembered::SIZE_MAX } else { 0 };
        let columns_size = column_count as u64 * EventFiles::MEMORY_SIZE;
        (record::size() + open_size + waiting_size) as u64 + columns_size + remembered_size
    }

    /// The memory in bytes that it takes besides where it knows the names of translated connections
    /// ([`Self::set_translations`]).
    pub const NAMES_SIZE: u64 = OneName::SIZE_MAX;

    /// What gives the log's part of saved states.
    #[must_use]
    pub fn save_handle(&self) -> SaveHandle {
        SaveHandle::by(self.commands.clone(), Command::Save)
    }

    /// At the beginning of a run, the log's part of a state that was saved before anything was written.
    #[must_use]
    pub fn beginning(&self) -> &[u8] {
        &self.beginning
    }

    /// The inlet for records.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        self.inlet.clone()
    }

    /// Takes from a list, with its [`Ages`], what events need: the starts of old connections, and at the end of a
    /// replay what is open.
    pub fn list(&self, list: &List, ages: Arc<Ages>) {
        self.send(Command::Ages(ages, list.header.figures.end_ns));
        if list.header.is_last && !self.is_live {
            in_parts(list, |entries| self.send(Command::Open(entries)));
        }
    }

    /// Says that an interval has ended at this time, in ns since 1970, where there is no list to be taken.
    pub fn pass(&self, end_ns: i64) {
        self.send(Command::Passed(end_ns));
    }

    /// Names the translated connections from now on: each event of one is written once, under the name that its client
    /// has where that is captured, a second or, under the other name alone, two intervals later.
    pub fn set_translations(&self, translations: Arc<dyn TranslationSource>) {
        self.send(Command::Translations(translations));
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
    /// In a replay, what destinations gave at the cuts of saves; `None` where something could not be written.
    save_points: SaveCuts<Option<Vec<u8>>>,
    is_stopped: Arc<AtomicBool>,
}

impl Worker {
    fn run(mut self) {
        let (messages, commands) = (self.outlet.messages().clone(), self.commands.clone());
        loop {
            let retry = if self.events.waits() { after(RETRY_INTERVAL) } else { never() };
            match record::receive(&messages, &commands, &retry, |message| self.message(message)) {
                Received::Records | Received::Time => {}
                Received::Command(Some(Command::Finish) | None) => break,
                Received::Command(Some(command)) => self.command(command),
            }
            self.events.flush();
        }
        self.drain();
        self.events.finish();
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Ages(ages, end_ns) => {
                self.events.ages = ages;
                self.events.pass(end_ns);
            }
            Command::Passed(end_ns) => self.events.pass(end_ns),
            Command::Translations(names) => self.events.one_name = Some(OneName::new(names)),
            Command::Open(entries) => {
                self.drain();
                if !self.is_stopped.load(Ordering::Relaxed) {
                    entries.iter().for_each(|entry| self.events.unfinished(entry));
                }
            }
            Command::Save(mark, reply) => {
                let live = if self.events.is_live { self.events.save() } else { None };
                let outputs = live.as_ref().or_else(|| self.save_points.of(mark)?.as_ref());
                if let Some(outputs) = outputs {
                    drop(reply.send(self.events.part(outputs)));
                }
            }
            Command::Finish => {}
        }
    }

    fn message(&mut self, message: Message) {
        let saves = self.order.take(message, &self.outlet);
        self.order.ready().for_each(|record| self.events.record(&record));
        if saves {
            self.save_points.push(self.events.save());
        }
    }

    /// Writes what came behind the last cut, unless that comes again, in the order of a run that was not stopped.
    fn drain(&mut self) {
        if !self.is_stopped.load(Ordering::Relaxed) {
            self.order.drain();
            self.order.ready().for_each(|record| self.events.record(&record));
        }
    }
}

/// Makes events of records, and writes them to all destinations.
struct EventWriter {
    shape: Shape,
    ages: Arc<Ages>,
    /// Where translated connections are known.
    one_name: Option<OneName>,
    outputs: Vec<Output>,
    columns: Vec<ColumnOutput>,
    /// How many records the queue had no room for, and how many of them are counted.
    dropped: Arc<AtomicU64>,
    dropped_before: u64,
    counts: Arc<EventCounts>,
    is_live: bool,
    /// The end of the last interval, in ns since 1970: a state is saved with it, and is of that time, however late the
    /// threads are.
    passed_ns: i64,
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
        let flow = ArchivedFlow { reason, ..flow };
        self.event(FlowEvent { change, flow, sequence: 0, seen: record.seen, nat: None });
    }

    /// Writes that a connection is open at the end of the input.
    fn unfinished(&mut self, entry: &Entry) {
        let flow = ArchivedFlow { reason: Some("end_of_input"), ..ArchivedFlow::from(entry) };
        let change = Change::Unfinished;
        self.event(FlowEvent { change, flow, sequence: 0, seen: None, nat: None });
    }

    /// Writes what happened to a connection, later if it may be translated.
    fn event(&mut self, event: FlowEvent) {
        if self.one_name.is_none() {
            return self.write(&event);
        }
        self.move_on(|one_name, write| one_name.put(event, Instant::now(), write));
    }

    /// Has translated connections' events move on, and writes those that come.
    fn move_on(&mut self, move_on: impl FnOnce(&mut OneName, &mut dyn FnMut(&FlowEvent))) {
        let Some(mut one_name) = self.one_name.take() else { return };
        move_on(&mut one_name, &mut |event| self.write(event));
        if one_name.take_beyond() {
            let what = "more events of translated connections than can wait for their other name: some are written \
                        under both names";
            (self.warn)(&Error::new(what));
        }
        self.one_name = Some(one_name);
    }

    /// Writes an event to all destinations.
    fn write(&mut self, event: &FlowEvent) {
        let newly_dropped = self.newly_dropped();
        for output in &mut self.outputs {
            output.skip(newly_dropped);
            output.put(event);
            if !self.is_live && output.is_nearly_full() {
                output.wait(PATIENCE, &mut *self.warn);
            }
        }
        for columns in &mut self.columns {
            columns.skip(newly_dropped);
            columns.put(event, &mut *self.warn);
        }
    }

    /// The wall clock has come to here, at the end of an interval: that of a live capture, since by the time of packets
    /// more may be on its way.
    fn pass(&mut self, time_ns: i64) {
        self.passed_ns = time_ns;
        self.move_on(|one_name, write| one_name.end_interval(write));
        if self.is_live {
            self.columns.iter_mut().for_each(|columns| columns.pass(time_ns, &mut *self.warn));
        }
    }

    /// How many records the queue had no room for since this was asked before.
    fn newly_dropped(&mut self) -> u64 {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let newly_dropped = dropped - std::mem::replace(&mut self.dropped_before, dropped);
        let destination_count = (self.outputs.len() + self.columns.len()) as u64;
        self.counts.lost.fetch_add(newly_dropped * destination_count, Ordering::Relaxed);
        newly_dropped
    }

    /// Whether something waits for time to pass.
    fn waits(&self) -> bool {
        self.outputs.iter().any(Output::waits) || self.one_name.as_ref().is_some_and(OneName::waits)
    }

    /// Writes what destinations take at once.
    fn flush(&mut self) {
        self.move_on(|one_name, write| one_name.pass(Instant::now(), write));
        let reopens = self.reopens.swap(false, Ordering::Relaxed);
        for output in &mut self.outputs {
            if reopens {
                output.reopen(&mut *self.warn);
            }
            output.flush(&mut *self.warn);
        }
        if reopens {
            self.columns.iter_mut().for_each(|columns| columns.end(&mut *self.warn));
        }
    }

    /// Where the destinations are, for a saved state; `None` if one has not taken everything up to here.
    fn save(&mut self) -> Option<Vec<u8>> {
        let mut encoder = Encoder::default();
        // What waits would be lost.
        let waits_ns = self.one_name.as_ref().and_then(OneName::oldest_ns).unwrap_or(i64::MAX);
        let cut_ns = self.passed_ns.min(waits_ns);
        for output in &mut self.outputs {
            output.save(cut_ns, &mut encoder, &mut *self.warn).ok()?;
        }
        Some(encoder.into_bytes())
    }

    /// The log's part of a state, with what [`Self::save`] gave.
    fn part(&self, outputs: &[u8]) -> Vec<u8> {
        self.shape.part(&self.ages, outputs)
    }

    /// Writes what is left.
    fn finish(&mut self) {
        self.move_on(|one_name, write| one_name.finish(write));
        self.newly_dropped();
        self.outputs.iter_mut().for_each(|output| output.finish(&mut *self.warn));
        self.columns.iter_mut().for_each(|columns| columns.end(&mut *self.warn));
    }
}

#[cfg(test)]
mod tests;
