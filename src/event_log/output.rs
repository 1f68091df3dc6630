//! One destination: the lines that it has not taken yet, what was lost, and the file or socket behind it.

use crate::error::{Error, Result};
use crate::event_log::RETRY_INTERVAL;
use crate::event_log::destination::{Destination, LineFormat, Place};
use crate::event_log::file::{EventFile, Rotation};
use crate::export::{EventLines, FlowEvent, rfc3339};
use crate::metrics::EventCounts;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The most bytes that wait at a destination: some 15,000 events, which a receiver that is restarted should not lose.
pub(super) const PENDING_SIZE_MAX: usize = 4 << 20;

/// How long a socket that could not be reached is left alone.
const CONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Facility "local use 0", severity "informational" (RFC 5424, section 6.2.1).
const SYSLOG_PRIORITY: u8 = 16 * 8 + 6;

/// What takes the bytes.
enum Sink {
    Stdout(io::Stdout),
    File(EventFile),
    Stream(Option<UnixStream>),
    Datagrams(Option<UnixDatagram>),
}

/// A destination of a log.
pub(super) struct Output {
    destination: Destination,
    sink: Sink,
    lines: EventLines,
    is_live: bool,
    counts: Arc<EventCounts>,
    /// Whole lines that the destination has not taken, from `taken` on.
    pending: Vec<u8>,
    taken: usize,
    /// The number of the last event, lost ones included.
    sequence: u64,
    /// Events that were lost since a line said so.
    lost: u64,
    line: Vec<u8>,
    /// When a socket was last tried, and whether it was reported that the destination fails.
    tried: Option<Instant>,
    is_failing: bool,
}

type Warn<'a> = &'a mut (dyn FnMut(&Error) + Send);

impl Output {
    /// Opens a destination. A socket may be reached later.
    pub(super) fn open(
        destination: Destination,
        rotation: Rotation,
        is_live: bool,
        counts: Arc<EventCounts>,
    ) -> Result<Self> {
        let sink = match &destination.place {
            Place::Stdout => Sink::Stdout(io::stdout()),
            Place::File(path) => Sink::File(EventFile::open(path, rotation)?),
            Place::Stream(_) => Sink::Stream(None),
            Place::Datagrams(_) => Sink::Datagrams(None),
        };
        let lines = if destination.format == LineFormat::Eve { EventLines::eve() } else { EventLines::own() };
        Ok(Output {
            destination,
            sink,
            lines,
            is_live,
            counts,
            pending: Vec::new(),
            taken: 0,
            sequence: 0,
            lost: 0,
            line: Vec::new(),
            tried: None,
            is_failing: false,
        })
    }

    /// Whether there are lines that the destination has not taken.
    pub(super) fn waits(&self) -> bool {
        self.taken < self.pending.len()
    }

    /// Whether there is no room for many more lines.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() - self.taken > PENDING_SIZE_MAX / 2
    }

    /// Counts events that never came here.
    pub(super) fn skip(&mut self, count: u64) {
        self.sequence += count;
        self.lost += count;
    }

    /// Takes an event, of which the number is given here. Without room it is lost.
    pub(super) fn put(&mut self, event: &FlowEvent) {
        self.sequence += 1;
        let event = FlowEvent { sequence: self.sequence, ..*event };
        self.rotate_before(&event);
        self.line.clear();
        if self.lost > 0 {
            self.append(&event, Some(self.lost));
        }
        self.append(&event, None);
        if self.pending.len() - self.taken + self.line.len() > PENDING_SIZE_MAX {
            self.lost += 1;
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.lost = 0;
        let begun = self.line_start();
        self.pending.drain(..begun);
        self.taken -= begun;
        self.pending.extend_from_slice(&self.line);
        self.counts.written.fetch_add(1, Ordering::Relaxed);
    }

    /// Appends the line of an event, or of how many were lost before it.
    fn append(&mut self, event: &FlowEvent, lost: Option<u64>) {
        if self.destination.format == LineFormat::Syslog {
            let time = rfc3339(event.flow.end_ns);
            // Writing to a vector cannot fail.
            drop(write!(self.line, "<{SYSLOG_PRIORITY}>1 {time} - flowpeel {} - - ", std::process::id()));
        }
        match lost {
            Some(lost) => self.lines.append_loss(&mut self.line, lost, event),
            None => self.lines.append(&mut self.line, event),
        }
    }

    /// Begins a new file before an event that is due for one, once all before it has been written.
    fn rotate_before(&mut self, event: &FlowEvent) {
        let Sink::File(file) = &mut self.sink else { return };
        if !file.is_due(event.flow.end_ns) {
            return;
        }
        self.flush(&mut |_| {});
        if self.taken == self.pending.len()
            && let Sink::File(file) = &mut self.sink
        {
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
        while self.taken < self.pending.len() {
            match self.write_some() {
                Ok(0) => return,
                Ok(count) => {
                    self.taken += count;
                    self.is_failing = false;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return self.fail(&error, warn),
            }
        }
        self.pending.clear();
        self.taken = 0;
    }

    /// Writes for so long until everything is taken. What is not then is lost.
    pub(super) fn wait(&mut self, patience: Duration, warn: Warn) {
        let mut since = Instant::now();
        let mut taken = (self.pending.len(), self.taken);
        while self.waits() && since.elapsed() < patience {
            self.flush(&mut *warn);
            if taken != (self.pending.len(), self.taken) {
                taken = (self.pending.len(), self.taken);
                since = Instant::now();
            } else if self.waits() {
                std::thread::sleep(RETRY_INTERVAL);
            }
        }
        if self.waits() {
            self.give_up();
        }
    }

    /// Counts the lines that were not taken as lost. The rest of one that was taken in part stays.
    fn give_up(&mut self) {
        let begun = self.line_start();
        let end_of_line = |from: usize| {
            let rest = self.pending.get(from..).unwrap_or_default();
            rest.iter().position(|&byte| byte == b'\n').map_or(self.pending.len(), |at| from + at + 1)
        };
        let kept = if begun < self.taken { end_of_line(self.taken) } else { self.taken };
        let lost = self.pending.iter().skip(kept).filter(|&&byte| byte == b'\n').count() as u64;
        self.pending.truncate(kept);
        self.lost += lost;
        self.counts.lost.fetch_add(lost, Ordering::Relaxed);
        self.counts.written.fetch_sub(lost, Ordering::Relaxed);
    }

    /// Where the line begins of which some may have been taken.
    fn line_start(&self) -> usize {
        let taken = self.pending.get(..self.taken).unwrap_or_default();
        taken.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
    }

    fn write_some(&mut self) -> io::Result<usize> {
        let rest = self.pending.get(self.taken..).unwrap_or_default();
        match &mut self.sink {
            Sink::Stdout(out) => {
                out.write_all(rest)?;
                out.flush()?;
                Ok(rest.len())
            }
            Sink::File(file) => file.write(rest),
            Sink::Stream(Some(socket)) => socket.write(rest),
            Sink::Datagrams(Some(socket)) => {
                let size = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
                socket.send(&rest[..size])?;
                Ok((size + 1).min(rest.len()))
            }
            Sink::Stream(None) | Sink::Datagrams(None) => self.connect(),
        }
    }

    /// Reaches the socket, if it is time. What was taken in part of a stream that broke is sent whole: its number says
    /// that it is a repetition.
    fn connect(&mut self) -> io::Result<usize> {
        if self.tried.is_some_and(|tried| tried.elapsed() < CONNECT_INTERVAL) {
            return Ok(0);
        }
        self.tried = Some(Instant::now());
        self.taken = self.line_start();
        let path = self.destination.path().unwrap_or(Path::new(""));
        match &mut self.sink {
            Sink::Stream(socket) => {
                let connected = UnixStream::connect(path)?;
                connected.set_nonblocking(self.is_live)?;
                connected.set_write_timeout(Some(super::PATIENCE))?;
                *socket = Some(connected);
            }
            Sink::Datagrams(socket) => {
                let connected = UnixDatagram::unbound()?;
                connected.connect(path)?;
                connected.set_nonblocking(self.is_live)?;
                connected.set_write_timeout(Some(super::PATIENCE))?;
                *socket = Some(connected);
            }
            Sink::Stdout(_) | Sink::File(_) => {}
        }
        self.tried = None;
        Err(io::Error::from(ErrorKind::Interrupted))
    }

    /// Takes a failure: a socket is to be reached anew.
    fn fail(&mut self, error: &io::Error, warn: Warn) {
        match &mut self.sink {
            Sink::Stream(socket) => *socket = None,
            Sink::Datagrams(socket) => *socket = None,
            Sink::Stdout(_) | Sink::File(_) => {}
        }
        if !std::mem::replace(&mut self.is_failing, true) {
            let what =
                Error::new("cannot write events; they are kept while there is room, and counted when they are lost");
            let place = self.destination.path().unwrap_or(Path::new("standard output"));
            warn(&what.in_file(place).because(error.to_string()));
        }
    }
}
