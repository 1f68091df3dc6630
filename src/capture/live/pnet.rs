//! pnet's receiver on a socket of our own, which is filtered in the kernel.
//!
//! What enters: a packet socket. What leaves: its packets, with the time at which they were read, since the receiver
//! gives none.

use std::io;
use std::os::fd::IntoRawFd;
use std::time::Duration;

use pnet_datalink::{Channel, Config, DataLinkReceiver, NetworkInterface};
use rustix::io::Errno;

use super::device::Device;
use super::socket::PacketSocket;
use super::wall_ns;
use crate::capture::{PACKET_SIZE_MAX, Packet};
use crate::parse::LinkType;

/// A receiver on a packet socket.
pub(super) struct Pnet {
    receiver: Box<dyn DataLinkReceiver>,
    link: LinkType,
    /// The socket's error, if reading met it, which clears it from the socket.
    trouble: Option<Errno>,
}

impl Pnet {
    /// A receiver on this socket, which it binds to the interface and gives a buffer of this many bytes.
    pub(super) fn new(socket: &PacketSocket, device: &Device, link: LinkType, buffer_size: u64) -> io::Result<Self> {
        socket.keep(buffer_size)?;
        // pnet closes what it is given, and the socket is still needed: for statistics, and to be bound again.
        let socket_fd = socket.fd().try_clone_to_owned()?.into_raw_fd();
        let config = Config {
            read_buffer_size: PACKET_SIZE_MAX,
            // Nothing is sent.
            write_buffer_size: 0,
            read_timeout: Some(Duration::ZERO),
            promiscuous: false,
            socket_fd: Some(socket_fd),
            ..Config::default()
        };
        let interface = NetworkInterface {
            name: String::new(),
            description: String::new(),
            index: device.index as u32,
            mac: None,
            ips: Vec::new(),
            flags: 0,
        };
        match pnet_datalink::channel(&interface, config)? {
            Channel::Ethernet(_, receiver) => Ok(Pnet { receiver, link, trouble: None }),
            _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }

    /// The next packet, if there is one now and no error.
    pub(super) fn next_packet(&mut self) -> Option<Packet<'_>> {
        match self.receiver.next() {
            Ok(bytes) => Some(Packet { time_ns: wall_ns(), link: self.link, bytes, vlan: None }),
            Err(error) => {
                // pnet's own errors, which say that there is no packet, have no number.
                let errno = error.raw_os_error().map(Errno::from_raw_os_error);
                self.trouble = errno.filter(|errno| !matches!(*errno, Errno::INTR | Errno::AGAIN)).or(self.trouble);
                None
            }
        }
    }

    /// Takes the socket's error that reading met, if there is one.
    pub(super) fn take_trouble(&mut self) -> Option<Errno> {
        self.trouble.take()
    }
}
