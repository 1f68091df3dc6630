//! The thread that serves all clients.
//!
//! What enters: the sockets that the system reports as ready. What leaves: responses. Clients are kept in the order of
//! their arrival, which is that of their deadlines. If there are too many, the oldest is dropped.

use crate::metrics::Metrics;
use crate::serve::connection::{Connection, Progress};
use crate::serve::pages::respond;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::time::Instant;

/// The most clients that the metrics server serves at once; another one pushes out the oldest. A scrape lasts some
/// milliseconds, so slow clients cannot keep honest ones out, and hold a megabyte or two at most.
pub const SERVE_CONNECTION_COUNT_MAX: usize = 32;

/// How long the metrics server waits when the system lets it take no more clients.
const SERVE_RETRY: Duration = Duration::from_millis(100);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_CLIENT: usize = 2;

/// Serves clients until it is told to stop.
pub(super) struct Attendant {
    poll: Poll,
    listener: TcpListener,
    /// The clients by number: the lowest is the oldest.
    clients: BTreeMap<usize, Connection>,
    next_client: usize,
    /// When to accept new clients without an event.
    accept_at: Option<Instant>,
    metrics: Arc<Metrics>,
    should_stop: Arc<AtomicBool>,
}

impl Attendant {
    pub(super) fn new(
        address: SocketAddr,
        metrics: Arc<Metrics>,
        should_stop: Arc<AtomicBool>,
    ) -> std::io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(address)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let clients = BTreeMap::new();
        let attendant =
            Attendant { poll, listener, clients, next_client: FIRST_CLIENT, accept_at: None, metrics, should_stop };
        Ok((attendant, waker))
    }

    pub(super) fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(2 * SERVE_CONNECTION_COUNT_MAX);
        loop {
            let deadline = self.clients.first_key_value().map(|(_, client)| client.deadline());
            let wake_at = deadline.into_iter().chain(self.accept_at).min();
            let timeout = wake_at.map(|at| at.saturating_duration_since(Instant::now()));
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                // Trying again at once would not help.
                std::thread::sleep(SERVE_RETRY);
            }
            if self.should_stop.load(Ordering::Acquire) {
                return;
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept_at = Some(Instant::now()),
                    WAKER => {}
                    Token(number) => self.advance(number),
                }
            }
            let now = Instant::now();
            while let Some(client) = self.clients.first_entry().filter(|client| client.get().deadline() <= now) {
                let client = client.remove();
                self.close(client);
            }
            if self.accept_at.is_some_and(|at| at <= now) {
                self.accept(now);
            }
        }
    }

    /// Accepts new clients, no more at once than there is room for: those that are there come next.
    fn accept(&mut self, now: Instant) {
        self.accept_at = Some(now);
        for _ in 0..SERVE_CONNECTION_COUNT_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(Connection::new(stream, now)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.accept_at = None;
                    return;
                }
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    self.accept_at = Some(now + SERVE_RETRY);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, mut client: Connection) {
        if self.clients.len() >= SERVE_CONNECTION_COUNT_MAX
            && let Some((_, oldest)) = self.clients.pop_first()
        {
            self.close(oldest);
        }
        let number = self.next_client;
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self.poll.registry().register(&mut client.stream, Token(number), interest) {
            Ok(()) => {
                self.next_client += 1;
                self.clients.insert(number, client);
            }
            Err(_) => self.metrics.abandoned(),
        }
    }

    /// Goes on with a client. One that was dropped meanwhile is skipped.
    fn advance(&mut self, number: usize) {
        let Self { clients, metrics, .. } = self;
        let Some(client) = clients.get_mut(&number) else { return };
        let progress = client.advance(|request| respond(request, metrics, Instant::now()));
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
