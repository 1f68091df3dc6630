//! pnet's receivers: on Linux on a socket of our own, which is filtered in the kernel, elsewhere on pnet's.
//!
//! Packets come with the time at which they were read, since pnet gives none.

#[cfg(target_os = "linux")]
use super::device::Device;
#[cfg(target_os = "linux")]
use super::socket::PacketSocket;
use super::wall_ns;
use crate::capture::{PACKET_SIZE_MAX, Packet};
use crate::parse::LinkType;
use pnet::datalink::{self, Channel, Config, DataLinkReceiver, NetworkInterface};
#[cfg(any(test, not(target_os = "linux")))]
use pnet::packet::ethernet::EthernetPacket;
#[cfg(target_os = "linux")]
use rustix::io::Errno;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::IntoRawFd;
use std::time::Duration;

/// The interfaces as pnet lists them, each with its name as valid text: pnet does not check the bytes that the system
/// gives it.
pub(super) fn interfaces() -> Vec<NetworkInterface> {
    let checked = |interface: NetworkInterface| NetworkInterface {
        name: String::from_utf8_lossy(interface.name.as_bytes()).into_owned(),
        ..interface
    };
    datalink::interfaces().into_iter().map(checked).collect()
}

/// A receiver of pnet's.
pub(super) struct PnetReceiver {
    receiver: Box<dyn DataLinkReceiver>,
    link: LinkType,
    /// The socket's error, if reading met it, which clears it from the socket.
    #[cfg(target_os = "linux")]
    error: Option<Errno>,
}

/// Opens pnet's receiver on an interface.
fn open(interface: &NetworkInterface, config: Config) -> io::Result<Box<dyn DataLinkReceiver>> {
    // Nothing is sent.
    let config = Config { read_buffer_size: PACKET_SIZE_MAX, write_buffer_size: 0, ..config };
    match datalink::channel(interface, config)? {
        Channel::Ethernet(_, receiver) => Ok(receiver),
        _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

#[cfg(target_os = "linux")]
impl PnetReceiver {
    /// A receiver on this socket, which it binds to the interface and gives a buffer of this many bytes.
    pub(super) fn new(socket: &PacketSocket, device: &Device, link: LinkType, buffer_size: u64) -> io::Result<Self> {
        socket.set_buffer_size(buffer_size)?;
        // pnet closes what it is given, and the socket is still needed: for statistics, and to be bound again.
        let socket_fd = socket.fd().try_clone_to_owned()?.into_raw_fd();
        let settings = Config {
            read_timeout: Some(Duration::ZERO),
            promiscuous: false,
            socket_fd: Some(socket_fd),
            ..Config::default()
        };
        // With a socket, pnet reads only the index.
        let interface = NetworkInterface {
            name: String::new(),
            description: String::new(),
            index: device.index as u32,
            mac: None,
            ips: Vec::new(),
            flags: 0,
        };
        Ok(PnetReceiver { receiver: open(&interface, settings)?, link, error: None })
    }

    /// The next packet, if there is one now and no error.
    pub(super) fn next_packet(&mut self) -> Option<Packet<'_>> {
        match self.receiver.next() {
            Ok(bytes) => Some(Packet::whole(wall_ns(), self.link, bytes)),
            Err(error) => {
                // pnet's own errors, which say that there is no packet, have no number.
                let errno = error.raw_os_error().map(Errno::from_raw_os_error);
                self.error = errno.filter(|errno| !matches!(*errno, Errno::INTR | Errno::AGAIN)).or(self.error);
                None
            }
        }
    }

    /// Takes the socket's error that reading met, if there is one.
    pub(super) fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }
}

#[cfg(not(target_os = "linux"))]
impl PnetReceiver {
    /// The longest that one call waits for a packet.
    const WAIT_MAX: Duration = Duration::from_millis(1);

    /// A receiver on a socket of pnet's.
    pub(super) fn new(interface: &NetworkInterface, promiscuous: bool) -> io::Result<Self> {
        let settings = Config { read_timeout: Some(Self::WAIT_MAX), promiscuous, ..Config::default() };
        Ok(PnetReceiver { receiver: open(interface, settings)?, link: LinkType::ETHERNET })
    }

    /// The next packet, for which this waits a millisecond at most.
    pub(super) fn next_packet(&mut self) -> io::Result<Option<Packet<'_>>> {
        match self.receiver.next() {
            Ok(bytes) => {
                let (link, bytes) = without_placeholder(self.link, bytes);
                Ok(Some(Packet::whole(wall_ns(), link, bytes)))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The frame as it came from an interface. Where a system's loopback has no Ethernet header pnet puts zeros, 12 to 16
/// of them, in place of the header; what follows is IP.
#[cfg(any(test, not(target_os = "linux")))]
fn without_placeholder(link: LinkType, frame: &[u8]) -> (LinkType, &[u8]) {
    const PLACEHOLDER_SIZE_MAX: usize = 16;
    let has_addresses =
        |header: &EthernetPacket<'_>| !header.get_source().is_zero() || !header.get_destination().is_zero();
    if EthernetPacket::new(frame).is_none_or(|header| has_addresses(&header)) {
        return (link, frame);
    }
    let zero_count = frame.iter().take(PLACEHOLDER_SIZE_MAX).take_while(|byte| **byte == 0).count();
    let (_, packet) = frame.split_at(zero_count);
    match packet.first().map(|first| first >> 4) {
        Some(4 | 6) => (LinkType::RAW, packet),
        _ => (link, frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_taken_off_and_a_header_is_not() {
        for size in 12..=16 {
            let mut frame = vec![0; size];
            frame.extend([0x45; 20]);
            assert_eq!(without_placeholder(LinkType::ETHERNET, &frame), (LinkType::RAW, &[0x45; 20][..]), "{size}");
        }
        let mut frame = [0; 34];
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        // Linux's loopback: a header without addresses.
        assert_eq!(without_placeholder(LinkType::ETHERNET, &frame), (LinkType::ETHERNET, &frame[..]));
        frame[5] = 1;
        assert_eq!(without_placeholder(LinkType::ETHERNET, &frame), (LinkType::ETHERNET, &frame[..]));
        assert_eq!(without_placeholder(LinkType::ETHERNET, &[0; 13]), (LinkType::ETHERNET, &[0; 13][..]));
        assert_eq!(without_placeholder(LinkType::ETHERNET, &[0; 60]), (LinkType::ETHERNET, &[0; 60][..]));
    }

    #[test]
    fn pnet_knows_the_loopback_interface() {
        assert!(interfaces().iter().any(NetworkInterface::is_loopback));
    }
}
