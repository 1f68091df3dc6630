//! The other end of the control socket.

use crate::error::{Error, Result};
use crate::view::protocol::{ANSWER_SIZE_MAX, Answer, PROTOCOL_VERSION, Request};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take: as long as a million rows under load, many times over.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// A client of a control socket.
pub struct ViewClient {
    stream: BufReader<UnixStream>,
}

impl ViewClient {
    /// Attaches to the socket at this path.
    ///
    /// # Errors
    ///
    /// Nobody listens there, or the socket is another user's.
    pub fn attach(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).map_err(|cause| {
            Error::new("cannot attach: is this the PATH of a running flowpeel live --control PATH?")
                .in_file(path)
                .because(cause)
        })?;
        ViewClient::of(stream)
    }

    /// The client at the end of this stream.
    ///
    /// # Errors
    ///
    /// The system takes no limit of time for it.
    pub fn of(stream: UnixStream) -> Result<Self> {
        let limited =
            stream.set_read_timeout(Some(ANSWER_PATIENCE)).and(stream.set_write_timeout(Some(ANSWER_PATIENCE)));
        limited.map_err(|cause| Error::new("cannot limit the time for an answer").because(cause))?;
        Ok(ViewClient { stream: BufReader::new(stream) })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    ///
    /// There is no answer in ten seconds, or none that is one. Then the client is of no more use.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        let request = Request { version: PROTOCOL_VERSION, ..request.clone() };
        let mut line = serde_json::to_vec(&request).map_err(|cause| Error::new("cannot ask").because(cause))?;
        line.push(b'\n');
        let sent = self.stream.get_mut().write_all(&line);
        // Who refuses a client says why before it closes, so the answer is read in any case.
        let mut answer = Vec::new();
        let read = self.stream.by_ref().take(ANSWER_SIZE_MAX as u64).read_until(b'\n', &mut answer);
        if !answer.ends_with(b"\n") {
            let ended = Error::new("flowpeel live no longer answers");
            return Err(match sent.and(read.map(drop)) {
                Err(cause) => ended.because(cause),
                Ok(()) => ended,
            });
        }
        let answer = serde_json::from_slice::<Answer>(&answer);
        answer.map_err(|cause| Error::new("what answers is no flowpeel of this version").because(cause))
    }
}
