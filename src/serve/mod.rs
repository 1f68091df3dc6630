//! Metrics over HTTP: what Prometheus scrapes, and what a load balancer or a person asks for.
//!
//! What enters: requests from whoever can reach the address. What leaves: `/metrics`, `/healthz`, and an index at `/`.
//! It is a server for a handful of honest clients that hostile ones cannot harm: one thread, few clients at once,
//! limits on the size of a request and on the time for all of it, and only atomics shared with the packet path. The
//! well-known small server crates have no time limits; only the header parser is a crate's.

mod connection;
mod pages;
mod request;
mod thread;

use crate::error::{Error, Result};
use crate::metrics::Metrics;
use mio::Waker;
pub use request::REQUEST_SIZE_MAX;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
pub use thread::SERVE_CONNECTION_COUNT_MAX;

/// A running server, which stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    should_stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
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
/// let server = flowpeel::serve::serve("127.0.0.1:0".parse()?, Metrics::new(Setup::default()))?;
/// let mut client = std::net::TcpStream::connect(server.local_addr())?;
/// client.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve(address: SocketAddr, metrics: Arc<Metrics>) -> Result<Server> {
    let failed = |cause: std::io::Error| {
        Error::new(format!("cannot serve metrics at {address}, choose another address with --metrics")).because(cause)
    };
    let should_stop = Arc::new(AtomicBool::new(false));
    let (attendant, waker) = thread::Attendant::new(address, metrics, Arc::clone(&should_stop)).map_err(failed)?;
    let address = attendant.local_addr().map_err(failed)?;
    let builder = std::thread::Builder::new().name("metrics".to_owned());
    let thread = builder.spawn(move || attendant.run()).map_err(failed)?;
    Ok(Server { address, should_stop, waker, thread: Some(thread) })
}

impl Server {
    /// The address at which it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
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

/// Whether other machines may reach a server at this address. It serves nothing secret, but how busy a router is need
/// not be public.
#[must_use]
pub fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_not_exposed_and_all_else_is() {
        for (address, expected) in [
            ("127.0.0.1:9464", false),
            ("127.8.0.1:1", false),
            ("[::1]:9464", false),
            ("[::ffff:127.0.0.1]:9464", false),
            ("0.0.0.0:9464", true),
            ("[::]:9464", true),
            ("192.0.2.1:9464", true),
            ("[::ffff:192.0.2.1]:9464", true),
        ] {
            assert_eq!(is_exposed(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn an_address_that_is_taken_is_refused_with_the_way_out() {
        let metrics = Metrics::new(crate::metrics::Setup::default());
        let server = serve(SocketAddr::from(([127, 0, 0, 1], 0)), Arc::clone(&metrics)).unwrap();
        let message = serve(server.local_addr(), metrics).unwrap_err().to_string();
        assert!(message.contains(&server.local_addr().to_string()) && message.contains("--metrics"), "{message}");
    }
}
