//! One destination: what it has not taken yet, what was lost, the file or socket behind it, and how it continues from a
//! saved state.

use crate::disk::{Decoder, Encoder};
use crate::error::{Error, Result};
use crate::event_log::destination::{Destination, EventFormat, Place};
use crate::event_log::file::{CutLine, EventFile, Opening, Rotation};
use crate::event_log::pending::Pending;
use crate::event_log::read_back::{FilePlace, Tail, last_line};
use crate::event_log::resume::{FilePoint, Known, number_apart};
use crate::event_log::sink::Sink;
use crate::event_log::{PATIENCE, RETRY_INTERVAL};
use crate::export::{EventLines, FlowEvent, Gap, IpfixMessages, rfc3339};
use crate::metrics::EventCounts;
use crate::record::Remembered;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a socket that could not be reached is left alone.
const CONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Facility "local use 0", severity "informational" (RFC 5424, section 6.2.1).
const SYSLOG_PRIORITY: u8 = 16 * 8 + 6;

/// What makes records of events.
enum Records {
    Lines { lines: EventLines, is_syslog: bool },
    Ipfix(IpfixMessages),
}

/// What all destinations have in common.
#[derive(Clone)]
pub(super) struct OutputConfig {
    pub(super) rotation: Rotation,
    pub(super) is_live: bool,
    /// Whether the state of the run is saved.
    pub(super) saves: bool,
    pub(super) counts: Arc<EventCounts>,
}

/// A destination of a log.
pub(super) struct Output {
    name: String,
    records: Records,
    sink: Sink,
    is_live: bool,
    pending: Pending,
    /// The number of the last event, lost ones included.
    sequence: u64,
    record: Vec<u8>,
    /// When a socket was last tried in vain.
    tried: Option<Instant>,
    /// Whether it was reported that the destination fails.
    is_failing: bool,
    /// What the file has already of the events that come.
    known: Known,
    /// How many events were passed over because of that.
    passed: u64,
    /// In a replay, the beginning of a line that the run before left.
    cut: Vec<u8>,
    /// Live, where the file was at the save before, and to when that had all packets, in ns since 1970.
    place_before: Option<FilePlace>,
    saved_before_ns: i64,
}

type Warn<'a> = &'a mut (dyn FnMut(&Error) + Send);

impl Output {
    /// Opens a destination. A socket may be reached later.
    ///
    /// # Errors
    ///
    /// A file cannot be opened, or not be read back where the state is saved.
    pub(super) fn open(destination: Destination, config: &OutputConfig) -> Result<Self> {
        let name = destination.place.to_string();
        let OutputConfig { rotation, is_live, saves, ref counts } = *config;
        let (mut cut, mut place_before) = (Vec::new(), None);
        let sink = match destination.place {
            Place::Stdout => Sink::Stdout(io::stdout()),
            Place::File(path) => {
                let cannot = |error| Error::new("cannot read the log of events back").in_file(&path).because(error);
                if saves && std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
                    let what = "it cannot be read back to where the state was saved: with --state name a file, a \
                                socket or - for --events";
                    return Err(Error::new(what).in_file(&path));
                }
                let repeats = saves && !is_live;
                let opening = Opening { cut: if repeats { CutLine::Kept } else { CutLine::Ended }, syncs: saves };
                let file = EventFile::open(&path, rotation, opening)?;
                if repeats {
                    cut = Tail::of(&path).map_err(cannot)?.fragment;
                }
                place_before = Some(file.place().map_err(cannot)?);
                Sink::File(file)
            }
            socket => Sink::Socket(socket, None),
        };
        let lines = |lines, is_syslog| Records::Lines { lines, is_syslog };
        let records = match destination.format {
            EventFormat::Ndjson | EventFormat::Parquet => lines(EventLines::own(), false),
            EventFormat::Eve => lines(EventLines::eve(), false),
            EventFormat::Syslog => lines(EventLines::own(), true),
            EventFormat::Ipfix => Records::Ipfix(IpfixMessages::default()),
        };
        Ok(Output {
            name,
            records,
            sink,
            is_live,
            pending: Pending::new(Arc::clone(counts)),
            sequence: 0,
            record: Vec::new(),
            tried: None,
            is_failing: false,
            known: Known::Nothing,
            passed: 0,
            cut,
            place_before,
            saved_before_ns: now_ns(),
        })
    }

    /// Encodes where the destination is, for a saved state that has all packets up to `cut_ns`, in ns since 1970. What
    /// a file has not taken is waited for in a replay. A live capture waits for nothing.
    ///
    /// # Errors
    ///
    /// What came up to here is not on the disk.
    pub(super) fn save(&mut self, cut_ns: i64, encoder: &mut Encoder, warn: Warn) -> io::Result<()> {
        self.flush(&mut *warn);
        if !self.is_live && matches!(self.sink, Sink::File(_)) {
            self.wait(PATIENCE, warn);
        }
        let Output { sink, records, pending, known, .. } = self;
        encoder.u64(self.sequence);
        // As the place: a partition may have been ahead of the save.
        encoder.i64(if self.is_live { std::mem::replace(&mut self.saved_before_ns, cut_ns) } else { 0 });
        let unmet: Vec<_> = if let Known::Ends(ended) = known { ended.unmet().collect() } else { Vec::new() };
        encoder.length(unmet.len());
        encoder.words(&unmet);
        let ipfix = if let Records::Ipfix(messages) = records { Some(messages) } else { None };
        encoder.option(ipfix, |encoder, messages| messages.save(encoder));
        let file = if let Sink::File(file) = sink { Some(file) } else { None };
        let point = file.map(|file| {
            if !pending.is_empty() {
                return Err(ErrorKind::StorageFull.into());
            }
            let (period, present) = (file.period(), file.synced()?);
            // Lines that are passed over are behind the save point, though they are there.
            let has_last = !self.is_live && matches!(known, Known::Nothing);
            let last = if has_last { last_line(file.path())?.map(|(line, _)| line) } else { None };
            // A partition may have been ahead of the save, but none by so much as from this save to the next.
            let place = if self.is_live { self.place_before.replace(present) } else { None };
            io::Result::Ok(FilePoint { place: place.unwrap_or(present), period, last })
        });
        encoder.option(point.transpose()?, |encoder, point| point.save(encoder));
        pending.save(encoder);
        Ok(())
    }

    /// Continues from what [`Self::save`] encoded. Returns what may be wrong with it all the same.
    ///
    /// # Errors
    ///
    /// The bytes encode no such thing, or the log is not there any more.
    pub(super) fn restore(&mut self, decoder: &mut Decoder) -> Result<Vec<Error>> {
        self.sequence = decoder.count()?;
        let saved_ns = decoder.i64()?;
        let mut unmet = vec![0; decoder.length(size_of::<u64>(), usize::MAX)?];
        decoder.words(&mut unmet)?;
        let messages = decoder.option(IpfixMessages::saved)?;
        let point = decoder.option(FilePoint::saved)?;
        self.pending.restore(decoder)?;
        if let (Records::Ipfix(present), Some(messages)) = (&mut self.records, messages) {
            *present = messages;
        }
        let Sink::File(file) = &mut self.sink else {
            if self.is_live {
                self.sequence = number_apart(self.sequence);
                self.put_gap(saved_ns);
            }
            return Ok(Vec::new());
        };
        let point = decoder.some(point, "no place of a file")?;
        let path = file.path().to_owned();
        if !self.is_live {
            file.set_period(point.period);
            let (known, ends_in_loss) = Known::of_replay(&path, &point, self.sequence)?;
            self.known = known;
            if ends_in_loss {
                self.pending.take_lost();
            }
            return Ok(Vec::new());
        }
        let mut ended = Remembered::default();
        unmet.into_iter().for_each(|number| ended.remember(number));
        let behind = Known::of_live(&path, &point, ended)?;
        self.sequence = self.sequence.max(behind.sequence);
        let mut warnings = Vec::new();
        if !behind.is_whole {
            let what = "the file as it was when the state was saved is not there any more: connections that ended \
                        afterwards may be in the log twice";
            warnings.push(Error::new(what).in_file(&path));
        }
        if behind.ended.surplus_count > 0 {
            let what = format!(
                "more events were written after the saved state than can be remembered: up to {} connections may be \
                 in the log twice; save the state more often (--state-every)",
                behind.ended.surplus_count
            );
            warnings.push(Error::new(what).in_file(&path));
        }
        self.known = Known::Ends(behind.ended);
        self.put_gap(saved_ns);
        Ok(warnings)
    }

    /// Takes a line that says that events may be missing from this time on, until now. The log cannot say it nearer:
    /// partitions send their events in blocks, and the last ones that a killed run had were under way.
    fn put_gap(&mut self, start_ns: i64) {
        let Output { records, record, pending, sequence, .. } = self;
        let Records::Lines { lines, is_syslog } = records else { return };
        let end_ns = now_ns();
        begin_line(record, end_ns, *is_syslog);
        lines.append_gap(record, &Gap { start_ns, end_ns, sequence: *sequence + 1 });
        pending.push(record, 0);
    }

    /// Whether there is something that the destination has not taken.
    pub(super) fn waits(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether there is no room for many more events.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.pending.is_nearly_full()
    }

    /// Counts events that never came here.
    pub(super) fn skip(&mut self, count: u64) {
        self.sequence += count;
        self.pending.skip(count);
    }

    /// Takes an event, of which the number is given here. Without room it is lost.
    pub(super) fn put(&mut self, event: &FlowEvent) {
        if self.known.meets(event) {
            return;
        }
        self.sequence += 1;
        let event = FlowEvent { sequence: self.sequence, ..*event };
        if self.has_already(&event) {
            return;
        }
        self.rotate_before(&event);
        let Output { records, pending, record, cut, .. } = self;
        match records {
            Records::Lines { lines, is_syslog } => {
                if pending.lost() > 0 {
                    begin_line(record, event.flow.end_ns, *is_syslog);
                    lines.append_loss(record, pending.lost(), &event);
                    complete(cut, record);
                    if pending.push(record, 0) {
                        pending.take_lost();
                    }
                }
                begin_line(record, event.flow.end_ns, *is_syslog);
                lines.append(record, &event);
                complete(cut, record);
                pending.push(record, 1);
            }
            Records::Ipfix(messages) => {
                messages.count_lost(pending.take_lost());
                messages.add(&event, &mut |message, flow_count| {
                    pending.push(message, flow_count);
                });
            }
        }
    }

    /// Whether the file has this event from the run before.
    fn has_already(&mut self, event: &FlowEvent) -> bool {
        let (Records::Lines { lines, .. }, Sink::File(file)) = (&mut self.records, &mut self.sink) else {
            return false;
        };
        let passes = self.known.passes(event, lines);
        if passes {
            self.passed += 1;
            // It was lost, and this is in the file, or it was written to a file of this period.
            self.pending.take_lost();
            file.is_due(event.flow.end_ns, 0);
        }
        passes
    }

    /// Begins a new file before an event that is due for one, once all before it has been written.
    fn rotate_before(&mut self, event: &FlowEvent) {
        let Sink::File(file) = &mut self.sink else { return };
        // What completes a line goes where that was begun.
        if !file.is_due(event.flow.end_ns, self.pending.rest().len()) || !self.cut.is_empty() {
            return;
        }
        self.flush(&mut |_| {});
        if let (Sink::File(file), true) = (&mut self.sink, self.pending.is_empty()) {
            // One that cannot be given another name goes on as it is, and is tried again with the next event.
            drop(file.rotate(event.flow.end_ns));
        }
    }

    /// Opens a file anew.
    pub(super) fn reopen(&mut self, warn: Warn) {
        let Sink::File(file) = &mut self.sink else { return };
        match file.reopen() {
            // A line that was begun comes whole in the new file.
            Ok(()) => self.pending.rewind(),
            Err(error) => self.fail(&error, warn),
        }
    }

    /// Writes what the destination takes at once.
    pub(super) fn flush(&mut self, warn: Warn) {
        if let Records::Ipfix(messages) = &mut self.records {
            let pending = &mut self.pending;
            messages.flush(&mut |message, flow_count| {
                pending.push(message, flow_count);
            });
        }
        while self.waits() {
            match self.write_some() {
                Ok(0) => return,
                Ok(count) => {
                    self.pending.take(count);
                    self.is_failing = false;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return self.fail(&error, warn),
            }
        }
    }

    /// Writes until everything is taken. What is not after this time without progress is lost.
    pub(super) fn wait(&mut self, patience: Duration, warn: Warn) {
        let mut since = Instant::now();
        let mut left = self.pending.rest().len();
        self.flush(&mut *warn);
        while self.waits() && since.elapsed() < patience {
            let now_left = self.pending.rest().len();
            if now_left == left {
                std::thread::sleep(RETRY_INTERVAL);
            } else {
                (left, since) = (now_left, Instant::now());
            }
            self.flush(&mut *warn);
        }
        self.pending.drop_whole();
    }

    /// Writes what is left, at the end of a run. A line up to which events were passed over, and that never came, was
    /// of another run: then they are lost.
    pub(super) fn finish(&mut self, warn: Warn) {
        if matches!(self.known, Known::UpToLine(_)) {
            let passed = std::mem::take(&mut self.passed);
            self.pending.lose(passed);
            let what = format!(
                "{passed} events are lost: the last line that was in the log at the start is of another run. Remove \
                 the state to begin anew, with a file of its own"
            );
            warn(&Error::new(what).in_file(&self.name));
        }
        self.wait(PATIENCE, warn);
    }

    fn write_some(&mut self) -> io::Result<usize> {
        if !self.sink.is_reached() {
            return self.reach();
        }
        self.sink.write(&mut self.pending)
    }

    /// Reaches the socket, if it is time. A record that was taken in part by a stream that broke is sent whole: its
    /// number says that it is a repetition.
    fn reach(&mut self) -> io::Result<usize> {
        if self.tried.is_some_and(|tried| tried.elapsed() < CONNECT_INTERVAL) {
            return Ok(0);
        }
        self.tried = Some(Instant::now());
        self.pending.rewind();
        let greeting = match &self.records {
            Records::Ipfix(messages) => messages.templates(),
            Records::Lines { .. } => Vec::new(),
        };
        self.sink.reach(&greeting, self.is_live)?;
        self.tried = None;
        Err(io::Error::from(ErrorKind::Interrupted))
    }

    /// Takes a failure: a socket is to be reached anew.
    fn fail(&mut self, error: &io::Error, warn: Warn) {
        self.sink.leave();
        if !std::mem::replace(&mut self.is_failing, true) {
            let what = "cannot write events; they are kept while there is room, and counted when they are lost";
            warn(&Error::new(what).in_file(&self.name).because(error.to_string()));
        }
    }
}

/// Begins the line of an event: for syslog with the header of a message (RFC 5424, section 6).
fn begin_line(line: &mut Vec<u8>, time_ns: i64, is_syslog: bool) {
    line.clear();
    if is_syslog {
        let time = rfc3339(time_ns);
        // Writing to a vector cannot fail.
        drop(write!(line, "<{SYSLOG_PRIORITY}>1 {time} - flowpeel {} - - ", std::process::id()));
    }
}

/// Makes of a line what is to be written behind the beginning of a line that a killed run left: the rest of it, or a
/// new line if it is another one.
fn complete(cut: &mut Vec<u8>, line: &mut Vec<u8>) {
    if cut.is_empty() {
        return;
    }
    if line.starts_with(cut) {
        line.drain(..cut.len());
    } else {
        line.insert(0, b'\n');
    }
    cut.clear();
}

/// The time of the wall clock in ns since 1970.
pub(super) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
