//! One destination: what it has not taken yet, what was lost, and the file or socket behind it.

use crate::error::{Error, Result};
use crate::event_log::RETRY_INTERVAL;
use crate::event_log::destination::{Destination, EventFormat, Place};
use crate::event_log::file::{EventFile, Rotation};
use crate::event_log::pending::Pending;
use crate::event_log::sink::Sink;
use crate::export::{EventLines, FlowEvent, IpfixMessages, rfc3339};
use crate::metrics::EventCounts;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a socket that could not be reached is left alone.
const CONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Facility "local use 0", severity "informational" (RFC 5424, section 6.2.1).
const SYSLOG_PRIORITY: u8 = 16 * 8 + 6;

/// What makes records of events.
enum Encoder {
    Lines { lines: EventLines, is_syslog: bool },
    Ipfix(IpfixMessages),
}

/// A destination of a log.
pub(super) struct Output {
    name: String,
    encoder: Encoder,
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
}

type Warn<'a> = &'a mut (dyn FnMut(&Error) + Send);

impl Output {
    /// Opens a destination. A socket may be reached later.
    ///
    /// # Errors
    ///
    /// A file cannot be opened.
    pub(super) fn open(
        destination: Destination,
        rotation: Rotation,
        is_live: bool,
        counts: Arc<EventCounts>,
    ) -> Result<Self> {
        let name = destination.place.to_string();
        let sink = match destination.place {
            Place::Stdout => Sink::Stdout(io::stdout()),
            Place::File(path) => Sink::File(EventFile::open(&path, rotation)?),
            socket => Sink::Socket(socket, None),
        };
        let lines = |lines, is_syslog| Encoder::Lines { lines, is_syslog };
        let encoder = match destination.format {
            EventFormat::Ndjson => lines(EventLines::own(), false),
            EventFormat::Eve => lines(EventLines::eve(), false),
            EventFormat::Syslog => lines(EventLines::own(), true),
            EventFormat::Ipfix => Encoder::Ipfix(IpfixMessages::default()),
        };
        Ok(Output {
            name,
            encoder,
            sink,
            is_live,
            pending: Pending::new(counts),
            sequence: 0,
            record: Vec::new(),
            tried: None,
            is_failing: false,
        })
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
        self.sequence += 1;
        let event = FlowEvent { sequence: self.sequence, ..*event };
        self.rotate_before(&event);
        let Output { encoder, pending, record, .. } = self;
        match encoder {
            Encoder::Lines { lines, is_syslog } => {
                if pending.lost() > 0 {
                    begin_line(record, &event, *is_syslog);
                    lines.append_loss(record, pending.lost(), &event);
                    if pending.push(record, 0) {
                        pending.take_lost();
                    }
                }
                begin_line(record, &event, *is_syslog);
                lines.append(record, &event);
                pending.push(record, 1);
            }
            Encoder::Ipfix(messages) => {
                messages.count_lost(pending.take_lost());
                messages.add(&event, &mut |message, flow_count| {
                    pending.push(message, flow_count);
                });
            }
        }
    }

    /// Begins a new file before an event that is due for one, once all before it has been written.
    fn rotate_before(&mut self, event: &FlowEvent) {
        let Sink::File(file) = &mut self.sink else { return };
        if !file.is_due(event.flow.end_ns) {
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
        if let Sink::File(file) = &mut self.sink
            && let Err(error) = file.reopen()
        {
            self.fail(&error, warn);
        }
    }

    /// Writes what the destination takes at once.
    pub(super) fn flush(&mut self, warn: Warn) {
        if let Encoder::Ipfix(messages) = &mut self.encoder {
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
        let greeting = match &self.encoder {
            Encoder::Ipfix(messages) => messages.templates(),
            Encoder::Lines { .. } => Vec::new(),
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
fn begin_line(line: &mut Vec<u8>, event: &FlowEvent, is_syslog: bool) {
    line.clear();
    if is_syslog {
        let time = rfc3339(event.flow.end_ns);
        // Writing to a vector cannot fail.
        drop(write!(line, "<{SYSLOG_PRIORITY}>1 {time} - flowpeel {} - - ", std::process::id()));
    }
}
