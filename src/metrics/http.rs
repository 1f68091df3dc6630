//! Metrics over HTTP: what Prometheus scrapes, and what a load balancer or a person asks for.
//!
//! Anybody who can reach the address may ask for `/metrics`, `/healthz`, and an index at `/`. It is a server for a
//! handful of honest clients that hostile ones cannot harm: one thread, few clients at once, limits on the size of a
//! request and on the time for all of it, and only atomics shared with the packet path. The well-known small server
//! crates have no time limits; only the header parser is a crate's.

use crate::error::{self, Error};
use crate::metrics::Metrics;
use crate::serving::{Doorkeeper, ServerThread, Stop};
use mio::net::{TcpListener, TcpStream};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A running server, which stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _thread: ServerThread,
}

/// What a server shows, and where it counts who asked. The metrics of a run are one; a program of several commands has
/// others.
pub trait Source: Send + Sync + 'static {
    /// The page of `/metrics`, in Prometheus' text format: [`Samples`](super::Samples) write it.
    fn exposition(&self, now: Instant) -> String;
    /// What is wrong, in one line, for `/healthz`; `None` if nothing is.
    fn health(&self, now: Instant) -> Option<String>;
    /// Counts a client that was answered, with any status.
    fn responded(&self);
    /// Counts a client that was not answered: it took too long, went away, or had to make room.
    fn abandoned(&self);
}

impl Source for Metrics {
    fn exposition(&self, now: Instant) -> String {
        self.exposition(now)
    }

    fn health(&self, now: Instant) -> Option<String> {
        self.health(now)
    }

    fn responded(&self) {
        self.responded();
    }

    fn abandoned(&self) {
        self.abandoned();
    }
}

/// Serves metrics at an address, on a thread of its own. Port 0 stands for any free port.
///
/// # Errors
///
/// The address is in use or not one of this machine's, or no thread can be started.
///
/// # Examples
///
/// ```
/// use flowpeel::metrics::{Metrics, Setup};
/// use std::io::{Read, Write};
///
/// let server = flowpeel::metrics::http::serve("127.0.0.1:0".parse()?, Metrics::new(Setup::default()))?;
/// let mut client = std::net::TcpStream::connect(server.local_addr())?;
/// client.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve(address: SocketAddr, metrics: Arc<impl Source>) -> error::Result<Server> {
    let failed = |cause: std::io::Error| {
        Error::new(format!("cannot serve metrics at {address}, choose another address with --metrics")).because(cause)
    };
    let (clients, stop) = Clients::new(address, metrics).map_err(failed)?;
    let address = clients.local_addr().map_err(failed)?;
    let thread = stop.start("metrics", move || clients.serve()).map_err(failed)?;
    Ok(Server { address, _thread: thread })
}

impl Server {
    /// The address at which it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

/// Whether other machines may reach a server at this address. It serves nothing secret, but how busy a router is need
/// not be public.
#[must_use]
pub fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// The most clients that the metrics server serves at once; another one pushes out the oldest. A scrape lasts some
/// milliseconds, so slow clients cannot keep honest ones out, and hold a megabyte or two at most.
pub const SERVE_CONNECTION_COUNT_MAX: usize = 32;

/// Serves all clients until it is stopped. Clients are kept in the order of their arrival, which is that of their
/// deadlines.
struct Clients {
    doorkeeper: Doorkeeper<TcpListener>,
    /// The clients by number: the lowest is the oldest.
    clients: BTreeMap<usize, Connection>,
    metrics: Arc<dyn Source>,
}

impl Clients {
    fn new(address: SocketAddr, metrics: Arc<dyn Source>) -> std::io::Result<(Self, Stop)> {
        let (doorkeeper, stop) = Doorkeeper::new(Some(TcpListener::bind(address)?), SERVE_CONNECTION_COUNT_MAX)?;
        Ok((Clients { doorkeeper, clients: BTreeMap::new(), metrics }, stop))
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.doorkeeper.listener().ok_or(ErrorKind::NotConnected)?.local_addr()
    }

    fn serve(mut self) {
        while let Some(ready) = self.doorkeeper.wait(self.clients.first_key_value().map(|(_, first)| first.deadline()))
        {
            ready.into_iter().for_each(|number| self.advance(number));
            let now = Instant::now();
            while let Some(client) = self.clients.first_entry().filter(|client| client.get().deadline() <= now) {
                let client = client.remove();
                self.close(client);
            }
            for stream in self.doorkeeper.newcomers() {
                self.admit(Connection::new(stream, now));
            }
        }
    }

    fn admit(&mut self, mut client: Connection) {
        if self.clients.len() >= SERVE_CONNECTION_COUNT_MAX
            && let Some((_, oldest)) = self.clients.pop_first()
        {
            self.close(oldest);
        }
        match self.doorkeeper.admit(&mut client.stream) {
            Ok(number) => drop(self.clients.insert(number, client)),
            Err(_) => self.metrics.abandoned(),
        }
    }

    /// Serves a client whose socket is ready. One that was dropped meanwhile is skipped.
    fn advance(&mut self, number: usize) {
        let Self { clients, metrics, .. } = self;
        let Some(client) = clients.get_mut(&number) else { return };
        let progress = client.advance(|request| respond(request, &**metrics, Instant::now()));
        if progress == Progress::Over
            && let Some(client) = self.clients.remove(&number)
        {
            self.close(client);
        }
    }

    /// Counts a client that is done. Dropping it closes its socket.
    fn close(&mut self, client: Connection) {
        if client.is_answered() { self.metrics.responded() } else { self.metrics.abandoned() }
    }
}

/// Bytes that the metrics server reads of a client at once: an ordinary request whole.
const SERVE_READ_SIZE: usize = 1 << 10;

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

/// Whether a connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The connection waits for the client.
    Waiting,
    /// The connection is to be closed.
    Over,
}

/// A connection to a client.
struct Connection {
    stream: TcpStream,
    deadline: Instant,
    state: State,
}

impl Connection {
    fn new(stream: TcpStream, now: Instant) -> Self {
        Connection { stream, deadline: now + SERVE_TIME_MAX, state: State::Reading(Vec::new()) }
    }

    /// When the connection is closed at the latest.
    fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the client was sent its response.
    fn is_answered(&self) -> bool {
        matches!(self.state, State::Draining { .. })
    }

    /// Reads and writes what is possible without blocking.
    fn advance(&mut self, respond: impl Fn(Result<Request, Status>) -> Vec<u8>) -> Progress {
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

/// The longest request to the metrics server, in bytes: a browser with its cookies sends less.
pub const REQUEST_SIZE_MAX: usize = 8 << 10;

/// The most headers of a request to the metrics server.
const REQUEST_HEADER_COUNT_MAX: usize = 64;

const _: () = assert!(SERVE_READ_SIZE <= REQUEST_SIZE_MAX);

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request<'a> {
    method: &'a str,
    /// Without the query.
    path: &'a str,
}

/// Reads the head of a request; `None` while it is incomplete, and neither wrong nor too large.
fn read_request(bytes: &[u8]) -> Option<Result<Request<'_>, Status>> {
    let mut headers = [httparse::EMPTY_HEADER; REQUEST_HEADER_COUNT_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < REQUEST_SIZE_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(Err(Status::HeadersTooLarge));
        }
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some(Err(Status::BadRequest)),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Some(Err(Status::BadRequest));
    };
    let host_count = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host")).count();
    // HTTP/1.1 requires exactly one.
    if host_count > 1 || (version == 1 && host_count == 0) {
        return Some(Err(Status::BadRequest));
    }
    Some(Ok(Request { method, path: path_of(target) }))
}

/// The path of a target, which is `/a?b`, or `http://host/a?b` as a proxy gets it.
fn path_of(target: &str) -> &str {
    let target = match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    };
    target.split('?').next().unwrap_or(target)
}

/// The statuses of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// The page follows.
    Ok,
    /// The request is not valid HTTP/1.
    BadRequest,
    /// There is no such page.
    NotFound,
    /// The method is neither GET nor HEAD.
    MethodNotAllowed,
    /// The head of the request is larger than the limit.
    HeadersTooLarge,
    /// Something is wrong with the lists.
    Unavailable,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::HeadersTooLarge => "431 Request Header Fields Too Large",
            Status::Unavailable => "503 Service Unavailable",
        }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";
const INDEX: &str = concat!("flowpeel ", env!("CARGO_PKG_VERSION"), ": see /metrics and /healthz\n");

struct Page {
    status: Status,
    content_type: &'static str,
    body: String,
}

impl Page {
    /// A page with only the text of its status.
    fn bare(status: Status) -> Self {
        Page { status, content_type: TEXT, body: format!("{}\n", status.line()) }
    }

    fn bytes(&self, has_body: bool) -> Vec<u8> {
        let allow = if self.status == Status::MethodNotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
        let text = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{}",
            self.status.line(),
            self.content_type,
            self.body.len(),
            if has_body { &self.body } else { "" }
        );
        text.into_bytes()
    }
}

/// The response to a request.
fn respond(request: Result<Request, Status>, metrics: &dyn Source, now: Instant) -> Vec<u8> {
    match request {
        Err(status) => Page::bare(status).bytes(true),
        Ok(Request { method: "GET", path }) => page(path, metrics, now).bytes(true),
        Ok(Request { method: "HEAD", path }) => page(path, metrics, now).bytes(false),
        Ok(_) => Page::bare(Status::MethodNotAllowed).bytes(true),
    }
}

fn page(path: &str, metrics: &dyn Source, now: Instant) -> Page {
    match path {
        "/" => Page { status: Status::Ok, content_type: TEXT, body: INDEX.to_owned() },
        "/metrics" => Page { status: Status::Ok, content_type: EXPOSITION, body: metrics.exposition(now) },
        "/healthz" => {
            let (status, line) = match metrics.health(now) {
                None => (Status::Ok, "ok".to_owned()),
                Some(problems) => (Status::Unavailable, problems),
            };
            Page { status, content_type: TEXT, body: line + "\n" }
        }
        _ => Page::bare(Status::NotFound),
    }
}

#[cfg(test)]
mod tests;
