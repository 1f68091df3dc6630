//! A thread that serves the clients of a listener, until another thread stops it.
//!
//! It says which clients are ready and hands over new ones. Who they are, how many there may be and what they get is
//! the server's. Where the system lets it take no more clients it tries again after a pause, and nothing is lost: those
//! who wait are taken then.

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Token, Waker};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long a thread waits when the system lets it take no more clients, or does not let it wait for them.
const RETRY: Duration = Duration::from_millis(100);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_CLIENT: usize = 2;

/// What clients connect to.
pub(crate) trait Listener: Source {
    /// The connection to a client.
    type Stream: Source;

    /// Takes one that waits.
    fn take(&self) -> io::Result<Self::Stream>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn take(&self) -> io::Result<TcpStream> {
        self.accept().map(|(stream, _)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn take(&self) -> io::Result<UnixStream> {
        self.accept().map(|(stream, _)| stream)
    }
}

/// What the thread of a server waits for.
pub(crate) struct Doorkeeper<L> {
    poll: Poll,
    events: Events,
    listener: Option<L>,
    /// Clients taken at once, at most: those that are there come next.
    batch_count: usize,
    next_client: usize,
    /// When to take new clients without an event.
    take_at: Option<Instant>,
    should_stop: Arc<AtomicBool>,
}

/// What stops the thread that keeps the door.
pub(crate) struct Stop {
    should_stop: Arc<AtomicBool>,
    waker: Waker,
}

/// The thread of a server. When it is dropped the thread has ended.
#[derive(Debug)]
pub(crate) struct ServerThread {
    should_stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl<L: Listener> Doorkeeper<L> {
    /// One for this listener, or for clients of the server's own alone, that takes so many clients at once.
    ///
    /// # Errors
    ///
    /// The system has nothing to wait with.
    pub(crate) fn new(mut listener: Option<L>, batch_count: usize) -> io::Result<(Self, Stop)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        if let Some(listener) = &mut listener {
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        let should_stop = Arc::new(AtomicBool::new(false));
        let stop = Stop { should_stop: Arc::clone(&should_stop), waker };
        let events = Events::with_capacity(2 * batch_count);
        let doorkeeper =
            Doorkeeper { poll, events, listener, batch_count, next_client: FIRST_CLIENT, take_at: None, should_stop };
        Ok((doorkeeper, stop))
    }

    /// The listener.
    pub(crate) fn listener(&self) -> Option<&L> {
        self.listener.as_ref()
    }

    /// Waits until clients are ready, new ones come, or this time has come. Returns the numbers of the clients that are
    /// ready; `None` when the thread is to end.
    pub(crate) fn wait(&mut self, until: Option<Instant>) -> Option<Vec<usize>> {
        let wake_at = until.into_iter().chain(self.take_at).min();
        let timeout = wake_at.map(|at| at.saturating_duration_since(Instant::now()));
        if let Err(error) = self.poll.poll(&mut self.events, timeout)
            && error.kind() != ErrorKind::Interrupted
        {
            // Trying again at once would not help.
            std::thread::sleep(RETRY);
        }
        if self.should_stop.load(Ordering::Acquire) {
            return None;
        }
        let mut ready = Vec::new();
        for event in &self.events {
            match event.token() {
                LISTENER => self.take_at = Some(Instant::now()),
                WAKER => {}
                Token(number) => ready.push(number),
            }
        }
        Some(ready)
    }

    /// The new clients that wait, as far as the system lets them in now.
    pub(crate) fn newcomers(&mut self) -> Vec<L::Stream> {
        let now = Instant::now();
        let mut newcomers = Vec::new();
        let Some(listener) = self.listener.as_ref().filter(|_| self.take_at.is_some_and(|at| at <= now)) else {
            return newcomers;
        };
        for _ in 0..self.batch_count {
            match listener.take() {
                Ok(stream) => newcomers.push(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.take_at = None;
                    return newcomers;
                }
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    self.take_at = Some(now + RETRY);
                    return newcomers;
                }
            }
        }
        newcomers
    }

    /// Waits for this client from now on. Returns its number, which is higher than that of any before it.
    ///
    /// # Errors
    ///
    /// The system waits for no more.
    pub(crate) fn admit(&mut self, stream: &mut L::Stream) -> io::Result<usize> {
        let number = self.next_client;
        self.poll.registry().register(stream, Token(number), Interest::READABLE | Interest::WRITABLE)?;
        self.next_client += 1;
        Ok(number)
    }
}

impl Stop {
    /// Starts the thread of this name, which ends when its doorkeeper says so.
    ///
    /// # Errors
    ///
    /// The system has no thread.
    pub(crate) fn start(self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<ServerThread> {
        let thread = Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(ServerThread { should_stop: self.should_stop, waker: self.waker, thread: Some(thread) })
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.should_stop.store(true, Ordering::Release);
        // A thread that cannot be woken is not joined: it ends with the process.
        if self.waker.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            drop(thread.join());
        }
    }
}
