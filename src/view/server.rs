//! The control socket: clients ask what they want to see, and get no more than fits their window.
//!
//! It is a server for a handful of clients of the same user, of which any may be slow, stopped or hostile: one thread,
//! few clients, limits on the size of a request and on the time for an answer, and pauses as long as its own work, so
//! that clients who ask without end take half of a core at most. Nothing else ever waits for it.

use crate::error::{Error, Result};
use crate::serving::{Doorkeeper, ServerThread, Stop};
use crate::view::CLIENTS_MAX;
use crate::view::answer::{Answerer, refusal};
use crate::view::board::Board;
use crate::view::protocol::{Answer, REQUEST_SIZE_MAX, Request};
use mio::net::{UnixListener, UnixStream};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most clients at once; another one is refused. Each takes a screen of somebody who looks.
pub const CONTROL_CLIENTS_MAX: usize = CLIENTS_MAX as usize;

/// How long a client may take for an answer, or do nothing: `top` asks several times a second, and one that was stopped
/// attaches anew.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(30);

/// Bytes that are read of a client at once.
const READ_SIZE: usize = 4 << 10;

/// How much the thread of the server yields to others: capture and lists go first where processors are short.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// A running server. When it is dropped it stops, and its socket is removed.
pub struct ControlServer {
    path: Option<PathBuf>,
    _thread: ServerThread,
}

impl ControlServer {
    /// Serves this board at a socket that only its owner can reach. A socket that nobody listens at is replaced.
    ///
    /// # Errors
    ///
    /// Something else stands at the path, another process listens there, or the system makes no socket or thread.
    pub fn listen(path: &Path, board: Arc<Board>) -> Result<Self> {
        let listener = bind(path)?;
        ControlServer::start(Some((path.to_owned(), listener)), None, board)
    }

    /// Serves this board to the caller alone, at the stream that is returned.
    ///
    /// # Errors
    ///
    /// The system makes no socket or thread.
    pub fn pair(board: Arc<Board>) -> Result<(Self, net::UnixStream)> {
        let (near, far) = net::UnixStream::pair().map_err(unserved)?;
        Ok((ControlServer::start(None, Some(far), board)?, near))
    }

    fn start(
        listening: Option<(PathBuf, net::UnixListener)>,
        own: Option<net::UnixStream>,
        board: Arc<Board>,
    ) -> Result<Self> {
        let (path, listener) = listening.unzip();
        let (clients, stop) = Clients::new(listener, own, board).map_err(unserved)?;
        let thread = stop.start("control", move || clients.serve()).map_err(unserved)?;
        Ok(ControlServer { path, _thread: thread })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // Who attaches from now on finds none, and not one that is about to go.
        self.path.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

fn unserved(cause: io::Error) -> Error {
    Error::new("cannot serve what is open").because(cause)
}

/// A listener at this path, which was never open to others: the socket is made in a directory of its own, and moved.
fn bind(path: &Path) -> Result<net::UnixListener> {
    let cannot = |cause: io::Error| Error::new("cannot listen here, for flowpeel top").in_file(path).because(cause);
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(Error::new("this is there already, and no socket: choose another path").in_file(path));
        }
        Ok(_) if net::UnixStream::connect(path).is_ok() => {
            return Err(Error::new("another process listens here: choose another path").in_file(path));
        }
        _ => {}
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".fp").permissions(Permissions::from_mode(0o700));
    let directory = builder.tempdir_in(parent).map_err(cannot)?;
    let made = directory.path().join("s");
    let listener = net::UnixListener::bind(&made).map_err(cannot)?;
    fs::set_permissions(&made, Permissions::from_mode(0o600)).map_err(cannot)?;
    fs::rename(&made, path).map_err(cannot)?;
    Ok(listener)
}

/// Serves all clients until it is stopped.
struct Clients {
    doorkeeper: Doorkeeper<UnixListener>,
    clients: BTreeMap<usize, Client>,
    /// Until when nothing is answered.
    rests_until: Instant,
    answerer: Answerer,
    board: Arc<Board>,
}

impl Clients {
    fn new(
        listener: Option<net::UnixListener>,
        own: Option<net::UnixStream>,
        board: Arc<Board>,
    ) -> io::Result<(Self, Stop)> {
        let listener = listener.map(|listener| {
            listener.set_nonblocking(true)?;
            io::Result::Ok(UnixListener::from_std(listener))
        });
        let (doorkeeper, stop) = Doorkeeper::new(listener.transpose()?, CONTROL_CLIENTS_MAX)?;
        let clients = BTreeMap::new();
        let mut clients =
            Clients { doorkeeper, clients, rests_until: Instant::now(), answerer: Answerer::default(), board };
        if let Some(own) = own {
            own.set_nonblocking(true)?;
            clients.admit(Client { is_own: true, ..Client::new(UnixStream::from_std(own)) });
        }
        Ok((clients, stop))
    }

    fn serve(mut self) {
        yield_to_others();
        while let Some(ready) = self.doorkeeper.wait(self.wake_at()) {
            for number in ready {
                self.clients.get_mut(&number).into_iter().for_each(|client| client.is_ready = true);
            }
            for stream in self.doorkeeper.newcomers() {
                self.admit(Client::new(stream));
            }
            self.advance_all();
            let now = Instant::now();
            self.clients.retain(|_, client| client.deadline().is_none_or(|deadline| deadline > now));
        }
    }

    /// When something is to be done without an event.
    fn wake_at(&self) -> Option<Instant> {
        let deadlines = self.clients.values().filter_map(Client::deadline);
        let waits = self.clients.values().any(|client| client.is_ready || client.has_request());
        deadlines.chain(waits.then_some(self.rests_until)).min()
    }

    /// Takes a client, or tells it why not.
    fn admit(&mut self, mut client: Client) {
        if self.clients.len() >= CONTROL_CLIENTS_MAX {
            let most = format!("{CONTROL_CLIENTS_MAX} are attached, which is the most: end one of them");
            // Sent only if that is possible at once.
            drop(client.stream.write(&line(&refusal(most, None))));
        } else if let Ok(number) = self.doorkeeper.admit(&mut client.stream) {
            self.clients.insert(number, client);
        }
    }

    /// Serves the clients whose sockets are ready, and answers one request of each that has one, unless it is to rest.
    fn advance_all(&mut self) {
        let Self { clients, answerer, board, rests_until, .. } = self;
        clients.retain(|_, client| {
            if client.is_ready && client.transfer().is_err() {
                return false;
            }
            let began = Instant::now();
            if client.has_request() && *rests_until <= began {
                client.answer(|request| answerer.answer(request, board));
                *rests_until = Instant::now() + began.elapsed();
                return client.transfer().is_ok();
            }
            true
        });
    }
}

/// Lets the thread of the caller go behind all others.
fn yield_to_others() {
    // On Linux this is about the calling thread alone. Where it fails, the thread is like any other.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

/// An answer as a line.
fn line(answer: &Answer) -> Vec<u8> {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    line
}

/// A client.
struct Client {
    stream: UnixStream,
    /// Whether it is of this process, which may be stopped for any time.
    is_own: bool,
    /// Whether its socket may have more, or take more.
    is_ready: bool,
    /// What it sent and was not answered.
    received: Vec<u8>,
    /// The answer under way, and how much of it was sent.
    answer: Vec<u8>,
    sent: usize,
    /// Whether nothing is read any more: it is gone once the answer is sent.
    is_over: bool,
    /// When it sent its last request, or took its last answer.
    heard: Instant,
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        Client {
            stream,
            is_own: false,
            is_ready: true,
            received: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            is_over: false,
            heard: Instant::now(),
        }
    }

    /// When it is given up.
    fn deadline(&self) -> Option<Instant> {
        (!self.is_own).then_some(self.heard + CLIENT_TIME_MAX)
    }

    /// Whether a request waits for an answer.
    fn has_request(&self) -> bool {
        self.answer.is_empty() && !self.is_over && self.received.contains(&b'\n')
    }

    /// Sends and reads what is possible without blocking: a request is read only when the answer before it was sent.
    ///
    /// # Errors
    ///
    /// The client is done.
    fn transfer(&mut self) -> io::Result<()> {
        while !self.answer.is_empty() {
            match self.stream.write(self.answer.get(self.sent..).unwrap_or_default()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_ready = false;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.sent == self.answer.len() {
                (self.answer, self.sent, self.heard) = (Vec::new(), 0, Instant::now());
                if self.is_over {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
        }
        let mut chunk = [0; READ_SIZE];
        while !self.received.contains(&b'\n') {
            if self.received.len() >= REQUEST_SIZE_MAX {
                self.refuse(format!("a request has at most {REQUEST_SIZE_MAX} bytes"));
                return Ok(());
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received.extend(chunk.iter().take(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_ready = false;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes the request that waits, and makes the answer.
    fn answer(&mut self, answer: impl FnOnce(&Request) -> Answer) {
        let Some(end) = self.received.iter().position(|byte| *byte == b'\n') else { return };
        let request: Vec<u8> = self.received.drain(..=end).collect();
        self.heard = Instant::now();
        match serde_json::from_slice::<Request>(&request) {
            Ok(request) => self.answer = line(&answer(&request)),
            Err(error) => self.refuse(format!("this is no request, at byte {}", error.column())),
        }
        self.is_ready = true;
    }

    /// Ends the client once it has read why.
    fn refuse(&mut self, reason: String) {
        (self.answer, self.sent) = (line(&refusal(reason, None)), 0);
        (self.is_over, self.is_ready) = (true, true);
        self.received = Vec::new();
    }
}

#[cfg(test)]
mod tests;
