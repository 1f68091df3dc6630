//! A netlink socket: requests whose answer has many parts, and what the kernel sends by itself.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// The buffer that a datagram is read into: the kernel fills one with 32 KiB at most.
const BUFFER_SIZE: usize = 64 << 10;

/// Where messages in a datagram begin.
const ALIGNMENT: usize = 4;

/// A socket of one netlink protocol.
pub(super) struct NetlinkSocket {
    socket: Socket,
    buffer: Vec<u8>,
}

/// What was read.
enum Read {
    /// Messages, after which more may come.
    Some,
    /// The last part of an answer.
    Last,
    /// Nothing, for now.
    Nothing,
}

impl NetlinkSocket {
    /// Opens a socket that is connected to the kernel.
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(NetlinkSocket { socket, buffer: vec![0; BUFFER_SIZE] })
    }

    /// Subscribes to what the kernel sends to these groups; reading no longer waits. `buffer_size` bytes of it are kept
    /// while nobody reads, where the kernel allows as much.
    pub(super) fn subscribe(&mut self, groups: &[u32], buffer_size: usize) -> io::Result<()> {
        for group in groups {
            self.socket.add_membership(*group)?;
        }
        // Beyond what everybody may have it takes the privilege that subscribing takes too.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&self.socket, buffer_size)
            .or_else(|_| rustix::net::sockopt::set_socket_recv_buffer_size(&self.socket, buffer_size))?;
        self.socket.set_non_blocking(true)
    }

    /// Sends a request, with these flags besides the usual one.
    fn send(&self, request: impl NetlinkSerializable, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Asks for all that there is of something, and calls `each` with every part that can be understood.
    pub(super) fn dump<A: NetlinkDeserializable>(
        &mut self,
        request: impl NetlinkSerializable,
        mut each: impl FnMut(&NetlinkHeader, A),
    ) -> io::Result<()> {
        self.send(request, NLM_F_DUMP)?;
        while !matches!(self.read(&mut each)?, Read::Last) {}
        Ok(())
    }

    /// Asks for one thing. Returns the answer, if it can be understood.
    pub(super) fn ask<A: NetlinkDeserializable>(&mut self, request: impl NetlinkSerializable) -> io::Result<Option<A>> {
        self.send(request, 0)?;
        let mut answer = None;
        self.read(&mut |_: &NetlinkHeader, one| answer = Some(one))?;
        Ok(answer)
    }

    /// Calls `each` with what the kernel has sent and can be understood, until there is no more for now.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`: something was lost, because it was not read in time.
    pub(super) fn receive<A: NetlinkDeserializable>(
        &mut self,
        mut each: impl FnMut(&NetlinkHeader, A),
    ) -> io::Result<()> {
        while !matches!(self.read(&mut each)?, Read::Nothing) {}
        Ok(())
    }

    /// Reads a datagram.
    fn read<A: NetlinkDeserializable>(&mut self, each: &mut impl FnMut(&NetlinkHeader, A)) -> io::Result<Read> {
        let size = match self.socket.recv(&mut &mut self.buffer[..], 0) {
            Ok(size) => size,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Read::Nothing),
            Err(error) => return Err(error),
        };
        let mut rest = self.buffer.get(..size).unwrap_or(&[]);
        while let Ok(head) = NetlinkBuffer::new_checked(rest) {
            let length = head.length() as usize;
            match NetlinkMessage::<A>::deserialize(rest) {
                Ok(NetlinkMessage { header, payload: NetlinkPayload::InnerMessage(message), .. }) => {
                    each(&header, message);
                }
                Ok(NetlinkMessage { payload: NetlinkPayload::Done(_), .. }) => return Ok(Read::Last),
                Ok(NetlinkMessage { payload: NetlinkPayload::Error(error), .. }) => {
                    return if error.code.is_some() { Err(error.to_io()) } else { Ok(Read::Last) };
                }
                // What is not understood is about something else.
                Ok(_) | Err(_) => {}
            }
            rest = rest.get(length.next_multiple_of(ALIGNMENT).max(ALIGNMENT)..).unwrap_or(&[]);
        }
        Ok(Read::Some)
    }

    /// Waits until there is something to read, for so long at most.
    pub(super) fn wait(fd: impl AsFd, timeout: Duration) {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        // An interrupted wait is a short one.
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout));
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
