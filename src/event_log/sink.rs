//! What takes the bytes of a destination: standard output, a file, or a socket that is reached when it is there.

use crate::event_log::destination::Place;
use crate::event_log::file::EventFile;
use crate::event_log::pending::Pending;
use std::io::{self, ErrorKind, Stdout, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

/// How long reaching a collector over TCP may take, and in a replay a write.
const SOCKET_PATIENCE: Duration = Duration::from_secs(5);

/// What takes bytes.
pub(super) enum Sink {
    Stdout(Stdout),
    File(EventFile),
    /// A place that is no file, and the socket while it is reached.
    Socket(Place, Option<Socket>),
}

/// A socket that is reached.
pub(super) enum Socket {
    Stream(UnixStream),
    Datagrams(UnixDatagram),
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Sink {
    pub(super) fn is_reached(&self) -> bool {
        !matches!(self, Sink::Socket(_, None))
    }

    /// Gives up a socket.
    pub(super) fn leave(&mut self) {
        if let Sink::Socket(_, socket) = self {
            *socket = None;
        }
    }

    /// Reaches the socket. A stream begins with this greeting. In a live capture nothing waits for it afterwards.
    pub(super) fn reach(&mut self, greeting: &[u8], is_live: bool) -> io::Result<()> {
        let Sink::Socket(place, socket) = self else { return Ok(()) };
        let patience = Some(SOCKET_PATIENCE);
        let mut reached = match place {
            Place::Stream(path) => Socket::Stream(UnixStream::connect(path)?),
            Place::Datagrams(path) => {
                let datagrams = UnixDatagram::unbound()?;
                datagrams.connect(path)?;
                Socket::Datagrams(datagrams)
            }
            Place::Tcp(host) => Socket::Tcp(TcpStream::connect_timeout(&address(host)?, SOCKET_PATIENCE)?),
            Place::Udp(host) => {
                let to = address(host)?;
                let from: std::net::IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
                let datagrams = UdpSocket::bind((from, 0))?;
                datagrams.connect(to)?;
                Socket::Udp(datagrams)
            }
            Place::Stdout | Place::File(_) | Place::Directory(_) => return Ok(()),
        };
        match &mut reached {
            Socket::Stream(stream) => {
                stream.set_write_timeout(patience)?;
                stream.write_all(greeting)?;
                stream.set_nonblocking(is_live)?;
            }
            Socket::Tcp(stream) => {
                stream.set_write_timeout(patience)?;
                stream.write_all(greeting)?;
                stream.set_nonblocking(is_live)?;
            }
            Socket::Datagrams(datagrams) => {
                datagrams.set_write_timeout(patience)?;
                datagrams.set_nonblocking(is_live)?;
            }
            Socket::Udp(datagrams) => datagrams.set_nonblocking(is_live)?,
        }
        *socket = Some(reached);
        Ok(())
    }

    /// Writes some of what waits, and returns how many bytes were taken.
    pub(super) fn write(&mut self, pending: &mut Pending) -> io::Result<usize> {
        match self {
            Sink::Stdout(out) => {
                out.write_all(pending.rest())?;
                out.flush()?;
                Ok(pending.rest().len())
            }
            Sink::File(file) => file.write(pending.rest(), pending.is_at_record()),
            Sink::Socket(_, Some(Socket::Stream(stream))) => stream.write(pending.rest()),
            Sink::Socket(_, Some(Socket::Tcp(stream))) => stream.write(pending.rest()),
            Sink::Socket(_, Some(Socket::Datagrams(datagrams))) => {
                let record = pending.first();
                datagrams.send(record.strip_suffix(b"\n").unwrap_or(record))?;
                Ok(record.len())
            }
            Sink::Socket(_, Some(Socket::Udp(datagrams))) => {
                let record = pending.first();
                datagrams.send(record)?;
                Ok(record.len())
            }
            Sink::Socket(_, None) => Err(ErrorKind::NotConnected.into()),
        }
    }
}

fn address(host: &str) -> io::Result<std::net::SocketAddr> {
    host.to_socket_addrs()?.next().ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the host has no address"))
}
