//! One client, from its first byte to the close.
//!
//! What enters: what its socket gives when it is ready. What leaves: one response. Nothing here blocks, and nothing is
//! held beyond a request of limited size and its response.

use crate::serve::pages::Status;
use crate::serve::request::{REQUEST_SIZE_MAX, Request, read_request};
use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;
use std::time::Instant;

/// Bytes that the metrics server reads of a client at once: an ordinary request whole.
pub(super) const SERVE_READ_SIZE: usize = 1 << 10;

/// How long a client of the metrics server may take for everything: as long as Prometheus waits by default.
const SERVE_TIME_MAX: Duration = Duration::from_secs(10);

/// The most that is read of a client after its request, in bytes, so that the client can read the answer: closing with
/// unread bytes would reset the connection.
const SERVE_DISCARD_SIZE_MAX: usize = 64 << 10;

enum State {
    Reading(Vec<u8>),
    Writing {
        response: Vec<u8>,
        written: usize,
    },
    /// The response is written, and the client's end is awaited: closing with unread bytes would reset the connection
    /// before the response is read.
    Draining {
        discarded: usize,
    },
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The connection waits for the client.
    Waiting,
    /// The connection is to be closed.
    Over,
}

/// A connection to a client.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    deadline: Instant,
    state: State,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, now: Instant) -> Self {
        Connection { stream, deadline: now + SERVE_TIME_MAX, state: State::Reading(Vec::new()) }
    }

    /// When the connection is closed at the latest.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the client was sent its response.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.state, State::Draining { .. })
    }

    /// Goes on as far as possible without blocking.
    pub(super) fn advance(&mut self, respond: impl Fn(Result<Request, Status>) -> Vec<u8>) -> Progress {
        loop {
            let step = match &mut self.state {
                State::Reading(bytes) => read_some(&mut self.stream, bytes, &respond),
                State::Writing { response, written } => write_some(&mut self.stream, response, written),
                State::Draining { discarded } => discard_some(&mut self.stream, discarded),
            };
            match step {
                Ok(Some(state)) => self.state = state,
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Waiting,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Progress::Over,
            }
        }
    }
}

/// The next state, if there is one; an error if the socket gives no more for now, or ever.
type Step = std::io::Result<Option<State>>;

fn ended() -> std::io::Error {
    ErrorKind::UnexpectedEof.into()
}

fn read_some(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    respond: &impl Fn(Result<Request, Status>) -> Vec<u8>,
) -> Step {
    let mut chunk = [0; SERVE_READ_SIZE];
    // There is room left: a request that fills it without ending is refused.
    let room = SERVE_READ_SIZE.min(REQUEST_SIZE_MAX.saturating_sub(bytes.len()));
    let count = stream.read(&mut chunk[..room])?;
    if count == 0 {
        return Err(ended());
    }
    bytes.extend_from_slice(&chunk[..count]);
    let request = read_request(bytes);
    Ok(request.map(|request| State::Writing { response: respond(request), written: 0 }))
}

fn write_some(stream: &mut TcpStream, response: &[u8], written: &mut usize) -> Step {
    let count = stream.write(&response[*written..])?;
    if count == 0 {
        return Err(ended());
    }
    *written += count;
    if *written < response.len() {
        return Ok(None);
    }
    // If the client has gone already, there is nothing to shut down.
    drop(stream.shutdown(Shutdown::Write));
    Ok(Some(State::Draining { discarded: 0 }))
}

fn discard_some(stream: &mut TcpStream, discarded: &mut usize) -> Step {
    let mut chunk = [0; SERVE_READ_SIZE];
    *discarded += stream.read(&mut chunk).and_then(|count| if count == 0 { Err(ended()) } else { Ok(count) })?;
    if *discarded >= SERVE_DISCARD_SIZE_MAX { Err(ended()) } else { Ok(None) }
}
